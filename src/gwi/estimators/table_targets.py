"""The column that is predicted: numbers, or labels as text, and the estimator that belongs to it."""

from __future__ import annotations

import math
import re
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gwi.estimators.classifier import GWIClassifier
from gwi.estimators.regressor import GWIRegressor
from gwi.exceptions import UserError
from gwi.parts import Paper
from gwi.tables.names import no_column
from gwi.tables.parsing import number_pattern, numbers, texts, written
from gwi.tables.source import Table

TaskName = Literal["regression", "classification"]
# A target of whole numbers is taken for classes when it has no more values than this, each of them so often on average.
MOST_CLASSES, ROWS_A_CLASS = 20, 5
# The largest number up to which all whole ones are different in float64: longer labels, such as account numbers, stay text.
MOST_EXACT = 2**53 - 1


class TargetColumn:
    """What differs between tasks when a table is read: numbers here, labels in `LabelColumn`."""

    # What predictions of rows unlike those of the fit are.
    unlike_rows = "their intervals are wider"

    def read(self, table: Table, target: str, number_labels: bool | None) -> tuple[Table, NDArray[Any]]:
        """The rows that have a target, and it."""
        values = numbers(table, target)
        known = ~np.isnan(values)
        return table[known], values[known]

    def means(self) -> dict[str, Any]:
        """By their names on the command line."""
        from sklearn.ensemble import HistGradientBoostingRegressor

        names = {name: name for name in ("auto", "svgp", "svgp-all", "network", "svgp+network", "linear")}
        return {**names, "boosting": HistGradientBoostingRegressor(random_state=0)}

    def estimator(self, mean: Any, preset: str | None, **options: Any) -> GWIRegressor | GWIClassifier:
        """Not fitted."""
        if preset is None:
            return GWIRegressor(mean, **options)
        if options.get("likelihood", "auto") != "auto":
            raise UserError("--preset paper is the paper's Gaussian regression; leave --likelihood out.")
        return GWIRegressor(Paper("network" if isinstance(mean, str) and mean == "auto" else mean), **options)

    def check(self, y: NDArray[Any], place: str) -> None:
        """Refuse a target that cannot be learned; numbers always can."""

    def number_labels(self, table: Table, target: str) -> bool | None:
        """Whether labels are numbers; None where there are none."""
        return None

    def strata(self, y: NDArray[Any]) -> NDArray[Any]:
        """Groups of rows of which every fold has its share."""
        return np.zeros(len(y), dtype=np.int64)

    def columns(self, y: NDArray[Any]) -> NDArray[Any]:
        """As a source of rows gives them."""
        return y[:, None]

    def is_known(self, y: NDArray[Any], estimator: Any) -> NDArray[np.bool_]:
        """Whether the estimator can predict each target."""
        return np.ones(len(y), dtype=np.bool_)

    def of_fit(self, estimator: Any) -> TargetColumn:
        """The same where targets were those of a fit in Python."""
        return self

    def finish(self, estimator: Any) -> None:
        """Tell a fitted estimator what it could not see in its targets."""


