"""Tables from files: CSV with any usual delimiter and encoding, Parquet, gzip; whole or some rows at a time.

Cells of text files stay text as they are written; `tables.encoder` makes numbers of them. pyarrow parses. What is ours is to say
where a file is wrong: `UserError` names file, line and column. `tables.parquet` reads Parquet.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from gwi._extras import require
from gwi.exceptions import UserError
from gwi.tables.addresses import AnyPath
from gwi.tables.parquet import ParquetReader, file_schemas, first_line, joint_schema, parquet_files
from gwi.tables.text import BLOCK, Utf8

# The most characters of a line and the most columns: whole rows are parsed, so a row must fit in memory.
LONGEST_LINE, MOST_COLUMNS = 1 << 23, 100_000
DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
# Where a Parquet file says with which mark its text writes decimals.
DECIMAL = b"gwi.decimal"
# Characters from which delimiter and decimal mark are told.
SAMPLE = 1 << 16
# Rows of it whose lengths are compared.
COMPARED = 100
_COMMA_NUMBER, _POINT_NUMBER = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?"), re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_OTHER_KIND = re.compile(r'\s*(?:(\{\s*["}]|\[\s*[\[{])|<(?:!doctype|html|\?xml))', re.IGNORECASE)


@runtime_checkable
class Origin(Protocol):
    """Where a table is from: a file, or a data frame."""

    @property
    def path(self) -> Any:
        """What a sentence calls it."""
        ...

    @property
    def decimal(self) -> str:
        """The mark before the decimals of numbers that are text."""
        ...

    @property
    def leave_out(self) -> str:
        """What its user does to leave a column out."""
        ...

    @property
    def unit(self) -> str:
        """What `lines` counts."""
        ...

    def place(self, row: int, column: str) -> str:
        """Where a cell is, rows from 0, for a sentence."""
        ...

    def lines(self, rows: Sequence[int]) -> list[int]:
        """Where each row is for a reader."""
        ...


@dataclass(frozen=True)
class Source:
    """A file that holds a table, and how to read it.

    Attributes:
        path: of the file.
        header: names of the columns; stripped of blanks.
        is_parquet: else it is text.
        is_compressed: text in gzip.
        delimiter: of text.
        decimal: the mark before the decimals of text, a point or a comma.
        content: of text that is in memory, where the path is only what sentences call it; None of files.
        names: of the columns of text as they are written, blanks and all.
    """

    path: AnyPath
    header: tuple[str, ...]
    is_parquet: bool = False
    is_compressed: bool = False
    delimiter: str = ","
    decimal: str = "."
    content: bytes | None = field(default=None, repr=False)
    names: tuple[str, ...] = ()
    leave_out: ClassVar[str] = "leave the column out (--drop)"

    @property
    def unit(self) -> str:
        """What `lines` counts."""
        return "row" if self.is_parquet else "line"

    def text(self) -> Utf8:
        """The file's characters from its beginning."""
        return Utf8(self.path, self.is_compressed, self.content)

    def place(self, row: int, column: str) -> str:
        """Where a cell is, rows from 0, for a sentence: the line of a text file, the row of a Parquet file."""
        line = self.lines([row])[0]
        return f"{self.path}, {self.unit} {line}, column {column!r}" if line else f"{self.path}, column {column!r}"

    def lines(self, rows: Sequence[int]) -> list[int]:
        """The line of each row of a text file, or its number from 1 in a Parquet file; 0 for one that is not there."""
        if self.is_parquet or not rows:
            return [row + 1 for row in rows]
        wanted, body = set(rows), islice(_lines(self), 1, max(rows) + 2)
        lines = {row: line for row, (line, _) in enumerate(body) if row in wanted}
        return [lines.get(row, 0) for row in rows]


