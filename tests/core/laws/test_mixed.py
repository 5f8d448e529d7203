"""The law of y under a Gaussian f: probabilities, quantiles, scores and draws are those of the integral."""

import math

import numpy as np
import pytest
import scoringrules
import torch
from scipy import stats

from gwi.core.laws.mixed import MixedLaw
from gwi.core.laws.protocol import PredictiveLaw, pit
from gwi.core.laws.roots import increasing_root
from gwi.core.likelihoods.families import BetaFamily, GammaFamily, NegativeBinomialFamily, PoissonFamily
from likelihood_cases import LINKED, expectation, law_of, log_marginal, panels, scipy_law

# Each asks for thousands of integrals.
pytestmark = pytest.mark.unchecked
NAMES = pytest.mark.parametrize("name", LINKED)
# Means, standard deviations of f and dispersions; the last rows have a likelihood far narrower than the law of f.
ROWS = np.array([[-1.0, 0.05, 0.3], [0.5, 0.6, 0.05], [2.0, 1.4, 1.2], [1.0, 1.5, 1e-4], [3.5, 2.0, 1e-3]])


def rows(name, unit=1.0):
    return law_of(LINKED[name], ROWS[:, 0], ROWS[:, 1] ** 2, ROWS[:, 2], unit)


def distribution(family, y, row):
    mean, std, phi = ROWS[row]
    return expectation(lambda f: scipy_law(family, f, phi).cdf(y), mean, std**2, 300 if phi > 1e-2 else 5000)


@NAMES
def test_densities_and_probabilities_are_the_integrals(name):
    law, family = rows(name), LINKED[name]
    assert isinstance(law, PredictiveLaw)
    for level in (0.03, 0.5, 0.9):
        y = law.quantile(level)
        log_density, chance = law.log_density(y), law.cumulative(y)
        for row, (mean, std, phi) in enumerate(ROWS):
            assert chance[row] == pytest.approx(distribution(family, y[row], row), abs=1e-8)
            if phi > 1e-2:
                assert log_density[row] == pytest.approx(log_marginal(family, y[row], mean, std**2, phi), abs=1e-8)


@NAMES
def test_moments_are_the_integrals(name):
    law, family = rows(name), LINKED[name]
    known, noise = law.parts()
    for row, (mean, std, phi) in enumerate(ROWS):
        of_y = scipy_law(family, np.zeros(1), phi)
        first = expectation(lambda f, phi=phi: scipy_law(family, f, phi).mean(), mean, std**2)
        assert law.expectation()[row] == pytest.approx(first, rel=1e-8)
        inside = expectation(lambda f, phi=phi: scipy_law(family, f, phi).var(), mean, std**2)
        assert noise[row] == pytest.approx(inside, rel=1e-7)
        between = expectation(lambda f, phi=phi, e=first: (scipy_law(family, f, phi).mean() - e) ** 2, mean, std**2)
        assert known[row] == pytest.approx(between, rel=1e-7)
        assert np.isfinite(of_y.mean()).all()
    np.testing.assert_allclose(law.variance(), known + noise, rtol=1e-12)


@NAMES
def test_quantiles_invert_the_distribution_function(name):
    law = rows(name)
    for level in (1e-6, 0.01, 0.3, 0.5, 0.975, 1 - 1e-9):
        y = law.quantile(level)
        if law.is_discrete:
            assert (law.cumulative(y) >= level).all()
            assert ((law.cumulative(y - 1) < level) | (y == 0)).all()
        else:
            # Half of a beta law may lie nearer to a bound than the next number that can be written down.
            reached = (np.abs(y - law.support[0]) > 1e-9) & (np.abs(y - law.support[1]) > 1e-9)
            assert reached.sum() >= 2
            np.testing.assert_allclose(law.cumulative(y)[reached], level, rtol=1e-8, atol=1e-11)


