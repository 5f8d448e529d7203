"""The law of a number that takes some few values only."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from gwi._typing import Array

# Of a value: farther from all of them than this share of their spread is none of them.
SAME = 1e-9


@dataclass(frozen=True)
class DiscreteLaw:
    """A probability for each of K values at each of N rows.

    Attributes:
        values: in ascending order.
        probabilities: that add up to one at each row.
    """

    values: Float[Array, " K"]
    probabilities: Float[Array, "K N"]

    @property
    def num_rows(self) -> int:
        """N."""
        return self.probabilities.shape[1]

    @property
    def support(self) -> tuple[float, float]:
        """The least and the largest value."""
        return float(self.values[0]), float(self.values[-1])

    @property
    def is_discrete(self) -> bool:
        """Yes."""
        return True

    def rows(self, chosen: Any) -> DiscreteLaw:
        """The laws of some rows."""
        return replace(self, probabilities=self.probabilities[:, chosen])

    def expectation(self) -> Float[Array, " N"]:
        """Σ v p(v)."""
        return self.values @ self.probabilities

    def variance(self) -> Float[Array, " N"]:
        """Σ (v − E Y)² p(v)."""
        return (np.square(self.values[:, None] - self.expectation()) * self.probabilities).sum(0)

    def log_density(self, y: Float[Array, " N"]) -> Float[Array, " N"]:
        """log P(Y = y); minus infinity of what is none of the values."""
        place = np.abs(self.values[:, None] - y).argmin(0)
        known = np.abs(self.values[place] - y) <= SAME * max(float(np.ptp(self.values)), float(np.abs(self.values).max()))
        with np.errstate(divide="ignore"):
            return np.where(known, np.log(self.probabilities[place, np.arange(self.num_rows)]), -np.inf)

    def cumulative(self, y: Float[Array, " N"]) -> Float[Array, " N"]:
        """P(Y ≤ y)."""
        return np.minimum((self.probabilities * (self.values[:, None] <= y)).sum(0), 1.0)

    def survival(self, y: Float[Array, " N"]) -> Float[Array, " N"]:
        """P(Y > y)."""
        return np.minimum((self.probabilities * (self.values[:, None] > y)).sum(0), 1.0)

    def quantile(self, level: float) -> Float[Array, " N"]:
        """The least value with at least this probability at or below it."""
        # Rounding must not reach for a value beyond the last.
        reached = self.probabilities.cumsum(0) >= min(level, 1.0) - 1e-12
        reached[-1] = True
        return self.values[reached.argmax(0)]

    def crps(self, y: Float[Array, " N"]) -> Float[Array, " N"]:
        """∫ (P(Y ≤ z) − 1{y ≤ z})² dz: a sum over the steps between values, and between y and them."""
        below = self.probabilities.cumsum(0)
        low, high = self.values[:-1, None], self.values[1:, None]
        # Of each step the part before y and the part from y on.
        before = np.clip(y, low, high) - low
        found = (before * np.square(below[:-1]) + (high - low - before) * np.square(1 - below[:-1])).sum(0)
        return found + np.maximum(self.values[0] - y, 0.0) + np.maximum(y - self.values[-1], 0.0)

    def sample(self, size: int, rng: np.random.Generator) -> Float[Array, "S N"]:
        """Values by lot."""
        below = self.probabilities.cumsum(0)
        place = (rng.uniform(size=(size, 1, self.num_rows)) > below[None, :-1]).sum(1)
        return self.values[place]
