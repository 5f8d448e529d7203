"""The predictive distribution as an object: SciPy, torch and scoringrules say the same; scores as functions and scorers."""

import math

import numpy as np
import pytest
import scoringrules
import torch
from scipy import stats
from sklearn.datasets import load_diabetes
from sklearn.model_selection import GridSearchCV, cross_val_score

from gwi import GWIRegressor, evaluation
from gwi.evaluation.predictive import Predictive
from gwi.evaluation.regression import Law

N = 40
rng = np.random.default_rng(0)
MEAN, STD = rng.normal(size=(2, N)), rng.uniform(0.1, 3, size=(2, N))
Y = MEAN + STD * rng.standard_t(4, size=(2, N))


def predictive(*degrees):
    laws = tuple(Law(MEAN[j : j + 1], STD[j : j + 1], d) for j, d in enumerate(degrees))
    one = len(degrees) == 1
    shape = (N,) if one else (N, len(degrees))
    return Predictive(laws, np.full(shape, 0.1), np.full(shape, 0.2), one)


def scipy_of(degrees, j=0):
    if math.isinf(degrees):
        return stats.norm(MEAN[j], STD[j])
    return stats.t(degrees, MEAN[j], STD[j] * np.sqrt((degrees - 2) / degrees))


@pytest.mark.parametrize("degrees", [math.inf, 4.0, 7.5])
def test_it_is_what_scipy_says(degrees):
    found, expected = predictive(degrees), scipy_of(degrees)
    np.testing.assert_allclose(found.mean, expected.mean(), rtol=1e-12)
    np.testing.assert_allclose(found.std, expected.std(), rtol=1e-12)
    np.testing.assert_allclose(found.var, expected.var(), rtol=1e-12)
    for ours, theirs in ((found.pdf, expected.pdf), (found.logpdf, expected.logpdf), (found.cdf, expected.cdf)):
        np.testing.assert_allclose(ours(Y[0]), theirs(Y[0]), rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(ours(0.3), theirs(0.3), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(found.ppf(0.9), expected.ppf(0.9), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.ppf([0.1, 0.7]).T, [expected.ppf(0.1), expected.ppf(0.7)], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.interval(0.8).T, expected.interval(0.8), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.to_scipy().logpdf(Y[0]), found.logpdf(Y[0]), rtol=1e-12)
    theirs = found.to_torch().log_prob(torch.from_numpy(Y[0])).numpy()
    np.testing.assert_allclose(theirs, found.logpdf(Y[0]), rtol=1e-10)


def test_the_crps_is_what_scoringrules_says():
    np.testing.assert_allclose(predictive(math.inf).crps(Y[0]), scoringrules.crps_normal(Y[0], MEAN[0], STD[0]), rtol=1e-12)
    for degrees in (4.0, 9.0):
        expected = scoringrules.crps_t(Y[0], degrees, MEAN[0], STD[0] * np.sqrt((degrees - 2) / degrees))
        np.testing.assert_allclose(predictive(degrees).crps(Y[0]), expected, rtol=1e-12)
    low, high = predictive(5.0).interval(0.9).T
    expected = scoringrules.interval_score(Y[0], low, high, 0.1).mean()
    assert evaluation.interval_score(Y[0], low, high, coverage=0.9) == pytest.approx(expected, rel=1e-12)


def test_draws_have_the_quantiles_of_the_distribution():
    for degrees in (math.inf, 5.0):
        found = predictive(degrees)
        draws = found.sample(20_000, random_state=0)
        assert draws.shape == (N, 20_000)
        below = (draws < found.ppf(0.8)[:, None]).mean()
        # Of all rows together: 800,000 draws.
        assert below == pytest.approx(0.8, abs=4 * math.sqrt(0.16 / draws.size))
        np.testing.assert_array_equal(draws, found.sample(20_000, random_state=0))


def test_several_targets_have_a_column_each():
    found, y = predictive(math.inf, 5.0), Y.T
    assert found.mean.shape == found.crps(y).shape == (N, 2)
    assert found.ppf([0.1, 0.5, 0.9]).shape == (N, 2, 3)
    assert found.sample(7, random_state=0).shape == (N, 2, 7)
    for j, degrees in enumerate((math.inf, 5.0)):
        np.testing.assert_allclose(found.cdf(y)[:, j], scipy_of(degrees, j).cdf(Y[j]), rtol=1e-12)
    np.testing.assert_allclose(found.to_scipy().cdf(y), found.cdf(y), rtol=1e-9)
    assert [type(part).__name__ for part in found.to_torch()] == ["Normal", "StudentT"]
    assert list(found.to_dict())[:4] == ["mean_0", "mean_1", "std_0", "std_1"]
    assert repr(found) == "Predictive(40 rows, 2 targets, normal and t with 5 degrees of freedom)"


def test_rows_are_taken_out_by_numbers_slices_and_bools():
    found = predictive(5.0)
    assert len(found[3]) == 1
    np.testing.assert_array_equal(found[3:6].mean, found.mean[3:6])
    chosen = found.mean > 0
    np.testing.assert_array_equal(found[chosen].nll(Y[0][chosen]), found.nll(Y[0])[chosen])
    np.testing.assert_array_equal(found[[-1, 0]].epistemic, found.epistemic[[-1, 0]])
    with pytest.raises(IndexError):
        found[N]


def test_what_makes_no_sense_is_refused():
    found = predictive(5.0)
    for call, said in (
        (lambda: found.ppf(1.0), "strictly between 0 and 1"),
        (lambda: found.interval(0.0), "strictly between 0 and 1"),
        (lambda: found.crps(Y[0][:3]), "has the shape"),
        (lambda: evaluation.scorer("crps"), "neg_crps"),
        (lambda: evaluation.coverage([1.0], [2.0], [1.0]), "above its upper end"),
        (lambda: evaluation.coverage([1.0, 2.0], [2.0], [3.0]), "one shape"),
        (lambda: evaluation.interval_score([1.0], [0.0], [3.0], coverage=1.0), "strictly between"),
    ):
        with pytest.raises(ValueError, match=said):
            call()


@pytest.mark.unchecked
def test_the_estimator_gives_it_and_scorers_judge_by_it():
    X, y = load_diabetes(return_X_y=True)
    model = GWIRegressor("linear", likelihood="gaussian", random_state=0).fit(X[:200], y[:200])
    found, rows = model.predict_dist(X[200:]), X[200:]
    mean, std = model.predict(rows, return_std=True)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(found.std, std, rtol=1e-12)
    np.testing.assert_allclose(found.ppf([0.05, 0.5]), model.predict_quantiles(rows, [0.05, 0.5]), rtol=1e-10)
    np.testing.assert_allclose(found.interval(), model.predict_interval(rows), rtol=1e-10)
    parts = model.decompose(rows)
    np.testing.assert_allclose(found.epistemic, parts.epistemic, rtol=1e-10)
    np.testing.assert_allclose(found.epistemic + found.aleatoric, found.var, rtol=1e-10)
    assert evaluation.nll(y[200:], found) == pytest.approx(model.nll(rows, y[200:]), rel=1e-12)
    assert 0.9 < evaluation.coverage(y[200:], *found.interval().T) < 0.99
    assert stats.kstest(evaluation.pit(y[200:], found), "uniform").pvalue > 0.01
    several = GWIRegressor("linear", random_state=0).fit(X[:200], np.column_stack([y, -y])[:200]).predict_dist(rows)
    np.testing.assert_allclose(several.mean[:, 0], -several.mean[:, 1], rtol=1e-6)
    plain = GWIRegressor("linear", likelihood="gaussian")
    scores = cross_val_score(plain, X[:150], y[:150], scoring=evaluation.scorer("neg_crps"), cv=3)
    assert (scores < 0).all()
    search = GridSearchCV(plain, {"tempering": [1.0, 4.0]}, scoring=evaluation.scorer("neg_nll"), cv=3)
    assert search.fit(X[:150], y[:150]).best_params_ == {"tempering": 1.0}
    assert evaluation.scorer("neg_interval_score")(model, rows, y[200:]) < 0
