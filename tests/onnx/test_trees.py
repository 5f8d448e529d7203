"""Trees and linear models in ONNX: equal to scikit-learn's also where rows lie on thresholds or have missing cells."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.svm import SVR

import tree_cases
from gwi.exceptions import UnexportableError
from gwi.onnx.graph import Graph
from gwi.onnx.trees import predictor_values
from gwi.predictors.trees import plain_trees
from onnx_answers import session


def in_graph(predictor, X, num_outputs=1):
    g = Graph()
    rows, declared = g.input("X", ["rows", X.shape[1]])
    data = g.model([declared], {"y": (predictor_values(g, predictor, rows), ["rows", num_outputs])}, {})
    return session(data).run(None, {"X": X})[0]


def on_thresholds(estimator, X):
    """Rows of which some numbers are thresholds, as they are and one bit to either side."""
    arrays = plain_trees(estimator).arrays()
    rng, rows = np.random.default_rng(0), [X]
    for _ in range(3):
        moved = X.copy()
        for column in range(X.shape[1]):
            own = arrays["threshold"][arrays["feature"] == column]
            if len(own):
                moved[:, column] = rng.choice(own, len(X))
        rows += [moved, np.nextafter(moved, np.inf), np.nextafter(moved, -np.inf)]
    return np.concatenate(rows)


@pytest.mark.parametrize("name", tree_cases.ALL)
def test_trees_give_the_same_on_both_sides_of_a_threshold_and_on_it(name):
    estimator = tree_cases.fitted(name)
    X = on_thresholds(estimator, tree_cases.table()[0])
    np.testing.assert_allclose(in_graph(estimator, X)[:, 0], estimator.predict(X), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("name", tree_cases.MULTI)
def test_forests_of_several_targets_give_the_same(name):
    estimator = tree_cases.fitted(name, num_outputs=3)
    X = on_thresholds(estimator, tree_cases.table(num_outputs=3)[0])
    np.testing.assert_allclose(in_graph(estimator, X, 3), estimator.predict(X), rtol=1e-13, atol=1e-13)


def test_a_missing_cell_goes_where_it_went_in_training():
    X, y = tree_cases.table()
    X = np.where(np.random.default_rng(0).uniform(size=X.shape) < 0.2, np.nan, X)
    estimator = HistGradientBoostingRegressor(max_iter=20, min_samples_leaf=2).fit(X, y)
    np.testing.assert_allclose(in_graph(estimator, X)[:, 0], estimator.predict(X), rtol=1e-13)


def test_a_tree_that_is_one_leaf_is_a_tree_too():
    X, _ = tree_cases.table()
    for name in ("boosting", "extra trees", "decision tree"):
        estimator = tree_cases.clone(tree_cases.ALL[name]).fit(X, np.full(len(X), 2.5))
        np.testing.assert_allclose(in_graph(estimator, X)[:, 0], 2.5)


def test_boosting_of_logarithms_gives_the_same():
    X, y = tree_cases.table()
    estimator = HistGradientBoostingRegressor(loss="poisson", max_iter=10).fit(X, np.exp(y))
    np.testing.assert_allclose(in_graph(estimator, X)[:, 0], estimator.predict(X), rtol=1e-13)


def test_linear_models_give_the_same():
    X, y = tree_cases.table(num_outputs=2)
    estimator = Ridge().fit(X, y)
    np.testing.assert_allclose(in_graph(estimator, X, 2), estimator.predict(X), rtol=1e-12)


def test_what_has_no_form_in_onnx_is_refused_by_its_name():
    X, y = tree_cases.table()
    categorical = HistGradientBoostingRegressor(max_iter=3, categorical_features=[0]).fit(np.floor(np.abs(X)), y)
    for predictor, name in ((SVR().fit(X, y), "SVR"), (categorical, "HistGradientBoosting"), (np.sin, "sin")):
        with pytest.raises(UnexportableError, match=f"{name}.* cannot be exported to ONNX"):
            in_graph(predictor, X)
