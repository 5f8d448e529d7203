"""Logits of classifiers are those of scikit-learn's probabilities, also from plain arrays, and no array can lead them astray."""

import copy
import pickle
import warnings
from contextlib import nullcontext, suppress
from functools import cache

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, RidgeClassifier, SGDClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier

from gwi.classifiers import PROBABILITY_FLOOR, ClassifierLogits, PlainClassifier, plain_classifier
from gwi.codec import UnsavableError
from gwi.encoding import decode_model, encode_model
from gwi.files import ModelFileError, from_bytes, to_bytes
from gwi.kernels import SparsePosteriorKernel, default_kernel
from gwi.means import FixedMean
from gwi.measures import GaussianMeasure
from gwi.model import RegressionModel
from gwi.noise import LogLinearNoise
from gwi.scaling import OriginalRowsMean, Scales
from gwi.scores import LINKS
from test_trees import mutation, walked

TREES = {
    "histogram boosting": HistGradientBoostingClassifier(max_iter=5, max_leaf_nodes=6, min_samples_leaf=5),
    "gradient boosting": GradientBoostingClassifier(n_estimators=3, random_state=0),
    "gradient boosting from zero": GradientBoostingClassifier(n_estimators=3, init="zero", subsample=0.7, random_state=0),
    "extra trees": ExtraTreesClassifier(6, random_state=0),
    "random forest": RandomForestClassifier(6, max_leaf_nodes=9, class_weight="balanced", random_state=0),
    "decision tree": DecisionTreeClassifier(max_depth=4, ccp_alpha=0.001, random_state=0),
    "extra tree": ExtraTreeClassifier(random_state=0),
}
LINEAR = {
    "logistic regression": LogisticRegression(),
    "logistic regression by cross-validation": LogisticRegressionCV(
        Cs=2, cv=2, l1_ratios=(0.0,), use_legacy_attributes=False, scoring="neg_log_loss"
    ),
    "discriminant analysis": LinearDiscriminantAnalysis(),
    "discriminant analysis with shrinkage": LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"),
    "log loss by gradient descent": SGDClassifier(loss="log_loss", alpha=0.1, random_state=0),
}
MARGINS = {
    "hinge loss by gradient descent": SGDClassifier(random_state=0, average=True),
    "ridge": RidgeClassifier(),
    "ridge without intercept": RidgeClassifier(fit_intercept=False),
    "support vectors": LinearSVC(random_state=0),
    "support vectors without intercept": LinearSVC(random_state=0, fit_intercept=False),
}
NETWORKS = {
    f"network, {activation}": MLPClassifier(hidden, activation=activation, max_iter=4, random_state=0)
    for activation, hidden in (("relu", (9, 5)), ("tanh", (6,)), ("logistic", (6,)), ("identity", ()))
}
PROBABLE = TREES | LINEAR | NETWORKS
ALL = PROBABLE | MARGINS
LOADERS = {"iris": load_iris, "wine": load_wine, "breast cancer": load_breast_cancer, "digits": load_digits}


@cache
def table(data):
    """200 standardised rows with labels, and 100 rows beside them."""
    x, y = LOADERS[data](return_X_y=True)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(y))[:200]
    x, y = StandardScaler().fit_transform(x)[order], y[order]
    return x, y, x[:100] + 0.3 * rng.normal(size=x[:100].shape)


