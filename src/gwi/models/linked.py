"""A fitted regression whose likelihood is not Gaussian: Q over f, p(y | f, φ), and the law of y that follows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from gwi._typing import Array
from gwi.core.conditioning import conditioned
from gwi.core.distributions import conformal_quantile
from gwi.core.laws.gaussian import Law
from gwi.core.laws.mixed import MixedLaw
from gwi.core.laws.protocol import PredictiveLaw
from gwi.core.likelihoods.families import Family
from gwi.core.likelihoods.support import require_support
from gwi.core.linalg import cholesky, cholesky_solve
from gwi.models.levels import Levels
from gwi.models.numbers import NumberModel, Parts

# Terms and nodes of the expansion of E[Y | f] in Hermite polynomials, for the covariance of y between rows.
NUM_TERMS, NUM_NODES = 24, 64
# Newton steps to the mode of f given new rows, and of a row that says nothing of f what still counts.
MOST_STEPS, LEAST_CURVATURE = 100, 1e-6
# Of probabilities that are added up: an interval that ends at y is to hold it.
ROUNDING = 1e-6


@dataclass(frozen=True, kw_only=True)
class LinkedModel(NumberModel):
    """One number with a likelihood p(y | f, φ) around a Gaussian f; `noises` holds φ, tempering multiplies r.

    Attributes:
        family: the likelihood.
    """

    family: Family

    @property
    def _scale_of_variance(self) -> Float[Tensor, " J"]:
        return torch.as_tensor(self.tempering_factor)

    @property
    def _is_location(self) -> bool:
        """Whether y, or its logarithm, is f and noise; else a link stands between them."""
        one = np.ones(1)
        return isinstance(law_of_family(self.family, one, one, one), Law)

    @property
    def scale_of_f(self) -> Float[Array, " J"]:
        """What f is multiplied by to be in the unit of `quantity`."""
        return self.scales.y_scale if self._is_location else np.ones(1)

    @property
    def quantity(self) -> str:
        """What f is, for a reader."""
        return super().quantity if self._is_location else f"f of {self.family.name}"

    @property
    def num_columns(self) -> int:
        """Numbers of a target: two where it may be known by its bounds."""
        return self.family.num_columns

    @property
    def num_levels(self) -> int:
        """Values that y can take, where these are few."""
        return len(self.level_values)

    @property
    def level_values(self) -> Float[Array, " K"]:
        """These values, in ascending order."""
        return np.array(getattr(self.family, "values", ()), dtype=np.float64)

    @property
    def are_counts(self) -> bool:
        """Whether y are whole numbers from 0 on."""
        return self.family.is_discrete and not self.num_levels

    @property
    def has_bounds(self) -> bool:
        """Whether these are the bounds of one."""
        return self.family.num_columns > 1

    @torch.no_grad()
    def levels(self, x: Float[Tensor, "n E"]) -> Levels:
        """What checks look at, from rows that Q knows: σ² is that of the noise of f, or one over the curvature of log p."""
        mean, variance, disagreement = self.cached.parts(x)
        phi = self.noise_variance(x, mean)
        if hasattr(self.family, "closed_log_marginal"):
            noise = phi.mean(-1)
        else:
            given = mean[0], phi[0]
            # Of our own families the curvature is an expectation already, and y plays no part.
            expected = getattr(self.family, "information", None)
            information = self.family.curvature(self.family.mean(*given), *given) if expected is None else expected(*given)
            noise = information.mean()[None].reciprocal()
        whole = torch.as_tensor(self.tempering_factor).to(variance)[:, None] * variance + disagreement
        return Levels(whole.mean(-1), noise, noise, self.tempering_factor, tempers_noise=False)

    def _marginals(self, parts: Parts) -> tuple[Array, Array, Array]:
        """Mean and variance of f, and φ."""
        return parts[0][0], self.tempering_factor[0] * parts[1][0] + parts[2][0], parts[3][0]

    def laws_of(self, parts: Parts) -> tuple[PredictiveLaw, ...]:
        """∫ p(y | f, φ) N(f; m, v) df, in the user's units."""
        mean, variance, phi = self._marginals(parts)
        law = law_of_family(self.family, mean, variance, phi)
        scale, centre = float(self.scales.y_scale[0]), float(self.scales.y_centre[0])
        if isinstance(law, MixedLaw):
            return (replace(law, unit=scale),)
        if not isinstance(law, Law):
            return (law,)
        return (self.outcome.law(replace(law, mean=law.mean * scale + centre, std=law.std * scale)),)

    def variances_of(self, parts: Parts) -> tuple[Float[Array, "J N"], Float[Array, "J N"]]:
        """Var E[Y | f], and E Var[Y | f]."""
        mean, variance, phi = self._marginals(parts)
        scale = float(self.scales.y_scale[0]) if not self.outcome.log else 1.0
        total = self.laws_of(parts)[0].variance()
        if self.outcome.log:
            # Of the exponential: Var E[Y | f] = (E Y)² (e^v − 1).
            of_log = float(self.scales.y_scale[0]) ** 2 * variance
            expected = self.laws_of(parts)[0].expectation()
            known = np.minimum(np.square(expected) * np.expm1(np.minimum(of_log, 600.0)), total)
        else:
            noise = scale**2 * MixedLaw(self.family, mean, variance, phi).parts()[1]
            known = np.maximum(total - noise, 0.0)
        return known[None], (total - known)[None]

    def intervals_of(self, parts: Parts, coverage: float, conformal: bool) -> tuple[Float[Array, "J N"], Float[Array, "J N"]]:
        """The quantiles at equal distances from the middle; where conformal, as far out as unseen rows were."""
        reach = conformal_quantile(self.scores[0], coverage) if conformal else coverage
        return self.interval_within(parts, np.array([reach]))

    def interval_within(self, parts: Parts, distance: Float[Array, " J"]) -> tuple[Float[Array, "J N"], Float[Array, "J N"]]:
        """The quantiles at such a distance from the middle, as a share of all probability."""
        reach = min(float(distance[0]), 1 - 1e-12)
        law = self.laws_of(parts)[0]
        return law.quantile((1 - reach) / 2)[None], law.quantile((1 + reach) / 2)[None]

    def distances_of(self, parts: Parts, y: Float[Array, "J N"]) -> Float[Array, "J N"]:
        """As shares of all probability."""
        return distance_from_middle(self.laws_of(parts)[0], y[0])[None]

    def sample(self, X: NDArray[Any], count: int, rng: np.random.RandomState) -> Float[Array, "J N S"]:
        """f by its joint law, then y given f at each row."""
        mean, _, _, phi = self.parts(X)
        values, vectors = np.linalg.eigh(self._joint(X))
        f = mean[0][:, None] + (vectors * np.sqrt(np.maximum(values, 0))) @ rng.standard_normal((len(X), count))
        generator = np.random.default_rng(rng.randint(2**31 - 1))
        drawn = self.family.draw(f, np.broadcast_to(phi[0][:, None], f.shape), generator)
        if self.family.is_discrete:
            return drawn[None]
        scale, centre = float(self.scales.y_scale[0]), float(self.scales.y_centre[0])
        return self.outcome.decode(drawn * scale + centre)[None]

    @torch.no_grad()
    def _joint(self, X: NDArray[Any]) -> Float[Array, "N N"]:
        """The covariance of f."""
        return self.cached.joint(torch.cat(list(self.rows(X))))[1][0].cpu().numpy()

    def covariance(self, X: NDArray[Any]) -> Float[Array, "J N N"]:
        """The joint covariance of y: between rows Cov(E[Y | f], E[Y | f']), from both in Hermite polynomials (Mehler)."""
        parts = self.parts(X)
        mean, variance, phi = self._marginals(parts)
        law = self.laws_of(parts)[0]
        std = np.sqrt(np.maximum(variance, np.finfo(np.float64).tiny))
        nodes, weights = np.polynomial.hermite_e.hermegauss(NUM_NODES)
        f = torch.from_numpy(mean[:, None] + std[:, None] * nodes)
        values = self._expected(f, torch.from_numpy(phi)[:, None].expand_as(f))
        basis = np.polynomial.hermite_e.hermevander(nodes, NUM_TERMS)[:, 1:]
        lengths = np.sqrt(np.cumprod(np.arange(1.0, NUM_TERMS + 1)))
        coefficients = (values * (weights / weights.sum())) @ (basis / lengths)
        correlation = np.clip(self._joint(X) / (std[:, None] * std), -1.0, 1.0)
        found, power = np.zeros_like(correlation), np.ones_like(correlation)
        for column in coefficients.T:
            power = power * correlation
            found += power * column[:, None] * column
        index = np.arange(len(X))
        found[index, index] = law.variance()
        return found[None]

    def _expected(self, f: Tensor, phi: Tensor) -> Array:
        """E[Y | f] in the user's units."""
        scale, centre = float(self.scales.y_scale[0]), float(self.scales.y_centre[0])
        if self.family.is_discrete:
            return self.family.mean(f, phi).numpy()
        if not self.outcome.log:
            return self.family.mean(f, phi).numpy() * scale + centre
        flat_f, flat_phi = f.numpy().reshape(-1), phi.numpy().reshape(-1)
        law = self.family.law(flat_f, np.zeros_like(flat_f), flat_phi)  # type: ignore[attr-defined]
        inner = replace(law, mean=law.mean * scale + centre, std=law.std * scale)
        return self.outcome.law(inner).expectation().reshape(f.shape)

    def targets(self, y: Float[Array, "N C"]) -> Float[Tensor, "C N"]:
        """Targets as the family takes them: places of values where it has such."""
        require_support(self.family, y)
        if hasattr(self.family, "values"):
            values = np.array(self.family.values)
            return torch.as_tensor(np.abs(y[:, 0, None] - values).argmin(1)[None], dtype=torch.float64, device=self.device)
        return super().targets(y)

    @torch.no_grad()
    def given(self, X: NDArray[Any], y: Float[Array, "N C"], weight: Float[Array, " N"]) -> LinkedModel:
        """Laplace's approximation around what Q says now: targets as Gaussian observations of f at its mode."""
        x = torch.cat(list(self.rows(X)))
        mean, covariance = self.cached.joint(x)
        targets = self.targets(y).to(x)
        target = targets if self.family.num_columns > 1 else targets[0]
        phi = self.noise_variance(x, mean)[0]
        observed, noise = likelihood_mode(self.family, mean[0], covariance[0], target, phi, x.new_tensor(weight))
        new = conditioned(self.cached, x, observed[None], noise[None])
        return replace(self, posterior=new.posterior, cached=new)


