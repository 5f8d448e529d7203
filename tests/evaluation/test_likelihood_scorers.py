"""Scorers for scikit-learn judge every likelihood by what its targets are, and likelihoods can be searched by name."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score

from gwi import GWIRegressor, evaluation
from target_cases import table

pytestmark = pytest.mark.unchecked
SCORES = ("neg_crps", "neg_nll", "neg_interval_score")


@pytest.mark.parametrize(
    "name", ["gaussian", "poisson", *(pytest.param(name, marks=pytest.mark.slow) for name in ("log-normal", "ordinal", "beta"))]
)
def test_scores_are_those_of_the_distribution(name):
    x, y, _, _ = table(name, 60)
    model = GWIRegressor("linear", likelihood=name, random_state=0)
    found = cross_val_score(model, x, y, scoring=evaluation.scorer("neg_crps"), cv=2, error_score="raise")
    fitted = clone(model).fit(x[30:], y[30:])
    assert (found < 0).all()
    if name != "ordinal":
        # Folds of numbers follow the rows; the first is the one that is left out here.
        assert found[0] == pytest.approx(-fitted.predict_dist(x[:30]).crps(y[:30]).mean(), rel=1e-9)
    low, high = fitted.predict_interval(x[:30]).T
    expected = evaluation.interval_score(y[:30], low, high)
    assert evaluation.scorer("neg_interval_score")(fitted, x[:30], y[:30]) == pytest.approx(-expected, rel=1e-12)
    assert evaluation.scorer("neg_nll")(fitted, x[:30], y[:30]) == pytest.approx(-fitted.nll(x[:30], y[:30]), rel=1e-10)
    assert 0.7 < evaluation.coverage(y[:30], low, high) <= 1


def test_bounds_are_scored_by_their_probability_and_by_nothing_else():
    x, y, _, _ = table("censored", 60)
    model = GWIRegressor("linear", likelihood="censored", random_state=0)
    found = cross_val_score(model, x, y, scoring=evaluation.scorer("neg_nll"), cv=2, error_score="raise")
    fitted = clone(model).fit(x[30:], y[30:])
    assert found[0] == pytest.approx(-fitted.nll(x[:30], y[:30]), rel=1e-9)
    for name in ("neg_crps", "neg_interval_score"):
        with pytest.raises(ValueError, match=r'needs known targets; .*"neg_nll"'):
            evaluation.scorer(name)(fitted, x, y)


def test_levels_by_name_are_scored_like_their_places():
    x, y, _, _ = table("ordinal", 40)
    named = pd.Series(pd.Categorical(np.array(list("abcd"))[y.astype(int)], ordered=True))
    model = GWIRegressor("linear", likelihood="ordinal", random_state=0)
    numbers, levels = clone(model).fit(x, y), clone(model).fit(x, named)
    for name in SCORES:
        score = evaluation.scorer(name)
        assert score(levels, x, named) == pytest.approx(score(numbers, x, y), rel=1e-9)


def test_likelihoods_are_searched_by_name():
    x, y, _, _ = table("poisson", 60)
    names = ["gaussian", "poisson"]
    search = GridSearchCV(
        GWIRegressor("linear", random_state=0),
        {"likelihood": names},
        scoring=evaluation.scorer("neg_crps"),
        cv=2,
        error_score="raise",
    ).fit(x, y)
    means = dict(zip(names, search.cv_results_["mean_test_score"], strict=True))
    assert search.best_params_ == {"likelihood": "poisson"}
    assert means["gaussian"] < means["poisson"] < 0
    assert search.predict(x).min() > 0


def test_scores_that_are_none_are_refused():
    for name in ("crps", "coverage", "r2"):
        with pytest.raises(ValueError, match="A scorer is one of neg_crps, neg_nll, neg_interval_score"):
            evaluation.scorer(name)
