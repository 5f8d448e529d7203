"""Inducing points that are given, and whether a few of them are enough."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float
from sklearn.utils import check_array
from torch import Tensor

from gwi._validation import as_array
from gwi.core.inducing import Method
from gwi.core.prior import PriorFit
from gwi.fitting.data import FitData
from gwi.fitting.held_out_covariance import unexplained_variance

# Few points are enough where they leave less than this share of the noise open.
HIDDEN_BY_NOISE = 0.1


def sample_rows(x: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """The places of at most so many rows, at random and in random order."""
    return torch.randperm(len(x), generator=generator)[:count].to(x.device)


def given_points(inducing_points: Any, data: FitData) -> Method | Float[Tensor, "M D"]:
    """How Z is chosen, or Z itself on standardised rows."""
    if isinstance(inducing_points, str):
        return cast(Method, "kmeans" if inducing_points == "auto" else inducing_points)
    z = check_array(as_array(inducing_points), dtype=np.float64)
    if z.shape[1] != data.x.shape[1]:
        raise ValueError(f"inducing_points need {data.x.shape[1]} columns, like the rows; got {z.shape[1]}.")
    return data.scales.rows(np.unique(z, axis=0), data.x.device)


def explains(prior: PriorFit, z: Float[Tensor, "M D"], x: Float[Tensor, "N D"]) -> bool:
    """Whether Z leave so little of f open at these rows that the noise hides it."""
    return bool(unexplained_variance(prior, z, x).mean() <= HIDDEN_BY_NOISE * prior.noise_variance)
