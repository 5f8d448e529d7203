"""Laws of numbers with bounds, made of laws of numbers without: the exponential of one, or one cut at bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr, ndtri, stdtr, stdtrit
from scipy.stats import chi2

from gwi._typing import Array
from gwi.core.distributions import cumulative
from gwi.core.laws.gaussian import Law
from gwi.core.laws.protocol import integrated_crps
from gwi.core.laws.roots import increasing_root
from gwi.core.linalg import LOG_TWO_PI

# Normal laws in the place of a t law, whose exponential has no mean.
NUM_NORMALS = 20
# Moments of the exponential beyond the exponential of this are no numbers.
MOST_LOG = 600.0
# Standard deviations above a bound that the mean of a law lies at least, and steps to find the centre of what is cut there.
LEAST_ABOVE, CENTRE_STEPS = 0.2, 60
# Probability that may be cut without a word; and the least that is divided by.
NOTHING, TINY = 1e-12, float(np.finfo(np.float64).tiny)


def factors_of_normals(degrees_of_freedom: float) -> Float[Array, " K"]:
    """Variances of normal laws, mixed in equal parts, in the place of Student's t with variance one.

    t is normal with the variance (ν − 2)/χ²_ν. χ² is cut into parts of equal probability, and each part has the mean of its
    variances; E[(ν − 2)/χ²_ν; χ²_ν ∈ A] = P(χ²_{ν − 2} ∈ A).
    """
    ends = chi2.ppf(np.arange(NUM_NORMALS + 1) / NUM_NORMALS, degrees_of_freedom)
    return NUM_NORMALS * np.diff(chi2.cdf(ends, degrees_of_freedom - 2))


def as_normals(law: Law) -> Law:
    """Student's t laws as mixtures of normal ones with the same mean and variance."""
    if math.isinf(law.degrees_of_freedom):
        return law
    factors = factors_of_normals(law.degrees_of_freedom)
    mean, std = (np.repeat(part, NUM_NORMALS, axis=0) for part in (law.mean, law.std))
    std = std * np.sqrt(np.tile(factors, len(law.mean)))[:, None]
    weights = None if law.weights is None else tuple(np.repeat(law.shares / NUM_NORMALS, NUM_NORMALS).tolist())
    return Law(mean, std, weights=weights)


@dataclass(frozen=True)
class LogLaw:
    """The law of e^Z.

    Attributes:
        inner: of Z, a mixture of normal laws.
    """

    inner: Law

    @property
    def num_rows(self) -> int:
        """N."""
        return self.inner.num_rows

    @property
    def support(self) -> tuple[float, float]:
        """Positive numbers."""
        return 0.0, math.inf

    @property
    def is_discrete(self) -> bool:
        """No."""
        return False

    def rows(self, chosen: Any) -> LogLaw:
        """The laws of some rows."""
        return replace(self, inner=self.inner.rows(chosen))

    def _moments(self, power: int) -> Float[Array, "K N"]:
        exponent = power * self.inner.mean + power**2 * np.square(self.inner.std) / 2
        return np.exp(np.minimum(exponent, MOST_LOG))

    def expectation(self) -> Float[Array, " N"]:
        """Σ π_k exp(m_k + s_k²/2)."""
        return self.inner.shares @ self._moments(1)

    def variance(self) -> Float[Array, " N"]:
        """E Y² − (E Y)², each component's in the form that keeps its digits."""
        first = self._moments(1)
        own = np.square(first) * np.expm1(np.minimum(np.square(self.inner.std), MOST_LOG))
        return self.inner.shares @ (own + np.square(first - self.expectation()))

    def log_density(self, y: Float[Array, " N"]) -> Float[Array, " N"]:
        """log p_Z(log y) − log y."""
        log_y = _log(y)
        found = self.inner.log_density(np.where(np.isfinite(log_y), log_y, 0.0)) - np.where(np.isfinite(log_y), log_y, 0.0)
        return np.where(np.isfinite(log_y), found, -np.inf)

    def cumulative(self, y: Float[Array, " N"]) -> Float[Array, " N"]:
        """P(Z ≤ log y)."""
        return self.inner.cumulative(_log(y))

    def survival(self, y: Float[Array, " N"]) -> Float[Array, " N"]:
        """P(Z > log y)."""
        return self.inner.survival(_log(y))

    def quantile(self, level: float) -> Float[Array, " N"]:
        """The exponential of Z's."""
        return np.exp(self.inner.quantile(level))

    def crps(self, y: Float[Array, " N"]) -> Float[Array, " N"]:
        """E|Y − y| − ½ E|Y − Y'| in closed form."""
        shares, mean, std, first = self.inner.shares, self.inner.mean, self.inner.std, self._moments(1)
        log_y = _log(y)
        score = shares @ (y * (2 * ndtr((log_y - mean) / std) - 1) + first * (2 * ndtr((mean + std**2 - log_y) / std) - 1))
        for share, m, s, e in zip(shares, mean, std, first, strict=True):
            both = np.hypot(std, s)
            larger = first * (2 * ndtr((mean - m + std**2) / both) - 1) + e * (2 * ndtr((m - mean + s**2) / both) - 1)
            score -= share / 2 * (shares @ larger)
        return score

    def sample(self, size: int, rng: np.random.Generator) -> Float[Array, "S N"]:
        """Exponentials of draws."""
        return np.exp(self.inner.sample(size, rng))


