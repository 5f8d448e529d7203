"""Tables of predictions, written some rows at a time: CSV, gzip or Parquet; numbers with all digits that they need."""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections.abc import Iterable, Sequence
from typing import Any

from gwi._extras import require
from gwi.tables.addresses import AnyPath
from gwi.tables.names import no_column
from gwi.tables.source import Table

# What makes a spreadsheet take a cell for a formula, behind blanks that it passes over, or a cell that leaves its place with
# a tab or line end; a number may begin so.
_FORMULA, _NUMBER = (
    re.compile(r"[\s\ufeff\u200b]*[=+\-−@＝＋－＠﹦﹢﹣﹫]|[\t\r\n]"),
    re.compile(r"[+-]?(\d+[.,]?\d*|[.,]\d+)([eE][+-]?\d+)?"),
)


def kept_names(keep: str, header: Sequence[str], used: Sequence[str], path: AnyPath | str) -> list[str]:
    """The columns to copy, in the order of the file.

    Raises:
        UserError: naming one that the file does not have.
    """
    if keep in ("all", "none", "unused"):
        inputs = set(used)
        return [name for name in header if keep == "all" or (keep == "unused" and name not in inputs)]
    wanted = [name.strip() for name in keep.split(",")]
    for name in wanted:
        if name not in header:
            raise no_column(path, name, header, " to keep")
    return [name for name in header if name in wanted]


def unused_columns(header: Sequence[str], known: Sequence[str]) -> str:
    """A note of columns that are neither used nor copied; empty where there are none."""
    used = set(known)
    extra = [name for name in header if name not in used]
    return f"columns that the model does not use: {', '.join(extra[:8])}{' …' * (len(extra) > 8)}." if extra else ""


def with_copied(table: Table, kept: Sequence[str], predictions: dict[str, Any]) -> dict[str, Any]:
    """Columns that are copied, and predictions; a column that is copied steps aside for one of ours."""
    return {_free_name(name, predictions, kept): table.column(name) for name in kept} | predictions


def _free_name(name: str, predictions: dict[str, Any], kept: Sequence[str]) -> str:
    while name in predictions:
        name += "_input"
        if name in kept:
            name += "_"
    return name


def excel_safe(cell: Any) -> Any:
    """The cell, with an apostrophe before text that a spreadsheet would take for a formula."""
    if isinstance(cell, str) and _FORMULA.match(cell) and not _NUMBER.fullmatch(cell.strip(" ")):
        return f"'{cell}"
    return cell


class Writer:
    """Writes parts of one table to an open file, which stays open.

    Args:
        file: whose `write` takes bytes.
        suffixes: of the file's name, which say its kind.
        excel_safe: whether text cells are escaped.
    """

    def __init__(self, file: Any, suffixes: Sequence[str], excel_safe: bool = False):
        require("files", "Writing tables")
        last = suffixes[-1] if suffixes else ""
        self._is_parquet = last in (".parquet", ".pq")
        self._packed: Any = gzip.GzipFile("", "wb", fileobj=file, mtime=0) if last == ".gz" else None
        self._file = file if self._packed is None else self._packed
        self._delimiter = "\t" if ".tsv" in suffixes else ","
        self._excel_safe = excel_safe
        self._has_header = False
        self._parquet: Any = None

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *details: object) -> None:
        for open_file in (self._parquet, self._packed):
            if open_file is not None:
                open_file.close()

    def write(self, columns: dict[str, Any]) -> None:
        """Some rows, by the names of their columns: arrays of numpy or of pyarrow."""
        if self._is_parquet:
            self._write_parquet(columns)
            return
        if not self._has_header:
            self._file.write(self._rows([list(columns)]))
            self._has_header = True
        lines = None if self._excel_safe else _plain_lines(list(columns.values()), self._delimiter)
        if lines is None:
            cells = [part.to_pylist() if hasattr(part, "to_pylist") else part.tolist() for part in columns.values()]
            lines = self._rows(zip(*cells, strict=True))
        self._file.write(lines)

    def _rows(self, rows: Iterable[Sequence[Any]]) -> bytes:
        if self._excel_safe:
            rows = ([excel_safe(cell) for cell in row] for row in rows)
        text = io.StringIO(newline="")
        csv.writer(text, delimiter=self._delimiter, lineterminator="\n").writerows(rows)
        return text.getvalue().encode()

    def _write_parquet(self, columns: dict[str, Any]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        part = pa.table(columns)
        if self._parquet is None:
            self._parquet = pq.ParquetWriter(self._file, part.schema, write_page_checksum=True)
        self._parquet.write_table(part)


def _plain_lines(columns: Sequence[Any], delimiter: str) -> bytes | None:
    """Rows as text made by pyarrow, several times as fast as Python's; None where a cell needs quotation marks."""
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = []
    for column in columns:
        values = column if isinstance(column, pa.Array | pa.ChunkedArray) else pa.array(column)
        is_text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
        if is_text and pc.any(pc.match_substring_regex(values, f'["\\r\\n{delimiter}]')).as_py():
            return None
        if not (is_text or pa.types.is_float64(values.type) or pa.types.is_integer(values.type)):
            return None
        cells.append(pc.fill_null(values.cast(pa.string()), ""))
    lines = pc.binary_join_element_wise(*cells, delimiter)
    whole = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
    return pc.binary_join(whole, "\n")[0].as_buffer().to_pybytes() + b"\n"
