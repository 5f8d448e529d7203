"""Odd input files, each with what must come of it in fit, predict and evaluate."""

from __future__ import annotations

import datetime
import decimal
import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

NUM_ROWS = 24
NAMES = ["x", "town", "y", "label"]
Cells = list[list[str]]


def base_cells() -> Cells:
    """A number, a town, a target that depends on both, and its class."""
    rng = np.random.default_rng(0)
    cells = []
    for i in range(NUM_ROWS):
        x, town = round(float(rng.normal()), 3), ("Ulm", "Bonn")[i % 2]
        y = round(2 * x + (town == "Ulm") + 0.1 * float(rng.normal()), 3)
        cells.append([repr(x), town, repr(y), "up" if y > 0 else "down"])
    return cells


BASE = base_cells()


def text(cells: Cells = BASE, names: list[str] | None = None, delimiter: str = ",", end: str = "\n") -> str:
    return "".join(f"{delimiter.join(row)}{end}" for row in [names or NAMES, *cells])


def with_column(name: str, values: list[str], place: int = 0) -> str:
    """The base table and one more column."""
    cells = [[*row[:place], value, *row[place:]] for row, value in zip(BASE, values, strict=True)]
    return text(cells, [*NAMES[:place], name, *NAMES[place:]])


def changed(column: str, value: Callable[[str, int], str]) -> str:
    """The base table with other cells in one column."""
    place = NAMES.index(column)
    return text([[*row[:place], value(row[place], i), *row[place + 1 :]] for i, row in enumerate(BASE)])


def one(column: str, row: int, value: str) -> str:
    """The base table with one other cell."""
    return changed(column, lambda old, i: value if i == row else old)


def columns() -> dict[str, list[Any]]:
    """The base table by column, numbers as numbers."""
    x, town, y, label = (list(column) for column in zip(*BASE, strict=True))
    return {"x": [float(v) for v in x], "town": town, "y": [float(v) for v in y], "label": label}


def parquet(**others: object) -> Callable[[Path], Path]:
    """The base table, with other or more columns, as Parquet."""

    def write(folder: Path) -> Path:
        path = folder / "data.parquet"
        pq.write_table(pa.table(columns() | others), path)
        return path

    return write


def spreadsheet(folder: Path) -> Path:
    import zipfile

    path = folder / "data.csv"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("xl/workbook.xml", "<workbook/>")
    return path


def loop(folder: Path) -> Path:
    path = folder / "data.csv"
    path.symlink_to(path)
    return path


def pipe(folder: Path) -> Path:
    import os

    path = folder / "data.csv"
    os.mkfifo(path)
    return path


def folder_in_place(folder: Path) -> Path:
    path = folder / "data.csv"
    path.mkdir()
    return path


def twice(folder: Path) -> Path:
    path = folder / "data.parquet"
    table = pa.table(columns())
    pq.write_table(table.append_column("x", table.column("x")), path)
    return path


def cut(folder: Path) -> Path:
    path = parquet()(folder)
    path.write_bytes(path.read_bytes()[:-40] + b"\xff\xff\xff\x7fPAR1")
    return path


def no_rows(folder: Path) -> Path:
    path = folder / "data.parquet"
    pq.write_table(pa.table(columns()).slice(0, 0), path)
    return path


SAME = "same"


@dataclass(frozen=True)
class Odd:
    """A file and what must come of it.

    Attributes:
        content: bytes, text, or a function that makes the file and returns its path.
        fit: SAME for the model of the base table; a set of columns that are used; a part of the error; None: not tried.
        predict: SAME for the predictions of the base table by the base model, a number of rows, or a part of the error.
        evaluate: SAME for the scores of the base table, a number of rows, or a part of the error.
        target: of the fit.
    """

    content: bytes | str | Callable[[Path], Path]
    fit: str | set[str] | None = SAME
    predict: str | int = SAME
    evaluate: str | int = SAME
    target: str = "y"

    def path(self, folder: Path) -> Path:
        if callable(self.content):
            return self.content(folder)
        path = folder / "data.csv"
        path.write_bytes(self.content.encode() if isinstance(self.content, str) else self.content)
        return path


def refused(content: bytes | str | Callable[[Path], Path], said: str) -> Odd:
    """No command can read the file."""
    return Odd(content, said, said, said)


IDS = [f"n{i}" for i in range(NUM_ROWS)]
DAYS = [f"2024-{1 + i % 12:02d}-{1 + i:02d}" for i in range(NUM_ROWS)]
BOTH = {"x", "town"}
COMMAS = [[cell.replace(".", ",") for cell in row] for row in BASE]
MOMENTS = [datetime.datetime(2024, 1, 1 + i, i % 24) for i in range(NUM_ROWS)]

