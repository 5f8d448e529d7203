"""Levels in order: probabilities beside what happened, and how they change along a feature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from matplotlib import colormaps
from matplotlib.axes import Axes
from numpy.typing import NDArray

from gwi._typing import Array
from gwi.plots.calibration import Promises
from gwi.plots.style import expected_line, found_line, posts, shares

# Bins of a probability, and draws by which the band of chance is found.
NUM_BINS, NUM_DRAWS = 10, 200


def level_reliability(probabilities: Float[Array, "N K"], places: Int[NDArray[np.int64], " N"]) -> tuple[Promises, Array]:
    """Cumulative probabilities, P(at most this level), beside shares found, in bins of the probability; and values in each.

    A row counts once for each place between two levels, so that the band of chance is found by drawing levels.
    """
    below = probabilities.cumsum(1)[:, :-1].clip(0, 1)
    num_between = np.arange(below.shape[1])
    group = np.minimum((below * NUM_BINS).astype(np.int64), NUM_BINS - 1).ravel()
    count = np.bincount(group, minlength=NUM_BINS).astype(np.float64)
    used = count > 0

    def shares_of(levels: NDArray[Any]) -> Array:
        hit = (levels[:, None] <= num_between).ravel().astype(np.float64)
        return (np.bincount(group, hit, NUM_BINS)[used] / count[used]).astype(np.float64)

    rng, cumulative = np.random.default_rng(0), probabilities.cumsum(1)[:, :-1]
    drawn = np.stack([shares_of((rng.uniform(size=(len(places), 1)) > cumulative).sum(1)) for _ in range(NUM_DRAWS)])
    low, high = np.quantile(drawn, (0.025, 0.975), axis=0)
    mean = np.bincount(group, below.ravel(), NUM_BINS)[used] / count[used]
    return Promises(mean, shares_of(places), low, high), count[used]


def draw_level_reliability(ax: Axes, found: Promises, label: str = "found") -> None:
    """Cumulative probabilities and shares of all bins."""
    posts(ax, found.promised, found.low, found.high)
    expected_line(ax, [0, 1], [0, 1])
    found_line(ax, found.promised, found.found, label)
    ax.set(xlim=(-0.01, 1.01), ylim=(0, 1.02), xlabel="predicted: at most this level", ylabel="found")
    shares(ax.xaxis, ax.yaxis)


def draw_levels(ax: Axes, x: Float[Array, " P"], probabilities: Float[Array, "P K"], names: Sequence[str]) -> None:
    """The probability of each level along a feature, one on top of another, the first below."""
    ends = np.column_stack([np.zeros(len(x)), probabilities.cumsum(1).clip(0, 1)])
    colours = colormaps["cividis"](np.linspace(0.05, 0.95, len(names)))
    for j, name in enumerate(names):
        ax.fill_between(x, ends[:, j], ends[:, j + 1], color=colours[j], lw=0, label=name)
    ax.set(ylim=(0, 1), ylabel="probability")
    shares(ax.yaxis)
