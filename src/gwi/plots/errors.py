"""Predictions beside targets, and errors beside the standard deviations that were predicted."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from numpy.typing import NDArray

from gwi._typing import Array
from gwi.core.laws.gaussian import Law
from gwi.core.laws.protocol import PredictiveLaw
from gwi.plots.calibration import Promises
from gwi.plots.inputs import law_and_targets, sample
from gwi.plots.style import ALARM, DATA, FRAME, SQUARE, chance, drawn, expected_line, found_line, plain_decades, posts

# Of laws that are neither normal nor Student's t the expected median of errors is that of so many draws of each row.
NUM_DRAWS = 200


def errors(law: PredictiveLaw, y: Float[Array, " N"], num_bins: int = 8) -> tuple[Promises, Float[Array, " B"]]:
    """Median absolute errors, promised and found, in bins of at least ten rows, and the bins' median standard deviations."""
    std, error = np.sqrt(law.variance()), np.abs(y - law.expectation())
    # Standard deviations that hardly differ make one bin: their order is rounding.
    alike = std.max() < 1.01 * std.min()
    bins = np.array_split(np.argsort(std, kind="stable"), 1 if alike else max(1, min(num_bins, len(std) // 10)))
    centre, found, size = np.array([(np.median(std[b]), np.median(error[b]), len(b)) for b in bins]).T
    # Half of the errors are smaller than half of the interval that holds every second target, and chance moves the rank of their
    # median by a binomial law.
    ranks = (np.full(len(bins), 0.5), *chance(size, 0.5))
    if not isinstance(law, Law):
        drawn_errors = np.abs(law.sample(NUM_DRAWS, np.random.default_rng(0)) - law.expectation())
        promised, low, high = (
            np.array([np.quantile(drawn_errors[:, b], np.clip(r, 0.0, 1.0)) for b, r in zip(bins, rank, strict=True)])
            for rank in ranks
        )
        return Promises(promised, found, low, high), centre
    promised, low, high = (
        np.array([_half_width(law.rows(b), float(np.clip(r, 0.0, 1 - 2e-6))) for b, r in zip(bins, rank, strict=True)])
        for rank in ranks
    )
    return Promises(promised, found, low, high), centre


def _half_width(law: PredictiveLaw, coverage: float) -> float:
    """Of the central interval with this probability, the median over rows."""
    return float(np.median((law.quantile((1 + coverage) / 2) - law.quantile((1 - coverage) / 2)) / 2))


def draw_errors(ax: Axes, law: PredictiveLaw, y: Float[Array, " N"], found: Promises, centre: Float[Array, " B"]) -> None:
    """Dots of rows, medians of bins, and the line on which they should lie."""
    std, error, dots = np.sqrt(law.variance()), np.abs(y - law.expectation()), sample(len(y))
    ax.plot(std[dots], error[dots], ".", color=FRAME, ms=6, alpha=0.45, mew=0, zorder=1, label="rows")
    posts(ax, centre, found.low, found.high)
    ends = np.array([0.95 * std.min(), 1.05 * std.max()])
    if isinstance(law, Law):
        expected_line(ax, ends, found.promised[0] / centre[0] * ends, "expected median")
    else:
        expected_line(ax, centre, found.promised, "expected median")
    found_line(ax, centre, found.found, "median found")
    ax.set(xlim=ends, xlabel="predicted standard deviation", ylabel="absolute error")
    top = max(error.max(), found.high.max())
    if std.max() > 5 * std.min():
        ax.set(xscale="log", yscale="log", ylim=(max(std.min() / 20, top / 1e5), 1.3 * top))
        plain_decades(ax.xaxis, ax.yaxis)
    else:
        ax.set(ylim=(0, 1.05 * top))


def outside_interval(law: PredictiveLaw, y: Float[Array, " N"]) -> Bool[NDArray[Any], " N"]:
    """Which targets lie outside of their 95 % interval."""
    return (y < law.quantile(0.025)) | (y > law.quantile(0.975))


def draw_actual_vs_predicted(ax: Axes, law: PredictiveLaw, y: Float[Array, " N"]) -> None:
    """Dots of rows, in another colour outside of their interval."""
    mean, outside, dots = law.expectation(), outside_interval(law, y), sample(len(y))
    both = np.concatenate([mean, y])
    wider = 0.04 * np.ptp(both) or max(abs(both[0]), 1.0) / 2
    ends = (both.min() - wider, both.max() + wider)
    expected_line(ax, ends, ends, "equal")
    kinds = ((~outside, DATA, 7, 0.6, "inside 95 % interval"), (outside, ALARM, 9, 1.0, "outside"))
    for chosen, colour, size, alpha, label in kinds:
        kept = dots[chosen[dots]]
        if len(kept):
            ax.plot(mean[kept], y[kept], ".", color=colour, ms=size, alpha=alpha, mew=0, label=label)
    ax.set(xlim=ends, ylim=ends, xlabel="predicted", ylabel="actual")


def plot_errors(model: Any, X: Any, y: Any, *, target: int = 0, num_bins: int = 8, ax: Axes | None = None) -> Axes:
    """|y − m| against the predicted standard deviation: dots, their medians in bins of equally many rows, and what is expected.

    The line is the median of |y − m| under the predictive distribution, and grey strokes hold 95 % of the medians of a bin by
    chance. Axes are logarithmic where standard deviations differ by more than a factor of five.

    Args:
        model: a fitted `GWIRegressor`.
        X: rows that it has not seen.
        y: their targets.
        target: number of the target, when there are several.
        num_bins: of the standard deviation; fewer where a bin would have less than ten rows.
        ax: where to draw.

    Examples:
        >>> import numpy as np
        >>> import gwi
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=40)
        >>> model = gwi.GWIRegressor("linear", cv=2, random_state=0).fit(X[::2], y[::2])
        >>> ax = gwi.plots.plot_errors(model, X[1::2], y[1::2])
        >>> ax.get_xlabel()
        'predicted standard deviation'
    """
    law, values = law_and_targets(model, X, y, target, "plot_errors")
    return drawn(ax, draw_errors, law, values, *errors(law, values, num_bins))


def plot_actual_vs_predicted(model: Any, X: Any, y: Any, *, target: int = 0, ax: Axes | None = None) -> Axes:
    """Targets against predictions; targets outside of their 95 % interval have a colour of their own.

    Args:
        model: a fitted `GWIRegressor`.
        X: rows that it has not seen.
        y: their targets.
        target: number of the target, when there are several.
        ax: where to draw.

    Examples:
        >>> import numpy as np
        >>> import gwi
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=40)
        >>> model = gwi.GWIRegressor("linear", cv=2, random_state=0).fit(X[::2], y[::2])
        >>> ax = gwi.plots.plot_actual_vs_predicted(model, X[1::2], y[1::2])
        >>> ax.get_xlabel()
        'predicted'
    """
    law, values = law_and_targets(model, X, y, target, "plot_actual_vs_predicted")
    return drawn(ax, draw_actual_vs_predicted, law, values, size=SQUARE)
