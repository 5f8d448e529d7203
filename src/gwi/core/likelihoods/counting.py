"""Log probabilities of counts that keep their digits however large the counts are, and moments under a logarithmic link."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gwi._typing import Array
from gwi.core.linalg import LOG_TWO_PI

# From here on five terms of Stirling's series give all digits.
SERIES_FROM = 16.0
# Counts of larger rates are drawn from a normal law: whole numbers of 64 bits end soon after.
MOST_DRAWN = 1e15
# A mean is a number whose square is one, too.
MOST_LOG_MEAN = 300.0


def stirling_rest(x: Tensor) -> Tensor:
    """log Γ(x) − ((x − ½) log x − x + ½ log 2π): what is left of it, 1/(12 x) and less, for x > 0."""
    far, near = x.clamp_min(SERIES_FROM), x.clamp_max(SERIES_FROM)
    inverse = 1 / far.square()
    series = (1 / 12 - inverse * (1 / 360 - inverse * (1 / 1260 - inverse * (1 / 1680 - inverse / 1188)))) / far
    rest = torch.lgamma(near) - ((near - 0.5) * near.log() - near + LOG_TWO_PI / 2)
    return torch.where(x > SERIES_FROM, series, rest)


def poisson_log_prob(y: Tensor, f: Tensor, rate: Tensor) -> Tensor:
    """y f − e^f − log y!, as −y (e^g − 1 − g) − ½ log 2πy and Stirling's rest, where g = f − log y."""
    some = y.clamp_min(1.0)
    g = f - some.log()
    # The rate has an upper bound; its distance from y in relative terms has it then, too.
    counted = some * g - (rate - some) - (LOG_TWO_PI + some.log()) / 2 - stirling_rest(some)
    close = some * (g - torch.expm1(g.clamp(-1.0, 1.0))) - (LOG_TWO_PI + some.log()) / 2 - stirling_rest(some)
    return torch.where(y > 0, torch.where(g.abs() < 1.0, close, counted), -rate)


def negative_binomial_log_prob(y: Tensor, f: Tensor, size: Tensor) -> Tensor:
    """Of counts with mean e^f and variance e^f + e^{2f}/s: y log(p/p*) + s log(q/q*) and Stirling's rests; p* = y/(y + s)."""
    odds = f - size.log()
    # Softplus would be the identity from twenty on.
    nothing = torch.zeros_like(odds)
    log_p, log_q = -torch.logaddexp(nothing, -odds), -torch.logaddexp(nothing, odds)
    some = y.clamp_min(1.0)
    log_seen_p, log_seen_q = -torch.log1p(size / some), -torch.log1p(some / size)
    found = some * (log_p - log_seen_p) + size * (log_q - log_seen_q)
    found = found + (log_seen_q - some.log() - LOG_TWO_PI) / 2
    found = found + stirling_rest(some + size) - stirling_rest(size) - stirling_rest(some)
    return torch.where(y > 0, found, size * log_q)


def moments_of_log_link(mean: Float[Tensor, " N"], variance: Float[Tensor, " N"]) -> tuple[Tensor, Tensor, Tensor]:
    """E μ, E μ² and Var μ of μ = e^f under f ~ N(m, v)."""
    first = (mean + variance / 2).clamp(max=MOST_LOG_MEAN).exp()
    second = (2 * (mean + variance)).clamp(max=2 * MOST_LOG_MEAN).exp()
    spread = first.square() * torch.expm1(variance.clamp(max=MOST_LOG_MEAN))
    return first, second, torch.minimum(spread, second)


def drawn_counts(rate: Array, rng: np.random.Generator) -> Array:
    """Poisson counts of these rates."""
    drawn = np.asarray(rng.poisson(np.minimum(rate, MOST_DRAWN)), dtype=np.float64)
    far = np.asarray(rate) > MOST_DRAWN
    if far.any():
        drawn[far] = np.round(rate[far] + np.sqrt(rate[far]) * rng.standard_normal(int(far.sum())))
    return drawn
