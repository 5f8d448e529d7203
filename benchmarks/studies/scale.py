"""Many rows: time and memory of a fit and a prediction that read generated Parquet files some rows at a time.

    python -m benchmarks.studies.scale [--rows 1000000 5000000 50000000] [--ranks 1 2 4] [--folder /tmp/gwi-scale] [--quick]

Rows are generated chunk by chunk into the folder, used, and deleted. Each fit and each prediction is a process of its own, whose
peak memory is its largest resident size. The mean is a network, trained on a hundred thousand rows and then frozen; M is 200.
Quantities go to results/speed.csv under the set "generated", those of several processes to results/processes.csv. Seconds are
processor seconds, as in benchmarks.studies.speed, and for several processes also those that passed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

import gwi
from benchmarks.studies.speed import COLUMNS, record
from benchmarks.tables.common import records
from benchmarks.tables.common.machine import peak_megabytes
from gwi import GWIRegressor
from gwi.core.kernels import default_kernel
from gwi.core.networks import mlp
from gwi.fitting import stream_data as streams
from gwi.parts import Covariance
from gwi.streaming.process_group import joined
from gwi.tables.parquet import parquet_source

NUM_COLUMNS, NUM_INDUCING, GROUP, FILES = 10, 200, 1 << 17, 4
SET = "generated"


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Attributes:
        rows: of the tables.
        compared: rows of the table that is fitted in memory too.
        trained: rows that the frozen network is trained on.
        steps: of its training.
    """

    rows: tuple[int, ...] = (1_000_000, 7_000_000, 50_000_000)
    compared: int = 200_000
    trained: int = 100_000
    steps: int = 2000


QUICK = Sizes((20_000,), 15_000, 5000, 100)


def drawn(rng: np.random.Generator, count: int) -> tuple[Any, Any]:
    """Standard normal rows, and a smooth target with noise that grows with the third column."""
    x = rng.standard_normal((count, NUM_COLUMNS))
    f = np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + 0.3 * x[:, 3:].sum(1)
    return x, f + 0.3 * np.exp(0.3 * x[:, 2]) * rng.standard_normal(count)


def as_table(x: Any, y: Any) -> Any:
    return pa.table({**{f"x{i}": x[:, i] for i in range(NUM_COLUMNS)}, "y": y})


