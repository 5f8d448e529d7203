"""Workers that die: a fit on several processes and a cross-validated fit on a cluster, with kills at random moments.

    python -m benchmarks.kills [--kills 20] [--dask-kills 10] [--quick]

First part: `gwi launch` trains a network on two processes; a random worker gets SIGKILL at a random moment, many times; torchrun
starts the workers again, and the fit goes on from its snapshot. While it runs, the snapshots are read over and over: they must be
whole at every moment. Last the model is compared with that of a fit left alone. Second part: a cluster of two Dask workers does a
cross-validated fit again and again; each time one of them is killed. Records go to results/kills.csv.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from joblib import parallel_config
from sklearn.ensemble import ExtraTreesRegressor

from benchmarks import records
from gwi import GWIRegressor
from gwi.files import ModelFileError, from_bytes

ROOT = Path(__file__).parent.parent
Record = dict[str, Any]


def rows(path: Path, num_rows: int) -> Path:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((num_rows, 3))
    y = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.2 * rng.standard_normal(num_rows)
    pq.write_table(pa.table({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": y}), path, row_group_size=num_rows // 8)
    return path


def command(data: Path, output: Path, snapshots: Path) -> list[str]:
    launch = [sys.executable, "-m", "gwi", "launch", "--nproc-per-node", "2"]
    return [*launch, *fit_command(data, output), "--snapshots", str(snapshots)]


def fit_command(data: Path, output: Path) -> list[str]:
    """What each process is to do."""
    return ["fit", str(data), "-t", "y", "-o", str(output), "--mean", "network", "--holdout", "0", "--force", "--quiet"]


def difference(one: Path, other: Path) -> float:
    """The largest difference of a number in two model files, which must hold the same names and shapes."""
    first, second = (from_bytes(path.read_bytes())[1] for path in (one, other))
    if {name: value.shape for name, value in first.items()} != {name: value.shape for name, value in second.items()}:
        return math.inf
    return max(float((value.double() - second[name].double()).abs().max()) for name, value in first.items() if value.numel())


def workers(launcher: psutil.Process) -> list[psutil.Process]:
    try:
        return [child for child in launcher.children() if "fit" in child.cmdline()]
    except psutil.Error:
        return []


def killed_fit(data: Path, folder: Path, num_kills: int, wait: float) -> Iterator[Record]:
    """One launched fit whose workers are killed so many times; a record each kill, and the last one is the comparison."""
    undisturbed, disturbed, snapshots = folder / "alone.gwi", folder / "killed.gwi", folder / "snapshots"
    start = time.monotonic()
    subprocess.run(command(data, undisturbed, folder / "unused"), check=True, cwd=ROOT)
    alone = time.monotonic() - start
    choice = random.Random(0)
    begun = subprocess.Popen(command(data, disturbed, snapshots), cwd=ROOT)
    launcher = psutil.Process(begun.pid)
    reads = unreadable = 0
    for kill in range(num_kills):
        # Some fall into the start of the processes, some into the passes, most into the training.
        moment = time.monotonic() + choice.uniform(0, wait)
        while time.monotonic() < moment and begun.poll() is None:
            for path in snapshots.glob("*.snapshot"):
                reads += 1
                try:
                    from_bytes(path.read_bytes())
                except ModelFileError:
                    unreadable += 1
            time.sleep(0.05)
        while begun.poll() is None and len(found := workers(launcher)) < 2:
            time.sleep(0.1)
        if begun.poll() is not None:
            break
        victim = choice.choice(found)
        step = steps(snapshots)
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait(60)
        yield {"what": "kill", "number": kill + 1, "value": float(step), "note": "steps of training in the snapshot"}
    code = begun.wait(3600)
    yield {"what": "exit code", "number": num_kills, "value": float(code), "note": "of gwi launch"}
    yield {"what": "unreadable snapshots", "number": reads, "value": float(unreadable), "note": "of so many reads"}
    note = f"largest of a number in the model file from that of a fit left alone, which took {alone:.0f} s"
    yield {"what": "difference", "number": num_kills, "value": difference(disturbed, undisturbed), "note": note}


def steps(snapshots: Path) -> int:
    path = snapshots / "mean-1.snapshot"
    return int(from_bytes(path.read_bytes())[0]["progress"]["steps"]) if path.exists() else 0


def killed_cluster(num_kills: int, num_rows: int) -> Iterator[Record]:
    """Cross-validated fits on two Dask workers, one of which is killed during each."""
    import dask
    from distributed import Client, LocalCluster

    rng = np.random.default_rng(0)
    x = rng.standard_normal((num_rows, 4))
    y = x[:, 0] + np.sin(2 * x[:, 1]) + 0.1 * rng.standard_normal(num_rows)

    def fitted() -> Any:
        return GWIRegressor(ExtraTreesRegressor(100), num_inducing=20, random_state=0).fit(x, y).predict(x)

    wanted = fitted()
    dask.config.set({"distributed.scheduler.allowed-failures": 10})
    choice = random.Random(0)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as client,
        parallel_config(backend="dask"),
    ):
        for kill in range(num_kills):
            nannies = list(cluster.workers.values())
            victim = choice.choice(nannies).pid
            delay = choice.uniform(0.2, 1.5)
            killer = subprocess.Popen([sys.executable, "-c", f"import os, time; time.sleep({delay}); os.kill({victim}, 9)"])
            found = fitted()
            killer.wait()
            client.wait_for_workers(2, timeout=120)
            note = f"largest difference from the fit left alone; a worker was killed after {delay:.1f} s"
            yield {"what": "dask", "number": kill + 1, "value": float(np.abs(found - wanted).max()), "note": note}


def measure(num_kills: int, num_dask: int, num_rows: int, wait: float) -> Iterator[Record]:
    folder = Path(tempfile.mkdtemp(prefix="gwi-kills-"))
    try:
        yield from killed_fit(rows(folder / "rows.parquet", num_rows), folder, num_kills, wait)
        yield from killed_cluster(num_dask, 2000)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--dask-kills", type=int, default=10)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--wait", type=float, default=20.0, help="the longest time between two kills, in seconds")
    parser.add_argument("--quick", action="store_true", help="one kill of each kind, nothing is written")
    options = parser.parse_args(arguments)
    if options.quick:
        for row in measure(1, 1, 2000, 20.0):
            print(*row.values(), sep=", ", flush=True)
    else:
        records.write("kills", measure(options.kills, options.dask_kills, options.rows, options.wait))


if __name__ == "__main__":
    main()
