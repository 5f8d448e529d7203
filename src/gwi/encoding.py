"""A fitted model as a JSON document and named tensors, and back: a closed list of parts, each written out by hand.

Reading builds only what is listed here, from numbers, so a file can name no code. What a file says about sizes is never
believed: shapes come from the tensors themselves.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gwi.classifiers import ClassifierLogits, PlainClassifier
from gwi.codec import Node, Reader, UnsavableError, Writer, decode_kernel, encode_kernel
from gwi.files import ModelFileError
from gwi.kernels import SparsePosteriorKernel
from gwi.means import ConvexMean, FixedMean, KernelMean, ModuleMean, SumMean
from gwi.measures import GaussianMeasure
from gwi.model import Member, RegressionModel, Summary
from gwi.networks import EnsembleMLP
from gwi.noise import LogLinearNoise
from gwi.predictors import LinearPredictor, Predictor, plain_predictor
from gwi.scaling import OriginalRowsMean, RescaledMean, Scales
from gwi.trees import BoostedTrees, Forest

_ACTIVATIONS = {kind.__name__: kind for kind in (nn.Tanh, nn.ReLU, nn.SiLU, nn.Sigmoid, nn.Identity)}
_PREDICTORS: dict[str, type[Predictor | PlainClassifier]] = {
    kind.__name__: kind for kind in (BoostedTrees, Forest, LinearPredictor, PlainClassifier)
}
_SCALES = ("x_centre", "x_scale", "y_centre", "y_scale")
_NOISE = ("log_level", "slopes", "centre", "scale")


def encode_model(model: RegressionModel) -> tuple[Node, dict[str, Tensor]]:
    """Document and tensors of a fitted regression.

    Raises:
        UnsavableError: naming the part that cannot be stored, and what works instead.
    """
    w = Writer()
    posterior = model.posterior
    kernel = posterior.kernel
    factor = kernel.whitened_factor.detach()
    diagonal = factor.diagonal(dim1=-2, dim2=-1)
    document = {
        "mean": _encode_mean(posterior.mean, w, "mean"),
        "kernel": {
            "prior": w.kernel(kernel.prior_kernel),
            "inducing_points": w.put("inducing_points", kernel.inducing_points),
            "whitened_factor": w.put("whitened_factor", diagonal if torch.equal(torch.diag_embed(diagonal), factor) else factor),
            "jitter": float(kernel.jitter),
        },
        "scales": {name: w.put(name, getattr(model.scales, name)) for name in _SCALES},
        "noises": [
            {name: w.put(f"noise.{i}.{name}", getattr(noise, name)) for name in _NOISE} for i, noise in enumerate(model.noises)
        ],
        "tempering_factor": w.put("tempering_factor", model.tempering_factor),
        "disagreement_weight": w.put("disagreement_weight", model.disagreement_weight),
        # JSON has no infinity, and tensors of a file are finite.
        "degrees_of_freedom": [None if math.isinf(degrees) else float(degrees) for degrees in model.degrees_of_freedom],
        "scores": w.put("scores", model.scores),
    }
    document["kernels"] = [encode_kernel(kernel, w, f"kernel.{i}") for i, kernel in enumerate(w.kernels)]
    return document, w.tensors


def decode_model(
    document: Node, tensors: dict[str, Tensor], modules: Sequence[nn.Module] = (), device: torch.device | str = "cpu"
) -> RegressionModel:
    """The regression that was encoded.

    Args:
        document: from `encode_model`.
        tensors: from `encode_model`.
        modules: the user's own networks, in the order in which the mean holds them.
        device: where tensors go.

    Raises:
        ModelFileError: when document and tensors describe no model, or `modules` do not fit.
    """
    r = Reader(tensors, modules, device)
    try:
        r.scales = Scales(*(r.get(document["scales"][name], 1).cpu().numpy() for name in _SCALES))
        num_features, num_outputs = len(r.scales.x_scale), len(r.scales.y_scale)
        if (len(r.scales.x_centre), len(r.scales.y_centre)) != (num_features, num_outputs):
            raise ValueError("centres and scales have different sizes")
        r.kernels = [decode_kernel(node, r, num_features).to(device) for node in document["kernels"]]
        z, factor = r.get(document["kernel"]["inducing_points"], 2), r.tensors[document["kernel"]["whitened_factor"]].to(device)
        factor = torch.diag_embed(factor) if factor.ndim == 2 else factor
        if z.shape[1] != num_features or factor.shape != (num_outputs, len(z), len(z)) or factor.dtype != torch.float64:
            raise ValueError("inducing points, covariance and scales have different sizes")
        prior = r.kernels[document["kernel"]["prior"]]
        kernel = SparsePosteriorKernel(prior, z, torch.zeros_like(factor), jitter=float(document["kernel"]["jitter"]))
        kernel.whitened_factor = nn.Parameter(factor, requires_grad=False)
        mean = _decode_mean(document["mean"], r, depth=0)
        noises = tuple(
            LogLinearNoise(*(r.get(node[name], axes) for name, axes in zip(_NOISE, (0, 1, 1, 1), strict=True)))
            for node in document["noises"]
        )
        model = RegressionModel(
            posterior=GaussianMeasure(mean, kernel).requires_grad_(False).eval(),
            noises=noises,
            scales=r.scales,
            tempering_factor=r.get(document["tempering_factor"], 1).cpu().numpy(),
            degrees_of_freedom=np.array([math.inf if d is None else float(d) for d in document["degrees_of_freedom"]]),
            disagreement_weight=r.get(document["disagreement_weight"], 1).cpu().numpy(),
            scores=r.get(document["scores"], 2),
        )
        if r.modules:
            raise ModelFileError(f"{len(r.modules)} more module(s) were passed than the model holds; pass as many as it has.")
        per_target = (noises, model.tempering_factor, model.degrees_of_freedom, model.disagreement_weight, model.scores)
        valid = (model.degrees_of_freedom > 2).all() and (model.disagreement_weight >= 0).all()
        if num_outputs < 1 or {len(part) for part in per_target} != {num_outputs} or not valid:
            raise ValueError("the parts have different numbers of targets")
        # One prediction, so that parts that do not fit together show now and not later.
        row = np.zeros((1, num_features)) + r.scales.x_centre
        if not all(np.isfinite(part).all() for part in model.marginals(row)):
            raise ValueError("predictions are not finite")
    except ModelFileError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise ModelFileError(f"The model's parts do not fit together ({error}); save the model again.") from error
    return model


def encode_summary(summary: Summary) -> Node:
    """A summary for JSON, which has no infinity."""
    node = asdict(summary)
    for key in ("noise", "degrees_of_freedom"):
        node[key] = [None if value == math.inf else value for value in node[key]]
    return node


def decode_summary(node: Node) -> Summary:
    """The summary that was encoded.

    Raises:
        ModelFileError: when it is none.
    """
    try:
        members = tuple(Member(**(part | {"weights": tuple(part["weights"])})) for part in node["members"])
        lists = {key: tuple(node[key]) for key in ("divergence_weight", "tempering", "disagreement_weight", "unseen_nll")}
        for key in ("noise", "degrees_of_freedom"):
            lists[key] = tuple(math.inf if value is None else value for value in node[key])
        summary = Summary(**(node | lists | {"members": members}))
        str(summary)
    except (LookupError, TypeError, ValueError) as error:
        raise ModelFileError(f"The summary in the file is none ({error}); save the model again.") from error
    return summary


def _encode_mean(mean: Any, w: Writer, name: str) -> Node:
    if isinstance(mean, SumMean | ConvexMean):
        parts: Node = {"means": [_encode_mean(part, w, f"{name}.{i}") for i, part in enumerate(mean.means)]}
        weights = {"weights": w.put(f"{name}.weights", mean.weights)} if isinstance(mean, ConvexMean) else {}
        return {"type": type(mean).__name__} | parts | weights
    if isinstance(mean, OriginalRowsMean | RescaledMean):
        return {"type": type(mean).__name__, "mean": _encode_mean(mean.mean, w, name)}
    if isinstance(mean, KernelMean) and mean.prior_mean is None:
        return {
            "type": "KernelMean",
            "kernel": w.kernel(mean.prior_kernel),
            "inducing_points": w.put(f"{name}.inducing_points", mean.inducing_points),
            "whitened_coefficients": w.put(f"{name}.whitened_coefficients", mean.whitened_coefficients),
            "jitter": float(mean.jitter),
        }
    if isinstance(mean, ModuleMean) and mean.prior_mean is None:
        return {"type": "ModuleMean", "module": _encode_module(mean.module, w, name)}
    if isinstance(mean, FixedMean):
        return {"type": "FixedMean", "predictor": _encode_predictor(mean.predictor, w, name)}
    raise UnsavableError(f"A mean of type {type(mean).__name__} cannot be stored; those of GWIRegressor can.")


def _decode_mean(node: Node, r: Reader, depth: int) -> nn.Module:
    if depth > 20:
        raise ValueError("means are nested too deeply")
    kind = node["type"]
    if kind in ("SumMean", "ConvexMean"):
        parts = [_decode_mean(part, r, depth + 1) for part in node["means"]]
        return SumMean(parts) if kind == "SumMean" else ConvexMean(parts, r.get(node["weights"], 2))
    if kind in ("OriginalRowsMean", "RescaledMean"):
        inner = _decode_mean(node["mean"], r, depth + 1)
        return OriginalRowsMean(inner, r.scales) if kind == "OriginalRowsMean" else RescaledMean(inner, r.scales)
    if kind == "KernelMean":
        z, v = r.get(node["inducing_points"], 2), r.get(node["whitened_coefficients"], 2)
        if z.shape[1] != len(r.scales.x_scale) or v.shape != (len(r.scales.y_scale), len(z)):
            raise ValueError("a kernel mean has coefficients for other points")
        return KernelMean(r.kernels[node["kernel"]], z, v, jitter=float(node["jitter"]))
    if kind == "ModuleMean":
        return ModuleMean(_decode_module(node["module"], r))
    if kind == "FixedMean":
        return FixedMean(_decode_predictor(node["predictor"], r))
    raise ValueError("a mean is of an unknown type")


def _encode_module(module: nn.Module, w: Writer, name: str) -> Node:
    if type(module) is EnsembleMLP:
        layers = [
            [w.put(f"{name}.weights.{i}", weight), w.put(f"{name}.biases.{i}", bias)]
            for i, (weight, bias) in enumerate(zip(module.weights, module.biases, strict=True))
        ]
        return {"type": "EnsembleMLP", "layers": layers}
    if type(module) is nn.Sequential and all(type(layer) in (nn.Linear, *_ACTIVATIONS.values()) for layer in module):
        described: list[Any] = []
        for i, layer in enumerate(module):
            if isinstance(layer, nn.Linear):
                bias = None if layer.bias is None else w.put(f"{name}.{i}.bias", layer.bias)
                described.append([w.put(f"{name}.{i}.weight", layer.weight), bias])
            else:
                described.append(type(layer).__name__)
        return {"type": "Sequential", "layers": described}
    state = {key: w.put(f"{name}.{key}", value) for key, value in module.state_dict().items()}
    return {"type": "module", "name": type(module).__name__, "state": state}


def _decode_module(node: Node, r: Reader) -> nn.Module:
    kind = node["type"]
    if kind == "EnsembleMLP":
        layers = [(r.get(weight, 3, None), r.get(bias, 3, None)) for weight, bias in node["layers"]]
        network = EnsembleMLP(1, 1, num_members=1, hidden=(), generator=torch.Generator())
        network.weights = nn.ParameterList([nn.Parameter(weight) for weight, _ in layers])
        network.biases = nn.ParameterList([nn.Parameter(bias) for _, bias in layers])
        return network
    if kind == "Sequential":
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
    if kind != "module":
        raise ValueError("a network is of an unknown type")
    if not r.modules:
        raise ModelFileError(
            f"The mean holds a network of your own ({node['name']}), of which a file stores the numbers only: "
            "pass an instance of it, gwi.load(path, module=...)."
        )
    module = copy.deepcopy(r.modules.pop(0))
    state = {key: r.tensors[ref] for key, ref in node["state"].items()}
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
            "scikit-learn's boosting, forests, trees and linear models, its MLPs as classifiers; a torch module is stored as its "
            "state dict."
        )
    numbers = plain.arrays()
    return {"type": type(plain).__name__, "arrays": {key: w.put(f"{name}.{key}", value) for key, value in numbers.items()}}


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
