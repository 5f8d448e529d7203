"""Likelihoods of one number given f: counts, positive numbers, numbers between bounds.

Each is a frozen record with the same functions, of tensors that broadcast: y, f and the dispersion φ > 0, which is larger where
y spreads more. `core.likelihoods.expectations` integrates them over f; nothing else of the library knows their formulas.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from scipy.special import betainc, gammainc, gammaincc
from torch import Tensor

from gwi._typing import Array
from gwi.core.likelihoods.counting import drawn_counts, moments_of_log_link, negative_binomial_log_prob, poisson_log_prob

# Of the dispersion, beyond which nothing changes but digits are lost; and of a mean, in logarithms.
LEAST_DISPERSION, MOST_DISPERSION, MOST_LOG = 1e-6, 1e4, 80.0
# A mean between bounds keeps so far from them.
MARGIN = 1e-6


@runtime_checkable
class Family(Protocol):
    """A likelihood p(y | f, φ) of one number.

    Attributes:
        name: for the user.
        num_columns: numbers that say what y is: one, or for an observation between two bounds two.
        is_discrete: whether y are whole numbers.
        has_dispersion: whether φ means anything.
        support: the least and the largest y.
    """

    name: ClassVar[str]
    num_columns: ClassVar[int]
    is_discrete: ClassVar[bool]
    has_dispersion: ClassVar[bool]

    @property
    def support(self) -> tuple[float, float]: ...  # noqa: D102

    def log_prob(self, y: Tensor, f: Tensor, phi: Tensor) -> Tensor:
        """log p(y | f, φ)."""
        ...

    def score(self, y: Tensor, f: Tensor, phi: Tensor) -> Tensor:
        """∂ log p/∂f."""
        ...

    def curvature(self, y: Tensor, f: Tensor, phi: Tensor) -> Tensor:
        """E[−∂² log p/∂f²], at least zero: what Gauss and Newton take for the second derivative."""
        ...

    def mean(self, f: Tensor, phi: Tensor) -> Tensor:
        """E[Y | f]."""
        ...

    def variance(self, f: Tensor, phi: Tensor) -> Tensor:
        """Var[Y | f]."""
        ...

    def link(self, mean: Tensor) -> Tensor:
        """f of a mean."""
        ...

    def cumulative(self, y: Array, f: Array, phi: Array) -> Array:
        """P(Y ≤ y | f)."""
        ...

    def draw(self, f: Array, phi: Array, rng: np.random.Generator) -> Array:
        """Y given f."""
        ...

    def width(self, y: Any, phi: Any) -> Any:
        """The distance in f over which p(y | f) changes: nodes of a rule over f lie closer."""
        ...

    def working(self, y: Tensor) -> Tensor:
        """A number of the kind of f for each target, with noise: what the evidence of a Gaussian model is taken of."""
        ...

    def rough_dispersion(self, y: Tensor, mean: Tensor, weight: Tensor) -> float:
        """φ by moments."""
        ...


def _rate(f: Tensor) -> Tensor:
    return f.clamp(-MOST_LOG, MOST_LOG).exp()


@dataclass(frozen=True)
class PoissonFamily:
    """Counts with mean and variance e^f."""

    name: ClassVar[str] = "poisson"
    num_columns: ClassVar[int] = 1
    is_discrete: ClassVar[bool] = True
    has_dispersion: ClassVar[bool] = False

    @property
    def support(self) -> tuple[float, float]:
        """All counts."""
        return 0.0, math.inf

    def log_prob(self, y: Tensor, f: Tensor, phi: Tensor) -> Tensor:
        """y f − e^f − log y!."""
        return poisson_log_prob(y, f, _rate(f))

    def expected(self, y: Tensor, mean: Tensor, variance: Tensor, phi: Tensor) -> Tensor:
        """E log p under f ~ N(m, v)."""
        rate, grown = _rate(mean), _rate(mean + variance / 2)
        return poisson_log_prob(y, mean, rate) + rate - grown

    def moments(self, mean: Tensor, variance: Tensor, phi: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """E E[Y | f], Var E[Y | f] and E Var[Y | f] under f ~ N(m, v)."""
        first, _, spread = moments_of_log_link(mean, variance)
        return first, spread, first

    def score(self, y: Tensor, f: Tensor, phi: Tensor) -> Tensor:
        """y − e^f."""
        return y - _rate(f)

    def curvature(self, y: Tensor, f: Tensor, phi: Tensor) -> Tensor:
        """e^f."""
        return _rate(f).expand_as(y + f)

    def mean(self, f: Tensor, phi: Tensor) -> Tensor:
        """e^f."""
        return _rate(f)

    def variance(self, f: Tensor, phi: Tensor) -> Tensor:
        """e^f."""
        return _rate(f)

    def link(self, mean: Tensor) -> Tensor:
        """The logarithm."""
        return mean.log()

    def cumulative(self, y: Array, f: Array, phi: Array) -> Array:
        """The chance of a Gamma variable with shape y + 1 above e^f."""
        return self.continued(np.floor(y), f, phi)

    def continued(self, y: Array, f: Array, phi: Array) -> Array:
        """The same without steps."""
        return np.where(y <= -1, 0.0, gammaincc(np.maximum(y, -1) + 1, np.exp(f)))

    def draw(self, f: Array, phi: Array, rng: np.random.Generator) -> Array:
        """Counts."""
        return drawn_counts(np.exp(f), rng)

    def width(self, y: Any, phi: Any) -> Any:
        """1/√(y + 1)."""
        return (y + 1.0) ** -0.5 + 0.0 * phi

    def working(self, y: Tensor) -> Tensor:
        """log(y + ½)."""
        return (y + 0.5).log()

    def rough_dispersion(self, y: Tensor, mean: Tensor, weight: Tensor) -> float:
        """None."""
        return 1.0


@dataclass(frozen=True)
class NegativeBinomialFamily:
    """Counts with mean μ = e^f and variance μ + φ μ²: Poisson counts whose rates vary by a Gamma law with shape 1/φ."""

    name: ClassVar[str] = "negative-binomial"
    num_columns: ClassVar[int] = 1
    is_discrete: ClassVar[bool] = True
    has_dispersion: ClassVar[bool] = True

    @property
    def support(self) -> tuple[float, float]:
        """All counts."""
        return 0.0, math.inf

    def log_prob(self, y: Tensor, f: Tensor, phi: Tensor) -> Tensor:
        """log Γ(y + s) − log Γ(s) − log y! + y f + s log s − (y + s) log(s + e^f), s = 1/φ."""
        return negative_binomial_log_prob(y, f.clamp(-MOST_LOG, MOST_LOG), 1 / phi)

    def moments(self, mean: Tensor, variance: Tensor, phi: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """E E[Y | f], Var E[Y | f] and E Var[Y | f] under f ~ N(m, v)."""
        first, second, spread = moments_of_log_link(mean, variance)
        return first, spread, first + phi * second

    def score(self, y: Tensor, f: Tensor, phi: Tensor) -> Tensor:
        """(y − μ)/(1 + φ μ)."""
        rate = _rate(f)
        return (y - rate) / (1 + phi * rate)

    def curvature(self, y: Tensor, f: Tensor, phi: Tensor) -> Tensor:
        """μ/(1 + φ μ)."""
        rate = _rate(f)
        return (rate / (1 + phi * rate)).expand_as(y + f)

    def mean(self, f: Tensor, phi: Tensor) -> Tensor:
        """e^f."""
        return _rate(f)

    def variance(self, f: Tensor, phi: Tensor) -> Tensor:
        """μ + φ μ²."""
        rate = _rate(f)
        return rate + phi * rate.square()

    def link(self, mean: Tensor) -> Tensor:
        """The logarithm."""
        return mean.log()

    def cumulative(self, y: Array, f: Array, phi: Array) -> Array:
        """The regularised incomplete beta function at s/(s + μ), with s and y + 1."""
        return self.continued(np.floor(y), f, phi)

    def continued(self, y: Array, f: Array, phi: Array) -> Array:
        """The same without steps."""
        share = 1 / (1 + phi * np.exp(f))
        return np.where(y <= -1, 0.0, betainc(1 / phi, np.maximum(y, -1) + 1, share))

    def draw(self, f: Array, phi: Array, rng: np.random.Generator) -> Array:
        """Poisson counts of Gamma rates."""
        return drawn_counts(rng.gamma(1 / phi, phi * np.exp(f)), rng)

    def width(self, y: Any, phi: Any) -> Any:
        """√(φ + 1/(y + 1)), no more than one."""
        wide = phi + 1 / (y + 1.0)
        return (wide / (1 + wide)) ** 0.5

    def working(self, y: Tensor) -> Tensor:
        """log(y + ½)."""
        return (y + 0.5).log()

    def rough_dispersion(self, y: Tensor, mean: Tensor, weight: Tensor) -> float:
        """Σ ((y − μ)² − μ)/Σ μ²."""
        excess = weight * ((y - mean).square() - mean)
        return float((excess.sum() / (weight * mean.square()).sum()).clamp(1e-3, 10.0))


@dataclass(frozen=True)
class GammaFamily:
    """Positive numbers with mean μ = e^f and variance φ μ²."""

    name: ClassVar[str] = "gamma"
    num_columns: ClassVar[int] = 1
    is_discrete: ClassVar[bool] = False
    has_dispersion: ClassVar[bool] = True

    @property
    def support(self) -> tuple[float, float]:
        """From zero on."""
        return 0.0, math.inf

    def log_prob(self, y: Tensor, f: Tensor, phi: Tensor) -> Tensor:
        """a log a − log Γ(a) + (a − 1) log y − a (f + y e^{−f}), a = 1/φ."""
        shape, log_y = 1 / phi, y.log()
        return shape * shape.log() - torch.lgamma(shape) - log_y + shape * (log_y - f - _rate(log_y - f))

    def expected(self, y: Tensor, mean: Tensor, variance: Tensor, phi: Tensor) -> Tensor:
        """E log p under f ~ N(m, v)."""
        ratio = y.log() - mean
        return self.log_prob(y, mean, phi) + (_rate(ratio) - _rate(ratio + variance / 2)) / phi

    def moments(self, mean: Tensor, variance: Tensor, phi: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """E E[Y | f], Var E[Y | f] and E Var[Y | f] under f ~ N(m, v)."""
        first, second, spread = moments_of_log_link(mean, variance)
        return first, spread, phi * second

    def score(self, y: Tensor, f: Tensor, phi: Tensor) -> Tensor:
        """(y e^{−f} − 1)/φ."""
        return (_rate(y.log() - f) - 1) / phi

    def curvature(self, y: Tensor, f: Tensor, phi: Tensor) -> Tensor:
        """1/φ."""
        return (1 / phi).expand_as(y + f + phi)

    def mean(self, f: Tensor, phi: Tensor) -> Tensor:
        """e^f."""
        return _rate(f)

    def variance(self, f: Tensor, phi: Tensor) -> Tensor:
        """φ μ²."""
        return phi * _rate(2 * f)

    def link(self, mean: Tensor) -> Tensor:
        """The logarithm."""
        return mean.log()

    def cumulative(self, y: Array, f: Array, phi: Array) -> Array:
        """The regularised incomplete gamma function."""
        return gammainc(1 / phi, np.maximum(y, 0) * np.exp(-f) / phi)

    def draw(self, f: Array, phi: Array, rng: np.random.Generator) -> Array:
        """Gamma variables."""
        return rng.gamma(1 / phi, phi * np.exp(f))

    def width(self, y: Any, phi: Any) -> Any:
        """√φ, no more than one."""
        return (phi / (1 + phi)) ** 0.5 + 0.0 * y

    def working(self, y: Tensor) -> Tensor:
        """log y."""
        return y.log()

    def rough_dispersion(self, y: Tensor, mean: Tensor, weight: Tensor) -> float:
        """The mean square of relative errors."""
        return float(((weight * (y / mean - 1).square()).sum() / weight.sum()).clamp(1e-4, 10.0))


@dataclass(frozen=True)
class BetaFamily:
    """Numbers between two bounds; of y' = (y − low)/(high − low) the mean is μ = 1/(1 + e^{−f}), the variance μ(1 − μ) φ/(1 + φ).

    Attributes:
        low: the lower bound.
        high: the upper bound.
        margin: targets at a bound are taken to be so far from it, as a share of the distance between the bounds.
    """

    low: float = 0.0
    high: float = 1.0
    margin: float = 0.0
    name: ClassVar[str] = "beta"
    num_columns: ClassVar[int] = 1
    is_discrete: ClassVar[bool] = False
    has_dispersion: ClassVar[bool] = True

    @property
    def support(self) -> tuple[float, float]:
        """The bounds."""
        return self.low, self.high

    def _share(self, y: Any) -> Any:
        least = max(self.margin, 1e-300)
        return ((y - self.low) / (self.high - self.low)).clip(least, 1 - max(self.margin, 1e-16))

    def _shapes(self, f: Tensor, phi: Tensor) -> tuple[Tensor, Tensor]:
        mean = torch.sigmoid(f).clamp(MARGIN, 1 - MARGIN)
        return mean / phi, (1 - mean) / phi

    def log_prob(self, y: Tensor, f: Tensor, phi: Tensor) -> Tensor:
        """The density of a beta law with shapes μ/φ and (1 − μ)/φ."""
        share, (a, b) = self._share(y), self._shapes(f, phi)
        constant = torch.lgamma(a + b) - torch.lgamma(a) - torch.lgamma(b) - math.log(self.high - self.low)
        return constant + (a - 1) * share.log() + (b - 1) * torch.log1p(-share)

    def score(self, y: Tensor, f: Tensor, phi: Tensor) -> Tensor:
        """μ(1 − μ)/φ (logit y' − ψ(a) + ψ(b))."""
        share, (a, b) = self._share(y), self._shapes(f, phi)
        return a * b / (a + b) * (torch.logit(share) - torch.digamma(a) + torch.digamma(b))

    def curvature(self, y: Tensor, f: Tensor, phi: Tensor) -> Tensor:
        """(μ(1 − μ)/φ)² (ψ'(a) + ψ'(b))."""
        a, b = self._shapes(f, phi)
        slope = a * b / (a + b)
        return (slope.square() * (torch.polygamma(1, a) + torch.polygamma(1, b))).expand_as(y + f)

    def mean(self, f: Tensor, phi: Tensor) -> Tensor:
        """μ between the bounds."""
        return self.low + (self.high - self.low) * torch.sigmoid(f).clamp(MARGIN, 1 - MARGIN)

    def variance(self, f: Tensor, phi: Tensor) -> Tensor:
        """μ(1 − μ) φ/(1 + φ), in squared units of y."""
        share = torch.sigmoid(f).clamp(MARGIN, 1 - MARGIN)
        return (self.high - self.low) ** 2 * share * (1 - share) * phi / (1 + phi)

    def link(self, mean: Tensor) -> Tensor:
        """The logit."""
        return torch.logit(((mean - self.low) / (self.high - self.low)).clamp(1e-3, 1 - 1e-3))

    def cumulative(self, y: Array, f: Array, phi: Array) -> Array:
        """The regularised incomplete beta function."""
        share = np.clip((y - self.low) / (self.high - self.low), 0.0, 1.0)
        mean = np.clip(1 / (1 + np.exp(-f)), MARGIN, 1 - MARGIN)
        return betainc(mean / phi, (1 - mean) / phi, share)

    def draw(self, f: Array, phi: Array, rng: np.random.Generator) -> Array:
        """Beta variables."""
        mean = np.clip(1 / (1 + np.exp(-f)), MARGIN, 1 - MARGIN)
        return self.low + (self.high - self.low) * rng.beta(mean / phi, (1 - mean) / phi)

    def width(self, y: Any, phi: Any) -> Any:
        """2 √φ, no more than one."""
        return 2 * (phi / (1 + 4 * phi)) ** 0.5 + 0.0 * y

    def working(self, y: Tensor) -> Tensor:
        """The logit, of targets kept a little away from the bounds."""
        return torch.logit(self._share(y).clamp(0.005, 0.995))

    def rough_dispersion(self, y: Tensor, mean: Tensor, weight: Tensor) -> float:
        """By the mean of (y' − μ)²/μ(1 − μ)."""
        share = ((mean - self.low) / (self.high - self.low)).clamp(1e-3, 1 - 1e-3)
        ratio = (self._share(y) - share).square() / (share * (1 - share))
        found = float(((weight * ratio).sum() / weight.sum()).clamp(1e-4, 0.9))
        return found / (1 - found)
