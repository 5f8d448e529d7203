"""A fitted regressor behaves as a BoTorch model."""

import copy
import importlib
import sys

import numpy as np
import pytest
import torch
from botorch.acquisition import UpperConfidenceBound, qKnowledgeGradient, qLogExpectedImprovement, qLogNoisyExpectedImprovement
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.distributions import MultitaskMultivariateNormal
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import NotFittedError

import processes
from gwi import GWIRegressor
from gwi.botorch import BoTorchModel
from gwi.parts import Gaussian

pytestmark = pytest.mark.unchecked

F64 = torch.float64


def bump(x):
    """One hill at 0.7, a lower one at 0.2."""
    return torch.exp(-40 * (x[..., 0] - 0.7).square()) + 0.5 * torch.exp(-40 * (x[..., 0] - 0.2).square())


@pytest.fixture(scope="module")
def rows():
    return 3 * torch.rand(15, 2, dtype=F64, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def one(rows):
    """One target, far from standardised."""
    return GWIRegressor("svgp-all", random_state=0, likelihood=Gaussian("constant")).fit(rows, 100 + 10 * rows.sin().sum(1))


@pytest.fixture(scope="module")
def two(rows):
    noisy = rows.cos().sum(1) + 0.1 * torch.randn(len(rows), dtype=F64, generator=torch.Generator().manual_seed(1))
    return GWIRegressor("svgp-all", random_state=0).fit(rows, torch.stack([100 + 10 * rows.sin().sum(1), noisy], dim=1))


@pytest.fixture(scope="module")
def hills():
    x = torch.tensor([[0.0], [0.15], [0.35], [0.5], [0.85], [1.0]], dtype=F64)
    return x, bump(x), GWIRegressor("svgp-all", random_state=0, likelihood=Gaussian("constant")).fit(x, bump(x))


def batches(*shape):
    return 3 * torch.rand(*shape, dtype=F64, generator=torch.Generator().manual_seed(2))


def test_the_posterior_is_that_of_the_regressor(one):
    x = batches(4, 2)
    found, wanted = BoTorchModel(one).posterior(x), one.posterior(x)
    torch.testing.assert_close(found.mean[:, 0], wanted.mean)
    torch.testing.assert_close(found.mean[:, 0], one.predict(x))
    # To the jitter, in units of the target's variance.
    level = float(one.model_.scales.y_scale[0]) ** 2
    torch.testing.assert_close(found.distribution.covariance_matrix, wanted.covariance_matrix, rtol=1e-9, atol=2e-10 * level)
    untempered = one.decompose(x).epistemic / one.tempering_factor_[0]
    np.testing.assert_allclose(found.variance[:, 0], untempered, rtol=1e-6, atol=2e-10 * level)


def test_several_targets_are_independent_columns(two):
    model, x = BoTorchModel(two), batches(3, 4, 2)
    posterior, wanted = model.posterior(x), two.posterior(x)
    assert model.num_outputs == 2
    assert isinstance(posterior.distribution, MultitaskMultivariateNormal)
    assert posterior.mean.shape == posterior.variance.shape == (3, 4, 2)
    assert posterior.rsample(torch.Size([5])).shape == (5, 3, 4, 2)
    torch.testing.assert_close(posterior.mean.mT, wanted.mean)
    torch.testing.assert_close(posterior.mean[0], two.predict(x[0]))
    torch.testing.assert_close(posterior.variance.mT, wanted.variance, rtol=1e-6, atol=1e-9)
    by_target = posterior.distribution.covariance_matrix.reshape(3, 4, 2, 4, 2)
    torch.testing.assert_close(by_target[:, :, 1, :, 1], wanted.covariance_matrix[:, 1], rtol=1e-6, atol=1e-9)
    assert not by_target[:, :, 0, :, 1].any()


def test_one_of_several_targets_can_be_asked_for(two):
    model, x = BoTorchModel(two), batches(3, 4, 2)
    second = model.posterior(x, output_indices=[1])
    assert second.mean.shape == (3, 4, 1)
    torch.testing.assert_close(second.mean, model.posterior(x).mean[..., 1:])
    torch.testing.assert_close(second.variance, model.posterior(x).variance[..., 1:])
    swapped = model.posterior(x, output_indices=[1, 0])
    torch.testing.assert_close(swapped.mean, model.posterior(x).mean.flip(-1))


def test_a_column_of_targets_is_one_output(rows):
    regressor = GWIRegressor("svgp-all", random_state=0, likelihood=Gaussian("constant")).fit(
        rows, rows.sin().sum(1, keepdim=True)
    )
    model = BoTorchModel(regressor)
    assert model.num_outputs == 1
    torch.testing.assert_close(model.posterior(rows[:3]).mean, regressor.predict(rows[:3]))


@pytest.mark.parametrize("shape", [(), (5,), (2, 5)])
def test_batches_of_rows_are_treated_one_by_one(one, shape):
    model, x = BoTorchModel(one), batches(*shape, 3, 2)
    posterior = model.posterior(x)
    assert model.batch_shape == torch.Size()
    assert posterior.mean.shape == (*shape, 3, 1)
    assert posterior.distribution.covariance_matrix.shape == (*shape, 3, 3)
    last = (-1,) * len(shape)
    torch.testing.assert_close(posterior.mean[last], model.posterior(x[last]).mean)
    torch.testing.assert_close(posterior.variance[last], model.posterior(x[last]).variance)


@pytest.mark.parametrize("noise", [False, True])
def test_gradients_with_respect_to_rows_are_right(two, noise):
    model = BoTorchModel(two)

    def law(x):
        posterior = model.posterior(x, observation_noise=noise)
        return posterior.mean, posterior.distribution.covariance_matrix

    assert torch.autograd.gradcheck(law, batches(2, 2, 2).requires_grad_())


def test_a_network_has_gradients_too(rows):
    net = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).double()
    y = rows.sin().sum(1)
    model = BoTorchModel(GWIRegressor(net, random_state=0).fit(rows, y, validation=(rows + 0.01, y)))
    assert torch.autograd.gradcheck(lambda x: model.posterior(x).mean, batches(2, 1, 2).requires_grad_())


