"""Objectives: the generalized loss, the marginal likelihood of a subset, the collapsed bound on all rows."""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from gwi.core.divergences import Divergence, wasserstein_squared
from gwi.core.likelihoods.robust_max import expected_log_likelihood
from gwi.core.linalg import LOG_TWO_PI, cholesky, log_determinant, log_gaussian, solve_lower
from gwi.core.means import MeanFunction
from gwi.core.measures import GaussianMeasure, kernel_matrix
from gwi.core.row_sums import row_sums


def generalized_loss(
    prior: GaussianMeasure,
    posterior: GaussianMeasure,
    likelihood: nn.Module,
    x: Float[Tensor, "N D"],
    y: Shaped[Tensor, "*J N"],
    *,
    num_data: int,
    divergence: Divergence = wasserstein_squared,
    divergence_weight: float = 1.0,
    points: Float[Tensor, "S D"] | None = None,
) -> Float[Tensor, ""]:
    """L̂ = −(N / N_B) Σ_b E_Q[log p(y_b | F(x_b))] + β Σ_j D(P_j, Q_j)  [eq:Generalized_loss], on a batch.

    With `kl_divergence` and β = 1 it is minus the evidence lower bound [eq:ELBO].

    Args:
        prior: P.
        posterior: Q.
        likelihood: one of `gwi.core.likelihoods`, or a GPyTorch likelihood with an `expected_log_prob`.
        x: a batch of rows.
        y: their targets; labels for classification.
        num_data: N, the number of rows the batch was drawn from.
        divergence: D, a function of (prior, posterior, points): `wasserstein_squared`, `wasserstein` (unsquared),
            `kl_divergence`, or a partial of `wasserstein_squared_two_sample` with its comparison points.
        divergence_weight: β; 1 in the paper. It has the units of 1/y².
        points: where D is taken; the batch unless given.
    """
    mean, variance = posterior.marginals(x)
    log_likelihood = expected_log_likelihood(likelihood, y, mean, variance, x).sum()
    distance = divergence(prior, posterior, x if points is None else points).sum()
    return -(num_data / x.shape[0]) * log_likelihood + divergence_weight * distance


def log_marginal_likelihood(
    kernel: Kernel,
    x: Float[Tensor, "N D"],
    y: Float[Tensor, "*J N"],
    noise_variance: Float[Tensor, ...] | float,
    *,
    jitter: float = 0.0,
) -> Float[Tensor, "*J"]:
    """log N(y | 0, k(X, X) + σ² I), with the −N/2 log 2π that the paper leaves out.

    The paper maximises it over the M pairs (Z, y_Z). Take the prior mean off y first.
    """
    noise = torch.as_tensor(noise_variance, dtype=x.dtype, device=x.device)
    covariance = kernel_matrix(kernel, x) + torch.diag_embed(noise.expand(*noise.shape[:-1], x.shape[0]))
    return log_gaussian(covariance, y, jitter=jitter, name="k(X, X) + σ²I")


def collapsed_bound(
    kernel: Kernel,
    inducing_points: Float[Tensor, "M D"],
    x: Float[Tensor, "N D"],
    y: Float[Tensor, "*J N"],
    noise_variance: Float[Tensor, ...] | float,
    *,
    chunk_size: int = 4096,
    jitter: float = 0.0,
) -> Float[Tensor, "*J"]:
    """log N(y | 0, ΦᵀΦ + σ² I) − ½ Σ (k − φᵀφ)/σ² (Titsias 2009): a lower bound on the evidence of all rows.

    Memory is O(chunk × M) with or without gradients. Take the prior mean off y first.
    """
    sums = row_sums(kernel, inducing_points, x, y, noise_variance=noise_variance, chunk_size=chunk_size, jitter=jitter)
    eye = torch.eye(sums.gram.shape[-1], dtype=x.dtype, device=x.device)
    factor = cholesky(eye + sums.gram, name="I + ΦWΦᵀ").factor
    explained = _whitened_rows(factor, sums.projection).square().sum(-1)
    misfit = sums.target_energy - explained + sums.residual
    return -(misfit + log_determinant(factor) - sums.log_weight + sums.num_rows * LOG_TWO_PI) / 2


def _whitened_rows(factor: Float[Tensor, "*K n n"], rows: Float[Tensor, "*J n"]) -> Float[Tensor, "*L n"]:
    """L⁻¹ v of each row; those that share L together: apart, the gradient would hold a matrix for each."""
    if factor.ndim == 2 and rows.ndim == 2:
        return solve_lower(factor, rows.mT).mT
    return solve_lower(factor, rows[..., None])[..., 0]


def mean_loss(
    prior: GaussianMeasure,
    mean: MeanFunction,
    noise_variance: Float[Tensor, ...] | float,
    x: Float[Tensor, "N D"],
    y: Float[Tensor, "*J N"],
    *,
    num_data: int,
    divergence_weight: float = 1.0,
) -> Float[Tensor, ""]:
    """The part of the generalized loss with W₂² and Gaussian noise that the mean enters: Σ (y − m_Q)²/2σ² + β ‖m_P − m_Q‖².

    The rest is `core.covariance.covariance_objective` and a constant. Neither sees the other, so a mean trained on this alone, or
    trained elsewhere, gets the same covariance as one trained jointly.
    """
    values = mean(x)
    misfit = ((y - values).square() / noise_variance).sum() / 2
    shrinkage = (prior.mean_at(x) - values).square().mean(-1).sum()
    return num_data / x.shape[0] * misfit + divergence_weight * shrinkage
