"""Quantiles of counts and of gamma variables around a Gaussian f in a graph.

P(Y ≤ y) = P(f + U ≤ c), where U is the logarithm of a gamma variable, or the logit of a beta variable:

| y given f | U | c |
| --- | --- | --- |
| gamma, shape a = 1/φ | log G_a − log a | log y |
| Poisson | −log G_{y + 1} | 0 |
| negative binomial, s = 1/φ | logit B_{s, y + 1} | log s |

With f ~ N(m, v) that is E Φ((c − m − U)/√v), an integral over the density of U by the trapezoidal rule, which converges
exponentially. Where √v is much smaller than the width of U, Φ would be too steep for its nodes: a larger v₀ takes its place, and
the heat equation leads back, F_v = exp(−½ (v₀ − v) ∂²/∂c²) F_{v₀}, by a few terms of its series.

Axes: row, level, node.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import norm

from gwi.core.likelihoods.families import GammaFamily, NegativeBinomialFamily, PoissonFamily
from gwi.exceptions import UnexportableError
from gwi.onnx.functions import expm1, normal_cumulative
from gwi.onnx.graph import Graph, Value

# The fall of a log density where it is cut; √v₀ as a share of the width of U, nodes in units of the narrower of both, and of
# nodes the most; terms of the series.
FALL, SMOOTH, STEP, MOST_NODES, NUM_TERMS = 38.0, 1 / 8, 0.5, 6000, 7
# Newton's steps to a quantile, as many more where U is skewed by a dispersion above this, and standard deviations of f beyond
# which there is nothing.
MOST_STEPS, MORE_STEPS, SKEWED, REACH = 5, 40, 0.4, 9.0
TINY, ROUNDING = float(np.finfo(np.float64).tiny), 1e-13


@dataclass(frozen=True)
class _Law:
    """Of f + U: nodes of U with their weights, which add up to one, and the normal law around each."""

    nodes: Value
    weights: Value
    std: Value
    back: Value

    def at(self, g: Graph, c: Value) -> tuple[Value, Value]:
        """P(f + U ≤ c), and its density; c has a last axis of length one."""
        z = (c - self.nodes) / self.std
        density = (z.square() * -0.5).exp() * (1 / math.sqrt(2 * math.pi))
        # Hermite's polynomials of odd degree, and those of the next even degree for the derivative.
        before, now = z * 0.0 + 1.0, z
        total, slope, factor = None, None, self.back * -0.5
        for j in range(1, NUM_TERMS + 1):
            after = z * now - before * float(2 * j - 1)
            total = now * factor if total is None else total + now * factor
            slope = after * factor if slope is None else slope + after * factor
            before, now = after, z * after - now * float(2 * j)
            factor = factor * self.back * (-0.5 / (j + 1))
        assert total is not None
        assert slope is not None
        below = normal_cumulative(g, z) - density * total
        found = (self.weights * below).sum(-1, keep=True)
        return found, (self.weights * (density * (slope + 1.0)) / self.std).sum(-1, keep=True)


def _law_of(g: Graph, variance: Value, low: Value, high: Value, width: Value, log_density: Callable[[Value], Value]) -> _Law:
    """f + U, where U lies between two ends and its log density is zero at its mode."""
    least = (width * SMOOTH).square()
    whole = variance.least(least)
    std = whole.sqrt()
    steps = ((high - low) / (width.most(std) * STEP)).largest().ceil().most(float(MOST_NODES))
    index = g.op("Range", np.array(0.0), steps + 1.0, np.array(1.0)).new_axis(0, 1)
    nodes = low + (high - low) / steps * index
    weights = log_density(nodes).exp()
    return _Law(nodes, weights / weights.sum(-1, keep=True), std, (whole - variance) / whole)


def _log_gamma_law(g: Graph, variance: Value, shape: Value, sign: float) -> _Law:
    """U = ±(log G_a − log a): its log density is a (u − e^u + 1)."""
    falls = (FALL * 2 / shape).sqrt()
    low, high = -(falls + FALL / shape), falls

    def log_density(u: Value) -> Value:
        own = u if sign > 0 else -u
        return (own - expm1(g, own)) * shape

    ends = (low, high) if sign > 0 else (-high, -low)
    return _law_of(g, variance, *ends, (1.0 / shape).sqrt().most(1.0), log_density)


def _logit_beta_law(g: Graph, variance: Value, a: Value, b: Value) -> tuple[_Law, Value]:
    """U = logit B_{a, b} − log (a/b), whose log density is a u − (a + b) log(1 + p (e^u − 1)), p = a/(a + b); and log (a/b)."""
    share, whole = a / (a + b), a + b
    falls = (whole / (a * b) * (2 * FALL)).sqrt()
    low, high = -(falls + FALL / a) * 1.2, (falls + FALL / b) * 1.2

    def log_density(u: Value) -> Value:
        # From the side on which the exponential is small.
        left = (expm1(g, u.most(0.0)) * share + 1.0).log() * whole - u * a
        right = (expm1(g, -u.least(0.0)) * (1.0 - share) + 1.0).log() * whole + u * b
        return -g.where(u < 0.0, left, right)

    return _law_of(g, variance, low, high, (whole / (a * b)).sqrt().most(1.0), log_density), (a / b).log()


def mixed_quantiles(
    g: Graph, family: Any, mean: Value, variance: Value, phi: Value, levels: Sequence[float], unit: float
) -> Value:
    """Of y at each row, (N, Q).

    Args:
        g: the graph.
        family: p(y | f, φ).
        mean: of f, (N, 1).
        variance: of f.
        phi: dispersion.
        levels: of the quantiles.
        unit: y is so many times a value of the family.

    Raises:
        UnexportableError: for likelihoods whose quantiles have no such form.
    """
    at = np.array(levels)[None, :, None]
    mean, variance, phi = (part.new_axis(2) for part in (mean, variance, phi + mean * 0.0))
    if type(family) is GammaFamily:
        return (_root(g, _log_gamma_law(g, variance, 1.0 / phi, 1.0), phi, levels) + mean).without_axis(2).exp() * unit
    if type(family) is PoissonFamily and unit == 1:

        def of_poisson(count: Value) -> Value:
            shape = count + 1.0
            return _log_gamma_law(g, variance, shape, -1.0).at(g, shape.log() - mean)[0]

        return _least_count(g, of_poisson, _largest_count(mean, variance, at), at).without_axis(2)
    if type(family) is NegativeBinomialFamily and unit == 1:
        size = 1.0 / phi

        def of_mixture(count: Value) -> Value:
            law, centre = _logit_beta_law(g, variance, size + count * 0.0, count + 1.0)
            return law.at(g, size.log() - mean - centre)[0]

        # Rates vary by a gamma law of their own.
        return _least_count(g, of_mixture, _largest_count(mean, variance, at, phi), at).without_axis(2)
    raise UnexportableError(
        f"Quantiles under the likelihood {family.name} cannot be exported to ONNX; pass levels=() (gwi export --levels none) for "
        "a file with the mean, the standard deviation and the scores."
    )


def _root(g: Graph, law: _Law, phi: Value, levels: Sequence[float]) -> Value:
    """Where f + U reaches each level, less the mean of f, (N, Q, 1): Newton's steps inside of a bracket, in logarithms.

    Distribution functions of log-concave densities are log-concave, and so is what they leave to one: such steps do not overshoot
    from one side, and are few.
    """
    at = np.array(levels)[None, :, None]
    low_half = g.constant(at < 0.5)
    zero = law.std * np.zeros_like(at)
    low = law.nodes.min(-1, keep=True) - law.std * REACH + zero
    high = law.nodes.max(-1, keep=True) + law.std * REACH + zero
    centre = (law.weights * law.nodes).sum(-1, keep=True)
    spread = ((law.weights * (law.nodes - centre).square()).sum(-1, keep=True) + law.std.square()).sqrt()
    start = (centre + spread * norm.ppf(at)).clip(low, high)

    def step(_: Value, c: Value, low: Value, high: Value) -> list[Value]:
        below, density = law.at(g, c)
        short = below < at
        low, high = g.where(short, c, low), g.where(short, high, c)
        share = g.where(low_half, below, 1.0 - below).least(TINY)
        wanted = np.where(at < 0.5, at, 1 - at)
        move = g.where(low_half, 1.0, -1.0) * share * (wanted / share).log() / density.least(TINY)
        new = c + move
        # Where rounding is all that is left there is no direction: halve.
        fits = (new >= low) & (new <= high) & (share > ROUNDING)
        return [g.where(fits, new, (low + high) * 0.5), low, high]

    count = (phi.largest() > SKEWED).cast(np.int64) * np.array(MORE_STEPS, dtype=np.int64) + np.array(MOST_STEPS, dtype=np.int64)
    return g.loop(count, [start, low, high], step)[0]


def _largest_count(mean: Value, variance: Value, at: Any, phi: Value | None = None) -> Value:
    """A count with more than the level's probability at or below it, (N, Q, 1).

    A quarter of what is left to one is given to f, and less than the rest to y at the f there.
    """
    far = norm.isf((1 - at) / 4)
    rate = (mean + variance.sqrt() * far).most(30.0).exp()
    spread = rate if phi is None else rate + rate.square() * phi
    # Chebyshev's inequality, with one side.
    return (rate + spread.sqrt() * np.sqrt(2 / (1 - at)) + 1.0).ceil()


def _least_count(g: Graph, cumulative: Callable[[Value], Value], high: Value, at: Any) -> Value:
    """The least count with at least this probability at or below it, by halving."""
    steps = ((high + 2.0).largest().log() * (1 / math.log(2))).ceil() + 1.0

    def step(_: Value, low: Value, high: Value) -> list[Value]:
        middle = g.op("Floor", (low + high) * 0.5)
        is_open = (middle > low) & (middle < high)
        below = cumulative(middle.least(0.0)) < at
        return [g.where(is_open & below, middle, low), g.where(is_open & ~below, middle, high)]

    return g.loop(steps.cast(np.int64), [high * 0.0 - 1.0, high], step)[1]
