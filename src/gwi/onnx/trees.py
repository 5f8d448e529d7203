"""Fitted predictors in a graph: trees, linear models, and logits of classifiers made of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gwi.exceptions import UnexportableError
from gwi.onnx.graph import TREES, Graph, Value
from gwi.predictors.linear import LinearModel, plain_predictor
from gwi.predictors.logits import ClassifierLogits, PlainClassifier
from gwi.predictors.trees import KINDS, Trees

# Of a node: the row goes to the first child where its value is at most the threshold.
AT_MOST = 0
SUM = 1


def predictor_values(g: Graph, predictor: Any, rows: Value) -> Value:
    """What a predictor gives at rows in the user's own units, (N, J).

    Raises:
        UnexportableError: for predictors that have no graph, naming them.
    """
    plain: Any
    if isinstance(predictor, ClassifierLogits):
        plain = predictor.plain()
    else:
        plain = predictor if isinstance(predictor, PlainClassifier) else plain_predictor(predictor)
    if isinstance(plain, PlainClassifier):
        return _logits(g, plain, _scores(g, plain.scores, rows))
    if plain is None:
        named = predictor.estimator if isinstance(predictor, ClassifierLogits) else predictor
        called = getattr(named, "__name__", type(named).__name__)
        raise UnexportableError(
            f"A mean of type {called} cannot be exported to ONNX; scikit-learn's boosting without categorical columns, forests, "
            "decision trees and linear models can, and torch modules."
        )
    return _scores(g, plain, rows)


def _scores(g: Graph, plain: Trees | LinearModel, rows: Value) -> Value:
    return trees_values(g, plain, rows) if isinstance(plain, Trees) else rows @ plain.weights.T + plain.intercept[None]


def trees_values(g: Graph, trees: Trees, rows: Value) -> Value:
    """The sum or the average of trees, (N, J)."""
    arrays = trees.arrays()
    kind, num_outputs = KINDS[int(arrays["kind"])], trees.num_outputs
    if kind in ("forest", "gradient-boosting"):
        # These compare numbers that were rounded to single precision.
        rows = rows.cast(np.float32).cast(np.float64)
    num_trees, value = len(arrays["offsets"]) - 1, arrays["value"]
    if kind == "forest" and num_outputs > 1:
        # A leaf of the operator has one number: here its place among the rows of all leaves, which are then looked up.
        leaves = _ensemble(g, arrays, rows, np.arange(num_trees), num_trees, np.arange(len(value), dtype=np.float64))
        found = g.op("Gather", g.constant(value), leaves.cast(np.int64), axis=0).sum(1)
    else:
        targets = np.arange(num_trees) % num_outputs
        found = _ensemble(g, arrays, rows, targets, num_outputs, value[:, 0] * trees.learning_rate)
    if kind == "forest":
        return found / float(num_trees) + trees.baseline[None]
    found = found + trees.baseline[None]
    return found.exp() if kind == "exponential-boosting" else found


def _ensemble(
    g: Graph, arrays: dict[str, NDArray[Any]], rows: Value, targets: NDArray[Any], num_targets: int, weights: NDArray[Any]
) -> Value:
    """Sums over the trees of each target of the weights of their leaves, (N, targets)."""
    offsets, is_leaf = arrays["offsets"], arrays["is_leaf"] != 0
    num_trees, tree = len(offsets) - 1, np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    # Splits and leaves are counted apart. A tree that is one leaf gets a split whose sides are the same.
    lone = is_leaf[offsets[:-1]]
    split, leaf = np.cumsum(~is_leaf) - 1, np.cumsum(is_leaf) - 1
    num_splits, num_lone = int((~is_leaf).sum()), int(lone.sum())
    first, of_split = offsets[:-1], tree[~is_leaf]

    def child(name: str) -> tuple[NDArray[Any], NDArray[Any]]:
        node = first[of_split] + arrays[name].astype(np.int64)
        place = np.where(is_leaf[node], leaf[node], split[node])
        alone = leaf[first[lone]]
        return np.concatenate([place, alone]), np.concatenate([is_leaf[node], np.ones(num_lone, np.bool_)]).astype(np.int64)

    (left, left_is_leaf), (right, right_is_leaf) = child("left"), child("right")
    roots = np.empty(num_trees, dtype=np.int64)
    roots[~lone], roots[lone] = split[first[~lone]], num_splits + np.arange(num_lone)
    threshold = np.concatenate([arrays["threshold"], np.zeros(num_lone)])
    feature = np.concatenate([arrays["feature"].astype(np.int64), np.zeros(num_lone, np.int64)])
    nan_left = np.concatenate([arrays["missing_go_to_left"].astype(np.int64), np.zeros(num_lone, np.int64)])
    tensor, modes = g.tensor, np.full(len(left), AT_MOST, np.uint8)
    return g.op(
        "TreeEnsemble",
        rows,
        domain=TREES,
        aggregate_function=SUM,
        n_targets=num_targets,
        tree_roots=roots.tolist(),
        nodes_featureids=feature.tolist(),
        nodes_splits=tensor(threshold),
        nodes_modes=tensor(modes),
        nodes_truenodeids=left.tolist(),
        nodes_trueleafs=left_is_leaf.tolist(),
        nodes_falsenodeids=right.tolist(),
        nodes_falseleafs=right_is_leaf.tolist(),
        nodes_missing_value_tracks_true=nan_left.tolist(),
        leaf_targetids=targets[tree[is_leaf]].tolist(),
        leaf_weights=tensor(np.asarray(weights, dtype=np.float64)),
    )


def _logits(g: Graph, plain: PlainClassifier, scores: Value) -> Value:
    """Logits of all classes from the scores of those that were seen, (N, J)."""
    column, log_floor = plain.column, float(np.log(plain.floor))
    seen, places = column >= 0, np.maximum(column, 0).tolist()
    if plain.link == "margins":
        if plain.scores.num_outputs == 1:
            scores = g.joined([scores * -0.5, scores * 0.5])
        unseen = g.op("ReduceLogSumExp", scores, g.integers([-1]), keepdims=1) + log_floor
        return g.where(g.constant(seen[None]), scores.chosen(places), unseen)
    p = scores
    if plain.link == "logits":
        if plain.scores.num_outputs == 1:
            second = scores.sigmoid()
            p = g.joined([1.0 - second, second])
        else:
            p = g.op("Softmax", scores, axis=-1)
    log_p = g.where(g.constant(seen[None]), p.least(plain.floor).log().chosen(places), log_floor)
    return log_p - log_p.mean(-1, keep=True)
