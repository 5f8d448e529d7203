"""Numbers of which only bounds may be known: f + σ ε with normal ε, seen exactly, above, below, or between two values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.special import ndtr
from torch import Tensor

from gwi._typing import Array
from gwi.core.linalg import LOG_TWO_PI

# Standard deviations beyond which a bound counts as this far: its square is still a number.
FARTHEST = 1e6
# Of an observation that says nothing, as a share of what an exact one says: no weight is zero.
LEAST_INFORMATION = 1e-6


def _log_normal_density(z: Tensor) -> Tensor:
    return -(z.square() + LOG_TWO_PI) / 2


@dataclass(frozen=True)
class CensoredFamily:
    """y = f + √φ ε, of which two bounds are known; where they are equal, y itself.

    Targets are two rows: the lower bounds, −∞ where there is none, and the upper ones.
    """

    name: ClassVar[str] = "censored"
    num_columns: ClassVar[int] = 2
    is_discrete: ClassVar[bool] = False
    has_dispersion: ClassVar[bool] = True

    @property
    def support(self) -> tuple[float, float]:
        """All numbers."""
        return -math.inf, math.inf

    @staticmethod
    def _ends(y: Tensor, f: Tensor, phi: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Which are exact, and both bounds in standard deviations from f, the nearer of the two tails below zero."""
        low, high = y[0], y[1]
        std = phi.sqrt()
        exact = (low == high).expand_as(low + f + phi)
        # Where y is exact any interval does: it is not looked at.
        a = torch.where(exact, -1.0, ((low - f) / std).clamp(-FARTHEST, FARTHEST))
        b = torch.where(exact, 1.0, ((high - f) / std).clamp(-FARTHEST, FARTHEST))
        return exact, a, b

    @staticmethod
    def _log_mass(a: Tensor, b: Tensor) -> Tensor:
        """log(Φ(b) − Φ(a)), from the tail in which it keeps its digits."""
        turned = a + b > 0
        low, high = torch.where(turned, -b, a), torch.where(turned, -a, b)
        above = torch.special.log_ndtr(high)
        ratio = (torch.special.log_ndtr(low) - above).clamp(max=-1e-300)
        return above + torch.log(-torch.expm1(ratio))

    def log_prob(self, y: Tensor, f: Tensor, phi: Tensor) -> Tensor:
        """The log density of an exact y, the log probability of the interval of any other."""
        exact, a, b = self._ends(y, f, phi)
        value = torch.where(exact, y[0], torch.zeros_like(f))
        density = _log_normal_density((value - f) / phi.sqrt()) - phi.log() / 2
        return torch.where(exact, density, self._log_mass(a, b))

    def _ratios(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """The normal densities at both ends, over the mass between them."""
        mass = self._log_mass(a, b)
        return (_log_normal_density(a) - mass).exp(), (_log_normal_density(b) - mass).exp()

    def score(self, y: Tensor, f: Tensor, phi: Tensor) -> Tensor:
        """(y − f)/φ, or (φ(a) − φ(b))/(Φ(b) − Φ(a)) σ."""
        exact, a, b = self._ends(y, f, phi)
        at_a, at_b = self._ratios(a, b)
        value = torch.where(exact, y[0], torch.zeros_like(f))
        return torch.where(exact, (value - f) / phi, (at_a - at_b) / phi.sqrt())

    def curvature(self, y: Tensor, f: Tensor, phi: Tensor) -> Tensor:
        """1/φ, or less where only bounds are known: −∂² log p, which is never negative."""
        exact, a, b = self._ends(y, f, phi)
        at_a, at_b = self._ratios(a, b)
        slope = at_a - at_b
        bent = (slope.square() - (a * at_a - b * at_b)).clamp(LEAST_INFORMATION, 1.0)
        return torch.where(exact, 1.0, bent) / phi

    def closed_log_marginal(self, y: Tensor, mean: Tensor, variance: Tensor, phi: Tensor) -> Tensor:
        """Under f ~ N(m, v): the same with the variance φ + v."""
        return self.log_prob(y, mean, phi + variance)

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
        """Φ((y − f)/σ)."""
        return ndtr((y - f) / np.sqrt(phi))

    def draw(self, f: Array, phi: Array, rng: np.random.Generator) -> Array:
        """Numbers themselves, without bounds."""
        return f + np.sqrt(phi) * rng.standard_normal(np.broadcast(f, phi).shape)

    def width(self, y: Any, phi: Any) -> Any:
        """σ."""
        return phi**0.5 + 0.0 * y

    def working(self, y: Tensor) -> Tensor:
        """The middle of the bounds, or the one that there is."""
        low, high = y
        middle = torch.where(low.isinf(), high, torch.where(high.isinf(), low, (low + high) / 2))
        return torch.where(middle.isinf(), 0.0, middle)

    def rough_dispersion(self, y: Tensor, mean: Tensor, weight: Tensor) -> float:
        """The mean square of errors, as if the numbers of `working` were exact."""
        return float(((weight * (self.working(y) - mean).square()).sum() / weight.sum()).clamp(1e-4, 1e4))
