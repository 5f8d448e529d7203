"""What a task is to the pipeline: the likelihood, and all that follows from it.

A new task is one subclass of `Task`: it says what `Task` leaves open, and the rest where its answer is not the usual one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from gwi.core.handover import Handover
from gwi.core.kernels import SparsePosteriorKernel
from gwi.core.means import OriginalRowsMean
from gwi.core.measures import GaussianMeasure
from gwi.core.prior import PriorFit
from gwi.core.scaling import Embedding, Scales
from gwi.fitting.data import FitData, FitOptions, HeldOut
from gwi.models.summary import Summary
from gwi.predictors.linear import plain_predictor

if TYPE_CHECKING:
    from gwi.fitting.held_out_covariance import CovarianceSolver, HeldOutCovariance
    from gwi.fitting.hyperparameters import PriorChoice
    from gwi.fitting.jobs import Pending


# What the estimators take: chosen by held-out rows, a factor, or None for one.
Tempering = float | Literal["auto"] | None
# Epochs of a user's network: of few rows more, so that they, too, train it.
FEWEST_EPOCHS, MOST_EPOCHS = 30, 600


def fixed_factor(tempering: Tempering) -> float | None:
    """The factor on the variance that the user chose; None where held-out rows choose it."""
    return None if tempering == "auto" else 1.0 if tempering is None else float(tempering)


@dataclass(frozen=True)
class Member:
    """A mean that was learned.

    Attributes:
        name: for the summary.
        mean: from standardised rows to (J, N) standardised values.
        held_out: its predictions at the held-out rows.
        seconds: it took.
    """

    name: str
    mean: nn.Module
    held_out: Float[Tensor, "J V"]
    seconds: float


@dataclass(frozen=True)
class StackedMean:
    """Means and their weights, and what they predict at rows that neither has seen.

    Attributes:
        members: the means.
        weights: in each output.
        held_out_weights: of each held-out row, from other held-out rows than it.
        scale: of the whole: the inverse temperature of logits.
    """

    members: tuple[Member, ...]
    weights: Float[Tensor, "J K"]
    held_out_weights: Float[Tensor, "J K V"]
    scale: float = 1.0

    @cached_property
    def held_out(self) -> Float[Tensor, "J V"]:
        """The stacked mean at the held-out rows, unscaled."""
        return torch.einsum("jkv,kjv->jv", self.held_out_weights, torch.stack([member.held_out for member in self.members]))

    @cached_property
    def disagreement(self) -> Float[Tensor, "J V"]:
        """d² = Σ_k w_k (m_k − m)² at the held-out rows, unscaled."""
        errors = torch.stack([member.held_out for member in self.members]) - self.held_out
        return torch.einsum("jkv,kjv->jv", self.held_out_weights, errors.square())

    def only(self, place: int) -> StackedMean:
        """One of the means by itself; the others have no weight."""
        weights, held_out_weights = torch.zeros_like(self.weights), torch.zeros_like(self.held_out_weights)
        weights[:, place], held_out_weights[:, place] = 1.0, 1.0
        return replace(self, weights=weights, held_out_weights=held_out_weights)

    @property
    def num_means(self) -> int:
        """How many means have a weight that any prediction can tell from zero."""
        return int((self.weights > 1e-6).any(0).sum())


class NetworkSize(NamedTuple):
    """Of our own network."""

    max_steps: int
    hidden: tuple[int, ...]
    per_fold: int


@dataclass(frozen=True)
class Fit:
    """What a fit found: the model, and all that makes it anew with other options or more rows.

    Attributes:
        model: all that predicts.
        summary: what was chosen.
        data: rows.
        prior: k, fitted, and the points that go with it.
        stacked: the means.
        embedding: from the user's rows to those of the data.
    """

    model: Any
    summary: Summary
    data: FitData
    prior: PriorChoice
    stacked: StackedMean
    embedding: Embedding


class Task(ABC):
    """Regression, classification, or another likelihood.

    Attributes:
        names: of means that are called by name.
        wanted: what a mean may be, in words.
        note: for the summary.
        prior_mean: of P, as means of this task are; zero when None.
    """

    names: tuple[str, ...]
    wanted: str
    note: str = ""
    prior_mean: nn.Module | None = None
    # That a user's network sees in training, between the fewest and the most epochs.
    seen_rows: ClassVar[int] = 30_000
    # What ``covariance="auto"`` is where Z are not all rows.
    sparse_covariance: ClassVar[Literal["wasserstein", "titsias"]] = "titsias"

    # What a task must say.

    @abstractmethod
    def scales(self, x: NDArray[Any], y: NDArray[Any], weight: NDArray[Any]) -> Scales:
        """Between the user's values and standardised ones."""

    @abstractmethod
    def targets(self, y: NDArray[Any], scales: Scales, device: torch.device | str) -> Float[Tensor, "J N"]:
        """What means learn: standardised numbers, or indicators of classes."""

    @abstractmethod
    def plan(self, data: FitData) -> list[Any]:
        """The means that ``"auto"`` stacks."""

    @abstractmethod
    def loss(self, outputs: Float[Tensor, "*B J"], targets: Float[Tensor, "*B J"]) -> Float[Tensor, "*B"]:
        """Of each row, by which networks are trained."""

    @abstractmethod
    def learn_named(
        self, name: str, data: FitData, prior: PriorFit, basis: Float[Tensor, "M D"], options: FitOptions, place: int
    ) -> Member | Pending:
        """Train a mean that is called by a name of this task's."""

    @abstractmethod
    def stack(self, members: tuple[Member, ...], held_out: HeldOut) -> StackedMean:
        """Weigh the means by their errors on held-out rows."""

    @abstractmethod
    def noise_levels(self, data: FitData, solver: CovarianceSolver, stacked: StackedMean) -> list[float]:
        """σ² of each output, or what takes its place in the covariance."""

    @abstractmethod
    def calibrate(
        self,
        data: FitData,
        posterior: GaussianMeasure,
        stacked: StackedMean,
        covariances: list[HeldOutCovariance],
        embedding: Embedding,
        note: str,
    ) -> tuple[Any, Summary]:
        """Noise and tails, or scales of logits and variances, by the held-out rows; seconds in the summary are left to others."""

    # What has a usual answer.

    def prepared(self, data: FitData) -> Task:
        """The task once it has looked at the rows."""
        return self

    def of_response(self, mean: nn.Module) -> nn.Module:
        """A mean that a predictor has learned here, as a mean of f: through the link where these are on different scales."""
        return mean

    def of_brought(self, mean: nn.Module, scales: Scales) -> nn.Module:
        """A standardised mean of y that the user brought, as a mean of f."""
        return mean

    def num_outputs(self, y: Float[Tensor, "J N"]) -> int:
        """Of means: as many as numbers of a target, where these are no bounds."""
        return len(y)

    def distance(self, data: FitData, stacked: StackedMean) -> float:
        """‖m_Q − m_P‖² at the held-out rows, averaged over outputs: what the mean adds to W₂²."""
        held_out = data.held_out
        values = stacked.scale * stacked.held_out
        if self.prior_mean is not None:
            values = values - held_out.same_in_folds(self.prior_mean)
        return float((values.square().mean(0) * held_out.weight).sum() / held_out.weight.sum())

    def covariance_data(self, data: FitData, stacked: StackedMean) -> FitData:
        """The rows as the covariance counts them: by how much each of them says of f."""
        return data

    def weights(self, weight: NDArray[Any]) -> NDArray[Any]:
        """Sample weights as means take them: relative."""
        return weight / weight.mean()

    def judging_weight(self, y: Float[Tensor, "J V"]) -> Float[Tensor, " V"]:
        """Of rows of their own that judge: all alike."""
        return torch.ones_like(y[0])

    def folds(self, y: Float[Tensor, "J N"], num_folds: int, generator: torch.Generator) -> Int[Tensor, " N"]:
        """The fold of each row, at random."""
        num_rows = y.shape[1]
        fold = torch.empty(num_rows, dtype=torch.long)
        fold[torch.randperm(num_rows, generator=generator)] = torch.arange(num_rows) % num_folds
        return fold

    def prior_data(self, data: FitData) -> FitData:
        """With targets that speak for the kernel: those that there are."""
        return data

    def most_inducing(self, num_outputs: int) -> float:
        """With more rows than this not every row is an inducing point; no bound where outputs share a factor."""
        return math.inf

    def num_free(self, num_outputs: int) -> int | None:
        """How many outputs are independent of each other, where they share one noise; None where each has its own."""
        return None

    def network_size(self, num_rows: int) -> NetworkSize:
        """Of our own network."""
        if num_rows < 600:
            return NetworkSize(2000, (64, 64), 4)
        # Functions nearly without noise gain from every step; these bounds keep the time to that of a deep ensemble.
        return NetworkSize(2000 if num_rows < 2000 else 2500 if num_rows < 20_000 else 6000, (128, 128), 1)

    def linear_path(
        self, x: Float[Tensor, "N D"], y: Float[Tensor, "J N"], weight: Float[Tensor, " N"]
    ) -> tuple[Float[Tensor, "D J"], Float[Tensor, " J"]] | None:
        """Coefficients and intercepts that our own network starts from; None where it finds a linear path itself."""
        return None

    def in_scale(
        self, outputs: Float[Tensor, "J V"], y: Float[Tensor, "C V"], weight: Float[Tensor, " V"]
    ) -> Float[Tensor, "J V"]:
        """Outputs as they suit these rows best: what they are mixed with others as."""
        return outputs

    def num_epochs(self, num_rows: int) -> int:
        """Of a user's network."""
        return max(FEWEST_EPOCHS, min(MOST_EPOCHS, self.seen_rows // num_rows))

    def require_outputs(self, values: Float[Tensor, "K n"], num_outputs: int, what: str = "The network") -> None:
        """Refuse a mean that has not one output for each target or class."""
        if len(values) != num_outputs:
            raise ValueError(f"{what} gives {len(values)} outputs per row; there are {num_outputs} target(s).")

    def is_predictor(self, item: Any) -> bool:
        """Whether an object fits and predicts what this task needs."""
        return hasattr(item, "fit") and hasattr(item, "predict")

    def plain(self, model: Any) -> Any:
        """A fitted predictor as plain numbers where it can be held so."""
        return plain_predictor(model) or model

    def estimator_target(self, y: NDArray[Any]) -> NDArray[Any]:
        """Targets, one row each, as predictors take them: one column as one axis."""
        return y[:, 0] if y.shape[1] == 1 else y

    def estimator_targets(self, data: FitData) -> list[NDArray[Any]]:
        """The same of all rows, for the fit to all of them and for that of each fold."""
        return [self.estimator_target(data.y.mT.cpu().numpy())] * (1 + data.held_out.num_folds)

    def frame_targets(self, data: FitData) -> list[NDArray[Any]]:
        """Targets, one row each, as predictors of data frames take them: in the user's own units; for all rows, and each fold."""
        y = data.y.mT.cpu().numpy() * data.scales.y_scale + data.scales.y_centre
        return [self.estimator_target(y)] * (1 + data.held_out.num_folds)

    def frame_model(self, model: Any) -> Any:
        """A fitted predictor of data frames that gives what means of this task give, in own units."""
        return model

    def constant_mean(self, target: NDArray[Any]) -> nn.Module | None:
        """What stands for a predictor where there is nothing to learn; None where there is, or where it learns constants."""
        return None

    def in_own_units(self, mean: nn.Module, scales: Scales, shape: tuple[int, ...] | None = None) -> nn.Module:
        """A mean of the user's own rows, seen from standardised ones; its values are as the means of this task have them."""
        return OriginalRowsMean(mean, scales, shape)

    def reweighed(self, stacked: StackedMean, held_out: HeldOut, variance: Float[Tensor, " V"]) -> StackedMean:
        """The means weighed anew, now that their errors are known; `variance` is what f may still do at the held-out rows."""
        return stacked

    def candidates(self, stacked: StackedMean, num_rows: int) -> list[StackedMean]:
        """The stack, and what may be better than it; held-out rows decide."""
        return [stacked]

    def refine(
        self, data: FitData, prior: PriorChoice, stacked: StackedMean, options: FitOptions
    ) -> tuple[PriorFit, StackedMean, str]:
        """The prior of the covariance, and the mean, now that held-out predictions are known; and what was done in words."""
        return prior.fit, stacked, ""

    def handover(
        self, stacked: StackedMean, held_out: HeldOut, covariances: list[HeldOutCovariance], kernel: SparsePosteriorKernel
    ) -> Handover | None:
        """How kernel means give up their weight where r is larger than at any held-out row; None where they keep it."""
        return None
