"""Weights of classes, and logarithms of probabilities."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from class_data import split_classes, three_classes
from gwi import GWIClassifier, RobustMax, load
from gwi.core.networks import mlp
from gwi.models import classification
from gwi.parts import Frozen, Joint

pytestmark = pytest.mark.unchecked


def rare(num_rows=400):
    """Two classes, one of them for one row in eight, neither told by the columns for sure."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(num_rows, 2))
    return x, np.where(x[:, 0] + rng.normal(size=num_rows) > 1.6, "rare", "usual")


def test_weights_of_classes_are_weights_of_their_rows():
    x, y = rare()
    asked = {"rare": 3.0, "usual": 0.5}
    by_class = GWIClassifier(["svgp", "linear"], class_weight=asked, random_state=0).fit(x, y)
    weight = np.array([asked[label] for label in y.tolist()])
    by_row = GWIClassifier(["svgp", "linear"], random_state=0).fit(x, y, sample_weight=weight)
    np.testing.assert_allclose(by_class.predict_proba(x), by_row.predict_proba(x), atol=1e-12)


def test_balanced_classes_have_the_same_weight_in_total_and_weights_of_rows_count():
    x, y = rare()
    weight = np.where(x[:, 1] > 0, 2.0, 1.0)
    balanced = GWIClassifier("linear", class_weight="balanced", random_state=0).fit(x, y, sample_weight=weight)
    total = {label: weight[y == label].sum() for label in ("rare", "usual")}
    by_hand = weight * np.array([weight.sum() / (2 * total[label]) for label in y.tolist()])
    same = GWIClassifier("linear", random_state=0).fit(x, y, sample_weight=by_hand)
    np.testing.assert_allclose(balanced.predict_proba(x), same.predict_proba(x), atol=1e-12)
    usual = GWIClassifier("linear", random_state=0).fit(x, y)
    # Odds are those of classes that come alike: times seven.
    odds = np.log(balanced.predict_proba(x)[:, 0] / balanced.predict_proba(x)[:, 1])
    before = np.log(usual.predict_proba(x)[:, 0] / usual.predict_proba(x)[:, 1])
    assert np.median(odds - before) == pytest.approx(np.log((y == "usual").sum() / (y == "rare").sum()), abs=0.5)


def test_validation_rows_judge_by_the_weights_of_classes():
    x, y = rare()
    mean = LogisticRegression().fit(x[:200], y[:200])
    found = [
        GWIClassifier(mean, class_weight=given, random_state=0).fit(x[:200], y[:200], validation=(x[200:], y[200:])).summary_
        for given in (None, "balanced")
    ]
    # A model of classes as they come is worse where they count alike.
    assert found[1].held_out_nll[1] > found[0].held_out_nll[1] + 0.1


@pytest.mark.parametrize("asked", ["balanced", {"rare": 2, "usual": 1.5}, {np.str_("rare"): np.float64(2.0)}], ids=str)
def test_a_file_and_a_clone_keep_the_weights_of_classes(asked, tmp_path):
    model = GWIClassifier("linear", class_weight=asked, random_state=0).fit(*rare())
    assert clone(model).class_weight == asked
    assert load(model.save(tmp_path / "model.gwi")).class_weight == asked


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("equal", 'class_weight must be "balanced", a dict'),
        ([1.0, 2.0], 'class_weight must be "balanced", a dict'),
        ({"rare": 0.0}, "positive for each class"),
        ({"rare": float("nan")}, "positive for each class"),
        ({"oak": 2.0}, "not in class_weight"),
    ],
    ids=str,
)
def test_odd_weights_of_classes_are_refused(asked, message):
    with pytest.raises(ValueError, match=message):
        GWIClassifier("linear", class_weight=asked).fit(*rare(60))


def test_networks_that_take_no_weights_refuse_those_of_classes():
    x, y, x_new, y_new = split_classes()
    for mean in (Joint(mlp(2, 3), max_epochs=1), Frozen(mlp(2, 3))):
        images = x.reshape(-1, 1, 2) if isinstance(mean, Frozen) else x
        with pytest.raises(ValueError, match="class_weight is for tables in memory"):
            GWIClassifier(mean, class_weight="balanced").fit(images, y, validation=(x_new.reshape(-1, *images.shape[1:]), y_new))


# Logarithms


def test_logarithms_are_those_of_the_probabilities():
    x, y, x_new, _ = split_classes()
    for likelihood in ("softmax", RobustMax(0.01)):
        model = GWIClassifier("svgp", likelihood=likelihood, random_state=0).fit(x, y)
        p, log_p = model.predict_proba(x_new), model.predict_log_proba(x_new)
        likely = p > 1e-4
        np.testing.assert_allclose(log_p[likely], np.log(p[likely]), atol=1e-12)
        assert np.isfinite(log_p).all()
    assert isinstance(model.predict_log_proba(torch.from_numpy(x_new)), torch.Tensor)


@pytest.mark.parametrize("variance", [0.0, 0.3, 4.0])
def test_logarithms_stay_finite_where_probabilities_are_zero(variance):
    x, y = three_classes(60)
    model = GWIClassifier("linear", random_state=0).fit(x, y).model_
    mean = torch.tensor([[0.0, 0.0], [-900.0, -30.0], [-1.0, -2000.0]], dtype=torch.float64)
    found = model._log_probabilities(mean, torch.full_like(mean, variance))
    assert torch.isfinite(found).all()
    # By draws of logits, from which the same shift may be taken before and after.
    draws = mean[..., None] + variance**0.5 * torch.randn(3, 2, 200_000, dtype=torch.float64, generator=torch.manual_seed(0))
    sampled = draws.log_softmax(0).logsumexp(-1) - np.log(200_000)
    bound = draws.log_softmax(0).mean(-1)
    assert (found >= bound - 0.05).all()
    assert (found <= sampled + 0.05).all()
    assert classification.DIGITS == 5
