"""Tempering and conformal calibration: the predictive spread corrected by rows the mean has not seen."""

from __future__ import annotations

import math

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


def conformal_quantile(scores: Float[Tensor, " V"], coverage: float) -> float:
    """The ⌈(V + 1) · coverage⌉-th smallest score |y − m|/sd: intervals m ± q · sd hold a new y with at least this probability.

    Exact when scores and the new row are exchangeable (rows set apart: split conformal); with out-of-fold scores nearly so.

    Raises:
        ValueError: when there are too few rows for any finite interval to have the coverage.
    """
    rank = math.ceil((len(scores) + 1) * coverage - 1e-9)
    if rank > len(scores):
        needed = math.ceil(coverage / (1 - coverage))
        raise ValueError(
            f"A conformal interval with coverage {coverage:g} needs at least {needed} judged rows; there are {len(scores)}. "
            "Ask for a lower coverage, or use conformal=False."
        )
    return float(scores.sort().values[rank - 1])