@dataclass(frozen=True)
class Table:
    """Rows of a file, or of a data frame.

    Attributes:
        source: where they are from.
        data: a pyarrow table.
        number: of each row in the file, from 0.
    """

    source: Origin
    data: Any
    number: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.number)

    def __getitem__(self, chosen: NDArray[Any]) -> Table:
        """Some rows, by places or by a mask."""
        places = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen
        return Table(self.source, self.data.take(places), self.number[places])

    @staticmethod
    def join(parts: Sequence[Table]) -> Table:
        """The rows of all, which are of one file."""
        import pyarrow as pa

        data = pa.concat_tables([part.data for part in parts]).combine_chunks()
        return Table(parts[0].source, data, np.concatenate([part.number for part in parts]))

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns."""
        return tuple(self.data.column_names)

    def column(self, name: str) -> Any:
        """One column, a pyarrow array."""
        return self.data.column(name).combine_chunks()

    def without(self, name: str | None) -> Table:
        """Without a column of this name, if there is one."""
        return self if name not in self.names else Table(self.source, self.data.drop_columns([name]), self.number)

    def place(self, row: int, column: str) -> str:
        """Where a cell of this part is in the file."""
        return self.source.place(int(self.number[row]), column)


def _lines(source: Source, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
    """Rows of a text file with the line on which each begins; blank lines are none. Slow: for the place of a mistake.

    Raises:
        csv.Error: where `strict`, with the line and the reason; else rows end there.
    """
    stream = source.text()
    with io.TextIOWrapper(io.BufferedReader(stream), encoding="utf-8", newline="") as text:
        reader = csv.reader(_bounded(text, source.path, stream), delimiter=source.delimiter, strict=strict)
        line = 1
        try:
            for cells in reader:
                if cells:
                    yield line + stream.num_skipped, cells
                line = reader.line_num + 1
        except csv.Error as error:
            if strict:
                raise csv.Error(line + stream.num_skipped, str(error), reader.line_num > line) from error


def _bounded(text: io.TextIOWrapper, path: AnyPath, stream: Utf8) -> Iterator[str]:
    """The lines of a text.

    Raises:
        UserError: where one has no end.
    """
    for number in count(1):
        line = text.readline(LONGEST_LINE)
        if len(line) == LONGEST_LINE and line[-1] not in "\r\n":
            place = f"{path}, line {number + stream.num_skipped}"
            raise UserError(f"{place}: the line has more than {LONGEST_LINE} characters; write one row of the table per line.")
        if not line:
            return
        yield line


def open_table(path: AnyPath) -> Source:
    """What kind of table a file is, from its content and not from its name.

    Raises:
        UserError: when it holds none.
    """
    require("files", f"Reading {path}")
    if path.is_dir():
        if not parquet_files(path):
            raise UserError(f"{path} is a folder without Parquet files; give the name of a file.")
        return _open_parquet(path)
    if path.is_fifo() or path.is_socket():
        raise UserError(f"{path} is not an ordinary file but a pipe, which can be read only once; write it to a file first.")
    try:
        with path.open("rb") as file:
            start = file.read(4)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}." if error.strerror else str(error)) from error
    if start == b"PAR1":
        return _open_parquet(path)
    if start[:2] == b"PK" or start == b"\xd0\xcf\x11\xe0":
        raise UserError(f"{path} is a spreadsheet or a zip archive; export the table as CSV or Parquet.")
    if start and path.suffix in (".parquet", ".pq"):
        raise UserError(f"{path} is not a Parquet file, or its beginning is damaged.")
    return _sniffed(Source(path, (), is_compressed=start[:2] == b"\x1f\x8b"))


def open_text(content: bytes, name: str) -> Source:
    """A table of text that is in memory, which sentences call by this name.

    Raises:
        UserError: when it holds none.
    """
    return _sniffed(Source(Path(name), (), content=content))


def _sniffed(source: Source) -> Source:
    """The source with the delimiter that gives most columns of equal length, the decimal mark, and the header."""
    with source.text() as stream:
        text, num_skipped = io.BufferedReader(stream).read(SAMPLE).decode(errors="ignore"), stream.num_skipped
    is_whole = len(text) < SAMPLE // 4
    if not text.strip():
        raise UserError(f"{source.path} is empty.")
    if other := _OTHER_KIND.match(text):
        kind = "JSON" if other[1] else "a page of HTML or XML"
        raise UserError(f"{source.path} is {kind}; export the table as CSV or Parquet.")
    parsed: dict[str, list[list[str]]] = {}
    # Those that are nowhere in the text give all the same rows.
    absent = next((delimiter for delimiter in DELIMITERS if delimiter not in text), None)
    for delimiter in (mark for mark in DELIMITERS if mark in text or mark == absent):
        try:
            parsed[delimiter] = _sampled(text, delimiter, is_whole, COMPARED + 1)
        except csv.Error as error:
            raise UserError(f"{source.path} cannot be read as a table: {error}.") from error

    def agreement(delimiter: str) -> tuple[bool, float, int]:
        first, *others = parsed[delimiter][:COMPARED]
        same = sum(len(cells) == len(first) for cells in others) / max(len(others), 1)
        return len(first) > 1, same, len(first)

    best = max(parsed, key=agreement)
    rows = parsed[best]
    source = replace(source, delimiter=best, decimal="." if best == "," else _decimal(text, best, is_whole))
    # A row with others below it is whole; else it is read again, as it may be longer than the sample.
    line, names = (1 + num_skipped, rows[0]) if len(rows) > 1 else next(_lines(source), (0, []))
    if not names:
        raise UserError(_fault(source) or f"{source.path} cannot be read as a table: it has no header line.")
    header = tuple(name.strip() for name in names)
    _check_header(f"{source.path}, line {line}", header)
    source = replace(source, names=tuple(names))
    source = replace(source, header=header)
    if is_whole and len(rows) == 1:
        raise UserError(_fault(source) or f"{source.path} has a header line but no rows.")
    return source


def _sampled(text: str, delimiter: str, is_whole: bool, most: int | None = None) -> list[list[str]]:
    """The first rows of a sample; the last of them may be cut off. Blank lines are none."""
    rows = list(islice(filter(None, csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)), most))
    return rows if is_whole or len(rows) < 3 else rows[:-1]


def _decimal(text: str, delimiter: str, is_whole: bool) -> str:
    """A comma between digits is a decimal mark where it does not part columns and no number has a point."""
    cells = [cell.strip() for row in _sampled(text, delimiter, is_whole)[1:] for cell in row]
    has_commas = any(_COMMA_NUMBER.fullmatch(cell) for cell in cells)
    return "," if has_commas and not any(_POINT_NUMBER.fullmatch(cell) for cell in cells) else "."


def _check_header(place: str, header: tuple[str, ...]) -> None:
    empty = [str(i + 1) for i, name in enumerate(header) if not name]
    if empty:
        raise UserError(
            f"{place}: column{'s' * (len(empty) > 1)} {', '.join(empty[:5])} of {len(header)} has no name; "
            "name every column (data frames: write them with index=False)."
        )
    twice = sorted(name for name, times in Counter(header).items() if times > 1)
    if twice:
        raise UserError(f"{place}: more than one column is called {', '.join(map(repr, twice[:5]))}; names must differ.")
    if len(header) > MOST_COLUMNS:
        raise UserError(f"{place}: there are {len(header)} columns; at most {MOST_COLUMNS} can be read, so leave some out.")
    if all(_NUMBER.fullmatch(name) for name in header):
        raise UserError(f"{place}: the first line holds numbers, not names of columns; add a header line.")


def _open_parquet(path: AnyPath) -> Source:
    files = parquet_files(path)
    for part in files:
        if path.is_dir() and any("=" in folder for folder in part.relative_to(path).parent.parts):
            raise UserError(
                f"{part}: values of columns are in the names of folders; write them into the files, or fit from Python, which "
                "reads such folders."
            )
    schemas = file_schemas(files)
    _check_header(str(path), tuple(str(name) for name in schemas[0][1].names))
    schema = joint_schema(schemas)
    header = tuple(str(name) for name in schema.names)
    return Source(path, header, is_parquet=True, decimal=((schema.metadata or {}).get(DECIMAL, b".")).decode())


def read_parts(source: Source, size: int) -> Iterator[tuple[Table, float]]:
    """The table, `size` rows at a time, and the share of the file read so far.

    Raises:
        UserError: naming the place where the file is wrong.
    """
    import pyarrow as pa

    held, start, share = pa.table({}), 0, 0.0
    for part, share in _parquet_parts(source, size) if source.is_parquet else _text_parts(source):
        held = pa.concat_tables([held, part]) if held.num_rows else part
        while held.num_rows >= size:
            yield Table(source, held.slice(0, size), np.arange(start, start + size)), share
            held, start = held.slice(size), start + size
    if held.num_rows:
        yield Table(source, held, np.arange(start, start + held.num_rows)), share
    elif start == 0:
        raise UserError(f"{source.path} has a header line but no rows.")


def read_table(file: AnyPath | Source) -> Table:
    """All rows of a file."""
    return next(table for table, _ in read_parts(file if isinstance(file, Source) else open_table(file), 1 << 60))


def _parquet_parts(source: Source, size: int) -> Iterator[tuple[Any, float]]:
    reader = ParquetReader(source.path)
    for table, rows in reader.tables(size=min(size, 1 << 16)):
        yield table, float(rows[-1] + 1) / sum(reader.group_sizes)


def _text_parts(source: Source) -> Iterator[tuple[Any, float]]:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    with source.text() as stream:
        try:
            reader = arrow_csv.open_csv(
                pa.PythonFile(stream, mode="r"),
                read_options=arrow_csv.ReadOptions(use_threads=False, block_size=8 * BLOCK),
                parse_options=arrow_csv.ParseOptions(delimiter=source.delimiter, newlines_in_values=True),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(source.names, pa.string()), strings_can_be_null=False, check_utf8=False
                ),
            )
            for batch in reader:
                yield pa.Table.from_batches([batch]).rename_columns(list(source.header)), stream.share
        except pa.ArrowException as error:
            raise UserError(_fault(source) or f"{source.path} cannot be read as a table: {first_line(error)}") from error
        if stream.num_quotes % 2 and (fault := _fault(source)):
            raise UserError(fault)


def _fault(source: Source) -> str | None:
    """The first row with another number of cells than the header has, or a quotation that does not end, in a sentence."""
    try:
        for line, cells in _lines(source, strict=True):
            if len(cells) != len(source.header):
                return (
                    f"{source.path}, line {line}: {len(cells)} cell{'s' * (len(cells) != 1)} where "
                    f"the header has {len(source.header)} (the delimiter is taken to be the {DELIMITERS[source.delimiter]})."
                )
    except csv.Error as error:
        line, reason, has_line_ends = error.args
        if "unexpected end" in reason:
            return f"{source.path}, line {line}: a quotation mark opens a cell that never ends."
        if "field larger" in reason:
            what = "a quotation mark opens a cell that never ends, or has" if has_line_ends else "a cell has"
            return (
                f"{source.path}, line {line}: {what} more than {csv.field_size_limit()} characters; shorten it, or leave it out."
            )
        return f"{source.path}, line {line}: {reason}."
    return None
