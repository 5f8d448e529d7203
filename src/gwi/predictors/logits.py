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

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.exceptions import NotFittedError

from gwi.predictors.decision import (
    LINKS,
    Link,
    Scores,
    TreeScores,
    checked,
    has_several_targets,
    plain_scores,
    probabilities,
    read_scores,
    score_arrays,
    score_tag,
)
from gwi.predictors.trees import Array, Arrays, Forest

# A class that a forest's trees all vote against has probability zero and a logit of −∞; one wrong row would cost everything.
# At 10⁻⁴ a wrong row costs 9.2 nats and a right one at most J · 10⁻⁴, which is less than a table of some 10⁴ rows can tell from
# zero. One vote in a forest of up to 10⁴ trees with pure leaves stays above it, so that no vote is taken for none. A single
# tree is never so sure with reason: pass 10⁻² with one.
PROBABILITY_FLOOR = 1e-4


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
        is_probability = hasattr(self.estimator, "predict_proba")
        values = np.asarray((self.estimator.predict_proba if is_probability else self.estimator.decision_function)(X))
        if num_seen == 1:
            # Some classifiers answer for a second class that is not there; there is nothing to compare.
            return _from_probabilities(np.ones((len(values), 1)), column, self.floor)
        values = values[:, None] if values.ndim == 1 else values
        wanted = {1, 2} if num_seen == 2 and not is_probability else {num_seen}
        if values.ndim != 2 or values.shape[1] not in wanted:
            raise ValueError(
                f"A classifier of {num_seen} classes must give as many columns; {type(self.estimator).__name__} gave shape "
                f"{values.shape}: pass one of a single target, with one score a class."
            )
        return (_from_probabilities if is_probability else _from_margins)(values, column, self.floor)

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

    scores: Scores
    link: Link
    column: Array = field(repr=False)
    floor: float

    @property
    def num_features(self) -> int:
        """Columns of a row."""
        return self.scores.num_features

    @property
    def num_classes(self) -> int:
        """J."""
        return len(self.column)

    def predict(self, X: Array) -> NDArray[np.float64]:
        """Logits (N, J) at the rows of X.

        Raises:
            ValueError: when X has not the columns of the rows in fitting, or X or a score is NaN or infinite.
        """
        if np.ndim(X) != 2 or np.shape(X)[1] != self.num_features:
            raise ValueError(
                f"Rows must have the {self.num_features} columns that the classifier was fitted on; got shape {np.shape(X)}: "
                "pass them all."
            )
        # Trees send NaN one way; a saturated activation would hide infinity.
        if not isinstance(self.scores, TreeScores | Forest) and not np.isfinite(X).all():
            raise ValueError(
                "Rows must be finite for linear models and networks; got NaN or infinity: fill or leave out such rows."
            )
        # What overflows is not finite, and that is asked below.
        with np.errstate(over="ignore", invalid="ignore"):
            scores = self.scores.predict(X)
            scores = scores[:, None] if scores.ndim == 1 else scores
            if self.link == "margins":
                return _from_margins(scores, self.column, self.floor)
            return _from_probabilities(probabilities(scores, self.link), self.column, self.floor)

    def arrays(self) -> dict[str, Array]:
        """What `from_arrays` takes.

        Raises:
            ValueError: when it would not take them, as with scores that are not finite.
        """
        kind = score_tag(self.scores)
        arrays = {f"{kind}.{name}": array for name, array in score_arrays(self.scores).items()}
        own = {
            "column": self.column.copy(),
            "link": np.array(LINKS.index(self.link), np.int64),
            "floor": np.array(self.floor, np.float64),
        }
        return own | arrays

    @staticmethod
    def from_arrays(arrays: Arrays) -> PlainClassifier:
        """The classifier that these arrays describe.

        Raises:
            ValueError: when they describe none.
        """
        wanted = {"column": (np.int64, 1), "link": (np.int64, 0), "floor": (np.float64, 0)}
        own = checked({name: array for name, array in arrays.items() if name in wanted}, wanted)
        column, link, floor = own["column"], own["link"], own["floor"]
        _require(0 <= link < len(LINKS), f"a link below {len(LINKS)}", link)
        _require(0 < floor < 1, "a floor between 0 and 1", floor)
        others = {name.partition(".")[::2]: array for name, array in arrays.items() if name not in wanted}
        kinds = {kind for kind, _ in others}
        _require(len(kinds) == 1, "arrays of one kind of scores", ", ".join(map(repr, sorted(kinds))) or "none")
        scores = read_scores(kinds.pop(), {name: array for (_, name), array in others.items()})
        num_scores, is_single = scores.num_outputs, LINKS[link] in ("logistic", "margins") and scores.num_outputs == 1
        _require(is_single or LINKS[link] != "logistic", "one score for the logistic link", num_scores)
        num_seen = 2 if is_single else num_scores
        # Compared, not counted: entries of a file may be of any size.
        seen = np.sort(column[column >= 0])
        fits = len(column) > 1 and (column >= -1).all() and np.array_equal(seen, np.arange(num_seen))
        _require(fits, f"column with −1 and each number below {num_seen} once", f"{len(column)} others")
        return PlainClassifier(scores, LINKS[link], column, float(floor))


