"""A gallery of calibration: three UCI tables, the default estimator, held-out rows, before and after tempering."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from benchmarks.figures.style import BLUE, ORANGE, PALE, PICTURES, RECORDS, Array, canvas, look, save
from benchmarks.render.markdown import table
from benchmarks.tables.common.records import read, write
from benchmarks.tables.common.splits import standard_splits
from benchmarks.tables.uci.data import UCIName, load_uci
from benchmarks.tables.uci.interface import gaussian
from gwi import GWIRegressor
from gwi.evaluation.regression import Law, score

NAME = "calibration"
TABLES: tuple[UCIName, ...] = ("boston", "concrete", "power")
# Before and after: colour, dash, marker.
STYLES = {"before": (ORANGE, "--", "s"), "after": (BLUE, "-", "o")}
LEVELS = np.linspace(0.02, 0.98, 49)
NUM_BINS = 10


@dataclass(frozen=True)
class Predicted:
    """Laws at held-out rows.

    Attributes:
        y: targets.
        mean: predicted.
        std: predicted, tempered.
        tempering_factor: α_T, by which tempering multiplied the variance.
        degrees_of_freedom: of the law.
    """

    y: Array
    mean: Array
    std: Array
    tempering_factor: float
    degrees_of_freedom: float

    def law(self, when: str) -> Law:
        """Before or after tempering."""
        std = self.std if when == "after" else self.std / math.sqrt(self.tempering_factor)
        return Law(self.mean[None], std[None], self.degrees_of_freedom)


def compute(folder: Path = RECORDS, tables: tuple[UCIName, ...] = TABLES) -> None:
    rows: list[dict[str, object]] = []
    for name in tables:
        x, y = load_uci(name)
        split = standard_splits(len(x), 1)[0]
        fitted = GWIRegressor(likelihood="gaussian", random_state=0).fit(x[split.train].numpy(), y[0, split.train].numpy())
        mean, std = fitted.predict(x[split.test].numpy(), return_std=True)
        label = {
            "set": name,
            "tempering_factor": float(fitted.tempering_factor_[0]),
            "degrees_of_freedom": float(gaussian(fitted).degrees_of_freedom[0]),
        }
        columns = zip(y[0, split.test].tolist(), mean.tolist(), std.tolist(), strict=True)
        rows += ({**label, "y": a, "mean": b, "std": c} for a, b, c in columns)
        print(name, len(mean), "held-out rows, tempering factor", round(float(fitted.tempering_factor_[0]), 3), flush=True)
    write(NAME, rows, echo=False, folder=folder)


def predicted(name: str, records: Path = RECORDS) -> Predicted:
    """The record of one table."""
    rows = [r for r in read(NAME, records) if r["set"] == name]
    y, mean, std = (np.array([float(r[c]) for r in rows]) for c in ("y", "mean", "std"))
    return Predicted(y, mean, std, float(rows[0]["tempering_factor"]), float(rows[0]["degrees_of_freedom"]))


def reliability(law: Law, y: Array) -> Array:
    """Share of targets below the p-quantile, for each level p."""
    return (law.cumulative(y)[:, None] <= LEVELS).mean(0)


def central_coverage(law: Law, y: Array) -> Array:
    """Share of targets in the central interval of each level."""
    return (np.abs(2 * law.cumulative(y) - 1)[:, None] <= LEVELS).mean(0)


def binned_errors(law: Law, y: Array, num_bins: int) -> tuple[Array, Array]:
    """Root mean square of the predicted standard deviations and of the errors, in bins of equally many rows."""
    order = np.argsort(law.std[0])
    parts = np.array_split(order, num_bins)
    predicted_std = np.array([math.sqrt(float(np.square(law.std[0, part]).mean())) for part in parts])
    errors = np.array([math.sqrt(float(np.square(y[part] - law.mean[0, part]).mean())) for part in parts])
    return predicted_std, errors


def draw(folder: Path = PICTURES, records: Path = RECORDS) -> None:
    titles = ("reliability", "PIT histogram", "coverage of central intervals", "error against predicted sd")
    with look():
        figure = canvas(10.5, 7.4)
        grid = figure.subplots(len(TABLES), 4)
        for line, name in zip(grid, TABLES, strict=True):
            found = predicted(name, records)
            for when in STYLES:
                _draw_row(line, found, when)
            _finish_row(line, found)
            line[0].set_ylabel(f"{name}, {len(found.y)} rows\nshare of targets below")
            line[1].set_ylabel("density")
            line[2].set_ylabel("share of targets inside")
            line[3].set_ylabel("error (root mean square)")
        for axes, title in zip(grid[0], titles, strict=True):
            axes.set_title(title)
        for axes, label in zip(grid[-1], ("quantile", "P(Y ≤ y)", "nominal coverage", "predicted sd"), strict=True):
            axes.set_xlabel(label)
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        save(figure, NAME, folder, dpi=110)


def _draw_row(line: list[Axes], found: Predicted, when: str) -> None:
    colour, dash, marker = STYLES[when]
    law = found.law(when)
    line[0].plot(LEVELS, reliability(law, found.y), color=colour, ls=dash, lw=1.6, label=f"{when} tempering")
    heights, edges = np.histogram(law.cumulative(found.y), bins=NUM_BINS, range=(0, 1), density=True)
    line[1].stairs(heights, edges, color=colour, ls=dash, lw=1.6)
    line[2].plot(LEVELS, central_coverage(law, found.y), color=colour, ls=dash, lw=1.6)
    num_bins = min(NUM_BINS, len(found.y) // 10)
    line[3].plot(
        *binned_errors(law, found.y, num_bins), marker, color=colour, ms=4.5, mfc="white" if when == "before" else colour
    )


def _finish_row(line: list[Axes], found: Predicted) -> None:
    """Where right laws would lie: the ideal, and the range that 95 of 100 right laws stay in at each place."""
    half = 1.96 * np.sqrt(LEVELS * (1 - LEVELS) / len(found.y))
    for axes in (line[0], line[2]):
        axes.fill_between(
            LEVELS, LEVELS - half, LEVELS + half, color=PALE, lw=0, zorder=0, label="where 95 of 100 right laws lie"
        )
        axes.set(xlim=(0, 1), ylim=(0, 1), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
    width = 1 / NUM_BINS
    spread = 1.96 * math.sqrt(width * (1 - width) / len(found.y)) / width
    line[1].axhspan(max(0.0, 1 - spread), 1 + spread, color=PALE, lw=0, zorder=0)
    line[1].set(xlim=(0, 1), ylim=(0, 2.6), xticks=[0, 0.5, 1])
    low, high = (f(*line[3].get_xlim(), *line[3].get_ylim()) for f in (min, max))
    low = max(low, 0.0)
    line[3].plot([low, high], [low, high], color="black", lw=0.8)
    line[3].set(xlim=(low, high), ylim=(low, high))


def words(records: Path = RECORDS) -> str:
    rows = []
    for name in TABLES:
        found = predicted(name, records)
        before, after = (score(found.law(when), found.y) for when in STYLES)
        tails = "normal" if math.isinf(found.degrees_of_freedom) else f"t, {found.degrees_of_freedom:.0f} degrees"
        rows.append(
            [
                name,
                str(len(found.y)),
                tails,
                f"{found.tempering_factor:.2f}",
                f"{before.nll:.3f} → {after.nll:.3f}",
                f"{before.calibration_error:.3f} → {after.calibration_error:.3f}",
                f"{before.coverage_95:.0%} → {after.coverage_95:.0%}",
            ]
        )
    return table(["set", "rows", "law", "α_T", "NLL", "calibration error", "95 % intervals hold"], rows)
