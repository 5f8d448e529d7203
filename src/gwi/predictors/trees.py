"""Fitted tree ensembles of scikit-learn as plain arrays: nothing pickled, predictions equal to the last bit, native speed.

The arrays hold what predicting reads and nothing else, for T trees one after another. Nodes count from their tree's root, and
a child comes after its parent:

| array | shape | meaning |
| --- | --- | --- |
| num_features | () | columns of a row |
| offsets | (T + 1,) | the first node of each tree, and at the end the number of nodes |
| is_leaf | (nodes,) | 0 or 1 |
| left, right | (splits,) | children of each node that is no leaf |
| feature, threshold | (splits,) | a row goes left where its feature is at most the threshold |
| missing_go_to_left | (splits,) | 1 where NaN goes left |
| value | (leaves, J) | predictions of each leaf |
| baseline | () | what the sum over trees starts from |
| learning_rate | (0,) or (1,) | of a `Forest` only: what its trees are multiplied by; empty when they are averaged |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import sklearn
from numpy.typing import DTypeLike, NDArray
from sklearn._loss.link import IdentityLink
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.ensemble._gradient_boosting import predict_stages
from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
from sklearn.tree import DecisionTreeRegressor, ExtraTreeRegressor
from sklearn.tree._tree import NODE_DTYPE, TREE_LEAF, TREE_UNDEFINED, Tree
from sklearn.utils._openmp_helpers import _openmp_effective_n_threads
from sklearn.utils.validation import check_is_fitted

Array = NDArray[Any]
Arrays = Mapping[str, Array]

# Flags are bytes: NumPy's own loops misbehave on a bool that a file fills with anything but 0 and 1.
_SPLIT_ARRAYS = {
    "left": np.uint32,
    "right": np.uint32,
    "feature": np.uint32,
    "threshold": np.float64,
    "missing_go_to_left": np.uint8,
}
# Of every array its dtype and number of axes.
_BOOSTED_ARRAYS: dict[str, tuple[DTypeLike, int]] = {
    "num_features": (np.int64, 0),
    "offsets": (np.int64, 1),
    "is_leaf": (np.uint8, 1),
    **{name: (dtype, 1) for name, dtype in _SPLIT_ARRAYS.items()},
    "value": (np.float64, 2),
    "baseline": (np.float64, 0),
}
_FOREST_ARRAYS = _BOOSTED_ARRAYS | {"learning_rate": (np.float64, 1)}

# scikit-learn's name of each array of splits in its two kinds of node, and the fields that we set otherwise or leave zero.
_BOOSTED_FIELDS = dict(zip(_SPLIT_ARRAYS, ("left", "right", "feature_idx", "num_threshold", "missing_go_to_left"), strict=True))
_BOOSTED_OTHERS = {"value", "is_leaf", "count", "gain", "depth", "bin_threshold", "is_categorical", "bitset_idx"}
_FOREST_FIELDS = dict(
    zip(_SPLIT_ARRAYS, ("left_child", "right_child", "feature", "threshold", "missing_go_to_left"), strict=True)
)
_FOREST_OTHERS = {"impurity", "n_node_samples", "weighted_n_node_samples"}

_FORESTS = (ExtraTreesRegressor, RandomForestRegressor)
_SINGLE_TREES = (DecisionTreeRegressor, ExtraTreeRegressor)


@dataclass(frozen=True, eq=False)
class BoostedTrees:
    """baseline + Σ_t tree_t(x): the trees of a `HistGradientBoostingRegressor`.

    Attributes:
        num_features: columns of a row.
        baseline: what the trees add to.
        trees: scikit-learn's predictor of each tree.
    """

    num_features: int
    baseline: float
    trees: tuple[Any, ...] = field(repr=False)

    def predict(self, X: Array) -> NDArray[np.float64]:
        """Predictions (N,) at the rows of X.

        Raises:
            ValueError: when X has not the columns of the rows in fitting.
        """
        rows = _rows(X, self.num_features, np.float64)
        # No node is categorical, so no bitset is ever read.
        no_bitsets, no_map = np.zeros((0, 8), np.uint32), np.zeros(0, np.uint32)
        num_threads = _openmp_effective_n_threads()
        total = np.zeros(len(rows)) + self.baseline
        for tree in self.trees:
            total += tree.predict(rows, no_bitsets, no_map, num_threads)
        return total

    def arrays(self) -> dict[str, Array]:
        """What `from_arrays` takes.

        Raises:
            ValueError: when it would not take them, as with leaves that are not finite.
        """
        trees = [
            _plain(tree.nodes, _BOOSTED_FIELDS, tree.nodes["is_leaf"] != 0, tree.nodes["value"][:, None]) for tree in self.trees
        ]
        arrays = _joined(self.num_features, self.baseline, trees)
        _check(arrays, _BOOSTED_ARRAYS)
        return arrays

    @staticmethod
    def from_arrays(arrays: Arrays) -> BoostedTrees:
        """The trees that these arrays describe.

        Raises:
            ValueError: when the arrays describe no trees, or the installed scikit-learn has other nodes.
        """
        _require_fields(PREDICTOR_RECORD_DTYPE, _BOOSTED_FIELDS, _BOOSTED_OTHERS)
        arrays = _check(arrays, _BOOSTED_ARRAYS)
        _require(arrays["value"].shape[1] == 1, "one value a leaf of boosted trees", arrays["value"].shape[1])
        trees = []
        for tree in _each_tree(arrays):
            nodes, leaf = _nodes(tree, PREDICTOR_RECORD_DTYPE, _BOOSTED_FIELDS)
            nodes["is_leaf"] = leaf
            nodes["value"][leaf] = tree["value"][:, 0]
            no_bitsets = np.zeros((0, 8), np.uint32)
            trees.append(TreePredictor(nodes, no_bitsets, no_bitsets))
        return BoostedTrees(int(arrays["num_features"]), float(arrays["baseline"]), tuple(trees))


@dataclass(frozen=True, eq=False)
class Forest:
    """The average of trees over float32 rows, or with a learning rate baseline + learning_rate · Σ_t tree_t(x).

    Average: `ExtraTreesRegressor`, `RandomForestRegressor`, single trees, and the same as classifiers, whose outputs are the
    probabilities of their classes. Learning rate: `GradientBoostingRegressor`.

    Attributes:
        num_features: columns of a row.
        baseline: what the sum over trees starts from.
        learning_rate: what trees are multiplied by; None when they are averaged.
        trees: scikit-learn's own trees, all with the same number of outputs.
    """

    num_features: int
    baseline: float
    learning_rate: float | None
    trees: tuple[Any, ...] = field(repr=False)

    @property
    def num_outputs(self) -> int:
        """J."""
        # A regressor's values are (nodes, J, 1), a classifier's (nodes, 1, J).
        return int(np.prod(self.trees[0].value.shape[1:]))

    def predict(self, X: Array) -> NDArray[np.float64]:
        """Predictions at the rows of X: (N,), or (N, J) with several outputs.

        Raises:
            ValueError: when X has not the columns of the rows in fitting, or is infinite in float32.
        """
        rows = _rows(X, self.num_features, np.float32)
        if np.isinf(rows).any():
            raise ValueError("Trees compare float32 values, so rows must be below 3.4e38 in size; got larger ones: rescale them.")
        if self.learning_rate is not None:
            # scikit-learn's loop, not ours: where the processor fuses multiply and add, NumPy would round once more.
            stages = np.array([[SimpleNamespace(tree_=tree)] for tree in self.trees], dtype=object)
            stage_total = np.full((len(rows), 1), self.baseline)
            predict_stages(stages, rows, self.learning_rate, stage_total)
            return stage_total.ravel()
        total = np.full((len(rows), self.num_outputs) if self.num_outputs > 1 else len(rows), self.baseline)
        for tree in self.trees:
            total += tree.predict(rows).reshape(total.shape)
        total /= len(self.trees)
        return total

    def arrays(self) -> dict[str, Array]:
        """What `from_arrays` takes.

        Raises:
            ValueError: when it would not take them, as with leaves that are not finite.
        """
        trees = []
        for tree in self.trees:
            nodes = tree.__getstate__()["nodes"][: tree.node_count]
            trees.append(_plain(nodes, _FOREST_FIELDS, nodes["left_child"] == TREE_LEAF, tree.value.reshape(len(nodes), -1)))
        arrays = _joined(self.num_features, self.baseline, trees)
        arrays["learning_rate"] = np.array([] if self.learning_rate is None else [self.learning_rate], np.float64)
        _check(arrays, _FOREST_ARRAYS)
        return arrays

    @staticmethod
    def from_arrays(arrays: Arrays) -> Forest:
        """The trees that these arrays describe.

        Raises:
            ValueError: when the arrays describe no trees, or the installed scikit-learn has other nodes.
        """
        _require_fields(NODE_DTYPE, _FOREST_FIELDS, _FOREST_OTHERS)
        arrays = _check(arrays, _FOREST_ARRAYS)
        rate, num_features, num_outputs = arrays["learning_rate"], int(arrays["num_features"]), arrays["value"].shape[1]
        _require(len(rate) <= 1 and np.isfinite(rate).all(), "no or one finite learning_rate", rate[:2])
        # The native loop over stages strides over one value a node.
        _require(len(rate) == 0 or num_outputs == 1, "one value a leaf where there is a learning_rate", num_outputs)
        trees = []
        for tree in _each_tree(arrays):
            nodes, leaf = _nodes(tree, NODE_DTYPE, _FOREST_FIELDS)
            for name in ("left_child", "right_child"):
                nodes[name][leaf] = TREE_LEAF
            for name in ("feature", "threshold"):
                nodes[name][leaf] = TREE_UNDEFINED
            values = np.zeros((len(nodes), num_outputs, 1))
            values[leaf, :, 0] = tree["value"]
            native = Tree(num_features, np.ones(num_outputs, np.intp), num_outputs)
            # Predicting does not read max_depth; the number of splits bounds it, so nothing sized by it is too small.
            state = {"max_depth": len(tree["left"]), "node_count": len(nodes), "nodes": nodes, "values": values}
            native.__setstate__(state)
            trees.append(native)
        return Forest(num_features, float(arrays["baseline"]), float(rate[0]) if len(rate) else None, tuple(trees))


Trees = BoostedTrees | Forest


def plain_trees(estimator: Any) -> Trees | None:
    """The trees of a fitted scikit-learn regressor, or None when it is of a kind that the arrays cannot hold.

    Held are exactly the types `HistGradientBoostingRegressor` (without categorical features, with a loss that predicts the
    target itself), `GradientBoostingRegressor` (started from a constant), `ExtraTreesRegressor`, `RandomForestRegressor`,
    `DecisionTreeRegressor` and `ExtraTreeRegressor`. A subclass may predict otherwise, so it is not held. Nodes are shared with
    the estimator, not copied.

    Raises:
        NotFittedError: when the estimator is of such a type and not fitted.
    """
    kind = type(estimator)
    if kind not in (HistGradientBoostingRegressor, GradientBoostingRegressor, *_FORESTS, *_SINGLE_TREES):
        return None
    check_is_fitted(estimator)
    if kind is HistGradientBoostingRegressor:
        return _plain_histogram_boosting(estimator)
    if not nodes_are_known(Forest):
        return None
    if kind is GradientBoostingRegressor:
        return _plain_gradient_boosting(estimator)
    if kind in _SINGLE_TREES:
        # x + -0.0 is x for every x; from 0.0, a leaf of -0.0 would lose its sign.
        return Forest(estimator.n_features_in_, -0.0, None, (estimator.tree_,))
    return _plain_forest(estimator.n_features_in_, 0.0, None, estimator.estimators_)


def nodes_are_known(kind: type[Trees]) -> bool:
    """Whether the installed scikit-learn has the nodes that these trees are read from and written to."""
    if kind is BoostedTrees:
        return not _unknown_fields(PREDICTOR_RECORD_DTYPE, _BOOSTED_FIELDS, _BOOSTED_OTHERS)
    return not _unknown_fields(NODE_DTYPE, _FOREST_FIELDS, _FOREST_OTHERS)


def _plain_histogram_boosting(estimator: Any) -> BoostedTrees | None:
    baseline, predictors = estimator._baseline_prediction, estimator._predictors
    if (
        not nodes_are_known(BoostedTrees)
        or estimator._preprocessor is not None
        or type(estimator._loss.link) is not IdentityLink
        or baseline.size != 1
        or baseline.dtype != np.float64
        or any(predictor.nodes["is_categorical"].any() for (predictor,) in predictors)
    ):
        return None
    return BoostedTrees(estimator.n_features_in_, float(baseline.item()), tuple(predictor for (predictor,) in predictors))


def _plain_gradient_boosting(estimator: Any) -> Forest | None:
    if type(estimator.init_) is DummyRegressor:
        baseline = float(np.asarray(estimator.init_.constant_).item())
    elif isinstance(estimator.init_, str) and estimator.init_ == "zero":
        baseline = 0.0
    else:
        return None
    return _plain_forest(estimator.n_features_in_, baseline, float(estimator.learning_rate), estimator.estimators_[:, 0])


def _plain_forest(num_features: int, baseline: float, learning_rate: float | None, members: Any) -> Forest | None:
    if any(type(member) not in _SINGLE_TREES for member in members):
        return None
    return Forest(num_features, baseline, learning_rate, tuple(member.tree_ for member in members))


def _rows(X: Array, num_features: int, dtype: DTypeLike) -> Array:
    """X as native code reads it."""
    if np.ndim(X) != 2 or np.shape(X)[1] != num_features:
        raise ValueError(
            f"Rows must have the {num_features} columns that the trees were fitted on; got shape {np.shape(X)}: pass them all."
        )
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(X, dtype=dtype)


def _plain(nodes: Array, fields: Mapping[str, str], leaf: Array, value: Array) -> dict[str, Array]:
    """The arrays of one native tree."""
    splits = {name: nodes[fields[name]][~leaf].astype(dtype) for name, dtype in _SPLIT_ARRAYS.items()}
    return {"is_leaf": leaf.astype(np.uint8), **splits, "value": value[leaf]}


def _joined(num_features: int, baseline: float, trees: list[dict[str, Array]]) -> dict[str, Array]:
    return {
        "num_features": np.array(num_features, np.int64),
        "offsets": np.cumsum([0, *(len(tree["is_leaf"]) for tree in trees)], dtype=np.int64),
        **{name: np.concatenate([tree[name] for tree in trees]) for name in trees[0]},
        "baseline": np.array(baseline, np.float64),
    }


def _each_tree(arrays: Arrays) -> Iterator[dict[str, Array]]:
    """Its own part of each array, for every tree; the inverse of `_joined`."""
    splits = leaves = 0
    for first, last in pairwise(arrays["offsets"].tolist()):
        is_leaf = arrays["is_leaf"][first:last]
        more_leaves = int(np.count_nonzero(is_leaf))
        more_splits = last - first - more_leaves
        tree = {name: arrays[name][splits : splits + more_splits] for name in _SPLIT_ARRAYS}
        yield {"is_leaf": is_leaf, **tree, "value": arrays["value"][leaves : leaves + more_leaves]}
        splits, leaves = splits + more_splits, leaves + more_leaves


def _nodes(tree: Arrays, dtype: Any, fields: Mapping[str, str]) -> tuple[Array, Array]:
    """One tree's native nodes with their splits set, and which of them are leaves."""
    leaf = tree["is_leaf"] != 0
    nodes = np.zeros(len(leaf), dtype)
    for name, native in fields.items():
        nodes[native][~leaf] = tree[name]
    return nodes, leaf


