"""Shapes of noise as finite mixtures of normal laws, so that what is closed under a Gaussian f stays closed.

Mixtures were fitted by the EM algorithm to the densities of the laws that they stand for, on a fine grid; densities differ by at
most 1.3e-3, probabilities by 2e-4. Each has mean zero and variance one.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class NoiseShape:
    """Σ_k π_k N(μ_k, s_k²), with mean zero and variance one.

    Attributes:
        name: for the user.
        weights: π.
        offsets: μ.
        scales: s.
    """

    name: str
    weights: tuple[float, ...]
    offsets: tuple[float, ...]
    scales: tuple[float, ...]

    def like(self, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """π, μ and s as tensors like these values."""
        return values.new_tensor(self.weights), values.new_tensor(self.offsets), values.new_tensor(self.scales)


NORMAL = NoiseShape("normal", (1.0,), (0.0,), (1.0,))
# The logarithm of a Weibull variable: with it a linear f is a model of proportional hazards, too.
WEIBULL = NoiseShape(
    "Weibull",
    (0.0038964795, 0.0385128297, 0.1463929977, 0.2913522611, 0.2710364403, 0.2026570162, 0.0461519755),
    (-3.5143390690, -2.1366720527, -1.0574080094, -0.2463131022, 0.3281379661, 0.8529295101, 1.3163975824),
    (1.6663803726, 1.1080269254, 0.8004457702, 0.5970053919, 0.4375517929, 0.3610012781, 0.2964969664),
)
# The logarithm of a log-logistic variable.
LOGISTIC = NoiseShape(
    "logistic",
    (0.2109348186, 0.4324959620, 0.3121167531, 0.0444524663),
    (0.0, 0.0, 0.0, 0.0),
    (0.6005925481, 0.8603549231, 1.2174070107, 1.7822113995),
)
SHAPES = {shape.name: shape for shape in (NORMAL, WEIBULL, LOGISTIC)}
