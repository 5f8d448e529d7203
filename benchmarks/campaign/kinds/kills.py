"""Processes that write a model or predictions and are killed at a random moment: the old file or the new one is there, whole.

In turn `save`, `gwi fit` and `gwi predict`, ended by SIGKILL, SIGTERM or SIGHUP; half of them as soon as the file beside the
output is there. What the dead process left beside it is gone after the next run. Workers of a fit on several processes are
killed by `benchmarks.studies.kills`.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from tests.odd_files import NUM_ROWS, text

import gwi
from benchmarks.campaign import model_files
from gwi.cli import commands
from gwi.estimators.persistence import from_content
from gwi.exceptions import ModelFileError
from gwi.storage.container import from_bytes

FINE, FAULTS = ("old", "new"), ("lost", "left_over", "traceback", "wrong_code")
COUNT, BATCH, MOST_CPU = 120, 10, 60
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP)
# Seconds until the kill: after the first sign of a file, after the first save, and from the start of a command.
AFTER_A_FILE, AFTER_A_SAVE, AFTER_THE_START, LONGEST = 0.05, 0.3, 5.0, 60.0
NAMES = ("regressor-svgp", "targets")
SAVING = """
import sys, gwi
models = [gwi.load(path) for path in sys.argv[2:]]
print("ready", flush=True)
while True:
    for model in models:
        model.save(sys.argv[1], overwrite=True)
"""


@functools.cache
def _saved() -> tuple[bytes, ...]:
    """Two models as this version writes them."""
    with tempfile.TemporaryDirectory() as place:
        found = (from_content(model_files.contents()[name]).save(Path(place) / name) for name in NAMES)
        return tuple(path.read_bytes() for path in found)


def trial(number: int) -> str:
    rng = np.random.default_rng([number, 4])
    ending = SIGNALS[int(rng.integers(len(SIGNALS)))]
    with tempfile.TemporaryDirectory() as place:
        inputs, outputs = Path(place) / "in", Path(place) / "out"
        for folder in (inputs, outputs):
            folder.mkdir()
        return (_save, _fit, _predict)[number % 3](rng, ending, inputs, outputs)


def _save(rng: np.random.Generator, ending: signal.Signals, inputs: Path, outputs: Path) -> str:
    output = outputs / "m.gwi"
    for name, content in zip(NAMES, _saved(), strict=True):
        (inputs / name).write_bytes(content)
    output.write_bytes(_saved()[0])
    command = ["-c", SAVING, str(output), *(str(inputs / name) for name in NAMES)]
    _, said = _killed(command, ending, lambda process: _after_a_line(process, rng))
    if "Traceback" in said:
        return f"traceback: {said[:150]}"
    content = output.read_bytes()
    # The same model is not the same bytes each time: the order of names in a header is free.
    if not _is_model(content) or from_bytes(content)[0] not in [from_bytes(saved)[0] for saved in _saved()]:
        return f"lost: the model is neither of the two that were saved, after {ending.name}"
    gwi.load(inputs / NAMES[0]).save(outputs / "next.gwi")
    return _tidy(outputs, "m.gwi", "next.gwi") or ("old" if content == _saved()[0] else "new")


def _fit(rng: np.random.Generator, ending: signal.Signals, inputs: Path, outputs: Path) -> str:
    data, output = inputs / "base.csv", outputs / "m.gwi"
    data.write_text(text())
    arguments = ["fit", str(data), "-t", "y", "--drop", "label", "-o", str(output), "--mean", "svgp", "--holdout", "0"]
    return _command([*arguments, "--force", "-q"], rng, ending, output, _saved()[0], _is_model)


def _predict(rng: np.random.Generator, ending: signal.Signals, inputs: Path, outputs: Path) -> str:
    data, model, output = inputs / "base.csv", inputs / "y.gwi", outputs / "p.csv"
    data.write_text(text())
    model.write_bytes(_table_model())
    arguments = ["predict", str(model), str(data), "-o", str(output), "--chunk-size", "1", "--force", "-q"]
    return _command(arguments, rng, ending, output, b"old", _is_table)


@functools.cache
def _table_model() -> bytes:
    with tempfile.TemporaryDirectory() as place:
        data, model = Path(place) / "base.csv", Path(place) / "y.gwi"
        data.write_text(text())
        assert _run(["fit", str(data), "-t", "y", "--drop", "label", "-o", str(model), "--mean", "svgp", "-q"]) == 0
        return model.read_bytes()


def _is_model(content: bytes) -> bool:
    try:
        from_bytes(content)
    except ModelFileError:
        return False
    return True


def _is_table(content: bytes) -> bool:
    return content.count(b"\n") == NUM_ROWS + 1 and content.endswith(b"\n")


def _command(
    arguments: Sequence[str],
    rng: np.random.Generator,
    ending: signal.Signals,
    output: Path,
    old: bytes,
    is_whole: Callable[[bytes], bool],
) -> str:
    """The outcome of a command that is killed, and of the same command afterwards."""
    output.write_bytes(old)
    code, said = _killed(["-m", "gwi", *arguments], ending, lambda process: _at_a_moment(process, output.parent, rng))
    if "Traceback" in said:
        return f"traceback: {said[:150]}"
    # Python ends by SIGINT where it was interrupted inside code that it runs from text, whatever code was asked for.
    if code not in (0, -ending, 128 + ending, -signal.SIGINT):
        return f"wrong_code: {code} after {ending.name}, and {said[-150:]}"
    content = output.read_bytes()
    if content != old and not is_whole(content):
        return f"lost: {len(content)} bytes after {ending.name}"
    if code == 0 and content == old:
        return "lost: the command ended well and wrote nothing"
    if (again := _run(arguments)) != 0 or not is_whole(output.read_bytes()):
        return f"wrong_code: {again} of the next run"
    return _tidy(output.parent, output.name) or ("old" if content == old else "new")


def _run(arguments: Sequence[str]) -> int:
    with contextlib.redirect_stdout(io.StringIO()):
        return commands.run(arguments)


def _tidy(folder: Path, *names: str) -> str:
    """Nothing, or what is there beside these files."""
    others = sorted({path.name for path in folder.iterdir()} - set(names))
    return f"left_over: {', '.join(others)}" if others else ""


def _killed(command: Sequence[str], ending: signal.Signals, wait: Callable[[subprocess.Popen[str]], None]) -> tuple[int, str]:
    """How a process ended that got a signal after a while, and what it said."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        # Where this process is not told of a terminal that closes, its children are all the same.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL) and None,
    ) as process:
        try:
            wait(process)
            process.send_signal(ending)
            return process.wait(LONGEST), process.communicate()[1]
        finally:
            process.kill()


def _after_a_line(process: subprocess.Popen[str], rng: np.random.Generator) -> None:
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(rng.uniform(0, AFTER_A_SAVE))


def _at_a_moment(process: subprocess.Popen[str], folder: Path, rng: np.random.Generator) -> None:
    """Sleep until some time of the process's life, or until a file that is not whole yet is there.

    The first one is only tried out, before the work; the second becomes the output.
    """
    seconds = rng.uniform(0, AFTER_THE_START)
    if rng.random() < 0.5:
        start, seen = time.monotonic(), set[Path]()
        wanted = int(rng.integers(1, 3))
        while process.poll() is None and time.monotonic() < start + LONGEST and len(seen) < wanted:
            seen.update(folder.glob(".gwi-*.part"))
            time.sleep(0.0005)
        seconds = rng.uniform(0, AFTER_A_FILE)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
