"""The pictures of the UCI page: mean ranks with critical differences, coverage by set, NLL against ours."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from benchmarks.tables.common.pictures import FONT, OTHER, OURS, OUTSIDE, grid_of_panels, label_lines
from benchmarks.tables.common.statistics import Comparison, Ranking

BAND = "#009E73"
TARGET, LOW, HIGH = 0.95, 0.93, 0.97
# Coverage below this is drawn at the edge, with its value.
LEAST_COVERAGE = 0.75
# NLL differences are linear up to here and logarithmic beyond: sets differ by decades.
LINEAR = 0.1


def draw_ranks(rankings: Mapping[str, Ranking], ours: str, path: Path) -> None:
    """One axis a ranking: methods at their mean ranks, bars over those that Nemenyi's test does not tell apart."""
    with mpl.rc_context(FONT):
        rows = math.ceil(max(len(ranking.ranks) for ranking in rankings.values()) / 2)
        figure = Figure(figsize=(7.6, len(rankings) * (1.15 + 0.24 * rows)), layout="constrained")
        for axes, (name, ranking) in zip(np.ravel(figure.subplots(len(rankings), 1)), rankings.items(), strict=True):
            _ranks(axes, ranking, name, ours)
        figure.savefig(path, dpi=150, facecolor="white")


def _ranks(axes: Axes, ranking: Ranking, name: str, ours: str) -> None:
    """A critical-difference diagram; heights are in lines of text, downwards."""
    methods, values = list(ranking.ranks), list(ranking.ranks.values())
    count, left = len(methods), math.ceil(len(methods) / 2)
    bars = _levels(ranking)
    depth = 0.55 + 0.32 * (1 + max((level for *_, level in bars), default=-1))
    margin = 0.04 * (count - 1)
    for place in range(1, count + 1):
        axes.plot([place, place], [0, -0.22], color="black", lw=0.8)
        axes.text(place, -0.32, str(place), ha="center", va="bottom", fontsize=8)
    axes.plot([1, count], [0, 0], color="black", lw=0.8)
    for i, (method, value) in enumerate(zip(methods, values, strict=True)):
        on_left = i < left
        height = depth + (i if on_left else count - 1 - i) * 0.95
        edge, align = (1 - margin, "right") if on_left else (count + margin, "left")
        colour, weight = (OURS, "bold") if method == ours else (OTHER, "normal")
        axes.plot([value, value, edge], [0, height, height], color=colour, lw=1.6 if method == ours else 0.9)
        text = f"{method}  {value:.2f}" if on_left else f"{value:.2f}  {method}"
        axes.text(
            edge + (-margin if on_left else margin) / 2, height, text, ha=align, va="center", color=colour, fontweight=weight
        )
    for start, end, level in bars:
        axes.plot([start - 0.06, end + 0.06], [0.4 + 0.32 * level] * 2, color="black", lw=3, solid_capstyle="round")
    shown = min(ranking.critical_difference, count - 1)
    axes.errorbar([1 + shown / 2], [-1.55], xerr=shown / 2, color="black", lw=1, capsize=3)
    note = f"critical difference {ranking.critical_difference:.2f}"
    axes.text(1 + shown + 0.15, -1.55, note + (", beyond the axis" if shown < ranking.critical_difference else ""), va="center")
    axes.set(xlim=(1 - 0.42 * (count - 1), count + 0.42 * (count - 1)), ylim=(depth + (left - 0.3) * 0.95, -2.1))
    axes.set_title(f"Mean rank in {name}, {len(ranking.sets)} sets", loc="left", fontsize=10)
    axes.axis("off")


def _levels(ranking: Ranking) -> list[tuple[float, float, int]]:
    """Bars over methods that are alike, from rank to rank, each at the first height where it overlaps no other."""
    placed: list[tuple[float, float, int]] = []
    for run in ranking.alike():
        start, end = ranking.ranks[run[0]], ranking.ranks[run[-1]]
        taken = {level for low, high, level in placed if start <= high + 0.15 and end >= low - 0.15}
        placed.append((start, end, min(set(range(len(placed) + 1)) - taken)))
    return placed


