"""Class probabilities of Gaussian logits in a graph, by the rules of `core.likelihoods`: softmax and robust-max.

Axes: row, class, and of integrands node.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from gwi.core.likelihoods import robust_max, softmax
from gwi.core.linalg import LOG_TWO_PI
from gwi.models.classification import DIGITS, MOST_STD
from gwi.onnx.functions import half_erfc, normal_cumulative
from gwi.onnx.graph import Graph, Value

TINY = float(np.finfo(np.float64).tiny)
_RULE = softmax._RULES[DIGITS]


def softmax_moments(g: Graph, mean: Value, variance: Value, num_classes: int) -> tuple[Value, Value]:
    """E p, (N, J), and the expected entropy of p, (N, 1)."""
    mean, variance = _within_reach(g, mean, variance)
    std = variance.least(TINY).sqrt()
    mean = mean - mean.max(-1, keep=True)
    t, weight = _outer_nodes(g, mean, std, num_classes)
    p, density, weighted = _sums(g, mean, std, t, num_classes)
    log_p = p.least(TINY).log()
    log_product = log_p.sum(1, keep=True)
    others = (log_product - log_p).exp() * weight
    probabilities = (density * others).sum(-1)
    # E F_l of the class that sets the lower end stands for log 1 there.
    last = g.op("ArgMax", mean - std * _RULE.reach, axis=-1, keepdims=1)
    reference = g.op("GatherElements", p, g.op("Expand", last.new_axis(2), g.op("Shape", weight)), axis=1)
    own = g.op("GatherElements", mean, last, axis=1)
    log_normaliser = own + (weight * (reference - log_product.exp())).sum(-1)
    entropy = log_normaliser - (weighted * others).sum(-1).sum(-1, keep=True)
    return probabilities / probabilities.sum(-1, keep=True), entropy


def _within_reach(g: Graph, mean: Value, variance: Value) -> tuple[Value, Value]:
    """Logits that spread absurdly widely drawn together, as the model does."""
    std = variance.sqrt()
    factor = (MOST_STD / std.max(-1, keep=True).least(TINY)).most(1.0)
    wide = std > MOST_STD
    best = g.where(wide, -np.inf, mean).max(-1, keep=True)
    all_wide = best < -1e300
    centre = g.where(all_wide, mean.max(-1, keep=True), best)
    return g.where(wide, centre + factor * (mean - centre), mean), g.where(wide, factor.square() * variance, variance)


def _outer_nodes(g: Graph, mean: Value, std: Value, num_classes: int) -> tuple[Value, Value]:
    """t from where the product of all P is zero to where it is one, and weights; (N, 1, T)."""
    low = (mean - std * _RULE.reach).max(-1, keep=True).most(0.0) - _RULE.below
    high = (mean + std * _RULE.reach).max(-1, keep=True) + (_RULE.above + math.log(num_classes))
    step = (std.min(-1, keep=True) / 3.0).least(_RULE.step)
    steps = ((high - low) / step).ceil()
    index = g.op("Range", np.array(0.0), steps.largest() + 1.0, np.array(1.0)).new_axis(0)
    apart = (high - low) / steps
    t, taken = low + apart * index, (index <= steps).cast(np.float64)
    return t.new_axis(1), (taken * apart).new_axis(1)


def _sums(g: Graph, mean: Value, std: Value, t: Value, num_classes: int) -> tuple[Value, Value, Value]:
    """P, P' and E[F e^{F − t} exp(−e^{F − t})], (N, J, T): over normal laws, or over Gumbel noise where laws are wide."""
    smooth = std.min(-1, keep=True) >= softmax._NARROWEST_WIDE
    widest = std.max(-1, keep=True)
    wide_row = smooth & (widest > softmax._WIDEST_NARROW)
    mixed_row = ~smooth & (widest > softmax._WIDEST_ALIKE)
    wide = wide_row | (mixed_row & (std >= softmax._NARROWEST_WIDE))
    narrow = g.where(wide_row | mixed_row, std.most(softmax._NARROWEST_WIDE), std)
    over_normal = _normal_sums(g, mean, narrow, t)
    some = wide.cast(np.float64).largest() > 0.0
    over_gumbel = _gumbel_sums(g, mean, std.least(softmax._NARROWEST_WIDE), t, num_classes, some)
    chosen = wide.new_axis(2)
    p, density, weighted = (g.where(chosen, a, b) for a, b in zip(over_gumbel, over_normal, strict=True))
    return p, density, weighted


