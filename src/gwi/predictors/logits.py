"""Fitted classifiers as predictors of logits: any of scikit-learn's, and as plain arrays those that a model file can hold.

Logits have one column for each of the J classes of the whole problem, two classes included, also where a classifier was
fitted to rows of fewer classes, as happens in the folds of a cross-validation.

A `PlainClassifier` is held as the arrays of its scores, each name after their tag and a dot, and

| array | shape | meaning |
| --- | --- | --- |
| column | (J,) | which of the K classes of the fit each class of the problem is; −1 where it is none |
| link | () | the place of its link in `gwi.predictors.decision.LINKS` |
| floor | () | the lowest probability |

Labels are not held: logits need their number and order only.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.exceptions import NotFittedError

from gwi.predictors.arrays import Array, Arrays, Wanted, checked, require
from gwi.predictors.decision import LINKS, Link, has_several_targets, plain_scores, probabilities
from gwi.predictors.linear import TAGS, Predictor
from gwi.predictors.trees import Trees

# A class that a forest's trees all vote against has probability zero and a logit of −∞; one wrong row would cost everything.
# At 10⁻⁴ a wrong row costs 9.2 nats and a right one at most J · 10⁻⁴, which is less than a table of some 10⁴ rows can tell from
# zero. One vote in a forest of up to 10⁴ trees with pure leaves stays above it, so that no vote is taken for none. A single
# tree is never so sure with reason: pass 10⁻² with one.
PROBABILITY_FLOOR = 1e-4

_WANTED: Wanted = {"column": (np.int64, 1), "link": (np.int64, 0), "floor": (np.float64, 0)}


@dataclass(frozen=True, eq=False)
class ClassifierLogits:
    """Logits of any fitted scikit-learn classifier of one target.

    With `predict_proba`: log max(p, floor), less the mean of the row, so that their softmax is p where no p is below the floor.
    Else with `decision_function`: its columns as they are, or (−d/2, d/2) from the one margin d of two classes. A class that the
    classifier has not seen has the floor's share of what the others have together.

    Attributes:
        estimator: the classifier.
        classes: labels of the whole problem, in the order of the columns.
        floor: the lowest probability.

    Raises:
        TypeError: when the classifier has neither method, has several targets, or compares classes in pairs.
        NotFittedError: when it is not fitted.
        ValueError: when it knows a class that is not in `classes`, or these repeat, or the floor is no probability.
    """

    estimator: Any
    classes: Array
    floor: float = PROBABILITY_FLOOR

    def __post_init__(self) -> None:
        name = type(self.estimator).__name__
        if not (hasattr(self.estimator, "predict_proba") or hasattr(self.estimator, "decision_function")):
            raise TypeError(
                f"Logits need a classifier with predict_proba or decision_function; {name} has neither: pass one that has."
            )
        if not hasattr(self.estimator, "classes_"):
            raise NotFittedError(f"Logits need a fitted classifier with classes_; this {name} has none: call its fit first.")
        if has_several_targets(self.estimator):
            raise TypeError(f"Logits need a classifier of one target; this {name} has several: fit one for each.")
        in_pairs = getattr(self.estimator, "decision_function_shape", "ovr") == "ovo" and len(self.estimator.classes_) > 2
        if in_pairs and not hasattr(self.estimator, "predict_proba"):
            raise TypeError(f"Logits need a margin for each class; this {name} has one for each pair: set it to 'ovr'.")
        if not 0 < self.floor < 1:
            raise ValueError(f"The floor must be a probability between 0 and 1; got {self.floor}: {PROBABILITY_FLOOR} is usual.")
        _columns(self.classes, self.estimator.classes_)

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Logits (N, J) at the rows of X, in whatever form the classifier takes them.

        Raises:
            ValueError: when a probability or margin is NaN or infinite, or they are not one for each class.
        """
        seen = self.estimator.classes_
        column, num_seen = _columns(self.classes, seen), len(seen)
        link: Link = "probabilities" if hasattr(self.estimator, "predict_proba") else "margins"
        ask = self.estimator.decision_function if link == "margins" else self.estimator.predict_proba
        values = np.asarray(ask(X), np.float64)
        if num_seen == 1:
            # Some classifiers answer for a second class that is not there; there is nothing to compare.
            return _logits(np.ones((len(values), 1)), "probabilities", column, self.floor)
        values = values[:, None] if values.ndim == 1 else values
        wanted = {1, 2} if num_seen == 2 and link == "margins" else {num_seen}
        if values.ndim != 2 or values.shape[1] not in wanted:
            raise ValueError(
                f"A classifier of {num_seen} classes must give as many columns; {type(self.estimator).__name__} gave shape "
                f"{values.shape}: pass one of a single target, with one score per class."
            )
        return _logits(values, link, column, self.floor)

    def plain(self) -> PlainClassifier | None:
        """The same logits from plain arrays, or None when the classifier is of a kind that these cannot hold."""
        return plain_classifier(self.estimator, self.classes, self.floor)


