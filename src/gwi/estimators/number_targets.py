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
        takes_levels: whether levels in order may be brought.
        takes_events: whether events and times may be brought.
    """

    are_labels = False
    checks = {"multi_output": True, "y_numeric": True}  # noqa: RUF012

    def __init__(self, are_bounds: bool = False, *, takes_levels: bool = True, takes_events: bool = True):
        self.are_bounds, self.takes_levels, self.takes_events = are_bounds, takes_levels, takes_events
        self.one, self.num_columns = True, 1
        self.levels: NDArray[Any] | None = None

    def learn(self, y: Any) -> Array:
        """The targets, one column each, noting how they came."""
        targets = self.encode(y)
        self.one, self.num_columns = y.ndim == 1 or self.are_bounds, targets.shape[1]
        if self.levels is not None:
            # Levels that no row has would have no probability.
            used, places = np.unique(targets.astype(np.int64), return_inverse=True)
            self.levels, targets = self.levels[used], places.reshape(targets.shape).astype(np.float64)
        return targets

    def weighed(self, targets: Array, weight: Array) -> Array:
        """Weights of rows, as they are."""
        return weight

    def prepared(self, y: Any) -> Any:
        """Numbers where events and times, bounds or levels in order were brought; all else as an array."""
        if y is None:
            return None
        found = levels_and_codes(y)
        if found is not None:
            return self._places(*found)
        values = as_array(y)
        values = events_of_frame(values) if self.are_bounds else values
        if isinstance(values, np.ndarray) and values.dtype.names is not None:
            if not self.takes_events:
                raise ValueError('Events and times are targets of likelihood="censored"; got another likelihood.')
            self.are_bounds = True
            return bounds_of_events(values)
        require_numbers(values)
        return finite_bounds(values) if self.are_bounds else values

    def _places(self, levels: NDArray[Any], codes: NDArray[np.float64]) -> NDArray[np.float64]:
        """The place of each level of an ordered categorical."""
        if not self.takes_levels:
            raise ValueError('An ordered categorical is a target of likelihood="ordinal"; for another likelihood pass numbers.')
        if (codes < 0).any():
            raise ValueError(f"{int((codes < 0).sum())} targets have no level; leave these rows out.")
        if self.levels is None:
            self.levels = levels
            return codes
        known = {level: place for place, level in enumerate(self.levels.tolist())}
        found = np.array([known.get(level, -1) for level in levels.tolist()], dtype=np.float64)[codes.astype(np.int64)]
        if (found < 0).any():
            strange = levels[int(codes[found < 0][0])]
            raise ValueError(f"The model was fitted to the levels {', '.join(map(str, known))}; got {strange}.")
        return found

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
            raise ModelFileError(f"{name} is marked as a model of one target and has {len(model.noises)}; save the model again.")
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


def levels_and_codes(y: Any) -> tuple[NDArray[Any], NDArray[np.float64]] | None:
    """Levels in order and the place of each target among them, −1 where there is none; None where these are no such targets."""
    categorical = getattr(y, "cat", y)
    if hasattr(categorical, "codes") and hasattr(categorical, "categories"):
        levels, codes = np.asarray(categorical.categories), np.asarray(categorical.codes, dtype=np.float64)
        return (levels, codes) if bool(getattr(categorical, "ordered", False)) else None
    if type(getattr(y, "dtype", None)).__name__ == "Enum" and hasattr(y, "to_physical"):
        codes = y.to_physical().cast(int).fill_null(-1).to_numpy()
        return np.array(y.dtype.categories.to_list(), dtype=object), codes.astype(np.float64)
    return None


def require_numbers(values: Any) -> None:
    """Refuse text that names no numbers.

    Raises:
        ValueError: saying what words may be.
    """
    kind = np.asarray(values) if hasattr(values, "__len__") and not hasattr(values, "iloc") else values
    dtype = str(getattr(kind, "dtype", ""))
    if not dtype.startswith(("<U", "|S", "str", "string", "object", "category", "String", "Categorical", "StringDType")):
        return
    for value in np.asarray(kind, dtype=object).reshape(-1):
        if isinstance(value, str):
            try:
                float(value)
            except ValueError:
                raise ValueError(
                    f"Targets are numbers; got the text {str(value)!r}. Levels in order are an ordered categorical of pandas or "
                    "an Enum of polars; for classes use GWIClassifier."
                ) from None


def events_of_frame(values: Any) -> Any:
    """A structured array of the two columns of a frame, one of bools and one of numbers; anything else as it is."""
    if not hasattr(values, "columns") or len(values.columns) != 2:
        return values
    columns = [np.asarray(values[name]) for name in values.columns]
    if sorted("b" if column.dtype.kind == "b" else "f" if column.dtype.kind in "iuf" else "" for column in columns) != ["b", "f"]:
        return values
    found = np.empty(len(values), dtype=[(str(name), column.dtype) for name, column in zip(values.columns, columns, strict=True)])
    for name, column in zip(values.columns, columns, strict=True):
        found[str(name)] = column
    return found


def finite_bounds(values: Any) -> Any:
    """Bounds with large numbers where there is none, for checks that ask for finite ones."""
    bounds = np.array(values, dtype=np.float64)
    if bounds.ndim == 1:
        # Numbers that are all known.
        return np.column_stack([bounds, bounds])
    if bounds.ndim == 2 and bounds.shape[1] == 2 and (bounds[:, 0] > bounds[:, 1]).any():
        place = int(np.flatnonzero(bounds[:, 0] > bounds[:, 1])[0])
        raise ValueError(
            f"A target is a pair (lower bound, upper bound); in row {place} it is ({bounds[place, 0]:g}, {bounds[place, 1]:g}). "
            "For events and times pass a structured array of a bool and a number."
        )
    return np.where(np.isinf(bounds), np.copysign(NO_END, bounds), bounds)
