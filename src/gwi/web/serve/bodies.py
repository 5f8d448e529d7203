"""Rows of a request as a table: JSON, CSV or Arrow, from anybody."""

from __future__ import annotations

import codecs
import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from gwi.exceptions import UserError
from gwi.storage.header import once
from gwi.tables.frames import columns_table, frame_table
from gwi.tables.names import require_columns
from gwi.tables.source import Table, open_text, read_parts
from gwi.tables.writer import kept_names, unused_columns
from gwi.web.guard import RefusedError

Form = Literal["row", "rows", "columns"]
# What sentences call the rows of a request.
BODY = "The body"
# Characters of a cell, as many as Python's reader of CSV allows, and of all cells of a column.
LONGEST_CELL, LONGEST_COLUMN = 1 << 17, 1 << 28
# Lists and objects of JSON beside one for each row: text in cells may hold such brackets too.
MORE_BRACKETS = 100_000
KINDS = {"json": "application/json", "csv": "text/csv", "arrow": "application/vnd.apache.arrow.stream"}
_PLAIN = {int, float, str, bool}


@dataclass(frozen=True)
class Rows:
    """Rows of a request.

    Attributes:
        table: columns of the model, and those to copy.
        form: of the answer in JSON.
        kept: columns to copy.
        note: of columns that are of no use; may be empty.
    """

    table: Table
    form: Form
    kept: tuple[str, ...]
    note: str


def rows_of(body: bytes, kind: str, wanted: Sequence[str], keep: str, most: int) -> Rows:
    """The rows in the body of a request.

    Args:
        body: as it came.
        kind: a name in `KINDS`.
        wanted: columns that the model uses.
        keep: of columns to copy, as in `gwi predict`.
        most: rows.

    Raises:
        RefusedError: when the body is none of this kind (400), or has too many rows (413).
        UserError: when columns are missing, or a cell is none.
    """
    read: dict[str, Callable[..., tuple[Table, Form]]] = {"json": _from_json, "csv": _from_csv, "arrow": _from_arrow}
    kept: list[str] = []

    def used(header: Sequence[str]) -> list[str]:
        require_columns(wanted, header, BODY)
        kept.extend(kept_names(keep, header, wanted, BODY))
        note.append(unused_columns(header, [*kept, *wanted]))
        return list(dict.fromkeys([*wanted, *kept]))

    note: list[str] = []
    table, form = read[kind](body, used, most)
    if not len(table):
        raise UserError(f"{BODY} has no rows.")
    return Rows(_checked(table), form, tuple(kept), note[0])


def refuse_many(count: int, most: int) -> None:
    """Refuse more rows than one request may have."""
    if count > most:
        raise RefusedError(413, f"One request may have up to {most:,} rows; send fewer at a time.")


def _from_csv(body: bytes, used: Callable[[Sequence[str]], list[str]], most: int) -> tuple[Table, Form]:
    source = open_text(body, BODY)
    names = used(source.header)
    table, _ = next(read_parts(source, most + 1))
    refuse_many(len(table), most)
    return Table(source, table.data.select(names), table.number), "rows"


def _from_json(body: bytes, used: Callable[[Sequence[str]], list[str]], most: int) -> tuple[Table, Form]:
    content = _json(body, most)
    if isinstance(content, list):
        if not content:
            raise UserError(f"{BODY} has no rows.")
        refuse_many(len(content), most)
        strange = next((i for i, row in enumerate(content) if type(row) is not dict), None)
        if strange is not None:
            raise UserError(f"{BODY}, row {strange}: each row is an object with the names of the columns.")
        rows: list[dict[str, Any]] = content
        form: Form = "rows"
    elif type(content) is dict and content and all(type(values) is list for values in content.values()):
        lengths = {name: len(values) for name, values in content.items()}
        names = used(list(content))
        if len(set(lengths.values())) > 1:
            raise UserError(f"{BODY} has columns of different lengths, from {min(lengths.values())} to {max(lengths.values())}.")
        num_rows = next(iter(lengths.values()))
        refuse_many(num_rows, most)
        return _of_columns({name: content[name] for name in names}, num_rows), "columns"
    elif type(content) is dict:
        rows, form = [content], "row"
    else:
        raise UserError(f"{BODY} is an object, which is one row, or a list of such, or an object of lists, which are columns.")
    names = used(list(rows[0]))
    try:
        columns = {name: [row[name] for row in rows] for name in names}
    except KeyError:
        i, row = next((i, row) for i, row in enumerate(rows) if not row.keys() >= set(names))
        require_columns(names, list(row), f"{BODY}, row {i}")
        raise
    return _of_columns(columns, len(rows)), form


