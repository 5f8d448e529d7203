"""A fitted regression, whole: Q on standardised values, the noise of each target, and the way back to the user's units."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float, Shaped
from numpy.typing import NDArray
from torch import Tensor

from gwi._typing import Array
from gwi.core.conditioning import ConditionedKernel, ConditionedPosterior, conditioned, prepared
from gwi.core.distributions import conformal_quantile, log_density, quantile
from gwi.core.kernels import has_one_variance
from gwi.core.means import FixedMean
from gwi.core.measures import GaussianMeasure, kernel_variance
from gwi.core.noise import LogLinearNoise, noise_features
from gwi.core.posterior import CachedPosterior, with_disagreement
from gwi.core.scaling import CHUNK_SIZE, Embedding, Scales, embedded_rows, finite
from gwi.models.levels import Levels


@dataclass(frozen=True)
class RegressionModel:
    """All that predicts, and nothing else.

    Attributes:
        posterior: Q on standardised rows and targets, untempered; the disagreement of its means becomes part of its kernel.
        embedding: from the user's rows to Q's.
        noises: σ² of each target, standardised.
        tempering_factor: α_T of each target.
        degrees_of_freedom: of the predictive law of each target, Student's t; infinity is the normal law.
        disagreement_weight: γ of each target: stacked means that disagree add γ d² to the variance of f.
        scores: |y − m|/sd of rows the mean had not seen, in ascending order, for conformal intervals.
        cached: Q ready for many predictions.
    """

    posterior: GaussianMeasure
    embedding: Embedding
    noises: tuple[LogLinearNoise, ...]
    tempering_factor: Array
    degrees_of_freedom: Array
    disagreement_weight: Array
    scores: Float[Tensor, "J V"]
    cached: CachedPosterior | ConditionedPosterior = field(default=cast("CachedPosterior", None), repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "posterior", with_disagreement(self.posterior, torch.as_tensor(self.disagreement_weight)))
        # An update brings it along: all that does not depend on the new rows is ready already.
        if self.cached is None or self.cached.posterior is not self.posterior:
            prepare = prepared if isinstance(self.posterior.kernel, ConditionedKernel) else CachedPosterior
            object.__setattr__(self, "cached", prepare(self.posterior).requires_grad_(False))

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
        """σ² at rows that Q knows and their means, standardised."""
        features = noise_features(x[:, : self.num_noise_columns], mean)
        return torch.stack([noise(features) for noise in self.noises])

    @torch.no_grad()
    def parts(self, X: NDArray[Any], chunk_size: int = CHUNK_SIZE) -> tuple[Array, Array, Array, Array]:
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

    @torch.no_grad()
    def mean(self, X: NDArray[Any], chunk_size: int = CHUNK_SIZE) -> Array:
        """m_Q at each row in the targets' own units, one row an output."""
        parts = [self.cached.mean_at(x).cpu().numpy() for x in self.rows(X, chunk_size)]
        return finite(np.concatenate(parts, axis=1) * self.scales.y_scale[:, None] + self.scales.y_centre[:, None], "prediction")

    def law(self, X: NDArray[Any], chunk_size: int = CHUNK_SIZE) -> tuple[Array, Array]:
        """Mean and standard deviation of y, tempered, in its own units, one row an output."""
        return self.law_of(self.parts(X, chunk_size))

    def law_of(self, parts: tuple[Array, Array, Array, Array]) -> tuple[Array, Array]:
        """The law at rows whose `parts` are known."""
        mean, variance, disagreement, noise = parts
        std = np.sqrt((variance + disagreement + noise) * self.tempering_factor[:, None])
        mean = mean * self.scales.y_scale[:, None] + self.scales.y_centre[:, None]
        return finite(mean, "prediction"), finite(std * self.scales.y_scale[:, None], "standard deviation")

    def quantiles(self, X: NDArray[Any], levels: Float[Array, " Q"]) -> Float[Array, "J N Q"]:
        """Quantiles of y in its own units."""
        mean, std = self.law(X)
        return mean[..., None] + std[..., None] * self.unit_quantiles(levels)[:, None, :]

    def unit_quantiles(self, levels: Sequence[float] | Float[Array, " Q"]) -> Float[Array, "J Q"]:
        """In standard deviations from the mean."""
        return np.stack([quantile(np.asarray(levels, dtype=np.float64), degrees) for degrees in self.degrees_of_freedom])

    def ends(self, coverage: float, conformal: bool) -> Float[Array, "J 2"]:
        """Of the central interval with this probability, in standard deviations from the mean."""
        if conformal:
            half = np.array([conformal_quantile(scores, coverage) for scores in self.scores])
            return np.stack([-half, half], axis=1)
        levels = np.array([(1 - coverage) / 2, (1 + coverage) / 2])
        return np.stack([quantile(levels, degrees) for degrees in self.degrees_of_freedom])

    def log_density(self, X: NDArray[Any], y: Float[Array, "J N"]) -> Float[Array, "J N"]:
        """log p(y | x) of each target in its own units."""
        mean, std = self.law(X)
        z = (y - mean) / std
        return np.stack([log_density(row, degrees) for row, degrees in zip(z, self.degrees_of_freedom, strict=True)]) - np.log(
            std
        )

    def sample(self, X: NDArray[Any], count: int, rng: np.random.RandomState) -> Float[Array, "J N S"]:
        """Joint draws of y: each row's law is `log_density`'s, their covariance is `covariance`.

        With tails these are of the multivariate t: y = m + √((ν − 2)/u) g with g ~ N(0, C) and one u ~ χ²_ν a draw. For each row
        g/√(u/ν) is Student's t times √C_ii, so y has unit-variance t tails; E (ν − 2)/u = 1, so the covariance of y is C.
        """
        draws = []
        for mean, covariance, degrees in zip(self.mean(X), self.covariance(X), self.degrees_of_freedom, strict=True):
            values, vectors = np.linalg.eigh(covariance)
            errors = (vectors * np.sqrt(np.maximum(values, 0))) @ rng.standard_normal((len(X), count))
            if np.isfinite(degrees):
                errors *= np.sqrt((degrees - 2) / rng.chisquare(degrees, count))
            draws.append(mean[:, None] + errors)
        return np.stack(draws)

    @torch.no_grad()
    def covariance(self, X: NDArray[Any]) -> Float[Array, "J N N"]:
        """The joint covariance of y at the rows, tempered, in its own units."""
        _, variance, noise = self.marginals(X)
        joint = self.cached.joint(torch.cat(list(self.rows(X))))[1].cpu().numpy().copy()
        index = np.arange(len(X))
        joint[:, index, index] = variance + noise
        return joint * (self.tempering_factor * self.scales.y_scale**2)[:, None, None]

    @torch.no_grad()
    def given(self, X: NDArray[Any], y: Float[Tensor, "J N"], weight: Float[Array, " N"]) -> RegressionModel:
        """The model given more rows and their standardised targets: Q conditioned on them, all else as it is.

        σ² at these rows is the model's own, at the mean before any update, so that the order of updates changes nothing; a row of
        weight w counts as w rows with this target, whose mean has the noise σ²/w. Tempering multiplies r and σ² alike, so that
        the tempered law given the rows is the law given the rows, tempered.
        """
        x = torch.cat(list(self.rows(X)))
        first = self.cached.first if isinstance(self.cached, ConditionedPosterior) else self.cached
        noise = self.noise_variance(x, first.mean_at(x)) / x.new_tensor(weight)
        new = conditioned(self.cached, x, y.to(x), noise)
        return replace(self, posterior=new.posterior, cached=new)

    @torch.no_grad()
    def prior_variance(self, X: NDArray[Any]) -> Float[Array, " N"]:
        """k(x, x) at each row, standardised."""
        prior = self.posterior.kernel.prior_kernel
        if has_one_variance(prior):
            # A network need not be asked again about the rows.
            return np.full(len(X), float(kernel_variance(prior, self.posterior.kernel.inducing_points[:1])))
        return np.concatenate([kernel_variance(prior, x).cpu().numpy() for x in self.rows(X)])

    def prior_share(self, X: NDArray[Any], parts: tuple[Array, Array, Array, Array]) -> Float[Array, " N"]:
        """r/k at rows whose `parts` are known: 0 where f is known, 1 where the prior is all there is.

        Without γ d²: means disagree among known rows too, and tell them from others less well than r does (decision 7).
        """
        return finite(np.clip(parts[1].mean(0) / self.prior_variance(X), 0.0, 1.0), "outlier score")

    def joint(self, x: Float[Tensor, "*B Q D"]) -> tuple[Float[Tensor, "*B J Q"], Float[Tensor, "*B J Q Q"]]:
        """Mean and covariance of f, untempered, in the user's own units, for each batch of rows; differentiable in x."""
        s = self.scales
        batch = x.to(self.device, torch.float64)
        inner = len(self.embedding.shape)
        rows = self.embedding(batch.reshape(-1, *self.embedding.shape))
        mean, covariance = self.cached.joint(rows.reshape(*batch.shape[:-inner], -1))
        scale, centre = mean.new_tensor(s.y_scale)[:, None], mean.new_tensor(s.y_centre)[:, None]
        return mean * scale + centre, covariance * scale[..., None].square()


@dataclass(frozen=True)
class Decomposition:
    """Predictive variance by its source, in the target's own units, tempered as in `predict`.

    Attributes:
        epistemic: α_T times the variance of f, r and the disagreement of stacked means: what more data near x would remove.
        aleatoric: α_T σ², of y given f: what they would not.
        total: their sum, the square of `predict`'s standard deviation.
    """

    epistemic: Any
    aleatoric: Any
    total: Any


def differentiable(posterior: GaussianMeasure) -> bool:
    """Whether gradients with respect to the row pass through every part of the mean."""
    return not any(isinstance(part, FixedMean) for part in posterior.modules())
