"""Running the fits of a table through Dask: each is recorded as soon as it is finished, with a word on the time left."""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from statistics import mean
from typing import Any, Protocol, TypeVar

import dask.config
from distributed import Client, LocalCluster, as_completed
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.tables.common.store import Identity, Store

Record = dict[str, Any]
# Dask's own settings of its workers' environment, and those that keep memory in the process: above a gigabyte it goes back. Fits
# run in a thread, and a thread's own arena cannot hold an array above 64 MB: all threads share that of the process.
DASK = dict(dask.config.get("distributed.nanny.pre-spawn-environ"))
KEEP_MEMORY = dict.fromkeys(("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"), 2**30) | {"MALLOC_ARENA_MAX": 1}


class Task(Protocol):
    """One fit, or several that share their costly part."""

    def records(self) -> Sequence[Identity]:
        """The keys of the records that it yields."""
        ...


T = TypeVar("T", bound=Task)


@contextmanager
def connected(address: str | None, num_workers: int, *, keep_memory: bool = False) -> Iterator[Client]:
    """A client of the cluster at the address, or of one of our own that ends with it; without workers, in this process.

    Dask has its workers hand memory back at once. With `keep_memory` ours do not: a step of a convolutional network, which asks
    for the same large arrays again and again, then takes two thirds of the time.
    """
    if address is not None:
        with Client(address) as client:
            yield client
        return
    # A fit uses one thread: caps are in processor seconds, and fits side by side must not share a core.
    environment = KEEP_MEMORY if keep_memory else {}
    with (
        dask.config.set({"distributed.nanny.pre-spawn-environ": DASK | environment}),
        LocalCluster(
            n_workers=max(1, num_workers),
            processes=num_workers > 0,
            threads_per_worker=1,
            dashboard_address=None,
            memory_limit=0,
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def work(
    tasks: Sequence[T],
    store: Store[Any],
    client: Client,
    *,
    function: Callable[[T], list[Record]],
    failed: Callable[[T, str], list[Record]],
    told: Callable[[T, Record], str],
    guess: Callable[[T], float],
    retries: int,
) -> None:
    """Run the tasks and record each as it comes in.

    Only this process writes, so workers need not share a disk with it. Few tasks are handed out at a time, in their order.

    Args:
        tasks: that are left to do.
        store: of their records.
        client: of the cluster.
        function: from a task to its records.
        failed: from a task and the reason why it failed for good to its records.
        told: what is said of a task and the first of its records.
        guess: seconds of a task, where no record tells what its kind takes.
        retries: of a fit that fails.
    """
    waiting = iter(tasks)
    of: dict[str, T] = {}

    def submit(task: T) -> Any:
        future = client.submit(function, task, pure=False, retries=retries)
        of[future.key] = task
        return future

    num_workers = max(1, len(client.scheduler_info()["workers"]))
    with shown(tasks, store, told=told, guess=guess, num_workers=num_workers) as finished:
        queue = as_completed([submit(task) for task in islice(waiting, 2 * num_workers)])
        for future in queue:
            task = of.pop(future.key)
            if future.status == "finished":
                records = future.result()
            else:
                error = future.exception()
                records = failed(task, f"{type(error).__name__}: {error}")
            known = store.keys()
            store.add(record for record in records if store.key(record) not in known)
            finished(task, records)
            for task in islice(waiting, 1):
                queue.add(submit(task))


@contextmanager
def shown(
    tasks: Sequence[T], store: Store[Any], *, told: Callable[[T, Record], str], guess: Callable[[T], float], num_workers: int
) -> Iterator[Callable[[T, list[Record]], None]]:
    """A progress display with the time left, by what like fits took; a line a fit where there is no terminal."""
    took: dict[tuple[str, str], list[float]] = {}
    for row in store.rows():
        if row["fit_seconds"] is not None:
            took.setdefault(store.key(row).kind(), []).append(row["fit_seconds"])
    left = list(tasks)

    def expected(task: T) -> float:
        known = took.get(task.records()[0].kind())
        return mean(known) if known else guess(task)

    def remaining() -> str:
        minutes = sum(expected(task) for task in left) / num_workers / 60
        return f"about {minutes:.0f} min left" if minutes < 90 else f"about {minutes / 60:.1f} h left"

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, disable=not sys.stdout.isatty()) as progress:
        bar = progress.add_task(remaining(), total=len(tasks))

        def finished(task: T, records: list[Record]) -> None:
            left.remove(task)
            first = records[0]
            if first.get("failure") is None:
                took.setdefault(task.records()[0].kind(), []).append(first["fit_seconds"])
            progress.update(bar, advance=1, description=remaining())
            line = told(task, first)
            if sys.stdout.isatty():
                progress.console.print(line, highlight=False)
            else:
                print(f"{line}; {remaining()}", flush=True)

        yield finished


def judged(record: Record, scores: Sequence[str]) -> Record:
    """The record, of a fit that failed where one of these scores is not finite."""
    bad = [name for name in scores if not math.isfinite(record[name])]
    return record | {"failure": f"not finite: {', '.join(bad)}"} if bad else record


def export(store: Store[Any], path: Path, columns: Sequence[str]) -> None:
    """The finished fits as CSV."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        for row in store.rows():
            if row["failure"] is None:
                writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})
