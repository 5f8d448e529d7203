"""What the command does, without its printing: fit a model to a table, keep both in one file, predict and score new tables."""

from __future__ import annotations

import contextlib
import gzip
import io
import math
import os
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gwi._files import write_atomically
from gwi._typing import Array
from gwi.core.distributions import quantile
from gwi.core.tempering import conformal_quantile
from gwi.estimators.classifier import GWIClassifier
from gwi.estimators.persistence import from_content
from gwi.estimators.regressor import GWIRegressor
from gwi.evaluation.classification import class_totals
from gwi.evaluation.regression import Law, score_totals
from gwi.exceptions import ModelFileError, UserError
from gwi.parts import Paper
from gwi.storage.container import from_bytes, to_bytes
from gwi.tables.encoder import Encoder
from gwi.tables.parquet import ParquetReader
from gwi.tables.parsing import number_pattern, numbers, texts
from gwi.tables.rows import FEW_NUMBERS
from gwi.tables.source import BLOCK, Source, Table

TaskName = Literal["regression", "classification"]
# A target of whole numbers is taken for classes when it has no more values than this, each of them so often on average.
MOST_CLASSES, ROWS_A_CLASS = 20, 5
FEWEST_ROWS = 5
# Bytes of text that are read into memory.
FEW_BYTES = 1 << 30


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
class Judged:
    """What scores are computed from, for some rows: a mean and a standard deviation, or probabilities; and the target."""

    first: Array
    std: Array | None
    y: NDArray[Any]


