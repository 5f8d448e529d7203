"""The default against what one would else use, on a table of the user's own: same folds, same inputs, same scores."""

from __future__ import annotations

import html
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.stats import sem

from gwi._progress import Report
from gwi._typing import Array
from gwi.estimators.table_targets import TARGETS, TaskName
from gwi.estimators.tables import FEWEST_ROWS
from gwi.evaluation.classification import ClassScores, score_classes
from gwi.evaluation.regression import score
from gwi.exceptions import UserError
from gwi.report.peers import PEERS
from gwi.tables.encoder import Encoder
from gwi.tables.files import write_atomically
from gwi.tables.frames import frame_of
from gwi.tables.source import Table

METRICS: dict[TaskName, tuple[str, ...]] = {
    "regression": ("crps", "nll", "rmse", "coverage_95", "width_95", "seconds"),
    "classification": ("accuracy", "nll", "brier", "ece", "seconds"),
}
# Where a comparison of two methods makes sense; a narrow interval is no merit by itself.
JUDGED = ("crps", "nll", "rmse", "coverage_95", "accuracy", "brier", "ece")
NOMINAL = 0.95
LABELS = {"coverage_95": "coverage 95 %", "width_95": "width 95 %", "accuracy": "accuracy", "brier": "Brier", "seconds": "fit s"}


@dataclass(frozen=True)
class Compared:
    """One method at all folds.

    Attributes:
        name: of the method.
        note: what a reader should know of it.
        scores: of each fold, by metric; NaN where it failed.
    """

    name: str
    note: str
    scores: dict[str, Float[Array, " K"]]

    def mean(self, metric: str) -> float:
        """Over folds."""
        return float(self.scores[metric].mean())

    def error(self, metric: str) -> float:
        """The standard error of the mean over folds."""
        return float(sem(self.scores[metric]))

    def loss(self, metric: str) -> float:
        """Lower is better. Of a coverage it is the mean's distance from 95 %: folds that miss it on both sides do not add up."""
        mean = self.mean(metric)
        return abs(mean - NOMINAL) if metric == "coverage_95" else -mean if metric == "accuracy" else mean


