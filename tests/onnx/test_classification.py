"""Models of classes in ONNX say what `predict_proba` says."""

from functools import cache

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from torch import nn

import classifier_cases
from gwi import GWIClassifier
from gwi.onnx.graph import Graph
from gwi.onnx.softmax import robust_max_probabilities, softmax_moments
from onnx_answers import differences, rows_near_and_far, session

pytestmark = [
    pytest.mark.unchecked,
    pytest.mark.filterwarnings("ignore::gwi.exceptions.GWIWarning", "ignore::UserWarning"),
]


@cache
def table(data, num_rows=80):
    X, y = {"digits": load_digits, "breast cancer": load_breast_cancer}[data](return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))[: 2 * num_rows]
    return X[order].astype(float), y[order], num_rows


@pytest.mark.parametrize("likelihood", ["softmax", "robust-max"])
@pytest.mark.parametrize("data", [pytest.param("digits", marks=pytest.mark.slow), "breast cancer"])
def test_every_likelihood_says_the_same_as_predict_proba(data, likelihood):
    X, y, count = table(data)
    model = GWIClassifier("svgp", likelihood=likelihood, random_state=0).fit(X[:count], y[:count])
    assert max(differences(model, np.concatenate([X[count:], rows_near_and_far(X[:count])])).values()) < 1e-9


def test_a_stack_of_classifiers_says_the_same_as_predict_proba():
    X, y, count = table("breast cancer")
    trees = [HistGradientBoostingClassifier(max_iter=6, random_state=0), ExtraTreesClassifier(6, random_state=0)]
    model = GWIClassifier(["svgp", "linear", *trees], random_state=0).fit(X[:count], y[:count])
    assert max(differences(model, np.concatenate([X[count:], rows_near_and_far(X[:count])])).values()) < 1e-9


@pytest.mark.parametrize("name", classifier_cases.ALL)
def test_every_kind_of_classifier_gives_the_same_logits(name):
    from gwi.onnx.trees import predictor_values
    from gwi.predictors.logits import ClassifierLogits

    _, y, others = classifier_cases.table("wine")
    logits = ClassifierLogits(classifier_cases.fitted(name), np.arange(5))
    g = Graph()
    rows, declared = g.input("X", ["rows", others.shape[1]])
    found = session(g.model([declared], {"logits": (predictor_values(g, logits, rows), ["rows", 5])}, {}))
    np.testing.assert_allclose(found.run(None, {"X": others})[0], logits.predict(others), rtol=1e-11, atol=1e-12)
    assert len(np.unique(y)) == 3


def integrals(mean, variance, epsilon=None):
    g, num_classes = Graph(), mean.shape[1]
    (m, of_m), (v, of_v) = (g.input(name, ["rows", num_classes]) for name in ("m", "v"))
    if epsilon is None:
        p, entropy = softmax_moments(g, m, v, num_classes)
        outputs = {"p": (p, ["rows", num_classes]), "entropy": (entropy, ["rows", 1])}
    else:
        outputs = {"p": (robust_max_probabilities(g, m, v, num_classes, epsilon), ["rows", num_classes])}
    return session(g.model([of_m, of_v], outputs, {})).run(None, {"m": mean, "v": variance})


@pytest.mark.parametrize("num_classes", [2, 7])
def test_softmax_of_any_spreads_is_that_of_the_model(num_classes):
    from gwi.core.likelihoods.softmax import softmax_moments as of_model
    from gwi.models.classification import DIGITS, within_reach

    rng = np.random.default_rng(0)
    mean = rng.normal(size=(60, num_classes)) * rng.choice([0.1, 3.0, 30.0], size=(60, 1))
    # Narrow, wide, and both in one row: the model has a rule for each.
    variance = np.exp(rng.uniform(-12, 10, (60, num_classes)))
    p, entropy = integrals(mean, variance)
    moments = of_model(*within_reach(torch.from_numpy(mean.T), torch.from_numpy(variance.T)), digits=DIGITS)
    np.testing.assert_allclose(p, (moments.probabilities / moments.probabilities.sum(0)).T.numpy(), atol=1e-11)
    np.testing.assert_allclose(entropy[:, 0], moments.entropy.numpy(), atol=1e-10)


def test_robust_max_of_any_spreads_is_that_of_the_model():
    from gwi.core.likelihoods.robust_max import RobustMaxLikelihood

    rng = np.random.default_rng(0)
    mean, variance = 5 * rng.normal(size=(100, 4)), np.exp(rng.uniform(-40, 6, (100, 4)))
    mean[:10], variance[:10] = 1.0, 0.0
    likelihood = RobustMaxLikelihood(4, 0.02)
    p = likelihood.class_probabilities(torch.from_numpy(mean.T), torch.from_numpy(variance.T)).numpy()
    np.testing.assert_allclose(integrals(mean, variance, 0.02)[0], (p / p.sum(0)).T, atol=1e-11)


def test_a_frozen_network_of_images_says_the_same_as_predict_proba():
    X, y, count = table("digits", 300)
    images = (X / 16).reshape(-1, 1, 8, 8).astype(np.float32)
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 6, 3),
        nn.ReLU(),
        nn.Conv2d(6, 8, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(128, 20),
        nn.ReLU(),
        nn.Linear(20, 10),
    )
    model = GWIClassifier(network, random_state=0).fit(
        images[:count], y[:count], validation=(images[count : count + 150], y[count : count + 150])
    )
    found = differences(model, images[count + 150 :], seen=images[count + 150 :].astype(np.float64))
    assert found.pop("outlier_score_with_energy") < 1e-3
    assert max(found.values()) < 1e-5
