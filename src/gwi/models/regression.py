"""A fitted regression, whole: Q on standardised values, the noise of each target, and the way back to the user's units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray

from gwi._typing import Array
from gwi.core.conditioning import ConditionedPosterior, conditioned
from gwi.core.distributions import conformal_quantile, log_density, quantile
from gwi.core.laws.gaussian import Law
from gwi.core.laws.protocol import PredictiveLaw
from gwi.core.laws.transformed import factors_of_normals
from gwi.core.means import FixedMean
from gwi.core.measures import GaussianMeasure
from gwi.core.scaling import CHUNK_SIZE, finite
from gwi.models.numbers import NumberModel, Parts


@dataclass(frozen=True, kw_only=True)
class RegressionModel(NumberModel):
    """Numbers, or their logarithms, with normal or Student's t noise around f.

    Attributes:
        degrees_of_freedom: of the predictive law of each target, Student's t; infinity is the normal law.
    """

    degrees_of_freedom: Array

    @property
    def is_gaussian(self) -> bool:
        """Whether y is f and symmetric noise: not where it is that of a logarithm, or cut."""
        return self.outcome.is_plain

    def laws_of(self, parts: Parts) -> tuple[PredictiveLaw, ...]:
        """Normal or t laws, and what the outcome makes of them."""
        mean, std = self._inner(parts)
        degrees = self.degrees_of_freedom
        inner = [Law(mean[j : j + 1], std[j : j + 1], float(degrees[j])) for j in range(len(mean))]
        return tuple(self.outcome.law(law) for law in inner)

    def _inner(self, parts: Parts) -> tuple[Array, Array]:
        """Mean and standard deviation of what has normal or t noise: of y, or of its logarithm."""
        mean, variance, disagreement, noise = parts
        std = np.sqrt((variance + disagreement + noise) * self.tempering_factor[:, None])
        mean = mean * self.scales.y_scale[:, None] + self.scales.y_centre[:, None]
        return finite(mean, "prediction"), finite(std * self.scales.y_scale[:, None], "standard deviation")

    def law_of(self, parts: Parts) -> tuple[Float[Array, "J N"], Float[Array, "J N"]]:
        """Mean and standard deviation of y at rows whose `parts` are known."""
        return self._inner(parts) if self.outcome.is_plain else super().law_of(parts)

    @torch.no_grad()
    def mean(self, X: NDArray[Any], chunk_size: int = CHUNK_SIZE) -> Float[Array, "J N"]:
        """E Y at each row in the targets' own units."""
        if not self.outcome.is_plain:
            return super().mean(X, chunk_size)
        parts = [self.cached.mean_at(x).cpu().numpy() for x in self.rows(X, chunk_size)]
        return finite(np.concatenate(parts, axis=1) * self.scales.y_scale[:, None] + self.scales.y_centre[:, None], "prediction")

    def variances_of(self, parts: Parts) -> tuple[Float[Array, "J N"], Float[Array, "J N"]]:
        """α_T times the variance of f, and α_T σ²; of an outcome with bounds their shares of its variance."""
        scale = (self.scales.y_scale**2 * self.tempering_factor)[:, None]
        epistemic, aleatoric = (parts[1] + parts[2]) * scale, parts[3] * scale
        if self.outcome.is_plain:
            return epistemic, aleatoric
        total = np.square(self.law_of(parts)[1])
        if self.outcome.log:
            # Var E[Y | f] = (E Y)² (e^v − 1) for normal noise.
            mean = self.law_of(parts)[0]
            known = np.minimum(np.square(mean) * np.expm1(np.minimum(epistemic, 600.0)), total)
            return known, total - known
        return total * epistemic / (epistemic + aleatoric), total * aleatoric / (epistemic + aleatoric)

    def quantiles_of(self, parts: Parts, levels: Sequence[float] | Float[Array, " Q"]) -> Float[Array, "J N Q"]:
        """Quantiles of y in its own units."""
        if not self.outcome.is_plain:
            return super().quantiles_of(parts, levels)
        mean, std = self._inner(parts)
        return mean[..., None] + std[..., None] * self.unit_quantiles(levels)[:, None, :]

    def unit_quantiles(self, levels: Sequence[float] | Float[Array, " Q"]) -> Float[Array, "J Q"]:
        """In standard deviations from the mean."""
        return np.stack([quantile(np.asarray(levels, dtype=np.float64), degrees) for degrees in self.degrees_of_freedom])

    def intervals_of(self, parts: Parts, coverage: float, conformal: bool) -> tuple[Float[Array, "J N"], Float[Array, "J N"]]:
        """The ends of the central interval with this probability."""
        if not (self.outcome.is_plain or conformal):
            found = self.quantiles_of(parts, [(1 - coverage) / 2, (1 + coverage) / 2])
            return found[..., 0], found[..., 1]
        return self._between(parts, self.ends(coverage, conformal))

    def interval_within(self, parts: Parts, distance: Float[Array, " J"]) -> tuple[Float[Array, "J N"], Float[Array, "J N"]]:
        """So many standard deviations to either side of the mean."""
        return self._between(parts, np.stack([-distance, distance], axis=1))

    def _between(self, parts: Parts, ends: Float[Array, "J 2"]) -> tuple[Float[Array, "J N"], Float[Array, "J N"]]:
        mean, std = self._inner(parts)
        low, high = (mean + std * end[:, None] for end in ends.T)
        return self.outcome.decode(low), self.outcome.decode(high)

    def distances_of(self, parts: Parts, y: Float[Array, "J N"]) -> Float[Array, "J N"]:
        """In standard deviations from the mean; of a logarithm where the likelihood is one of that."""
        mean, std = self._inner(parts)
        return np.abs(self.outcome.encode(y.T).T - mean) / std

    def ends(self, coverage: float, conformal: bool) -> Float[Array, "J 2"]:
        """Of the central interval with this probability, in standard deviations from the mean."""
        if conformal:
            half = np.array([conformal_quantile(scores, coverage) for scores in self.scores])
            return np.stack([-half, half], axis=1)
        return self.unit_quantiles([(1 - coverage) / 2, (1 + coverage) / 2])

    def log_density(self, X: NDArray[Any], y: Float[Array, "J N"]) -> Float[Array, "J N"]:
        """log p(y | x) of each target in its own units."""
        if not self.outcome.is_plain:
            return super().log_density(X, y)
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
        means = self._inner(self.parts(X))[0] if not self.outcome.is_plain else self.mean(X)
        for mean, covariance, degrees in zip(means, self._covariance(X), self.degrees_of_freedom, strict=True):
            values, vectors = np.linalg.eigh(covariance)
            errors = (vectors * np.sqrt(np.maximum(values, 0))) @ rng.standard_normal((len(X), count))
            if np.isfinite(degrees):
                # The exponential of t has no mean: what stands for it then is what the law has.
                drawn = rng.choice(factors_of_normals(degrees), count) if self.outcome.log else None
                errors *= np.sqrt((degrees - 2) / rng.chisquare(degrees, count) if drawn is None else drawn)
            draws.append(self.outcome.decode(mean[:, None] + errors))
        return np.stack(draws)

    def covariance(self, X: NDArray[Any]) -> Float[Array, "J N N"]:
        """The joint covariance of y at the rows, tempered, in its own units."""
        joint = self._covariance(X)
        if self.outcome.is_plain:
            return joint
        mean, std = self.law(X)
        if self.outcome.log:
            # Of e^Z with jointly normal Z; with tails nearly so.
            found = mean[:, :, None] * mean[:, None, :] * np.expm1(np.minimum(joint, 600.0))
        else:
            inner = np.sqrt(np.einsum("jnn->jn", joint))
            found = joint * (std / inner)[:, :, None] * (std / inner)[:, None, :]
        index = np.arange(len(X))
        found[:, index, index] = np.square(std)
        return found

    @torch.no_grad()
    def _covariance(self, X: NDArray[Any]) -> Float[Array, "J N N"]:
        """Of y, or of its logarithm."""
        _, variance, noise = self.marginals(X)
        joint = self.cached.joint(torch.cat(list(self.rows(X))))[1].cpu().numpy().copy()
        index = np.arange(len(X))
        joint[:, index, index] = variance + noise
        return joint * (self.tempering_factor * self.scales.y_scale**2)[:, None, None]

    @torch.no_grad()
    def given(self, X: NDArray[Any], y: Float[Array, "N J"], weight: Float[Array, " N"]) -> RegressionModel:
        """The model given more rows and their targets: Q conditioned on them, all else as it is.

        σ² at these rows is the model's own, at the mean before any update, so that the order of updates changes nothing; a row of
        weight w counts as w rows with this target, whose mean has the noise σ²/w. Tempering multiplies r and σ² alike, so that
        the tempered law given the rows is the law given the rows, tempered.
        """
        x = torch.cat(list(self.rows(X)))
        first = self.cached.first if isinstance(self.cached, ConditionedPosterior) else self.cached
        noise = self.noise_variance(x, first.mean_at(x)) / x.new_tensor(weight)
        new = conditioned(self.cached, x, self.targets(y).to(x), noise)
        return replace(self, posterior=new.posterior, cached=new)


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
