"""∫ p(y | f, φ) N(f; m, v) df: the law of any likelihood of one number whose f is Gaussian."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gwi._typing import Array
from gwi.core.laws.protocol import bisected, integrated_crps
from gwi.core.likelihoods.expectations import groups_of_rows, log_marginal, node_rule
from gwi.core.likelihoods.families import Family

# Of counts, so many values are looked at one by one for the CRPS, beyond that as many at equal distances.
MOST_COUNTS, LEFT_OUT = 4000, 1e-12


@dataclass(frozen=True)
class MixedLaw:
    """The law of y at each row.

    Attributes:
        family: p(y | f, φ).
        centre: m.
        spread: v.
        dispersion: φ.
        unit: y is so many times a value of the family.
    """

    family: Family
    centre: Float[Array, " N"]
    spread: Float[Array, " N"]
    dispersion: Float[Array, " N"]
    unit: float = 1.0

    @property
    def num_rows(self) -> int:
        """N."""
        return len(self.centre)

    @property
    def support(self) -> tuple[float, float]:
        """The family's."""
        low, high = self.family.support
        return low * self.unit, high * self.unit

    @property
    def is_discrete(self) -> bool:
        """The family's."""
        return self.family.is_discrete

    def rows(self, chosen: Any) -> MixedLaw:
        """The laws of some rows."""
        return replace(self, centre=self.centre[chosen], spread=self.spread[chosen], dispersion=self.dispersion[chosen])

    def expectation(self) -> Float[Array, " N"]:
        """E E[Y | f]."""
        return self.unit * self._over_f(lambda f, phi, rows: self.family.mean(f, phi), self._smooth)

    def variance(self) -> Float[Array, " N"]:
        """Var E[Y | f] + E Var[Y | f]."""
        mean = torch.from_numpy(self.expectation() / self.unit)[:, None]

        def parts(f: Tensor, phi: Tensor, rows: Tensor) -> Tensor:
            return (self.family.mean(f, phi) - mean[rows]).square() + self.family.variance(f, phi)

        return self.unit**2 * self._over_f(parts, self._smooth)

    def parts(self) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
        """Var E[Y | f], which more data would lower, and E Var[Y | f], which they would not."""
        noise = self.unit**2 * self._over_f(lambda f, phi, rows: self.family.variance(f, phi), self._smooth)
        return np.maximum(self.variance() - noise, 0.0), noise

    def log_density(self, y: Float[Array, " N"]) -> Float[Array, " N"]:
        """By a rule around the mode of p(y | f) N(f)."""
        low, high = self.support
        inside = (y >= low) & (y <= high) & ((y == np.floor(y)) if self.is_discrete else (y > low) | np.isfinite(low))
        found = np.full(len(y), -np.inf)
        if inside.any():
            arguments = (torch.from_numpy(part[inside].copy()) for part in (y / self.unit, *self._columns))
            found[inside] = log_marginal(self.family, *arguments).numpy() - (0 if self.is_discrete else np.log(self.unit))
        return found

    def cumulative(self, y: Float[Array, " N"]) -> Float[Array, " N"]:
        """E P(Y ≤ y | f)."""
        values = torch.from_numpy(np.array(y / self.unit, dtype=np.float64))

        def probability(f: Tensor, phi: Tensor, rows: Tensor) -> Tensor:
            found = self.family.cumulative(values[rows, None].numpy(), f.numpy(), phi.numpy())
            return torch.from_numpy(np.asarray(found))

        width = self.family.width(values.clamp_min(0.0), torch.from_numpy(self.dispersion))
        return np.clip(self._over_f(probability, width), 0.0, 1.0)

    def quantile(self, level: float) -> Float[Array, " N"]:
        """By halving a bracket; of counts the least with that probability."""
        low, high = self._bracket(level)
        if not self.is_discrete:
            return bisected(self, level, low, high)
        low, high = np.full(self.num_rows, -1.0), np.ceil(high)
        while (high - low > 1).any():
            middle = np.floor((low + high) / 2)
            below = self.cumulative(middle) < level
            open_ = high - low > 1
            low, high = np.where(open_ & below, middle, low), np.where(open_ & ~below, middle, high)
        return high

    def _bracket(self, level: float) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
        low, high = (np.full(self.num_rows, end) for end in self.support)
        if np.isfinite(high).all():
            return low, high
        mean, std = self.expectation(), np.sqrt(self.variance())
        high = mean + (1 + std) * self.unit
        while (short := self.cumulative(high) < level).any():
            high = np.where(short, 2 * high + 1, high)
        return low, high

    def crps(self, y: Float[Array, " N"]) -> Float[Array, " N"]:
        """Of numbers by an integral, of counts by a sum."""
        if not self.is_discrete:
            return integrated_crps(self, y)
        last = float(max(self.quantile(1 - LEFT_OUT).max(), y.max(initial=0.0)))
        stride = max(1.0, np.ceil(last / MOST_COUNTS))
        found = np.zeros(self.num_rows)
        for value in np.arange(0.0, last + 1, stride):
            found += stride * np.square(self.cumulative(np.full(self.num_rows, value)) - (value >= y))
        return found

    def sample(self, size: int, rng: np.random.Generator) -> Float[Array, "S N"]:
        """f, then y given f."""
        f = self.centre + np.sqrt(self.spread) * rng.standard_normal((size, self.num_rows))
        return self.unit * self.family.draw(f, np.broadcast_to(self.dispersion, f.shape), rng)

    @property
    def _smooth(self) -> Any:
        """The distance in f over which E[Y | f] changes: one of a link, the noise's of thresholds."""
        return self.family.width(0.0, torch.from_numpy(self.dispersion)) if hasattr(self.family, "thresholds") else 1.0

    @property
    def _columns(self) -> tuple[Array, Array, Array]:
        return self.centre, self.spread, self.dispersion

    def _over_f(self, function: Callable[[Tensor, Tensor, Tensor], Tensor], width: Any) -> Float[Array, " N"]:
        """E h(f, φ) of each row."""
        centre, spread, phi = (torch.from_numpy(np.ascontiguousarray(part)) for part in self._columns)
        std, wide = spread.sqrt(), torch.as_tensor(width, dtype=torch.float64).expand_as(centre)
        found = np.empty(self.num_rows)
        for rows in groups_of_rows(std, wide):
            nodes, weights = node_rule(std[rows], wide[rows])
            found[rows.numpy()] = (
                function(centre[rows, None] + std[rows, None] * nodes, phi[rows, None], rows) @ weights
            ).numpy()
        return found
