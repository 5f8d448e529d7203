"""The CRPS of counts whose f is Gaussian: small counts one by one, large ones by an integral."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from scipy.special import ndtr

from gwi._typing import Array
from gwi.core.likelihoods.expectations import groups_of_rows, node_rule
from gwi.core.likelihoods.families import NegativeBinomialFamily, PoissonFamily

# So many counts are looked at one by one where F is known between them, too, and where it is not.
NUM_SINGLE, MOST_COUNTS = 64, 4000
# Probability beyond the last count that is looked at, and below the first one of an integral.
LEFT_OUT, NOTHING = 1e-12, 1e-13
# Of f, in widths of the smallest probability among single counts: beyond, nodes for all of them would be too many.
MOST_WIDTHS = 40.0
# Panels of an integral are no wider, in standard deviations of log Y; and their nodes.
PANEL, RULE = 1.0, np.polynomial.legendre.leggauss(10)
# Of a count and of the shape of the rates from which on the law of a threshold is near to a normal one; its nodes.
# More events than so many, in their standard deviations, leave no digits.
FEWEST_EVENTS, MOST_EVENTS, THRESHOLD_NODES = 64.0, 1e5, np.arange(-10.5, 9.0, 0.5)
# The logarithm of the largest rate that is looked at.
MOST_LOG = 600.0


def crps_of_counts(law: Any, y: Float[Array, " N"]) -> Float[Array, " N"]:
    """∫ (F(z) − 1{y ≤ z})² dz, a sum over counts; of numbers between them in proportion.

    Args:
        law: a `MixedLaw` of counts.
        y: where it is evaluated.
    """
    count = np.maximum(np.floor(y), 0.0)
    last = np.maximum(law.quantile(1 - LEFT_OUT), count)
    smooth = hasattr(law.family, "continued")
    stop = int(min(float(last.max(initial=0.0)), float(NUM_SINGLE if smooth else MOST_COUNTS))) + 1
    found = np.zeros(law.num_rows)
    stepwise = np.zeros(law.num_rows, dtype=np.bool_)
    if isinstance(law.family, PoissonFamily | NegativeBinomialFamily):
        stepwise = np.sqrt(law.spread) <= MOST_WIDTHS * law.family.width(float(stop), law.dispersion)
        if stepwise.any():
            found[stepwise] = _of_single(law.rows(stepwise), count[stepwise], stop)
    if not stepwise.all():
        rest = law.rows(~stepwise)
        for value in range(stop):
            chance = rest.cumulative(np.full(rest.num_rows, float(value)))
            found[~stepwise] += np.square(chance - (value >= count[~stepwise]))
    wide = last >= stop
    if wide.any() and smooth:
        found[wide] += _of_large(law.rows(wide), count[wide], float(stop), last[wide])
    # Beyond a count, or below all of them, the score grows linearly.
    inside = np.zeros(law.num_rows)
    between = (y > 0) & (y != count)
    if between.any():
        below = law.rows(between).cumulative(count[between])
        inside[between] = (y[between] - count[between]) * (2 * below - 1)
    return found + np.where(y < 0, -y, inside)


def law_of_threshold_is_known(
    family: Any, y: Float[Array, " N"], spread: Float[Array, " N"], phi: Float[Array, " N"]
) -> Bool[NDArray[Any], " N"]:
    """Whether `by_threshold` has all digits: many events, and f that varies more than its threshold does."""
    shape = 1 / phi if isinstance(family, NegativeBinomialFamily) else np.full(len(phi), np.inf)
    events = np.maximum(y + 1, 1.0)
    varies = 1 / events + 1 / shape
    many = (events >= FEWEST_EVENTS) & (shape >= FEWEST_EVENTS) & (events * np.sqrt(varies) <= MOST_EVENTS)
    return many & (spread >= varies)


def by_threshold(
    family: Any, y: Float[Array, " N"], centre: Float[Array, " N"], spread: Float[Array, " N"], phi: Float[Array, " N"]
) -> Float[Array, " N"]:
    """P(Y ≤ y) = P(f ≤ W): the chance of so many events depends on f as does that of a random threshold above it.

    W is the logarithm of a Gamma variable with shape y + 1, for negative binomial counts less that of one with shape 1/φ. Its law
    is known without a special function, and so is the law of f, where one of y at each f needs one.
    """
    shape = 1 / phi if isinstance(family, NegativeBinomialFamily) else np.full(len(phi), np.inf)
    events = y + 1
    away = THRESHOLD_NODES * np.sqrt(1 / events + 1 / shape)[:, None]
    # e^{a w − e^w} from its mode, or e^{a w}/(1 + e^w)^{a + s}.
    if isinstance(family, PoissonFamily):
        fall = events[:, None] * np.expm1(away)
    else:
        fall = (events + shape)[:, None] * np.log1p((events / (events + shape))[:, None] * np.expm1(away))
    weights = np.exp(events[:, None] * away - fall)
    chance = ndtr((np.log(events)[:, None] + away - centre[:, None]) / np.sqrt(spread)[:, None])
    return (weights * chance).sum(-1) / weights.sum(-1)


def _of_single(law: Any, count: Float[Array, " N"], stop: int) -> Float[Array, " N"]:
    """Σ_{k < stop} (F(k) − 1{count ≤ k})²: at each node of f a probability is the one before times their ratio."""
    centre, std = torch.from_numpy(law.centre.copy()), torch.from_numpy(np.sqrt(law.spread))
    wide = torch.from_numpy(np.broadcast_to(law.family.width(float(stop), law.dispersion), law.centre.shape).copy())
    found = np.zeros(law.num_rows)
    for group in groups_of_rows(std, wide):
        nodes, weights = (part.numpy() for part in node_rule(std[group], wide[group]))
        rows = group.numpy()
        f = np.minimum(centre.numpy()[rows, None] + std.numpy()[rows, None] * nodes, MOST_LOG)
        chance, ratio, shape = _first_and_ratio(law.family, f, law.dispersion[rows, None])
        total = np.zeros(len(rows))
        for value in range(stop):
            if value:
                chance *= ratio
                chance *= (value - 1 + shape) / value if shape is not None else 1 / value
            total += chance @ weights
            found[rows] += np.square(total - (value >= count[rows]))
    return found


def _first_and_ratio(family: Any, f: Array, phi: Array) -> tuple[Array, Array, Array | None]:
    """P(0), and what makes P(k) of P(k − 1): times the second and (k − 1 + the third)/k, or 1/k where there is no third."""
    rate = np.exp(f)
    if isinstance(family, PoissonFamily):
        return np.exp(-rate), rate, None
    shape, grown = 1 / phi, phi * rate
    return np.exp(-shape * np.log1p(grown)), grown / (1 + grown), shape


def _of_large(law: Any, count: Float[Array, " N"], start: float, last: Float[Array, " N"]) -> Float[Array, " N"]:
    """Σ_{k ≥ start} (F(k) − 1{count ≤ k})² by the midpoint rule read backwards, with its first correction at both ends.

    In log Y, where F changes over like distances; below the first edge F is nothing, above the last one it is one.
    """

    def smooth(at: Array) -> Array:
        return law._probability(at, law.family.continued)

    first = np.full(law.num_rows, start - 0.5)
    jump = np.maximum(count - 0.5, first)
    low = np.maximum(law.rough_quantile(NOTHING), first)
    high = np.maximum(np.maximum(last + 1.0, low), jump)
    width = law.family.width(np.maximum(law.expectation(), start), law.dispersion)
    scale = np.sqrt(law.spread + np.square(width))
    found = np.zeros(law.num_rows)
    for left, right, above in ((low, np.maximum(jump, low), 0.0), (np.maximum(jump, low), high, 1.0)):
        begin, length = np.log(left), np.log(right) - np.log(left)
        num_panels = np.maximum(np.ceil(length / (PANEL * scale)), 1.0)
        # Rows with few panels are done after a few.
        for panel in range(int(num_panels.max(initial=0.0))):
            rows = np.flatnonzero((num_panels > panel) & (length > 0))
            some, half = law.rows(rows), length[rows] / num_panels[rows] / 2
            for node, weight in zip(*RULE, strict=True):
                at = np.exp(begin[rows] + half * (2 * panel + 1 + node))
                chance = some._probability(at, law.family.continued)
                found[rows] += weight * half * at * np.square(chance - above)
    # Between the jump and the first edge F is nothing, and the indicator one.
    found += np.maximum(low - jump, 0.0)
    # A sum of g over k is ∫ g − [g']/24; at the jump from F² to (1 − F)² both slopes add up to −F'/12.
    slope = smooth(first + 0.5) - smooth(first - 0.5)
    at_start = (smooth(first) - (count <= start)) * slope / 12
    at_jump = np.where(count > start, (smooth(jump + 0.5) - smooth(jump - 0.5)) / 12, 0.0)
    return found + at_start - at_jump