@cache
def fitted(name, data="wine"):
    x, y, _ = table(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clone(ALL[name]).fit(x, y)


def same_bits(a, b):
    return a.shape == b.shape and a.dtype == b.dtype == np.float64 and a.tobytes() == b.tobytes()


def there_and_back(held):
    return PlainClassifier.from_arrays(held.arrays())


class Given(ClassifierMixin, BaseEstimator):
    """A classifier whose every row of X is its answer."""

    def __init__(self, classes, method="predict_proba"):
        self.classes_ = np.asarray(classes)
        setattr(self, method, lambda rows: rows)


@pytest.mark.parametrize("data", LOADERS)
@pytest.mark.parametrize("name", ALL)
def test_plain_logits_equal_those_around_the_estimator(name, data):
    x, y, new = table(data)
    estimator, classes = fitted(name, data), np.unique(y)
    held, expected = plain_classifier(estimator, classes), ClassifierLogits(estimator, classes)
    assert (held.num_features, held.num_classes) == (x.shape[1], len(classes))
    for rows in (new, new[:1], np.asfortranarray(new), new[::-3]):
        logits = held.predict(rows)
        assert same_bits(there_and_back(held).predict(rows), logits)
        if name in TREES:
            assert same_bits(logits, expected.predict(rows))
        else:
            # A matrix product may round otherwise in another memory order.
            np.testing.assert_allclose(logits, expected.predict(rows), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("data", LOADERS)
@pytest.mark.parametrize("name", PROBABLE)
def test_the_softmax_of_logits_is_predict_proba_where_nothing_was_floored(name, data):
    _, y, new = table(data)
    p = fitted(name, data).predict_proba(new)
    for predictor in (ClassifierLogits(fitted(name, data), np.unique(y)), plain_classifier(fitted(name, data), np.unique(y))):
        logits = predictor.predict(new)
        np.testing.assert_allclose(logits.sum(axis=1), 0, atol=1e-11)
        free = p.min(axis=1) >= PROBABILITY_FLOOR
        np.testing.assert_allclose(softmax(logits[free], axis=1), p[free], rtol=1e-9)
        # Elsewhere it is the floored probability, divided by what they sum to.
        floored = np.maximum(p, PROBABILITY_FLOOR)
        np.testing.assert_allclose(softmax(logits, axis=1), floored / floored.sum(axis=1, keepdims=True), rtol=1e-9)


def test_logits_of_smooth_classifiers_are_their_own_scores_centred():
    _, y, new = table("wine")
    for name in ("histogram boosting", "gradient boosting", "logistic regression", "discriminant analysis"):
        scores = fitted(name).decision_function(new)
        logits = plain_classifier(fitted(name), np.unique(y), 1e-300).predict(new)
        np.testing.assert_allclose(logits, scores - scores.mean(axis=1, keepdims=True), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", MARGINS)
def test_margins_stay_as_they_are_and_one_margin_is_halved(name):
    for data in ("digits", "breast cancer"):
        _, y, new = table(data)
        margins = fitted(name, data).decision_function(new)
        logits = ClassifierLogits(fitted(name, data), np.unique(y)).predict(new)
        if data == "digits":
            assert same_bits(logits, margins)
        else:
            np.testing.assert_array_equal(logits, np.stack([-margins / 2, margins / 2], axis=1))
            # As with the logistic link, the margin is the log of the odds.
            np.testing.assert_array_equal(logits[:, 1] - logits[:, 0], margins)


@pytest.mark.parametrize("name", ALL)
def test_two_classes_have_two_columns_and_the_larger_is_the_prediction(name):
    _, y, new = table("breast cancer")
    estimator = fitted(name, "breast cancer")
    logits = plain_classifier(estimator, np.unique(y)).predict(new)
    assert logits.shape == (100, 2)
    clear = np.abs(logits[:, 1] - logits[:, 0]) > 1e-9
    np.testing.assert_array_equal(logits.argmax(axis=1)[clear], estimator.predict(new)[clear])


@pytest.mark.parametrize("name", ["histogram boosting", "gradient boosting", "extra trees", "logistic regression", "ridge"])
@pytest.mark.parametrize("missing", [[0], [4], [2, 7], [0, 1, 2, 3, 4, 5, 6, 7]])
def test_classes_that_were_not_seen_have_the_floor(name, missing):
    x, y, new = table("digits")
    rows, classes = ~np.isin(y, missing), np.arange(10)
    estimator = clone(ALL[name]).fit(x[rows], y[rows])
    whole, held = ClassifierLogits(estimator, classes).predict(new), plain_classifier(estimator, classes)
    np.testing.assert_allclose(held.predict(new), whole, rtol=1e-12, atol=1e-12)
    assert same_bits(there_and_back(held).predict(new), held.predict(new))
    log_p, seen = log_softmax(whole, axis=1), np.setdiff1d(classes, missing)
    # What the classes that were seen have together is the measure of those that were not.
    together = np.logaddexp.reduce(log_p[:, seen], axis=1)
    if name == "ridge":
        np.testing.assert_allclose(log_p[:, missing] - together[:, None], np.log(PROBABILITY_FLOOR), rtol=1e-12)
    else:
        np.testing.assert_allclose(log_p[:, missing], log_p.min(axis=1)[:, None].repeat(len(missing), 1), rtol=1e-12)
        assert (np.abs(log_p[:, missing] - together[:, None] - np.log(PROBABILITY_FLOOR)) < 1e-2).all()
    # The order among those seen is the estimator's own.
    alone = ClassifierLogits(estimator, seen).predict(new)
    np.testing.assert_allclose(log_softmax(whole[:, seen], axis=1), log_softmax(alone, axis=1), rtol=1e-9, atol=1e-9)


def test_a_classifier_that_saw_one_class_is_sure_of_it():
    x, _, new = table("wine")
    expected = np.log([PROBABILITY_FLOOR, 1, PROBABILITY_FLOOR]) - np.log([PROBABILITY_FLOOR, 1, PROBABILITY_FLOOR]).mean()
    for estimator in (ALL["extra trees"], ALL["histogram boosting"], DummyClassifier()):
        ones = clone(estimator).fit(x, np.ones(len(x), int))
        np.testing.assert_allclose(ClassifierLogits(ones, np.arange(3)).predict(new), np.tile(expected, (100, 1)))
        held = plain_classifier(ones, np.arange(3))
        assert (held is not None) == isinstance(estimator, ExtraTreesClassifier)
        if held is not None:
            assert same_bits(there_and_back(held).predict(new), ClassifierLogits(ones, np.arange(3)).predict(new))


@pytest.mark.parametrize("name", ["histogram boosting", "random forest", "logistic regression", "ridge", "network, relu"])
def test_labels_may_be_words_and_classes_in_any_order(name):
    x, y, new = table("wine")
    words = np.array(["red", "white", "amber"])[y]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimators = [clone(ALL[name]).fit(x, labels) for labels in (words, words.astype(object), words == "red")]
    sorted_words = np.array(["amber", "red", "white"])
    logits = ClassifierLogits(estimators[0], sorted_words).predict(new)
    assert same_bits(ClassifierLogits(estimators[1], sorted_words.astype(object)).predict(new), logits)
    for order in ([2, 0, 1], [1, 0, 2]):
        np.testing.assert_allclose(
            ClassifierLogits(estimators[0], sorted_words[order]).predict(new), logits[:, order], rtol=1e-12, atol=1e-12
        )
        held = plain_classifier(estimators[0], sorted_words[order])
        np.testing.assert_allclose(there_and_back(held).predict(new), logits[:, order], rtol=1e-12, atol=1e-12)
    truth = plain_classifier(estimators[2], np.array([False, True])).predict(new)
    np.testing.assert_array_equal(truth.argmax(axis=1), estimators[2].predict(new))


def test_the_floor_is_the_lowest_probability_and_can_be_chosen():
    new, classes = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]]), np.arange(3)
    for floor in (0.01, 1e-4, 1e-300):
        p = np.maximum(new, floor)
        logits = ClassifierLogits(Given(classes), classes, floor).predict(new)
        assert np.isfinite(logits).all()
        np.testing.assert_allclose(softmax(logits, axis=1), p / p.sum(axis=1, keepdims=True), rtol=1e-12)
    _, y, rows = table("wine")
    chosen = plain_classifier(fitted("extra trees"), np.unique(y), 0.02)
    assert chosen.floor == there_and_back(chosen).floor == 0.02
    assert same_bits(chosen.predict(rows), ClassifierLogits(fitted("extra trees"), np.unique(y), 0.02).predict(rows))
    for floor in (0.0, 1.0, -1.0, np.nan):
        with pytest.raises(ValueError, match="floor must be a probability"):
            plain_classifier(fitted("extra trees"), np.unique(y), floor)


