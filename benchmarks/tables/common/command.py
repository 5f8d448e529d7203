"""What the commands of both tables do: options, what is left to run, its records and the fits that failed."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from distributed import Client

from benchmarks.tables.common.running import T, connected, export
from benchmarks.tables.common.store import Store


def parser(description: str | None, *, records: Path, retries: int, quick: str) -> argparse.ArgumentParser:
    """With the options of both tables.

    Args:
        description: of the command.
        records: the SQLite file unless another is given.
        retries: of a fit that fails, unless given.
        quick: what the small version is.
    """
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--cluster", help="address of a Dask scheduler, tcp://host:port; a local cluster unless given")
    made.add_argument("--workers", type=int, default=os.cpu_count(), help="of the local cluster; 0: in this process")
    made.add_argument("--retries", type=int, default=retries, help="of a fit that fails")
    made.add_argument("--retry-failed", action="store_true", help="forget the fits that failed for good, and do them again")
    made.add_argument("--quick", action="store_true", help=f"{quick}: does the machinery work?")
    made.add_argument("--render", action="store_true", help="only make the table and the page from the records")
    made.add_argument("--records", type=Path, default=records, help="the SQLite file")
    return made


def carry_out(
    options: argparse.Namespace,
    store: Store[Any],
    tasks: Iterable[T],
    columns: Sequence[str],
    work: Callable[[Sequence[T], Client], None],
    *,
    keep_memory: bool = False,
) -> None:
    """Run the tasks that lack a record, export the finished fits and name those that failed."""
    if options.retry_failed:
        store.forget(store.keys(failed=True))
    if not options.render:
        known = store.keys()
        left = [task for task in tasks if not set(task.records()) <= known]
        if left:
            with connected(options.cluster, options.workers, keep_memory=keep_memory) as client:
                work(left, client)
    export(store, options.records.with_suffix(".csv"), columns)
    for key in sorted(store.keys(failed=True)):
        print("failed:", *key)
