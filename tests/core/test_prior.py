"""Fitting the prior finds what made the data, and says so."""

import contextlib
import math

import gpytorch
import pytest
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from gwi.core.inducing import choose_inducing_points
from gwi.core.kernels import default_kernel
from gwi.core.linalg import cholesky
from gwi.core.measures import kernel_matrix
from gwi.core.prior import _lengthscales_with_least, collapsed_bound, fit_prior, log_marginal_likelihood
from gwi.core.rbf_evidence import RBFEvidence, rbf_parts
from gwi.core.training import minimize_lbfgs
from gwi.exceptions import NotPositiveDefiniteError

F64 = torch.float64


def drawn_from_prior(num=300, lengthscale=0.7, noise=0.05, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num, 2, dtype=F64, generator=generator)
    kernel = default_kernel(2, lengthscale=torch.tensor([lengthscale, 3 * lengthscale], dtype=F64))
    root = cholesky(kernel_matrix(kernel, x).detach(), jitter=1e-10).factor
    f = root @ torch.randn(num, dtype=F64, generator=generator)
    return x, (f + math.sqrt(noise) * torch.randn(num, dtype=F64, generator=generator))[None]


@pytest.mark.parametrize("objective", ["collapsed", "marginal"])
def test_hyper_parameters_that_made_the_data_are_found(objective):
    x, y = drawn_from_prior()
    z = choose_inducing_points(x, 100, "kmeans", generator=torch.Generator().manual_seed(0))
    fit = fit_prior(default_kernel(2), x, y, objective=objective, inducing_points=z)
    assert fit.converged
    assert fit.noise_variance == pytest.approx(0.05, rel=0.25)
    assert fit.kernel.base_kernel.lengthscale.detach()[0].tolist() == pytest.approx([0.7, 2.1], rel=0.3)


def test_marginal_likelihood_reached_is_scikit_learns():
    x, y = drawn_from_prior(120)
    fit = fit_prior(default_kernel(2, hyper_priors=False), x, y, objective="marginal", jitter=0.0)
    kernel = ConstantKernel(1.0) * RBF([1.4, 1.4]) + WhiteKernel(0.1)
    theirs = GaussianProcessRegressor(kernel, random_state=0, n_restarts_optimizer=2).fit(x.numpy(), y[0].numpy())
    assert fit.log_evidence == pytest.approx(theirs.log_marginal_likelihood_value_, abs=1e-2)