def test_any_classifier_with_probabilities_or_margins_has_logits():
    x, y, new = table("wine")
    classes = np.unique(y)
    for estimator in (
        GaussianNB(),
        KNeighborsClassifier(),
        make_pipeline(StandardScaler(), LogisticRegression()),
        VotingClassifier([("a", GaussianNB()), ("b", LogisticRegression())], voting="soft"),
        OneVsRestClassifier(LogisticRegression()),
    ):
        p = np.maximum(estimator.fit(x, y).predict_proba(new), PROBABILITY_FLOOR)
        logits = ClassifierLogits(estimator, classes)
        np.testing.assert_allclose(softmax(logits.predict(new), axis=1), p / p.sum(axis=1, keepdims=True), rtol=1e-9)
        assert plain_classifier(estimator, classes) is None
        assert logits.plain() is None
    support = SVC().fit(x, y)
    assert same_bits(ClassifierLogits(support, classes).predict(new), support.decision_function(new))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_what_has_no_logits_is_refused_with_one_sentence():
    x, y, new = table("wine")
    classes = np.unique(y)
    hard = VotingClassifier([("a", GaussianNB()), ("b", LogisticRegression())]).fit(x, y)
    for neither in (hard, np.sin, None, StandardScaler().fit(x)):
        with pytest.raises(TypeError, match=r"^Logits need a classifier with predict_proba or decision_function; .*\.$"):
            ClassifierLogits(neither, classes)
    with pytest.raises(TypeError, match="one for each pair"):
        ClassifierLogits(SVC(decision_function_shape="ovo").fit(x, y), classes)
    several, labels = np.stack([y, y], axis=1), np.eye(3, dtype=int)[y]
    for estimator in (RandomForestClassifier(2), DecisionTreeClassifier(), KNeighborsClassifier()):
        with pytest.raises(TypeError, match="one target"):
            ClassifierLogits(estimator.fit(x, several), classes)
    for estimator in (RidgeClassifier(), OneVsRestClassifier(LogisticRegression()), MLPClassifier((2,), max_iter=1)):
        with pytest.raises(TypeError, match="one target"):
            ClassifierLogits(estimator.fit(x, labels), classes)
    with pytest.raises(NotFittedError, match="call its fit first"):
        ClassifierLogits(LogisticRegression(), classes)
    for wrong in (classes[:1], classes[None], np.array([0, 1, 2, 2])):
        with pytest.raises(ValueError, match="each once"):
            ClassifierLogits(fitted("ridge"), wrong)
    for make in (ClassifierLogits, plain_classifier):
        with pytest.raises(ValueError, match=r"\['2'\] are missing"):
            make(fitted("ridge"), np.array([0, 1, 3]))
    with pytest.raises(ValueError, match="as many columns"):
        ClassifierLogits(Given(classes), classes).predict(new[:, :2])


