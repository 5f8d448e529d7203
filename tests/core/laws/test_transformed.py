"""Log-normal, cut and discrete laws are SciPy's, and score as scoringrules says."""

import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
import scoringrules
import torch
from scipy import stats

from gwi.core.laws.discrete import DiscreteLaw
from gwi.core.laws.gaussian import Law
from gwi.core.laws.protocol import PredictiveLaw, log_likelihood_of_bounds
from gwi.core.laws.transformed import LogLaw, TruncatedLaw, as_normals, factors_of_normals
from gwi.evaluation.predictive import Predictive
from likelihood_cases import panels

rng = np.random.default_rng(0)
N = 12
MEAN, STD = rng.normal(size=(1, N)), rng.uniform(0.1, 1.2, size=(1, N))
POSITIVE = np.exp(MEAN[0] + STD[0] * rng.normal(size=N))
LOG = LogLaw(Law(MEAN, STD))
MIXTURE = Law(rng.normal(size=(3, N)), rng.uniform(0.2, 1, size=(3, N)), weights=(0.2, 0.5, 0.3))


def cut(degrees=math.inf, low=0.0):
    return TruncatedLaw(Law(MEAN, STD, degrees), low)


def discrete():
    chances = rng.dirichlet(np.ones(4), N).T
    return DiscreteLaw(np.array([-1.0, 0.0, 2.5, 7.0]), chances)


def predictive(law):
    return Predictive((law,), np.full(N, 0.1), np.full(N, 0.2), True)


