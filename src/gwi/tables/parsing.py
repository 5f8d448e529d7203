"""Columns of a table as numbers, text or dates; a cell that is none of these is named by file, line and column."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from gwi._typing import Array
from gwi.exceptions import UserError
from gwi.tables.source import Table

# Cells that mean there is no value, besides empty ones.
MISSING = ("NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NAN", "NULL", "null", "None", "?")
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
MARKED_NUMBER = r"^[+-]?[$€£¥]? ?[+-]?\d{1,3}(([.,' ]\d{3})+|\d*)([.,]\d+)? ?[%$€£¥]?$"
ISO_DATE = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(Z|[+-]\d{2}:?\d{2})?)?$"
OTHER_DATE = r"^(\d{1,2}[./-]\d{1,2}[./-]\d{2,4}|\d{4}[./]\d{1,2}[./]\d{1,2})( .*)?$"


def matches(raw: Any, pattern: str) -> NDArray[np.bool_]:
    """Which entries of a text column match; missing ones do not."""
    import pyarrow.compute as pc

    return np.asarray(pc.match_substring_regex(raw, pattern).fill_null(False))


def share_of(present: Any, pattern: str) -> float:
    """The share of the entries that match."""
    return float(matches(present, pattern).mean())


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
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return raw.cast(pa.timestamp("us", tz=getattr(kind, "tz", None)), safe=False)
    if pa.types.is_decimal(kind):
        # Through text: the direct way is off by a unit in the last place.
        return raw.cast(pa.string()).cast(pa.float64())
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        numbers = raw.cast(pa.float64(), safe=False)
        return pc.if_else(pc.is_nan(numbers), pa.scalar(None, pa.float64()), numbers)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        text = pc.utf8_trim_whitespace(raw.cast(pa.string()))
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

    raw = checked(table, name)
    if pa.types.is_timestamp(raw.type):
        raise UserError(f"{table.source.path}, column {name!r} holds dates where numbers are wanted.")
    cast = raw if pa.types.is_floating(raw.type) else cast_numbers(table, raw)
    if cast is None:
        bad = np.asarray(raw.is_valid()) & ~matches(raw, number_pattern(table))
        row = int(np.argmax(bad))
        raise UserError(f"{table.place(row, name)}: {raw[row].as_py()[:40]!r} is no number.")
    values = np.asarray(cast.fill_null(math.nan), dtype=np.float64)
    # NaN where text said so in letters of another case is refused with infinities.
    strange = ~np.isfinite(values) & np.asarray(cast.is_valid())
    if strange.any():
        row = int(np.argmax(strange))
        raise UserError(f"{table.place(row, name)}: {raw[row].as_py()!r} is infinite, or too large for a number.")
    return values


def texts(table: Table, name: str) -> Any:
    """A column as trimmed text, a pyarrow array; whole numbers without decimals, missing cells null."""
    import pyarrow as pa

    raw = checked(table, name)
    if pa.types.is_floating(raw.type):
        written = (None if v is None else str(int(v)) if v.is_integer() else repr(v) for v in raw.to_pylist())
        return pa.array(written, pa.string())
    return raw.cast(pa.string())


def date_parts(table: Table, name: str) -> Float[Array, "N 6"]:
    """Year, month, day, weekday, hour and seconds since 1970, in universal time where zones are given; NaN where missing.

    Raises:
        UserError: naming the first cell that is no date.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    raw = checked(table, name)
    if pa.types.is_string(raw.type):
        first = next((value.as_py() for value in raw if value.is_valid), "")
        zone = "UTC" if re.search(r":.*(Z|[+-]\d{2}:?\d{2})$", first) else None
        try:
            moments = raw.cast(pa.timestamp("us", tz=zone))
        except pa.ArrowInvalid:
            row = _first_that_fails(raw, pa.timestamp("us", tz=zone))
            form = "2024-12-31 23:59:59Z" if zone else "2024-12-31"
            raise UserError(f"{table.place(row, name)}: {raw[row].as_py()[:40]!r} is no date like {form}.") from None
    elif pa.types.is_timestamp(raw.type):
        moments = raw
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
    low, high = 0, len(raw)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            raw[low:middle].cast(kind)
            low = middle
        except ValueError:  # As pyarrow's is.
            high = middle
    return low
