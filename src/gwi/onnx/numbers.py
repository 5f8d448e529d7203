"""Models of numbers in a graph: noise, laws, and what of their variance more data would lower."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gwi.core.noise import LogLinearNoise
from gwi.models.linked import LinkedModel
from gwi.models.numbers import NumberModel
from gwi.models.regression import RegressionModel
from gwi.onnx.functions import expm1
from gwi.onnx.graph import Graph, Value
from gwi.onnx.kernels import numbers
from gwi.onnx.laws import Answer, answer_of
from gwi.onnx.linked import linked_answer
from gwi.onnx.networks import ensemble_values
from gwi.onnx.posterior import Parts, PosteriorWriter

# Of exponents, as in the models.
MOST_EXPONENT = 600.0


def regression_outputs(g: Graph, model: RegressionModel, x: Value, levels: Sequence[float]) -> dict[str, Value]:
    """Outputs by name, of normal or t noise around f.

    Raises:
        UnexportableError: for parts that have no graph.
    """
    parts, noise = _known(g, model, x)
    return _regression(g, model, parts, noise, levels) | _outlier_score(parts)


def linked_outputs(g: Graph, model: LinkedModel, x: Value, levels: Sequence[float]) -> dict[str, Value]:
    """Outputs by name, of another likelihood around f.

    Raises:
        UnexportableError: for parts that have no graph.
    """
    parts, noise = _known(g, model, x)
    return linked_answer(g, model, parts, noise, levels) | _outlier_score(parts)


def _known(g: Graph, model: NumberModel, x: Value) -> tuple[Parts, Value]:
    parts = PosteriorWriter(g, model.posterior, x, len(model.noises)).parts()
    return parts, noise_values(g, model, x, parts.mean)


def _outlier_score(parts: Parts) -> dict[str, Value]:
    """The share of the prior's variance that is left."""
    share = parts.variance.mean(-1, keep=True) / parts.prior_variance
    return {"outlier_score": share.clip(0.0, 1.0).without_axis(1)}


def noise_values(g: Graph, model: NumberModel, x: Value, mean: Value) -> Value:
    """σ² or φ of each target, (N, J)."""
    count, total = model.num_noise_columns, []
    own = None
    for noise in model.noises:
        if not noise.slopes.any() and noise.correction is None:
            total.append(mean.columns(0, 1) * 0.0 + float(noise.log_level.exp()))
            continue
        if own is None:
            columns = [x.columns(0, count)] if count else []
            columns += [part.square().most(16.0) for part in columns]
            own = g.joined([*columns, mean, mean.square().most(16.0)])
        total.append(_noise(g, noise, own))
    return g.joined(total)


def _noise(g: Graph, noise: LogLinearNoise, features: Value) -> Value:
    standardised = ((features - numbers(noise.centre)[None]) / numbers(noise.scale)[None]).clip(-4.0, 4.0)
    slope = standardised @ numbers(noise.slopes)[:, None]
    if noise.correction is not None:
        slope = slope + ensemble_values(g, noise.correction, standardised)
    return (slope.clip(-8.0, 4.0) + float(noise.log_level)).exp()


def _regression(g: Graph, model: RegressionModel, parts: Parts, noise: Value, levels: Sequence[float]) -> dict[str, Value]:
    """Normal or t noise around f."""
    scale, centre = model.scales.y_scale, model.scales.y_centre
    tempered = np.square(scale) * model.tempering_factor
    known, unknown = parts.whole(1.0) * tempered[None], noise * tempered[None]
    mean, variance = parts.mean * scale[None] + centre[None], known + unknown
    answers = []
    for j, degrees in enumerate(model.degrees_of_freedom):
        own = (mean, variance) if len(scale) == 1 else (mean.columns(j, j + 1), variance.columns(j, j + 1))
        answers.append(answer_of(g, model.outcome, *own, float(degrees), levels))
    expected, total = (g.joined([getattr(answer, name) for answer in answers]) for name in ("mean", "variance"))
    if model.outcome.log:
        of_f = (expected.square() * expm1(g, known.most(MOST_EXPONENT))).most(total)
        known, unknown = of_f, total - of_f
    elif not model.outcome.is_plain:
        share = known / variance
        known, unknown = total * share, total * (unknown / variance)
    return outputs_of(g, answers, expected, total, known, unknown, levels)


def outputs_of(
    g: Graph, answers: Sequence[Answer], mean: Value, variance: Value, known: Value, unknown: Value, levels: Sequence[float]
) -> dict[str, Value]:
    """By name, with one axis less where there is one target."""
    one = len(answers) == 1
    parts = {"mean": mean, "std": variance.sqrt(), "epistemic": known, "aleatoric": unknown}
    found = {name: value.without_axis(1) if one else value for name, value in parts.items()}
    if levels:
        ends = [answer.quantiles if one else answer.quantiles.new_axis(1) for answer in answers]
        found["quantiles"] = g.joined(ends, axis=1)
    return found
