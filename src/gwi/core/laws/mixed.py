"""∫ p(y | f, φ) N(f; m, v) df: the law of any likelihood of one number whose f is Gaussian."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy.special import ndtr
from torch import Tensor

from gwi._typing import Array
from gwi.core.laws.counts import by_threshold, crps_of_counts, law_of_threshold_is_known
from gwi.core.laws.protocol import integrated_crps
from gwi.core.laws.roots import increasing_root
from gwi.core.likelihoods.expectations import MOST_NUMBERS, REACH, groups_of_rows, log_marginal, node_rule
from gwi.core.likelihoods.families import BetaFamily, Family, GammaFamily, NegativeBinomialFamily, PoissonFamily

# Families whose y grow with f; where f varies by more than so many times the distance over which P(Y ≤ y | f) falls from one to
# nothing, only that distance is looked at: down to this probability, in so many panels.
GROWING, NARROW, LEAST_FALL, FALL_STEPS = (BetaFamily, GammaFamily, NegativeBinomialFamily, PoissonFamily), 5.0, 1e-15, 30
FALL_PANELS, FALL_RULE = 4, np.polynomial.legendre.leggauss(32)
FALL_NODES = FALL_PANELS * len(FALL_RULE[0])
# Where f varies by less than this share of that distance, so few nodes are enough.
STILL = 0.3
STILL_NODES, _weights = np.polynomial.hermite_e.hermegauss(12)
STILL_WEIGHTS = _weights / _weights.sum()
# The logarithm of the least distance of a quantile from a bound, and doublings of a bracket without ends.
LEAST_LOG, MOST_DOUBLINGS = -700.0, 300
# Of a probability or what is left to one: by so much the ends of panels may be off.
ROUGH = 0.3


@dataclass(frozen=True)
class MixedLaw:
    """The law of y at each row.

    Attributes:
        family: p(y | f, φ).
        centre: m.
        spread: v.
        dispersion: φ.
        unit: y is so many times a value of the family.
    """

    family: Family
    centre: Float[Array, " N"]
    spread: Float[Array, " N"]
    dispersion: Float[Array, " N"]
    unit: float = 1.0

    @property
    def num_rows(self) -> int:
        """N."""
        return len(self.centre)

    @property
    def support(self) -> tuple[float, float]:
        """The family's."""
        low, high = self.family.support
        return low * self.unit, high * self.unit

    @property
    def is_discrete(self) -> bool:
        """The family's."""
        return self.family.is_discrete

    def rows(self, chosen: Any) -> MixedLaw:
        """The laws of some rows."""
        return replace(self, centre=self.centre[chosen], spread=self.spread[chosen], dispersion=self.dispersion[chosen])

    def expectation(self) -> Float[Array, " N"]:
        """E E[Y | f]."""
        return self.unit * self._moments()[0]

    def variance(self) -> Float[Array, " N"]:
        """Var E[Y | f] + E Var[Y | f]."""
        known, noise = self.parts()
        return known + noise

    def parts(self) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
        """Var E[Y | f], which more data would lower, and E Var[Y | f], which they would not."""
        _, known, noise = self._moments()
        return np.square(np.float64(self.unit)) * known, np.square(np.float64(self.unit)) * noise

    def _moments(self) -> tuple[Float[Array, " N"], Float[Array, " N"], Float[Array, " N"]]:
        """E E[Y | f], Var E[Y | f] and E Var[Y | f], in closed form where the family has it."""
        if hasattr(self.family, "moments"):
            found = self.family.moments(*(torch.from_numpy(np.ascontiguousarray(part)) for part in self._columns))
            return found[0].numpy(), found[1].numpy(), found[2].numpy()
        mean = self._over_f(lambda f, phi, rows: self.family.mean(f, phi), self._smooth)
        centre = torch.from_numpy(mean)[:, None]
        known = self._over_f(lambda f, phi, rows: (self.family.mean(f, phi) - centre[rows]).square(), self._smooth)
        return mean, known, self._over_f(lambda f, phi, rows: self.family.variance(f, phi), self._smooth)

    def log_density(self, y: Float[Array, " N"]) -> Float[Array, " N"]:
        """By a rule around the mode of p(y | f) N(f); at a bound only where the family says how far off that counts."""
        low, high = self.support
        inside = (y >= low) & (y <= high) & np.isfinite(y)
        if self.is_discrete:
            inside &= y == np.floor(y)
        elif not getattr(self.family, "margin", 0.0):
            inside &= (y > low) & (y < high)
        found = np.full(len(y), -np.inf)
        if inside.any():
            arguments = (torch.from_numpy(part[inside].copy()) for part in (y / self.unit, *self._columns))
            found[inside] = log_marginal(self.family, *arguments).numpy() - (0 if self.is_discrete else np.log(self.unit))
        # Rounding must not make a probability larger than one.
        return np.minimum(found, 0.0) if self.is_discrete else found

    def cumulative(self, y: Float[Array, " N"]) -> Float[Array, " N"]:
        """E P(Y ≤ y | f)."""
        low, high = self.support
        at = np.floor(y / self.unit) if hasattr(self.family, "continued") else y / self.unit
        found = self._probability(at, self.family.cumulative)
        return np.where(y < low, 0.0, np.where(y >= high, 1.0, found))

    def _probability(self, y: Array, chance: Callable[[Array, Array, Array], Array]) -> Float[Array, " N"]:
        """E chance(y, f, φ), which falls from one to nothing while f grows."""
        width = self.family.width(np.maximum(y, 0.0) if np.isfinite(self.support[0]) else y, self.dispersion)
        found, narrow = np.empty(self.num_rows), np.zeros(self.num_rows, dtype=np.bool_)
        if isinstance(self.family, GROWING):
            narrow = np.sqrt(self.spread) > NARROW * np.asarray(width)
        # Where f varies less than that distance, few nodes have all digits.
        still = np.sqrt(self.spread) < STILL * np.asarray(width)
        if still.any():
            f = self.centre[still, None] + np.sqrt(self.spread[still, None]) * STILL_NODES
            found[still] = chance(y[still, None], f, self.dispersion[still, None]) @ STILL_WEIGHTS
        moving = ~narrow & ~still
        if isinstance(self.family, NegativeBinomialFamily | PoissonFamily):
            ahead = ~still & law_of_threshold_is_known(self.family, y, self.spread, self.dispersion)
            if ahead.any():
                found[ahead] = by_threshold(self.family, y[ahead], *(part[ahead] for part in self._columns))
            narrow, moving = narrow & ~ahead, moving & ~ahead
        parts = 1 + int(narrow.sum()) * FALL_NODES // MOST_NUMBERS
        for rows in np.array_split(np.flatnonzero(narrow), parts) if narrow.any() else ():
            found[rows] = self.rows(rows)._within_its_fall(partial(chance, y[rows, None]))
        if moving.any():
            others, values = self.rows(moving), y[moving]

            def probability(f: Tensor, phi: Tensor, rows: Tensor) -> Tensor:
                return torch.from_numpy(np.asarray(chance(values[rows.numpy(), None], f.numpy(), phi.numpy())))

            found[moving] = others._over_f(probability, np.broadcast_to(width, found.shape)[moving].copy())
        return np.clip(found, 0.0, 1.0)

    def _within_its_fall(self, chance: Callable[[Array, Array], Array]) -> Float[Array, " N"]:
        """E chance(f, φ), where that falls from one to nothing within far less than f varies."""
        mean, std, phi = self.centre, np.sqrt(self.spread), self.dispersion
        ends = []
        for share in (1 - LEAST_FALL, LEAST_FALL):
            low, high = mean - REACH * std, mean + REACH * std
            for _ in range(FALL_STEPS):
                middle = (low + high) / 2
                above = chance(middle[:, None], phi[:, None])[:, 0] > share
                low, high = np.where(above, middle, low), np.where(above, high, middle)
            ends.append(low if share > 0.5 else high)
        edges = np.linspace(ends[0], ends[1], FALL_PANELS + 1, axis=-1)
        half, centre = np.diff(edges) / 2, (edges[:, 1:] + edges[:, :-1]) / 2
        f = (centre[..., None] + half[..., None] * FALL_RULE[0]).reshape(len(mean), FALL_NODES)
        weights = (half[..., None] * FALL_RULE[1]).reshape(len(mean), FALL_NODES)
        z = (f - mean[:, None]) / std[:, None]
        inside = (weights * chance(f, phi[:, None]) * np.exp(-np.square(z) / 2)).sum(-1) / (std * math.sqrt(2 * math.pi))
        return ndtr((ends[0] - mean) / std) + inside

    def quantile(self, level: float) -> Float[Array, " N"]:
        """A root, on a scale that shows digits near a lower bound; of counts the least with that probability, by halving."""
        low, high = self._bracket(level)
        if self.is_discrete:
            low, high = np.full(self.num_rows, -1.0), np.ceil(high)
            middle = np.floor((low + high) / 2)
            # Of large counts the next number that can be written down is more than one away.
            while (open_ := (middle > low) & (middle < high)).any():
                below = self.cumulative(middle) < level
                low, high = np.where(open_ & below, middle, low), np.where(open_ & ~below, middle, high)
                middle = np.floor((low + high) / 2)
            return high
        return self._root(self.cumulative, level, low, high)

    def rough_quantile(self, level: float) -> Float[Array, " N"]:
        """A value whose probability is near this level; of counts one between them."""
        chance = partial(self._probability, chance=self.family.continued) if self.is_discrete else self.cumulative  # type: ignore[attr-defined]
        return self._root(chance, level, *self._bracket(level), within=ROUGH * min(level, 1 - level))

    def _root(self, chance: Callable[[Array], Array], level: float, low: Array, high: Array, within: float = 0.0) -> Array:
        least, most = self.support
        if not math.isfinite(least):
            return increasing_root(lambda at: chance(at) - level, low, high, within)
        # Of a distance from the lower bound the logarithm.
        low, high = np.full(self.num_rows, LEAST_LOG), np.log(high - least)
        found = increasing_root(lambda at: chance(np.clip(least + np.exp(at), least, most)) - level, low, high, within)
        return np.clip(least + np.exp(found), least, most)

    def _bracket(self, level: float) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
        low, high = (np.full(self.num_rows, end) for end in self.support)
        if np.isfinite(low).all() and np.isfinite(high).all():
            return low, high
        mean, std = self.expectation(), np.sqrt(self.variance())
        mean, std = np.where(np.isfinite(mean), mean, self.unit * self.centre), np.where(np.isfinite(std), std, self.unit)
        step = std + self.unit
        for _ in range(MOST_DOUBLINGS if np.isinf(high).all() else 0):
            high = mean + step
            if not (short := self.cumulative(high) < level).any():
                break
            step = np.where(short, 2 * step, step)
        step = std + self.unit
        for _ in range(MOST_DOUBLINGS if np.isinf(low).all() else 0):
            low = mean - step
            if not (short := self.cumulative(low) >= level).any():
                break
            step = np.where(short, 2 * step, step)
        return low, high

    def crps(self, y: Float[Array, " N"]) -> Float[Array, " N"]:
        """Of numbers by an integral, of counts by a sum: one by one where there are few, beyond that by an integral, too."""
        return crps_of_counts(self, y) if self.is_discrete else integrated_crps(self, y)

    def sample(self, size: int, rng: np.random.Generator) -> Float[Array, "S N"]:
        """f, then y given f."""
        f = self.centre + np.sqrt(self.spread) * rng.standard_normal((size, self.num_rows))
        return self.unit * self.family.draw(f, np.broadcast_to(self.dispersion, f.shape), rng)

    @property
    def _smooth(self) -> Any:
        """The distance in f over which E[Y | f] changes: one of a link, the noise's of thresholds."""
        return self.family.width(0.0, torch.from_numpy(self.dispersion)) if hasattr(self.family, "thresholds") else 1.0

    @property
    def _columns(self) -> tuple[Array, Array, Array]:
        return self.centre, self.spread, self.dispersion

    def _over_f(self, function: Callable[[Tensor, Tensor, Tensor], Tensor], width: Any) -> Float[Array, " N"]:
        """E h(f, φ) of each row."""
        centre, spread, phi = (torch.from_numpy(np.ascontiguousarray(part)) for part in self._columns)
        std, wide = spread.sqrt(), torch.as_tensor(width, dtype=torch.float64).expand_as(centre)
        found = np.empty(self.num_rows)
        for rows in groups_of_rows(std, wide):
            nodes, weights = node_rule(std[rows], wide[rows])
            found[rows.numpy()] = (
                function(centre[rows, None] + std[rows, None] * nodes, phi[rows, None], rows) @ weights
            ).numpy()
        return found