def _json(body: bytes, most: int) -> Any:
    """Strict JSON: each key once, and no NaN."""
    if body.count(b"{") + body.count(b"[") > 2 * most + MORE_BRACKETS:
        raise RefusedError(413, f"{BODY} has more lists and objects than rows that one request may have, {most:,}.")
    try:
        content = orjson.loads(body.removeprefix(codecs.BOM_UTF8))
        if not _has_each_key_once(body, content):
            # Some milliseconds, where colons stand in text or apart from their keys.
            json.loads(body.decode("utf-8-sig"), object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise RefusedError(400, f"{BODY} is not JSON: {error.msg}, line {error.lineno}, column {error.colno}.") from None
    except RecursionError:
        raise RefusedError(400, f"{BODY} is nested too deeply.") from None
    except ValueError as error:
        reason = "a number has thousands of digits" if "digits" in str(error) else str(error)
        raise RefusedError(400, f"{BODY} is JSON that cannot be used: {reason}.") from None
    return content


def _has_each_key_once(body: bytes, content: Any) -> bool:
    """Whether that can be told by counting: each colon follows a key, and there are as many keys as colons."""
    rows = content if isinstance(content, list) else [content]
    num_keys = sum(len(row) for row in rows if type(row) is dict)
    return body.count(b":") == body.count(b'":') == num_keys


def _of_columns(columns: dict[str, list[Any]], num_rows: int) -> Table:
    for name, values in columns.items():
        kinds = set(map(type, values)) - {type(None)}
        if not kinds <= _PLAIN:
            raise UserError(f"{BODY}, column {name!r}: a cell must be a number, text, true, false or null, not a list or object.")
        if bool in kinds and len(kinds) > 1:
            raise UserError(f"{BODY}, column {name!r} holds booleans and other values; make all of them one kind.")
        if max((len(value) for value in values if type(value) is str), default=0) > LONGEST_CELL:
            raise _long_cell(name)
    return columns_table(columns, num_rows, BODY)


def _from_arrow(body: bytes, used: Callable[[Sequence[str]], list[str]], most: int) -> tuple[Table, Form]:
    import pyarrow as pa

    num_rows, batches = 0, []
    try:
        for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(body)):
            # A few bytes of packed zeros are gigabytes.
            if is_packed(message.metadata.to_pybytes()):
                raise RefusedError(415, f"{BODY} has compressed buffers; write the Arrow stream without compression.")
        with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
            schema = reader.schema
            for batch in reader:
                num_rows += batch.num_rows
                refuse_many(num_rows, most)
                # What is in the buffers is anybody's: offsets and places may point anywhere.
                batch.validate(full=True)
                batches.append(batch)
        data = pa.Table.from_batches(batches, schema)
    except (pa.ArrowException, OSError, EOFError, ValueError, struct.error) as error:
        if isinstance(error, UserError):
            raise
        reason = str(error).partition("\n")[0][:200] or type(error).__name__
        raise RefusedError(400, f"{BODY} is not a complete Arrow stream: {reason.rstrip('.')}.") from None
    header = frame_table(data, BODY).names
    names = used(header)
    columns = {}
    for name in names:
        column = data.column(name).combine_chunks()
        column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        columns[name] = column.cast(pa.string()) if pa.types.is_null(column.type) else column
    return frame_table(pa.table(columns) if columns else data, BODY), "rows"


def is_packed(metadata: bytes) -> bool:
    """Whether the message of an Arrow stream says that its buffers are compressed, by its flatbuffer; struct.error for others.

    A message has the fields version, kind of header, header; of a batch of rows (3) the header's field 3 is the compression, of a
    dictionary (2) its field 1 is such a batch.
    """

    def field(table: int, number: int) -> int:
        vtable = table - struct.unpack_from("<i", metadata, table)[0]
        size = struct.unpack_from("<H", metadata, vtable)[0]
        offset = struct.unpack_from("<H", metadata, vtable + 4 + 2 * number)[0] if 4 + 2 * number < size else 0
        return table + offset if offset else 0

    def reference(place: int) -> int:
        return place + int(struct.unpack_from("<I", metadata, place)[0])

    message = reference(0)
    kind_at, header_at = field(message, 1), field(message, 2)
    kind = metadata[kind_at] if kind_at else 0
    if kind not in (2, 3) or not header_at:
        return False
    batch = reference(header_at)
    if kind == 2:
        inner = field(batch, 1)
        if not inner:
            return False
        batch = reference(inner)
    return field(batch, 3) != 0


def _checked(table: Table) -> Table:
    """The table, once its columns are of kinds that a cell may have, and no text is too long when it is written out."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name in table.names:
        column = table.column(name)
        is_coded = pa.types.is_dictionary(column.type)
        values = column.dictionary if is_coded else column
        kind = values.type
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
        is_plain = pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)
        if not (is_text or is_plain):
            raise UserError(f"{BODY}, column {name!r} holds {str(kind)[:60]}; numbers, text, dates and booleans can be used.")
        if not is_text:
            continue
        lengths = pc.binary_length(values)
        if (pc.max(lengths).as_py() or 0) > LONGEST_CELL:
            raise _long_cell(name)
        # A dictionary, or a view, names one long text again and again, which would be written out for each row.
        every = pc.take(lengths, column.indices) if is_coded else lengths
        if (pc.sum(pc.cast(every, pa.int64())).as_py() or 0) > LONGEST_COLUMN:
            raise RefusedError(413, f"{BODY}, column {name!r} holds more than {LONGEST_COLUMN:,} characters; send fewer rows.")
    return table


def _long_cell(name: str) -> RefusedError:
    return RefusedError(413, f"{BODY}, column {name!r}: a cell has more than {LONGEST_CELL:,} characters; shorten it.")
