"""Whitened covariances S of the sparse posterior kernel: W₂-optimal, Titsias', the paper's start; the matched weight β.

For W₂² with a Gaussian likelihood and fixed σ², k and Z, the part of the generalized loss that S enters is

    J(S) = mean_i A_i r(x_i, x_i) + β (mean_i k(x_i, x_i) − 2 tr (C_P^½ C_Q C_P^½)^½),   A_i = β + N / 2σ²(x_i),

convex in S and free of the mean and of y. `docs/method-covariance.md` derives what is used here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from torch import Tensor

from gwi.core.kernels import whitened_features
from gwi.core.linalg import (
    cholesky,
    cholesky_solve,
    nuclear_norm,
    positive_semidefinite_factor,
    singular_parts,
    solve_lower,
    solve_lower_transposed,
)
from gwi.core.measures import kernel_matrix
from gwi.core.row_sums import RowSums, row_sums
from gwi.core.training import LBFGSResult, minimize_lbfgs


def titsias_covariance(sums: RowSums) -> Float[Tensor, "*J M M"]:
    """S = (I + Σ φφᵀ/σ²)⁻¹: the optimum under KL (Titsias 2009), and the exact GP posterior at Z = X.

    Args:
        sums: over all rows, with w = 1/σ²(x).

    Examples:
        >>> import torch
        >>> from gwi.core.kernels import default_kernel
        >>> from gwi.core.covariance import titsias_covariance
        >>> from gwi.core.row_sums import row_sums
        >>> x = torch.linspace(0, 1, 20, dtype=torch.float64)[:, None]
        >>> s = titsias_covariance(row_sums(default_kernel(1), x[::4], x, noise_variance=0.1))
        >>> bool((torch.linalg.eigvalsh(s) < 1).all())  # nowhere wider than the prior
        True
    """
    eye = torch.eye(sums.gram.shape[-1], dtype=sums.gram.dtype, device=sums.gram.device)
    root = solve_lower(titsias_factor(sums), eye.expand(sums.gram.shape))
    return root.mT @ root


def titsias_factor(sums: RowSums) -> Float[Tensor, "*J M M"]:
    """L with L Lᵀ = I + Σ φφᵀ/σ² = S⁻¹: vᵀ S v is ‖L⁻¹ v‖²."""
    eye = torch.eye(sums.gram.shape[-1], dtype=sums.gram.dtype, device=sums.gram.device)
    return cholesky(eye + sums.gram, name="I + ΦWΦᵀ").factor


def paper_initial_covariance(
    prior_kernel: Kernel,
    inducing_points: Float[Tensor, "M D"],
    batch: Float[Tensor, "B D"],
    noise_variance: float,
    num_data: int,
    *,
    jitter: float = 0.0,
) -> Float[Tensor, "*J M M"]:
    """The paper's starting point Σ = (k(Z, Z) + (N/N_B) k(Z, X_B) k(X_B, Z)/σ²)⁻¹, whitened: Titsias' S from one batch.

    Examples:
        >>> import torch
        >>> from gwi.core.kernels import default_kernel
        >>> from gwi.core.covariance import paper_initial_covariance
        >>> x = torch.linspace(0, 1, 20, dtype=torch.float64)[:, None]
        >>> paper_initial_covariance(default_kernel(1), x[::4], x[:10], 0.1, num_data=20).shape
        torch.Size([5, 5])
    """
    scaled_noise = noise_variance * batch.shape[0] / num_data
    return titsias_covariance(row_sums(prior_kernel, inducing_points, batch, noise_variance=scaled_noise, jitter=jitter))


def shrinkage(noise_variance: Float[Tensor, ...] | float, num_data: int, divergence_weight: float) -> Float[Tensor, ...] | float:
    """a(x) = 1 + N / 2βσ²(x): by how much W₂² shrinks the prior; S = a⁻² I is its optimum when Z explains every point."""
    return 1 + num_data / (2 * divergence_weight * noise_variance)


def matched_divergence_weight(unweighted: RowSums, noise_variance: Float[Tensor, ...] | float) -> float:
    """β_match: the β at which W₂²'s a⁻² I has the same mean in-span variance as Titsias' covariance.

    With H = ΦΦᵀ/N: s = tr(S_T H)/tr(H) and β = (N/2σ²) √s/(1 − √s). Noise that depends on x enters through its mean precision,
    both here and in S_T; the covariance itself is then solved with the full σ²(x).

    Args:
        unweighted: sums over all rows with w = 1.
        noise_variance: σ², or σ²(x) at each row.

    Examples:
        >>> import torch
        >>> from gwi.core.kernels import default_kernel
        >>> from gwi.core.covariance import matched_divergence_weight
        >>> from gwi.core.row_sums import row_sums
        >>> x = torch.linspace(0, 1, 20, dtype=torch.float64)[:, None]
        >>> matched_divergence_weight(row_sums(default_kernel(1), x[::4], x), 0.1) > 1  # the paper's weight is 1
        True
    """
    return matched_divergence_weights(unweighted, [noise_variance])[0]


def matched_divergence_weights(unweighted: RowSums, noise_variances: Sequence[Float[Tensor, ...] | float]) -> list[float]:
    """`matched_divergence_weight` of each of several noises, from one spectrum."""
    eigenvalues = torch.linalg.eigvalsh(unweighted.gram.detach()).clamp_min(0)

    def weight(noise_variance: Float[Tensor, ...] | float) -> float:
        precision = float(torch.as_tensor(noise_variance, dtype=torch.float64).reciprocal().mean())
        posterior = (eigenvalues / (1 + precision * eigenvalues)).sum() / eigenvalues.sum()
        # As √s → 1 the data say nothing (σ² ≫ k) and β → ∞; the cap leaves r = k to ten digits.
        root = float(posterior.sqrt().clamp_max(1 - 1e-10))
        return unweighted.num_rows * precision / 2 * root / (1 - root)

    return [weight(noise_variance) for noise_variance in noise_variances]


@dataclass(frozen=True)
class CovarianceProblem:
    """J(S) on n points, in factors, so that r(X, X) is never formed.

    Attributes:
        features: Φ.
        residual_factor: L₀ with L₀ L₀ᵀ = k(X, X) − ΦᵀΦ.
        prior_factor: L_k with L_k L_kᵀ = L₀ L₀ᵀ + ΦᵀΦ to the last bit, so that S = I is Q = P.
        precision: A_i = β + N / 2σ²(x_i).
        divergence_weight: β.
        base: J on the same points with another A and β, which has what depends on neither.
    """

    features: Float[Tensor, "M n"]
    residual_factor: Float[Tensor, "n r"]
    prior_factor: Float[Tensor, "n q"]
    precision: Float[Tensor, " n"]
    divergence_weight: float
    base: CovarianceProblem | None = None

    def weighted(
        self, weights: Float[Tensor, " n"], likelihood: Float[Tensor, " n"], divergence_weight: float
    ) -> CovarianceProblem:
        """J where points that counted alike in W₂² count by weights.

        Args:
            weights: of the points in ρ, with mean one.
            likelihood: N / 2σ²(x_i), which the weights leave as it is; zero at points that are no data.
            divergence_weight: β.
        """
        root = weights.sqrt()
        features, residual = self.features * root, self.residual_factor * root[:, None]
        prior_factor = torch.linalg.qr(torch.cat([residual, features.mT], dim=1).mT, mode="r").R.mT
        return CovarianceProblem(features, residual, prior_factor, divergence_weight + likelihood / weights, divergence_weight)

    @cached_property
    def gram_factor(self) -> Float[Tensor, "M M"]:
        """L_G with L_G L_Gᵀ = G = ΦAΦᵀ/n, the weight of J's linear part tr(G S)."""
        gram = (self.features * self.precision) @ self.features.mT / self.features.shape[1]
        return cholesky(gram, jitter=1e-14, name="ΦAΦᵀ").factor

    @cached_property
    def cross(self) -> Float[Tensor, "M q"]:
        """Φ L_k/n."""
        return self.base.cross if self.base else self.features @ self.prior_factor / self.features.shape[1]

    @cached_property
    def fixed(self) -> Float[Tensor, "q r"]:
        """L_kᵀ L₀."""
        return self.base.fixed if self.base else self.prior_factor.mT @ self.residual_factor

    @cached_property
    def fidelity_at_zero(self) -> float:
        """The nuclear norm of L_kᵀ L₀ over n."""
        return self.base.fidelity_at_zero if self.base else float(nuclear_norm(self.fixed)) / self.features.shape[1]

    def under(self, precision: Float[Tensor, " n"], divergence_weight: float) -> CovarianceProblem:
        """J on the same points with another A and β; what depends on neither is not computed again."""
        return replace(self, precision=precision, divergence_weight=divergence_weight, base=self.base or self)


