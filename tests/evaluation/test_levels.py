"""Scores of levels in order, and how all scores of parts are put together."""

import numpy as np
import pytest

from gwi.core.laws.gaussian import Law
from gwi.evaluation.levels import class_checks, level_totals, ranked_probability_score
from gwi.evaluation.times import MOST_ROWS, JoinedLaws, TimeTotals, time_checks, time_totals


def levels(num_rows, seed, num_levels=4):
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.ones(num_levels), num_rows)
    places = (rng.uniform(size=(num_rows, 1)) > probabilities.cumsum(1)[:, :-1]).sum(1)
    return probabilities, places


def test_the_ranked_probability_score_is_a_sum_over_thresholds():
    probabilities, places = levels(20, 0)
    total = 0.0
    for row, place in zip(probabilities, places, strict=True):
        total += sum((row[: k + 1].sum() - (place <= k)) ** 2 for k in range(3)) / 3
    assert ranked_probability_score(places, probabilities) == pytest.approx(total / 20, rel=1e-13)


def test_a_level_far_from_the_right_one_costs_more():
    right = np.array([0])
    scores = [ranked_probability_score(right, np.eye(4)[[j]]) for j in range(4)]
    assert scores[0] == 0
    assert scores == sorted(scores)
    assert scores[3] == 1


def test_scores_of_parts_are_those_of_the_whole():
    probabilities, places = levels(50, 1)
    whole = level_totals(probabilities, places)
    parts = level_totals(probabilities[:20], places[:20]) + level_totals(probabilities[20:], places[20:])
    assert parts.named() == pytest.approx(whole.named())
    assert whole.named()["accuracy"] == (probabilities.argmax(1) == places).mean()


def test_levels_that_come_too_often_are_named():
    probabilities = np.tile([0.5, 0.3, 0.2], (400, 1))
    _, shifted = class_checks(probabilities, np.repeat([0, 2], 200), ["low", "middle", "high"], "Level")
    assert shifted.kind == "levels-have-shifted"
    assert shifted.severity == "warning"
    assert "Level 'high' occurs 200 times; the probabilities add up to 80.0." in shifted.what


def times(num_rows, seed, shift=0.0):
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=num_rows)
    time, left = mean + rng.normal(size=num_rows), rng.normal(1.5, 1, num_rows)
    bounds = np.column_stack([np.minimum(time, left), np.where(time <= left, time, np.inf)])
    return Law((mean + shift)[None], np.ones((1, num_rows))), bounds


def test_times_of_parts_score_as_the_whole():
    law, bounds = times(90, 0)
    whole = time_totals(law, bounds)
    chosen = np.arange(90) < 40
    parts = time_totals(law.rows(chosen), bounds[chosen]) + time_totals(law.rows(~chosen), bounds[~chosen])
    assert parts.named() == pytest.approx(whole.named())
    assert set(whole.named()) == {"concordance", "integrated_brier", "nll", "events", "d_calibration_p"}


def test_of_many_rows_a_sample_is_kept():
    law, bounds = times(60_000, 0)
    both = time_totals(law, bounds) + time_totals(law, bounds)
    assert isinstance(both, TimeTotals)
    assert both.num_rows == 120_000
    assert len(both.bounds) == sum(part.num_rows for part in both.laws) <= MOST_ROWS + 2


def test_checks_of_times_are_silent_where_all_is_right_and_speak_where_it_is_not():
    right, order = time_checks(*times(400, 1))
    assert (right.severity, order.severity) == (None, None)
    late, _ = time_checks(*times(400, 1, shift=1.0))
    assert late.severity == "severe"
    assert "Events come earlier than predicted" in late.what
    law, bounds = times(400, 2)
    _, blind = time_checks(Law(np.zeros((1, 400)), np.full((1, 400), 1.5)), bounds)
    assert (blind.value, blind.severity) == (0.5, "note")
    _, against = time_checks(Law(-law.mean, law.std), bounds)
    assert against.severity == "warning"


def test_joined_laws_answer_as_one():
    law, bounds = times(30, 3)
    joined = JoinedLaws((law.rows(np.arange(12)), law.rows(np.arange(12, 30))))
    np.testing.assert_array_equal(joined.medians(), law.quantile(0.5))
    np.testing.assert_allclose(joined.survival(np.array([0.0]))[:, 0], law.survival(np.zeros(30)))
    places = joined.places(bounds)
    assert (places[np.isinf(bounds[:, 1]), 1] == 1).all()
