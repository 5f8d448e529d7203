"""What fitted models of numbers have in common: Q, the way from the user's rows to Q's, and all that follows from f alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from numpy.typing import NDArray
from torch import Tensor

from gwi._typing import Array
from gwi.core.conditioning import ConditionedKernel, ConditionedPosterior, prepared
from gwi.core.kernels import has_one_variance
from gwi.core.laws.protocol import PredictiveLaw
from gwi.core.laws.transformed import TruncatedLaw
from gwi.core.measures import GaussianMeasure, kernel_variance
from gwi.core.noise import LogLinearNoise, noise_features
from gwi.core.outcomes import Outcome
from gwi.core.posterior import CachedPosterior, with_disagreement
from gwi.core.scaling import CHUNK_SIZE, Embedding, Scales, embedded_rows, finite
from gwi.exceptions import UserError
from gwi.models.levels import Levels
from gwi.models.strata import Strata, reaches

# Rows whose laws are looked at together, where only numbers of them are wanted.
ROWS_OF_LAWS = 2**15
# Mean, r, γ d² and noise variance or dispersion at each row, one row an output, on the scale of Q.
Parts = tuple[Array, Array, Array, Array]


@dataclass(frozen=True, kw_only=True)
class NumberModel(ABC):
    """All that predicts numbers, and nothing else.

    Attributes:
        posterior: Q on standardised rows and targets, untempered; the disagreement of its means becomes part of its kernel.
        embedding: from the user's rows to Q's.
        noises: σ², or the dispersion of the likelihood, of each target.
        tempering_factor: α_T of each target.
        disagreement_weight: γ of each target: stacked means that disagree add γ d² to the variance of f.
        scores: how far rows the mean had not seen were from the middle of their law, in ascending order, for conformal intervals.
        outcome: from the user's numbers to those of the likelihood.
        strata: of the scores, where intervals may be those of a kind of row; None where the fit had none.
        cached: Q ready for many predictions.
    """

    posterior: GaussianMeasure
    embedding: Embedding
    noises: tuple[LogLinearNoise, ...]
    tempering_factor: Array
    disagreement_weight: Array
    scores: Float[Tensor, "J V"]
    outcome: Outcome = field(default_factory=Outcome)
    strata: Strata | None = None
    cached: CachedPosterior | ConditionedPosterior = field(default=cast("CachedPosterior", None), repr=False, compare=False)

    def __post_init__(self) -> None:
        whole = with_disagreement(self.posterior, torch.as_tensor(self.disagreement_weight), self._scale_of_variance)
        object.__setattr__(self, "posterior", whole)
        # An update brings it along: all that does not depend on the new rows is ready already.
        if self.cached is None or self.cached.posterior is not self.posterior:
            prepare = prepared if isinstance(self.posterior.kernel, ConditionedKernel) else CachedPosterior
            object.__setattr__(self, "cached", prepare(self.posterior).requires_grad_(False))

    # What a kind of model must say.

    @abstractmethod
    def laws_of(self, parts: Parts) -> tuple[PredictiveLaw, ...]:
        """The law of each target in its own units, tempered, at rows whose `parts` are known."""

    @abstractmethod
    def variances_of(self, parts: Parts) -> tuple[Float[Array, "J N"], Float[Array, "J N"]]:
        """Of y in its own units: what more data would lower, and what they would not."""

    @abstractmethod
    def intervals_of(self, parts: Parts, coverage: float, conformal: bool) -> tuple[Float[Array, "J N"], Float[Array, "J N"]]:
        """The lower and the upper end of the central interval with this probability."""

    @abstractmethod
    def interval_within(self, parts: Parts, distance: Float[Array, " J"]) -> tuple[Float[Array, "J N"], Float[Array, "J N"]]:
        """The ends of the interval whose targets are at most so far from the middle of their law, in the unit of `scores`."""

    @abstractmethod
    def distances_of(self, parts: Parts, y: Float[Array, "J N"]) -> Float[Array, "J N"]:
        """How far targets lie from the middle of their law, in the unit of `scores`."""

    @abstractmethod
    def sample(self, X: NDArray[Any], count: int, rng: np.random.RandomState) -> Float[Array, "J N S"]:
        """Joint draws of y."""

    @abstractmethod
    def covariance(self, X: NDArray[Any]) -> Float[Array, "J N N"]:
        """The joint covariance of y at the rows, tempered, in its own units."""

    @abstractmethod
    def given(self, X: NDArray[Any], y: Float[Array, "N C"], weight: Float[Array, " N"]) -> NumberModel:
        """The model given more rows and their targets, in the user's units: Q conditioned on them, all else as it is.

        A row of weight w counts as w rows with this target.
        """

    # What follows.

    @property
    def num_columns(self) -> int:
        """Numbers of a target."""
        return len(self.noises)

    @property
    def is_gaussian(self) -> bool:
        """Whether y is f and symmetric noise."""
        return False

    @property
    def num_levels(self) -> int:
        """Values that y can take, where these are few."""
        return 0

    @property
    def level_values(self) -> Float[Array, " K"]:
        """These values, in ascending order."""
        return np.empty(0)

    @property
    def are_counts(self) -> bool:
        """Whether y are whole numbers from 0 on."""
        return False

    @property
    def has_bounds(self) -> bool:
        """Whether these are the bounds of one."""
        return False

    @property
    def _scale_of_variance(self) -> Float[Tensor, " J"] | None:
        """What r is multiplied by in Q."""
        return None

    @property
    def scale_of_f(self) -> Float[Array, " J"]:
        """What f is multiplied by to be in the unit of `quantity`."""
        return self.scales.y_scale

    @property
    def quantity(self) -> str:
        """What f is, for a reader."""
        if self.outcome.log:
            return "log y"
        return "y" if self.outcome.low is None else f"y before its cut at {self.outcome.low:g}"

    @property
    def output_names(self) -> tuple[str, ...]:
        """Of the targets, for a reader."""
        return ("y",) if len(self.noises) == 1 else tuple(f"target {j}" for j in range(len(self.noises)))

    def leading_outputs(self, X: NDArray[Any]) -> Int[NDArray[Any], " N"]:
        """Of each row the output that is looked at first."""
        return np.zeros(len(X), dtype=np.int64)

    @torch.no_grad()
    def variance_of_f(self, x: Float[Tensor, "n E"], nearly: bool = False) -> Float[Tensor, "J n"]:
        """Of f at rows that Q knows, tempered, in the unit of `quantity` squared; nearly, where it is averaged over many rows."""
        factor = self.scale_of_f**2 * (self.tempering_factor if self._scale_of_variance is None else 1.0)
        return x.new_tensor(factor)[:, None] * self.cached.variance(x, nearly)

    @property
    def device(self) -> torch.device:
        """Where the tensors live."""
        return self.posterior.kernel.inducing_points.device

    @property
    def scales(self) -> Scales:
        """Between standardised values and the user's own."""
        return self.embedding.scales

    def rows(self, X: Shaped[NDArray[Any], "N ..."], chunk_size: int = CHUNK_SIZE) -> Iterator[Float[Tensor, "n E"]]:
        """The rows that Q knows, some at a time."""
        return embedded_rows(self.embedding, X, self.device, chunk_size)

    @property
    def num_noise_columns(self) -> int:
        """Columns on which the noise depends, all or none: on pixels, features of a network and wide tables only on the level."""
        return len(self.noises[0].slopes) // 2 - len(self.noises)

    def noise_variance(self, x: Float[Tensor, "N E"], mean: Float[Tensor, "J N"]) -> Float[Tensor, "J N"]:
        """σ², or φ, at rows that Q knows and their means, standardised."""
        features = noise_features(x[:, : self.num_noise_columns], mean)
        return torch.stack([noise(features) for noise in self.noises])

    @torch.no_grad()
    def parts(self, X: NDArray[Any], chunk_size: int = CHUNK_SIZE) -> Parts:
        """Mean, r, γ d² and noise variance at each row, standardised, one row an output."""
        found = np.empty((4, len(self.noises), len(X)))
        for i, x in enumerate(self.rows(X, chunk_size)):
            mean, variance, disagreement = self.cached.parts(x)
            part = torch.stack([mean, variance, disagreement, self.noise_variance(x, mean)])
            found[..., i * chunk_size : (i + 1) * chunk_size] = part.cpu().numpy()
        finite(found, "prediction")
        return found[0], found[1], found[2], found[3]

    def marginals(self, X: NDArray[Any], chunk_size: int = CHUNK_SIZE) -> tuple[Array, Array, Array]:
        """Mean, variance of f and noise variance at each row, standardised, one row an output."""
        mean, variance, disagreement, noise = self.parts(X, chunk_size)
        return mean, variance + disagreement, noise

    @torch.no_grad()
    def levels(self, x: Float[Tensor, "n E"]) -> Levels:
        """What checks look at, from rows that Q knows."""
        mean, variance, disagreement = self.cached.parts(x)
        noise = self.noise_variance(x, mean).mean(-1)
        return Levels((variance + disagreement).mean(-1), noise, noise, self.tempering_factor)

    def check(self, X: NDArray[Any]) -> tuple[Array, ...]:
        """Numbers that are finite where the parts of the model fit together."""
        return self.marginals(X)

    def laws(self, X: NDArray[Any]) -> tuple[PredictiveLaw, ...]:
        """The law of each target at each row, in its own units."""
        return self.laws_of(self.parts(X))

    def mean(self, X: NDArray[Any], chunk_size: int = CHUNK_SIZE) -> Float[Array, "J N"]:
        """E Y at each row in the targets' own units."""
        return self.law_of(self.parts(X, chunk_size))[0]

    def law(self, X: NDArray[Any], chunk_size: int = CHUNK_SIZE) -> tuple[Float[Array, "J N"], Float[Array, "J N"]]:
        """Mean and standard deviation of y, tempered, in its own units."""
        return self.law_of(self.parts(X, chunk_size))

    def law_of(self, parts: Parts) -> tuple[Float[Array, "J N"], Float[Array, "J N"]]:
        """The same at rows whose `parts` are known."""
        mean, std = np.empty_like(parts[0]), np.empty_like(parts[0])
        for start in range(0, mean.shape[1], ROWS_OF_LAWS):
            rows = slice(start, start + ROWS_OF_LAWS)
            some = parts[0][:, rows], parts[1][:, rows], parts[2][:, rows], parts[3][:, rows]
            try:
                laws = self.laws_of(some)
            except UserError:
                # Once more for the numbers of the rows in its sentence.
                laws = self.laws_of(parts)
            for j, law in enumerate(laws):
                found = law.moments() if isinstance(law, TruncatedLaw) else (law.expectation(), law.variance())
                mean[j, rows], std[j, rows] = found[0], np.sqrt(found[1])
        return finite(mean, "prediction"), finite(std, "standard deviation")

    def quantiles_of(self, parts: Parts, levels: Sequence[float] | Float[Array, " Q"]) -> Float[Array, "J N Q"]:
        """Quantiles of y in its own units."""
        laws = self.laws_of(parts)
        return np.stack([np.stack([law.quantile(float(level)) for level in levels], axis=-1) for law in laws])

    def intervals_of_strata(
        self, parts: Parts, coverage: float, places: Int[Array, " N"]
    ) -> tuple[Float[Array, "J N"], Float[Array, "J N"]]:
        """Conformal intervals, each of the stratum at its row's place; −1 is none."""
        assert self.strata is not None
        reach = reaches(self.scores, self.strata, coverage)
        low, high = np.empty_like(parts[0]), np.empty_like(parts[0])
        for place in np.unique(places):
            rows = places == place
            mean, variance, disagreement, noise = (part[:, rows] for part in parts)
            low[:, rows], high[:, rows] = self.interval_within((mean, variance, disagreement, noise), reach[:, place])
        return low, high

    def log_density(self, X: NDArray[Any], y: Float[Array, "J N"]) -> Float[Array, "J N"]:
        """log p(y | x) of each target in its own units."""
        return np.stack([law.log_density(row) for law, row in zip(self.laws(X), y, strict=True)])

    def targets(self, y: Float[Array, "N C"]) -> Float[Tensor, "C N"]:
        """Targets as Q knows them."""
        return self.scales.targets(self.outcome.encode(y), self.device)

    @torch.no_grad()
    def prior_variance(self, X: NDArray[Any]) -> Float[Array, " N"]:
        """k(x, x) at each row, standardised."""
        prior = self.posterior.kernel.prior_kernel
        if has_one_variance(prior):
            # A network need not be asked again about the rows.
            return np.full(len(X), float(kernel_variance(prior, self.posterior.kernel.inducing_points[:1])))
        return np.concatenate([kernel_variance(prior, x).cpu().numpy() for x in self.rows(X)])

    def prior_share(self, X: NDArray[Any], parts: Parts) -> Float[Array, " N"]:
        """r/k at rows whose `parts` are known: 0 where f is known, 1 where the prior is all there is.

        Without γ d²: means disagree among known rows too, and tell them from others less well than r does (decision 7).
        """
        return finite(np.clip(parts[1].mean(0) / self.prior_variance(X), 0.0, 1.0), "outlier score")

    def joint(self, x: Float[Tensor, "*B Q D"]) -> tuple[Float[Tensor, "*B J Q"], Float[Tensor, "*B J Q Q"]]:
        """Mean and covariance of f, untempered, in its own units, for each batch of rows; differentiable in x."""
        s = self.scales
        batch = x.to(self.device, torch.float64)
        inner = len(self.embedding.shape)
        rows = self.embedding(batch.reshape(-1, *self.embedding.shape))
        mean, covariance = self.cached.joint(rows.reshape(*batch.shape[:-inner], -1))
        scale, centre = mean.new_tensor(s.y_scale)[:, None], mean.new_tensor(s.y_centre)[:, None]
        return mean * scale + centre, covariance * scale[..., None].square()
