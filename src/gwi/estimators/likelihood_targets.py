"""Columns to predict that are more than a number: times with whether the event came, and levels in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gwi.estimators.columns import encoder_of
from gwi.estimators.table_targets import TARGETS, TargetColumn, TaskName
from gwi.exceptions import UserError
from gwi.parts.likelihoods import LIKELIHOODS
from gwi.tables.encoder import Encoder
from gwi.tables.names import no_column
from gwi.tables.parsing import numbers, texts
from gwi.tables.source import Table

YES, NO = ("1", "1.0", "true", "yes"), ("0", "0.0", "false", "no")
EVENT_AND_TIME = np.dtype([("event", np.bool_), ("time", np.float64)])
# What is named at most in a sentence.
MOST_NAMED = 20


class EventColumn(TargetColumn):
    """A time, and in another column whether the event came then, or the row was left without it.

    Args:
        event: the name of that column.
    """

    def __init__(self, event: str):
        self.event = event

    def read(self, table: Table, target: str, number_labels: bool | None) -> tuple[Table, NDArray[Any]]:
        """The rows that have both, and a structured array of them."""
        if self.event not in table.names:
            raise no_column(table.source.path, self.event, table.names, ", the event")
        time, event = numbers(table, target), self._events(table)
        known = ~np.isnan(time) & (event >= 0)
        if (strange := known & (time < 0)).any():
            row = int(np.argmax(strange))
            raise UserError(f"{table.place(row, target)}: a time to an event cannot be negative; got {time[row]:g}.")
        found = np.empty(int(known.sum()), dtype=EVENT_AND_TIME)
        found["event"], found["time"] = event[known] == 1, time[known]
        return table[known], found

    def _events(self, table: Table) -> NDArray[np.int64]:
        """1 for an event, 0 for none so far, −1 where the cell is empty."""
        cells = texts(table, self.event).to_pylist()
        found = np.full(len(cells), -1, dtype=np.int64)
        for row, cell in enumerate(cells):
            if cell is None:
                continue
            said = cell.strip().lower()
            if said not in (*YES, *NO):
                raise UserError(
                    f"{table.place(row, self.event)}: {cell[:40]!r} does not say whether the event happened; write 1 or "
                    "0, true or false, or yes or no."
                )
            found[row] = int(said in YES)
        return found

    def check(self, y: NDArray[Any], place: str) -> None:
        """Refuse times of which no event is known."""
        if not y["event"].any():
            raise UserError(f"{place}: no row has an event ({self.event!r} says no in every row); there is nothing to learn.")

    def strata(self, y: NDArray[Any]) -> NDArray[Any]:
        """Whether the event came."""
        return y["event"].astype(np.int64)


class LevelColumn(TargetColumn):
    """Levels in order, by their names.

    Args:
        levels: the lowest first.
    """

    unlike_rows = "their probabilities are less certain"

    def __init__(self, levels: Sequence[str]):
        self.levels = tuple(levels)

    def read(self, table: Table, target: str, number_labels: bool | None) -> tuple[Table, NDArray[Any]]:
        """The rows that have a level, and its place."""
        cells, place = texts(table, target).to_pylist(), {level: i for i, level in enumerate(self.levels)}
        for row, cell in enumerate(cells):
            if cell is not None and cell not in place:
                raise UserError(f"{table.place(row, target)}: {cell[:40]!r} is not one of the levels {', '.join(self.levels)}.")
        known = np.array([cell is not None for cell in cells])
        return table[known], np.array([place[cell] for cell in cells if cell is not None], dtype=np.float64)

    def check(self, y: NDArray[Any], place: str) -> None:
        """Refuse levels that no row has."""
        unused = [level for i, level in enumerate(self.levels) if not (y == i).any()]
        if unused:
            raise UserError(f"{place}: no row has the level {' or '.join(unused)}; leave it out of --levels.")

    def strata(self, y: NDArray[Any]) -> NDArray[Any]:
        """The levels."""
        return y

    def finish(self, estimator: Any) -> None:
        """Name the levels of a fitted estimator."""
        estimator._targets.levels = np.array(self.levels)


def column_of(task: TaskName, event: str | None = None, levels: Sequence[str] | None = None) -> TargetColumn:
    """How the column that is predicted is read.

    Args:
        task: what is predicted.
        event: the column that says whether the event came, of times.
        levels: the names of levels in order.
    """
    if event is not None:
        return EventColumn(event)
    return TARGETS[task] if levels is None else LevelColumn(levels)


def column_of_estimator(estimator: Any, encoder: Encoder | None = None) -> TargetColumn:
    """The same of a fitted model.

    Args:
        estimator: fitted.
        encoder: of its columns, with the names of the target and the event.
    """
    encoder = encoder_of(estimator) if encoder is None else encoder
    levels = getattr(estimator._targets, "levels", None)
    names = None if levels is None else [str(name) for name in levels]
    column = column_of(estimator.task, encoder.event, names)
    return column.of_fit(estimator) if encoder.number_labels is None else column


def checked_likelihood(
    likelihood: str, event: str | None, levels: Sequence[str], table: Table, target: str
) -> tuple[str, tuple[str, ...] | None]:
    """The likelihood that these options of the command ask for, and the names of levels in order, if it has such.

    Raises:
        UserError: when they do not fit each other, or the column.
    """
    if likelihood not in ("auto", *LIKELIHOODS):
        raise UserError(f"--likelihood is auto, {', '.join(LIKELIHOODS)}; got {likelihood!r}.")
    if event is not None:
        if likelihood not in ("auto", "censored") or levels:
            raise UserError("--event is for times to an event: leave --levels out, and --likelihood, which is then censored.")
        if event == target:
            raise UserError("--target is the time, and --event another column, which says whether the event happened.")
        if event not in table.names:
            raise no_column(table.source.path, event, table.names, ", the event")
        return "censored", None
    if likelihood == "censored":
        raise UserError("--likelihood censored needs --event, the column that says whether the event happened: 0 or 1.")
    if target not in table.names:
        raise no_column(table.source.path, target, table.names, ", the target")
    if levels:
        if likelihood not in ("auto", "ordinal"):
            raise UserError(f"--levels goes with --likelihood ordinal only; got {likelihood}.")
        if len(set(levels)) < len(levels) or len(levels) < 2:
            raise UserError(f"--levels must be at least two different names, lowest first; got {', '.join(levels)}.")
        return "ordinal", tuple(levels)
    return likelihood, _order_of(table, target) if likelihood == "ordinal" else None


def _order_of(table: Table, target: str) -> tuple[str, ...] | None:
    """Levels of a column that knows their order; None of numbers.

    Raises:
        UserError: for text, whose order nobody has said.
    """
    import pyarrow as pa

    column = table.column(target)
    if pa.types.is_dictionary(column.type) and column.type.ordered:
        used = set(texts(table, target).drop_null().to_pylist())
        return tuple(level for level in column.dictionary.cast(pa.string()).to_pylist() if level in used)
    try:
        numbers(table, target)
    except UserError:
        found = sorted(set(texts(table, target).drop_null().to_pylist()))
        shown = ",".join(found[:MOST_NAMED]) + " …" * (len(found) > MOST_NAMED)
        raise UserError(
            f"{table.source.path}, column {target!r} holds text; give the order of its levels, the lowest first: --levels {shown}"
        ) from None
    return None
