"""Times to an event: predicted survival beside what was found, over time and in groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from gwi._typing import Array
from gwi.evaluation.survival import SurvivalCurve, kaplan_meier
from gwi.evaluation.survival_calibration import SurvivalCalibration, d_calibration, groups_by
from gwi.evaluation.times import JoinedLaws
from gwi.plots.calibration import Promises, promises
from gwi.plots.inputs import law_and_bounds, times_law
from gwi.plots.numbers import shown
from gwi.plots.style import ALARM, BAND, CHANCE, DATA, HALF_WIDTH, INDUCING, MEAN, expected_line, new_axes, plain_decades, shares

# Of groups from early to late events; and of more lines.
COLOURS = (ALARM, DATA, INDUCING, MEAN, BAND)
NUM_POINTS, NUM_LINES = 200, 5


@dataclass(frozen=True)
class GroupCurves:
    """Rows with like predictions, and how many of them had no event up to each time.

    Attributes:
        name: for a legend.
        predicted: the mean of their predicted survival at the times of the picture.
        found: Kaplan and Meier's curve.
        num_rows: how many.
    """

    name: str
    predicted: Float[Array, " T"]
    found: SurvivalCurve
    num_rows: int


def time_axis(law: Any, log: bool, last: float | None = None, num_points: int = NUM_POINTS) -> Float[Array, " T"]:
    """Times over which curves fall, up to the last one that was observed."""
    end = float(np.max(law.quantile(0.9))) if last is None else last
    start = float(np.min(law.quantile(0.01)))
    if log:
        if start <= 0 or end <= 0:
            raise ValueError("A logarithmic axis is for positive times; pass log=False.")
        return np.geomspace(min(start, end / 10), end, num_points)
    return np.linspace(min(0.0, start), end, num_points)


def group_curves(law: Any, bounds: Float[Array, "N 2"], times: Float[Array, " T"], num_groups: int = 3) -> list[GroupCurves]:
    """Rows in groups of equally many by their predicted median."""
    medians, found = law.quantile(0.5), []
    for rows in groups_by(medians, num_groups):
        ends = shown(float(medians[rows].min()), 3), shown(float(medians[rows].max()), 3)
        predicted = JoinedLaws((law.rows(rows),)).survival(times).mean(0)
        found.append(GroupCurves(f"median {ends[0]} to {ends[1]}", predicted, kaplan_meier(bounds[rows]), len(rows)))
    return found


def draw_group_curves(ax: Axes, times: Float[Array, " T"], groups: Sequence[GroupCurves], log: bool = False) -> None:
    """Found curves as steps with 95 % bands, predicted ones dashed."""
    for i, group in enumerate(groups):
        colour = COLOURS[i % len(COLOURS)]
        found, half = group.found.at(times), HALF_WIDTH * group.found.std_at(times)
        low, high = np.clip(found - half, 0, 1), np.clip(found + half, 0, 1)
        ax.fill_between(times, low, high, color=colour, alpha=0.15, lw=0, step="post")
        ax.step(times, found, color=colour, lw=1.6, where="post", label=group.name)
        ax.plot(times, group.predicted, color=colour, lw=1.3, ls="--")
    ax.add_line(Line2D([], [], color=MEAN, lw=1.3, ls="--", label="predicted"))
    _time_look(ax, times, log)


def draw_row_curves(
    ax: Axes, times: Float[Array, " T"], survival: Float[Array, "N T"], log: bool = False, names: Sequence[str] = ()
) -> None:
    """One line a row, with a name where it has one."""
    for i, values in enumerate(survival):
        label = names[i] if names else None
        colour = COLOURS[i % len(COLOURS)] if names else CHANCE
        ax.plot(times, values, color=colour, lw=1.3 if names else 0.9, label=label, zorder=2 if names else 1)
    _time_look(ax, times, log)


def _time_look(ax: Axes, times: Float[Array, " T"], log: bool) -> None:
    if log:
        ax.set_xscale("log")
    ax.set(xlim=(times[0], times[-1]), ylim=(0, 1.02), xlabel="time", ylabel="no event so far")
    if log:
        plain_decades(ax.xaxis)
    shares(ax.yaxis)


def draw_survival_calibration(ax: Axes, found: SurvivalCalibration) -> None:
    """Predicted survival against Kaplan and Meier's, a line a time, with 95 % error bars."""
    expected_line(ax, [0, 1], [0, 1])
    for i, time in enumerate(found.times):
        half = HALF_WIDTH * found.std[i]
        low, high = np.minimum(half, found.found[i]), np.minimum(half, 1 - found.found[i])
        ax.errorbar(
            found.predicted[i],
            found.found[i],
            yerr=(low, high),
            fmt="o-",
            color=COLOURS[i % len(COLOURS)],
            ms=4.5,
            lw=1.3,
            elinewidth=0.9,
            label=f"at time {shown(float(time), 3)}",
        )
    ax.set(xlim=(0, 1), ylim=(0, 1.01), xlabel="predicted: no event so far", ylabel="found (Kaplan–Meier)")
    shares(ax.xaxis, ax.yaxis)


