"""The prior: its kernel by name, its hyper-parameters by the evidence, and the inducing points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from gpytorch.kernels import AdditiveKernel, Kernel, MaternKernel, RQKernel
from jaxtyping import Float, Int
from torch import Tensor

from gwi.core.features import NetworkFeatures
from gwi.core.inducing import choose_inducing_points
from gwi.core.kernels import FeatureKernel, default_kernel, linear_kernel, with_lengthscales_times
from gwi.core.means import KernelMean, titsias_coefficients
from gwi.core.prior import PriorFit, Start, fit_prior
from gwi.core.relevance import relevant_columns
from gwi.core.row_sums import row_sums
from gwi.fitting.data import FitData, FitOptions
from gwi.fitting.held_out_covariance import decided_kind
from gwi.fitting.points import explains, given_points, sample_rows
from gwi.parts import Features

# Up to so many rows every row is an inducing point, and the covariance is in closed form.
ALL_ROWS = 2000
# Above it Z has so many points or more, chosen among so many rows.
SPARSE_INDUCING = 300
SPARSE_SAMPLE = 4000
# Hyper-parameters are those of an exact GP on so many rows. With 2,500 rows of pumadyn32nm, parkinsons and sml the collapsed
# bound of 300 points takes most of f for noise: RMSE of 0.97, 0.030, 0.049 of the target's standard deviation against 0.21, 0.006
# and 0.031, in twice the time.
EXACT_SAMPLE = 600
# The way there is found by the evidence of so many of these rows, to this share of it; then so many steps more by all of them.
ROUGH_SAMPLE, ROUGH_TOLERANCE, FINER_STEPS, FINER_STEPS_OF_FOLDS = 300, 1e-4, 100, 20
# So many steps more by so many rows, while each gains: NLL of a GP falls by 0.3 on 3,000 rows of parkinsons. Fits that leave a
# fold out go without: they would cost five times as much.
REFINED_SAMPLE, REFINED_STEPS = 1000, 40
# Above `ALL_ROWS` rows then so many by the collapsed bound of so many rows: twice the rows gain nothing on practice tables.
WIDENED_SAMPLE, WIDENED_STEPS = 2000, 60
# Where Z are given, it is the bound, up to so many of them.
MAX_COLLAPSED = 1000
# The share of the evidence at which its fit stops: hundredths of a nat on thousands of rows, less than any prediction can tell.
# Steps by more rows cost more and stop sooner.
EVIDENCE_TOLERANCE, FINER_TOLERANCE = 1e-5, 3e-5
# With fewer rows for each hyper-parameter, folds are judged by priors that have not seen them. With y = x₁ plus noise of the same
# size, intervals of 95 % held 79 % of new rows with 60 rows and 20 columns, and hold 92 %; with 200 rows 89 % and 94.5 %; with a
# thousand rows and 20 columns 94.9 and 95.3 %: nothing changes but the time.
ROWS_PER_PARAMETER = 40
# Up to so many targets each has its own noise when the prior is fitted: the work grows with their number.
MOST_NOISES = 10
# A length-scale for each column up to so many columns; beyond, one for all.
MOST_LENGTHSCALES = 500
# A table with more columns than this, and more than half as many as rows, is wide: length-scales that the evidence finds for all
# columns follow the noise. With 32 columns and 40 rows of a practice table they still find what a linear search does not.
WIDE_FROM = 50
# Places from which the evidence is climbed. It has several tops where few of many columns count: on pumadyn32nm, 200 rows, the
# first place ends at "all is noise" in three of four draws (RMSE 0.84 of the target's standard deviation on average), the best of
# these by the evidence at 0.34.
STARTS = (Start(0.1, 1.0), Start(0.01, 1.0), Start(0.1, 0.5))
# With fewer columns than this the first is enough. With more rows than this the others are tried only where the first leaves so
# much of the variance to the noise.
MANY_COLUMNS, CHEAP_ROWS, DOUBTFUL_NOISE = 8, 300, 0.1
# Nats by which tops of the evidence differ that are not one and the same.
SAME_TOP = 0.5
# Above `ALL_ROWS` rows Z are the centres of the kernel mean's basis unless fewer explain so many rows: else r says less than the
# mean knows. On parkinsons with 2,500 rows, errors of 0.007 had a spread of 0.05.
EXPLAINED_ROWS = 1000
# Centres of a kernel mean beyond `ALL_ROWS` rows: more than the covariance's Z, because a mean costs less a point; but no more
# than make M² N this number.
MEAN_BASIS, MEAN_OPERATIONS = 1000, 7e10


# Kernels by name, as `default_kernel` takes them.
NAMED_KERNELS: dict[str, dict[str, Any]] = {
    "auto": {},
    "rbf": {},
    "matern32": {"shape": MaternKernel, "nu": 1.5},
    "matern52": {"shape": MaternKernel, "nu": 2.5},
    "rq": {"shape": RQKernel},
}


@dataclass(frozen=True)
class PriorChoice:
    """The prior, and the points that go with it.

    Attributes:
        kernel: k before it was fitted.
        fit: k fitted to the targets.
        inducing_points: Z of the covariance.
        basis: centres of a kernel mean's basis functions.
        of_bound: k and Z by which the covariance may do better: those of the collapsed bound, where the mean has another k.
        stands_for_rows: whether Z are few in the place of all rows, of which they leave nothing open that noise does not hide.
    """

    kernel: Kernel
    fit: PriorFit
    inducing_points: Float[Tensor, "M D"]
    basis: Float[Tensor, "B D"]
    of_bound: PriorChoice | None = None
    stands_for_rows: bool = False


def of_network(kernel: Any) -> bool:
    """Whether a kernel is on features of the network that is the mean; features of any other map are those of rows."""
    return isinstance(kernel, Features) or (isinstance(kernel, FeatureKernel) and isinstance(kernel.feature_map, NetworkFeatures))


def row_kernel(kernel: Any, num_features: int, num_rows: int | None = None) -> tuple[Kernel, str]:
    """A kernel on standardised rows by name, or the one given, in float64; and a note where many columns share a length-scale."""
    if of_network(kernel) or (isinstance(kernel, str) and kernel == "features"):
        raise ValueError('A kernel on features needs a network: mean=module, taken as it is; or use kernel="rbf".')
    if isinstance(kernel, Kernel):
        return kernel.double(), ""
    if not isinstance(kernel, str) or kernel not in NAMED_KERNELS:
        raise ValueError(f'kernel must be "rbf", "matern32", "matern52", "rq" or a GPyTorch kernel; got {kernel!r}.')
    if num_rows is not None and is_wide(num_rows, num_features):
        note = (
            f"{num_features} columns for {num_rows} rows: the kernel uses the few that predict the target, and all with one scale"
        )
        return default_kernel(num_features, ard=False, **NAMED_KERNELS[kernel]), note
    ard = num_features <= MOST_LENGTHSCALES
    note = "" if ard else f"{num_features} columns share one length-scale"
    return default_kernel(num_features, ard=ard, **NAMED_KERNELS[kernel]), note


def is_wide(num_rows: int, num_features: int) -> bool:
    """Whether columns are so many that most of them must be left aside before anything is learned from the others."""
    return num_features > max(WIDE_FROM, num_rows / 2)


def wide_prior(
    name: str,
    x: Float[Tensor, "N D"],
    y: Float[Tensor, "J N"],
    weight: Float[Tensor, " N"],
    generator: torch.Generator,
    *,
    noise_of_each: bool = False,
) -> PriorFit:
    """For a wide table: parts for the few columns that predict y linearly, smooth and linear, plus one that sees all alike."""
    rows = sample_rows(x, SPARSE_SAMPLE, generator)
    columns = relevant_columns(x[rows], y[:, rows], weight[rows])
    some = rows[:EXACT_SAMPLE]
    # One length-scale sees distances only, and N rows have the same ones in N columns: their triangular factor.
    seen = torch.cat([x[some][:, columns], torch.linalg.qr(x[some].mT)[1].mT], 1)
    parts: list[Kernel] = [default_kernel(x.shape[1], ard=False, **NAMED_KERNELS[name])]
    if columns:
        parts += [default_kernel(len(columns), **NAMED_KERNELS[name]), linear_kernel()]
    places = torch.arange(seen.shape[1])
    for part, place in zip(parts, (places[len(columns) :], places[: len(columns)], places[: len(columns)]), strict=False):
        part.active_dims = place
    kernel = AdditiveKernel(*parts).to(x.device)
    prior = prior_for(kernel, seen, y[:, some], weight[some], seen, generator, noise_of_each=noise_of_each)
    first, *others = prior.kernel.kernels
    first.active_dims = None
    for part in others:
        part.active_dims = torch.tensor(columns, device=x.device)
    return prior


def choose_prior(
    data: FitData,
    kernel: Kernel,
    options: FitOptions,
    *,
    judges_kernel_means: bool,
    most_inducing: float = math.inf,
    num_free: int | None = None,
) -> PriorChoice:
    """Hyper-parameters from a sample of rows; Z: every row when they are few, else chosen or given; and a kernel mean's basis.

    Args:
        data: rows, and targets that speak for the kernel.
        kernel: k to start from.
        options: of the fit.
        judges_kernel_means: with few rows, give each fold a fit that has not seen it: with many columns the hyper-parameters
            alone know enough of the targets to make a kernel mean look better than it is.
        most_inducing: with more rows than this Z are not all of them, unless their number is asked for.
        num_free: how many targets are independent of each other, where all share one noise; None: all, each with its own.
    """
    x, generator = data.x, data.generator
    asked = options.covariance.num_inducing
    given = given_points(options.covariance.inducing_points, data)
    most_points = max(SPARSE_INDUCING, min(ALL_ROWS, most_inducing, options.effort.all_rows))
    if isinstance(given, Tensor):
        z = given
    elif not data.is_sample and len(x) <= (most_points if asked == "auto" else asked):
        z = x
    else:
        rows = sample_rows(x, SPARSE_SAMPLE, generator)
        count = min(SPARSE_INDUCING if asked == "auto" else asked, len(rows))
        z = choose_inducing_points(x[rows], count, given, kernel=kernel, generator=generator)
    of_each = num_free is None and not data.is_sample and 1 < len(data.y) <= MOST_NOISES
    unit = data.held_out.unit if data.held_out.fold is not None and data.held_out.folds is None else None
    wide = isinstance(options.kernel, str) and is_wide(data.num_rows, x.shape[1])
    # Who asks for few inducing points gets the prior, and the noise, that suit them.
    by_rows = asked == "auto" and isinstance(given, str)
    bound: PriorFit | None = None
    if wide:
        prior = wide_prior(options.kernel, x, data.y, data.weight, generator, noise_of_each=of_each)
        kernel = prior.kernel
    else:
        # Only for numbers: indicators of classes have not been looked at.
        starts = STARTS if num_free is None and x.shape[1] >= MANY_COLUMNS else STARTS[:1]
        points = None if by_rows else z
        # More rows than these gain nothing for labels: no more than these are looked at, and fewer lead the way.
        some = sample_rows(x, EXACT_SAMPLE, generator) if by_rows and num_free is not None else slice(None)
        parts = x[some], data.y[:, some], data.weight[some], points
        units = None if unit is None else unit[some]
        prior = prior_for(kernel, *parts, generator, unit=units, noise_of_each=of_each, starts=starts)
        if by_rows and num_free is None and unit is None and len(x) > EXACT_SAMPLE and options.effort.finer_prior:
            prior = refined(prior, x, data.y, data.weight, generator, noise_of_each=of_each)
            if z is not x:
                prior, bound = widened(prior, x, data.y, data.weight, z, generator, noise_of_each=of_each)
    num_parameters = 1 + sum(p.numel() for p in kernel.parameters())
    few = len(x) <= ALL_ROWS and len(x) * (len(data.y) if num_free is None else num_free) <= ROWS_PER_PARAMETER * num_parameters
    without = []
    few = few and options.effort.finer_prior
    for k, (_, others) in enumerate(data.held_out.splits() if judges_kernel_means and (few or wide) else ()):
        seen, own = (x[others], data.y[:, others], data.weight[others]), torch.Generator().manual_seed(k)
        if wide:
            without.append(wide_prior(options.kernel, *seen, own, noise_of_each=of_each))
        else:
            units = None if unit is None else unit[others]
            points = None if by_rows or z is x else z
            # Where the usual start is not the best, a fold has to look for itself, too.
            starts = STARTS[:1] if prior.start == STARTS[0] else STARTS
            without.append(
                prior_for(
                    kernel, *seen, points, own, unit=units, noise_of_each=of_each, starts=starts, finer_steps=FINER_STEPS_OF_FOLDS
                )
            )
    prior = replace(prior, without_folds=tuple(without))
    if isinstance(given, str) and asked == "auto" and num_free is not None and len(x) > SPARSE_INDUCING:
        # Labels are noisy: a few points often tell all that there is to know of them.
        points = choose_inducing_points(x, SPARSE_INDUCING, given, kernel=prior.kernel, generator=generator) if z is x else z
        if explains(prior, points, x[sample_rows(x, EXPLAINED_ROWS, generator)]):
            return PriorChoice(kernel, prior, points, points, stands_for_rows=z is x)
    if asked != "auto" or z is x:
        return PriorChoice(kernel, prior, z, z)
    affordable = max(len(z), int((MEAN_OPERATIONS / data.num_rows) ** 0.5))
    count = int(min(MEAN_BASIS, options.effort.mean_basis, affordable) * min(1.0, most_inducing / ALL_ROWS))
    basis = x[sample_rows(x, count, generator)]
    # W₂²'s S has no closed form there, and takes half a minute with a thousand points.
    kind = decided_kind(options.covariance, "titsias", all_rows=False)
    if num_free is not None or not by_rows or options.context is not None or kind != "titsias":
        return PriorChoice(kernel, prior, z, basis)
    some = x[sample_rows(x, EXPLAINED_ROWS, generator)]

    def with_points(fit: PriorFit) -> PriorChoice:
        return PriorChoice(kernel, fit, z if explains(fit, z, some) else basis, basis)

    return replace(with_points(prior), of_bound=None if bound is None else with_points(bound))


def prior_for(
    kernel: Kernel,
    x: Float[Tensor, "N D"],
    y: Float[Tensor, "J N"],
    weight: Float[Tensor, " N"],
    z: Float[Tensor, "M D"] | None,
    generator: torch.Generator,
    *,
    unit: Int[Tensor, " N"] | None = None,
    noise_of_each: bool = False,
    starts: Sequence[Start] = STARTS[:1],
    finer_steps: int = FINER_STEPS,
) -> PriorFit:
    """Hyper-parameters by the evidence of y: an exact GP's on a sample without Z or when it is many, else the collapsed bound.

    Where rows of a unit, such as a group, have errors in common, it is an exact GP's. Of several starts the first counts unless
    another leads to a higher top; with the bound, which costs more, there is one.
    """
    exact = z is None or len(z) >= len(x) or len(z) > MAX_COLLAPSED or unit is not None
    rows = sample_rows(x, EXACT_SAMPLE if exact else WIDENED_SAMPLE, generator)

    climb = partial(
        fit_prior,
        objective="marginal" if exact else "collapsed",
        inducing_points=None if exact else z,
        noise_of_each=noise_of_each,
    )
    # Rows of a unit belong together; and what follows with many rows needs a good place to start from.
    in_two = exact and unit is None and len(rows) > ROUGH_SAMPLE and len(x) <= ALL_ROWS
    some, tolerance = (rows[:ROUGH_SAMPLE], ROUGH_TOLERANCE) if in_two else (rows, EVIDENCE_TOLERANCE)
    best: PriorFit | None = None
    for start in starts:
        factor = start.lengthscale_factor
        there = kernel if factor == 1 else with_lengthscales_times(kernel, factor)
        fit = climb(
            there,
            x[some],
            y[:, some],
            noise_variance=start.noise_variance,
            sample_weight=weight[some],
            unit=None if unit is None else unit[some],
            max_iterations=100 if exact else 60,
            tolerance=tolerance,
        )
        if best is None or fit.log_evidence > best.log_evidence + SAME_TOP:
            best = replace(fit, start=start)
        if not exact or (len(x) > CHEAP_ROWS and best.noise_variance < DOUBTFUL_NOISE):
            break
    assert best is not None
    if in_two:
        finer = climb(
            best.kernel,
            x[rows],
            y[:, rows],
            noise_variance=best.noise_variance,
            sample_weight=weight[rows],
            max_iterations=finer_steps,
            tolerance=FINER_TOLERANCE,
        )
        best = replace(finer, start=best.start)
    return best


def refined(
    prior: PriorFit,
    x: Float[Tensor, "N D"],
    y: Float[Tensor, "J N"],
    weight: Float[Tensor, " N"],
    generator: torch.Generator,
    *,
    noise_of_each: bool = False,
) -> PriorFit:
    """Some steps more, by the evidence of more rows."""
    rows = sample_rows(x, REFINED_SAMPLE, generator)
    more = fit_prior(
        prior.kernel,
        x[rows],
        y[:, rows],
        objective="marginal",
        noise_variance=prior.noise_variance,
        sample_weight=weight[rows],
        noise_of_each=noise_of_each,
        max_iterations=REFINED_STEPS,
        tolerance=FINER_TOLERANCE,
    )
    return replace(more, start=prior.start)


def widened(
    prior: PriorFit,
    x: Float[Tensor, "N D"],
    y: Float[Tensor, "J N"],
    weight: Float[Tensor, " N"],
    z: Float[Tensor, "M D"],
    generator: torch.Generator,
    *,
    noise_of_each: bool = False,
) -> tuple[PriorFit, PriorFit | None]:
    """What the collapsed bound of many more rows makes of a prior, where its kernel mean then predicts other rows better.

    With few points the bound takes what they cannot follow for noise; where they can, more rows know more. Where the prior stays
    as it is, what the bound makes of it comes second.
    """
    rows = sample_rows(x, WIDENED_SAMPLE, generator)
    some, targets, counts = x[rows], y[:, rows], weight[rows]
    more = fit_prior(
        prior.kernel,
        some,
        targets,
        inducing_points=z,
        noise_variance=prior.noise_variance,
        sample_weight=counts,
        noise_of_each=noise_of_each,
        max_iterations=WIDENED_STEPS,
        tolerance=FINER_TOLERANCE,
    )
    learn, judge = slice(0, 3 * len(some) // 4), slice(3 * len(some) // 4, None)

    @torch.no_grad()
    def error(fit: PriorFit) -> float:
        noise = fit.noise_variance if fit.noise_variances is None else fit.noise_variances[:, None]
        noise = (noise / counts)[..., learn]
        points = some[learn][:MEAN_BASIS]
        sums = row_sums(fit.kernel, points, some[learn], targets[:, learn], noise_variance=noise)
        predicted = KernelMean(fit.kernel, points, titsias_coefficients(sums))(some[judge])
        return float(((targets[:, judge] - predicted).square() * counts[judge]).sum())

    more = replace(more, start=prior.start)
    return (more, None) if error(more) < error(prior) else (prior, more)
