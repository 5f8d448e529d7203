"""Columns of a table as numbers, text or dates; a cell that is none of these is named by file, line and column."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from gwi._typing import Array
from gwi.exceptions import UserError
from gwi.tables.source import Table

# Text with up to so many values gets one column a value.
MOST_CATEGORIES = 20
Kind = Literal["number", "categories", "frequency", "date"]

# Cells that mean there is no value, besides empty ones.
MISSING = ("NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NAN", "NULL", "null", "None", "?")
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
MARKED_NUMBER = r"^[+-]?[$€£¥]? ?[+-]?\d{1,3}(([.,' ]\d{3})+|\d*)([.,]\d+)? ?[%$€£¥]?$"
ISO_MONTH = r"^\d{4}-(0[1-9]|1[0-2])$"
ISO_DATE = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(Z|[+-]\d{2}:?\d{2})?)?$"
OTHER_DATE = r"^(\d{1,2}[./-]\d{1,2}[./-]\d{2,4}|\d{4}[./]\d{1,2}[./]\d{1,2})( .*)?$"


def matches(raw: Any, pattern: str) -> NDArray[np.bool_]:
    """Which entries of a text column match; missing ones do not."""
    import pyarrow.compute as pc

    return np.asarray(pc.match_substring_regex(raw, pattern).fill_null(False))


def checked(table: Table, name: str) -> Any:
    """A column as float64, timestamps or trimmed text, where missing is null.

    Raises:
        UserError: when it is none of these.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    raw = table.column(name)
    kind = raw.type
    if pa.types.is_dictionary(kind):
        raw = raw.dictionary_decode()
        kind = raw.type
    if pa.types.is_null(kind):
        return raw.cast(pa.float64())
    if pa.types.is_boolean(kind):
        return raw.cast(pa.string())
    if pa.types.is_duration(kind):
        seconds = pc.divide(raw.cast(pa.duration("us"), safe=False).cast(pa.int64()).cast(pa.float64()), 1e6)
        return pc.if_else(raw.is_valid(), seconds, pa.scalar(None, pa.float64()))
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return raw.cast(pa.timestamp("us", tz=getattr(kind, "tz", None)), safe=False)
    if pa.types.is_decimal(kind):
        # Through text: the direct way is off by a unit in the last place.
        return raw.cast(pa.string()).cast(pa.float64())
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        numbers = raw.cast(pa.float64(), safe=False)
        return pc.if_else(pc.is_nan(numbers), pa.scalar(None, pa.float64()), numbers)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        text = pc.utf8_trim_whitespace(raw.cast(pa.string()))
        # As truth values are written by pandas and by R; Arrow and polars write them small.
        text = pc.if_else(pc.is_in(text, value_set=pa.array(["True", "TRUE", "False", "FALSE"])), pc.utf8_lower(text), text)
        empty = pc.is_in(text, value_set=pa.array(["", *MISSING]))
        return pc.if_else(empty, pa.scalar(None, pa.string()), text)
    raise UserError(f"{table.source.path}, column {name!r} holds {kind}; numbers, text, dates and booleans can be used.")


def number_pattern(table: Table) -> str:
    """Of numbers as this file writes them."""
    return NUMBER.replace(r"\.", ",") if table.source.decimal == "," else NUMBER


