"""The objectives agree with GPyTorch's where the models coincide."""

import math
from functools import partial

import gpytorch
import numpy as np
import pytest
import torch

import reference
from gwi.core.covariance import titsias_covariance
from gwi.core.divergences import kl_divergence, wasserstein, wasserstein_squared, wasserstein_squared_two_sample
from gwi.core.kernels import SparsePosteriorKernel, default_kernel
from gwi.core.likelihoods.gaussian import GaussianLikelihood
from gwi.core.means import KernelMean, titsias_coefficients
from gwi.core.measures import GaussianMeasure, kernel_matrix
from gwi.core.objectives import generalized_loss, mean_loss
from gwi.core.prior import collapsed_bound, log_marginal_likelihood
from gwi.core.row_sums import row_sums

NOISE = 0.04


def data(num_data=300, num_features=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num_data, num_features, dtype=torch.float64, generator=generator)
    y = torch.sin(x.sum(-1)) + 0.2 * torch.randn(num_data, dtype=torch.float64, generator=generator)
    return x, y[None]


class SVGP(gpytorch.models.ApproximateGP):
    def __init__(self, kernel, z, mean, scale_tril, jitter):
        law = gpytorch.variational.CholeskyVariationalDistribution(len(z))
        strategy = gpytorch.variational.VariationalStrategy(self, z, law, learn_inducing_locations=False, jitter_val=jitter)
        super().__init__(strategy)
        self.mean_module, self.covar_module = gpytorch.means.ZeroMean(), kernel
        law.double()
        with torch.no_grad():
            law.variational_mean.copy_(mean)
            law.chol_variational_covar.copy_(scale_tril)
        strategy.variational_params_initialized.fill_(1)

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class SGPR(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood, kernel, z):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = gpytorch.kernels.InducingPointKernel(kernel, z.clone(), likelihood)

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def gpytorch_noise(value):
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = torch.tensor(value, dtype=torch.float64)  # A Python number would be rounded to float32.
    return likelihood


@pytest.mark.parametrize("num_data", [100, 300, 800])
def test_loss_with_kl_is_the_elbo_of_gpytorchs_svgp(num_data):
    x, y = data(num_data)
    z, kernel, jitter = x[:20], default_kernel(3, lengthscale=1.5, hyper_priors=False), 1e-6
    generator = torch.Generator().manual_seed(1)
    v = torch.randn(20, dtype=torch.float64, generator=generator)
    root = torch.randn(20, 20, dtype=torch.float64, generator=generator).tril() / 10 + torch.eye(20, dtype=torch.float64)
    # GPyTorch adds its absolute jitter to k(Z, Z) and to the diagonal of k(X, X); with outputscale one ours is the same number.
    posterior = GaussianMeasure(
        KernelMean(kernel, z, v[None], jitter=jitter), SparsePosteriorKernel(kernel, z, root @ root.mT, jitter=jitter)
    )
    noise = GaussianLikelihood(NOISE)
    ours = generalized_loss(
        GaussianMeasure(None, kernel), posterior, noise, x, y, num_data=num_data, divergence=kl_divergence
    ) + num_data * jitter / (2 * NOISE)
    theirs = SVGP(kernel, z, v, root, jitter)
    bound = gpytorch.mlls.VariationalELBO(gpytorch_noise(NOISE), theirs, num_data=num_data)
    assert ours.item() == pytest.approx(-bound(theirs(x), y[0]).item() * num_data, rel=1e-8)


@pytest.mark.parametrize("num_data", [100, 300, 800])
def test_collapsed_bound_is_gpytorchs_sgpr(num_data):
    x, y = data(num_data)
    z, kernel = x[:25], default_kernel(3, lengthscale=1.5, hyper_priors=False)
    model = SGPR(x, y[0], gpytorch_noise(NOISE), kernel, z)
    bound = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    theirs = bound(model(x), y[0]).item() * num_data
    assert collapsed_bound(kernel, z, x, y, NOISE).item() == pytest.approx(theirs, rel=1e-8)


def test_collapsed_bound_in_chunks_equals_it_in_one_piece_with_gradients():
    x, y = data(500)
    z = x[:30].clone().requires_grad_()
    kernel, noise = default_kernel(3), torch.tensor(NOISE, dtype=torch.float64, requires_grad=True)
    parameters = [*kernel.parameters(), z, noise]
    values = [collapsed_bound(kernel, z, x, y, noise, chunk_size=c, jitter=1e-8).sum() for c in (10_000, 64)]
    whole, chunked = (torch.autograd.grad(value, parameters) for value in values)
    assert values[0].item() == pytest.approx(values[1].item(), rel=1e-12)
    for a, b in zip(whole, chunked, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9)


def test_collapsed_bound_with_all_points_is_the_marginal_likelihood_and_below_it_with_fewer():
    x, y = data(120)
    kernel = default_kernel(3, lengthscale=0.7)
    exact = log_marginal_likelihood(kernel, x, y, NOISE).item()
    assert collapsed_bound(kernel, x, x, y, NOISE).item() == pytest.approx(exact, rel=1e-8)
    assert collapsed_bound(kernel, x[:30], x, y, NOISE).item() < exact


def test_marginal_likelihood_is_the_density_of_a_multivariate_normal():
    x, y = data(80)
    kernel = default_kernel(3)
    covariance = kernel_matrix(kernel, x) + NOISE * torch.eye(80, dtype=torch.float64)
    law = torch.distributions.MultivariateNormal(torch.zeros(80, dtype=torch.float64), covariance)
    assert log_marginal_likelihood(kernel, x, y, NOISE).item() == pytest.approx(law.log_prob(y[0]).item(), rel=1e-10)


