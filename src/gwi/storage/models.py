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
from gwi.core.noise import LogLinearNoise
from gwi.core.scaling import Embedding, OutputsAndFeatures, Scales, StandardisedRows
from gwi.exceptions import ModelFileError, UnsavableError
from gwi.models.classification import ClassificationModel, UsualScores
from gwi.models.regression import RegressionModel
from gwi.models.summary import MemberSummary, Summary
from gwi.parts import encode_parameter
from gwi.storage.kernels import Node, Reader, Writer, decode_kernel, encode_kernel, refuse_if, tag_of
from gwi.storage.means import decode_mean, decode_module, decode_shape, encode_mean, encode_module

Model = RegressionModel | ClassificationModel
# Tags in a file, never names of classes.
_MODELS: dict[str, type[Model]] = {"regression": RegressionModel, "classification": ClassificationModel}
_SCALES = ("x_centre", "x_scale", "y_centre", "y_scale")
# Of a noise model, with their numbers of axes.
_NOISE = {"log_level": 0, "slopes": 1, "centre": 1, "scale": 1}
# Of rows that came by updates, with their numbers of axes.
_OBSERVED = {"points": 2, "factor": 3, "values": 2}
# Kinds of labels that JSON can hold.
_LABELS = ("int", "float", "bool", "str")
# Of a summary: lists that become tuples, and those that may hold infinity, which JSON has not.
_LISTS = ("divergence_weight", "tempering", "disagreement_weight", "held_out_nll", "noise", "degrees_of_freedom")
_INFINITE = ("noise", "degrees_of_freedom")


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
        "noises": [
            {name: w.put(f"noise.{i}.{name}", getattr(noise, name)) for name in _NOISE} for i, noise in enumerate(model.noises)
        ],
        "disagreement_weight": w.put("disagreement_weight", model.disagreement_weight),
        # JSON has no infinity, and tensors of a file are finite.
        "degrees_of_freedom": [None if math.isinf(degrees) else float(degrees) for degrees in model.degrees_of_freedom],
        "scores": w.put("scores", model.scores),
    }


