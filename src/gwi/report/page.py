"""A report on a model and a table with known targets: one HTML page that needs nothing else.

All text that comes from the table or the model is escaped; there are no scripts, and pictures and style are part of the page.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from gpytorch.kernels import AdditiveKernel

from gwi.estimators.tables import Estimator
from gwi.plots.histograms import draw_outlier_scores
from gwi.report.examination import KINDS, heard_columns
from gwi.report.examined import Examined
from gwi.report.reasons import reasons
from gwi.report.rendering import Cell, picture, render, short
from gwi.tables.frames import FrameSource

MOST_SHOWN_COLUMNS = 6
# A number with a point, and as long as one is shown with all its digits.
FRACTION, LONGEST_FRACTION = re.compile(r"[+-]?\d*\.\d+(?:[eE][+-]?\d+)?"), 8


def report_page(found: Examined, model_name: str, data_name: str) -> str:
    """The page."""
    estimator = found.estimator
    return render(
        f"{KINDS[estimator._kind].__name__.rsplit('.', 1)[1]}.html.j2",
        found=found,
        num_rows=len(found.table),
        task=estimator.task,
        encoder=found.encoder,
        num_numbers=estimator.model_.embedding.num_own,
        in_memory=isinstance(found.table.source, FrameSource),
        held_out_scores=getattr(estimator, "held_out_scores_", {}),
        summary=estimator.summary_,
        kernel=_kernel(estimator),
        model_name=model_name,
        data_name=data_name,
        outliers=picture("outliers", lambda ax: draw_outlier_scores(ax, found.ood)),
        outlier_scores=[round(float(np.quantile(found.ood, share)), 3) for share in (0.5, 0.95)],
        records=_rows_to_look_at(found),
        heard=heard_columns(estimator, found.encoder),
        reasons=reasons(found),
        **KINDS[estimator._kind].details(found),
    )


def input_cell(value: object) -> str | Cell:
    """A cell of the user's table; of a fraction with many digits the first five, the others where a pointer rests on it."""
    text = short(value)
    if len(text) <= LONGEST_FRACTION or not FRACTION.fullmatch(text):
        return text
    number = float(text)
    return Cell(f"{number:.{5 if abs(number) < 1e5 else 12}g}", full=text)


def _shown_columns(found: Examined) -> list[str]:
    """Columns that tell rows apart come first, then those that the kernel listens to most."""
    columns = found.encoder
    used = [column.name for column in columns.columns]
    spare = [name for name in found.table.names if name not in used and name != columns.target]
    heard = [heard.name for heard in heard_columns(found.estimator, columns)] or used
    return (spare[:2] + heard)[:MOST_SHOWN_COLUMNS]


def _rows_to_look_at(found: Examined) -> dict[str, Any]:
    """Names of cells with whether they are numbers, and the cells of the most uncertain and the most surprising rows."""
    uncertain, surprising = found.checked.most_uncertain, found.checked.most_surprising
    chosen = np.concatenate([uncertain, surprising])
    lines = found.table.source.lines(found.table.number[chosen].tolist())
    columns, task = _shown_columns(found), KINDS[found.estimator._kind]
    inputs = found.table[chosen].data.select(columns).to_pydict()
    rows = [
        [str(lines[i]), *task.cells(found, int(row)), *(input_cell(inputs[name][i]) for name in columns)]
        for i, row in enumerate(chosen)
    ]
    names = [(found.table.source.unit, True), *task.CELLS.items(), *((name, False) for name in columns)]
    return {"names": names, "uncertain": rows[: len(uncertain)], "surprising": rows[len(uncertain) :]}


def _kernel(estimator: Estimator) -> dict[str, Any]:
    kernel = estimator.posterior_.kernel.prior_kernel
    # A wide table's has a part for all columns alike first, and others for few.
    kernel = kernel.kernels[0] if isinstance(kernel, AdditiveKernel) else kernel
    base = getattr(kernel, "base_kernel", kernel)
    outputscale = getattr(kernel, "outputscale", None)
    return {
        "name": type(base).__name__,
        "smoothness": getattr(base, "nu", None),
        "num_lengthscales": base.lengthscale.numel() if base.has_lengthscale else 0,
        "prior_std": None if outputscale is None else float(outputscale.detach().mean().sqrt()),
    }