@dataclass(frozen=True)
class Comparison:
    """All methods on one table.

    Attributes:
        task: what is predicted.
        target: which column.
        num_rows: that have a target.
        num_folds: each row is predicted once.
        methods: ours first.
        notes: on the data.

    Examples:
        >>> from sklearn.datasets import load_diabetes
        >>> from sklearn.linear_model import BayesianRidge, LinearRegression
        >>> import gwi
        >>> X, y = load_diabetes(return_X_y=True)
        >>> found = gwi.compare({"ridge": BayesianRidge(), "line": LinearRegression()}, X, y, cv=3)
        >>> found.task, found.num_rows, found.num_folds
        ('regression', 442, 3)
    """

    task: TaskName
    target: str
    num_rows: int
    num_folds: int
    methods: tuple[Compared, ...]
    notes: tuple[str, ...] = ()

    @property
    def metrics(self) -> tuple[str, ...]:
        """In the order in which they are shown."""
        return METRICS[self.task]

    def difference(self, first: Compared, second: Compared, metric: str) -> tuple[float, float]:
        """How much better the first is, and the standard error of that over the same folds."""
        return second.loss(metric) - first.loss(metric), float(sem(second.scores[metric] - first.scores[metric]))

    def best(self, metric: str) -> tuple[str, ...]:
        """The best method, and those that are behind it by no more than one standard error of the difference."""
        finite = [method for method in self.methods if math.isfinite(method.mean(metric))]
        if metric not in JUDGED or not finite:
            return ()
        leader = min(finite, key=lambda method: method.loss(metric))
        behind = {method.name: self.difference(leader, method, metric) for method in finite}
        return tuple(name for name, (gap, error) in behind.items() if gap <= error)

    def sentences(self) -> list[str]:
        """Wins and losses of ours against each other method."""
        ours, *others = self.methods
        found = []
        for other in others:
            kinds: dict[str, list[str]] = {"better": [], "worse": [], "even": []}
            for metric in self.metrics:
                if metric in JUDGED and math.isfinite(other.mean(metric)) and math.isfinite(ours.mean(metric)):
                    ahead, error = self.difference(ours, other, metric)
                    kinds["even" if abs(ahead) <= error else "better" if ahead > 0 else "worse"].append(label(metric))
            said = "; ".join(f"{kind} in {', '.join(names)}" for kind, names in kinds.items() if names)
            found.append(f"{ours.name} against {other.name}: {said or 'no finite score to compare'}.")
        return found

    def to_dict(self) -> dict[str, list[Any]]:
        """Columns for a data frame, a line for each method and metric.

        `behind` is how much worse than the first method, over the same folds, and `behind_error` its standard error.
        """
        names = ("method", "metric", "mean", "error", "best", "behind", "behind_error")
        found: dict[str, list[Any]] = {name: [] for name in names}
        for method in self.methods:
            for metric in self.metrics:
                gap, error = self.difference(self.methods[0], method, metric)
                best = method.name in self.best(metric)
                line = (method.name, metric, method.mean(metric), method.error(metric), best, gap, error)
                for name, value in zip(names, line, strict=True):
                    found[name].append(value)
        return found

    def to_frame(self, library: Literal["pandas", "polars", "arrow"] = "pandas") -> Any:
        """The columns of `to_dict` as a data frame of a library, which is imported here.

        Args:
            library: whose frame.
        """
        return frame_of(self.to_dict(), library)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write a page, ``.html``, or a picture, ``.png`` or ``.svg``.

        Args:
            path: of the file.
            overwrite: whether a file that is there already is replaced.

        Returns:
            The path.

        Raises:
            FileExistsError: when there is such a file and `overwrite` is False.
            UserError: for a name that ends in something else.
        """
        from gwi.report.comparison_page import check_kind, content

        path = Path(path)
        check_kind(path)
        if not overwrite and os.path.lexists(path):
            raise FileExistsError(f"{path} exists already; choose another name, or pass overwrite=True to replace it.")
        return write_atomically(path, content(self, "", path.suffix.lower()))

    def __str__(self) -> str:
        from gwi.report.comparison_page import text_of

        return text_of(self)

    def _repr_html_(self) -> str:
        from gwi.report.comparison_page import text_of

        return f"<pre>{html.escape(text_of(self))}</pre>"

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        methods = {
            method.name: {
                metric: {"mean": method.mean(metric), "error": method.error(metric), "folds": method.scores[metric].tolist()}
                for metric in self.metrics
            }
            | {"note": method.note}
            for method in self.methods
        }
        head = {"task": self.task, "target": self.target, "rows": self.num_rows, "folds": self.num_folds}
        best = {metric: list(self.best(metric)) for metric in self.metrics if metric in JUDGED}
        return head | {"methods": methods, "best": best, "notes": list(self.notes), "verdict": self.sentences()}


def label(metric: str) -> str:
    """A metric for a reader."""
    return LABELS.get(metric, metric.upper())


def compare_table(
    table: Table,
    y: NDArray[Any],
    target: str,
    task: TaskName,
    drop: Sequence[str],
    *,
    num_folds: int,
    seed: int,
    gp_rows: int,
    max_time: float | None,
    report: Report,
) -> Comparison:
    """Fit and score every method on every fold.

    Raises:
        UserError: when there are too few rows, or the target does not vary.
    """
    notes = []
    strata, counts = np.unique(TARGETS[task].strata(y), return_counts=True)
    rare = strata[counts < num_folds] if len(strata) > 1 else strata[:0]
    if len(rare):
        keep = ~np.isin(y, rare)
        notes.append(f"{int((~keep).sum())} rows of {len(rare)} classes with fewer rows than folds are left out.")
        table, y = table[keep], y[keep]
    path = table.source.path
    if len(y) < max(FEWEST_ROWS + 1, 2 * num_folds):
        raise UserError(f"{path} has {len(y)} rows to compare on; {num_folds} folds need at least {max(6, 2 * num_folds)}.")
    if len(np.unique(y)) == 1:
        raise UserError(f"{path}, column {target!r}: the target is {y[0]} in every row; there is nothing to learn.")
    fold = _folds(y, task, num_folds, seed)
    methods = PEERS[task](int((fold != 0).sum()), seed, gp_rows, max_time)
    # A fold at which a method fails stays NaN.
    scores = {name: {metric: np.full(num_folds, np.nan) for metric in METRICS[task]} for name in methods}
    notes_of = {name: method.note for name, method in methods.items()}
    for k in range(num_folds):
        training, test = table[fold != k], table[fold == k]
        encoder = Encoder.fit(training, target, drop)
        X, X_test = encoder.transform(training), encoder.transform(test)
        for i, (name, method) in enumerate(methods.items()):
            report("folds", (k + i / len(methods)) / num_folds)
            start = time.perf_counter()
            try:
                predicted = method.run(X, y[fold != k], X_test)
                seconds = time.perf_counter() - start
                found = asdict(SCORED[task](predicted, y[fold == k])) | {"seconds": seconds}
                for metric, values in scores[name].items():
                    values[k] = found[metric]
            except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
                notes_of[name] = f"{method.note}; failed: {str(error).splitlines()[0][:120]}"
    compared = tuple(Compared(name, notes_of[name], scores[name]) for name in methods)
    return Comparison(task, target, len(y), num_folds, compared, tuple(notes))


def _folds(y: NDArray[Any], task: TaskName, num_folds: int, seed: int) -> NDArray[np.int64]:
    """The fold of each row; of each class as many in each fold as can be."""
    order = np.random.default_rng(seed).permutation(len(y))
    order = order[np.argsort(TARGETS[task].strata(y)[order], kind="stable")]
    fold = np.empty(len(y), dtype=np.int64)
    fold[order] = np.arange(len(y)) % num_folds
    return fold


def score_labels(predicted: tuple[Array, NDArray[Any]], y: NDArray[Any]) -> ClassScores:
    """Of probabilities and the classes they are of; a class that training did not have has none."""
    probabilities, classes = predicted
    everything = np.union1d(classes, y)
    full = np.zeros((len(y), len(everything)))
    full[:, np.searchsorted(everything, classes)] = probabilities
    return score_classes(full, np.searchsorted(everything, y).astype(np.int64))


SCORED: dict[TaskName, Callable[[Any, Any], Any]] = {"regression": score, "classification": score_labels}
