"""Why a model is unsure at a row: from the variance of background rows to that of the row, column by column."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from gwi.evaluation.explanation import MOST_COLUMNS, Explanation
from gwi.plots.style import ALARM, DATA, GRID, MEAN, WIDE, legend, new_axes, thin_ticks

LONGEST = 30


def plot_explanation(
    explanation: Explanation, row: int = 0, *, output: int | None = None, most: int = MOST_COLUMNS, ax: Axes | None = None
) -> Axes:
    """What each column adds to the variance of f, or takes off it, the largest part on top.

    Args:
        explanation: what `explain` found.
        row: its place there.
        output: number of the target or class; of classes the most probable one unless given.
        most: bars at most; the least parts are added up in the last one.
        ax: where to draw.

    Examples:
        >>> import numpy as np
        >>> import gwi
        >>> X = np.random.default_rng(0).normal(size=(20, 2))
        >>> y = X[:, 0] + 0.1 * np.random.default_rng(0).normal(size=20)
        >>> model = gwi.GWIRegressor("linear", cv=2, random_state=0).fit(X, y)
        >>> ax = gwi.plots.plot_explanation(model.explain([[0.5, 9.0]]))
        >>> len(ax.get_yticklabels())
        2
    """
    if most < 1:
        raise ValueError(f"most must be a number of bars, at least 1; got {most}.")
    lines = explanation.largest(row, most, output)
    ax = new_axes(ax, (WIDE[0], 1.3 + 0.36 * len(lines)))
    draw_explanation(ax, explanation, row, output, most)
    legend(ax)
    return ax


def draw_explanation(ax: Axes, explanation: Explanation, row: int, output: int | None, most: int) -> None:
    """Bars that begin where the one above ends."""
    _, _, base, variance = explanation.of(row, output)
    lines = explanation.largest(row, most, output)
    parts = np.array([part for _, _, part, _ in lines])
    starts = base + np.concatenate([[0.0], parts.cumsum()[:-1]])
    places = np.arange(len(lines))
    for wanted, colour, label in ((parts > 0, ALARM, "more uncertain"), (parts <= 0, DATA, "more certain")):
        if wanted.any():
            ax.barh(places[wanted], parts[wanted], left=starts[wanted], height=0.62, color=colour, alpha=0.75, label=label)
    errors = np.nan_to_num([error for *_, error in lines])
    if errors.any():
        ax.errorbar(starts + parts, places, xerr=errors, fmt="none", ecolor=MEAN, lw=1, capsize=2)
    ax.axvline(base, color=MEAN, lw=1, ls="--", label="background rows")
    ax.axvline(variance, color=MEAN, lw=1.5, label="this row")
    ends = np.concatenate([starts, starts + parts, [base, variance]])
    room = 0.06 * (float(np.ptp(ends)) or 1.0)
    ax.set_xlim(ends.min() - room, ends.max() + room)
    ax.set_yticks(places, [_name(name, cell) for name, cell, *_ in lines], parse_math=False)
    ax.set_ylim(len(lines) - 0.4, -0.6)
    ax.grid(visible=False, axis="y")
    ax.grid(axis="x", color=GRID, lw=0.8)
    j = int(explanation.shown[row]) if output is None else output
    of = f"{explanation.quantity} of {explanation.outputs[j]}" if len(explanation.outputs) > 1 else explanation.quantity
    ax.set_xlabel(f"variance of {of}", parse_math=False)
    thin_ticks(ax)


def _name(name: str, cell: str) -> str:
    text = f"{name} = {cell}" if cell else name
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
