"""What a user brings, checked and encoded: rows and targets to learn from, rows and targets to judge on."""

from __future__ import annotations

import reprlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import _check_sample_weight, check_X_y, validate_data
from torch import Tensor
from torch.utils.data import DataLoader

from gwi._validation import as_array, checked_weights, require_order
from gwi.estimators.columns import numbers_of, require_present
from gwi.estimators.frame_means import with_predictions
from gwi.estimators.strata import strata_to_learn
from gwi.exceptions import GWIWarning, UserError
from gwi.fitting.folds import copies
from gwi.models.seen import SeenRows, share_of_copies
from gwi.parts import ContextChoice, covariance_part, require_choice
from gwi.streaming.batches import Batches, checked_shapes, pair_of
from gwi.tables.forms import require_frame
from gwi.tables.frames import (
    frame_names,
    frame_table,
    in_order,
    is_frame,
    is_pandas,
    is_plain,
    named,
    plain_numbers,
    require_finite,
    require_rows_and_columns,
)
from gwi.tables.names import require_columns
from gwi.tables.source import Table
from gwi.tables.transformer import Encoded, TableEncoder
from gwi.tables.unlike import Unlike

# Tables with fewer rows than this are put in a fixed order, so that the order in which they came does not matter.
ORDERED_BELOW = 250
# With fewer different rows than this copies count as often as they stand there, as weights do.
FEW_DIFFERENT = 50


# Shares of validation rows that are training rows from which on a warning is given, and a fit refused.
WARNED_SHARE, REFUSED_SHARE = 0.2, 0.5


@dataclass(frozen=True)
class Brought:
    """What `fit` was given: rows and targets as they came, and what goes with them."""

    X: Any
    y: Any
    sample_weight: Any
    validation: Any
    groups: Any
    checkpoints: Any
    context: Any = None
    strata: Any = None


@dataclass(frozen=True)
class TrainingRows:
    """Rows to learn from, none of them a copy of another.

    Attributes:
        x: features.
        y: encoded targets.
        weight: of each row.
        groups: of each row, or None.
        place: of each row that the user brought, its place among these; −1 where it is left out.
        num_copies: rows that were left out as copies.
        strata: of each row, or None.
    """

    x: NDArray[Any]
    y: NDArray[Any]
    weight: NDArray[Any]
    groups: NDArray[Any] | None
    place: NDArray[np.int64]
    num_copies: int = 0
    strata: NDArray[Any] | None = None

    @property
    def brought(self) -> NDArray[np.int64]:
        """The number of each row among those that the user brought; of the first where several are copies."""
        found = np.empty(len(self.x), dtype=np.int64)
        known = np.flatnonzero(self.place >= 0)[::-1]
        found[self.place[known]] = known
        return found

    def folds(self, pairs: Sequence[tuple[Any, Any]]) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Pairs of numbers of the user's rows, those to learn from and those to judge, as numbers of these."""
        found = []
        for train, test in pairs:
            learned, judged = (np.unique(self.place[np.asarray(rows)]) for rows in (train, test))
            found.append((learned[learned >= 0], np.setdiff1d(judged[judged >= 0], learned)))
        return found

    @property
    def note(self) -> str:
        """What a reader of the summary should know."""
        if not self.num_copies:
            return ""
        counted = "counts once" if len(self.x) >= FEW_DIFFERENT else "counts once per copy"
        return f"{self.num_copies} of {len(self.x) + self.num_copies} rows are copies of others; a row {counted}"

    def ordered(self) -> TrainingRows:
        """Few rows in an order that depends on their values only."""
        if len(self.x) >= ORDERED_BELOW:
            return self
        rows = np.lexsort(np.column_stack([self.x, self.y]).T[::-1])
        return self._some(rows, self.weight[rows], np.argsort(rows))

    def without_copies(self, pairs: Sequence[tuple[Any, Any]] = ()) -> TrainingRows:
        """Each row once, where there are enough of them with the mean of its copies' weights, else with their sum.

        Rows of other groups or strata, or that judge other folds of the user's own, are no copies.
        """
        units = [np.unique(unit, return_inverse=True)[1] for unit in (self.groups, self.strata) if unit is not None]
        columns = np.column_stack([self.x, *units]) if units else self.x
        for _, judged in self.folds(pairs):
            columns = np.column_stack([columns, np.isin(np.arange(len(self.x)), judged)])
        unit = copies(columns, self.y.reshape(len(self.y), -1).astype(np.float64))
        _, first, unit, count = np.unique(unit, return_index=True, return_inverse=True, return_counts=True)
        if len(first) == len(unit):
            return self
        weight = np.bincount(unit, weights=self.weight) / (count if len(first) >= FEW_DIFFERENT else 1)
        order = np.argsort(first)
        return replace(self._some(first[order], weight[order], np.argsort(order)[unit]), num_copies=len(unit) - len(first))

    def _some(self, rows: NDArray[np.int64], weight: NDArray[Any], new_place: NDArray[np.int64]) -> TrainingRows:
        """Some rows, and where each of the present ones is among them."""
        groups, strata = (None if unit is None else unit[rows] for unit in (self.groups, self.strata))
        place = np.where(self.place >= 0, new_place[self.place], -1)
        return TrainingRows(self.x[rows], self.y[rows], weight, groups, place, self.num_copies, strata)


