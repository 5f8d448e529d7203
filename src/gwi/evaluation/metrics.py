"""Scores of predictive distributions and intervals as plain functions, and as scorers for scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gwi._typing import Array
from gwi.evaluation.regression import interval_score as score_of_each


def crps(y: Any, predicted: Any) -> float:
    """The mean continuous ranked probability score of a predictive distribution, in the unit of y; lower is better.

    Args:
        y: targets.
        predicted: from `predict_dist`.

    Examples:
        >>> import numpy as np
        >>> from gwi import GWIRegressor
        >>> from gwi.evaluation.metrics import crps
        >>> X = np.linspace(0, 3, 20)[:, None]
        >>> y = X[:, 0] + 0.1 * np.random.default_rng(0).normal(size=20)
        >>> model = GWIRegressor("linear", random_state=0).fit(X, y)
        >>> bool(crps(y, model.predict_dist(X)) < 0.2)
        True
    """
    return float(np.mean(predicted.crps(y)))


def nll(y: Any, predicted: Any) -> float:
    """The mean negative log density of y; lower is better.

    Args:
        y: targets.
        predicted: from `predict_dist`.

    Examples:
        >>> import numpy as np
        >>> from gwi import GWIRegressor
        >>> from gwi.evaluation.metrics import nll
        >>> X = np.linspace(0, 3, 20)[:, None]
        >>> y = X[:, 0] + 0.1 * np.random.default_rng(0).normal(size=20)
        >>> model = GWIRegressor("linear", random_state=0).fit(X, y)
        >>> bool(nll(y, model.predict_dist(X)) < 0)
        True
    """
    return float(np.mean(predicted.nll(y)))


def pit(y: Any, predicted: Any) -> Array:
    """The probability integral transform: where y lies in its distribution, uniform between 0 and 1 where that is right.

    Of counts and other single values it is drawn by lot between the probabilities of less than y and of at most y.

    Args:
        y: targets.
        predicted: from `predict_dist`.

    Examples:
        >>> import numpy as np
        >>> from gwi import GWIRegressor
        >>> from gwi.evaluation.metrics import pit
        >>> X = np.linspace(0, 3, 20)[:, None]
        >>> y = X[:, 0] + 0.1 * np.random.default_rng(0).normal(size=20)
        >>> model = GWIRegressor("linear", random_state=0).fit(X, y)
        >>> pit(y, model.predict_dist(X)).shape
        (20,)
    """
    found: Array = predicted.pit(y)
    return found


def interval_score(y: Any, lower: Any, upper: Any, coverage: float = 0.95) -> float:
    """The mean width of intervals plus 2/(1 − coverage) times the distance of a target outside; lower is better.

    Args:
        y: targets.
        lower: ends of the intervals.
        upper: ends of the intervals.
        coverage: what the intervals promise.

    Examples:
        >>> from gwi.evaluation.metrics import interval_score
        >>> round(interval_score([1.0, 3.0], [0.0, 0.0], [2.0, 2.0], coverage=0.9), 6)  # the second is 1 outside
        12.0
    """
    low, high, target = _checked(y, lower, upper)
    if not 0 < coverage < 1:
        raise ValueError(f"coverage must be strictly between 0 and 1; got {coverage}.")
    return float(score_of_each(low, high, target, coverage).mean())


def coverage(y: Any, lower: Any, upper: Any) -> float:
    """The share of targets inside their intervals.

    Args:
        y: targets.
        lower: ends of the intervals.
        upper: ends of the intervals.

    Examples:
        >>> from gwi.evaluation.metrics import coverage
        >>> coverage([1.0, 3.0], [0.0, 0.0], [2.0, 2.0])
        0.5
    """
    low, high, target = _checked(y, lower, upper)
    return float(((low <= target) & (target <= high)).mean())


def _checked(y: Any, lower: Any, upper: Any) -> tuple[Array, Array, Array]:
    target, low, high = (np.asarray(values, dtype=np.float64) for values in (y, lower, upper))
    if not low.shape == high.shape == target.shape:
        raise ValueError(f"y, lower and upper have one shape; got {target.shape}, {low.shape} and {high.shape}.")
    if not (low <= high).all():
        raise ValueError("A lower end is above its upper end; pass intervals as lower, upper.")
    return low, high, target


def neg_crps(estimator: Any, X: Any, y: Any) -> float:
    """Minus the CRPS, for `scoring=` in scikit-learn.

    Examples:
        >>> import numpy as np
        >>> from gwi import GWIRegressor
        >>> from gwi.evaluation.metrics import neg_crps
        >>> X = np.linspace(0, 3, 20)[:, None]
        >>> y = X[:, 0] + 0.1 * np.random.default_rng(0).normal(size=20)
        >>> model = GWIRegressor("linear", random_state=0).fit(X, y)
        >>> isinstance(neg_crps(model, X, y), float)
        True
    """
    return -crps(_known(estimator, y), estimator.predict_dist(X))


def neg_nll(estimator: Any, X: Any, y: Any) -> float:
    """Minus the NLL, for `scoring=` in scikit-learn.

    Examples:
        >>> import numpy as np
        >>> from gwi import GWIRegressor
        >>> from gwi.evaluation.metrics import neg_nll
        >>> X = np.linspace(0, 3, 20)[:, None]
        >>> y = X[:, 0] + 0.1 * np.random.default_rng(0).normal(size=20)
        >>> model = GWIRegressor("linear", random_state=0).fit(X, y)
        >>> isinstance(neg_nll(model, X, y), float)
        True
    """
    if _has_bounds(estimator):
        return -float(estimator.nll(X, y))
    return -nll(_known(estimator, y), estimator.predict_dist(X))


def neg_interval_score(estimator: Any, X: Any, y: Any) -> float:
    """Minus the score of 95 % intervals, for `scoring=` in scikit-learn.

    Examples:
        >>> import numpy as np
        >>> from gwi import GWIRegressor
        >>> from gwi.evaluation.metrics import neg_interval_score
        >>> X = np.linspace(0, 3, 20)[:, None]
        >>> y = X[:, 0] + 0.1 * np.random.default_rng(0).normal(size=20)
        >>> model = GWIRegressor("linear", random_state=0).fit(X, y)
        >>> isinstance(neg_interval_score(model, X, y), float)
        True
    """
    ends = estimator.predict_interval(X, coverage=0.95)
    return -interval_score(_known(estimator, y), ends[..., 0], ends[..., 1])


def _has_bounds(estimator: Any) -> bool:
    return bool(getattr(getattr(estimator, "_targets", None), "are_bounds", False))


def _known(estimator: Any, y: Any) -> Any:
    """Targets as numbers, levels by their places.

    Raises:
        ValueError: where only bounds of them may be known.
    """
    if _has_bounds(estimator):
        raise ValueError('This score needs known targets; for bounds and times to an event scorer("neg_nll") can be used.')
    targets = getattr(estimator, "_targets", None)
    if targets is None:
        return y
    numbers = targets.encode(y)
    return numbers[:, 0] if targets.one else numbers


SCORERS: dict[str, Callable[[Any, Any, Any], float]] = {
    "neg_crps": neg_crps,
    "neg_nll": neg_nll,
    "neg_interval_score": neg_interval_score,
}


def scorer(name: str) -> Callable[[Any, Any, Any], float]:
    """A scorer for scikit-learn's `scoring=`, greater is better: neg_crps, neg_nll or neg_interval_score.

    Examples:
        >>> from sklearn.datasets import load_diabetes
        >>> from sklearn.model_selection import cross_val_score
        >>> from gwi import GWIRegressor
        >>> from gwi.evaluation.metrics import scorer
        >>> X, y = load_diabetes(return_X_y=True)
        >>> bool((cross_val_score(GWIRegressor("linear"), X[:60], y[:60], scoring=scorer("neg_crps"), cv=2) < 0).all())
        True
    """
    if name not in SCORERS:
        raise ValueError(f"A scorer is one of {', '.join(SCORERS)}; got {name!r}.")
    return SCORERS[name]
