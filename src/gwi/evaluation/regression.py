"""Scores of predictive laws: NLL, CRPS, RMSE, coverage and width of intervals, calibration error."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np
from jaxtyping import Float

from gwi._typing import Array
from gwi.core.laws.gaussian import Law as Law
from gwi.core.laws.protocol import PredictiveLaw, pit


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
        calibration_error: root mean square, over levels p = 1 … 99 %, of p minus the share of targets below the p-quantile; of
            counts and other single values by lot where the target is the quantile.

    Examples:
        >>> import numpy as np
        >>> from gwi.core.laws.gaussian import Law
        >>> from gwi.evaluation.regression import score
        >>> law = Law(np.array([[0.0, 1.0]]), np.array([[1.0, 1.0]]))
        >>> found = score(law, np.array([0.0, 3.0]))
        >>> round(found.rmse, 3), found.coverage_95
        (1.414, 0.5)
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

    Examples:
        >>> import numpy as np
        >>> from gwi.core.laws.gaussian import Law
        >>> from gwi.evaluation.regression import score_totals
        >>> law = Law(np.array([[0.0, 1.0]]), np.array([[1.0, 1.0]]))
        >>> total = score_totals(law, np.array([0.0, 3.0]))
        >>> total.num_rows, (total + total).num_rows
        (2, 4)
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
    """Width of an interval plus 2/(1 − coverage) times the distance of a target outside it, at each row.

    Examples:
        >>> import numpy as np
        >>> from gwi.evaluation.regression import interval_score
        >>> interval_score(np.zeros(2), np.full(2, 2.0), np.array([1.0, 3.0]), 0.9).round(6).tolist()
        [2.0, 22.0]
    """
    outside = np.maximum(low - y, 0) + np.maximum(y - high, 0)
    return high - low + 2 / (1 - coverage) * outside


def score_totals(law: PredictiveLaw, y: Float[Array, " N"]) -> ScoreTotals:
    """The sums behind the scores of the laws at these targets.

    Examples:
        >>> import numpy as np
        >>> from gwi.core.laws.gaussian import Law
        >>> from gwi.evaluation.regression import score_totals
        >>> law = Law(np.array([[0.0, 1.0]]), np.array([[1.0, 1.0]]))
        >>> total = score_totals(law, np.array([0.0, 3.0]))
        >>> total.num_rows, (total + total).num_rows
        (2, 4)
    """
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
    below = (pit(law, y)[:, None] <= LEVELS).sum(0).astype(np.float64)
    return ScoreTotals(len(y), np.array([column.sum() for column in columns]), below)


def score(law: PredictiveLaw, y: Float[Array, " N"]) -> Scores:
    """All scores of the laws at these targets.

    Examples:
        >>> import numpy as np
        >>> from gwi.core.laws.gaussian import Law
        >>> from gwi.evaluation.regression import score
        >>> law = Law(np.array([[0.0, 1.0]]), np.array([[1.0, 1.0]]))
        >>> found = score(law, np.array([0.0, 3.0]))
        >>> round(found.rmse, 3), found.coverage_95
        (1.414, 0.5)
    """
    return score_totals(law, y).scores()
