"""Forests and boosting of our own plan grow no tree twice, and none without need."""

import numpy as np
import pytest
import torch
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingRegressor,
)

from gwi import GWIClassifier, GWIRegressor
from gwi.fitting import tree_learners
from gwi.fitting.classification import ClassificationTask
from gwi.fitting.data import FitOptions
from gwi.fitting.jobs import run_pending
from gwi.fitting.late import LateMean
from gwi.fitting.pipeline import array_data
from gwi.fitting.race import Race
from gwi.fitting.regression import RegressionTask
from gwi.fitting.tree_learners import JUDGING_TREES, Boosting, JudgedForest
from gwi.parts import Covariance
from gwi.predictors.trees import first_rounds
from waves import wave

pytestmark = pytest.mark.unchecked


def options(n_jobs=None):
    return FitOptions("auto", Covariance(), torch.Generator().manual_seed(0), n_jobs=n_jobs)


def regression_data(num_rows=120, noise=None, **kinds):
    x, y = wave(num_rows)
    if noise is not None:
        y = np.random.default_rng(0).standard_normal(num_rows) * noise
    how = options()
    return array_data(RegressionTask(), x, y[:, None], how, **kinds), RegressionTask(), how


def learned(item, data, task, how, race=None):
    return run_pending(data, [item.learn(data, task, how, race)], how)[0]


def test_a_forest_is_judged_by_few_trees_of_each_fold_and_grown_when_it_is_asked():
    data, task, how = regression_data()
    pending = JudgedForest(ExtraTreesRegressor(50), "forest").learn(data, task, how, None)
    results = [job() for job in pending.jobs]
    member = pending.finished(data, results)
    own = data.scales.original_rows(data.x.numpy())
    assert len(results) == 5
    for (inside, others), (forest, _) in zip(data.held_out.splits(), results, strict=True):
        assert len(forest.estimators_) == JUDGING_TREES
        np.testing.assert_allclose(member.held_out[0, inside], forest.predict(own[inside.numpy()]), atol=1e-12)
        # Whole trees know their own rows by heart.
        np.testing.assert_allclose(forest.predict(own[others.numpy()]), data.y[0, others], atol=1e-9)
    assert member.mean._found == []
    torch.testing.assert_close(member.mean(data.x), data.y)
    assert len(member.mean._found) == 1


def test_a_forest_that_adds_nothing_to_the_others_is_left_out_after_one_fold(monkeypatch):
    data, task, how = regression_data()
    fits = []
    fitted = tree_learners.fitted
    monkeypatch.setattr(tree_learners, "fitted", lambda *given: fits.append(1) or fitted(*given))
    forest = JudgedForest(ExtraTreesRegressor(50, random_state=0), "forest")
    alone = learned(forest, data, task, options())
    assert len(fits) == 5
    y = data.held_out.y
    know_it_all, know_nothing = (Race(task.loss, y, data.weight, others) for others in (y + 1e-3, torch.zeros_like(y)))
    assert forest.learn(data, task, how, know_it_all) is None
    assert len(fits) == 6
    # Who is not left out is judged by the same trees, and none is grown twice.
    data, task, how = regression_data()
    member = learned(forest, data, task, how, know_nothing)
    assert len(fits) == 11
    torch.testing.assert_close(member.held_out, alone.held_out)


@pytest.mark.unchecked
def test_a_fit_says_which_mean_it_left_out():
    x = np.random.default_rng(0).uniform(-2, 2, (150, 3))
    model = GWIRegressor(random_state=0).fit(x, x @ [1.0, -2.0, 0.5] + 0.01 * np.random.default_rng(1).standard_normal(150))
    assert "ExtraTreesRegressor" not in [member.name for member in model.summary_.members]
    assert "not used: ExtraTreesRegressor, which lowers the held-out loss" in str(model.summary_)
    # Who asks for it has it.
    asked = GWIRegressor(["svgp", ExtraTreesRegressor(10)], random_state=0).fit(x, x.sum(1))
    assert [member.name for member in asked.summary_.members] == ["svgp", "ExtraTreesRegressor"]


def test_a_forest_judged_by_rows_of_their_own_sees_all_others():
    x_new, y_new = wave(40, seed=1)
    data, task, how = regression_data(validation=(x_new, y_new[:, None]))
    member = learned(JudgedForest(ExtraTreesRegressor(20, random_state=0), "forest"), data, task, how)
    np.testing.assert_allclose(member.mean(data.x), data.y, atol=1e-9)


