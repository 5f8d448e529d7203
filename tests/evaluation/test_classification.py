"""Scores of classes and outliers against scikit-learn, slow loops and cases worked out by hand."""

import math

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, log_loss, roc_auc_score, roc_curve

from gwi.evaluation.classification import OODScores, entropy, score_classes, score_ood


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def drawn(rng, num_rows=400, num_classes=5, concentration=0.3):
    probabilities = rng.dirichlet(np.full(num_classes, concentration), num_rows)
    y = np.array([rng.choice(num_classes, p=p) for p in probabilities])
    return probabilities, y


def loop_calibration_error(probabilities, y, num_bins=15):
    error = 0.0
    for b in range(num_bins):
        rows = [i for i, p in enumerate(probabilities) if b / num_bins < max(p) <= (b + 1) / num_bins]
        if rows:
            accuracy = sum(int(np.argmax(probabilities[i])) == y[i] for i in rows) / len(rows)
            confidence = sum(max(probabilities[i]) for i in rows) / len(rows)
            error += len(rows) / len(y) * abs(accuracy - confidence)
    return error


@pytest.mark.parametrize("num_classes", [2, 5, 40])
def test_scores_of_classes_are_their_definitions(rng, num_classes):
    probabilities, y = drawn(rng, num_classes=num_classes, concentration=1.5 / num_classes)
    scores = score_classes(probabilities, y)
    brier = sum((p - (j == label)) ** 2 for row, label in zip(probabilities, y, strict=True) for j, p in enumerate(row)) / len(y)
    assert scores.brier == pytest.approx(brier, rel=1e-12)
    assert scores.nll == pytest.approx(-sum(math.log(p[j]) for p, j in zip(probabilities, y, strict=True)) / len(y), rel=1e-12)
    assert scores.nll == pytest.approx(log_loss(y, probabilities, labels=range(num_classes)), rel=1e-6)
    assert scores.accuracy == sum(np.argmax(p) == j for p, j in zip(probabilities, y, strict=True)) / len(y)
    assert scores.ece == pytest.approx(loop_calibration_error(probabilities, y), abs=1e-12)


def test_a_confidence_on_the_edge_of_a_bin_belongs_below():
    # 9/15 closes a bin: alone it would be off by 0.4, together with 0.58 (wrong) the two misses of opposite sign nearly cancel.
    probabilities = np.array([[9 / 15, 6 / 15], [0.58, 0.42]])
    assert score_classes(probabilities, np.array([0, 1])).ece == pytest.approx((0.58 - 0.4) / 2)
    assert score_classes(probabilities + np.array([1e-9, -1e-9]), np.array([0, 1])).ece == pytest.approx((0.58 + 0.4) / 2)


def test_certainty_is_perfect_when_right_and_infinitely_bad_when_wrong():
    certain = np.eye(3)
    right, wrong = score_classes(certain, np.arange(3)), score_classes(certain, np.array([0, 1, 0]))
    assert (right.accuracy, right.nll, right.brier, right.ece) == (1.0, 0.0, 0.0, 0.0)
    assert wrong.nll == math.inf
    assert (wrong.accuracy, wrong.brier, wrong.ece) == pytest.approx((2 / 3, 2 / 3, 1 / 3))


def test_of_equally_probable_classes_the_first_is_predicted():
    uniform = np.full((4, 4), 0.25)
    scores = score_classes(uniform, np.arange(4))
    assert (scores.accuracy, scores.nll, scores.ece) == pytest.approx((0.25, math.log(4), 0.0))


def test_scoring_leaves_the_probabilities_alone(rng):
    probabilities, y = drawn(rng)
    before = probabilities.copy()
    score_classes(probabilities, y)
    np.testing.assert_array_equal(probabilities, before)


@pytest.mark.parametrize(
    ("probabilities", "y", "match"),
    [
        (np.empty((0, 3)), np.empty(0, int), "at least one row"),
        (np.array([[2.0, -1.0]]), np.array([0]), "lowest value is -1"),
        (np.array([[1.2, 3.4]]), np.array([0]), r"sums go from 4\.6 to 4\.6"),
        (np.array([[np.nan, 0.5]]), np.array([0]), "lowest value is nan"),
        (np.array([[0.5, 0.5]]), np.array([2]), "Labels must be 0 to 1"),
        (np.array([[0.5, 0.5]]), np.array([-1]), "Labels must be 0 to 1"),
    ],
    ids=["no rows", "negative", "logits", "NaN", "label too high", "label too low"],
)
def test_what_cannot_be_scored_is_refused(probabilities, y, match):
    with pytest.raises(ValueError, match=match):
        score_classes(probabilities, y)