@pytest.mark.parametrize("ard", [True, False])
@pytest.mark.parametrize("of_each_row", [True, False])
def test_the_closed_form_of_the_evidence_and_its_gradients_are_those_of_differentiation(ard, of_each_row):
    x, y = drawn_from_prior(80)
    y = torch.cat([y, y.flip(1)])
    kernel = default_kernel(2, ard=ard, lengthscale=0.4, outputscale=1.7)
    noise = torch.linspace(0.02, 0.2, 80, dtype=F64) if of_each_row else torch.tensor(0.05, dtype=F64)
    parameters = [*kernel.parameters(), noise.requires_grad_()]
    rows, lengthscale, outputscale = rbf_parts(kernel, x)
    closed = RBFEvidence.apply(rows, y, lengthscale, outputscale, noise, 1e-8)
    slow = log_marginal_likelihood(kernel, x, y, noise, jitter=1e-8).sum()
    assert float(closed.detach()) == pytest.approx(float(slow.detach()), rel=1e-12)
    for ours, theirs in zip(*(torch.autograd.grad(value, parameters) for value in (closed, slow)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_the_closed_form_is_of_the_squared_exponential_of_all_columns_only():
    x, _ = drawn_from_prior(20)
    assert rbf_parts(default_kernel(2), x) is not None
    some = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(active_dims=[0]))
    for kernel in (default_kernel(2, shape=gpytorch.kernels.MaternKernel), some, some.base_kernel):
        assert rbf_parts(kernel.double(), x) is None
    # Rows so far from each other that a matrix product would lose their distances.
    assert rbf_parts(default_kernel(2, lengthscale=1e-4), x) is None


def test_a_search_does_not_stay_where_a_lengthscale_is_too_short_for_the_values_of_its_column_to_tell():
    """Evidence is flat below their distance, and values in between would be as strange as from another world."""
    rng = torch.Generator().manual_seed(0)
    x = torch.stack([torch.randn(150, dtype=F64, generator=rng), torch.randint(0, 12, (150,), generator=rng) / 4.0], dim=1)
    y = (2 * x[:, 0]).sin()[None] + 0.1 * torch.randn(1, 150, dtype=F64, generator=rng)
    kernel = default_kernel(2, hyper_priors=False)
    ((raw, least),) = _lengthscales_with_least(kernel, x)
    assert raw is kernel.base_kernel.raw_lengthscale
    assert float(least[1].exp()) == pytest.approx(0.125)
    assert float(least[0].exp()) < 0.02

    def reached(short):
        start = default_kernel(2, lengthscale=torch.tensor([1.0, short], dtype=F64), hyper_priors=False)
        return float(fit_prior(start, x, y, objective="marginal").kernel.base_kernel.lengthscale.detach()[0, 1])

    # The column does not count: from where it can be told, the search finds so; from below, it is what somebody wants.
    assert reached(0.2) > 3.0
    assert reached(0.02) == pytest.approx(0.02, rel=0.5)


def test_the_lengthscale_of_a_column_with_one_value_is_what_its_hyper_prior_wants():
    """A search ends when nothing is gained: it would leave the length-scale, and how strange another value is, to chance."""
    x, y = drawn_from_prior(60)
    rows = torch.cat([x, torch.full((60, 1), 7.0, dtype=F64)], dim=1)
    fit = fit_prior(default_kernel(3), rows, y, objective="marginal", max_iterations=3)
    assert float(fit.kernel.base_kernel.lengthscale.detach()[0, 2]) == pytest.approx(math.exp(2**0.5 - 3) * 3**0.5, rel=1e-6)


def test_learned_inducing_points_improve_the_bound_and_fixed_ones_stay():
    x, y = drawn_from_prior()
    z = choose_inducing_points(x, 15, "random", generator=torch.Generator().manual_seed(0))
    fixed = fit_prior(default_kernel(2), x, y, inducing_points=z)
    learned = fit_prior(default_kernel(2), x, y, inducing_points=z, learn_inducing_points=True)
    assert torch.equal(fixed.inducing_points, z)
    assert learned.log_evidence > fixed.log_evidence + 1


def test_kernel_passed_in_is_left_as_it_was_and_the_record_is_consistent():
    x, y = drawn_from_prior(150)
    kernel, z = default_kernel(2, hyper_priors=False), x[:20]
    before = [p.clone() for p in kernel.parameters()]
    steps = []
    fit = fit_prior(kernel, x, y, inducing_points=z, on_step=lambda step, value: steps.append(value))
    assert all(torch.equal(a, b) for a, b in zip(before, kernel.parameters(), strict=True))
    again = collapsed_bound(fit.kernel, z, x, y, fit.noise_variance, jitter=1e-8).item()
    assert fit.log_evidence == pytest.approx(again, rel=1e-9)
    assert len(steps) == fit.num_iterations
    assert steps[-1] == pytest.approx(fit.log_evidence)


def test_registered_priors_are_added_and_hold_the_outputscale():
    x, _y = drawn_from_prior(150)
    trend = (10 * x[:, 0])[None]
    trend = (trend - trend.mean()) / trend.std()
    z = choose_inducing_points(x, 10, "kmeans", generator=torch.Generator().manual_seed(0))
    free, held = (fit_prior(default_kernel(2, hyper_priors=flag), x, trend, inducing_points=z) for flag in (False, True))
    assert held.kernel.outputscale.item() < free.kernel.outputscale.item()


@pytest.mark.parametrize(
    "kernel",
    [
        gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=1.5, ard_num_dims=2)),
        gpytorch.kernels.ScaleKernel(gpytorch.kernels.RQKernel()),
        gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()) + gpytorch.kernels.LinearKernel(),
        gpytorch.kernels.ScaleKernel(gpytorch.kernels.PeriodicKernel()),
    ],
    ids=["matern", "rational quadratic", "sum", "periodic"],
)
def test_any_gpytorch_kernel_can_be_fitted(kernel):
    x, y = drawn_from_prior(150)
    z = choose_inducing_points(x, 30, "kmeans", generator=torch.Generator().manual_seed(0))
    start = collapsed_bound(kernel.double(), z, x, y, 0.1, jitter=1e-8).item()
    assert fit_prior(kernel.double(), x, y, inducing_points=z, max_iterations=30).log_evidence > start


def test_noiseless_and_duplicated_data_do_not_break_the_fit():
    x, _ = drawn_from_prior(60)
    x = x.repeat(3, 1)
    y = torch.sin(x[:, 0])[None]
    z = choose_inducing_points(x, 40, "kmeans", generator=torch.Generator().manual_seed(0))
    fit = fit_prior(default_kernel(2), x, y, inducing_points=z)
    assert 0 < fit.noise_variance < 1e-3
    assert math.isfinite(fit.log_evidence)


def test_data_that_cannot_be_evaluated_are_an_error_not_a_result():
    x, y = drawn_from_prior(30)
    with pytest.raises(NotPositiveDefiniteError, match="NaN"):
        fit_prior(default_kernel(2), x * float("nan"), y, objective="marginal")
    with pytest.raises(NotPositiveDefiniteError, match=r"not finite|infinity"):
        fit_prior(default_kernel(2), x, y * float("inf"), objective="marginal")


