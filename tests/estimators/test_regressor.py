"""GWIRegressor does what scikit-learn's users expect, and its intervals hold what they promise."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from benchmarks.tables.uci.data import load_uci
from scipy.stats import norm
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, RidgeCV
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from gwi import GWIRegressor
from gwi.core.distributions import quantile
from gwi.core.networks import mlp
from gwi.parts import Covariance, Gaussian, Trained
from waves import wave

pytestmark = pytest.mark.unchecked


# The mean that is fitted the soonest, and two folds: what is checked does not depend on them; others are checked below.
@parametrize_with_checks([GWIRegressor(mean="linear", random_state=0, likelihood=Gaussian("constant"), cv=2)])
def test_scikit_learns_checks_pass(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


@pytest.mark.slow
@parametrize_with_checks([GWIRegressor(mean, random_state=0) for mean in ("auto", "svgp", "network")])
def test_scikit_learns_checks_pass_for_the_default_kernel_means_and_networks(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


@pytest.fixture(scope="module")
def fitted():
    return GWIRegressor(random_state=0).fit(*wave())


def test_intervals_quantiles_and_standard_deviations_agree(fitted):
    x, _ = wave(20, seed=1)
    mean, std = fitted.predict(x, return_std=True)
    interval = fitted.predict_interval(x, coverage=0.9)
    np.testing.assert_allclose(interval[:, 0], mean + norm.ppf(0.05) * std)
    np.testing.assert_allclose(fitted.predict_quantiles(x, (0.05, 0.95)), interval)
    np.testing.assert_allclose(fitted.predict(x), mean)


def test_intervals_hold_what_they_promise(fitted):
    x, y = wave(2000, seed=2)
    for coverage in (0.5, 0.9, 0.95):
        lower, upper = fitted.predict_interval(x, coverage).T
        assert ((lower <= y) & (y <= upper)).mean() == pytest.approx(coverage, abs=0.05)


def test_conformal_intervals_cover_where_tails_are_heavy_and_say_when_rows_are_too_few():
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, (3200, 1))
    y = np.sin(2 * x[:, 0]) + 0.2 * rng.standard_t(2, 3200)
    model = GWIRegressor("svgp", random_state=0, likelihood=Gaussian("constant", tails="normal", conformal=True)).fit(
        x[:200], y[:200]
    )
    for coverage in (0.5, 0.8, 0.9):
        lower, upper = model.predict_interval(x[200:], coverage).T
        assert ((lower <= y[200:]) & (y[200:] <= upper)).mean() == pytest.approx(coverage, abs=0.06)
    # A normal distribution with the same variance is too wide in the middle.
    gaussian = model.set_params(likelihood__conformal=False).predict_interval(x[200:], 0.5)
    assert ((gaussian[:, 0] <= y[200:]) & (y[200:] <= gaussian[:, 1])).mean() > 0.6
    with pytest.raises(ValueError, match="needs at least 999 held-out rows"):
        model.set_params(likelihood__conformal=True).predict_interval(x, 0.999)


def test_nll_is_in_the_units_of_the_target(fitted):
    x, y = wave(50, seed=1)
    mean, std = fitted.predict(x, return_std=True)
    assert fitted.nll(x, y) == pytest.approx(-norm.logpdf(y, mean, std).mean())
    in_euros, in_cents = (GWIRegressor("svgp", random_state=0).fit(wave()[0], unit * wave()[1]) for unit in (1, 100))
    assert in_cents.nll(x, 100 * y) == pytest.approx(in_euros.nll(x, y) + np.log(100), abs=1e-4)


def test_joint_covariance_has_the_variances_on_its_diagonal_and_samples_follow_it(fitted):
    x, _ = wave(15, seed=1)
    mean, covariance = fitted.predict(x, return_cov=True)
    _, std = fitted.predict(x, return_std=True)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), std)
    draws = fitted.sample_y(x, 20_000, random_state=0)
    assert draws.shape == (15, 20_000)
    np.testing.assert_allclose(draws.mean(1), mean, atol=5 * std.max() / 20_000**0.5)
    np.testing.assert_allclose(np.cov(draws), covariance, atol=0.05 * covariance.max())


def test_posterior_is_the_joint_law_of_f_in_the_units_of_the_target(fitted):
    x, _ = wave(15, seed=1)
    law = fitted.posterior(x)
    np.testing.assert_allclose(law.mean.numpy(), fitted.predict(x))
    np.testing.assert_allclose(law.variance.numpy() * fitted.tempering_factor_[0], fitted.decompose(x).epistemic, rtol=1e-6)
    assert law.rsample(torch.Size([3])).shape == (3, 15)


def test_variance_is_epistemic_plus_aleatoric(fitted):
    x, _ = wave(20, seed=1)
    parts = fitted.decompose(x)
    _, std = fitted.predict(x, return_std=True)
    np.testing.assert_allclose(parts.total, std**2)
    np.testing.assert_array_equal(parts.epistemic + parts.aleatoric, parts.total)


def test_every_answer_is_of_one_measure():
    fitted = GWIRegressor(["svgp", ExtraTreesRegressor(20)], random_state=0).fit(*wave(150))
    x, _ = wave(12, seed=1)
    x, scales = 3 * x, fitted.model_.scales
    assert fitted.summary_.disagreement_weight[0] > 0
    law, q = fitted.posterior(x), fitted.posterior_(scales.rows(x, "cpu"))
    level = scales.y_scale[0] ** 2
    np.testing.assert_allclose(q.covariance_matrix[0] * level, law.covariance_matrix, rtol=1e-6, atol=1e-8 * level)
    np.testing.assert_allclose(q.mean[0] * scales.y_scale + scales.y_centre, law.mean)
    parts, (_, joint) = fitted.decompose(x), fitted.predict(x, return_cov=True)
    np.testing.assert_allclose(parts.epistemic, law.variance * fitted.tempering_factor_[0], rtol=1e-6)
    np.testing.assert_allclose(joint, law.covariance_matrix * fitted.tempering_factor_[0] + np.diag(parts.aleatoric), rtol=1e-6)


@pytest.mark.parametrize("degrees", [4.0, 8.0, np.inf])
def test_joint_draws_have_the_covariance_of_predict_whatever_the_tails(fitted, degrees):
    model = replace(fitted.model_, degrees_of_freedom=np.array([degrees]))
    x = np.array([[1.0], [1.1], [2.0]])
    draws, covariance = model.sample(x, 100_000, np.random.RandomState(0))[0], model.covariance(x)[0]
    std = np.sqrt(covariance.diagonal())
    errors = (draws - model.mean(x)[0][:, None]) / std[:, None]
    wanted = covariance / np.outer(std, std)
    # The sign of two errors agrees with probability ½ + arcsin ρ/π under any elliptical law: no fourth moments are needed.
    same = ((errors[:, None] > 0) == (errors > 0)).mean(-1)
    np.testing.assert_allclose(np.sin(np.pi * (same - 0.5)), wanted, atol=0.015)
    if degrees > 4:
        np.testing.assert_allclose(np.corrcoef(errors), wanted, atol=0.02)
    for level in (0.025, 0.5, 0.9):
        np.testing.assert_allclose((errors < quantile(np.array(level), degrees)).mean(1), level, atol=0.006)


@pytest.mark.parametrize("degrees", [4.0, 8.0, np.inf])
def test_a_difference_of_joint_draws_has_the_tails_and_the_variance_that_the_covariance_gives_it(fitted, degrees):
    model = replace(fitted.model_, degrees_of_freedom=np.array([degrees]))
    # Where f is unknown, rows side by side err alike: were tails drawn row by row, their differences would be too wide.
    x = np.array([[6.0], [6.1]])
    errors = model.sample(x, 100_000, np.random.RandomState(0))[0] - model.mean(x)[0][:, None]
    covariance = model.covariance(x)[0]
    assert covariance[0, 1] > 0.8 * covariance.diagonal().mean()
    difference = (errors[0] - errors[1]) / np.sqrt(covariance.trace() - 2 * covariance[0, 1])
    for level in (0.1, 0.25, 0.75):
        assert (difference < quantile(np.array(level), degrees)).mean() == pytest.approx(level, abs=0.006)


def test_away_from_data_the_variance_of_f_returns_to_the_priors_and_the_score_to_one(fitted):
    near, far = np.array([[0.3]]), np.array([[60.0]])
    alone = GWIRegressor("svgp", random_state=0).fit(*wave())
    prior = alone.posterior_.kernel.prior_kernel.outputscale.item() * np.var(wave()[1])
    assert alone.posterior(far).variance.item() == pytest.approx(prior, rel=1e-6)
    # Where stacked means disagree, f is even less known.
    assert fitted.posterior(far).variance.item() >= 0.99 * prior
    for model in (alone, fitted):
        assert model.ood_score(far)[0] == pytest.approx(1.0)
        assert model.ood_score(near)[0] < 0.05


def test_between_two_clusters_the_standard_deviation_grows():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(-2, 0.3, (40, 2)), rng.normal(2, 0.3, (40, 2))])
    y = np.sin(3 * x[:, 0]) * np.cos(3 * x[:, 1]) + 0.1 * rng.standard_normal(80)
    model = GWIRegressor(random_state=0, tempering=None).fit(x, y)
    between = np.sqrt(model.decompose(np.zeros((1, 2))).epistemic[0])
    at_clusters = np.sqrt(model.decompose(x).epistemic.mean())
    assert between > 3 * at_clusters


def test_predictions_do_not_depend_on_the_chunk(fitted):
    x, _ = wave(100, seed=1)
    for a, b in zip(fitted.model_.marginals(x, chunk_size=7), fitted.model_.marginals(x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("covariance", ["wasserstein", "titsias", "trained"])
@pytest.mark.parametrize("num_inducing", ["auto", 15])
def test_every_covariance_covers_with_all_or_few_inducing_points(covariance, num_inducing):
    model = GWIRegressor("svgp", random_state=0, covariance=Covariance(covariance, num_inducing=num_inducing)).fit(*wave())
    x, y = wave(1000, seed=2)
    lower, upper = model.predict_interval(x).T
    assert 0.9 <= ((lower <= y) & (y <= upper)).mean() <= 0.99


def test_input_dependent_noise_is_found_where_it_is_and_not_where_it_is_not():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (240, 1))
    y = np.sin(x[:, 0]) + np.exp(x[:, 0]) / 5 * rng.standard_normal(240)
    model = GWIRegressor("svgp", random_state=0).fit(x, y)
    assert model.summary_.noise[0] < np.inf
    quiet, loud = model.decompose(np.array([[-1.5], [1.5]])).aleatoric
    assert loud > 20 * quiet
    assert GWIRegressor("svgp", random_state=0, likelihood=Gaussian("constant")).fit(x, y).summary_.noise[0] == np.inf


MEANS = {
    "svgp": "svgp",
    "all basis functions": "svgp-all",
    "network": "network",
    "residual network": "svgp+network",
    "module": Trained(mlp(1, hidden=(32,), generator=torch.Generator().manual_seed(0))),
    "scikit-learn": HistGradientBoostingRegressor(min_samples_leaf=5),
    "list": ["svgp", LinearRegression()],
}


# A module is trained eleven times over.
SLOW_MEANS = ("module",)


@pytest.mark.parametrize(
    "mean", [pytest.param(mean, id=name, marks=[pytest.mark.slow] * (name in SLOW_MEANS)) for name, mean in MEANS.items()]
)
def test_any_mean_gets_intervals_that_cover(mean):
    model = GWIRegressor(mean, random_state=0).fit(*wave(200))
    x, y = wave(1000, seed=2)
    lower, upper = model.predict_interval(x).T
    assert 0.88 <= ((lower <= y) & (y <= upper)).mean() <= 0.995
    assert abs(sum(member.weights[0] for member in model.summary_.members) - 1) < 1e-9


def test_stacking_gives_the_better_mean_the_weight():
    model = GWIRegressor(["svgp", LinearRegression()], random_state=0).fit(*wave())
    gp, line = model.summary_.members
    assert gp.scores < line.scores
    assert gp.weights[0] > 0.9 > line.weights[0]


def test_frozen_means_need_unseen_rows_and_are_left_as_they_are():
    x, y = wave(300)
    boosting = HistGradientBoostingRegressor(min_samples_leaf=5).fit(x[:150], y[:150])
    with pytest.raises(ValueError, match="validation="):
        GWIRegressor(boosting).fit(x[:150], y[:150])
    with pytest.raises(ValueError, match="validation="):
        GWIRegressor(lambda rows: rows[:, 0]).fit(x, y)
    model = GWIRegressor(boosting, random_state=0).fit(x[:150], y[:150], validation=(x[150:], y[150:]))
    np.testing.assert_allclose(model.predict(x), boosting.predict(x))
    network = torch.nn.Linear(1, 1).double()
    before = network.weight.clone()
    frozen = GWIRegressor(network, random_state=0).fit(x[:150], y[:150], validation=(x[150:], y[150:]))
    assert torch.equal(network.weight, before)
    np.testing.assert_allclose(frozen.predict(x), network(torch.from_numpy(x)).detach().numpy()[:, 0], rtol=1e-9)


@pytest.mark.parametrize("name", ["kin8nm", pytest.param("power", marks=pytest.mark.slow)])
def test_frozen_predictors_get_intervals_that_cover_on_real_tables(uci_folder, name):
    features, target = load_uci(name)
    x, y = features.numpy(), target[0].numpy()
    order = np.random.default_rng(0).permutation(len(x))
    train, unseen, test = order[:3000], order[3000:4500], order[4500:]
    boosting = HistGradientBoostingRegressor().fit(x[train], y[train])
    line = LinearRegression().fit(x[train], y[train])
    network = torch.nn.Linear(x.shape[1], 1).double()
    with torch.no_grad():
        network.weight.copy_(torch.from_numpy(line.coef_)[None])
        network.bias.fill_(line.intercept_)
    predictors = {
        "boosting": (boosting, {}),
        "network": (network, {}),
        "function": (lambda rows: boosting.predict(rows), {}),
    }
    for label, (predictor, arguments) in predictors.items():
        model = GWIRegressor(predictor, random_state=0, **arguments, covariance=Covariance(num_inducing=100))
        model.fit(x[train], y[train], validation=(x[unseen], y[unseen]))
        lower, upper = model.predict_interval(x[test]).T
        assert 0.93 <= ((lower <= y[test]) & (y[test] <= upper)).mean() <= 0.97, label


def test_several_targets_are_fitted_together_each_with_its_own_noise():
    x, y = wave(150)
    rng = np.random.default_rng(1)
    both = np.column_stack([y, -3 + 0.1 * x[:, 0] + rng.standard_normal(150)])
    model = GWIRegressor(["svgp", LinearRegression()], random_state=0).fit(x, both)
    mean, std = model.predict(x, return_std=True)
    assert mean.shape == std.shape == (150, 2)
    assert model.predict_interval(x).shape == (150, 2, 2)
    assert model.sample_y(x[:5], 3).shape == (5, 2, 3)
    assert model.predict(x[:5], return_cov=True)[1].shape == (5, 5, 2)
    assert std[:, 1].mean() == pytest.approx(1.0, rel=0.2)


def test_data_frames_pipelines_and_grid_searches_work():
    table = load_diabetes(as_frame=True)
    # Body mass, blood pressure and two values of the blood: few hyper-parameters for ten fits.
    x, y = table.data[["bmi", "bp", "s5", "s6"]].iloc[:100], table.target.iloc[:100]
    model = GWIRegressor("svgp", likelihood="gaussian", random_state=0).fit(x, y)
    assert list(model.feature_names_in_) == list(x.columns)
    np.testing.assert_array_equal(model.predict(x[x.columns[::-1]]), model.predict(x))
    assert isinstance(x, pd.DataFrame)
    pipeline = make_pipeline(StandardScaler(), GWIRegressor("svgp", likelihood="gaussian", random_state=0)).fit(x, y)
    assert pipeline.score(x, y) > 0.3
    search = GridSearchCV(clone(model), {"kernel": ["rbf", "matern52"]}, cv=2).fit(x, y)
    assert search.best_params_["kernel"] in ("rbf", "matern52")


def test_equal_seeds_give_equal_models():
    x, y = wave(60)
    first, again = (clone(GWIRegressor("network", random_state=3)).fit(x, y).predict(x) for _ in range(2))
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([[np.nan], [1.0], [2.0]], [1.0, 2.0, 3.0], "NaN"),
        ([[np.inf], [1.0], [2.0]], [1.0, 2.0, 3.0], "infinity"),
        ([[1.0]], [1.0], "minimum of 2"),
        ([[1.0], [2.0]], [1.0, 2.0, 3.0], "inconsistent"),
        ([["a"], ["b"], ["c"]], [1.0, 2.0, 3.0], "could not convert"),
        ([[1e200], [-1e200], [1e199]], [1.0, 2.0, 3.0], "overflow"),
    ],
)
def test_bad_tables_are_refused_with_one_sentence(x, y, message):
    with pytest.raises(ValueError, match=message):
        GWIRegressor().fit(x, y)


def test_odd_tables_get_a_right_answer():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 3))
    y = x[:, 0] + 0.1 * rng.standard_normal(40)
    doubled = np.column_stack([x, x, np.full(40, 7.0)])
    assert GWIRegressor(random_state=0).fit(doubled, y).score(doubled, y) > 0.9
    wide = rng.standard_normal((12, 30))
    assert np.isfinite(GWIRegressor(random_state=0).fit(wide, wide[:, 0]).predict(wide, return_std=True)).all()
    mean, std = GWIRegressor(random_state=0).fit(x, np.full(40, 3.0)).predict(x, return_std=True)
    np.testing.assert_allclose(mean, 3.0)
    assert (std < 1e-3).all()
    huge = GWIRegressor(random_state=0).fit(1e30 * x, 1e30 * y)
    small = GWIRegressor(random_state=0).fit(x, y)
    np.testing.assert_allclose(huge.predict(1e30 * x), 1e30 * small.predict(x), rtol=1e-4, atol=1e26)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mean": "nonsense"}, "mean must be"),
        ({"mean": []}, "empty list"),
        ({"kernel": "nonsense"}, "kernel must be"),
        ({"covariance": "nonsense"}, "covariance must be"),
        ({"likelihood": "nonsense"}, "likelihood must be"),
        ({"likelihood": Gaussian("nonsense")}, "noise must be"),
    ],
)
def test_unknown_choices_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        GWIRegressor(**arguments).fit(*wave(30))


def test_summary_reads_well(fitted):
    text = str(fitted.summary_)
    assert "120 rows, 120 inducing points" in text
    assert "svgp" in text
    assert "held-out NLL" in text


def test_weights_and_targets_beyond_floating_point_are_right_or_one_sentence():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=40)

    def std(y=y, weight=None):
        return GWIRegressor(RidgeCV(), random_state=0).fit(X, y, sample_weight=weight).predict(X[:3], return_std=True)[1]

    np.testing.assert_allclose(std(weight=np.full(40, 1e-300)), std(), rtol=1e-9)
    np.testing.assert_allclose(std(weight=np.full(40, 5e-324)), std(), rtol=1e-9)
    np.testing.assert_allclose(std(y=y * 1e-140) * 1e140, std(), rtol=1e-6)
    for weight in (np.full(40, 1e300), np.full(40, 1e308), np.full(40, 10.0**12)):
        with pytest.raises(
            ValueError, match=r"Whole-number sample weights count copies of a row; up to .* Divide them by their mean"
        ):
            std(weight=weight)
    for weight in (np.where(np.arange(40) % 2, 1e300, 1e-300), np.where(np.arange(40) == 3, 1e-30, 1.0)):
        with pytest.raises(ValueError, match="too far apart; set the small ones to 0"):
            std(weight=weight)
    for scale in (1e-160, 1e-300, 1e-320):
        with pytest.raises(ValueError, match="so small that their squares underflow; rescale"):
            std(y=y * scale)
