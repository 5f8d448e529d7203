"""The UCI table: every method on every set and split, one record a fit, in SQLite.

    python -m benchmarks.tables.uci [--sets boston …] [--methods gwi …] [--protocols standard gap tail] [--splits 0 1 …]

or ``make reproduce TABLE=uci``. Fits run through Dask, on a local cluster with one worker a core or on ``--cluster tcp://…``,
whose workers need this project and its data. A fit is recorded as soon as it is finished; stopped at any moment, the run goes on
where it was. At the end, results/uci.csv and docs/results/records/uci.md are made from the records; ``--render`` does only that.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from distributed import Client

from benchmarks.tables.common import running
from benchmarks.tables.common.command import carry_out, parser
from benchmarks.tables.common.records import RESULTS
from benchmarks.tables.uci.methods import METHODS
from benchmarks.tables.uci.protocol import PROTOCOLS, SETS, Task, extent, failed, run
from benchmarks.tables.uci.store import COSTS, SCORES, Store

RECORDS = RESULTS / "uci.sqlite"
COLUMNS = ("protocol", "set", "split", "method", *SCORES, *COSTS)
# A small version for tests: every part takes part, nothing is learned.
QUICK_SETS, QUICK_METHODS, QUICK_SHARE = ("yacht", "boston"), ("gwi", "exact GP", "deep ensemble", "NGBoost"), 0.01


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    store = Store(options.records)

    def run_all(tasks: Sequence[Task], client: Client) -> None:
        work(tasks, store, client, retries=options.retries)

    carry_out(options, store, wanted(options), COLUMNS, run_all)
    if options.records == RECORDS:
        from benchmarks.tables.uci.page import render

        render(store)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    made = parser(__doc__, records=RECORDS, retries=2, quick="two sets, one split, tiny budgets")
    made.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    made.add_argument("--methods", nargs="+", choices=METHODS, default=tuple(METHODS))
    made.add_argument("--protocols", nargs="+", choices=PROTOCOLS, default=PROTOCOLS)
    made.add_argument("--splits", nargs="+", type=int, help="only these")
    return made.parse_args(arguments)


def wanted(options: argparse.Namespace) -> Iterator[Task]:
    """The tasks that the options ask for."""
    if options.quick:
        for task in extent(QUICK_SETS, QUICK_METHODS, ("standard",)):
            if task.split == 0:
                yield replace(task, cpu_cap=2.0, share_of_steps=QUICK_SHARE)
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
