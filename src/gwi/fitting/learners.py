"""Learners of means: each is trained on the rows and judged on rows it has not seen.

All work on standardised rows and targets. `Trained.judged` are predictions at the judging rows: out-of-fold predictions at the
training rows, or plain predictions at validation rows.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from gwi._progress import Report, silent
from gwi.core.kernels import residual_variance, whitened_features
from gwi.core.linalg import cholesky, solve_lower
from gwi.core.means import KernelMean, ModuleMean, titsias_coefficients
from gwi.core.measures import kernel_matrix
from gwi.core.networks import EnsembleMLP, train_ensemble
from gwi.core.prior import PriorFit
from gwi.core.row_sums import RowSums, combined, row_sums
from gwi.core.scaling import Scales
from gwi.core.training import train
from gwi.streaming.stream import Rule, Stream
from gwi.streaming.training import train_on_stream

T = TypeVar("T")

# Rows held at a time.
CHUNK_SIZE = 4096


@dataclass(frozen=True)
class Task:
    """Rows to learn from and rows to be judged on.

    Attributes:
        x: standardised rows.
        y: standardised targets.
        weight: of each row: how often it stands there, or with mean one.
        fold: the fold of each row, for out-of-fold predictions; None when validation rows judge.
        x_judge: rows that judge: x itself, or validation rows.
        generator: for everything random.
        scales: between standardised values and the user's own.
        network_dtype: of networks that we train.
        classes: the labels, in order, when y are indicators of classes and means are logits; None in regression.
        report: called with the name of a stage and the share of it that is done.
        stream: all training rows, where x is only a sample of them.
        n_jobs: of joblib, for fits that are independent of each other.
        num_seen: N where x is a sample that stands for all training rows; None when x are all, or there is a stream.
        place: of the mean among those that are learned, which names its checkpoint.
    """

    x: Float[Tensor, "N D"]
    y: Float[Tensor, "J N"]
    weight: Float[Tensor, " N"]
    fold: Int[Tensor, " N"] | None
    x_judge: Float[Tensor, "V D"]
    generator: torch.Generator
    scales: Scales
    network_dtype: torch.dtype = torch.float32
    classes: NDArray[Any] | None = None
    report: Report = silent
    stream: Stream | None = None
    n_jobs: int | None = None
    num_seen: int | None = None
    place: int = 0

    @property
    def num_rows(self) -> int:
        """N, of all training rows."""
        if self.num_seen is not None:
            return self.num_seen
        return len(self.x) if self.stream is None else self.stream.num_rows

    @property
    def judges_may_be_known(self) -> bool:
        """Whether a mean that was trained elsewhere may have seen the judging rows: they are of those to learn from."""
        return self.fold is not None or (self.stream is not None and self.stream.sketch.num_judges > 0)

    def decided(self, function: Callable[[], T]) -> T:
        """What the function gives; where processes share the rows, what it gives on the first of them."""
        if self.stream is None or self.stream.ranks.size == 1:
            return function()
        value, state = self.stream.ranks.from_first(lambda: (function(), self.generator.get_state()))
        self.generator.set_state(state)
        return value

    @property
    def num_folds(self) -> int:
        """K, zero with validation rows."""
        return 0 if self.fold is None else int(self.fold.max()) + 1

    @property
    def loss(self) -> Callable[[Tensor, Tensor], Tensor]:
        """Of outputs and targets, whose last axis runs over outputs, at each row: squares, or cross-entropy for classes."""
        return squares if self.classes is None else cross_entropy

    def seed(self) -> int:
        """A seed for libraries that take one."""
        return int(torch.randint(2**31 - 1, (1,), generator=self.generator))


@dataclass(frozen=True)
class Trained:
    """A mean that was learned.

    Attributes:
        name: for the summary.
        mean: from standardised rows to (J, N) standardised values.
        judged: its predictions at the judging rows.
        seconds: it took.
    """

    name: str
    mean: nn.Module
    judged: Float[Tensor, "J V"]
    seconds: float


Learner = Callable[[Task], Trained]


def fold_sums(
    kernel: Kernel,
    inducing_points: Float[Tensor, "M D"],
    task: Task,
    targets: Float[Tensor, "J N"] | Rule | None,
    noise_variance: Float[Tensor, ...] | float,
) -> tuple[RowSums, list[RowSums]]:
    """Sums over all rows, and over all rows but those of each fold: the difference of two sums costs nothing.

    With a stream the targets are a rule, or None for those of the task.
    """
    if task.stream is not None:
        assert not isinstance(targets, Tensor)
        return task.stream.sums(kernel, inducing_points, targets).weighted(float(noise_variance)), []
    targets = task.y if targets is None else targets
    assert isinstance(targets, Tensor)
    # Each row of a sample stands for several.
    noise = noise_variance / (task.weight * (task.num_rows / len(task.x)))
    if task.fold is None:
        return row_sums(kernel, inducing_points, task.x, targets, noise_variance=noise), []
    parts = [
        row_sums(kernel, inducing_points, task.x[rows], targets[:, rows], noise_variance=noise[..., rows])
        for rows in (task.fold == k for k in range(task.num_folds))
    ]
    whole = combined(parts, [1.0] * len(parts))
    return whole, [combined([whole, part], [1.0, -1.0]) for part in parts]


@torch.no_grad()
def kernel_learner(prior: PriorFit, inducing_points: Tensor, task: Task, name: str = "svgp") -> Trained:
    """The sparse (Z ⊂ X) or exact (Z = X) GP mean; out-of-fold means come from differences of sums, or from folds' own priors."""
    start = time.perf_counter()
    folds = replace(task, fold=None) if prior.without_folds else task
    mean, judged = kernel_means(prior.kernel, inducing_points, folds, None, _noise_of(prior))
    for k, fit in enumerate(prior.without_folds):
        held_out, others = task.fold == k, task.fold != k
        z = task.x[others] if inducing_points is task.x else inducing_points
        noise = _noise_of(fit) / task.weight[others]
        sums = row_sums(fit.kernel, z, task.x[others], task.y[:, others], noise_variance=noise)
        judged[:, held_out] = KernelMean(fit.kernel, z, titsias_coefficients(sums))(task.x[held_out])
    return Trained(name, mean, judged, time.perf_counter() - start)


