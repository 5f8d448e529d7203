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
        bad = (values <= 0) & ~open_below
        if bad.any():
            raise ValueError(
                f"The logarithm of the target is asked for, and {int(bad.sum())} of its values are not positive, the first is "
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
        return inner if self.low is None else TruncatedLaw(inner, self.low)
