"""Rows judge fits that have not seen them: nor their copies, nor their group, nor what comes later."""

import numpy as np
import pytest
import torch
from sklearn import config_context
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GroupKFold, KFold, ShuffleSplit, TimeSeriesSplit, cross_val_score

from gwi import GWIClassifier, GWIRegressor
from gwi.core.noise import effective_rows
from gwi.estimators.inputs import TrainingRows
from gwi.exceptions import GWIWarning
from gwi.fitting.folds import copies, counted_cells, equal_rows, folds, time_folds
from gwi.fitting.task import NetworkSize, Task

pytestmark = pytest.mark.unchecked


def waves(num_rows, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (num_rows, 3))
    return x, np.sin(2 * x[:, 0]) + x[:, 1] + 0.3 * rng.standard_normal(num_rows)


def held(model, x, y):
    lower, upper = model.predict_interval(x).T
    return ((lower <= y) & (y <= upper)).mean()


def same(numbers, wanted):
    """Whether two numberings put the same rows together."""
    pairs = np.unique(np.column_stack([numbers, wanted]), axis=0)
    return len(pairs) == len(np.unique(numbers)) == len(np.unique(wanted))


def test_rows_drawn_with_replacement_do_not_make_intervals_too_narrow():
    x, y = waves(300)
    drawn = np.random.default_rng(1).integers(0, 300, 800)
    with pytest.warns(GWIWarning, match="are copies of others"):
        model = GWIRegressor("svgp", random_state=0).fit(x[drawn], y[drawn])
    assert 0.92 <= held(model, *waves(2000, seed=2)) <= 0.98
    assert f"{800 - len(np.unique(drawn))} of 800 rows are copies of others; a row counts once" in str(model.summary_)


@pytest.mark.parametrize("rounding", [0.0, 1e-10])
def test_copies_count_once_as_if_they_were_not_there(rounding):
    x, y = waves(260)
    once = GWIRegressor("svgp", random_state=0).fit(x, y)
    twice = GWIRegressor("svgp", random_state=0).fit(np.concatenate([x, x[:60] + rounding]), np.concatenate([y, y[:60]]))
    np.testing.assert_array_equal(once.predict(x, return_std=True), twice.predict(x, return_std=True))


@pytest.mark.parametrize("rounding", [0.0, 1e-11])
def test_copies_are_found_in_any_order_and_through_rounding(rounding):
    x, y = waves(400)
    rng = np.random.default_rng(3)
    drawn = rng.integers(0, 400, 2000)
    near = x[drawn] + rounding * rng.standard_normal((2000, 3))
    assert same(copies(near, y[drawn, None]), drawn)


def test_rows_that_only_look_alike_are_no_copies():
    x, y = waves(400)
    assert len(np.unique(copies(np.concatenate([x, x + 1e-6]), np.tile(y, 2)[:, None]))) == 800
    assert equal_rows(np.zeros((5, 2))).max() == 0
    assert len(np.unique(equal_rows(np.empty((3, 0))))) == 1


@pytest.mark.parametrize("num_far", [1, 60])
def test_values_that_stand_for_missing_ones_do_not_make_copies_of_all_other_rows(num_far):
    x, y = waves(200)
    x[-num_far:, 0] = y[-1] = 1e11
    assert len(np.unique(copies(x, y[:, None]))) == 200
    drawn = np.random.default_rng(5).integers(0, 200, 500)
    assert same(copies(x[drawn], y[drawn, None]), drawn)
    # Most rows of the column are alike.
    x[20:, 1] = 0.0
    assert len(np.unique(copies(x, y[:, None]))) == 200


def test_repeated_measurements_are_no_copies_even_where_their_targets_agree():
    dose = np.repeat(np.arange(6.0), 20)[:, None]
    died = np.random.default_rng(0).random(120) < dose[:, 0] / 6
    assert len(np.unique(copies(dose, died[:, None].astype(float)))) == 120
    model = GWIClassifier(["svgp", "linear"], random_state=0).fit(dose, died)
    share = np.array([died[dose[:, 0] == d].mean() for d in range(6)])
    np.testing.assert_allclose(model.predict_proba(np.arange(6.0)[:, None])[:, 1], share, atol=0.16)


def test_grades_of_fine_features_are_copies_where_both_agree():
    x, y = waves(300)
    grade = np.round(y)[:, None]
    drawn = np.random.default_rng(4).integers(0, 300, 700)
    assert same(copies(x[drawn], grade[drawn]), drawn)


def test_replicates_keep_their_noise():
    rng = np.random.default_rng(0)
    dose = np.repeat(np.arange(6.0), 20)[:, None]
    found = []
    for _ in range(5):
        y = rng.normal(size=6)[dose[:, 0].astype(int)] + 0.2 * rng.standard_normal(120)
        model = GWIRegressor("svgp", random_state=0).fit(dose, y)
        found.append(np.sqrt(model.decompose(dose).aleatoric.mean()))
    assert abs(np.mean(found) / 0.2 - 1) < 0.1