def _noise_of(prior: PriorFit) -> Float[Tensor, "J 1"] | float:
    return prior.noise_variance if prior.noise_variances is None else prior.noise_variances[:, None]


def kernel_means(
    kernel: Kernel,
    inducing_points: Float[Tensor, "M D"],
    task: Task,
    targets: Float[Tensor, "J N"] | Rule | None,
    noise_variance: Float[Tensor, ...] | float,
) -> tuple[KernelMean, Float[Tensor, "J V"]]:
    """The mean of the sparse GP posterior given these targets, as `fold_sums` takes them, and its values at the judging rows."""
    whole, without = fold_sums(kernel, inducing_points, task, targets, noise_variance)
    mean = KernelMean(kernel, inducing_points, titsias_coefficients(whole))
    if task.fold is None:
        return mean, at_rows(mean, task.x_judge)
    judged = torch.empty_like(task.y)
    for k, sums in enumerate(without):
        held_out = task.fold == k
        fold_mean = KernelMean(kernel, inducing_points, titsias_coefficients(sums))
        judged[:, held_out] = fold_mean(task.x[held_out])
    return mean, judged


def network_learner(
    task: Task, *, num_steps: int, hidden: tuple[int, ...], per_fold: int, name: str = "network", rule: Rule | None = None
) -> Trained:
    """Networks that each leave one fold out, trained all at once; their average is the mean, the left-out folds the judge.

    Nothing is trained twice: the networks that judge are those that predict. With a stream it is one network, and `rule` gives
    its targets.
    """
    start = time.perf_counter()
    num_groups = max(task.num_folds, 1)
    num_members = per_fold * num_groups
    network = EnsembleMLP(task.x.shape[1], task.y.shape[0], num_members=num_members, hidden=hidden, generator=task.generator)
    network.to(task.x.device, task.network_dtype)
    if task.stream is not None:

        def loss(x: Tensor, y: Tensor) -> Tensor:
            outputs = network.members(x.to(task.network_dtype))
            return task.loss(outputs, y.mT.to(outputs.dtype).expand(outputs.shape)).sum(0)

        train_on_stream(network, loss, task.stream, name=name, seed=task.seed(), rule=rule, place=task.place)
        mean = ModuleMean(network.double().requires_grad_(False))
        return Trained(name, mean, at_rows(mean, task.x_judge), time.perf_counter() - start)
    x = task.x.to(task.network_dtype)
    group = torch.arange(num_members) % num_groups
    allowed = None if task.fold is None else [(task.fold != k).nonzero()[:, 0].cpu() for k in group.tolist()]
    train_ensemble(
        network,
        x,
        task.y.mT.to(x.dtype).contiguous(),
        num_steps=num_steps,
        sample_weight=(task.weight / task.weight.mean()).to(x.dtype),
        member_rows=allowed,
        loss=task.loss,
        generator=task.generator,
        on_step=lambda step: task.report(name, (step + 1) / num_steps),
    )
    # In single precision a row's prediction would depend, in the seventh digit, on the rows that are predicted with it.
    network.double().requires_grad_(False)
    mean = ModuleMean(network)
    if task.fold is None:
        judged = mean(task.x_judge)
    else:
        members = network.members(task.x)
        by_group = torch.stack([members[group == k].mean(0) for k in range(num_groups)])
        judged = by_group.gather(0, task.fold[None, :, None].expand(1, -1, members.shape[-1]))[0].mT.contiguous()
    return Trained(name, mean, judged, time.perf_counter() - start)


