"""What a table with known targets says about a model: its scores, every row's prediction, and what its kernel listens to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from numpy.typing import NDArray

from gwi._typing import Array
from gwi.estimators.table_model import Tool, all_scores, judge, target_of
from gwi.report.examined import Examined
from gwi.report.tasks import TASKS
from gwi.tables.source import Source, Table, read_parts

# Rows, and cells, that a report looks at; of more a sample.
MOST_ROWS, MOST_CELLS = 100_000, 20_000_000


def sampled(source: Source, most: int, chunk_size: int, report: Callable[[str, float], None]) -> tuple[Table, int]:
    """At most so many rows of a file, each with equal chance and in order, read once; and how many the file has."""
    import pyarrow as pa

    rng = np.random.default_rng(0)
    keys: NDArray[np.float64] = np.empty(0)
    kept: list[Table] = []
    total, limit = 0, np.inf
    for table, share in read_parts(source, chunk_size):
        total += len(table)
        new = rng.random(len(table))
        part = table[new < limit]
        kept, keys = [*kept, part], np.concatenate([keys, new[new < limit]])
        if len(keys) > 2 * most:
            kept, keys = _thinned(kept, keys, most)
            limit = keys.max()
        report("rows", share)
    if len(keys) > most:
        kept, keys = _thinned(kept, keys, most)
    data = pa.concat_tables([part.data for part in kept])
    return Table(source, data, np.concatenate([part.rows for part in kept])), total


def _thinned(parts: list[Table], keys: NDArray[np.float64], most: int) -> tuple[list[Table], NDArray[np.float64]]:
    """The rows with the lowest keys."""
    import pyarrow as pa

    chosen = np.sort(np.argpartition(keys, most)[:most])
    joined = Table(parts[0].source, pa.concat_tables([p.data for p in parts]), np.concatenate([p.rows for p in parts]))
    return [joined[chosen]], keys[chosen]


def examine(tool: Tool, source: Source, chunk_size: int, report: Callable[[str, float], None], most: int = MOST_ROWS) -> Examined:
    """Predict the rows of a file, or of a sample of them, and look for faults.

    Raises:
        UserError: when no row has a target, or the file does not fit the model.
    """
    everything, num_rows = sampled(source, max(1, min(most, MOST_CELLS // len(source.header))), chunk_size, report)
    table, _ = target_of(everything, tool.columns.target, tool.task, tool.columns.number_labels)
    report("predictions", 0.0)
    judged = judge(tool, table)
    scores = all_scores(tool, [judged])
    X = tool.columns.transform(table)
    ood = np.asarray(tool.estimator.ood_score(X))
    report("diagnosis", 0.5)
    checked = TASKS[tool.task].check(tool, X, judged)
    return Examined(tool, table, judged, ood, scores, num_rows, len(everything) - len(table), checked)


@dataclass(frozen=True)
class Heard:
    """How much a column counts for the kernel.

    Attributes:
        name: of the column.
        share: of the mean squared distance between two training rows, as the kernel measures it.
        lengthscale: the shortest of its numbers', in standard deviations of the training rows.
        own_unit: the same in the unit of the column; NaN where it has several numbers.
    """

    name: str
    share: float
    lengthscale: float
    own_unit: float


def heard_columns(tool: Tool) -> tuple[Heard, ...]:
    """The columns by how much the kernel listens to them; none where it has one length-scale for all."""
    scale = lengthscales(tool.estimator.posterior_.kernel.prior_kernel)
    if scale is None or len(scale) != len(tool.columns.features) or len(scale) == 1:
        return ()
    x_scale = TASKS[tool.task].x_scale(tool.estimator.model_)
    weight = scale**-2.0
    result, start = [], 0
    for column in tool.columns.columns:
        own = slice(start, start + len(column.kept))
        start += len(column.kept)
        unit = float(scale[own][0] * x_scale[own][0]) if len(column.kept) == 1 and column.kind == "number" else float("nan")
        result.append(Heard(column.name, float(weight[own].sum() / weight.sum()), float(scale[own].min()), unit))
    return tuple(sorted(result, key=lambda heard: -heard.share))


@torch.no_grad()
def lengthscales(kernel: Kernel) -> Float[Array, " D"] | None:
    """Of the only part of the kernel that has some."""
    parts = [part for part in kernel.modules() if isinstance(part, Kernel) and part.has_lengthscale]
    return parts[0].lengthscale.detach().cpu().double().flatten().numpy() if len(parts) == 1 else None
