"""The arithmetic behind joint predictions, active learning, tables out of distribution and the growth of KL."""

import math

import numpy as np
import pytest
from benchmarks.figures import infinite_kl
from benchmarks.studies import active_learning, joint_predictions, ood_tables
from benchmarks.studies.loading import gap_split, random_split
from benchmarks.tables.common.records import read
from scipy.stats import multivariate_normal, multivariate_t, norm

from gwi import GWIRegressor
from gwi.core.distributions import log_density
from gwi.evaluation.regression import Law

COVARIANCE = np.array([[2.0, 0.6, 0.1], [0.6, 1.0, 0.3], [0.1, 0.3, 0.5]])
ERRORS = np.array([0.5, -1.0, 0.7])


def test_joint_log_densities_are_scipys_for_the_same_covariance():
    normal = multivariate_normal(cov=COVARIANCE).logpdf(ERRORS)
    assert joint_predictions.joint_log_density(ERRORS, COVARIANCE) == pytest.approx(normal)
    # SciPy takes the scale matrix, whose ν/(ν − 2)-fold is the covariance.
    student = multivariate_t(shape=COVARIANCE * 3 / 5, df=5).logpdf(ERRORS)
    assert joint_predictions.joint_log_density(ERRORS, COVARIANCE, 5.0) == pytest.approx(student)


@pytest.mark.parametrize("degrees", [math.inf, 5.0])
def test_one_row_has_the_librarys_own_density_and_no_correlations_change_a_normal_law_only_by_them(degrees):
    judge = joint_predictions.of_covariance(ERRORS, COVARIANCE, degrees)
    one, three = judge(np.array([1])), judge(np.arange(3))
    assert one.marginal == pytest.approx(one.common) == pytest.approx(one.joint)
    assert one.joint == pytest.approx(float(log_density(ERRORS[1:2], degrees)[0]))
    assert (three.common == pytest.approx(three.marginal)) is math.isinf(degrees)
    assert three.joint != pytest.approx(three.common)


def test_our_joint_law_has_the_marginals_of_nll():
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, (40, 2))
    y = x[:, 0] + 0.1 * rng.standard_t(3, 40)
    model = GWIRegressor("svgp", random_state=0).fit(x, y)
    judge = joint_predictions.of_model(model.model_, x[:9], y[:9])
    assert -judge(np.arange(9)).marginal / 9 == pytest.approx(model.nll(x[:9], y[:9]))


def test_a_mixture_of_equal_members_is_independent_and_one_of_unequal_ones_is_not():
    y = np.array([0.0, 0.5])
    same = Law(np.zeros((3, 2)), np.ones((3, 2)))
    scores = joint_predictions.of_mixture(same, y)(np.arange(2))
    assert scores.joint == pytest.approx(scores.marginal) == pytest.approx(norm.logpdf(y).sum())
    apart = Law(np.array([[0.0, 0.0], [4.0, 4.0]]), np.ones((2, 2)))
    found = joint_predictions.of_mixture(apart, y)(np.arange(2))
    assert found.joint == pytest.approx(math.log(np.mean([np.prod(norm.pdf(y - m)) for m in (0.0, 4.0)])))
    assert found.joint > found.marginal


def test_groups_are_a_row_and_its_nearest_others():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 2))
    x[7] = x[3]
    for group in joint_predictions.groups_of(x, x, 0):
        assert len(set(group.tolist())) == 5
        distances = np.linalg.norm((x - x[group[0]]) / x.std(0), axis=1)
        assert distances[group].max() == pytest.approx(np.sort(distances)[4])


def test_splits_share_no_rows_and_gaps_leave_the_middle_out():
    x = np.random.default_rng(0).normal(size=(60, 3))
    for train, test in (random_split(60), *(gap_split(x, seed) for seed in range(3))):
        assert sorted([*train, *test]) == list(range(60))
        assert len(test) == 20
    held = {int(np.argmin([np.ptp(x[gap_split(x, seed)[1], d]) for d in range(3)])) for seed in range(3)}
    assert held == {0, 1, 2}


