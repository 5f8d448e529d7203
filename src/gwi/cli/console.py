"""What the commands share: their options, checks of what was asked for, and how they speak."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from gwi.cli.launch import mistake_file
from gwi.exceptions import UserError
from gwi.storage.header import printable

ModelFile = Annotated[Path, typer.Argument(help="a model that gwi fit wrote", show_default=False)]
DataFile = Annotated[Path, typer.Argument(help="CSV, TSV or Parquet, also .gz", show_default=False)]
Force = Annotated[bool, typer.Option("--force", help="overwrite the output file")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="no progress and no notes")]
Json = Annotated[bool, typer.Option("--json", help="one JSON object on the output stream")]


def note(sentence: str, quiet: bool) -> None:
    """Something a user should know, on the error stream."""
    if not quiet:
        print(f"note: {printable(sentence, 10_000)}", file=sys.stderr)


def mistaken(sentence: str) -> int:
    """Say what the user did wrong; of the processes of a launch none says it, but the launcher does, once."""
    if (file := mistake_file()) is None:
        return failed(sentence, 2)
    file.write_text(sentence)
    return 0


def failed(sentence: str, code: int) -> int:
    """Say in one line what went wrong; the code to end with."""
    print(f"gwi: {printable(' '.join(sentence.split()), 10_000)}", file=sys.stderr)
    return code


@contextmanager
def noted_warnings(quiet: bool) -> Iterator[None]:
    """Our own warnings as notes at the end, those of checkpoints at once; others, of libraries, are not for users."""
    from gwi.exceptions import CheckpointWarning, GWIWarning

    caught: dict[str, None] = {}

    def keep(message: Warning | str, category: type[Warning], *place: Any, **named: Any) -> None:
        # A long fit whose checkpoints fail should say so while there is time to make room for them.
        if issubclass(category, CheckpointWarning):
            note(str(message), quiet)
        else:
            caught.setdefault(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", GWIWarning)
        warnings.simplefilter("always", CheckpointWarning)
        warnings.showwarning = keep
        yield
    for text in caught:
        note(text, quiet)


@contextmanager
def on_cluster(address: str | None) -> Iterator[None]:
    """Independent fits on a Dask cluster, while inside; here where there is none."""
    if address is None:
        yield
        return
    try:
        from distributed import Client
    except ImportError as error:
        raise UserError("--cluster needs Dask: pip install 'gwi[dask]'.") from error
    from joblib import parallel_config

    try:
        client = Client(address, timeout=30)
    except (OSError, ValueError) as error:
        raise UserError(f"There is no Dask cluster at {address} ({type(error).__name__}).") from error
    with client, parallel_config(backend="dask"):
        yield


def check_output(path: Path, force: bool, *inputs: Path) -> None:
    """Refuse what cannot be written, or would be lost."""
    if path.is_dir():
        raise UserError(f"{path} is a folder; give the name of a file.")
    if path.exists() and not path.is_file():
        raise UserError(
            f"{path} is a pipe or a device, which a file must not replace; give another name, or - for the output stream."
        )
    if not path.parent.is_dir():
        raise UserError(f"The folder {path.parent} does not exist; create it first.")
    if any(path.exists() and source.exists() and path.samefile(source) for source in inputs):
        raise UserError(f"{path} is also read; write to another file.")
    if path.exists() and not force:
        raise UserError(f"{path} exists; give --force to overwrite it.")


def check_choices(task: str, max_time: float | None) -> None:
    """Refuse what is no task, and what is no time."""
    if task not in ("auto", "regression", "classification"):
        raise UserError(f"--task is regression, classification or auto; got {task!r}.")
    if max_time is not None and not 0 < max_time < float("inf"):
        raise UserError(f"--max-time is a positive number of seconds; got {max_time:g}.")


def names(text: str) -> list[str]:
    """Those of a list parted by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


class OutputStream:
    """The output stream, for bytes of text."""

    def write(self, data: bytes) -> None:
        """Show them at once."""
        sys.stdout.write(data.decode())
        sys.stdout.flush()


def show(title: str, values: dict[str, Any]) -> None:
    """A table of names and values."""
    from rich.console import Console
    from rich.table import Table as Grid

    grid = Grid(title=title, show_header=False, title_justify="left", min_width=len(title))
    for name, value in values.items():
        shown = f"{value:.0f}" if name == "rows" else f"{value:.4g}" if isinstance(value, float) else str(value)
        grid.add_row(printable(name.replace("_", " ")), printable(shown, 10_000))
    Console(highlight=False, markup=False).print(grid)


def print_json(values: dict[str, Any]) -> None:
    """One JSON object on the output stream, with null for numbers that JSON does not have."""
    finite = json.loads(json.dumps(values), parse_constant=lambda name: None)
    text = json.dumps(finite, indent=2, ensure_ascii=False)
    # What a terminal would obey is written as JSON writes it.
    print("".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text))
