"""S for all rows, and r at the held-out rows as it would be at new ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Float
from scipy.optimize import brentq
from torch import Tensor

from gwi.core.bounded_covariance import bounded_by_prior
from gwi.core.context import context_covariance, context_rows, noise_sized_points
from gwi.core.covariance import (
    CovarianceProblem,
    covariance_objective,
    covariance_problem,
    matched_divergence_weights,
    relative_gap,
    shrinkage,
    titsias_covariance,
    titsias_factor,
    trained_covariance,
    wasserstein_covariance,
)
from gwi.core.kernels import SparsePosteriorKernel, residual_variance, whitened_features
from gwi.core.linalg import cholesky, positive_semidefinite_factor, solve_lower
from gwi.core.measures import kernel_matrix
from gwi.core.prior import PriorFit
from gwi.core.row_sums import RowSums
from gwi.fitting.data import CHUNK_SIZE, FitData, FitOptions, variance_at
from gwi.parts import Covariance, DivergenceKind

CovarianceName = Literal["wasserstein", "titsias", "trained", "zero"]

# Duality gap of the S that is kept where β is asked for. Where β is matched, the level of r is tempered after it: on a practice
# table a gap of 2e-3 moves r by two percent, at single rows by nine, and half of its iterations are saved.
COVARIANCE_TOLERANCE, ROUGH_TOLERANCE = 1e-4, 2e-3
# With context Z are at most so many rows, because S is solved for several times; they and the context stand for all points in ρ.
CONTEXT_INDUCING, CONTEXT_ROWS = 150, 100
# Rows among which Z are looked for then.
CONTEXT_SAMPLE = 4000


def said_of_gap(covariances: Sequence[HeldOutCovariance]) -> str:
    """What a reader should know of an S that is not the optimum; nothing where it is."""
    gap = max(part.duality_gap for part in covariances)
    if gap <= ROUGH_TOLERANCE:
        return ""
    return (
        f"the solver of the covariance stopped early, or the covariance was cut at the prior (duality gap {gap:.1e}, "
        f'wanted {ROUGH_TOLERANCE:.0e}); covariance="titsias" needs no solver'
    )


@dataclass(frozen=True)
class HeldOutCovariance:
    """S, and the variance it gives at the held-out rows.

    Attributes:
        kind: which S.
        whitened_covariance: S.
        variance: r at the held-out rows as it would be at new rows.
        prior_variance: k at the held-out rows.
        divergence_weight: β; zero where S has none.
        duality_gap: how far J(S) may be above its least value, as a share of J's positive terms; zero for closed forms.
        context_share: of the weight in W₂ that is on rows beyond the data.
    """

    kind: CovarianceName
    whitened_covariance: Float[Tensor, "M M"]
    variance: Float[Tensor, " V"]
    prior_variance: Float[Tensor, " V"]
    divergence_weight: float
    duality_gap: float = 0.0
    context_share: float = 0.0


def said_of_context(covariances: Sequence[HeldOutCovariance]) -> str:
    """What a reader should know of W₂ beyond the data; nothing where it is on the data alone."""
    share = max(part.context_share for part in covariances)
    return f"points beyond the data have {share:.1%} of the weight in the Wasserstein distance W₂" if share else ""


@torch.no_grad()
def with_context(
    data: FitData, prior: PriorFit, z: Float[Tensor, "M D"], options: FitOptions
) -> tuple[Float[Tensor, "L D"], Float[Tensor, "C D"] | None]:
    """Z and the context rows of W₂: rows that explain the data, unless Z were asked for; None without."""
    asked = options.context
    if asked is None:
        return z, None
    generator = torch.Generator().manual_seed(0)
    if options.covariance.num_inducing == "auto" and isinstance(options.covariance.inducing_points, str):
        some = data.x[torch.randperm(len(data.x), generator=generator)[:CONTEXT_SAMPLE].to(data.x.device)]
        z = noise_sized_points(prior.kernel, some, prior.noise_variance, data.num_rows, CONTEXT_INDUCING)
    count = max(CONTEXT_ROWS, len(z))
    if isinstance(asked, str):
        return z, context_rows(asked, data.x, count, generator)
    rows = data.scales.rows(asked, data.x.device)
    return z, rows[torch.randperm(len(rows), generator=generator)[:count].to(rows.device)]


class CovarianceSolver:
    """Covariances of one prior and one Z for any level of noise; what all levels share is computed once.

    Args:
        data: rows.
        prior: k.
        z: Z.
        covariance: what is asked for.
        context: rows beyond the data on which W₂ is taken too.
        sparse: what ``"auto"`` is where Z are not all rows.
        divergence: that the covariance minimises the loss with.
        distance: ‖m_Q − m_P‖² at the data, which W₂ unsquared weighs S by.
    """

    def __init__(
        self,
        data: FitData,
        prior: PriorFit,
        z: Float[Tensor, "M D"],
        covariance: Covariance,
        context: Float[Tensor, "C D"] | None = None,
        sparse: CovarianceName = "titsias",
        divergence: DivergenceKind = "wasserstein-squared",
        distance: float = 0.0,
    ):
        self.divergence, self.distance = divergence, distance
        # What a reader should know of the divergence.
        self.said = ""
        self.data, self.prior, self.z, self.context = data, prior, z, context
        self.kind = "wasserstein" if context is not None else decided_kind(covariance, sparse, all_rows=z is data.x)
        self.weight = covariance.weight
        self._gram = data.gram(prior.kernel, z) if self.weight == "auto" and self.kind != "titsias" else None
        # Where Z are all rows, a row's own inducing point would explain it away; r is then taken fold by fold.
        fold_by_fold = self._leaves_rows_out and self.kind != "titsias"
        self._left_out = left_out_parts(data, prior) if fold_by_fold else None
        # With σ² = 1; those of any other level follow from them.
        self._sums: tuple[RowSums, list[RowSums]] | None = None
        self._prior_variance = variance_at(prior.kernel, data.held_out.x)

    @property
    def _fixed_weight(self) -> float:
        """β as it was given; Titsias' S has none, but where KL was asked for with one."""
        return 0.0 if self.weight == "auto" or self._ignores_weight else float(self.weight)

    def rough_variance(self, noise_variance: float) -> Float[Tensor, " V"]:
        """r at the held-out rows, near enough to find the level of the noise by."""
        if self.kind == "titsias" and self._leaves_rows_out:
            return left_out_parts(self.data, self.prior, noise_variance)[0]
        if self.context is not None:
            # To which W₂'s is matched.
            return self._titsias(noise_variance)[1]
        return self.solve([noise_variance], ROUGH_TOLERANCE)[0].variance

    @property
    def _leaves_rows_out(self) -> bool:
        """Whether Z are all rows, and each is judged by a Z without it."""
        return self.z is self.data.x and self.data.held_out.fold is not None

    def solve(self, noise_variances: Sequence[float], tolerance: float | None = None) -> list[HeldOutCovariance]:
        """S for each level of noise, equal ones once."""
        if tolerance is None:
            tolerance = ROUGH_TOLERANCE if self.weight == "auto" else COVARIANCE_TOLERANCE
        levels = list(dict.fromkeys(noise_variances))
        betas = [self._fixed_weight] * len(levels) if self._gram is None else matched_divergence_weights(self._gram, levels)
        solved = {}
        for level, beta in zip(levels, betas, strict=True):
            if self.context is not None:
                solved[level] = self._with_context(level, self.context, tolerance)
                continue
            if self.divergence == "wasserstein" and self.weight != "auto":
                beta = self._squared_weight(level, beta)
                self.said = (
                    f"the optimum for W₂ with weight {self._fixed_weight:.3g} is the optimum for W₂² with weight {beta:.3g}"
                )
            if self.kind == "titsias":
                optimum = (*self._titsias(level * (beta or 1.0)), 0.0)
            else:
                optimum = self._optimal(level, beta, tolerance)
            s, variance, gap = optimum
            solved[level] = HeldOutCovariance(self.kind, s, variance, self._prior_variance, beta, gap)
        return [solved[level] for level in noise_variances]

    @property
    def _ignores_weight(self) -> bool:
        return self.kind == "titsias" and self.divergence != "kl"

    @torch.no_grad()
    def _squared_weight(self, noise_variance: float, beta: float) -> float:
        """b at which W₂² has the minimiser of β W₂: there 2 b W₂(Q_b, P) = β, because the gradient of β W₂ is β ∇W₂²/2W₂.

        W₂ is at least the distance of the means and at most that and all of k, which bounds b from both sides.
        """
        x, z = self.data.x, self.z
        level = float(variance_at(self.prior.kernel, x[:1000]).mean())
        problem = None if z is x else self._problem(noise_variance, 1.0)

        def distance(log_b: float) -> float:
            b = math.exp(log_b)
            if problem is None:
                spread = level * (1 - 1 / float(shrinkage(noise_variance, self.data.num_rows, b))) ** 2
            else:
                part = problem.under(problem.precision - 1.0 + b, b)
                s = wasserstein_covariance(part, tolerance=ROUGH_TOLERANCE, max_iterations=30).whitened_covariance
                likelihood = part.precision - b
                factor = positive_semidefinite_factor(s, name="S")
                in_span = (part.features.mT @ factor).square().sum(-1)
                variance = part.residual_factor.square().sum(-1) + in_span
                spread = (float(covariance_objective(part, factor)) - float((likelihood * variance).mean())) / b
            return log_b + math.log(2) + math.log(max(self.distance + spread, 1e-30)) / 2 - math.log(beta)

        lowest = math.log(beta / 2) - math.log(self.distance + level) / 2
        highest = math.log(beta / 2) - math.log(max(self.distance, 1e-6 * level)) / 2
        if distance(highest) <= 0:
            return math.exp(highest)
        return math.exp(brentq(distance, lowest - 1e-6, highest, xtol=1e-3))

    @torch.no_grad()
    def _optimal(self, noise_variance: float, beta: float, tolerance: float) -> tuple[Tensor, Tensor, float]:
        """S that minimises the generalized loss, or zero, r at the held-out rows, and the duality gap."""
        x, z, kind, gap = self.data.x, self.z, self.kind, 0.0
        if z is x or kind == "zero":
            # Where Z explains every row, S = a⁻² I is the optimum in closed form.
            share = 0.0 if kind == "zero" else float(shrinkage(noise_variance, self.data.num_rows, beta)) ** -2
            s = share * torch.eye(len(z), dtype=x.dtype, device=x.device)
            if self._left_out is not None:
                residual, explained = self._left_out
                return s, residual + share * explained, gap
        else:
            s, gap = self._solved(noise_variance, beta, tolerance)
        return s, variance_at(self._posterior(s), self.data.held_out.x), gap

    @torch.no_grad()
    def _with_context(self, noise_variance: float, context: Tensor, tolerance: float) -> HeldOutCovariance:
        """W₂'s S on data and context. r at held-out rows is as much wider or narrower than Titsias' as at rows that Z know."""
        data, z = self.data, self.z
        titsias, variance = self._titsias(noise_variance)
        rows = torch.randperm(len(data.x), generator=torch.Generator().manual_seed(0))[: max(2 * len(z), 2 * CONTEXT_ROWS)]
        rows = rows.to(data.x.device)
        solution = context_covariance(
            self.prior.kernel,
            z,
            data.x[rows],
            context,
            titsias,
            noise_variance=noise_variance / data.weight[rows],
            num_data=data.num_rows,
            tolerance=tolerance,
        )
        s = solution.whitened_covariance
        own, others = (variance_at(self._posterior(part), data.held_out.x) for part in (s, titsias))
        variance = variance * own / others.clamp_min(torch.finfo(others.dtype).tiny)
        beta, gap, share = solution.divergence_weight, solution.duality_gap, solution.context_share
        return HeldOutCovariance(self.kind, s, variance, self._prior_variance, beta, gap, share)

    def _posterior(self, s: Tensor) -> SparsePosteriorKernel:
        return SparsePosteriorKernel(self.prior.kernel, self.z, s)

    @torch.no_grad()
    def _titsias(self, noise_variance: float) -> tuple[Tensor, Tensor]:
        """Titsias' S, and r at the held-out rows."""
        data, held_out = self.data, self.data.held_out
        exact = self._leaves_rows_out
        if self._sums is None:
            self._sums = data.sums(self.prior.kernel, self.z, 1.0, folds=not exact)
        whole, without = self._sums[0].weighted(noise_variance), [part.weighted(noise_variance) for part in self._sums[1]]
        s = titsias_covariance(whole)
        if exact:
            return s, left_out_parts(data, self.prior, noise_variance)[0]
        if held_out.fold is None:
            return s, self._left_by(whole, held_out.x)
        variance = torch.empty_like(held_out.y[0])
        for (inside, _), sums in zip(held_out.splits(), without, strict=True):
            variance[inside] = self._left_by(sums, held_out.x[inside])
        return s, variance

    def _left_by(self, sums: RowSums, x: Float[Tensor, "V D"]) -> Float[Tensor, " V"]:
        """r of Titsias' S at these rows, S = (I + Σ φφᵀ/σ²)⁻¹ as the factor that it comes with."""
        factor = titsias_factor(sums)
        parts = []
        for some in x.split(CHUNK_SIZE):
            phi = whitened_features(self.prior.kernel, self.z, sums.inducing_factor, some)
            left = residual_variance(self.prior.kernel, some, phi)
            parts.append(left + solve_lower(factor, phi).square().sum(0))
        return torch.cat(parts)

    def _problem(self, noise_variance: float, beta: float) -> CovarianceProblem:
        precision = beta + self.data.num_rows * self.data.weight[self._rows_of_points] / (2 * noise_variance)
        return self._at_points.under(precision, beta)

    @cached_property
    def _rows_of_points(self) -> Tensor:
        """Rows that stand for all in W₂."""
        count, device = 2 * len(self.z), self.data.x.device
        return torch.randperm(len(self.data.x), generator=torch.Generator().manual_seed(0))[:count].to(device)

    @cached_property
    def _at_points(self) -> CovarianceProblem:
        """J on these rows, with any noise and any β."""
        x = self.data.x[self._rows_of_points]
        return covariance_problem(
            self.prior.kernel, self.z, x, noise_variance=1.0, num_data=self.data.num_rows, divergence_weight=1.0
        )

    def _solved(self, noise_variance: float, beta: float, tolerance: float) -> tuple[Float[Tensor, "M M"], float]:
        z, problem = self.z, self._problem(noise_variance, beta)
        if self.kind == "trained":
            with torch.enable_grad():
                s, _ = trained_covariance(problem, 0.01 * torch.eye(len(z), dtype=z.dtype, device=z.device))
            bounded = bounded_by_prior(s)
            return bounded, relative_gap(problem, bounded)
        solution = wasserstein_covariance(problem, tolerance=tolerance, max_iterations=30)
        s = bounded_by_prior(solution.whitened_covariance)
        changed = s is not solution.whitened_covariance
        return s, relative_gap(problem, s, solution.lower_bound) if changed else solution.duality_gap


