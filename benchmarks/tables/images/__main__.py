"""The image table: every method on both image sets and all seeds, one record a fit, in SQLite.

    python -m benchmarks.tables.images [--sets fashion-mnist …] [--methods gwi …] [--seeds 0 1 …]

or ``make reproduce TABLE=images``. Fits run through Dask, on a local cluster with one worker a core or on ``--cluster tcp://…``,
whose workers need this project, its data and one cache folder. For each seed the networks that methods share come first; they
are kept in the cache, from where ``--keep-networks`` copies them to the records. A fit is recorded as soon as it is finished;
stopped at any moment, the run goes on where it was. At the end, results/images.csv and docs/results/records/images.md are
made from the records; ``--render`` does only that.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from distributed import Client, as_completed

from benchmarks.tables.common import running
from benchmarks.tables.common.command import carry_out, parser
from benchmarks.tables.common.records import RESULTS
from benchmarks.tables.images.data import DATASETS
from benchmarks.tables.images.methods import ENSEMBLES, METHODS, PEERS
from benchmarks.tables.images.posthoc import NUM_MEMBERS
from benchmarks.tables.images.protocol import Task, extent, failed, run, shared_network
from benchmarks.tables.images.store import NUMBERS, Store
from benchmarks.tables.images.training import keep_shared

RECORDS = RESULTS / "images.sqlite"
FIRST_COLUMNS = (
    "dataset",
    "seed",
    "method",
    "accuracy",
    "nll",
    "brier",
    "ece",
    "auroc_entropy",
    "auroc_score",
    "fpr95_score",
    "fit_seconds",
    "predict_seconds",
)
COLUMNS = (*FIRST_COLUMNS, *(name for name in (*NUMBERS, "score_name") if name not in FIRST_COLUMNS))
# What a fit may take, before its kind is known: roughly the training of a network.
GUESSED_SECONDS = 600.0
# A small version for tests: every part takes part, nothing is learned.
QUICK_SETS = ("fashion-mnist",)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    if options.keep_networks:
        for path in keep_shared():
            print(f"kept {path.name}")
        return
    store = Store(options.records)

    def run_all(tasks: Sequence[Task], client: Client) -> None:
        for seed in sorted({task.seed for task in tasks}):
            work([task for task in tasks if task.seed == seed], store, client, retries=options.retries)

    carry_out(options, store, wanted(options), COLUMNS, run_all, keep_memory=True)
    if options.records == RECORDS:
        from benchmarks.tables.images.page import render

        render(store)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    made = parser(__doc__, records=RECORDS, retries=0, quick="one set, one seed, some hundred images")
    made.add_argument("--sets", nargs="+", choices=DATASETS, default=DATASETS)
    made.add_argument("--methods", nargs="+", choices=METHODS, help="all unless given")
    made.add_argument("--seeds", nargs="+", type=int, help="only these")
    made.add_argument("--keep-networks", action="store_true", help="only copy the shared networks from the cache to the records")
    options = made.parse_args(arguments)
    if options.quick and options.records == RECORDS:
        made.error("--quick learns nothing worth keeping: say where with --records")
    return options


def wanted(options: argparse.Namespace) -> Iterator[Task]:
    """The tasks that the options ask for."""
    if options.quick:
        for task in extent(QUICK_SETS, tuple(options.methods or PEERS)):
            if task.seed == 0:
                yield replace(task, quick=True)
        return
    for task in extent(tuple(options.sets), tuple(options.methods or METHODS)):
        if options.seeds is None or task.seed in options.seeds:
            yield task


def work(tasks: Sequence[Task], store: Store, client: Client, *, retries: int) -> None:
    """Train what the tasks share, then run them and record each as it comes in."""
    prepare(tasks, client)
    running.work(
        tasks, store, client, function=run, failed=failed, told=told, guess=lambda task: GUESSED_SECONDS, retries=retries
    )


def prepare(tasks: Sequence[Task], client: Client) -> None:
    """Have the shared networks of each data set and seed in the cache, so that no two fits train the same one."""
    members = {task: NUM_MEMBERS if task.method in ENSEMBLES else 1 for task in tasks}
    first = {(task.dataset, task.seed, i): task for task, count in members.items() for i in range(count)}
    futures = [client.submit(training_seconds, task, i, pure=False) for (_, _, i), task in first.items()]
    of = {future.key: key for future, key in zip(futures, first, strict=True)}
    for future in as_completed(futures):
        dataset, seed, member = of[future.key]
        # One that cannot be trained fails again in each fit, which then has the reason in its record.
        outcome = f"{future.result():.0f} s" if future.status == "finished" else "failed"
        print(f"{dataset} {seed}, network {member}: {outcome}", flush=True)


def training_seconds(task: Task, member: int) -> float:
    """Of one of the task's shared networks."""
    return shared_network(task, member).seconds


def told(task: Task, record: Mapping[str, Any]) -> str:
    """What came of a task, by its record."""
    name = f"{task.dataset} {task.seed}, {task.method}"
    if record.get("failure") is not None:
        return f"{name}: {record['failure']}"
    return (
        f"{name}: accuracy {record['accuracy']:.4f}, NLL {record['nll']:.4f}, AUROC {record['auroc_score']:.4f}, "
        f"{record['fit_seconds']:.0f} s"
    )


if __name__ == "__main__":
    main()
