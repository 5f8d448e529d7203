"""Scores of times to an event are what double loops, scikit-survival 0.28 and lifelines say."""

import numpy as np
import pytest
from scipy.stats import chi2

from gwi.core.outcomes import as_bounds
from gwi.evaluation.survival import (
    brier_at,
    concordance,
    concordance_with_error,
    events_and_times,
    integrated_brier,
    kaplan_meier,
)
from gwi.evaluation.survival_calibration import calibration_at, d_calibration

TIME = np.array([5.0, 8, 12, 3, 20, 15, 9, 30, 25, 2, 18, 11])
EVENT = np.array([1, 0, 1, 1, 1, 0, 1, 0, 1, 1, 0, 1], dtype=bool)
PREDICTED = np.array([6.0, 9, 10, 4, 15, 20, 9, 28, 12, 5, 30, 9])


def structured(event, time):
    y = np.empty(len(time), dtype=[("event", bool), ("time", float)])
    y["event"], y["time"] = event, time
    return y


def survival(times):
    return np.exp(-np.asarray(times, dtype=float) / (1.5 * PREDICTED[:, None]))


def table(num_rows, seed, ties=False):
    rng = np.random.default_rng(seed)
    time, left = rng.exponential(10, num_rows), rng.exponential(15, num_rows)
    if ties:
        time, left = np.ceil(time), np.ceil(left)
    event, seen = time <= left, np.minimum(time, left)
    predicted = seen * np.exp(rng.normal(size=num_rows))
    return structured(event, seen), np.round(predicted / 5) if ties else predicted


def pairs_by_loops(bounds, predicted):
    right = known = 0.0
    for i, (_, high) in enumerate(bounds):
        for j, (low, _) in enumerate(bounds):
            both_events = bounds[i, 0] == bounds[i, 1] and bounds[j, 0] == bounds[j, 1]
            if high < low or (high == low and not both_events):
                known += 1
                right += (predicted[j] > predicted[i]) + 0.5 * (predicted[j] == predicted[i])
    return right / known


def test_numbers_are_those_of_scikit_survival_and_lifelines():
    y = structured(EVENT, TIME)
    # concordance_index_censored, brier_score and integrated_brier_score of scikit-survival 0.28; lifelines' KaplanMeierFitter.
    assert concordance(y, PREDICTED) == pytest.approx(0.9509803921568627, abs=1e-15)
    np.testing.assert_allclose(
        brier_at(y, survival([4, 10, 16]), [4, 10, 16]), [0.0904888722106444, 0.13153416517610925, 0.1258177831753823], rtol=1e-13
    )
    times = np.linspace(4, 24, 11)
    assert integrated_brier(y, survival(times), times) == pytest.approx(0.1264664489718596, rel=1e-13)
    np.testing.assert_allclose(kaplan_meier(y).at([4, 10, 16, 26]), [0.8333333333333335, 0.65625, 0.46875, 0.15625], rtol=1e-14)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("num_rows", [2, 30, 63, 64, 65, 200, 333])
def test_concordance_is_that_of_all_pairs(num_rows, ties):
    y, predicted = table(num_rows, num_rows, ties)
    assert concordance(y, predicted) == pytest.approx(pairs_by_loops(as_bounds(y), predicted), abs=1e-14)


def test_concordance_of_bounds_is_that_of_pairs_whose_order_they_tell():
    rng = np.random.default_rng(0)
    low = rng.integers(0, 10, 150).astype(float)
    high = low + rng.integers(0, 4, 150)
    high[rng.uniform(size=150) < 0.2] = np.inf
    low[rng.uniform(size=150) < 0.1] = -np.inf
    bounds, predicted = np.column_stack([low, high]), rng.integers(0, 6, 150).astype(float)
    assert concordance(bounds, predicted) == pytest.approx(pairs_by_loops(bounds, predicted), abs=1e-14)


def test_concordance_is_one_half_by_lot_one_in_order_and_zero_against_it():
    y, _ = table(400, 1)
    assert concordance(y, np.ones(400)) == 0.5
    everything = structured(np.ones(400, dtype=bool), y["time"])
    assert concordance(everything, y["time"]) == 1
    assert concordance(everything, -y["time"]) == 0


def test_the_error_of_concordance_is_how_much_it_varies():
    found = [concordance_with_error(*table(120, seed)) for seed in range(200)]
    values, errors = np.array(found).T
    assert values.std() == pytest.approx(errors.mean(), rel=0.15)


def test_no_known_pair_is_a_sentence():
    with pytest.raises(ValueError, match="No two targets have a known order"):
        concordance(structured(np.zeros(3, dtype=bool), np.arange(3.0)), np.arange(3.0))


def test_kaplan_meier_is_a_product_over_events():
    y, _ = table(80, 3, ties=True)
    curve = kaplan_meier(y)
    survival, variance = 1.0, 0.0
    for time in np.unique(y["time"][y["event"]]):
        at_risk, died = (y["time"] >= time).sum(), ((y["time"] == time) & y["event"]).sum()
        survival *= 1 - died / at_risk
        variance += died / (at_risk * (at_risk - died)) if at_risk > died else 0
        assert curve.at(time) == pytest.approx(survival, abs=1e-14)
        assert curve.std_at(time) == pytest.approx(survival * np.sqrt(variance), abs=1e-14)
        assert curve.before(time) >= curve.at(time)
    assert curve.at(0.5) == 1


