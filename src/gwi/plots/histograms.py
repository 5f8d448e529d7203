"""Histograms: of the probability of a lower target, of the confidence of a classifier, and of outlier scores."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from numpy.typing import NDArray

from gwi._typing import Array
from gwi._validation import as_array
from gwi.core.laws.protocol import PredictiveLaw
from gwi.core.laws.protocol import pit as places
from gwi.plots.calibration import Promises, promises
from gwi.plots.inputs import confidence_and_hits
from gwi.plots.style import ALARM, BY_CHANCE, CHANCE, DATA, bars, drawn, expected_line, new_axes, shares


def pit(law: PredictiveLaw, y: Float[Array, " N"], num_bins: int = 10) -> Promises:
    """Shares of rows in bins of the probability of a lower target under the prediction; equal shares are promised.

    Where single values have a probability, a row is put somewhere inside of its jump by lot.
    """
    count = np.histogram(places(law, y), num_bins, (0, 1))[0]
    return promises(len(y), np.full(num_bins, 1 / num_bins), count / len(y))


def draw_pit(ax: Axes, found: Promises, num_rows: int, label: str = "rows") -> None:
    """All bins, beside equally many rows in each."""
    low, high, expected = (num_rows * values[0] for values in (found.low, found.high, found.promised))
    ax.axhspan(low, high, color=CHANCE, alpha=0.5, lw=0, label=BY_CHANCE)
    count = np.round(num_rows * found.found)
    bars(ax, np.linspace(0, 1, len(count) + 1), (count, DATA, label), alpha=0.4, inside=True)
    expected_line(ax, [0, 1], [expected, expected], "expected")
    ax.set(xlabel="probability of a lower target (PIT)", ylim=(0, None))
    shares(ax.xaxis)


def draw_confidence(ax: Axes, confidence: Float[Array, " N"], hit: Bool[NDArray[Any], " N"]) -> None:
    """Wrong rows, and right ones on top of them, by confidence."""
    edges = np.linspace(min(0.5, float(confidence.min())), 1, 13)
    wrong, right = (np.histogram(confidence[chosen], edges)[0].astype(np.float64) for chosen in (~hit, hit))
    bars(ax, edges, (wrong, ALARM, "wrong"), (right, DATA, "right"))
    ax.set_xlabel("confidence: the highest probability")
    shares(ax.xaxis)


def draw_outlier_scores(ax: Axes, scores: Float[Array, " N"]) -> None:
    """Rows by outlier score."""
    edges = np.linspace(0, 1, 21)
    bars(ax, edges, (np.histogram(scores, edges)[0].astype(np.float64), DATA, "rows"))
    ax.set_xlabel("outlier score")


def plot_confidence(model: Any, X: Any, y: Any, *, ax: Axes | None = None) -> Axes:
    """Histogram of a classifier's confidence, rows predicted right on top of those predicted wrong.

    Wrong rows should have a low confidence.

    Args:
        model: a classifier with `predict_proba` and `classes_`.
        X: rows that it has not seen.
        y: their classes.
        ax: where to draw.

    Examples:
        >>> import numpy as np
        >>> import gwi
        >>> X = np.linspace(-1, 1, 40)[:, None]
        >>> model = gwi.GWIClassifier("linear", cv=2, random_state=0).fit(X[::2], X[::2, 0] > 0)
        >>> ax = gwi.plots.plot_confidence(model, X[1::2], X[1::2, 0] > 0)
        >>> ax.get_xlabel()
        'confidence: the highest probability'
    """
    return drawn(ax, draw_confidence, *confidence_and_hits(model, X, y))


def plot_outlier_scores(model: Any, X: Any, *, ax: Axes | None = None) -> Axes:
    """Histogram of the outlier score: 0 for rows like the training data, 1 far away from all of it.

    Args:
        model: a fitted `GWIRegressor` or `GWIClassifier`.
        X: rows.
        ax: where to draw.

    Examples:
        >>> import numpy as np
        >>> import gwi
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=40)
        >>> model = gwi.GWIRegressor("linear", cv=2, random_state=0).fit(X[::2], y[::2])
        >>> ax = gwi.plots.plot_outlier_scores(model, X)
        >>> ax.get_xlabel()
        'outlier score'
    """
    ax = new_axes(ax)
    draw_outlier_scores(ax, np.asarray(as_array(model.ood_score(X))))
    return ax