@dataclass(frozen=True, eq=False)
class PlainClassifier:
    """Logits from plain arrays: those of `ClassifierLogits` around the classifier that the arrays were taken from.

    Attributes:
        scores: of the K classes of the fit.
        link: how they become probabilities.
        column: which of the K classes each of the J classes is; −1 where it is none.
        floor: the lowest probability.
    """

    scores: Predictor
    link: Link
    column: Array = field(repr=False)
    floor: float

    @property
    def num_features(self) -> int:
        """Columns of a row."""
        return self.scores.num_features

    @property
    def num_outputs(self) -> int:
        """J, the classes of the whole problem."""
        return len(self.column)

    def at_rest(self) -> PlainClassifier:
        """The same for many calls with few rows each."""
        return replace(self, scores=self.scores.at_rest()) if isinstance(self.scores, Trees) else self

    def predict(self, X: Array) -> NDArray[np.float64]:
        """Logits (N, J) at the rows of X.

        Raises:
            ValueError: when X has not the columns of the rows in fitting, or a score is NaN or infinite, as from such rows.
        """
        # What overflows is not finite, and that is asked after.
        with np.errstate(over="ignore", invalid="ignore"):
            scores = self.scores.predict(X)
        return _logits(scores, self.link, self.column, self.floor)

    def arrays(self) -> dict[str, Array]:
        """What `from_arrays` takes.

        Raises:
            ValueError: when it would not take them, as with scores that are not finite.
        """
        tag = next(tag for tag, kind in TAGS.items() if type(self.scores) is kind)
        own = {
            "column": self.column.copy(),
            "link": np.array(LINKS.index(self.link), np.int64),
            "floor": np.array(self.floor, np.float64),
        }
        return own | {f"{tag}.{name}": array for name, array in self.scores.arrays().items()}

    @staticmethod
    def from_arrays(arrays: Arrays) -> PlainClassifier:
        """The classifier that these arrays describe.

        Raises:
            ValueError: when they describe none.
        """
        own = {name: array for name, array in arrays.items() if name in _WANTED}
        column, link, floor = checked(own, _WANTED).values()
        require(0 <= link < len(LINKS), f"a link below {len(LINKS)}", link)
        require(0 < floor < 1, "a floor between 0 and 1", floor)
        others = {name.partition(".")[::2]: array for name, array in arrays.items() if name not in _WANTED}
        tags = sorted({tag for tag, _ in others})
        known = len(tags) == 1 and tags[0] in TAGS
        require(known, f"scores of one kind, {' or '.join(TAGS)}", ", ".join(map(repr, tags)) or "none")
        scores = TAGS[tags[0]].from_arrays({name: array for (_, name), array in others.items()})
        num_seen = 2 if scores.num_outputs == 1 and LINKS[link] != "probabilities" else scores.num_outputs
        # Compared, not counted: entries of a file may be of any size.
        seen = np.sort(column[column >= 0])
        fits = len(column) > 1 and (column >= -1).all() and np.array_equal(seen, np.arange(num_seen))
        require(fits, f"column with −1 and each number below {num_seen} once", f"{len(column)} others")
        return PlainClassifier(scores, LINKS[link], column.copy(), float(floor))


