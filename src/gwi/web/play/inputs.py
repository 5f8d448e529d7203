"""What a table's columns may be set to, one row made of such values, and the training rows that are nearest to it."""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gwi._progress import printable
from gwi.core.measures import kernel_matrix
from gwi.estimators.columns import encoder_of
from gwi.estimators.tables import Estimator, predict_table
from gwi.exceptions import UserError
from gwi.report.examination import heard_columns
from gwi.tables.encoder import Column
from gwi.tables.parsing import ISO_DATE, NUMBER, date_parts, numbers, texts
from gwi.tables.source import Source, Table
from gwi.tables.unlike import Unlike
from gwi.web.play.words import shown

# Characters of a value that the page may send.
LONGEST_VALUE = 400
MOST_VALUES, NUM_NEAREST, MOST_SHOWN_COLUMNS = 60, 5, 8
# Columns that are given as reasons, the least ones together.
MOST_REASONS = 8
# Of nearest rows no more are searched.
MOST_SEARCHED = 20_000
# What values of a kind look like, and how that is said.
_FORMS = {"number": (NUMBER, "a number"), "date": (ISO_DATE, "a date like 2024-12-31")}


class Inputs:
    """The columns that are used, those that the kernel listens to most first, and what each may be set to.

    Args:
        estimator: fitted to a table.
        table: rows with a target that it was fitted to.
    """

    def __init__(self, estimator: Estimator, table: Table):
        self._estimator, self._table = estimator, table
        columns = {column.name: column for column in encoder_of(estimator).columns}
        heard = [found.name for found in heard_columns(estimator, encoder_of(estimator))]
        self.columns: list[Column] = [columns[name] for name in (*heard, *(name for name in columns if name not in heard))]
        # Of text, the most frequent first. The page sends the place of a value: what it shows may be shortened.
        self._values = {
            column.name: _frequent(table, column.name) for column in self.columns if column.kind in ("categories", "frequency")
        }
        some = np.sort(np.random.default_rng(0).permutation(len(table))[:MOST_SEARCHED])
        self._known = table[some]
        self._rows = self._embedded(self._known)

    def controls(self) -> list[dict[str, Any]]:
        """Of each column name, kind, what may be chosen, and the value to begin with: the middle one, or the most frequent."""
        return [{"name": shown(column.name), "kind": column.kind, **self._control(column)} for column in self.columns]

    def _control(self, column: Column) -> dict[str, Any]:
        if column.kind == "number":
            values = numbers(self._table, column.name)
            values = values[~np.isnan(values)]
            whole = bool((values == np.round(values)).all())
            low, high, middle = (float(np.quantile(values, share, method="nearest")) for share in (0, 1, 0.5))
            return {"low": low, "high": high, "whole": whole, "value": middle}
        if column.kind == "date":
            seconds = date_parts(self._table, column.name)[:, -1]
            seconds = seconds[~np.isnan(seconds)]
            first, last, day = (_day(float(np.quantile(seconds, share, method="nearest"))) for share in (0, 1, 0.5))
            return {"low": first, "high": last, "value": day}
        choices = [shown(value) for value in self._values[column.name]]
        return {"values": choices, "value": 0 if column.kind == "categories" else choices[0]}

    def row(self, given: Mapping[str, Any]) -> Table:
        """One row: of each column, by its place, what the page sent; nothing where it sent nothing.

        Raises:
            UserError: when a value is no text or number.
        """
        import pyarrow as pa

        cells: dict[str, Any] = {}
        for place, column in enumerate(self.columns):
            value = given.get(str(place))
            if value is not None and (isinstance(value, bool) or not isinstance(value, str | int | float)):
                raise UserError("A value must be a number or text.")
            if value is not None and len(str(value)) > LONGEST_VALUE:
                raise UserError(f"A value may have up to {LONGEST_VALUE} characters.")
            if column.kind == "categories" and isinstance(value, int):
                values = self._values[column.name]
                value = values[value] if 0 <= value < len(values) else None
            # Said here: the library would name a line of the file.
            if value is not None and column.kind in _FORMS and not re.fullmatch(_FORMS[column.kind][0], str(value)):
                raise UserError(f"{shown(column.name)} takes {_FORMS[column.kind][1]}; got {shown(value)!r}.")
            cells[column.name] = pa.array([None if value is None else str(value)], pa.string())
        # The page writes decimals with a point, whatever the file does.
        source = Source(self._table.source.path, tuple(cells))
        return Table(source, pa.table(cells), np.zeros(1, dtype=np.int64))

    def predicted(self, row: Table) -> dict[str, Any]:
        """The prediction of one row, its interval or probabilities, its outlier score, and what is strange about it."""
        unlike = Unlike()
        columns = predict_table(self._estimator, row, unlike=unlike)
        values = {
            shown(name): float(value[0]) if isinstance(value[0], float | np.floating) else shown(value[0])
            for name, value in columns.items()
        }
        return {"values": values, "notes": [printable(said) for said in unlike.sentences("predictions are less certain there")]}

    def explained(self, row: Table) -> dict[str, Any]:
        """The variance of f at one row, and what each column adds to it, the largest part first.

        Raises:
            UserError: when the model cannot say.
        """
        found = self._estimator.explain(row)
        _, _, base, variance = found.of(0)
        output = found.outputs[int(found.shown[0])] if len(found.outputs) > 1 else ""
        lines = [
            {"column": shown(name), "cell": shown(cell), "part": part, "error": error}
            for name, cell, part, error in found.largest(0, MOST_REASONS)
        ]
        return {
            "of": f"{found.quantity} of {shown(output)}" if output else found.quantity,
            "variance": variance,
            "left": float(found.prior_share[0]),
            "base": base,
            "background": found.background,
            "parts": lines,
            "caveat": found.caveat(0),
        }

    @torch.no_grad()
    def _embedded(self, table: Table) -> torch.Tensor:
        return torch.cat(list(self._estimator.model_.rows(encoder_of(self._estimator).transform(table))))

    @torch.no_grad()
    def _nearest(self, row: Table) -> NDArray[Any]:
        """Places of the training rows that are most like a row: of those equal to the kernel the nearest."""
        own = self._embedded(row)
        kernel: Any = self._estimator.posterior_.kernel
        likeness = kernel_matrix(kernel.prior_kernel, own, self._rows).reshape(-1, len(self._rows)).sum(0).numpy()
        distance = (self._rows - own).square().sum(1).numpy()
        return np.lexsort((distance, -np.round(likeness, 12)))[:NUM_NEAREST]

    def nearest(self, row: Table) -> dict[str, Any]:
        """Names of columns and the cells of the nearest training rows, the target first; and what would set each control so."""
        chosen, target = self._known[self._nearest(row)], encoder_of(self._estimator).target
        lines = chosen.source.lines(chosen.number.tolist())
        names = [target, *(column.name for column in self.columns[:MOST_SHOWN_COLUMNS])]
        cells = [chosen.column(name).to_pylist() for name in names]
        rows = [[str(lines[i]), *(shown(_cell(column[i])) for column in cells)] for i in range(len(chosen))]
        settings: list[dict[str, Any]] = [{} for _ in rows]
        for place, column in enumerate(self.columns):
            for setting, value in zip(settings, self._settings(chosen, column), strict=True):
                setting[str(place)] = value
        return {"names": [chosen.source.unit, *map(shown, names)], "rows": rows, "settings": settings}

    def _settings(self, chosen: Table, column: Column) -> list[Any]:
        if column.kind == "number":
            return [None if np.isnan(value) else float(value) for value in numbers(chosen, column.name)]
        if column.kind == "date":
            return [None if np.isnan(value) else _day(float(value)) for value in date_parts(chosen, column.name)[:, -1]]
        found = texts(chosen, column.name).to_pylist()
        if column.kind == "frequency":
            return [None if value is None else value[:LONGEST_VALUE] for value in found]
        place = {value: i for i, value in enumerate(self._values[column.name])}
        return [place.get(value) for value in found]


def _frequent(table: Table, name: str) -> list[str]:
    counts = Counter(text for text in texts(table, name).to_pylist() if text is not None)
    return [value for value, _ in counts.most_common(MOST_VALUES)]


def _day(seconds: float) -> str:
    return (datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds)).date().isoformat()


def _cell(value: object) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
