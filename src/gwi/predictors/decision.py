"""Scores of fitted scikit-learn classifiers as plain numbers, from trees, linear models and networks; and their links.

| link | scores (N, C) become probabilities (N, K) of the K classes of the fit |
| --- | --- |
| probabilities | they are |
| logistic | C = 1, K = 2: 1 − p and p = 1 / (1 + exp(−score)) |
| softmax | exp(score), each row divided by its sum |
| one-vs-rest | 1 / (1 + exp(−score)), each row divided by its sum |
| margins | they do not: the scores themselves are compared; one margin is that of the second of two classes |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.special import expit
from sklearn._loss.link import LogitLink, MultinomialLogit
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, RidgeClassifier, SGDClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor, ExtraTreeClassifier
from sklearn.utils.extmath import softmax
from sklearn.utils.validation import check_is_fitted

from gwi.predictors.linear import LinearPredictor
from gwi.predictors.trees import Array, Arrays, BoostedTrees, Forest, Trees, nodes_are_known

Link = Literal["probabilities", "logistic", "softmax", "one-vs-rest", "margins"]
LINKS: tuple[Link, ...] = get_args(Link)

_FORESTS = (ExtraTreesClassifier, RandomForestClassifier)
_SINGLE_TREES = (DecisionTreeClassifier, ExtraTreeClassifier)
_LOGISTIC = (LogisticRegression, LogisticRegressionCV)
_LINEAR = (*_LOGISTIC, LinearDiscriminantAnalysis, SGDClassifier, RidgeClassifier, LinearSVC)
_LINEAR_ARRAYS: dict[str, tuple[DTypeLike, int]] = {"weights": (np.float64, 2), "intercept": (np.float64, 1)}
# Names as scikit-learn has them.
_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "identity": lambda x: x,
    "tanh": np.tanh,
    "logistic": expit,
    "relu": lambda x: np.maximum(x, 0),
}


@dataclass(frozen=True, eq=False)
class TreeScores:
    """One boosted sum of trees for each of C columns: the raw scores of a boosting classifier.

    Attributes:
        parts: the trees of each column, all of one kind, and equally many.
    """

    parts: tuple[Trees, ...] = field(repr=False)

    @property
    def num_features(self) -> int:
        """Columns of a row."""
        return self.parts[0].num_features

    @property
    def num_outputs(self) -> int:
        """C."""
        return len(self.parts)

    def predict(self, X: Array) -> NDArray[np.float64]:
        """Scores (N, C) at the rows of X.

        Raises:
            ValueError: when X has not the columns of the rows in fitting.
        """
        scores = np.array([part.predict(X) for part in self.parts]).T
        # In memory as scikit-learn has them, on which the order of later sums depends: by columns, or by rows.
        return scores if isinstance(self.parts[0], BoostedTrees) else np.ascontiguousarray(scores)

    def arrays(self) -> dict[str, Array]:
        """What `from_arrays` takes: the arrays of all trees, column after column, with the baseline (C,) of each.

        Raises:
            ValueError: when it would not take them, as with leaves that are not finite.
        """
        trees = tuple(tree for part in self.parts for tree in part.trees)
        baseline = np.array([part.baseline for part in self.parts], np.float64)
        _require(np.isfinite(baseline).all(), "a finite baseline", "another")
        return replace(self.parts[0], baseline=0.0, trees=trees).arrays() | {"baseline": baseline}

    @staticmethod
    def from_arrays(arrays: Arrays) -> TreeScores:
        """The trees that these arrays describe.

        Raises:
            ValueError: when the arrays describe no trees, or the installed scikit-learn has other nodes.
        """
        own = {name: array for name, array in arrays.items() if name == "baseline"}
        baseline = checked(own, {"baseline": (np.float64, 1)})["baseline"]
        kind = Forest if "learning_rate" in arrays else BoostedTrees
        joined: Trees = kind.from_arrays({**arrays, "baseline": np.array(0.0)})
        _require(not (isinstance(joined, Forest) and joined.learning_rate is None), "a learning_rate", "none")
        num_each, rest = divmod(len(joined.trees), len(baseline))
        _require(num_each > 0 and rest == 0, f"as many trees for each of {len(baseline)} columns", len(joined.trees))
        parts = (joined.trees[k * num_each : (k + 1) * num_each] for k in range(len(baseline)))
        return TreeScores(tuple(replace(joined, baseline=float(b), trees=part) for b, part in zip(baseline, parts, strict=True)))


@dataclass(frozen=True, eq=False)
class Network:
    """A multilayer perceptron: rows times weights plus biases, with one activation between layers.

    Attributes:
        weights: of each layer, (inputs, outputs).
        biases: of each layer, (outputs,).
        activation: "identity", "tanh", "logistic" or "relu".
    """

    weights: tuple[Array, ...] = field(repr=False)
    biases: tuple[Array, ...] = field(repr=False)
    activation: str

    @property
    def num_features(self) -> int:
        """Columns of a row."""
        return len(self.weights[0])

    @property
    def num_outputs(self) -> int:
        """C."""
        return len(self.biases[-1])

    def predict(self, X: Array) -> NDArray[np.float64]:
        """What the last layer gives (N, C), before any link."""
        values = X @ self.weights[0] + self.biases[0]
        for weight, bias in zip(self.weights[1:], self.biases[1:], strict=True):
            values = _ACTIVATIONS[self.activation](values) @ weight + bias
        return values

    def arrays(self) -> dict[str, Array]:
        """What `from_arrays` takes.

        Raises:
            ValueError: when it would not take them, as with weights that are not finite.
        """
        arrays = {"activation": np.array(list(_ACTIVATIONS).index(self.activation), np.int64)}
        arrays |= {f"weights.{i}": weight for i, weight in enumerate(self.weights)}
        arrays |= {f"bias.{i}": bias for i, bias in enumerate(self.biases)}
        return checked(arrays, _network_arrays(len(self.weights)))

    @staticmethod
    def from_arrays(arrays: Arrays) -> Network:
        """The network that these arrays describe.

        Raises:
            ValueError: when they describe none.
        """
        num_layers = max(sum(key.startswith("weights.") for key in arrays), 1)
        arrays = checked(arrays, _network_arrays(num_layers))
        weights, biases = (tuple(arrays[f"{name}.{i}"] for i in range(num_layers)) for name in ("weights", "bias"))
        fits = all(w.shape[1] == len(b) for w, b in zip(weights, biases, strict=True))
        fits = fits and all(first.shape[1] == len(second) for first, second in pairwise(weights))
        _require(fits, "layers of which each takes what the one before gives", "others")
        known = 0 <= arrays["activation"] < len(_ACTIVATIONS)
        _require(known, f"an activation below {len(_ACTIVATIONS)}", arrays["activation"])
        return Network(weights, biases, list(_ACTIVATIONS)[int(arrays["activation"])])


def _network_arrays(num_layers: int) -> dict[str, tuple[DTypeLike, int]]:
    axes = (("weights", 2), ("bias", 1))
    return {"activation": (np.int64, 0)} | {f"{name}.{i}": (np.float64, n) for i in range(num_layers) for name, n in axes}


Scores = TreeScores | Forest | LinearPredictor | Network


# Tags in a file, never names of classes.
_TAGS: dict[str, type[Scores]] = {"boosting": TreeScores, "forest": Forest, "linear": LinearPredictor, "network": Network}


def score_tag(scores: Scores) -> str:
    """The tag under which scores of this type are stored."""
    return next(tag for tag, kind in _TAGS.items() if type(scores) is kind)


def score_arrays(scores: Scores) -> dict[str, Array]:
    """What `read_scores` takes.

    Raises:
        ValueError: when it would not take them, as with numbers that are not finite.
    """
    arrays = scores.arrays()
    return checked(arrays, _LINEAR_ARRAYS) if isinstance(scores, LinearPredictor) else arrays


def read_scores(kind: str, arrays: Arrays) -> Scores:
    """Scores of this type from the arrays that it was written to.

    Raises:
        ValueError: when the type is unknown, or the arrays describe none of it.
    """
    _require(kind in _TAGS, f"one of {', '.join(_TAGS)}", repr(kind))
    return _TAGS[kind].from_arrays(checked(arrays, _LINEAR_ARRAYS) if kind == "linear" else arrays)


def probabilities(scores: NDArray[np.float64], link: Link) -> NDArray[np.float64]:
    """Probabilities (N, K) of the classes of the fit from scores (N, C) and any link but margins."""
    if link == "logistic":
        second = expit(scores[:, 0])
        return np.stack([1 - second, second], axis=1)
    if link == "softmax":
        return softmax(scores)
    if link == "one-vs-rest":
        each = expit(scores)
        # scikit-learn's rule where every class is refused.
        each[each.sum(axis=1) == 0] = 1
        return each / each.sum(axis=1)[:, None]
    return scores


def plain_scores(estimator: Any) -> tuple[Scores, Link] | None:
    """Scores of a fitted classifier and their link, or None when it is of a kind that we cannot hold as plain numbers.

    A subclass may predict otherwise, so types are held exactly. Nodes of trees are shared with the estimator, not copied.

    Raises:
        NotFittedError: when the estimator is of a kind that can be held and not fitted.
    """
    kind = type(estimator)
    boosting = (HistGradientBoostingClassifier, GradientBoostingClassifier)
    if kind not in (*boosting, *_FORESTS, *_SINGLE_TREES, *_LINEAR, MLPClassifier):
        return None
    check_is_fitted(estimator)
    if has_several_targets(estimator):
        return None
    if kind in _FORESTS or kind in _SINGLE_TREES:
        forest = _forest(estimator)
        return None if forest is None else (forest, "probabilities")
    if len(estimator.classes_) < 2:
        return None
    if kind is MLPClassifier:
        return _network(estimator)
    if kind in _LINEAR:
        return _linear(estimator)
    return _histogram_boosting(estimator) if kind is HistGradientBoostingClassifier else _gradient_boosting(estimator)


def has_several_targets(estimator: Any) -> bool:
    """Whether a classifier was fitted to several targets, or to several labels a row."""
    several_labels = getattr(getattr(estimator, "_label_binarizer", None), "y_type_", "").startswith("multilabel")
    return isinstance(estimator.classes_, list) or several_labels or bool(getattr(estimator, "multilabel_", False))


def checked(arrays: Arrays, wanted: Mapping[str, tuple[DTypeLike, int]]) -> dict[str, Array]:
    """Copies of the arrays, in C order, once each has the dtype and the number of axes wanted, is not empty, and is finite."""
    if set(arrays) != set(wanted):
        _require(False, f"the arrays {', '.join(wanted)}", ", ".join(map(str, arrays)) or "none")
    # A subclass could compare in its own way: a masked array is never wrong where it is masked.
    arrays = {name: np.array(arrays[name], order="C") for name in wanted}
    for name, (dtype, num_axes) in wanted.items():
        array = arrays[name]
        fits = array.dtype == np.dtype(dtype) and array.ndim == num_axes and array.size > 0
        _require(fits, f"{name} as {np.dtype(dtype)} with {num_axes} axes", f"{array.dtype} with shape {array.shape}")
        _require(np.isfinite(array).all(), f"a finite {name}", "another")
    return arrays


def _histogram_boosting(estimator: Any) -> tuple[TreeScores, Link] | None:
    baseline, stages, link = estimator._baseline_prediction, estimator._predictors, _boosting_link(estimator)
    if (
        link is None
        or not nodes_are_known(BoostedTrees)
        or estimator._preprocessor is not None
        or baseline.dtype != np.float64
        or any(tree.nodes["is_categorical"].any() for stage in stages for tree in stage)
    ):
        return None
    columns = zip(baseline.ravel(), zip(*stages, strict=True), strict=True)
    return TreeScores(tuple(BoostedTrees(estimator.n_features_in_, float(b), trees) for b, trees in columns)), link


def _gradient_boosting(estimator: Any) -> tuple[TreeScores, Link] | None:
    link, init = _boosting_link(estimator), estimator.init_
    constant = (type(init) is DummyClassifier and init.strategy == "prior") or (isinstance(init, str) and init == "zero")
    if (
        link is None
        or not nodes_are_known(Forest)
        or not constant
        or any(type(member) is not DecisionTreeRegressor for member in estimator.estimators_.flat)
    ):
        return None
    num_features, rate = estimator.n_features_in_, float(estimator.learning_rate)
    baseline = estimator._raw_predict_init(np.zeros((1, num_features), np.float32))[0]
    columns = zip(baseline, estimator.estimators_.T, strict=True)
    return TreeScores(
        tuple(Forest(num_features, float(b), rate, tuple(member.tree_ for member in members)) for b, members in columns)
    ), link


def _boosting_link(estimator: Any) -> Link | None:
    """None for the exponential loss, whose scores are half logits."""
    links: dict[type, Link] = {LogitLink: "logistic", MultinomialLogit: "softmax"}
    return links.get(type(estimator._loss.link))


def _forest(estimator: Any) -> Forest | None:
    members = estimator.estimators_ if type(estimator) in _FORESTS else [estimator]
    if not nodes_are_known(Forest) or any(type(member) not in _SINGLE_TREES for member in members):
        return None
    trees = tuple(member.tree_ for member in members)
    # Before scikit-learn 1.3 trees held weights of rows, not shares.
    if not all(np.allclose(tree.value.sum(axis=(1, 2)), 1) for tree in trees):
        return None
    return Forest(estimator.n_features_in_, 0.0, None, trees)


def _linear(estimator: Any) -> tuple[LinearPredictor, Link] | None:
    kind, coefficients = type(estimator), estimator.coef_
    # `sparsify` leaves a sparse matrix.
    if not isinstance(coefficients, np.ndarray):
        return None
    # Copies, as partial fits write into the estimator's; in C order, so that a file brings back the same bits.
    weights = np.array(coefficients, np.float64, order="C", ndmin=2)
    linear = LinearPredictor(weights, np.array(np.broadcast_to(estimator.intercept_, len(weights)), np.float64))
    link: Link = "logistic" if len(estimator.classes_) == 2 else "softmax"
    if kind in _LOGISTIC:
        # Up to scikit-learn 1.7 these choices could give other links.
        unusual = getattr(estimator, "multi_class", "auto") not in ("auto", "deprecated")
        return None if unusual or (estimator.solver == "liblinear" and link == "softmax") else (linear, link)
    if kind is SGDClassifier and estimator.loss == "log_loss":
        return linear, "logistic" if link == "logistic" else "one-vs-rest"
    if kind is LinearDiscriminantAnalysis:
        return linear, link
    # The modified Huber loss has probabilities of its own.
    return None if hasattr(estimator, "predict_proba") else (linear, "margins")


def _network(estimator: Any) -> tuple[Network, Link] | None:
    known: dict[str, Link] = {"logistic": "logistic", "softmax": "softmax"}
    link = known.get(estimator.out_activation_)
    if link is None or estimator.activation not in _ACTIVATIONS:
        return None
    weights, biases = (
        tuple(np.array(part, np.float64, order="C") for part in parts) for parts in (estimator.coefs_, estimator.intercepts_)
    )
    return Network(weights, biases, estimator.activation), link


def _require(holds: Any, wanted: str, came: object) -> None:
    if not holds:
        raise ValueError(f"Scores need {wanted}; got {came}: the arrays are damaged or of another kind, so save the model again.")