def plain_classifier(estimator: Any, classes: Array, floor: float = PROBABILITY_FLOOR) -> PlainClassifier | None:
    """Logits of a fitted classifier from plain arrays, or None when it is of a kind that these cannot hold.

    Held are exactly these types, with one target: `HistGradientBoostingClassifier` (without categorical features),
    `GradientBoostingClassifier` (log loss, started from a constant), `ExtraTreesClassifier`, `RandomForestClassifier`,
    `DecisionTreeClassifier`, `LogisticRegression`, `LogisticRegressionCV`, `LinearDiscriminantAnalysis`, `RidgeClassifier`,
    `LinearSVC` and `SGDClassifier` (margins, or the log loss of two classes). On float64 rows they equal those of
    `ClassifierLogits` to the last bit, or nearly: a matrix product of another memory order may round otherwise.

    Args:
        estimator: the classifier.
        classes: labels of the whole problem, in the order of the columns.
        floor: the lowest probability.

    Raises:
        NotFittedError: when the estimator is of such a type and not fitted.
        ValueError: when it knows a class that is not in `classes`, or these repeat, or the floor is no probability.
    """
    found = plain_scores(estimator)
    if found is None:
        return None
    logits = ClassifierLogits(estimator, classes, floor)
    return PlainClassifier(*found, _columns(logits.classes, estimator.classes_), floor)


def logits_of_one_class(label: Any, classes: Array, floor: float = PROBABILITY_FLOOR) -> NDArray[np.float64]:
    """Logits (J,) from rows that all have one label: what `ClassifierLogits` gives around a classifier that saw nothing else."""
    return _logits(np.ones((1, 1)), "probabilities", _columns(classes, np.asarray([label])), floor)[0]


def _columns(classes: Array, seen: Array) -> NDArray[np.int64]:
    """The place of each class among those seen, −1 where it is not among them."""
    labels, place = classes.tolist(), {label: i for i, label in enumerate(np.asarray(seen).tolist())}
    if classes.ndim != 1 or len(labels) < 2 or len(set(labels)) < len(labels):
        raise ValueError(
            f"Classes must be two or more labels in one axis, each once; got shape {classes.shape}: pass np.unique(y)."
        )
    if unknown := set(place) - set(labels):
        raise ValueError(
            f"Classes must hold all that the classifier knows; {sorted(map(str, unknown))[:5]} are missing: "
            "pass the labels of the whole problem."
        )
    return np.array([place.get(label, -1) for label in labels], np.int64)


def _logits(scores: Array, link: Link, column: Array, floor: float) -> NDArray[np.float64]:
    """Logits (N, J) from scores: log max(p, floor), less the mean of each row; or margins as they are.

    Raises:
        ValueError: when a score is NaN or infinite.
    """
    bad = np.flatnonzero(~np.isfinite(scores).all(axis=1))
    if len(bad):
        raise ValueError(
            f"A classifier's {link} must be finite; {len(bad)} of {len(scores)} rows have NaN or infinite ones, the first is row "
            f"{bad[0]}: look for such values in these rows, or fit the classifier again."
        )
    # From here on in row order, for the sum of a row depends on how it lies in memory.
    if link == "margins":
        margins = np.ascontiguousarray(scores)
        if margins.shape[1] == 1:
            margins = np.concatenate([-margins / 2, margins / 2], axis=1)
        # As with probabilities, where the others have one together.
        unseen = logsumexp(margins, axis=1, keepdims=True) + np.log(floor)
        return np.where(column >= 0, margins[:, column], unseen)
    p = np.ascontiguousarray(probabilities(scores, link))
    log_p = np.ascontiguousarray(np.where(column >= 0, np.log(np.maximum(p, floor))[:, column], np.log(floor)))
    return log_p - log_p.mean(axis=1, keepdims=True)