def test_greedy_purchases_are_those_of_the_gp_conditioned_on_what_was_chosen():
    rng = np.random.default_rng(1)
    root = rng.normal(size=(8, 8))
    covariance, noise = root @ root.T, rng.uniform(0.1, 1, 8)
    found = active_learning.Found(Law(np.zeros((1, 1)), np.ones((1, 1))), covariance.diagonal(), lambda: (covariance, noise))
    chosen = active_learning.greedy(found, 4).tolist()
    for i in range(4):
        seen = chosen[:i]
        inner = covariance[np.ix_(seen, seen)] + np.diag(noise[seen])
        left = covariance - covariance[:, seen] @ np.linalg.solve(inner, covariance[seen]) if seen else covariance
        variance = left.diagonal().copy()
        variance[seen] = -1
        assert chosen[i] == int(np.argmax(variance))
    # Two copies of the row with the largest variance: both by variance, one of them by the greedy rule.
    twins = np.array([[4.0, 4.0, 0.0], [4.0, 4.0, 0.0], [0.0, 0.0, 3.0]])
    found = active_learning.Found(found.law, twins.diagonal(), lambda: (twins, np.full(3, 0.01)))
    assert active_learning.highest(found, 2).tolist() == [0, 1]
    assert active_learning.greedy(found, 2).tolist() == [0, 2]


def test_the_stump_finds_the_best_threshold_whatever_the_scale():
    known, strange = np.array([1e-30, 2e-30, 3e-30, 9e-30]), np.array([4e-30, 5e-30, 1.0, 1e30])
    assert ood_tables.stump_accuracy(known, strange) == 7 / 8
    assert ood_tables.stump_accuracy(np.ones(4), np.ones(4)) == 0.5
    assert ood_tables.auroc(known, strange) == 14 / 16


def test_rows_of_another_table_have_the_moments_of_the_training_rows(monkeypatch):
    rng = np.random.default_rng(0)
    monkeypatch.setattr(ood_tables, "load", lambda name: (rng.exponential(size=(50, 5)), np.zeros(50)))
    x = rng.normal(3, 2, (40, 3))
    found = ood_tables.rows_of_another("any", x, 20)
    assert found.shape == (20, 3)
    assert found.mean(0) == pytest.approx(x.mean(0))
    assert found.std(0) == pytest.approx(x.std(0))


@pytest.mark.slow
@pytest.mark.parametrize("name", infinite_kl.CASES)
def test_the_route_without_jitter_agrees_with_the_definition_of_kl(name):
    case, points = infinite_kl.CASES[name], infinite_kl.grid(3)
    _, _, part = infinite_kl.measures(case)
    covariance = infinite_kl.own_kernel_part(len(points)) if case.own_kernel else part
    found = infinite_kl.mean_part(case, len(points), points) + covariance
    assert found == pytest.approx(infinite_kl.dense_kl(case, points), rel=1e-6)


def test_kl_grows_with_the_points_in_the_record_and_the_distance_settles():
    for name, case in infinite_kl.CASES.items():
        counts, kl = infinite_kl.curve(name, "kl")
        assert (np.diff(kl) > -1e-5 * kl[1:]).all()
        _, second = infinite_kl.curve(name, "kl_second")
        assert kl[: len(second)] == pytest.approx(second, rel=1e-5)
        _, distance = infinite_kl.curve(name, "wasserstein_squared")
        assert distance == pytest.approx(infinite_kl.curve(name, "wasserstein_squared_second")[1], rel=1e-4)
        assert abs(distance[-1] / distance[-2] - 1) < 0.01
        diverges = case.network and (case.prior != "matern12" or case.own_kernel)
        assert kl[-1] > 1.4 * kl[-2] if diverges else kl[-1] < 1.001 * kl[-2]
        assert counts[-1] == (129 if case.prior == "rbf" and case.network else 1025)


def test_records_hold_every_method():
    joint = {r["method"] for r in read(joint_predictions.NAME)}
    assert joint == set(joint_predictions.METHODS)
    assert {r["method"] for r in read(ood_tables.NAME)} == {*ood_tables.METHODS, "network, ood_score"}
    assert {r["method"] for r in read(active_learning.NAME)} == set(active_learning.METHODS)
