"""Standardising rows and targets, and back; and from the user's rows to the rows that Q knows."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped
from numpy.typing import NDArray
from torch import Tensor, nn

from gwi._typing import Array
from gwi.core.features import NetworkFeatures
from gwi.core.module_calls import LaidOut, RowLayout
from gwi.exceptions import GWIWarning, UserError

# Standard deviations below it lose digits, or are zero, when they are squared.
SMALLEST_STD = 1e-150


@dataclass(frozen=True)
class Scales:
    """Centre and scale of each column of the rows and of the targets, weighted by rows.

    Attributes:
        x_centre: of the features.
        x_scale: of the features, one for constant columns.
        y_centre: of the targets.
        y_scale: of the targets, one for constant ones.
    """

    x_centre: Array
    x_scale: Array
    y_centre: Array
    y_scale: Array

    @staticmethod
    def of(x: Array, y: Array, weight: Array) -> Scales:
        """Those of these rows.

        Raises:
            ValueError: when squares overflow or underflow.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            moments = *_centre_and_std(x, weight), *_centre_and_std(y, weight)
        for values, std in ((x, moments[1]), (y, moments[3])):
            if ((std < SMALLEST_STD) & (np.ptp(values, axis=0) > 0)).any():
                raise ValueError("Values are so small that their squares underflow; rescale the columns (1e-150 is too little).")
        return Scales.from_moments(*moments)

    @staticmethod
    def from_moments(x_centre: Array, x_std: Array, y_centre: Array, y_std: Array) -> Scales:
        """Those with this centre and standard deviation of each column; a constant column is only centred.

        Raises:
            ValueError: when squares overflowed.
        """
        if not (np.isfinite(x_std).all() and np.isfinite(y_std).all()):
            raise ValueError("Values are so large that their squares overflow; rescale the columns (1e150 is too much).")
        return Scales(x_centre, _scale(x_centre, x_std), y_centre, _scale(y_centre, y_std))

    def rows(self, x: Array, device: torch.device | str) -> Float[Tensor, "N D"]:
        """Standardised rows."""
        return torch.as_tensor((x - self.x_centre) / self.x_scale, device=device)

    def targets(self, y: Array, device: torch.device | str) -> Float[Tensor, "J N"]:
        """Standardised targets, one row an output."""
        return torch.as_tensor(((y - self.y_centre) / self.y_scale).T.copy(), device=device)

    def original_rows(self, x: Array) -> Array:
        """Rows in the user's own units."""
        return x * self.x_scale + self.x_centre


def _centre_and_std(values: Array, weight: Array) -> tuple[Array, Array]:
    centre = np.average(values, axis=0, weights=weight)
    return centre, np.sqrt(np.average((values - centre) ** 2, axis=0, weights=weight))


def _scale(centre: Array, std: Array) -> Array:
    # A constant column has a standard deviation of rounding errors; dividing by one leaves it constant.
    return np.where(std > 1e-13 * np.maximum(np.abs(centre), np.finfo(float).tiny), std, 1.0)


def finite(values: Array, what: str) -> Array:
    """Values with one column for each row, once all are numbers.

    Raises:
        UserError: when some overflowed, naming the first row.
    """
    if np.isfinite(values).all():
        return values
    bad = np.flatnonzero(~np.isfinite(values).all(axis=tuple(range(values.ndim - 1))))
    if len(bad):
        raise UserError(
            f"The {what} is not finite at {len(bad)} of {values.shape[-1]} rows, the first is row {bad[0]}: numbers of the rows "
            "or of the model are so large that they overflow; look for such values, or fit the model again."
        )
    return values


# Rows held at a time.
CHUNK_SIZE = 2048
# A value is far outside of the training rows' where it is beyond them by this share of their range; less is rounding. Of many
# columns some are beyond by chance: of 400 new rows like 100 known ones, 289 were called far in a table of 2,000 columns. With
# this many columns the share is twice as large, and grows with their logarithm.
FAR_OUTSIDE, ROUNDING, DOUBLED_AT = 0.25, 1e-9, 500


