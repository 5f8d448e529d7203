"""Workers that die: a fit on several processes and a cross-validated fit on a cluster, with kills at random moments.

    python -m benchmarks.studies.kills [--parts fit cluster] [--kills 20] [--dask-kills 10] [--quick]

First part: `gwi launch` trains a network on two processes; a random worker gets SIGKILL at a random moment, many times; torchrun
starts the workers again, and the fit goes on from its checkpoint. While it runs, checkpoints are read over and over: they must be
whole at every moment. Last the model is compared with that of a fit left alone. Second part: a cluster of two Dask workers does
one cross-validated fit, during which one of them is killed again and again. Records go to results/kills.csv.
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
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from joblib import parallel_config
from sklearn.ensemble import ExtraTreesRegressor

from benchmarks.tables.common import records
from gwi import GWIRegressor
from gwi.exceptions import ModelFileError
from gwi.parts import Covariance
from gwi.storage.container import from_bytes

PARTS = ("fit", "cluster")
# Trees of a forest, some seconds of work, and the longest time between two kills of Dask workers that are both there.
NUM_TREES = 1000
DASK_WAIT = 4.0
Record = dict[str, Any]


def rows(path: Path, num_rows: int) -> Path:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((num_rows, 3))
    y = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.2 * rng.standard_normal(num_rows)
    pq.write_table(pa.table({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": y}), path, row_group_size=num_rows // 8)
    return path


def command(data: Path, output: Path, checkpoints: Path) -> list[str]:
    launch = [sys.executable, "-m", "gwi", "launch", "--nproc-per-node", "2"]
    return [*launch, *fit_command(data, output), "--checkpoints", str(checkpoints)]


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
    undisturbed, disturbed, checkpoints = folder / "alone.gwi", folder / "killed.gwi", folder / "checkpoints"
    start = time.monotonic()
    subprocess.run(command(data, undisturbed, folder / "unused"), check=True, cwd=records.ROOT)
    alone = time.monotonic() - start
    choice = random.Random(0)
    begun = subprocess.Popen(command(data, disturbed, checkpoints), cwd=records.ROOT)
    launcher = psutil.Process(begun.pid)
    reads = unreadable = 0
    for kill in range(num_kills):
        # Some fall into the start of the processes, some into the passes, most into the training.
        moment = time.monotonic() + choice.uniform(0, wait)
        while time.monotonic() < moment and begun.poll() is None:
            for path in checkpoints.glob("*.checkpoint"):
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
        step = steps(checkpoints)
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait(60)
        yield {"what": "kill", "number": kill + 1, "value": float(step), "note": "steps of training in the checkpoint"}
    code = begun.wait(3600)
    yield {"what": "exit code", "number": num_kills, "value": float(code), "note": "of gwi launch"}
    yield {"what": "unreadable snapshots", "number": reads, "value": float(unreadable), "note": "of so many reads"}
    note = f"largest of a number in the model file from that of a fit left alone, which took {alone:.0f} s"
    yield {"what": "difference", "number": num_kills, "value": difference(disturbed, undisturbed), "note": note}


def steps(checkpoints: Path) -> int:
    path = checkpoints / "mean-1.checkpoint"
    return int(from_bytes(path.read_bytes())[0]["progress"]["steps"]) if path.exists() else 0


def killed_cluster(num_kills: int, num_rows: int, wait: float) -> Iterator[Record]:
    """One cross-validated fit on two Dask workers, one of which is killed again and again."""
    import dask
    from distributed import Client, LocalCluster

    rng = np.random.default_rng(0)
    x = rng.standard_normal((num_rows, 4))
    y = x[:, 0] + np.sin(2 * x[:, 1]) + 0.1 * rng.standard_normal(num_rows)
    means = [ExtraTreesRegressor(NUM_TREES, max_features=share) for share in (0.25, 0.5, 0.75, 1.0)]

    def fitted() -> Any:
        return GWIRegressor(means, random_state=0, covariance=Covariance(num_inducing=20)).fit(x, y).predict(x)

    start = time.monotonic()
    wanted = fitted()
    alone = time.monotonic() - start
    settings = {
        # A cluster gives up on a task after so many deaths around it; a task that waits on a dead worker counts, too.
        "distributed.scheduler.allowed-failures": num_kills,
        # A local cluster looks once, so long after a death, whether the worker is back, and else drops it for good, also when it
        # is the next death from which the worker is just recovering. Clusters of `dask worker` do not.
        "distributed.deploy.lost-worker-timeout": "1 hour",
    }
    with (
        dask.config.set(settings),
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster),
        Killer(cluster, num_kills, wait) as killer,
        parallel_config(backend="dask"),
    ):
        found = fitted()
    if len(killer.moments) < num_kills:
        raise RuntimeError(f"The fit was over after {len(killer.moments)} kills of {num_kills}; give it more trees.")
    for kill, moment in enumerate(killer.moments, start=1):
        yield {"what": "dask kill", "number": kill, "value": moment, "note": "seconds after the start of the fit"}
    note = f"largest of a prediction from that of a fit left alone, which took {alone:.0f} s on one process"
    worst = float(np.abs(found - wanted).max())
    yield {"what": "dask difference", "number": len(killer.moments), "value": worst, "note": note}


class Killer(threading.Thread):
    """Kills one of two Dask workers at random moments, each time when both are there, until it is told to stop."""

    def __init__(self, cluster: Any, num_kills: int, wait: float) -> None:
        super().__init__(daemon=True)
        self.cluster, self.num_kills, self.wait = cluster, num_kills, wait
        self.moments: list[float] = []
        self.killed: set[int] = set()
        self.stop = threading.Event()

    def __enter__(self) -> Killer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.join()

    def run(self) -> None:
        """Kill until it was often enough."""
        choice = random.Random(0)
        begun = time.monotonic()
        while len(self.moments) < self.num_kills:
            # A worker that dies while its nanny starts it is not started again: that is not what is measured here.
            while len(found := self.living()) < 2:
                if self.stop.wait(0.1):
                    return
            if self.stop.wait(choice.uniform(0, self.wait)):
                return
            # Only its nanny may wait for it, and learn how it ended.
            victim = choice.choice(found)
            os.kill(victim, signal.SIGKILL)
            self.killed.add(victim)
            self.moments.append(time.monotonic() - begun)

    def living(self) -> list[int]:
        """The processes of the workers that the scheduler knows."""
        known = self.cluster.scheduler.workers
        pids = [nanny.pid for nanny in list(self.cluster.workers.values()) if nanny.worker_address in known]
        return [pid for pid in pids if pid and pid not in self.killed]


def measure_fit(num_kills: int, num_rows: int, wait: float) -> Iterator[Record]:
    folder = Path(tempfile.mkdtemp(prefix="gwi-kills-"))
    try:
        yield from killed_fit(rows(folder / "rows.parquet", num_rows), folder, num_kills, wait)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="those to measure; of others, records stay")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--dask-kills", type=int, default=10)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--wait", type=float, default=20.0, help="the longest time between two kills of a fit, in seconds")
    parser.add_argument("--quick", action="store_true", help="one kill of each kind, nothing is written")
    options = parser.parse_args(arguments)
    if options.quick:
        options.kills, options.dask_kills, options.rows = 1, 1, 2000
    measured = {
        "fit": lambda: measure_fit(options.kills, options.rows, options.wait),
        "cluster": lambda: killed_cluster(options.dask_kills, 2000, DASK_WAIT),
    }
    if options.quick:
        for part in options.parts:
            for row in measured[part]():
                print(*row.values(), sep=", ", flush=True)
        return
    known = [row for row in records.read("kills") if part_of(row) not in options.parts]
    fresh = [row for part in options.parts for row in measured[part]()]
    records.write("kills", sorted([*known, *fresh], key=lambda row: PARTS.index(part_of(row))))


def part_of(row: Mapping[str, Any]) -> str:
    return "cluster" if row["what"].startswith("dask") else "fit"


if __name__ == "__main__":
    main()
