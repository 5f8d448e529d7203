"""Which means ``"auto"`` stacks, decided before anything is fitted from the size of the table and the effort allowed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sklearn.base import clone
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)

from gwi.fitting.effort import Effort
from gwi.fitting.hyperparameters import is_wide
from gwi.fitting.tree_learners import Boosting, JudgedForest

# Below so many rows a regression is the exact GP and a linear model: with 30 rows of eight practice tables they have 0.03 nats
# less than the GP alone. Inside training rows of seven tables the stack is better from 60 rows on, in gaps above all
# (`benchmarks/studies/small_tables.py`); with fewer no one would know which member to believe.
STACKED_FROM = 50
# Below so many rows a classification is a GP and a linear model.
CLASSES_STACKED_FROM = 250
# Above so many trees are larger and fewer, and above the next number there are none: they grow to gigabytes.
LARGE = 20_000
MANY_ROWS = 100_000
# In a wide table trees try so many columns at a split, and boosting, which tries all, joins while the table has so few numbers.
SPLIT_COLUMNS, BOOSTED_NUMBERS = 500, 100_000
# With little time there are no fewer trees in a forest, and rounds of boosting, than these.
FEWEST_TREES, FEWEST_ROUNDS = 25, 40


def regression_members(num_rows: int, num_features: int) -> list[Any]:
    """A handful of rows: the exact GP and a linear model. More: networks, boosting and trees beside them."""
    if num_rows < STACKED_FROM:
        return ["svgp"] if is_wide(num_rows, num_features) else ["svgp", "linear"]
    if is_wide(num_rows, num_features):
        return ["svgp", "lasso", *_wide_members(num_rows, num_features, HistGradientBoostingRegressor, ExtraTreesRegressor)]
    # Trees grow with the table: inside training rows 15 leaves are best at a thousand rows, 63 at ten thousand, and at forty
    # thousand 127 have six sevenths of the error of 15. Half as many rounds of twice the step are level.
    leaves, rounds = (15, 300) if num_rows < 3000 else (63, 400) if num_rows <= LARGE else (127, 350)
    rate = 0.1
    if num_rows > MANY_ROWS:
        # Of a function with steps 160,000 rows are learned as well so, in a sixth of the time of 700 rounds of 127 leaves.
        leaves, rounds, rate = 63, 150, 0.2
    boosting = HistGradientBoostingRegressor(
        max_iter=rounds, learning_rate=rate, max_leaf_nodes=leaves, min_samples_leaf=10, early_stopping=False
    )
    # A forest has as many leaves a tree as there are rows, and is kept in memory and in the model's file. On practice tables 300
    # trees err at most half a percent less than 200.
    num_trees = 200 if num_rows < 3000 else 120 if num_rows <= LARGE else 50
    trees = ExtraTreesRegressor(num_trees, min_samples_leaf=1, max_features=1.0 if num_features < 10 else 0.6)
    members: list[Any] = ["svgp", "linear", "network", boosted(boosting)]
    return members if num_rows > MANY_ROWS else [*members, forest(trees)]


def _wide_members(num_rows: int, num_features: int, boosting: type[Any], trees: type[Any]) -> list[Any]:
    """Trees that are cheap with any number of columns. Networks learn the noise of so many, and took most of the time."""
    few = forest(trees(100, max_features=min(0.6, SPLIT_COLUMNS / num_features)))
    if num_rows * num_features > BOOSTED_NUMBERS:
        return [few]
    return [boosted(boosting(max_iter=100, max_leaf_nodes=15, min_samples_leaf=10, early_stopping=False)), few]


def forest(estimator: Any) -> JudgedForest:
    """A forest as our own plan grows it."""
    return JudgedForest(estimator, type(estimator).__name__)


def boosted(estimator: Any) -> Boosting:
    """Boosting as our own plan grows it."""
    return Boosting(estimator, type(estimator).__name__)


def linked_members(num_rows: int, num_features: int, family: str) -> list[Any]:
    """Of other likelihoods: as in regression, with the losses of boosting that belong to the likelihood."""
    if num_rows < STACKED_FROM:
        return ["svgp"] if is_wide(num_rows, num_features) else ["svgp", "linear"]
    if is_wide(num_rows, num_features):
        return ["svgp", *_wide_members(num_rows, num_features, HistGradientBoostingRegressor, ExtraTreesRegressor)]
    loss = {"poisson": "poisson", "negative-binomial": "poisson", "gamma": "gamma"}.get(family, "squared_error")
    # Likelihoods that leave much to chance ask for smoother trees than least squares of nearly noiseless numbers.
    leaves, rounds = (7, 150) if num_rows < 3000 else (15, 250) if num_rows <= LARGE else (63, 300)
    boosting = HistGradientBoostingRegressor(
        loss=loss, max_iter=rounds, learning_rate=0.1, max_leaf_nodes=leaves, min_samples_leaf=20, early_stopping=False
    )
    members: list[Any] = ["svgp", "linear", "network", boosted(boosting)]
    if num_rows > MANY_ROWS:
        return members
    num_trees = 200 if num_rows <= LARGE else 50
    # Whole trees: on practice tables leaves of one to five rows are alike, and rows that come again ask for whole ones.
    leaf = 1 if family in ("few-valued", "gamma", "beta") else 5
    trees = ExtraTreesRegressor(num_trees, min_samples_leaf=leaf, max_features=1.0 if num_features < 10 else 0.6)
    return [*members, forest(trees)]


def classification_members(num_rows: int, num_features: int, num_classes: int) -> list[Any]:
    """A GP and a linear model; from some hundred rows on networks, boosting and, while cheap, trees beside them."""
    if num_rows < CLASSES_STACKED_FROM:
        return ["svgp", "linear"]
    if is_wide(num_rows, num_features):
        wide = _wide_members(num_rows * num_classes, num_features, HistGradientBoostingClassifier, ExtraTreesClassifier)
        return ["svgp", "linear", *wide]
    # Boosting grows one tree a class and round: many classes get fewer rounds. With 3,000 to 8,000 rows 15 leaves are better than
    # 31 on two practice tables with two classes; on those with more classes 31 are.
    rounds = 150 if num_classes < 5 else 60
    few_rows = 3000 if num_classes > 2 else 10_000
    leaves = 15 if num_rows < few_rows else 31 if num_rows <= LARGE else 127
    boosting = HistGradientBoostingClassifier(max_iter=rounds, learning_rate=0.1, max_leaf_nodes=leaves, early_stopping=False)
    trees = ExtraTreesClassifier(100 if num_rows <= LARGE else 50)
    members: list[Any] = ["svgp", "linear", "network", boosted(boosting)]
    return members if num_rows > MANY_ROWS else [*members, forest(trees)]


def lessened(members: Sequence[Any], effort: Effort) -> list[Any]:
    """The members with as much work for each as the effort allows."""
    found: list[Any] = []
    for item in members:
        if item == "network" and effort.network_steps == 0:
            continue
        if isinstance(item, JudgedForest):
            item = forest(_with_share(item.estimator, "n_estimators", effort.trees, FEWEST_TREES))
        elif isinstance(item, Boosting):
            item = boosted(_with_share(item.estimator, "max_iter", effort.trees, FEWEST_ROUNDS))
        found.append(item)
    return found


def _with_share(estimator: Any, name: str, share: float, fewest: int) -> Any:
    count = estimator.get_params()[name]
    return clone(estimator).set_params(**{name: min(count, max(fewest, round(share * count)))})