def substituted(family, y):
    """Values on both sides of y and the weights of an integral over them, on a scale that shows what lies near a bound."""
    share_of_y = (y - family.support[0]) / (family.support[1] - family.support[0])
    middle = math.log(y) if family.name == "gamma" else math.log(share_of_y / (1 - share_of_y))
    (low, below), (high, above) = panels(-36.0, middle, 100), panels(middle, 36.0, 100)
    u, weight = np.concatenate([low, high]), np.concatenate([below, above])
    if family.name == "gamma":
        return np.exp(u), weight * np.exp(u), u > middle
    share = 1 / (1 + np.exp(-u))
    width = family.high - family.low
    return family.low + width * share, weight * width * share * (1 - share), u > middle


@NAMES
def test_the_crps_is_the_integral_of_squared_distances(name):
    family = LINKED[name]
    for row, level in ((0, 0.1), (1, 0.8), (2, 0.6)):
        one = law_of(family, *ROWS[row] ** [1, 2, 1])
        y = one.quantile(level)
        if one.is_discrete:
            z = np.arange(0.0, min(one.quantile(1 - 1e-12)[0], 5000.0) + 2)
            weight, above = np.ones(len(z)), z >= y
        else:
            z, weight, above = substituted(family, float(y[0]))
        chance = one.rows(np.zeros(len(z), dtype=int)).cumulative(z)
        if chance[-1] > 1 - 1e-10:
            assert one.crps(y)[0] == pytest.approx(weight @ np.square(chance - above), rel=1e-7)


@NAMES
def test_draws_have_the_distribution(name):
    law, size = rows(name), 4000
    draws = law.sample(size, np.random.default_rng(3))
    assert draws.shape == (size, len(ROWS))
    np.testing.assert_array_equal(draws, law.sample(size, np.random.default_rng(3)))
    for row in range(2):
        repeated = law.rows(np.full(size, row))
        places = pit(repeated, draws[:, row])
        assert stats.kstest(places, "uniform").pvalue > 0.001


def test_without_spread_of_f_it_is_scipys_law_and_scoringrules_scores():
    f, phi = np.array([-1.0, 0.7, 2.5]), 0.4
    tiny = np.full(3, 1e-24)
    rate, y = np.exp(f), np.array([0.0, 3.0, 9.0])
    poisson, counts = law_of(PoissonFamily(), f, tiny, 1.0), law_of(NegativeBinomialFamily(), f, tiny, phi)
    np.testing.assert_allclose(poisson.crps(y), scoringrules.crps_poisson(y, rate), rtol=1e-8)
    np.testing.assert_allclose(counts.crps(y), scoringrules.crps_negbinom(y, 1 / phi, 1 / (1 + phi * rate)), rtol=1e-8)
    gamma, positive = law_of(GammaFamily(), f, tiny, phi), y + 0.3
    np.testing.assert_allclose(gamma.crps(positive), scoringrules.crps_gamma(positive, 1 / phi, 1 / (phi * rate)), rtol=1e-8)
    share, inside = 1 / (1 + np.exp(-f)), np.array([0.1, 0.5, 0.97])
    beta = law_of(BetaFamily(), f, tiny, phi)
    np.testing.assert_allclose(beta.crps(inside), scoringrules.crps_beta(inside, share / phi, (1 - share) / phi), rtol=1e-8)
    for law, theirs in ((poisson, stats.poisson(rate)), (counts, stats.nbinom(1 / phi, 1 / (1 + phi * rate)))):
        np.testing.assert_allclose(law.log_density(y), theirs.logpmf(y), rtol=1e-8)
        np.testing.assert_array_equal(law.quantile(0.9), theirs.ppf(0.9))
    np.testing.assert_allclose(gamma.quantile(0.01), stats.gamma(1 / phi, scale=phi * rate).ppf(0.01), rtol=1e-10)