@torch.no_grad()
def covariance_problem(
    prior_kernel: Kernel,
    inducing_points: Float[Tensor, "M D"],
    points: Float[Tensor, "n D"],
    *,
    noise_variance: Float[Tensor, " n"] | float,
    num_data: int,
    divergence_weight: float,
    jitter: float = 0.0,
) -> CovarianceProblem:
    """Set up J(S) on `points`, which stand for all `num_data` rows.

    Args:
        prior_kernel: k.
        inducing_points: Z.
        points: rows, all of them or a sample much larger than M.
        noise_variance: σ², or σ²(x) at the points.
        num_data: N.
        divergence_weight: β.
        jitter: relative jitter of the first Cholesky attempt on k(Z, Z).

    Examples:
        >>> import torch
        >>> from gwi.core.kernels import default_kernel
        >>> from gwi.core.covariance import covariance_problem, wasserstein_covariance
        >>> x = torch.linspace(0, 1, 20, dtype=torch.float64)[:, None]
        >>> problem = covariance_problem(default_kernel(1), x[::4], x, noise_variance=0.1, num_data=20, divergence_weight=10.0)
        >>> wasserstein_covariance(problem).whitened_covariance.shape
        torch.Size([5, 5])
    """
    l_z = cholesky(kernel_matrix(prior_kernel, inducing_points), jitter=jitter, name="k(Z, Z)").factor
    phi = whitened_features(prior_kernel, inducing_points, l_z, points)
    k_xx = kernel_matrix(prior_kernel, points)
    # Rounding in the subtraction is proportional to k, so eigenvalues below n · eps · k̄ are zero, not information. Where k(Z, Z)
    # is nearly singular, φ has √eps of accuracy left and eigenvalues may come out as much below zero.
    eps, scale = torch.finfo(k_xx.dtype).eps, float(k_xx.diagonal().mean())
    residual = positive_semidefinite_factor(
        k_xx - phi.mT @ phi, tolerance=10 * points.shape[0] * eps * scale, slack=10 * eps**0.5 * scale, name="k(X, X) − ΦᵀΦ"
    )
    residual = residual[:, residual.abs().amax(0) > 0]
    # QR of the stacked factors gives L_k without squaring the condition number, and without a jitter of its own.
    prior_factor = torch.linalg.qr(torch.cat([residual, phi.mT], dim=1).mT, mode="r").R.mT
    noise = torch.as_tensor(noise_variance, dtype=points.dtype, device=points.device).expand(points.shape[0])
    return CovarianceProblem(phi, residual, prior_factor, divergence_weight + num_data / (2 * noise), divergence_weight)


