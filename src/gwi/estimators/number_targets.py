"""The targets of a regressor: numbers as they come, bounds of them, or levels in order."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array
from torch.utils.data import DataLoader

from gwi._typing import Array
from gwi._validation import as_array
from gwi.core.outcomes import NO_END, bounds_of_events
from gwi.exceptions import ModelFileError


class NumberTargets:
    """One number or several for each row; `one` says whether the user gave one axis, `levels` are those of a categorical.

    Args:
        are_bounds: whether two columns are the bounds of one number.
    """

    are_labels = False
    checks = {"multi_output": True, "y_numeric": True}  # noqa: RUF012

    def __init__(self, are_bounds: bool = False):
        self.are_bounds = are_bounds
        self.one, self.num_columns = True, 1
        self.levels: NDArray[Any] | None = None

    def learn(self, y: Any) -> Array:
        """The targets, one column each, noting how they came."""
        targets = self.encode(y)
        self.one, self.num_columns = y.ndim == 1 or self.are_bounds, targets.shape[1]
        return targets

    def weighed(self, targets: Array, weight: Array) -> Array:
        """Weights of rows, as they are."""
        return weight

    def prepared(self, y: Any) -> Any:
        """Numbers where events and times, bounds or levels in order were brought; all else as an array."""
        if y is None:
            return None
        if _is_ordered(y):
            return self._places(y)
        values = as_array(y)
        if isinstance(values, np.ndarray) and values.dtype.names is not None:
            self.are_bounds = True
            return bounds_of_events(values)
        return finite_bounds(values) if self.are_bounds else values

    def _places(self, y: Any) -> NDArray[np.float64]:
        """The place of each level of an ordered categorical."""
        categorical = getattr(y, "cat", y)
        levels, codes = np.asarray(categorical.categories), np.asarray(categorical.codes, dtype=np.float64)
        if self.levels is not None and not np.array_equal(levels, self.levels):
            raise ValueError(f"The levels were {self.levels.tolist()} in the fit; got {levels.tolist()}.")
        if (codes < 0).any():
            raise ValueError(f"{int((codes < 0).sum())} targets have no level; leave these rows out.")
        self.levels = levels
        return codes

    def encode(self, y: Any) -> Array:
        """The targets, one column each."""
        values = check_array(self.prepared(y), dtype=np.float64, ensure_2d=False, input_name="y")
        return values.reshape(len(values), -1)

    def require(self, targets: Array, num_rows: int) -> None:
        """Refuse validation targets that are not those of the training rows."""
        if len(targets) != num_rows:
            raise ValueError(f"validation needs a target for each row; got {len(targets)} targets and {num_rows} rows.")
        if targets.shape[1] != self.num_columns:
            raise ValueError(f"validation needs {self.num_columns} target(s), like the training rows; got {targets.shape[1]}.")

    def learn_source(self, values: NDArray[Any] | None, asked: Any, num_outputs: int) -> None:
        """Note how the columns of a source were asked for."""
        self.one = num_outputs == 1 and not isinstance(asked, list | tuple)

    def from_source(self, values: NDArray[Any], asked: Any) -> NDArray[Any]:
        """Targets of a source in memory as a user would pass them."""
        return values[:, 0] if values.shape[1] == 1 and not isinstance(asked, list | tuple) else values

    def restore(self, model: Any, one: bool, levels: NDArray[Any] | None, name: str) -> None:
        """What a file says of the targets."""
        if one and len(model.noises) != 1:
            raise ModelFileError(f"{name} says one target and has {len(model.noises)}; save the model again.")
        if levels is not None and len(levels) != model.num_levels:
            raise ModelFileError(f"{name} names {len(levels)} levels and has {model.num_levels}; save the model again.")
        self.levels = levels
        self.one, self.num_columns, self.are_bounds = one, model.num_columns, model.has_bounds

    def look_through(self, loader: DataLoader[Any]) -> tuple[int, ...]:
        """Note how the targets of a loader come; the shape of its rows."""
        for rows, targets in loader:
            self.learn(as_array(targets))
            return tuple(rows.shape[1:])
        raise ValueError("The loader is empty; a fit needs rows.")


def _is_ordered(y: Any) -> bool:
    """Whether these are levels of an ordered categorical of pandas."""
    categorical = getattr(y, "cat", y)
    return hasattr(categorical, "codes") and hasattr(categorical, "categories") and bool(getattr(categorical, "ordered", False))


def finite_bounds(values: Any) -> Any:
    """Bounds with large numbers where there is none, for checks that ask for finite ones."""
    bounds = np.array(values, dtype=np.float64)
    if bounds.ndim == 1:
        return bounds
    if bounds.ndim == 2 and bounds.shape[1] == 2 and (bounds[:, 0] > bounds[:, 1]).any():
        place = int(np.flatnonzero(bounds[:, 0] > bounds[:, 1])[0])
        raise ValueError(
            f"A target is a pair (lower bound, upper bound); in row {place} it is ({bounds[place, 0]:g}, {bounds[place, 1]:g}). "
            "For events and times pass a structured array of a bool and a number."
        )
    return np.where(np.isinf(bounds), np.copysign(NO_END, bounds), bounds)
