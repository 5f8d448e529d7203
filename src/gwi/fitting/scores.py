"""Numbers of a summary."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from torch import Tensor

from gwi._typing import Array
from gwi.core.distributions import log_density
from gwi.core.means import KernelMean
from gwi.core.measures import GaussianMeasure


def average_nll(residuals: Tensor, variance: Tensor, weight: Tensor, degrees_of_freedom: Sequence[float]) -> float:
    """The weighted mean NLL of the residuals under laws with this variance, summed over targets."""
    std, w = variance.sqrt().cpu().numpy(), weight.cpu().numpy()
    z = residuals.cpu().numpy() / std
    nll = [np.log(s) - log_density(row, degrees) for row, s, degrees in zip(z, std, degrees_of_freedom, strict=True)]
    return float(np.sum([np.average(row, weights=w) for row in nll]))


def own_rmse(residuals: Float[Tensor, "J V"], y_scale: Float[Array, " J"]) -> tuple[float, ...]:
    """The root mean squared error of each target in its own units, from standardised residuals."""
    return tuple((residuals.square().mean(-1).sqrt().cpu().numpy() * y_scale).tolist())


def holds_all_rows(posterior: GaussianMeasure, num_rows: int) -> bool:
    """Whether every row is an inducing point of the covariance, or the centre of a basis function of the mean."""
    bases = [part.inducing_points for part in posterior.modules() if isinstance(part, KernelMean)]
    return any(len(points) == num_rows for points in (posterior.kernel.inducing_points, *bases))
