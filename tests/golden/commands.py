"""Runs of the command on small tables, and every odd file through fit and predict."""

from __future__ import annotations

import contextlib
import csv
import datetime
import html
import io
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gwi.cli import run

from .content import Array, Outcome, repeatable, without_seconds

if str(Path(__file__).parents[1]) not in sys.path:
    sys.path.insert(0, str(Path(__file__).parents[1]))

from odd_files import CASES, SAME, Odd, text

QUICK = ["--mean", "linear", "-q", "--json", "--holdout", "0"]


class Shell:
    """Runs commands in a folder of its own, and keeps what they give.

    Args:
        folder: where they run; paths are relative to it, so that sentences name no other.
    """

    def __init__(self, folder: Path):
        self.folder, self.found = folder, Outcome()

    def say(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, output and errors of one command, times masked."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(list(arguments))
        return code, masked(out.getvalue(), self.folder), masked(err.getvalue(), self.folder)

    def __call__(self, *arguments: str) -> None:
        """Run and keep; the arguments are the name."""
        name = " ".join(arguments)
        code, out, err = self.say(*arguments)
        self.found.texts[f"{name}: code"] = str(code)
        self.found.texts[f"{name}: errors"] = err
        if "--json" in arguments and code == 0:
            self.found.add_mixed(f"{name}: output", json.dumps(_without_times(json.loads(out)), indent=1, ensure_ascii=False))
        elif "-" in arguments:
            self._keep_table(name, out)
        else:
            self.found.texts[f"{name}: output"] = _without_fit_times(out) if arguments[0] == "compare" else out
        if code == 0 and "-o" in arguments:
            self._keep_file(arguments[arguments.index("-o") + 1])

    def _keep_file(self, name: str) -> None:
        path = self.folder / name
        if path.suffix == ".csv":
            self._keep_table(name, path.read_text(encoding="utf-8"))
        elif path.suffix == ".parquet":
            table = pq.read_table(path)
            self.found.texts[f"{name}: columns"] = " ".join(f"{field.name} {field.type}" for field in table.schema)
            for column in table.column_names:
                self.found.add(f"{name}: {column}", table[column].to_numpy())
        elif path.suffix == ".html":
            # What the page looks like is no matter here; that it is there and what it is about is.
            page = path.read_text(encoding="utf-8")
            heads = re.findall(r"<title>(.*?)</title>", page, re.DOTALL)[:1] + re.findall(
                r"<h[12][^>]*>(.*?)</h[12]>", page, re.DOTALL
            )
            said = [html.unescape(re.sub(r"<[^>]*>", "", head)).strip() for head in heads]
            self.found.texts[f"{name}: headings"] = "\n".join(said)

    def _keep_table(self, name: str, content: str) -> None:
        header, *rows = csv.reader(io.StringIO(content))
        self.found.texts[f"{name}: columns"] = ",".join(header)
        for column, cells in zip(header, zip(*rows, strict=True), strict=True):
            try:
                self.found.numbers[f"{name}: {column}"] = np.array([float(cell) for cell in cells])
            except ValueError:
                self.found.texts[f"{name}: {column}"] = "\n".join(cells)


def masked(said: str, folder: Path) -> str:
    """What a command said, without times, sizes and the folder."""
    said = re.sub(r"\s+━.*", "", said)
    # Files hold times, so that their sizes are not the same twice.
    said = re.sub(r"\([\d.e+]+ [kMG]?B\)", "(SIZE)", said)
    said = said.replace(f"{folder}/", "").replace(str(folder), "FOLDER")
    return without_seconds("\n".join(line.rstrip() for line in said.splitlines()))


def _without_times(found: Any) -> Any:
    if isinstance(found, dict):
        return {key: None if key == "seconds" else _without_times(value) for key, value in found.items()}
    return [_without_times(value) for value in found] if isinstance(found, list) else found


def _without_fit_times(out: str) -> str:
    """The printed comparison without its last column, the time of a fit, which also sets the widths."""
    lines = []
    for line in out.splitlines():
        if line[:1] in ("│", "┃"):
            lines.append(" | ".join(cell.strip() for cell in re.split("[│┃]", line)[1:-2]))
        elif line[:1] not in ("┏", "┡", "└"):
            lines.append(line)
    return "\n".join(lines)


# Tables


def table(num_rows: int = 40, seed: int = 0) -> dict[str, list[Any]]:
    """Three columns of numbers and a target."""
    x, noise = _drawn(num_rows, seed)
    y = np.sin(2 * x[:, 0]) + x[:, 1] * (x[:, 2] > 0) + noise
    return {"a": x[:, 0].tolist(), "b": x[:, 1].tolist(), "c": x[:, 2].tolist(), "y": y.round(4).tolist()}


def mixed(num_rows: int = 44, seed: int = 0) -> dict[str, list[Any]]:
    """A number with gaps, a town, a day, an id, a constant, a flag, and a target that a few rows lack."""
    x, noise = _drawn(num_rows, seed)
    towns = [("Ulm", "Bonn", "Köln")[i * 7 % 3] for i in range(num_rows)]
    days = [datetime.date(2024, 1, 1) + datetime.timedelta(days=9 * i % 365) for i in range(num_rows)]
    y = x[:, 0] + np.array([len(town) for town in towns]) + np.array([day.month for day in days]) / 6 + noise
    return {
        "id": [f"n{i}" for i in range(num_rows)],
        "size": ["" if i % 11 == 3 else value for i, value in enumerate(x[:, 0].tolist())],
        "town": ["NA" if i % 17 == 5 else town for i, town in enumerate(towns)],
        "day": [str(day) for day in days],
        "unit": ["m"] * num_rows,
        "flag": ["true" if value > 0 else "false" for value in x[:, 1]],
        "price": ["" if i % 20 == 7 else value for i, value in enumerate(y.round(4).tolist())],
    }


def kinds(num_rows: int = 44, seed: int = 0) -> dict[str, list[Any]]:
    """Two columns of numbers, a colour and a class."""
    x, noise = _drawn(num_rows, seed)
    colours = [("red", "blue")[i % 2] for i in range(num_rows)]
    level = x[:, 0] + x[:, 1] + 0.6 * np.array([colour == "red" for colour in colours]) + 2 * noise
    label = np.where(level > 0.9, "high", np.where(level > -0.5, "middle", "=low")).tolist()
    return {"a": x[:, 0].tolist(), "b": x[:, 1].tolist(), "colour": colours, "kind": label}


def _drawn(num_rows: int, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(num_rows, 3)).round(4), 0.15 * rng.normal(size=num_rows)


def write_csv(path: Path, columns: dict[str, list[Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def without(columns: dict[str, list[Any]], name: str) -> dict[str, list[Any]]:
    return {key: values for key, values in columns.items() if key != name}


# Sessions


def numeric_csv(shell: Shell) -> None:
    write_csv(shell.folder / "rows.csv", table())
    write_csv(shell.folder / "new.csv", table(8, seed=1))
    shell("fit", "rows.csv", "-t", "y", "-o", "m.gwi")
    shell("fit", "rows.csv", "-t", "y", "-o", "m.gwi", "--json")
    shell("fit", "rows.csv", "-t", "y", "-o", "m.gwi", "--json", "--force", "--seed", "3", "-q", "--no-refit")
    shell("predict", "m.gwi", "new.csv", "-o", "p.csv")
    shell("predict", "m.gwi", "new.csv", "-o", "all.csv", "--keep", "all", "--coverage", "0.8", "--chunk-size", "3", "-q")
    shell("predict", "m.gwi", "new.csv", "-o", "-", "--keep", "none", "-q")
    shell("evaluate", "m.gwi", "new.csv")
    shell("evaluate", "m.gwi", "new.csv", "--json", "-q")
    shell("report", "m.gwi", "new.csv", "-o", "r.html")
    shell("info", "m.gwi")
    shell("info", "m.gwi", "--json")


def other_means(shell: Shell) -> None:
    write_csv(shell.folder / "rows.csv", table())
    write_csv(shell.folder / "new.csv", table(8, seed=1))
    shell("fit", "rows.csv", "-t", "y", "-o", "m.gwi", "--mean", "svgp", "--drop", "c", "--holdout", "0", "-q")
    shell("predict", "m.gwi", "new.csv", "-o", "p.csv")
    shell("fit", "rows.csv", "-t", "y", "-o", "linear.gwi", "--mean", "linear", "--max-time", "5", "--json")
    shell("fit", "rows.csv", "-t", "y", "-o", "paper.gwi", "--preset", "nothing")


def mixed_csv(shell: Shell) -> None:
    write_csv(shell.folder / "rows.csv", mixed())
    write_csv(shell.folder / "new.csv", mixed(9, seed=1))
    shell("fit", "rows.csv", "-t", "price", "-o", "m.gwi", "--json")
    shell("fit", "rows.csv", "-t", "price", "-o", "m.gwi", "--force", "--holdout", "0")
    shell("predict", "m.gwi", "new.csv", "-o", "p.csv")
    shell("evaluate", "m.gwi", "new.csv", "--json")
    shell("report", "m.gwi", "new.csv", "-o", "r.html", "-q")
    shell("info", "m.gwi")


def classes_csv(shell: Shell) -> None:
    write_csv(shell.folder / "rows.csv", kinds())
    write_csv(shell.folder / "new.csv", kinds(9, seed=1))
    shell("fit", "rows.csv", "-t", "kind", "-o", "m.gwi", "--json")
    shell("fit", "rows.csv", "-t", "kind", "-o", "m.gwi", "--force", "--max-time", "9", "--holdout", "0", "--mean", "svgp")
    shell("predict", "m.gwi", "new.csv", "-o", "p.csv", "--excel-safe")
    shell("evaluate", "m.gwi", "new.csv")
    shell("evaluate", "m.gwi", "new.csv", "--json")
    shell("report", "m.gwi", "new.csv", "-o", "r.html")
    shell("info", "m.gwi", "--json")


def parquet(shell: Shell) -> None:
    pq.write_table(pa.table(table()), shell.folder / "rows.parquet")
    pq.write_table(pa.table(without(table(8, seed=1), "y")), shell.folder / "new.parquet")
    shell("fit", "rows.parquet", "-t", "y", "-o", "m.gwi", "--mean", "svgp-all")
    shell("fit", "rows.parquet", "-t", "y", "-o", "m.gwi", "--mean", "linear", "--json", "--force")
    shell("predict", "m.gwi", "new.parquet", "-o", "p.parquet")
    shell("predict", "m.gwi", "new.parquet", "-o", "p.csv", "-q")
    shell("evaluate", "m.gwi", "rows.parquet")
    shell("evaluate", "m.gwi", "new.parquet")
    shell("report", "m.gwi", "rows.parquet", "-o", "r.html", "--max-rows", "20")


def streamed(shell: Shell, columns: Callable[..., dict[str, list[Any]]], target: str) -> None:
    """A folder of files is read some rows at a time."""
    (shell.folder / "rows").mkdir()
    for i in range(2):
        pq.write_table(pa.table(columns(60, seed=i)), shell.folder / "rows" / f"{i}.parquet", row_group_size=25)
    pq.write_table(pa.table(columns(8, seed=5)), shell.folder / "new.parquet")
    shell("fit", "rows", "-t", target, "-o", "m.gwi", "--mean", "svgp", "--json", "-q")
    shell("fit", "rows", "-t", target, "-o", "m.gwi", "--mean", "linear", "--holdout", "0", "--force")
    shell("predict", "m.gwi", "new.parquet", "-o", "p.parquet")
    shell("evaluate", "m.gwi", "rows", "--json")


def comparison(shell: Shell) -> None:
    write_csv(shell.folder / "rows.csv", table())
    shell("compare", "rows.csv", "-t", "y", "-o", "c.html", "--folds", "2", "--gp-rows", "12", "--drop", "b")


def comparison_of_classes(shell: Shell) -> None:
    write_csv(shell.folder / "rows.csv", kinds())
    shell("compare", "rows.csv", "-t", "kind", "-o", "c.html", "--folds", "2", "--json", "-q")


def mistakes(shell: Shell) -> None:
    """What was asked for wrongly."""
    write_csv(shell.folder / "rows.csv", table())
    (shell.folder / "bad.gwi").write_bytes(b"no model")
    (shell.folder / "there.gwi").write_bytes(b"")
    for options in (
        ["-t", "z", "-o", "m.gwi"],
        ["-t", "y", "-o", "there.gwi"],
        ["-t", "y", "-o", "rows.csv", "--force"],
        ["-t", "y", "-o", "nowhere/m.gwi"],
        ["-t", "y", "-o", "m.gwi", "--mean", "forest"],
        ["-t", "y", "-o", "m.gwi", "--task", "ranking"],
        ["-t", "y", "-o", "m.gwi", "--task", "classification"],
        ["-t", "y", "-o", "m.gwi", "--holdout", "2"],
        ["-t", "y", "-o", "m.gwi", "--max-time", "-1"],
        ["-t", "y", "-o", "m.gwi", "--drop", "q"],
        ["-t", "y", "-o", "m.gwi", "--preset", "book"],
        ["-t", "y", "-o", "m.gwi", "--drop", "a,b,c"],
    ):
        shell("fit", "rows.csv", *options)
    for model in ("bad.gwi", "none.gwi", "rows.csv"):
        shell("predict", model, "rows.csv", "-o", "p.csv")
        shell("info", model)
    shell("compare", "rows.csv", "-t", "y", "-o", "c.pdf")
    shell("predict", "bad.gwi", "rows.csv", "-o", "p.csv", "--coverage", "1.5")


def usage(shell: Shell) -> None:
    """What the parser of arguments says; other versions of it say it otherwise."""
    for command in ("fit", "predict", "evaluate", "report", "compare", "info", "export", "demo", "launch"):
        shell(command, "--help")
    shell("--help")
    shell("unknown")
    shell("fit")
    shell("fit", "rows.csv", "-t", "y", "-o", "m.gwi", "--seed", "-1")


SESSIONS: dict[str, Callable[[Shell], None]] = {
    "numeric CSV": numeric_csv,
    "numeric CSV, other means": other_means,
    "mixed CSV": mixed_csv,
    "classes CSV": classes_csv,
    "Parquet": parquet,
    "streamed folder": partial(streamed, columns=table, target="y"),
    "streamed folder of classes": partial(streamed, columns=kinds, target="kind"),
    "comparison": comparison,
    "comparison of classes": comparison_of_classes,
    "mistakes": mistakes,
    "usage": usage,
}


def outcome(session: Callable[[Shell], None]) -> Outcome:
    """What a session gives, in a folder of its own."""
    with repeatable(), tempfile.TemporaryDirectory() as folder:
        shell = Shell(Path(folder))
        session(shell)
    return shell.found


# Odd files


@contextlib.contextmanager
def base_model() -> Iterator[Path]:
    """The model that odd files meet."""
    with tempfile.TemporaryDirectory() as folder:
        shell = Shell(Path(folder))
        (shell.folder / "base.csv").write_text(text())
        code, _, err = shell.say("fit", "base.csv", "-t", "y", "--drop", "label", "-o", "y.gwi", *QUICK)
        assert code == 0, err
        yield shell.folder / "y.gwi"


def odd_outcome(name: str, model: Path) -> Outcome:
    """What an odd file gives in a prediction and a fit."""
    case: Odd = CASES[name]
    fitted = None
    with tempfile.TemporaryDirectory() as folder:
        shell = Shell(Path(folder))
        path = case.path(shell.folder).name
        predicted = shell.say("predict", str(model), path, "-o", "-", "--keep", "none", "-q")
        if case.fit is not None:
            other = "label" if case.target == "y" else "y"
            is_dropped = not isinstance(case.fit, str) or case.fit == SAME
            drop = ["--drop", "label" if name == "columns missing" else other] if is_dropped else []
            fitted = shell.say("fit", path, "-t", case.target, "-o", "m.gwi", *drop, *QUICK)
        return odd_words(predicted, fitted, shell.folder, model)


def odd_words(predicted: tuple[int, str, str], fitted: tuple[int, str, str] | None, folder: Path, model: Path) -> Outcome:
    """Exit codes and sentences, and which columns a fit used: words that are the same on every machine.

    Args:
        predicted: exit code, output and errors of `gwi predict`.
        fitted: those of `gwi fit`; None if there was none.
        folder: where the odd file is.
        model: the model that it met.
    """
    found = Outcome()
    code, out, err = predicted
    found.texts["predict"] = f"{code} {masked(err, folder).replace(str(model), 'y.gwi') or f'{len(out.splitlines())} lines'}"
    if fitted is not None:
        code, out, err = fitted
        said = json.dumps({k: json.loads(out)[k] for k in ("rows", "columns", "inputs", "not_used")}) if code == 0 else ""
        found.texts["fit"] = f"{code} {masked(err, folder) or said}"
    return found