def covariance_objective(problem: CovarianceProblem, factor: Float[Tensor, "M B"]) -> Float[Tensor, ""]:
    """J(F Fᵀ), differentiable in F."""
    in_span = problem.features.mT @ factor
    num_points = problem.features.shape[1]
    variance = problem.residual_factor.square().sum(-1) + in_span.square().sum(-1)
    fidelity = nuclear_norm(problem.prior_factor.mT @ torch.cat([problem.residual_factor, in_span], dim=1)) / num_points
    prior_variance = problem.prior_factor.square().sum() / num_points
    return (problem.precision * variance).mean() + problem.divergence_weight * (prior_variance - 2 * fidelity)


@dataclass(frozen=True)
class CovarianceSolution:
    """The minimiser of J and how well it is known.

    Attributes:
        whitened_covariance: S.
        objective: J(S).
        duality_gap: an upper bound on J(S) − min J, relative to the sum of J's positive terms at S.
        objectives: J at each iteration.
        converged: whether the gap reached the tolerance.
        lower_bound: what no J is below.
    """

    whitened_covariance: Float[Tensor, "M M"]
    objective: float
    duality_gap: float
    objectives: tuple[float, ...]
    converged: bool
    lower_bound: float


@torch.no_grad()
def wasserstein_covariance(
    problem: CovarianceProblem, *, tolerance: float = 1e-6, max_iterations: int = 1000
) -> CovarianceSolution:
    """argmin J(S) over S ⪰ 0 by a fixed point without a step size that decreases J at every step.

    −‖X‖_* ≤ −tr(Wᵀ X) for any W of norm at most one, with equality at the polar factor of X; minimising the right-hand side over
    F is linear least squares. Stops when the duality gap, which bounds the distance to the optimum, is below the tolerance. At
    1e-5 and above singular values come from a squared matrix, in little more than half the time.

    Examples:
        >>> import torch
        >>> from gwi.core.kernels import default_kernel
        >>> from gwi.core.covariance import covariance_problem, wasserstein_covariance
        >>> x = torch.linspace(0, 1, 20, dtype=torch.float64)[:, None]
        >>> problem = covariance_problem(default_kernel(1), x[::4], x, noise_variance=0.1, num_data=20, divergence_weight=10.0)
        >>> solution = wasserstein_covariance(problem)
        >>> solution.duality_gap < 1e-5  # how far from the optimum at most
        True
    """
    accurate, phi, beta = tolerance < 1e-5, problem.features, problem.divergence_weight
    num_inducing, num_points = phi.shape
    gram_factor = problem.gram_factor
    # The optimum when Z explains every point, exact there for any σ²(x): S = F Fᵀ, F = β (ΦAΦᵀ)⁻¹ ΦΦᵀ.
    factor = beta * cholesky_solve(gram_factor, phi @ phi.mT / num_points)
    residual = problem.residual_factor.square().sum(-1)
    linear_at_zero = float((problem.precision * residual).mean())
    prior_variance = float(problem.prior_factor.square().sum()) / num_points

    def at_zero(most: float) -> float:
        """J(0), or what it is not below where that is more than anybody asks for: a nuclear norm is a factorisation."""
        at_least = linear_at_zero + beta * (prior_variance - 2 * math.sqrt(prior_variance * float(residual.mean())))
        if at_least > most:
            return at_least
        return linear_at_zero + beta * (prior_variance - 2 * problem.fidelity_at_zero)

    objectives: list[float] = []
    lower_bound, scale = -math.inf, 1.0
    for _ in range(max_iterations):
        moving = problem.prior_factor.mT @ (phi.mT @ factor)
        left, values, right = parts = singular_parts(torch.cat([problem.fixed, moving], dim=1), accurate)
        linear = linear_at_zero + float((gram_factor.mT @ factor).square().sum())
        objectives.append(linear + beta * (prior_variance - 2 * float(values.sum()) / num_points))
        scale = linear + beta * prior_variance
        lower_bound = max(lower_bound, objectives[-1] - duality_bound(problem, factor, parts, accurate))
        if min(at_zero(objectives[-1] + tolerance * scale), objectives[-1]) - lower_bound <= tolerance * scale:
            break
        factor = beta * cholesky_solve(gram_factor, problem.cross @ (left @ right[:, -num_inducing:]))
    # At small β the optimum is often S = 0, which F only approaches. Where zero is as good, it is the answer.
    zero = at_zero(objectives[-1] + tolerance * scale)
    if zero - lower_bound <= tolerance * scale:
        factor, objectives, scale = torch.zeros_like(factor), [*objectives, zero], linear_at_zero + beta * prior_variance
    gap = max(objectives[-1] - lower_bound, 0.0) / scale
    return CovarianceSolution(factor @ factor.mT, objectives[-1], gap, tuple(objectives), gap <= tolerance, lower_bound)


