"""Losses of generalized Bayes that far rows do not decide: the β- and γ-divergence between the data and N(f, φ).

Both replace −log p by a function of p^β that is bounded: a row far away costs no more than one that is merely far. Under
f ~ N(m, v) they are in closed form, because p^β is a Gaussian in f.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from gwi.core.likelihoods.censored import CensoredFamily
from gwi.core.linalg import LOG_TWO_PI


@dataclass(frozen=True)
class RobustFamily(CensoredFamily):
    """Normal noise, learned by a bounded loss; `log_prob` is minus the loss.

    Attributes:
        power: β > 0, or γ: what far rows lose in weight. Towards zero the loss becomes −log p.
        divergence: ``"beta"``, as Basu et al. (1998) have it, or ``"gamma"``, as Fujisawa and Eguchi (2008).
    """

    power: float = 0.3
    divergence: Literal["beta", "gamma"] = "beta"
    name: ClassVar[str] = "robust"
    num_columns: ClassVar[int] = 1

    @property
    def label(self) -> str:
        """For the user."""
        return f"{self.name}, {self.divergence}-divergence"

    def _log_density(self, y: Tensor, f: Tensor, phi: Tensor) -> Tensor:
        return -((y - f).square() / phi + LOG_TWO_PI + phi.log()) / 2

    def _log_power_integral(self, phi: Tensor) -> Tensor:
        """log ∫ p^{1 + β} dy."""
        return -self.power / 2 * (LOG_TWO_PI + phi.log()) - math.log(1 + self.power) / 2

    def _gain(self, log_mean_power: Tensor, phi: Tensor) -> Tensor:
        """Minus the loss, from log E p^β."""
        b = self.power
        if self.divergence == "gamma":
            # (1/γ) p^γ / (∫ p^{1+γ})^{γ/(1+γ)}
            return torch.expm1(log_mean_power - b / (1 + b) * self._log_power_integral(phi)) / b
        # (1/β) p^β − ∫ p^{1+β}/(1 + β), shifted so that it tends to log p.
        return torch.expm1(log_mean_power) / b - torch.expm1(self._log_power_integral(phi)) / (1 + b)

    def log_prob(self, y: Tensor, f: Tensor, phi: Tensor) -> Tensor:
        """Minus the loss; log p where β is nearly zero."""
        return self._gain(self.power * self._log_density(y, f, phi), phi)

    def expected(self, y: Tensor, mean: Tensor, variance: Tensor, phi: Tensor) -> Tensor:
        """E of minus the loss under f ~ N(m, v), in closed form."""
        b = self.power
        wide = phi + b * variance
        exponent = -b * (y - mean).square() / (2 * wide) - b * (LOG_TWO_PI + phi.log()) / 2 - (wide / phi).log() / 2
        return self._gain(exponent, phi)

    def _weight(self, y: Tensor, f: Tensor, phi: Tensor) -> Tensor:
        """∂(minus the loss)/∂ log p: how much a row counts."""
        log_weight = self.power * self._log_density(y, f, phi)
        if self.divergence == "gamma":
            log_weight = log_weight - self.power / (1 + self.power) * self._log_power_integral(phi)
        return log_weight.exp()

    def score(self, y: Tensor, f: Tensor, phi: Tensor) -> Tensor:
        """(y − f)/φ, times what the row counts."""
        return self._weight(y, f, phi) * (y - f) / phi

    def curvature(self, y: Tensor, f: Tensor, phi: Tensor) -> Tensor:
        """1/φ, times what the row counts."""
        return self._weight(y, f, phi) / phi

    def closed_log_marginal(self, y: Tensor, mean: Tensor, variance: Tensor, phi: Tensor) -> Tensor:
        """Minus the loss of the law N(m, φ + v): what noise and variance are fitted by."""
        return self.log_prob(y, mean, phi + variance)

    def working(self, y: Tensor) -> Tensor:
        """y."""
        return y

    def width(self, y: Any, phi: Any) -> Any:
        """σ."""
        return phi**0.5 + 0.0 * y