def _cut(law: Law, low: float) -> NDArray[np.int64]:
    """The rows of which a bound cuts more than next to nothing."""
    d = law.degrees_of_freedom
    last = ndtri(NOTHING) if math.isinf(d) else stdtrit(d, NOTHING) * math.sqrt((d - 2) / d)
    return np.flatnonzero((low - law.mean > last * law.std).any(0))


def _kept(a: Float[Array, "*K N"], d: float) -> tuple[Float[Array, "*K N"], Float[Array, "*K N"], Float[Array, "*K N"]]:
    """E[T | T > a], E[T² | T > a] and the hazard at a, of a normal law or Student's t with d degrees of freedom."""
    if math.isinf(d):
        hazard = np.exp(-np.square(a) / 2 - LOG_TWO_PI / 2 - log_ndtr(-a))
        return hazard, 1 + a * hazard, hazard
    # Not by scipy.stats, whose checks take longer for one row than all of this.
    above = np.maximum(stdtr(d, -a), TINY)
    constant = math.lgamma((d + 1) / 2) - math.lgamma(d / 2) - math.log(math.pi * d) / 2
    hazard = np.exp(constant - (d + 1) / 2 * np.log1p(np.square(a) / d)) / above
    # (1 + t²/ν) times the density of t_ν is that of a scaled t_{ν − 2}.
    second = d * ((d - 1) / (d - 2) * stdtr(d - 2, -a * math.sqrt((d - 2) / d)) / above - 1)
    return (d + np.square(a)) / (d - 1) * hazard, second, hazard


@cache
def _lowest_mean(degrees_of_freedom: float) -> tuple[float, float]:
    """Where the centre lies, from the bound, when what is left above it has a mean as low as wanted or as it can get.

    Heavy tails: of Student's t what is left far out lies further out again.
    """
    centres = np.linspace(-6.0, 3.0, 1801)
    law = TruncatedLaw(Law(centres[None], np.ones((1, len(centres))), degrees_of_freedom), 0.0)
    means = law.expectation()
    place = int(np.argmin(np.maximum(means, LEAST_ABOVE)))
    return float(centres[place]), float(means[place])


