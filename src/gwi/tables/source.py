"""Tables from files: CSV with any usual delimiter and encoding, Parquet, gzip; whole or some rows at a time.

Cells of text files stay text as they are written; `tables.encoder` makes numbers of them. pyarrow parses. What is ours is to say
where a file is wrong: `UserError` names file, line and column.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gwi.exceptions import UserError
from gwi.tables.schemas import joint_schema
from gwi.tables.text import BLOCK, Utf8

DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
# Where a Parquet file says with which mark its text writes decimals.
DECIMAL = b"gwi.decimal"
# Characters from which delimiter and decimal mark are told.
SAMPLE = 1 << 16
_COMMA_NUMBER, _POINT_NUMBER = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?"), re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_OTHER_KIND = re.compile(r'\s*(?:(\{\s*["}]|\[\s*[\[{])|<(?:!doctype|html|\?xml))', re.IGNORECASE)


@dataclass(frozen=True)
class Source:
    """A file that holds a table, and how to read it.

    Attributes:
        path: of the file.
        header: names of the columns; stripped of blanks.
        is_parquet: else it is text.
        is_compressed: text in gzip.
        encoding: of text.
        delimiter: of text.
        decimal: the mark before the decimals of text, a point or a comma.
    """

    path: Path
    header: tuple[str, ...]
    is_parquet: bool = False
    is_compressed: bool = False
    encoding: str = "utf-8"
    delimiter: str = ","
    decimal: str = "."

    def text(self) -> Utf8:
        """The file's characters from its beginning."""
        return Utf8(self.path, self.encoding, self.is_compressed)

    def place(self, row: int, column: str | None = None) -> str:
        """Where a row is, from 0, for a sentence: the line of a text file, the row of a Parquet file."""
        where = f", column {column!r}" if column is not None else ""
        found = self.lines([row])[0]
        kind = "row" if self.is_parquet else "line"
        return f"{self.path}, {kind} {found}{where}" if found else f"{self.path}{where}"

    def lines(self, rows: Sequence[int]) -> list[int]:
        """The line of each row of a text file, or its number from 1 in a Parquet file; 0 for one that is not there."""
        if self.is_parquet or not rows:
            return [row + 1 for row in rows]
        wanted, last = set(rows), max(rows)
        found = {
            number - 1: line for number, (line, _) in zip(range(last + 2), _lines(self), strict=False) if number - 1 in wanted
        }
        return [found.get(row, 0) for row in rows]


