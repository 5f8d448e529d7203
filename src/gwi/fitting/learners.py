"""Learners of means: each is trained on the rows and judged on rows it has not seen.

All work on standardised rows and targets. What differs between tasks, they ask of the `Task`.
"""

from __future__ import annotations

import copy
import operator
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter
from torch import Tensor, nn

from gwi.core.early_stopping import never
from gwi.core.handover import Handover
from gwi.core.kernels import column_relevances
from gwi.core.means import (
    ConvexMean,
    FixedMean,
    JoinedMean,
    KernelMean,
    ModuleMean,
    OriginalRowsMean,
    exact_coefficients,
    titsias_coefficients,
)
from gwi.core.measures import kernel_matrix
from gwi.core.networks import EnsembleMLP
from gwi.core.prior import PriorFit
from gwi.core.row_sums import row_sums
from gwi.core.scaling import Scales
from gwi.fitting.data import FitData, FitOptions
from gwi.fitting.jobs import OwnLearner, Pending
from gwi.fitting.race import Race
from gwi.fitting.task import Member, NetworkSize, Task
from gwi.parts import Frozen, Network, Trained
from gwi.predictors.boosters import booster_of, is_fitted, library_of

# To who brings a torch module.
TRAIN_HERE = "To have it trained on the training rows, pass gwi.Trained(module), or for classes gwi.Joint(module)."


def name_of(item: Any) -> str:
    """What a mean is called in the summary."""
    if isinstance(item, OwnLearner):
        return item.name
    if isinstance(item, Network):
        return "network"
    item = item.module if isinstance(item, Frozen | Trained) else item
    return item if isinstance(item, str) else getattr(item, "__name__", type(item).__name__)


