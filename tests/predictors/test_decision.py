"""Classifiers as plain arrays: copies and files predict the same bits, and no array can lead them astray."""

import copy
import pickle
import warnings
from contextlib import nullcontext, suppress

import numpy as np
import pytest
import torch
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
)
from sklearn.linear_model import SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier

from classifier_cases import (
    fitted,
    same_bits,
    table,
    there_and_back,
)
from gwi.core.kernels import SparsePosteriorKernel, default_kernel
from gwi.core.means import FixedMean
from gwi.core.measures import GaussianMeasure
from gwi.core.noise import LogLinearNoise
from gwi.core.scaling import OriginalRowsMean, Scales
from gwi.exceptions import ModelFileError, UnsavableError
from gwi.models.regression import RegressionModel
from gwi.predictors.decision import LINKS
from gwi.predictors.logits import ClassifierLogits, PlainClassifier, plain_classifier
from gwi.storage.container import from_bytes, to_bytes
from gwi.storage.regression import decode_model, encode_model
from predictors.test_trees import mutation, walked

pytestmark = pytest.mark.unchecked


@pytest.mark.parametrize("name", ["histogram boosting", "gradient boosting", "extra trees", "ridge", "network, relu"])
def test_arrays_copies_and_pickles_predict_the_same(name):
    _, y, new = table("digits")
    held = plain_classifier(fitted(name, "digits"), np.unique(y))
    expected, arrays = held.predict(new), held.arrays()
    again = there_and_back(held).arrays()
    assert arrays.keys() == again.keys()
    assert all(np.array_equal(arrays[key], again[key]) and arrays[key].dtype == again[key].dtype for key in arrays)
    strided = {key: np.repeat(array, 2, axis=0)[::2] if array.ndim else array for key, array in arrays.items()}
    loaded = PlainClassifier.from_arrays(strided)
    for array in (*arrays.values(), *strided.values()):
        array.fill(99)
    for other in (held, loaded, copy.deepcopy(held), pickle.loads(pickle.dumps(held))):
        assert same_bits(other.predict(new), expected)


