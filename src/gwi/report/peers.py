"""The methods of a comparison: the default, and what one would else use.

| peer | uncertainty |
| --- | --- |
| scikit-learn's GP, RBF with a length-scale for each input, on a sample of the training rows | its own |
| histogram boosting | one standard deviation for all rows, from errors at rows unseen; classes: calibrated on rows unseen |
| ridge, for classes logistic regression | the same; its own |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gwi._typing import Array
from gwi.core.laws.gaussian import Law
from gwi.core.laws.protocol import PredictiveLaw
from gwi.estimators.classifier import GWIClassifier
from gwi.estimators.regressor import GWIRegressor
from gwi.estimators.table_targets import TaskName

OURS = "gwi"
INNER_FOLDS = 5


@dataclass(frozen=True)
class Method:
    """One way to predict.

    Attributes:
        note: what a reader should know of it.
        run: from training rows, targets and test rows to a `Law`, or to probabilities and their classes.
    """

    note: str
    run: Callable[[Array, NDArray[Any], Array], Any]


def regressors(num_rows: int, seed: int, gp_rows: int, max_time: float | None) -> dict[str, Method]:
    """By name, for so many training rows."""

    def ours(X: Array, y: NDArray[Any], X_test: Array) -> PredictiveLaw:
        model = GWIRegressor(max_time=max_time, random_state=seed).fit(X, y)
        return model.predict_dist(X_test).laws[0]

    def gp(X: Array, y: NDArray[Any], X_test: Array) -> Law:
        mean, std = _fitted_gp(GaussianProcessRegressor(normalize_y=True), X, y, gp_rows, seed).predict(X_test, return_std=True)
        return Law(mean[None], std[None])

    def constant(regressor: Any) -> Callable[[Array, NDArray[Any], Array], Law]:
        def run(X: Array, y: NDArray[Any], X_test: Array) -> Law:
            folds = KFold(min(INNER_FOLDS, len(y)), shuffle=True, random_state=seed)
            unseen = cross_val_predict(clone(regressor), X, y, cv=folds)
            std = max(math.sqrt(float(np.square(y - unseen).mean())), 1e-12 * float(y.std()))
            mean = clone(regressor).fit(X, y).predict(X_test)
            return Law(mean[None], np.full((1, len(mean)), std))

        return run

    spread = f"one standard deviation for all rows, from {INNER_FOLDS}-fold out-of-fold errors"
    limit = "" if max_time is None else f", max_time={max_time:g}"
    ridge = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 13)))
    boosting = HistGradientBoostingRegressor(random_state=seed)
    return {
        OURS: Method(f"GWIRegressor with its defaults{limit}", ours),
        "exact GP": Method(f"scikit-learn, ARD RBF + white noise, {_rows_of(num_rows, gp_rows)}", gp),
        "boosting": Method(f"histogram boosting, {spread}", constant(boosting)),
        "ridge": Method(f"penalty by cross-validation, {spread}", constant(ridge)),
    }


def classifiers(num_rows: int, seed: int, gp_rows: int, max_time: float | None) -> dict[str, Method]:
    """The same for classes."""

    def boosting(X: Array, y: NDArray[Any]) -> Any:
        model: Any = HistGradientBoostingClassifier(random_state=seed)
        rarest = int(np.unique(y, return_counts=True)[1].min())
        if rarest >= 2:
            model = CalibratedClassifierCV(model, method="sigmoid", cv=min(INNER_FOLDS, rarest))
        return model.fit(X, y)

    def gp(X: Array, y: NDArray[Any]) -> Any:
        return _fitted_gp(GaussianProcessClassifier(), X, y, gp_rows, seed)

    def probabilities(fit: Callable[[Array, NDArray[Any]], Any]) -> Callable[[Array, NDArray[Any], Array], Any]:
        def run(X: Array, y: NDArray[Any], X_test: Array) -> Any:
            model = fit(X, y)
            return model.predict_proba(X_test), model.classes_

        return run

    logistic = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    of_gp = f"scikit-learn, Laplace, one-vs-rest, ARD RBF + white noise, {_rows_of(num_rows, gp_rows)}"
    notes_and_fits = {
        OURS: ("GWIClassifier with its defaults", lambda X, y: GWIClassifier(random_state=seed).fit(X, y)),
        "exact GP": (of_gp, gp),
        "boosting": ("histogram boosting, calibrated by sigmoids on out-of-fold rows", boosting),
        "logistic": ("logistic regression with scikit-learn's default penalty", logistic.fit),
    }
    return {name: Method(note, probabilities(fit)) for name, (note, fit) in notes_and_fits.items()}


PEERS: dict[TaskName, Callable[[int, int, int, float | None], dict[str, Method]]] = {
    "regression": regressors,
    "classification": classifiers,
}


def _fitted_gp(model: Any, X: Array, y: NDArray[Any], most: int, seed: int) -> Any:
    """On standardised inputs of a random sample of the rows."""
    rows = np.sort(np.random.default_rng(seed).permutation(len(y))[:most])
    kernel = ConstantKernel(1.0) * RBF(np.full(X.shape[1], math.sqrt(X.shape[1]))) + WhiteKernel(0.1)
    return make_pipeline(StandardScaler(), model.set_params(kernel=kernel, random_state=seed)).fit(X[rows], y[rows])


def _rows_of(num_rows: int, most: int) -> str:
    return f"a random {most} of {num_rows} training rows" if num_rows > most else f"all {num_rows} training rows"
