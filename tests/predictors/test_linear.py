"""Linear models as plain arrays predict what scikit-learn predicts."""

import numpy as np
import pytest
from sklearn import linear_model

from gwi.predictors.linear import LinearModel, PathLasso, plain_predictor

ONE_TARGET = ("RidgeCV", "LassoCV", "LassoLarsCV", "ElasticNetCV", "BayesianRidge", "HuberRegressor")
SEVERAL = ("LinearRegression", "Ridge", "RidgeCV", "Lasso", "ElasticNet")


def fitted(name, num_outputs, **arguments):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 5))
    y = x @ rng.normal(size=(5, num_outputs)) + 3 + 0.1 * rng.normal(size=(80, num_outputs))
    return getattr(linear_model, name)(**arguments).fit(x, y[:, 0] if num_outputs == 1 else y), x


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(("name", "num_outputs"), [*((n, 1) for n in (*ONE_TARGET, *SEVERAL)), *((n, 3) for n in SEVERAL)])
def test_predictions_equal_those_of_the_estimator(name, num_outputs, fit_intercept):
    estimator, x = fitted(name, num_outputs, fit_intercept=fit_intercept)
    held = plain_predictor(estimator)
    assert (held.num_features, held.num_outputs) == (5, num_outputs)
    assert plain_predictor(held) is held
    for rows in (x, x[:1], np.asfortranarray(x), x[::-3], x[:0]):
        predicted = held.predict(rows)
        if len(rows):
            np.testing.assert_allclose(predicted, estimator.predict(rows).reshape(-1, num_outputs), rtol=1e-13, atol=1e-13)
        assert predicted.shape == (len(rows), num_outputs)
        # A file holds arrays in C order.
        arrays = {key: np.ascontiguousarray(array) for key, array in held.arrays().items()}
        assert LinearModel.from_arrays(arrays).predict(rows).tobytes() == predicted.tobytes()


def test_rows_of_another_shape_are_refused():
    held = plain_predictor(fitted("Ridge", 1)[0])
    for shape in ((3, 4), (5,), (2, 2, 5)):
        with pytest.raises(ValueError, match="the 5 columns"):
            held.predict(np.zeros(shape))


def test_other_linear_models_are_not_held():
    for name in ("ARDRegression", "Lars", "LassoLars", "SGDRegressor", "PoissonRegressor"):
        estimator, x = fitted("LinearRegression", 1)
        assert plain_predictor(getattr(linear_model, name)().fit(x, np.exp(estimator.predict(x) / 10))) is None


def test_a_lasso_of_constants_is_a_constant_and_else_scikit_learns():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 4)), rng.normal(size=30)
    for rows, targets in ((x, np.full(30, 7.0)), (np.ones((30, 4)), y), (x[:6] * (np.arange(6) == 3)[:, None], y[:6])):
        predicted = plain_predictor(PathLasso(precompute=False).fit(rows, targets)).predict(rows)
        np.testing.assert_allclose(predicted, targets.mean(), atol=3)
    np.testing.assert_array_equal(PathLasso().fit(x, y).predict(x), linear_model.LassoLarsCV().fit(x, y).predict(x))
