"""A fitted classification as a JSON document and named tensors, and back: a closed list of parts, as in `storage.regression`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gwi.core.features import NetworkFeatures
from gwi.core.measures import GaussianMeasure
from gwi.core.scaling import Scales
from gwi.exceptions import ModelFileError, UnsavableError
from gwi.models.classification import ClassificationModel, ClassMember, ClassSummary, LogitsAndFeatures, StandardRows, UsualScores
from gwi.storage.kernels import Node, Reader, Writer, encode_kernel
from gwi.storage.means import decode_mean, decode_module, decode_shape, encode_mean, encode_module
from gwi.storage.regression import SCALES, decode_posterior_kernel, decode_scales, encode_posterior_kernel

# Kinds of labels that JSON can hold.
_LABELS: dict[str, type] = {"int": int, "float": float, "bool": bool, "str": str}


def encode_classes(model: ClassificationModel) -> tuple[Node, dict[str, Tensor]]:
    """Document and tensors of a fitted classification.

    Raises:
        UnsavableError: naming the part that cannot be stored, and what works instead.
    """
    w = Writer()
    document = {
        "embedding": _encode_embedding(model.embedding, w),
        "mean": encode_mean(model.posterior.mean, w, "mean"),
        "kernel": encode_posterior_kernel(model.posterior.kernel, w),
        "classes": _encode_labels(model.classes),
        "logit_scale": model.logit_scale,
        "tempering_factor": w.put("tempering_factor", model.tempering_factor),
        "disagreement_weight": model.disagreement_weight,
        "epsilon": model.epsilon,
        "usual": asdict(model.usual),
    }
    document["kernels"] = [encode_kernel(kernel, w, f"kernel.{i}") for i, kernel in enumerate(w.kernels)]
    return document, w.tensors


def decode_classes(
    document: Node, tensors: dict[str, Tensor], modules: Sequence[nn.Module] = (), device: torch.device | str = "cpu"
) -> ClassificationModel:
    """The classification that was encoded.

    Args:
        document: from `encode_classes`.
        tensors: from `encode_classes`.
        modules: the user's own networks, in the order in which the model holds them.
        device: where tensors go.

    Raises:
        ModelFileError: when document and tensors describe no model, or `modules` do not fit.
    """
    r = Reader(tensors, modules, device)
    try:
        classes = _decode_labels(document["classes"])
        embedding = _decode_embedding(document["embedding"], r, len(classes))
        kernel = decode_posterior_kernel(document, r)
        mean = decode_mean(document["mean"], r)
        epsilon = document["epsilon"]
        model = ClassificationModel(
            posterior=GaussianMeasure(mean, kernel).requires_grad_(False).eval(),
            embedding=embedding,
            classes=classes,
            logit_scale=float(document["logit_scale"]),
            tempering_factor=r.get(document["tempering_factor"], 1).cpu().numpy(),
            disagreement_weight=float(document["disagreement_weight"]),
            epsilon=None if epsilon is None else float(epsilon),
            usual=_decode_usual(document["usual"]),
        )
        if r.modules:
            raise ModelFileError(f"{len(r.modules)} more module(s) were passed than the model holds; pass as many as it has.")
        numbers = (model.logit_scale, model.disagreement_weight, *model.tempering_factor)
        valid = all(math.isfinite(number) and number >= 0 for number in numbers)
        if not valid or len(model.tempering_factor) != len(classes) or not (epsilon is None or 0 < epsilon < 1):
            raise ValueError("a scale is out of range")
        # One prediction, so that parts that do not fit together show now and not later.
        row = np.zeros((1, *embedding.shape), dtype=np.float32)
        if not all(np.isfinite(part).all() for part in model.probabilities(row)):
            raise ValueError("predictions are not finite")
    except ModelFileError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise ModelFileError(f"The model's parts do not fit together ({error}); save the model again.") from error
    return model


def _encode_embedding(embedding: nn.Module, w: Writer) -> Node:
    if isinstance(embedding, StandardRows):
        scales = {name: w.put(name, getattr(embedding.scales, name)) for name in SCALES}
        return {"type": "rows", "shape": list(embedding.shape), "scales": scales}
    if isinstance(embedding, LogitsAndFeatures):
        features = embedding.features
        directions = None if features.directions is None else w.put("features.directions", features.directions)
        return {
            "type": "network-features",
            "shape": list(embedding.shape),
            "network": encode_module(features.network, w, "features.network"),
            "automatic": features.automatic,
            "watched": list(features.watched),
            "centre": features.centre,
            "sphere": features.sphere,
            "projection": features.projection,
            "offset": w.put("features.offset", features.offset),
            "directions": directions,
        }
    raise UnsavableError(f"Rows of type {type(embedding).__name__} cannot be stored; those of GWIClassifier can.")


def _decode_embedding(node: Node, r: Reader, num_classes: int) -> StandardRows | LogitsAndFeatures:
    if node["type"] == "rows":
        r.scales = decode_scales(node["scales"], r)
        if len(r.scales.y_scale) != num_classes:
            raise ValueError("there are other classes than outputs")
        return StandardRows(r.scales, decode_shape(node["shape"], r.scales))
    if node["type"] != "network-features":
        raise ValueError("rows are of an unknown type")
    sizes = node["shape"]
    if not isinstance(sizes, list) or not all(type(size) is int and 0 < size < 10**6 for size in sizes) or len(sizes) > 5:
        raise ValueError("the shape of a row is none")
    network = decode_module(node["network"], r)
    projection, watched = node["projection"], node["watched"]
    if not isinstance(watched, list) or not all(isinstance(name, str) for name in watched):
        raise ValueError("the layers of the features have no names")
    features = NetworkFeatures(
        network,
        watched,
        centre=bool(node["centre"]),
        sphere=bool(node["sphere"]),
        projection=None if projection is None else int(projection),
    ).to(r.device)
    features.automatic = bool(node["automatic"])
    features.offset = r.get(node["offset"], 1)
    features.directions = None if node["directions"] is None else r.get(node["directions"], 2)
    if math.prod(sizes) > 10**8:
        raise ValueError("a row has too many numbers")
    with torch.no_grad():
        outputs, values = features.evaluate(torch.zeros(1, *sizes, device=r.device))
    if outputs.shape != (1, num_classes):
        raise ValueError("the network has other outputs than there are classes")
    size = num_classes + values.shape[1]
    r.scales = Scales(np.zeros(size), np.ones(size), np.zeros(num_classes), np.ones(num_classes))
    return LogitsAndFeatures(features, tuple(sizes))


def _decode_usual(node: Node) -> UsualScores:
    share, energy = (tuple(float(value) for value in node[name]) for name in ("share", "energy"))
    if not all(len(pair) == 2 and np.isfinite(pair).all() and pair[1] >= 0 for pair in (share, energy)):
        raise ValueError("usual scores are out of range")
    return UsualScores((share[0], share[1]), (energy[0], energy[1]))


def _encode_labels(classes: NDArray[Any]) -> Node:
    values = classes.tolist()
    for name, kind in _LABELS.items():
        if all(type(value) is kind for value in values):
            return {"kind": name, "values": values, "dtype": str(classes.dtype)}
    kinds = ", ".join(sorted({type(value).__name__ for value in values}))
    raise UnsavableError(f"Labels of type {kinds} cannot be stored; whole numbers, numbers, text and booleans can, of one kind.")


def _decode_labels(node: Node) -> NDArray[Any]:
    kind, values = _LABELS[node["kind"]], node["values"]
    if not isinstance(values, list) or len(values) < 2 or not all(type(value) is kind for value in values):
        raise ValueError("labels are not of one kind")
    dtype = np.dtype(node["dtype"])
    if dtype.kind not in "iufbUO":
        raise ValueError("labels are of an unknown kind")
    classes = np.array(values, dtype=dtype)
    if classes.tolist() != values or len(np.unique(classes)) != len(values):
        raise ValueError("labels repeat, or do not fit their kind")
    return classes


def encode_class_summary(summary: ClassSummary) -> Node:
    """A summary for JSON."""
    return asdict(summary)


def decode_class_summary(node: Node) -> ClassSummary:
    """The summary that was encoded.

    Raises:
        ModelFileError: when it is none.
    """
    try:
        members = tuple(ClassMember(**part) for part in node["members"])
        lists = {key: tuple(node[key]) for key in ("divergence_weight", "tempering", "unseen_nll")}
        summary = ClassSummary(**(node | lists | {"members": members}))
        str(summary)
    except (LookupError, TypeError, ValueError) as error:
        raise ModelFileError(f"The summary in the file is none ({error}); save the model again.") from error
    return summary