def test_the_exponential_of_a_normal_law_is_scipys():
    theirs = stats.lognorm(s=STD[0], scale=np.exp(MEAN[0]))
    np.testing.assert_allclose(LOG.expectation(), theirs.mean(), rtol=1e-12)
    np.testing.assert_allclose(LOG.variance(), theirs.var(), rtol=1e-12)
    np.testing.assert_allclose(LOG.log_density(POSITIVE), theirs.logpdf(POSITIVE), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(LOG.cumulative(POSITIVE), theirs.cdf(POSITIVE), rtol=1e-12)
    np.testing.assert_allclose(LOG.survival(POSITIVE), theirs.sf(POSITIVE), rtol=1e-12)
    np.testing.assert_allclose(LOG.quantile(0.03), theirs.ppf(0.03), rtol=1e-12)
    np.testing.assert_allclose(LOG.crps(POSITIVE), scoringrules.crps_lognormal(POSITIVE, MEAN[0], STD[0]), rtol=1e-10)
    found = predictive(LOG)
    np.testing.assert_allclose(found.to_scipy().logpdf(POSITIVE), found.logpdf(POSITIVE), rtol=1e-12, atol=1e-12)
    theirs_of_torch = found.to_torch().log_prob(torch.from_numpy(POSITIVE)).numpy()
    np.testing.assert_allclose(theirs_of_torch, found.logpdf(POSITIVE), rtol=1e-10)


@pytest.mark.parametrize("y", [0.0, -1.0])
def test_a_positive_law_has_nothing_below_zero(y):
    at = np.full(N, y)
    np.testing.assert_array_equal(LOG.log_density(at), -math.inf)
    np.testing.assert_array_equal(LOG.cumulative(at), 0.0)
    np.testing.assert_allclose(LOG.crps(at), LOG.crps(np.zeros(N)) - y, rtol=1e-12)


def test_the_exponential_of_a_mixture_is_the_mixture_of_exponentials():
    law, y = LogLaw(MIXTURE), POSITIVE
    parts = [stats.lognorm(s=s, scale=np.exp(m)) for m, s in zip(MIXTURE.mean, MIXTURE.std, strict=True)]
    weights = np.array(MIXTURE.weights)
    mean = sum(w * part.mean() for w, part in zip(weights, parts, strict=True))
    np.testing.assert_allclose(law.expectation(), mean, rtol=1e-12)
    second = sum(w * (part.var() + part.mean() ** 2) for w, part in zip(weights, parts, strict=True))
    np.testing.assert_allclose(law.variance(), second - mean**2, rtol=1e-9)
    np.testing.assert_allclose(
        law.cumulative(y), sum(w * part.cdf(y) for w, part in zip(weights, parts, strict=True)), rtol=1e-11
    )
    np.testing.assert_allclose(law.cumulative(law.quantile(0.2)), 0.2, rtol=1e-9)
    _check_crps(law, y, np.exp(-12.0), np.exp(8.0), on_logs=True)


def test_the_exponential_of_a_t_law_has_moments_as_a_mixture_of_normal_laws():
    factors = factors_of_normals(5.0)
    assert factors.mean() == pytest.approx(1, abs=1e-12)
    law = as_normals(Law(MEAN, STD, 5.0))
    np.testing.assert_allclose(law.variance(), np.square(STD[0]), rtol=1e-9)
    exact = Law(MEAN, STD, 5.0)
    for level in (0.025, 0.2, 0.5, 0.9):
        np.testing.assert_allclose(exact.cumulative(law.quantile(level)), level, atol=0.004)


@pytest.mark.parametrize("degrees", [math.inf, 4.0, 9.0])
@pytest.mark.parametrize("low", [-1.0, 0.0, 1.5])
def test_a_cut_law_is_the_law_given_that_it_lies_above(degrees, low):
    law = cut(degrees, low)
    assert isinstance(law, PredictiveLaw)
    if math.isinf(degrees):
        inner = stats.norm(MEAN[0], STD[0])
        theirs = stats.truncnorm((low - MEAN[0]) / STD[0], np.inf, MEAN[0], STD[0])
        np.testing.assert_allclose(law.expectation(), theirs.mean(), rtol=1e-8)
        np.testing.assert_allclose(law.variance(), theirs.var(), rtol=1e-5)
    else:
        inner = stats.t(degrees, MEAN[0], STD[0] * math.sqrt((degrees - 2) / degrees))
    y = np.maximum(inner.ppf(0.7), low + 0.01)
    np.testing.assert_allclose(law.log_density(y), inner.logpdf(y) - inner.logsf(low), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(law.survival(y), inner.sf(y) / inner.sf(low), rtol=1e-9)
    for level in (1e-6, 0.1, 0.5, 0.999):
        q = law.quantile(level)
        assert (q >= low).all()
        np.testing.assert_allclose(law.cumulative(q), level, rtol=1e-7, atol=1e-10)
    # By the integrals of their definition.
    for row in range(0, N, 5):
        one = law.rows([row])
        u, weight = panels(-30.0, 12.0)
        z, weight = low + np.exp(u), weight * np.exp(u)
        density = np.exp(one.rows(np.zeros(len(z), dtype=int)).log_density(z)) * weight
        assert density.sum() == pytest.approx(1, abs=1e-9)
        mean = density @ z
        assert one.expectation()[0] == pytest.approx(mean, rel=1e-6)
        assert one.variance()[0] == pytest.approx(density @ (z - mean) ** 2, rel=1e-3)
    np.testing.assert_array_equal(law.log_density(np.full(N, low - 1)), -math.inf)
    draws = law.sample(500, np.random.default_rng(0))
    assert (draws >= low).all()
    assert stats.kstest(np.concatenate([law.cumulative(row) for row in draws]), "uniform").pvalue > 0.001


def test_the_crps_of_a_cut_normal_law_is_scoringrules():
    law, y = cut(), np.abs(POSITIVE)
    expected = scoringrules.crps_tnormal(y, MEAN[0], STD[0], lower=0.0)
    # Where the mean lies far below the cut theirs has lost its digits.
    near = MEAN[0] > -3 * STD[0]
    assert near.sum() > 6
    np.testing.assert_allclose(law.crps(y)[near], expected[near], rtol=1e-7)
    for row in range(N):
        theirs = stats.truncnorm(-MEAN[0, row] / STD[0, row], np.inf, MEAN[0, row], STD[0, row])
        (below, under), (beyond, over) = panels(0.0, y[row]), panels(y[row], y[row] + 12 * STD[0, row] + 5)
        exact = under @ theirs.cdf(below) ** 2 + over @ theirs.sf(beyond) ** 2
        assert law.crps(y)[row] == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("moved", [-0.4, 0.3, 40.0])
def test_a_cut_mixture_is_the_mixture_given_that_it_lies_above(moved):
    inner = Law(MIXTURE.mean + moved, MIXTURE.std, weights=MIXTURE.weights)
    law = TruncatedLaw(inner, 0.0)
    points, weights = panels(0.0, moved + 14.0, 60)
    density = np.stack([np.exp(law.log_density(np.full(N, point))) for point in points])
    np.testing.assert_allclose(weights @ density, 1.0, rtol=1e-8)
    mean = weights @ (points[:, None] * density)
    np.testing.assert_allclose(law.expectation(), mean, rtol=1e-8)
    np.testing.assert_allclose(law.variance(), weights @ (np.square(points[:, None] - mean) * density), rtol=1e-6)
    for level in (1e-3, 0.2, 0.5, 0.9, 0.9999):
        np.testing.assert_allclose(law.cumulative(law.quantile(level)), level, rtol=1e-8)


def test_a_mixture_that_is_cut_keeps_its_mean_where_that_lies_above():
    inner = Law(np.abs(MIXTURE.mean) + 0.3, MIXTURE.std, weights=MIXTURE.weights)
    law = TruncatedLaw.with_means_of(inner, 0.0)
    assert (inner.cumulative(np.zeros(N)) > 1e-3).all()
    np.testing.assert_allclose(law.expectation(), inner.expectation(), rtol=1e-9)
    assert (TruncatedLaw.with_means_of(replace(inner, mean=inner.mean - 3), 0.0).expectation() > 0).all()


def test_what_lies_far_below_the_cut_keeps_finite_answers():
    law = TruncatedLaw(Law(np.array([[-30.0, -300.0, 5.0]]), np.ones((1, 3))), 0.0)
    y = np.array([0.01, 0.001, 3.0])
    for values in (law.expectation(), law.variance(), law.log_density(y), law.quantile(0.5), law.crps(y), law.sample(3, rng)):
        assert np.isfinite(values).all()
    assert (law.expectation() >= 0).all()
    assert law.expectation()[0] == pytest.approx(1 / 30, rel=0.01)


def test_a_law_of_few_values_is_the_sum_over_them():
    law = discrete()
    values, p = law.values, law.probabilities
    one = [stats.rv_discrete(values=(np.arange(4), p[:, row])) for row in range(N)]
    np.testing.assert_allclose(law.expectation(), values @ p, rtol=1e-13)
    np.testing.assert_allclose(law.variance(), values**2 @ p - (values @ p) ** 2, rtol=1e-10)
    for level in (0.01, 0.4, 0.99):
        np.testing.assert_array_equal(law.quantile(level), values[[int(each.ppf(level)) for each in one]])
    for place, value in enumerate(values):
        at = np.full(N, value)
        np.testing.assert_allclose(law.log_density(at), np.log(p[place]), rtol=1e-13)
        np.testing.assert_allclose(law.cumulative(at), p[: place + 1].sum(0), rtol=1e-13)
        np.testing.assert_allclose(law.survival(at), p[place + 1 :].sum(0), rtol=1e-13, atol=1e-300)
    assert (law.log_density(np.full(N, 1.0)) == -math.inf).all()
    # E|Y − y| − ½ E|Y − Y'|, between values and beyond them, too.
    for y in (-3.0, -1.0, 1.0, 2.5, 9.0):
        pairs = (np.abs(values[:, None] - values)[..., None] * p[:, None] * p).sum((0, 1))
        np.testing.assert_allclose(law.crps(np.full(N, y)), np.abs(values - y) @ p - pairs / 2, rtol=1e-12, atol=1e-14)
    draws = law.sample(4000, np.random.default_rng(0))
    counts = [(draws[:, 0] == value).sum() for value in values]
    assert stats.chisquare(counts, 4000 * p[:, 0]).pvalue > 0.001
    found = predictive(law)
    np.testing.assert_array_equal(found.values, values)
    np.testing.assert_array_equal(found.probabilities, p.T)
    np.testing.assert_allclose(found.to_torch().probs.numpy(), p.T, rtol=1e-12)


@pytest.mark.parametrize("law", [LOG, LogLaw(MIXTURE), cut(), cut(5.0), MIXTURE, discrete()], ids=lambda law: type(law).__name__)
def test_every_law_can_be_taken_apart_written_down_and_drawn_from_again(law):
    found = predictive(law)
    y = np.full(N, 2.5)
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again.ppf(0.3), found.ppf(0.3))
    np.testing.assert_array_equal(found.sample(7, 1), found.sample(7, 1))
    assert found.sample(7, 1).shape == (N, 7)
    np.testing.assert_allclose(found[3:6].crps(y[3:6]), found.crps(y)[3:6], rtol=1e-9)
    np.testing.assert_allclose(found[4].mean, found.mean[[4]], rtol=1e-13)
    frames = [found.to_frame(library=name) for name in ("pandas", "polars", "arrow")]
    for frame in frames:
        np.testing.assert_allclose(np.asarray(frame["mean"]), found.mean, rtol=1e-13)
        assert (np.asarray(frame["lower"]) <= np.asarray(frame["upper"])).all()
    low, high = law.support
    assert (found.interval(0.99999) >= low).all()
    assert (found.interval(0.99999) <= high).all()
    assert ((found.cdf(y) >= 0) & (found.cdf(y) <= 1)).all()
    if law is not LOG:
        with pytest.raises(ValueError, match="SciPy has no such distribution"):
            found.to_scipy()


def test_the_likelihood_of_bounds_is_a_density_or_a_probability():
    law = Law(MEAN, STD)
    y = np.column_stack([MEAN[0] - 20 * STD[0], MEAN[0] - 19 * STD[0]])
    y[:4, 1] = y[:4, 0]
    y[4:8, 1] = np.inf
    found = log_likelihood_of_bounds(law, y)
    np.testing.assert_allclose(found[:4], law.log_density(y[:, 0])[:4], rtol=1e-12)
    np.testing.assert_allclose(found[4:8], 0.0, atol=1e-15)
    exact = stats.norm.logcdf(-19) + np.log1p(-np.exp(stats.norm.logcdf(-20) - stats.norm.logcdf(-19)))
    np.testing.assert_allclose(found[8:], exact, rtol=1e-9)
    above = log_likelihood_of_bounds(law, np.column_stack([MEAN[0] + 19 * STD[0], MEAN[0] + 20 * STD[0]]))
    np.testing.assert_allclose(above, exact, rtol=1e-9)


def _check_crps(law, y, low, high, on_logs):
    for row in range(3):
        one, ends = law.rows([row]), np.log([low, y[row], high]) if on_logs else np.array([low, y[row], high])
        expected = 0.0
        for start, end, above in ((ends[0], ends[1], 0.0), (ends[1], ends[2], 1.0)):
            u, weight = panels(start, end)
            z = np.exp(u) if on_logs else u
            chance = one.rows(np.zeros(len(z), dtype=int)).cumulative(z)
            expected += (weight * (z if on_logs else 1.0)) @ np.square(chance - above)
        assert law.crps(y)[row] == pytest.approx(expected, rel=1e-8)