def calibration_times(bounds: Float[Array, "N 2"]) -> Array:
    """The quarters of the times at which events came."""
    came = bounds[bounds[:, 0] == bounds[:, 1], 0]
    return np.unique(np.quantile(came, (0.25, 0.5, 0.75)))


def pit_of_times(law: Any, bounds: Float[Array, "N 2"], num_bins: int = 10) -> tuple[Promises, float]:
    """Shares of rows in bins of the probability of an earlier event, rows without one spread over later bins; and the p-value."""
    found = d_calibration(bounds, JoinedLaws((law,)).places(bounds), num_bins=num_bins)
    return promises(len(bounds), np.full(num_bins, 1 / num_bins), found.shares), found.p_value


def plot_survival(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    rows: Sequence[int] | None = None,
    num_groups: int = 3,
    log: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """The probability of no event up to each time: of some rows, or of groups of rows beside Kaplan and Meier's curves.

    With targets, rows are put into groups of equally many by their predicted median. The steps are what was found in each, with
    95 % bands; the dashed line is what was predicted.

    Args:
        model: a `GWIRegressor` fitted with ``likelihood="censored"``.
        X: rows; with targets such that it has not seen.
        y: their events and times.
        rows: numbers of rows whose own curves are drawn; without y five from early to late when None.
        num_groups: of rows, at least ten in each.
        log: whether the axis of times is logarithmic.
        ax: where to draw.

    Examples:
        >>> import numpy as np
        >>> import gwi
        >>> X = np.linspace(0, 3, 20)[:, None]
        >>> time = np.exp(X[:, 0] + 0.1 * np.random.default_rng(0).normal(size=20))
        >>> y = np.column_stack([time, np.where(time < 9, time, np.inf)])
        >>> likelihood = gwi.Censored(shape="normal", noise="constant")
        >>> model = gwi.GWIRegressor("linear", likelihood=likelihood, cv=2, random_state=0).fit(X, y)
        >>> ax = gwi.plots.plot_survival(model, X)
        >>> ax.get_ylabel()
        'no event so far'
    """
    ax = new_axes(ax)
    if y is None:
        law = times_law(model, X, "plot_survival")
        chosen = _spread(law.quantile(0.5)) if rows is None else np.asarray(rows, dtype=np.int64)
        some = law.rows(chosen)
        times = time_axis(some, log)
        draw_row_curves(ax, times, JoinedLaws((some,)).survival(times), log, [f"row {row}" for row in chosen])
    else:
        law, bounds = law_and_bounds(model, X, y, "plot_survival")
        times = time_axis(law, log, float(bounds[:, 0].max()))
        if rows is not None:
            draw_row_curves(ax, times, JoinedLaws((law.rows(np.asarray(rows, dtype=np.int64)),)).survival(times), log)
        draw_group_curves(ax, times, group_curves(law, bounds, times, num_groups), log)
    # Curves fall from the upper left.
    ax.legend(fontsize=9, frameon=False, loc="lower left" if log else "upper right")
    return ax


def _spread(medians: Array) -> NDArray[np.int64]:
    """Some rows from early to late."""
    order = np.argsort(medians, kind="stable")
    return order[np.unique(np.linspace(0, len(order) - 1, NUM_LINES).round().astype(np.int64))]
