"""What the command does, without its printing: fit a model to a table, keep both in one file, predict and score new tables."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gwi._files import write_atomically
from gwi._typing import Array
from gwi.core.distributions import quantile
from gwi.estimators.classifier import GWIClassifier
from gwi.estimators.persistence import from_content
from gwi.estimators.regressor import GWIRegressor
from gwi.evaluation.classification import class_totals
from gwi.evaluation.regression import Law, score_totals
from gwi.exceptions import ModelFileError, UserError
from gwi.storage.container import from_bytes, to_bytes
from gwi.tables.encoder import Columns
from gwi.tables.parsing import number_pattern, numbers, texts
from gwi.tables.source import Table

TaskName = Literal["regression", "classification"]
# A target of whole numbers is taken for classes when it has no more values than this, each of them so often on average.
MOST_CLASSES, ROWS_A_CLASS = 20, 5
FEWEST_ROWS = 5


@dataclass(frozen=True)
class Choices:
    """How to fit.

    Attributes:
        mean: a name in `mean_of`.
        preset: of the estimator.
        max_time: seconds to aim for; regression only.
        seed: of everything random.
        verbose: whether progress is shown.
        jobs: fits side by side, as joblib takes it.
    """

    mean: str = "auto"
    preset: Literal["paper"] | None = None
    max_time: float | None = None
    seed: int = 0
    verbose: bool = False
    jobs: int | None = None


@dataclass(frozen=True)
class Tool:
    """A fitted estimator and how a table becomes its rows.

    Attributes:
        estimator: on the numbers of `columns`.
        columns: from a table to numbers.
        scores: on rows held out, from a fit without them.
    """

    estimator: GWIRegressor | GWIClassifier
    columns: Columns
    scores: dict[str, float]

    @property
    def task(self) -> TaskName:
        """What is predicted."""
        return "classification" if isinstance(self.estimator, GWIClassifier) else "regression"

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write one file; `load_tool` reads it, and `gwi.load` reads the estimator out of it."""
        document, tensors = self.estimator._encoded()
        document["table"] = {"columns": self.columns.to_json(), "scores": self.scores}
        return write_atomically(path, to_bytes(document, tensors))


def load_tool(path: Path) -> Tool:
    """What `Tool.save` wrote.

    Raises:
        UserError: when the file is something else, or damaged.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from error
    try:
        document, _ = from_bytes(data, str(path))
        if "table" not in document:
            raise UserError(f"{path} was saved from Python and does not say how a table becomes its rows; use `gwi fit`.")
        columns = Columns.from_json(document["table"]["columns"])
        scores = {str(name): float(value) for name, value in document["table"]["scores"].items()}
        estimator = from_content(data, str(path))
    except (ModelFileError, LookupError, TypeError, AttributeError, ValueError) as error:
        raise UserError(str(error) if isinstance(error, ModelFileError) else f"{path}: {error}") from error
    if estimator.n_features_in_ != len(columns.features):
        raise UserError(f"{path}: the model has {estimator.n_features_in_} inputs, its columns give {len(columns.features)}.")
    return Tool(estimator, columns, scores)


def guess_task(table: Table, target: str) -> TaskName:
    """Classes if the target is text, or whole numbers with few values that come often; else a number."""
    if target not in table.names:
        raise UserError(f"{table.source.path} has no column {target!r}; it has {', '.join(map(repr, table.names[:8]))}.")
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


def target_of(table: Table, target: str, task: TaskName, number_labels: bool | None = None) -> tuple[Table, NDArray[Any]]:
    """The rows that have a target, and it: numbers, or labels as text.

    Args:
        table: rows.
        target: the column to predict.
        task: what is predicted.
        number_labels: whether labels are numbers, decided once for a model; None to decide from these rows.
    """
    if target not in table.names:
        raise UserError(f"{table.source.path} has no column {target!r}, the target of the model.")
    if task == "regression":
        values = numbers(table, target)
        known = ~np.isnan(values)
        return table[known], values[known]
    labels = _labels(table, target, number_labels)
    known = np.array([label is not None for label in labels])
    return table[known], np.array([label for label in labels if label is not None], dtype=str)


def labels_are_numbers(table: Table, target: str) -> bool:
    """Whether every label is a number, so that 1, 1.0 and 01 are one label."""
    try:
        numbers(table, target)
    except UserError:
        return False
    return True


def _labels(table: Table, target: str, number_labels: bool | None) -> list[str | None]:
    """Labels as text; where labels are numbers, 1, 1.0 and 01 are one, and a cell that is no number is a label of its own."""
    are_numbers = labels_are_numbers(table, target)
    found = list(texts(table, target).to_pylist())
    if are_numbers and number_labels is not False:
        return [None if math.isnan(v) else _written(v) for v in numbers(table, target).tolist()]
    if not number_labels:
        return found
    pattern, decimal = re.compile(number_pattern(table)), table.source.decimal
    return [_written(float(v.replace(decimal, "."))) if v is not None and pattern.match(v) else v for v in found]


def _written(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)


def mean_of(name: str, task: TaskName) -> Any:
    """The `mean` of the estimator by its name on the command line."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.linear_model import RidgeCV

    means: dict[str, dict[str, Any]] = {
        "regression": {
            **{each: each for each in ("auto", "svgp", "svgp-all", "network", "svgp+network")},
            "linear": RidgeCV(alphas=np.logspace(-3, 3, 13)),
            "boosting": HistGradientBoostingRegressor(random_state=0),
        },
        "classification": {
            **{each: each for each in ("auto", "svgp", "network", "linear")},
            "boosting": HistGradientBoostingClassifier(random_state=0),
        },
    }
    if name not in means[task]:
        raise UserError(f"--mean {name} is not known for {task}; choose from {', '.join(means[task])}.")
    return means[task][name]