@torch.no_grad()
def relative_gap(problem: CovarianceProblem, s: Float[Tensor, "M M"], lower_bound: float | None = None) -> float:
    """An upper bound on J(S) − min J, relative to the sum of J's positive terms, of any S.

    Args:
        problem: J.
        s: S, positive semi-definite.
        lower_bound: what no J is below, where a solver has found it; that of S itself otherwise.
    """
    factor = positive_semidefinite_factor(s, name="S")
    phi = problem.features
    value = float(covariance_objective(problem, factor))
    if lower_bound is None:
        blocks = [problem.residual_factor, phi.mT @ factor]
        parts = singular_parts(problem.prior_factor.mT @ torch.cat(blocks, dim=1), accurate=True)
        lower_bound = value - duality_bound(problem, factor, parts, accurate=True)
    variance = problem.residual_factor.square().sum(-1) + (phi.mT @ factor).square().sum(-1)
    prior_variance = float(problem.prior_factor.square().sum()) / phi.shape[1]
    scale = float((problem.precision * variance).mean()) + problem.divergence_weight * prior_variance
    return max(value - lower_bound, 0.0) / scale


def trained_covariance(
    problem: CovarianceProblem, start: Float[Tensor, "M M"], *, max_iterations: int = 500
) -> tuple[Float[Tensor, "M M"], LBFGSResult]:
    """The S that L-BFGS on F finds from a starting S: slower than `wasserstein_covariance`, and a check of it.

    Examples:
        >>> import torch
        >>> from gwi.core.kernels import default_kernel
        >>> from gwi.core.covariance import covariance_problem, trained_covariance, wasserstein_covariance
        >>> x = torch.linspace(0, 1, 20, dtype=torch.float64)[:, None]
        >>> problem = covariance_problem(default_kernel(1), x[::4], x, noise_variance=0.1, num_data=20, divergence_weight=10.0)
        >>> s, _ = trained_covariance(problem, 0.5 * torch.eye(5, dtype=torch.float64))
        >>> torch.allclose(s, wasserstein_covariance(problem).whitened_covariance, atol=1e-2)
        True
    """
    # In the coordinates where J's linear part is ‖E‖², F = L_G⁻ᵀ E, directions of very different weight have the same curvature.
    root = problem.gram_factor
    scaled = (root.mT @ positive_semidefinite_factor(start, name="the starting covariance S")).requires_grad_(True)
    result = minimize_lbfgs(
        lambda: covariance_objective(problem, solve_lower_transposed(root, scaled)),
        [scaled],
        max_iterations=max_iterations,
        tolerance=1e-15,
    )
    factor = solve_lower_transposed(root, scaled.detach())
    return factor @ factor.mT, result


