"""Objectives: the generalized loss, the marginal likelihood of a subset, the collapsed bound on all rows."""

from __future__ import annotations

from jaxtyping import Float, Shaped
from torch import Tensor, nn

from gwi.core.divergences import Divergence, wasserstein_squared
from gwi.core.likelihoods.gaussian import expected_log_likelihood
from gwi.core.means import MeanFunction
from gwi.core.measures import GaussianMeasure


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
            `kl_divergence`, or a partial of `wasserstein_squared_two_sample` with its comparison points, of `regularised_kl`
            or of `regularised_renyi`.
        divergence_weight: β; 1 in the paper. It has the units of 1/y².
        points: where D is taken; the batch unless given.

    Examples:
        >>> import torch
        >>> from gwi.core.likelihoods.gaussian import GaussianLikelihood
        >>> from gwi.core.objectives import generalized_loss
        >>> from gwi.core.kernels import default_kernel
        >>> from gwi.core.measures import GaussianMeasure
        >>> p = GaussianMeasure(kernel=default_kernel(1))
        >>> q = GaussianMeasure(lambda x: x.mT, default_kernel(1, outputscale=0.5))
        >>> x = torch.linspace(0, 1, 20, dtype=torch.float64)[:, None]
        >>> losses = [
        ...     generalized_loss(p, q, GaussianLikelihood(0.1), x, y, num_data=20).item() for y in (x.mT, x.mT + 1)
        ... ]
        >>> losses[0] < losses[1]
        True
    """
    mean, variance = posterior.marginals(x)
    log_likelihood = expected_log_likelihood(likelihood, y, mean, variance, x).sum()
    distance = divergence(prior, posterior, x if points is None else points).sum()
    return -(num_data / x.shape[0]) * log_likelihood + divergence_weight * distance


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

    Examples:
        >>> import torch
        >>> from gwi.core.objectives import mean_loss
        >>> from gwi.core.kernels import default_kernel
        >>> from gwi.core.measures import GaussianMeasure
        >>> x = torch.linspace(0, 1, 20, dtype=torch.float64)[:, None]
        >>> prior = GaussianMeasure(kernel=default_kernel(1))
        >>> right, wrong = (mean_loss(prior, lambda x: s * x.mT, 0.1, x, x.mT, num_data=20) for s in (1.0, -1.0))
        >>> bool(right < wrong)
        True
    """
    values = mean(x)
    misfit = ((y - values).square() / noise_variance).sum() / 2
    shrinkage = (prior.mean_at(x) - values).square().mean(-1).sum()
    return num_data / x.shape[0] * misfit + divergence_weight * shrinkage
