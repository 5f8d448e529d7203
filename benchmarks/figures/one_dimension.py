"""The paper's one-dimensional illustration: GWI-net on three functions, each with a stretch that nobody measured."""

from __future__ import annotations

from pathlib import Path

from benchmarks.figures.style import PICTURES, RECORDS, canvas, look, save
from benchmarks.figures.toys import FUNCTIONS, Setting, compute_fits, draw_fit
from benchmarks.tables.common.records import read

NAME = "one_dimension"


def compute(folder: Path = RECORDS, setting: Setting | None = None) -> None:
    compute_fits(NAME, ("GWI-net",), folder, setting or Setting())


def draw(folder: Path = PICTURES, records: Path = RECORDS) -> None:
    with look():
        figure = canvas(10.5, 3.3)
        grid = figure.subplots(1, 3, sharey=True)
        for axes, function in zip(grid, FUNCTIONS, strict=True):
            draw_fit(axes, "GWI-net", function.name, records / NAME, records / NAME)
            axes.set(title=f"{function.name}: {function.formula}", xlabel="x")
        grid[0].set_ylabel("y")
        handles, labels = grid[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), markerscale=1.8)
        save(figure, NAME, folder)


def words(records: Path = RECORDS) -> str:
    facts = read(f"{NAME}_facts", records)
    parts = [
        f"{r['function']}: {float(r['std_unseen']) / float(r['std_seen']):.0f} times ({float(r['std_seen']):.3f} to "
        f"{float(r['std_unseen']):.2f}), and the 95 % intervals hold {float(r['coverage_unseen']):.0%} of the unseen targets"
        for r in facts
    ]
    return "From the seen to the unseen stretch the mean standard deviation of f grows, " + "; ".join(parts) + "."
