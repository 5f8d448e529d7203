"""The pictures of the image page: AUROC by method, and confidence against accuracy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from benchmarks.tables.common.pictures import FONT, OTHER, OURS, OUTSIDE, grid_of_panels, label_lines
from benchmarks.tables.common.statistics import Comparison
from benchmarks.tables.images.data import OutlierName
from benchmarks.tables.images.store import outlier_column
from gwi._typing import Array

Row = Mapping[str, Any]
# Bins with fewer images than this share say little of the calibration.
LEAST_SHARE = 0.002
# Where AUROC is told: its logit is drawn, so that 0.99 and 0.999 are as far apart as 0.9 and 0.99.
TICKS = (0.1, 0.3, 0.5, 0.7, 0.9, 0.97, 0.99, 0.997)
LOWEST, HIGHEST = 0.03, 0.9995


def draw_auroc(found: Comparison, dataset: str, names: Mapping[OutlierName, str], ours: str, path: Path) -> None:
    """One panel a set of outliers, one line a method: AUROC by its own score and by the entropy."""
    methods = [method for method in found.methods if (dataset, method) in found.records]
    with mpl.rc_context(FONT):
        figure = Figure(figsize=(7.6, 0.9 + 0.24 * len(methods)), layout="constrained")
        for axes, (outliers, name) in zip(np.ravel(figure.subplots(1, 2, sharey=True)), names.items(), strict=True):
            axes.axvline(0.5, color=OTHER, lw=0.8, ls=":")
            for height, method in enumerate(methods):
                entropy, own = (
                    found.score(dataset, method, outlier_column("auroc", scorer, outliers)) for scorer in ("entropy", "score")
                )
                colour = OURS if method.startswith(ours) else OTHER
                if entropy is not None:
                    axes.plot(
                        np.clip(entropy.mean, LOWEST, HIGHEST),
                        height,
                        marker="D",
                        mfc="white",
                        mec=OUTSIDE,
                        mew=1.2,
                        ms=4.5,
                        ls="none",
                    )
                if own is not None:
                    axes.plot(np.clip(own.mean, LOWEST, HIGHEST), height, marker="o", color=colour, ms=5, ls="none")
            label_lines(axes, name, methods, ours)
            axes.set_xscale("logit")
            axes.xaxis.set_major_locator(FixedLocator(TICKS))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        figure.supxlabel("AUROC; filled: own score, open: entropy, dotted: chance", fontsize=9)
        figure.savefig(path, dpi=150, facecolor="white")


def bins_of(rows: Sequence[Row]) -> dict[str, Array]:
    """Sums of the reliability bins over fits."""
    parts = [json.loads(row["reliability"]) for row in rows if row["reliability"]]
    return {name: np.sum([part[name] for part in parts], axis=0) for name in (parts[0] if parts else {})}


def draw_reliability(by_method: Mapping[str, Sequence[Row]], ours: str, path: Path) -> None:
    """One panel a method: accuracy minus confidence, by confidence; above zero it is too modest, below too sure."""
    with mpl.rc_context(FONT):
        figure, panels = grid_of_panels(len(by_method), 5, columns=4, width=7.6)
        for axes, (method, rows) in zip(panels, by_method.items(), strict=True):
            bins = bins_of(rows)
            used = bins["count"] >= LEAST_SHARE * bins["count"].sum()
            count, confidence, right = (bins[name][used] for name in ("count", "confidence", "right"))
            colour = OURS if method == ours else OTHER
            axes.axhline(0, color=OUTSIDE, lw=0.8)
            axes.plot(confidence / count, (right - confidence) / count, color=colour, marker="o", ms=3.5, lw=1)
            axes.set_title(method, fontsize=8, color=colour if method == ours else "black")
            axes.set_xlim(0.2, 1.02)
            axes.xaxis.set_major_locator(FixedLocator([0.3, 0.5, 0.7, 0.9]))
            axes.tick_params(labelsize=8)
            axes.grid(color="#E5E5E5", lw=0.6)
            axes.set_axisbelow(True)
        figure.supxlabel("confidence", fontsize=9)
        figure.supylabel("accuracy − confidence", fontsize=9)
        figure.savefig(path, dpi=150, facecolor="white")
