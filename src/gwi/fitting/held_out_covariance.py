"""From a judged mean to calibrated variances: the prior, r at unseen rows, and the noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from gpytorch.kernels import Kernel, MaternKernel, RQKernel
from jaxtyping import Float
from torch import Tensor

from gwi.core.covariance import (
    bounded_by_prior,
    covariance_problem,
    matched_divergence_weight,
    shrinkage,
    titsias_covariance,
    trained_covariance,
    wasserstein_covariance,
)
from gwi.core.inducing import Method, choose_inducing_points
from gwi.core.kernels import SparsePosteriorKernel, default_kernel
from gwi.core.measures import kernel_variance
from gwi.core.noise import NoiseFit, fit_noise
from gwi.core.prior import PriorFit, fit_prior
from gwi.core.row_sums import RowSums, row_sums
from gwi.fitting.learners import Task, fold_sums, left_out_parts, left_out_variance

CovarianceName = Literal["wasserstein", "titsias", "trained", "zero"]
CovarianceChoice = Literal["auto", "wasserstein", "titsias", "trained", "zero"]
NoiseName = Literal["auto", "constant", "input-dependent"]

# Up to so many rows every row is an inducing point, and the covariance is in closed form.
ALL_ROWS = 2000
# Above it Z has so many points, and hyper-parameters are fitted to so many rows.
SPARSE_INDUCING = 300
SPARSE_SAMPLE = 4000
EXACT_SAMPLE = 600
# Beyond so many inducing points the collapsed bound costs more than it gives over an exact GP's on a sample.
MAX_COLLAPSED = 1000
PENALTIES = (300.0, 100.0, 30.0, 10.0, 3.0)
# Laws under which the noise is fitted: one with tails so heavy that far rows do not decide it, and the normal one.
NOISE_DEGREES = (5.0, math.inf)
# The share of the evidence at which its fit stops: hundredths of a nat on thousands of rows, less than any prediction can tell.
EVIDENCE_TOLERANCE = 1e-5
# β is matched on so many rows: the mean of φφᵀ is then known to a percent.
MATCHING_ROWS = 10_000
# Duality gap of the S that is kept, which moves r by half a percent, less than the choice of the points that stand for all rows;
# and of the one that only serves to find the level of the noise.
COVARIANCE_TOLERANCE, ROUGH_TOLERANCE = 1e-4, 1e-3
# With fewer rows for each hyper-parameter, folds are judged by priors that have not seen them. With y = x₁ plus noise of the same
# size, intervals of 95 % held 79 % of new rows with 60 rows and 20 columns, and hold 92 %; with 200 rows 89 % and 94.5 %; with a
# thousand rows and 8 columns nothing changes but the time.
ROWS_PER_PARAMETER = 80
# Up to so many targets each has its own noise when the prior is fitted: the work grows with their number.
MOST_NOISES = 10
# Rows held at a time.
CHUNK_SIZE = 4096
# A length-scale for each column up to so many columns; beyond, one for all.
MOST_LENGTHSCALES = 500


def named_kernel(name: str | Kernel, num_features: int, *, ard: bool = True) -> Kernel:
    """A kernel for standardised rows by its name, or the one given, in float64; `ard` as in `default_kernel`."""
    if isinstance(name, Kernel):
        return name.double()
    shapes: dict[str, dict[str, Any]] = {
        "rbf": {},
        "matern32": {"shape": MaternKernel, "nu": 1.5},
        "matern52": {"shape": MaternKernel, "nu": 2.5},
        "rq": {"shape": RQKernel},
    }
    if name not in shapes:
        raise ValueError(f'kernel is "rbf", "matern32", "matern52", "rq" or a GPyTorch kernel; got {name!r}.')
    return default_kernel(num_features, ard=ard, **shapes[name])


def row_kernel(kernel: str | Kernel, num_features: int) -> tuple[Kernel, str]:
    """A kernel on standardised rows by name, or the one given; and a note where it has one length-scale for many columns."""
    if isinstance(kernel, str) and num_features > MOST_LENGTHSCALES:
        return named_kernel(kernel, num_features, ard=False), f"{num_features} columns share one length-scale"
    return named_kernel(kernel, num_features), ""


def choose_prior(
    task: Task,
    kernel: Kernel,
    num_inducing: int | Literal["auto"],
    method: Method | Float[Tensor, "M D"],
    *,
    judges_kernel_means: bool = False,
) -> tuple[PriorFit, Float[Tensor, "M D"]]:
    """Hyper-parameters from a sample of rows, and Z: every row when they are few, else chosen by `method` or given.

    With `judges_kernel_means` and few rows, each fold has a fit that has not seen it: with many columns the hyper-parameters
    alone know enough of the targets to make a kernel mean look better than it is.
    """
    if isinstance(method, Tensor):
        z = method
    elif task.stream is None and len(task.x) <= (ALL_ROWS if num_inducing == "auto" else num_inducing):
        z = task.x
    else:
        rows = _sample(task.x, SPARSE_SAMPLE, task.generator)
        count = min(SPARSE_INDUCING if num_inducing == "auto" else num_inducing, len(rows))
        z = choose_inducing_points(task.x[rows], count, method, kernel=kernel, generator=task.generator)
    of_each = task.classes is None and task.stream is None and 1 < len(task.y) <= MOST_NOISES
    whole = prior_for(kernel, task.x, task.y, task.weight, z, task.generator, noise_of_each=of_each)
    # All targets speak for the same kernel; of J classes one is known from the others.
    num_targets = len(task.y) if task.classes is None else len(task.y) - 1
    num_parameters = 1 + sum(p.numel() for p in kernel.parameters())
    few = len(task.x) <= ALL_ROWS and len(task.x) * num_targets <= ROWS_PER_PARAMETER * num_parameters
    if not (judges_kernel_means and few and task.fold is not None):
        return whole, z
    without = []
    for k in range(task.num_folds):
        others = task.fold != k
        points = task.x[others] if z is task.x else z
        generator = torch.Generator().manual_seed(k)
        seen = task.x[others], task.y[:, others], task.weight[others]
        without.append(prior_for(kernel, *seen, points, generator, noise_of_each=of_each))
    return replace(whole, without_folds=tuple(without)), z


def prior_for(
    kernel: Kernel,
    x: Float[Tensor, "N D"],
    y: Float[Tensor, "J N"],
    weight: Float[Tensor, " N"],
    z: Float[Tensor, "M D"],
    generator: torch.Generator,
    *,
    noise_of_each: bool = False,
) -> PriorFit:
    """Hyper-parameters by the evidence of y: an exact GP's on a sample when Z is many, else the collapsed bound with this Z."""
    if len(z) >= len(x) or len(z) > MAX_COLLAPSED:
        rows = _sample(x, EXACT_SAMPLE, generator)
        return fit_prior(
            kernel,
            x[rows],
            y[:, rows],
            objective="marginal",
            sample_weight=weight[rows],
            noise_of_each=noise_of_each,
            max_iterations=100,
            tolerance=EVIDENCE_TOLERANCE,
        )
    rows = _sample(x, SPARSE_SAMPLE, generator)
    return fit_prior(
        kernel,
        x[rows],
        y[:, rows],
        inducing_points=z,
        sample_weight=weight[rows],
        noise_of_each=noise_of_each,
        max_iterations=60,
        tolerance=EVIDENCE_TOLERANCE,
    )


