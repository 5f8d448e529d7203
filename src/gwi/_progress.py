"""What a terminal shows: progress of long work, or nothing, and text that cannot command it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Report = Callable[[str, float], None]

# Control characters but tab and line feed, marks that turn the direction of text, and halves of characters.
_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Text from a file or a name as JSON would write it: what would move the cursor or change colours is shown as its number."""
    return _COMMANDS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def silent(stage: str, share: float) -> None:
    """A report that nobody reads."""


@contextmanager
def progress(shown: bool) -> Iterator[Report]:
    """A report that draws one bar a stage on the error stream, so that results on the output stream stay clean."""
    if not shown:
        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn

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