def split(y: NDArray[Any], share: float, task: TaskName, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows to fit and rows held out; of each class the same share, so that none is held out whole."""
    order = np.random.default_rng(seed).permutation(len(y))
    groups = [order] if task == "regression" else [order[y[order] == label] for label in np.unique(y)]
    held = np.concatenate([order[:0], *(group[: int(share * len(group))] for group in groups)])
    return np.setdiff1d(order, held), np.sort(held)


def fit_tool(table: Table, y: NDArray[Any], target: str, task: TaskName, drop: Sequence[str], choices: Choices) -> Tool:
    """Fit columns and estimator to all rows given.

    Raises:
        UserError: when there are too few rows, the target does not vary, or the choices do not fit.
    """
    path = table.source.path
    if len(y) < FEWEST_ROWS:
        raise UserError(f"{path} has {len(y)} row{'s' * (len(y) != 1)} with a target; a fit needs at least {FEWEST_ROWS}.")
    different = np.unique(y)
    if len(different) == 1:
        raise UserError(f"{path}, column {target!r}: the target is {different[0]} in every row; there is nothing to learn.")
    columns = Columns.fit(table, target, drop)
    if task == "classification" and 2 * len(different) > len(y):
        raise UserError(
            f"{path}, column {target!r}: {len(different)} different labels in {len(y)} rows are too many to learn "
            "(for numbers: --task regression)."
        )
    if task == "classification":
        columns = replace(columns, number_labels=labels_are_numbers(table, target))
    estimator = estimator_for(task, choices)
    try:
        _with_progress(estimator, columns.transform(table), y, choices.verbose)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from error
    return Tool(estimator, columns, {})


def estimator_for(task: TaskName, choices: Choices) -> GWIRegressor | GWIClassifier:
    """The estimator that the choices ask for, not fitted."""
    mean = mean_of(choices.mean, task)
    common: dict[str, Any] = {"preset": choices.preset, "random_state": choices.seed, "n_jobs": choices.jobs, "verbose": 0}
    if task == "regression":
        return GWIRegressor(mean, max_time=choices.max_time, **common)
    if choices.preset is not None:
        raise UserError("--preset paper is for regression; its classifier needs a network of your own, from Python.")
    return GWIClassifier(mean, **common)


def _with_progress(estimator: GWIRegressor | GWIClassifier, X: Array, y: NDArray[Any], verbose: bool) -> None:
    """Fit; the estimator's own bars go to the error stream, its summary is printed by the command."""
    import contextlib
    import io

    if not verbose:
        estimator.fit(X, y)
        return
    estimator.set_params(verbose=1)
    with contextlib.redirect_stdout(io.StringIO()):
        estimator.fit(X, y)
    estimator.set_params(verbose=0)


def predictions(tool: Tool, table: Table, coverage: float = 0.95) -> dict[str, Any]:
    """Columns of predictions for each row, by name."""
    X = tool.columns.transform(table)
    model = tool.estimator
    if isinstance(model, GWIClassifier):
        probabilities = model.predict_proba(X)
        found: dict[str, Any] = {"prediction": model.classes_[probabilities.argmax(1)]}
        found |= {f"probability_{label}": probabilities[:, j] for j, label in enumerate(model.classes_)}
        return found | {"ood_score": model.ood_score(X)}
    fitted = model.model_
    # What predict, predict_interval and ood_score would each compute for themselves.
    parts = fitted.parts(X)
    mean, std = (values[0] for values in fitted.law_of(parts))
    if model.conformal:
        lower, upper = model.predict_interval(X, coverage).T
    else:
        levels = np.array([(1 - coverage) / 2, (1 + coverage) / 2])
        lower, upper = (mean[:, None] + std[:, None] * quantile(levels, fitted.degrees_of_freedom[0])).T
    unknown = fitted.unknown_share(X, parts)
    return {"prediction": mean, "std": std, "lower": lower, "upper": upper, "ood_score": unknown}


@dataclass(frozen=True)
class Judged:
    """What scores are computed from, for some rows: a mean and a standard deviation, or probabilities; and the target."""

    first: Array
    std: Array | None
    y: NDArray[Any]


def judge(tool: Tool, table: Table) -> Judged:
    """Predictions at the rows of the table that have a target.

    Raises:
        UserError: naming a label that the model does not know.
    """
    known, y = target_of(table, tool.columns.target, tool.task, tool.columns.number_labels)
    if len(y) == 0:
        num_columns = len(tool.estimator.classes_) if isinstance(tool.estimator, GWIClassifier) else 0
        return Judged(np.empty((0, num_columns) if num_columns else 0), None if num_columns else np.empty(0), y)
    X = tool.columns.transform(known)
    if isinstance(tool.estimator, GWIClassifier):
        classes = tool.estimator.classes_.tolist()
        strange = [i for i, label in enumerate(y.tolist()) if label not in classes]
        if strange:
            place = known.place(strange[0], tool.columns.target)
            raise UserError(f"{place}: the model has no class {str(y[strange[0]])!r}; it has {', '.join(classes[:8])}.")
        places = np.array([classes.index(label) for label in y.tolist()], dtype=np.int64)
        return Judged(tool.estimator.predict_proba(X), None, places)
    mean, std = tool.estimator.predict(X, return_std=True)
    return Judged(mean, std, y)


def of_known_labels(tool: Tool, table: Table) -> Table:
    """The rows of a table whose label the model knows; all that have a target in regression."""
    known, y = target_of(table, tool.columns.target, tool.task, tool.columns.number_labels)
    return known[np.isin(y, tool.estimator.classes_)] if isinstance(tool.estimator, GWIClassifier) else known


def all_scores(tool: Tool, parts: Iterable[Judged]) -> dict[str, float]:
    """Every score of all parts together; parts are not kept.

    Raises:
        UserError: when no row has a target.
    """
    totals = [_totals(tool, part) for part in parts if len(part.y)]
    if not totals:
        raise UserError(f"No row has a value of {tool.columns.target!r}; there is nothing to score.")
    whole: Any = sum(totals[1:], start=totals[0])
    found = asdict(whole.scores())
    count = {"rows": float(whole.num_rows)}
    if isinstance(tool.estimator, GWIClassifier):
        return count | found
    return count | {"nll": found.pop("nll"), "rmse": found.pop("rmse"), "mae": whole.mae} | found


def _totals(tool: Tool, part: Judged) -> Any:
    if isinstance(tool.estimator, GWIClassifier):
        return class_totals(part.first, part.y)
    assert part.std is not None
    return score_totals(Law(part.first[None], part.std[None], float(tool.estimator.model_.degrees_of_freedom[0])), part.y)
