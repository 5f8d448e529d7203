"""GWIRegressor with each likelihood: it finds what targets were drawn from, and everything that it says belongs together."""

import math
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from gpytorch.likelihoods import BernoulliLikelihood, LaplaceLikelihood, StudentTLikelihood
from scipy import stats
from sklearn.base import clone

from gwi import GWIRegressor, evaluation, load
from gwi.core.likelihoods.families import PoissonFamily
from gwi.exceptions import GWIWarning, UnsavableError
from gwi.parts.likelihoods import LIKELIHOODS, Beta, Censored, Gamma, Poisson
from target_cases import NAMES, table

pytestmark = pytest.mark.unchecked
CACHE = {}


def fitted(name):
    if name not in CACHE:
        x, y, _, _ = table(name)
        CACHE[name] = GWIRegressor("linear", likelihood=name, random_state=0).fit(x, y)
    return CACHE[name]


EACH = pytest.mark.parametrize("name", NAMES)


def some(quick, *others):
    """Cases, of which the others are for thorough runs."""
    return [*quick, *(pytest.param(*case if isinstance(case, tuple) else (case,), marks=pytest.mark.slow) for case in others)]


def test_every_likelihood_has_a_table():
    assert set(NAMES) == set(LIKELIHOODS)


@EACH
def test_parameters_that_targets_were_drawn_with_are_found(name):
    x, _, f, dispersion = table(name)
    model = fitted(name)
    mean = model.posterior(x).mean.numpy()
    if name in ("log-normal", "censored"):
        mean = np.log(model.predict_quantiles(x, [0.5])[:, 0])
    if name in ("ordinal", "few-valued"):
        # f has a scale of its own.
        assert np.corrcoef(mean, f)[0, 1] > 0.97
    else:
        shift = (
            1.0 if name in ("poisson", "negative-binomial") else math.log(5) * 0 if name != "gamma" else mean.mean() - f.mean()
        )
        assert np.abs(mean - f - shift).mean() < 0.15
    if not math.isnan(dispersion) and name not in ("gaussian", "student-t", "log-normal"):
        unit = 1.0
        if name in ("censored", "robust"):
            unit = float(model.model_.scales.y_scale[0]) ** 2
        assert 0.5 * dispersion < model.summary_.dispersion * unit < 2 * dispersion


@EACH
def test_targets_that_were_not_seen_lie_where_the_distribution_says(name):
    x, y, _, _ = table(name, 400, seed=1)
    found = fitted(name).predict_dist(x)
    if name == "censored":
        # The same rows without an end of the study.
        y = np.exp(table(name, 400, seed=1)[2] + 0.3 * np.random.default_rng(5).normal(size=400))
    if name == "robust":
        y = np.delete(y, np.s_[::12])
        found = found[np.setdiff1d(np.arange(400), np.arange(0, 400, 12))]
    low, high = found.interval(0.9).T
    inside = ((low <= y) & (y <= high)).mean()
    assert inside > 0.84
    if name not in ("ordinal", "few-valued", "poisson", "negative-binomial"):
        assert inside < 0.96


@EACH
def test_everything_said_of_a_row_belongs_together(name):
    x, y, _, _ = table(name, 30, seed=2)
    model = fitted(name)
    found = model.predict_dist(x)
    mean, std = model.predict(x, return_std=True)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-10)
    np.testing.assert_allclose(found.std, std, rtol=1e-10)
    np.testing.assert_allclose(found.ppf([0.05, 0.5, 0.95]), model.predict_quantiles(x), rtol=1e-10)
    np.testing.assert_allclose(found.interval(0.8), model.predict_interval(x, 0.8), rtol=1e-9)
    parts = model.decompose(x)
    np.testing.assert_allclose(parts.total, std**2, rtol=1e-8)
    assert (parts.epistemic >= 0).all()
    assert (parts.aleatoric > 0).all()
    law = found.laws[0]
    low, high = law.support
    ends = model.predict_interval(x, 0.999)
    draws = model.sample_y(x, 50)
    for values in (mean, ends, draws, found.sample(20, 0)):
        assert ((values >= low) & (values <= high)).all()
    if law.is_discrete:
        np.testing.assert_allclose(model.nll(x, y), found.nll(y).mean(), rtol=1e-10)
        assert (found.logpdf(y) <= 0).all()
    elif name != "censored":
        np.testing.assert_allclose(model.nll(x, y), found.nll(y).mean(), rtol=1e-10)
    _, covariance = model.predict(x[:6], return_cov=True)
    np.testing.assert_allclose(np.diag(covariance), std[:6] ** 2, rtol=1e-8)
    np.testing.assert_allclose(covariance, covariance.T, rtol=1e-9, atol=1e-15)
    assert np.linalg.eigvalsh(covariance).min() > -1e-9 * covariance.max()
    # Joint draws have the mean and the variance of the distribution.
    many = model.sample_y(x[:3], 6000, random_state=1)
    np.testing.assert_allclose(many.mean(1), mean[:3], atol=6 * (std[:3] / math.sqrt(6000)).max())
    np.testing.assert_allclose(many.std(1), std[:3], rtol=0.25)