class StandardisedRows(nn.Module):
    """Rows of any shape, flattened and standardised.

    Args:
        scales: centre and scale of each column.
        shape: of one row.
        span: the lowest and the highest value of each column of the training rows; None where columns mean nothing. Columns
            behind those are values that a row carries.
    """

    # Rows are one array as they come.
    layout = None
    centre: Tensor
    scale: Tensor

    def __init__(self, scales: Scales, shape: tuple[int, ...], span: tuple[Array, Array] | None = None):
        super().__init__()
        self.scales = scales
        self.shape = tuple(shape)
        self.span = span
        self._limits = None if span is None else _limits(*span)
        for name, value in (("centre", scales.x_centre), ("scale", scales.x_scale)):
            self.register_buffer(name, torch.tensor(value, dtype=torch.float64), persistent=False)

    def spanning(self, x: Float[Tensor, "N D"]) -> StandardisedRows:
        """The same with the range of these training rows, standardised; of pixels without."""
        if not self.is_table:
            return self
        low, high = (self.scales.original_rows(end.cpu().numpy()) for end in (x.amin(0), x.amax(0)))
        return StandardisedRows(self.scales, self.shape, (low, high))

    def reaching(self, X: Float[Array, "N E"]) -> StandardisedRows:
        """The same with a range that holds these rows too."""
        if self.span is None:
            return self
        X = X[:, : len(self.span[0])]
        low, high = np.minimum(self.span[0], X.min(0)), np.maximum(self.span[1], X.max(0))
        return StandardisedRows(self.scales, self.shape, (low, high))

    def outside(self, X: Float[Array, "N E"]) -> Bool[NDArray[Any], "N D"]:
        """Which values of a row's own columns are far outside of the training rows'; none where their range is not known."""
        if self._limits is None:
            return np.zeros(X.shape, dtype=np.bool_)
        low, high = self._limits
        X = X[:, : len(low)]
        return (low > X) | (high < X)

    def holds(self, X: Float[Array, "N E"]) -> bool:
        """Whether none are."""
        if self._limits is None:
            return True
        low, high = self._limits
        X = X[:, : len(low)]
        return not ((low > X).any() or (high < X).any())

    @property
    def num_own(self) -> int:
        """Columns of a row that are its own, and no value of a mean that it carries along."""
        return math.prod(self.shape) if self.span is None else len(self.span[0])

    @property
    def is_table(self) -> bool:
        """Whether each number of a row is a column that means something by itself, as a pixel does not."""
        return len(self.shape) == 1

    def forward(self, x: Float[Tensor, "N ..."]) -> Float[Tensor, "N D"]:
        """The rows that Q knows."""
        flat = x.flatten(1).double()
        if self.centre.device != flat.device:
            return (flat - self.centre.to(flat)) / self.scale.to(flat)
        return (flat - self.centre) / self.scale


def _limits(low: Array, high: Array) -> tuple[Array, Array]:
    """Beyond which values are far outside."""
    share = FAR_OUTSIDE * (1 + math.log(max(len(low), 1)) / math.log(DOUBLED_AT))
    margin = np.maximum(share * (high - low), ROUNDING * np.maximum(np.abs(low), np.abs(high)))
    return low - margin, high + margin


class OutputsAndFeatures(nn.Module):
    """A frozen network's outputs and features side by side, from one pass: Q's mean are the first columns, its kernel is on the
    rest.

    Args:
        features: of the network.
        scales: of the outputs, which are standardised by them.
        shape: of one row.
    """

    def __init__(self, features: NetworkFeatures, scales: Scales, shape: tuple[int, ...]):
        super().__init__()
        self.features = features
        self.scales = scales
        self.shape = tuple(shape)

    is_table = False

    @property
    def num_own(self) -> int:
        """Numbers of a row."""
        return math.prod(self.shape)

    @property
    def layout(self) -> RowLayout | None:
        """Of the parts of a row, where the network takes several, or tokens."""
        network = self.features.network
        return network.layout if isinstance(network, LaidOut) else None

    def forward(self, x: Float[Tensor, "N ..."]) -> Float[Tensor, "N E"]:
        """The rows that Q knows."""
        outputs, features = self.features.evaluate(x)
        outputs = (outputs - outputs.new_tensor(self.scales.y_centre)) / outputs.new_tensor(self.scales.y_scale)
        return torch.cat([outputs, features], dim=1)


Embedding = StandardisedRows | OutputsAndFeatures


def embedded_rows(
    embedding: Embedding, X: Shaped[NDArray[Any], "N ..."], device: torch.device, chunk_size: int = CHUNK_SIZE
) -> Iterator[Float[Tensor, "n E"]]:
    """The rows that Q knows, some at a time."""
    for start in range(0, len(X), chunk_size):
        # A copy only of what torch cannot take: columns of a data frame may be read-only.
        yield embedding(torch.as_tensor(np.require(X[start : start + chunk_size], requirements=["C", "W"])).to(device))


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
        self._num_rows += len(rows)
        if self._embedding.holds(rows):
            return
        outside = self._embedding.outside(rows)
        self._counts = outside.sum(0) + (self._counts if len(self._counts) else 0)
        self._num_far += int(outside.any(1).sum())

    def warn(self, names: Sequence[str] | None) -> None:
        """Name the columns and count the rows, in one warning, if there are any."""
        if not self._num_far:
            return
        far = np.flatnonzero(self._counts)
        shown = ", ".join(f"{repr(names[j]) if names is not None else f'column {j}'} ({self._counts[j]})" for j in far[:8])
        warnings.warn(
            f"{self._num_far} of {self._num_rows} rows are far outside the range of the training rows in {shown}"
            f"{f' and {len(far) - 8} more columns' if len(far) > 8 else ''}: predictions for them are extrapolations; "
            "see ood_score.",
            GWIWarning,
            stacklevel=6,
        )
