"""Findings: what is wrong with a fitted regression, how bad it is and what to do. Here those that the training rows alone show.

Every threshold was set by measurement on rows inside the training parts of UCI tables and on data with a known fault:
`docs/diagnostics.md` has the numbers, `benchmarks/studies/diagnostics.py` measures them again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from torch import Tensor

from gwi._typing import Array
from gwi.core.dispersion import MOST_TEMPERING
from gwi.core.measures import GaussianMeasure, kernel_matrix, kernel_variance
from gwi.core.posterior import CachedPosterior
from gwi.exceptions import GWIWarning
from gwi.models.levels import Levels

Severity = Literal["note", "warning", "severe"]

# Rows at which something is averaged, and rows among which neighbours are looked for: the check costs a hundredth of a fit.
NUM_SAMPLED, NUM_REFERENCE = 500, 10_000
# With fewer rows a kernel that takes them as unrelated may well be right.
FEW_ROWS = 20
# In units of the target's variance: at its floor noise has been found to be none; less in all is rounding.
NO_NOISE, ROUNDING = 1e-8, 1e-12
# A share of the interval between two finite bounds, or of a bound that is alone: as near as this is at the bound.
AT_BOUND = 0.01
# What the command can be told; kernel and inducing points it chooses by itself.
FEWER_COLUMNS = "Fit again without columns that say nothing about the target (gwi fit --drop)."
ANOTHER_MEAN = "Fit again with another mean (gwi fit --mean; auto stacks several), or without columns that are noise (--drop)."


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        kind: which, one of a fixed set of names.
        severity: ``"note"`` is worth knowing, ``"warning"`` worth mending; with ``"severe"`` do not trust the uncertainty.
        value: how bad; what the number is depends on the kind.
        what: one sentence.
        remedy: one sentence, for users of Python.
        command_remedy: the same for users of the command, who have other options.

    Examples:
        >>> from gwi.evaluation.checks import Finding
        >>> remedies = "Measure some of them.", "See the report."
        >>> finding = Finding("far-from-training", "warning", 0.4, "Many rows are far away.", *remedies)
        >>> finding.severity, finding.remedy
        ('warning', 'Measure some of them.')
    """

    kind: str
    severity: Severity
    value: float
    what: str
    remedy: str
    command_remedy: str

    def __str__(self) -> str:
        return f"{self.severity:<8} {self.kind}: {self.what} {self.remedy}"


@dataclass(frozen=True)
class Check:
    """One number that was measured, and what it means.

    Attributes:
        kind: of the finding it may be.
        value: how bad; NaN where it cannot be measured.
        severity: None when all is well.
        what: the finding's.
        remedy: the finding's.
        command_remedy: the finding's; the remedy unless given.
    """

    kind: str
    value: float
    severity: Severity | None = None
    what: str = ""
    remedy: str = ""
    command_remedy: str = ""


def found(checks: Iterable[Check]) -> tuple[Finding, ...]:
    """The checks that failed, the worst first."""
    order = {"severe": 0, "warning": 1, "note": 2}
    findings = [
        Finding(c.kind, c.severity, c.value, c.what, c.remedy, c.command_remedy or c.remedy)
        for c in checks
        if c.severity is not None
    ]
    return tuple(sorted(findings, key=lambda finding: order[finding.severity]))


def graded(value: float, *, note: float = math.nan, warning: float = math.nan, severe: float = math.nan) -> Severity | None:
    """The severity of a number that is worse when larger; NaN is none, and a threshold of NaN is never reached."""
    thresholds: dict[Severity, float] = {"severe": severe, "warning": warning, "note": note}
    return next((name for name, threshold in thresholds.items() if value >= threshold), None)


def require_numbers(estimator: object, otherwise: str) -> None:
    """Refuse what predicts classes where the law of a number is looked at."""
    if hasattr(estimator, "predict_proba"):
        raise TypeError(otherwise)


@runtime_checkable
class Checkable(Protocol):
    """A fitted model, as checks see it."""

    posterior: GaussianMeasure
    cached: CachedPosterior

    def levels(self, x: Float[Tensor, "n E"]) -> Levels:
        """What checks look at, from rows that Q knows."""
        ...