def given_folds(cv: Any, brought: Brought, num_rows: int) -> list[tuple[Any, Any]]:
    """Pairs of row numbers that a splitter or the user gives; none where `cv` is a name or a number.

    Raises:
        ValueError: for what names none of the rows.
    """
    if isinstance(cv, Integral | str):
        return []
    pairs = list(cv.split(brought.X, brought.y, brought.groups) if hasattr(cv, "split") else cv)
    return [(_row_numbers(train, num_rows, k), _row_numbers(test, num_rows, k)) for k, (train, test) in enumerate(pairs)]


def _row_numbers(rows: Any, num_rows: int, fold: int) -> NDArray[np.int64]:
    """The numbers of rows that a pair names, also by a bool for each row."""
    found = np.array(list(rows) if np.iterable(rows) else rows, dtype=object)
    plain = np.array(found.tolist()) if all(isinstance(value, Integral | np.bool_) for value in found.flat) else found
    if plain.dtype == np.bool_ and plain.shape == (num_rows,):
        return np.flatnonzero(plain)
    if plain.ndim != 1 or (plain.size and (plain.dtype.kind not in "iu" or plain.min() < 0 or plain.max() >= num_rows)):
        raise ValueError(
            f"cv's fold {fold} must name rows by whole numbers from 0 to {num_rows - 1}, or by a bool for each of the {num_rows} "
            f"rows; got {reprlib.repr(found.tolist())}."
        )
    return plain.astype(np.int64)


def is_ready(estimator: Any, X: Any) -> bool:
    """Whether rows are what all checks would leave as it is: finite float64 in row order, as many columns as those of the fit.

    scikit-learn's checks take longer than a prediction; what is not ready goes through them, and gets their sentences.
    """
    plain = type(X) is np.ndarray and X.dtype == np.float64 and X.ndim == 2 and X.flags.c_contiguous
    if not plain or not len(X) or X.shape[1] != estimator.n_features_in_:
        return False
    if estimator.frame_predictors_ or getattr(estimator, "encoder_", None) is not None:
        return False
    return bool(np.isfinite(X).all())


def checked_rows(estimator: Any, X: Any, unlike: Unlike | None = None) -> NDArray[Any]:
    """Rows of a table like that of the fit as numbers: columns of a frame by their names, in any order.

    Raises:
        ValueError: when columns are missing or too many, or a cell is not what its column holds.
    """
    if isinstance(X, Encoded):
        return X.numbers
    rows = as_array(X) if isinstance(X, Tensor) else X
    if is_ready(estimator, rows):
        return rows
    if not estimator.frame_predictors_:
        return _own_columns(estimator, X, unlike)
    require_frame(X, is_frame(X) or isinstance(X, Table))
    return with_predictions(estimator.frame_predictors_, X, _own_columns(estimator, X, unlike))


