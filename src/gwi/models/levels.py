"""What checks of a fit look at."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from gwi._typing import Array


@dataclass(frozen=True)
class Levels:
    """What checks of a fit look at, each averaged over rows.

    Attributes:
        variance: of f.
        noise: σ² of each output, or what takes its place.
        least_noise: the least that it can be.
        tempering: α of each output, where a factor far from one says that something is wrong.
        tempers_noise: whether α multiplies the noise, too; else the variance of f alone.
    """

    variance: Float[Tensor, " J"]
    noise: Float[Tensor, " J"]
    least_noise: Float[Tensor, " J"]
    tempering: Float[Array, " T"]
    tempers_noise: bool = True