def test_forests_of_classes_know_all_classes_and_a_class_that_a_fold_has_not_seen_is_no_obstacle():
    x, y = wave(100)
    for labels in ((y > 0).astype(int), np.where(np.arange(100) == 7, 2, (y > 0).astype(int))):
        task, how = ClassificationTask(np.unique(labels)), options()
        data = array_data(task, x, labels, how)
        member = learned(JudgedForest(ExtraTreesClassifier(20), "forest"), data, task, how)
        assert member.mean(data.x).shape == (len(np.unique(labels)), 100)
        assert torch.isfinite(member.held_out).all()


def test_boosting_of_noise_stops_after_few_rounds():
    data, task, how = regression_data(200, noise=1.0)
    few = learned(Boosting(HistGradientBoostingRegressor(max_iter=300), "boosting"), data, task, how)
    # What is learned from noise is wrong at held-out rows: hardly anything is.
    assert float((few.held_out - data.y).square().mean()) < 1.15 * float(data.y.square().mean())
    assert isinstance(few.mean, LateMean)
    assert few.mean._fit.args[0].max_iter < 40


def test_boosting_of_a_function_goes_on_while_it_gains():
    data, task, how = regression_data(400)
    estimator = HistGradientBoostingRegressor(max_iter=200, min_samples_leaf=5)
    member = learned(Boosting(estimator, "boosting"), data, task, how)
    assert member.mean._fit.args[0].max_iter > 20
    own = data.scales.original_rows(data.x.numpy())
    found = np.empty(400)
    rounds = member.mean._fit.args[0].max_iter
    for inside, others in data.held_out.splits():
        model = HistGradientBoostingRegressor(max_iter=rounds, min_samples_leaf=5, early_stopping=False)
        found[inside] = model.fit(own[others], data.y[0, others]).predict(own[inside])
    # By folds with about as many rounds each.
    ours, theirs = (float(np.mean((values - data.y[0].numpy()) ** 2)) for values in (member.held_out[0].numpy(), found))
    assert ours < 1.1 * theirs


@pytest.mark.parametrize("n_jobs", [2])
def test_boosting_is_the_same_on_several_processes(n_jobs):
    found = []
    for jobs in (None, n_jobs):
        data, task, _ = regression_data(150)
        how = options(jobs)
        member = learned(Boosting(HistGradientBoostingRegressor(max_iter=60), "boosting"), data, task, how)
        found.append((member.held_out, member.mean(data.x)))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_first_rounds_are_those_of_a_shorter_fit():
    x, y = wave(100)
    long, short = (HistGradientBoostingRegressor(max_iter=n, early_stopping=False).fit(x, y) for n in (30, 10))
    np.testing.assert_array_equal(first_rounds(long, 10).predict(x), short.predict(x))
    assert long.n_iter_ == 30


def test_boosting_that_is_left_behind_stops_and_is_not_fitted_to_all_rows(monkeypatch):
    data, task, how = regression_data(400)
    # Others that know nearly everything.
    race = Race(task.loss, data.held_out.y, data.held_out.weight, data.held_out.y + 1e-3)
    estimator = HistGradientBoostingRegressor(max_iter=300)
    member = learned(Boosting(estimator, "boosting"), data, task, how, race)
    assert member.mean._fit.args[0].max_iter < 100
    original = tree_learners._fitted_mean

    def fitted(estimator, *arguments):
        assert not isinstance(estimator, HistGradientBoostingRegressor), "has no weight, and is fitted"
        return original(estimator, *arguments)

    monkeypatch.setattr(tree_learners, "_fitted_mean", fitted)
    x = np.random.default_rng(0).standard_normal((200, 2))
    model = GWIRegressor(random_state=0).fit(x, x @ np.array([2.0, -1.0]))
    assert model.summary_.members[3].weights == (0.0,)


def test_the_default_of_classes_has_forests_and_boosting_of_the_plan():
    # A board of fields, each with a label of its own, is what trees are made for.
    rng = np.random.default_rng(0)
    x, board = rng.uniform(0, 6, (400, 2)), rng.integers(0, 2, (6, 6))
    model = GWIClassifier(random_state=0).fit(x, board[tuple(np.floor(x).astype(int).T)])
    names = [member.name for member in model.summary_.members]
    assert {"HistGradientBoostingClassifier", "ExtraTreesClassifier"} <= set(names)
    np.testing.assert_allclose(model.predict_proba(x).sum(1), 1.0)
