"""Laws of numbers in a graph: mean, variance and quantiles of normal and t laws and of what is made of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gwi._typing import Array
from gwi.core.distributions import quantile
from gwi.core.laws.gaussian import Law
from gwi.core.laws.transformed import MOST_LOG, NOTHING, TruncatedLaw, _lowest_mean, as_normals
from gwi.core.likelihoods.shapes import NoiseShape
from gwi.core.outcomes import Outcome
from gwi.exceptions import UnexportableError
from gwi.onnx.functions import Table, expm1
from gwi.onnx.graph import Graph, Value


@dataclass(frozen=True)
class Answer:
    """What a law says at each row.

    Attributes:
        mean: E Y, (N, 1).
        variance: Var Y, (N, 1).
        quantiles: (N, Q).
    """

    mean: Value
    variance: Value
    quantiles: Value


def answer_of(g: Graph, outcome: Outcome, mean: Value, variance: Value, degrees: float, levels: Sequence[float]) -> Answer:
    """Of a number with a normal or t law, or of what an outcome makes of it."""
    std = variance.sqrt()
    if outcome.log:
        return _of_exponential(g, mean, variance, degrees, levels)
    if outcome.low is not None:
        return _above(g, outcome.low, mean, std, degrees, levels)
    unit = quantile(np.asarray(levels, dtype=np.float64), degrees)[None]
    return Answer(mean, variance, mean + std * unit)


def _of_exponential(g: Graph, mean: Value, variance: Value, degrees: float, levels: Sequence[float]) -> Answer:
    """e^Z of normal Z, or of the mixture of normal laws that stands for a t law."""
    unit = as_normals(Law(np.zeros((1, 1)), np.ones((1, 1)), degrees))
    factors = np.square(unit.std[:, 0])[None]
    first = (mean + variance * (factors / 2)).most(MOST_LOG).exp()
    share = 1 / factors.shape[1]
    expected = first.sum(-1, keep=True) * share
    own = first.square() * expm1(g, (variance * factors).most(MOST_LOG))
    total = (own + (first - expected).square()).sum(-1, keep=True) * share
    at = np.array([float(unit.quantile(level)[0]) for level in levels])[None]
    return Answer(expected, total, (mean + variance.sqrt() * at).exp())


def _above(g: Graph, low: float, mean: Value, std: Value, degrees: float, levels: Sequence[float]) -> Answer:
    """A law above a bound, that has the mean of the one before the cut where it can.

    In standard deviations from the bound all of it depends on one number, the place of the mean: variance and quantiles are
    looked up in a table of what the library says there.
    """
    _, least = _lowest_mean(degrees)
    # Beyond, next to nothing is cut.
    most = -float(quantile(np.array(NOTHING), degrees))
    unit = quantile(np.asarray(levels, dtype=np.float64), degrees)

    def function(roots: NDArray[np.float64]) -> Array:
        place = np.minimum(least + np.square(roots), most * (1 - 1e-12))
        law = TruncatedLaw.with_means_of(Law(place[None], np.ones((1, len(place))), degrees), 0.0)
        ends = [_polished(law, level) - place - z for level, z in zip(levels, unit, strict=True)]
        return np.stack([law.variance() - 1.0, *ends], axis=1)

    place = (mean - low) / std
    table = Table(function, 0.0, math.sqrt(most - least), lambda roots: 1 + np.square(roots))
    found = g.where(place < most, table.at(g, (place - least).least(0.0).sqrt()), 0.0)
    kept = place.least(least)
    expected = g.where(place < least, std * least + low, mean)
    ends = std * (kept + unit[None] + found.columns(1, 1 + len(levels))) + low
    return Answer(expected, std.square() * (found.columns(0, 1) + 1.0), ends.least(low) if len(levels) else ends)


def _polished(law: TruncatedLaw, level: float) -> Array:
    """A quantile with one more step of Newton's: around its middle SciPy knows Student's t to eight digits only."""
    at = law.quantile(level)
    return at - (law.cumulative(at) - level) / np.exp(law.log_density(at))


def answer_of_shape(
    g: Graph, outcome: Outcome, shape: NoiseShape, mean: Value, known: Value, noise: Value, levels: Sequence[float]
) -> Answer:
    """Of a Gaussian f and noise that is a mixture of normal laws.

    Args:
        g: the graph.
        outcome: what is made of the number.
        shape: of the noise.
        mean: of f.
        known: variance of f.
        noise: variance of the noise.
        levels: of the quantiles.

    Raises:
        UnexportableError: for noise that is no normal law above a bound.
    """
    total = known + noise
    if len(shape.weights) == 1:
        return answer_of(g, outcome, mean, total, math.inf, levels)
    if outcome.low is not None:
        raise UnexportableError(f"A likelihood with {shape.name} noise above a bound cannot be exported to ONNX.")
    weights, offsets, scales = (np.array(part)[None] for part in (shape.weights, shape.offsets, shape.scales))

    def function(root: NDArray[np.float64]) -> Array:
        centre = root[None] * offsets.T
        std = np.sqrt(np.square(root[None] * scales.T) + 1 - np.square(root[None]))
        law = Law(centre, std, weights=shape.weights)
        return np.stack([law.quantile(level) for level in levels], axis=1)

    ends = mean + total.sqrt() * Table(function, 0.0, 1.0).at(g, (noise / total).sqrt()) if levels else mean
    centres, variances = mean + noise.sqrt() * offsets, noise * np.square(scales) + known
    column = weights.T
    if not outcome.log:
        expected = centres @ column
        return Answer(expected, (variances + (centres - expected).square()) @ column, ends)
    first = (centres + variances * 0.5).most(MOST_LOG).exp()
    expected = first @ column
    own = first.square() * expm1(g, variances.most(MOST_LOG))
    return Answer(expected, (own + (first - expected).square()) @ column, ends.exp())
