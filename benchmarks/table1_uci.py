"""The UCI table: every method on every set and split, one record a fit, in SQLite.

    python -m benchmarks.table1_uci [--sets boston …] [--methods gwi …] [--protocols standard gap] [--splits 0 1 …]

or ``make reproduce TABLE=uci``. Fits run through Dask, on a local cluster with one worker a core or on ``--cluster tcp://…``,
whose workers need this project and its data. A fit is recorded as soon as it is finished; stopped at any moment, the run goes on
where it was. At the end, results/uci.csv and the page docs/results/uci.md are made from the records; ``--render`` does only that.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import mean
from typing import Any

from distributed import Client, LocalCluster, as_completed
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.records import RESULTS
from benchmarks.uci.methods import METHODS
from benchmarks.uci.protocol import SETS, Task, extent, failed, run
from benchmarks.uci.store import Key, Store

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
    export(store, options.records.with_suffix(".csv"))
    problems = store.keys(failed=True)
    for key in sorted(problems):
        print(f"failed: {key.protocol} {key.table} {key.split} {key.method}")
    if options.records == RECORDS:
        from benchmarks.uci.page import render

        render(store)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=tuple(METHODS))
    parser.add_argument("--protocols", nargs="+", choices=("standard", "gap"), default=("standard", "gap"))
    parser.add_argument("--splits", nargs="+", type=int, help="only these")
    parser.add_argument("--cluster", help="address of a Dask scheduler, tcp://host:port; a local cluster unless given")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="of the local cluster")
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


@contextmanager
def connected(address: str | None, num_workers: int) -> Iterator[Client]:
    """A client of the cluster at the address, or of one of our own that ends with it."""
    if address is not None:
        with Client(address) as client:
            yield client
        return
    # A fit uses one thread: caps are in processor seconds, and fits side by side must not share a core.
    with (
        LocalCluster(n_workers=num_workers, threads_per_worker=1, dashboard_address=None, memory_limit=0) as cluster,
        Client(cluster) as client,
    ):
        yield client


def work(
    tasks: Sequence[Task],
    store: Store,
    client: Client,
    *,
    retries: int,
    function: Callable[[Task], list[dict[str, Any]]] = run,
) -> None:
    """Run the tasks and record each as it comes in.

    Only this process writes, so workers need not share a disk with it. Few tasks are handed out at a time, in their order.
    """
    waiting = iter(tasks)
    of: dict[str, Task] = {}

    def submit(task: Task) -> Any:
        future = client.submit(function, task, pure=False, retries=retries)
        of[future.key] = task
        return future

    with shown(tasks, store, num_workers=max(1, len(client.scheduler_info()["workers"]))) as finished:
        ahead = 2 * max(1, len(client.scheduler_info()["workers"]))
        queue = as_completed([submit(task) for task in islice(waiting, ahead)])
        for future in queue:
            task = of.pop(future.key)
            if future.status == "finished":
                records = future.result()
            else:
                error = future.exception()
                records = failed(task, f"{type(error).__name__}: {error}")
            known = store.keys()
            store.add(r for r in records if Key(r["protocol"], r["set"], r["split"], r["method"]) not in known)
            finished(task, records)
            for task in islice(waiting, 1):
                queue.add(submit(task))


@contextmanager
def shown(tasks: Sequence[Task], store: Store, *, num_workers: int) -> Iterator[Callable[[Task, list[dict[str, Any]]], None]]:
    """A progress display with the time left, by what like fits took; a line a fit where there is no terminal."""
    took: dict[tuple[str, str], list[float]] = {}
    for row in store.rows():
        if row["fit_seconds"] is not None:
            took.setdefault((row["set"], row["method"]), []).append(row["fit_seconds"])
    left = list(tasks)

    def expected(task: Task) -> float:
        known = took.get((task.table, task.method))
        return mean(known) if known else task.cpu_cap / 2

    def remaining() -> str:
        minutes = sum(expected(task) for task in left) / num_workers / 60
        return f"about {minutes:.0f} min left" if minutes < 90 else f"about {minutes / 60:.1f} h left"

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, disable=not sys.stdout.isatty()) as progress:
        bar = progress.add_task(remaining(), total=len(tasks))

        def finished(task: Task, records: list[dict[str, Any]]) -> None:
            left.remove(task)
            first = records[0]
            if first.get("failure") is None:
                took.setdefault((task.table, task.method), []).append(first["fit_seconds"])
                outcome = f"NLL {first['nll']:.3f}, {first['cpu_seconds']:.0f} s"
            else:
                outcome = str(first["failure"])
            progress.update(bar, advance=1, description=remaining())
            line = f"{task.protocol} {task.table} {task.split}, {task.method}: {outcome}"
            if sys.stdout.isatty():
                progress.console.print(line, highlight=False)
            else:
                print(f"{line}; {remaining()}", flush=True)

        yield finished


def export(store: Store, path: Path) -> None:
    """The finished fits as CSV."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        for row in store.rows():
            if row["failure"] is None:
                writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})


if __name__ == "__main__":
    main()
