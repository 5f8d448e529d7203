"""What rows of a table have in common: the group or the time they were measured at, and columns that look like it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gwi.exceptions import UserError
from gwi.tables.names import no_column
from gwi.tables.parsing import date_parts, kind_of, numbers, texts
from gwi.tables.source import Table

# Names of columns that say on whom or on what a row was measured.
ID_NAME = re.compile(
    r"(^|[^a-z])(id|subject|patient|person|user|customer|animal|machine|device|station|site|school|name)s?$", re.I
)
TIME_NAME = re.compile(r"(^|[^a-z])(date|time|timestamp|day|week|month|year)s?$", re.I)
# A column is taken for an id when it has at least so many values, each in so many rows on average.
FEWEST_GROUPS, FEWEST_REPEATS = 5, 2


def groups_of(table: Table, name: str) -> NDArray[Any]:
    """The group of each row, as text.

    Raises:
        UserError: when there is no such column, a cell is empty, or all rows have one value.
    """
    if name not in table.names:
        raise no_column(table.source.path, name, table.names, ", the groups")
    column = texts(table, name)
    if column.null_count:
        row = int(np.argmin(np.asarray(column.is_valid())))
        raise UserError(f"{table.place(row, name)}: the row has no group; fill it in, or leave the row out.")
    found = np.array(column.to_pylist(), dtype=np.str_)
    if len(np.unique(found)) < 2:
        raise UserError(f"{table.source.path}, column {name!r}: all rows are of one group; leave --groups out.")
    return found


def in_time(table: Table, name: str) -> Table:
    """The rows in the order of a column of dates or numbers.

    Raises:
        UserError: when there is no such column, or a cell is neither date nor number, or empty.
    """
    if name not in table.names:
        raise no_column(table.source.path, name, table.names, ", the time")
    moments = _moments(table, name)
    if np.isnan(moments).any():
        row = int(np.argmax(np.isnan(moments)))
        raise UserError(f"{table.place(row, name)}: the row has no time; fill it in, or leave the row out.")
    return table[np.argsort(moments, kind="stable")]


def _moments(table: Table, name: str) -> NDArray[np.float64]:
    """A column of dates or numbers as numbers."""
    return date_parts(table, name)[:, -1] if kind_of(table, name)[0] == "date" else numbers(table, name)


def noticed(table: Table, target: str, known: tuple[str, ...] = ()) -> list[str]:
    """What to say of columns that look like dates in order, or like the id of repeated measurements."""
    said = []
    for name in table.names:
        if name == target or name in known or isinstance(kind := kind_of(table, name), str):
            continue
        if kind[0] == "date" or (kind[0] == "number" and TIME_NAME.search(name)):
            steps = np.diff(_moments(table, name))
            if len(steps) > 1 and ((steps >= 0).all() or (steps <= 0).all()) and (steps != 0).any():
                said.append(
                    f"column {name!r} looks like the time of the rows, in order: the errors of rows near in time are "
                    f"alike, and intervals for later rows may be too narrow. Pass --time {name!r} to hold out the latest rows."
                )
        elif _is_id(table, name, kind[0]):
            said.append(
                f"column {name!r} looks like the id of repeated measurements: the errors of rows with the same id are "
                f"alike, and intervals for new ids may be too narrow. Pass --groups {name!r} if new rows will have other ids."
            )
    return said


def _is_id(table: Table, name: str, kind: str) -> bool:
    """Whether values come again and again, and are called an id or stand in runs as no chance would have them."""
    values = np.array([value or "" for value in texts(table, name).to_pylist()], dtype=np.str_)
    num_values = len(np.unique(values))
    if not FEWEST_GROUPS <= num_values <= len(values) / FEWEST_REPEATS:
        return False
    if ID_NAME.search(name):
        return True
    # Numbers in runs may be any sorted table.
    return kind != "number" and 1 + int((values[1:] != values[:-1]).sum()) == num_values
