"""Scores of predictive laws: NLL, CRPS, RMSE, coverage and width of intervals, calibration error."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

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
    """What is predicted at each of N rows: K normal or Student's t laws, mixed in equal parts.

    Attributes:
        mean: of each component at each row.
        std: their standard deviations.
        degrees_of_freedom: of Student's t; infinity is the normal law.
    """

    mean: Float[Array, "K N"]
    std: Float[Array, "K N"]
    degrees_of_freedom: float = math.inf

    def expectation(self) -> Float[Array, " N"]:
        """The mean of the mixture."""
        return self.mean.mean(0)

    def log_density(self, y: Float[Array, " N"]) -> Float[Array, " N"]:
        """log p(y) at each row."""
        parts = log_density((y - self.mean) / self.std, self.degrees_of_freedom) - np.log(self.std)
        return logsumexp(parts, axis=0) - math.log(len(parts))

    def cumulative(self, y: Float[Array, " N"]) -> Float[Array, " N"]:
        """P(Y ≤ y) at each row: uniform over rows where the law is right."""
        return cumulative((y - self.mean) / self.std, self.degrees_of_freedom).mean(0)

    def quantile(self, level: float) -> Float[Array, " N"]:
        """The value at each row with this probability below it."""
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
            score = _absolute_moment(self.mean - y, self.std).mean(0)
            for mean, std in zip(self.mean, self.std, strict=True):
                score -= _absolute_moment(self.mean - mean, np.hypot(self.std, std)).mean(0) / (2 * len(self.mean))
            return score
        if len(self.mean) > 1:
            raise ValueError("The CRPS of a mixture is known for normal laws only; got Student's t with several components.")
        d = self.degrees_of_freedom
        scale = self.std[0] * math.sqrt((d - 2) / d)
        z = (y - self.mean[0]) / scale
        # Jordan, Krüger and Lerch (2019), the location-scale family of t.
        spread = 2 * math.sqrt(d) / (d - 1) * math.exp(betaln(0.5, d - 0.5) - 2 * betaln(0.5, d / 2))
        return scale * (z * (2 * t.cdf(z, d) - 1) + 2 * t.pdf(z, d) * (d + z**2) / (d - 1) - spread)


def _absolute_moment(mean: Array, std: Array) -> Array:
    """E|Y| of a normal law."""
    z = mean / std
    return 2 * std * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) + mean * (2 * ndtr(z) - 1)


@dataclass(frozen=True)
class Scores:
    """How good predictive laws were, in the target's own units; lower is better except for coverage.

    Attributes:
        nll: mean negative log density.
        crps: mean continuous ranked probability score.
        rmse: of the expectation.
        coverage_90: share of targets inside the central 90 % interval.
        coverage_95: share inside the 95 % interval.
        width_90: mean width of the 90 % interval.
        width_95: mean width of the 95 % interval.
        interval_score_95: mean width of the 95 % interval plus 40 times the distance of each target outside it (Gneiting and
            Raftery, 2007); the true law has the least.
        calibration_error: root mean square, over levels p = 1 … 99 %, of p minus the share of targets below the p-quantile.
    """

    nll: float
    crps: float
    rmse: float
    coverage_90: float
    coverage_95: float
    width_90: float
    width_95: float
    interval_score_95: float
    calibration_error: float


@dataclass(frozen=True)
class ScoreTotals:
    """Sums over rows from which all scores follow; those of parts add up to those of the whole.

    Attributes:
        num_rows: N.
        sums: of NLL, CRPS, squared error, targets in the 90 % and 95 % interval, their widths, the interval score
            and absolute error.
        below: rows whose target is below the p-quantile, for p = 1 … 99 %.
    """

    num_rows: int
    sums: Float[Array, 9]
    below: Float[Array, 99]

    def __add__(self, other: ScoreTotals) -> ScoreTotals:
        return ScoreTotals(self.num_rows + other.num_rows, self.sums + other.sums, self.below + other.below)

    @property
    def mae(self) -> float:
        """The mean absolute error of the expectation."""
        return float(self.sums[8]) / self.num_rows

    def named(self) -> dict[str, float]:
        """All scores by name, the usual ones first."""
        scores = asdict(self.scores())
        return {"nll": scores.pop("nll"), "rmse": scores.pop("rmse"), "mae": self.mae} | scores

    def scores(self) -> Scores:
        """All of them."""
        nll, crps, square, in_90, in_95, width_90, width_95, interval, _ = (float(v) / self.num_rows for v in self.sums)
        error = float(np.square(self.below / self.num_rows - LEVELS).mean())
        return Scores(nll, crps, math.sqrt(square), in_90, in_95, width_90, width_95, interval, math.sqrt(error))


LEVELS = np.arange(1, 100) / 100


def interval_score(low: Array, high: Array, y: Array, coverage: float) -> Array:
    """Width of an interval plus 2/(1 − coverage) times the distance of a target outside it, at each row."""
    outside = np.maximum(low - y, 0) + np.maximum(y - high, 0)
    return high - low + 2 / (1 - coverage) * outside


def score_totals(law: Law, y: Float[Array, " N"]) -> ScoreTotals:
    """The sums behind the scores of the laws at these targets."""
    intervals = [(law.quantile(0.5 - level / 2), law.quantile(0.5 + level / 2)) for level in (0.9, 0.95)]
    error = y - law.expectation()
    columns = [
        -law.log_density(y),
        law.crps(y),
        np.square(error),
        *(((low <= y) & (y <= high)).astype(np.float64) for low, high in intervals),
        *(high - low for low, high in intervals),
        interval_score(*intervals[1], y, 0.95),
        np.abs(error),
    ]
    below = (law.cumulative(y)[:, None] <= LEVELS).sum(0).astype(np.float64)
    return ScoreTotals(len(y), np.array([column.sum() for column in columns]), below)


def score(law: Law, y: Float[Array, " N"]) -> Scores:
    """All scores of the laws at these targets."""
    return score_totals(law, y).scores()
