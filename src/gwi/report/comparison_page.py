"""A comparison of methods as a picture, a page or text: means with standard errors over folds, and each fold's score."""

from __future__ import annotations

import math

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gwi._progress import printable
from gwi.exceptions import UserError
from gwi.plots.numbers import shown
from gwi.plots.scores import plot_scores
from gwi.report.comparison import JUDGED, NOMINAL, Compared, Comparison, label
from gwi.report.rendering import picture, render, saved, short
from gwi.tables.addresses import AnyPath

KINDS = (".png", ".svg", ".html")
# Inches of one metric.
PANEL = (3.8, 2.0)
# Letters of a line from which on the printed table has means and errors side by side.
WIDE = 110
READINGS = {
    "accuracy": "higher is better",
    "coverage_95": "closer to 95 % is better",
    "seconds": "of fit and prediction",
    "width_95": "read together with coverage",
}


def check_kind(path: AnyPath) -> None:
    """Whether the name says a kind of picture.

    Raises:
        UserError: when it does not.
    """
    if path.suffix.lower() not in KINDS:
        raise UserError(f"{path}: the name of the picture must end in {', '.join(KINDS[:-1])} or {KINDS[-1]}.")


def content(found: Comparison, data_name: str, kind: str) -> bytes:
    """The file's content, of one of `KINDS`."""
    return _page(found, data_name).encode() if kind == ".html" else _image(found, kind.lstrip("."))


def _image(found: Comparison, kind: str) -> bytes:
    """All metrics but the width, which is no merit by itself."""
    metrics = [metric for metric in found.metrics if metric in JUDGED or metric == "seconds"]
    rows = -(-len(metrics) // 2)
    with style.context("default"):
        figure = Figure((2.1 * PANEL[0], rows * PANEL[1] + 0.4), layout="constrained")
        panels = figure.subplots(rows, 2, squeeze=False).ravel()
        for axes, metric in zip(panels, metrics, strict=False):
            _draw(axes, found, metric)
            axes.set_title(f"{label(metric)}: {_reading(metric)}", fontsize=9.5, loc="left")
        for axes in panels[len(metrics) :]:
            axes.set_visible(False)
        title = f"{found.target[:60]}: {found.num_rows} rows, {found.num_folds} folds, mean ± standard error"
        figure.suptitle(title, fontsize=10, parse_math=False)
        return saved(figure, kind)


def _page(found: Comparison, data_name: str) -> str:
    metrics = [
        {
            "label": label(metric),
            "reading": _reading(metric),
            "best": found.best(metric),
            "cells": {method.name: cell(method, metric) for method in found.methods},
            "picture": picture(metric, lambda ax, m=metric: _draw(ax, found, m), PANEL, with_legend=False),  # type: ignore[misc]
        }
        for metric in found.metrics
    ]
    return render("comparison.html.j2", found=found, data_name=data_name, metrics=metrics)


def _draw(axes: Axes, found: Comparison, metric: str) -> None:
    scores = {method.name: method.scores[metric] for method in found.methods}
    nominal = NOMINAL if metric == "coverage_95" else None
    plot_scores(scores, best=found.best(metric), nominal=nominal, log=metric == "seconds", ax=axes)


def _reading(metric: str) -> str:
    return READINGS.get(metric, "lower is better")


def cell(method: Compared, metric: str) -> str:
    """Mean ± standard error, with as many digits as the error has two."""
    mean, error = method.mean(metric), method.error(metric)
    if not math.isfinite(mean):
        return "–" if math.isnan(mean) else "∞"
    if metric in ("coverage_95", "accuracy", "ece"):
        return f"{100 * mean:.1f} ± {100 * error:.1f} %"
    if error <= 1e-9 * abs(mean):
        return f"{shown(mean)} ± 0"
    digits = 2 + math.floor(math.log10(abs(mean))) - math.floor(math.log10(error)) if mean else 2
    return f"{shown(mean, max(2, min(6, digits)))} ± {shown(error, 2)}"


def text_of(found: Comparison) -> str:
    """A table, what each method is, and wins and losses of the first."""
    marks = {metric: found.best(metric) for metric in found.metrics}
    rows = [["method", *map(label, found.metrics)]]
    rows += [
        [method.name, *(f"{cell(method, m)}{' *' if method.name in marks[m] else '  '}" for m in found.metrics)]
        for method in found.methods
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [f"{short(found.target)}: {found.num_rows} rows, {found.num_folds} folds; mean ± standard error over folds"]
    for row in rows:
        texts = [row[0].ljust(widths[0]), *(text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(texts).rstrip())
    lines.append("* the best, and those that are worse by at most one standard error of the difference")
    lines += [*found.notes, *(f"{method.name}: {method.note}" for method in found.methods if method.note), *found.sentences()]
    return "\n".join(lines)


def print_comparison(found: Comparison) -> None:
    """A table on the output stream, what each method is, and wins and losses."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, markup=False)
    # In a narrow window each error stands below its mean.
    part = "\n±" if console.width < WIDE else " ± "
    title = f"{short(found.target)}: {found.num_rows} rows, {found.num_folds} folds; bold: best within one standard error"
    grid = Table("method", *map(label, found.metrics), title=printable(title), title_justify="left")
    for method in found.methods:
        cells = [
            Text(cell(method, metric).replace(" ± ", part), "bold" if method.name in found.best(metric) else "")
            for metric in found.metrics
        ]
        grid.add_row(method.name, *cells)
    console.print(grid)
    for line in (*found.notes, *(f"{method.name}: {method.note}" for method in found.methods), *found.sentences()):
        console.print(printable(line), soft_wrap=True)
