"""A fitted regression, whole: Q on standardised values, the noise of each target, and the way back to the user's units."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy.stats import norm
from torch import Tensor

from gwi._typing import Array
from gwi.core.distributions import log_density, quantile
from gwi.core.means import FixedMean
from gwi.core.measures import GaussianMeasure, kernel_variance
from gwi.core.noise import LogLinearNoise, noise_features
from gwi.core.posterior import PreparedPosterior
from gwi.core.scaling import Scales

# Rows held at a time: with a thousand inducing points a chunk takes 32 MB a matrix.
CHUNK_SIZE = 4096


@dataclass(frozen=True)
class RegressionModel:
    """All that predicts, and nothing else.

    Attributes:
        posterior: Q on standardised rows and targets.
        noises: σ² of each target, standardised.
        scales: between standardised values and the user's own.
        tempering_factor: α_T of each target.
        degrees_of_freedom: of the predictive law of each target, Student's t; infinity is the normal law.
        disagreement_weight: γ of each target: stacked means that disagree add γ d² to the variance of f.
        scores: |y − m|/sd of rows the mean had not seen, in ascending order, for conformal intervals.
        prepared: Q ready for many predictions.
    """

    posterior: GaussianMeasure
    noises: tuple[LogLinearNoise, ...]
    scales: Scales
    tempering_factor: Array
    degrees_of_freedom: Array
    disagreement_weight: Array
    scores: Float[Tensor, "J V"]
    prepared: PreparedPosterior = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "prepared", PreparedPosterior(self.posterior, torch.as_tensor(self.disagreement_weight)).requires_grad_(False)
        )

    @property
    def device(self) -> torch.device:
        """Where the tensors live."""
        return self.posterior.kernel.inducing_points.device

    def _chunks(self, X: Array, chunk_size: int) -> Iterator[Tensor]:
        for start in range(0, len(X), chunk_size):
            yield self.scales.rows(X[start : start + chunk_size], self.device)

    @torch.no_grad()
    def parts(self, X: Array, chunk_size: int = CHUNK_SIZE) -> tuple[Array, Array, Array, Array]:
        """Mean, r, γ d² and noise variance at each row, standardised, one row an output."""
        found = np.empty((4, len(self.noises), len(X)))
        for i, x in enumerate(self._chunks(X, chunk_size)):
            mean, variance, disagreement = self.prepared.parts(x)
            features = noise_features(x, mean)
            noise = torch.stack([noise(features) for noise in self.noises])
            part = torch.stack([mean, variance, disagreement, noise])
            found[..., i * chunk_size : (i + 1) * chunk_size] = part.cpu().numpy()
        return found[0], found[1], found[2], found[3]

    def marginals(self, X: Array, chunk_size: int = CHUNK_SIZE) -> tuple[Array, Array, Array]:
        """Mean, variance of f and noise variance at each row, standardised, one row an output."""
        mean, variance, disagreement, noise = self.parts(X, chunk_size)
        return mean, variance + disagreement, noise

    @torch.no_grad()
    def mean(self, X: Array, chunk_size: int = CHUNK_SIZE) -> Array:
        """m_Q at each row in the targets' own units, one row an output."""
        parts = [self.prepared.mean_at(x).cpu().numpy() for x in self._chunks(X, chunk_size)]
        return np.concatenate(parts, axis=1) * self.scales.y_scale[:, None] + self.scales.y_centre[:, None]

    def law(self, X: Array, chunk_size: int = CHUNK_SIZE) -> tuple[Array, Array]:
        """Mean and standard deviation of y, tempered, in its own units, one row an output."""
        return self.law_of(self.parts(X, chunk_size))

    def law_of(self, parts: tuple[Array, Array, Array, Array]) -> tuple[Array, Array]:
        """The law at rows whose `parts` are known."""
        mean, variance, disagreement, noise = parts
        std = np.sqrt((variance + disagreement + noise) * self.tempering_factor[:, None])
        return mean * self.scales.y_scale[:, None] + self.scales.y_centre[:, None], std * self.scales.y_scale[:, None]

    def quantiles(self, X: Array, levels: Float[Array, " Q"]) -> Float[Array, "J N Q"]:
        """Quantiles of y in its own units."""
        mean, std = self.law(X)
        unit = np.stack([quantile(levels, degrees) for degrees in self.degrees_of_freedom])
        return mean[..., None] + std[..., None] * unit[:, None, :]

    def log_density(self, X: Array, y: Float[Array, "J N"]) -> Float[Array, "J N"]:
        """log p(y | x) of each target in its own units."""
        mean, std = self.law(X)
        z = (y - mean) / std
        return np.stack([log_density(row, degrees) for row, degrees in zip(z, self.degrees_of_freedom, strict=True)]) - np.log(
            std
        )

    def sample(self, X: Array, count: int, rng: np.random.RandomState) -> Float[Array, "J N S"]:
        """Joint draws of y: each row's law is `log_density`'s, the dependence between rows that of the Gaussian measure."""
        mean, std = self.law(X)
        draws = []
        for j, covariance in enumerate(self.covariance(X)):
            values, vectors = np.linalg.eigh(covariance)
            z = (vectors * np.sqrt(np.maximum(values, 0))) @ rng.standard_normal((len(X), count)) / std[j][:, None]
            if np.isfinite(self.degrees_of_freedom[j]):
                z = quantile(norm.cdf(z), self.degrees_of_freedom[j])
            draws.append(mean[j][:, None] + std[j][:, None] * z)
        return np.stack(draws)

    @torch.no_grad()
    def covariance(self, X: Array) -> Float[Array, "J N N"]:
        """The joint covariance of y at the rows, tempered, in its own units."""
        _, variance, noise = self.marginals(X)
        rows = self.scales.rows(X, self.device)
        factor = self.posterior.factor(rows)
        joint = (factor @ factor.mT + self.prepared.disagreement(rows)).cpu().numpy().copy()
        index = np.arange(len(X))
        joint[:, index, index] = variance + noise
        return joint * (self.tempering_factor * self.scales.y_scale**2)[:, None, None]

    @torch.no_grad()
    def prior_variance(self, X: Array) -> Float[Array, " N"]:
        """k(x, x) at each row, standardised."""
        prior = self.posterior.kernel.prior_kernel
        return np.concatenate([kernel_variance(prior, x).cpu().numpy() for x in self._chunks(X, CHUNK_SIZE)])

    def unknown_share(self, X: Array, parts: tuple[Array, Array, Array, Array]) -> Float[Array, " N"]:
        """r/k at rows whose `parts` are known: 0 where f is known, 1 where the prior is all there is.

        Without γ d²: means disagree among known rows too, and tell them from others less well than r does (decision 7).
        """
        return np.clip(parts[1].mean(0) / self.prior_variance(X), 0.0, 1.0)

    def joint(self, x: Float[Tensor, "*B Q D"]) -> tuple[Float[Tensor, "*B J Q"], Float[Tensor, "*B J Q Q"]]:
        """Mean and covariance of f, untempered, in the user's own units, for each batch of rows; differentiable in x."""
        s = self.scales
        rows = x.to(self.device, torch.float64)
        rows = (rows - rows.new_tensor(s.x_centre)) / rows.new_tensor(s.x_scale)
        mean, covariance = self.prepared.joint(rows)
        scale, centre = rows.new_tensor(s.y_scale)[:, None], rows.new_tensor(s.y_centre)[:, None]
        return mean * scale + centre, covariance * scale[..., None].square()