def _sample(x: Tensor, count: int, generator: torch.Generator) -> Tensor:
    return torch.randperm(len(x), generator=generator)[:count].to(x.device)


@dataclass(frozen=True)
class JudgedCovariance:
    """S, and the variance it gives at the judging rows.

    Attributes:
        kind: which S.
        whitened_covariance: S.
        variance: r at the judging rows as it would be at new rows.
        divergence_weight: β.
    """

    kind: CovarianceName
    whitened_covariance: Float[Tensor, "M M"]
    variance: Float[Tensor, " V"]
    divergence_weight: float


@torch.no_grad()
def judged_covariance(
    task: Task,
    prior: PriorFit,
    z: Float[Tensor, "M D"],
    noise_variance: float,
    kind: CovarianceName,
    beta: float,
    tolerance: float,
    left_out: tuple[Tensor, Tensor] | None = None,
) -> JudgedCovariance:
    """S for all rows, and r at the judging rows from rows other than themselves.

    Where Z are training rows, a row's own inducing point would explain it away; r is then taken fold by fold, from `left_out`,
    the parts of `left_out_parts`.
    """
    num_rows = task.num_rows
    if kind == "titsias":
        exact = z is task.x and task.fold is not None
        whole, without = fold_sums(prior.kernel, z, replace(task, fold=None) if exact else task, None, noise_variance)
        s = titsias_covariance(whole)
        if exact:
            return JudgedCovariance(kind, s, left_out_variance(prior, task, noise_variance), beta)
        if task.fold is not None:
            variance = torch.empty_like(task.y[0])
            for k, sums in enumerate(without):
                r = SparsePosteriorKernel(prior.kernel, z, titsias_covariance(sums))
                variance[task.fold == k] = kernel_variance(r, task.x[task.fold == k])
            return JudgedCovariance(kind, s, variance, beta)
    elif z is task.x or kind == "zero":
        # Where Z explains every row, S = a⁻² I is the optimum in closed form.
        share = 0.0 if kind == "zero" else float(shrinkage(noise_variance, num_rows, beta)) ** -2
        s = share * torch.eye(len(z), dtype=task.x.dtype, device=task.x.device)
        if left_out is not None:
            residual, explained = left_out
            return JudgedCovariance(kind, s, residual + share * explained, beta)
    else:
        rows = torch.randperm(len(task.x), generator=torch.Generator().manual_seed(0))[: 2 * len(z)].to(task.x.device)
        problem = covariance_problem(
            prior.kernel,
            z,
            task.x[rows],
            noise_variance=noise_variance / task.weight[rows],
            num_data=num_rows,
            divergence_weight=beta,
        )
        if kind == "trained":
            with torch.enable_grad():
                s, _ = trained_covariance(problem, 0.01 * torch.eye(len(z), dtype=z.dtype, device=z.device))
        else:
            s = wasserstein_covariance(problem, tolerance=tolerance, max_iterations=30).whitened_covariance
        s = bounded_by_prior(s)
    r = SparsePosteriorKernel(prior.kernel, z, s)
    return JudgedCovariance(kind, s, torch.cat([kernel_variance(r, rows) for rows in task.x_judge.split(CHUNK_SIZE)]), beta)


