"""Pictures of a fitted estimator: what it predicts, whether it keeps its promises, and where it knows nothing.

Every function draws on the axes it is given, or on new ones, and returns them; nothing is shown, saved or set globally. Colours
are Okabe and Ito's, told apart by all eyes, and 600 pixels are wide enough to read them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from scipy.stats import binom, t
from torch import Tensor

from gwi._typing import Array
from gwi.core.distributions import cumulative, quantile
from gwi.core.measures import kernel_factor
from gwi.core.tempering import conformal_quantile
from gwi.evaluation.classification import NUM_BINS
from gwi.models.regression import RegressionModel
from gwi.plots.style import (
    ALARM,
    BAND,
    BY_CHANCE,
    CHANCE,
    DATA,
    HALF_WIDTH,
    INDUCING,
    MEAN,
    SQUARE,
    WIDE,
    column_number,
    feature_name,
    legend,
    line_over,
    new_axes,
    plain,
    plain_decades,
    regression,
    sample,
    shares,
    std_of_f,
    target_name,
    target_number,
    targets,
)

LEVELS = np.arange(1, 20) / 20


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
    fitted, rows = regression(model, X, "plot_prediction")
    column, one_feature = column_number(model, feature), rows.shape[1] == 1
    grid = np.repeat(np.median(rows, axis=0)[None], num_points, axis=0)
    grid[:, column] = line_over(rows[:, column], margin, num_points)
    (mean, std), std_f = fitted.law(grid), std_of_f(fitted, grid)
    j = target_number(fitted, target)
    ax = new_axes(ax, WIDE)
    x = grid[:, column]
    for half, colour, shade, of in ((std[j], BAND, 0.35, "y"), (std_f[j], DATA, 0.45, "f")):
        low_edge, high_edge = mean[j] - HALF_WIDTH * half, mean[j] + HALF_WIDTH * half
        ax.fill_between(x, low_edge, high_edge, color=colour, alpha=shade, lw=0, label=f"± {HALF_WIDTH} std of {of}")
    if y is not None:
        shown = sample(len(rows))
        values = targets(fitted, y, len(rows))[j]
        ax.scatter(rows[shown, column], values[shown], s=9, color=MEAN, alpha=0.45, lw=0, label="data")
    ax.plot(x, mean[j], color=MEAN, lw=1.5, label="mean")
    z = fitted.scales.original_rows(fitted.posterior.kernel.inducing_points.detach().cpu().numpy())[:, column]
    z = z[(z >= x[0]) & (z <= x[-1])]
    ax.plot(
        z, np.full(len(z), 0.02), "|", ms=7, mew=0.8, color=INDUCING, transform=ax.get_xaxis_transform(), label="inducing points"
    )
    ax.set(xlim=(x[0], x[-1]), ylabel=target_name(fitted, j))
    ax.set_xlabel(feature_name(model, column) + ("" if one_feature else ", other features at their median"))
    legend(ax, columns=3)
    return ax


def plot_calibration(model: Any, X: Any, y: Any, *, target: int = 0, ax: Axes | None = None) -> Axes:
    """How many targets the intervals hold, against how many they promise; for a classifier, accuracy against confidence.

    The grey band is where 95 % of shares would lie by chance if the promise were kept. A classifier is anything with
    `predict_proba` and `classes_`; its rows are put into 15 bins of the confidence, the probability of the most probable class.

    Args:
        model: a fitted `GWIRegressor`, or a classifier.
        X: rows that it has not seen.
        y: their targets, or classes.
        target: number of the target, when there are several.
        ax: where to draw.
    """
    if hasattr(model, "predict_proba"):
        return _plot_reliability(model, X, y, ax)
    fitted, rows = regression(model, X, "plot_calibration")
    j = target_number(fitted, target)
    values = targets(fitted, y, len(rows))[j]
    levels, covered = _coverages(fitted, rows, values, j, bool(model.conformal))
    ax = new_axes(ax, SQUARE)
    low, high = binom.interval(0.95, len(rows), levels)
    ax.fill_between(levels, low / len(rows), high / len(rows), color=CHANCE, alpha=0.5, lw=0, label=BY_CHANCE)
    ax.plot([0, 1], [0, 1], color=MEAN, lw=1, ls="--", label="as promised")
    ax.plot(levels, covered, "o-", color=DATA, ms=4, lw=1.5, label=f"{len(rows)} rows")
    ax.set_title(f"{levels[-1]:.0%} intervals hold {covered[-1]:.0%}", fontsize=10, loc="left")
    return shares(ax, "nominal coverage of the interval", "share of targets inside")


def _coverages(
    model: RegressionModel, rows: Array, values: Float[Array, " N"], j: int, conformal: bool
) -> tuple[Float[Array, " L"], Float[Array, " L"]]:
    """Levels, and the share of targets inside the intervals of `predict_interval`, all from one prediction."""
    mean, std = model.law(rows)
    score, num_judged = np.abs(values - mean[j]) / std[j], model.scores.shape[1]
    # A conformal interval needs judged rows beyond it.
    levels = LEVELS[num_judged / (num_judged + 1) >= LEVELS] if conformal else LEVELS
    if conformal:
        half = np.array([conformal_quantile(model.scores[j], level) for level in levels])
    else:
        half = quantile((1 + levels) / 2, float(model.degrees_of_freedom[j]))
    return levels, (score[:, None] <= half).mean(0)


def _plot_reliability(model: Any, X: Any, y: Any, ax: Axes | None) -> Axes:
    probabilities = np.asarray(plain(model.predict_proba(X)), dtype=np.float64)
    labels, classes = np.asarray(plain(y)), np.asarray(model.classes_)
    unknown = np.setdiff1d(labels, classes)
    if len(unknown):
        raise ValueError(f"y has classes that the model does not know: {', '.join(map(str, unknown[:5]))}.")
    confidence, hit = probabilities.max(1), classes[probabilities.argmax(1)] == labels
    place = np.searchsorted(np.arange(1, NUM_BINS) / NUM_BINS, confidence)
    count = np.bincount(place, minlength=NUM_BINS)
    used = count > 0
    mean, accuracy = (np.bincount(place, v, NUM_BINS)[used] / count[used] for v in (confidence, hit.astype(float)))
    low, high = binom.interval(0.95, count[used], np.clip(mean, 0, 1))
    ax = new_axes(ax, SQUARE)
    ax.vlines(mean, low / count[used], high / count[used], color=CHANCE, lw=6, alpha=0.7, label=BY_CHANCE)
    ax.plot([0, 1], [0, 1], color=MEAN, lw=1, ls="--", label="as promised")
    ax.plot(mean, accuracy, "o-", color=DATA, ms=5, lw=1.2, label=f"{len(labels)} rows")
    error = float(np.abs(mean - accuracy) @ count[used] / len(labels))
    ax.set_title(f"accuracy {hit.mean():.1%}, calibration error {error:.1%}", fontsize=10, loc="left")
    return shares(ax, "confidence: probability of the predicted class", "share of rows predicted right")


def plot_pit(model: Any, X: Any, y: Any, *, target: int = 0, num_bins: int = 10, ax: Axes | None = None) -> Axes:
    """Histogram of P(Y ≤ y) under the predictive law: flat where the law is right.

    Higher at both ends: too narrow; in the middle: too wide; at one end: the mean is off. The grey band holds 95 % of the counts
    of a bin by chance.

    Args:
        model: a fitted `GWIRegressor`; its own law is used, normal or Student's t.
        X: rows that it has not seen.
        y: their targets.
        target: number of the target, when there are several.
        num_bins: of the histogram.
        ax: where to draw.
    """
    fitted, rows = regression(model, X, "plot_pit")
    j = target_number(fitted, target)
    mean, std = fitted.law(rows)
    pit = cumulative((targets(fitted, y, len(rows))[j] - mean[j]) / std[j], float(fitted.degrees_of_freedom[j]))
    ax = new_axes(ax, WIDE)
    low, high = binom.interval(0.95, len(rows), 1 / num_bins)
    ax.hist(pit, bins=num_bins, range=(0, 1), color=DATA, alpha=0.75, rwidth=0.92, label=f"{len(rows)} rows")
    ax.axhspan(low, high, color=CHANCE, alpha=0.5, lw=0, label=BY_CHANCE)
    ax.axhline(len(rows) / num_bins, color=MEAN, lw=1, ls="--", label="expected")
    ax.set(xlim=(0, 1), xlabel="probability of a lower target under the prediction (PIT)", ylabel="number of rows")
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    legend(ax, columns=3)
    return ax


def plot_spectrum(
    model: Any, X: Any, *, num_eigenvalues: int = 100, max_rows: int = 500, target: int = 0, ax: Axes | None = None
) -> Axes:
    """The largest eigenvalues of C_Q C_P on the rows, and the share of Σ √λ, the cross term of W₂², that lies beyond each.

    Fast decay is what makes W₂ cheap to estimate. Targets are standardised, so the numbers have no unit.

    Args:
        model: a fitted `GWIRegressor`.
        X: rows; they stand for the measure on the inputs.
        num_eigenvalues: how many.
        max_rows: of more rows a fixed sample is taken.
        target: number of the target, when there are several.
        ax: where to draw.
    """
    fitted, rows = regression(model, X, "plot_spectrum")
    j = target_number(fitted, target)
    spectrum = _spectrum(fitted, fitted.scales.rows(rows[sample(len(rows), max_rows)], fitted.device), j)
    roots = np.sqrt(spectrum)
    left = 1 - roots.cumsum() / roots.sum()
    shown = min(num_eigenvalues, len(spectrum))
    number = np.arange(1, shown + 1)
    ax = new_axes(ax, WIDE)
    ax.semilogy(number, spectrum[:shown], "o-", color=DATA, ms=3, lw=1, label="eigenvalue λᵢ")
    ax.semilogy(
        number, np.maximum(left[:shown], np.finfo(float).eps), color=ALARM, lw=1.5, ls="--", label="share of Σ √λ beyond i"
    )
    ax.set_ylim(bottom=max(spectrum[:shown].min(), spectrum[0] * 1e-16) / 2)
    ax.set(xlim=(0, shown + 1), xlabel="number i of the eigenvalue", ylabel="no unit (standardised target)")
    ax.set_title(f"beyond the first {shown} lie {max(left[shown - 1], 0):.2g} of Σ √λ", fontsize=10, loc="left")
    legend(ax, columns=2, above=False)
    return ax


@torch.no_grad()
def _spectrum(model: RegressionModel, x: Float[Tensor, "n D"], j: int) -> Float[Array, " n"]:
    """Eigenvalues of C_P^½ C_Q C_P^½ for the empirical measure of the rows, in descending order."""
    r_factor = model.posterior.factor(x)
    r_factor = r_factor[j] if r_factor.ndim == 3 else r_factor
    k_factor = kernel_factor(model.posterior.kernel.prior_kernel, x)
    return (torch.linalg.svdvals(k_factor.mT @ r_factor) / len(x)).square().cpu().numpy()


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
    fitted, rows = regression(model, X, "plot_uncertainty_map")
    first, second = (column_number(model, feature) for feature in features)
    if first == second:
        raise ValueError(f"A map needs two different features; got {features}. For one feature use plot_prediction.")
    lines = [line_over(rows[:, column], margin, num_points) for column in (first, second)]
    grid = np.repeat(np.median(rows, axis=0)[None], num_points**2, axis=0)
    grid[:, first], grid[:, second] = (values.ravel() for values in np.meshgrid(*lines))
    j = target_number(fitted, target)
    std = std_of_f(fitted, grid)[j].reshape(num_points, num_points)
    ax = new_axes(ax, (6.0, 4.6))
    mesh = ax.pcolormesh(*lines, std, cmap="cividis", shading="gouraud", rasterized=True)
    shown = sample(len(rows))
    ax.scatter(rows[shown, first], rows[shown, second], s=11, color="white", edgecolor="black", lw=0.5, label="rows")
    ax.figure.colorbar(mesh, ax=ax, label=f"std of f (unit of {target_name(fitted, j)})")
    beside = "" if rows.shape[1] == 2 else ", others at their median"
    ax.set(xlabel=feature_name(model, first) + beside, ylabel=feature_name(model, second))
    return ax


def plot_errors(model: Any, X: Any, y: Any, *, target: int = 0, num_bins: int = 8, ax: Axes | None = None) -> Axes:
    """|y − m| against the predicted standard deviation: dots, their means in bins of equally many rows, and what is expected.

    The line is E|y − m| under the predictive law, and grey bars hold 95 % of the means of a bin by chance. Axes are logarithmic
    where standard deviations differ by more than a factor of five.

    Args:
        model: a fitted `GWIRegressor`.
        X: rows that it has not seen.
        y: their targets.
        target: number of the target, when there are several.
        num_bins: of the standard deviation.
        ax: where to draw.
    """
    fitted, rows = regression(model, X, "plot_errors")
    j = target_number(fitted, target)
    mean, std = (values[j] for values in fitted.law(rows))
    error = np.abs(targets(fitted, y, len(rows))[j] - mean)
    slope = _absolute_moment(float(fitted.degrees_of_freedom[j]))
    # Standard deviations that hardly differ make one bin: their order is rounding.
    alike = std.max() < 1.01 * std.min()
    bins = np.array_split(np.argsort(std, kind="stable"), 1 if alike else min(num_bins, len(rows)))
    centre, found = (np.array([values[b].mean() for b in bins]) for values in (std, error))
    # Of a law with unit variance, |z| has variance 1 − E|z|², whatever its tails.
    chance = HALF_WIDTH * np.array([math.sqrt((1 - slope**2) * np.square(std[b]).mean() / len(b)) for b in bins])
    ax = new_axes(ax, WIDE)
    shown = sample(len(rows))
    ax.scatter(std[shown], error[shown], s=7, color=MEAN, alpha=0.25, lw=0, label="rows")
    expected = slope * centre
    ax.vlines(centre, np.maximum(expected - chance, 0), expected + chance, color=CHANCE, lw=7, alpha=0.7, label=BY_CHANCE)
    ends = np.array([0.95 * std.min(), 1.05 * std.max()])
    ax.plot(ends, slope * ends, color=MEAN, lw=1, ls="--", label="expected")
    ax.plot(centre, found, "o-", color=DATA, ms=5, lw=1.2, label="mean of a bin")
    unit = f"unit of {target_name(fitted, j)}"
    ax.set(xlabel=f"predicted standard deviation ({unit})", ylabel=f"absolute error ({unit})")
    if std.max() > 5 * std.min():
        ax.set(xscale="log", yscale="log", ylim=(slope * ends[0] / 20, 1.3 * max(error.max(), slope * ends[1])))
        plain_decades(ax)
    else:
        ax.set(xlim=ends, ylim=(0, None))
    legend(ax, columns=4)
    return ax


def _absolute_moment(degrees_of_freedom: float) -> float:
    """E|Z| of the law with unit variance."""
    if math.isinf(degrees_of_freedom):
        return math.sqrt(2 / math.pi)
    d = degrees_of_freedom
    return 2 * d / (d - 1) * t.pdf(0, d) * math.sqrt((d - 2) / d)
