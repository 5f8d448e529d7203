"""`divergence=` and `prior_mean=`: KL is finite where it is offered, W₂ is, means fall back to the prior's."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression

from gwi import Covariance, GWIClassifier, GWIRegressor, load
from gwi.core.covariance import covariance_objective, covariance_problem, wasserstein_covariance
from gwi.core.divergences import kl_divergence, wasserstein
from gwi.core.kernels import SparsePosteriorKernel
from gwi.core.linalg import positive_semidefinite_factor
from gwi.core.means import ConstantMean, KernelMean
from gwi.core.measures import GaussianMeasure
from gwi.exceptions import GWIWarning

pytestmark = pytest.mark.unchecked


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(90, 2))
    return X, np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.2 * rng.standard_normal(90)


def regressor(**options):
    return GWIRegressor("svgp", likelihood="gaussian", random_state=0, **options)


def test_kl_of_what_was_fitted_is_finite_and_w2_of_a_network_is_not_refused(table):
    model = regressor(divergence="kl", covariance=Covariance(num_inducing=25)).fit(*table)
    q = model.posterior_
    assert torch.equal(q.mean.inducing_points, q.kernel.inducing_points)
    lengths = [part.prior_kernel.base_kernel.lengthscale for part in (q.mean, q.kernel)]
    assert torch.equal(*lengths)
    # The same measures, written with one kernel: the divergence is a number.
    prior = GaussianMeasure(ConstantMean(torch.zeros(1, dtype=torch.float64)), q.kernel.prior_kernel)
    mean = KernelMean(prior.kernel, q.kernel.inducing_points, q.mean.whitened_coefficients, prior_mean=prior.mean)
    assert 0 < float(kl_divergence(prior, GaussianMeasure(mean, q.kernel)).detach()) < np.inf


@pytest.mark.parametrize("mean", [["svgp", "network"], "linear", LinearRegression()])
def test_kl_is_refused_with_the_reason_for_other_means(table, mean):
    with pytest.raises(ValueError, match=r"KL\(Q, P\) is infinite for the mean .*any mean"):
        GWIRegressor(mean, likelihood="gaussian", divergence="kl").fit(*table)


def test_kl_is_refused_for_modules(table):
    X, y = table
    module = torch.nn.Linear(2, 1)
    with pytest.raises(ValueError, match=r"KL\(Q, P\) is infinite for the mean 'Linear'"):
        GWIRegressor(module, divergence="kl").fit(X[:60], y[:60], validation=(X[60:], y[60:]))


def test_kl_with_a_weight_is_the_posterior_under_as_much_more_noise(table):
    fits = [regressor(divergence="kl", covariance=Covariance(weight=weight)).fit(*table) for weight in (1.0, 1e4)]
    variances = [fit.decompose(table[0]).epistemic / fit.tempering_factor_ for fit in fits]
    assert (variances[1] > 2 * variances[0]).all()
    # So much weight on the prior is the prior: the mean is flat.
    assert np.std(fits[1].predict(table[0])) < 0.5 * np.std(fits[0].predict(table[0]))


def test_divergences_and_covariances_that_do_not_go_together_are_refused(table):
    for divergence, covariance in (("kl", "wasserstein"), ("wasserstein", "titsias"), ("kl", "zero")):
        with pytest.raises(ValueError, match="is for another divergence"):
            regressor(divergence=divergence, covariance=covariance).fit(*table)
    with pytest.raises(ValueError, match="divergence"):
        regressor(divergence="renyi").fit(*table)


@pytest.mark.parametrize("num_inducing", ["auto", 20])
def test_w2_unsquared_is_w2_squared_with_the_weight_that_its_note_says(table, num_inducing):
    unsquared = regressor(divergence="wasserstein", covariance=Covariance(weight=40.0, num_inducing=num_inducing)).fit(*table)
    (beta,) = unsquared.summary_.divergence_weight
    assert "is the optimum for W₂² with" in unsquared.summary_.note
    squared = regressor(covariance=Covariance("wasserstein", weight=beta, num_inducing=num_inducing)).fit(*table)
    own, other = (fit.decompose(table[0]).epistemic for fit in (unsquared, squared))
    np.testing.assert_allclose(own, other, rtol=0.02)


def test_that_weight_minimises_the_loss_with_w2_itself():
    rng = torch.Generator().manual_seed(1)
    x, z = (torch.rand(count, 1, dtype=torch.float64, generator=rng) * 4 for count in (40, 6))
    model = regressor(divergence="wasserstein", covariance=Covariance(weight=30.0, num_inducing=6, inducing_points=z.numpy()))
    fitted = model.fit(x.numpy(), torch.sin(2 * x[:, 0]).numpy())
    (beta,), q = fitted.summary_.divergence_weight, fitted.posterior_
    prior = GaussianMeasure(ConstantMean(torch.zeros(1, dtype=torch.float64)), q.kernel.prior_kernel)
    rows = (x - torch.as_tensor(fitted.model_.scales.x_centre)) / torch.as_tensor(fitted.model_.scales.x_scale)
    noise = float(fitted.model_.noises[0].log_level.exp())

    def loss(b):
        problem = covariance_problem(
            prior.kernel, q.kernel.inducing_points, rows, noise_variance=noise, num_data=40, divergence_weight=b
        )
        s = wasserstein_covariance(problem).whitened_covariance
        own = GaussianMeasure(q.mean, SparsePosteriorKernel(prior.kernel, q.kernel.inducing_points, s))
        factor = positive_semidefinite_factor(s)
        variance = problem.residual_factor.square().sum(-1) + (problem.features.mT @ factor).square().sum(-1)
        assert torch.isfinite(covariance_objective(problem, factor))
        return float(((problem.precision - b) * variance).mean()) + 30.0 * float(wasserstein(prior, own, rows))

    assert loss(beta) <= min(loss(1.5 * beta), loss(beta / 1.5)) + 1e-6


def test_kernel_means_fall_back_to_the_mean_of_the_prior(table):
    X, y = table

    def law(rows):
        return 5.0 + 0.5 * rows[:, 0]

    fitted = regressor(prior_mean=law).fit(X, y + 0.5 * X[:, 0])
    far = np.array([[400.0, 400.0], [-400.0, 300.0]])
    with pytest.warns(GWIWarning, match="far outside"):
        np.testing.assert_allclose(fitted.predict(far), law(far), atol=1e-6)
    assert fitted.score(X, y + 0.5 * X[:, 0]) > 0.9


def test_a_fitted_model_as_the_mean_of_the_prior_is_kept_in_the_file(table, tmp_path):
    X, y = table
    line = LinearRegression().fit(X[:20], y[:20])
    fitted = regressor(prior_mean=line).fit(X[20:], y[20:])
    again = load(fitted.save(tmp_path / "model.gwi"))
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    assert again.prior_mean == "(an object that the file does not hold)"


def test_counts_fall_back_to_the_mean_of_the_prior_too(table):
    X, _ = table
    y = np.random.default_rng(1).poisson(np.exp(1 + 0.3 * X[:, 0]))

    def rate(rows):
        return np.exp(1 + 0.3 * rows[:, 0].clip(-3, 3))

    fitted = GWIRegressor("svgp", likelihood="poisson", prior_mean=rate, random_state=0).fit(X, y)
    near = np.abs(fitted.predict(X) / rate(X) - 1)
    assert np.median(near) < 0.15


@pytest.mark.parametrize("prior_mean", ["zero", 3.0, lambda rows: rows[:, 7]])
def test_a_prior_mean_that_is_none_is_refused(table, prior_mean):
    with pytest.raises(ValueError, match="prior_mean"):
        regressor(prior_mean=prior_mean).fit(*table)


@pytest.mark.parametrize(("divergence", "covariance"), [("kl", "auto"), ("wasserstein", Covariance(weight=20.0))])
def test_classifiers_take_divergences_too(table, divergence, covariance):
    X, y = table
    fitted = GWIClassifier("svgp", divergence=divergence, covariance=covariance, random_state=0).fit(X, y > 0)
    assert fitted.score(X, y > 0) > 0.85
    assert fitted.summary_.covariance == ("titsias" if divergence == "kl" else "wasserstein")
