"""Rows of numbers alone, out of tables: what a model takes that was fitted to an array, or to a frame of plain numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from gwi._typing import Array
from gwi.exceptions import UserError
from gwi.tables.names import require_columns
from gwi.tables.parsing import numbers, texts
from gwi.tables.source import Table

TRUTH = ("false", "true")


def numbered(count: int) -> list[str]:
    """Names of the columns of an array."""
    return [f"x{i}" for i in range(count)]


def plain_rows(table: Table, names: Sequence[str], note: str = "") -> Float[Array, "N D"]:
    """The numbers of these columns as they stand there; truth values are 1 and 0.

    Args:
        table: with these columns among others.
        names: of the columns, in the order of the rows.
        note: what a reader should know whose table lacks some of them.

    Raises:
        UserError: when columns are missing or share a name, or naming the first cell that is no number.
    """
    if len(set(names)) < len(names):
        raise UserError("The model was fitted to a frame whose columns share a name, so a table cannot tell them apart.")
    require_columns(names, table.names, table.source.path, note)
    found = np.empty((len(table), len(names)))
    for place, name in enumerate(names):
        found[:, place] = _column(table, name)
    if not np.isfinite(found).all():
        raise _missing(table, names, found)
    return found


def _column(table: Table, name: str) -> Float[Array, " N"]:
    """One column, NaN where a cell is missing."""
    import pyarrow as pa

    raw = table.column(name)
    if pa.types.is_duration(raw.type):
        raise UserError(f"{table.source.path}, column {name!r} holds {raw.type}; the model was fitted to plain numbers there.")
    if pa.types.is_integer(raw.type) or pa.types.is_floating(raw.type):
        return np.asarray(raw.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)
    said = texts(table, name) if _may_be_truth(raw) else None
    if said is not None and set(said.drop_null().unique().to_pylist()) <= set(TRUTH):
        place = {None: np.nan, "false": 0.0, "true": 1.0}
        return np.array([place[cell] for cell in said.to_pylist()], dtype=np.float64)
    return numbers(table, name)


def _may_be_truth(raw: Any) -> bool:
    """Whether a column is of truth values, or of text that begins with one."""
    import pyarrow as pa

    if pa.types.is_boolean(raw.type):
        return True
    first = next((cell.as_py() for cell in raw if cell.is_valid), None)
    return isinstance(first, str) and first.strip().lower() in TRUTH


def _missing(table: Table, names: Sequence[str], found: Float[Array, "N D"]) -> UserError:
    row, place = (int(where[0]) for where in np.nonzero(~np.isfinite(found)))
    what = "is missing (NaN)" if np.isnan(found[row, place]) else "is infinite"
    return UserError(
        f"{table.place(row, names[place])}: the cell {what}; the model was fitted to numbers without missing cells, fill it in "
        "or leave the row out."
    )
