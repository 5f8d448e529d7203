"""A comparison of methods as a picture or as a page: means with standard errors over folds, and each fold's score."""

from __future__ import annotations

import io
import math
from base64 import b64encode
from html import escape
from importlib.resources import files
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gwi.exceptions import UserError
from gwi.plots.style import CHANCE, DATA, MEAN
from gwi.report.comparison import JUDGED, NOMINAL, Compared, Comparison, label
from gwi.report.svg import shown

KINDS = (".png", ".svg", ".html")
# Inches of one metric.
PANEL = (4.1, 2.0)


def check_kind(path: Path) -> None:
    """Whether the name says a kind of picture.

    Raises:
        UserError: when it does not.
    """
    if path.suffix.lower() not in KINDS:
        raise UserError(f"{path}: the name of the picture ends in {', '.join(KINDS[:-1])} or {KINDS[-1]}.")


def content(found: Comparison, data_name: str, kind: str) -> bytes:
    """The file's content, of one of `KINDS`."""
    if kind == ".html":
        return _page(found, data_name).encode()
    shown_metrics = [metric for metric in found.metrics if metric in JUDGED or metric == "seconds"]
    rows = -(-len(shown_metrics) // 2)
    figure = Figure(figsize=(2 * PANEL[0], rows * PANEL[1] + 0.4), layout="constrained")
    panels = figure.subplots(rows, 2, squeeze=False).ravel()
    for axes in panels[len(shown_metrics) :]:
        axes.set_visible(False)
    for axes, metric in zip(panels, shown_metrics, strict=False):
        _draw(axes, found, metric)
    # Dollar signs would be taken for mathematics.
    name = found.target[:60].replace("$", r"\$")
    figure.suptitle(f"{name}: {found.num_rows} rows, {found.num_folds} folds, mean ± standard error", fontsize=10)
    return _saved(figure, kind)


def _saved(figure: Figure, kind: str) -> bytes:
    FigureCanvasAgg(figure)
    buffer = io.BytesIO()
    # No date and no random names in it: the same comparison is the same file.
    with rc_context({"svg.hashsalt": "gwi"}):
        figure.savefig(buffer, format=kind.lstrip("."), dpi=150, metadata={"Date": None} if kind == ".svg" else {})
    return buffer.getvalue()


def _draw(axes: Axes, found: Comparison, metric: str) -> None:
    """One metric: a line a method."""
    best = found.best(metric)
    for i, method in enumerate(found.methods):
        values = method.scores[metric][np.isfinite(method.scores[metric])]
        axes.plot(values, np.full(len(values), i), "o", ms=3.5, color=CHANCE, zorder=1)
        if math.isfinite(method.mean(metric)):
            colour = DATA if method.name in best else MEAN
            axes.errorbar(method.mean(metric), i, xerr=method.error(metric), fmt="o", ms=6, lw=2, color=colour, zorder=2)
    if metric == "coverage_95":
        axes.axvline(NOMINAL, color=MEAN, lw=1, ls="--")
    names = [method.name for method in found.methods]
    axes.set_yticks(range(len(names)), names, fontsize=9)
    for tick, name in zip(axes.get_yticklabels(), names, strict=True):
        tick.set_fontweight("bold" if name in best else "normal")
    axes.set_ylim(len(names) - 0.5, -0.5)
    if metric == "seconds":
        axes.set_xscale("log")
    better = {
        "accuracy": "higher is better",
        "coverage_95": "nearer to 95 % is better",
        "seconds": "of fit and prediction",
        "width_95": "to be read with coverage",
    }
    axes.set_title(f"{label(metric)}: {better.get(metric, 'lower is better')}", fontsize=9.5, loc="left")
    axes.tick_params(labelsize=8.5)
    axes.grid(axis="x", color="#e5e9ec", lw=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)


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


def print_comparison(found: Comparison) -> None:
    """A table on the output stream, what each method is, and wins and losses."""
    title = f"{found.target}: {found.num_rows} rows, {found.num_folds} folds; bold: best within one standard error"
    grid = Table("method", *map(label, found.metrics), title=title, title_justify="left")
    for method in found.methods:
        cells = [Text(cell(method, metric), "bold" if method.name in found.best(metric) else "") for metric in found.metrics]
        grid.add_row(method.name, *cells)
    console = Console(highlight=False, markup=False)
    console.print(grid)
    for line in (*found.notes, *(f"{method.name}: {method.note}" for method in found.methods), *found.sentences()):
        console.print(line, soft_wrap=True)


def _page(found: Comparison, data_name: str) -> str:
    head = "".join(f'<th class="n">{escape(label(metric))}</th>' for metric in found.metrics)
    body = ""
    for method in found.methods:
        cells = "".join(
            f'<td class="n">{"<b>" if method.name in found.best(metric) else ""}{cell(method, metric)}'
            f"{'</b>' if method.name in found.best(metric) else ''}</td>"
            for metric in found.metrics
        )
        body += f"<tr><td>{escape(method.name)}<small>{escape(method.note)}</small></td>{cells}</tr>"
    figures = ""
    for metric in found.metrics:
        figure = Figure(figsize=PANEL, layout="constrained")
        _draw(figure.subplots(), found, metric)
        data = b64encode(_saved(figure, ".svg")).decode()
        figures += f'<figure class="light"><img alt="{escape(label(metric))}" src="data:image/svg+xml;base64,{data}"></figure>'
    verdict = "".join(f"<p>{escape(sentence)}</p>" for sentence in found.sentences())
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in found.notes)
    style = files("gwi.report").joinpath("report.css").read_text()
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, '
        'initial-scale=1"><meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f'<title>{escape(found.target)}: comparison</title><style>{style}</style></head><body><div class="page">'
        f'<header><p class="over">Comparison</p><h1>Who predicts <em>{escape(found.target)}</em> best?</h1>'
        f'<p class="facts"><span>file <b>{escape(data_name)}</b></span><span>rows <b>{found.num_rows}</b></span>'
        f"<span>folds <b>{found.num_folds}</b></span><span>task <b>{found.task}</b></span></p>"
        f'<div class="verdict">{verdict}</div>{notes}</header><section><h2>Scores</h2><p class="lead">Mean over the same folds '
        "and its standard error. Bold: the best, and all that are behind it by at most one standard error of the difference.</p>"
        f'<div class="card"><table><thead><tr><th>method</th>{head}</tr></thead><tbody>{body}</tbody></table></div></section>'
        f'<section><h2>Fold by fold</h2><p class="lead">Grey: each fold. Blue: those in bold.</p>'
        f'<div class="figures">{figures}</div></section></div></body></html>\n'
    )