def cast_numbers(table: Table, text: Any) -> Any:
    """Text as numbers, None when some of it is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if table.source.decimal == ",":
        text = pc.replace_substring(text, ",", ".")
    try:
        return text.cast(pa.float64())
    except pa.ArrowInvalid:
        return None


def numbers(table: Table, name: str) -> Float[Array, " N"]:
    """A column of numbers; missing ones are NaN.

    Raises:
        UserError: naming the first cell that is no number, or one too large.
    """
    import pyarrow as pa

    # Most columns of text are numbers and nothing else. Where a cell is missing, has blanks or is none we look closer.
    if (plain := _plain_numbers(table.column(name))) is not None:
        return plain
    raw = checked(table, name)
    if pa.types.is_timestamp(raw.type):
        raise UserError(f"{table.source.path}, column {name!r} holds dates where numbers are expected.")
    cast = raw if pa.types.is_floating(raw.type) else cast_numbers(table, raw)
    if cast is None:
        bad = np.asarray(raw.is_valid()) & ~matches(raw, number_pattern(table))
        row = int(np.argmax(bad))
        raise UserError(f"{table.place(row, name)}: {raw[row].as_py()[:40]!r} is not a number.")
    values = np.asarray(cast.fill_null(math.nan), dtype=np.float64)
    # NaN where text said so in letters of another case is refused with infinities.
    strange = ~np.isfinite(values) & np.asarray(cast.is_valid())
    if strange.any():
        row = int(np.argmax(strange))
        raise UserError(f"{table.place(row, name)}: {raw[row].as_py()!r} is infinite, or too large for a number.")
    return values


def _plain_numbers(column: Any) -> Float[Array, " N"] | None:
    """A column of text whose every cell is a finite number as it stands; None of others."""
    import pyarrow as pa

    if not pa.types.is_string(column.type) or column.null_count:
        return None
    try:
        values = np.asarray(column.cast(pa.float64()), dtype=np.float64)
    except pa.ArrowInvalid:
        return None
    return values if np.isfinite(values).all() else None


def texts(table: Table, name: str) -> Any:
    """A column as trimmed text, a pyarrow array; whole numbers without decimals, missing cells null."""
    import pyarrow as pa

    column = table.column(name)
    column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    # Long whole numbers would lose their last digits as float64.
    raw = column if pa.types.is_integer(column.type) else checked(table, name)
    if pa.types.is_floating(raw.type):
        return pa.array([None if value is None else written(value) for value in raw.to_pylist()], pa.string())
    return raw.cast(pa.string())


def written(value: float) -> str:
    """A number as text; a whole one without decimals."""
    return str(int(value)) if value.is_integer() else repr(value)


def date_parts(table: Table, name: str) -> Float[Array, "N 6"]:
    """Year, month, day, weekday, hour and seconds since 1970, in universal time where zones are given; NaN where missing.

    Raises:
        UserError: naming the first cell that is no date.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    raw = checked(table, name)
    if pa.types.is_string(raw.type):
        # A month is its first day.
        raw = pc.replace_substring_regex(raw, r"^(\d{4}-\d{2})$", r"\1-01")
        first = next((value.as_py() for value in raw if value.is_valid), "")
        zone = "UTC" if re.search(r":.*(Z|[+-]\d{2}:?\d{2})$", first) else None
        try:
            moments = raw.cast(pa.timestamp("us", tz=zone))
        except pa.ArrowInvalid:
            row = _first_that_fails(raw, pa.timestamp("us", tz=zone))
            form = "2024-12-31 23:59:59Z" if zone else "2024-12-31"
            raise UserError(f"{table.place(row, name)}: {raw[row].as_py()[:40]!r} is not a date like {form}.") from None
    elif pa.types.is_timestamp(raw.type):
        moments = raw
    elif raw.null_count == len(raw):
        moments = pa.nulls(len(raw), pa.timestamp("us"))
    else:
        raise UserError(f"{table.source.path}, column {name!r} holds numbers; the model was fitted to dates there.")
    plain = moments.cast(pa.timestamp("us"))
    seconds = np.asarray(plain.cast(pa.int64()).fill_null(0), dtype=np.float64) / 1e6
    parts = [
        np.asarray(part(plain).fill_null(0), dtype=np.float64) for part in (pc.year, pc.month, pc.day, pc.day_of_week, pc.hour)
    ]
    return np.where(np.asarray(plain.is_valid())[:, None], np.column_stack([*parts, seconds]), math.nan)


def _first_that_fails(raw: Any, kind: Any) -> int:
    """The first entry that cannot be cast, by halving."""

    def fails(row: int) -> bool:
        try:
            raw[: row + 1].cast(kind)
        except ValueError:  # As pyarrow's is.
            return True
        return False

    return bisect_left(range(len(raw)), True, key=fails)


def kind_of(table: Table, name: str) -> tuple[Kind, tuple[str, ...], tuple[float, ...]] | str:
    """What a column holds, the values of text, and their shares where they are many; or why it is of no use.

    Raises:
        UserError: naming a cell that is neither number, text nor date, as others in the column are.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    # What its owner calls categories is none of numbers or dates, however it is written.
    are_categories = pa.types.is_dictionary(table.column(name).type)
    raw = texts(table, name) if are_categories else checked(table, name)
    present = raw.drop_null()
    if not len(present):
        return "has no values"
    if are_categories:
        return _text_kind(present, len(raw))
    if pa.types.is_floating(raw.type) or (pa.types.is_string(raw.type) and cast_numbers(table, present) is not None):
        return "number", (), ()
    if pa.types.is_timestamp(raw.type) or any(matches(present, pattern).all() for pattern in (ISO_DATE, ISO_MONTH)):
        return "date", (), ()
    num_values = pc.count_distinct(present).as_py()
    if num_values > MOST_CATEGORIES or 3 * num_values > len(present):
        for pattern, usual in ((number_pattern(table), "number"), (ISO_DATE, "date like 2024-12-31")):
            others = np.asarray(raw.is_valid()) & ~matches(raw, pattern)
            if 0 < others.sum() <= len(present) / 2:
                row = int(np.argmax(others))
                raise UserError(
                    f"{table.place(row, name)}: {raw[row].as_py()[:40]!r} is not a {usual} like most others in the column; "
                    f"correct it, or {table.source.leave_out}."
                )
    for pattern, remedy in (
        (OTHER_DATE, "is a date whose order of day and month is not clear; write it as 2024-12-31"),
        (MARKED_NUMBER, "is a number with a unit or with marks between its digits; write it plainly, as 1234.5"),
    ):
        strange = matches(raw, pattern)
        if strange.sum() >= len(present) / 2:
            row = int(np.argmax(strange))
            raise UserError(f"{table.place(row, name)}: {raw[row].as_py()!r} {remedy}, or {table.source.leave_out}.")
    return _text_kind(present, len(raw))


def _text_kind(present: Any, num_rows: int) -> tuple[Kind, tuple[str, ...], tuple[float, ...]] | str:
    """What text is, by how many values it has."""
    import pyarrow.compute as pc

    counted = pc.value_counts(present)
    order = sorted(zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True))
    if len(order) > len(present) / 2 and len(order) > 2:
        return "is text that differs in most rows, like a name or a number plate"
    values = tuple(value for value, _ in order)
    if len(order) <= MOST_CATEGORIES:
        return "categories", values, ()
    return "frequency", values, tuple(count / num_rows for _, count in order)
