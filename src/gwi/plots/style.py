"""What all pictures share: colours, axes, legends, and the band of what chance alone would do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, cast

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.container import BarContainer
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from scipy.stats import binom

from gwi._typing import Array
from gwi.plots.numbers import percent, tick

Place = Literal["above", "inside", "outside"]
# Okabe and Ito's colours, and greys. The report takes each for a colour of the page.
MEAN, DATA, INDUCING, ALARM = "#000000", "#0072B2", "#009E73", "#D55E00"
BAND, CHANCE, FRAME, GRID = "#56B4E9", "#B3B3B3", "#56646F", "#E5E9EC"
# Inches at 100 dots each.
WIDE, SQUARE = (6.0, 3.8), (4.8, 4.4)
# Of a normal law, 95 % are so many standard deviations around the mean.
HALF_WIDTH = 1.96
BY_CHANCE = "by chance, 95 %"
# Ticks at these numbers of each decade, where the ends of an axis differ by less than a factor.
DECADES = ((50.0, (1.0, 2.0, 5.0)), (1000.0, (1.0, 3.0)), (np.inf, (1.0,)))
# Points that a letter of a legend takes, and a key with its gaps.
LETTER, KEY = 4.7, 30
# Digits beside each other that the bars of a narrow picture have room for.
MOST_DIGITS = 36


def chance(num_rows: Any, share: Any) -> tuple[Any, Any]:
    """Shares of so many rows between which 95 % lie by chance, where each row counts with the probability `share`."""
    low, high = binom.interval(0.95, num_rows, share)
    return low / num_rows, high / num_rows


def new_axes(ax: Axes | None, size: tuple[float, float] = WIDE) -> Axes:
    """The axes given, or those of a new figure, without a frame at the top and right."""
    if ax is None:
        # Not at the top: pyplot chooses a backend when it is imported.
        from matplotlib import pyplot as plt

        _, ax = plt.subplots(figsize=size, layout="constrained")
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["bottom", "left"]].set_color(FRAME)
    ax.tick_params(labelsize=9, color=FRAME)
    ax.grid(axis="y", color=GRID, lw=0.8)
    ax.set_axisbelow(True)
    for axis in (ax.xaxis, ax.yaxis):
        _ticks(axis, tick)
    return ax


def drawn(
    ax: Axes | None, draw: Callable[..., None], *data: Any, size: tuple[float, float] = WIDE, place: Place = "above"
) -> Axes:
    """The axes given, or new ones, with what a function draws of the data, and a legend."""
    ax = new_axes(ax, size)
    draw(ax, *data)
    legend(ax, place)
    return ax


def _ticks(axis: Axis, text: Any) -> None:
    axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(text))


def shares(*axes: Axis) -> None:
    """Ticks in per cent."""
    for axis in axes:
        _ticks(axis, lambda value, position: percent(value))


def plain_decades(*axes: Axis) -> None:
    """Ticks of logarithmic axes at round numbers, as plain numbers."""
    for axis in axes:
        low, high = axis.get_view_interval()
        subs = next(digits for factor, digits in DECADES if high < factor * low)
        axis.set_major_locator(LogLocator(subs=subs))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(tick))


def thin_ticks(ax: Axes) -> None:
    """So few ticks on the horizontal axis that long numbers do not touch each other."""
    locator = ax.xaxis.get_major_locator()
    if isinstance(locator, MaxNLocator):
        longest = max(len(text.get_text()) for text in ax.get_xticklabels())
        room = 0.75 * 72 * ax.figure.bbox.width / ax.figure.dpi
        locator.set_params(nbins=min(5, max(1, int(room / (LETTER * (longest + 3))))))


def legend(ax: Axes, place: Place = "above") -> None:
    """Above the axes, in them, or above all of a figure with a constrained layout; in one row if there is room, else in two."""
    handles, names = ax.get_legend_handles_labels()
    look: dict[str, Any] = {"fontsize": 9, "frameon": False, "handlelength": 1.6, "columnspacing": 1.2, "borderaxespad": 0.2}
    width = LETTER * sum(map(len, names)) + KEY * len(names)
    room = 72 * ax.figure.bbox.width / ax.figure.dpi * (1.0 if place == "outside" else ax.get_position().width)
    if place != "inside":
        look["ncols"] = len(names) if width < room else -(-len(names) // 2)
    if place == "above":
        look |= {"loc": "lower left", "bbox_to_anchor": (-0.02, 1.0)}
    if place == "outside":
        ax.figure.legend(handles, names, loc="outside upper left", **look)
    else:
        ax.legend(**look)


def expected_line(ax: Axes, x: Any, y: Any, label: str = "ideal") -> None:
    """What should be."""
    ax.plot(x, y, color=MEAN, lw=1, ls="--", label=label)


def found_line(ax: Axes, x: Any, y: Any, label: str = "found") -> None:
    """What the rows say."""
    ax.plot(x, y, "o-", color=DATA, ms=4.5, lw=1.5, label=label)


def posts(ax: Axes, x: Any, low: Any, high: Any) -> None:
    """A stroke of what chance would do at each x."""
    ax.vlines(x, low, high, color=CHANCE, lw=6, alpha=0.7, label=BY_CHANCE)


def bars(
    ax: Axes, edges: Float[Array, " K"], *parts: tuple[Float[Array, " B"], str, str], alpha: float = 0.75, inside: bool = False
) -> None:
    """Histograms on top of each other, each with a colour and a name; the sums stand above or in them where there is room."""
    total, drawn = np.zeros(len(edges) - 1), None
    for count, colour, label in parts:
        drawn = ax.bar(edges[:-1], count, 0.92 * np.diff(edges), total, align="edge", color=colour, alpha=alpha, label=label)
        total = total + count
    if len(total) * len(str(int(total.max()))) <= MOST_DIGITS:
        names = [f"{n:.0f}" if n else "" for n in total]
        ax.bar_label(cast(BarContainer, drawn), names, fontsize=7.5, padding=1, label_type="center" if inside else "edge")
    ax.set(xlim=(edges[0], edges[-1]), ylabel="rows")
    ax.margins(y=0.1)
    ax.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10], integer=True))