@dataclass(frozen=True)
class Decomposition:
    """Predictive variance by its source, in the target's own units.

    Attributes:
        epistemic: of f, r and the disagreement of stacked means: what more data near x would remove.
        aleatoric: σ², of y given f: what they would not.
        total: their sum, tempered as in `predict`.
    """

    epistemic: Any
    aleatoric: Any
    total: Any


@dataclass(frozen=True)
class Member:
    """One mean that was tried.

    Attributes:
        name: as asked for.
        weights: in the mean of each target.
        unseen_rmse: on rows it had not seen, in units of the target's standard deviation.
        seconds: it took.
    """

    name: str
    weights: tuple[float, ...]
    unseen_rmse: float
    seconds: float


@dataclass(frozen=True)
class Summary:
    """What was chosen, and why.

    Attributes:
        num_rows: N.
        members: the means that were tried.
        covariance: which S.
        num_inducing: M of the covariance.
        stores_all_rows: whether every row is an inducing point or the centre of a basis function, so that a file holds them all.
        divergence_weight: β of each target.
        noise: penalty of the noise model of each target; infinity is constant noise.
        tempering: α_T of each target.
        degrees_of_freedom: of each target's predictive law, Student's t; infinity is the normal law.
        disagreement_weight: γ of each target: stacked means that disagree add γ d² to the variance of f.
        unseen_nll: NLL on rows the mean had not seen, before and after tempering, standardised targets.
        seconds: of the whole fit.
        note: what else a reader should know.
    """

    num_rows: int
    members: tuple[Member, ...]
    covariance: str
    num_inducing: int
    stores_all_rows: bool
    divergence_weight: tuple[float, ...]
    noise: tuple[float, ...]
    tempering: tuple[float, ...]
    degrees_of_freedom: tuple[float, ...]
    disagreement_weight: tuple[float, ...]
    unseen_nll: tuple[float, float]
    seconds: float
    note: str = ""

    def __str__(self) -> str:
        lines = [f"{self.num_rows} rows, {self.num_inducing} inducing points, {self.seconds:.1f} s"]
        if self.stores_all_rows:
            lines.append("  every row is kept as an inducing or basis point: a saved model holds all inputs, no targets")
        for member in self.members:
            shown = ", ".join(f"{w:.2f}" for w in member.weights)
            lines.append(f"  mean {member.name:<16} weight {shown}  unseen RMSE {member.unseen_rmse:.3f}  {member.seconds:.1f} s")
        kinds = ", ".join("constant" if p == math.inf else "input-dependent" for p in self.noise)
        weights = ", ".join(f"{b:.3g}" for b in self.divergence_weight)
        covariance = self.covariance if self.covariance == "titsias" else f"{self.covariance}, weight of W₂² {weights}"
        lines.append(f"  covariance {covariance}; noise {kinds}")
        if any(self.disagreement_weight):
            shown = ", ".join(f"{g:.2f}" for g in self.disagreement_weight)
            lines.append(f"  where the means disagree, {shown} times their spread is added to the variance")
        factors = ", ".join(f"{a:.3f}" for a in self.tempering)
        tails = ", ".join("normal" if d == math.inf else f"t with {d:g} degrees of freedom" for d in self.degrees_of_freedom)
        lines.append(f"  unseen NLL {self.unseen_nll[0]:.3f}, tempered by {factors}: {self.unseen_nll[1]:.3f}; tails {tails}")
        if self.note:
            lines.append(f"  {self.note}")
        return "\n".join(lines)


def differentiable(posterior: GaussianMeasure) -> bool:
    """Whether gradients with respect to the row pass through every part of the mean."""
    return not any(isinstance(part, FixedMean) for part in posterior.modules())