def decided_covariance(
    task: Task,
    z: Float[Tensor, "M D"],
    num_means: int,
    choice: CovarianceChoice,
    divergence_weight: float | Literal["auto"],
) -> CovarianceName:
    """What ``"auto"`` is: W₂²'s S, but Titsias' where every row is an inducing point and one mean is all there is.

    S = a⁻² I then takes all values at Z as equally well known, and f between distant rows with them: in the middle of a gap of
    three length-scales intervals of 95 % held 45 % of new targets, with Titsias' S 90 %. Stacked means disagree there, which
    says the same. Rows of unequal weight ask for Titsias' S too: a row that hardly counts must not make f known. Who gives β
    wants W₂²: Titsias' S has none.
    """
    if choice != "auto":
        return choice
    if divergence_weight != "auto":
        return "wasserstein"
    unequal = not bool(torch.isclose(task.weight, task.weight[:1]).all())
    return "titsias" if z is task.x and (num_means == 1 or unequal) else "wasserstein"


def left_out_for(task: Task, prior: PriorFit, z: Float[Tensor, "M D"], kind: CovarianceName) -> tuple[Tensor, Tensor] | None:
    """`left_out_parts` where `judged_covariance` needs them: Z are all rows, folds judge, and S is a multiple of I."""
    needed = task.fold is not None and z is task.x and kind in ("wasserstein", "trained", "zero")
    return left_out_parts(prior, task) if needed else None


@torch.no_grad()
def matching_sums(task: Task, prior: PriorFit, z: Float[Tensor, "M D"]) -> RowSums:
    """Σ φφᵀ over all rows, from a sample of them where they are many: all that β_match needs, whatever the noise.

    With a stream it is the sum over all rows, which Titsias' covariance needs too.
    """
    if task.stream is not None:
        return task.stream.sums(prior.kernel, z, targets=False)
    rows = torch.randperm(len(task.x), generator=torch.Generator().manual_seed(0))[:MATCHING_ROWS].to(task.x.device)
    sums = row_sums(prior.kernel, z, task.x[rows], noise_variance=1 / task.weight[rows])
    return replace(sums, num_rows=task.num_rows, gram=sums.gram * (task.num_rows / len(rows)))


def choose_noise(
    residuals: Float[Tensor, " V"],
    variance: Float[Tensor, " V"],
    features: Float[Tensor, "V F"],
    weight: Float[Tensor, " V"],
    kind: NoiseName,
    disagreement: Float[Tensor, " V"] | None = None,
    degrees: Sequence[float] = NOISE_DEGREES,
) -> NoiseFit:
    """Constant or input-dependent noise, or whichever predicts unseen rows better."""
    return fit_noise(
        residuals,
        variance,
        features,
        disagreement=disagreement,
        penalties=() if kind == "constant" else PENALTIES,
        degrees=degrees,
        allow_constant=kind != "input-dependent",
        sample_weight=weight,
        generator=torch.Generator().manual_seed(0),
    )


def calibrate(
    task: Task,
    prior: PriorFit,
    z: Float[Tensor, "M D"],
    residuals: Float[Tensor, " V"],
    features: Float[Tensor, "V F"],
    weight: Float[Tensor, " V"],
    *,
    covariance: CovarianceName,
    divergence_weight: float | Literal["auto"],
    noise: NoiseName,
    disagreement: Float[Tensor, " V"] | None = None,
    late_variance: Float[Tensor, " n"] | None = None,
) -> tuple[JudgedCovariance, NoiseFit]:
    """S and σ² for one target. Each depends on the other, r through a(x) and σ² through r; twice around is enough.

    `disagreement` is d², the spread of stacked means, at the judging rows. `late_variance` is r at the last of them from before
    they were taken in.
    """
    level = prior.noise_variance
    sums = matching_sums(task, prior, z) if divergence_weight == "auto" else None
    # The first S only serves to find the level of the noise: a rough one and constant noise do.
    rounds: tuple[tuple[float, NoiseName, Sequence[float]], ...] = (
        (ROUGH_TOLERANCE, "constant", (math.inf,)),
        (COVARIANCE_TOLERANCE, noise, NOISE_DEGREES),
    )
    left_out = left_out_for(task, prior, z, covariance)
    for tolerance, kind, degrees in rounds:
        beta = float(divergence_weight) if sums is None else matched_divergence_weight(sums, level)
        judged = judged_covariance(task, prior, z, level, covariance, beta, tolerance, left_out)
        if late_variance is not None:
            seen = len(judged.variance) - len(late_variance)
            judged = replace(judged, variance=torch.cat([judged.variance[:seen], late_variance]))
        fit = choose_noise(residuals, judged.variance, features, weight, kind, disagreement, degrees)
        level = max(float(fit.noise(features).mean()), math.ulp(0.0))
    return judged, fit