@dataclass(frozen=True)
class Table:
    """Rows of a file.

    Attributes:
        source: where they are from.
        data: a pyarrow table.
        rows: the number of each row in the file, from 0.
    """

    source: Source
    data: Any
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, chosen: NDArray[Any]) -> Table:
        """Some rows, by places or by a mask."""
        places = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen
        return Table(self.source, self.data.take(places), self.rows[places])

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns."""
        return tuple(self.data.column_names)

    def column(self, name: str) -> Any:
        """One column, a pyarrow array."""
        return self.data.column(name).combine_chunks()

    def place(self, row: int, column: str | None = None) -> str:
        """Where a row of this part is in the file."""
        return self.source.place(int(self.rows[row]), column)


def _lines(source: Source) -> Iterator[tuple[int, list[str]]]:
    """Rows of a text file with the line on which each begins; blank lines are none. Slow: for the place of a mistake."""
    stream = source.text()
    with io.TextIOWrapper(io.BufferedReader(stream), encoding="utf-8", newline="") as text:
        reader = csv.reader(text, delimiter=source.delimiter)
        line = 1
        try:
            for cells in reader:
                if cells:
                    yield line + stream.num_skipped, cells
                line = reader.line_num + 1
        except csv.Error:
            return


def open_table(path: Path) -> Source:
    """What kind of table a file is, from its content and not from its name.

    Raises:
        UserError: when it holds none.
    """
    if path.is_dir():
        if not parquet_files(path):
            raise UserError(f"{path} is a folder without Parquet files; give the name of a file.")
        return _open_parquet(path)
    if path.is_fifo() or path.is_socket():
        raise UserError(f"{path} is no ordinary file but a pipe, which can be read only once; write it to a file first.")
    try:
        with path.open("rb") as file:
            start = file.read(4)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from error
    if not start:
        raise UserError(f"{path} is empty.")
    if start == b"PAR1":
        return _open_parquet(path)
    if start[:2] == b"PK" or start == b"\xd0\xcf\x11\xe0":
        raise UserError(f"{path} is a spreadsheet or a zip archive; export the table as CSV or Parquet.")
    if path.suffix in (".parquet", ".pq"):
        raise UserError(f"{path} is no Parquet file, or its beginning is damaged.")
    is_compressed = start[:2] == b"\x1f\x8b"
    if is_compressed:
        try:
            with gzip.open(path) as unpacked:
                start = unpacked.read(4)
        except (EOFError, OSError, zlib.error) as error:
            raise UserError(f"{path} is a damaged gzip file ({error}).") from error
        if not start:
            raise UserError(f"{path} is empty.")
    encoding = "utf-16" if start[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig"
    return _sniffed(Source(path, (), False, is_compressed, encoding))


def _sniffed(source: Source) -> Source:
    """The source with the delimiter that gives most columns of equal length, the decimal mark, and the header."""
    with source.text() as stream:
        text = io.BufferedReader(stream).read(SAMPLE).decode(errors="ignore")
    is_whole = len(text) < SAMPLE // 4
    if not text.strip():
        raise UserError(f"{source.path} is empty.")
    if other := _OTHER_KIND.match(text):
        kind = "JSON" if other[1] else "a page of HTML or XML"
        raise UserError(f"{source.path} is {kind}; export the table as CSV or Parquet.")
    found: dict[str, list[list[str]]] = {}
    for delimiter in DELIMITERS:
        try:
            rows = [cells for cells in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if cells]
        except csv.Error as error:
            raise UserError(f"{source.path} cannot be read as a table: {error}.") from error
        # The last row of a sample may be cut off.
        found[delimiter] = rows if is_whole or len(rows) < 3 else rows[:-1]

    def agreement(delimiter: str) -> tuple[bool, float, int]:
        first, *others = found[delimiter][:100]
        same = sum(len(cells) == len(first) for cells in others) / max(len(others), 1)
        return len(first) > 1, same, len(first)

    best = max(found, key=agreement)
    rows = found[best]
    cells = [cell.strip() for row in rows[1:] for cell in row]
    # A comma between digits is a decimal mark where it does not part columns and no number has a point.
    has_commas = best != "," and any(_COMMA_NUMBER.fullmatch(cell) for cell in cells)
    decimal = "," if has_commas and not any(_POINT_NUMBER.fullmatch(cell) for cell in cells) else "."
    header = tuple(name.strip() for name in _whole_header(source, best, rows, is_whole))
    _check_header(f"{source.path}, line 1", header)
    if is_whole and len(rows) == 1:
        raise UserError(f"{source.path} has names of columns and no rows.")
    return Source(source.path, header, False, source.is_compressed, source.encoding, best, decimal)


def _whole_header(source: Source, delimiter: str, rows: list[list[str]], is_whole: bool) -> list[str]:
    """The header, read again where it is longer than the sample."""
    if is_whole or len(rows) > 1:
        return rows[0]
    return next(_lines(Source(source.path, (), False, source.is_compressed, source.encoding, delimiter)))[1]


def _check_header(place: str, header: tuple[str, ...]) -> None:
    empty = [str(i + 1) for i, name in enumerate(header) if not name]
    if empty:
        raise UserError(
            f"{place}: column{'s' * (len(empty) > 1)} {', '.join(empty[:5])} of {len(header)} has no name; "
            "name every column (data frames: write them with index=False)."
        )
    twice = sorted({name for name in header if header.count(name) > 1}) if len(set(header)) < len(header) else []
    if twice:
        raise UserError(f"{place}: more than one column is called {', '.join(map(repr, twice[:5]))}; names must differ.")
    if all(_NUMBER.fullmatch(name) for name in header):
        raise UserError(f"{place}: numbers stand where the names of the columns should; add a first line with names.")


def _open_parquet(path: Path) -> Source:
    schema = _joint_schema(path)
    header = tuple(str(name) for name in schema.names)
    return Source(path, header, is_parquet=True, decimal=((schema.metadata or {}).get(DECIMAL, b".")).decode())


def _joint_schema(path: Path) -> Any:
    """The columns of a Parquet file, or of all files of a folder: in the order of the first, of types that hold all values.

    Raises:
        UserError: naming a file that is damaged, or two that are not parts of one table.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    found: list[tuple[str, Any]] = []
    for part in parquet_files(path):
        if path.is_dir() and any("=" in folder for folder in part.relative_to(path).parent.parts):
            raise UserError(
                f"{part}: values of columns are in the names of folders; write them into the files, or fit from Python, which "
                "reads such folders."
            )
        try:
            found.append((str(part), pq.read_schema(part)))
        except (pa.ArrowException, OSError) as error:
            raise UserError(f"{part} is a damaged Parquet file ({_first_line(error)}).") from error
    _check_header(str(path), tuple(str(name) for name in found[0][1].names))
    try:
        return joint_schema(found)
    except ValueError as error:
        raise UserError(str(error)) from error


