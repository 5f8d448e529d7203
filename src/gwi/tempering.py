"""Tempering: one factor on the predictive variance, from rows the mean has not seen."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def tempering_factor(
    residuals: Float[Tensor, "*J N"], variance: Float[Tensor, "*J N"], sample_weight: Float[Tensor, " N"] | None = None
) -> Float[Tensor, "*J"]:
    """α_T = mean((y − m_Q)² / (r + σ²)), the minimiser of the average NLL [eq:predictive_distr].

    Args:
        residuals: y − m_Q on rows unseen by the mean.
        variance: r + σ² there.
        sample_weight: of each row.
    """
    ratio = residuals.square() / variance
    weight = torch.ones_like(ratio) if sample_weight is None else sample_weight / sample_weight.mean()
    return (ratio * weight).mean(-1)