def duality_bound(
    problem: CovarianceProblem,
    factor: Float[Tensor, "M B"],
    parts: tuple[Tensor, Tensor, Tensor],
    accurate: bool,
    gram_factor: Float[Tensor, "M M"] | None = None,
) -> float:
    """An upper bound on J(S) − min J from a feasible point of the dual problem; of J with another G where its factor is given.

    2 tr(C_P^½ C_Q C_P^½)^½ is the minimum over T ≻ 0 of (tr K T⁻¹ + tr R T)/n, so any T with H(T) = (β/n) Φ T Φᵀ ⪯ G bounds
    min J from below. The T of the current S is made feasible by cutting the eigenvalues h of G^-½ H G^-½ at one, which costs
    only what the offending directions are worth. See `docs/method-covariance.md`, (9) and (10).
    """
    (left, values, right), beta = parts, problem.divergence_weight
    gram_factor = problem.gram_factor if gram_factor is None else gram_factor
    floor = torch.finfo(values.dtype).eps * values[0]
    projected = solve_lower(gram_factor, problem.cross @ left)
    root = projected * (beta * problem.features.shape[1] / values.clamp_min(floor)).sqrt()
    vectors, singular, _ = singular_parts(root, accurate)
    h = singular.square()
    coordinates = vectors.mT @ (gram_factor.mT @ factor)
    complementarity = float(((1 - h)[:, None] * coordinates.square()).sum())
    excess = (h - 1).clamp_min(0)
    directions = vectors.mT @ projected
    residual_part = directions @ right[:, : right.shape[1] - factor.shape[1]]
    violation = excess / h.clamp_min(1) * directions.square().sum(-1)
    violation -= excess / h.clamp_min(1).square() * residual_part.square().sum(-1)
    return max(complementarity + beta**2 * float(violation.sum()), 0.0)