def generate(folder: Path, num_rows: int) -> Path:
    """A folder of Parquet files with so many rows, written chunk by chunk."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for i in range(FILES):
        count = num_rows * (i + 1) // FILES - num_rows * i // FILES
        with pq.ParquetWriter(folder / f"{i}.parquet", as_table(*drawn(rng, 1)).schema, compression="snappy") as writer:
            for start in range(0, count, GROUP):
                writer.write_table(as_table(*drawn(rng, min(GROUP, count - start))), row_group_size=GROUP)
    return folder


def frozen_network(path: Path, sizes: Sizes) -> None:
    """Train a small network on rows of its own and keep it."""
    x, y = (torch.from_numpy(part).float() for part in drawn(np.random.default_rng(1), sizes.trained))
    generator = torch.Generator().manual_seed(0)
    network = mlp(NUM_COLUMNS, hidden=(64, 64), activation=torch.nn.SiLU, generator=generator)
    optimiser = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(sizes.steps):
        rows = torch.randint(len(x), (256,), generator=generator)
        optimiser.zero_grad()
        (network(x[rows])[:, 0] - y[rows]).square().mean().backward()
        optimiser.step()
    torch.save(network.state_dict(), path)


def estimator(network: Path | None) -> GWIRegressor:
    if network is None:
        return GWIRegressor("network", covariance=Covariance(num_inducing=NUM_INDUCING), random_state=0)
    module = mlp(NUM_COLUMNS, hidden=(64, 64), activation=torch.nn.SiLU)
    module.load_state_dict(torch.load(network, weights_only=True))
    return GWIRegressor(module, covariance=Covariance(num_inducing=NUM_INDUCING), random_state=0)


def validation() -> tuple[Any, Any]:
    return drawn(np.random.default_rng(2), 10_000)


def fit(folder: Path, network: Path | None, output: Path) -> dict[str, float]:
    streams.FEW_NUMBERS = 0
    model = estimator(network).fit(folder, "y", validation=validation() if network is not None else None)
    model.save(output)
    return {"rows": float(model.summary_.num_rows)}


def predict(folder: Path, model: Path, output: Path) -> dict[str, float]:
    gwi.predict_source(gwi.load(model), folder, output)
    return {"rows": float(pq.ParquetFile(output).metadata.num_rows)}


def sums(folder: Path) -> dict[str, float]:
    """One pass for the sketch and one for the sums, on all processes: what grows with the rows, and nothing else."""
    with joined() as group:
        start = time.perf_counter()
        data = streams.stream_data(parquet_source(folder, "y"), torch.Generator().manual_seed(0))
        sketched = time.perf_counter()
        data.gram(default_kernel(NUM_COLUMNS).requires_grad_(False), data.x[:NUM_INDUCING])
        ended = time.perf_counter()
        processor = sum(group.gathered(time.process_time))
        found_by_all = {"rows": float(data.num_rows), "sketch_seconds": sketched - start, "sums_seconds": ended - sketched}
        return found_by_all | {"all_processor_seconds": processor} if group.is_first else {}


def measured(arguments: Sequence[str], launcher: Sequence[str] = ()) -> dict[str, float]:
    """What a process of its own says of its work."""
    command = [sys.executable, *launcher, "-m", "benchmarks.studies.scale", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=records.ROOT)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr}")
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(line)


def work(name: str, paths: Sequence[Path]) -> None:
    """Do one thing and print its cost."""
    torch.set_num_threads(1)
    start, passed = time.process_time(), time.perf_counter()
    if name == "fit":
        found = fit(paths[0], None if paths[1].name == "none" else paths[1], paths[2])
    else:
        found = predict(*paths) if name == "predict" else sums(paths[0])
    if found:
        costs = {"seconds": time.process_time() - start, "passed": time.perf_counter() - passed, "megabytes": peak_megabytes()}
        print(json.dumps(found | costs), flush=True)


def growth(sizes: Sizes, folder: Path) -> Iterator[dict[str, Any]]:
    """Cost of fit and prediction for each number of rows, and the exponents."""
    network = folder / "network.pt"
    frozen_network(network, sizes)
    costs: dict[str, list[float]] = {"fit": [], "predict": []}
    for num_rows in sizes.rows:
        data = generate(folder / str(num_rows), num_rows)
        model, output = folder / "model.gwi", folder / "predicted.parquet"
        for name, paths in (("fit", (data, network, model)), ("predict", (data, model, output))):
            found = measured(["--work", name, "--paths", *map(str, paths)])
            costs[name].append(found["seconds"])
            what = f"{num_rows} rows of {NUM_COLUMNS} columns in Parquet, frozen network, M = {NUM_INDUCING}"
            yield record(f"stream_{name}_seconds_{num_rows}_rows", SET, found["seconds"], what)
            yield record(f"stream_{name}_rows_per_second_{num_rows}_rows", SET, num_rows / found["seconds"], what)
            yield record(f"stream_{name}_megabytes_{num_rows}_rows", SET, found["megabytes"], f"{what}; target at most 2048")
        output.unlink()
        shutil.rmtree(data)
    for name, seconds in costs.items():
        if len(seconds) > 1:
            slope = math.log(seconds[-1] / seconds[0]) / math.log(sizes.rows[-1] / sizes.rows[0])
            between = f"log-log slope between {sizes.rows[0]} and {sizes.rows[-1]} rows"
            yield record(f"stream_{name}_exponent", SET, slope, f"{between}; target at most 1.1")
    yield from agreement(sizes, folder, network)


def agreement(sizes: Sizes, folder: Path, network: Path) -> Iterator[dict[str, Any]]:
    """A fit from a stream against the fit of the same rows in memory: standard deviation of y, and variance of f."""
    data = generate(folder / "compared", sizes.compared)
    rows = pq.read_table(data)
    x = np.column_stack([rows.column(f"x{i}").to_numpy() for i in range(NUM_COLUMNS)])
    kept, streams.FEW_NUMBERS = streams.FEW_NUMBERS, 0
    streamed = estimator(network).fit(parquet_source(data, "y"), validation=validation())
    streams.FEW_NUMBERS = kept
    plain = estimator(network).fit(x, rows.column("y").to_numpy(), validation=validation())
    x_new, _ = drawn(np.random.default_rng(3), 5000)
    parts = [model.model_.parts(x_new) for model in (streamed, plain)]
    std = [model.model_.law(x_new)[1] for model in (streamed, plain)]
    note = f"median over 5000 new rows of the ratio, fit from a stream over fit in memory, {sizes.compared} rows"
    yield record("stream_over_memory_std", SET, float(np.median(std[0] / std[1])), note)
    yield record("stream_over_memory_variance_of_f", SET, float(np.median(parts[0][1] / parts[1][1])), note)
    shutil.rmtree(data)


def processes(num_rows: int, ranks: Sequence[int], folder: Path) -> Iterator[dict[str, Any]]:
    """Sketch and sums on several processes of this machine."""
    data = generate(folder / "shared", num_rows)
    for num_ranks in ranks:
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={num_ranks}"] if num_ranks > 1 else []
        found = measured(["--work", "sums", "--paths", str(data)], launcher)
        yield {"rows": num_rows, "ranks": num_ranks, **{name: found[name] for name in ("sketch_seconds", "sums_seconds")}} | {
            "processor_seconds": found["all_processor_seconds"],
            "cores": os.cpu_count(),
        }
    shutil.rmtree(data)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="*", default=None, help="numbers of rows, for speed.csv")
    parser.add_argument("--ranks", type=int, nargs="*", default=(), help="numbers of processes, for processes.csv")
    parser.add_argument("--shared-rows", type=int, default=1_000_000, help="rows that they share")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/gwi-scale"), help="where rows are kept for a while")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, nothing is written")
    parser.add_argument("--work", choices=("fit", "predict", "sums"), help=argparse.SUPPRESS)
    parser.add_argument("--paths", type=Path, nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if options.work:
        work(options.work, options.paths)
        return
    sizes = QUICK if options.quick else Sizes() if options.rows is None else Sizes(tuple(options.rows))
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    try:
        if options.ranks:
            found = list(processes(20_000 if options.quick else options.shared_rows, options.ranks, options.folder))
            if options.quick:
                print(*found, sep="\n")
            else:
                records.write("processes", found)
        if sizes.rows:
            measured_rows = [*growth(sizes, options.folder)]
            if options.quick:
                print(*(", ".join(map(str, row.values())) for row in measured_rows), sep="\n")
            else:
                others = [row for row in records.read("speed") if row["set"] != SET]
                records.write("speed", [*others, *({key: row[key] for key in COLUMNS} for row in measured_rows)])
    finally:
        shutil.rmtree(options.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