def test_observation_noise_is_that_of_the_regressor_untempered(one, two):
    x = batches(4, 2)
    for regressor in (one, two):
        model = BoTorchModel(regressor)
        added = model.posterior(x, observation_noise=True).variance - model.posterior(x).variance
        aleatoric = torch.as_tensor(regressor.decompose(x).aleatoric).reshape(4, -1) / torch.as_tensor(
            regressor.tempering_factor_
        )
        torch.testing.assert_close(added, aleatoric, rtol=1e-5, atol=1e-9)


def test_noise_that_depends_on_the_row_follows_the_rows_of_a_batch():
    x = torch.rand(80, 1, dtype=F64, generator=torch.Generator().manual_seed(3))
    noise = (0.02 + x[:, 0]) * torch.randn(80, dtype=F64, generator=torch.Generator().manual_seed(4))
    regressor = GWIRegressor("svgp-all", random_state=0, likelihood=Gaussian("input-dependent")).fit(x, x[:, 0] + noise)
    model, grid = BoTorchModel(regressor), torch.linspace(0, 1, 6, dtype=F64)[:, None]
    added = (
        model.posterior(grid.reshape(2, 3, 1), observation_noise=True).variance - model.posterior(grid.reshape(2, 3, 1)).variance
    )
    aleatoric = torch.as_tensor(regressor.decompose(grid).aleatoric)
    torch.testing.assert_close(added.reshape(-1) * regressor.tempering_factor_[0], aleatoric)
    assert added[1, 2, 0] > 5 * added[0, 0, 0]


def test_known_noise_variances_can_be_given(two):
    model, x = BoTorchModel(two), batches(3, 4, 2)
    given = torch.tensor([[0.5, 2.0]], dtype=F64)
    added = model.posterior(x, observation_noise=given).variance - model.posterior(x).variance
    torch.testing.assert_close(added, given.expand(3, 4, 2))


def test_equal_rows_and_measured_rows_can_be_sampled(one, rows):
    x = torch.cat([rows, rows[:3], rows[:3] + 1e-9])
    draws = BoTorchModel(one).posterior(x).rsample(torch.Size([8]))
    assert draws.isfinite().all()
    assert (draws[:, 0] - draws[:, len(rows)]).abs().max() < 1e-3


@pytest.mark.filterwarnings("error::linear_operator.utils.warnings.NumericalWarning")
@pytest.mark.parametrize("unit", [1e-5, 1e8])
def test_targets_of_any_size_can_be_sampled(rows, unit):
    regressor = GWIRegressor("svgp-all", random_state=0, likelihood=Gaussian("constant")).fit(rows, unit * rows.sin().sum(1))
    x = torch.cat([rows, rows]).requires_grad_()
    draws = BoTorchModel(regressor).posterior(x).rsample(torch.Size([8]))
    (gradient,) = torch.autograd.grad(draws.sum() / unit, x)
    assert draws.isfinite().all()
    assert gradient.isfinite().all()


def test_a_scalarised_posterior_is_the_weighted_sum(two):
    model, x = BoTorchModel(two), batches(3, 1, 2)
    weights = torch.tensor([0.2, 3.0], dtype=F64)
    scalar = model.posterior(x, posterior_transform=ScalarizedPosteriorTransform(weights))
    torch.testing.assert_close(scalar.mean[..., 0], model.posterior(x).mean @ weights)
    torch.testing.assert_close(scalar.variance[..., 0], model.posterior(x).variance @ weights.square())


def acquisitions(x, y, model):
    return {
        "qLogEI": qLogExpectedImprovement(model, best_f=y.max()),
        "qLogNEI": qLogNoisyExpectedImprovement(model, X_baseline=x),
        "UCB": UpperConfidenceBound(model, beta=4.0),
    }