@dataclass(frozen=True)
class TableModel:
    """A fitted estimator and how a table becomes its rows.

    Attributes:
        estimator: on the numbers of the encoder.
        encoder: from a table to numbers.
        scores: on rows held out, from a fit without them.
    """

    estimator: GWIRegressor | GWIClassifier
    encoder: Encoder
    scores: dict[str, float]

    @property
    def task(self) -> TaskName:
        """What is predicted."""
        return "classification" if isinstance(self.estimator, GWIClassifier) else "regression"

    @staticmethod
    def fit(
        table: Table, y: NDArray[Any], target: str, task: TaskName, drop: Sequence[str] = (), choices: Choices | None = None
    ) -> TableModel:
        """Fit encoder and estimator to all rows given.

        Raises:
            UserError: when there are too few rows, the target does not vary, or the choices do not fit.
        """
        path, choices = table.source.path, Choices() if choices is None else choices
        if len(y) < FEWEST_ROWS:
            raise UserError(f"{path} has {len(y)} row{'s' * (len(y) != 1)} with a target; a fit needs at least {FEWEST_ROWS}.")
        different = np.unique(y)
        if len(different) == 1:
            raise UserError(f"{path}, column {target!r}: the target is {different[0]} in every row; there is nothing to learn.")
        encoder = Encoder.fit(table, target, drop)
        if task == "classification":
            if 2 * len(different) > len(y):
                raise UserError(
                    f"{path}, column {target!r}: {len(different)} different labels in {len(y)} rows are too many to learn "
                    "(for numbers: --task regression)."
                )
            encoder = replace(encoder, number_labels=labels_are_numbers(table, target))
        estimator, X = estimator_for(task, choices), encoder.transform(table)
        try:
            # The summary is for the command to print.
            with contextlib.redirect_stdout(io.StringIO()):
                estimator.fit(X, y)
        except ValueError as error:
            raise UserError(f"{path}: {error}") from error
        return TableModel(estimator.set_params(verbose=0), encoder, {})

    def predict(self, table: Table, coverage: float = 0.95) -> dict[str, Any]:
        """Columns of predictions for each row, by name."""
        return prediction_columns(self.estimator, self.encoder.transform(table), coverage)

    def known(self, table: Table) -> tuple[Table, NDArray[Any]]:
        """The rows that have a target, and it: numbers, or labels as text."""
        return target_of(table, self.encoder.target, self.task, self.encoder.number_labels)

    def judge(self, table: Table) -> Judged:
        """Predictions at the rows of the table that have a target.

        Raises:
            UserError: naming a label that the model does not know.
        """
        known, y = self.known(table)
        model = self.estimator
        classes = model.classes_.tolist() if isinstance(model, GWIClassifier) else []
        if len(y) == 0:
            return Judged(np.empty((0, len(classes))), None, y) if classes else Judged(np.empty(0), np.empty(0), y)
        X = self.encoder.transform(known)
        if not isinstance(model, GWIClassifier):
            mean, std = model.predict(X, return_std=True)
            return Judged(mean, std, y)
        index = {label: j for j, label in enumerate(classes)}
        for row, label in enumerate(y.tolist()):
            if label not in index:
                place = known.place(row, self.encoder.target)
                raise UserError(f"{place}: the model has no class {label!r}; it has {', '.join(classes[:8])}.")
        return Judged(model.predict_proba(X), None, np.array([index[label] for label in y.tolist()], dtype=np.int64))

    def evaluate(self, tables: Iterable[Table]) -> dict[str, float]:
        """Every score of all tables together; they are not kept.

        Raises:
            UserError: when no row has a target.
        """
        return self.score(self.judge(table) for table in tables)

    def score(self, parts: Iterable[Judged]) -> dict[str, float]:
        """Every score of rows that are judged."""
        totals = [score_totals_of(self.estimator, part) for part in parts if len(part.y)]
        if not totals:
            raise UserError(f"No row has a value of {self.encoder.target!r}; there is nothing to score.")
        whole: Any = sum(totals[1:], start=totals[0])
        scores = {"rows": float(whole.num_rows)} | asdict(whole.scores())
        if self.task == "classification":
            return scores
        first = {name: scores.pop(name) for name in ("rows", "nll", "rmse")}
        return first | {"mae": whole.mae} | scores

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write one file; `TableModel.load` reads it, and `gwi.load` reads the estimator out of it."""
        document, tensors = self.estimator._encoded()
        document["table"] = {"columns": self.encoder.to_json(), "scores": self.scores}
        return write_atomically(path, to_bytes(document, tensors))

    @staticmethod
    def load(path: Path) -> TableModel:
        """What `save` wrote.

        Raises:
            UserError: when the file is something else, or damaged.
        """
        try:
            data = path.read_bytes()
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}.") from error
        try:
            part = from_bytes(data, str(path))[0].get("table")
            if part is None:
                raise UserError(f"{path} was saved from Python and does not say how a table becomes its rows; use `gwi fit`.")
            encoder = Encoder.from_json(part["columns"])
            scores = {str(name): float(value) for name, value in part["scores"].items()}
            estimator = from_content(data, str(path))
        except (ModelFileError, UserError) as error:
            raise UserError(str(error)) from error
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise UserError(f"{path}: {error}") from error
        if estimator.n_features_in_ != len(encoder.features):
            raise UserError(f"{path}: the model has {estimator.n_features_in_} inputs, its columns give {len(encoder.features)}.")
        return TableModel(estimator, encoder, scores)


def prediction_columns(model: GWIRegressor | GWIClassifier, X: Array, coverage: float = 0.95) -> dict[str, Any]:
    """Predictions by the names of their columns, from one evaluation of Q where that is enough.

    Regression: prediction, std, lower, upper, each with the number of the target behind it where there are several. Classes:
    prediction and a probability for each. Both: the outlier score.
    """
    if isinstance(model, GWIClassifier):
        probabilities = model.model_.probabilities(X)[0]
        labels = {f"probability_{label}": probabilities[:, j] for j, label in enumerate(model.classes_)}
        return (
            {"prediction": model.classes_[probabilities.argmax(1)]} | labels | {"ood_score": model.model_.prior_share(X)}
        )
    fitted = model.model_
    # What predict, predict_interval and ood_score would each compute for themselves.
    parts = fitted.parts(X)
    mean, std = fitted.law_of(parts)
    if model.conformal:
        half = np.array([conformal_quantile(scores, coverage) for scores in fitted.scores])
        ends = np.stack([-half, half], axis=1)
    else:
        levels = np.array([(1 - coverage) / 2, (1 + coverage) / 2])
        ends = np.stack([quantile(levels, degrees) for degrees in fitted.degrees_of_freedom])
    lower, upper = (mean + std * end[:, None] for end in ends.T)
    values = {"prediction": mean, "std": std, "lower": lower, "upper": upper}
    one = len(mean) == 1
    columns = {name if one else f"{name}_{j}": row for name, rows in values.items() for j, row in enumerate(rows)}
    return columns | {"ood_score": fitted.prior_share(X, parts)}


def score_totals_of(model: GWIRegressor | GWIClassifier, part: Judged) -> Any:
    """Sums over some rows from which scores are computed; those of several parts are added."""
    if isinstance(model, GWIClassifier):
        return class_totals(part.first, part.y)
    assert part.std is not None
    return score_totals(Law(part.first[None], part.std[None], float(model.model_.degrees_of_freedom[0])), part.y)


def is_large(source: Source) -> bool:
    """Whether a table is better read some rows at a time."""
    if source.path.is_dir():
        return True
    if source.is_parquet:
        return sum(ParquetReader(source.path).group_sizes) * len(source.header) > FEW_NUMBERS
    size = source.path.stat().st_size
    # What gzip makes of zeros is 1032 times smaller: no text is packed more densely.
    if not source.is_compressed or size * 1032 <= FEW_BYTES:
        return size > FEW_BYTES
    count = 0
    try:
        with gzip.open(source.path) as file:
            while count <= FEW_BYTES and (block := file.read(BLOCK)):
                count += len(block)
    except (EOFError, OSError, zlib.error) as error:
        raise UserError(f"{source.path} is a damaged gzip file ({error}).") from error
    return count > FEW_BYTES


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
    written = list(texts(table, target).to_pylist())
    if are_numbers and number_labels is not False:
        return [None if math.isnan(v) else _written(v) for v in numbers(table, target).tolist()]
    if not number_labels:
        return written
    pattern, decimal = re.compile(number_pattern(table)), table.source.decimal
    return [_written(float(v.replace(decimal, "."))) if v is not None and pattern.match(v) else v for v in written]


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


def estimator_for(task: TaskName, choices: Choices) -> GWIRegressor | GWIClassifier:
    """The estimator that the choices ask for, not fitted."""
    mean = mean_of(choices.mean, task)
    common: dict[str, Any] = {
        "max_time": choices.max_time,
        "random_state": choices.seed,
        "n_jobs": choices.jobs,
        "verbose": int(choices.verbose),
    }
    if task == "regression":
        paper = None if choices.preset is None else Paper("network" if isinstance(mean, str) and mean == "auto" else mean)
        return GWIRegressor(mean if paper is None else paper, **common)
    if choices.preset is not None:
        raise UserError("--preset paper is for regression; its classifier needs a network of your own, from Python.")
    return GWIClassifier(mean, **common)
