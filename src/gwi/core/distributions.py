"""Tails of the predictive law: normal, or Student's t where unseen rows show that a normal law is too sure of itself.

Laws here have unit variance, so a standard deviation means the same whatever the tails.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import minimize_scalar
from scipy.special import ndtr
from scipy.stats import norm, t
from torch import Tensor

from gwi._typing import Array

# Below four degrees of freedom most of the variance is in the far tails, and a standard deviation says little.
DEGREES = (4.0, 5.0, 6.0, 8.0, 12.0, 20.0)
# The interval that is matched to unseen rows, and the number of rows at which it counts as much as their density.
MATCHED, QUANTILE_ROWS = 0.95, 200
# What choices made by V judging rows flatter them, as a share c/V of the variance. A stack has more to choose than a single mean,
# whose intervals are right without (`benchmarks/studies/optimism.py`).
STACK_OPTIMISM = 10.0


@dataclass(frozen=True)
class Tails:
    """How a predictive law is scaled and shaped.

    Attributes:
        factor: α_T on the variance.
        degrees_of_freedom: of Student's t; infinity is the normal law.
    """

    factor: float
    degrees_of_freedom: float


def log_density(z: Float[Array, "*N"], degrees_of_freedom: float) -> Float[Array, "*N"]:
    """log p(z) of the law with unit variance."""
    if math.isinf(degrees_of_freedom):
        return np.asarray(norm.logpdf(z))
    # Written out: SciPy's would take the logarithms of the constant's gamma functions again at every row.
    d = degrees_of_freedom
    constant = math.lgamma((d + 1) / 2) - math.lgamma(d / 2) - math.log(math.pi * (d - 2)) / 2
    return np.asarray(constant - (d + 1) / 2 * np.log1p(z**2 / (d - 2)))


def quantile(level: Float[Array, "*N"], degrees_of_freedom: float) -> Float[Array, "*N"]:
    """The quantiles of the law with unit variance."""
    if math.isinf(degrees_of_freedom):
        return np.asarray(norm.ppf(level))
    return np.asarray(t.ppf(level, degrees_of_freedom) * _scale(degrees_of_freedom))


def cumulative(z: Float[Array, "*N"], degrees_of_freedom: float) -> Float[Array, "*N"]:
    """P(Z ≤ z) of the law with unit variance."""
    if math.isinf(degrees_of_freedom):
        return np.asarray(ndtr(z))
    return np.asarray(t.cdf(z / _scale(degrees_of_freedom), degrees_of_freedom))


def _scale(degrees_of_freedom: float) -> float:
    return math.sqrt((degrees_of_freedom - 2) / degrees_of_freedom)


def choose_tails(
    z: Float[Array, " V"],
    sample_weight: Float[Array, " V"],
    *,
    factor: float | None = None,
    degrees: Sequence[float] = DEGREES,
    num_effective: float | None = None,
    allow_normal: bool = True,
) -> Tails:
    """The law of z = (y − m)/sd on rows unseen by the mean: normal, unless Student's t has a lower NLL by more than ½ log N.

    That is the price of one more parameter by the Bayesian information criterion. A standard error would not do for a judge: a
    single far row makes the gain large and its standard error as large.

    Args:
        z: standardised errors, before tempering.
        sample_weight: of each row.
        factor: α_T, when it is not to be fitted.
        degrees: candidates.
        num_effective: as how many independent rows these count; all unless given.
        allow_normal: whether the normal law may win.
    """
    weight = sample_weight / sample_weight.mean()
    normal_factor = max(float(np.average(z**2, weights=weight)), 1e-6) if factor is None else factor
    normal = Tails(normal_factor, math.inf)
    if not degrees:
        return normal
    laws = [Tails(_best_factor(z, weight, d) if factor is None else factor, d) for d in degrees]
    gains = [float(np.sum((_nll(z, normal) - _nll(z, law)) * weight)) for law in laws]
    best = int(np.argmax(gains))
    count = len(z) if num_effective is None else num_effective
    is_better = gains[best] * count / len(z) > math.log(max(count, 1.0)) / 2
    return laws[best] if is_better or not allow_normal else normal


def match_coverage(
    z: Float[Array, " V"],
    sample_weight: Float[Array, " V"],
    law: Tails,
    *,
    optimism: float = 0.0,
    num_effective: float | None = None,
) -> Tails:
    """The law with its scale moved towards the one whose 95 % interval holds 95 % of the rows.

    The factor that fits a density best need not give intervals that hold what they promise, because no law of the family is the
    true one. The quantile of few rows is a poorer witness than their density, though: with V rows it has the weight V/(V + 200),
    which is right when the family is off by some 5 % of the scale.

    Args:
        z: standardised errors, before tempering.
        sample_weight: of each row.
        law: fitted to them.
        optimism: c of the factor 1 + c/V on the variance, for what was chosen by these rows.
        num_effective: as how many independent rows these count; all unless given. A variance that few units told is known as
            badly as Student's t with as many degrees of freedom says, and intervals are as much wider.
    """
    order = np.argsort(np.abs(z))
    reached = np.cumsum(sample_weight[order]) / sample_weight.sum()
    actual = np.abs(z)[order][min(int(np.searchsorted(reached, MATCHED)), len(z) - 1)]
    promised = math.sqrt(law.factor) * float(quantile(np.array((1 + MATCHED) / 2), law.degrees_of_freedom))
    if not actual > 0:
        return law
    count = len(z) if num_effective is None else num_effective
    share = count / (count + QUANTILE_ROWS)
    factor = law.factor * (actual / promised) ** (2 * share) * (1 + optimism / count)
    if num_effective is not None:
        level = (1 + MATCHED) / 2
        factor *= float(t.ppf(level, max(num_effective - 1, 1.0)) / norm.ppf(level)) ** 2
    return Tails(factor, law.degrees_of_freedom)


def _nll(z: Array, law: Tails) -> Array:
    return math.log(law.factor) / 2 - log_density(z / math.sqrt(law.factor), law.degrees_of_freedom)


def _best_factor(z: Array, weight: Array, degrees_of_freedom: float) -> float:
    centre = math.log(max(float(np.average(z**2, weights=weight)), 1e-6))

    def loss(log_factor: float) -> float:
        return float(np.average(_nll(z, Tails(math.exp(log_factor), degrees_of_freedom)), weights=weight))

    return math.exp(minimize_scalar(loss, bounds=(centre - 4, centre + 2), method="bounded").x)


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
            f"A conformal interval with coverage {coverage:g} needs at least {needed} held-out rows; there are {len(scores)}. "
            "Ask for a lower coverage, or use conformal=False."
        )
    return float(scores.sort().values[rank - 1])
