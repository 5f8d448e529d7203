"""The paper's protocol: its objective to the digit, its split, its choice of M, and what they lead to."""

import math
from functools import partial

import pytest
import torch
from benchmarks.tables.uci.data import standardise
from sklearn.datasets import load_diabetes

from gwi.core.covariance import covariance_objective, covariance_problem, paper_initial_covariance, wasserstein_covariance
from gwi.core.divergences import wasserstein_squared_two_sample
from gwi.core.kernels import SparsePosteriorKernel, default_kernel
from gwi.core.likelihoods.gaussian import GaussianLikelihood
from gwi.core.measures import GaussianMeasure, kernel_variance
from gwi.core.objectives import generalized_loss
from gwi.core.prior import fit_prior
from gwi.fitting import paper
from gwi.fitting.paper import batch_loss, fit_paper, initial_posterior, paper_num_inducing, train_posterior

pytestmark = pytest.mark.unchecked

F64 = torch.float64
KINDS = ("network", "svgp")


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def wave(num_rows=108, noise_std=0.2, seed=1):
    generator = seeded(seed)
    x = torch.randn(num_rows, 2, dtype=F64, generator=generator)
    f = torch.sin(2 * x[:, 0]) + 0.5 * x[:, 1]
    y = f + noise_std * torch.randn(num_rows, dtype=F64, generator=generator)
    return standardise(x), standardise(y[:, None])[:, 0]


X, Y = wave()


@pytest.fixture(scope="module", params=KINDS)
def fitted(request):
    """A kind, its fit, and the mean and variance of Y on the validation rows."""
    fit = fit_paper(X, Y, request.param, num_epochs=40, generator=seeded())
    mean, variance = fit.posterior.marginals(X[fit.validation_rows])
    return request.param, fit, mean[0], variance[0] + fit.noise_variance


def rows_of(points, table):
    """The index of each point in a table, −1 where it is not there."""
    same = (points[:, None] == table).all(-1)
    return torch.where(same.any(1), same.double().argmax(1), -1)


@pytest.mark.parametrize("kind", KINDS)
def test_the_batch_loss_is_the_generalized_loss_with_the_papers_estimate(kind):
    q, noise = initial_posterior(X, Y, kind, 20, batch_size=1000, jitter=1e-6, generator=seeded())
    points = torch.cat([X[:50], X[60:90]])
    prior = GaussianMeasure(None, q.kernel.prior_kernel)
    divergence = partial(wasserstein_squared_two_sample, comparison_points=points[50:])
    parameters = [p for p in q.parameters() if p.requires_grad]

    fast = batch_loss(q, noise, points, q.kernel.features(points), Y[:50], num_data=108)
    slow = generalized_loss(prior, q, GaussianLikelihood(noise), X[:50], Y[:50], num_data=108, divergence=divergence)
    # Eigenvalues at the rounding error, 1e-16, enter through their roots, 1e-8.
    assert fast.item() == pytest.approx(slow.item(), abs=1e-6)
    for got, want in zip(torch.autograd.grad(fast, parameters), torch.autograd.grad(slow, parameters), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-7 * want.abs().max().item())


@pytest.mark.parametrize("kind", KINDS)
def test_the_estimate_of_the_distance_is_part_of_the_loss(kind):
    # At σ² = 10⁶ the likelihood says nothing, and training reduces Ŵ² alone: the mean goes to the prior's.
    q, _ = initial_posterior(X, Y, kind, 10, batch_size=1000, jitter=1e-6, generator=seeded())
    prior = GaussianMeasure(None, q.kernel.prior_kernel)
    q.kernel.whitened_factor.data *= 0.1
    # A network starts near zero, by chance; the kernel mean at the targets.
    start = max(float(q.mean_at(X).square().mean()), 0.1)
    before = wasserstein_squared_two_sample(prior, q, X, X[:50]).item()
    train_posterior(q, 1e6, X, Y, num_epochs=80, batch_size=108, num_comparison_points=50, learning_rate=0.02, generator=seeded())
    assert wasserstein_squared_two_sample(prior, q, X, X[:50]).item() < before - 0.1
    assert q.mean_at(X).square().mean() < 0.1 * start


def test_the_numbers_of_inducing_points_are_the_papers_multiples_of_the_root():
    assert paper_num_inducing(400, "network") == (10, 20, 30, 40)
    assert paper_num_inducing(400, "svgp") == (20, 40, 60, 80, 100)
    assert paper_num_inducing(9, "svgp") == (3, 6, 9)
    assert paper_num_inducing(1, "network") == (1,)


