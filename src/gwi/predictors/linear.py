"""Fitted scikit-learn regressors as plain numbers, so that a model file can hold them: trees and linear models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import linear_model

from gwi._typing import Array
from gwi.predictors.trees import Trees, plain_trees

_LINEAR = tuple(
    getattr(linear_model, name)
    for name in (
        "LinearRegression",
        "Ridge",
        "RidgeCV",
        "Lasso",
        "LassoCV",
        "ElasticNet",
        "ElasticNetCV",
        "BayesianRidge",
        "ARDRegression",
        "HuberRegressor",
        "Lars",
        "LassoLars",
    )
)


@dataclass(frozen=True, eq=False)
class LinearPredictor:
    """X wᵀ + b.

    Attributes:
        weights: w, one row an output, or one axis for one output.
        intercept: b.
    """

    weights: Array
    intercept: Array

    def predict(self, X: NDArray[Any]) -> Array:
        """Predictions (N,), or (N, J) with several outputs."""
        return X @ self.weights.T + self.intercept

    @property
    def num_features(self) -> int:
        """Columns of a row."""
        return int(self.weights.shape[-1])

    @property
    def num_outputs(self) -> int:
        """J."""
        return len(self.weights) if self.weights.ndim == 2 else 1

    def arrays(self) -> dict[str, Array]:
        """What `from_arrays` takes."""
        return {"weights": self.weights, "intercept": self.intercept}

    @staticmethod
    def from_arrays(arrays: Mapping[str, Array]) -> LinearPredictor:
        """The model that these arrays describe.

        Raises:
            ValueError: when they describe none.
        """
        weights, intercept = arrays.get("weights"), arrays.get("intercept")
        if weights is None or intercept is None or weights.ndim not in (1, 2) or intercept.shape not in ((), weights.shape[:-1]):
            raise ValueError("A linear model needs weights (D,) or (J, D) and as many intercepts; save the model again.")
        return LinearPredictor(weights, intercept)


Predictor = Trees | LinearPredictor


def plain_predictor(estimator: Any) -> Predictor | None:
    """A fitted regressor as plain numbers, with equal predictions; None when it is of a kind that we cannot hold so."""
    if isinstance(estimator, Predictor):
        return estimator
    if type(estimator) in _LINEAR:
        return LinearPredictor(np.asarray(estimator.coef_, dtype=np.float64), np.asarray(estimator.intercept_, dtype=np.float64))
    return plain_trees(estimator)
