"""Scores of several methods on the same folds."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from gwi._typing import Array
from gwi.plots.style import CHANCE, DATA, GRID, MEAN, new_axes, plain_decades


def plot_scores(
    scores: Mapping[str, Float[Array, " K"]],
    *,
    best: Collection[str] = (),
    nominal: float | None = None,
    log: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """One line for each method: the mean over folds with its standard error, and each fold as a grey dot.

    Args:
        scores: of each fold, by the name of the method; folds that are not finite are left out.
        best: names of methods to emphasise.
        nominal: where a dashed line stands.
        log: whether the axis is logarithmic.
        ax: where to draw.

    Examples:
        >>> import numpy as np
        >>> import gwi
        >>> ax = gwi.plots.plot_scores({"gwi": np.array([0.1, 0.2]), "ridge": np.array([0.3, 0.4])}, best=["gwi"])
        >>> [label.get_text() for label in ax.get_yticklabels()]
        ['gwi', 'ridge']
    """
    ax = new_axes(ax, (6.0, 0.6 + 0.35 * len(scores)))
    for i, (name, values) in enumerate(scores.items()):
        folds = values[np.isfinite(values)]
        ax.plot(folds, np.full(len(folds), i), "o", ms=3.5, color=CHANCE, zorder=1)
        if len(folds) == len(values) > 0:
            error = folds.std(ddof=1) / math.sqrt(len(folds)) if len(folds) > 1 else 0.0
            ax.errorbar(folds.mean(), i, xerr=error, fmt="o", ms=6, lw=2, color=DATA if name in best else MEAN, zorder=2)
    if nominal is not None:
        ax.axvline(nominal, color=MEAN, lw=1, ls="--")
    ax.set_yticks(range(len(scores)), list(scores), parse_math=False)
    for text in ax.get_yticklabels():
        text.set_fontweight("bold" if text.get_text() in best else "normal")
    ax.set_ylim(len(scores) - 0.5, -0.5)
    if log:
        ax.set_xscale("log")
        plain_decades(ax.xaxis)
    ax.grid(visible=False, axis="y")
    ax.grid(axis="x", color=GRID, lw=0.8)
    ax.spines["left"].set_visible(False)
    return ax
