"""What a fit learns from and is judged on: rows in memory here, rows of a stream in `fitting.stream_data`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, TypeVar

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from gwi._progress import Report, silent
from gwi.core.early_stopping import GivesUp, Judges, Loss, never, train_early_stopped
from gwi.core.means import ModuleMean
from gwi.core.measures import kernel_variance
from gwi.core.networks import EnsembleMLP
from gwi.core.row_sums import RowSums, combined, row_sums
from gwi.core.scaling import Scales
from gwi.core.training import train
from gwi.fitting.effort import FULL, Effort
from gwi.fitting.folds import Folds
from gwi.models.strata import Strata
from gwi.parts import ContextChoice, Covariance, DivergenceKind, Features

T = TypeVar("T")
Mean = Callable[[Tensor], Tensor]
# From standardised rows and targets to what is to be learned there.
Rule = Callable[[Tensor, Tensor], Tensor]

# Networks that see all rows, for each network of a fold, where folds are not in turn.
ALL_ROW_GROUPS = 3
# Held-out rows without folds say in so many parts when a network is to stop.
NUM_JUDGING_PARTS = 5
# Rows held at a time.
CHUNK_SIZE = 4096
# The mean of φφᵀ is known to a percent from so many rows.
GRAM_ROWS = 10_000


@dataclass(frozen=True)
class FitOptions:
    """How a fit is done, whatever its task.

    Attributes:
        kernel: a name, k before it is fitted, or features of the network that is the mean.
        covariance: what Q's covariance is.
        generator: for everything random.
        device: where tensors live.
        network_dtype: of networks that we train.
        max_time: seconds to aim for; None for no bound.
        speed: of the machine, by which they are counted; measured when None.
        effort: what that allows.
        cv: how training rows judge: a number of folds, ``"auto"``, ``"time"``, a splitter, or pairs of row numbers.
        n_jobs: of joblib, for fits that are independent of each other.
        context: where W₂ is taken beside the data: rows in the user's units, or the name of a rule for them; None: nowhere.
        divergence: between prior and posterior.
        prior_mean: what kernel means learn the rest of, from rows to targets in the user's units; zero when None.
        strata: of the rows that judge; None where intervals and sets are those of all rows.
        report: called with the name of a stage and the share of it that is done.
    """

    kernel: str | Kernel | Features
    covariance: Covariance
    generator: torch.Generator
    device: torch.device | str = "cpu"
    network_dtype: torch.dtype = torch.float32
    max_time: float | None = None
    speed: float | None = None
    effort: Effort = FULL
    cv: Any = "auto"
    n_jobs: int | None = None
    context: NDArray[Any] | ContextChoice | None = None
    divergence: DivergenceKind = "wasserstein-squared"
    prior_mean: Any = None
    strata: Strata | None = None
    report: Report = silent


@dataclass(frozen=True)
class HeldOut:
    """Rows on which means are judged, each by means that have not learned from it.

    Attributes:
        x: standardised rows.
        y: standardised targets.
        weight: of each row.
        fold: of each row, when these are training rows; None when they are rows of their own.
        folds: where the training rows do not all judge in turn, which of them do and what each fold has learned from.
        may_be_known: whether a mean that was trained elsewhere may have seen them: they are of the rows to learn from.
        unit: of each row, such as its group; rows of one unit err alike. None: each for itself.
        strata: of the rows, whose intervals and sets are their own; None where there are none.
    """

    x: Float[Tensor, "V D"]
    y: Float[Tensor, "J V"]
    weight: Float[Tensor, " V"]
    fold: Int[Tensor, " V"] | None
    may_be_known: bool
    folds: Folds | None = None
    unit: Int[Tensor, " V"] | None = None
    strata: Strata | None = None

    @property
    def num_folds(self) -> int:
        """K; zero when the rows are none of those that are learned from."""
        return 0 if self.fold is None else int(self.fold.max()) + 1

    @property
    def num_groups(self) -> int:
        """Of networks that are trained side by side: one for each fold, and where folds are not in turn as many for all rows."""
        return max(self.num_folds, 1) if self.folds is None else self.num_folds + ALL_ROW_GROUPS

    def splits(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Of each fold: which of these rows are in it, and which training rows its fits have learned from."""
        if self.fold is not None:
            learned = None if self.folds is None else torch.from_numpy(self.folds.learned).to(self.x.device)
            for k in range(self.num_folds):
                yield self.fold == k, self.fold != k if learned is None else learned[k]

    @torch.no_grad()
    def predicted(self, mean: Mean, fold_means: Sequence[Mean] = ()) -> Float[Tensor, "J V"]:
        """Values of the mean, or where there are folds of the mean that has not seen the row's."""
        if self.fold is None:
            return at_rows(mean, self.x)
        parts = []
        for (inside, _), fold_mean in zip(self.splits(), fold_means, strict=True):
            parts.append((inside, at_rows(fold_mean, self.x[inside])))
        values = torch.empty(len(parts[0][1]), len(self.x), dtype=self.y.dtype, device=self.y.device)
        for inside, part in parts:
            values[:, inside] = part
        return values

    def same_in_folds(self, mean: Mean) -> Float[Tensor, "J V"]:
        """Values of a mean that has learned from none of the rows, such as that of P."""
        return self.predicted(mean, [mean] * self.num_folds)