def test_copies_of_another_group_are_not_left_out():
    x, y = waves(60)
    rows = TrainingRows(np.tile(x, (2, 1)), np.tile(y, 2)[:, None], np.ones(120), np.repeat([0, 1], 60), np.arange(120))
    assert rows.without_copies().num_copies == 0


def grouped(num_groups, size, seed):
    """Rows whose group shifts them all, and whose features tell the group."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(num_groups), size)
    x = np.column_stack([rng.normal(size=(num_groups * size, 2)), rng.normal(size=(num_groups, 2))[group]])
    x[:, 2:] += 0.05 * rng.normal(size=(num_groups * size, 2))
    return x, np.sin(2 * x[:, 0]) + rng.normal(size=num_groups)[group] + 0.3 * rng.normal(size=num_groups * size), group


def test_intervals_hold_for_new_groups_when_groups_are_named():
    named, plain = [], []
    for seed in range(3):
        x, y, group = grouped(30, 10, seed)
        new = grouped(300, 2, seed + 50)[:2]
        named.append(held(GWIRegressor("svgp", random_state=0).fit(x, y, groups=group), *new))
        plain.append(held(GWIRegressor("svgp", random_state=0).fit(x, y), *new))
    assert np.mean(plain) < 0.9
    assert 0.92 <= np.mean(named) <= 0.99


@pytest.mark.parametrize("estimator", [GWIRegressor, GWIClassifier])
def test_a_group_stays_in_one_fold(estimator):
    x, y, group = grouped(12, 6, 0)
    names = np.array([f"patient {g}" for g in group])
    model = estimator([LinearRegression()] if estimator is GWIRegressor else "linear", random_state=0)
    model.fit(x, y if estimator is GWIRegressor else y > 0, groups=names)
    fold, unit = model._fit.data.held_out.fold.numpy(), model._fit.data.held_out.unit.numpy()
    assert len(np.unique(np.column_stack([fold, unit]), axis=0)) == 12
    assert len(np.unique(fold)) == 5


@pytest.mark.slow
def test_rows_in_time_are_judged_by_those_before_them():
    found = []
    for seed in range(10, 14):
        rng = np.random.default_rng(seed)
        z, weather = rng.normal(size=(500, 3)), np.zeros(500)
        for i in range(1, 500):
            weather[i] = 0.9 * weather[i - 1] + 0.3 * rng.normal()
        x, y = np.column_stack([np.arange(500.0), z]), z[:, 0] + np.sin(z[:, 1]) + weather
        past, future = slice(0, 300), slice(300, 400)
        models = (GWIRegressor("svgp", cv=cv, random_state=0).fit(x[past], y[past]) for cv in ("auto", "time"))
        found.append([held(model, x[future], y[future]) for model in models])
    shuffled, ordered = np.mean(found, axis=0)
    # Of single paths, so roughly: over seeds 10 to 21 they are 0.79 and 0.91.
    assert shuffled < 0.8
    assert ordered > shuffled + 0.08


def test_folds_in_time_never_learn_from_what_they_judge_or_from_later():
    found = time_folds(103)
    for k, learned in enumerate(found.learned):
        assert np.flatnonzero(learned).max() < found.row[found.fold == k].min()
    assert not found.are_in_turn
    with pytest.raises(ValueError, match="needs at least 5 rows"):
        time_folds(4)


@pytest.mark.parametrize("cv", [3, KFold(4), KFold(3, shuffle=True, random_state=0), TimeSeriesSplit(3), ShuffleSplit(3), "time"])
@pytest.mark.parametrize("mean", ["svgp", LinearRegression(), "network"])
def test_any_splitter_says_who_judges(cv, mean, monkeypatch):
    monkeypatch.setattr(Task, "network_size", lambda self, num_rows: NetworkSize(5, (4,), 1))
    x, y = waves(80)
    model = GWIRegressor(mean, cv=cv, random_state=0).fit(x, y)
    held_out, again = model._fit.data.held_out, GWIRegressor(mean, cv=cv, random_state=0).fit(x, y)
    assert np.isfinite(model.predict(x, return_std=True)).all()
    if not isinstance(cv, ShuffleSplit):
        np.testing.assert_array_equal(model.predict(x), again.predict(x))
    for inside, seen in held_out.splits():
        judged = {tuple(row) for row in held_out.x[inside].tolist()}
        assert judged.isdisjoint(tuple(row) for row in model._fit.data.x[seen].tolist())


def test_splitters_that_learn_from_what_they_judge_are_refused():
    x, y = waves(40)
    with pytest.raises(ValueError, match="Fold 0 of cv has 40 training rows and 0 test"):
        GWIRegressor("svgp", cv=[(np.arange(40), [0, 1])]).fit(x, y)


@pytest.mark.parametrize("cv", [1, "tomorrow", None, [], True, 2.5])
def test_what_gives_no_folds_is_refused(cv):
    with pytest.raises(ValueError, match=r'^cv must be "auto", "time", a number of folds'):
        GWIRegressor(cv=cv).fit(*waves(20))


def test_groups_that_say_nothing_are_refused():
    x, y = waves(20)
    for groups, message in ((np.zeros(20), "the same value in all rows"), (np.arange(5), "one value for each of the 20 rows")):
        with pytest.raises(ValueError, match=message):
            GWIRegressor().fit(x, y, groups=groups)
    with pytest.raises(ValueError, match="pass one of the two"):
        GWIRegressor(cv="time").fit(x, y, groups=np.arange(20))


def test_rows_of_a_unit_count_as_the_design_effect_says():
    unit = torch.arange(50).repeat_interleave(8)
    alike = torch.randn(50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)[unit]
    apart = torch.randn(400, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert effective_rows(alike, unit) == pytest.approx(50)
    assert effective_rows(apart, unit) > 350
    assert effective_rows(apart, None) == 400


def test_groups_are_routed_through_scikit_learn():
    x, y, group = grouped(8, 6, 0)
    with config_context(enable_metadata_routing=True):
        model = GWIRegressor([LinearRegression()], random_state=0).set_fit_request(groups=True)
        scores = cross_val_score(model, x, y, cv=GroupKFold(3), params={"groups": group})
    assert len(scores) == 3


def test_folds_ask_for_groups_as_scikit_learn_does():
    x, y, group = grouped(9, 4, 0)
    found = folds("auto", x, y, group, 0, stratified=False)
    assert found.are_in_turn
    assert len(found.learned) == 5


@pytest.mark.slow
def test_copies_do_not_make_intervals_of_the_default_too_narrow():
    x, y = waves(120)
    drawn = np.random.default_rng(1).integers(0, 120, 400)
    with pytest.warns(GWIWarning, match="are copies of others"):
        model = GWIRegressor(random_state=0).fit(x[drawn], y[drawn])
    assert 0.92 <= held(model, *waves(2000, seed=2)) <= 0.99


def test_labels_drawn_with_replacement_do_not_make_probabilities_too_sure():
    x, y = waves(250)
    label, (new, truth) = y > 0, waves(2000, seed=2)
    drawn = np.random.default_rng(1).integers(0, 250, 900)
    once = GWIClassifier("svgp", random_state=0).fit(x[np.unique(drawn)], label[np.unique(drawn)])
    with pytest.warns(GWIWarning, match="are copies of others"):
        often = GWIClassifier("svgp", random_state=0).fit(x[drawn], label[drawn])
    assert abs(often.nll(new, truth > 0) - once.nll(new, truth > 0)) < 0.02
    assert "are copies of others" in str(often.summary_)


def table_of_counts():
    """Cells of two features, how often each of three levels came in them, and the persons behind."""
    rng = np.random.default_rng(0)
    cell = rng.integers(0, [6, 4], (900, 2)).astype(float)
    level = np.digitize(0.5 * cell[:, 0] - 0.4 * cell[:, 1] + rng.standard_normal(900), [0.0, 1.2]).astype(float)
    rows, count = np.unique(np.column_stack([cell, level]), axis=0, return_counts=True)
    return rows[:, :2], rows[:, 2], count.astype(float), cell, level


def test_rows_of_one_cell_of_a_table_of_counts_are_left_out_together_and_others_are_not():
    x, _, count, cell, _ = table_of_counts()
    assert same(counted_cells(x, count), np.unique(x, axis=0, return_inverse=True)[1])
    assert counted_cells(cell, np.ones(len(cell))) is None
    assert counted_cells(x, count / 2) is None
    assert counted_cells(np.random.default_rng(0).normal(size=(40, 2)), np.full(40, 3.0)) is None


def test_a_table_of_counts_is_learned_as_the_persons_behind_it_are():
    x, y, count, cell, level = table_of_counts()
    weighted, single = (
        GWIRegressor("linear", likelihood="ordinal", random_state=0).fit(*rows, sample_weight=weight)
        for rows, weight in (((x, y), count), ((cell, level), None))
    )
    assert weighted.nll(cell, level) == pytest.approx(single.nll(cell, level), abs=0.01)
    constant = -(np.bincount(level.astype(int)) / 900 * np.log(np.bincount(level.astype(int)) / 900)).sum()
    assert weighted.nll(cell, level) < constant - 0.1
