"""The plan of a fit is made for the time that is allowed."""

import numpy as np
import pytest

from gwi import GWIRegressor, MaxTime
from gwi.fitting.effort import FULL, PLANS, effort_for, expected_seconds, machine_speed
from gwi.fitting.plan import classification_members, lessened, regression_members
from gwi.fitting.tree_learners import Boosting, JudgedForest
from waves import wave

pytestmark = pytest.mark.unchecked


@pytest.mark.parametrize("num_rows", [100, 1000, 10_000, 1_000_000])
@pytest.mark.parametrize("num_outputs", [1, 3])
def test_less_time_never_means_more_work(num_rows, num_outputs):
    found = [effort_for(num_rows, 8, num_outputs, time) for time in (0.1, 2.0, 5.0, 20.0, 60.0, 6000.0)]
    work = [expected_seconds(effort, num_rows, 8, num_outputs) for effort, _ in found]
    assert work == sorted(work)
    assert found[-1][0] == FULL
    assert effort_for(num_rows, 8, num_outputs, None)[0] == FULL


@pytest.mark.parametrize("num_rows", [300, 1000, 4000, 16_000])
@pytest.mark.parametrize("max_time", [2.0, 5.0, 10.0])
def test_a_plan_is_expected_to_need_no_more_than_the_time(num_rows, max_time):
    assert effort_for(num_rows, 10, 1, max_time)[1] <= max_time


def test_a_slower_machine_gets_less_work():
    order = [plan.name for plan in PLANS]
    fast, slow = (effort_for(1000, 10, 1, 6.0, speed)[0].name for speed in (2.0, 0.3))
    assert order.index(fast) < order.index(slow)


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
def test_every_plan_has_more_than_a_gp(plan):
    for members in (regression_members(1000, 8), classification_members(1000, 8, 3)):
        kept = lessened(members, plan)
        assert any(isinstance(item, Boosting) for item in kept)
        assert any(isinstance(item, JudgedForest) for item in kept)
        assert ("network" in kept) == (plan.network_steps != 0)


def test_less_effort_has_fewer_trees():
    full, few = (lessened(regression_members(1000, 8), plan) for plan in (PLANS[0], PLANS[-1]))
    assert full[-1].estimator.n_estimators > few[-1].estimator.n_estimators
    assert full[-2].estimator.max_iter > few[-2].estimator.max_iter


def test_the_speed_is_kept_and_the_fit_can_be_had_again():
    x, y = wave(120)
    first = GWIRegressor(max_time=1, random_state=0).fit(x, y)
    again = GWIRegressor(max_time=MaxTime(1, first.summary_.machine_speed), random_state=0).fit(x, y)
    assert again.summary_.machine_speed == first.summary_.machine_speed > 0
    np.testing.assert_array_equal(first.predict(x), again.predict(x))


def test_a_fit_with_little_time_says_how_many_rows_it_learned_from():
    x, y = wave(700)
    model = GWIRegressor(max_time=MaxTime(0.5, 1.0), random_state=0).fit(x, y)
    assert "of 700 rows" in model.summary_.note
    assert model.summary_.num_rows < 700


def test_speed_is_a_number_near_that_of_another_measurement():
    assert 1 / 3 < machine_speed() / machine_speed() < 3


@pytest.mark.parametrize("bad", [MaxTime(-1), MaxTime(1, 0), MaxTime(1, "fast"), "soon", -2])
def test_what_is_no_time_is_refused(bad):
    with pytest.raises(ValueError, match=r"max_time|speed"):
        GWIRegressor(max_time=bad).fit(*wave(30))
