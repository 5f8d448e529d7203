"""Likelihoods of one number around a Gaussian f in a graph: moments and quantiles of y."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gwi.core.laws.transformed import MOST_LOG
from gwi.core.likelihoods.censored import CensoredFamily
from gwi.core.likelihoods.counting import MOST_LOG_MEAN
from gwi.core.likelihoods.expectations import FEWEST_NODES, MOST_NODES, NORMAL_STEP, REACH, WIDTH_STEP
from gwi.core.likelihoods.families import MARGIN, BetaFamily, GammaFamily, NegativeBinomialFamily, PoissonFamily
from gwi.core.likelihoods.ordinal import OrdinalFamily
from gwi.core.likelihoods.robust import RobustFamily
from gwi.exceptions import UnexportableError
from gwi.models.linked import LinkedModel
from gwi.onnx.functions import expm1, normal_cumulative
from gwi.onnx.graph import Graph, Operand, Value
from gwi.onnx.laws import answer_of_shape
from gwi.onnx.posterior import Parts
from gwi.onnx.quantiles import mixed_quantiles

# Rounding must not reach for a value beyond the last.
ROUNDING = 1e-12


@dataclass(frozen=True)
class _F:
    """f and φ at each row, (N, 1)."""

    mean: Value
    variance: Value
    phi: Value


def linked_answer(g: Graph, model: LinkedModel, parts: Parts, noise: Value, levels: Sequence[float]) -> dict[str, Value]:
    """Outputs by name.

    Raises:
        UnexportableError: for likelihoods that were brought.
    """
    f = _F(parts.mean, parts.whole(model.tempering_factor), noise)
    family = model.family
    if type(family) is OrdinalFamily:
        return _ordinal(g, family, f, levels)
    if type(family) in (CensoredFamily, RobustFamily):
        return _censored(g, model, f, levels)
    moments = _MOMENTS.get(type(family))
    if moments is None:
        raise UnexportableError(
            f"The likelihood {family.name} cannot be exported to ONNX; those that gwi names can: choose one of them."
        )
    scale = float(model.scales.y_scale[0])
    mean, known, unknown = moments(g, family, f)
    known, unknown = known * scale**2, unknown * scale**2
    found = _columns(mean * scale, known + unknown, known, unknown)
    return found | ({"quantiles": mixed_quantiles(g, family, f.mean, f.variance, f.phi, levels, scale)} if levels else {})


def _columns(mean: Value, variance: Value, known: Value, unknown: Value) -> dict[str, Value]:
    parts = {"mean": mean, "std": variance.sqrt(), "epistemic": known, "aleatoric": unknown}
    return {name: value.without_axis(1) for name, value in parts.items()}


def _censored(g: Graph, model: LinkedModel, f: _F, levels: Sequence[float]) -> dict[str, Value]:
    """Numbers, or their logarithms, with noise of some shape."""
    family, outcome = model.family, model.outcome
    assert isinstance(family, CensoredFamily)
    scale, centre = float(model.scales.y_scale[0]), float(model.scales.y_centre[0])
    known, noise = f.variance * scale**2, f.phi * scale**2
    answer = answer_of_shape(g, outcome, family.shape, f.mean * scale + centre, known, noise, levels)
    if outcome.log:
        known = (answer.mean.square() * expm1(g, known.most(MOST_LOG))).most(answer.variance)
    else:
        known = (answer.variance - noise).least(0.0)
    found = _columns(answer.mean, answer.variance, known, answer.variance - known)
    return found | ({"quantiles": answer.quantiles} if levels else {})


def _below(g: Graph, family: CensoredFamily, at: Operand, mean: Value, std: Value, extra: Operand) -> Value:
    """P(f + σ ε ≤ at), where std is σ and f has the variance `extra`; all of them with one axis for components at the end."""
    return normal_cumulative(g, _distance(family, at, mean, std, extra)) @ np.array(family.shape.weights)[:, None]


def _above(g: Graph, family: CensoredFamily, at: Operand, mean: Value, std: Value, extra: Operand) -> Value:
    """P(f + σ ε > at), with all digits where that is small."""
    return normal_cumulative(g, -_distance(family, at, mean, std, extra)) @ np.array(family.shape.weights)[:, None]


def _distance(family: CensoredFamily, at: Operand, mean: Value, std: Value, extra: Operand) -> Value:
    offsets, scales = np.array(family.shape.offsets), np.array(family.shape.scales)
    return (at - (mean + std * offsets)) / ((std * scales).square() + extra).sqrt()


def _ordinal(g: Graph, family: OrdinalFamily, f: _F, levels: Sequence[float]) -> dict[str, Value]:
    """Few values in order."""
    values = np.array(family.values)
    sigma = f.phi.sqrt().new_axis(2)
    at = np.array(family.thresholds)[None, :, None]
    below = _below(g, family, at, f.mean.new_axis(2), sigma, f.variance.new_axis(2)).without_axis(2)
    above = _above(g, family, at, f.mean.new_axis(2), sigma, f.variance.new_axis(2)).without_axis(2)
    count = len(family.thresholds)
    none = below.columns(0, 1) * 0.0
    # From the tail in which a difference keeps its digits.
    lower = below - (g.joined([none, below.columns(0, count - 1)]) if count > 1 else none)
    upper = (g.joined([none + 1.0, above.columns(0, count - 1)]) if count > 1 else none + 1.0) - above
    steps = g.joined([g.where(below < 0.5, lower, upper), above.columns(count - 1, count)]).least(0.0)
    probabilities = steps / steps.sum(-1, keep=True)
    mean = probabilities @ values[:, None]
    total = ((mean - values[None]).square() * probabilities).sum(-1, keep=True)
    width = f.phi.sqrt() * min(family.shape.scales)

    def spread(at_f: Value, phi: Value) -> Value:
        """Σ (v − E)² P(v | f)."""
        ends = np.array(family.thresholds)[None, None, :, None]
        under = _below(g, family, ends, at_f.new_axis(2, 3), phi.sqrt().new_axis(2, 3), 0.0).without_axis(3)
        edge = under.columns(0, 1) * 0.0
        share = g.joined([under, edge + 1.0]) - g.joined([edge, under])
        centre = share @ values[:, None]
        return ((centre - values[None, None]).square() * share).sum(-1)

    unknown = _over_f(g, spread, f, width)
    known = (total - unknown).least(0.0)
    found = _columns(mean, total, known, total - known) | {"probabilities": probabilities}
    if levels:
        reached = g.op("CumSum", probabilities, np.array(1, dtype=np.int64))
        steps_up = np.diff(values)
        ends = []
        for level in levels:
            short = (reached.columns(0, len(values) - 1) < min(level, 1.0) - ROUNDING).cast(np.float64)
            ends.append(short @ steps_up[:, None] + float(values[0]))
        found["quantiles"] = g.joined(ends)
    return found


def _over_f(g: Graph, function: Callable[[Value, Value], Value], f: _F, width: Operand) -> Value:
    """E h(f, φ), (N, 1), by the trapezoidal rule of the models, with as many nodes as the widest row asks for."""
    std = f.variance.sqrt()
    ratio = (std / width).largest()
    step = (WIDTH_STEP / ratio.least(1e-12)).most(NORMAL_STEP)
    count = ((REACH / step).ceil() * 2.0).clip(float(FEWEST_NODES), float(MOST_NODES))
    index = g.op("Range", g.constant(np.array(0.0)), count + 1.0, g.constant(np.array(1.0)))
    nodes = (index * (2 * REACH) / count - REACH).new_axis(0)
    weights = (nodes.square() * -0.5).exp()
    weights = weights / weights.sum(-1, keep=True)
    values = function(f.mean + std * nodes, f.phi)
    return (values * weights).sum(-1, keep=True)


def _log_link(g: Graph, f: _F) -> tuple[Value, Value, Value]:
    """E μ, E μ² and Var μ of μ = e^f."""
    first = (f.mean + f.variance * 0.5).most(MOST_LOG_MEAN).exp()
    second = ((f.mean + f.variance) * 2.0).most(2 * MOST_LOG_MEAN).exp()
    return first, second, (first.square() * expm1(g, f.variance.most(MOST_LOG_MEAN))).most(second)


def _poisson(g: Graph, family: Any, f: _F) -> tuple[Value, Value, Value]:
    first, _, spread = _log_link(g, f)
    return first, spread, first


def _negative_binomial(g: Graph, family: Any, f: _F) -> tuple[Value, Value, Value]:
    first, second, spread = _log_link(g, f)
    return first, spread, first + f.phi * second


def _gamma(g: Graph, family: Any, f: _F) -> tuple[Value, Value, Value]:
    first, second, spread = _log_link(g, f)
    return first, spread, f.phi * second


def _beta(g: Graph, family: BetaFamily, f: _F) -> tuple[Value, Value, Value]:
    """By the rule over f."""
    span = family.high - family.low

    def share(at: Value) -> Value:
        return at.sigmoid().clip(MARGIN, 1 - MARGIN)

    mean = _over_f(g, lambda at, phi: share(at), f, 1.0)
    known = _over_f(g, lambda at, phi: (share(at) - mean).square(), f, 1.0)
    noise = _over_f(g, lambda at, phi: share(at) * (1.0 - share(at)) * (phi / (phi + 1.0)), f, 1.0)
    return mean * span + family.low, known * span**2, noise * span**2


_MOMENTS: dict[type, Callable[[Graph, Any, _F], tuple[Value, Value, Value]]] = {
    PoissonFamily: _poisson,
    NegativeBinomialFamily: _negative_binomial,
    GammaFamily: _gamma,
    BetaFamily: _beta,
}