def test_noise_of_each_row_and_each_output_enters_both_evidences():
    x, y = data(90)
    y = torch.cat([y, y.flip(-1)])
    noise = torch.linspace(0.01, 0.3, 180, dtype=torch.float64).reshape(2, 90)
    kernel = default_kernel(3)
    covariance = kernel_matrix(kernel, x) + torch.diag_embed(noise)
    expected = torch.distributions.MultivariateNormal(torch.zeros(2, 90, dtype=torch.float64), covariance).log_prob(y)
    torch.testing.assert_close(log_marginal_likelihood(kernel, x, y, noise), expected, rtol=1e-9, atol=0)
    torch.testing.assert_close(collapsed_bound(kernel, x, x, y, noise), expected, rtol=1e-7, atol=0)


def test_sparse_posterior_with_all_points_is_exact_gp_regression():
    x, y = data(200)
    test_x = data(50, seed=3)[0]
    kernel = default_kernel(3, lengthscale=1.0)
    sums = row_sums(kernel, x, x, y, noise_variance=NOISE, jitter=1e-12)
    posterior = GaussianMeasure(
        KernelMean(kernel, x, titsias_coefficients(sums), jitter=1e-12),
        SparsePosteriorKernel(kernel, x, titsias_covariance(sums), jitter=1e-12),
    )
    with torch.no_grad():
        mean, variance = posterior.marginals(test_x)

    class Exact(gpytorch.models.ExactGP):
        def __init__(self):
            super().__init__(x, y[0], gpytorch_noise(NOISE))
            self.mean_module, self.covar_module = gpytorch.means.ZeroMean(), kernel

        def forward(self, rows):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(rows), self.covar_module(rows))

    model = Exact().eval()
    with torch.no_grad(), gpytorch.settings.fast_computations(False, False, False):
        theirs = model(test_x)
    torch.testing.assert_close(mean[0], theirs.mean, rtol=0, atol=1e-6)
    torch.testing.assert_close(variance[0], theirs.variance, rtol=0, atol=1e-6)


def test_batches_estimate_the_loss_of_all_rows_without_bias():
    x, y = data(120)
    kernel = default_kernel(3)
    prior = GaussianMeasure(None, kernel)
    posterior = GaussianMeasure(None, SparsePosteriorKernel(kernel, x[:10], 0.1 * torch.eye(10, dtype=torch.float64)))
    loss = partial(generalized_loss, prior, posterior, GaussianLikelihood(NOISE), num_data=120, points=x[:40])
    batches = torch.stack([loss(x[i : i + 30], y[:, i : i + 30]) for i in range(0, 120, 30)])
    assert batches.mean().item() == pytest.approx(loss(x, y).item(), rel=1e-12)


def test_loss_is_likelihood_plus_weighted_divergence_squared_or_not():
    x, y = data(60)
    kernel = default_kernel(3)
    prior = GaussianMeasure(None, kernel)
    posterior = GaussianMeasure(None, SparsePosteriorKernel(kernel, x[:10], 0.1 * torch.eye(10, dtype=torch.float64)))
    base = partial(generalized_loss, prior, posterior, GaussianLikelihood(NOISE), x, y, num_data=60)
    fit = base(divergence_weight=0.0).item()
    squared = wasserstein_squared(prior, posterior, x).sum().item()
    assert base(divergence_weight=7.0).item() == pytest.approx(fit + 7 * squared)
    assert base(divergence=wasserstein).item() == pytest.approx(fit + math.sqrt(squared))
    two_sample = partial(wasserstein_squared_two_sample, comparison_points=x)
    assert base(divergence=two_sample).item() == pytest.approx(fit + squared)


def test_loss_is_the_mean_part_plus_the_covariance_part():
    # The covariance does not see the mean: another mean changes the loss by the change of mean_loss, and by nothing else.
    x, y = data(80)
    kernel = default_kernel(3)
    prior = GaussianMeasure(None, kernel)
    r = SparsePosteriorKernel(kernel, x[:10], 0.1 * torch.eye(10, dtype=torch.float64))
    means = [KernelMean(kernel, x[:10], torch.full((1, 10), c, dtype=torch.float64)) for c in (0.0, 0.3)]
    arguments = {"num_data": 80, "divergence_weight": 30.0}
    whole = [generalized_loss(prior, GaussianMeasure(m, r), GaussianLikelihood(NOISE), x, y, **arguments) for m in means]
    parts = [mean_loss(prior, m, NOISE, x, y, **arguments) for m in means]
    assert (whole[1] - whole[0]).item() == pytest.approx((parts[1] - parts[0]).item(), rel=1e-9)


def test_evidences_equal_loops():
    x, y = data(30)
    kernel = default_kernel(3, lengthscale=1.2, outputscale=1.7)
    k = reference.ard_kernel(np.full(3, 1.2), 1.7)
    exact = reference.log_marginal_likelihood(k, x.numpy(), y[0].numpy(), NOISE)
    assert log_marginal_likelihood(kernel, x, y, NOISE).item() == pytest.approx(exact, rel=1e-9)
    bound = reference.collapsed_bound(k, x[:8].numpy(), x.numpy(), y[0].numpy(), NOISE)
    assert collapsed_bound(kernel, x[:8], x, y, NOISE).item() == pytest.approx(bound, rel=1e-9)
