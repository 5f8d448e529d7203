"""Calibration and PIT of any kind of target: numbers, counts, levels in order, times to an event, and classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from gwi._validation import as_array
from gwi.evaluation.survival import concordance
from gwi.evaluation.survival_calibration import calibration_at
from gwi.evaluation.times import JoinedLaws
from gwi.plots.calibration import conformal_coverage, coverage, draw_coverage, draw_reliability, reliability
from gwi.plots.histograms import draw_pit, pit
from gwi.plots.inputs import confidence_and_hits, law_and_bounds, law_and_targets, probabilities_and_places, regression
from gwi.plots.levels import draw_level_reliability, level_reliability
from gwi.plots.style import SQUARE, drawn
from gwi.plots.survival import calibration_times, draw_survival_calibration, pit_of_times


def plot_calibration(model: Any, X: Any, y: Any, *, target: int = 0, times: Any = None, ax: Axes | None = None) -> Axes:
    """How many targets the intervals hold, against how many they promise; for a classifier, accuracy against confidence.

    The grey band is where 95 % of shares would lie by chance if the promise were kept. A classifier is anything with
    `predict_proba` and `classes_`; its rows are put into 15 bins of the confidence, the probability of the most probable class.
    Of levels in order it is the predicted probability of at most a level against the share found; of times to an event the
    predicted survival at some times against Kaplan and Meier's, in five groups of rows.

    Args:
        model: a fitted `GWIRegressor`, or a classifier.
        X: rows that it has not seen.
        y: their targets, or classes.
        target: number of the target, when there are several.
        times: of times to an event, at which; the quarters of the times at which events came when None.
        ax: where to draw.

    Examples:
        >>> import numpy as np
        >>> import gwi
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=40)
        >>> model = gwi.GWIRegressor("linear", cv=2, random_state=0).fit(X[::2], y[::2])
        >>> ax = gwi.plots.plot_calibration(model, X[1::2], y[1::2])
        >>> ax.get_xlabel()
        'nominal coverage of the interval'
    """
    if hasattr(model, "predict_proba"):
        confidence, hit = confidence_and_hits(model, X, y)
        found, count = reliability(confidence, hit)
        ax = drawn(ax, draw_reliability, found, f"{len(hit)} rows", size=SQUARE, place="inside")
        error = float(np.abs(found.promised - found.found) @ count / len(hit))
        title = f"accuracy {hit.mean():.1%}, calibration error {error:.1%}"
    else:
        fitted, rows = regression(model, X, target, "plot_calibration")
        if model._kind == "times":
            return _of_times(model, X, y, times, ax)
        if model._kind == "levels":
            return _of_levels(model, X, y, ax)
        law, values = law_and_targets(model, X, y, target, "plot_calibration")
        if model.conformal:
            every = np.asarray(as_array(y), dtype=np.float64).reshape(len(rows), -1).T
            found = conformal_coverage(fitted.distances_of(fitted.parts(rows), every)[target], fitted.scores[target])
        else:
            found = coverage(law, values)
        ax = drawn(ax, draw_coverage, found, f"{len(values)} rows", size=SQUARE, place="inside")
        title = f"{found.promised[-1]:.0%} intervals hold {found.found[-1]:.0%}"
    ax.set_title(title, fontsize=10, loc="left")
    return ax


def _of_times(model: Any, X: Any, y: Any, times: Any, ax: Axes | None) -> Axes:
    law, bounds = law_and_bounds(model, X, y, "plot_calibration")
    at = calibration_times(bounds) if times is None else times
    found = calibration_at(bounds, JoinedLaws((law,)), at)
    ax = drawn(ax, draw_survival_calibration, found, size=SQUARE, place="inside")
    ax.set_title(f"{len(bounds)} rows, C-index {concordance(bounds, law.quantile(0.5)):.2f}", fontsize=10, loc="left")
    return ax


def _of_levels(model: Any, X: Any, y: Any, ax: Axes | None) -> Axes:
    probabilities, places = probabilities_and_places(model, X, y, "plot_calibration")
    found, count = level_reliability(probabilities, places)
    ax = drawn(ax, draw_level_reliability, found, f"{len(places)} rows", size=SQUARE, place="inside")
    error = float(np.abs(found.promised - found.found) @ count / count.sum())
    accuracy = (probabilities.argmax(1) == places).mean()
    ax.set_title(f"accuracy {accuracy:.1%}, calibration error {error:.1%}", fontsize=10, loc="left")
    return ax


def plot_pit(model: Any, X: Any, y: Any, *, target: int = 0, num_bins: int = 10, ax: Axes | None = None) -> Axes:
    """Histogram of P(Y ≤ y) under the predictive law: flat where the law is right.

    Higher at both ends: too narrow; in the middle: too wide; at one end: the mean is off. The grey band holds 95 % of the counts
    of a bin by chance. A count, or another single value with a probability, stands somewhere inside of its jump by lot; a time
    that is only known to be later is spread over all later bins.

    Args:
        model: a fitted `GWIRegressor`; its own law is used.
        X: rows that it has not seen.
        y: their targets.
        target: number of the target, when there are several.
        num_bins: of the histogram.
        ax: where to draw.

    Examples:
        >>> import numpy as np
        >>> import gwi
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=40)
        >>> model = gwi.GWIRegressor("linear", cv=2, random_state=0).fit(X[::2], y[::2])
        >>> ax = gwi.plots.plot_pit(model, X[1::2], y[1::2])
        >>> ax.get_xlabel()
        'probability of a lower target (PIT)'
    """
    fitted, rows = regression(model, X, target, "plot_pit")
    if model._kind == "times":
        law, bounds = law_and_bounds(model, X, y, "plot_pit")
        found, p_value = pit_of_times(law, bounds, num_bins)
        ax = drawn(ax, draw_pit, found, len(bounds), f"{len(bounds)} rows")
        ax.set_xlabel(f"probability of an earlier event (D-calibration: p = {p_value:.2g})")
        return ax
    if model._kind == "levels":
        law, values = fitted.laws(rows)[0], fitted.level_values[probabilities_and_places(model, X, y, "plot_pit")[1]]
    else:
        law, values = law_and_targets(model, X, y, target, "plot_pit")
    return drawn(ax, draw_pit, pit(law, values, num_bins), len(values), f"{len(values)} rows")
