"""Gaussian noise in closed form, GPyTorch's likelihoods as guests, and the paper's equations in loops."""

import math

import gpytorch
import numpy as np
import pytest
import torch
from scipy import integrate, special, stats
from torch import nn

import reference
from gwi.core.divergences import wasserstein_squared
from gwi.core.kernels import SparsePosteriorKernel, default_kernel
from gwi.core.likelihoods.gaussian import GaussianLikelihood, expected_log_likelihood
from gwi.core.likelihoods.robust_max import RobustMaxLikelihood
from gwi.core.means import KernelMean
from gwi.core.measures import GaussianMeasure
from gwi.core.objectives import generalized_loss
from gwi.core.training import train


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


# --- Gaussian ---------------------------------------------------------------------------------------------------------


class LinearNoise(nn.Module):
    """σ²(x) = exp(a + b x₁), the same for all outputs."""

    def __init__(self):
        super().__init__()
        self.weights = nn.Parameter(torch.tensor([-1.0, 0.4], dtype=torch.float64))

    def forward(self, x):
        return (self.weights[0] + self.weights[1] * x[:, 0]).exp()


def noises(num_outputs):
    per_output = torch.linspace(0.2, 1.5, num_outputs, dtype=torch.float64)
    return {
        "constant": 0.3,
        "per output": per_output,
        "depends on x": LinearNoise(),
        "depends on x and output": lambda x: per_output[:, None] * (1 + x[:, 0].square()),
    }


def gaussian_case(num_outputs, num_rows=7):
    generator = seeded(num_outputs)
    x = torch.randn(num_rows, 2, dtype=torch.float64, generator=generator)
    y, mean = torch.randn(2, num_outputs, num_rows, dtype=torch.float64, generator=generator)
    return x, y, mean, 0.05 + torch.rand(num_outputs, num_rows, dtype=torch.float64, generator=generator)


def dense_noise(likelihood, x, num_outputs):
    return likelihood.noise_variance_at(x).expand(num_outputs, -1).detach()


@pytest.mark.parametrize("num_outputs", [1, 3])
@pytest.mark.parametrize("noise", ["constant", "per output", "depends on x", "depends on x and output"])
def test_gaussian_expected_log_likelihood_is_the_closed_form_and_the_mean_over_draws(num_outputs, noise):
    likelihood = GaussianLikelihood(noises(num_outputs)[noise])
    x, y, mean, variance = gaussian_case(num_outputs)
    value = likelihood.expected_log_likelihood(y, mean, variance, x).detach()
    sigma_squared = dense_noise(likelihood, x, num_outputs)
    loop = np.zeros(len(x))
    for n in range(len(x)):
        for j in range(num_outputs):
            s2, error = sigma_squared[j, n].item(), (y[j, n] - mean[j, n]).item()
            loop[n] += -0.5 * math.log(2 * math.pi * s2) - (error**2 + variance[j, n].item()) / (2 * s2)
    assert np.abs(value.numpy() - loop).max() < 1e-13
    num_draws = 100_000
    f = mean + variance.sqrt() * torch.randn(num_draws, num_outputs, len(x), dtype=torch.float64, generator=seeded(1))
    draws = torch.distributions.Normal(f, sigma_squared.sqrt()).log_prob(y).sum(1)
    assert ((draws.mean(0) - value).abs() < 4 * draws.std(0) / math.sqrt(num_draws)).all()


@pytest.mark.parametrize("num_outputs", [1, 3])
@pytest.mark.parametrize("noise", ["constant", "per output", "depends on x", "depends on x and output"])
def test_gaussian_predictive_and_nll_are_those_of_scipy(num_outputs, noise):
    likelihood = GaussianLikelihood(noises(num_outputs)[noise])
    x, y, mean, variance = gaussian_case(num_outputs)
    std = (variance + dense_noise(likelihood, x, num_outputs)).sqrt().numpy()
    predictive = likelihood.predictive(mean, variance, x)
    assert np.abs(predictive.mean.detach().numpy() - mean.numpy()).max() == 0
    assert np.abs(predictive.stddev.detach().numpy() - std).max() < 1e-14
    exact = -stats.norm.logpdf(y.numpy(), mean.numpy(), std).sum(0)
    assert np.abs(likelihood.nll(y, mean, variance, x).detach().numpy() - exact).max() < 1e-13


def test_targets_of_one_output_may_be_a_vector():
    likelihood = GaussianLikelihood(0.3)
    x, y, mean, variance = gaussian_case(1)
    assert torch.equal(
        likelihood.expected_log_likelihood(y[0], mean, variance, x), likelihood.expected_log_likelihood(y, mean, variance, x)
    )
    assert torch.equal(likelihood.nll(y[0], mean, variance, x), likelihood.nll(y, mean, variance, x))


