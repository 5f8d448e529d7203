"""What a terminal shows: progress of long work, or nothing, and text that cannot command it."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

from gwi._extras import is_installed

Report = Callable[[str, float], None]
# Seconds of work after which progress is drawn by itself.
LATE_AFTER = 3.0
# Characters of what is said to a user.
LONGEST_SENTENCE = 2000
# Who is told instead of the error stream, of work in this thread.
_listener: ContextVar[Report | None] = ContextVar("listener", default=None)

# Control characters but tab and line feed, marks that turn the direction of text, and halves of characters.
_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Text from a file or a name as JSON would write it: what would move the cursor or change colours is shown as its number."""
    return _COMMANDS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def said(sentence: str) -> str:
    """A sentence that is safe to show, without most of a name or cell that would fill the screen."""
    safe = printable(sentence)
    return safe if len(safe) <= LONGEST_SENTENCE else f"{safe[: LONGEST_SENTENCE // 2]} … {safe[-LONGEST_SENTENCE // 4 :]}"


def silent(stage: str, share: float) -> None:
    """A report that nobody reads."""


def is_watched() -> bool:
    """Whether somebody looks at the error stream: a terminal, or a notebook."""
    if "ipykernel" in sys.modules:
        return True
    return bool(getattr(sys.stderr, "isatty", lambda: False)())


def _lines() -> Report:
    """A report of one line for each stage on the error stream, where there is nothing to draw bars with."""
    seen: set[str] = set()

    def report(stage: str, share: float) -> None:
        if stage not in seen:
            seen.add(stage)
            print(f"{stage} ...", file=sys.stderr, flush=True)

    return report


@contextmanager
def told_to(listener: Report) -> Iterator[None]:
    """Work inside tells the listener how far it is and draws nothing; a listener that raises ends the work."""
    mark = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(mark)


@contextmanager
def progress(shown: bool | Literal["late"]) -> Iterator[Report]:
    """A report that draws one bar a stage on the error stream, so that results on the output stream stay clean.

    Without rich it is one line a stage, and of late work nothing.

    Args:
        shown: whether it draws; ``"late"`` where it does once the work has taken some seconds and somebody is watching, and then
            leaves nothing behind.
    """
    if (listener := _listener.get()) is not None:
        yield listener
        return
    if not shown or (shown == "late" and not is_watched()):
        yield silent
        return
    if not is_installed("rich"):
        yield silent if shown == "late" else _lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:<24}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    is_late = shown == "late"
    bars = Progress(*columns, console=Console(stderr=True), transient=is_late)
    current: dict[str, TaskID] = {}
    begun = time.monotonic()

    def report(stage: str, share: float) -> None:
        if stage not in current:
            finish()
            current[stage] = bars.add_task(stage, total=1.0)
        bars.update(current[stage], completed=share)
        if is_late and not bars.live.is_started and time.monotonic() - begun > LATE_AFTER:
            bars.start()

    def finish() -> None:
        for bar in current.values():
            bars.update(bar, completed=1.0)

    try:
        if not is_late:
            bars.start()
        yield report
        finish()
    finally:
        bars.stop()