def module_learner(module: nn.Module, task: Task, *, num_epochs: int, name: str) -> Trained:
    """A user's own network, trained by the task's loss: a copy for each fold, and one on all rows."""
    start = time.perf_counter()
    # Small networks need, and bear, longer steps.
    learning_rate = 1e-2 if sum(p.numel() for p in module.parameters()) < 5000 else 3e-3

    if task.stream is not None:
        streamed = ModuleMean(copy.deepcopy(module)).train()
        train_on_stream(
            streamed,
            lambda x, y: task.loss(streamed(x).mT, y.mT),
            task.stream,
            name=name,
            seed=task.seed(),
            learning_rate=learning_rate,
            place=task.place,
        )
        streamed.eval().requires_grad_(False)
        return Trained(name, streamed, at_rows(streamed, task.x_judge), time.perf_counter() - start)

    def fitted(rows: Tensor) -> nn.Module:
        mean = ModuleMean(copy.deepcopy(module))
        weight = task.weight[rows]

        def loss(x: Tensor, y_and_weight: Tensor) -> Tensor:
            return (y_and_weight[-1] * task.loss(mean(x).mT, y_and_weight[:-1].mT)).mean()

        targets = torch.cat([task.y[:, rows], weight[None]])
        mean.train()
        # Batches of like sizes: batch normalisation cannot do with a last one of one row.
        num_batches = math.ceil(len(weight) / (64 if len(task.x) < 2000 else 256))
        train(
            mean,
            loss,
            task.x[rows],
            targets,
            num_epochs=num_epochs,
            batch_size=math.ceil(len(weight) / num_batches),
            learning_rate=learning_rate,
            generator=task.generator,
        )
        return mean.eval().requires_grad_(False)

    return _by_folds(fitted, task, name, start)


def squares(outputs: Float[Tensor, "*B J"], targets: Float[Tensor, "*B J"]) -> Float[Tensor, "*B"]:
    """Σ_j (m_j − y_j)² of each row."""
    return (outputs - targets).square().sum(-1)


def cross_entropy(outputs: Float[Tensor, "*B J"], targets: Float[Tensor, "*B J"]) -> Float[Tensor, "*B"]:
    """−Σ_j y_j log softmax_j(m) of each row."""
    return -(targets * outputs.log_softmax(-1)).sum(-1)


def frozen_learner(mean: nn.Module, task: Task, *, name: str) -> Trained:
    """A mean that is only asked."""
    start = time.perf_counter()
    return Trained(name, mean, at_rows(mean, task.x_judge), time.perf_counter() - start)


@torch.no_grad()
def at_rows(mean: nn.Module, x: Float[Tensor, "N D"]) -> Float[Tensor, "J N"]:
    """Its values, some rows at a time."""
    return torch.cat([mean(rows) for rows in x.split(CHUNK_SIZE)], dim=1)


def _by_folds(fitted: Callable[[Tensor], nn.Module], task: Task, name: str, start: float) -> Trained:
    mean = fitted(torch.ones(len(task.x), dtype=torch.bool, device=task.x.device))
    if task.fold is None:
        with torch.no_grad():
            return Trained(name, mean, mean(task.x_judge), time.perf_counter() - start)
    judged = torch.empty_like(task.y)
    for k in range(task.num_folds):
        task.report(name, (k + 1) / (task.num_folds + 1))
        fold_mean = fitted(task.fold != k)
        with torch.no_grad():
            judged[:, task.fold == k] = fold_mean(task.x[task.fold == k])
    return Trained(name, mean, judged, time.perf_counter() - start)


@torch.no_grad()
def left_out_variance(prior: PriorFit, task: Task, noise_variance: float) -> Float[Tensor, " N"]:
    """r at each row of the exact GP posterior given the rows of the other folds."""
    assert task.fold is not None
    variance = torch.empty_like(task.y[0])
    for k in range(task.num_folds):
        inside, outside = task.fold == k, task.fold != k
        noisy = kernel_matrix(prior.kernel, task.x[outside]) + torch.diag(noise_variance / task.weight[outside])
        features = solve_lower(
            cholesky(noisy, name="k(X, X) + σ²").factor, kernel_matrix(prior.kernel, task.x[outside], task.x[inside])
        )
        variance[inside] = residual_variance(prior.kernel, task.x[inside], features)
    return variance


def left_out_parts(prior: PriorFit, task: Task) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
    """k − φᵀφ and φᵀφ at each row with Z = the rows of the other folds, where Z will be all rows: as they will be at a new row.

    A row's own inducing point would explain it away.
    """
    assert task.fold is not None
    residual, explained = torch.empty_like(task.y[0]), torch.empty_like(task.y[0])
    for k in range(task.num_folds):
        inside, outside = task.fold == k, task.fold != k
        z = task.x[outside]
        phi = whitened_features(prior.kernel, z, cholesky(kernel_matrix(prior.kernel, z), name="k(Z, Z)").factor, task.x[inside])
        residual[inside] = residual_variance(prior.kernel, task.x[inside], phi)
        explained[inside] = phi.square().sum(-2)
    return residual, explained
