"""Fitted linear models of scikit-learn as plain arrays; and any regressor that can be held so, linear or of trees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import linear_model
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from gwi.predictors.arrays import Array, Arrays, checked, require, wrong_columns
from gwi.predictors.trees import Trees, plain_trees


class PathLasso(linear_model.LassoLarsCV):
    """A lasso along the path of least angles, chosen by folds; by descent where a path has no first step.

    Without one it is refused, though a constant is the answer: columns or targets are constant, in all rows or in a fold.
    """

    def fit(self, X: Array, y: Array) -> PathLasso:
        """As scikit-learn's."""
        try:
            return super().fit(X, y)
        except ValueError:
            found = linear_model.LassoCV().fit(X, y)
            self.coef_, self.intercept_ = found.coef_, found.intercept_
            return self


_REGRESSORS = (
    PathLasso,
    linear_model.LinearRegression,
    linear_model.Ridge,
    linear_model.RidgeCV,
    linear_model.Lasso,
    linear_model.LassoCV,
    linear_model.LassoLarsCV,
    linear_model.ElasticNet,
    linear_model.ElasticNetCV,
    linear_model.BayesianRidge,
    linear_model.HuberRegressor,
)


@dataclass(frozen=True, eq=False)
class LinearModel:
    """X wᵀ + b.

    Attributes:
        weights: w, (J, D).
        intercept: b, (J,).
    """

    weights: Array
    intercept: Array

    @property
    def num_features(self) -> int:
        """D, the columns of a row."""
        return self.weights.shape[1]

    @property
    def num_outputs(self) -> int:
        """J."""
        return len(self.weights)

    def predict(self, X: Array) -> NDArray[np.float64]:
        """Predictions (N, J) at the rows of X.

        Raises:
            ValueError: when X has not the columns of the rows in fitting.
        """
        if np.shape(X)[1:] != (self.num_features,):
            raise wrong_columns(X, self.num_features)
        return X @ self.weights.T + self.intercept

    def arrays(self) -> dict[str, Array]:
        """What `from_arrays` takes.

        Raises:
            ValueError: when it would not take them, as with weights that are not finite.
        """
        return dict(vars(LinearModel.from_arrays(vars(self))))

    @staticmethod
    def from_arrays(arrays: Arrays) -> LinearModel:
        """The model that these arrays describe.

        Raises:
            ValueError: when they describe none.
        """
        arrays = checked(arrays, {"weights": (np.float64, 2), "intercept": (np.float64, 1)})
        model = LinearModel(**{name: np.array(array, order="C") for name, array in arrays.items()})
        fits = model.weights.size > 0 and len(model.weights) == len(model.intercept)
        require(fits, "weights (J, D) and J of intercept", f"{model.weights.shape}")
        return model


Predictor = Trees | LinearModel
# Tags in a file, never names of classes.
TAGS: dict[str, type[Predictor]] = {"trees": Trees, "linear": LinearModel}


def plain_linear(estimator: Any) -> LinearModel | None:
    """The coefficients of a fitted linear model; None when they are sparse, as `sparsify` leaves them."""
    check_is_fitted(estimator)
    if not isinstance(estimator.coef_, np.ndarray):
        return None
    # Copies, as partial fits write into the estimator's; in C order, so that a file brings back the same bits.
    weights = np.array(estimator.coef_, np.float64, order="C", ndmin=2)
    return LinearModel(weights, np.array(np.broadcast_to(estimator.intercept_, len(weights)), np.float64))


def plain_predictor(estimator: Any) -> Predictor | None:
    """A fitted regressor as plain numbers, with equal predictions; None when it is of a kind that we cannot hold so."""
    if isinstance(estimator, Predictor):
        return estimator
    if isinstance(estimator, ClassifierMixin):
        return None
    return plain_linear(estimator) if type(estimator) in _REGRESSORS else plain_trees(estimator)