@pytest.mark.parametrize("method", ["predict_proba", "decision_function"])
def test_scores_that_are_not_numbers_are_refused_with_the_row(method):
    rows = np.full((4, 3), 1 / 3)
    for bad in (np.nan, np.inf):
        rows[2, 1] = bad
        with pytest.raises(ValueError, match=r"must be finite; 1 of 4 rows have NaN or infinite ones, the first is row 2"):
            ClassifierLogits(Given(np.arange(3), method), np.arange(3)).predict(rows)


def test_rows_that_are_not_numbers_or_have_another_shape_are_refused():
    _, y, new = table("wine")
    for name in ("logistic regression", "ridge", "network, tanh"):
        for bad in (np.nan, np.inf):
            rows = new.copy()
            rows[5, 3] = bad
            with pytest.raises(ValueError, match="Rows must be finite"):
                plain_classifier(fitted(name), np.unique(y)).predict(rows)
    for name in ("histogram boosting", "extra trees", "ridge", "network, relu"):
        held = plain_classifier(fitted(name), np.unique(y))
        for shape in ((3, 12), (3, 14), (13,), (2, 2, 13), ()):
            with pytest.raises(ValueError, match="the 13 columns"):
                held.predict(np.zeros(shape))
        assert held.predict(np.zeros((0, 13))).shape == (0, 3)


def test_missing_values_go_the_same_way():
    x, y, new = (part.copy() for part in table("wine"))
    holes = np.random.default_rng(3)
    for rows in (x, new):
        rows[holes.random(rows.shape) < 0.2] = np.nan
    for name in ("histogram boosting", "random forest", "decision tree"):
        estimator = clone(ALL[name]).fit(x, y)
        assert same_bits(
            there_and_back(plain_classifier(estimator, np.unique(y))).predict(new),
            ClassifierLogits(estimator, np.unique(y)).predict(new),
        )