class LabelColumn(TargetColumn):
    """Labels as text; where all are numbers, 1, 1.0 and 01 are one."""

    unlike_rows = "their probabilities are less certain"

    def read(self, table: Table, target: str, number_labels: bool | None) -> tuple[Table, NDArray[Any]]:
        """The rows that have a label."""
        labels = self._labels(table, target, number_labels)
        known = np.array([label is not None for label in labels])
        return table[known], np.array([label for label in labels if label is not None], dtype=str)

    def check(self, y: NDArray[Any], place: str) -> None:
        """Refuse labels that hardly repeat."""
        num_labels = len(np.unique(y))
        if 2 * num_labels > len(y):
            raise UserError(
                f"{place}: {num_labels} different labels in {len(y)} rows are too many classes; choose another --target "
                "(for numbers: --task regression)."
            )

    def number_labels(self, table: Table, target: str) -> bool | None:
        """Whether every label is a number that floating point tells from its neighbours."""
        try:
            values = numbers(table, target)
        except UserError:
            return False
        return not (np.abs(values) > MOST_EXACT).any()

    def strata(self, y: NDArray[Any]) -> NDArray[Any]:
        """The classes."""
        return y

    def columns(self, y: NDArray[Any]) -> NDArray[Any]:
        """Labels as they are."""
        return y

    def is_known(self, y: NDArray[Any], estimator: Any) -> NDArray[np.bool_]:
        """Whether each label is a class of the fit."""
        return np.isin(y, estimator.classes_)

    def means(self) -> dict[str, Any]:
        """By their names on the command line."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        names = {name: name for name in ("auto", "svgp", "network", "linear")}
        return {**names, "boosting": HistGradientBoostingClassifier(random_state=0)}

    def estimator(self, mean: Any, preset: str | None, **options: Any) -> GWIClassifier:
        """Not fitted."""
        if preset is not None:
            raise UserError("--preset paper is for regression; its classifier needs a network of your own, from Python.")
        return GWIClassifier(mean, **options)

    def of_fit(self, estimator: Any) -> TargetColumn:
        """Labels as the model has them, which need not be text."""
        return ClassColumn(estimator.classes_)

    def _labels(self, table: Table, target: str, number_labels: bool | None) -> list[str | None]:
        """Labels as text; among numbers a cell that is none is a label of its own."""
        are_numbers = self.number_labels(table, target)
        if are_numbers and number_labels is not False:
            return [None if math.isnan(v) else written(v) for v in numbers(table, target).tolist()]
        labels = list(texts(table, target).to_pylist())
        if not number_labels:
            return labels
        pattern, decimal = re.compile(number_pattern(table)), table.source.decimal
        return [written(float(v.replace(decimal, "."))) if v is not None and pattern.match(v) else v for v in labels]


class ClassColumn(LabelColumn):
    """The classes of a model that was fitted in Python, numbers or truth values too, as a table writes them.

    Args:
        classes: of the fit.
    """

    def __init__(self, classes: NDArray[Any]):
        are_numbers = classes.dtype.kind in "iuf" and bool((np.abs(classes.astype(np.float64)) <= MOST_EXACT).all())
        self.classes, self.are_numbers = classes, are_numbers
        self.places = {_as_text(label): place for place, label in enumerate(classes.tolist())}

    def read(self, table: Table, target: str, number_labels: bool | None) -> tuple[Table, NDArray[Any]]:
        """The rows that have a label, and it as the model has it."""
        known, labels = super().read(table, target, self.are_numbers)
        for row, label in enumerate(labels.tolist()):
            if label not in self.places:
                there = ", ".join(list(self.places)[:8])
                raise UserError(f"{known.place(row, target)}: the model has no class {label[:40]!r}; it has {there}.")
        return known, self.classes[[self.places[label] for label in labels.tolist()]]


def _as_text(label: Any) -> str:
    if isinstance(label, bool):
        return str(label).lower()
    return written(label) if isinstance(label, float) else str(label)


TARGETS: dict[TaskName, TargetColumn] = {"regression": TargetColumn(), "classification": LabelColumn()}


def guess_task(table: Table, target: str) -> TaskName:
    """Classes if the target is text, or whole numbers with few values that come often; else a number."""
    if target not in table.names:
        raise no_column(table.source.path, target, table.names)
    try:
        values = numbers(table, target)
    except UserError:
        present = texts(table, target).drop_null()
        numeric = sum(text.replace(".", "", 1).lstrip("+-").isdigit() for text in present.to_pylist())
        # One cell among numbers that is none is a mistake, not a class.
        if 2 * numeric > len(present):
            raise
        return "classification"
    present = values[~np.isnan(values)]
    few = len(np.unique(present)) <= min(MOST_CLASSES, len(present) / ROWS_A_CLASS)
    return "classification" if few and (present == np.round(present)).all() else "regression"
