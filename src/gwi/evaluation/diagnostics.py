"""Diagnosing a fitted regression: plain-language findings from its training rows and from rows it has not seen."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from scipy.stats import betabinom, binomtest
from torch import Tensor

from gwi._typing import Array
from gwi._validation import as_array
from gwi.core.distributions import conformal_quantile
from gwi.core.laws.protocol import pit
from gwi.core.outcomes import as_bounds
from gwi.evaluation.checks import ANOTHER_MEAN, Check, Finding, found, graded, require_numbers, training_checks
from gwi.evaluation.levels import class_checks
from gwi.evaluation.times import time_checks
from gwi.models.numbers import Parts
from gwi.models.summary import html_table

# The kernel is confident where less than half of its prior variance is left.
CONFIDENT = 0.5
# An error is a surprise when it is larger, in standard deviations, than so many of those at unseen rows during the fit. A higher
# mark would be the largest few of these, which one bad fold decides.
SURPRISE = 0.95
# Intervals of these levels are checked: the middle of the law and its tails.
LEVELS = (0.5, 0.95)
# How rare a count must be by chance before it is worth a word; and the least number of rows to count among.
RARE, FEW_ROWS = 1e-3, 10
# Rows among which typical distances are measured; and what counts as far: twice the distance within which all but one in a
# hundred training rows have their nearest other row, and at least half a standard deviation, for dense rows are very near.
NUM_REFERENCE, FAR_FACTOR, TYPICAL, LEAST_FAR = 2000, 2.0, 0.99, 0.5
CHUNK_SIZE = 4096
# What helps intervals that are too narrow or too wide, by likelihood.
GAUSSIAN_REMEDY = 'Use tempering="auto" and likelihood="gaussian", or Gaussian(conformal=True)'
REMEDIES = {
    "gaussian": GAUSSIAN_REMEDY,
    "student-t": 'Use tempering="auto", or StudentT(conformal=True)',
    "poisson": 'Where counts vary more than Poisson\'s use likelihood="negative-binomial", or Poisson(conformal=True)',
    "negative-binomial": 'Use NegativeBinomial("input-dependent"), or NegativeBinomial(conformal=True)',
    "robust": "Outliers lie outside by design: diagnose it on rows without them, or use Robust(conformal=True)",
}
OTHER_REMEDY = 'Use likelihood="auto", which tries several, or a likelihood part with conformal=True'


@dataclass(frozen=True)
class Diagnosis:
    """What `diagnose` found.

    Attributes:
        findings: the worst first; empty when all is well.
        measures: the number behind every kind of finding, found or not; NaN where it cannot be measured.
        num_rows: held-out rows that were given.

    Examples:
        >>> from gwi.evaluation.checks import Finding
        >>> from gwi.evaluation.diagnostics import Diagnosis
        >>> remedies = "Measure some of them.", "See the report."
        >>> finding = Finding("far-from-training", "warning", 0.4, "Many rows are far away.", *remedies)
        >>> diagnosis = Diagnosis((finding,), (("far-from-training", 0.4),), num_rows=100)
        >>> [found.kind for found in diagnosis.findings], diagnosis.severe
        (['far-from-training'], ())
    """

    findings: tuple[Finding, ...]
    measures: tuple[tuple[str, float], ...]
    num_rows: int

    @property
    def severe(self) -> tuple[Finding, ...]:
        """The severe findings."""
        return tuple(finding for finding in self.findings if finding.severity == "severe")

    def to_dict(self) -> dict[str, Any]:
        """Findings and measures by name."""
        return {"num_rows": self.num_rows, "findings": [asdict(f) for f in self.findings], "measures": dict(self.measures)}

    def _repr_html_(self) -> str:
        rows = [(finding.severity, finding.kind, finding.what, finding.remedy) for finding in self.findings]
        return html_table(str(self).splitlines()[0], rows)

    def __str__(self) -> str:
        if not self.findings:
            return f"Nothing found on {self.num_rows} rows."
        count = f"{len(self.findings)} finding{'s' if len(self.findings) > 1 else ''} on {self.num_rows} rows"
        return "\n".join([f"{count}, {len(self.severe)} severe", *(f"  {finding}" for finding in self.findings)])


def diagnose(estimator: Any, X: Any, y: Any) -> Diagnosis:
    """Look for the ways in which uncertainty is silently wrong, such as the paper's [ap:model_misspecification].

    A model from a file holds no training rows unless every row is an inducing point. Duplicates are then unknown, and the rows
    given stand for training rows in what is averaged over them.

    Args:
        estimator: a fitted `GWIRegressor`.
        X: rows that it has not seen, such as those it will be used on.
        y: their targets.

    Examples:
        >>> import numpy as np
        >>> from gwi import GWIRegressor, diagnose
        >>> X = np.linspace(0, 6, 60)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=60)
        >>> model = GWIRegressor("svgp", random_state=0).fit(X[::2], y[::2])
        >>> diagnose(model, X[1::2], y[1::2]).severe
        ()
    """
    require_numbers(estimator, f"diagnose takes a fitted GWIRegressor; {type(estimator).__name__} is a classifier.")
    rows = estimator._rows(X)
    model, summary, kind = estimator.model_, estimator.summary_, estimator._kind
    targets = _targets(estimator, y, len(rows))
    x = torch.cat(list(model.rows(rows)))
    z = model.posterior.kernel.inducing_points.detach()
    fit = estimator._fit
    training = fit.data.x if fit is not None else z if len(z) >= summary.num_rows else None
    parts = model.parts(rows)
    # What a network makes of a row is all its own.
    own = model.embedding.num_own if model.embedding.is_table else x.shape[1]
    of_targets: tuple[Check, ...]
    if kind == "times":
        of_targets = time_checks(model.laws_of(parts)[0], as_bounds(targets.T))
    else:
        mean, std = model.law_of(parts)
        distances = model.distances_of(parts, targets)
        confident = as_array(estimator.ood_score(X)) < CONFIDENT
        of_levels = kind == "levels"
        calibration = _calibration(model, estimator.conformal, parts, targets, distances, summary.likelihood)
        first = _mean_and_kernel(distances, np.abs(targets - mean), std, model.scores, confident, of_levels)
        of_targets = (first, *(_levels(estimator, rows, y) if of_levels else (calibration,)))
    checks = (
        of_targets[0],
        *training_checks(model, torch.cat([z, x]) if training is None else training, summary.num_rows),
        *of_targets[1:],
        _duplicates(x[:, :own], None if training is None else training[:, :own]),
        far_from_training(x[:, :own], (z if training is None else training)[:, :own]),
    )
    return Diagnosis(found(checks), tuple((check.kind, check.value) for check in checks), len(rows))


def _targets(estimator: Any, y: Any, num_rows: int) -> Array:
    """Targets, one row each; of times the lower and the upper bounds."""
    if estimator._kind in ("levels", "times"):
        targets = np.asarray(estimator._targets.encode(y), dtype=np.float64)
        if len(targets) != num_rows:
            raise ValueError(f"There must be a target for each row; got {len(targets)} targets and {num_rows} rows.")
        return targets.T
    num_targets = len(estimator.model_.noises)
    targets = np.asarray(y.detach().cpu() if isinstance(y, Tensor) else y, dtype=np.float64)
    if targets.shape[:1] != (num_rows,) or targets.size != num_rows * num_targets:
        raise ValueError(f"{num_rows} rows with {num_targets} target(s) were expected; y has the shape {targets.shape}.")
    return targets.reshape(num_rows, -1).T


def _levels(estimator: Any, rows: Array, y: Any) -> tuple[Check, ...]:
    """Are probabilities of levels right on average, for all and for each?"""
    judged = estimator.judge(rows, y)
    names = estimator.model_.level_values if estimator._targets.levels is None else estimator._targets.levels
    return class_checks(judged.first, judged.y, names, "Level")


def _mean_and_kernel(
    distances: Float[Array, "J N"],
    errors: Float[Array, "J N"],
    std: Float[Array, "J N"],
    scores: Float[Tensor, "J V"],
    confident: Bool[NDArray[Any], " N"],
    of_levels: bool = False,
) -> Check:
    """The share of rows where the kernel is confident at which the target's distance from the middle of its law is a surprise.

    Of the worst target.
    """
    kind = "mean-and-kernel-disagree"
    num_confident = int(confident.sum())
    if num_confident < FEW_ROWS or not scores.shape[1]:
        return Check(kind, math.nan)
    sorted_scores = scores.cpu().numpy()
    num_judged = sorted_scores.shape[1]
    rank = min(math.ceil((num_judged + 1) * SURPRISE), num_judged)
    usual = rank / (num_judged + 1)
    surprises = (distances[:, confident] > sorted_scores[:, rank - 1][:, None]).sum(1)
    worst = int(np.argmax(surprises))
    value = surprises[worst] / num_confident
    # The share of new errors above the rank-th of V is Beta(V + 1 − rank, rank) where nothing has changed, whatever their law.
    chance = betabinom.sf(surprises[worst] - 1, num_confident, num_judged + 1 - rank, rank)
    own = float(np.median(errors[worst, confident]))
    typical = float(np.median((errors / std)[worst, confident]))
    unit = "levels" if of_levels else "in the target's unit"
    return Check(
        kind,
        float(value),
        graded(value, warning=0.15, severe=0.3) if chance < RARE else None,
        f"The kernel is confident on {num_confident} of {len(confident)} rows, and on {value:.0%} of these the error is larger "
        f"than on {usual:.0%} of the held-out rows of the fit (median error {own:.3g} "
        f"{unit}, {typical:.2g} predicted standard deviations).",
        'Use a mean that can follow what the kernel assumes (periodic features, mean="svgp-all", a stack), or use a '
        "kernel that assumes less.",
        ANOTHER_MEAN,
    )


def _calibration(
    model: Any,
    conformal: bool,
    parts: Parts,
    y: Float[Array, "J N"],
    distances: Float[Array, "J N"],
    likelihood: str = "gaussian",
) -> Check:
    """Coverage minus its nominal value, where it is farthest from it: among places where chance is not the reason, if any."""
    kind = "miscalibrated"
    num_rows, num_judged = distances.shape[1], model.scores.shape[1]
    laws = () if conformal else model.laws_of(parts)
    found: list[tuple[float, float, float]] = []
    for level in LEVELS:
        if conformal and level > num_judged / (num_judged + 1):
            continue
        if conformal:
            half = np.array([conformal_quantile(scores, level) for scores in model.scores])
            inside = (distances <= half[:, None]).sum(1)
        else:
            inside = np.array([(np.abs(2 * pit(law, row) - 1) <= level).sum() for law, row in zip(laws, y, strict=True)])
        found += [(count / num_rows - level, level, binomtest(int(count), num_rows, level).pvalue) for count in inside]
    if not found:
        return Check(kind, math.nan)
    value, level, chance = max(found, key=lambda place: (place[2] < RARE, abs(place[0])))
    # Such as "robust, beta-divergence" and "gaussian above 0".
    remedy = REMEDIES.get(likelihood.replace(",", " ").split()[0], OTHER_REMEDY)
    return Check(
        kind,
        float(value),
        graded(abs(value), note=0.05, warning=0.1, severe=0.2) if chance < RARE else None,
        f"{level:.0%} intervals contain {level + value:.0%} of {num_rows} rows: they are too "
        f"{'wide' if value > 0 else 'narrow'}.",
        f"{remedy}; if these rows differ from the training rows, call update(X, y) with some of them.",
        "Fit again with rows like these among the training rows; until then keep this gap in mind when you read intervals.",
    )


def _duplicates(x: Float[Tensor, "N D"], training: Float[Tensor, "T D"] | None) -> Check:
    """The share of held-out rows whose inputs are those of a training row."""
    kind = "duplicates"
    if training is None:
        return Check(kind, math.nan)
    known = {row.tobytes() for row in training.cpu().numpy() + 0.0}
    value = sum(row.tobytes() in known for row in x.cpu().numpy() + 0.0) / len(x)
    return Check(
        kind,
        value,
        graded(value, note=0.01, warning=0.1, severe=0.5),
        f"{value:.0%} of the rows have the same inputs as a training row, so scores on them are too good.",
        "Use rows that are not in the training data, nor copies of rows that are.",
    )


@torch.no_grad()
def far_from_training(x: Float[Tensor, "N D"], reference: Float[Tensor, "T D"]) -> Check:
    """The share of rows far from all training rows, whatever the kernel says."""
    kind = "far-from-training"
    order = torch.randperm(len(reference), generator=torch.Generator().manual_seed(0))[:NUM_REFERENCE]
    reference = torch.unique(reference[order.to(reference.device)], dim=0)
    if len(reference) < 2:
        return Check(kind, math.nan)
    among = torch.cdist(reference, reference).fill_diagonal_(math.inf).amin(-1)
    limit = max(FAR_FACTOR * float(among.quantile(TYPICAL)), LEAST_FAR)
    distance = torch.cat([torch.cdist(rows, reference).amin(-1) for rows in x.split(CHUNK_SIZE)])
    value = float((distance > limit).double().mean())
    return Check(
        kind,
        value,
        # Never severe by itself: where errors are known to be large, too, another finding says so.
        graded(value, note=0.02, warning=0.1),
        f"{value:.0%} of the rows are far from all training rows: farther than {limit:.2g} standard deviations of the inputs.",
        "Collect some rows there and fit again; until then the mean extrapolates, with error bars that are the prior's at best.",
    )