def _encode_classes(model: ClassificationModel, w: Writer) -> Node:
    return {
        "classes": _encode_labels(model.classes),
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
        kernel = _decode_posterior_kernel(document, r)
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
        raise ModelFileError(f"The model's parts do not fit together ({error}); save the model again.") from error
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
    return np.zeros((1, *embedding.shape), dtype=np.float32)


def _decode_numbers(document: Node, r: Reader, **common: Any) -> RegressionModel:
    noises = [{name: r.get(node[name], num_axes) for name, num_axes in _NOISE.items()} for node in document["noises"]]
    model = RegressionModel(
        **common,
        noises=tuple(LogLinearNoise(**parts) for parts in noises),
        degrees_of_freedom=np.array([math.inf if d is None else float(d) for d in document["degrees_of_freedom"]]),
        disagreement_weight=r.get(document["disagreement_weight"], 1).cpu().numpy(),
        scores=r.get(document["scores"], 2),
    )
    num_outputs = len(r.scales.y_scale)
    per_target = (noises, model.tempering_factor, model.degrees_of_freedom, model.disagreement_weight, model.scores)
    valid = (model.degrees_of_freedom > 2).all() and (model.disagreement_weight >= 0).all()
    fits = num_outputs > 0 and {len(part) for part in per_target} == {num_outputs}
    refuse_if(not fits or not valid, "the parts have different numbers of targets")
    return model


def _decode_classes(document: Node, r: Reader, **common: Any) -> ClassificationModel:
    epsilon = document["epsilon"]
    model = ClassificationModel(
        **common,
        classes=_decode_labels(document["classes"]),
        logit_scale=float(document["logit_scale"]),
        disagreement_weight=float(document["disagreement_weight"]),
        epsilon=None if epsilon is None else float(epsilon),
        usual=_decode_usual(document["usual"]),
    )
    num_classes = len(model.classes)
    numbers = (model.logit_scale, model.disagreement_weight, *model.tempering_factor)
    valid = all(math.isfinite(number) and number >= 0 for number in numbers) and (epsilon is None or 0 < epsilon < 1)
    refuse_if(len(r.scales.y_scale) != num_classes, "there are other classes than outputs")
    refuse_if(not valid or len(model.tempering_factor) != num_classes, "a scale is out of range")
    return model


_CODECS: dict[str, tuple[Callable[..., Node], Callable[..., Model]]] = {
    "regression": (_encode_numbers, _decode_numbers),
    "classification": (_encode_classes, _decode_classes),
}


def _encode_embedding(embedding: Embedding, w: Writer) -> Node:
    scales = {name: w.put(name, getattr(embedding.scales, name)) for name in _SCALES}
    common: Node = {"shape": list(embedding.shape), "scales": scales}
    if isinstance(embedding, StandardisedRows):
        return {"type": "rows"} | common
    if not isinstance(embedding, OutputsAndFeatures):
        raise UnsavableError(f"Rows of type {type(embedding).__name__} cannot be stored; those of the estimators can.")
    features = embedding.features
    directions = None if features.directions is None else w.put("features.directions", features.directions)
    return common | {
        "type": "network-features",
        "network": encode_module(features.network, w, "features.network"),
        "watched": list(features.watched),
        **{name: getattr(features, name) for name in ("automatic", "centre", "sphere", "projection")},
        "offset": w.put("features.offset", features.offset),
        "directions": directions,
    }


def _decode_embedding(node: Node, r: Reader) -> Embedding:
    scales = Scales(*(r.get(node["scales"][name], 1).cpu().numpy() for name in _SCALES))
    sizes_fit = (len(scales.x_centre), len(scales.y_centre)) == (len(scales.x_scale), len(scales.y_scale))
    refuse_if(not sizes_fit, "centres and scales have different sizes")
    r.scales = scales
    if node["type"] == "rows":
        return StandardisedRows(scales, decode_shape(node["shape"], scales))
    refuse_if(node["type"] != "network-features", "rows are of an unknown type")
    shape, watched, projection = decode_shape(node["shape"]), node["watched"], node["projection"]
    named = isinstance(watched, list) and all(isinstance(name, str) for name in watched)
    refuse_if(not named, "the layers of the features have no names")
    features = NetworkFeatures(
        decode_module(node["network"], r),
        watched,
        centre=bool(node["centre"]),
        sphere=bool(node["sphere"]),
        projection=None if projection is None else int(projection),
    ).to(r.device)
    features.automatic = bool(node["automatic"])
    features.offset = r.get(node["offset"], 1)
    features.directions = None if node["directions"] is None else r.get(node["directions"], 2)
    with torch.no_grad():
        outputs, values = features.evaluate(torch.zeros(1, *shape, device=r.device))
    fits = outputs.shape == (1, len(scales.y_scale)) and outputs.shape[1] + values.shape[1] == len(scales.x_scale)
    refuse_if(not fits, "the network has other outputs or features than the model")
    return OutputsAndFeatures(features, scales, shape)


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
    return {
        "prior": w.kernel(kernel.prior_kernel),
        "inducing_points": w.put("inducing_points", kernel.inducing_points),
        "whitened_factor": w.put("whitened_factor", diagonal if torch.equal(torch.diag_embed(diagonal), factor) else factor),
        "jitter": float(kernel.jitter),
    }


def _decode_posterior_kernel(document: Node, r: Reader) -> SparsePosteriorKernel:
    """r from the whole document, whose kernels are read first; ValueError when its parts do not fit together."""
    num_features, num_outputs = len(r.scales.x_scale), len(r.scales.y_scale)
    r.kernels = [decode_kernel(node, r, num_features).to(r.device) for node in document["kernels"]]
    node = document["kernel"].get("given", document["kernel"])
    z, factor = r.get(node["inducing_points"], 2), r.tensors[node["whitened_factor"]].to(r.device)
    factor = torch.diag_embed(factor) if factor.ndim == 2 else factor
    fits = z.shape[1] == num_features and factor.shape == (num_outputs, len(z), len(z)) and factor.dtype == torch.float64
    refuse_if(not fits, "inducing points, covariance and scales have different sizes")
    kernel = SparsePosteriorKernel(r.kernels[node["prior"]], z, torch.zeros_like(factor), jitter=float(node["jitter"]))
    kernel.whitened_factor = nn.Parameter(factor, requires_grad=False)
    return kernel


def _decode_usual(node: Node) -> UsualScores:
    pairs: dict[str, Any] = {name: tuple(map(float, node[name])) for name in ("share", "energy")}
    valid = all(len(pair) == 2 and np.isfinite(pair).all() and pair[1] >= 0 for pair in pairs.values())
    refuse_if(not valid, "usual scores are out of range")
    return UsualScores(**pairs)


def _encode_labels(classes: NDArray[Any]) -> Node:
    values = classes.tolist()
    kinds = ", ".join(sorted({type(value).__name__ for value in values}))
    if kinds in _LABELS:
        return {"kind": kinds, "values": values, "dtype": str(classes.dtype)}
    raise UnsavableError(f"Labels of type {kinds} cannot be stored; whole numbers, numbers, text and booleans can, of one kind.")


def _decode_labels(node: Node) -> NDArray[Any]:
    kind, values, dtype = node["kind"], node["values"], np.dtype(node["dtype"])
    alike = isinstance(values, list) and len(values) > 1 and all(type(value).__name__ == kind for value in values)
    refuse_if(not alike, "labels are not of one kind")
    refuse_if(kind not in _LABELS or dtype.kind not in "iufbUO", "labels are of an unknown kind")
    classes = np.array(values, dtype=dtype)
    fits = classes.tolist() == values and len(np.unique(classes)) == len(values)
    refuse_if(not fits, "labels repeat, or do not fit their kind")
    return classes


def encode_summary(summary: Summary) -> Node:
    """A summary for JSON, which has no infinity."""
    node = asdict(summary)
    return node | {key: [None if value == math.inf else value for value in node[key]] for key in _INFINITE}


def decode_summary(node: Node) -> Summary:
    """The summary that was encoded.

    Raises:
        ModelFileError: when it is none.
    """
    try:
        members = tuple(MemberSummary(**(part | {"weights": tuple(part["weights"])})) for part in node["members"])
        lists = {key: tuple(math.inf if value is None and key in _INFINITE else value for value in node[key]) for key in _LISTS}
        summary = Summary(**(node | lists | {"members": members}))
        str(summary)
    except (LookupError, TypeError, ValueError) as error:
        raise ModelFileError(f"The summary in the file is none ({error}); save the model again.") from error
    return summary


def encode_estimator(estimator: Any) -> tuple[Node, dict[str, Tensor]]:
    """Document and tensors of a fitted estimator: its parameters that JSON can hold, its columns, its summary and its model."""
    model, tensors = encode_model(estimator.model_)
    names = getattr(estimator, "feature_names_in_", None)
    parameters = {key: encode_parameter(value) for key, value in estimator.get_params(deep=False).items()}
    document = {
        "estimator": estimator._tag,
        "feature_names": None if names is None else list(names),
        "one_target": getattr(estimator._targets, "one", True),
        "parameters": {key: value for key, value in parameters.items() if value is not NotImplemented},
        "summary": encode_summary(estimator.summary_),
        "model": model,
    }
    return document, tensors