@pytest.mark.parametrize("name", ["qLogEI", "qLogNEI", "UCB"])
def test_the_proposed_point_is_inside_and_better_than_random(hills, name):
    torch.manual_seed(0)
    x, y, regressor = hills
    acquisition = acquisitions(x, y, BoTorchModel(regressor))[name]
    bounds = torch.tensor([[0.0], [1.0]], dtype=F64)
    point, value = optimize_acqf(acquisition, bounds, q=1, num_restarts=3, raw_samples=32)
    assert point.shape == (1, 1)
    assert 0 <= point.item() <= 1
    random = torch.rand(200, 1, 1, dtype=F64, generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        # Of two hundred points on a line one may come as close to the top as the optimiser stops.
        assert value >= acquisition(random).max() - 1e-3
    assert bump(point).item() > max(y.max().item(), bump(random[:, 0]).mean().item())


def test_two_points_at_once_are_two_different_ones(hills):
    torch.manual_seed(0)
    _, y, regressor = hills
    bounds = torch.tensor([[0.0], [1.0]], dtype=F64)
    acquisition = qLogExpectedImprovement(BoTorchModel(regressor), best_f=y.max())
    points, _ = optimize_acqf(acquisition, bounds, q=2, num_restarts=3, raw_samples=32)
    assert points.shape == (2, 1)
    assert (points[0] - points[1]).abs() > 1e-3


def test_unfitted_regressors_are_refused():
    with pytest.raises(NotFittedError, match=r"call its fit\(X, y\) first"):
        BoTorchModel(GWIRegressor())


@pytest.mark.parametrize("kind", ["boosting", "function"])
def test_means_without_gradients_are_refused_with_those_that_have_them(rows, kind):
    y = rows.sum(1)
    if kind == "boosting":
        regressor = GWIRegressor(HistGradientBoostingRegressor(max_iter=5), random_state=0).fit(rows, y)
    else:
        regressor = GWIRegressor(lambda x: x[:, 0], random_state=0).fit(rows, y, validation=(rows + 0.1, y))
    with pytest.raises(ValueError, match='mean="svgp-all"'):
        BoTorchModel(regressor)


def test_rows_with_other_features_are_refused(one):
    with pytest.raises(ValueError, match="2 features; the rows have 3"):
        BoTorchModel(one).posterior(batches(4, 3))


def test_botorch_is_imported_only_when_asked_for():
    script = "import sys, gwi; assert not any(name.split('.')[0] == 'botorch' for name in sys.modules)"
    processes.run(["-c", script], check=True)


def test_a_missing_botorch_is_named_with_its_remedy(monkeypatch):
    monkeypatch.delitem(sys.modules, "gwi.botorch")
    for name in ("botorch", "botorch.models.model"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"pip install 'gwi\[botorch\]'"):
        importlib.import_module("gwi.botorch")


def test_conditioning_is_an_update_and_leaves_the_regressor_alone(rows, two):
    model, new, grid = BoTorchModel(two), batches(5, 2), batches(4, 2) + 1
    y = torch.stack([120 + new[:, 0], new[:, 1]], dim=1)
    before = model.posterior(grid).mean
    once = model.condition_on_observations(new, y)
    twice = model.condition_on_observations(new[:2], y[:2]).condition_on_observations(new[2:], y[2:])
    updated = BoTorchModel(copy.deepcopy(two).update(new, y)).posterior(grid)
    for found in (once.posterior(grid), twice.posterior(grid)):
        torch.testing.assert_close(found.mean, updated.mean, rtol=1e-7, atol=1e-7)
        torch.testing.assert_close(found.variance, updated.variance, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(model.posterior(grid).mean, before)
    with pytest.raises(ValueError, match=r"one row for each of the 5 rows and 2 column\(s\)"):
        model.condition_on_observations(new, y[:, :1])


def test_fantasies_are_observations_in_batches_and_optimise(hills):
    _, _, regressor = hills
    model, candidates = BoTorchModel(regressor), torch.rand(3, 2, 1, dtype=F64)
    fantasy = model.fantasize(candidates, SobolQMCNormalSampler(torch.Size([4]), seed=0))
    assert fantasy.batch_shape == (4, 3)
    grid = torch.linspace(0, 1, 5, dtype=F64)[:, None]
    found = fantasy.posterior(grid)
    assert found.mean.shape == (4, 3, 5, 1)
    seen, values, noise = fantasy.observed
    alone = model.condition_on_observations(seen[2, 1], values[2, 1], noise[2, 1]).posterior(grid)
    torch.testing.assert_close(found.mean[2, 1], alone.mean, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(found.variance[2, 1], alone.variance, rtol=1e-6, atol=1e-9)
    assert (found.variance <= model.posterior(grid).variance + 1e-9).all()
    gain = qKnowledgeGradient(model, num_fantasies=4)
    bounds = torch.tensor([[0.0], [1.0]], dtype=F64)
    best, value = optimize_acqf(gain, bounds, q=1, num_restarts=2, raw_samples=8, options={"maxiter": 5})
    assert 0 <= best.item() <= 1
    assert torch.isfinite(value)
