"""Progress of long work, shown or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn

Report = Callable[[str, float], None]


def silent(stage: str, share: float) -> None:
    """A report that nobody reads."""


@contextmanager
def progress(shown: bool) -> Iterator[Report]:
    """A report that draws one bar a stage on the error stream, so that results on the output stream stay clean."""
    if not shown:
        yield silent
        return
    columns = (TextColumn("{task.description:<24}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:
        current: dict[str, TaskID] = {}

        def report(stage: str, share: float) -> None:
            if stage not in current:
                finish()
                current[stage] = bars.add_task(stage, total=1.0)
            bars.update(current[stage], completed=share)

        def finish() -> None:
            for bar in current.values():
                bars.update(bar, completed=1.0)

        yield report
        finish()