def test_plain_logits_do_not_change_when_the_estimator_does():
    x, y, new = table("wine")
    for estimator in (
        HistGradientBoostingClassifier(max_iter=2, warm_start=True),
        SGDClassifier(loss="log_loss", random_state=0),
        MLPClassifier((4,), max_iter=3, random_state=0),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            held = plain_classifier(estimator.fit(x, y), np.arange(3))
            expected = held.predict(new)
            if isinstance(estimator, HistGradientBoostingClassifier):
                estimator.set_params(max_iter=4).fit(x, y)
            else:
                estimator.partial_fit(x, y[::-1])
        assert same_bits(held.predict(new), expected)
        assert not same_bits(ClassifierLogits(estimator, np.arange(3)).predict(new), expected)


def model_around(predictor, num_features, num_classes):
    """A model whose mean is the predictor, with a kernel and noise that are nearly nothing."""
    kernel, z = default_kernel(num_features), torch.zeros(1, num_features, dtype=torch.float64)
    scales = Scales(*(np.full(size, value) for size in (num_features, num_classes) for value in (0.0, 1.0)))
    posterior = GaussianMeasure(
        OriginalRowsMean(FixedMean(predictor), scales), SparsePosteriorKernel(kernel, z, torch.ones(num_classes, 1, 1).double())
    ).requires_grad_(False)
    none = torch.zeros(2 * (num_features + num_classes), dtype=torch.float64)
    noise = LogLinearNoise(torch.zeros((), dtype=torch.float64), none, none, none + 1)
    ones = np.ones(num_classes)
    return RegressionModel(
        posterior, (noise,) * num_classes, scales, ones, 9 * ones, 0 * ones, torch.zeros(num_classes, 2, dtype=torch.float64)
    )


@pytest.mark.parametrize("name", ["histogram boosting", "gradient boosting", "extra trees", "ridge", "network, relu"])
def test_a_mean_of_logits_is_stored_and_read_without_pickle(name):
    new = table("iris")[2]
    logits = ClassifierLogits(fitted(name, "iris"), np.arange(4))
    for predictor in (logits, logits.plain()):
        document, tensors = from_bytes(to_bytes(*encode_model(model_around(predictor, 4, 4))))
        loaded = decode_model(document, tensors)
        assert same_bits(loaded.mean(new), np.ascontiguousarray(logits.plain().predict(new).T))
    place = next(key for key in tensors if key.endswith(".column"))
    with pytest.raises(ModelFileError, match="column"):
        decode_model(document, tensors | {place: tensors[place] + 1})
    with pytest.raises(ModelFileError, match="other columns"):
        decode_model(*encode_model(model_around(plain_classifier(fitted(name), np.arange(3)), 4, 3)))


def test_a_classifier_that_cannot_be_stored_is_named():
    x, y, _ = table("iris")
    with pytest.raises(UnsavableError, match=r"type GaussianNB cannot be stored.*boosting"):
        encode_model(model_around(ClassifierLogits(GaussianNB().fit(x, y), np.arange(3)), 4, 3))


def test_numbers_that_are_not_finite_are_refused_when_saving():
    _, y, _ = table("wine")
    for name in ("ridge", "network, relu", "histogram boosting", "extra trees"):
        held = copy.deepcopy(plain_classifier(fitted(name), np.unique(y)))
        if name == "histogram boosting":
            held.scores.parts[1].trees[0].nodes["value"][:] = np.inf
        elif name == "extra trees":
            held.scores.trees[0].value[:] = np.inf
        else:
            (held.scores.weights if name == "ridge" else held.scores.weights[1])[0, 0] = np.inf
        with pytest.raises(ValueError, match="finite"):
            held.arrays()


def invalid(arrays):
    """Each way to break the arrays of three classes that were all seen, with a word that the message must have."""
    for column in ([0, 1], [0, 1, 1], [0, 1, 3], [0, 1, -1], [0, 1, 2, -2], [0, 1, 2, 2**62], [0, 1, -(2**63)]):
        yield "column", arrays | {"column": np.array(column, np.int64)}
    for link in (-1, len(LINKS), LINKS.index("logistic"), 2**63 - 1):
        yield "link", arrays | {"link": np.array(link, np.int64)}
    for floor in (0.0, -1.0, 1.0, np.nan, np.inf):
        yield "floor", arrays | {"floor": np.array(floor)}
    # Without a learning rate they are trees of another kind.
    for key in [key for key in arrays if not key.endswith("learning_rate")]:
        yield "need", {name: array for name, array in arrays.items() if name != key}
        yield "need", arrays | {key: arrays[key][None]}
        for dtype in (np.float32, np.int16, np.bool_, object):
            yield "need", arrays | {key: arrays[key].astype(dtype)}
        if arrays[key].ndim:
            yield "need", arrays | {key: arrays[key][:0]}
    yield "one kind", arrays | {"more": np.zeros(1)}
    yield "one kind", {name: array for name, array in arrays.items() if "." not in name}
    yield "boosting, forest", {name.replace(".", "Other.", 1): array for name, array in arrays.items()}
    yield "column", {}


@pytest.mark.parametrize("name", ["histogram boosting", "gradient boosting", "extra trees", "ridge", "network, relu"])
def test_each_invalid_array_is_refused_with_one_sentence(name):
    arrays = plain_classifier(fitted(name), np.arange(3)).arrays()
    for word, broken in invalid(arrays):
        with pytest.raises(ValueError, match=f"{word}.*; got .*so save the model again\\.$"):
            PlainClassifier.from_arrays(broken)


def test_masks_cannot_hide_invalid_entries():
    arrays = plain_classifier(fitted("ridge"), np.arange(3)).arrays()
    for key, number in (("column", 9), ("linear.weights", np.nan)):
        hidden = np.ma.masked_array(np.full_like(arrays[key], number), mask=True)
        with pytest.raises(ValueError, match="so save the model again"):
            PlainClassifier.from_arrays(arrays | {key: hidden})


def test_trees_of_several_columns_must_be_equally_many():
    for name in ("histogram boosting", "gradient boosting"):
        arrays = plain_classifier(fitted(name), np.arange(3)).arrays()
        for num_columns in (2, 4, 10**5):
            with pytest.raises(ValueError, match="as many trees for each"):
                PlainClassifier.from_arrays(arrays | {"boosting.baseline": np.zeros(num_columns)})
        for wrong in ([np.nan, 0.0, 0.0], [[0.0]], []):
            with pytest.raises(ValueError, match="baseline"):
                PlainClassifier.from_arrays(arrays | {"boosting.baseline": np.array(wrong)})
    with pytest.raises(ValueError, match="learning_rate"):
        PlainClassifier.from_arrays(arrays | {"boosting.learning_rate": np.zeros(0)})


def test_layers_of_a_network_must_fit():
    arrays = plain_classifier(fitted("network, relu"), np.arange(3)).arrays()
    for key, shape in (("network.weights.1", (8, 5)), ("network.weights.1", (9, 6)), ("network.bias.1", (6,))):
        with pytest.raises(ValueError, match="each takes what the one before gives"):
            PlainClassifier.from_arrays(arrays | {key: np.zeros(shape)})
    with pytest.raises(ValueError, match="an activation below"):
        PlainClassifier.from_arrays(arrays | {"network.activation": np.array(4)})


def reference_scores(held, x):
    """Scores node by node and column by column from the arrays, without any of the code under test."""
    arrays = {key.split(".", 1)[1]: array for key, array in held.arrays().items() if "." in key}
    if "weights" in arrays:
        return x @ arrays["weights"].T + arrays["intercept"]
    if "activation" in arrays:
        values = x
        for i in range(sum(key.startswith("bias.") for key in arrays)):
            acted = (values, np.tanh(values), 1 / (1 + np.exp(-values)), np.maximum(values, 0))[int(arrays["activation"])]
            values = (acted if i else values) @ arrays[f"weights.{i}"] + arrays[f"bias.{i}"]
        return values
    if arrays["baseline"].ndim == 0:
        return walked(arrays, x).reshape(len(x), -1)
    joined, columns = arrays | {"baseline": np.array(0.0)}, []
    num_each = (len(arrays["offsets"]) - 1) // len(arrays["baseline"])
    for k, baseline in enumerate(arrays["baseline"]):
        first, last = arrays["offsets"][[k * num_each, (k + 1) * num_each]]
        splits, leaves = (np.cumsum(np.r_[0, arrays["is_leaf"] == kind])[[first, last]] for kind in (0, 1))
        part = {
            key: array[slice(*(leaves if key == "value" else splits))]
            for key, array in joined.items()
            if array.ndim and len(array)
        }
        part |= {"offsets": arrays["offsets"][k * num_each : (k + 1) * num_each + 1] - first, "baseline": baseline}
        part |= {"is_leaf": arrays["is_leaf"][first:last], "num_features": arrays["num_features"]}
        columns.append(walked(part | {key: arrays[key] for key in ("learning_rate",) if key in arrays}, x))
    return np.stack(columns, axis=1)


def fuzz(num_mutations, seed=0):
    """How many of so many mutations were taken, once each was either refused with a ValueError or has predicted."""
    names = ("histogram boosting", "gradient boosting", "random forest", "logistic regression", "ridge", "network, tanh")
    rng, taken = np.random.default_rng(seed), 0
    subjects = [plain_classifier(fitted(name, "iris"), np.arange(5)).arrays() for name in names]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i in range(num_mutations):
            try:
                held = PlainClassifier.from_arrays(mutation(subjects[i % len(subjects)], rng))
            except ValueError:
                continue
            taken += 1
            if held.num_features > 1000:
                continue
            x = rng.normal(size=(3, held.num_features))
            # Out of bounds need not crash; it would differ.
            expected = reference_scores(held, x)
            size = np.abs(expected).max(initial=1, where=np.isfinite(expected))
            np.testing.assert_allclose(held.scores.predict(x).reshape(3, -1), expected, rtol=1e-9, atol=1e-9 * size)
            # Numbers as large as a file can hold overflow, and are then refused where they are no probability.
            with suppress(ValueError) if not np.isfinite(expected).all() else nullcontext():
                logits = held.predict(x)
                assert logits.shape == (3, held.num_classes)
                assert np.isfinite(logits).all()
    return taken


def test_random_mutations_are_refused_or_predict():
    # Both outcomes are common, or the test would test little.
    assert 60 < fuzz(600) < 540