def distance_from_middle(law: PredictiveLaw, y: Float[Array, " N"]) -> Float[Array, " N"]:
    """The least share of all probability whose interval around the middle holds y: |2 F(y) − 1|; where F jumps, from its side."""
    at = law.cumulative(y)
    if not law.is_discrete:
        return np.clip(np.abs(2 * at - 1), 0.0, 1.0)
    below = at - np.exp(law.log_density(y))
    return np.clip(np.maximum(1 - 2 * at, 2 * below - 1) + ROUNDING, 0.0, 1.0)


def law_of_family(family: Family, mean: Array, variance: Array, phi: Array) -> Any:
    """∫ p(y | f, φ) N(f; m, v) df, in the unit of the family: its own closed form, or by quadrature."""
    return family.law(mean, variance, phi) if hasattr(family, "law") else MixedLaw(family, mean, variance, phi)


def likelihood_mode(
    family: Family,
    mean: Float[Tensor, " N"],
    covariance: Float[Tensor, "N N"],
    y: Float[Tensor, "*C N"],
    phi: Float[Tensor, " N"],
    weight: Float[Tensor, " N"],
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
    """Targets t and variances 1/W whose Gaussian observation moves the mean of f to the mode given y.

    The mode f = m + q a maximises Σ w log p(y | f) − ½ aᵀ q a, where a = w ∂ log p; an observation of t = m + (q + W⁻¹) a with
    noise W⁻¹ leads there. Steps are halved until the objective does not fall.
    """
    least = LEAST_CURVATURE * float(weight[weight > 0].min())

    def objective(a: Tensor) -> Tensor:
        moved = covariance @ a
        return (weight * family.log_prob(y, mean + moved, phi)).sum() - a @ moved / 2

    def curvature(f: Tensor) -> Tensor:
        return (weight * family.curvature(y, f, phi)).clamp_min(least)

    eye = torch.eye(len(mean), dtype=mean.dtype, device=mean.device)
    a, value = torch.zeros_like(mean), objective(torch.zeros_like(mean))
    for _ in range(MOST_STEPS):
        moved = covariance @ a
        w = curvature(mean + moved)
        root = w.sqrt()
        factor = cholesky(eye + root[:, None] * covariance * root, name="I + W^½ q W^½").factor
        target = moved + weight * family.score(y, mean + moved, phi) / w
        step = root * cholesky_solve(factor, (root * target)[:, None])[:, 0] - a
        while (new := objective(a + step)) < value and step.abs().max() > 1e-12 * (1 + a.abs().max()):
            step = step / 2
        a, value = a + step, torch.maximum(new, value)
        if step.abs().max() <= 1e-10 * (1 + a.abs().max()):
            break
    moved = covariance @ a
    noise = curvature(mean + moved).reciprocal()
    return mean + moved + noise * a, noise