def severe_warnings(model: Checkable, x: Float[Tensor, "N D"]) -> list[GWIWarning]:
    """What `fit` warns of: each severe finding of `training_checks` at the training rows."""
    findings = found(training_checks(model, x, len(x))) if len(x) else ()
    return [
        GWIWarning(f"{f.kind}: {f.what} {f.remedy}", f"{f.kind}: {f.what} {f.command_remedy}")
        for f in findings
        if f.severity == "severe"
    ]


@torch.no_grad()
def training_checks(model: Checkable, x: Float[Tensor, "N D"], num_rows: int) -> tuple[Check, ...]:
    """What the training rows alone show.

    Args:
        model: fitted.
        x: its training rows, standardised, or rows like them.
        num_rows: it was fitted to.
    """
    generator = torch.Generator().manual_seed(0)
    rows = x[torch.randperm(len(x), generator=generator)[:NUM_SAMPLED].to(x.device)]
    levels = model.levels(rows)
    return (
        few_inducing_points(model, rows, levels.noise, num_rows),
        lengthscales(model.posterior.kernel.prior_kernel, x, generator),
        collapsed_variance(levels.variance, levels.least_noise, num_rows),
        tempering(levels.tempering, levels.variance + levels.noise, levels.tempers_noise),
    )


def few_inducing_points(model: Checkable, rows: Float[Tensor, "n D"], noise: Float[Tensor, " J"], num_rows: int) -> Check:
    """Of what is unexplained at training rows the share that Z, not the noise, is to blame for: mean R₀ over mean R₀ + σ²."""
    kind = "few-inducing-points"
    kernel, num_inducing = model.posterior.kernel.prior_kernel, len(model.posterior.kernel.inducing_points)
    if num_inducing >= num_rows:
        return Check(kind, 0.0)
    residual = model.cached.residual(rows).mean(-1)
    value = float((residual / (residual + noise)).max())
    severity = graded(value, note=0.1, warning=0.25, severe=0.5)
    best = ""
    if severity is not None and num_inducing < len(rows):
        # No M points can do better than the first M eigenfunctions.
        spectrum = torch.linalg.eigvalsh(kernel_matrix(kernel, rows)).flip(-1)
        left = float(spectrum[num_inducing:].clamp_min(0).sum() / spectrum.sum())
        best = f" (even the best {num_inducing} would leave {left:.1%} of the prior variance)"
    return Check(
        kind,
        value,
        severity,
        f"{value:.0%} of the unexplained variance at training rows comes from having only {num_inducing} inducing points{best}.",
        'Use more, as in Covariance(num_inducing=...), or choose a smoother kernel, such as kernel="rbf".',
        FEWER_COLUMNS,
    )


