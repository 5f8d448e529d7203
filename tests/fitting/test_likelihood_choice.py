"""`likelihood="auto"`: what a target can be decides first, held-out rows next; nothing is said outside of the support."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

from gwi import GWIRegressor
from gwi.core.laws.gaussian import Law
from gwi.core.laws.transformed import TruncatedLaw
from gwi.fitting.likelihood_choice import chosen
from gwi.parts import Beta, Censored, FewValues, Gamma, Gaussian, LogNormal, NegativeBinomial, Ordinal

pytestmark = pytest.mark.unchecked


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((180, 3))
    return x, np.sin(1.5 * x[:, 0]) + 0.5 * x[:, 1], rng


def choice(x, y, **kinds):
    return chosen(x, np.asarray(y, dtype=float).reshape(len(x), -1), np.ones(len(x)), **kinds)


def test_numbers_of_both_signs_are_gaussian_without_a_look(rows):
    x, f, _ = rows
    rng = np.random.default_rng(2)
    found = choice(x, f + 0.3 * rng.standard_normal(180))
    assert isinstance(found.part, Gaussian)
    assert (found.low, found.why) == (None, "")


def test_positive_numbers_with_even_noise_are_gaussian_cut_at_zero(rows):
    x, f, _ = rows
    rng = np.random.default_rng(2)
    found = choice(x, 6 + 2 * f + 0.5 * rng.standard_normal(180))
    assert isinstance(found.part, Gaussian)
    assert found.low == 0
    assert "log-normal" in found.why


def test_numbers_far_above_zero_have_no_bound_there(rows):
    x, f, _ = rows
    rng = np.random.default_rng(2)
    assert choice(x, 1000 + f + rng.standard_normal(180)).low is None


@pytest.mark.parametrize(
    ("draw", "part"),
    [
        (lambda f, rng: np.exp(1 + f + 0.5 * rng.standard_normal(len(f))), LogNormal),
        (lambda f, rng: rng.gamma(1.0, np.exp(1 + f)), Gamma),
        (lambda f, rng: rng.poisson(np.exp(1 + f)), NegativeBinomial),
        (lambda f, rng: np.clip(np.round(5 + 1.5 * f), 3, 7), FewValues),
        (lambda f, rng: f > 0, FewValues),
        (lambda f, rng: rng.beta(4 * np.exp(f), 4 * np.exp(-f)).clip(0.001, 0.999), Beta),
    ],
)
def test_kinds_of_numbers_are_told_apart(rows, draw, part):
    x, f, _ = rows
    assert isinstance(choice(x, draw(f, np.random.default_rng(1))).part, part)


def test_bounds_and_levels_need_no_look(rows):
    x, f, _ = rows
    assert isinstance(choice(x, np.column_stack([f, f + 1]), are_bounds=True).part, Censored)
    assert isinstance(choice(x, f > 0, are_levels=True).part, Ordinal)


def test_several_targets_and_given_means_stay_gaussian(rows):
    x, f, _ = rows
    rng = np.random.default_rng(2)
    prices = np.exp(f + rng.standard_normal(180))
    assert isinstance(choice(x, np.column_stack([prices, prices])).part, Gaussian)
    kept = choice(x, prices, keeps_mean=True)
    assert isinstance(kept.part, Gaussian)
    assert kept.low is None


def test_a_look_gives_no_warning_of_the_models_it_fits(rows):
    x, f, _ = rows
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        choice(x, np.random.default_rng(3).poisson(np.exp(0.5 + f)))


def test_a_few_rows_are_judged_by_their_kind_alone(rows):
    x, f, _ = rows
    rng = np.random.default_rng(2)
    assert isinstance(choice(x[:30], rng.poisson(np.exp(1 + f[:30]))).part, NegativeBinomial)


def test_the_choice_does_not_depend_on_the_unit(rows):
    x, f, _ = rows
    y = np.exp(1 + f + 0.5 * np.random.default_rng(3).standard_normal(180))
    assert len({type(choice(x, unit * y).part) for unit in (1e-6, 1e6)}) == 1


def test_the_estimator_says_what_was_chosen_and_why(rows):
    x, f, _ = rows
    rng = np.random.default_rng(2)
    model = GWIRegressor("linear", random_state=0).fit(x, rng.poisson(np.exp(1 + f)))
    assert model.summary_.likelihood in ("poisson", "negative-binomial")
    assert "targets are whole numbers of at least 0; held-out NLL of a quick first fit: counts" in model.summary_.note


def test_levels_of_a_frame_and_events_with_times_are_understood(rows):
    x, f, _ = rows
    names = pd.Series(pd.Categorical.from_codes(np.digitize(f, [-0.5, 0.5]), ["low", "some", "high"], ordered=True))
    ordinal = GWIRegressor("linear", random_state=0).fit(x, names)
    assert ordinal.summary_.likelihood == "ordinal"
    assert set(ordinal.predict(x)) <= {"low", "some", "high"}
    events = np.array([(value < 1, min(np.exp(value), np.e)) for value in f], dtype=[("event", bool), ("time", float)])
    assert GWIRegressor("linear", random_state=0).fit(x, events).summary_.likelihood.startswith("censored")


def test_predictions_of_a_given_mean_are_its_values(rows):
    x, f, _ = rows
    rng = np.random.default_rng(2)
    y = np.exp(2 + 0.3 * f + 0.2 * rng.standard_normal(180))
    line = LinearRegression().fit(x[:80], y[:80])
    model = GWIRegressor(line, random_state=0).fit(x[80:140], y[80:140], validation=(x[140:], y[140:]))
    np.testing.assert_allclose(model.predict(x), line.predict(x), rtol=1e-9)


def test_a_law_that_is_cut_keeps_its_mean():
    mean = np.linspace(0.4, 9, 40)
    for degrees in (np.inf, 6.0):
        law = TruncatedLaw.with_means_of(Law(mean[None], np.full((1, 40), 2.0), degrees), 0.0)
        reachable = mean > (0.4 if degrees == np.inf else 2.5)
        np.testing.assert_allclose(law.expectation()[reachable], mean[reachable], rtol=1e-9)
        assert (law.quantile(0.001) >= 0).all()
        draws = law.sample(4000, np.random.default_rng(0))
        np.testing.assert_allclose(draws.mean(0)[reachable], mean[reachable], atol=0.2)