@torch.no_grad()
def at_rows(mean: Mean, x: Float[Tensor, "N D"]) -> Float[Tensor, "J N"]:
    """Values of a mean, some rows at a time."""
    return torch.cat(list(map(mean, x.split(CHUNK_SIZE))), dim=1)


@torch.no_grad()
def variance_at(kernel: Kernel, x: Float[Tensor, "N D"]) -> Float[Tensor, " N"]:
    """k(x, x) at each row, some rows at a time."""
    return torch.cat(list(map(partial(kernel_variance, kernel), x.split(CHUNK_SIZE))))


@dataclass(frozen=True)
class FitData(ABC):
    """Training rows and held-out rows, standardised.

    Attributes:
        x: all training rows, or where they are too many a sample.
        y: their targets.
        weight: of each row: how often it stands there, or with mean one.
        held_out: rows on which means are judged.
        scales: between standardised values and the user's own.
        generator: for everything random.
        note: what a reader of the summary should know.
        is_sample: whether x are only some of the training rows.
    """

    x: Float[Tensor, "N D"]
    y: Float[Tensor, "J N"]
    weight: Float[Tensor, " N"]
    held_out: HeldOut
    scales: Scales
    generator: torch.Generator
    note: str = field(default="", kw_only=True)
    is_sample: ClassVar[bool]

    @property
    @abstractmethod
    def num_rows(self) -> int:
        """N, of all training rows."""

    @abstractmethod
    def with_targets(self, rule: Rule) -> FitData:
        """The same rows with other targets."""

    @abstractmethod
    def less(self, mean: Mean, held_out: Float[Tensor, "J V"]) -> FitData:
        """The same rows, with what a mean leaves over as targets."""

    @abstractmethod
    def sums(
        self, kernel: Kernel, z: Float[Tensor, "M D"], noise_variance: Float[Tensor, ...] | float, *, folds: bool = True
    ) -> tuple[RowSums, list[RowSums]]:
        """Sums over all training rows, and over all but those of each fold."""

    @abstractmethod
    def gram(self, kernel: Kernel, z: Float[Tensor, "M D"]) -> RowSums:
        """Σ φφᵀ over all training rows."""

    @abstractmethod
    def totals(self) -> Float[Tensor, " J"]:
        """Σ w y of each target over all training rows."""

    @abstractmethod
    def train_ensemble(
        self,
        network: EnsembleMLP,
        loss: Loss,
        max_steps: int,
        train_linear: bool,
        name: str,
        place: int,
        report: Report,
        gives_up: GivesUp = never,
    ) -> Float[Tensor, "J V"]:
        """Train all members at once, unless `gives_up` says at a look that it is in vain; their held-out predictions."""

    @abstractmethod
    def train_module(
        self,
        fresh: Callable[[], ModuleMean],
        loss: Loss,
        num_epochs: int,
        learning_rate: float,
        name: str,
        place: int,
        report: Report,
    ) -> tuple[ModuleMean, list[Mean]]:
        """Train a user's module on all rows; and a copy for each fold, that has not seen it."""

    def noted(self, *notes: str) -> FitData:
        """The same rows, with these notes before its own."""
        return replace(self, note="; ".join(filter(None, (*notes, self.note))))

    def agreed(self, value: T) -> T:
        """The value; where processes share the rows, that of the first of them."""
        return value

    def decided(self, function: Callable[[], T]) -> T:
        """What the function gives; where processes share the rows, what it gives on the first of them."""
        return function()

    def seed(self) -> int:
        """A seed for libraries that take one."""
        return int(torch.randint(2**31 - 1, (1,), generator=self.generator))


