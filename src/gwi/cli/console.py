"""What the commands share: their options, checks of what was asked for, and how they speak."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from gwi._extras import require
from gwi._progress import printable, said
from gwi.cli.launch import mistake_file
from gwi.exceptions import OutputError, UserError
from gwi.tables.addresses import AnyPath, as_path
from gwi.tables.files import NamedOutput, check_writable

if TYPE_CHECKING:
    Place = Path
else:
    # What the help shows is its name.
    Place = type("path", (), {})


def at(*names: str, help: str, **more: Any) -> Any:
    """An option, or without a name an argument, that is a path or an address such as s3://bucket/rows.parquet."""
    if names:
        return typer.Option(*names, help=help, parser=as_path, **more)
    return typer.Argument(help=help, parser=as_path, show_default=False)


def output(help: str, **more: Any) -> Any:
    """The option that says where the outcome goes."""
    return at("--output", "-o", help=help, **more)


ModelFile = Annotated[Place, at(help="a model that gwi fit wrote")]
DataFile = Annotated[Place, at(help="CSV, TSV or Parquet, also as .gz")]
Checkpoints = Annotated[Place | None, at("--checkpoints", help="folder in which the fit of a large table keeps its progress")]
Target = Annotated[
    str | None, typer.Option("--target", "-t", help="column of the target, if the model file names none or another one")
]
Event = Annotated[
    str | None, typer.Option(help="column that says whether the event happened, if the model file names none or another one")
]
Force = Annotated[bool, typer.Option("--force", help="overwrite the output file")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="no progress and no notes")]
Json = Annotated[bool, typer.Option("--json", help="print one JSON object")]

STREAM = "Standard output"
# Seconds after which an interrupt that was lost is tried again.
ANOTHER_TRY = 0.01


def say(text: str) -> None:
    """On the output stream."""
    print(printable(text))


def note(sentence: str, quiet: bool) -> None:
    """Something a user should know, on the error stream."""
    if not quiet:
        print(f"note: {said(sentence)}", file=sys.stderr)


def note_unlike(model: Any, unlike: Any, quiet: bool) -> None:
    """Count and name what new rows have that the rows of the fit did not."""
    from gwi.estimators.likelihood_targets import column_of_estimator

    for sentence in unlike.sentences(column_of_estimator(model).unlike_rows):
        note(sentence, quiet)


def sized(path: AnyPath) -> str:
    """A file that was written, and its size."""
    size, unit = float(path.stat().st_size), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size >= 1000:
            size, unit = size / 1000, larger
    return f"{path} ({size:.3g} {unit})"


def mistaken(sentence: str) -> int:
    """Say what the user did wrong; of the processes of a launch none says it, but the launcher does, once."""
    if (file := mistake_file()) is None:
        return failed(sentence, 2)
    file.write_text(said(sentence))
    return 0


def failed(sentence: str, code: int) -> int:
    """Say in one line what went wrong; the code to end with."""
    print(f"gwi: {said(' '.join(sentence.split()))}", file=sys.stderr)
    return code


def interrupted(error: BaseException) -> int:
    """Say so, and what is left of the work; the exit code that shells give such an end."""
    number = next((part for part in error.args if isinstance(part, signal.Signals)), signal.SIGINT)
    left = next((part for part in error.args if isinstance(part, str)), "no output was written")
    return failed(f"interrupted; {left}.", 128 + number)


@contextmanager
def interrupt_after(output: AnyPath) -> Iterator[Callable[[Any], None]]:
    """Saves what it is called with; a later interrupt inside tells that the output is there."""
    saved: list[AnyPath] = []
    try:
        yield lambda model: saved.append(model.save(output, overwrite=True))
    except KeyboardInterrupt as error:
        error.args += (f"{output} was written, without scores",) if saved else ()
        raise


@contextmanager
def stopping_in_order() -> Iterator[None]:
    """Let a request to end, or a terminal that is closed, interrupt the work like Ctrl-C, so that it cleans up behind itself.

    After the work nothing is left to clean up, and an interrupt would only be a traceback of what Python does at its end.
    """

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt(signal.Signals(number))

    def again(lost: Any) -> None:
        # In a callback, such as that of a weak reference, an error is only shown, and the work would go on.
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            return shown(lost)
        number = next((part for part in lost.exc_value.args if isinstance(part, signal.Signals)), signal.SIGINT)
        later = Timer(ANOTHER_TRY, os.kill, (os.getpid(), number))
        later.daemon = True
        return later.start()

    # Not where nohup has it ignored.
    asked = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    asked = [number for number in asked if signal.getsignal(number) == signal.SIG_DFL]
    for number in asked:
        signal.signal(number, stop)
    shown, sys.unraisablehook = sys.unraisablehook, again
    try:
        yield
    except KeyboardInterrupt as error:
        raise SystemExit(interrupted(error)) from None
    finally:
        for number in (*asked, signal.SIGINT):
            if signal.getsignal(number) in (stop, signal.default_int_handler):
                signal.signal(number, signal.SIG_DFL)
        sys.unraisablehook = shown


