"""How the pictures of both pages look: colours, one font, grids of panels with lines that have names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator

# Okabe and Ito's colours, told apart by all eyes; shape or place always says the same.
OURS, OTHER, OUTSIDE = "#0072B2", "#4D4D4D", "#D55E00"
FONT: dict[Any, Any] = {
    "font.size": 9,
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def grid_of_panels(count: int, lines: int, *, columns: int, width: float) -> tuple[Figure, list[Axes]]:
    """Axes with common scales, row by row, each with room for some lines of text."""
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(width, rows * (0.55 + 0.17 * max(lines, 3)) + 0.3), layout="constrained")
    grid = np.ravel(figure.subplots(rows, min(columns, count), sharex=True, sharey=True))
    for axes in grid[count:]:
        axes.axis("off")
    # The panel above an empty place has to say the scale itself.
    for axes in grid[max(0, count - columns) : count]:
        axes.tick_params(labelbottom=True)
    return figure, list(grid[:count])


def label_lines(axes: Axes, title: str, lines: Sequence[str], ours: str) -> None:
    """A title, and names from top to bottom."""
    axes.set_title(title, fontsize=9, fontweight="bold" if title == ours else "normal", color=OURS if title == ours else "black")
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.yaxis.set_major_locator(FixedLocator(list(range(len(lines)))))
    axes.set_yticklabels(list(lines), fontsize=8)
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(axis="y", color="#E5E5E5", lw=0.6)
    axes.set_axisbelow(True)