def parquet_files(path: Path) -> list[Path]:
    """The file itself, or those of a folder in the order of their names."""
    if not path.is_dir():
        return [path]
    return sorted(part for part in path.rglob("*") if part.suffix in (".parquet", ".pq") and part.is_file())


def read_parts(source: Source, size: int) -> Iterator[tuple[Table, float]]:
    """The table, `size` rows at a time, and the share of the file read so far.

    Raises:
        UserError: naming the place where the file is wrong.
    """
    import pyarrow as pa

    held: list[Any] = []
    count = start = 0
    share = 0.0
    for batch, share in _parquet_batches(source, size) if source.is_parquet else _text_batches(source):
        held.append(batch)
        count += batch.num_rows
        while count >= size:
            joined = pa.Table.from_batches(held)
            yield Table(source, joined.slice(0, size), np.arange(start, start + size)), share
            start, count = start + size, count - size
            held = joined.slice(size).to_batches()
    if count:
        yield Table(source, pa.Table.from_batches(held), np.arange(start, start + count)), share
    elif start == 0:
        raise UserError(f"{source.path} has names of columns and no rows.")


def read_table(path: Path) -> Table:
    """All rows of a file."""
    source = open_table(path)
    return next(table for table, _ in read_parts(source, 1 << 60))


def _text_batches(source: Source) -> Iterator[tuple[Any, float]]:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    with source.text() as stream:
        raw = next(_lines(source))[1]
        try:
            reader = arrow_csv.open_csv(
                pa.PythonFile(stream, mode="r"),
                read_options=arrow_csv.ReadOptions(use_threads=False, block_size=8 * BLOCK),
                parse_options=arrow_csv.ParseOptions(delimiter=source.delimiter, newlines_in_values=True),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(raw, pa.string()), strings_can_be_null=False, check_utf8=False
                ),
            )
            for batch in reader:
                yield batch.rename_columns(list(source.header)), stream.share
        except pa.ArrowException as error:
            raise UserError(_fault(source) or f"{source.path} cannot be read as a table: {_first_line(error)}") from error
        if stream.num_quotes % 2 and (fault := _fault(source)):
            raise UserError(fault)


def _fault(source: Source) -> str | None:
    """The first row with another number of cells than the header has, or a quotation that does not end, in a sentence."""
    stream = source.text()
    with io.TextIOWrapper(io.BufferedReader(stream), encoding="utf-8", newline="") as text:
        reader = csv.reader(text, delimiter=source.delimiter, strict=True)
        line = 1
        try:
            for cells in reader:
                if cells and len(cells) != len(source.header):
                    return (
                        f"{source.path}, line {line + stream.num_skipped}: {len(cells)} cell{'s' * (len(cells) != 1)} where "
                        f"the header has {len(source.header)} (the delimiter is taken to be the {DELIMITERS[source.delimiter]})."
                    )
                line = reader.line_num + 1
        except csv.Error as error:
            if "unexpected end" in str(error) or "field larger" in str(error):
                return f"{source.path}, line {line}: a quotation mark opens a cell that never ends."
            return f"{source.path}, line {line}: {error}."
    return None


def _parquet_batches(source: Source, size: int) -> Iterator[tuple[Any, float]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = parquet_files(source.path)
    schema = _joint_schema(source.path)
    for i, path in enumerate(files):
        try:
            with pq.ParquetFile(path) as file:
                total, done = max(file.metadata.num_rows, 1), 0
                for batch in file.iter_batches(batch_size=min(size, 1 << 16), use_threads=False):
                    done += batch.num_rows
                    if batch.schema != schema:
                        arrays = [batch.column(field.name).cast(field.type, safe=False) for field in schema]
                        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
                    yield batch, (i + done / total) / len(files)
        except (pa.ArrowException, OSError) as error:
            raise UserError(f"{path} is a damaged Parquet file ({_first_line(error)}).") from error


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__
