"""GWIRegressor does what scikit-learn's users expect, and its intervals hold what they promise."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import norm
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from gwi import GWIRegressor, load
from gwi.datasets import load_uci
from gwi.networks import mlp
from gwi.selection import plan


@parametrize_with_checks([GWIRegressor(mean="svgp", noise="constant", random_state=0)])
def test_scikit_learns_checks_pass(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


@pytest.mark.slow
@parametrize_with_checks([GWIRegressor(random_state=0), GWIRegressor(mean="network", random_state=0)])
def test_scikit_learns_checks_pass_for_the_default_and_for_networks(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


def wave(num_rows=120, noise=0.2, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-3, 3, (num_rows, 1))
    return x, 5 + 10 * (np.sin(2 * x[:, 0]) + noise * rng.standard_normal(num_rows))


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
    model = GWIRegressor("svgp", noise="constant", tails="normal", conformal=True, random_state=0).fit(x[:200], y[:200])
    for coverage in (0.5, 0.8, 0.9):
        lower, upper = model.predict_interval(x[200:], coverage).T
        assert ((lower <= y[200:]) & (y[200:] <= upper)).mean() == pytest.approx(coverage, abs=0.06)
    # A normal distribution with the same variance is too wide in the middle.
    gaussian = model.set_params(conformal=False).predict_interval(x[200:], 0.5)
    assert ((gaussian[:, 0] <= y[200:]) & (y[200:] <= gaussian[:, 1])).mean() > 0.6
    with pytest.raises(ValueError, match="needs at least 999 judged rows"):
        model.set_params(conformal=True).predict_interval(x, 0.999)


def test_nll_is_in_the_units_of_the_target(fitted):
    x, y = wave(50, seed=1)
    mean, std = fitted.predict(x, return_std=True)
    assert fitted.nll(x, y) == pytest.approx(-norm.logpdf(y, mean, std).mean())
    in_cents = GWIRegressor(random_state=0).fit(wave()[0], 100 * wave()[1])
    assert in_cents.nll(x, 100 * y) == pytest.approx(fitted.nll(x, y) + np.log(100), abs=1e-4)


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
    np.testing.assert_allclose(law.variance.numpy(), fitted.decompose(x).epistemic, rtol=1e-6)
    assert law.rsample(torch.Size([3])).shape == (3, 15)


def test_variance_is_epistemic_plus_aleatoric(fitted):
    x, _ = wave(20, seed=1)
    parts = fitted.decompose(x)
    _, std = fitted.predict(x, return_std=True)
    np.testing.assert_allclose(parts.total, std**2)
    np.testing.assert_allclose((parts.epistemic + parts.aleatoric) * fitted.tempering_factor_[0], parts.total)


def test_away_from_data_the_variance_of_f_returns_to_the_priors_and_the_score_to_one(fitted):
    near, far = np.array([[0.3]]), np.array([[60.0]])
    prior = fitted.posterior_.kernel.prior_kernel.outputscale.item() * np.var(wave()[1])
    assert fitted.decompose(far).epistemic[0] == pytest.approx(prior, rel=1e-6)
    assert fitted.ood_score(far)[0] == pytest.approx(1.0)
    assert fitted.ood_score(near)[0] < 0.05


def test_between_two_clusters_the_standard_deviation_grows():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(-2, 0.3, (60, 2)), rng.normal(2, 0.3, (60, 2))])
    y = np.sin(3 * x[:, 0]) * np.cos(3 * x[:, 1]) + 0.1 * rng.standard_normal(120)
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
    model = GWIRegressor("svgp", covariance=covariance, num_inducing=num_inducing, random_state=0).fit(*wave())
    x, y = wave(1000, seed=2)
    lower, upper = model.predict_interval(x).T
    assert 0.9 <= ((lower <= y) & (y <= upper)).mean() <= 0.99


def test_input_dependent_noise_is_found_where_it_is_and_not_where_it_is_not():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (240, 1))
    y = np.sin(x[:, 0]) + np.exp(x[:, 0]) / 5 * rng.standard_normal(240)
    model = GWIRegressor(random_state=0).fit(x, y)
    assert model.summary_.noise[0] < np.inf
    quiet, loud = model.decompose(np.array([[-1.5], [1.5]])).aleatoric
    assert loud > 20 * quiet
    assert GWIRegressor(random_state=0, noise="constant").fit(x, y).summary_.noise[0] == np.inf


MEANS = {
    "svgp": "svgp",
    "all basis functions": "svgp-all",
    "network": "network",
    "residual network": "svgp+network",
    "module": mlp(1, hidden=(32,), generator=torch.Generator().manual_seed(0)),
    "scikit-learn": HistGradientBoostingRegressor(min_samples_leaf=5),
    "list": ["svgp", LinearRegression()],
}


@pytest.mark.parametrize("mean", MEANS.values(), ids=MEANS)
def test_any_mean_gets_intervals_that_cover(mean):
    model = GWIRegressor(mean, random_state=0).fit(*wave(200))
    x, y = wave(1000, seed=2)
    lower, upper = model.predict_interval(x).T
    assert 0.88 <= ((lower <= y) & (y <= upper)).mean() <= 0.995
    assert abs(sum(member.weights[0] for member in model.summary_.members) - 1) < 1e-9


def test_stacking_gives_the_better_mean_the_weight():
    model = GWIRegressor(["svgp", LinearRegression()], random_state=0).fit(*wave())
    gp, line = model.summary_.members
    assert gp.unseen_rmse < line.unseen_rmse
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
    frozen = GWIRegressor(network, freeze_mean=True, random_state=0).fit(x[:150], y[:150], validation=(x[150:], y[150:]))
    assert torch.equal(network.weight, before)
    np.testing.assert_allclose(frozen.predict(x), network(torch.from_numpy(x)).detach().numpy()[:, 0], rtol=1e-9)


@pytest.mark.parametrize("name", ["kin8nm", "power"])
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
        "network": (network, {"freeze_mean": True}),
        "function": (lambda rows: boosting.predict(rows), {}),
    }
    for label, (predictor, arguments) in predictors.items():
        model = GWIRegressor(predictor, num_inducing=100, random_state=0, **arguments)
        model.fit(x[train], y[train], validation=(x[unseen], y[unseen]))
        lower, upper = model.predict_interval(x[test]).T
        assert 0.93 <= ((lower <= y[test]) & (y[test] <= upper)).mean() <= 0.97, label


def test_several_targets_are_fitted_together_each_with_its_own_noise():
    x, y = wave(150)
    rng = np.random.default_rng(1)
    both = np.column_stack([y, -3 + 0.1 * x[:, 0] + rng.standard_normal(150)])
    model = GWIRegressor(random_state=0).fit(x, both)
    mean, std = model.predict(x, return_std=True)
    assert mean.shape == std.shape == (150, 2)
    assert model.predict_interval(x).shape == (150, 2, 2)
    assert model.sample_y(x[:5], 3).shape == (5, 2, 3)
    assert model.predict(x[:5], return_cov=True)[1].shape == (5, 5, 2)
    assert std[:, 1].mean() == pytest.approx(1.0, rel=0.2)


def test_data_frames_pipelines_and_grid_searches_work():
    table = load_diabetes(as_frame=True)
    x, y = table.data.iloc[:150], table.target.iloc[:150]
    model = GWIRegressor(random_state=0).fit(x, y)
    assert list(model.feature_names_in_) == list(x.columns)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(x[x.columns[::-1]])
    assert isinstance(x, pd.DataFrame)
    pipeline = make_pipeline(StandardScaler(), GWIRegressor("svgp", random_state=0)).fit(x, y)
    assert pipeline.score(x, y) > 0.3
    search = GridSearchCV(GWIRegressor("svgp", random_state=0), {"kernel": ["rbf", "matern52"]}, cv=2).fit(x, y)
    assert search.best_params_["kernel"] in ("rbf", "matern52")


def test_equal_seeds_give_equal_models():
    x, y = wave()
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
        ({"mean": "nonsense"}, "mean is"),
        ({"mean": []}, "empty list"),
        ({"kernel": "nonsense"}, "kernel is"),
        ({"covariance": "nonsense"}, "covariance is"),
        ({"noise": "nonsense"}, "noise is"),
    ],
)
def test_unknown_choices_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        GWIRegressor(**arguments).fit(*wave(30))


def test_summary_reads_well(fitted):
    text = str(fitted.summary_)
    assert "120 rows, 120 inducing points" in text
    assert "svgp" in text
    assert "unseen NLL" in text


def test_tensors_in_give_tensors_out(fitted):
    x, y = wave(20, seed=1)
    rows = torch.from_numpy(x)
    mean, std = fitted.predict(rows, return_std=True)
    assert isinstance(mean, torch.Tensor)
    np.testing.assert_array_equal(std.numpy(), fitted.predict(x, return_std=True)[1])
    assert fitted.predict_interval(rows.float()).dtype == torch.float32
    assert isinstance(fitted.decompose(rows).epistemic, torch.Tensor)
    assert isinstance(fitted.ood_score(rows), torch.Tensor)
    from_tensors = GWIRegressor(random_state=0).fit(torch.from_numpy(wave()[0]), torch.from_numpy(wave()[1]))
    np.testing.assert_array_equal(from_tensors.predict(x), fitted.predict(x))
    assert fitted.nll(rows, torch.from_numpy(y)) == fitted.nll(x, y)


def test_the_posterior_takes_batches_and_gradients(fitted):
    x = torch.linspace(-3, 3, 12, dtype=torch.float64).reshape(2, 3, 2, 1).requires_grad_()
    law = fitted.posterior(x)
    assert law.mean.shape == (2, 3, 2)
    assert law.covariance_matrix.shape == (2, 3, 2, 2)
    np.testing.assert_allclose(law.mean.detach().reshape(-1), fitted.predict(x.detach().reshape(-1, 1).numpy()))
    np.testing.assert_allclose(
        law.variance.detach().reshape(-1), fitted.decompose(x.detach().reshape(-1, 1).numpy()).epistemic, rtol=1e-6, atol=1e-9
    )
    (slope,) = torch.autograd.grad(law.mean.sum(), x)
    step = 1e-5
    difference = (fitted.posterior(x.detach() + step).mean - fitted.posterior(x.detach() - step).mean) / (2 * step)
    np.testing.assert_allclose(slope[..., 0], difference, rtol=1e-5, atol=1e-6)


def test_a_mean_without_gradients_is_refused_where_gradients_are_wanted():
    model = GWIRegressor(HistGradientBoostingRegressor(min_samples_leaf=5), random_state=0).fit(*wave())
    rows = torch.zeros(2, 1, dtype=torch.float64)
    assert model.posterior(rows).mean.shape == (2,)
    with pytest.raises(ValueError, match="svgp-all"):
        model.posterior(rows.requires_grad_())


def test_inducing_points_may_be_given_in_the_units_of_the_rows():
    x, y = wave()
    z = np.linspace(-3, 3, 9)[:, None]
    model = GWIRegressor("svgp", inducing_points=z, random_state=0).fit(x, y)
    found = model.posterior_.kernel.inducing_points.numpy() * x.std(0) + x.mean(0)
    np.testing.assert_allclose(found, z, atol=1e-9)
    with pytest.raises(ValueError, match="1 columns"):
        GWIRegressor(inducing_points=np.zeros((3, 2))).fit(x, y)


def test_networks_train_in_the_precision_asked_for():
    model = GWIRegressor("network", dtype="float64", random_state=0).fit(*wave(60))
    assert {p.dtype for p in model.posterior_.mean.parameters()} == {torch.float64}
    with pytest.raises(ValueError, match="dtype is"):
        GWIRegressor(dtype="int8").fit(*wave(60))


@pytest.mark.parametrize("mean", ["svgp", LinearRegression()], ids=["kernel mean", "line"])
@pytest.mark.parametrize("num_inducing", ["auto", 15])
def test_update_takes_new_rows_into_noise_and_covariance(mean, num_inducing):
    x, y = wave(100)
    model = GWIRegressor(mean, num_inducing=num_inducing, random_state=0).fit(x, y)
    far = np.linspace(5, 6, 30)[:, None]
    values = model.predict(far) + 40 * np.random.default_rng(0).standard_normal(30)
    before = model.decompose(np.concatenate([x, far]))
    model.update(far, values)
    after = model.decompose(np.concatenate([x, far]))
    assert model.summary_.num_rows == 130
    assert after.aleatoric.mean() > 2 * before.aleatoric.mean()
    if num_inducing == "auto":
        assert model.summary_.num_inducing == 130
        assert after.epistemic[100:].mean() < before.epistemic[100:].mean()


def test_an_updated_kernel_mean_is_the_one_fitted_to_all_rows():
    x, y = wave(100)
    model = GWIRegressor("svgp-all", tempering=None, random_state=0).fit(x[:80], y[:80]).update(x[80:], y[80:])
    scales, learned = model.model_.scales, model._learned
    rows, targets = scales.rows(x, "cpu"), (y - scales.y_centre) / scales.y_scale
    with torch.no_grad():
        k = learned.prior.kernel(rows).to_dense() + learned.prior.noise_variance * torch.eye(100)
        wanted = learned.prior.kernel(rows).to_dense() @ torch.linalg.solve(k, torch.from_numpy(targets))
    np.testing.assert_allclose(model.predict(x), wanted.numpy() * scales.y_scale + scales.y_centre, rtol=1e-5)


def test_update_after_validation_judges_new_rows_by_what_was_known_before():
    x, y = wave(200)
    line = LinearRegression().fit(x, y)
    model = GWIRegressor(line, random_state=0).fit(x[:80], y[:80], validation=(x[80:120], y[80:120]))
    before = model.decompose(x[120:]).epistemic
    model.update(x[120:160], y[120:160]).update(x[160:], y[160:])
    late = model._learned.late_variance[0].numpy() * model.model_.scales.y_scale**2
    np.testing.assert_allclose(late[:40], before[:40], rtol=1e-6)
    assert model.decompose(x[120:]).epistemic.mean() < before.mean()
    with pytest.raises(ValueError, match="1 target"):
        model.update(x, np.column_stack([y, y]))


def test_progress_is_shown_on_the_error_stream_and_the_summary_printed(capsys):
    GWIRegressor("network", verbose=1, random_state=0).fit(*wave(60))
    printed = capsys.readouterr()
    assert "60 rows" in printed.out
    assert "network" in printed.err
    assert "covariance and noise" in printed.err


def test_max_time_chooses_the_plan_beforehand_and_the_summary_says_so():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 2))
    y = x[:, 0] + 0.1 * rng.standard_normal(300)
    quick, again = (GWIRegressor(max_time=5, random_state=0).fit(x, y) for _ in range(2))
    assert len(quick.summary_.members) < len(plan(300, 2, None).means)
    assert "planned for 5 s" in str(quick.summary_)
    np.testing.assert_array_equal(quick.predict(x), again.predict(x))


@pytest.mark.parametrize("num_rows", [100, 1000, 10_000, 1_000_000])
def test_less_time_never_means_more_work(num_rows):
    seconds = [plan(num_rows, 8, max_time).seconds for max_time in (0.0, 5.0, 20.0, 60.0, 600.0, None)]
    assert seconds == sorted(seconds)
    assert "svgp" in plan(num_rows, 8, 0.0).means


@pytest.mark.parametrize("mean", ["network", "svgp"])
def test_the_papers_preset_predicts_says_what_it_did_and_can_be_saved(mean, tmp_path):
    x, y = wave(150)
    model = GWIRegressor(mean, preset="paper", max_steps=150, random_state=0).fit(x, y)
    assert "validation NLL of each M" in str(model.summary_)
    assert model.summary_.divergence_weight == (1.0,)
    assert model.summary_.tempering[0] > 0
    new, values = wave(500, seed=3)
    lower, upper = model.predict_interval(new).T
    assert np.isfinite(model.nll(new, values))
    assert (lower < upper).all()
    loaded = load(model.save(tmp_path / "model.gwi"))
    np.testing.assert_array_equal(loaded.predict(new, return_std=True), model.predict(new, return_std=True))
    with pytest.raises(ValueError, match="preset"):
        model.update(x, y)


@pytest.mark.parametrize(
    ("arguments", "fitting", "message"),
    [
        ({"preset": "other"}, {}, "preset is"),
        ({"preset": "paper", "mean": "svgp-all"}, {}, "preset is"),
        ({"preset": "paper"}, {"validation": wave(20)}, "sets its own"),
        ({"preset": "paper"}, {"sample_weight": np.arange(60.0) + 1}, "sample weights"),
    ],
)
def test_what_the_preset_does_not_take_is_named(arguments, fitting, message):
    with pytest.raises(ValueError, match=message):
        GWIRegressor(**arguments).fit(*wave(60), **fitting)
