"""The arithmetic behind likelihoods beside their peers, and the records of it. None of the peers is needed."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest
from benchmarks.render import likelihood_tables
from benchmarks.studies import likelihood_peers, likelihood_scores, likelihoods, prior_draws
from benchmarks.tables.common.records import read
from scipy import stats

from gwi.core.laws.discrete import DiscreteLaw
from gwi.core.laws.mixed import MixedLaw
from gwi.core.likelihoods.families import NegativeBinomialFamily


def test_counts_of_peers_are_scored_as_ours():
    rng = np.random.default_rng(0)
    f, y = rng.uniform(-1, 3, 40), rng.poisson(4, 40).astype(float)
    ours = MixedLaw(NegativeBinomialFamily(), f, np.full(40, 1e-12), np.full(40, 0.7))
    theirs = likelihood_peers.negative_binomial_law(np.exp(f), 0.7)
    one, other = (likelihood_scores.of_numbers("counts", law, y) for law in (ours, theirs))
    assert one == pytest.approx(other, rel=1e-6)


def test_the_dispersion_of_counts_is_found_by_their_likelihood():
    rng = np.random.default_rng(1)
    mean = rng.uniform(1, 9, 20_000)
    y = rng.negative_binomial(2, 2 / (2 + mean)).astype(float)
    assert likelihood_peers.dispersion_of(y, mean) == pytest.approx(0.5, rel=0.05)


def test_folds_that_share_training_rows_have_a_larger_error():
    ours, other = [1.0, 2.0, 4.0, 5.0], [0.0, 0.0, 0.0, 0.0]
    found = likelihood_tables.difference(ours, other, train=80, test=20)
    assert found.mean == 3.0
    assert found.error == pytest.approx(np.sqrt((1 / 4 + 1 / 4) * np.var(ours, ddof=1)))


def test_d_calibration_accepts_true_times_and_refuses_others_also_where_half_are_censored():
    rng = np.random.default_rng(0)
    time, end = rng.exponential(1, 2000), rng.exponential(1, 2000)
    seen, event = np.minimum(time, end), time <= end
    assert likelihood_scores.d_calibration(np.exp(-seen), event) > 0.01
    assert likelihood_scores.d_calibration(np.exp(-1.3 * seen), event) < 1e-4


def test_the_gap_is_that_between_predicted_and_observed_shares_of_fifths():
    predicted = np.repeat([0.1, 0.3, 0.5, 0.7, 0.9], 10)
    observed = np.concatenate([np.arange(10) < share for share in (1, 3, 5, 7, 7)]).astype(float)
    assert likelihood_scores.gap_of_groups(predicted, observed) == pytest.approx(0.2 / 5)


def test_levels_have_the_ranked_probability_score_of_their_steps():
    law = DiscreteLaw(np.arange(3.0), np.array([[0.2, 0.5], [0.3, 0.5], [0.5, 0.0]]))
    found = likelihood_scores.of_levels(law, np.array([1.0, 0.0]))
    assert found["rps"] == pytest.approx(np.mean([0.2**2 + 0.5**2, 0.5**2]))
    assert found["accuracy"] == 0.5
    assert found["nll"] == pytest.approx(-np.log([0.3, 0.5]).mean())


def test_a_row_a_person_and_their_number_as_a_weight_are_the_same_table():
    frame = pd.DataFrame({"a": ["x", "x", "y", "x"], "b": [1, 1, 2, 1]})
    rows, y, weight = likelihoods.merged(frame, np.array([0.0, 1.0, 1.0, 0.0]))
    assert rows.to_numpy().tolist() == [["x", 1], ["x", 1], ["y", 2]]
    assert y.tolist() == [0, 1, 1]
    assert weight.tolist() == [2, 1, 1]


def test_columns_that_give_the_target_away_are_left_out():
    assert {"nvisits", "ovisits", "novisits", "emergency"} <= set(likelihoods.SOURCES["doctor_visits"].dropped)
    assert "chapter" in likelihoods.SOURCES["flchain"].dropped
    assert "pid" in likelihoods.SOURCES["gbsg"].dropped


def test_the_method_that_counts_is_the_first_of_ours():
    for family, methods in likelihoods.OURS.items():
        assert next(iter(methods)) == likelihood_tables.OURS[family]


def test_the_record_has_every_method_and_fold_once():
    records = read(likelihoods.NAME)
    counts = Counter((r["table"], r["repetition"], r["fold"], r["method"], r["score"]) for r in records)
    assert max(counts.values()) == 1
    for name, source in likelihoods.SOURCES.items():
        own = [r for r in records if r["table"] == name]
        assert set(likelihoods.methods_of(source.family)) <= {r["method"] for r in own}
        for method in dict.fromkeys(r["method"] for r in own):
            folds = {(r["repetition"], r["fold"]) for r in own if r["method"] == method}
            assert len(folds) == source.repetitions * (source.folds + 1)


def test_sets_are_drawn_alike_whatever_the_likelihood_and_every_one_is_in_the_record():
    x, f, _ = prior_draws.drawn(3)
    again, same, _ = prior_draws.drawn(3)
    assert (x == again).all()
    assert (f == same).all()
    assert stats.kstest((np.concatenate([prior_draws.drawn(i)[1][:1] for i in range(200)]) - 1) / 0.8, "norm").pvalue > 0.01
    counts = Counter(r["likelihood"] for r in read(prior_draws.NAME))
    assert set(counts) == set(prior_draws.DRAWS)
    assert min(counts.values()) >= 300