def test_rounding_in_single_precision_is_no_reason_to_refuse(rng):
    probabilities, y = drawn(rng, num_classes=200)
    rounded = probabilities.astype(np.float32).astype(np.float64)
    assert score_classes(rounded, y).nll == pytest.approx(score_classes(probabilities, y).nll, rel=1e-6)


def test_entropy_is_zero_for_certainty_and_largest_for_ignorance(rng):
    np.testing.assert_array_equal(entropy(np.eye(4)), np.zeros(4))
    np.testing.assert_allclose(entropy(np.full((2, 4), 0.25)), math.log(4))
    probabilities, _ = drawn(rng)
    np.testing.assert_allclose(entropy(probabilities)[7], -sum(p * math.log(p) for p in probabilities[7]))
    # Any axes before the classes, such as samples of the parameters.
    assert entropy(np.stack([probabilities] * 3)).shape == (3, len(probabilities))


def loop_fpr95(inside, outside):
    """Lower the threshold until 95 % of the outliers are found."""
    for threshold in sorted({*inside, *outside}, reverse=True):
        if sum(s >= threshold for s in outside) * 100 >= 95 * len(outside):
            return sum(s >= threshold for s in inside) / len(inside)
    raise AssertionError("the lowest threshold finds them all")


@pytest.mark.parametrize("decimals", [12, 1, 0], ids=["no ties", "some ties", "many ties"])
@pytest.mark.parametrize(("num_inside", "num_outside"), [(300, 200), (40, 333), (1, 7), (19, 1)])
def test_scores_of_outliers_agree_with_scikit_learn(rng, decimals, num_inside, num_outside):
    inside = rng.normal(0.0, 1.0, num_inside).round(decimals)
    outside = rng.normal(0.8, 1.3, num_outside).round(decimals)
    scores = score_ood(inside, outside)
    labels, values = np.repeat([0, 1], [num_inside, num_outside]), np.concatenate([inside, outside])
    assert scores.auroc == pytest.approx(roc_auc_score(labels, values), abs=1e-12)
    assert scores.aupr == pytest.approx(average_precision_score(labels, values), abs=1e-12)
    assert scores.fpr95 == loop_fpr95(inside, outside)
    false_rate, true_rate, _ = roc_curve(labels, values, drop_intermediate=False)
    assert scores.fpr95 == pytest.approx(false_rate[true_rate >= 0.95 - 1e-12][0])


def test_outliers_apart_are_told_apart_and_the_other_way_round_not_at_all():
    low, high = np.linspace(0, 1, 50), np.linspace(2, 3, 30)
    assert score_ood(low, high) == OODScores(auroc=1.0, aupr=1.0, fpr95=0.0)
    inverted = score_ood(high, low)
    assert (inverted.auroc, inverted.fpr95) == (0.0, 1.0)


def test_equal_scores_for_all_rows_are_worth_a_coin():
    assert score_ood(np.zeros(30), np.zeros(10)) == OODScores(auroc=0.5, aupr=0.25, fpr95=1.0)


def test_nineteen_of_twenty_outliers_are_enough():
    # The twentieth outlier scores below all; finding it would cost every row of the inside.
    inside, outside = np.array([1.0, 2.0, 3.0, 3.5]), np.append(np.arange(3.0, 22.0), -1.0)
    assert score_ood(inside, outside).fpr95 == 0.5
    assert score_ood(inside, outside[1:]).fpr95 == 1.0


def test_infinite_scores_are_ranked_and_nan_is_refused():
    inside, outside = np.array([-np.inf, 0.0, 1.0]), np.array([0.5, np.inf])
    assert score_ood(inside, outside).auroc == pytest.approx(5 / 6)
    with pytest.raises(ValueError, match="1 of 5 scores are NaN"):
        score_ood(np.array([np.nan, 0.0, 1.0]), outside)
    with pytest.raises(ValueError, match="0 inside and 2 outside"):
        score_ood(np.empty(0), outside)