def test_the_best_noise_variance_is_the_mean_squared_error_plus_the_mean_variance():
    x, y, mean, variance = gaussian_case(1, num_rows=50)
    best = ((y - mean).square() + variance).mean().item()
    likelihood = GaussianLikelihood(best)
    likelihood.expected_log_likelihood(y, mean, variance, x).sum().backward()
    assert likelihood.log_noise_variance.grad.abs().max() < 1e-12


def test_gaussian_gradients_reach_mean_variance_and_noise():
    x, y, mean, variance = gaussian_case(2)
    weights = torch.tensor([-1.0, 0.4], dtype=torch.float64, requires_grad=True)

    def f(m, r, w):
        return GaussianLikelihood(lambda rows: (w[0] + w[1] * rows[:, 0]).exp()).expected_log_likelihood(y, m, r, x)

    assert torch.autograd.gradcheck(f, (mean.requires_grad_(), variance.requires_grad_(), weights))
    constant = GaussianLikelihood(0.3)
    constant.expected_log_likelihood(y, mean, variance, x).sum().backward()
    assert constant.log_noise_variance.grad.abs().min() > 0


@pytest.mark.parametrize("noise", [0.0, -1.0, math.nan, torch.tensor([0.5, 0.0], dtype=torch.float64)])
def test_noise_that_is_not_positive_is_refused(noise):
    with pytest.raises(ValueError, match="noise variance must be positive"):
        GaussianLikelihood(noise)


@pytest.mark.parametrize("value", [0.0, -0.5, math.nan])
def test_a_noise_function_that_is_not_positive_is_refused_when_it_is_asked(value):
    likelihood = GaussianLikelihood(lambda x: torch.where(torch.arange(len(x)) == 3, value, 1.0).double())
    x, y, mean, variance = gaussian_case(1)
    for method in (likelihood.expected_log_likelihood, likelihood.nll):
        with pytest.raises(ValueError, match="noise variance must be positive"):
            method(y, mean, variance, x)


# --- Any GPyTorch likelihood ------------------------------------------------------------------------------------------


def measures(num_outputs=1, num_features=2, num_inducing=8, seed=0):
    """A prior, and a posterior with a kernel mean and covariances that ask for gradients."""
    generator = seeded(seed)
    kernel = default_kernel(num_features, lengthscale=1.0).requires_grad_(False)
    z = 2 * torch.randn(num_inducing, num_features, dtype=torch.float64, generator=generator)
    v = 0.3 * torch.randn(num_outputs, num_inducing, dtype=torch.float64, generator=generator)
    s = 0.3 * torch.eye(num_inducing, dtype=torch.float64).expand(num_outputs, -1, -1)
    posterior_kernel = SparsePosteriorKernel(kernel, z, s)
    posterior_kernel.whitened_factor.requires_grad_(True)
    return GaussianMeasure(None, kernel), GaussianMeasure(KernelMean(kernel, z, v), posterior_kernel)


def student_t():
    likelihood = gpytorch.likelihoods.StudentTLikelihood().double()
    likelihood.deg_free, likelihood.noise = torch.tensor([4.0]).double(), torch.tensor([0.3]).double()
    return likelihood


def bernoulli():
    return gpytorch.likelihoods.BernoulliLikelihood().double()


def student_t_log_density(y, f):
    return stats.t.logpdf(y - f, df=4.0, scale=math.sqrt(0.3))


def bernoulli_log_density(y, f):
    return special.log_ndtr((2 * y - 1) * f)


def bernoulli_log_density_of_gpytorch(y, f):
    return gpytorch.functions.log_normal_cdf(torch.as_tensor((2 * y - 1) * f)).numpy()


# The likelihood, its log-density as GPyTorch computes it, the exact one, and a bound on the error of a row: GPyTorch's
# log Φ(z) is up to 0.0019 off for −3 < z < −1, where it uses an expansion that is accurate only below.
GUESTS = {
    "bernoulli": (bernoulli, bernoulli_log_density_of_gpytorch, bernoulli_log_density, 2e-4),
    "student-t": (student_t, student_t_log_density, student_t_log_density, 1e-5),
}


