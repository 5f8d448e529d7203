"""Scores of fitted scikit-learn classifiers as plain numbers, from trees and linear models; and their links.

| link | scores (N, C) become probabilities (N, K) of the K classes of the fit |
| --- | --- |
| probabilities | they are |
| logits | C = 1, K = 2: 1 − p and p = 1 / (1 + exp(−score)); else exp(score), each row divided by its sum |
| margins | they do not: the scores themselves are compared; one margin is that of the second of two classes |
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import ClassifierMixin
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, RidgeClassifier, SGDClassifier
from sklearn.svm import LinearSVC
from sklearn.utils.extmath import softmax

from gwi.predictors.linear import Predictor, plain_linear
from gwi.predictors.trees import Trees, plain_trees

Link = Literal["probabilities", "logits", "margins"]
LINKS: tuple[Link, ...] = get_args(Link)

_LOGISTIC = (LogisticRegression, LogisticRegressionCV)
_LINEAR = (*_LOGISTIC, LinearDiscriminantAnalysis, SGDClassifier, RidgeClassifier, LinearSVC)


def probabilities(scores: NDArray[np.float64], link: Link) -> NDArray[np.float64]:
    """Probabilities (N, K) of the classes of the fit from scores (N, C) and any link but margins."""
    if link == "probabilities":
        return scores
    if scores.shape[1] > 1:
        return softmax(scores)
    second = expit(scores[:, 0])
    return np.stack([1 - second, second], axis=1)


def plain_scores(estimator: Any) -> tuple[Predictor, Link] | None:
    """Scores of a fitted classifier and their link, or None when it is of a kind that we cannot hold as plain numbers.

    A subclass may predict otherwise, so types are held exactly. Nodes of trees are shared with the estimator, not copied.

    Raises:
        NotFittedError: when the estimator is of a kind that can be held and not fitted.
    """
    if not isinstance(estimator, ClassifierMixin):
        return None
    scores = plain_linear(estimator) if type(estimator) in _LINEAR else plain_trees(estimator)
    if scores is None or has_several_targets(estimator):
        return None
    if isinstance(scores, Trees) and scores.kind == "forest":
        return scores, "probabilities"
    link = "logits" if isinstance(scores, Trees) else _linear_link(estimator)
    # Boosting of one class has scores all the same.
    return None if link is None or len(estimator.classes_) < 2 else (scores, link)


def _linear_link(estimator: Any) -> Link | None:
    kind, many = type(estimator), len(estimator.classes_) > 2
    if kind in _LOGISTIC:
        # Up to scikit-learn 1.7 these choices could give other links.
        unusual = getattr(estimator, "multi_class", "auto") not in ("auto", "deprecated")
        return None if unusual or (many and estimator.solver == "liblinear") else "logits"
    if kind is SGDClassifier and estimator.loss == "log_loss":
        # With more than two classes each is against the rest, and no softmax gives their probabilities.
        return None if many else "logits"
    if kind is LinearDiscriminantAnalysis:
        return "logits"
    # The modified Huber loss has probabilities of its own.
    return None if hasattr(estimator, "predict_proba") else "margins"


def has_several_targets(estimator: Any) -> bool:
    """Whether a classifier was fitted to several targets, or to several labels a row."""
    several_labels = getattr(getattr(estimator, "_label_binarizer", None), "y_type_", "").startswith("multilabel")
    return isinstance(estimator.classes_, list) or several_labels or bool(getattr(estimator, "multilabel_", False))
