"""What a table with known targets says about a model: its scores, every row's prediction, and what its kernel listens to."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

import numpy as np
from gpytorch.kernels import Kernel
from jaxtyping import Float

from gwi._progress import Report
from gwi._typing import Array
from gwi.estimators.columns import encoder_of
from gwi.estimators.tables import Estimator, judge_table, known_rows, score_judged, table_rows
from gwi.evaluation.judged import Judged, TargetKind
from gwi.report import classification, levels, regression, times
from gwi.report.examined import Examined
from gwi.streaming.batches import Sample
from gwi.tables.encoder import Encoder
from gwi.tables.source import Source, Table, read_parts
from gwi.tables.transformer import Encoded
from gwi.tables.unlike import Unlike

# Rows, and cells, that a report looks at; of more a sample.
MOST_ROWS, MOST_CELLS = 100_000, 20_000_000
# What differs between kinds of targets: `check` and `details` of the predictions, `cells` of a row, and `CELLS`, their names and
# which are numbers. The template is called like the module.
KINDS: dict[TargetKind, ModuleType] = {
    "numbers": regression,
    "counts": regression,
    "levels": levels,
    "times": times,
    "classes": classification,
}


def sampled(source: Source, most: int, chunk_size: int, report: Report) -> tuple[Table, int]:
    """At most so many rows of a file, each with equal chance and in order, read once; and how many the file has."""
    sample: Sample[Table] = Sample(most, 0)
    for table, share in read_parts(source, chunk_size):
        sample.add(table)
        report("rows", share)
    return sample.in_order(), sample.num_seen


def examine(
    estimator: Estimator,
    source: Source,
    chunk_size: int,
    report: Report,
    most: int = MOST_ROWS,
    unlike: Unlike | None = None,
    encoder: Encoder | None = None,
) -> Examined:
    """Predict the rows of a file, or of a sample of them, and look for faults.

    Args:
        estimator: the model.
        source: of the rows.
        chunk_size: rows read at a time.
        report: of progress.
        most: rows looked at.
        unlike: counts rows unlike those of the fit.
        encoder: of its columns, with the name of the target; None for that of the model.

    Raises:
        UserError: when no row has a target, or the file does not fit the model.
    """
    everything, num_rows = sampled(source, max(1, min(most, MOST_CELLS // len(source.header))), chunk_size, report)
    return examine_rows(estimator, everything, num_rows, report, unlike, encoder)


def examine_rows(
    estimator: Estimator,
    everything: Table,
    num_rows: int,
    report: Report,
    unlike: Unlike | None = None,
    encoder: Encoder | None = None,
) -> Examined:
    """The same for rows that are read already; `num_rows` is how many their file has.

    Raises:
        UserError: when no row has a target, or the rows do not fit the model.
    """
    encoder = encoder_of(estimator) if encoder is None else encoder
    table, _ = known_rows(estimator, everything, encoder)
    report("predictions", 0.0)
    judged = judge_table(estimator, table, unlike, encoder)
    report("diagnosis", 0.5)
    X = table_rows(estimator, table) if len(table) else np.empty((0, 0))
    return examined(estimator, encoder, table, X, judged, num_rows, len(everything) - len(table))


def examined(
    estimator: Estimator,
    encoder: Encoder,
    table: Table,
    X: Float[Array, "N D"],
    judged: Judged,
    num_rows: int,
    num_without_target: int,
) -> Examined:
    """Scores, outlier scores and faults of predictions.

    Args:
        estimator: the model.
        encoder: of its columns.
        table: rows with a target.
        X: their numbers.
        judged: predictions and targets.
        num_rows: of which these are some.
        num_without_target: rows that were left out.
    """
    scores = score_judged(estimator, [judged], encoder.target)
    ood = np.asarray(estimator.ood_score(Encoded(X)))
    checked = KINDS[estimator._kind].check(estimator, X, judged)
    return Examined(estimator, encoder, table, judged, ood, scores, num_rows, num_without_target, checked)


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


def heard_columns(estimator: Estimator, encoder: Encoder) -> tuple[Heard, ...]:
    """The columns by how much the kernel listens to them; none where it has one length-scale for all."""
    kernel = estimator.posterior_.kernel.prior_kernel
    parts = [part for part in kernel.modules() if isinstance(part, Kernel) and part.has_lengthscale]
    scale = parts[0].lengthscale.detach().cpu().double().flatten().numpy() if len(parts) == 1 else np.empty(0)
    num_numbers = sum(len(column.kept) for column in encoder.columns)
    if not num_numbers <= len(scale) <= len(encoder.features) or len(scale) == 1:
        return ()
    x_scale = estimator.model_.embedding.scales.x_scale
    # Without the last number, which is the same in all known rows.
    weight = scale[:num_numbers] ** -2.0
    result = []
    for column, own in encoder.places():
        unit = float(scale[own][0] * x_scale[own][0]) if len(column.kept) == 1 and column.kind == "number" else float("nan")
        result.append(Heard(column.name, float(weight[own].sum() / weight.sum()), float(scale[own].min()), unit))
    return tuple(sorted(result, key=lambda heard: -heard.share))