def test_scores_of_small_counts_do_not_depend_on_large_ones_beside_them():
    family = PoissonFamily()
    small = law_of(family, [0.3], [0.2], 1.0)
    both = law_of(family, [0.3, 13.0], [0.2, 0.1], 1.0)
    y = np.array([2.0, 400_000.0])
    assert both.crps(y)[0] == pytest.approx(small.crps(y[:1])[0], rel=1e-12)


def test_scores_of_large_counts_are_those_of_all_values():
    # f known well, as well as its threshold, and far less well; shapes of few and of many events.
    for family, mean, variance, phi in (
        (PoissonFamily(), 5.0, 1e-4, 1.0),
        (PoissonFamily(), 5.0, 0.02, 1.0),
        (PoissonFamily(), 4.0, 0.5, 1.0),
        (PoissonFamily(), 1.0, 1.0, 1.0),
        (NegativeBinomialFamily(), 4.0, 0.02, 0.8),
        (NegativeBinomialFamily(), 4.0, 0.3, 0.01),
        (NegativeBinomialFamily(), 1.0, 0.3, 2.0),
    ):
        law = law_of(family, mean, variance, phi)
        steps = np.arange(float(law.quantile(1 - 1e-13)[0]) + 1)
        f = mean + math.sqrt(variance) * (nodes := np.linspace(-8.5, 8.5, 401))
        weights = np.exp(-np.square(nodes) / 2)
        weights /= weights.sum()
        chance = np.concatenate(
            [family.cumulative(some[:, None], f, phi) @ weights for some in np.array_split(steps, 1 + len(steps) // 500)]
        )
        np.testing.assert_allclose(law_of(family, np.full(len(steps), mean), variance, phi).cumulative(steps), chance, atol=1e-10)
        for y in (0.0, 64.0, 200.0):
            expected = np.square(chance - (steps >= y)).sum() + max(y - steps[-1], 0.0)
            assert law.crps(np.array([y]))[0] == pytest.approx(expected, rel=1e-7)
    # Far more than can be looked at one by one: a log-normal law in all but name.
    wide = law_of(PoissonFamily(), 20.0, 0.5, 1.0)
    y = math.exp(20.3)
    expected = scoringrules.crps_lognormal(np.round(y), 20.0, math.sqrt(0.5))
    assert wide.crps(np.array([np.round(y)]))[0] == pytest.approx(expected, rel=1e-6)


def test_numbers_between_counts_score_in_proportion():
    law = law_of(NegativeBinomialFamily(), [1.0], [0.3], 0.5)
    low, high = (law.crps(np.array([y]))[0] for y in (3.0, 4.0))
    assert law.crps(np.array([3.25]))[0] == pytest.approx(0.75 * low + 0.25 * high, rel=1e-12)
    assert law.crps(np.array([-2.0]))[0] == pytest.approx(law.crps(np.array([0.0]))[0] + 2, rel=1e-12)
    assert law.log_density(np.array([3.25]))[0] == -math.inf
    assert law.log_density(np.array([-1.0]))[0] == -math.inf


def test_a_unit_scales_everything():
    law, scaled = rows("gamma").rows([0, 1]), rows("gamma", 1e6).rows([0, 1])
    y = law.quantile(0.4)
    np.testing.assert_allclose(scaled.quantile(0.4), 1e6 * y, rtol=1e-9)
    np.testing.assert_allclose(scaled.expectation(), 1e6 * law.expectation(), rtol=1e-12)
    np.testing.assert_allclose(scaled.variance(), 1e12 * law.variance(), rtol=1e-12)
    np.testing.assert_allclose(scaled.cumulative(1e6 * y), law.cumulative(y), rtol=1e-9)
    np.testing.assert_allclose(scaled.log_density(1e6 * y), law.log_density(y) - math.log(1e6), atol=1e-9)
    np.testing.assert_allclose(scaled.crps(1e6 * y), 1e6 * law.crps(y), rtol=1e-9)


@NAMES
@pytest.mark.parametrize("mean", [-50.0, 50.0])
def test_extreme_rows_have_finite_answers(name, mean):
    for phi, variance in ((1e-6, 1e-300), (1e-3, 4.0), (1e4, 4.0)):
        law = law_of(LINKED[name], [mean], [variance], phi)
        low, high = law.support
        for level in (0.01, 0.5, 0.99):
            y = law.quantile(level)
            assert np.isfinite(y).all()
            assert low <= y[0] <= high
            assert 0 <= law.cumulative(y)[0] <= 1
        assert np.isfinite(law.variance()[0])
        assert law.variance()[0] >= 0
        score = law.crps(y) if variance < 1 else np.zeros(1)
        assert np.isfinite(score).all()
        assert score[0] >= 0
        if law.is_discrete:
            assert law.log_density(y)[0] <= 0


@NAMES
def test_outside_of_the_support_there_is_nothing(name):
    law = rows(name)
    low, high = law.support
    below = np.full(len(ROWS), low - 1.0)
    np.testing.assert_array_equal(law.log_density(below), -math.inf)
    np.testing.assert_array_equal(law.cumulative(below), 0.0)
    if math.isfinite(high):
        np.testing.assert_array_equal(law.log_density(np.full(len(ROWS), high + 1)), -math.inf)
        np.testing.assert_array_equal(law.cumulative(np.full(len(ROWS), high + 1)), 1.0)
    for y in (math.inf, -math.inf):
        assert not np.isnan(law.log_density(np.full(len(ROWS), y))).any()
    if not law.is_discrete:
        np.testing.assert_array_equal(law.log_density(np.full(len(ROWS), low)), -math.inf)


def test_targets_at_a_bound_that_were_learned_have_a_density():
    law = law_of(BetaFamily(margin=0.01), [0.0, 0.0], 0.1, 0.3)
    assert np.isfinite(law.log_density(np.array([0.0, 1.0]))).all()


def test_rows_are_taken_out_and_none_are_none():
    law = rows("gamma").rows([2, 1, 0])
    y = law.quantile(0.3)
    chosen = [2, 0]
    np.testing.assert_allclose(law.rows(chosen).log_density(y[chosen]), law.log_density(y)[chosen], rtol=1e-10)
    np.testing.assert_allclose(law.rows(chosen).crps(y[chosen]), law.crps(y)[chosen], rtol=1e-9)
    for name in LINKED:
        empty, none = rows(name).rows(np.zeros(0, dtype=int)), np.empty(0)
        answers = (empty.expectation(), empty.variance(), empty.log_density(none), empty.quantile(0.5), empty.crps(none))
        assert all(answer.shape == (0,) for answer in answers)


def test_a_root_is_found_at_every_row_or_the_nearer_end():
    target = np.array([0.3, -2.0, 1e-9, 50.0, -50.0])
    found = increasing_root(lambda x: np.tanh(x - target), np.full(5, -10.0), np.full(5, 10.0))
    np.testing.assert_allclose(found[:3], target[:3], atol=1e-15)
    np.testing.assert_array_equal(found[3:], [10.0, -10.0])
    # A cube is flat at its root, a step has none.
    np.testing.assert_allclose(increasing_root(lambda x: (x - 1) ** 3, np.zeros(1), np.full(1, 3.0)), 1.0, atol=1e-4)
    step = increasing_root(lambda x: np.where(x < 0.25, -1.0, 1.0), np.zeros(1), np.ones(1))
    np.testing.assert_allclose(step, 0.25, rtol=1e-12)


def test_a_law_is_kept_by_pickle():
    import pickle

    law = rows("beta")
    again = pickle.loads(pickle.dumps(law))
    assert isinstance(again, MixedLaw)
    np.testing.assert_array_equal(again.quantile(0.2), law.quantile(0.2))
    assert torch.get_default_dtype() == torch.float32
