"""Pictures of a fitted regression along one feature and over two: what it predicts, and where it knows nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from gwi.plots.inputs import column_number, feature_name, line_over, regression, sample, std_of_f, target_name, targets
from gwi.plots.style import BAND, DATA, HALF_WIDTH, INDUCING, MEAN, legend, new_axes


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

    The standard deviation of f is tempered like that of y, so that it is a part of it.

    Args:
        model: a fitted `GWIRegressor`.
        X: rows, which give the range, the medians and, with y, the dots.
        y: their targets.
        feature: number or name of its column.
        target: number of the target, when there are several.
        margin: how far to go beyond the rows on each side, as a share of their range.
        num_points: along the feature.
        ax: where to draw.
    """
    fitted, rows = regression(model, X, target, "plot_prediction")
    column, one_feature = column_number(model, feature), rows.shape[1] == 1
    grid = np.repeat(np.median(rows, axis=0)[None], num_points, axis=0)
    grid[:, column] = line_over(rows[:, column], margin, num_points)
    (mean, std), std_f = fitted.law(grid), std_of_f(fitted, grid)
    ax = new_axes(ax)
    x = grid[:, column]
    for half, colour, shade, of in ((std[target], BAND, 0.35, "y"), (std_f[target], DATA, 0.45, "f")):
        low_edge, high_edge = mean[target] - HALF_WIDTH * half, mean[target] + HALF_WIDTH * half
        ax.fill_between(x, low_edge, high_edge, color=colour, alpha=shade, lw=0, label=f"± {HALF_WIDTH} std of {of}")
    if y is not None:
        shown = sample(len(rows))
        values = targets(fitted, y, len(rows))[target]
        ax.scatter(rows[shown, column], values[shown], s=9, color=MEAN, alpha=0.45, lw=0, label="data")
    ax.plot(x, mean[target], color=MEAN, lw=1.5, label="mean")
    z = fitted.scales.original_rows(fitted.posterior.kernel.inducing_points.detach().cpu().numpy())[:, column]
    z = z[(z >= x[0]) & (z <= x[-1])]
    ax.plot(
        z, np.full(len(z), 0.02), "|", ms=7, mew=0.8, color=INDUCING, transform=ax.get_xaxis_transform(), label="inducing points"
    )
    ax.set(xlim=(x[0], x[-1]), ylabel=target_name(fitted, target))
    ax.set_xlabel(feature_name(model, column) + ("" if one_feature else ", other features at their median"))
    legend(ax)
    return ax


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

    Tempered, as in `plot_prediction`.

    Args:
        model: a fitted `GWIRegressor`.
        X: rows, which give ranges, medians and dots.
        features: numbers or names of two columns.
        target: number of the target, when there are several.
        margin: how far to go beyond the rows on each side, as a share of their range.
        num_points: along each feature.
        ax: where to draw.
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
    ax.figure.colorbar(mesh, ax=ax, label=f"std of f (unit of {target_name(fitted, target)})")
    beside = "" if rows.shape[1] == 2 else ", others at their median"
    ax.set(xlabel=feature_name(model, first) + beside, ylabel=feature_name(model, second))
    return ax