def test_the_chosen_number_of_inducing_points_has_the_lowest_validation_nll(fitted):
    kind, fit, _, _ = fitted
    assert tuple(fit.validation_nll) == tuple(fit.seconds) == paper_num_inducing(96, kind)
    assert fit.num_inducing == min(fit.validation_nll, key=fit.validation_nll.get)
    assert fit.num_inducing == len(fit.posterior.kernel.inducing_points)


def test_one_row_in_nine_validates_and_no_inducing_point_starts_there(fitted):
    kind, fit, _, _ = fitted
    assert len(fit.validation_rows) == len(set(fit.validation_rows.tolist())) == 12
    if kind == "network":
        chosen = rows_of(fit.posterior.kernel.inducing_points, X)
        assert not set(chosen.tolist()) & set(fit.validation_rows.tolist())


def test_inducing_points_are_rows_for_the_network_and_learned_for_svgp(fitted):
    kind, fit, _, _ = fitted
    z, rows = fit.posterior.kernel.inducing_points, rows_of(fit.posterior.kernel.inducing_points, X)
    if kind == "network":
        assert len(set(rows.tolist())) == len(z)
        assert -1 not in rows
    else:
        assert (rows == -1).all()
        assert torch.cdist(z, X).min(1).values.median() < 0.5
        assert fit.posterior.mean.inducing_points is z


def test_prior_and_noise_are_those_of_the_pairs_at_the_inducing_points(fitted):
    kind, fit, _, _ = fitted
    if kind == "svgp":
        fit = fit_paper(X, Y, kind, num_inducing=[15], num_epochs=1, learning_rate=1e-12, generator=seeded())
    z = fit.posterior.kernel.inducing_points
    rows = torch.cdist(z, X).argmin(1)
    expected = fit_prior(default_kernel(2, hyper_priors=False), X[rows], Y[rows], objective="marginal", jitter=1e-6)
    assert fit.noise_variance == expected.noise_variance
    for got, want in zip(fit.posterior.kernel.prior_kernel.parameters(), expected.kernel.parameters(), strict=True):
        assert torch.equal(got, want)


