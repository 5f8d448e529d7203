"""The W₂-optimal S among those that leave no more variance than the prior: argmin J(S) over 0 ⪯ S ⪯ I, with a certificate.

Where J is taken on points beyond the data, it hardly feels some directions, and its minimiser over S ⪰ 0 may give them many
times the prior's variance. With a multiplier Λ ⪰ 0 for S ⪯ I, J's linear part tr(G S) becomes tr((G + Λ) S) and everything else
stays, so the step and the bound of `gwi.core.covariance` serve with Y = G + Λ. `docs/method-context.md`, section 10, derives it.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from gwi.core.covariance import CovarianceProblem, CovarianceSolution, covariance_objective, duality_bound
from gwi.core.linalg import cholesky, cholesky_solve, singular_parts, solve_lower
from gwi.core.training import minimize_lbfgs

# Steps of L-BFGS on the multiplier for each step on S: it starts where it was, so a few are enough; where they are not, more and
# more of them up to the second number.
FEWEST_STEPS, MOST_STEPS = 30, 300
# Where the multiplier starts beside what a commuting problem would need, so that no direction is lost to it.
LEAST_START = 1e-3


@torch.no_grad()
def bounded_wasserstein_covariance(
    problem: CovarianceProblem,
    *,
    tolerance: float = 1e-6,
    max_iterations: int = 200,
) -> CovarianceSolution:
    """argmin J(S) over 0 ⪯ S ⪯ I, and an upper bound on how far J(S) is above the least.

    As in `wasserstein_covariance` each step minimises an upper bound of J that touches it, tr(Fᵀ G F) − 2 tr(Cᵀ F), here over
    ‖F‖ ≤ 1. Its dual is smooth and concave (`_multiplier`). S is cut at I, which changes it by what the multiplier is not yet
    exact, and the bound is that of the S that is returned: for any Λ ⪰ 0,

        J(S) − min J ≤ tr(Λ (I − S)) + the bound of `duality_bound` for G + Λ.

    Args:
        problem: J.
        tolerance: of the bound, relative to the sum of J's positive terms.
        max_iterations: of steps.
    """
    accurate = tolerance < 1e-5
    phi, beta, root = problem.features, problem.divergence_weight, problem.gram_factor
    num_inducing, num_points = phi.shape
    eye = torch.eye(num_inducing, dtype=phi.dtype, device=phi.device)
    # The optimum where Z explains every point and S may be anything.
    factor = beta * cholesky_solve(root, phi @ phi.mT / num_points)
    fixed = problem.prior_factor.mT @ problem.residual_factor
    raised, slope = root, None
    objectives: list[float] = []
    lower_bound, scale = -math.inf, 1.0
    best, best_objective = factor, math.inf
    for iteration in range(max_iterations):
        vectors, stretch, _ = torch.linalg.svd(factor)
        factor = vectors * stretch.clamp_max(1.0)
        parts = singular_parts(torch.cat([fixed, problem.prior_factor.mT @ (phi.mT @ factor)], dim=1), accurate)
        objective = float(covariance_objective(problem, factor))
        objectives.append(objective)
        if objective <= best_objective:
            best, best_objective = factor, objective
        # tr(Λ (I − S)).
        slack = 0.0 if slope is None else float((root @ slope).square().sum() - (factor.mT @ root @ slope).square().sum())
        lower_bound = max(lower_bound, objective - slack - duality_bound(problem, factor, parts, accurate, raised))
        scale = objective + 2 * beta * float(parts[1].sum()) / num_points
        if best_objective - lower_bound <= tolerance * scale:
            break
        left, _, right = parts
        target = beta * problem.cross @ (left @ right[:, -num_inducing:])
        free = cholesky_solve(root, target)
        if slope is None and float(torch.linalg.matrix_norm(free, 2)) <= 1:
            factor = free
            continue
        steps = min(FEWEST_STEPS * 2 ** (iteration // 6), MOST_STEPS)
        slope = _multiplier(root, target, _first_slope(free) if slope is None else slope, steps)
        raised = root @ cholesky(eye + slope @ slope.mT, name="I + BBᵀ").factor
        factor = cholesky_solve(raised, target)
    gap = max(best_objective - lower_bound, 0.0) / scale
    return CovarianceSolution(best @ best.mT, best_objective, gap, tuple(objectives), gap <= tolerance, lower_bound)


def _first_slope(free: Float[Tensor, "M M"]) -> Float[Tensor, "M M"]:
    """B from which the search for the multiplier starts: G's own eigenvectors, if it shared them with F, would need s − 1."""
    vectors, stretch, _ = torch.linalg.svd(free)
    return vectors * ((stretch - 1).clamp_min(0) + LEAST_START).sqrt()


def _multiplier(
    root: Float[Tensor, "M M"], target: Float[Tensor, "M M"], start: Float[Tensor, "M M"], max_iterations: int
) -> Float[Tensor, "M M"]:
    """B of the Λ = L_G B Bᵀ L_Gᵀ that maximises −tr(Y⁻¹ C Cᵀ) − tr Λ, Y = G + Λ: the dual of the step over ‖F‖ ≤ 1.

    The gradient in Λ is S − I with S = Y⁻¹ C Cᵀ Y⁻¹, zero where S = I and Λ zero where S ≺ I. In these coordinates Y ⪰ G needs no
    bound, and directions that differ in G by many orders of magnitude have a like curvature.
    """
    whitened, gram = solve_lower(root, target), root.mT @ root
    eye, slope = torch.eye(len(root), dtype=root.dtype, device=root.device), start.clone()
    # L-BFGS stops at gradients below 1e-6: in these units they are nothing.
    scale = 1e-6 * gram.diagonal().sum()

    def value_and_gradient() -> tuple[Tensor, list[Tensor]]:
        factor = cholesky(eye + slope @ slope.mT, name="I + BBᵀ").factor
        solved = cholesky_solve(factor, whitened)
        pushed = gram @ slope
        value = (whitened * solved).sum() + (pushed * slope).sum()
        return value / scale, [2 * (pushed - solved @ (solved.mT @ slope)) / scale]

    minimize_lbfgs(value_and_gradient, [slope], max_iterations=max_iterations, tolerance=1e-14)
    return slope


def bounded_by_prior(whitened_covariance: Float[Tensor, "M M"]) -> Float[Tensor, "M M"]:
    """S with its eigenvalues above one brought down to one, so that r ≤ k everywhere.

    J is minimised on points that stand for all. Where an inducing point has none of them nearby, J hardly feels its direction,
    and the minimiser may give it any variance.
    """
    values, vectors = torch.linalg.eigh(whitened_covariance)
    if values[-1] <= 1:
        return whitened_covariance
    # Beside large eigenvalues, those that are zero come out as rounding errors of either sign.
    return (vectors * values.clamp(0.0, 1.0)) @ vectors.mT
