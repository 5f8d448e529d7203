"""The command that serves a page of this machine to play with."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

import gwi.cli.console as console

PORT = 8765
Data = Annotated[Path | None, typer.Argument(help="CSV, TSV or Parquet file to begin with, also as .gz", show_default=False)]


def play(
    data: Data = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="port; if it is taken, the next free one; 0 for any")] = PORT,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="open the page")] = True,
) -> None:
    """Open a page in the browser to try models on points in one dimension, or on your own table. Nothing leaves this machine."""
    from gwi.web.play.running import run

    run(port, data, browser, _say_at_once)


def _say_at_once(sentence: str) -> None:
    """Also where another program waits for the address."""
    console.say(sentence)
    sys.stdout.flush()