def lengthscales(kernel: Kernel, x: Float[Tensor, "N D"], generator: torch.Generator) -> Check:
    """The median correlation of f at a training row and at the row most like it; and length-scales at a bound of theirs."""
    kind = "length-scales-at-bounds"
    reference = torch.unique(x[torch.randperm(len(x), generator=generator)[:NUM_REFERENCE].to(x.device)], dim=0)
    if len(reference) < FEW_ROWS:
        return Check(kind, math.nan)
    sample = torch.randperm(len(reference), generator=generator)[: NUM_SAMPLED // 2].to(x.device)
    scale = kernel_variance(kernel, reference).sqrt()
    correlation = kernel_matrix(kernel, reference[sample], reference) / (scale[sample][:, None] * scale)
    smallest = float(correlation.min())
    correlation[torch.arange(len(sample), device=x.device), sample] = 0
    value = float(correlation.abs().amax(-1).median())
    severity = graded(-value, warning=-0.3, severe=-0.1)
    if severity is not None:
        what = (
            f"The correlation of f at a training row and at the row most like it is only {value:.2g}: rows say little of "
            "each other."
        )
        longer = "Give the kernel longer length-scales, or a hyper-prior that keeps them long."
        return Check(kind, value, severity, what, longer, FEWER_COLUMNS)
    if smallest > 0.9999:
        what = (
            f"The smallest correlation of f between two training rows is {smallest:.6f}, so the kernel hardly tells rows apart."
        )
        return Check(
            kind,
            smallest,
            "warning",
            what,
            "Give the kernel shorter length-scales, or check that the columns help to predict the target.",
            "Check that the columns help to predict the target.",
        )
    at_bound, total = _at_bounds(kernel)
    if at_bound:
        what = f"{at_bound} of {total} length-scales ended at a bound that the kernel has for them."
        wider = "Widen the bounds of lengthscale_constraint, or leave it out."
        return Check(kind, at_bound / total, "warning", what, wider, FEWER_COLUMNS)
    return Check(kind, value)


def _at_bounds(kernel: Kernel) -> tuple[int, int]:
    """How many length-scales stand at a finite bound, and how many there are; zero is no bound but the end of the scale."""
    at_bound = total = 0
    for part in kernel.modules():
        if not isinstance(part, Kernel) or not part.has_lengthscale:
            continue
        scale, constraint = part.lengthscale.flatten(), part.raw_lengthscale_constraint
        low, high = float(constraint.lower_bound.min()), float(constraint.upper_bound.max())
        near = torch.zeros_like(scale, dtype=torch.bool)
        for bound in (low, high):
            if math.isfinite(bound) and bound != 0:
                slack = AT_BOUND * (high - low if math.isfinite(high - low) else abs(bound))
                near |= (scale - bound).abs() <= slack
        at_bound, total = at_bound + int(near.sum()), total + scale.numel()
    return at_bound, total


def collapsed_variance(variance: Float[Tensor, " J"], noise: Float[Tensor, " J"], num_rows: int) -> Check:
    """N times the mean variance of f at training rows over the mean σ²: the degrees of freedom that it stands for.

    Under an exact posterior and constant noise it is d_eff = Σ h/(h + σ²) over the eigenvalues h of k(X, X). A constant has one.
    """
    kind = "variance-collapsed"
    noisy = noise > NO_NOISE
    if not noisy.any():
        # Rows without noise tell f exactly.
        return Check(kind, math.nan)
    value = num_rows * float((variance[noisy] / noise[noisy]).min())
    return Check(
        kind,
        value,
        graded(-value, warning=-0.5, severe=-0.1),
        f"The variance of f at training rows amounts to {value:.2g} degrees of freedom; a fitted constant alone has one.",
        'Use Covariance(weight="auto") or covariance="titsias", and a kernel whose outputscale is not close to zero.',
        ANOTHER_MEAN,
    )


def tempering(factor: Float[Array, " T"], variance: Float[Tensor, " J"], of_noise: bool = True) -> Check:
    """α_T, of the target where it is farthest from one."""
    kind = "tempering-far-from-one"
    factor = factor[(variance > ROUNDING).cpu().numpy()] if len(factor) else factor
    if len(factor) == 0:
        return Check(kind, math.nan)
    value = float(factor[np.argmax(np.abs(np.log(factor)))])
    ratio = max(value, 1 / value)
    remedy, command_remedy = (
        'Try another kernel or more inducing points, and tempering="auto" if you set it: far from the data this factor '
        "is a guess.",
        ANOTHER_MEAN,
    )
    # Of f alone the factor has a bound; a fit that comes to it would go on.
    most = 10.0 if of_noise or value < 1 else MOST_TEMPERING
    if not of_noise and value > 1:
        remedy = (
            "The likelihood may be too narrow, so that f has to explain noise: for counts that vary more than Poisson's use "
            'likelihood="negative-binomial".'
        )
        command_remedy = "Fit again with a likelihood that allows more variance, such as --likelihood negative-binomial."
    return Check(
        kind,
        value,
        graded(ratio, note=2.0, warning=4.0, severe=most),
        f"Tempering multiplies the {'predictive variance' if of_noise else 'variance of f'} by {value:.3g}: "
        f"without this factor it would be {ratio:.3g} times too {'small' if value > 1 else 'large'}.",
        remedy,
        command_remedy,
    )
