"""Numbers that take few values in order: y is the level between whose thresholds f + σ ε lies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from gwi._typing import Array
from gwi.core.laws.discrete import DiscreteLaw
from gwi.core.likelihoods.censored import CensoredFamily

# A step between two thresholds is at least this long.
SHORTEST_STEP = 1e-6


@dataclass(frozen=True)
class OrdinalFamily(CensoredFamily):
    """y = the j-th value where f + √φ ε lies between the j-th threshold and the next; targets are places of values.

    Attributes:
        thresholds: between the values, in ascending order, on the scale of f.
        values: in ascending order; their places where only the order means anything.
    """

    thresholds: tuple[float, ...] = (0.0,)
    values: tuple[float, ...] = (0.0, 1.0)
    name: ClassVar[str] = "ordinal"
    num_columns: ClassVar[int] = 1
    is_discrete: ClassVar[bool] = True

    @property
    def label(self) -> str:
        """For the user."""
        return self.name

    @property
    def support(self) -> tuple[float, float]:
        """The least and the largest value."""
        return self.values[0], self.values[-1]

    @property
    def free(self) -> Tensor:
        """The thresholds without bounds: the first, and the logarithms of the steps to the next."""
        at = torch.tensor(self.thresholds, dtype=torch.float64)
        return torch.cat([at[:1], at.diff().clamp_min(SHORTEST_STEP).log()])

    def ends_at(self, free: Tensor) -> Tensor:
        """Thresholds with −∞ and ∞ around them, differentiable."""
        inner = torch.cat([free[:1], free[:1] + free[1:].exp().clamp_min(SHORTEST_STEP).cumsum(0)])
        infinite = torch.full((1,), torch.inf, dtype=free.dtype, device=free.device)
        return torch.cat([-infinite, inner, infinite])

    def at(self, free: Tensor) -> OrdinalFamily:
        """With other thresholds."""
        return replace(self, thresholds=tuple(self.ends_at(free.detach())[1:-1].tolist()))

    def _bounds(self, y: Tensor) -> tuple[Tensor, Tensor]:
        return self.bounds_of(y, self.ends_at(self.free.to(y)))

    @staticmethod
    def bounds_of(y: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
        """The thresholds around the values at these places."""
        place = y.long()
        return ends[place], ends[place + 1]

    def log_marginal_at(self, free: Tensor, y: Tensor, mean: Tensor, variance: Tensor, phi: Tensor) -> Tensor:
        """log p(y) under f ~ N(m, v) with other thresholds, differentiable in them."""
        bounds = torch.stack(self.bounds_of(y, self.ends_at(free)))
        return CensoredFamily(self.shape).closed_log_marginal(bounds, mean, variance, phi)

    def _probabilities(self, f: Tensor, phi: Tensor) -> Tensor:
        """Of each value, which come last."""
        places = torch.arange(len(self.values), dtype=f.dtype, device=f.device)
        return self.log_prob(places, f[..., None], phi[..., None]).exp()

    def mean(self, f: Tensor, phi: Tensor) -> Tensor:
        """Σ v P(v | f)."""
        return self._probabilities(f, phi + 0 * f) @ f.new_tensor(self.values)

    def variance(self, f: Tensor, phi: Tensor) -> Tensor:
        """Σ (v − E)² P(v | f)."""
        p, values = self._probabilities(f, phi + 0 * f), f.new_tensor(self.values)
        return (p * (values - (p @ values)[..., None]).square()).sum(-1)

    def cumulative(self, y: Array, f: Array, phi: Array) -> Array:
        """P(Y ≤ y | f): that f + σ ε lies below the threshold after the last value that is not above y."""
        place = np.searchsorted(np.array(self.values), np.asarray(y), side="right")
        return super().cumulative(np.array([-np.inf, *self.thresholds, np.inf])[place], f, phi)

    def draw(self, f: Array, phi: Array, rng: np.random.Generator) -> Array:
        """Values."""
        return np.array(self.values)[np.searchsorted(np.array(self.thresholds), super().draw(f, phi, rng))]

    def law(self, mean: Array, variance: Array, phi: Array) -> DiscreteLaw:
        """Of the value under f ~ N(m, v)."""
        latent = super().law(mean, variance, phi)
        below = [latent.cumulative(np.full(len(mean), threshold)) for threshold in self.thresholds]
        above = [latent.survival(np.full(len(mean), threshold)) for threshold in self.thresholds]
        # From the tail in which a difference keeps its digits.
        zero = np.zeros(len(mean))
        steps = [
            np.where(below[j] < 0.5, below[j] - (below[j - 1] if j else zero), (above[j - 1] if j else 1.0) - above[j])
            for j in range(len(self.thresholds))
        ]
        found = np.maximum(np.stack([*steps, above[-1]]), 0.0)
        return DiscreteLaw(np.array(self.values), found / found.sum(0))

    def working(self, y: Tensor) -> Tensor:
        """The middle between the thresholds around it; beyond the outer ones half a step."""
        at = y.new_tensor(self.thresholds)
        step = at.diff().mean() if len(at) > 1 else at.new_ones(())
        middles = torch.cat([at[:1] - step / 2, (at[1:] + at[:-1]) / 2, at[-1:] + step / 2])
        return middles[y.long()]