def _own_columns(estimator: Any, X: Any, unlike: Unlike | None) -> NDArray[Any]:
    encoder, names = getattr(estimator, "encoder_", None), getattr(estimator, "feature_names_in_", None)
    if encoder is not None:
        return encoder.encoder_.transform(encoder._table(X, reset=False), unlike)
    if isinstance(X, Table):
        return numbers_of(estimator, X)
    if names is not None and is_frame(X):
        require_columns(list(names), frame_names(X), "X")
        plain = plain_numbers(X, list(names))
        # A table names the cell that is no number.
        X = plain if plain is not None and np.isfinite(plain).all() else numbers_of(estimator, frame_table(X))
    X = as_array(X)
    if isinstance(X, np.ndarray):
        require_present(estimator, X)
    with warnings.catch_warnings():
        # An array has no names to compare, which is no matter.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        return validate_data(estimator, X, dtype=np.float64, reset=False)


def own_columns(estimator: Any, rows: NDArray[Any]) -> NDArray[Any]:
    """Rows without the values that they carry along."""
    return rows if rows.ndim > 2 else rows[:, : estimator.model_.embedding.num_own]


def shaped_rows(estimator: Any, X: Any, unlike: Unlike | None = None) -> NDArray[Any]:
    """Rows of any shape like those of the fit, finite: a table as float64, others as float32 unless they are float64."""
    return checked_shapes(as_array(X)) if len(getattr(X, "shape", ())) > 2 else checked_rows(estimator, X, unlike)


