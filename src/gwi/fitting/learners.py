"""Learners of means: each is trained on the rows and judged on rows it has not seen.

All work on standardised rows and targets. What differs between tasks, they ask of the `Task`.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from typing import Any

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from gwi.core.means import ConvexMean, FixedMean, KernelMean, ModuleMean, OriginalRowsMean, titsias_coefficients
from gwi.core.networks import EnsembleMLP
from gwi.core.prior import PriorFit
from gwi.core.row_sums import row_sums
from gwi.fitting.data import FitData, FitOptions
from gwi.fitting.sklearn_learner import Pending, estimator_learner
from gwi.fitting.task import Member, NetworkSize, Task
from gwi.parts import Frozen, Network


def name_of(item: Any) -> str:
    """What a mean is called in the summary."""
    if isinstance(item, Network):
        return "network"
    item = item.module if isinstance(item, Frozen) else item
    return item if isinstance(item, str) else getattr(item, "__name__", type(item).__name__)


def learn(
    item: Any, data: FitData, task: Task, prior: PriorFit, basis: Float[Tensor, "M D"], options: FitOptions, place: int
) -> Member | Pending:
    """Train, or ask, one mean of any kind that the estimators take.

    Args:
        item: one of the task's names, a part, a module, a predictor of scikit-learn's kind, or a callable.
        data: rows to learn from and to be judged on.
        task: what is learned.
        prior: for kernel means.
        basis: centres of a kernel mean's basis functions.
        options: of the fit.
        place: of the mean among those that are learned, which names its checkpoint.
    """
    name = name_of(item)
    if isinstance(item, Network):
        return network_learner(data, task, item, options, place)
    if isinstance(item, str) and item in task.names:
        if item == "network":
            return network_learner(data, task, Network(), options, place)
        return task.learn_named(item, data, prior, basis, options, place)
    if isinstance(item, Frozen) or (isinstance(item, nn.Module) and options.freeze):
        module = item.module if isinstance(item, Frozen) else item
        # A copy: the posterior holds its parts still, and the user's network keeps its flags.
        return frozen_learner(ModuleMean(copy.deepcopy(module).eval()), "a frozen network", data, task, name)
    if isinstance(item, nn.Module):
        return module_learner(item, data, task, options, name, place)
    if task.is_predictor(item):
        try:
            check_is_fitted(item)
        except NotFittedError:
            return estimator_learner(item, data, task, name=name)
        return frozen_learner(FixedMean(task.plain(item)), f"the fitted {name}", data, task, name)
    if callable(item) and not hasattr(item, "fit"):
        return frozen_learner(FixedMean(item), "a function", data, task, name)
    raise ValueError(f"mean is {task.wanted}; got {item!r}.")


@torch.no_grad()
def kernel_member(
    name: str,
    data: FitData,
    prior: PriorFit,
    basis: Float[Tensor, "M D"],
    kernels: Sequence[Kernel],
    noises: Sequence[Float[Tensor, ...] | float],
) -> Member:
    """The sparse (Z ⊂ X) or exact (Z = X) GP mean; out-of-fold means come from differences of sums, or from folds' own priors.

    Args:
        name: for the summary.
        data: rows and targets.
        prior: whose folds have priors of their own, or have none.
        basis: Z of the mean.
        kernels: k, and that of each fold's own prior.
        noises: σ² of each row or of all, and that of each fold's own prior.
    """
    start = time.perf_counter()
    own = bool(prior.without_folds)
    whole, without = data.sums(kernels[0], basis, noises[0], folds=not own)
    mean = KernelMean(kernels[0], basis, titsias_coefficients(whole))
    fold_means = [KernelMean(kernels[0], basis, titsias_coefficients(sums)) for sums in without]
    if own:
        for (_, others), kernel, noise in zip(data.held_out.splits(), kernels[1:], noises[1:], strict=True):
            fold_means.append(_exact_mean(data, basis, others, kernel, noise))
    return Member(name, mean, data.held_out.predicted(mean, fold_means), time.perf_counter() - start)


def _exact_mean(data: FitData, basis: Tensor, rows: Tensor, kernel: Kernel, noise: Tensor | float) -> KernelMean:
    """The kernel mean of some of the rows; on themselves where the basis are all rows."""
    z = data.x[rows] if basis is data.x else basis
    sums = row_sums(kernel, z, data.x[rows], data.y[:, rows], noise_variance=(noise / data.weight)[..., rows])
    return KernelMean(kernel, z, titsias_coefficients(sums))


def network_learner(data: FitData, task: Task, part: Network, options: FitOptions, place: int, name: str = "network") -> Member:
    """Networks that each leave one fold out, trained all at once; their average is the mean."""
    start = time.perf_counter()
    size = _size(part, task.network_size(data.num_rows))
    network = EnsembleMLP(
        data.x.shape[1],
        data.y.shape[0],
        num_members=size.per_fold * max(data.held_out.num_folds, 1),
        hidden=size.hidden,
        generator=data.generator,
    ).to(data.x.device, options.network_dtype)
    fold_means = data.train_ensemble(network, task.loss, size.num_steps, name, place, options.report)
    mean = ModuleMean(network)
    return Member(name, mean, data.held_out.predicted(mean, fold_means), time.perf_counter() - start)


def _size(part: Network, usual: NetworkSize) -> NetworkSize:
    return NetworkSize(
        num_steps=usual.num_steps if part.num_steps == "auto" else part.num_steps,
        hidden=usual.hidden if part.hidden == "auto" else tuple(part.hidden),
        per_fold=usual.per_fold if part.per_fold == "auto" else part.per_fold,
    )


def module_learner(module: nn.Module, data: FitData, task: Task, options: FitOptions, name: str, place: int) -> Member:
    """A user's own network, trained by the task's loss: a copy for each fold, and one on all rows."""
    start = time.perf_counter()
    # Small networks need, and bear, longer steps.
    learning_rate = 1e-2 if sum(p.numel() for p in module.parameters()) < 5000 else 3e-3
    with torch.no_grad():
        task.require_outputs(ModuleMean(copy.deepcopy(module).eval())(data.x[:2]), len(data.y))
    mean, fold_means = data.train_module(
        lambda: ModuleMean(copy.deepcopy(module)),
        task.loss,
        task.num_epochs(len(data.x)),
        learning_rate,
        name,
        place,
        options.report,
    )
    return Member(name, mean, data.held_out.predicted(mean, fold_means), time.perf_counter() - start)


def frozen_learner(mean: nn.Module, what: str, data: FitData, task: Task, name: str) -> Member:
    """A mean of rows in the user's own units that is only asked."""
    start = time.perf_counter()
    what = what[0].upper() + what[1:]
    if data.held_out.may_be_known:
        raise ValueError(
            f"{what} may have seen the training rows, so they cannot judge its errors. "
            "Pass rows it has not seen: fit(X, y, validation=(X_unseen, y_unseen))."
        )
    with torch.no_grad():
        task.require_outputs(OriginalRowsMean(mean, data.scales)(data.held_out.x[:2]), len(data.y), what)
    mean = task.in_own_units(mean, data.scales)
    return Member(name, mean, data.held_out.predicted(mean), time.perf_counter() - start)


def stack(means: Sequence[nn.Module], weights: Float[Tensor, "J K"]) -> nn.Module:
    """The convex combination, without members whose weight is zero for every output."""
    used = [i for i in range(len(means)) if (weights[:, i] > 1e-6).any()]
    if len(used) == 1:
        return means[used[0]]
    return ConvexMean([means[i] for i in used], weights[:, used] / weights[:, used].sum(1, keepdim=True))
