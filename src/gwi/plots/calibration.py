"""Do intervals and probabilities keep what they promise? Overall, and for low and high predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from numpy.typing import NDArray

from gwi._typing import Array
from gwi.core.distributions import conformal_quantile
from gwi.core.laws.protocol import PredictiveLaw, pit
from gwi.evaluation.classification import NUM_BINS
from gwi.plots.inputs import law_and_targets
from gwi.plots.style import BY_CHANCE, CHANCE, chance, drawn, expected_line, found_line, posts, shares

LEVELS = np.arange(1, 20) / 20


@dataclass(frozen=True)
class Promises:
    """What was promised and what was found, at several levels or in several groups of rows: mostly shares of rows.

    Attributes:
        promised: as it should be.
        found: as it is.
        low: lower ends of what chance allows.
        high: upper ends.
    """

    promised: Float[Array, " L"]
    found: Float[Array, " L"]
    low: Float[Array, " L"]
    high: Float[Array, " L"]

    @property
    def num_kept(self) -> int:
        """How many are what chance allows."""
        return int(((self.found >= self.low - 1e-12) & (self.found <= self.high + 1e-12)).sum())

    @property
    def worst_gap(self) -> float:
        """The largest gap between found and promised, with its sign."""
        gap = self.found - self.promised
        return float(gap[np.argmax(np.abs(gap))])


def promises(num_rows: Any, promised: Float[Array, " L"], found: Float[Array, " L"]) -> Promises:
    """Shares, with the band of chance for so many rows."""
    return Promises(promised, found, *chance(num_rows, np.clip(promised, 0, 1)))


def coverage(law: PredictiveLaw, y: Float[Array, " N"]) -> Promises:
    """Shares of targets inside intervals of each level; of counts and other single values by lot at the ends."""
    return promises(len(y), LEVELS, (np.abs(2 * pit(law, y) - 1)[:, None] <= LEVELS).mean(0))


def conformal_coverage(distances: Float[Array, " N"], scores: Any) -> Promises:
    """The same of conformal intervals, from distances of targets and of those that judged the fit."""
    # A conformal interval needs held-out rows beyond it.
    levels = LEVELS[len(scores) / (len(scores) + 1) >= LEVELS]
    half = np.array([conformal_quantile(scores, level) for level in levels])
    return promises(len(distances), levels, (distances[:, None] <= half).mean(0))


def draw_coverage(ax: Axes, found: Promises, label: str = "found") -> None:
    """Promised and found shares of all levels."""
    ax.fill_between(found.promised, found.low, found.high, color=CHANCE, alpha=0.5, lw=0, label=BY_CHANCE)
    expected_line(ax, [0, 1], [0, 1])
    found_line(ax, found.promised, found.found, label)
    ax.set(xlim=(0, 1), ylim=(0, 1.01), xlabel="nominal coverage of the interval", ylabel="targets inside")
    shares(ax.xaxis, ax.yaxis)


def reliability(confidence: Float[Array, " N"], hit: Bool[NDArray[Any], " N"]) -> tuple[Promises, Float[Array, " B"]]:
    """Confidence and accuracy in bins of the confidence that have rows, and how many rows they have."""
    group = np.searchsorted(np.arange(1, NUM_BINS) / NUM_BINS, confidence)
    count = np.bincount(group, minlength=NUM_BINS).astype(np.float64)
    used = count > 0
    mean, accuracy = (np.bincount(group, v, NUM_BINS)[used] / count[used] for v in (confidence, hit.astype(float)))
    return promises(count[used], mean, accuracy), count[used]


def draw_reliability(ax: Axes, found: Promises, label: str = "found") -> None:
    """Confidence and accuracy of all bins."""
    least = min(0.5, float(found.promised.min()))
    posts(ax, found.promised, found.low, found.high)
    expected_line(ax, [least, 1], [least, 1])
    found_line(ax, found.promised, found.found, label)
    ax.set(xlim=(least - 0.01, 1.01), ylim=(0, 1.02), xlabel="confidence: the highest probability", ylabel="predicted right")
    shares(ax.xaxis, ax.yaxis)


def coverage_by_prediction(law: PredictiveLaw, y: Float[Array, " N"], num_groups: int = 5) -> tuple[Promises, Float[Array, " G"]]:
    """Coverage of 95 % intervals in groups of rows with low to high predictions, and the median prediction of each group."""
    # Intervals of single values hold more than they promise: ends count by lot.
    inside = np.abs(2 * pit(law, y) - 1) <= 0.95 if law.is_discrete else (law.quantile(0.025) <= y) & (y <= law.quantile(0.975))
    mean = law.expectation()
    groups = np.array_split(np.argsort(mean, kind="stable"), max(1, min(num_groups, len(y) // 10)))
    found, middle, size = np.array([(inside[g].mean(), np.median(mean[g]), len(g)) for g in groups]).T
    return promises(size, np.full(len(groups), 0.95), found), middle


def draw_coverage_by_prediction(ax: Axes, found: Promises, middle: Float[Array, " G"]) -> None:
    """Promised and found shares of all groups."""
    posts(ax, middle, found.low, found.high)
    wider = 0.12 * np.ptp(middle) or max(abs(middle[0]), 1.0) / 2
    ends = (middle.min() - wider, middle.max() + wider)
    expected_line(ax, ends, [0.95, 0.95])
    found_line(ax, middle, found.found)
    least = min(found.found.min(), found.low.min(), 0.85)
    ax.set(xlim=ends, ylim=(max(0.0, np.floor(10 * least) / 10 - 0.1), 1.01))
    ax.set(xlabel="prediction, median of the group", ylabel="inside 95 % interval")
    shares(ax.yaxis)


def plot_coverage_by_prediction(
    model: Any, X: Any, y: Any, *, target: int = 0, num_groups: int = 5, ax: Axes | None = None
) -> Axes:
    """How many targets the 95 % intervals hold, in groups of rows with low to high predictions.

    Intervals that are right on average may still be too narrow for high predictions and too wide for low ones. Grey strokes are
    where 95 % of shares would lie by chance.

    Args:
        model: a fitted `GWIRegressor`.
        X: rows that it has not seen.
        y: their targets.
        target: number of the target, when there are several.
        num_groups: of equally many rows, at least ten in each.
        ax: where to draw.

    Examples:
        >>> import numpy as np
        >>> import gwi
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=40)
        >>> model = gwi.GWIRegressor("linear", cv=2, random_state=0).fit(X[::2], y[::2])
        >>> ax = gwi.plots.plot_coverage_by_prediction(model, X[1::2], y[1::2])
        >>> ax.get_xlabel()
        'prediction, median of the group'
    """
    law, values = law_and_targets(model, X, y, target, "plot_coverage_by_prediction")
    return drawn(ax, draw_coverage_by_prediction, *coverage_by_prediction(law, values, num_groups))