def draw_coverage(found: Comparison, ours: str, path: Path) -> None:
    """One panel a method, one dot a set: the mean share of targets inside 95 % intervals."""
    with mpl.rc_context(FONT):
        figure, panels = grid_of_panels(len(found.methods), len(found.sets), columns=4, width=7.6)
        for axes, method in zip(panels, found.methods, strict=False):
            axes.axvspan(LOW, HIGH, color=BAND, alpha=0.18, lw=0)
            axes.axvline(TARGET, color=BAND, lw=1)
            for height, table in enumerate(found.sets):
                share = found.score(table, method, "coverage_95")
                if share is None:
                    axes.text((LEAST_COVERAGE + LOW) / 2, height, "none", ha="center", va="center", fontsize=7, color=OTHER)
                elif share.mean < LEAST_COVERAGE:
                    axes.plot(LEAST_COVERAGE, height, marker="<", color=OUTSIDE, ms=5, clip_on=False)
                    axes.text(LEAST_COVERAGE + 0.012, height, f"{share.mean:.0%}", va="center", fontsize=7, color=OUTSIDE)
                elif LOW <= share.mean <= HIGH:
                    axes.plot(share.mean, height, marker="o", color=OURS, ms=5)
                else:
                    axes.plot(share.mean, height, marker="D", mfc="white", mec=OUTSIDE, mew=1.4, ms=4.5)
            label_lines(axes, method, found.sets, ours)
            axes.set_xlim(LEAST_COVERAGE - 0.005, 1.008)
            axes.xaxis.set_major_locator(FixedLocator([0.75, 0.85, 0.95]))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
        figure.supxlabel(f"mean coverage of 95 % intervals; filled: {100 * LOW:.0f} to {100 * HIGH:.0f} %", fontsize=9)
        figure.savefig(path, dpi=150, facecolor="white")


def with_differences(found: Comparison, ours: str) -> list[str]:
    """Sets on which a method shares splits with ours."""
    others = [method for method in found.methods if method != ours]
    return [table for table in found.sets if any(found.difference(table, m, ours, "nll") for m in others)]


def draw_differences(found: Comparison, ours: str, path: Path) -> None:
    """One panel a set, one dot a method: its NLL minus ours, paired over splits, with two standard errors."""
    others, tables = [method for method in found.methods if method != ours], with_differences(found, ours)
    with mpl.rc_context(FONT):
        figure, panels = grid_of_panels(len(tables), len(others), columns=3, width=7.6)
        low, high = -LINEAR, LINEAR
        for axes, table in zip(panels, tables, strict=False):
            axes.axvline(0, color=OURS, lw=1.2)
            for height, method in enumerate(others):
                gap = found.difference(table, method, ours, "nll")
                if gap is None:
                    axes.text(LINEAR, height, "none", ha="center", va="center", fontsize=7, color=OTHER)
                    continue
                error = 0.0 if math.isnan(gap.error) else 2 * gap.error
                ahead = gap.mean < 0
                axes.errorbar(
                    [gap.mean],
                    [height],
                    xerr=error or None,
                    marker="D" if ahead else "o",
                    mfc="white" if ahead else OTHER,
                    color=OUTSIDE if ahead else OTHER,
                    ms=4.5,
                    lw=1,
                )
                low, high = min(low, gap.mean - error), max(high, gap.mean + error)
            label_lines(axes, table, others, ours)
        # One scale for all panels, its ticks at zero and at decades.
        decades = [LINEAR * 10**i for i in range(math.ceil(math.log10(max(-low, high) / LINEAR)) + 1)]
        for axes in panels:
            axes.set_xscale("symlog", linthresh=LINEAR, linscale=0.8)
            axes.set_xlim(1.5 * low, 1.5 * high)
            axes.xaxis.set_major_locator(FixedLocator([*(-d for d in reversed(decades)), 0, *decades]))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("-", "−")))
        figure.supxlabel(f"NLL minus that of {ours}, ± 2 standard errors; right of zero {ours} is better", fontsize=9)
        figure.savefig(path, dpi=150, facecolor="white")
