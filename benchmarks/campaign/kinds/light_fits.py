"""Fits of a light model to few rows that nobody should bring: hostile shapes, scales, cells, labels, weights and containers.

Even trials are regressors, odd ones classifiers; a third of them have other options than the default.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from benchmarks.campaign import fits
from benchmarks.campaign.hostile_tables import drawn
from gwi import GWIClassifier, GWIRegressor
from gwi.parts import Covariance, Gaussian, RobustMax

FINE, FAULTS = fits.FINE, fits.FAULTS
COUNT, MOST_CPU = 5_000, 20
FEWEST, MOST = 2, 60

_REGRESSORS: tuple[Callable[[], Any], ...] = (
    lambda: "svgp",
    lambda: "svgp",
    lambda: "svgp",
    lambda: "svgp-all",
    lambda: "lasso",
    Ridge,
    lambda: ["svgp", Ridge()],
    lambda: [Ridge(), DecisionTreeRegressor(max_depth=2)],
    lambda: [KNeighborsRegressor(2)],
)
_CLASSIFIERS: tuple[Callable[[], Any], ...] = (
    lambda: "svgp",
    lambda: "svgp",
    lambda: "svgp",
    lambda: "linear",
    LogisticRegression,
    lambda: ["svgp", "linear"],
    lambda: [LogisticRegression(), DecisionTreeClassifier(max_depth=2)],
    lambda: [KNeighborsClassifier(2)],
)
_OPTIONS: tuple[dict[str, Any], ...] = (
    {"covariance": "zero"},
    {"covariance": "titsias"},
    {"covariance": "wasserstein"},
    {"covariance": Covariance(num_inducing=3)},
    {"covariance": Covariance(num_inducing=1000)},
    {"kernel": "rbf"},
    {"kernel": "matern32"},
    {"kernel": "rq"},
    {"tempering": None},
    {"tempering": 2.0},
    {"dtype": "float64"},
)
_OF_REGRESSORS: tuple[dict[str, Any], ...] = (
    {"likelihood": Gaussian("input-dependent")},
    {"likelihood": Gaussian(conformal=True)},
)
_OF_CLASSIFIERS: tuple[dict[str, Any], ...] = ({"likelihood": RobustMax()}, {"tempering": "per-class"})


def trial(number: int) -> str:
    rng = np.random.default_rng([number, 2])
    labels = number % 2 == 1
    # Some with no hostility but the numbers themselves.
    case = drawn(rng, FEWEST, MOST, labels=labels, num_hostile=int(rng.choice([0, 1, 1, 1, 2, 2, 3])))
    means, own = (_CLASSIFIERS, _OF_CLASSIFIERS) if labels else (_REGRESSORS, _OF_REGRESSORS)
    mean = means[int(rng.integers(len(means)))]()
    choices = _OPTIONS + own
    options = choices[int(rng.integers(len(choices)))] if rng.random() < 1 / 3 else {}
    model = (GWIClassifier if labels else GWIRegressor)(mean, cv=case.cv, random_state=number, **options)
    return fits.tried(model, case)
