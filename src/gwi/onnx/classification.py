"""Models of classes in a graph: probabilities, entropies, scores of outliers."""

from __future__ import annotations

import numpy as np

from gwi.models.classification import LEAST_SPREAD, ClassificationModel
from gwi.onnx.graph import Graph, Value
from gwi.onnx.posterior import PosteriorWriter
from gwi.onnx.softmax import robust_max_probabilities, softmax_moments

TINY = float(np.finfo(np.float64).tiny)


def class_outputs(g: Graph, model: ClassificationModel, x: Value) -> dict[str, Value]:
    """Outputs by name: probabilities with one column a class, all else one number a row.

    Raises:
        UnexportableError: for parts that have no graph.
    """
    num_classes = len(model.classes)
    writer = PosteriorWriter(g, model.posterior, x, num_classes)
    parts = writer.parts()
    mean, variance = parts.mean * model.logit_scale, parts.whole(writer.scale) * model.logit_scale**2
    variance = variance + mean * 0.0
    if model.epsilon is None:
        probabilities, expected = softmax_moments(g, mean, variance, num_classes)
    else:
        epsilon = model.epsilon
        probabilities = robust_max_probabilities(g, mean, variance, num_classes, epsilon)
        entropy = -(1 - epsilon) * np.log1p(-epsilon) - epsilon * np.log(epsilon / (num_classes - 1))
        expected = mean.columns(0, 1) * 0.0 + float(entropy)
    total = -(probabilities * probabilities.least(TINY).log()).sum(-1, keep=True)
    share = (parts.variance.mean(-1, keep=True) / parts.prior_variance.least(TINY)).clip(0.0, 1.0)
    energy = -g.op("ReduceLogSumExp", parts.mean, g.integers([-1]), keepdims=1)
    both = None
    for values, (centre, spread) in ((share, model.usual.share), (energy, model.usual.energy)):
        score = (values - centre) / max(spread, LEAST_SPREAD)
        both = score if both is None else both + score
    assert both is not None
    found = {
        "epistemic": (total - expected).least(0.0),
        "aleatoric": expected.most(total),
        "outlier_score": share,
        "outlier_score_with_energy": both,
    }
    return {"probabilities": probabilities} | {name: value.without_axis(1) for name, value in found.items()}
