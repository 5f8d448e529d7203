"""Numbers of which only bounds may be known: f + σ ε, seen exactly, above, below, or between two values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.special import ndtr
from torch import Tensor

from gwi._typing import Array
from gwi.core.laws.gaussian import Law
from gwi.core.likelihoods.expectations import gaussian_expectation
from gwi.core.likelihoods.shapes import NORMAL, NoiseShape
from gwi.core.linalg import LOG_TWO_PI

# Standard deviations beyond which a bound counts as this far: its square is still a number.
FARTHEST = 1e6
# Bounds so close, in standard deviations and times their distance from the middle, are looked at around their own middle; and so
# close that what they say is what an exact number says.
CLOSE, TOUCHING = 1e-2, 1e-5
# Of an observation that says nothing, as a share of what an exact one says: no weight is zero.
LEAST_INFORMATION = 1e-6


def _log_normal_density(z: Tensor) -> Tensor:
    return -(z.square() + LOG_TWO_PI) / 2


def _log_mass(a: Tensor, b: Tensor) -> Tensor:
    """log(Φ(b) − Φ(a)), from the tail in which it keeps its digits; of close ends by a series around their middle."""
    middle, length = (a + b) / 2, b - a
    close = length * (1 + middle.abs()) < CLOSE
    turned = middle > 0
    # Gradients pass through both sides of a choice: ends that are close are moved apart on the side that is not taken.
    low = torch.where(close, -1.0, torch.where(turned, -b, a))
    high = torch.where(close, 0.0, torch.where(turned, -a, b))
    above = torch.special.log_ndtr(high)
    ratio = (torch.special.log_ndtr(low) - above).clamp(max=-1e-300)
    c, h = torch.where(close, middle, 0.0), torch.where(close, length, CLOSE).clamp_min(1e-300)
    bent = (c.square() - 1) * h.square() / 24 + (c**4 - 6 * c.square() + 3) * h**4 / 1920
    return torch.where(close, _log_normal_density(c) + h.log() + torch.log1p(bent), above + torch.log(-torch.expm1(ratio)))


@dataclass(frozen=True)
class CensoredFamily:
    """y = f + √φ ε, of which two bounds are known; where they are equal, y itself.

    Targets are two rows: the lower bounds, −∞ where there is none, and the upper ones.

    Attributes:
        shape: the law of ε, a mixture of normal laws.
    """

    shape: NoiseShape = NORMAL
    name: ClassVar[str] = "censored"
    num_columns: ClassVar[int] = 2
    is_discrete: ClassVar[bool] = False
    has_dispersion: ClassVar[bool] = True

    @property
    def label(self) -> str:
        """For the user."""
        return f"{self.name}, {self.shape.name} noise"

    @property
    def support(self) -> tuple[float, float]:
        """All numbers."""
        return -math.inf, math.inf

    def _bounds(self, y: Tensor) -> tuple[Tensor, Tensor]:
        return y[0], y[1]

    def _ends(self, y: Tensor, f: Tensor, phi: Tensor, variance: Tensor | float = 0.0) -> tuple[Tensor, ...]:
        """Which are exact, both bounds in standard deviations from each component, their scales and log weights.

        Components come last.
        """
        low, high = (part[..., None] for part in self._bounds(y))
        f, phi = f[..., None], phi[..., None]
        extra = variance[..., None] if isinstance(variance, Tensor) else variance
        weights, offsets, scales = self.shape.like(f)
        centre, std = f + phi.sqrt() * offsets, (phi * scales.square() + extra).sqrt()
        exact = (low == high).expand_as(low + centre + std)

        def distance(end: Tensor, side: float) -> Tensor:
            # Gradients pass through both sides of a choice: no infinite number may come near them.
            there = end.isinf()
            found = ((torch.where(there, 0.0, end) - centre) / std).clamp(-FARTHEST, FARTHEST)
            # Where y is exact any interval does: it is not looked at.
            return torch.where(exact, side, torch.where(there, side * FARTHEST, found))

        a, b = distance(low, -1.0), distance(high, 1.0)
        z = (torch.where(exact, torch.where(low.isinf(), 0.0, low), 0.0) - centre) / std
        return exact, a, b, z, std, weights.log()

    def _log_parts(self, y: Tensor, f: Tensor, phi: Tensor, variance: Tensor | float = 0.0) -> Tensor:
        """log π_k p_k(y): the density of an exact y, the probability of the interval of any other."""
        exact, a, b, z, std, log_weights = self._ends(y, f, phi, variance)
        return log_weights + torch.where(exact, _log_normal_density(z) - std.log(), _log_mass(a, b))

    def log_prob(self, y: Tensor, f: Tensor, phi: Tensor) -> Tensor:
        """The log density of an exact y, the log probability of the interval of any other."""
        return self._log_parts(y, f, phi).logsumexp(-1)

    def closed_log_marginal(self, y: Tensor, mean: Tensor, variance: Tensor, phi: Tensor) -> Tensor:
        """Under f ~ N(m, v): each component's variance grows by v."""
        return self._log_parts(y, mean, phi, variance).logsumexp(-1)

    def expected(self, y: Tensor, mean: Tensor, variance: Tensor, phi: Tensor) -> Tensor:
        """E log p under f ~ N(m, v)."""
        width = self.width(torch.zeros_like(mean), phi)
        return gaussian_expectation(lambda f, rows: self.log_prob(y[..., rows, None], f, phi[rows, None]), mean, variance, width)

    def _derivatives(self, y: Tensor, f: Tensor, phi: Tensor) -> tuple[Tensor, Tensor]:
        """∂ log p/∂f and −∂² log p/∂f²."""
        exact, a, b, z, std, log_weights = self._ends(y, f, phi)
        mass = _log_mass(a, b)
        touching = ~exact & ((b - a) * (1 + (a + b).abs() / 2) < TOUCHING)
        z, known = torch.where(touching, (a + b) / 2, z), exact | touching
        at_a, at_b = (_log_normal_density(a) - mass).exp(), (_log_normal_density(b) - mass).exp()
        slope = torch.where(known, z, at_a - at_b) / std
        bent = torch.where(known, 1.0, (at_a - at_b).square() - (a * at_a - b * at_b)) / std.square()
        share = (log_weights + torch.where(exact, _log_normal_density(z) - std.log(), mass)).softmax(-1)
        score = (share * slope).sum(-1)
        # What is known of the component adds to what is known of y given it.
        return score, (share * bent).sum(-1) - (share * slope.square()).sum(-1) + score.square()

    def score(self, y: Tensor, f: Tensor, phi: Tensor) -> Tensor:
        """(y − f)/φ for an exact y and normal noise, (φ(a) − φ(b))/(Φ(b) − Φ(a)) σ for bounds."""
        return self._derivatives(y, f, phi)[0]

    def curvature(self, y: Tensor, f: Tensor, phi: Tensor) -> Tensor:
        """−∂² log p/∂f²: 1/φ for an exact y and normal noise, less where only bounds are known, never negative."""
        return torch.maximum(self._derivatives(y, f, phi)[1], LEAST_INFORMATION / phi)

    def mean(self, f: Tensor, phi: Tensor) -> Tensor:
        """f."""
        return f + 0 * phi

    def variance(self, f: Tensor, phi: Tensor) -> Tensor:
        """φ."""
        return phi + 0 * f

    def link(self, mean: Tensor) -> Tensor:
        """f is the mean."""
        return mean

    def cumulative(self, y: Array, f: Array, phi: Array) -> Array:
        """Σ π_k Φ((y − f − σ μ_k)/σ s_k)."""
        z, found = (y - f) / np.sqrt(phi), 0.0
        for weight, offset, scale in zip(self.shape.weights, self.shape.offsets, self.shape.scales, strict=True):
            found = found + weight * ndtr((z - offset) / scale)
        return np.asarray(found)

    def draw(self, f: Array, phi: Array, rng: np.random.Generator) -> Array:
        """Numbers themselves, without bounds."""
        size = np.broadcast(f, phi).shape
        part = rng.choice(len(self.shape.weights), size=size, p=self.shape.weights)
        noise = np.array(self.shape.offsets)[part] + np.array(self.shape.scales)[part] * rng.standard_normal(size)
        return f + np.sqrt(phi) * noise

    def law(self, mean: Array, variance: Array, phi: Array) -> Any:
        """Of y itself under f ~ N(m, v)."""
        offsets, scales = (np.array(part)[:, None] for part in (self.shape.offsets, self.shape.scales))
        return Law(mean + np.sqrt(phi) * offsets, np.sqrt(phi * scales**2 + variance), weights=self.shape.weights)

    def width(self, y: Any, phi: Any) -> Any:
        """The scale of the narrowest component."""
        return min(self.shape.scales) * phi**0.5 + 0.0 * y

    def working(self, y: Tensor) -> Tensor:
        """The middle of the bounds, or the one that there is."""
        low, high = self._bounds(y)
        middle = torch.where(low.isinf(), high, torch.where(high.isinf(), low, (low + high) / 2))
        return torch.where(middle.isinf(), 0.0, middle)

    def rough_dispersion(self, y: Tensor, mean: Tensor, weight: Tensor) -> float:
        """The mean square of errors, as if the numbers of `working` were exact."""
        return float(((weight * (self.working(y) - mean).square()).sum() / weight.sum()).clamp(1e-4, 1e4))