@dataclass(frozen=True)
class ArrayData(FitData):
    """Rows in memory.

    Attributes:
        stands_for: N, where x is a sample that stands for so many rows; None when it is all of them.
    """

    stands_for: int | None = field(default=None, kw_only=True)
    is_sample = False

    @property
    def num_rows(self) -> int:
        """N."""
        return len(self.x) if self.stands_for is None else self.stands_for

    def totals(self) -> Float[Tensor, " J"]:
        """Σ w y of each target."""
        return (self.y * self.weight).sum(1)

    def with_targets(self, rule: Rule) -> ArrayData:
        """The same rows with other targets."""
        return replace(self, y=rule(self.x, self.y))

    def less(self, mean: Mean, held_out: Float[Tensor, "J V"]) -> ArrayData:
        """The same rows, with what a mean leaves over as targets, out of fold where there are folds."""
        if self.held_out.fold is not None and self.held_out.folds is None:
            return replace(self, y=self.y - held_out)
        values = at_rows(mean, self.x)
        if self.held_out.folds is not None:
            values[:, self.held_out.folds.row] = held_out
        return replace(self, y=self.y - values)

    def sums(
        self, kernel: Kernel, z: Float[Tensor, "M D"], noise_variance: Float[Tensor, ...] | float, *, folds: bool = True
    ) -> tuple[RowSums, list[RowSums]]:
        """Sums over all rows, and over all rows but those of each fold: the difference of two sums costs nothing."""
        # Each row of a sample stands for several.
        noise = noise_variance / (self.weight * (self.num_rows / len(self.x)))
        if not folds or self.held_out.fold is None:
            return row_sums(kernel, z, self.x, self.y, noise_variance=noise), []
        in_turn = self.held_out.folds is None
        parts = [
            row_sums(kernel, z, self.x[rows], self.y[:, rows], noise_variance=noise[..., rows])
            for rows in (inside if in_turn else others for inside, others in self.held_out.splits())
        ]
        if not in_turn:
            return row_sums(kernel, z, self.x, self.y, noise_variance=noise), parts
        whole = combined(parts, [1.0] * len(parts))
        return whole, [combined([whole, part], [1.0, -1.0]) for part in parts]

    def gram(self, kernel: Kernel, z: Float[Tensor, "M D"]) -> RowSums:
        """Σ φφᵀ over all rows, from a sample of them where they are many."""
        rows = torch.randperm(len(self.x), generator=torch.Generator().manual_seed(0))[:GRAM_ROWS].to(self.x.device)
        sums = row_sums(kernel, z, self.x[rows], noise_variance=1 / self.weight[rows])
        return replace(sums, num_rows=self.num_rows, gram=sums.gram * (self.num_rows / len(rows)))

    def train_ensemble(
        self,
        network: EnsembleMLP,
        loss: Loss,
        max_steps: int,
        train_linear: bool,
        name: str,
        place: int,
        report: Report,
        gives_up: GivesUp = never,
    ) -> Float[Tensor, "J V"]:
        """Train all members at once, each without one fold, for as long as the folds that they have not seen gain from it.

        Nothing is trained twice: the networks that are judged are those that predict. Where folds have not seen all other rows,
        as in time, there are members beside them that have, and these predict.
        """
        held_out = self.held_out
        everything = torch.ones_like(self.weight, dtype=torch.bool)
        learned = [others for _, others in held_out.splits()]
        learned += [everything] * (held_out.num_groups - len(learned))
        # Rows of their own are judged by all members; parts of them, as of folds, by steps that others chose.
        order = torch.randperm(len(held_out.x), generator=torch.Generator().manual_seed(0)).to(self.x.device)
        part = order % NUM_JUDGING_PARTS if held_out.fold is None else held_out.fold
        group = torch.zeros_like(part) if held_out.fold is None else held_out.fold
        predicted = train_early_stopped(
            network,
            loss,
            self.x,
            self.y.mT,
            self.weight,
            torch.stack(learned),
            Judges(held_out.x, held_out.y.mT, held_out.weight, group, part),
            max_steps=max_steps,
            train_linear=train_linear,
            generator=self.generator,
            on_step=lambda share: report(name, share),
            gives_up=gives_up,
        )
        network.settled()
        if held_out.folds is not None:
            network.keep(torch.arange(network.num_members) % held_out.num_groups >= held_out.num_folds)
        return predicted.mT.to(held_out.y)

    def train_module(
        self,
        fresh: Callable[[], ModuleMean],
        loss: Loss,
        num_epochs: int,
        learning_rate: float,
        name: str,
        place: int,
        report: Report,
    ) -> tuple[ModuleMean, list[Mean]]:
        """A user's module, trained on all rows; and a copy for each fold, trained without it."""

        def fitted(rows: Tensor) -> ModuleMean:
            mean, weight = fresh(), self.weight[rows]

            def batch_loss(x: Tensor, y_and_weight: Tensor) -> Tensor:
                return (y_and_weight[-1] * loss(mean(x).mT, y_and_weight[:-1].mT)).mean()

            # Batches of like sizes: batch normalisation cannot do with a last one of one row.
            num_batches = -(-len(weight) // (64 if len(self.x) < 2000 else 256))
            train(
                mean.train(),
                batch_loss,
                self.x[rows],
                torch.cat([self.y[:, rows], weight[None]]),
                num_epochs=num_epochs,
                batch_size=-(-len(weight) // num_batches),
                learning_rate=learning_rate,
                generator=self.generator,
            )
            return mean.eval().requires_grad_(False)

        mean = fitted(torch.ones(len(self.x), dtype=torch.bool, device=self.x.device))
        fold_means: list[Mean] = []
        for k, (_, others) in enumerate(self.held_out.splits()):
            report(name, (k + 1) / (self.held_out.num_folds + 1))
            fold_means.append(fitted(others))
        return mean, fold_means
