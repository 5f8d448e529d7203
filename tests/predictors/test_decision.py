"""Classifiers as plain arrays: copies and files predict the same bits, and no array can lead them astray."""

import copy
import pickle
import warnings
from contextlib import nullcontext, suppress

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier

from classifier_cases import ALL, fitted, same_bits, table, there_and_back
from gwi.core.kernels import SparsePosteriorKernel, default_kernel
from gwi.core.means import FixedMean, OriginalRowsMean
from gwi.core.measures import GaussianMeasure
from gwi.core.noise import LogLinearNoise
from gwi.core.scaling import Scales, StandardisedRows
from gwi.exceptions import ModelFileError, UnsavableError
from gwi.models.regression import RegressionModel
from gwi.predictors.decision import LINKS
from gwi.predictors.logits import ClassifierLogits, PlainClassifier, plain_classifier
from gwi.storage.container import from_bytes, to_bytes
from gwi.storage.models import decode_model, encode_model
from predictors.test_invalid_trees import mutation
from tree_cases import walked

pytestmark = pytest.mark.unchecked


@pytest.mark.parametrize("name", ["histogram boosting", "gradient boosting", "extra trees", "ridge"])
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
        SGDClassifier(random_state=0),
    ):
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
    embedding, scores = StandardisedRows(scales, (num_features,)), torch.zeros(num_classes, 2, dtype=torch.float64)
    return RegressionModel(
        posterior=posterior,
        embedding=embedding,
        noises=(noise,) * num_classes,
        tempering_factor=ones,
        degrees_of_freedom=9 * ones,
        disagreement_weight=0 * ones,
        scores=scores,
    )


@pytest.mark.parametrize("name", ["histogram boosting", "gradient boosting", "extra trees", "ridge"])
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


def test_trees_that_split_missing_values_are_stored():
    x, y, new = (part.copy() for part in table("iris"))
    x[y == 1, 0] = new[::2, 0] = np.nan
    for name in ("histogram boosting", "random forest"):
        held = plain_classifier(clone(ALL[name]).fit(x, y), np.arange(3))
        document, tensors = from_bytes(to_bytes(*encode_model(model_around(held, 4, 3))))
        assert same_bits(decode_model(document, tensors).posterior.mean.mean.predictor.predict(new), held.predict(new))


def test_a_classifier_that_cannot_be_stored_is_named():
    x, y, _ = table("iris")
    for estimator in (GaussianNB(), MLPClassifier((), solver="lbfgs", alpha=1.0), SGDClassifier("log_loss", random_state=0)):
        logits = ClassifierLogits(estimator.fit(x, y), np.arange(3))
        with pytest.raises(UnsavableError, match=rf"type {type(estimator).__name__} cannot be stored.*boosting"):
            encode_model(model_around(logits, 4, 3))


def test_numbers_that_are_not_finite_are_refused_when_saving():
    _, y, _ = table("wine")
    for name in ("ridge", "histogram boosting", "extra trees"):
        held = copy.deepcopy(plain_classifier(fitted(name), np.unique(y)))
        if name == "histogram boosting":
            held.scores.trees[1].nodes["value"][:] = np.inf
        elif name == "extra trees":
            held.scores.trees[0].value[:] = np.inf
        else:
            held.scores.weights[0, 0] = np.inf
        with pytest.raises(ValueError, match="finite"):
            held.arrays()


def invalid(arrays):
    """Each way to break the arrays of three classes that were all seen, with a word that the message must have."""
    for column in ([0, 1], [0, 1, 1], [0, 1, 3], [0, 1, -1], [0, 1, 2, -2], [0, 1, 2, 2**62], [0, 1, -(2**63)]):
        yield "column", arrays | {"column": np.array(column, np.int64)}
    for link in (-1, len(LINKS), 2**63 - 1):
        yield "link", arrays | {"link": np.array(link, np.int64)}
    for floor in (0.0, -1.0, 1.0, np.nan, np.inf):
        yield "floor", arrays | {"floor": np.array(floor)}
    for key in arrays:
        yield "need", {name: array for name, array in arrays.items() if name != key}
        yield "need", arrays | {key: arrays[key][None]}
        for dtype in (np.float32, np.int16, np.bool_, object):
            yield "need", arrays | {key: arrays[key].astype(dtype)}
        if arrays[key].ndim:
            yield "need", arrays | {key: arrays[key][:0]}
    yield "one kind", arrays | {"more": np.zeros(1)}
    yield "one kind", {name: array for name, array in arrays.items() if "." not in name}
    yield "trees or linear", {name.replace(".", "Other.", 1): array for name, array in arrays.items()}
    yield "column", {}


@pytest.mark.parametrize("name", ["histogram boosting", "gradient boosting", "extra trees", "ridge"])
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


def test_trees_of_several_classes_must_be_equally_many():
    for name in ("histogram boosting", "gradient boosting"):
        arrays = plain_classifier(fitted(name), np.arange(3)).arrays()
        for num_columns in (2, 4, 10**5):
            with pytest.raises(ValueError, match="as many trees for each"):
                PlainClassifier.from_arrays(arrays | {"trees.baseline": np.zeros(num_columns)})
        for wrong in ([np.nan, 0.0, 0.0], [[0.0]], []):
            with pytest.raises(ValueError, match="baseline"):
                PlainClassifier.from_arrays(arrays | {"trees.baseline": np.array(wrong)})


def test_weights_and_intercepts_must_be_equally_many():
    arrays = plain_classifier(fitted("ridge"), np.arange(3)).arrays()
    for key, shape in (("weights", (2, 13)), ("weights", (0, 13)), ("weights", (3, 0)), ("intercept", (1,)), ("intercept", (0,))):
        with pytest.raises(ValueError, match="weights"):
            PlainClassifier.from_arrays(arrays | {f"linear.{key}": np.zeros(shape)})


def reference_scores(held, x):
    """Scores node by node and column by column from the arrays, without any of the code under test."""
    arrays = {key.split(".", 1)[1]: array for key, array in held.arrays().items() if "." in key}
    return x @ arrays["weights"].T + arrays["intercept"] if "weights" in arrays else walked(arrays, x)


def fuzz(num_mutations, seed=0):
    """How many of so many mutations were taken, once each was either refused with a ValueError or has predicted."""
    names = ("histogram boosting", "gradient boosting", "random forest", "logistic regression", "ridge")
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
            np.testing.assert_allclose(held.scores.predict(x), expected, rtol=1e-9, atol=1e-9 * size)
            # Numbers as large as a file can hold overflow, and are then refused where they are no probability.
            with suppress(ValueError) if not np.isfinite(expected).all() else nullcontext():
                logits = held.predict(x)
                assert logits.shape == (3, held.num_outputs)
                assert np.isfinite(logits).all()
    return taken


def test_random_mutations_are_refused_or_predict():
    # Both outcomes are common, or the test would test little.
    assert 60 < fuzz(600) < 540
