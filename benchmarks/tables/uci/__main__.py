"""The UCI table: every method on every set and split, one record a fit, in SQLite.

    python -m benchmarks.tables.uci [--sets boston …] [--methods gwi …] [--protocols standard gap] [--splits 0 1 …]

or ``make reproduce TABLE=uci``. Fits run through Dask, on a local cluster with one worker a core or on ``--cluster tcp://…``,
whose workers need this project and its data. A fit is recorded as soon as it is finished; stopped at any moment, the run goes on
where it was. At the end, results/uci.csv and the page docs/results/uci.md are made from the records; ``--render`` does only that.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from distributed import Client

from benchmarks.tables.common import running
from benchmarks.tables.common.records import RESULTS
from benchmarks.tables.common.running import connected, export
from benchmarks.tables.uci.methods import METHODS
from benchmarks.tables.uci.protocol import SETS, Task, extent, failed, run
from benchmarks.tables.uci.store import Store

RECORDS = RESULTS / "uci.sqlite"
COLUMNS = (
    "protocol",
    "set",
    "split",
    "method",
    "nll",
    "nll_no_duplicates",
    "crps",
    "rmse",
    "coverage_90",
    "coverage_95",
    "width_90",
    "width_95",
    "calibration_error",
    "fit_seconds",
    "cpu_seconds",
    "predict_seconds",
    "peak_mb",
)
# A small version for tests: every part takes part, nothing is learned.
QUICK_SETS, QUICK_METHODS, QUICK_SHARE = ("yacht", "boston"), ("gwi", "exact GP", "deep ensemble", "NGBoost"), 0.01


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    store = Store(options.records)
    if options.retry_failed:
        store.forget(store.keys(failed=True))
    if not options.render:
        known = store.keys()
        tasks = [task for task in wanted(options) if not set(task.records()) <= known]
        if tasks:
            with connected(options.cluster, options.workers) as client:
                work(tasks, store, client, retries=options.retries)
    export(store, options.records.with_suffix(".csv"), COLUMNS)
    problems = store.keys(failed=True)
    for key in sorted(problems):
        print(f"failed: {key.protocol} {key.table} {key.split} {key.method}")
    if options.records == RECORDS:
        from benchmarks.tables.uci.page import render

        render(store)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=tuple(METHODS))
    parser.add_argument("--protocols", nargs="+", choices=("standard", "gap"), default=("standard", "gap"))
    parser.add_argument("--splits", nargs="+", type=int, help="only these")
    parser.add_argument("--cluster", help="address of a Dask scheduler, tcp://host:port; a local cluster unless given")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="of the local cluster; 0: in this process")
    parser.add_argument("--retries", type=int, default=2, help="of a fit that fails")
    parser.add_argument("--retry-failed", action="store_true", help="forget the fits that failed for good, and do them again")
    parser.add_argument("--quick", action="store_true", help="two sets, one split, tiny budgets: does the machinery work?")
    parser.add_argument("--render", action="store_true", help="only make the table and the page from the records")
    parser.add_argument("--records", type=Path, default=RECORDS, help="the SQLite file")
    return parser.parse_args(arguments)


def wanted(options: argparse.Namespace) -> Iterator[Task]:
    """The tasks that the options ask for."""
    if options.quick:
        for task in extent(QUICK_SETS, QUICK_METHODS, ("standard",)):
            if task.split == 0:
                yield replace(task, cpu_cap=5.0, share_of_steps=QUICK_SHARE)
        return
    for task in extent(tuple(options.sets), tuple(options.methods), tuple(options.protocols)):
        if options.splits is None or task.split in options.splits:
            yield task


def work(
    tasks: Sequence[Task],
    store: Store,
    client: Client,
    *,
    retries: int,
    function: Callable[[Task], list[dict[str, Any]]] = run,
) -> None:
    """Run the tasks and record each as it comes in."""
    running.work(
        tasks, store, client, function=function, failed=failed, told=told, guess=lambda task: task.cpu_cap / 2, retries=retries
    )


def told(task: Task, record: Mapping[str, Any]) -> str:
    """What came of a task, by the first of its records."""
    failure = record.get("failure")
    outcome = f"NLL {record['nll']:.3f}, {record['cpu_seconds']:.0f} s" if failure is None else str(failure)
    return f"{task.protocol} {task.table} {task.split}, {task.method}: {outcome}"


if __name__ == "__main__":
    main()
