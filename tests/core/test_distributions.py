"""Tails are normal unless unseen rows say otherwise, and a standard deviation means the same with either."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm, t

from gwi import GWIRegressor
from gwi.core.distributions import Tails, choose_tails, log_density, match_coverage, quantile
from gwi.parts import Gaussian


@pytest.mark.parametrize("degrees", [4.0, 6.0, 20.0, math.inf])
def test_every_law_has_unit_variance_and_quantiles_that_match_its_density(degrees):
    mass = quad(lambda z: math.exp(log_density(np.array(z), degrees)), -np.inf, np.inf)[0]
    variance = quad(lambda z: z**2 * math.exp(log_density(np.array(z), degrees)), -np.inf, np.inf, limit=200)[0]
    assert mass == pytest.approx(1, abs=1e-6)
    assert variance == pytest.approx(1, abs=1e-3)
    below = quad(lambda z: math.exp(log_density(np.array(z), degrees)), -np.inf, float(quantile(np.array(0.9), degrees)))[0]
    assert below == pytest.approx(0.9, abs=1e-6)


def test_normal_errors_keep_normal_tails_and_the_closed_form_factor():
    z = 1.7 * np.random.default_rng(0).standard_normal(2000)
    law = choose_tails(z, np.ones(2000))
    assert law.degrees_of_freedom == math.inf
    assert law.factor == pytest.approx((z**2).mean())


def test_heavy_errors_get_heavy_tails():
    z = t.rvs(4, size=3000, random_state=0)
    law = choose_tails(z, np.ones(3000))
    assert law.degrees_of_freedom in (4.0, 5.0, 6.0)
    assert law.factor == pytest.approx(2.0, rel=0.25)
    fixed = choose_tails(z / z.std(), np.ones(3000), factor=1.0)
    assert fixed.factor == 1.0
    assert fixed.degrees_of_freedom < math.inf


def test_a_row_of_weight_two_counts_twice():
    z = t.rvs(4, size=400, random_state=1)
    weight = np.ones(400)
    weight[:100] = 2
    weighted, doubled = choose_tails(z, weight), choose_tails(np.concatenate([z, z[:100]]), np.ones(500))
    assert weighted.degrees_of_freedom == doubled.degrees_of_freedom
    assert weighted.factor == pytest.approx(doubled.factor, rel=1e-3)


def heavy(num_rows, seed):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-3, 3, (num_rows, 1))
    return x, 10 * np.sin(x[:, 0]) + rng.standard_t(3, num_rows)


def test_heavy_tails_lower_the_nll_and_every_answer_uses_them():
    x, y = heavy(240, 0)
    model = GWIRegressor("svgp", random_state=0).fit(x, y)
    normal = GWIRegressor("svgp", random_state=0, likelihood=Gaussian(tails="normal")).fit(x, y)
    assert model.summary_.degrees_of_freedom[0] < math.inf
    assert "degrees of freedom" in str(model.summary_)
    new, values = heavy(2000, 1)
    assert model.nll(new, values) < normal.nll(new, values) - 0.03
    mean, std = model.predict(new, return_std=True)
    degrees = model.summary_.degrees_of_freedom[0]
    assert model.nll(new, values) == pytest.approx(
        -(t.logpdf((values - mean) / std / math.sqrt((degrees - 2) / degrees), degrees) - np.log(std)).mean()
        + math.log(math.sqrt((degrees - 2) / degrees))
    )
    lower, upper = model.predict_interval(new, 0.9).T
    assert 0.87 < ((lower < values) & (values < upper)).mean() < 0.95
    draws = model.sample_y(new[:3], 20_000)
    wanted = model.predict_quantiles(new[:3], (0.05, 0.5, 0.95))
    np.testing.assert_allclose(np.quantile(draws, (0.05, 0.5, 0.95), axis=1).T, wanted, atol=0.12)


def test_draws_of_neighbouring_rows_move_together_with_any_tails():
    x, y = heavy(240, 0)
    model = GWIRegressor("svgp", random_state=0, likelihood=Gaussian("constant")).fit(x, y)
    far = np.array([[8.0], [8.01]])
    first, second = model.sample_y(far, 2000)
    covariance = model.predict(far, return_cov=True)[1]
    wanted = covariance[0, 1] / math.sqrt(covariance[0, 0] * covariance[1, 1])
    assert np.corrcoef(
        norm.ppf(np.argsort(np.argsort(first)) / 2000 + 1 / 4000), norm.ppf(np.argsort(np.argsort(second)) / 2000 + 1 / 4000)
    )[0, 1] == pytest.approx(wanted, abs=0.05)


def test_unknown_tails_are_named():
    with pytest.raises(ValueError, match="tails must be"):
        GWIRegressor(likelihood=Gaussian(tails="fat")).fit(*heavy(30, 0))


def test_matched_intervals_hold_what_they_promise_when_rows_are_many():
    """The law is a contaminated normal, which no t is: its density and its 95 % interval ask for different scales."""
    rng = np.random.default_rng(0)
    z = np.where(rng.random(20_000) < 0.1, 4.0, 1.0) * rng.standard_normal(20_000)
    weight = np.ones_like(z)
    law = choose_tails(z, weight, degrees=(12.0,))

    def coverage(found):
        return np.mean(np.abs(z) <= np.sqrt(found.factor) * quantile(np.array(0.975), found.degrees_of_freedom))

    matched = match_coverage(z, weight, law)
    assert matched.degrees_of_freedom == law.degrees_of_freedom
    assert abs(coverage(matched) - 0.95) < 0.002 < abs(coverage(law) - 0.95)


def test_few_rows_hardly_move_the_scale():
    z = np.array([0.1, -0.2, 5.0])
    law = Tails(1.0, math.inf)
    assert match_coverage(z, np.ones(3), law).factor == pytest.approx(1.0, rel=0.05)
    assert match_coverage(np.zeros(3), np.ones(3), law) == law


def test_a_weighted_quantile_is_that_of_repeated_rows():
    rng = np.random.default_rng(1)
    z, weight, law = rng.standard_normal(400), rng.integers(1, 4, 400).astype(float), Tails(1.0, 5.0)
    repeated = np.repeat(z, weight.astype(int))
    one, other = match_coverage(z, weight, law), match_coverage(repeated, np.ones(len(repeated)), law)
    # The rows count as 400 and as more, so that the shares differ; the quantiles behind them do not.
    assert np.log(one.factor) * (400 + 200) / 400 == pytest.approx(np.log(other.factor) * (len(repeated) + 200) / len(repeated))


def test_what_was_chosen_by_the_judging_rows_widens_the_law():
    z = np.random.default_rng(2).standard_normal(100)
    law = Tails(1.0, math.inf)
    plain, wider = (match_coverage(z, np.ones(100), law, optimism=c) for c in (0.0, 10.0))
    assert wider.factor == pytest.approx(1.1 * plain.factor)