def _log(y: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(y > 0, np.log(y), -np.inf)


@dataclass(frozen=True)
class TruncatedLaw:
    """The law of Z given that it lies above a bound.

    Attributes:
        inner: of Z.
        low: the bound.
    """

    inner: Law
    low: float

    @property
    def num_rows(self) -> int:
        """N."""
        return self.inner.num_rows

    @property
    def support(self) -> tuple[float, float]:
        """From the bound on."""
        return self.low, math.inf

    @property
    def is_discrete(self) -> bool:
        """No."""
        return False

    def rows(self, chosen: Any) -> TruncatedLaw:
        """The laws of some rows."""
        return replace(self, inner=self.inner.rows(chosen))

    @classmethod
    def with_means_of(cls, law: Law, low: float) -> TruncatedLaw:
        """A law above the bound that has the mean of this one, where that lies above it, and the spread before the cut.

        Cutting alone would move the mean up, away from what least squares found. The centre is moved down by as much: the mean
        of what is left grows with it, with the slope 1 − h(a) (E[T | T > a] − a), where h is the hazard and T = (Z − m)/σ.
        """
        cut = _cut(law, low)
        if not len(cut):
            return cls(law, low)
        if len(law.mean) > 1:
            return cls._shifted(law, low, cut)
        d, std = law.degrees_of_freedom, law.std[0, cut]
        unit = 1.0 if math.isinf(d) else math.sqrt((d - 2) / d)
        first, least = _lowest_mean(d)
        wanted = np.maximum(law.mean[0, cut], low + least * std)
        lowest, highest = low + first * std, np.maximum(wanted, low + first * std)
        centre = highest.copy()
        moved, left = law.mean.copy(), np.arange(len(cut))
        for _ in range(CENTRE_STEPS):
            a = (low - centre) / (unit * std)
            beyond, _, hazard = _kept(a, d)
            mean = centre + unit * std * np.maximum(beyond, a)
            above = mean > wanted
            lowest, highest = np.where(above, lowest, centre), np.where(above, centre, highest)
            halved = (lowest + highest) / 2
            newton = centre - (mean - wanted) / np.maximum(1 - hazard * (beyond - a), TINY)
            new = np.where((newton > lowest) & (newton < highest), newton, halved)
            moved[0, cut[left]] = new
            # Most rows are done after a step or two, and what they are does not depend on the others.
            going = np.flatnonzero(np.abs(new - centre) > 1e-13 * (std + np.abs(centre)))
            if not len(going):
                break
            left = left[going]
            centre, std, wanted, lowest, highest = (part[going] for part in (new, std, wanted, lowest, highest))
        return cls(replace(law, mean=moved), low)

    @classmethod
    def _shifted(cls, law: Law, low: float, cut: NDArray[np.int64]) -> TruncatedLaw:
        """The same for mixtures, whose components are all moved by as much."""
        some = law.rows(cut)
        wanted = np.maximum(some.expectation(), low + LEAST_ABOVE * np.sqrt(some.variance()))

        def off(move: Array) -> Array:
            return cls(replace(some, mean=some.mean + move), low).expectation() - wanted

        lowest, highest = low - (some.mean + 6 * some.std).max(0), np.maximum(low - some.mean.min(0), 0.0)
        mean = law.mean.copy()
        mean[:, cut] += increasing_root(off, lowest, highest)
        return cls(replace(law, mean=mean), low)

    def _bounds(self) -> Float[Array, " N"]:
        return np.full(self.num_rows, self.low)

    def _kept(self) -> Float[Array, " N"]:
        """P(Z > low); of a mean absurdly far below not quite zero."""
        return np.maximum(self.inner.survival(self._bounds()), TINY)

    def expectation(self) -> Float[Array, " N"]:
        """E[Z | Z > low]."""
        return self.moments()[0]

    def variance(self) -> Float[Array, " N"]:
        """Var[Z | Z > low]."""
        return self.moments()[1]

    def moments(self) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
        """Both at once."""
        mean, variance, d = self.inner.expectation(), self.inner.variance(), self.inner.degrees_of_freedom
        # Where next to nothing is cut, nothing changes.
        cut = _cut(self.inner, self.low)
        if not len(cut):
            return mean, variance
        some = self.inner.rows(cut)
        unit = some.std * (1.0 if math.isinf(d) else math.sqrt((d - 2) / d))
        a = (self.low - some.mean) / unit
        first, second, _ = _kept(a, d)
        # Far out what is kept lies within a hair of the bound, where differences lose their digits.
        first = np.maximum(first, a)
        means, variances = some.mean + unit * first, np.square(unit) * np.maximum(second - np.square(first), 0.0)
        shares = some.shares[:, None] * cumulative(-a * unit / some.std, d) + TINY
        shares /= shares.sum(0)
        mean[cut] = (shares * means).sum(0)
        variance[cut] = (shares * (variances + np.square(means - mean[cut]))).sum(0)
        return mean, variance

    def log_density(self, y: Float[Array, " N"]) -> Float[Array, " N"]:
        """log p_Z(y) − log P(Z > low)."""
        return np.where(y >= self.low, self.inner.log_density(y) - np.log(self._kept()), -np.inf)

    def cumulative(self, y: Float[Array, " N"]) -> Float[Array, " N"]:
        """1 − P(Z > y)/P(Z > low)."""
        return 1 - self.survival(y)

    def survival(self, y: Float[Array, " N"]) -> Float[Array, " N"]:
        """P(Z > y)/P(Z > low)."""
        return np.minimum(self.inner.survival(np.maximum(y, self.low)) / self._kept(), 1.0)

    def quantile(self, level: float | Float[Array, " N"]) -> Float[Array, " N"]:
        """Z's, of the level that is so far into what is kept; from above, where little is kept that has more digits."""
        inner, kept = self.inner, self._kept()
        left = np.maximum((1 - level) * kept, TINY)
        low_half = inner.quantile(np.clip(1 - left, TINY, 1 - 1e-16))
        high_half = -replace(inner, mean=-inner.mean).quantile(np.minimum(left, 1 - 1e-16))
        return np.maximum(np.where(left > 0.5, low_half, high_half), self.low)

    def crps(self, y: Float[Array, " N"]) -> Float[Array, " N"]:
        """In closed form where next to nothing is cut, else by an integral."""
        found = self.inner.crps(y)
        cut = np.flatnonzero(self.inner.cumulative(self._bounds()) > NOTHING)
        if len(cut):
            found[cut] = integrated_crps(self.rows(cut), y[cut])
        return found

    def sample(self, size: int, rng: np.random.Generator) -> Float[Array, "S N"]:
        """Quantiles at uniform numbers."""
        levels = rng.uniform(size=(size, self.num_rows)).clip(TINY, 1 - 1e-16)
        return np.stack([self.quantile(level) for level in levels])
