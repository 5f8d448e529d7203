"""From the numbers that a user measures to those that a likelihood is written for, and laws of the latter back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gwi._typing import Array
from gwi.core.laws.gaussian import Law
from gwi.core.laws.protocol import PredictiveLaw
from gwi.core.laws.transformed import LogLaw, TruncatedLaw, as_normals

# How an end that is not there is written where arrays must be finite.
NO_END = 1e300


@dataclass(frozen=True)
class Outcome:
    """The target as it is, or its logarithm; and a bound below which nothing can come.

    Attributes:
        log: whether the likelihood is one of the logarithm.
        low: the law is cut here; nowhere when None.
    """

    log: bool = False
    low: float | None = None

    @property
    def is_plain(self) -> bool:
        """Whether laws are those of the likelihood."""
        return not self.log and self.low is None

    def encode(self, y: NDArray[Any]) -> Array:
        """Numbers for the likelihood; ends that are not there become infinite.

        Raises:
            ValueError: for numbers that are not positive, of which a logarithm was asked.
        """
        values = np.where(np.abs(y) >= NO_END, np.copysign(np.inf, y), y)
        if not self.log:
            return values
        open_below = (values <= 0) & (np.arange(values.ndim and values.shape[-1]) == 0) if values.shape[-1:] == (2,) else False
        bad = (values <= 0) & np.logical_not(open_below)
        if bad.any():
            raise ValueError(
                f"This likelihood takes the logarithm of the target, but {int(bad.sum())} values are not positive, the first is "
                f"{values[bad][0]:g}; choose another likelihood, or leave these rows out."
            )
        with np.errstate(divide="ignore"):
            return np.log(np.where(open_below, 0.0, values))

    def decode(self, values: Array) -> Array:
        """Numbers of the likelihood as the user measures them."""
        if self.log:
            return np.exp(values)
        return values if self.low is None else np.maximum(values, self.low)

    def law(self, inner: Law) -> PredictiveLaw:
        """Of the user's numbers, from that of the likelihood's."""
        if self.log:
            return LogLaw(as_normals(inner))
        return inner if self.low is None else TruncatedLaw.with_means_of(inner, self.low)


def bounds_of_events(values: NDArray[Any]) -> Array:
    """Bounds from a structured array of events and times: an event is known, of all else the time is a lower bound.

    Raises:
        ValueError: when the fields are not a bool and a number.
    """
    names = values.dtype.names or ()
    events = [name for name in names if values.dtype[name].kind == "b"]
    times = [name for name in names if values.dtype[name].kind in "iuf"]
    if len(names) != 2 or len(events) != 1 or len(times) != 1:
        raise ValueError(
            "A structured target has two fields, whether the event happened (bool) and the time (a number); got "
            f"{', '.join(f'{name} ({values.dtype[name]})' for name in names)}."
        )
    time = values[times[0]].astype(np.float64)
    return np.column_stack([time, np.where(values[events[0]], time, NO_END)])


def as_bounds(y: Any) -> Array:
    """The lower and the upper bound of each target, equal where it is known and infinite where there is none.

    Args:
        y: a structured array of events and times, two columns of bounds, or numbers that are known.

    Raises:
        ValueError: for anything else, and where a lower bound is above its upper one.
    """
    values = np.asarray(y)
    if values.dtype.names is not None:
        values = bounds_of_events(values)
    values = np.asarray(values, dtype=np.float64)
    bounds = np.column_stack([values, values]) if values.ndim == 1 else values
    if bounds.ndim != 2 or bounds.shape[1] != 2 or not len(bounds) or np.isnan(bounds).any():
        raise ValueError(
            "Targets are a structured array of a bool (whether the event happened) and a time, or two columns of bounds; got the "
            f"shape {values.shape}{' with missing numbers' if np.isnan(values).any() else ''}."
        )
    if (bounds[:, 0] > bounds[:, 1]).any():
        raise ValueError("A lower bound is above its upper one; for events and times pass a structured array.")
    return np.where(np.abs(bounds) >= NO_END, np.copysign(np.inf, bounds), bounds)
