"""The paper's appendix comparison: GWI-net, GWI: SVGP and SVGP on the same three functions."""

from __future__ import annotations

from pathlib import Path

from benchmarks.figures import one_dimension
from benchmarks.figures.style import PICTURES, RECORDS, canvas, look, save
from benchmarks.figures.toys import FUNCTIONS, METHODS, Setting, compute_fits, draw_fit
from benchmarks.render.markdown import table
from benchmarks.tables.common.records import read

NAME = "comparison"


def compute(folder: Path = RECORDS, setting: Setting | None = None) -> None:
    """The two rows that `one_dimension` does not have."""
    compute_fits(NAME, tuple(m for m in METHODS if m != "GWI-net"), folder, setting or Setting())


def draw(folder: Path = PICTURES, records: Path = RECORDS) -> None:
    with look():
        figure = canvas(10.5, 7.2)
        grid = figure.subplots(3, 3, sharex=True, sharey=True)
        for line, method in zip(grid, METHODS, strict=True):
            source = one_dimension.NAME if method == "GWI-net" else NAME
            for axes, function in zip(line, FUNCTIONS, strict=True):
                draw_fit(axes, method, function.name, records / source, records / one_dimension.NAME, thin=3)
            line[0].set_ylabel(method, fontsize=11)
        for axes, function in zip(grid[0], FUNCTIONS, strict=True):
            axes.set_title(f"{function.name}: {function.formula}")
        for axes in grid[-1]:
            axes.set_xlabel("x")
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), markerscale=1.8)
        save(figure, NAME, folder, dpi=110)


def words(records: Path = RECORDS) -> str:
    facts = read(f"{one_dimension.NAME}_facts", records) + read(f"{NAME}_facts", records)
    found = {(r["method"], r["function"]): r for r in facts}
    rows = [
        [
            method,
            *(
                f"{float(r['std_seen']):.3f} → {float(r['std_unseen']):.2f}; {float(r['coverage_unseen']):.0%}"
                for r in (found[method, function.name] for function in FUNCTIONS)
            ),
        ]
        for method in METHODS
    ]
    header = ["sd of f, seen → unseen; unseen targets held", *(function.name for function in FUNCTIONS)]
    errors = [(float(r["rmse_unseen_at_minimum"]), float(r["rmse_unseen"])) for r in facts if r["method"] == "GWI: SVGP"]
    (at_minimum, reached) = max(errors)
    return (
        f"{table(header, rows)}\n\nW₂² does not penalise a rough mean. GWI: SVGP is saved by stopping after a thousand steps: "
        f"with the coefficients at the exact minimum the mean's error in the gap would be {at_minimum:.3g} instead of "
        f"{reached:.2g} on the worst of the three functions."
    )
