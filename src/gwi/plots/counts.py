"""Counts: how often each one came, beside how often it was expected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter

from gwi._typing import Array
from gwi.plots.inputs import law_and_targets
from gwi.plots.style import BY_CHANCE, CHANCE, DATA, HALF_WIDTH, MEAN, drawn

# Counts beyond this quantile of those found are one bar, and so are runs of counts where there are more than so many bars.
MOST, MOST_BARS = 0.995, 30


@dataclass(frozen=True)
class Frequencies:
    """How many rows have each count, or one of a run of counts.

    Attributes:
        first: the least count of each bar; the last bar has all larger ones, too.
        width: how many counts a bar has.
        expected: rows by the predictions.
        found: rows.
        std: of the rows found, if predictions are right.
    """

    first: Float[Array, " K"]
    width: int
    expected: Float[Array, " K"]
    found: Float[Array, " K"]
    std: Float[Array, " K"]


def frequencies(law: Any, y: Float[Array, " N"]) -> Frequencies:
    """Expected and found rows of each count."""
    top = max(float(np.quantile(y, MOST)), 1.0)
    width = int(np.ceil((top + 1) / MOST_BARS))
    first = np.arange(0.0, top + 1, width)
    below = np.stack([np.zeros(len(y)), *(law.cumulative(np.full(len(y), end - 1)) for end in first[1:]), np.ones(len(y))])
    probability = np.maximum(np.diff(below, axis=0), 0.0)
    found = np.bincount(np.searchsorted(first, y, side="right") - 1, minlength=len(first)).astype(np.float64)
    return Frequencies(first, width, probability.sum(1), found, np.sqrt((probability * (1 - probability)).sum(1)))


def draw_rootogram(ax: Axes, found: Frequencies) -> None:
    """Bars of √found that hang from √expected; where predictions are right, they end near zero."""
    top, place = np.sqrt(found.expected), np.arange(len(found.first))
    low, high = (np.sqrt(np.maximum(found.expected + side * HALF_WIDTH * found.std, 0)) for side in (-1, 1))
    ax.bar(place, -np.sqrt(found.found), 0.85, top, color=DATA, alpha=0.55, label="found")
    ax.vlines(place, top - high, top - low, color=CHANCE, lw=6, alpha=0.8, label=BY_CHANCE)
    ax.plot(place, top, "o-", color=MEAN, ms=3.5, lw=1.2, label="expected")
    ax.axhline(0, color=MEAN, lw=1, ls="--")
    ax.set(xlim=(-0.7, len(place) - 0.3), ylabel="√ rows, hanging")
    together = "" if found.width == 1 else f"{found.width} in each bar, "
    ax.set_xlabel(f"count ({together}the last bar has all larger ones)")
    # Bars end where the axis would.
    ax.set_ylim(top=1.06 * float(top.max()))
    ax.xaxis.set_major_locator(FixedLocator(place[:: max(1, len(place) // 8)].tolist()))
    names = [f"{first:.0f}" for first in found.first]
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: names[int(x)] if 0 <= x < len(names) else ""))


def plot_rootogram(model: Any, X: Any, y: Any, *, ax: Axes | None = None) -> Axes:
    """How many rows have each count, beside how many were expected to: bars of √found hang from the line of √expected.

    A bar that ends below zero is a count that came too often, one that ends above it came too seldom; grey is what chance alone
    would do in 95 of 100 cases. Square roots make small and large numbers of rows vary alike (Kleiber and Zeileis, 2016).

    Args:
        model: a `GWIRegressor` fitted to counts.
        X: rows that it has not seen.
        y: their counts.
        ax: where to draw.

    Examples:
        >>> import numpy as np
        >>> import gwi
        >>> X = np.linspace(0, 3, 40)[:, None]
        >>> y = np.random.default_rng(0).poisson(1 + X[:, 0])
        >>> model = gwi.GWIRegressor("linear", likelihood="poisson", cv=2, random_state=0).fit(X[::2], y[::2])
        >>> ax = gwi.plots.plot_rootogram(model, X[1::2], y[1::2])
        >>> ax.get_xlabel()
        'count (the last bar has all larger ones)'
    """
    law, values = law_and_targets(model, X, y, 0, "plot_rootogram")
    if model._kind != "counts":
        raise ValueError(
            'plot_rootogram is for counts: likelihood="poisson" or "negative-binomial". For other targets use plot_pit.'
        )
    return drawn(ax, draw_rootogram, frequencies(law, values))
