"""Odd tables through `gwi fit`, `predict`, `evaluate` and `report`: done, or one sentence, and no file is lost.

The first trials are the odd files of the tests; those after them are such files with bytes changed, cut or doubled, and with
commands to the terminal in names, cells and the name of the file.
"""

from __future__ import annotations

import contextlib
import functools
import io
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tests.odd_files import CASES, Odd, text

from benchmarks.campaign.kinds.mutated import mutated
from gwi.cli import commands

FINE, FAULTS = ("answered", "refused"), ("wrong_code", "no_sentence", "escapes", "lost", "left_over")
COUNT, BATCH, MOST_CPU = 200, 20, 90
QUICK = ("--mean", "svgp", "--holdout", "0", "-q")
# Turns the text red, clears the screen in eight bits, and turns its direction.
EVIL = "\x1b[31m\x9b2J\u202e"
OLD = b"what was there before"
MOST_LETTERS = 2100


@functools.cache
def _base_model() -> bytes:
    """The model of the plain table."""
    with tempfile.TemporaryDirectory() as place:
        data, model = Path(place) / "base.csv", Path(place) / "y.gwi"
        data.write_text(text())
        with contextlib.redirect_stdout(io.StringIO()):
            assert commands.run(["fit", str(data), "-t", "y", "--drop", "label", "-o", str(model), *QUICK]) == 0
        return model.read_bytes()


def trial(number: int) -> str:
    rng = np.random.default_rng([number, 5])
    names = list(CASES)
    is_plain = number < len(names)
    name = names[number] if is_plain else str(rng.choice(names))
    with tempfile.TemporaryDirectory() as place:
        inputs, outputs = Path(place) / "in", Path(place) / "out"
        for folder in (inputs, outputs):
            folder.mkdir()
        case = CASES[name]
        path = case.path(inputs)
        if not is_plain and path.is_file():
            path = _harmed(path, rng)
        model = inputs / "y.gwi"
        model.write_bytes(_base_model())
        outcomes = [_asked(arguments, path, model, outputs) for arguments in _commands(case, path, model, outputs)]
    bad = [outcome for outcome in outcomes if not outcome.startswith(FINE)]
    return f"{bad[0]} of {name}" if bad else max(outcomes)


def _harmed(path: Path, rng: np.random.Generator) -> Path:
    """The file with some bytes changed, or with commands to a terminal in it and in its name."""
    data = path.read_bytes()
    if rng.random() < 0.5:
        for _ in range(int(rng.integers(1, 4))):
            data = mutated(data or b"x", text().encode(), rng)
        path.write_bytes(data)
        return path
    lines = data.split(b"\n")
    row = int(rng.integers(len(lines)))
    lines[row] = lines[row].replace(b",", f"{EVIL},".encode(), 1 if rng.random() < 0.5 else -1)
    evil = path.with_name(f"da{EVIL}ta{path.suffix}")
    evil.write_bytes(b"\n".join(lines))
    path.unlink()
    return evil


def _commands(case: Odd, path: Path, model: Path, outputs: Path) -> list[list[str]]:
    found = [
        ["predict", str(model), str(path), "-o", str(outputs / "p.csv"), "--force", "-q"],
        ["evaluate", str(model), str(path), "-q"],
        ["report", str(model), str(path), "-o", str(outputs / "r.html"), "--force", "-q"],
    ]
    if case.fit is not None:
        found.append(["fit", str(path), "-t", case.target, "-o", str(outputs / "m.gwi"), "--force", *QUICK])
    return found


def _asked(arguments: Sequence[str], path: Path, model: Path, outputs: Path) -> str:
    """What comes of one command, whose output was there before."""
    output = Path(arguments[arguments.index("-o") + 1]) if "-o" in arguments else None
    if output is not None:
        output.write_bytes(OLD)
    before = [_content(file) for file in (path, model)]
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = commands.run(arguments)
    said = err.getvalue()
    if code not in (0, 2):
        return f"wrong_code: gwi {arguments[0]} ended with {code} and {said[-150:]}"
    if code == 2 and not (said.startswith("gwi: ") and said.count("\n") == 1 and len(said) < MOST_LETTERS):
        return f"no_sentence: gwi {arguments[0]} said {said[:150]!r}"
    if not f"{said}{out.getvalue()}".replace("\n", "").isprintable():
        return f"escapes: gwi {arguments[0]}"
    if [_content(file) for file in (path, model)] != before:
        return f"lost: gwi {arguments[0]} changed what it read"
    if output is not None:
        is_old = output.read_bytes() == OLD
        if is_old != (code == 2) or [file.name for file in outputs.iterdir()] != [output.name]:
            return f"{'lost' if is_old != (code == 2) else 'left_over'}: gwi {arguments[0]}, which ended with {code}"
        output.unlink()
    return "answered" if code == 0 else "refused"


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None