def _check(arrays: Arrays, wanted: Mapping[str, tuple[DTypeLike, int]]) -> dict[str, Array]:
    """The arrays without subclasses, once nothing in them can lead native code, which checks nothing, astray."""
    if set(arrays) != set(wanted):
        _require(False, f"the arrays {', '.join(wanted)}", ", ".join(map(str, arrays)) or "none")
    # A subclass could compare in its own way: a masked array is never wrong where it is masked.
    arrays = {name: np.asarray(arrays[name]) for name in wanted}
    for name, (dtype, num_axes) in wanted.items():
        array = arrays[name]
        fits = array.dtype == np.dtype(dtype) and array.ndim == num_axes
        _require(fits, f"{name} as {np.dtype(dtype)} with {num_axes} axes", f"{array.dtype} with shape {array.shape}")
    num_features, offsets, is_leaf, value = (arrays[name] for name in ("num_features", "offsets", "is_leaf", "value"))
    _require(1 <= num_features < 2**31, "num_features from 1 to 2³¹ − 1", num_features)
    # Neighbours are compared, not subtracted: the difference of hostile offsets overflows.
    rising = len(offsets) > 1 and offsets[0] == 0 and offsets[-1] == len(is_leaf) and (offsets[:-1] < offsets[1:]).all()
    _require(rising, f"offsets that rise from 0 to the number of nodes, {len(is_leaf)}", f"{len(offsets)} others")
    for name in ("is_leaf", "missing_go_to_left"):
        _require((arrays[name] <= 1).all(), f"{name} of 0 and 1", "other numbers")
    num_leaves = int(np.count_nonzero(is_leaf))
    for name in _SPLIT_ARRAYS:
        came, num_splits = len(arrays[name]), len(is_leaf) - num_leaves
        _require(came == num_splits, f"{name} of each of the {num_splits} splits", came)
    fits = value.shape[0] == num_leaves and value.shape[1] > 0
    _require(fits, f"one row of value for each of the {num_leaves} leaves", f"shape {value.shape}")
    _require((arrays["feature"] < num_features).all(), f"every feature below num_features, {num_features}", "a higher one")
    # An infinite threshold is scikit-learn's way to split NaN from all else.
    _require(not np.isnan(arrays["threshold"]).any(), "thresholds that are numbers", "NaN")
    _require(np.isfinite(value).all() and np.isfinite(arrays["baseline"]), "a finite value and baseline", "others")
    for tree in _each_tree(arrays):
        num_nodes, parents = len(tree["is_leaf"]), np.flatnonzero(tree["is_leaf"] == 0)
        for name in ("left", "right"):
            inside = ((tree[name] > parents) & (tree[name] < num_nodes)).all()
            _require(inside, f"each {name} child after its parent and inside its tree", "one that is not")
        num_parents = np.bincount(np.concatenate([tree["left"], tree["right"]]).astype(np.intp), minlength=num_nodes)
        _require((num_parents[1:] == 1).all(), "each node but the root to be one node's child", "one that is not")
    return arrays


def _require(holds: Any, wanted: str, came: object) -> None:
    if not holds:
        raise ValueError(f"Trees need {wanted}; got {came}: the arrays are damaged or of another kind, so save the model again.")


def _unknown_fields(dtype: Any, fields: Mapping[str, str], others: set[str]) -> set[str]:
    """The node fields in which the installed scikit-learn differs from what we know how to fill."""
    return set(dtype.names) ^ ({*fields.values()} | others)


def _require_fields(dtype: Any, fields: Mapping[str, str], others: set[str]) -> None:
    if unknown := _unknown_fields(dtype, fields, others):
        raise ValueError(
            f"Trees need nodes with the fields that scikit-learn 1.5 to 1.9 has; scikit-learn {sklearn.__version__} differs in "
            f"{', '.join(sorted(unknown))}: install one of those versions, or fit the model again."
        )