def plain_classifier(estimator: Any, classes: Array, floor: float = PROBABILITY_FLOOR) -> PlainClassifier | None:
    """Logits of a fitted classifier from plain arrays, or None when it is of a kind that these cannot hold.

    Held are exactly these types, with one target: `HistGradientBoostingClassifier` (without categorical features),
    `GradientBoostingClassifier` (log loss, started from a constant), `ExtraTreesClassifier`, `RandomForestClassifier`,
    `DecisionTreeClassifier`, `ExtraTreeClassifier`, `LogisticRegression`, `LogisticRegressionCV`,
    `LinearDiscriminantAnalysis`, `RidgeClassifier`, `LinearSVC`, `SGDClassifier` (any loss but the modified Huber) and
    `MLPClassifier`. On float64 rows they equal those of `ClassifierLogits` to the last bit, or nearly: a matrix product of
    another memory order may round otherwise.

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
    return _from_probabilities(np.ones((1, 1)), _columns(classes, np.asarray([label])), floor)[0]


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


def _from_probabilities(p: Array, column: Array, floor: float) -> NDArray[np.float64]:
    """log max(p, floor) in J columns from probabilities (N, K), less the mean of each row."""
    p = _finite(p, "probabilities")
    log_p = np.where(column >= 0, np.log(np.maximum(p, floor))[:, column], np.log(floor))
    # In row order, for the sum of a row depends on how it lies in memory.
    log_p = np.ascontiguousarray(log_p)
    return log_p - log_p.mean(axis=1, keepdims=True)


def _from_margins(margins: Array, column: Array, floor: float) -> NDArray[np.float64]:
    """Margins (N, K), or (N, 1) of the second of two classes, in J columns."""
    margins = _finite(margins, "margins")
    if margins.shape[1] == 1:
        margins = np.concatenate([-margins / 2, margins / 2], axis=1)
    # As with probabilities, where the others have one together.
    unseen = logsumexp(margins, axis=1, keepdims=True) + np.log(floor)
    return np.where(column >= 0, margins[:, column], unseen)


def _finite(values: Array, what: str) -> NDArray[np.float64]:
    """In float64 and row order, so that equal numbers give equal bits from here on."""
    values = np.ascontiguousarray(values, np.float64)
    bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if len(bad):
        raise ValueError(
            f"A classifier's {what} must be finite; {len(bad)} of {len(values)} rows have NaN or infinite ones, the first is row "
            f"{bad[0]}: look for such values in these rows, or fit the classifier again."
        )
    return values


def _require(holds: Any, wanted: str, came: object) -> None:
    if not holds:
        raise ValueError(
            f"Classifiers need {wanted}; got {came}: the arrays are damaged or of another kind, so save the model again."
        )
