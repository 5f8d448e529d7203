"""Words and tables in Markdown."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def paragraphs(lines: Iterable[str]) -> str:
    """Those that say something."""
    return "\n\n".join(line for line in lines if line)


def sentence(function: Callable[..., Any]) -> str:
    """A docstring's first paragraph, on one line."""
    return " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split()).replace("|", "\\|")
