"""Estimators of trees, and what arrays of trees say, walked node by node."""

import numpy as np
from sklearn.base import clone
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.tree import DecisionTreeRegressor

from gwi.predictors.trees import KINDS

SINGLE = {
    "boosting": HistGradientBoostingRegressor(max_iter=30, min_samples_leaf=1, max_leaf_nodes=15),
    "boosting with absolute error": HistGradientBoostingRegressor(max_iter=10, loss="absolute_error"),
    "boosting of a quantile": HistGradientBoostingRegressor(max_iter=10, loss="quantile", quantile=0.9),
    "boosting with early stopping": HistGradientBoostingRegressor(max_iter=40, early_stopping=True, random_state=0),
    "gradient boosting": GradientBoostingRegressor(n_estimators=20, random_state=0),
    "gradient boosting, Huber": GradientBoostingRegressor(n_estimators=10, loss="huber", subsample=0.7, random_state=0),
    "gradient boosting from zero": GradientBoostingRegressor(n_estimators=10, init="zero", learning_rate=0.37, random_state=0),
    "gradient boosting from a median": GradientBoostingRegressor(n_estimators=10, init=DummyRegressor(strategy="median")),
}
MULTI = {
    "extra trees": ExtraTreesRegressor(8, min_samples_leaf=1, random_state=0),
    "random forest": RandomForestRegressor(7, random_state=0),
    "best-first forest": RandomForestRegressor(5, max_leaf_nodes=11, max_features=0.5, random_state=0),
    "pruned forest": ExtraTreesRegressor(5, ccp_alpha=0.01, random_state=0),
    "stumps": ExtraTreesRegressor(3, max_depth=1, random_state=0),
    "one-tree forest": RandomForestRegressor(1, random_state=0),
    "decision tree": DecisionTreeRegressor(random_state=0),
}
ALL = SINGLE | MULTI


def table(num_rows=200, num_features=4, num_outputs=1, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num_rows, num_features)).astype(dtype)
    y = np.sin(2 * x[:, :1]) + x[:, -1:] * np.arange(1, num_outputs + 1) + 0.3 * rng.normal(size=(num_rows, num_outputs))
    return x, y[:, 0] if num_outputs == 1 else y


def fitted(name, num_rows=200, num_features=4, num_outputs=1, weighted=False, dtype=np.float64):
    x, y = table(num_rows, num_features, num_outputs, dtype=dtype)
    weight = np.random.default_rng(1).gamma(1.0, size=num_rows) if weighted else None
    return clone(ALL[name]).fit(x, y, sample_weight=weight)


def walked(arrays, x):
    """Predictions of averaged or boosted trees, node by node from the arrays."""
    kind, num_outputs = KINDS[int(arrays["kind"])], len(arrays["baseline"])
    rows = x.astype(np.float64 if kind in ("histogram-boosting", "exponential-boosting") else np.float32)
    split_of, leaf_of = np.cumsum(arrays["is_leaf"] == 0) - 1, np.cumsum(arrays["is_leaf"]) - 1
    total = np.tile(arrays["baseline"], (len(x), 1))
    for i, row in enumerate(rows):
        for t, root in enumerate(arrays["offsets"][:-1]):
            node = root
            while not arrays["is_leaf"][node]:
                split = split_of[node]
                left = row[arrays["feature"][split]] <= arrays["threshold"][split]
                node = root + arrays["left" if left else "right"][split]
            value = arrays["value"][leaf_of[node]]
            if kind == "forest":
                total[i] += value
            else:
                total[i, t % num_outputs] += value[0] * (arrays["learning_rate"] if kind == "gradient-boosting" else 1)
    if kind == "exponential-boosting":
        return np.exp(total)
    return total / (len(arrays["offsets"]) - 1) if kind == "forest" else total