def decided_kind(covariance: Covariance, sparse: CovarianceName, *, all_rows: bool) -> CovarianceName:
    """What ``"auto"`` is: Titsias' S, which is W₂²'s with a weight of its own for each direction; W₂²'s where β is given.

    With one β, W₂² on the data takes all values at Z as equally well known, and f between distant rows with them: in a gap it is
    far too sure, with one mean or several (`benchmarks/studies/gap_covariance.py`). Titsias' S also knows rows that hardly
    count.

    Args:
        covariance: what is asked for.
        sparse: the task's own, where Z are not all rows.
        all_rows: whether they are.
    """
    if covariance.kind != "auto":
        return covariance.kind
    if covariance.weight != "auto":
        return "wasserstein"
    return "titsias" if all_rows else sparse


@torch.no_grad()
def variance_before_noise(data: FitData, prior: PriorFit, z: Float[Tensor, "M D"]) -> Float[Tensor, " V"]:
    """What f may still do at the held-out rows, without a look at all rows: the exact GP's r where Z are all rows, else R₀."""
    if z is data.x and data.held_out.fold is not None:
        return left_out_parts(data, prior, prior.noise_variance)[0]
    return unexplained_variance(prior, z, data.held_out.x)


@torch.no_grad()
def unexplained_variance(prior: PriorFit, z: Float[Tensor, "M D"], x: Float[Tensor, "N D"]) -> Float[Tensor, " N"]:
    """R₀ = k − φᵀφ at each row: what Z cannot express, the variance that S = 0 leaves."""
    nothing = torch.zeros(len(z), len(z), dtype=z.dtype, device=z.device)
    return variance_at(SparsePosteriorKernel(prior.kernel, z, nothing), x)


@torch.no_grad()
def left_out_parts(
    data: FitData, prior: PriorFit, noise_variance: float = 0.0
) -> tuple[Float[Tensor, " V"], Float[Tensor, " V"]]:
    """k − φᵀφ and φᵀφ at each held-out row with Z = the rows its fold has seen, where Z will be all rows: as at a new row.

    With noise at Z the first is r of the exact GP posterior given those rows.
    """
    x, y = data.held_out.x, data.held_out.y[0]
    residual, explained = torch.empty_like(y), torch.empty_like(y)
    name = "k(X, X) + σ²" if noise_variance else "k(Z, Z)"
    for inside, seen in data.held_out.splits():
        z = data.x[seen]
        noisy = kernel_matrix(prior.kernel, z) + torch.diag(noise_variance / data.weight[seen])
        phi = whitened_features(prior.kernel, z, cholesky(noisy, name=name).factor, x[inside])
        residual[inside] = residual_variance(prior.kernel, x[inside], phi)
        explained[inside] = phi.square().sum(0)
    return residual, explained
