"""The speed of the command: rows a second and memory of `gwi predict` on a large file, seconds of `gwi --help` and `import gwi`.

    python -m benchmarks.studies.cli_speed [--quick]

puts its rows, those of the set "command line", into results/speed.csv and leaves the others as they are. Seconds are processor
seconds of a process of its own, in one thread. ``--quick`` goes through all of it with few rows and prints only.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.studies.speed import peak_megabytes, processor_seconds, record
from benchmarks.tables.common import records

SET = "command line"
NUM_COLUMNS, NUM_TRAINING = 10, 300
NUM_ROWS, NUM_IN_MEMORY, NUM_REPEATS = 5_000_000, 200_000, 5
PART = 100_000


def write_rows(path: Path, num_rows: int, with_target: bool) -> None:
    """Random numbers of all digits, some rows at a time."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    rng = np.random.default_rng(0)
    names = [f"column {i}" for i in range(NUM_COLUMNS)] + ["target"] * with_target
    with path.open("wb") as file:
        file.write((",".join(names) + "\n").encode())
        for start in range(0, num_rows, PART):
            x = rng.standard_normal((min(PART, num_rows - start), NUM_COLUMNS))
            columns = list(x.T)
            if with_target:
                columns.append(np.sin(x).sum(1) + 0.3 * rng.standard_normal(len(x)))
            arrow_csv.write_csv(pa.table(columns, names=names), file, arrow_csv.WriteOptions(include_header=False))


def fresh(*arguments: str) -> tuple[str, float]:
    """The output of a new Python process in one thread, and its processor seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *arguments], check=True, capture_output=True, text=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run_command(arguments: Sequence[str]) -> None:
    """Do what the arguments say and print seconds and peak memory; for a process of its own."""
    from gwi.cli import commands as cli

    start, clock = time.process_time(), time.perf_counter()
    assert cli.run(arguments) == 0
    print(time.process_time() - start, time.perf_counter() - clock, peak_megabytes())


def in_memory_rate(path: Path, num_rows: int) -> float:
    """Rows a second of the estimator on an array."""
    import torch

    from gwi import GWIRegressor, load

    torch.set_num_threads(1)
    model = load(path)
    assert isinstance(model, GWIRegressor)
    x = np.random.default_rng(0).standard_normal((num_rows, NUM_COLUMNS))
    return num_rows / processor_seconds(lambda: model.predict(x, return_std=True))


def measure(num_rows: int, num_in_memory: int, num_repeats: int) -> Iterator[dict[str, Any]]:
    """Every quantity, as soon as it is known."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_rows(folder / "train.csv", NUM_TRAINING, with_target=True)
        fit = [
            "fit",
            f"{folder}/train.csv",
            "-t",
            "target",
            "-o",
            f"{folder}/model.gwi",
            "--mean",
            "svgp",
            "--holdout",
            "0",
            "-q",
        ]
        fresh("-m", "gwi", *fit, "--json")
        write_rows(folder / "data.csv", num_rows, with_target=False)
        size = (folder / "data.csv").stat().st_size / 1e6
        predict = ["predict", f"{folder}/model.gwi", f"{folder}/data.csv", "-o", f"{folder}/out.csv", "-q"]
        shown, _ = fresh("-m", "benchmarks.studies.cli_speed", "--run", *predict)
        seconds, clock, peak = (float(value) for value in shown.split())
        with (folder / "out.csv").open("rb") as file:
            num_written = sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b"")) - 1
        assert num_written == num_rows
        rate = in_memory_rate(folder / "model.gwi", num_in_memory)
    what = f"{num_rows} rows of {NUM_COLUMNS} columns, CSV of {size:.0f} MB"
    model = f'mean="svgp", M = {NUM_TRAINING}'
    given = "prediction, std, interval and outlier score with all digits"
    note = f"gwi predict, {model}, {what} in and out: {given}; {clock:.0f} s on the clock"
    yield record("cli_predict_rows_per_second", SET, num_rows / seconds, note)
    yield record("cli_predict_memory_megabytes", SET, peak, f"whole process, {what}; target at most 1000")
    note = f"the same model on an array of {num_in_memory} rows, mean and standard deviation"
    yield record("in_memory_predict_rows_per_second", SET, rate, note)
    for label, arguments in (("help", ("-m", "gwi", "--help")), ("import", ("-c", "import gwi"))):
        best = min(fresh(*arguments)[1] for _ in range(num_repeats))
        code = "gwi --help" if label == "help" else "import gwi"
        yield record(f"{label}_seconds", SET, best, f"python with {code}, fastest of {num_repeats}; whole process")
    best = min(fresh("-c", "from gwi import GWIRegressor")[1] for _ in range(num_repeats))
    yield record("import_estimator_seconds", SET, best, f"from gwi import GWIRegressor, with torch, fastest of {num_repeats}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few rows, nothing is written")
    parser.add_argument("--run", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.run is not None:
        run_command(options.run)
    elif options.quick:
        for row in measure(2_000, 2_000, 1):
            print(*row.values(), sep=", ", flush=True)
    else:
        others = [row for row in records.read("speed") if row["set"] != SET]
        found = list(measure(NUM_ROWS, NUM_IN_MEMORY, NUM_REPEATS))
        records.write("speed", [*others, *found])


if __name__ == "__main__":
    main()