def _first_rows(estimator: Any, X: Any, y: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Rows and targets to learn from; a frame of more than numbers gets an encoder, which later frames pass through."""
    checks: dict[str, Any] = {"dtype": np.float64, "ensure_min_samples": 2, **estimator._targets.checks}
    if is_frame(X):
        require_rows_and_columns(X := named(X))
    if not is_frame(X) or (is_pandas(X) and is_plain(X)):
        if is_frame(X):
            require_finite(X.to_numpy(), frame_names(X))
        return validate_data(estimator, as_array(X), estimator._targets.prepared(y), **checks)
    if is_plain(X):
        names = frame_names(X)
        require_finite(rows := in_order(X, names), names)
        found = validate_data(estimator, rows, estimator._targets.prepared(y), **checks)
        estimator.feature_names_in_ = np.array(names, dtype=object)
        return found
    encoder = TableEncoder().fit(X)
    if not encoder.encoder_.columns:
        why = "; ".join(f"{name!r} {reason}" for name, reason in encoder.dropped_[:3])
        raise UserError(f"X has no column to learn from: {why}.")
    found = check_X_y(encoder.transform(X), estimator._targets.prepared(y), estimator=estimator, **checks)
    estimator.encoder_ = encoder
    estimator.n_features_in_, estimator.feature_names_in_ = encoder.n_features_in_, encoder.feature_names_in_
    return found


def training_rows(estimator: Any, brought: Brought) -> TrainingRows:
    """Rows of a table and their encoded targets, those of weight zero left out.

    Raises:
        ValueError: when a cell is no number, or targets, weights or groups are not one for each row.
    """
    try:
        X, y = _first_rows(estimator, brought.X, brought.y)
    except TypeError as error:
        if "NA is ambiguous" not in str(error):
            raise
        raise ValueError("y has missing values, pandas.NA; leave out the rows where it is missing.") from None
    weight = checked_weights(_check_sample_weight(as_array(brought.sample_weight), X, dtype=np.float64, ensure_non_negative=True))
    groups = None if brought.groups is None else np.asarray(as_array(brought.groups))
    if groups is not None and groups.shape != (len(X),):
        raise ValueError(f"groups has one value for each of the {len(X)} rows; got the shape {groups.shape}.")
    if groups is not None:
        require_order("groups", groups)
    kept = weight > 0
    targets = estimator._targets.learn(y[kept])
    estimator._seen = SeenRows.of(X[kept], targets)
    place = np.where(kept, np.cumsum(kept) - 1, -1)
    weight = estimator._targets.weighed(targets, weight[kept])
    strata = None
    if brought.strata is not None and brought.validation is None:
        strata = strata_to_learn(brought.X, brought.strata, len(X))[kept]
    return TrainingRows(X[kept], targets, weight, None if groups is None else groups[kept], place, strata=strata)


def validation_rows(estimator: Any, validation: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Validation rows and encoded targets as arrays.

    Raises:
        ValueError: when the columns are not those of the training rows, or a cell is no number.
    """
    if not isinstance(validation, DataLoader) and not (isinstance(validation, tuple | list) and len(validation) == 2):
        kind = type(validation).__name__
        raise ValueError(f"validation must be a pair (X, y) of rows that the means have not seen; got {kind}.")
    X, y = pair_of(validation)
    try:
        rows = checked_rows(estimator, as_array(X))
        targets = estimator._targets.encode(y)
    except ValueError as error:
        raise ValueError(f"validation: {error}") from None
    estimator._targets.require(targets, len(rows))
    return rows, targets


def context_rows(estimator: Any, context: Any) -> Any:
    """Rows beyond the data for W₂, checked; the name of a rule for them, or None, as it is.

    Raises:
        ValueError: when the columns are not those of the training rows, a cell is no number, or nothing takes context rows.
    """
    if context is None:
        return None
    if not estimator._takes_context or estimator._by_paper:
        raise ValueError("Context rows are for regression, and not for the paper's protocol; leave context out.")
    covariance_part(estimator.covariance).check_context()
    if isinstance(context, str):
        require_choice("context", context, ContextChoice)
        return context
    try:
        return checked_rows(estimator, context)
    except ValueError as error:
        raise ValueError(f"context: {error}") from None


def asked_means(mean: Any) -> list[Any] | None:
    """The means asked for; None for the plan.

    Raises:
        ValueError: for an empty list.
    """
    if isinstance(mean, str) and mean == "auto":
        return None
    means = list(mean) if isinstance(mean, list | tuple) else [mean]
    if not means:
        raise ValueError("mean is an empty list; name at least one mean.")
    return means


def require_unseen(training: tuple[Any, Any], judging: tuple[Any, Any]) -> None:
    """Refuse rows to judge that were learned from, beyond what copies among the training rows explain; warn where they are many.

    Honest hold-outs of tables with copies have some: 27 % of the wines, where one in four stands there twice.
    """
    share, copied = SeenRows.of(*training).share_of(*judging), share_of_copies(*training)
    if not share >= WARNED_SHARE:
        return
    said = f"{share:.0%} of the validation rows are training rows, features and target"
    if share >= REFUSED_SHARE and share > 2 * copied:
        raise ValueError(
            f"{said}; errors on rows that a mean was trained on are too small. Pass held-out rows, or leave validation "
            "out: means that are trained here are scored by cross-validation."
        )
    warnings.warn(
        f"{said}, and {copied:.0%} of the training rows are there more than once: errors may be larger on other rows.",
        GWIWarning,
        stacklevel=5,
    )


def training_batches(estimator: Any, X: Any, y: Any) -> tuple[Batches, tuple[int, ...]]:
    """Rows of any shape and their targets to learn from, and the shape of a row."""
    if not isinstance(covariance_part(estimator.covariance).inducing_points, str):
        raise ValueError(
            'With a network, inducing points are chosen by gwi, not given: inducing_points must be "auto", "kmeans", '
            '"random" or "greedy", and num_inducing their number.'
        )
    if isinstance(X, DataLoader):
        shape = estimator._targets.look_through(X)
        estimator.n_features_in_ = int(np.prod(shape))
        return Batches(X, None, estimator._targets.encode), shape
    has_shape = len(getattr(X, "shape", ())) > 2
    rows = checked_shapes(as_array(X)) if has_shape else validate_data(estimator, as_array(X), dtype=np.float64)
    if y is None:
        raise ValueError("A fit requires y to be passed, but the target y is None: pass a target for each row, or a loader.")
    targets = estimator._targets.learn(estimator._targets.prepared(y))
    if len(targets) != len(rows):
        raise ValueError(f"There must be as many targets as rows; got {len(targets)} targets and {len(rows)} rows.")
    estimator.n_features_in_ = int(np.prod(rows.shape[1:]))
    estimator._seen = SeenRows.of(rows, targets)
    return Batches(rows, targets, estimator._targets.encode), rows.shape[1:]


def validation_batches(estimator: Any, X: Any, y: Any, shape: tuple[int, ...]) -> Batches:
    """Rows of that shape and their targets to judge on."""
    if isinstance(X, DataLoader):
        return Batches(X, None, estimator._targets.encode)
    rows = shaped_rows(estimator, X)
    if rows.shape[1:] != shape:
        raise ValueError(f"validation rows must have the shape {shape} of the training rows; got {rows.shape[1:]}.")
    targets = estimator._targets.encode(y)
    estimator._targets.require(targets, len(rows))
    return Batches(rows, targets, estimator._targets.encode)
