"""Which means, and with which weights: the plan, the learner of each kind of mean, and stacking."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.optimize import nnls
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from gwi._typing import Array
from gwi.core.means import ConvexMean, FixedMean, ModuleMean, SumMean
from gwi.core.prior import PriorFit
from gwi.core.scaling import RescaledMean
from gwi.fitting.learners import Task, Trained, frozen_learner, kernel_learner, module_learner, network_learner
from gwi.fitting.sklearn_learner import Pending, estimator_learner
from gwi.predictors.linear import plain_predictor

# Below so many rows "auto" is the exact GP alone: inside training rows of seven tables the stack is better from 60 rows on, in
# gaps above all (`benchmarks/studies/small_tables.py`); with fewer no one would know which member to believe.
FEW_ROWS = 50
# Above so many trees are larger and fewer, and above the next number there are none: they grow to gigabytes.
LARGE = 20_000
MANY_ROWS = 100_000
# Of the weights of a stack towards equal ones: inside training rows of eight tables 0.1 lowered the error in gaps by 1–4 % on
# four of seven and cost at most 0.7 % anywhere.
SHRINKAGE = 0.1
# A network of the user's own sees so many rows in training, in no fewer and no more epochs than these.
SEEN_ROWS, FEWEST_EPOCHS, MOST_EPOCHS = 300_000, 30, 600
# Rows that judge without folds of their own get so many for the weights; below so many rows the weights of all serve.
NUM_WEIGHT_FOLDS, FEWEST_CROSS_FITTED = 5, 20
NAMES = ("svgp", "svgp-all", "network", "svgp+network")


@dataclass(frozen=True)
class Plan:
    """What ``"auto"`` will do, decided before anything is fitted.

    Attributes:
        means: in the order in which they are learned.
        seconds: the estimate for one core, covariance and noise included.
    """

    means: tuple[Any, ...]
    seconds: float


def plan(num_rows: int, num_features: int, max_time: float | None) -> Plan:
    """The means that ``"auto"`` tries, from the size of the table and the time allowed.

    A handful of rows: the exact GP alone, judged by folds at no cost. More: a stack of GP, networks, boosting and, while cheap,
    trees; with too little time for all, the members that gain least for their time are left out first, the GP never.
    """
    # Trees grow with the table: measured inside training rows, 15 leaves are best at a thousand rows, 63 at ten thousand, and at
    # forty thousand 127 have six sevenths of the error of 15.
    leaves, rounds = (15, 500) if num_rows < 3000 else (63, 500) if num_rows <= LARGE else (127, 700)
    boosting = HistGradientBoostingRegressor(
        max_iter=rounds, learning_rate=0.05, max_leaf_nodes=leaves, min_samples_leaf=10, early_stopping=False
    )
    # A forest has as many leaves a tree as there are rows, and is kept in memory and in the model's file.
    num_trees = 300 if num_rows <= LARGE else 50
    trees = ExtraTreesRegressor(num_trees, min_samples_leaf=1, max_features=1.0 if num_features < 10 else 0.6)
    means: list[Any] = ["svgp"]
    if num_rows >= FEW_ROWS:
        means += ["network", boosting] if num_rows > MANY_ROWS else ["network", boosting, trees]
    droppable = [item for item in (trees, "network", boosting) if item in means]
    seconds = estimated_seconds(means, num_rows, num_features)
    while max_time is not None and droppable and seconds > max_time:
        means.remove(droppable.pop(0))
        seconds = estimated_seconds(means, num_rows, num_features)
    return Plan(tuple(means), seconds)


def estimated_seconds(means: Sequence[Any], num_rows: int, num_features: int) -> float:
    """What a fit takes on one core of an ordinary machine, to a factor of two; measured in `benchmarks/studies/plan_costs.py`."""
    n, d = num_rows, num_features
    cubic = (n / 1500) ** 3
    exact = n <= 2000
    prior_and_noise = 0.5 + min(n / 300, 4.0) * (1 + d / 16) + 5e-5 * n + (4.0 * cubic if exact else 1.5)
    network = 4.0 if n < 600 else 9.0 if n < 3000 else 17.0
    costs = {
        "svgp": 3.5 * cubic if exact else 0.5 + 3.5e-4 * n,
        "network": network + 2e-5 * n,
        "HistGradientBoostingRegressor": (4.0 if n < 3000 else 12.0 if n <= LARGE else 40.0) + 0.1 * d + 1e-5 * n * d,
        "ExtraTreesRegressor": 1.0 + (1e-4 if n <= LARGE else 2e-5) * n * math.log2(n + 1) * math.sqrt(d),
    }
    return prior_and_noise + sum(costs[name_of(item)] for item in means)


def name_of(item: Any) -> str:
    """What a mean is called in the summary."""
    return item if isinstance(item, str) else getattr(item, "__name__", type(item).__name__)


def learn(item: Any, task: Task, prior: PriorFit, basis: Float[Tensor, "M D"], freeze: bool) -> Trained | Pending:
    """Train, or ask, one mean of any kind that the estimator takes; fits that can be done apart are left pending.

    Args:
        item: one of `NAMES`, a module, a scikit-learn regressor, or a callable.
        task: rows to learn from and to be judged on.
        prior: for kernel means.
        basis: centres of a kernel mean's basis functions.
        freeze: take a module as it is.
    """
    name = name_of(item)
    if isinstance(item, str) and item in NAMES:
        if item == "network":
            return network_learner(task, **_network_size(task.num_rows))
        if item == "svgp-all" and task.stream is not None:
            raise ValueError(
                'mean="svgp-all" has a basis function for every row, which rows from a stream are too many for; use "svgp".'
            )
        kernel = kernel_learner(prior, task.x if item == "svgp-all" else basis, task, name)
        if item != "svgp+network":
            return kernel
        if task.stream is None:
            fitted = kernel.mean(task.x).detach() if task.fold is None else kernel.judged
            rest = network_learner(replace(task, y=task.y - fitted), **_network_size(len(task.x)))
        else:
            rest = network_learner(task, **_network_size(task.num_rows), rule=lambda x, y: y - kernel.mean(x))
        return Trained(name, SumMean([kernel.mean, rest.mean]), kernel.judged + rest.judged, kernel.seconds + rest.seconds)
    if isinstance(item, nn.Module):
        if not freeze:
            num_epochs = max(FEWEST_EPOCHS, min(MOST_EPOCHS, SEEN_ROWS // len(task.x)))
            return module_learner(item, task, num_epochs=num_epochs, name=name)
        # A copy: the posterior holds its parts still, and the user's network keeps its flags.
        return _frozen(ModuleMean(copy.deepcopy(item).eval()), "a frozen network", task, name)
    if hasattr(item, "fit") and hasattr(item, "predict"):
        try:
            check_is_fitted(item)
        except NotFittedError:
            return estimator_learner(item, task, name=name)
        return _frozen(FixedMean(plain_predictor(item) or item), f"the fitted {name}", task, name)
    if callable(item):
        return _frozen(FixedMean(item), "a function", task, name)
    raise ValueError(
        'mean is "auto", "svgp", "svgp-all", "network", "svgp+network", a torch module, a scikit-learn regressor, a callable, '
        f"or a list of these; got {item!r}."
    )


def _frozen(mean: nn.Module, what: str, task: Task, name: str) -> Trained:
    if task.judges_may_be_known:
        raise ValueError(
            f"{what[0].upper()}{what[1:]} may have seen the training rows, so they cannot judge its errors. "
            "Pass rows it has not seen: fit(X, y, validation=(X_unseen, y_unseen))."
        )
    return frozen_learner(RescaledMean(mean, task.scales), task, name=name)


def _network_size(num_rows: int) -> dict[str, Any]:
    if num_rows < 600:
        return {"num_steps": 1000, "hidden": (64, 64), "per_fold": 2}
    return {"num_steps": 2500 if num_rows < 3000 else 5000, "hidden": (128, 128), "per_fold": 1}


def convex_weights(
    judged: Float[Tensor, "K V"], y: Float[Tensor, " V"], sample_weight: Float[Tensor, " V"], shrinkage: float = SHRINKAGE
) -> Float[Tensor, " K"]:
    """w ≥ 0, Σ w = 1 that minimise mean (y − Σ w_k m_k)² + λ s² ‖w − 1/K‖² on rows the means have not seen.

    s² is what is left at λ = 0. Rows that are alike to those learned from favour one or two means; new rows may not be alike, and
    equal weights are the safer the less is lost by them.

    Args:
        judged: predictions of each mean.
        y: targets.
        sample_weight: of each row.
        shrinkage: λ.
    """
    errors = ((y - judged) * sample_weight.sqrt()).mT.cpu().numpy() / len(y) ** 0.5
    num_means = errors.shape[1]
    # Non-negative least squares on the errors, ‖E w‖², with Σ w = 1 as one heavy row.
    heavy = 1e3 * max(float(np.abs(errors).max()) * len(errors) ** 0.5, 1e-12)

    def solve(penalty: float) -> Array:
        rows = [errors, penalty * np.eye(num_means), np.full((1, num_means), heavy)]
        target = np.concatenate([np.zeros(len(errors)), np.full(num_means, penalty / num_means), [heavy]])
        found, _ = nnls(np.concatenate(rows), target)
        return found / found.sum()

    left = float(np.linalg.norm(errors @ solve(0.0)))
    return torch.from_numpy(solve(shrinkage**0.5 * left)).to(judged)


def cross_fitted_weights(
    judged: Float[Tensor, "K V"], y: Float[Tensor, " V"], sample_weight: Float[Tensor, " V"], fold: Int[Tensor, " V"] | None
) -> tuple[Float[Tensor, " K"], Float[Tensor, "K V"]]:
    """`convex_weights`, and those of each row from other folds: weights, too, flatter the rows they are fitted to."""
    weights = convex_weights(judged, y, sample_weight)
    unseen = weights[:, None].repeat(1, len(y))
    if len(judged) > 1 and len(y) >= FEWEST_CROSS_FITTED:
        if fold is None:
            fold = torch.randperm(len(y), generator=torch.Generator().manual_seed(0)).to(y.device) % NUM_WEIGHT_FOLDS
        for k in fold.unique().tolist():
            others = fold != k
            unseen[:, ~others] = convex_weights(judged[:, others], y[others], sample_weight[others])[:, None]
    return weights, unseen


def stack(means: Sequence[nn.Module], weights: Float[Tensor, "J K"]) -> nn.Module:
    """The convex combination, without members whose weight is zero for every output."""
    used = [i for i in range(len(means)) if (weights[:, i] > 1e-6).any()]
    if len(used) == 1:
        return means[used[0]]
    return ConvexMean([means[i] for i in used], weights[:, used] / weights[:, used].sum(1, keepdim=True))
