"""A fitted model as a JSON document and named tensors, and back: a closed list of parts, each written out by hand.

Reading builds only what is listed here, from numbers, so a file can name no code. What a file says about sizes is never
believed: shapes come from the tensors themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from torch import Tensor, nn

from gwi.core.conditioning import ConditionedKernel, ConditionedMean, Observations
from gwi.core.features import NetworkFeatures
from gwi.core.kernels import DisagreementKernel, SparsePosteriorKernel
from gwi.core.measures import GaussianMeasure
from gwi.core.module_calls import LaidOut
from gwi.core.networks import EnsembleMLP
from gwi.core.noise import LogLinearNoise
from gwi.core.scaling import Embedding, OutputsAndFeatures, Scales, StandardisedRows
from gwi.exceptions import ModelFileError, UnsavableError
from gwi.models.classification import ClassificationModel, UsualScores
from gwi.models.regression import RegressionModel
from gwi.models.seen import MOST_HASHES, SeenRows
from gwi.parts import encode_parameter
from gwi.storage.description import decode_labels, encode_labels, encode_summary
from gwi.storage.header import number, printable, refuse_if, whole
from gwi.storage.kernels import FREE_ENTRIES, FREE_POINTS, Node, Reader, Writer, decode_kernel, encode_kernel, tag_of
from gwi.storage.means import decode_mean, decode_module, decode_shape, encode_mean, encode_module
from gwi.storage.predictors import encode_frame_predictor

Model = RegressionModel | ClassificationModel
# Tags in a file, never names of classes.
_MODELS: dict[str, type[Model]] = {"regression": RegressionModel, "classification": ClassificationModel}
_SCALES = ("x_centre", "x_scale", "y_centre", "y_scale")
# Of the range of columns.
_SPAN = ("lowest", "highest")
# Of a noise model, with their numbers of axes.
_NOISE = {"log_level": 0, "slopes": 1, "centre": 1, "scale": 1}
# Of rows that came by updates, with their numbers of axes.
_OBSERVED = {"points": 2, "factor": 3, "values": 2}


def encode_model(model: Model) -> tuple[Node, dict[str, Tensor]]:
    """Document and tensors of a fitted model.

    Raises:
        UnsavableError: naming the part that cannot be stored, and what works instead.
    """
    w, mean, kernel = Writer(), model.posterior.mean, model.posterior.kernel
    document: Node = {
        "task": tag_of(model, _MODELS),
        "embedding": _encode_embedding(model.embedding, w),
        "mean": encode_mean(mean.mean if isinstance(mean, ConditionedMean) else mean, w, "mean"),
        "kernel": _encode_posterior_kernel(kernel, w),
        "tempering_factor": w.put("tempering_factor", model.tempering_factor),
    }
    document |= _CODECS[document["task"]][0](model, w)
    document["kernels"] = [encode_kernel(kernel, w, f"kernel.{i}") for i, kernel in enumerate(w.kernels)]
    return document, w.tensors


def _encode_numbers(model: RegressionModel, w: Writer) -> Node:
    return {
        "noises": [_encode_noise(noise, w, f"noise.{i}") for i, noise in enumerate(model.noises)],
        "disagreement_weight": w.put("disagreement_weight", model.disagreement_weight),
        # JSON has no infinity, and tensors of a file are finite.
        "degrees_of_freedom": [None if math.isinf(degrees) else float(degrees) for degrees in model.degrees_of_freedom],
        "scores": w.put("scores", model.scores),
    }


def _encode_noise(noise: LogLinearNoise, w: Writer, name: str) -> Node:
    node: Node = {part: w.put(f"{name}.{part}", getattr(noise, part)) for part in _NOISE}
    return node if noise.correction is None else node | {"network": encode_module(noise.correction, w, f"{name}.network")}


def _encode_classes(model: ClassificationModel, w: Writer) -> Node:
    return {
        "classes": encode_labels(model.classes),
        "logit_scale": model.logit_scale,
        "disagreement_weight": model.disagreement_weight,
        "epsilon": model.epsilon,
        "usual": asdict(model.usual),
    }


def decode_model(
    document: Node, tensors: dict[str, Tensor], modules: Sequence[nn.Module] = (), device: torch.device | str = "cpu"
) -> Model:
    """The model that was encoded.

    Args:
        document: from `encode_model`.
        tensors: from `encode_model`.
        modules: the user's own networks, in the order in which the model holds them.
        device: where tensors go.

    Raises:
        ModelFileError: when document and tensors describe no model, or `modules` do not fit.
    """
    r = Reader(tensors, list(modules), device)
    try:
        decode = _CODECS[document["task"]][1]
        embedding = _decode_embedding(document["embedding"], r)
        kernel = r.posterior_kernel = _decode_posterior_kernel(document, r)
        posterior = GaussianMeasure(decode_mean(document["mean"], r), kernel).requires_grad_(False).eval()
        tempering_factor = r.get(document["tempering_factor"], 1).cpu().numpy()
        model = decode(document, r, posterior=posterior, embedding=embedding, tempering_factor=tempering_factor)
        if "given" in document["kernel"]:
            model = _with_observations(model, document["kernel"]["observed"], r)
        if r.modules:
            raise ModelFileError(f"{len(r.modules)} more module(s) were passed than the model holds; pass as many as it has.")
        # One prediction, so that parts that do not fit together show now and not later.
        finite = all(np.isfinite(part).all() for part in model.check(_one_row(embedding)))
        refuse_if(not finite, "predictions are not finite")
    except ModelFileError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise ModelFileError(f"The model's parts do not fit together ({printable(error)}); save the model again.") from error
    return model


def _with_observations(model: Model, node: Node, r: Reader) -> Model:
    """The model given the observations in a file; ValueError when they do not fit it."""
    points, factor, values = (r.get(node[name], num_axes) for name, num_axes in _OBSERVED.items())
    num_features, num_outputs = len(r.scales.x_scale), len(r.scales.y_scale)
    fits = points.shape[1] == num_features and values.shape == (num_outputs, len(points))
    refuse_if(not fits or factor.shape != (*values.shape, len(points)), "observed rows and their values have different sizes")
    refuse_if((factor.diagonal(dim1=-2, dim2=-1) <= 0).any(), "observed rows have no noise")
    observations, q = Observations(points, factor, values), model.posterior
    assert isinstance(q.mean, nn.Module)
    given = GaussianMeasure(ConditionedMean(q.mean, q.kernel, observations), ConditionedKernel(q.kernel, observations))
    return replace(model, posterior=given.requires_grad_(False).eval())


def _one_row(embedding: Embedding) -> NDArray[Any]:
    if isinstance(embedding, StandardisedRows):
        return embedding.scales.x_centre.reshape(1, *embedding.shape)
    if isinstance(embedding.features.network, LaidOut):
        return embedding.features.network.layout.example()
    return np.zeros((1, *embedding.shape), dtype=np.float32)


def _decode_numbers(document: Node, r: Reader, **common: Any) -> RegressionModel:
    noises = [{name: r.get(node[name], num_axes) for name, num_axes in _NOISE.items()} for node in document["noises"]]
    degrees = [math.inf if d is None else number(d, "degrees of freedom", 2.0) for d in document["degrees_of_freedom"]]
    scores = r.get(document["scores"], 2)
    weight = r.get(document["disagreement_weight"], 1).cpu().numpy()
    num_outputs = len(r.scales.y_scale)
    per_target = (noises, common["tempering_factor"], degrees, weight, scores)
    refuse_if(
        num_outputs == 0 or {len(part) for part in per_target} != {num_outputs}, "the parts have different numbers of targets"
    )
    refuse_if((weight < 0).any() or min(degrees) <= 2, "a weight or degrees of freedom are too small")
    refuse_if((common["tempering_factor"] <= 0).any(), "a tempering factor is not positive")
    refuse_if((scores < 0).any() or (scores.diff(dim=1) < 0).any(), "held-out scores are not in ascending order from zero")
    corrections = [_decode_correction(node, len(noises[0]["slopes"]), r) for node in document["noises"]]
    for noise in noises:
        _check_noise(noise, len(noises[0]["slopes"]), r)
    return RegressionModel(
        **common,
        noises=tuple(LogLinearNoise(**parts, correction=network) for parts, network in zip(noises, corrections, strict=True)),
        degrees_of_freedom=np.array(degrees),
        disagreement_weight=weight,
        scores=scores,
    )


def _decode_correction(node: Node, num_slopes: int, r: Reader) -> EnsembleMLP | None:
    """The network of a noise, where it has one."""
    if "network" not in node:
        return None
    refuse_if(node["network"]["type"] != "ensemble", "the network of a noise is of another type")
    network = decode_module(node["network"], r)
    assert isinstance(network, EnsembleMLP)
    refuse_if(network.linear.shape[1:] != (num_slopes, 1), "the network of a noise has other columns than it")
    return network


def _check_noise(parts: dict[str, Tensor], num_slopes: int, r: Reader) -> None:
    """Refuse a noise of other features than the first, without a scale, or whose exponential is no number."""
    # Some columns, their squares, the outputs and theirs.
    columns, odd = divmod(num_slopes - 2 * len(r.scales.y_scale), 2)
    fits = not odd and 0 <= columns <= len(r.scales.x_scale) and {len(v) for v in parts.values() if v.ndim} == {num_slopes}
    refuse_if(not fits, "the noise depends on other columns than there are")
    refuse_if(not (parts["scale"] > 0).all(), "a scale of the noise is not positive")
    refuse_if(not -1e3 <= float(parts["log_level"]) <= 300, "the level of the noise is out of range")


def _decode_classes(document: Node, r: Reader, **common: Any) -> ClassificationModel:
    epsilon = document["epsilon"]
    model = ClassificationModel(
        **common,
        classes=decode_labels(document["classes"]),
        logit_scale=number(document["logit_scale"], "the scale of the logits", 0.0),
        disagreement_weight=number(document["disagreement_weight"], "the weight of disagreement", 0.0),
        epsilon=None if epsilon is None else number(epsilon, "epsilon", 1e-12, 1 - 1e-12),
        usual=_decode_usual(document["usual"]),
    )
    num_classes = len(model.classes)
    refuse_if(len(r.scales.y_scale) != num_classes, "there are other classes than outputs")
    valid = len(model.tempering_factor) == num_classes and (model.tempering_factor >= 0).all()
    refuse_if(not valid, "a tempering factor is negative, or not of a class")
    return model


_CODECS: dict[str, tuple[Callable[..., Node], Callable[..., Model]]] = {
    "regression": (_encode_numbers, _decode_numbers),
    "classification": (_encode_classes, _decode_classes),
}


def _encode_embedding(embedding: Embedding, w: Writer) -> Node:
    scales = {name: w.put(name, getattr(embedding.scales, name)) for name in _SCALES}
    common: Node = {"shape": list(embedding.shape), "scales": scales}
    if isinstance(embedding, StandardisedRows):
        ends = zip(_SPAN, embedding.span or (), strict=embedding.span is not None)
        span = [w.put(f"x_{end}", value) for end, value in ends] or None
        return {"type": "rows", "span": span} | common
    if not isinstance(embedding, OutputsAndFeatures):
        raise UnsavableError(f"Rows of type {type(embedding).__name__} cannot be stored; those of the estimators can.")
    features = embedding.features
    directions = None if features.directions is None else w.put("features.directions", features.directions)
    return common | {
        "type": "network-features",
        "network": encode_module(features.network, w, "features.network"),
        "watched": list(features.layers),
        **{name: getattr(features, name) for name in ("automatic", "centre", "sphere", "projection")},
        "offset": w.put("features.offset", features.offset),
        "directions": directions,
    }


def _decode_embedding(node: Node, r: Reader) -> Embedding:
    scales = Scales(*(r.get(node["scales"][name], 1).cpu().numpy() for name in _SCALES))
    sizes_fit = (len(scales.x_centre), len(scales.y_centre)) == (len(scales.x_scale), len(scales.y_scale))
    refuse_if(not sizes_fit, "centres and scales have different sizes")
    positive = all(((scale >= 1e-165) & (scale <= 1e150)).all() for scale in (scales.x_scale, scales.y_scale))
    refuse_if(not positive, "a scale is not positive")
    r.scales = scales
    if node["type"] == "rows":
        span = None
        if node["span"] is not None:
            low, high = (r.get(name, 1).cpu().numpy() for name in node["span"])
            fits = 0 < len(low) == len(high) <= len(scales.x_scale)
            refuse_if(not fits, "the range of the columns is that of other columns")
            span = low, high
        return StandardisedRows(scales, decode_shape(node["shape"], scales), span)
    refuse_if(node["type"] != "network-features", "rows are of an unknown type")
    shape, watched, projection = decode_shape(node["shape"]), node["watched"], node["projection"]
    named = isinstance(watched, list) and all(isinstance(name, str) for name in watched)
    refuse_if(not named, "the layers of the features have no names")
    network = decode_module(node["network"], r)
    sizes = [part.size for part in network.layout.parts] if isinstance(network, LaidOut) else [math.prod(shape)]
    refuse_if(math.prod(shape) != sum(sizes), "the parts of a row have other sizes than it")
    features = NetworkFeatures(
        network,
        watched,
        centre=bool(node["centre"]),
        sphere=bool(node["sphere"]),
        projection=None if projection is None else whole(projection, "the projection", len(scales.x_scale)),
    ).to(r.device)
    features.automatic = bool(node["automatic"])
    features.offset = r.get(node["offset"], 1)
    features.directions = None if node["directions"] is None else r.get(node["directions"], 2)
    embedding = OutputsAndFeatures(features, scales, shape)
    with torch.no_grad():
        outputs, values = features.evaluate(torch.from_numpy(_one_row(embedding)).to(r.device))
    fits = outputs.shape == (1, len(scales.y_scale)) and outputs.shape[1] + values.shape[1] == len(scales.x_scale)
    refuse_if(not fits, "the network has other outputs or features than the model")
    return embedding


def _encode_posterior_kernel(kernel: Kernel, w: Writer) -> Node:
    """r: its prior kernel, Z and S; a diagonal S as its diagonal. Models put together what goes around it.

    Rows that were observed stand in its place with r inside, so that a reader that does not know them does not take r for all.
    """
    if isinstance(kernel, ConditionedKernel):
        observed = {name: w.put(f"observed.{name}", getattr(kernel.observations, name)) for name in _OBSERVED}
        return {"given": _encode_posterior_kernel(kernel.kernel, w), "observed": observed}
    kernel = kernel.kernel if isinstance(kernel, DisagreementKernel) else kernel
    factor = kernel.whitened_factor.detach()
    diagonal = factor.diagonal(dim1=-2, dim2=-1)
    # Of many points in full, for a file must not be small beside its k(Z, Z).
    is_small = len(kernel.inducing_points) <= FREE_POINTS and factor.numel() <= FREE_ENTRIES
    is_diagonal = is_small and torch.equal(torch.diag_embed(diagonal), factor)
    return {
        "prior": w.kernel(kernel.prior_kernel),
        "inducing_points": w.put("inducing_points", kernel.inducing_points),
        "whitened_factor": w.put("whitened_factor", diagonal if is_diagonal else factor),
        "jitter": float(kernel.jitter),
    }


def _decode_posterior_kernel(document: Node, r: Reader) -> SparsePosteriorKernel:
    """r from the whole document, whose kernels are read first; ValueError when its parts do not fit together."""
    num_features, num_outputs = len(r.scales.x_scale), len(r.scales.y_scale)
    r.kernels = [decode_kernel(node, r, num_features).to(r.device) for node in document["kernels"]]
    node = document["kernel"].get("given", document["kernel"])
    z, factor = r.get(node["inducing_points"], 2), r.get(node["whitened_factor"], None)
    shapes = ((num_outputs, len(z)), (num_outputs, len(z), len(z)))
    refuse_if(z.shape[1] != num_features or factor.shape not in shapes, "inducing points, covariance and scales differ in size")
    prior, jitter = r.kernel(node["prior"], len(z)), number(node["jitter"], "the jitter", 0.0, 1.0)
    refuse_if(factor.ndim == 2 and len(z) * factor.numel() > FREE_ENTRIES, "S would be far larger than the file")
    factor = torch.diag_embed(factor) if factor.ndim == 2 else factor
    kernel = SparsePosteriorKernel(prior, z, torch.zeros_like(factor), jitter=jitter)
    kernel.whitened_factor = nn.Parameter(factor, requires_grad=False)
    return kernel


def _decode_usual(node: Node) -> UsualScores:
    pairs: dict[str, Any] = {name: tuple(number(v, name) for v in node[name]) for name in ("share", "energy")}
    valid = all(len(pair) == 2 and pair[1] >= 0 for pair in pairs.values())
    refuse_if(not valid, "usual scores are out of range")
    return UsualScores(**pairs)


def encode_estimator(estimator: Any, hashes: bool = True) -> tuple[Node, dict[str, Tensor]]:
    """Document and tensors of a fitted estimator: its parameters that JSON can hold, its columns, its summary and its model."""
    model, tensors = encode_model(estimator.model_)
    seen: SeenRows | None = estimator._seen if hashes else None
    if seen is not None:
        tensors["seen"] = torch.from_numpy(seen.hashes.view(np.int64))
    encoder = getattr(estimator, "encoder_", None)
    names = getattr(estimator, "feature_names_in_", None) if encoder is None else None
    parameters = {key: encode_parameter(value) for key, value in estimator.get_params(deep=False).items()}
    document = {
        "estimator": estimator._tag,
        "feature_names": None if names is None else list(names),
        "one_target": getattr(estimator._targets, "one", True),
        "parameters": {key: value for key, value in parameters.items() if value is not NotImplemented},
        "summary": encode_summary(estimator.summary_),
        "model": model,
        "seen": None if seen is None else {"salt": seen.salt.hex(), "are_all": seen.are_all},
    }
    if encoder is not None:
        document["table"] = {"columns": encoder.to_json(), "scores": getattr(estimator, "held_out_scores_", {})}
    if estimator.frame_predictors_:
        w, predictors = Writer(), enumerate(estimator.frame_predictors_)
        document["frame_predictors"] = [encode_frame_predictor(one, w, f"frame_predictor.{i}") for i, one in predictors]
        tensors |= w.tensors
    return document, tensors


def decode_seen(document: Node, tensors: dict[str, Tensor]) -> SeenRows | None:
    """The hashes of training rows; None where there are none, ValueError where they are something else."""
    node, hashes = document.get("seen"), tensors.get("seen")
    if node is None:
        return None
    wrong = hashes is None or hashes.ndim != 1 or hashes.dtype != torch.int64 or type(node["are_all"]) is not bool
    refuse_if(wrong or not isinstance(node["salt"], str) or len(node["salt"]) != 32, "hashes of training rows are none")
    assert hashes is not None
    values = hashes.cpu().numpy().view(np.uint64)
    refuse_if(not 0 < len(values) <= MOST_HASHES or not (values[1:] > values[:-1]).all(), "hashes of training rows are none")
    return SeenRows(bytes.fromhex(node["salt"]), values, node["are_all"])
