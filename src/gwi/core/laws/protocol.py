"""What every predictive law can say of N rows, and scores that follow from that alone."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from gwi._typing import Array

# Probabilities between which a law is cut into panels for the integral of its CRPS, and the nodes of a panel: nine digits.
PANELS = np.array([1e-13, 1e-9, 1e-6, 1e-4, 2e-3, 0.02, 0.1, 0.25, 0.4, 0.5])
NODES, WEIGHTS = np.polynomial.legendre.leggauss(16)


@runtime_checkable
class PredictiveLaw(Protocol):
    """One law of y for each of N rows."""

    @property
    def num_rows(self) -> int:
        """N."""
        ...

    @property
    def support(self) -> tuple[float, float]:
        """The least and the largest value that can come."""
        ...

    @property
    def is_discrete(self) -> bool:
        """Whether single values have probability: `log_density` is then its logarithm."""
        ...

    def rows(self, chosen: Any) -> PredictiveLaw:
        """The laws of some rows."""
        ...

    def expectation(self) -> Float[Array, " N"]:
        """E Y."""
        ...

    def variance(self) -> Float[Array, " N"]:
        """Var Y."""
        ...

    def log_density(self, y: Float[Array, " N"]) -> Float[Array, " N"]:
        """log p(y), or of a discrete law log P(Y = y)."""
        ...

    def cumulative(self, y: Float[Array, " N"]) -> Float[Array, " N"]:
        """P(Y ≤ y)."""
        ...

    def quantile(self, level: float) -> Float[Array, " N"]:
        """The least value with at least this probability below or at it."""
        ...

    def crps(self, y: Float[Array, " N"]) -> Float[Array, " N"]:
        """∫ (P(Y ≤ z) − 1{y ≤ z})² dz, the continuous ranked probability score."""
        ...

    def sample(self, size: int, rng: np.random.Generator) -> Float[Array, "S N"]:
        """Independent draws of each row."""
        ...


def integrated_crps(law: Any, y: Float[Array, " N"]) -> Float[Array, " N"]:
    """The CRPS of a law with a density, from its distribution function by Gauss–Legendre between quantiles and y."""
    levels = np.concatenate([PANELS, 1 - PANELS[-2::-1]])
    # Where panels end need not be known to many digits.
    quantile = getattr(law, "rough_quantile", law.quantile)
    edges = np.stack([quantile(float(level)) for level in levels])
    edges = np.sort(np.concatenate([edges, y[None]]), axis=0)
    found = np.zeros_like(y)
    for low, high in pairwise(edges):
        half, above = (high - low) / 2, (low + high) / 2 >= y
        for node, weight in zip(NODES, WEIGHTS, strict=True):
            found += weight * half * np.square(law.cumulative(low + half * (1 + node)) - above)
    return found


def pit(law: Any, y: Float[Array, " N"], seed: int = 0) -> Float[Array, " N"]:
    """Where y lies in its law, uniform where that is right; where F jumps at y a place drawn by lot inside of the jump."""
    found = law.cumulative(y)
    if not law.is_discrete:
        return found
    jump = np.exp(law.log_density(y))
    return np.clip(found - jump * np.random.default_rng(seed).uniform(size=len(y)), 0.0, 1.0)


def survival_of(law: Any, y: Float[Array, " N"]) -> Float[Array, " N"]:
    """P(Y > y), with all its digits where the law has them."""
    found: Array = law.survival(y) if hasattr(law, "survival") else 1 - law.cumulative(y)
    return found


def most_probable(law: Any) -> NDArray[np.int64]:
    """The place of the most probable of few values."""
    return law.probabilities.argmax(0)


def log_likelihood_of_bounds(law: Any, y: Float[Array, "N 2"]) -> Float[Array, " N"]:
    """log p(y) where both bounds are one, else the log probability between them; absurdly far ones are none."""
    low, high = y.T
    exact = low == high
    found = np.empty(len(y))
    if exact.any():
        found[exact] = law.rows(exact).log_density(low[exact])
    if not exact.all():
        some, a, b = law.rows(~exact), low[~exact], high[~exact]
        above, below = some.survival(a), some.cumulative(a)
        # From the tail in which the difference keeps its digits.
        mass = np.where(below < 0.5, some.cumulative(b) - below, above - some.survival(b))
        found[~exact] = np.log(np.maximum(mass, np.finfo(np.float64).tiny))
    return found
