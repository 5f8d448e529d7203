"""Fitted classifiers of every kind that a model file holds, and rows for them."""

import warnings
from functools import cache

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, RidgeClassifier, SGDClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from gwi.predictors.logits import PlainClassifier

TREES = {
    "histogram boosting": HistGradientBoostingClassifier(max_iter=5, max_leaf_nodes=6, min_samples_leaf=5),
    "gradient boosting": GradientBoostingClassifier(n_estimators=3, random_state=0),
    "gradient boosting from zero": GradientBoostingClassifier(n_estimators=3, init="zero", subsample=0.7, random_state=0),
    "extra trees": ExtraTreesClassifier(6, random_state=0),
    "random forest": RandomForestClassifier(6, max_leaf_nodes=9, class_weight="balanced", random_state=0),
    "decision tree": DecisionTreeClassifier(max_depth=4, ccp_alpha=0.001, random_state=0),
}
LINEAR = {
    "logistic regression": LogisticRegression(),
    "logistic regression by cross-validation": LogisticRegressionCV(
        Cs=2, cv=2, l1_ratios=(0.0,), use_legacy_attributes=False, scoring="neg_log_loss"
    ),
    "discriminant analysis": LinearDiscriminantAnalysis(),
    "discriminant analysis with shrinkage": LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"),
}
MARGINS = {
    "hinge loss by gradient descent": SGDClassifier(random_state=0, average=True),
    "ridge": RidgeClassifier(),
    "ridge without intercept": RidgeClassifier(fit_intercept=False),
    "support vectors": LinearSVC(random_state=0),
    "support vectors without intercept": LinearSVC(random_state=0, fit_intercept=False),
}
PROBABLE = TREES | LINEAR
ALL = PROBABLE | MARGINS
LOADERS = {"iris": load_iris, "wine": load_wine, "breast cancer": load_breast_cancer, "digits": load_digits}


@cache
def table(data):
    """200 standardised rows with labels, and 100 rows beside them."""
    x, y = LOADERS[data](return_X_y=True)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(y))[:200]
    x, y = StandardScaler().fit_transform(x)[order], y[order]
    return x, y, x[:100] + 0.3 * rng.normal(size=x[:100].shape)


@cache
def fitted(name, data="wine"):
    x, y, _ = table(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clone(ALL[name]).fit(x, y)


def same_bits(a, b):
    return a.shape == b.shape and a.dtype == b.dtype == np.float64 and a.tobytes() == b.tobytes()


def there_and_back(held):
    return PlainClassifier.from_arrays(held.arrays())


class Given(ClassifierMixin, BaseEstimator):
    """A classifier whose every row of X is its answer."""

    def __init__(self, classes, method="predict_proba"):
        self.classes_ = np.asarray(classes)
        setattr(self, method, lambda rows: rows)
