"""Means in model files: a closed list of types, each written out by hand, built again from numbers only."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from gwi.core import means
from gwi.core.handover import Handover
from gwi.core.module_calls import LaidOut, Part, RowLayout
from gwi.core.networks import EnsembleMLP
from gwi.core.scaling import Scales
from gwi.exceptions import ModelFileError, UnsavableError
from gwi.predictors.logits import ClassifierLogits
from gwi.storage.header import number, printable, refuse_if, whole
from gwi.storage.kernels import FREE_POINTS, Node, Reader, Writer, tag_of
from gwi.storage.predictors import decode_predictor, encode_predictor

# Tags in a file, never names of classes.
_COMPOSED: dict[str, type[nn.Module]] = {"sum": means.SumMean, "weighted": means.ConvexMean, "per-target": means.JoinedMean}
_OF_ROWS: dict[str, type[nn.Module]] = {"original-rows": means.OriginalRowsMean, "rescaled": means.RescaledMean}
_ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "silu": nn.SiLU,
    "sigmoid": nn.Sigmoid,
    "identity": nn.Identity,
}
# Numbers of a link; an infinite bound is left out.
_LINK = ("low", "high", "margin", "shift", "factor")
# Of what is handed over, with their numbers of axes.
_HANDOVER = {"gives": (1, torch.bool), "shares": (2, torch.float64), "known": (1, torch.float64), "error": (1, torch.float64)}


def encode_mean(mean: Any, w: Writer, name: str) -> Node:
    """A mean of an estimator: its type and its parts.

    Raises:
        UnsavableError: naming a part that cannot be stored, and what works instead.
    """
    if tag := tag_of(mean, _COMPOSED):
        node: Node = {"type": tag, "means": [encode_mean(part, w, f"{name}.{i}") for i, part in enumerate(mean.means)]}
        if isinstance(mean, means.ConvexMean):
            node["weights"] = w.put(f"{name}.weights", mean.weights)
            if mean.handover is not None:
                # A tag of its own, for a reader that does not know it would take the weights for those of every row.
                node["type"] = "handing-over"
                node["handover"] = {key: w.put(f"{name}.{key}", getattr(mean.handover, key)) for key in _HANDOVER}
        return node
    if tag := tag_of(mean, _OF_ROWS):
        node = {"type": tag, "mean": encode_mean(mean.mean, w, name)}
        return node | ({} if mean.shape is None else {"shape": list(mean.shape)})
    if isinstance(mean, means.ConstantMean):
        return {"type": "constant", "values": w.put(f"{name}.values", mean.values)}
    if isinstance(mean, means.AffineMean):
        numbers = {key: w.put(f"{name}.{key}", getattr(mean, key)) for key in ("shift", "factor")}
        return {"type": "affine", "mean": encode_mean(mean.mean, w, name)} | numbers
    if isinstance(mean, means.LinkMean):
        numbers = {key: getattr(mean, key) for key in _LINK if math.isfinite(getattr(mean, key))}
        return {"type": "link", "link": mean.link, "mean": encode_mean(mean.mean, w, name)} | numbers
    if isinstance(mean, means.FirstColumns):
        return {"type": "first-columns"}
    if isinstance(mean, means.SomeColumns):
        return {"type": "columns", "first": mean.first}
    if isinstance(mean, means.LeadingColumns):
        return {"type": "leading-columns", "count": mean.count, "mean": encode_mean(mean.mean, w, name)}
    if isinstance(mean, means.KernelMean) and mean.prior_mean is None:
        if len(mean.inducing_points) > FREE_POINTS:
            raise UnsavableError(
                f"A kernel mean on {len(mean.inducing_points)} points cannot be stored; on up to {FREE_POINTS} it can: use "
                'mean="svgp", or fewer rows.'
            )
        tensors = {key: w.put(f"{name}.{key}", getattr(mean, key)) for key in ("inducing_points", "whitened_coefficients")}
        return {"type": "kernel", "kernel": w.kernel(mean.prior_kernel), "jitter": float(mean.jitter)} | tensors
    if isinstance(mean, means.ModuleMean) and mean.prior_mean is None:
        return {"type": "network", "module": encode_module(mean.module, w, name)}
    if isinstance(mean, means.FixedMean):
        predictor = encode_predictor(mean.predictor, w, name)
        if predictor is None:
            raise _unsavable(mean.predictor)
        return {"type": "predictor", "predictor": predictor}
    raise UnsavableError(f"A mean of type {type(mean).__name__} cannot be stored; those of the estimators can.")


def decode_mean(node: Node, r: Reader, depth: int = 0) -> nn.Module:
    """The mean that was encoded; ValueError when it describes none."""
    r.count("means")
    refuse_if(depth > 20, "means are nested too deeply")
    kind, num_outputs = str(node["type"]), len(r.scales.y_scale)
    if kind == "handing-over":
        stacked = decode_mean(node | {"type": "weighted"}, r, depth + 1)
        assert isinstance(stacked, means.ConvexMean)
        tensors = {key: r.get(node["handover"][key], axes, dtype) for key, (axes, dtype) in _HANDOVER.items()}
        shape = (num_outputs, len(stacked.means))
        fits = stacked.weights.shape == tensors["shares"].shape == shape and len(tensors["gives"]) == shape[1]
        fits = fits and len(tensors["known"]) == len(tensors["error"]) == num_outputs and r.posterior_kernel is not None
        refuse_if(not fits, "a mean's handover is of other means")
        return means.ConvexMean(list(stacked.means), stacked.weights, Handover(r.posterior_kernel, **tensors))
    if kind in _COMPOSED:
        refuse_if(kind == "per-target" and len(node["means"]) != num_outputs, "a mean joins other targets")
        parts = [decode_mean(part, r, depth + 1) for part in node["means"]]
        return _COMPOSED[kind](parts, *([r.get(node["weights"], 2)] if kind == "weighted" else []))
    if kind in _OF_ROWS:
        inner = decode_mean(node["mean"], r, depth + 1)
        return _OF_ROWS[kind](inner, r.scales, decode_shape(node["shape"], r.scales) if "shape" in node else None)
    if kind == "constant":
        return means.ConstantMean(r.get(node["values"], 1))
    if kind == "affine":
        shift, factor = (r.get(node[key], 1) for key in ("shift", "factor"))
        refuse_if(len(shift) != num_outputs or len(factor) != num_outputs, "an affine mean has other targets")
        return means.AffineMean(decode_mean(node["mean"], r, depth + 1), shift, factor)
    if kind == "link":
        refuse_if(node["link"] not in ("log", "logit"), "a link is of an unknown kind")
        numbers = {key: number(node[key], "a number of a link") for key in _LINK if key in node}
        refuse_if(not numbers["margin"] > 0 or (node["link"] == "logit" and "high" not in numbers), "a link has no margin")
        return means.LinkMean(decode_mean(node["mean"], r, depth + 1), node["link"], **numbers)
    if kind == "columns":
        return means.SomeColumns(
            whole(node["first"], "the first column of a mean", len(r.scales.x_scale) - num_outputs), num_outputs
        )
    if kind == "leading-columns":
        every, count = r.scales, whole(node["count"], "the columns of a mean", len(r.scales.x_scale))
        # What is inside knows of these alone.
        r.scales = replace(every, x_centre=every.x_centre[:count], x_scale=every.x_scale[:count])
        inner = decode_mean(node["mean"], r, depth + 1)
        r.scales = every
        return means.LeadingColumns(inner, count)
    if kind == "first-columns":
        return means.FirstColumns(num_outputs)
    if kind == "kernel":
        z, v = r.get(node["inducing_points"], 2), r.get(node["whitened_coefficients"], 2)
        fits = z.shape[1] == len(r.scales.x_scale) and v.shape == (num_outputs, len(z))
        refuse_if(not fits, "a kernel mean has coefficients for other points")
        return means.KernelMean(r.kernel(node["kernel"], len(z)), z, v, jitter=number(node["jitter"], "the jitter", 0.0, 1.0))
    if kind == "network":
        return means.ModuleMean(decode_module(node["module"], r))
    refuse_if(kind != "predictor", "a mean is of an unknown type")
    return means.FixedMean(_decode_predictor(node["predictor"], r))


def decode_shape(sizes: Any, scales: Scales | None = None) -> tuple[int, ...]:
    """The shape of a row; ValueError when it is none, or has not as many numbers as there are columns."""
    # An array of NumPy has at most 64 axes.
    is_shape = isinstance(sizes, list) and 0 < len(sizes) <= 64 and all(type(size) is int and size > 0 for size in sizes)
    fits = scales is None or (is_shape and math.prod(sizes) == len(scales.x_scale))
    refuse_if(not fits, "the shape of a row does not fit its columns")
    refuse_if(not is_shape, "the shape of a row is invalid")
    refuse_if(math.prod(sizes) > 10**7, "a row has too many numbers")
    return tuple(sizes)


def encode_module(module: nn.Module, w: Writer, name: str) -> Node:
    """A network: whole where it is made of linear layers and activations, else as its state dict."""
    if type(module) is LaidOut:
        parts = [[part.name, list(part.shape), part.whole] for part in module.layout.parts]
        inner = encode_module(module.module, w, name)
        return {"type": "laid-out", "parts": parts, "as_one": module.layout.as_one, "module": inner}
    if type(module) is EnsembleMLP:
        layers = [
            [w.put(f"{name}.weights.{i}", weight), w.put(f"{name}.biases.{i}", bias)]
            for i, (weight, bias) in enumerate(zip(module.weights, module.biases, strict=True))
        ]
        whole: Node = {"type": "ensemble", "layers": layers, "linear": w.put(f"{name}.linear", module.linear)}
        # Numbers of a file are finite.
        ends = ("low", "high") if bool(module.low.isfinite().all() and module.high.isfinite().all()) else ()
        return whole | {key: w.put(f"{name}.{key}", getattr(module, key)) for key in ends}
    if type(module) is nn.Sequential and all(type(layer) in (nn.Linear, *_ACTIVATIONS.values()) for layer in module):
        return {"type": "layers", "layers": [_encode_layer(layer, w, f"{name}.{i}") for i, layer in enumerate(module)]}
    state = {key: w.put(f"{name}.{key}", value) for key, value in module.state_dict().items()}
    return {"type": "state", "name": type(module).__name__, "state": state}


def _encode_layer(layer: nn.Module, w: Writer, name: str) -> Any:
    """The tag of an activation, or weight and bias of a linear layer."""
    if not isinstance(layer, nn.Linear):
        return tag_of(layer, _ACTIVATIONS)
    return [w.put(f"{name}.weight", layer.weight), None if layer.bias is None else w.put(f"{name}.bias", layer.bias)]


def _decode_layer(layer: Any, r: Reader) -> nn.Module:
    if isinstance(layer, str):
        return _ACTIVATIONS[layer]()
    weight, bias = r.get(layer[0], 2, None), None if layer[1] is None else r.get(layer[1], 1, None)
    linear = nn.utils.skip_init(nn.Linear, weight.shape[1], weight.shape[0], bias=bias is not None)
    linear.weight = nn.Parameter(weight)
    linear.bias = None if bias is None else nn.Parameter(bias)
    return linear


def _decode_layout(node: Node) -> RowLayout:
    """The parts of a row; ValueError when they are none."""
    parts, as_one = node["parts"], node["as_one"]
    fits = isinstance(parts, list) and 0 < len(parts) <= 100 and isinstance(as_one, bool)
    refuse_if(not fits, "the parts of a row are invalid")
    found = []
    for name, shape, are_whole in parts:
        refuse_if(not isinstance(name, str) or not isinstance(are_whole, bool), "a part of a row has no name")
        found.append(Part(name, decode_shape(shape) if shape else (), are_whole))
    names = [part.name for part in found]
    refuse_if(any(names) and (not all(names) or len(set(names)) < len(names)), "parts of a row share a name")
    return RowLayout(tuple(found), as_one)


def decode_module(node: Node, r: Reader, depth: int = 0) -> nn.Module:
    """The network that was encoded.

    Raises:
        ModelFileError: when it is one of the user's own and no instance that fits was passed.
    """
    kind = node["type"]
    for _ in node.get("layers", ()):
        r.count("layers")
    if kind == "ensemble":
        layers = [(r.get(weight, 3, None), r.get(bias, 3, None)) for weight, bias in node["layers"]]
        linear = r.get(node["linear"], 3, None)
        fits = linear.shape == (len(layers[0][0]), layers[0][0].shape[1], layers[-1][0].shape[2])
        ends = [r.get(node[key], 1, None) for key in ("low", "high") if key in node]
        fits = fits and len(ends) in (0, 2) and all(len(end) == linear.shape[1] for end in ends)
        refuse_if(not fits, "a network has a linear path of other columns")
        span = (ends[0], ends[1]) if ends else None
        network = EnsembleMLP(linear.shape[1], 1, num_members=1, hidden=(), span=span, generator=torch.Generator()).to(linear)
        network.linear = nn.Parameter(linear)
        network.weights = nn.ParameterList([nn.Parameter(weight) for weight, _ in layers])
        network.biases = nn.ParameterList([nn.Parameter(bias) for _, bias in layers])
        return network
    if kind == "laid-out":
        refuse_if(depth > 0, "a network is laid out twice")
        return LaidOut(decode_module(node["module"], r, depth + 1), _decode_layout(node))
    if kind == "layers":
        return nn.Sequential(*(_decode_layer(layer, r) for layer in node["layers"]))
    refuse_if(kind != "state", "a network is of an unknown type")
    name = printable(node["name"], 40)
    if not r.modules:
        raise ModelFileError(
            f"The mean holds a network of your own ({name}), of which a file stores the numbers only: "
            "pass an instance of it, gwi.load(path, module=...)."
        )
    module = copy.deepcopy(r.modules.pop(0))
    state = {key: r.get(ref, None, None) for key, ref in node["state"].items()}
    precisions = {tensor.dtype for tensor in state.values() if tensor.is_floating_point()}
    if len(precisions) == 1:
        # Numbers would else be rounded to the precision of the module that was passed.
        module = module.to(precisions.pop())
    try:
        module.load_state_dict(state, strict=True)
    except RuntimeError as error:
        reason = printable(" ".join(str(error).split()), 1000)
        raise ModelFileError(f"The module passed does not fit the {name} in the file: {reason}") from error
    return module.to(r.device)


def _unsavable(predictor: Any) -> UnsavableError:
    # The wrapper of a classifier is ours; what cannot be stored is what it wraps.
    named = predictor.estimator if isinstance(predictor, ClassifierLogits) else predictor
    called = getattr(named, "__name__", type(named).__name__)
    return UnsavableError(
        f"A mean of type {called} cannot be stored without running code when it is read. Stored are: kernel means, networks, "
        "scikit-learn's boosting, forests, decision trees and linear models, boosters of LightGBM, XGBoost and CatBoost; a "
        "torch module is stored as its state dict."
    )


def _decode_predictor(node: Node, r: Reader) -> Any:
    predictor = decode_predictor(node, lambda name: r.get(name, None, None))
    fits = node["type"] == "booster" or predictor.num_features == len(r.scales.x_scale)
    refuse_if(not fits, "a predictor has other columns than the rows")
    return predictor
