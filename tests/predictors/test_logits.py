"""Logits of classifiers are those of scikit-learn's probabilities, also from plain arrays."""

import warnings

import numpy as np
import pytest
from scipy.special import log_softmax, softmax
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier

from classifier_cases import (
    ALL,
    LOADERS,
    MARGINS,
    PROBABLE,
    TREES,
    Given,
    fitted,
    same_bits,
    table,
    there_and_back,
)
from gwi.predictors.logits import PROBABILITY_FLOOR, ClassifierLogits, logits_of_one_class, plain_classifier

pytestmark = pytest.mark.unchecked


@pytest.mark.parametrize("data", LOADERS)
@pytest.mark.parametrize("name", ALL)
def test_plain_logits_equal_those_around_the_estimator(name, data):
    x, y, new = table(data)
    estimator, classes = fitted(name, data), np.unique(y)
    held, expected = plain_classifier(estimator, classes), ClassifierLogits(estimator, classes)
    assert (held.num_features, held.num_outputs) == (x.shape[1], len(classes))
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


def test_the_log_loss_of_two_classes_by_gradient_descent_is_held():
    x, y, new = table("breast cancer")
    estimator = SGDClassifier(loss="log_loss", alpha=0.1, random_state=0).fit(x, y)
    held, whole = plain_classifier(estimator, np.arange(2)), ClassifierLogits(estimator, np.arange(2))
    np.testing.assert_allclose(held.predict(new), whole.predict(new), rtol=1e-12, atol=1e-12)
    assert same_bits(there_and_back(held).predict(new), held.predict(new))


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
        np.testing.assert_allclose(logits_of_one_class(1, np.arange(3)), expected)
        held = plain_classifier(ones, np.arange(3))
        assert (held is not None) == isinstance(estimator, ExtraTreesClassifier)
        if held is not None:
            assert same_bits(there_and_back(held).predict(new), ClassifierLogits(ones, np.arange(3)).predict(new))


@pytest.mark.parametrize("name", ["histogram boosting", "random forest", "logistic regression", "ridge"])
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
    for name, data in (("logistic regression", "wine"), ("logistic regression", "breast cancer"), ("ridge", "wine")):
        _, y, new = table(data)
        for bad in (np.nan, np.inf):
            rows = new.copy()
            rows[5, 3] = bad
            with pytest.raises(ValueError, match=r"must be finite; 1 of 100 rows .* the first is row 5"):
                plain_classifier(fitted(name, data), np.unique(y)).predict(rows)
    _, y, _ = table("wine")
    for name in ("histogram boosting", "extra trees", "ridge"):
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
    for name in ("histogram boosting", "extra trees", "logistic regression"):
        held, whole = (make(fitted(name), np.unique(y)) for make in (plain_classifier, ClassifierLogits))
        for rows in (new.astype(np.float32), (10 * new).astype(np.int64)):
            np.testing.assert_allclose(held.predict(rows), whole.predict(rows), rtol=1e-12, atol=1e-12)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_other_classifiers_are_not_held():
    class Subclass(LogisticRegression):
        pass

    x, y, _ = table("wine")
    classes, several, labels = np.unique(y), np.stack([y, y], axis=1), np.eye(3, dtype=int)[y]
    others = [
        HistGradientBoostingClassifier(max_iter=2, categorical_features=[13]).fit(np.column_stack([x, y % 2]), y),
        GradientBoostingClassifier(n_estimators=2, init=GaussianNB()).fit(x, y),
        GradientBoostingClassifier(n_estimators=2, init=DummyClassifier(strategy="stratified")).fit(x, y),
        GradientBoostingClassifier(n_estimators=2, loss="exponential").fit(x, y > 0),
        SGDClassifier(loss="modified_huber").fit(x, y),
        LogisticRegression().fit(x, y).sparsify(),
        RandomForestClassifier(2).fit(x, several),
        DecisionTreeClassifier().fit(x, several),
        ExtraTreeClassifier().fit(x, y),
        SGDClassifier(loss="log_loss").fit(x, y),
        RidgeClassifier().fit(x, labels),
        MLPClassifier((2,), max_iter=1).fit(x, y),
        Subclass().fit(x, y),
        HistGradientBoostingRegressor(max_iter=2).fit(x, y),
        LinearRegression().fit(x, y),
        GaussianNB().fit(x, y),
        np.sin,
        None,
    ]
    for other in others:
        assert plain_classifier(other, classes) is None, other
    with pytest.raises(NotFittedError):
        plain_classifier(RandomForestClassifier(), classes)