def learn(
    item: Any,
    data: FitData,
    task: Task,
    prior: PriorFit,
    basis: Float[Tensor, "M D"],
    options: FitOptions,
    place: int,
    race: Race | None,
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
        race: what there is to beat.
    """
    name = name_of(item)
    if isinstance(item, Network):
        return network_learner(data, task, item, prior, options, place, race)
    if isinstance(item, str) and item in task.names:
        if item == "network":
            return network_learner(data, task, Network(), prior, options, place, race)
        return task.learn_named(item, data, prior, basis, options, place)
    if isinstance(item, Trained):
        return module_learner(item.module, data, task, options, name, place)
    if isinstance(item, nn.Module | Frozen):
        module = item.module if isinstance(item, Frozen) else item
        # A copy: the posterior holds its parts still, and the user's network keeps its flags.
        mean = ModuleMean(copy.deepcopy(module).eval())
        return frozen_learner(mean, "a torch module is used as it is: it", data, task, name, " " + TRAIN_HERE)
    if library_of(item) is not None and is_fitted(item):
        return frozen_learner(FixedMean(task.plain(booster_of(item))), f"the fitted {name}", data, task, name)
    if task.is_predictor(item):
        if not is_fitted(item):
            return estimator_learner(item, data, task, name=name)
        return frozen_learner(FixedMean(task.plain(item)), f"the fitted {name}", data, task, name)
    if callable(item) and not hasattr(item, "fit"):
        return frozen_learner(FixedMean(item), "a function", data, task, name)
    raise ValueError(f"mean must be {task.wanted}; got {item!r}.")


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
    # An exact GP of the others' rows is less work than sums of all rows without those of a fold.
    exact = basis is data.x and data.held_out.fold is not None
    whole, without = data.sums(kernels[0], basis, noises[0], folds=not (own or exact))
    mean = KernelMean(kernels[0], basis, titsias_coefficients(whole))
    fold_means: list[Callable[[Tensor], Tensor]] = [KernelMean(kernels[0], basis, titsias_coefficients(sums)) for sums in without]
    if own or exact:
        num_folds = data.held_out.num_folds
        own_kernels = list(kernels[1:]) if own else [kernels[0]] * num_folds
        own_noises = list(noises[1:]) if own else [noises[0]] * num_folds
        for (_, others), kernel, noise in zip(data.held_out.splits(), own_kernels, own_noises, strict=True):
            fold_means.append(_mean_of_rows(data, basis, others, kernel, noise))
    return Member(name, mean, data.held_out.predicted(mean, fold_means), time.perf_counter() - start)


def _mean_of_rows(
    data: FitData, basis: Tensor, rows: Tensor, kernel: Kernel, noise: Tensor | float
) -> Callable[[Tensor], Tensor]:
    """The kernel mean of some of the rows; on themselves where the basis are all rows."""
    x, y, variance = data.x[rows], data.y[:, rows], (noise / data.weight)[..., rows]
    if basis is data.x:
        return partial(_at, kernel, x, exact_coefficients(kernel, x, y, variance))
    return KernelMean(kernel, basis, titsias_coefficients(row_sums(kernel, basis, x, y, noise_variance=variance)))


def _at(
    kernel: Kernel, z: Float[Tensor, "M D"], coefficients: Float[Tensor, "J M"], x: Float[Tensor, "N D"]
) -> Float[Tensor, "J N"]:
    """Σ_m β_m k(x, z_m)."""
    return coefficients @ kernel_matrix(kernel, z, x)


def network_learner(
    data: FitData, task: Task, part: Network, prior: PriorFit, options: FitOptions, place: int, race: Race | None = None
) -> Member:
    """Networks that each leave one fold out, trained all at once; their average is the mean.

    Each starts from a linear path. The prior says how much each column counts: length-scales that the evidence found are the
    shortest way to the few columns that matter among many. Far outside of the training rows nothing changes.
    """
    start = time.perf_counter()
    size = _size(part, task.network_size(data.num_rows))
    if options.effort.network_steps is not None:
        size = size._replace(max_steps=min(size.max_steps, options.effort.network_steps))
    num_features, num_groups = data.x.shape[1], data.held_out.num_groups
    fits = prior.without_folds or (prior,) * num_groups
    relevances = [column_relevances(fits[min(k, len(fits) - 1)].kernel, num_features) for k in range(num_groups)]
    network = EnsembleMLP(
        num_features,
        task.num_outputs(data.y),
        num_members=size.per_fold * num_groups,
        hidden=size.hidden,
        column_scales=torch.stack(relevances).repeat(size.per_fold, 1).float(),
        span=_guarded_span(data),
        generator=data.generator,
    ).to(data.x.device, options.network_dtype)
    has_path = _start_from_linear_path(network, data, task)
    gives_up = never if race is None else race.runner(size.max_steps)
    report = options.report
    held_out = data.train_ensemble(network, task.loss, size.max_steps, not has_path, "network", place, report, gives_up)
    return Member("network", ModuleMean(network), held_out, time.perf_counter() - start)


def linear_learner(data: FitData, task: Task) -> Member:
    """The linear path alone, the average of those that each leave one fold out; it continues trends, within bounds."""
    start = time.perf_counter()
    held_out, num_groups = data.held_out, data.held_out.num_groups
    sizes, span = (data.x.shape[1], task.num_outputs(data.y)), _guarded_span(data)
    network = EnsembleMLP(*sizes, num_members=num_groups, hidden=(), span=span, generator=torch.Generator()).to(data.x)
    _start_from_linear_path(network, data, task)
    network.requires_grad_(False)
    fold_means = [partial(_members_mean, copy.deepcopy(network), slice(k, k + 1)) for k in range(held_out.num_folds)]
    if held_out.folds is not None:
        network.keep(torch.arange(num_groups) >= held_out.num_folds)
    mean = ModuleMean(network)
    return Member("linear", mean, held_out.predicted(mean, fold_means), time.perf_counter() - start)


def _members_mean(network: EnsembleMLP, which: slice, x: Float[Tensor, "N D"]) -> Float[Tensor, "J N"]:
    return network.members(x, which).mean(0).mT


def _guarded_span(data: FitData) -> tuple[Float[Tensor, " D"], Float[Tensor, " D"]]:
    """The range of each column, wider by itself on either side; of what every fold has seen.

    Where one far row is the whole range, the members that have not seen it know nothing of the way there.
    """
    seen = [data.x[others] for _, others in data.held_out.splits()] if data.held_out.folds is None else []
    ends = [(rows.amin(0), rows.amax(0)) for rows in seen or [data.x]]
    lows, highs = (torch.stack(part) for part in zip(*((2 * low - high, 2 * high - low) for low, high in ends), strict=True))
    return lows.amax(0), highs.amin(0)


@torch.no_grad()
def _start_from_linear_path(network: EnsembleMLP, data: FitData, task: Task) -> bool:
    """Give the members of each fold the linear model of the rows that they see; whether the task has one."""
    num_groups = data.held_out.num_groups
    learned = [others for _, others in data.held_out.splits()]
    everything = torch.ones_like(data.weight, dtype=torch.bool)
    for k in range(num_groups):
        rows = learned[k] if k < len(learned) else everything
        path = task.linear_path(data.x[rows], data.y[:, rows], data.weight[rows])
        if path is None:
            return False
        network.linear[k::num_groups] = path[0].to(network.linear)
        network.biases[-1][k::num_groups] = path[1].to(network.linear)
    return True


def _size(part: Network, usual: NetworkSize) -> NetworkSize:
    return NetworkSize(
        max_steps=usual.max_steps if part.max_steps == "auto" else part.max_steps,
        hidden=usual.hidden if part.hidden == "auto" else tuple(part.hidden),
        per_fold=usual.per_fold if part.per_fold == "auto" else part.per_fold,
    )


def module_learner(module: nn.Module, data: FitData, task: Task, options: FitOptions, name: str, place: int) -> Member:
    """A user's own network, trained by the task's loss: a copy for each fold, and one on all rows."""
    start = time.perf_counter()
    # Small networks need, and bear, longer steps.
    learning_rate = 1e-2 if sum(p.numel() for p in module.parameters()) < 5000 else 3e-3
    with torch.no_grad():
        task.require_outputs(ModuleMean(copy.deepcopy(module).eval())(data.x[:2]), task.num_outputs(data.y))
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


def frozen_learner(mean: nn.Module, what: str, data: FitData, task: Task, name: str, advice: str = "") -> Member:
    """A mean of rows in the user's own units that is only asked."""
    start = time.perf_counter()
    what = what[0].upper() + what[1:]
    if data.held_out.may_be_known:
        raise ValueError(
            f"{what} may have been trained on these rows, and then its errors on them are too small. "
            f"Pass rows it has not seen: fit(X, y, validation=(X_unseen, y_unseen)).{advice}"
        )
    with torch.no_grad():
        task.require_outputs(OriginalRowsMean(mean, data.scales)(data.held_out.x[:2]), task.num_outputs(data.y), what)
    mean = task.in_own_units(mean, data.scales)
    return Member(name, mean, data.held_out.predicted(mean), time.perf_counter() - start)


def stack(means: Sequence[nn.Module], weights: Float[Tensor, "J K"], handover: Handover | None = None) -> nn.Module:
    """The convex combination, without members whose weight is zero for every output at every row."""
    used = [i for i in range(len(means)) if (weights[:, i] > 1e-6).any()]
    handover = None if handover is None or not handover.gives[used].any() else handover
    if handover is not None:
        used = [i for i in range(len(means)) if i in used or (handover.shares[:, i] > 0).any()]
        handover = handover.among(used)
    if len(used) == 1:
        return means[used[0]]
    return ConvexMean([means[i] for i in used], weights[:, used] / weights[:, used].sum(1, keepdim=True), handover)


def estimator_learner(estimator: Any, data: FitData, task: Task, *, name: str, standardised: bool = False) -> Pending:
    """An unfitted scikit-learn regressor or classifier: a clone for each fold, and one on all rows; with a stream on the sample.

    Rows are in the user's own units, unless `standardised`.
    """
    x, weight = data.x.cpu().numpy(), data.weight.cpu().numpy()
    x = x if standardised else data.scales.original_rows(x)
    scales = None if standardised else data.scales
    targets = task.estimator_targets(data)
    needs_seed = "random_state" in estimator.get_params() and estimator.get_params()["random_state"] is None
    require_weights(estimator, weight, name)
    kept = [None, *(others.cpu().numpy() for _, others in data.held_out.splits())]
    # Seeds are drawn here, in this order: what a fit gives does not depend on where and when it is done.
    return Pending(
        name,
        tuple(
            partial(_fit_estimator, estimator, data.seed() if needs_seed else None, x, target, weight, rows, scales, task)
            for target, rows in zip(targets, kept, strict=True)
        ),
    )


def _fit_estimator(
    estimator: Any,
    seed: int | None,
    x: NDArray[Any],
    target: NDArray[Any],
    weight: NDArray[Any],
    rows: NDArray[Any] | None,
    scales: Scales | None,
    task: Task,
) -> tuple[nn.Module, float]:
    start = time.perf_counter()
    if rows is not None:
        x, target, weight = x[rows], target[rows], weight[rows]
    mean = task.constant_mean(target)
    if mean is not None:
        return mean, time.perf_counter() - start
    model = clone(estimator)
    if seed is not None:
        model.set_params(random_state=seed)
    if target.ndim == 1 or get_tags(model).target_tags.multi_output:
        mean = FixedMean(task.plain(fitted(model, x, target, weight)))
    else:
        mean = JoinedMean([FixedMean(task.plain(fitted(clone(model), x, column, weight))) for column in target.T])
    return task.of_response(mean if scales is None else OriginalRowsMean(mean, scales)), time.perf_counter() - start


def fitted(
    model: Any, x: Any, target: NDArray[Any], weight: NDArray[Any], take: Callable[[Any, NDArray[Any]], Any] = operator.getitem
) -> Any:
    """The model, fitted with the weights: as it takes them, or by rows that are repeated, which `take` takes out of x."""
    argument = _weight_argument(model)
    if np.allclose(weight, weight[0]):
        return model.fit(x, target)
    if argument is not None:
        return model.fit(x, target, **{argument: weight})
    rows = np.arange(len(weight)).repeat(_counts(weight))
    return model.fit(take(x, rows), target[rows])


def require_weights(estimator: Any, weight: NDArray[Any], name: str) -> None:
    """Refuse weights that a scikit-learn mean cannot take, before anything is trained."""
    counts = _counts(weight)
    whole = np.allclose(counts * weight.min(), weight) and counts.sum() <= 10 * len(weight)
    if not whole and _weight_argument(estimator) is None:
        raise ValueError(
            f"{name} takes no sample_weight, and these weights are not small whole multiples of one another, so rows "
            "cannot be repeated instead; leave the weights out, or choose a mean that takes them."
        )


def _counts(weight: NDArray[Any]) -> NDArray[Any]:
    """How often each row stands there, when the lightest stands there once."""
    return np.rint(weight / weight.min()).astype(np.int64)


def _weight_argument(model: Any) -> str | None:
    """The argument of `fit` that takes weights: in a pipeline that of its last step."""
    if isinstance(model, Pipeline):
        name, last = model.steps[-1]
        return f"{name}__sample_weight" if has_fit_parameter(last, "sample_weight") else None
    return "sample_weight" if has_fit_parameter(model, "sample_weight") else None
