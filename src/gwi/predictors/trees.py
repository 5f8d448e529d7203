"""Fitted tree ensembles of scikit-learn as plain arrays: nothing pickled, predictions equal to the last bit, native speed.

The arrays hold what predicting reads and nothing else, for T trees one after another. Nodes count from their tree's root, and
a child comes after its parent:

| array | shape | meaning |
| --- | --- | --- |
| kind | () | the place of its kind in `KINDS` |
| num_features | () | columns of a row |
| baseline | (J,) | what the sum over trees starts from, for each output |
| learning_rate | () | what the trees of gradient boosting are multiplied by; 1 for other kinds |
| offsets | (T + 1,) | the first node of each tree, and at the end the number of nodes |
| is_leaf | (nodes,) | 0 or 1 |
| left, right | (splits,) | children of each node that is no leaf |
| feature, threshold | (splits,) | a row goes left where its feature is at most the threshold |
| missing_go_to_left | (splits,) | 1 where NaN goes left |
| value | (leaves, J) or (leaves, 1) | predictions of each leaf: all outputs in a forest, one in boosting |

A boosting round has one tree for each output, in their order.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import sklearn
from numpy.typing import NDArray
from sklearn import ensemble
from sklearn._loss.link import IdentityLink, LogitLink, LogLink, MultinomialLogit
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble._gradient_boosting import predict_stages
from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.tree._tree import NODE_DTYPE, TREE_LEAF, TREE_UNDEFINED, Tree
from sklearn.utils._openmp_helpers import _openmp_effective_n_threads
from sklearn.utils.validation import check_is_fitted

from gwi.predictors.arrays import Array, Arrays, Wanted, checked, require, wrong_columns
from gwi.predictors.joined_trees import MOST_ROWS, JoinedTrees, can_be_joined, summed

Kind = Literal["histogram-boosting", "gradient-boosting", "forest", "exponential-boosting"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_HISTOGRAM_BOOSTING = (ensemble.HistGradientBoostingRegressor, ensemble.HistGradientBoostingClassifier)
_GRADIENT_BOOSTING = (ensemble.GradientBoostingRegressor, ensemble.GradientBoostingClassifier)
_SINGLE_TREES = (DecisionTreeRegressor, DecisionTreeClassifier)
_FORESTS = (
    ensemble.ExtraTreesRegressor,
    ensemble.ExtraTreesClassifier,
    ensemble.RandomForestRegressor,
    ensemble.RandomForestClassifier,
)
# Of losses whose trees add up to the target, or to logits. Scores of the exponential loss are half logits; those of the losses
# of counts and of positive numbers add up to the logarithm, and histogram boosting by them is a kind of its own.
_LINKS = (IdentityLink, LogitLink, MultinomialLogit)

# An infinite threshold is scikit-learn's way to split NaN from all else; a model file has no infinite numbers.
_INFINITE = np.finfo(np.float64).max

# Flags are bytes: NumPy's own loops misbehave on a bool that a file fills with anything but 0 and 1.
_SPLITS = {
    "left": np.uint32,
    "right": np.uint32,
    "feature": np.uint32,
    "threshold": np.float64,
    "missing_go_to_left": np.uint8,
}
_WANTED: Wanted = {
    "kind": (np.int64, 0),
    "num_features": (np.int64, 0),
    "baseline": (np.float64, 1),
    "learning_rate": (np.float64, 0),
    "offsets": (np.int64, 1),
    "is_leaf": (np.uint8, 1),
    **{name: (dtype, 1) for name, dtype in _SPLITS.items()},
    "value": (np.float64, 2),
}


class _Nodes(NamedTuple):
    """A node of scikit-learn: dtype, names of the arrays of splits, marks of a leaf, and fields set otherwise or left zero."""

    dtype: Any
    fields: Mapping[str, str]
    leaf: Mapping[str, int]
    others: set[str]


_HISTOGRAM_NODES = _Nodes(
    PREDICTOR_RECORD_DTYPE,
    dict(zip(_SPLITS, ("left", "right", "feature_idx", "num_threshold", "missing_go_to_left"), strict=True)),
    {"is_leaf": 1},
    {"value", "count", "gain", "depth", "bin_threshold", "is_categorical", "bitset_idx"},
)
_TREE_NODES = _Nodes(
    NODE_DTYPE,
    dict(zip(_SPLITS, ("left_child", "right_child", "feature", "threshold", "missing_go_to_left"), strict=True)),
    {"left_child": TREE_LEAF, "right_child": TREE_LEAF, "feature": TREE_UNDEFINED, "threshold": TREE_UNDEFINED},
    {"impurity", "n_node_samples", "weighted_n_node_samples"},
)


@dataclass(frozen=True, eq=False)
class Trees:
    """baseline + learning_rate · Σ_t tree_t(x) of boosting, its exponential, or the average of the trees of a forest.

    Attributes:
        kind: whose trees they are; a single tree is a forest.
        num_features: columns of a row.
        baseline: what the sum over trees starts from, (J,).
        learning_rate: what the trees of gradient boosting are multiplied by; 1 for other kinds.
        trees: scikit-learn's own; in boosting those of the J outputs in turn.
        joins: whether a second copy of the nodes may be made for few rows, with equal predictions.
    """

    kind: Kind
    num_features: int
    baseline: Array
    learning_rate: float
    trees: tuple[Any, ...] = field(repr=False)
    joins: bool = field(default=False, repr=False)

    @property
    def num_outputs(self) -> int:
        """J."""
        return len(self.baseline)

    @cached_property
    def _joined(self) -> JoinedTrees | None:
        """All of them as one, for few rows; trees never change."""
        return JoinedTrees(self.trees, self.num_features) if self.joins and can_be_joined(self.trees) else None

    def at_rest(self) -> Trees:
        """The same for many calls with few rows each."""
        return replace(self, joins=True)

    def __getstate__(self) -> dict[str, Any]:
        """Without what can be made again."""
        return {name: value for name, value in vars(self).items() if name != "_joined"}

    def predict(self, X: Array) -> NDArray[np.float64]:
        """Predictions (N, J) at the rows of X.

        Raises:
            ValueError: when X has not the columns of the rows in fitting, or is infinite where trees compare float32 values.
        """
        if np.shape(X)[1:] != (self.num_features,):
            raise wrong_columns(X, self.num_features)
        if self.kind == "histogram-boosting":
            return self._predict_histogram_boosting(np.ascontiguousarray(X, np.float64))
        if self.kind == "exponential-boosting":
            with np.errstate(over="ignore"):
                return np.exp(self._predict_histogram_boosting(np.ascontiguousarray(X, np.float64)))
        with np.errstate(over="ignore"):
            rows = np.ascontiguousarray(X, np.float32)
        if np.isinf(rows).any():
            raise ValueError("Trees compare float32 values, so rows must be below 3.4e38 in size; got larger ones: rescale them.")
        total = np.tile(self.baseline, (len(rows), 1))
        if self.joins and self.kind != "gradient-boosting" and len(rows) <= MOST_ROWS and self._joined is not None:
            return summed(total, self._joined.leaves(rows)) / len(self.trees)
        if self.kind == "gradient-boosting":
            # scikit-learn's loop, not ours: where the processor fuses multiply and add, NumPy would round once more.
            stages = np.array([SimpleNamespace(tree_=tree) for tree in self.trees], dtype=object).reshape(-1, self.num_outputs)
            predict_stages(stages, rows, self.learning_rate, total)
            return total
        for tree in self.trees:
            total += tree.predict(rows).reshape(total.shape)
        total /= len(self.trees)
        return total

    def _predict_histogram_boosting(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        # No node is categorical, so no bitset is ever read.
        no_bitsets, no_map = np.zeros((0, 8), np.uint32), np.zeros(0, np.uint32)
        if self.joins and len(rows) <= MOST_ROWS and self._joined is not None:
            # By round and output.
            leaves = self._joined.leaves(rows).reshape(-1, self.num_outputs, len(rows))
            return summed(self.baseline[:, None], leaves).T
        num_threads = _openmp_effective_n_threads()
        # In memory by columns, as scikit-learn has them, for the order of later sums depends on it.
        num_outputs = len(self.baseline)
        total = np.zeros((len(rows), num_outputs), order="F")
        total += self.baseline
        for i, tree in enumerate(self.trees):
            total[:, i % num_outputs] += tree.predict(rows, no_bitsets, no_map, num_threads)
        return total

    def arrays(self) -> dict[str, Array]:
        """What `from_arrays` takes.

        Raises:
            ValueError: when it would not take them, as with leaves that are not finite.
        """
        parts = [_tree_arrays(tree) for tree in self.trees]
        arrays = {
            "kind": np.array(KINDS.index(self.kind), np.int64),
            "num_features": np.array(self.num_features, np.int64),
            "baseline": self.baseline.copy(),
            "learning_rate": np.array(self.learning_rate, np.float64),
            "offsets": np.cumsum([0, *(len(part["is_leaf"]) for part in parts)], dtype=np.int64),
            **{name: np.concatenate([part[name] for part in parts]) for name in parts[0]},
        }
        return _checked_trees(arrays)

    @staticmethod
    def from_arrays(arrays: Arrays) -> Trees:
        """The trees that these arrays describe.

        Raises:
            ValueError: when the arrays describe no trees, or the installed scikit-learn has other nodes.
        """
        if unknown := _unknown_fields():
            raise ValueError(
                f"Trees need nodes with the fields that scikit-learn 1.5 to 1.9 has; scikit-learn {sklearn.__version__} differs "
                f"in {', '.join(sorted(unknown))}: install one of those versions, or fit the model again."
            )
        arrays = _checked_trees(arrays)
        kind, num_features = KINDS[int(arrays["kind"])], int(arrays["num_features"])
        form = _HISTOGRAM_NODES if kind in ("histogram-boosting", "exponential-boosting") else _TREE_NODES
        trees = tuple(_native_tree(part, form, num_features) for part in _each_tree(arrays))
        return Trees(kind, num_features, arrays["baseline"].copy(), float(arrays["learning_rate"]), trees)


def plain_trees(estimator: Any) -> Trees | None:
    """The trees of a fitted scikit-learn regressor or classifier, or None when it is of a kind that the arrays cannot hold.

    Outputs of a classifier are raw scores from boosting, probabilities from a forest. Held are exactly the types above, boosting
    without categorical features, with a loss that predicts the target or logits, and started from a constant. A subclass may
    predict otherwise, so it is not held. Nodes are shared with the estimator, not copied.

    Raises:
        NotFittedError: when the estimator is of such a type and not fitted.
    """
    kind = type(estimator)
    if kind not in (*_HISTOGRAM_BOOSTING, *_GRADIENT_BOOSTING, *_FORESTS, *_SINGLE_TREES):
        return None
    check_is_fitted(estimator)
    if _unknown_fields():
        return None
    num_features = estimator.n_features_in_
    if kind in _SINGLE_TREES or kind in _FORESTS:
        trees = tuple(member.tree_ for member in (estimator.estimators_ if kind in _FORESTS else [estimator]))
        # A regressor's values are (nodes, J, 1), a classifier's (nodes, 1, J).
        num_outputs = trees[0].value[0].size
        # x + -0.0 is x for every x; from 0.0, a single tree's leaf of -0.0 would lose its sign.
        return Trees("forest", num_features, np.full(num_outputs, 0.0 if kind in _FORESTS else -0.0), 1.0, trees)
    of_logarithms = kind in _HISTOGRAM_BOOSTING and type(estimator._loss.link) is LogLink
    if type(estimator._loss.link) not in _LINKS and not of_logarithms:
        return None
    if kind in _HISTOGRAM_BOOSTING:
        if estimator.is_categorical_ is not None:
            return None
        trees = tuple(tree for stage in estimator._predictors for tree in stage)
        name: Kind = "exponential-boosting" if of_logarithms else "histogram-boosting"
        return Trees(name, num_features, estimator._baseline_prediction[0], 1.0, trees)
    init = estimator.init_
    from_shares = type(init) is DummyClassifier and init.strategy == "prior"
    if not (type(init) is DummyRegressor or from_shares or init == "zero"):
        return None
    baseline = estimator._raw_predict_init(np.zeros((1, num_features), np.float32))[0]
    trees = tuple(member.tree_ for member in estimator.estimators_.flat)
    return Trees("gradient-boosting", num_features, baseline, float(estimator.learning_rate), trees)


def first_rounds(estimator: Any, num_rounds: int) -> Any:
    """Fitted histogram boosting with its first rounds only; anything else as it is."""
    if type(estimator) not in _HISTOGRAM_BOOSTING:
        return estimator
    shorter = copy.copy(estimator)
    shorter._predictors = estimator._predictors[:num_rounds]
    return shorter


def _unknown_fields() -> set[str]:
    """The node fields in which the installed scikit-learn differs from what we know how to fill."""
    found: set[str] = set()
    for form in (_HISTOGRAM_NODES, _TREE_NODES):
        found |= set(form.dtype.names) ^ {*form.fields.values(), *form.leaf, *form.others}
    return found


def _tree_arrays(tree: Any) -> dict[str, Array]:
    """The arrays of one tree of scikit-learn."""
    if isinstance(tree, TreePredictor):
        nodes, fields = tree.nodes, _HISTOGRAM_NODES.fields
        leaf, value = nodes["is_leaf"] != 0, nodes["value"][:, None]
    else:
        nodes, fields = tree.__getstate__()["nodes"][: tree.node_count], _TREE_NODES.fields
        leaf, value = nodes["left_child"] == TREE_LEAF, tree.value.reshape(len(nodes), -1)
    splits = {name: nodes[fields[name]][~leaf].astype(dtype) for name, dtype in _SPLITS.items()}
    splits["threshold"] = np.clip(splits["threshold"], -_INFINITE, _INFINITE)
    return {"is_leaf": leaf.astype(np.uint8), **splits, "value": value[leaf]}


def _each_tree(arrays: Arrays) -> Iterator[dict[str, Array]]:
    """Its own part of each array, for every tree."""
    nodes = arrays["offsets"][1:-1]
    leaves = np.cumsum(arrays["is_leaf"], dtype=np.int64)[nodes - 1]
    ends = {"is_leaf": nodes, **dict.fromkeys(_SPLITS, nodes - leaves), "value": leaves}
    for parts in zip(*(np.split(arrays[name], places) for name, places in ends.items()), strict=True):
        yield dict(zip(ends, parts, strict=True))


def _native_tree(part: Arrays, form: _Nodes, num_features: int) -> TreePredictor | Tree:
    """A tree of scikit-learn from the arrays of one."""
    leaf = part["is_leaf"] != 0
    nodes = np.zeros(len(leaf), form.dtype)
    for name, native in form.fields.items():
        nodes[native][~leaf] = part[name]
    threshold = nodes[form.fields["threshold"]]
    threshold[threshold == _INFINITE] = np.inf
    for native, mark in form.leaf.items():
        nodes[native][leaf] = mark
    if form is _HISTOGRAM_NODES:
        nodes["value"][leaf] = part["value"][:, 0]
        no_bitsets = np.zeros((0, 8), np.uint32)
        return TreePredictor(nodes, no_bitsets, no_bitsets)
    num_outputs = part["value"].shape[1]
    values = np.zeros((len(nodes), num_outputs, 1))
    values[leaf, :, 0] = part["value"]
    tree = Tree(num_features, np.ones(num_outputs, np.intp), num_outputs)
    # Predicting does not read max_depth; the number of splits bounds it, so nothing sized by it is too small.
    tree.__setstate__({"max_depth": len(part["left"]), "node_count": len(nodes), "nodes": nodes, "values": values})
    return tree


def _checked_trees(arrays: Arrays) -> dict[str, Array]:
    """The arrays, once nothing in them can lead native code, which checks nothing, astray."""
    arrays = checked(arrays, _WANTED)
    kind, num_features, baseline, offsets, is_leaf, value = (
        arrays[name] for name in ("kind", "num_features", "baseline", "offsets", "is_leaf", "value")
    )
    require(0 <= kind < len(KINDS), f"a kind below {len(KINDS)}", kind)
    require(1 <= num_features < 2**31, "num_features from 1 to 2³¹ − 1", num_features)
    # Neighbours are compared, not subtracted: the difference of hostile offsets overflows.
    rising = len(offsets) > 1 and offsets[0] == 0 and offsets[-1] == len(is_leaf) and (offsets[:-1] < offsets[1:]).all()
    require(rising, f"offsets that rise from 0 to the number of nodes, {len(is_leaf)}", f"{len(offsets)} others")
    for name in ("is_leaf", "missing_go_to_left"):
        require((arrays[name] <= 1).all(), f"{name} of 0 and 1", "other numbers")
    num_leaves = int(np.count_nonzero(is_leaf))
    num_splits, num_outputs, num_trees = len(is_leaf) - num_leaves, len(baseline), len(offsets) - 1
    for name in _SPLITS:
        require(len(arrays[name]) == num_splits, f"{name} of each of the {num_splits} splits", len(arrays[name]))
    require(num_outputs > 0, "a baseline for each output", "none")
    # Native loops of boosting stride over one value a node, and over all trees of a round.
    is_forest = KINDS[int(kind)] == "forest"
    shape = (num_leaves, num_outputs if is_forest else 1)
    require(value.shape == shape, f"value of shape {shape}, one row per leaf", f"shape {value.shape}")
    whole = is_forest or num_trees % num_outputs == 0
    require(whole, f"as many trees for each of {num_outputs} outputs", f"{num_trees} trees")
    require((arrays["feature"] < num_features).all(), f"every feature below num_features, {num_features}", "a higher one")
    for part in _each_tree(arrays):
        num_nodes, parents = len(part["is_leaf"]), np.flatnonzero(part["is_leaf"] == 0)
        for name in ("left", "right"):
            inside = ((part[name] > parents) & (part[name] < num_nodes)).all()
            require(inside, f"each {name} child after its parent and inside its tree", "one that is not")
        num_parents = np.bincount(np.concatenate([part["left"], part["right"]]).astype(np.intp), minlength=num_nodes)
        require((num_parents[1:] == 1).all(), "each node but the root to be one node's child", "one that is not")
    return arrays