def test_the_covariance_starts_at_the_papers_and_the_mean_at_the_optimum():
    q, noise = initial_posterior(X, Y, "svgp", 15, batch_size=1000, jitter=1e-6, generator=seeded())
    expected = paper_initial_covariance(q.kernel.prior_kernel, q.kernel.inducing_points, X, noise, len(X), jitter=1e-6)
    torch.testing.assert_close(q.kernel.whitened_covariance[0], expected, rtol=0, atol=1e-12)

    # No other mean in the span has a lower Σ (y − m)²/2σ² + ‖m‖²: the gradient is zero.
    v = q.mean.whitened_coefficients.detach().requires_grad_(True)
    m = v @ q.kernel.features(X).detach()
    loss = (Y - m).square().sum() / (2 * noise) + m.square().mean()
    (gradient,) = torch.autograd.grad(loss, v)
    assert gradient.abs().max() < 1e-6 * loss


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_fit_and_leaves_the_global_random_state_alone(kind):
    before = torch.get_rng_state()
    settings = {"num_epochs": 5, "num_inducing": [8, 12]}
    first, second, other = (fit_paper(X, Y, kind, **settings, generator=seeded(seed)) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert first.validation_nll == second.validation_nll != other.validation_nll
    for a, b in zip(first.posterior.marginals(X), second.posterior.marginals(X), strict=True):
        assert torch.equal(a, b)


def test_far_from_the_data_the_variance_is_the_priors(fitted):
    _, fit, _, _ = fitted
    far = torch.full((1, 2), 1e4, dtype=F64)
    _, variance = fit.posterior.marginals(far)
    k = kernel_variance(fit.posterior.kernel.prior_kernel, far)
    torch.testing.assert_close(variance[0], k, rtol=1e-10, atol=0)
    assert fit.posterior.marginals(X)[1].mean() < 0.6 * k.item()


def test_tempering_is_the_closed_form_on_the_validation_rows(fitted):
    _, fit, mean, variance = fitted
    residuals = Y[fit.validation_rows] - mean
    best = (residuals.square() / variance).mean().item()
    assert fit.unbounded_tempering_factor == pytest.approx(best, rel=1e-12)
    assert fit.tempering_factor == min(fit.unbounded_tempering_factor, 1.0)
    law = torch.distributions.Normal(mean, (fit.tempering_factor * variance).sqrt())
    nll = -law.log_prob(Y[fit.validation_rows]).mean().item()
    assert fit.validation_nll[fit.num_inducing] == pytest.approx(nll, rel=1e-12)


def test_tempering_may_only_shrink_unless_its_bound_is_raised():
    # Ten pairs hardly constrain three hyper-parameters: the noise they suggest is far too small, and α_T wants to be above one.
    settings = {"num_inducing": [10], "num_epochs": 20}
    bounded = fit_paper(X, Y, "network", **settings, generator=seeded(2))
    free = fit_paper(X, Y, "network", **settings, max_tempering_factor=math.inf, generator=seeded(2))
    assert bounded.tempering_factor == 1.0
    assert free.tempering_factor == bounded.unbounded_tempering_factor > 1
    assert free.validation_nll[10] < bounded.validation_nll[10]


def test_the_generalized_loss_falls(fitted):
    _, fit, _, _ = fitted
    assert len(fit.losses) == 40
    assert fit.losses[-1] < min(fit.losses[0], fit.losses[20])


def test_nothing_of_the_posterior_asks_for_gradients(fitted):
    _, fit, _, _ = fitted
    assert not any(p.requires_grad for p in fit.posterior.parameters())


def test_training_takes_the_in_span_variance_towards_the_optimum_which_is_zero():
    x, y = wave(150)
    noise = 0.04
    q, _ = initial_posterior(x, y, "network", 25, batch_size=1000, jitter=1e-6, generator=seeded())
    z = x[:25]
    k = default_kernel(2, lengthscale=1.5).requires_grad_(False)
    q = GaussianMeasure(q.mean, SparsePosteriorKernel(k, z, paper_initial_covariance(k, z, x, noise, 150)[None]))
    q.kernel.whitened_factor.requires_grad_(True)
    problem = covariance_problem(k, z, x, noise_variance=noise, num_data=150, divergence_weight=1.0)
    optimum = wasserstein_covariance(problem)
    assert optimum.whitened_covariance.abs().max() < 1e-6

    def gap():
        return covariance_objective(problem, q.kernel.whitened_factor[0].detach()).item() - optimum.objective

    def in_span():
        return (q.kernel.whitened_factor[0].mT @ problem.features).square().sum(0).mean().item()

    before, spread = gap(), in_span()
    train_posterior(
        q, noise, x, y, num_epochs=300, batch_size=150, num_comparison_points=50, learning_rate=0.01, generator=seeded()
    )
    assert gap() < 0.005 * before
    assert in_span() < 0.005 * spread


def test_the_bound_on_steps_shortens_the_training_of_each_number_of_inducing_points(monkeypatch):
    sizes, epochs = [], []
    train = paper.train

    def spy(*args, batch_size, **kwargs):
        sizes.append(batch_size)
        return train(*args, batch_size=batch_size, **kwargs)

    monkeypatch.setattr(paper, "train", spy)
    settings = {"num_inducing": [9, 5], "batch_size": 50, "on_epoch": lambda m, epoch, loss: epochs.append((m, epoch))}
    fit = fit_paper(X, Y, "network", max_steps=7, generator=seeded(), **settings)
    # 96 training rows are two batches of 48, not of 50 and 46; seven steps are three epochs.
    assert sizes == [48, 48]
    assert epochs == [(m, epoch) for m in (5, 9) for epoch in range(3)]
    assert len(fit.losses) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_real_table_is_predicted_better_than_by_its_mean(kind):
    table = load_diabetes()
    x, y = standardise(torch.from_numpy(table.data)), standardise(torch.from_numpy(table.target)[:, None])[:, 0]
    fit = fit_paper(x[:360], y[:360], kind, num_epochs=100, num_inducing=[36], generator=seeded())
    assert (y[360:] - fit.posterior.mean_at(x[360:])[0]).square().mean() < 0.75 * y[360:].square().mean()


def test_impossible_requests_are_refused_in_one_sentence():
    with pytest.raises(ValueError, match=r"needs at least 9 rows, one of them for validation; got 8\."):
        fit_paper(X[:8], Y[:8], "network", generator=seeded())
    with pytest.raises(ValueError, match=r"between 1 and the 96 training rows; got \[10, 97\]"):
        fit_paper(X, Y, "network", num_inducing=[97, 10], generator=seeded())
    for x, y in ((X, Y * 0), (X * 0, Y)):
        with pytest.raises(ValueError, match=r"no scale to learn when all rows, or all targets, are equal\."):
            fit_paper(x, y, "network", generator=seeded())
    with pytest.raises(ValueError, match=r"between 1 and the 96 training rows; got \[\]"):
        fit_paper(X, Y, "network", num_inducing=[], generator=seeded())


def test_nine_rows_are_enough():
    fit = fit_paper(X[:9], Y[:9], "svgp", num_epochs=3, generator=seeded())
    assert len(fit.validation_rows) == 1
    assert math.isfinite(min(fit.validation_nll.values()))
