"""What a table with known targets says about a model: its scores, every row's prediction, and the rows to look at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.stats import norm

from gwi._typing import Array
from gwi.estimators.classifier import GWIClassifier
from gwi.estimators.regressor import GWIRegressor
from gwi.estimators.table_model import Judged, Tool, all_scores, judge, target_of
from gwi.evaluation.checks import Check, Finding, found, graded
from gwi.evaluation.classification import entropy
from gwi.evaluation.diagnostics import diagnose, far_from_training
from gwi.evaluation.regression import Law
from gwi.models.classification import StandardRows
from gwi.tables.source import Source, Table, read_parts

# Rows, and cells, that a report looks at; of more a sample.
MOST_ROWS, MOST_CELLS = 100_000, 20_000_000
# Rows that `diagnose` looks at, and rows that are shown.
NUM_DIAGNOSED, NUM_UNCERTAIN, NUM_SURPRISING = 5_000, 10, 5
# How rare by chance a gap between confidence and accuracy must be before it is worth a word.
RARE = 1e-3


@dataclass(frozen=True)
class Examined:
    """A model at the rows of a table that have a target.

    Attributes:
        tool: the model.
        table: the rows.
        judged: predictions and targets.
        ood: the outlier score of each row.
        scores: of the predictions.
        num_rows: of the whole file; more than are in the table where it is a sample.
        num_without_target: of the rows looked at, those left out because they have none.
        findings: what is wrong, the worst first.
        num_checks: how many things were looked for.
        doubt: of each row, what the most uncertain ones have most of.
        surprise: of each row, how improbable its target was.
    """

    tool: Tool
    table: Table
    judged: Judged
    ood: Float[Array, " N"]
    scores: dict[str, float]
    num_rows: int
    num_without_target: int
    findings: tuple[Finding, ...]
    num_checks: int
    doubt: Float[Array, " N"]
    surprise: Float[Array, " N"]

    @property
    def law(self) -> Law:
        """What was predicted, for a regression."""
        assert isinstance(self.tool.estimator, GWIRegressor)
        assert self.judged.std is not None
        degrees = float(self.tool.estimator.model_.degrees_of_freedom[0])
        return Law(self.judged.first[None], self.judged.std[None], degrees)

    @property
    def most_uncertain(self) -> NDArray[np.int64]:
        """Rows with the widest prediction, the widest first."""
        return np.argsort(-self.doubt, kind="stable")[:NUM_UNCERTAIN]

    @property
    def most_surprising(self) -> NDArray[np.int64]:
        """Rows whose target was the least expected."""
        return np.argsort(-self.surprise, kind="stable")[:NUM_SURPRISING]


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
    table, y = target_of(everything, tool.columns.target, tool.task, tool.columns.number_labels)
    report("predictions", 0.0)
    judged = judge(tool, table)
    scores = all_scores(tool, [judged])
    X = tool.columns.transform(table)
    ood = np.asarray(tool.estimator.ood_score(X))
    if judged.std is not None:
        assert isinstance(tool.estimator, GWIRegressor)
        order = np.sort(np.random.default_rng(0).permutation(len(y))[:NUM_DIAGNOSED])
        report("diagnosis", 0.5)
        diagnosis = diagnose(tool.estimator, X[order], y[order])
        findings, num_checks = diagnosis.findings, sum(value == value for _, value in diagnosis.measures)
        doubt, surprise = judged.std, np.abs(judged.y - judged.first) / judged.std
    else:
        assert isinstance(tool.estimator, GWIClassifier)
        checks = (*class_checks(judged.first, judged.y, tool.estimator.classes_), _far(tool.estimator, X))
        findings, num_checks = found(checks), sum(check.value == check.value for check in checks)
        doubt = entropy(judged.first)
        surprise = 1 - judged.first[np.arange(len(y)), judged.y]
    return Examined(
        tool, table, judged, ood, scores, num_rows, len(everything) - len(table), findings, num_checks, doubt, surprise
    )


def _far(estimator: GWIClassifier, X: Float[Array, "N D"]) -> Check:
    """The share of rows far from all inducing points, which stand for the training rows."""
    model = estimator.model_
    rows = torch.cat(list(model.rows(X[np.random.default_rng(0).permutation(len(X))[:NUM_DIAGNOSED]])))
    return far_from_training(rows, model.posterior.kernel.inducing_points.detach())


def class_checks(probabilities: Float[Array, "N J"], y: NDArray[Any], classes: Any) -> tuple[Check, ...]:
    """What the rows say about predicted probabilities: whether they are right on average, for all classes and for each."""
    confidence = probabilities.max(1)
    gap = float((probabilities.argmax(1) == y).mean() - confidence.mean())
    # If every confidence is right, the number of hits has this variance.
    spread = np.sqrt((confidence * (1 - confidence)).sum()) / len(y)
    chance = 2 * norm.sf(abs(gap) / spread) if spread > 0 else float(gap == 0)
    count = np.bincount(y, minlength=len(classes))
    expected = probabilities.sum(0)
    off = (count - expected) / np.sqrt(np.maximum((probabilities * (1 - probabilities)).sum(0), 1e-12))
    worst = int(np.argmax(np.abs(off)))
    # One class of many is off by chance more often than one of two.
    is_off = len(classes) * 2 * norm.sf(abs(off[worst])) < RARE
    return (
        Check(
            "miscalibrated",
            gap,
            graded(abs(gap), note=0.02, warning=0.1, severe=0.2) if chance < RARE else None,
            f"The model is {confidence.mean():.1%} sure on average and right at {confidence.mean() + gap:.1%} of {len(y)} rows: "
            f"it is too {'modest' if gap > 0 else 'sure of itself'}.",
            "Fit again with rows like these; until then take its probabilities with care.",
        ),
        Check(
            "classes-have-shifted",
            float(off[worst]),
            graded(abs(count[worst] - expected[worst]) / len(y), note=0.02, warning=0.1) if is_off else None,
            f"Class {str(classes[worst])!r} comes {count[worst]} times where the probabilities add up to {expected[worst]:.1f}.",
            "These rows have other shares of the classes than those of the fit; fit again with rows like these.",
        ),
    )


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
    x_scale = _x_scale(tool)
    weight = scale**-2.0
    result, start = [], 0
    for column in tool.columns.columns:
        own = slice(start, start + len(column.kept))
        start += len(column.kept)
        unit = float(scale[own][0] * x_scale[own][0]) if len(column.kept) == 1 and column.kind == "number" else float("nan")
        result.append(Heard(column.name, float(weight[own].sum() / weight.sum()), float(scale[own].min()), unit))
    return tuple(sorted(result, key=lambda heard: -heard.share))


def _x_scale(tool: Tool) -> Float[Array, " D"]:
    if isinstance(tool.estimator, GWIRegressor):
        return np.asarray(tool.estimator.model_.scales.x_scale)
    embedding = tool.estimator.model_.embedding
    # A table's rows are standardised and nothing else.
    assert isinstance(embedding, StandardRows)
    return np.asarray(embedding.scales.x_scale)


@torch.no_grad()
def lengthscales(kernel: Kernel) -> Float[Array, " D"] | None:
    """Of the only part of the kernel that has some."""
    parts = [part for part in kernel.modules() if isinstance(part, Kernel) and part.has_lengthscale]
    return parts[0].lengthscale.detach().cpu().double().flatten().numpy() if len(parts) == 1 else None