def test_rows_of_any_type_are_taken():
    _, y, new = table("wine")
    for name in ("histogram boosting", "extra trees", "logistic regression", "network, relu"):
        held, whole = (make(fitted(name), np.unique(y)) for make in (plain_classifier, ClassifierLogits))
        for rows in (new.astype(np.float32), (10 * new).astype(np.int64)):
            np.testing.assert_allclose(held.predict(rows), whole.predict(rows), rtol=1e-12, atol=1e-12)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_other_classifiers_are_not_held():
    class Subclass(LogisticRegression):
        pass

    class Leaf(DecisionTreeClassifier):
        pass

    x, y, _ = table("wine")
    classes, several, labels = np.unique(y), np.stack([y, y], axis=1), np.eye(3, dtype=int)[y]
    swapped = RandomForestClassifier(3).fit(x, y)
    swapped.estimators_[1] = Leaf().fit(x, y)
    counts = DecisionTreeClassifier().fit(x, y)
    counts.tree_.value[:] *= 7
    others = [
        HistGradientBoostingClassifier(max_iter=2, categorical_features=[13]).fit(np.column_stack([x, y % 2]), y),
        GradientBoostingClassifier(n_estimators=2, init=GaussianNB()).fit(x, y),
        GradientBoostingClassifier(n_estimators=2, init=DummyClassifier(strategy="stratified")).fit(x, y),
        GradientBoostingClassifier(n_estimators=2, loss="exponential").fit(x, y > 0),
        SGDClassifier(loss="modified_huber").fit(x, y),
        LogisticRegression().fit(x, y).sparsify(),
        RandomForestClassifier(2).fit(x, several),
        ExtraTreeClassifier().fit(x, several),
        RidgeClassifier().fit(x, labels),
        MLPClassifier((2,), max_iter=1).fit(x, labels),
        Subclass().fit(x, y),
        swapped,
        counts,
        GaussianNB().fit(x, y),
        np.sin,
        None,
    ]
    for other in others:
        assert plain_classifier(other, classes) is None, other
    with pytest.raises(NotFittedError):
        plain_classifier(RandomForestClassifier(), classes)


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
    yield "TreeScores, Forest", {name.replace(".", "Other.", 1): array for name, array in arrays.items()}
    yield "column", {}


@pytest.mark.parametrize("name", ["histogram boosting", "gradient boosting", "extra trees", "ridge", "network, relu"])
def test_each_invalid_array_is_refused_with_one_sentence(name):
    arrays = plain_classifier(fitted(name), np.arange(3)).arrays()
    for word, broken in invalid(arrays):
        with pytest.raises(ValueError, match=f"{word}.*; got .*so save the model again\\.$"):
            PlainClassifier.from_arrays(broken)


def test_masks_cannot_hide_invalid_entries():
    arrays = plain_classifier(fitted("ridge"), np.arange(3)).arrays()
    for key, number in (("column", 9), ("LinearPredictor.weights", np.nan)):
        hidden = np.ma.masked_array(np.full_like(arrays[key], number), mask=True)
        with pytest.raises(ValueError, match="so save the model again"):
            PlainClassifier.from_arrays(arrays | {key: hidden})


def test_trees_of_several_columns_must_be_equally_many():
    for name in ("histogram boosting", "gradient boosting"):
        arrays = plain_classifier(fitted(name), np.arange(3)).arrays()
        for num_columns in (2, 4, 10**5):
            with pytest.raises(ValueError, match="as many trees for each"):
                PlainClassifier.from_arrays(arrays | {"TreeScores.baseline": np.zeros(num_columns)})
        for wrong in ([np.nan, 0.0, 0.0], [[0.0]], []):
            with pytest.raises(ValueError, match="baseline"):
                PlainClassifier.from_arrays(arrays | {"TreeScores.baseline": np.array(wrong)})
    with pytest.raises(ValueError, match="learning_rate"):
        PlainClassifier.from_arrays(arrays | {"TreeScores.learning_rate": np.zeros(0)})


def test_layers_of_a_network_must_fit():
    arrays = plain_classifier(fitted("network, relu"), np.arange(3)).arrays()
    for key, shape in (("Network.weights.1", (8, 5)), ("Network.weights.1", (9, 6)), ("Network.bias.1", (6,))):
        with pytest.raises(ValueError, match="each takes what the one before gives"):
            PlainClassifier.from_arrays(arrays | {key: np.zeros(shape)})
    with pytest.raises(ValueError, match="an activation below"):
        PlainClassifier.from_arrays(arrays | {"Network.activation": np.array(4)})


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
