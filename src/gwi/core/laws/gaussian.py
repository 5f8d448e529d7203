"""Normal and Student's t laws, and their mixtures."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import betaln, logsumexp, ndtr
from scipy.stats import t

from gwi._typing import Array
from gwi.core.distributions import cumulative, log_density, quantile

# Halvings of the bracket of a mixture's quantile: to 12 digits of the components' spread.
NUM_HALVINGS = 40


@dataclass(frozen=True)
class Law:
    """What is predicted at each of N rows: K normal or Student's t laws, mixed.

    Attributes:
        mean: of each component at each row.
        std: their standard deviations.
        degrees_of_freedom: of Student's t; infinity is the normal law.
        weights: of the components, which add up to one; equal ones when None.

    Examples:
        >>> import numpy as np
        >>> from gwi.core.laws.gaussian import Law
        >>> law = Law(mean=np.array([[0.0, 1.0]]), std=np.array([[1.0, 2.0]]))
        >>> law.quantile(0.975).round(2).tolist()
        [1.96, 4.92]
    """

    mean: Float[Array, "K N"]
    std: Float[Array, "K N"]
    degrees_of_freedom: float = math.inf
    weights: tuple[float, ...] | None = None

    @property
    def shares(self) -> Float[Array, " K"]:
        """The weights as numbers."""
        return np.full(len(self.mean), 1 / len(self.mean)) if self.weights is None else np.array(self.weights)

    @property
    def num_rows(self) -> int:
        """N."""
        return self.mean.shape[1]

    @property
    def support(self) -> tuple[float, float]:
        """All numbers."""
        return -math.inf, math.inf

    @property
    def is_discrete(self) -> bool:
        """No."""
        return False

    def rows(self, chosen: Any) -> Law:
        """The laws of some rows."""
        return replace(self, mean=self.mean[:, chosen], std=self.std[:, chosen])

    def expectation(self) -> Float[Array, " N"]:
        """The mean of the mixture."""
        return self.shares @ self.mean

    def variance(self) -> Float[Array, " N"]:
        """The components' mean variance, and the variance of their means."""
        return self.shares @ (np.square(self.std) + np.square(self.mean - self.expectation()))

    def log_density(self, y: Float[Array, " N"]) -> Float[Array, " N"]:
        """log p(y) at each row."""
        parts = log_density((y - self.mean) / self.std, self.degrees_of_freedom) - np.log(self.std)
        return parts[0] if len(parts) == 1 else logsumexp(parts, axis=0, b=self.shares[:, None])

    def cumulative(self, y: Float[Array, " N"]) -> Float[Array, " N"]:
        """P(Y ≤ y) at each row: uniform over rows where the law is right."""
        return self.shares @ cumulative((y - self.mean) / self.std, self.degrees_of_freedom)

    def survival(self, y: Float[Array, " N"]) -> Float[Array, " N"]:
        """P(Y > y) at each row, with all its digits where it is small."""
        return self.shares @ cumulative((self.mean - y) / self.std, self.degrees_of_freedom)

    def quantile(self, level: float | Float[Array, " N"]) -> Float[Array, " N"]:
        """The value at each row with this probability below it, of one level or one a row."""
        each = self.mean + self.std * quantile(np.array(level), self.degrees_of_freedom)
        low, high = each.min(0), each.max(0)
        for _ in range(NUM_HALVINGS if len(each) > 1 else 0):
            middle = (low + high) / 2
            below = self.cumulative(middle) < level
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return (low + high) / 2

    def crps(self, y: Float[Array, " N"]) -> Float[Array, " N"]:
        """E|Y − y| − ½ E|Y − Y'| at each row, the continuous ranked probability score, in closed form."""
        if math.isinf(self.degrees_of_freedom):
            shares = self.shares
            score = shares @ _absolute_moment(self.mean - y, self.std)
            for share, mean, std in zip(shares, self.mean, self.std, strict=True):
                score -= share / 2 * (shares @ _absolute_moment(self.mean - mean, np.hypot(self.std, std)))
            return score
        if len(self.mean) > 1:
            raise ValueError(
                "The CRPS of a mixture is known for normal distributions only; got Student's t with several components."
            )
        d = self.degrees_of_freedom
        scale = self.std[0] * math.sqrt((d - 2) / d)
        z = (y - self.mean[0]) / scale
        # Jordan, Krüger and Lerch (2019), the location-scale family of t.
        spread = 2 * math.sqrt(d) / (d - 1) * math.exp(betaln(0.5, d - 0.5) - 2 * betaln(0.5, d / 2))
        return scale * (z * (2 * t.cdf(z, d) - 1) + 2 * t.pdf(z, d) * (d + z**2) / (d - 1) - spread)

    def sample(self, size: int, rng: np.random.Generator) -> Float[Array, "S N"]:
        """Of a component drawn by lot, by its quantile at a uniform number."""
        levels = rng.uniform(size=(size, self.num_rows)).clip(np.finfo(np.float64).tiny)
        if len(self.mean) == 1:
            mean, std = self.mean[0], self.std[0]
        else:
            component = rng.choice(len(self.mean), size=levels.shape, p=self.shares), np.arange(self.num_rows)
            mean, std = self.mean[component], self.std[component]
        return mean + std * quantile(levels, self.degrees_of_freedom)


def _absolute_moment(mean: Array, std: Array) -> Array:
    """E|Y| of a normal law."""
    z = mean / std
    return 2 * std * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) + mean * (2 * ndtr(z) - 1)