CASES = {
    # The same table in other clothes.
    "plain": Odd(text()),
    "byte order mark": Odd(b"\xef\xbb\xbf" + text().encode()),
    "utf-16 little end": Odd(b"\xff\xfe" + text().encode("utf-16-le")),
    "utf-16 big end": Odd(b"\xfe\xff" + text().encode("utf-16-be")),
    "semicolons": Odd(text(delimiter=";")),
    "decimal commas": Odd(text(COMMAS, delimiter=";")),
    "decimal commas and tabs": Odd(text(COMMAS, delimiter="\t")),
    # 0,126 may be a fraction and 1,239 a thousand: nobody knows.
    "commas in quotes": Odd(
        text([[f'"{cell}"' for cell in row] for row in COMMAS]),
        "line 2, column 'x': '0,126' is a number with",
        "line 2",
        "line 2",
    ),
    "tabs": Odd(text(delimiter="\t")),
    "bars": Odd(text(delimiter="|")),
    "windows line ends": Odd(text(end="\r\n")),
    "old mac line ends": Odd(text(end="\r")),
    "no last line end": Odd(text().rstrip("\n")),
    "blank lines": Odd("\n\n" + text(end="\n\n")),
    "blanks around names and cells": Odd(text([[f"  {c} " for c in r] for r in BASE], [f" {n} " for n in NAMES])),
    "all quoted": Odd(text([[f'"{c}"' for c in r] for r in BASE], [f'"{n}"' for n in NAMES])),
    "gzip": Odd(gzip.compress(text().encode())),
    "gzip of utf-16": Odd(gzip.compress(text().encode("utf-16"))),
    "columns permuted": Odd(text([r[::-1] for r in BASE], NAMES[::-1]), BOTH),
    "quoted line breaks": Odd(with_column("note", [f'"a{i}\nb, ""c"""' for i in range(NUM_ROWS)])),
    "unicode and emoji names": Odd(with_column("größe 🏠 名", IDS)),
    "delimiter in a name": Odd(with_column('"town, city; state"', IDS, 4)),
    "a very long cell": Odd(with_column("note", [f"{i}" + "z" * 300_000 * (i == 5) + "é" for i in range(NUM_ROWS)])),
    "ids": Odd(with_column("id", IDS)),
    "row numbers": Odd(with_column("index", [str(i) for i in range(NUM_ROWS)])),
    "a column without values": Odd(with_column("empty", [("", "NA", "null", "?")[i % 4] for i in range(NUM_ROWS)])),
    "a constant column": Odd(with_column("unit", ["m"] * NUM_ROWS)),
    "exponents": Odd(changed("x", lambda v, i: f"{float(v):.6E}")),
    "plus signs": Odd(changed("x", lambda v, i: v if v.startswith("-") else f"+{v}")),
    "leading zeros": Odd(changed("x", lambda v, i: v.replace("-", "-00") if "-" in v else f"00{v}")),
    "points without digits": Odd(changed("x", lambda v, i: v.replace("0.", ".", 1) if abs(float(v)) < 1 else v)),
    "a last row without target": Odd(text() + "0.5,Ulm,NA,\n", BOTH, 25),
    "Parquet": Odd(parquet()),
    "Parquet dictionary": Odd(parquet(town=pa.array(columns()["town"]).dictionary_encode())),
    "Parquet decimal": Odd(parquet(x=pa.array([decimal.Decimal(r[0]) for r in BASE], pa.decimal128(9, 3)))),
    "Parquet numbers as text": Odd(parquet(x=[r[0] for r in BASE])),
    "Parquet large text": Odd(parquet(town=pa.array(columns()["town"], pa.large_string()))),
    "Parquet null column": Odd(parquet(nothing=pa.nulls(NUM_ROWS))),
    # Other tables that are right.
    "booleans": Odd(with_column("flag", [("true", "false", "false")[i % 3] for i in range(NUM_ROWS)]), {*BOTH, "flag"}),
    "booleans in Parquet": Odd(parquet(flag=[i % 3 == 0 for i in range(NUM_ROWS)]), {*BOTH, "flag"}),
    "iso dates": Odd(with_column("day", DAYS), {*BOTH, "day"}),
    "moments with zones": Odd(with_column("at", [f"{d}T{i:02d}:30:00+02:00" for i, d in enumerate(DAYS)]), {*BOTH, "at"}),
    "moments with and without zones": Odd(
        with_column("at", [f"{d} 10:00:00{'Z' * (i > 3)}" for i, d in enumerate(DAYS)]), "line 6, column 'at'"
    ),
    "Parquet timestamps": Odd(parquet(at=pa.array(MOMENTS, pa.timestamp("ns", "Europe/Berlin"))), {*BOTH, "at"}),
    "Parquet dates": Odd(parquet(at=pa.array([m.date() for m in MOMENTS], pa.date32())), {*BOTH, "at"}),
    "minus zero": Odd(one("x", 3, "-0"), BOTH, 24, 24),
    "missing words": Odd(changed("x", lambda v, i: ("NaN", "null", "n/a", "#N/A", "", "?")[i] if i < 6 else v), BOTH, 24, 24),
    "zip codes": Odd(with_column("zip", [f"{(i * 37) % 90:05d}" for i in range(NUM_ROWS)]), {*BOTH, "zip"}),
    "ten thousand columns": Odd(
        text([[*row, *["7"] * 10_000] for row in BASE], [*NAMES, *(f"c{i}" for i in range(10_000))]), None
    ),
    "many values": Odd(with_column("street", [f"s{i % 12}" for i in range(NUM_ROWS)]), {*BOTH, "street"}),
    "target missing in some rows": Odd(changed("y", lambda v, i: "" if i % 8 == 0 else v), BOTH, SAME, 21),
    "one row": Odd(text(BASE[:1]), "has 1 row with a target", 1, 1),
    "two rows": Odd(text(BASE[:2]), "has 2 rows with a target", 2, 2),
    "no other column": Odd(
        "y\n" + "\n".join(r[2] for r in BASE), "has no column to predict 'y' from", "lacks 2 of the 2", "lacks 2"
    ),
    "no target": Odd(text([r[:2] for r in BASE], NAMES[:2]), "has no column 'y'", SAME, "has no column 'y', the target"),
    "no value of the target": Odd(changed("y", lambda v, i: ""), "0 rows with a target", SAME, "No row has a value of 'y'"),
    "a constant target": Odd(changed("y", lambda v, i: "5"), "the target is 5 in every row", SAME, 24),
    "columns missing": Odd(text([r[1:] for r in BASE], NAMES[1:]), {"town"}, "lacks 1 of the 2", "columns of the model: 'x'"),
    "unknown towns": Odd(changed("town", lambda v, i: f"new {v}"), BOTH, 24, 24),
    "numbers for towns": Odd(changed("town", lambda v, i: str(i % 2)), BOTH, 24, 24),
    "text for numbers": Odd(
        changed("x", lambda v, i: ("low", "high")[i % 2]), BOTH, "line 2, column 'x': 'low' is not a number", "line 2"
    ),
    "emoji classes": Odd(changed("label", lambda v, i: "🍎" if v == "up" else "🥝, kiwi".replace(",", "")), BOTH, target="label"),
    "a class with one row": Odd(one("label", 4, "lonely"), BOTH, target="label"),
    "classes as numbers": Odd(
        changed("label", lambda v, i: "1.0" if v == "up" else "01" if i % 2 else "2"), BOTH, target="label"
    ),
    # Cells that cannot be.
    "a word among numbers": Odd(
        one("x", 5, "n.d."),
        "line 7, column 'x': 'n.d.' is not a number",
        "line 7, column 'x': 'n.d.' is not a number",
        "line 7, column 'x'",
    ),
    "infinity": Odd(one("x", 5, "inf"), "line 7, column 'x': 'inf'", "line 7, column 'x': 'inf'", "line 7, column 'x': 'inf'"),
    "1e400": Odd(one("x", 5, "1e400"), "line 7, column 'x': '1e400'", "line 7, column 'x'", "line 7, column 'x'"),
    "1e400 in the target": Odd(one("y", 5, "-1e400"), "line 7, column 'y': '-1e400'", SAME, "line 7, column 'y': '-1e400'"),
    "a word in the target": Odd(one("y", 5, "x"), "line 7, column 'y': 'x' is not a number", SAME, "line 7, column 'y'"),
    "thousands": Odd(
        changed("x", lambda v, i: f'"{1000 + 3 * i:,}"'),
        "line 2, column 'x': '1,000' is a number with",
        "line 2, column 'x'",
        "line 2",
    ),
    "percent signs": Odd(changed("x", lambda v, i: f"{v} %"), "line 2, column 'x'", "line 2, column 'x'", "line 2, column 'x'"),
    "currency": Odd(changed("x", lambda v, i: f"€{abs(float(v))}"), "line 2, column 'x'", "line 2, column 'x'", "line 2"),
    "hex numbers": Odd(changed("x", lambda v, i: hex(i * 7)), {"town"}, "line 2, column 'x': '0x0' is not a number", "line 2"),
    "dates with slashes": Odd(
        with_column("day", [f"{1 + i % 12}/{1 + i}/2024" for i in range(NUM_ROWS)]), "order of day and month"
    ),
    "no such day": Odd(with_column("day", [*DAYS[:-1], "2024-02-31"]), "line 25, column 'day': '2024-02-31' is not a date"),
    "Parquet infinity": Odd(
        parquet(x=[*columns()["x"][:-1], float("inf")]), "row 24, column 'x': inf", "row 24, column 'x'", "row 24, column 'x'"
    ),
    "Parquet lists": Odd(parquet(tags=[[i] for i in range(NUM_ROWS)]), "column 'tags' holds list"),
    "Parquet structs": Odd(parquet(at=[{"a": i} for i in range(NUM_ROWS)]), "column 'at' holds struct"),
    "Parquet bytes": Odd(parquet(raw=[bytes([i]) for i in range(NUM_ROWS)]), "column 'raw' holds binary"),
    "Parquet times of day": Odd(parquet(at=[datetime.time(i) for i in range(NUM_ROWS)]), "column 'at' holds time64"),
    "Parquet list for a number": Odd(
        parquet(x=[[i] for i in range(NUM_ROWS)]), "column 'x' holds list", "column 'x' holds", "'x' holds"
    ),
    "one class": Odd(changed("label", lambda v, i: "up"), "the target is up in every row", target="label"),
    "as many classes as rows": Odd(changed("label", lambda v, i: f"v{i}"), "24 different labels in 24 rows", target="label"),
    # Files that are no table.
    "a long row": refused(text().replace("\n", ",9\n", 3).replace(",9\n", "\n", 2), "line 3: 5 cells where the header has 4"),
    "a short row": refused(text().replace(f"{','.join(BASE[6])}\n", "1,Ulm\n"), "line 8: 2 cells where the header has 4"),
    "a delimiter behind every row": refused("".join(f"{line},\n" for line in text().splitlines()), "column 5 of 5 has no name"),
    "a delimiter behind rows": refused(text(end=",\n").replace("label,", "label", 1), "line 2: 5 cells where the header has 4"),
    "equal names": refused(text(names=["x", "x", "y", "label"]), "line 1: more than one column is called 'x'"),
    "names equal but for blanks": refused(text(names=["x", " x", "y", "label"]), "line 1: more than one column is called 'x'"),
    "a name missing": refused(text(names=["x", "", "y", "label"]), "line 1: column 2 of 4 has no name"),
    "no names": refused("1,2\n3,4\n5,6\n", "line 1: the first line holds numbers, not names"),
    "empty": refused(b"", "is empty"),
    "blank": refused(b" \n\t\n", "is empty"),
    "only a byte order mark": refused(b"\xef\xbb\xbf", "is empty"),
    "names only": refused("x,town,y,label\n", "no rows"),
    "NUL": refused(text().replace("Ulm", "Ul\0m", 1), "line 2: there is a NUL"),
    "utf-16 without mark": refused(text().encode("utf-16-le"), "line 1: there is a NUL"),
    "latin-1": refused(text().replace("Ulm", "Köln").encode("latin-1"), "line 2: the text is not UTF-8"),
    "binary noise": refused(np.random.default_rng(0).bytes(4000), "data.csv"),
    "a quotation without end": refused(
        text().replace("Bonn", '"Bonn', 1), "line 3: a quotation mark opens a cell that never ends"
    ),
    "wrong Parquet footer": refused(cut, "is a damaged Parquet file"),
    "text with a Parquet mark": refused(b"PAR1" + text().encode(), "is a damaged Parquet file"),
    "Parquet without rows": refused(no_rows, "no rows"),
    "Parquet with equal names": refused(twice, "data.parquet: more than one column is called 'x'"),
    "truncated gzip": refused(gzip.compress(text().encode() * 50)[:-12], "is a damaged gzip file"),
    "gzip of nothing": refused(gzip.compress(b""), "is empty"),
    "gzip of names only": refused(gzip.compress(b"x,y\n"), "no rows"),
    "a folder": refused(folder_in_place, "is a folder"),
    "no file": refused(lambda folder: folder / "data.csv", "cannot be read"),
    "a file that cannot be opened": refused(loop, "cannot be read"),
    "a pipe": refused(pipe, "is not an ordinary file"),
    "JSON": refused(json.dumps([dict(zip(NAMES, row, strict=True)) for row in BASE]), "JSON"),
    "JSON lines": refused("".join(json.dumps(dict(zip(NAMES, row, strict=True))) + "\n" for row in BASE), "JSON"),
    "a spreadsheet": refused(spreadsheet, "is a spreadsheet or a zip archive"),
    "HTML": refused("<!doctype html>\n<html><body>Not found</body></html>\n", "HTML"),
}
