"""What a user brings, checked and encoded: rows and targets to learn from, rows and targets to judge on."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data
from torch import Tensor
from torch.utils.data import DataLoader

from gwi._validation import as_array
from gwi.core.scaling import Embedding, StandardisedRows
from gwi.exceptions import GWIWarning
from gwi.streaming.batches import Batches, checked_shapes, pair_of


def validation_rows(estimator: Any, validation: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Validation rows and encoded targets as arrays.

    Raises:
        ValueError: when the columns are not those of the training rows, or a cell is no number.
    """
    if not isinstance(validation, DataLoader) and not (isinstance(validation, tuple | list) and len(validation) == 2):
        kind = type(validation).__name__
        raise ValueError(f"validation is a pair, (X, y), of rows that the means have not seen; got {kind}.")
    X, y = (as_array(part) for part in pair_of(validation))
    try:
        with warnings.catch_warnings():
            # An array has no names to compare, which is no matter.
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            rows = validate_data(estimator, X, dtype=np.float64, reset=False)
        targets = estimator._targets.encode(y)
    except ValueError as error:
        raise ValueError(f"validation: {error}") from None
    estimator._targets.require(targets, len(rows))
    return rows, targets


def training_batches(estimator: Any, X: Any, y: Any) -> tuple[Batches, tuple[int, ...]]:
    """Rows of any shape and their targets to learn from, and the shape of a row."""
    if isinstance(X, DataLoader):
        shape = estimator._targets.look_through(X)
        estimator.n_features_in_ = int(np.prod(shape))
        return Batches(X, None, estimator._targets.encode), shape
    rows = shaped_rows(estimator, X, reset=True)
    if y is None:
        raise ValueError("A fit requires y to be passed, but the target y is None: pass a target for each row, or a loader.")
    targets = estimator._targets.learn(as_array(y))
    if len(targets) != len(rows):
        raise ValueError(f"There must be as many targets as rows; got {len(targets)} targets and {len(rows)} rows.")
    estimator.n_features_in_ = int(np.prod(rows.shape[1:]))
    return Batches(rows, targets, estimator._targets.encode), rows.shape[1:]


def validation_batches(estimator: Any, X: Any, y: Any, shape: tuple[int, ...]) -> Batches:
    """Rows of that shape and their targets to judge on."""
    if isinstance(X, DataLoader):
        return Batches(X, None, estimator._targets.encode)
    rows = shaped_rows(estimator, X, reset=False)
    if rows.shape[1:] != shape:
        raise ValueError(f"validation rows must have the shape {shape} of the training rows; got {rows.shape[1:]}.")
    targets = estimator._targets.encode(y)
    estimator._targets.require(targets, len(rows))
    return Batches(rows, targets, estimator._targets.encode)


def shaped_rows(estimator: Any, X: Any, *, reset: bool) -> NDArray[Any]:
    """Rows of any shape, finite: a table as float64, others as float32 unless they are float64."""
    if not (hasattr(X, "shape") and len(X.shape) > 2):
        rows = as_array(X) if isinstance(X, Tensor) else X
        return validate_data(estimator, rows, dtype=np.float64, reset=reset)
    return checked_shapes(as_array(X))


class Watch:
    """Counts rows far outside of the training rows, of all parts of one prediction.

    Args:
        embedding: of the model; None to count nothing.
    """

    def __init__(self, embedding: Embedding | None):
        self._embedding = embedding if isinstance(embedding, StandardisedRows) and embedding.is_table else None
        self._num_rows = self._num_far = 0
        self._counts: NDArray[Any] = np.zeros(0, dtype=np.int64)

    def see(self, rows: NDArray[Any]) -> None:
        """Count some rows."""
        if self._embedding is None:
            return
        outside = self._embedding.outside(rows)
        self._counts = outside.sum(0) + (self._counts if len(self._counts) else 0)
        self._num_rows, self._num_far = self._num_rows + len(rows), self._num_far + int(outside.any(1).sum())

    def warn(self, names: Sequence[str] | None) -> None:
        """Name the columns and count the rows, in one warning, if there are any."""
        if not self._num_far:
            return
        far = np.flatnonzero(self._counts)
        shown = ", ".join(f"{repr(names[j]) if names is not None else f'column {j}'} ({self._counts[j]})" for j in far[:8])
        warnings.warn(
            f"{self._num_far} of {self._num_rows} rows are far outside of the training rows in {shown}"
            f"{f' and {len(far) - 8} more columns' if len(far) > 8 else ''}: the mean extrapolates there; see ood_score.",
            GWIWarning,
            stacklevel=6,
        )
