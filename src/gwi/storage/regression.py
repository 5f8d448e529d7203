"""A fitted model as a JSON document and named tensors, and back: a closed list of parts, each written out by hand.

Reading builds only what is listed here, from numbers, so a file can name no code. What a file says about sizes is never
believed: shapes come from the tensors themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import torch
from torch import Tensor, nn

from gwi.core.kernels import SparsePosteriorKernel
from gwi.core.measures import GaussianMeasure
from gwi.core.noise import LogLinearNoise
from gwi.core.scaling import Scales
from gwi.exceptions import ModelFileError
from gwi.models.regression import Member, RegressionModel, Summary
from gwi.storage.kernels import Node, Reader, Writer, decode_kernel, encode_kernel
from gwi.storage.means import decode_mean, encode_mean

SCALES = ("x_centre", "x_scale", "y_centre", "y_scale")
_NOISE = ("log_level", "slopes", "centre", "scale")


def encode_model(model: RegressionModel) -> tuple[Node, dict[str, Tensor]]:
    """Document and tensors of a fitted regression.

    Raises:
        UnsavableError: naming the part that cannot be stored, and what works instead.
    """
    w = Writer()
    document = {
        "mean": encode_mean(model.posterior.mean, w, "mean"),
        "kernel": encode_posterior_kernel(model.posterior.kernel, w),
        "scales": {name: w.put(name, getattr(model.scales, name)) for name in SCALES},
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
        r.scales = decode_scales(document["scales"], r)
        num_features, num_outputs = len(r.scales.x_scale), len(r.scales.y_scale)
        kernel = decode_posterior_kernel(document, r)
        mean = decode_mean(document["mean"], r)
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


def encode_posterior_kernel(kernel: SparsePosteriorKernel, w: Writer) -> Node:
    """r: its prior kernel, Z and S; a diagonal S as its diagonal."""
    factor = kernel.whitened_factor.detach()
    diagonal = factor.diagonal(dim1=-2, dim2=-1)
    return {
        "prior": w.kernel(kernel.prior_kernel),
        "inducing_points": w.put("inducing_points", kernel.inducing_points),
        "whitened_factor": w.put("whitened_factor", diagonal if torch.equal(torch.diag_embed(diagonal), factor) else factor),
        "jitter": float(kernel.jitter),
    }


def decode_posterior_kernel(document: Node, r: Reader) -> SparsePosteriorKernel:
    """r from the whole document, whose kernels are read first; ValueError when its parts do not fit together."""
    num_features, num_outputs = len(r.scales.x_scale), len(r.scales.y_scale)
    r.kernels = [decode_kernel(node, r, num_features).to(r.device) for node in document["kernels"]]
    node = document["kernel"]
    z, factor = r.get(node["inducing_points"], 2), r.tensors[node["whitened_factor"]].to(r.device)
    factor = torch.diag_embed(factor) if factor.ndim == 2 else factor
    if z.shape[1] != num_features or factor.shape != (num_outputs, len(z), len(z)) or factor.dtype != torch.float64:
        raise ValueError("inducing points, covariance and scales have different sizes")
    kernel = SparsePosteriorKernel(r.kernels[node["prior"]], z, torch.zeros_like(factor), jitter=float(node["jitter"]))
    kernel.whitened_factor = nn.Parameter(factor, requires_grad=False)
    return kernel


def decode_scales(node: Node, r: Reader) -> Scales:
    """Centres and scales; ValueError when they are of different sizes."""
    scales = Scales(*(r.get(node[name], 1).cpu().numpy() for name in SCALES))
    if (len(scales.x_centre), len(scales.y_centre)) != (len(scales.x_scale), len(scales.y_scale)):
        raise ValueError("centres and scales have different sizes")
    return scales


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