def test_collapsed_bound_without_inducing_points_says_what_to_do():
    x, y = drawn_from_prior(30)
    with pytest.raises(ValueError, match="choose_inducing_points"):
        fit_prior(default_kernel(2), x, y)


def test_lbfgs_comes_back_from_a_step_into_nowhere():
    value = torch.tensor(3.0, dtype=F64, requires_grad=True)

    def objective():
        if value.item() < 0.5:
            raise NotPositiveDefiniteError("beyond the edge")
        return (value - 0.6).square() + 0 * value.log()

    result = minimize_lbfgs(objective, [value])
    assert result.value == pytest.approx(0.0, abs=1e-4)
    assert value.item() == pytest.approx(0.6, abs=1e-2)


def test_paper_choice_is_the_marginal_likelihood_of_the_inducing_pairs():
    x, y = drawn_from_prior(200)
    pairs = torch.randperm(200, generator=torch.Generator().manual_seed(0))[:40]
    fit = fit_prior(default_kernel(2, hyper_priors=False), x[pairs], y[:, pairs], objective="marginal")
    expected = log_marginal_likelihood(fit.kernel, x[pairs], y[:, pairs], fit.noise_variance, jitter=1e-8).item()
    assert fit.log_evidence == pytest.approx(expected, rel=1e-9)


def test_a_row_with_weight_two_is_the_same_row_twice():
    x, y = drawn_from_prior(40)
    weight = torch.ones(40, dtype=F64)
    weight[:10] = 2
    once = fit_prior(default_kernel(2), x, y, objective="marginal", sample_weight=weight, jitter=1e-10)
    rows = torch.cat([torch.arange(40), torch.arange(10)])
    twice = fit_prior(default_kernel(2), x[rows], y[:, rows], objective="marginal", jitter=1e-10)
    assert once.log_evidence == pytest.approx(twice.log_evidence, rel=1e-6)
    assert once.noise_variance == pytest.approx(twice.noise_variance, rel=1e-2)


@pytest.mark.parametrize("end", [0, 1])
def test_no_point_that_the_optimiser_may_try_is_outside_a_hyper_priors_support(monkeypatch, end):
    x = torch.linspace(-1, 1, 12, dtype=F64)[:, None].expand(12, 2)

    def at_the_bounds(objective, parameters, *, bounds, **_):
        with torch.no_grad():
            ends = torch.tensor([(-1e4, 1e4)[end] if pair[end] is None else pair[end] for pair in bounds], dtype=F64)
            for p, part in zip(parameters, ends.split([p.numel() for p in parameters]), strict=True):
                p.copy_(part.reshape(p.shape))
        # What minimize_lbfgs comes back from: an error of linear algebra, or a value that is not finite.
        with contextlib.suppress(NotPositiveDefiniteError):
            objective()
        raise StopIteration

    monkeypatch.setattr("gwi.core.prior.minimize_lbfgs", at_the_bounds)
    with pytest.raises(StopIteration):
        fit_prior(default_kernel(2), x, x[:, :1].mT.clone(), objective="marginal")


@pytest.mark.parametrize("objective", ["collapsed", "marginal"])
@pytest.mark.parametrize("weighted", [False, True])
def test_each_target_can_have_its_own_noise(objective, weighted):
    x, y = drawn_from_prior(150, noise=1e-4)
    noise = torch.randn(150, dtype=F64, generator=torch.Generator().manual_seed(1))
    both = torch.cat([y, y + 0.7 * noise])
    weight = torch.full((150,), 2.0, dtype=F64) if weighted else None
    options = {"objective": objective, "inducing_points": x[:100], "sample_weight": weight}
    fit = fit_prior(default_kernel(2), x, both, noise_of_each=True, **options)
    assert fit.noise_variances[0] < 0.01
    assert float(fit.noise_variances[1]) == pytest.approx(0.49, rel=0.3)
    assert fit.noise_variance == pytest.approx(float(fit.noise_variances.mean()))
    # One σ² for both would be too small for the one and too large for the other.
    shared = fit_prior(default_kernel(2), x, both, **options)
    assert shared.noise_variances is None
    assert fit.log_evidence > shared.log_evidence + 10


def test_one_target_with_its_own_noise_is_the_same_fit():
    x, y = drawn_from_prior(100)
    one, other = (fit_prior(default_kernel(2), x, y, objective="marginal", noise_of_each=each) for each in (False, True))
    assert one.log_evidence == pytest.approx(other.log_evidence, abs=1e-6)
    assert one.noise_variance == pytest.approx(other.noise_variance, rel=1e-4)
