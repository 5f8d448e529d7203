"""Means in model files: a closed list of types, each written out by hand, built again from numbers only."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import nn

from gwi.core.means import (
    ConstantMean,
    ConvexMean,
    FirstColumns,
    FixedMean,
    JoinedMean,
    KernelMean,
    ModuleMean,
    OriginalRowsMean,
    RescaledMean,
    SumMean,
)
from gwi.core.networks import EnsembleMLP
from gwi.core.scaling import Scales
from gwi.exceptions import ModelFileError, UnsavableError
from gwi.predictors.linear import TAGS, Predictor, plain_predictor
from gwi.predictors.logits import ClassifierLogits, PlainClassifier
from gwi.storage.kernels import Node, Reader, Writer, tag_of

# Tags in a file, never names of classes.
_COMPOSED: dict[str, type[nn.Module]] = {"sum": SumMean, "weighted": ConvexMean, "per-target": JoinedMean}
_ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "silu": nn.SiLU,
    "sigmoid": nn.Sigmoid,
    "identity": nn.Identity,
}
_PREDICTORS: dict[str, type[Predictor | PlainClassifier]] = {**TAGS, "classifier": PlainClassifier}


def encode_mean(mean: Any, w: Writer, name: str) -> Node:
    """A mean of an estimator: its type and its parts.

    Raises:
        UnsavableError: naming a part that cannot be stored, and what works instead.
    """
    tag = tag_of(mean, _COMPOSED)
    if tag is not None:
        parts: Node = {"means": [encode_mean(part, w, f"{name}.{i}") for i, part in enumerate(mean.means)]}
        weights = {"weights": w.put(f"{name}.weights", mean.weights)} if isinstance(mean, ConvexMean) else {}
        return {"type": tag} | parts | weights
    if isinstance(mean, OriginalRowsMean | RescaledMean):
        shape = {"shape": list(mean.shape)} if mean.shape is not None else {}
        tag = "original-rows" if isinstance(mean, OriginalRowsMean) else "rescaled"
        return {"type": tag, "mean": encode_mean(mean.mean, w, name)} | shape
    if isinstance(mean, ConstantMean):
        return {"type": "constant", "values": w.put(f"{name}.values", mean.values)}
    if isinstance(mean, FirstColumns):
        return {"type": "first-columns"}
    if isinstance(mean, KernelMean) and mean.prior_mean is None:
        return {
            "type": "kernel",
            "kernel": w.kernel(mean.prior_kernel),
            "inducing_points": w.put(f"{name}.inducing_points", mean.inducing_points),
            "whitened_coefficients": w.put(f"{name}.whitened_coefficients", mean.whitened_coefficients),
            "jitter": float(mean.jitter),
        }
    if isinstance(mean, ModuleMean) and mean.prior_mean is None:
        return {"type": "network", "module": encode_module(mean.module, w, name)}
    if isinstance(mean, FixedMean):
        return {"type": "predictor", "predictor": _encode_predictor(mean.predictor, w, name)}
    raise UnsavableError(f"A mean of type {type(mean).__name__} cannot be stored; those of the estimators can.")


def decode_mean(node: Node, r: Reader, depth: int = 0) -> nn.Module:
    """The mean that was encoded; ValueError when it describes none."""
    if depth > 20:
        raise ValueError("means are nested too deeply")
    kind = node["type"]
    if kind == "per-target":
        if len(node["means"]) != len(r.scales.y_scale):
            raise ValueError("a mean joins other targets")
        return JoinedMean([decode_mean(part, r, depth + 1) for part in node["means"]])
    if kind in ("sum", "weighted"):
        parts = [decode_mean(part, r, depth + 1) for part in node["means"]]
        return SumMean(parts) if kind == "sum" else ConvexMean(parts, r.get(node["weights"], 2))
    if kind in ("original-rows", "rescaled"):
        inner = decode_mean(node["mean"], r, depth + 1)
        shape = None if "shape" not in node else decode_shape(node["shape"], r.scales)
        return (RescaledMean if kind == "rescaled" else OriginalRowsMean)(inner, r.scales, shape)
    if kind == "constant":
        return ConstantMean(r.get(node["values"], 1))
    if kind == "first-columns":
        return FirstColumns(len(r.scales.y_scale))
    if kind == "kernel":
        z, v = r.get(node["inducing_points"], 2), r.get(node["whitened_coefficients"], 2)
        if z.shape[1] != len(r.scales.x_scale) or v.shape != (len(r.scales.y_scale), len(z)):
            raise ValueError("a kernel mean has coefficients for other points")
        return KernelMean(r.kernels[node["kernel"]], z, v, jitter=float(node["jitter"]))
    if kind == "network":
        return ModuleMean(decode_module(node["module"], r))
    if kind == "predictor":
        return FixedMean(_decode_predictor(node["predictor"], r))
    raise ValueError("a mean is of an unknown type")


def decode_shape(sizes: Any, scales: Scales) -> tuple[int, ...]:
    """The shape of a row; ValueError when it has not as many numbers as there are columns."""
    fits = isinstance(sizes, list) and sizes and all(type(size) is int and size > 0 for size in sizes)
    if not fits or math.prod(sizes) != len(scales.x_scale):
        raise ValueError("the shape of a row does not fit its columns")
    return tuple(sizes)


def encode_module(module: nn.Module, w: Writer, name: str) -> Node:
    """A network: whole where it is made of linear layers and activations, else as its state dict."""
    if type(module) is EnsembleMLP:
        layers = [
            [w.put(f"{name}.weights.{i}", weight), w.put(f"{name}.biases.{i}", bias)]
            for i, (weight, bias) in enumerate(zip(module.weights, module.biases, strict=True))
        ]
        return {"type": "ensemble", "layers": layers}
    if type(module) is nn.Sequential and all(type(layer) in (nn.Linear, *_ACTIVATIONS.values()) for layer in module):
        described: list[Any] = []
        for i, layer in enumerate(module):
            if isinstance(layer, nn.Linear):
                bias = None if layer.bias is None else w.put(f"{name}.{i}.bias", layer.bias)
                described.append([w.put(f"{name}.{i}.weight", layer.weight), bias])
            else:
                described.append(tag_of(layer, _ACTIVATIONS))
        return {"type": "layers", "layers": described}
    state = {key: w.put(f"{name}.{key}", value) for key, value in module.state_dict().items()}
    return {"type": "state", "name": type(module).__name__, "state": state}


def decode_module(node: Node, r: Reader) -> nn.Module:
    """The network that was encoded.

    Raises:
        ModelFileError: when it is one of the user's own and no instance that fits was passed.
    """
    kind = node["type"]
    if kind == "ensemble":
        layers = [(r.get(weight, 3, None), r.get(bias, 3, None)) for weight, bias in node["layers"]]
        network = EnsembleMLP(1, 1, num_members=1, hidden=(), generator=torch.Generator())
        network.weights = nn.ParameterList([nn.Parameter(weight) for weight, _ in layers])
        network.biases = nn.ParameterList([nn.Parameter(bias) for _, bias in layers])
        return network
    if kind == "layers":
        built: list[nn.Module] = []
        for layer in node["layers"]:
            if isinstance(layer, str):
                built.append(_ACTIVATIONS[layer]())
                continue
            weight, bias = r.get(layer[0], 2, None), None if layer[1] is None else r.get(layer[1], 1, None)
            linear = nn.utils.skip_init(nn.Linear, 1, 1, bias=bias is not None)
            linear.weight = nn.Parameter(weight)
            linear.out_features, linear.in_features = weight.shape
            if bias is not None:
                linear.bias = nn.Parameter(bias)
            built.append(linear)
        return nn.Sequential(*built)
    if kind != "state":
        raise ValueError("a network is of an unknown type")
    if not r.modules:
        raise ModelFileError(
            f"The mean holds a network of your own ({node['name']}), of which a file stores the numbers only: "
            "pass an instance of it, gwi.load(path, module=...)."
        )
    module = copy.deepcopy(r.modules.pop(0))
    state = {key: r.tensors[ref] for key, ref in node["state"].items()}
    precisions = {tensor.dtype for tensor in state.values() if tensor.is_floating_point()}
    if len(precisions) == 1:
        # Numbers would else be rounded to the precision of the module that was passed.
        module = module.to(precisions.pop())
    try:
        module.load_state_dict(state, strict=True)
    except RuntimeError as error:
        raise ModelFileError(
            f"The module passed does not fit the {node['name']} in the file: {' '.join(str(error).split())}"
        ) from error
    return module.to(r.device)


def _encode_predictor(predictor: Any, w: Writer, name: str) -> Node:
    plain = _plain(predictor)
    if plain is None:
        # The wrapper is ours; what cannot be stored is what it wraps.
        named = predictor.estimator if isinstance(predictor, ClassifierLogits) else predictor
        called = getattr(named, "__name__", type(named).__name__)
        raise UnsavableError(
            f"A mean of type {called} cannot be stored without running code when it is read. Stored are: kernel means, networks, "
            "scikit-learn's boosting, forests, decision trees and linear models; a torch module is stored as its state dict."
        )
    numbers = plain.arrays()
    return {"type": tag_of(plain, _PREDICTORS), "arrays": {key: w.put(f"{name}.{key}", value) for key, value in numbers.items()}}


def _plain(predictor: Any) -> Predictor | PlainClassifier | None:
    if isinstance(predictor, ClassifierLogits):
        return predictor.plain()
    return predictor if isinstance(predictor, PlainClassifier) else plain_predictor(predictor)


def _decode_predictor(node: Node, r: Reader) -> Any:
    arrays = {key: r.tensors[ref].numpy() for key, ref in node["arrays"].items()}
    predictor = _PREDICTORS[node["type"]].from_arrays(arrays)
    if predictor.num_features != len(r.scales.x_scale):
        raise ValueError("a predictor has other columns than the rows")
    return predictor
