"""Pictures of a fitted regression along one feature and over two: what it predicts, and where it knows nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from gwi._typing import Array
from gwi.core.outcomes import as_bounds
from gwi.estimators.answers import level_names
from gwi.models.numbers import NumberModel
from gwi.plots.inputs import column_number, feature_name, line_over, regression, sample, std_of_f, target_name, targets
from gwi.plots.levels import draw_levels
from gwi.plots.style import ALARM, BAND, DATA, HALF_WIDTH, INDUCING, MEAN, legend, new_axes


def plot_prediction(
    model: Any,
    X: Any,
    y: Any = None,
    feature: int | str = 0,
    *,
    target: int = 0,
    margin: float = 0.1,
    num_points: int = 300,
    ax: Axes | None = None,
) -> Axes:
    """The mean along one feature, with m ± 1.96 standard deviations of y and of f; other features are at their median.

    The standard deviation of f is tempered like that of y, so that it is a part of it. With other likelihoods than the Gaussian
    the wide band is the 95 % interval of y. Of times to an event the line is the median, and rows without an event are upward
    marks; of levels in order the probabilities are drawn, one on top of another.

    Args:
        model: a fitted `GWIRegressor`.
        X: rows, which give the range, the medians and, with y, the dots.
        y: their targets.
        feature: number or name of its column.
        target: number of the target, when there are several.
        margin: how far to go beyond the rows on each side, as a share of their range.
        num_points: along the feature.
        ax: where to draw.

    Examples:
        >>> import numpy as np
        >>> import gwi
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=40)
        >>> model = gwi.GWIRegressor("linear", cv=2, random_state=0).fit(X[::2], y[::2])
        >>> ax = gwi.plots.plot_prediction(model, X[1::2], y[1::2])
        >>> ax.get_xlabel()
        'x'
    """
    fitted, rows = regression(model, X, target, "plot_prediction")
    column, one_feature = column_number(model, feature), rows.shape[1] == 1
    grid = np.repeat(np.median(rows, axis=0)[None], num_points, axis=0)
    grid[:, column] = line_over(rows[:, column], margin, num_points)
    ax = new_axes(ax)
    x = grid[:, column]
    if model._kind == "levels":
        names = [str(name) for name in level_names(fitted, model._targets.levels)]
        law: Any = fitted.laws(grid)[0]
        draw_levels(ax, x, law.probabilities.T, names)
    else:
        _draw_bands(ax, x, fitted, grid, target, model._kind == "times")
        if y is not None:
            shown = sample(len(rows))
            _draw_targets(ax, rows[shown, column], _shown_targets(model, y, len(rows), target)[shown])
    if model._kind != "levels":
        z = fitted.scales.original_rows(fitted.posterior.kernel.inducing_points.detach().cpu().numpy())[:, column]
        z = z[(z >= x[0]) & (z <= x[-1])]
        ax.plot(
            z,
            np.full(len(z), 0.02),
            "|",
            ms=7,
            mew=0.8,
            color=INDUCING,
            transform=ax.get_xaxis_transform(),
            label="inducing points",
        )
        ax.set_ylabel("time" if model._kind == "times" else target_name(fitted, target))
    ax.set_xlim(x[0], x[-1])
    ax.set_xlabel(feature_name(model, column) + ("" if one_feature else ", other features at their median"))
    legend(ax)
    return ax


def _draw_bands(ax: Axes, x: Array, fitted: NumberModel, grid: Array, target: int, of_times: bool) -> None:
    """The mean and its bands; where y is not f and symmetric noise, its 95 % interval, and of times the median."""
    std_f = std_of_f(fitted, grid)[target]
    if fitted.is_gaussian:
        mean, std = (part[target] for part in fitted.law(grid))
        for half, colour, shade, of in ((std, BAND, 0.35, "y"), (std_f, DATA, 0.45, "f")):
            low_edge, high_edge = mean - HALF_WIDTH * half, mean + HALF_WIDTH * half
            ax.fill_between(x, low_edge, high_edge, color=colour, alpha=shade, lw=0, label=f"± {HALF_WIDTH} std of {of}")
        ax.plot(x, mean, color=MEAN, lw=1.5, label="mean")
        return
    law = fitted.laws(grid)[target]
    low, high = law.support
    ax.fill_between(x, law.quantile(0.025), law.quantile(0.975), color=BAND, alpha=0.35, lw=0, label="95 % of y")
    if of_times:
        ax.plot(x, law.quantile(0.5), color=MEAN, lw=1.5, label="median")
        return
    mean = law.expectation()
    ends = (np.clip(mean + side * HALF_WIDTH * std_f, low, high) for side in (-1, 1))
    ax.fill_between(x, *ends, color=DATA, alpha=0.45, lw=0, label=f"± {HALF_WIDTH} std of the mean")
    ax.plot(x, mean, color=MEAN, lw=1.5, label="mean")


def _shown_targets(model: Any, y: Any, num_rows: int, target: int) -> Array:
    """Two numbers a row: where its dot is, and whether the target may be larger."""
    if model._kind != "times":
        values = targets(model.model_, y, num_rows)[target]
        return np.column_stack([values, np.zeros(num_rows)])
    low, high = as_bounds(model._targets.encode(y)).T
    return np.column_stack([np.where(np.isfinite(low), low, high), low < high])


def _draw_targets(ax: Axes, x: Array, shown: Array) -> None:
    """Dots, and upward marks of targets that may be larger."""
    is_open = shown[:, 1] > 0
    ax.scatter(x[~is_open], shown[~is_open, 0], s=9, color=MEAN, alpha=0.45, lw=0, label="events" if is_open.any() else "data")
    if is_open.any():
        ax.scatter(x[is_open], shown[is_open, 0], s=14, marker="^", color=ALARM, alpha=0.5, lw=0, label="no event so far")


def plot_uncertainty_map(
    model: Any,
    X: Any,
    features: tuple[int | str, int | str] = (0, 1),
    *,
    target: int = 0,
    margin: float = 0.2,
    num_points: int = 80,
    ax: Axes | None = None,
) -> Axes:
    """The standard deviation of f over two features, with the rows on top; other features are at their median.

    With other likelihoods than the Gaussian it is that of the mean of y given f.

    Tempered, as in `plot_prediction`.

    Args:
        model: a fitted `GWIRegressor`.
        X: rows, which give ranges, medians and dots.
        features: numbers or names of two columns.
        target: number of the target, when there are several.
        margin: how far to go beyond the rows on each side, as a share of their range.
        num_points: along each feature.
        ax: where to draw.

    Examples:
        >>> import numpy as np
        >>> import gwi
        >>> X = np.random.default_rng(0).normal(size=(20, 2))
        >>> y = X[:, 0] + 0.1 * np.random.default_rng(0).normal(size=20)
        >>> model = gwi.GWIRegressor("linear", cv=2, random_state=0).fit(X, y)
        >>> ax = gwi.plots.plot_uncertainty_map(model, X, num_points=20)
        >>> ax.get_xlabel(), ax.get_ylabel()
        ('feature 0', 'feature 1')
    """
    fitted, rows = regression(model, X, target, "plot_uncertainty_map")
    first, second = (column_number(model, feature) for feature in features)
    if first == second:
        raise ValueError(f"A map needs two different features; got {features}. For one feature use plot_prediction.")
    lines = [line_over(rows[:, column], margin, num_points) for column in (first, second)]
    grid = np.repeat(np.median(rows, axis=0)[None], num_points**2, axis=0)
    grid[:, first], grid[:, second] = (values.ravel() for values in np.meshgrid(*lines))
    std = std_of_f(fitted, grid)[target].reshape(num_points, num_points)
    ax = new_axes(ax, (6.0, 4.6))
    ax.grid(visible=False)
    mesh = ax.pcolormesh(*lines, std, cmap="cividis", shading="gouraud", rasterized=True)
    shown = sample(len(rows))
    ax.scatter(rows[shown, first], rows[shown, second], s=11, color="white", edgecolor="black", lw=0.5, label="rows")
    of = f"{'f' if fitted.is_gaussian else 'the mean'} (unit of {target_name(fitted, target)})"
    ax.figure.colorbar(mesh, ax=ax, label=f"std of {'the mean, in levels' if model._kind == 'levels' else of}")
    beside = "" if rows.shape[1] == 2 else ", others at their median"
    ax.set(xlabel=feature_name(model, first) + beside, ylabel=feature_name(model, second))
    return ax