def _normal_sums(g: Graph, mean: Value, std: Value, t: Value) -> Sequence[Value]:
    reach = _RULE.reach
    step = (_RULE.step / std.max(-1, keep=True)).most(_RULE.inner_step)
    steps = (reach / step).ceil() * 2.0
    central = (mean.new_axis(2) - t).most(softmax._MOST_EXPONENT).exp()
    zero, apart = central * 0.0, 2 * reach / steps

    def add(index: Value, p: Value, density: Value, weighted: Value, total: Value) -> list[Value]:
        place = index.cast(np.float64)
        z = (apart * place - reach).most(reach)
        weight = (place <= steps).cast(np.float64) * (z.square() * -0.5).exp()
        offset = std * z
        rate = central * offset.exp().new_axis(2)
        survival = (-rate).exp() * weight.new_axis(2)
        falling = survival * rate
        return [p + survival, density + falling, weighted + falling * (mean + offset).new_axis(2), total + weight]

    count = (steps.largest() + 1.0).cast(np.int64)
    *sums, total = g.loop(count, [zero, zero, zero, steps * 0.0], add)
    return [part / total.new_axis(2) for part in sums]


def _gumbel_sums(g: Graph, mean: Value, std: Value, t: Value, num_classes: int, some: Value) -> Sequence[Value]:
    above = _RULE.above + math.log(num_classes)
    count = math.ceil((_RULE.below + above) / _RULE.step) + 1
    nodes = np.linspace(-_RULE.below, above, count)
    weights = np.exp(-nodes - np.exp(-nodes))
    weights /= weights.sum()
    inverse = 1.0 / std.new_axis(2)
    scaled = (t - mean.new_axis(2)) * inverse
    constant, zero = inverse * (1 / math.sqrt(2 * math.pi)), scaled * 0.0

    def add(index: Value, p: Value, density: Value, weighted: Value) -> list[Value]:
        node, weight = (g.op("Gather", g.constant(part), index, axis=0) for part in (nodes, weights))
        z = scaled - inverse * node
        normal = (z.square() * -0.5).exp() * constant * weight
        return [p + normal_cumulative(g, z) * weight, density + normal, weighted + normal * (t - node)]

    # No step at all where no row is wide.
    return g.loop(some.cast(np.int64) * np.array(count, dtype=np.int64), [zero, zero, zero], add)


def robust_max_probabilities(g: Graph, mean: Value, variance: Value, num_classes: int, epsilon: float) -> Value:
    """(1 − ε) S + ε/(J − 1) (1 − S), (N, J), with S the chance that a logit is the largest, by the composite rule."""
    std = variance.least(TINY**0.5).sqrt()
    high, low = _sorted_breakpoints(g, mean, std, num_classes)
    last = num_classes * len(robust_max._BREAKPOINTS)
    high_from, low_from = high.columns(0, last - 1), low.columns(0, last - 1)
    half = ((high.columns(1, last) - high_from) + (low.columns(1, last) - low_from)) * 0.5
    half = half.new_axis(2)
    weight = (half * robust_max._WEIGHTS[None, None]).reshaped(0, 1, -1)
    # Axes: row, class, piece, node.
    inside = (low_from.new_axis(2) + half * (1 + robust_max._NODES)[None, None]).new_axis(1)
    away = (high_from.new_axis(1) - mean.new_axis(2)).new_axis(3) + inside
    bound = robust_max._LARGEST_Z[torch.float64]
    z = (away / std.new_axis(2, 3)).clip(-bound, bound).reshaped(0, num_classes, -1)
    tail, _ = half_erfc(g, z.abs() * (0.5**0.5))
    log_cdf = g.where(z < 0.0, tail, 1.0 - tail).log()
    log_density = (z.square() + LOG_TWO_PI) * -0.5 - std.log().new_axis(2)
    largest = (weight * (log_density + (log_cdf.sum(1, keep=True) - log_cdf)).exp()).sum(-1)
    found = largest * (1 - epsilon) + (1.0 - largest) * (epsilon / (num_classes - 1))
    return found / found.sum(-1, keep=True)


def _sorted_breakpoints(g: Graph, mean: Value, std: Value, num_classes: int) -> tuple[Value, Value]:
    """Breakpoints of all classes, rising, (N, J · B), as sums of a number and its rounding error."""
    count = num_classes * len(robust_max._BREAKPOINTS)
    offset = std.new_axis(2) * np.array(robust_max._BREAKPOINTS)[None, None]
    centre = mean.new_axis(2)
    high = centre + offset
    rounded = high - centre
    low = (centre - (high - rounded)) + (offset - rounded)
    high, low = high.reshaped(0, count), low.reshaped(0, count)
    all_ = g.integers([count])
    # By the error first: of equal numbers that order is kept.
    order = g.ops("TopK", 2, low, all_, largest=0)[1]
    high, low = (g.op("GatherElements", part, order, axis=1) for part in (high, low))
    order = g.ops("TopK", 2, high, all_, largest=0)[1]
    return g.op("GatherElements", high, order, axis=1), g.op("GatherElements", low, order, axis=1)
