"""GWIClassifier: scikit-learn's contract, every kind of mean, calibrated probabilities, files, mistakes."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris, make_blobs
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

import gwi
from class_data import NAMES, split_classes, three_classes
from gwi import GWIClassifier
from gwi.core.networks import mlp
from gwi.exceptions import UnsavableError
from gwi.fitting import classification
from gwi.parts import Covariance, Joint, Paper, RobustMax, Trained

pytestmark = pytest.mark.unchecked


# Two folds: what is checked does not depend on their number.
@parametrize_with_checks([GWIClassifier(mean="linear", random_state=0, cv=2)])
def test_scikit_learns_checks_hold(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([GWIClassifier(mean, random_state=0) for mean in ("auto", "linear", "svgp", "network")])
def test_scikit_learns_checks_hold_for_the_default_kernel_means_and_networks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def data():
    return split_classes()


MEANS = [
    "svgp",
    "network",
    "linear",
    LogisticRegression(),
    ExtraTreesClassifier(30),
    ["svgp", "linear"],
]


@pytest.mark.unchecked
@pytest.mark.parametrize("mean", MEANS, ids=str)
def test_any_mean_gives_probabilities_that_beat_the_shares_of_classes(mean, data):
    x, y, x_new, y_new = data
    model = GWIClassifier(mean, random_state=0).fit(x, y)
    probabilities = model.predict_proba(x_new)
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-12)
    shares = np.array([(y == name).mean() for name in NAMES])
    base = -np.log(shares[np.searchsorted(NAMES, y_new)]).mean()
    assert model.nll(x_new, y_new) < 0.4 * base
    assert (model.predict(x_new) == y_new).mean() > 0.9
    assert model.nll(x_new, y_new) == pytest.approx(
        -np.log(probabilities[np.arange(len(y_new)), np.searchsorted(NAMES, y_new)]).mean()
    )


def test_far_from_the_data_the_score_rises_and_probabilities_flatten(data):
    x, y, x_new, _ = data
    model = GWIClassifier("svgp", random_state=0).fit(x, y)
    assert model.ood_score(20 * x_new).mean() > 0.9 > 0.5 > model.ood_score(x_new).mean()
    near, far = model.decompose(x_new), model.decompose(20 * x_new)
    assert far.mutual_information.mean() > 3 * near.mutual_information.mean()
    assert far.total.mean() > near.total.mean()
    for part in (near, far):
        np.testing.assert_allclose(part.expected + part.mutual_information, part.total, atol=1e-9)
        assert (part.mutual_information >= 0).all()


def test_the_same_seed_gives_the_same_probabilities(data):
    x, y, x_new, _ = data
    first, second = (GWIClassifier("linear", random_state=3).fit(x, y).predict_proba(x_new) for _ in range(2))
    assert (first == second).all()


def test_probabilities_are_the_expected_softmax_under_the_posterior(data):
    x, y, x_new, _ = data
    model = GWIClassifier("svgp", random_state=0).fit(x, y)
    rows = next(model.model_.rows(x_new[:20]))
    mean, variance = model.model_.logits(rows)
    draws = mean + variance.sqrt() * torch.randn(
        40_000, *mean.shape, generator=torch.Generator().manual_seed(0), dtype=mean.dtype
    )
    sampled = draws.softmax(1).mean(0).mT.numpy()
    np.testing.assert_allclose(model.predict_proba(x_new[:20]), sampled, atol=5e-3)


def test_robust_max_probabilities_are_never_above_one_minus_epsilon(data):
    x, y, x_new, y_new = data
    model = GWIClassifier("svgp", random_state=0, likelihood=RobustMax(0.05)).fit(x, y)
    assert model.predict_proba(x_new).max() <= 0.95 + 1e-9
    assert (model.predict(x_new) == y_new).mean() > 0.9


def test_a_rare_class_keeps_its_share_far_from_the_data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(250, 2))
    y = (rng.random(250) < 0.05).astype(int)  # Labels that rows say nothing about.
    model = GWIClassifier("svgp", random_state=0).fit(x, y)
    # At rows of its own a mean may know every label.
    x_new, y_new = rng.normal(size=(2000, 2)), (rng.random(2000) < 0.05).astype(int)
    assert model.predict_proba(x_new)[:, 1].mean() == pytest.approx(y.mean(), abs=0.03)
    assert model.nll(x_new, y_new) < 1.2 * -np.log(np.where(y_new == 1, y.mean(), 1 - y.mean())).mean()


def test_targets_of_a_kernel_mean_are_chosen_by_the_mean_that_is_kept(monkeypatch):
    rng = np.random.default_rng(10)
    x = rng.normal(size=(240, 3))
    y = (rng.random(240) < 0.1).astype(int)
    kept, tried = [], []
    task, scale = classification.ClassificationTask, classification.best_scale
    own = task._kernel_logits
    monkeypatch.setattr(classification, "best_scale", lambda logits, *others: tried.append(logits) or scale(logits, *others))

    def spy(self, data, prior, basis):
        tried.clear()
        found, rows = own(self, data, prior, basis), (data.held_out.y, data.held_out.weight)
        # What is tried alone and with the shares of classes, for two kinds of target.
        kept.append((scale(found.held_out, *rows)[1], [scale(part, *rows)[1] for part in tried[1::2]]))
        return found

    monkeypatch.setattr(task, "_kernel_logits", spy)
    GWIClassifier("svgp", random_state=0).fit(x, y)
    ((nll, others),) = kept
    assert len(others) == 2
    assert nll == min(others)


def test_weights_count_as_repeated_rows():
    x, y = three_classes(60)
    weight = np.random.default_rng(1).integers(0, 3, 60)
    weighted = GWIClassifier("svgp", random_state=0).fit(x, y, sample_weight=weight)
    repeated = GWIClassifier("svgp", random_state=0).fit(np.repeat(x, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_allclose(weighted.predict_proba(x), repeated.predict_proba(x), atol=1e-6)


@pytest.mark.unchecked
def test_a_hundred_classes_are_told_apart():
    x, y = make_blobs(450, centers=100, n_features=6, cluster_std=0.2, random_state=0)
    model = GWIClassifier("linear", tempering=1.0, random_state=0, covariance=Covariance(num_inducing=50)).fit(x[:400], y[:400])
    assert model.predict_proba(x[400:]).shape == (50, len(model.classes_))
    known = np.isin(y[400:], model.classes_)
    assert (model.predict(x[400:]) == y[400:])[known].mean() > 0.8


@pytest.mark.parametrize("covariance", ["titsias", "zero"])
def test_other_covariances_and_factors_of_each_class(covariance, data):
    x, y, x_new, y_new = data
    model = GWIClassifier("linear", covariance=covariance, tempering="per-class", random_state=0).fit(x[:150], y[:150])
    assert model.nll(x_new, y_new) < 0.4
    assert len(model.summary_.tempering) == 3


def test_given_factors_are_taken_as_they_are(data):
    x, y, x_new, _ = data
    numpy = GWIClassifier("linear", tempering=np.float32(2.0), random_state=0).fit(x, y)
    assert numpy.summary_.tempering == (2.0, 2.0, 2.0)
    assert numpy.model_.logit_scale == 1.0
    none = GWIClassifier("linear", tempering=0, random_state=0).fit(x, y)
    assert none.decompose(x_new).mutual_information.max() < 1e-5
    plain = GWIClassifier("linear", tempering=None, random_state=0).fit(x, y)
    assert plain.summary_.tempering == (1.0, 1.0, 1.0)
    assert plain.model_.logit_scale == 1.0
    tiny = GWIClassifier("linear", tempering=1e-9, random_state=0).fit(x, y)
    alone = LogisticRegression(max_iter=500).fit((x - x.mean(0)) / x.std(0), y)
    expected = alone.predict_proba((x_new - x.mean(0)) / x.std(0))
    np.testing.assert_allclose(tiny.predict_proba(x_new), expected, atol=2e-4)


# Files


@pytest.mark.parametrize("mean", ["svgp", ["linear", ExtraTreesClassifier(10)], "network"], ids=str)
def test_a_saved_model_predicts_the_same_bits(mean, data, tmp_path):
    x, y, x_new, _ = data
    model = GWIClassifier(mean, random_state=0).fit(x, y)
    again = gwi.load(model.save(tmp_path / "model.gwi"))
    assert (again.predict_proba(x_new) == model.predict_proba(x_new)).all()
    assert (again.ood_score(x_new) == model.ood_score(x_new)).all()
    assert again.predict(x_new).tolist() == model.predict(x_new).tolist()
    assert str(again.summary_) == str(model.summary_)


def test_what_cannot_be_stored_says_so(data, tmp_path):
    x, y, _, _ = data
    model = GWIClassifier(KNeighborsClassifier(), random_state=0).fit(x, y)
    with pytest.raises(UnsavableError, match="KNeighborsClassifier"):
        model.save(tmp_path / "model.gwi")


# Mistakes


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mean": "tree"}, "mean must be"),
        ({"likelihood": "probit"}, "likelihood must be"),
        ({"tempering": "all"}, "tempering must be"),
        ({"tempering": -1.0}, "at least zero"),
        ({"mean": Joint(mlp(2, 5), max_epochs=1)}, "5 outputs per row; there are 3 classes"),
        ({"mean": [Trained(mlp(2, 1)), "linear"]}, "1 outputs per row; there are 3 classes"),
        ({"mean": Paper(mlp(2, 5))}, "5 outputs per row"),
        ({"kernel": "features"}, "needs a network"),
        ({"mean": []}, "empty list"),
        ({"mean": "paper"}, "torch module"),
        ({"mean": Paper()}, "torch module"),
        ({"mean": lambda rows: rows}, "may have been trained on"),
        ({"mean": mlp(2, 3)}, "may have been trained on"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_mistakes_are_one_clear_sentence(settings, message, data):
    with pytest.raises(ValueError, match=message):
        GWIClassifier(**settings).fit(data[0], data[1])


def test_one_class_is_refused(data):
    with pytest.raises(ValueError, match="two classes"):
        GWIClassifier("linear").fit(data[0], np.zeros(300))


def test_an_unknown_label_is_named(data):
    model = GWIClassifier("linear", random_state=0).fit(data[0], data[1])
    with pytest.raises(ValueError, match="'oak'"):
        model.nll(data[2][:1], ["oak"])


def test_other_outputs_than_classes_are_refused(data):
    x, y, x_new, y_new = data
    with pytest.raises(ValueError, match="5 outputs"):
        GWIClassifier(mlp(2, 5)).fit(x, y, validation=(x_new, y_new))


def test_it_can_be_cloned_with_all_its_arguments():
    model = GWIClassifier("svgp", tempering="per-class", covariance=Covariance(num_inducing=7))
    copied, kept = clone(model).get_params(), model.get_params()
    assert copied.pop("covariance").get_params() == kept.pop("covariance").get_params()
    assert copied == kept


def test_iris_by_default_is_no_worse_than_logistic_regression():
    x, y = load_iris(return_X_y=True)
    a, b, c, d = train_test_split(x, y, test_size=50, random_state=0, stratify=y)
    model = GWIClassifier(random_state=0).fit(a, c)
    alone = LogisticRegression(max_iter=500).fit(a, c).predict_proba(b)
    assert model.nll(b, d) <= -np.log(alone[np.arange(50), d]).mean() + 0.02


def test_many_columns_and_few_rows_do_not_make_a_kernel_mean_look_better_than_it_is():
    claimed, true = [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x, noise = rng.normal(size=(1060, 20)), rng.normal(size=1060)
        y = x[:, 0] + noise > 0
        model = GWIClassifier("svgp", random_state=0).fit(x[:60], y[:60])
        claimed.append(model.summary_.held_out_nll[1])
        true.append(model.nll(x[60:], y[60:]))
    # A coin has 0.69; with a prior that had seen the judging rows the claim was 0.41 and the truth 0.74.
    assert np.mean(true) < 0.69
    assert abs(np.mean(true) - np.mean(claimed)) < 0.1
