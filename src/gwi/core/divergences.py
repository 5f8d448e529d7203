"""Divergences between Gaussian measures: W₂² exact for the points, W₂² as the paper estimates it, closed form, KL."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from gwi.core.kernels import SparsePosteriorKernel
from gwi.core.linalg import bures_fidelity, positive_semidefinite_factor, safe_sqrt, two_sample_fidelity
from gwi.core.means import KernelMean
from gwi.core.measures import GaussianMeasure, kernel_matrix, kernel_variance

Divergence = Callable[[GaussianMeasure, GaussianMeasure, Tensor], Tensor]


def wasserstein_squared(p: GaussianMeasure, q: GaussianMeasure, points: Float[Tensor, "S D"]) -> Float[Tensor, " J"]:
    """W₂²(P, Q) for ρ the empirical measure of `points` [eq:WD_Gaussians], one value an output.

    Exact for that measure, at least zero, and zero at Q = P. As an estimate for a continuous ρ it approaches the true value
    as points are added: see `docs/method.md`.
    """
    # All three trace terms come from the same two factors; taking k(x, x) from elsewhere would leave a jitter of difference.
    k_factor, r_factor = p.factor(points), q.factor(points)
    spread = (k_factor.square().sum((-2, -1)) + r_factor.square().sum((-2, -1))) / points.shape[0]
    return _mean_distance_squared(p, q, points) + spread - 2 * bures_fidelity(k_factor, r_factor)


def wasserstein(p: GaussianMeasure, q: GaussianMeasure, points: Float[Tensor, "S D"]) -> Float[Tensor, " J"]:
    """W₂(P, Q), unsquared, as in [eq:GL_exact]; its gradient at P = Q is taken to be zero."""
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
    """W₂² of two Gaussians on ℝⁿ in closed form (Gelbrich 1990); singular covariances are allowed."""
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


def _mean_distance_squared(p: GaussianMeasure, q: GaussianMeasure, points: Tensor) -> Float[Tensor, " J"]:
    """‖m_P − m_Q‖² in L² of the empirical measure of `points`."""
    return (p.mean_at(points) - q.mean_at(points)).square().mean(-1)