def guest_data(name, num_rows=40):
    generator = seeded(11)
    x = torch.randn(num_rows, 2, dtype=torch.float64, generator=generator)
    signal = torch.sin(2 * x[:, 0])
    if name == "bernoulli":
        return x, (signal > 0).double()
    return x, signal + 0.3 * torch.randn(num_rows, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize("name", ["bernoulli", "student-t"])
def test_a_gpytorch_likelihood_in_the_loss_equals_direct_quadrature(name):
    make, their_log_density, log_density, bound = GUESTS[name]
    likelihood = make()
    prior, posterior = measures()
    x, y = guest_data(name)
    loss = generalized_loss(prior, posterior, likelihood, x, y, num_data=120, divergence_weight=0.7)
    gradients = torch.autograd.grad(loss, [p for p in posterior.parameters() if p.requires_grad])
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert any(gradient.abs().max() > 0 for gradient in gradients)
    with torch.no_grad():
        mean, variance = posterior.marginals(x)
        distance = wasserstein_squared(prior, posterior, x).sum().item()
    # GPyTorch's twenty Gauss–Hermite nodes are rounded to float32 when they are made, hence 1e-7 and not 1e-13.
    roots, weights = np.polynomial.hermite.hermgauss(20)
    same_rule = exact = 0.0
    for m, r, target in zip(mean[0].tolist(), variance[0].tolist(), y.tolist(), strict=True):
        same_rule += weights @ their_log_density(target, m + math.sqrt(2 * r) * roots) / math.sqrt(math.pi)
        exact += integrate.quad(
            lambda u, m=m, r=r, t=target: stats.norm.pdf(u) * log_density(t, m + math.sqrt(r) * u), -10, 10, epsabs=1e-10
        )[0]
    assert loss.item() == pytest.approx(-3 * same_rule + 0.7 * distance, rel=1e-7)
    assert loss.item() == pytest.approx(-3 * exact + 0.7 * distance, abs=bound * 3 * len(x))


@pytest.mark.parametrize("name", ["bernoulli", "student-t"])
def test_training_with_a_gpytorch_likelihood_lowers_the_loss(name, generator):
    likelihood = GUESTS[name][0]()
    prior, posterior = measures()
    x, y = guest_data(name)

    def loss(x_batch, y_batch):
        return generalized_loss(prior, posterior, likelihood, x_batch, y_batch, num_data=len(x))

    record = train(posterior, loss, x, y, num_epochs=30, batch_size=20, learning_rate=0.05, generator=generator)
    assert record.losses[-1] < 0.9 * record.losses[0]


@pytest.mark.parametrize("num_outputs", [1, 3])
def test_the_gaussian_likelihood_of_gpytorch_equals_ours(num_outputs):
    theirs = gpytorch.likelihoods.GaussianLikelihood().double()
    theirs.noise = torch.tensor(0.3, dtype=torch.float64)
    ours = GaussianLikelihood(0.3)
    x, y, mean, variance = gaussian_case(num_outputs)
    difference = expected_log_likelihood(theirs, y, mean, variance, x) - expected_log_likelihood(ours, y, mean, variance, x)
    assert difference.abs().max() < 1e-12
    prior, posterior = measures(num_outputs)
    losses = [generalized_loss(prior, posterior, likelihood, x, y, num_data=7) for likelihood in (theirs, ours)]
    assert losses[0].item() == pytest.approx(losses[1].item(), abs=1e-11)


def test_the_softmax_likelihood_of_gpytorch_gives_one_value_a_row(generator):
    likelihood = gpytorch.likelihoods.SoftmaxLikelihood(num_classes=3, mixing_weights=False).double()
    x, _, mean, variance = gaussian_case(3)
    labels = torch.arange(len(x)) % 3
    # It draws from the global generator, the only one it knows.
    with torch.random.fork_rng(), gpytorch.settings.num_likelihood_samples(20_000):
        torch.manual_seed(0)
        value = expected_log_likelihood(likelihood, labels, mean, variance, x)
    f = mean + variance.sqrt() * torch.randn(20_000, 3, len(x), dtype=torch.float64, generator=generator)
    draws = f.log_softmax(1)[:, labels, torch.arange(len(x))]
    assert ((value - draws.mean(0)).abs() < 4 * draws.std(0) * math.sqrt(2 / 20_000)).all()


def test_equations_of_the_paper_hold_in_loops():
    rng = np.random.default_rng(0)
    mean, variance = torch.from_numpy(rng.standard_normal((4, 3))), torch.from_numpy(rng.uniform(0.1, 3, (4, 3)))
    y = torch.tensor([0, 3, 2])
    robust = RobustMaxLikelihood(4)
    for n in range(3):
        m, r = mean[:, n].numpy(), variance[:, n].numpy()
        expected = [reference.argmax_probability(m, r, j) for j in range(4)]
        np.testing.assert_allclose(robust.argmax_probabilities(mean, variance)[:, n].numpy(), expected, rtol=1e-8)
        ell = reference.multiclass_expected_log_likelihood(m, r, int(y[n]), 0.01)
        assert robust.expected_log_likelihood(y, mean, variance)[n].item() == pytest.approx(ell, rel=1e-8)
    x, target, noise = torch.zeros(3, 1, dtype=torch.float64), mean[:1] + 0.5, 0.2
    gaussian = GaussianLikelihood(noise)
    whole = reference.expected_log_likelihood(target[0].numpy(), mean[0].numpy(), variance[0].numpy(), noise)
    ours = gaussian.expected_log_likelihood(target, mean[:1], variance[:1], x)
    assert ours.sum().item() == pytest.approx(whole, rel=1e-10)
    for n in range(3):
        value = reference.negative_log_likelihood(target[0, n].item(), mean[0, n].item(), variance[0, n].item(), noise, 1.0)
        assert gaussian.nll(target, mean[:1], variance[:1], x)[n].item() == pytest.approx(value, rel=1e-10)