def watch_output_stream() -> None:
    """Let faults of the output stream tell that they are its own, so that no other one is taken for a reader that has left."""
    # Windows has a stream of its own for the console.
    if os.name == "posix":
        raw = NamedOutput(sys.stdout.fileno(), "wb", closefd=False)
        raw.output = STREAM
        encoding, errors, is_shown = sys.stdout.encoding, sys.stdout.errors, sys.stdout.isatty()
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(raw), encoding, errors, line_buffering=is_shown)


def system_fault(error: OSError) -> int | None:
    """Say what the system refused; None where it is none of the user's files."""
    if isinstance(error, OutputError) and error.filename == STREAM:
        # What the stream still holds would be the same fault again when Python closes it.
        cast(Any, sys.stdout).buffer.raw.close()
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        if error.errno == errno.EPIPE:
            # The reader, such as head, has seen enough.
            return 0
    if isinstance(error, OutputError) or error.errno is None:
        return mistaken(str(error))
    return None if error.filename is None else mistaken(f"{error.filename}: {error.strerror}; fix that, or give another file.")


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
            caught.setdefault(getattr(message, "for_command", str(message)))

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
    require("dask", "--cluster")
    from distributed import Client
    from joblib import parallel_config

    try:
        client = Client(address, timeout=30)
    except (OSError, ValueError) as error:
        raise UserError(f"There is no Dask cluster at {address} ({type(error).__name__}).") from error
    with client, parallel_config(backend="dask"):
        yield


def check_output(path: AnyPath, force: bool, *inputs: AnyPath) -> None:
    """Refuse what cannot be written, or would be lost."""
    if any(type(path) is type(source) and path.exists() and source.exists() and path.samefile(source) for source in inputs):
        raise UserError(f"{path} is also read; write to another file.")
    if path.is_file() and not force:
        raise UserError(f"{path} exists; give --force to overwrite it.")
    check_writable(path)


def check_page(extra: str, command: str, path: Path | None, force: bool, *inputs: Path) -> None:
    """Refuse a page or picture that cannot be drawn, or not be written; without a path it is shown."""
    require(extra, command)
    if path is not None:
        check_output(path, force, *inputs)


def check_choices(task: str, max_time: float | None) -> None:
    """Refuse what is no task, and what is no time."""
    if task not in ("auto", "regression", "classification"):
        raise UserError(f"--task is regression, classification or auto; got {task!r}.")
    if max_time is not None and not 0 < max_time < float("inf"):
        raise UserError(f"--max-time is a positive number of seconds; got {max_time:g}.")


def times_of(text: str) -> tuple[float, ...]:
    """Those of a list parted by commas.

    Raises:
        UserError: naming what is no time.
    """
    found = []
    for part in names(text):
        try:
            value = float(part)
        except ValueError:
            value = float("nan")
        if not 0 <= value < float("inf"):
            raise UserError(f"--times must be numbers, 0 or larger, separated by commas, such as 30,365; got {part!r}.")
        found.append(value)
    return tuple(dict.fromkeys(found))


def names(text: str) -> list[str]:
    """Those of a list parted by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


class OutputStream:
    """The output stream, for bytes of text; an interrupt tells when some of them are written."""

    def __init__(self) -> None:
        self._has_begun = False

    def __enter__(self) -> OutputStream:
        return self

    def __exit__(self, kind: object, error: BaseException | None, *details: object) -> None:
        if self._has_begun and isinstance(error, KeyboardInterrupt):
            error.args += ("the output is incomplete",)

    def write(self, data: bytes) -> None:
        """Show them at once."""
        self._has_begun = True
        text = data.decode()
        # A file or another command gets what the cells hold.
        sys.stdout.write(printable(text) if sys.stdout.isatty() else text)
        sys.stdout.flush()


def show(title: str, values: dict[str, Any]) -> None:
    """A table of names and values."""
    from rich.console import Console
    from rich.table import Table as Grid

    console = Console(highlight=False, markup=False)
    title = shortened(printable(title), console.width)
    grid = Grid(title=title, show_header=False, title_justify="left", min_width=len(title))
    for name, value in values.items():
        shown = f"{value:.0f}" if name == "rows" else f"{value:.4g}" if isinstance(value, float) else str(value)
        grid.add_row(name.replace("_", " "), printable(shown))
    console.print(grid)


def shortened(text: str, width: int) -> str:
    """The beginning and the end of a text that is longer than this."""
    return text if len(text) <= width else f"{text[: (width - 1) // 2]}…{text[-(width // 2) :]}"


def print_json(values: dict[str, Any]) -> None:
    """One JSON object on the output stream, with null for numbers that JSON does not have."""
    finite = json.loads(json.dumps(values), parse_constant=lambda name: None)
    say(json.dumps(finite, indent=2, ensure_ascii=False))