@EACH
def test_files_and_pickles_hold_the_model_to_the_bit(name, tmp_path):
    x, y, _, _ = table(name, 20, seed=3)
    model = fitted(name)
    again = load(model.save(tmp_path / "model.gwi"))
    for other in (again, pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(other.predict(x), model.predict(x))
        np.testing.assert_array_equal(other.predict_interval(x), model.predict_interval(x))
        assert other.nll(x, y) == model.nll(x, y)
        assert other.get_params()["likelihood"] == name
    # An updated model is saved with what it has learned.
    again.update(x, y)
    third = load(again.save(tmp_path / "updated.gwi"))
    np.testing.assert_allclose(third.predict(x), again.predict(x), rtol=1e-12)


@EACH
def test_an_update_learns_the_new_rows(name):
    x, y, _, _ = table(name, 60, seed=4)
    model = pickle.loads(pickle.dumps(fitted(name)))
    before, far = model.nll(x, y), model.predict_dist(x).epistemic.mean()
    model.update(x[:30], y[:30])
    model.update(x[30:], y[30:])
    assert model.nll(x, y) < before + (0.5 if name == "robust" else 0.0)
    assert model.predict_dist(x).epistemic.mean() < 1.05 * far
    assert model.summary_.num_rows == 180
    # Twice is once with all rows, nearly: another mode of f.
    once = pickle.loads(pickle.dumps(fitted(name))).update(x, y)
    np.testing.assert_allclose(once.predict(x), model.predict(x), atol=0.1 * np.abs(model.predict(x)).max())


@pytest.mark.parametrize("name", some(["poisson"], "censored", "gamma", "beta", "ordinal", "log-normal", "robust"))
def test_weights_are_rows_and_their_order_does_not_matter(name):
    x, y, _, _ = table(name, 60)
    count = np.random.default_rng(0).integers(1, 4, 60)
    model = GWIRegressor("linear", likelihood=name, random_state=0)
    weighed = clone(model).fit(x, y, sample_weight=count)
    order = np.random.default_rng(1).permutation(60)
    shuffled = clone(model).fit(x[order], y[order], sample_weight=count[order])
    np.testing.assert_allclose(shuffled.predict(x), weighed.predict(x), rtol=1e-5)
    np.testing.assert_allclose(shuffled.predict_quantiles(x), weighed.predict_quantiles(x), rtol=1e-4, atol=1e-8)
    # Rows of weight zero are not there.
    with_more = clone(model).fit(np.concatenate([x, 9 * x]), np.concatenate([y, y]), sample_weight=np.append(count, 0 * count))
    np.testing.assert_allclose(with_more.predict(x), weighed.predict(x), rtol=1e-9)


@pytest.mark.parametrize("name", some(["poisson"], "gamma", "ordinal", "censored"))
def test_a_weight_of_a_row_is_as_many_copies_where_rows_are_few(name):
    x, y, _, _ = table(name, 40)
    count = np.random.default_rng(0).integers(1, 4, 40)
    model = GWIRegressor("linear", likelihood=name, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        copies = clone(model).fit(np.repeat(x, count, axis=0), np.repeat(y, count, axis=0))
    weighed = clone(model).fit(x, y, sample_weight=count)
    np.testing.assert_allclose(copies.predict(x), weighed.predict(x), rtol=1e-6)
    np.testing.assert_allclose(copies.predict_quantiles(x), weighed.predict_quantiles(x), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(
    ("name", "unit"),
    some(
        [("log-normal", 1e6), ("robust", 1e6)],
        ("gamma", 1e-6),
        ("log-normal", 1e-6),
        ("gamma", 1e6),
        ("censored", 1e6),
        ("censored", 1e-6),
        ("robust", 1e-6),
        ("gaussian", 1e6),
    ),
)
def test_another_unit_of_the_target_changes_the_unit_of_what_is_said(name, unit):
    x, y, _, _ = table(name, 60)
    model = GWIRegressor("linear", likelihood=name, random_state=0)
    plain, scaled = clone(model).fit(x, y), clone(model).fit(x, unit * y)
    tolerance = {"rtol": 1e-4, "atol": 1e-4 * unit}
    np.testing.assert_allclose(scaled.predict(x), unit * plain.predict(x), **tolerance)
    np.testing.assert_allclose(scaled.predict_interval(x), unit * plain.predict_interval(x), **tolerance)
    exact = 1.0 if y.ndim == 1 else (y[:, 0] == y[:, 1]).mean()
    assert scaled.nll(x, unit * y) == pytest.approx(plain.nll(x, y) + exact * math.log(unit), abs=1e-3)
    if name != "robust":
        held_out = scaled.summary_.held_out_nll[1] - plain.summary_.held_out_nll[1]
        assert held_out == pytest.approx(exact * math.log(unit), abs=0.01)


@pytest.mark.slow
def test_shares_between_other_bounds_are_shares():
    x, y, _, _ = table("beta", 40)
    plain = GWIRegressor("linear", likelihood="beta", random_state=0).fit(x, y)
    percent = GWIRegressor("linear", likelihood=Beta(0, 100), random_state=0).fit(x, 100 * y)
    np.testing.assert_allclose(percent.predict_interval(x), 100 * plain.predict_interval(x), rtol=1e-4)
    # Targets at a bound are learned and have a density.
    y[:3] = [0.0, 1.0, 0.0]
    bounded = GWIRegressor("linear", likelihood="beta", random_state=0).fit(x, y)
    assert math.isfinite(bounded.nll(x, y))


def test_conformal_intervals_of_counts_hold_what_they_promise():
    x, y, _, _ = table("negative-binomial", 300)
    model = GWIRegressor("linear", likelihood=Poisson(conformal=True), random_state=0).fit(x, y)
    more_x, more_y, _, _ = table("negative-binomial", 1500, seed=7)
    low, high = model.predict_interval(more_x, 0.9).T
    assert ((low <= more_y) & (more_y <= high)).mean() == pytest.approx(0.92, abs=0.05)


def test_objects_are_likelihoods_too(tmp_path):
    x, y, _, _ = table("poisson", 80)
    named = GWIRegressor("linear", likelihood="poisson", random_state=0).fit(x, y)
    for likelihood in (Poisson(), PoissonFamily()):
        model = GWIRegressor("linear", likelihood=likelihood, random_state=0).fit(x, y)
        assert np.corrcoef(model.predict(x), named.predict(x))[0, 1] > 0.99
    assert GWIRegressor(likelihood=Gamma("constant")).get_params()["likelihood__noise"] == "constant"
    x, y, f, _ = table("student-t", 80)
    brought = GWIRegressor("linear", likelihood=StudentTLikelihood(), random_state=0).fit(x, y)
    assert np.abs(brought.predict(x) - f).mean() < 0.3
    assert np.isfinite(brought.predict_interval(x)).all()
    assert brought.predict_dist(x).cdf(brought.predict_quantiles(x, [0.3])[:, 0]) == pytest.approx(0.3)
    with pytest.raises(UnsavableError, match="StudentTLikelihood cannot be stored"):
        brought.save(tmp_path / "model.gwi")
    binary = GWIRegressor("linear", likelihood=BernoulliLikelihood(), random_state=0).fit(x, (y > 0) * 1.0)
    assert ((binary.predict(x) > 0) & (binary.predict(x) < 1)).all()
    assert np.corrcoef(binary.predict(x), f)[0, 1] > 0.8


@pytest.mark.slow
def test_noise_of_a_positive_target_depends_on_the_row_where_it_does():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (400, 1))
    phi = np.exp(1.5 * x[:, 0] - 2)
    y = rng.gamma(1 / phi, phi * np.exp(0.3 * x[:, 0]))
    model = GWIRegressor("linear", likelihood="gamma", random_state=0).fit(x, y)
    ends = model.predict_dist(np.array([[-0.9], [0.9]]))
    ratio = ends.std / ends.mean
    assert 1.6 < ratio[1] / ratio[0] < 6


def test_only_bounds_that_are_told_are_learned_from():
    # Where every second row is only known to be above its own target, the law is that of the targets.
    x, _, f, _ = table("log-normal", 150)
    rng = np.random.default_rng(3)
    y = f + 0.3 * rng.normal(size=150)
    hidden = rng.uniform(size=150) < 0.5
    bounds = np.column_stack([np.where(hidden, y - rng.exponential(0.5, 150), y), np.where(hidden, np.inf, y)])
    model = GWIRegressor("linear", likelihood=Censored(log=False, shape="normal"), random_state=0).fit(x, bounds)
    assert np.abs(model.predict(x) - f).mean() < 0.12
    assert abs((model.predict(x) - f).mean()) < 0.08
    naive = GWIRegressor("linear", random_state=0, likelihood="gaussian").fit(x, bounds[:, 0])
    assert (naive.predict(x) - f).mean() < -0.15
    # The score of the bounds is that of the law: a density where y is known, a probability beyond it where not.
    law = model.predict_dist(x)
    known = ~hidden
    expected = -np.where(known, law.logpdf(np.where(known, y, 0)), np.log1p(-law.cdf(bounds[:, 0]))).mean()
    assert model.nll(x, bounds) == pytest.approx(expected, rel=1e-9)


def test_levels_come_as_categoricals_and_are_predicted_by_name(tmp_path):
    x, y, _, _ = table("ordinal")
    names = np.array(["poor", "fair", "good", "excellent"])
    levels = pd.Series(pd.Categorical(names[y.astype(int)], categories=list(names), ordered=True))
    model = GWIRegressor("linear", likelihood="ordinal", random_state=0).fit(x, levels)
    numbers = fitted("ordinal")
    np.testing.assert_allclose(model.predict_dist(x).probabilities, numbers.predict_dist(x).probabilities, rtol=1e-9)
    assert (model.predict(x) == np.asarray(levels)).mean() > 0.7
    np.testing.assert_array_equal(load(model.save(tmp_path / "levels.gwi")).predict(x), model.predict(x))
    assert model.nll(x, levels) == pytest.approx(numbers.nll(x, y), rel=1e-9)
    # In another order of categories, or with fewer, names are what counts.
    other = pd.Categorical(np.asarray(levels)[:5], categories=["good", "fair", "poor", "excellent"], ordered=True)
    assert model.nll(x[:5], other) == pytest.approx(numbers.nll(x[:5], y[:5]), rel=1e-9)
    with pytest.raises(ValueError, match=r"was fitted to the levels poor, fair, good, excellent; got dire"):
        model.nll(x[:1], pd.Categorical(["dire"], ordered=True))


def test_levels_that_no_row_has_are_not_predicted():
    x, _, f, _ = table("ordinal", 60)
    names = np.array(["low", "never", "high"])
    levels = pd.Categorical(names[2 * (f > 0)], categories=list(names), ordered=True)
    model = GWIRegressor("linear", likelihood="ordinal", random_state=0).fit(x, levels)
    assert set(model.predict(x)) == {"low", "high"}
    assert (model.predict(x) == np.asarray(levels)).mean() > 0.85
    assert model.predict_dist(x).probabilities.shape == (60, 2)


@pytest.mark.slow
def test_levels_of_rows_that_weigh_nothing_are_not_predicted():
    x, _, f, _ = table("ordinal")
    names = np.array(["low", "never", "high"])
    three = pd.Categorical(names[np.digitize(f, [-0.5, 0.5])], categories=list(names), ordered=True)
    weight = (np.abs(f) > 0.5) * 1.0
    again = GWIRegressor("linear", likelihood="ordinal", random_state=0).fit(x, three, sample_weight=weight)
    assert set(again.predict(x)) == {"low", "high"}


def test_draws_of_a_fitted_law_pass_a_test_of_fit():
    x = np.array([[0.4, -0.2]])
    for name in ("gamma", "beta", "log-normal"):
        model = fitted(name)
        law = model.predict_dist(x)
        draws = model.sample_y(x, 3000, random_state=0)[0]
        many = law[np.zeros(3000, dtype=int)]
        assert stats.kstest(many.cdf(draws), "uniform").pvalue > 0.001


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_kernel_mean_alone_orders_times_of_which_half_are_bounds(seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((400, 6))
    f = 0.5 * x[:, 0] - 0.4 * x[:, 1]
    time = np.exp(f + 0.9 * rng.standard_normal(400))
    left = np.exp(0.9 * rng.standard_normal(400)) * rng.uniform(0.1, 2.5, 400)
    y = np.empty(400, dtype=[("event", bool), ("time", float)])
    y["event"], y["time"] = time <= left, np.minimum(time, left)
    assert 0.4 < y["event"].mean() < 0.6
    model = GWIRegressor("svgp", cv=3, random_state=0).fit(x[:200], y[:200])
    assert evaluation.concordance(y[200:], model.predict_dist(x[200:])) > 0.7


def test_a_likelihood_with_a_kink_does_not_look_as_if_its_variance_had_collapsed():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error", GWIWarning)
        GWIRegressor("svgp", likelihood=LaplaceLikelihood(), cv=2, random_state=0).fit(x, x[:, 0] + rng.laplace(0, 0.7, 60))