def test_the_brier_score_weighs_rows_by_who_was_left():
    y, predicted = table(90, 4, ties=True)
    times = [3.0, 8.0]
    probabilities = np.exp(-np.array(times) / (predicted[:, None] + 2))

    def stays(time, inclusive):
        share = 1.0
        for at in np.unique(y["time"]):
            if at < time or (inclusive and at == time):
                events = ((y["time"] == at) & y["event"]).sum()
                share *= 1 - ((y["time"] == at) & ~y["event"]).sum() / ((y["time"] >= at).sum() - events)
        return share

    for column, time in enumerate(times):
        total = 0.0
        for (event, seen), probability in zip(y, probabilities[:, column], strict=True):
            if seen <= time and event:
                total += probability**2 / stays(seen, inclusive=False)
            elif seen > time:
                total += (1 - probability) ** 2 / stays(time, inclusive=True)
        assert brier_at(y, probabilities, times)[column] == pytest.approx(total / len(y), rel=1e-12)


def test_the_brier_score_of_complete_data_is_the_mean_square():
    time = np.random.default_rng(0).exponential(1, 50)
    probabilities = np.full((50, 1), 0.3)
    expected = np.square(0.3 - (time > 0.7)).mean()
    assert brier_at(structured(np.ones(50, dtype=bool), time), probabilities, [0.7])[0] == pytest.approx(expected, rel=1e-13)


def test_times_beyond_the_last_row_are_refused():
    y = structured(EVENT, TIME)
    with pytest.raises(ValueError, match="Times must be before the end of the longest follow-up, 30"):
        brier_at(y, survival([30]), [30])
    with pytest.raises(ValueError, match="at least two times"):
        integrated_brier(y, survival([4]), [4])


def test_calibration_puts_predicted_beside_kaplan_meier_in_groups():
    y, predicted = table(100, 5)
    probabilities = np.exp(-6 / predicted)[:, None]
    found = calibration_at(y, probabilities, 6.0, num_groups=4)
    groups = np.array_split(np.argsort(probabilities[:, 0], kind="stable"), 4)
    for g, rows in enumerate(groups):
        assert found.predicted[0, g] == pytest.approx(probabilities[rows].mean())
        assert found.found[0, g] == kaplan_meier(y[rows]).at(6.0)
    assert found.num_rows.tolist() == [25] * 4


def test_d_calibration_is_that_of_haider():
    """Censored rows by the formula of the paper, in terms of survival."""
    y, predicted = table(70, 6)
    survive = np.exp(-y["time"] / predicted)
    found = d_calibration(y, 1 - survive)
    counts = np.zeros(10)
    for (event, _), s in zip(y, survive, strict=True):
        own = min(int(s * 10), 9)
        if event:
            counts[own] += 1
            continue
        counts[own] += (s - own / 10) / s
        counts[:own] += 0.1 / s
    np.testing.assert_allclose(found.shares, counts[::-1] / 70, atol=1e-12)
    statistic = np.square(counts - 7).sum() / 7
    assert found.statistic == pytest.approx(statistic)
    assert found.p_value == pytest.approx(chi2.sf(statistic, 9))


def test_d_calibration_is_even_where_predictions_are_right_and_not_where_they_are_twice_too_long():
    rng = np.random.default_rng(7)
    time, left = rng.exponential(1, 2000), rng.exponential(2, 2000)
    y = structured(time <= left, np.minimum(time, left))
    assert d_calibration(y, 1 - np.exp(-y["time"])).p_value > 0.01
    assert d_calibration(y, 1 - np.exp(-y["time"] / 2)).p_value < 1e-10


@pytest.mark.parametrize(
    ("y", "said"),
    [
        (np.zeros((3, 3)), "a structured array of a bool"),
        (np.array([[2.0, 1.0]]), "A lower bound is above its upper one"),
        (np.array([[np.nan, 1.0]]), "missing numbers"),
        (np.zeros(2, dtype=[("a", float), ("b", float)]), "whether the event happened"),
    ],
)
def test_strange_targets_are_one_sentence(y, said):
    with pytest.raises(ValueError, match=said):
        as_bounds(y)


def test_bounds_have_no_kaplan_meier_curve():
    with pytest.raises(ValueError, match="2 targets lie between two bounds"):
        events_and_times(np.array([[1.0, 2.0], [3.0, 3.0], [-np.inf, 4.0]]))


def test_lifelines_agrees_where_it_is_installed():
    lifelines = pytest.importorskip("lifelines")
    y, _ = table(300, 8, ties=True)
    curve = lifelines.KaplanMeierFitter().fit(y["time"], y["event"])
    times = np.arange(1.0, 20)
    np.testing.assert_allclose(kaplan_meier(y).at(times), curve.survival_function_at_times(times), rtol=1e-12)
    without_ties = table(300, 9)
    ours = concordance(*without_ties)
    theirs = lifelines.utils.concordance_index(without_ties[0]["time"], without_ties[1], without_ties[0]["event"])
    assert ours == pytest.approx(theirs, abs=1e-14)
