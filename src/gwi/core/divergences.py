"""Divergences between Gaussian measures: W₂² exact for the points, W₂² as the paper estimates it, closed form; KL and Rényi's.

KL and Rényi's divergence are infinite for almost every pair of Gaussian measures of functions. Their regularised forms are
finite for all: they compare the two with white noise of variance γ added, on the points.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from gwi.core.kernels import SparsePosteriorKernel
from gwi.core.linalg import (
    bures_fidelity,
    cholesky,
    log_determinant,
    positive_semidefinite_factor,
    safe_sqrt,
    solve_lower,
    two_sample_fidelity,
)
from gwi.core.means import KernelMean
from gwi.core.measures import GaussianMeasure, kernel_matrix, kernel_variance

Divergence = Callable[[GaussianMeasure, GaussianMeasure, Tensor], Tensor]


def wasserstein_squared(p: GaussianMeasure, q: GaussianMeasure, points: Float[Tensor, "S D"]) -> Float[Tensor, " J"]:
    """W₂²(P, Q) for ρ the empirical measure of `points` [eq:WD_Gaussians], one value an output.

    Exact for that measure, at least zero, and zero at Q = P. As an estimate for a continuous ρ it approaches the true value
    as points are added: see `docs/method-context.md`.

    Examples:
        >>> import torch
        >>> from gwi.core.divergences import wasserstein_squared
        >>> from gwi.core.kernels import default_kernel
        >>> from gwi.core.measures import GaussianMeasure
        >>> p = GaussianMeasure(kernel=default_kernel(1))
        >>> q = GaussianMeasure(lambda x: x.mT, default_kernel(1, outputscale=0.5))
        >>> x = torch.linspace(0, 1, 20, dtype=torch.float64)[:, None]
        >>> wasserstein_squared(p, p, x).abs().max().item() < 1e-9, bool(wasserstein_squared(p, q, x) > 0)
        (True, True)
    """
    # All three trace terms come from the same two factors; taking k(x, x) from elsewhere would leave a jitter of difference.
    k_factor, r_factor = p.factor(points), q.factor(points)
    spread = (k_factor.square().sum((-2, -1)) + r_factor.square().sum((-2, -1))) / points.shape[0]
    return _mean_distance_squared(p, q, points) + spread - 2 * bures_fidelity(k_factor, r_factor)


def wasserstein(p: GaussianMeasure, q: GaussianMeasure, points: Float[Tensor, "S D"]) -> Float[Tensor, " J"]:
    """W₂(P, Q), unsquared, as in [eq:GL_exact]; its gradient at P = Q is taken to be zero.

    Examples:
        >>> import torch
        >>> from gwi.core.divergences import wasserstein, wasserstein_squared
        >>> from gwi.core.kernels import default_kernel
        >>> from gwi.core.measures import GaussianMeasure
        >>> p = GaussianMeasure(kernel=default_kernel(1))
        >>> q = GaussianMeasure(lambda x: x.mT, default_kernel(1, outputscale=0.5))
        >>> x = torch.linspace(0, 1, 20, dtype=torch.float64)[:, None]
        >>> torch.allclose(wasserstein(p, q, x) ** 2, wasserstein_squared(p, q, x))
        True
    """
    return safe_sqrt(wasserstein_squared(p, q, points))


def wasserstein_squared_two_sample(
    p: GaussianMeasure,
    q: GaussianMeasure,
    points: Float[Tensor, "N D"],
    comparison_points: Float[Tensor, "S D"],
) -> Float[Tensor, " J"]:
    """Ŵ² of the paper [eq:WD_approx1, eq:WD_approx2]: means and traces on X, the cross term from the spectrum of
    r(X_S, X) k(X, X_S) [eq:spec_CPQ].

    Biased when X_S is not X: the spectrum of N_S points stands for that of N, so Ŵ²(P, P) > 0 and the estimate may also be
    negative. `wasserstein_squared` has neither fault.

    Examples:
        >>> import torch
        >>> from gwi.core.divergences import wasserstein_squared_two_sample
        >>> from gwi.core.kernels import default_kernel
        >>> from gwi.core.measures import GaussianMeasure
        >>> p = GaussianMeasure(kernel=default_kernel(1))
        >>> q = GaussianMeasure(lambda x: x.mT, default_kernel(1, outputscale=0.5))
        >>> x = torch.linspace(0, 1, 20, dtype=torch.float64)[:, None]
        >>> bool(wasserstein_squared_two_sample(p, q, x, x[::2]) > 0)
        True
    """
    product = kernel_matrix(q.kernel, comparison_points, points) @ kernel_matrix(p.kernel, points, comparison_points)
    cross = two_sample_fidelity(product, points.shape[0])
    spread = kernel_variance(p.kernel, points).mean(-1) + kernel_variance(q.kernel, points).mean(-1)
    return _mean_distance_squared(p, q, points) + spread - 2 * cross


def two_sample_cross_term(
    k_bs: Float[Tensor, "B S"], features: Float[Tensor, "M B"], features_s: Float[Tensor, "M S"], factor: Float[Tensor, "*J M M"]
) -> Float[Tensor, "*J"]:
    """The cross term of `wasserstein_squared_two_sample` for the sparse r [eq:r_SVGP], from what a step of training has at hand.

    Args:
        k_bs: k(X_B, X_S).
        features: φ at X_B.
        features_s: φ at X_S.
        factor: F with S = F Fᵀ.
    """
    # r(X_S, X_B) k(X_B, X_S) without its first factor: gradients then pass through M × S matrices rather than M × B ones.
    projected = features @ k_bs
    product = k_bs.mT @ k_bs - features_s.mT @ projected + (factor.mT @ features_s).mT @ (factor.mT @ projected)
    return two_sample_fidelity(product, k_bs.shape[0])


def gaussian_wasserstein_squared(
    mean_p: Float[Tensor, "*J n"],
    covariance_p: Float[Tensor, "*J n n"],
    mean_q: Float[Tensor, "*J n"],
    covariance_q: Float[Tensor, "*J n n"],
) -> Float[Tensor, "*J"]:
    """W₂² of two Gaussians on ℝⁿ in closed form (Gelbrich 1990); singular covariances are allowed.

    Examples:
        >>> import torch
        >>> from gwi.core.divergences import gaussian_wasserstein_squared
        >>> mean, covariance = torch.zeros(2, dtype=torch.float64), torch.eye(2, dtype=torch.float64)
        >>> gaussian_wasserstein_squared(mean, covariance, mean + 1, 4 * covariance).round(decimals=6).item()
        4.0
    """
    a = positive_semidefinite_factor(covariance_p, name="the covariance of P")
    b = positive_semidefinite_factor(covariance_q, name="the covariance of Q")
    traces = a.square().sum((-2, -1)) + b.square().sum((-2, -1))
    return (mean_p - mean_q).square().sum(-1) + traces - 2 * bures_fidelity(a, b) * a.shape[-2]


def kl_divergence(p: GaussianMeasure, q: GaussianMeasure, points: Float[Tensor, "S D"] | None = None) -> Float[Tensor, " J"]:
    """KL(Q, P) [eq:def_KLD], finite only in the SVGP family: ½ (tr S + vᵀv − M − log det S) in whitened coordinates.

    Q must have a `KernelMean` and a `SparsePosteriorKernel` on the same Z and the prior's kernel. Any other mean or kernel
    generally makes Q singular to P and the divergence infinite, which is the paper's reason for W₂.

    Args:
        p: prior.
        q: posterior.
        points: ignored; there so that every divergence has the same signature.

    Examples:
        >>> import torch
        >>> from gwi.core.divergences import kl_divergence
        >>> from gwi.core.kernels import SparsePosteriorKernel, default_kernel
        >>> from gwi.core.means import KernelMean
        >>> from gwi.core.measures import GaussianMeasure
        >>> z = torch.linspace(0, 1, 5, dtype=torch.float64)[:, None]
        >>> kernel, one = default_kernel(1), torch.ones(1, 5, dtype=torch.float64)
        >>> posterior = SparsePosteriorKernel(kernel, z, torch.eye(5, dtype=torch.float64))
        >>> q = GaussianMeasure(KernelMean(kernel, z, one), posterior)
        >>> kl_divergence(GaussianMeasure(kernel=kernel), q).detach().round(decimals=6).tolist()  # ½ vᵀv
        [2.5]
    """
    del points
    mean, kernel = q.mean, q.kernel
    if not (
        isinstance(mean, KernelMean)
        and isinstance(kernel, SparsePosteriorKernel)
        and kernel.prior_kernel is p.kernel
        and mean.prior_kernel is p.kernel
        and mean.prior_mean is p.mean
        and torch.equal(mean.inducing_points, kernel.inducing_points)
    ):
        raise ValueError(
            "KL(Q, P) is infinite unless Q has a KernelMean and a SparsePosteriorKernel that share the prior's kernel, mean "
            f"and inducing points; got mean {type(mean).__name__}, kernel {type(kernel).__name__}. Use wasserstein_squared."
        )
    v, factor = mean.whitened_coefficients, kernel.whitened_factor
    # log det S from F itself: S = F Fᵀ squares the condition number.
    log_det = 2 * torch.linalg.slogdet(factor).logabsdet
    return (factor.square().sum((-2, -1)) + v.square().sum(-1) - v.shape[-1] - log_det) / 2


def regularised_kl(
    p: GaussianMeasure, q: GaussianMeasure, points: Float[Tensor, "S D"], *, regularisation: float
) -> Float[Tensor, " J"]:
    """KL(Q ∗ N(0, γI), P ∗ N(0, γI)) in L² of the empirical measure of `points`, one value an output (Quang 2022).

    With C = K/S the covariance operators there and d = (m_Q − m_P)/√S it is
    ½ (tr (C_P + γ)⁻¹(C_Q + γ) − S − log det (C_P + γ)⁻¹(C_Q + γ) + dᵀ (C_P + γ)⁻¹ d). It grows without bound as γ → 0 where
    KL(Q, P) is infinite.

    Args:
        p: prior.
        q: posterior.
        points: where both are looked at.
        regularisation: γ, the variance of the noise added to both, for values of f.

    Examples:
        >>> import torch
        >>> from gwi.core.divergences import regularised_kl
        >>> from gwi.core.kernels import default_kernel
        >>> from gwi.core.measures import GaussianMeasure
        >>> p = GaussianMeasure(kernel=default_kernel(1))
        >>> q = GaussianMeasure(lambda x: x.mT, default_kernel(1, outputscale=0.5))
        >>> x = torch.linspace(0, 1, 20, dtype=torch.float64)[:, None]
        >>> bool(regularised_kl(p, q, x, regularisation=0.1) > 0)
        True
    """
    covariance_p, covariance_q, difference = _regularised(p, q, points, regularisation)
    factor, own = (cholesky(part, name="C + γI").factor for part in (covariance_p, covariance_q))
    ratio, distance = solve_lower(factor, own), solve_lower(factor, difference[..., None])[..., 0]
    log_det = log_determinant(factor) - log_determinant(own)
    return (ratio.square().sum((-2, -1)) - len(points) + log_det + distance.square().sum(-1)) / 2


def regularised_renyi(
    p: GaussianMeasure, q: GaussianMeasure, points: Float[Tensor, "S D"], *, order: float, regularisation: float
) -> Float[Tensor, " J"]:
    """Rényi's divergence of order α of Q ∗ N(0, γI) from P ∗ N(0, γI), in L² of the empirical measure of `points`.

    With A = α (C_P + γ) + (1 − α)(C_Q + γ) it is α/2 dᵀ A⁻¹ d − log(det A / (det(C_Q + γ)^(1 − α) det(C_P + γ)^α)) / (2(α − 1)).
    As α → 1 it becomes `regularised_kl`; for α below one it is finite for all Q, for larger ones where A is positive definite.

    Args:
        p: prior.
        q: posterior.
        points: where both are looked at.
        order: α, positive and not one.
        regularisation: γ.

    Examples:
        >>> import torch
        >>> from gwi.core.divergences import regularised_renyi
        >>> from gwi.core.kernels import default_kernel
        >>> from gwi.core.measures import GaussianMeasure
        >>> p = GaussianMeasure(kernel=default_kernel(1))
        >>> q = GaussianMeasure(lambda x: x.mT, default_kernel(1, outputscale=0.5))
        >>> x = torch.linspace(0, 1, 20, dtype=torch.float64)[:, None]
        >>> bool(regularised_renyi(p, q, x, order=0.5, regularisation=0.1) > 0)
        True
    """
    if not (order > 0 and order != 1):
        raise ValueError(f"The order of Rényi's divergence must be positive and not 1 (for 1 use regularised_kl); got {order}.")
    covariance_p, covariance_q, difference = _regularised(p, q, points, regularisation)
    mixed = order * covariance_p + (1 - order) * covariance_q
    if order > 1 and float(torch.linalg.eigvalsh(mixed.detach()).min()) <= 0:
        raise ValueError(
            f"Rényi's divergence of order {order:g} is infinite here: Q is wider than P by more than this order allows. "
            "Take a smaller order, or a larger regularisation."
        )
    factors = [cholesky(part, name="C + γI").factor for part in (mixed, covariance_q, covariance_p)]
    log_mixed, log_q, log_p = (log_determinant(factor) for factor in factors)
    distance = solve_lower(factors[0], difference[..., None])[..., 0].square().sum(-1)
    return order / 2 * distance - (log_mixed - (1 - order) * log_q - order * log_p) / (2 * (order - 1))


def _regularised(
    p: GaussianMeasure, q: GaussianMeasure, points: Tensor, regularisation: float
) -> tuple[Float[Tensor, "*J S S"], Float[Tensor, "*J S S"], Float[Tensor, "J S"]]:
    """C_P + γI, C_Q + γI and m_Q − m_P, as L² of the points has them."""
    if not regularisation > 0:
        raise ValueError(f"The regularisation is a positive variance; got {regularisation}.")
    count = len(points)
    noise = regularisation * torch.eye(count, dtype=points.dtype, device=points.device)
    covariances = [kernel_matrix(measure.kernel, points) / count + noise for measure in (p, q)]
    return covariances[0], covariances[1], (q.mean_at(points) - p.mean_at(points)) / count**0.5


def _mean_distance_squared(p: GaussianMeasure, q: GaussianMeasure, points: Tensor) -> Float[Tensor, " J"]:
    """‖m_P − m_Q‖² in L² of the empirical measure of `points`."""
    return (p.mean_at(points) - q.mean_at(points)).square().mean(-1)
