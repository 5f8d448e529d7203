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
from gwi.core.kernels import DisagreementKernel, SparsePosteriorKernel
from gwi.core.measures import GaussianMeasure
from gwi.core.networks import EnsembleMLP
from gwi.core.noise import LogLinearNoise
from gwi.core.outcomes import Outcome
from gwi.exceptions import ModelFileError
from gwi.models.classification import ClassificationModel, UsualScores
from gwi.models.linked import LinkedModel
from gwi.models.numbers import NumberModel
from gwi.models.regression import RegressionModel
from gwi.models.seen import MOST_HASHES, SeenRows
from gwi.parts import encode_parameter
from gwi.storage.description import decode_labels, encode_labels, encode_summary
from gwi.storage.embeddings import decode_embedding, encode_embedding, one_row
from gwi.storage.families import decode_family, decode_outcome, encode_family, encode_outcome
from gwi.storage.header import number, printable, refuse_if
from gwi.storage.kernels import FREE_ENTRIES, FREE_POINTS, Node, Reader, Writer, decode_kernel, encode_kernel, tag_of
from gwi.storage.means import decode_mean, decode_module, encode_mean, encode_module
from gwi.storage.predictors import encode_frame_predictor
from gwi.storage.strata import decode_label_scores, decode_strata, encode_label_scores, encode_strata

Model = NumberModel | ClassificationModel
# Tags in a file, never names of classes. A regression whose laws are not those of its noise has a tag of its own, so that a
# reader that does not know them does not take the one for the other.
_MODELS: dict[str, type[Model]] = {
    "regression": RegressionModel,
    "linked": LinkedModel,
    "classification": ClassificationModel,
}
_WITH_OUTCOME, _NUMBERS = "regression-of-outcome", Outcome()
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
        "task": _task_of(model),
        "embedding": encode_embedding(model.embedding, w),
        "mean": encode_mean(mean.mean if isinstance(mean, ConditionedMean) else mean, w, "mean"),
        "kernel": _encode_posterior_kernel(kernel, w),
        "tempering_factor": w.put("tempering_factor", model.tempering_factor),
    }
    document |= _CODECS[document["task"]][0](model, w)
    document["kernels"] = [encode_kernel(kernel, w, f"kernel.{i}") for i, kernel in enumerate(w.kernels)]
    return document, w.tensors


def _task_of(model: Model) -> str:
    plain = isinstance(model, LinkedModel) or getattr(model, "outcome", _NUMBERS).is_plain
    return str(tag_of(model, _MODELS)) if plain else _WITH_OUTCOME


def _encode_outcome(model: RegressionModel, w: Writer) -> Node:
    return _encode_numbers(model, w) | {"outcome": encode_outcome(model.outcome)}


def _encode_linked(model: LinkedModel, w: Writer) -> Node:
    return {
        "noises": [_encode_noise(noise, w, f"noise.{i}") for i, noise in enumerate(model.noises)],
        "disagreement_weight": w.put("disagreement_weight", model.disagreement_weight),
        "scores": w.put("scores", model.scores),
        "outcome": encode_outcome(model.outcome),
        "family": encode_family(model.family),
        **encode_strata(model.strata, w),
    }


def _encode_numbers(model: RegressionModel, w: Writer) -> Node:
    return {
        "noises": [_encode_noise(noise, w, f"noise.{i}") for i, noise in enumerate(model.noises)],
        "disagreement_weight": w.put("disagreement_weight", model.disagreement_weight),
        # JSON has no infinity, and tensors of a file are finite.
        "degrees_of_freedom": [None if math.isinf(degrees) else float(degrees) for degrees in model.degrees_of_freedom],
        "scores": w.put("scores", model.scores),
        **encode_strata(model.strata, w),
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
        **({} if model.label_scores is None else {"label_scores": encode_label_scores(model.label_scores, w)}),
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
        embedding = decode_embedding(document["embedding"], r)
        kernel = r.posterior_kernel = _decode_posterior_kernel(document, r)
        posterior = GaussianMeasure(decode_mean(document["mean"], r), kernel).requires_grad_(False).eval()
        tempering_factor = r.get(document["tempering_factor"], 1).cpu().numpy()
        model = decode(document, r, posterior=posterior, embedding=embedding, tempering_factor=tempering_factor)
        if "given" in document["kernel"]:
            model = _with_observations(model, document["kernel"]["observed"], r)
        if r.modules:
            raise ModelFileError(f"{len(r.modules)} more module(s) were passed than the model holds; pass as many as it has.")
        # One prediction, so that parts that do not fit together show now and not later.
        finite = all(np.isfinite(part).all() for part in model.check(one_row(embedding)))
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


def _decode_numbers(document: Node, r: Reader, **common: Any) -> RegressionModel:
    degrees = [math.inf if d is None else number(d, "degrees of freedom", 2.0) for d in document["degrees_of_freedom"]]
    parts = _common_parts(document, r, common["tempering_factor"])
    refuse_if(len(degrees) != len(r.scales.y_scale), "the parts have different numbers of targets")
    refuse_if(min(degrees) <= 2, "degrees of freedom are too small")
    outcome = decode_outcome(document["outcome"]) if document["task"] == _WITH_OUTCOME else Outcome()
    return RegressionModel(**common, **parts, degrees_of_freedom=np.array(degrees), outcome=outcome)


def _decode_linked(document: Node, r: Reader, **common: Any) -> LinkedModel:
    parts = _common_parts(document, r, common["tempering_factor"])
    refuse_if(len(r.scales.y_scale) != 1, "a likelihood of one number has several targets")
    refuse_if((parts["scores"] > 1).any(), "held-out scores are larger than one")
    family, outcome = decode_family(document["family"]), decode_outcome(document["outcome"])
    return LinkedModel(**common, **parts, family=family, outcome=outcome)


def _common_parts(document: Node, r: Reader, tempering_factor: NDArray[Any]) -> dict[str, Any]:
    """Noise, weight of disagreement and held-out scores of each target; ValueError when they do not fit together."""
    noises = [{name: r.get(node[name], num_axes) for name, num_axes in _NOISE.items()} for node in document["noises"]]
    scores = r.get(document["scores"], 2)
    weight = r.get(document["disagreement_weight"], 1).cpu().numpy()
    num_outputs = len(r.scales.y_scale)
    per_target = (noises, tempering_factor, weight, scores)
    refuse_if(
        num_outputs == 0 or {len(part) for part in per_target} != {num_outputs}, "the parts have different numbers of targets"
    )
    refuse_if((weight < 0).any(), "a weight of disagreement is negative")
    refuse_if((tempering_factor <= 0).any(), "a tempering factor is not positive")
    refuse_if((scores < 0).any() or (scores.diff(dim=1) < 0).any(), "held-out scores are not in ascending order from zero")
    corrections = [_decode_correction(node, len(noises[0]["slopes"]), r) for node in document["noises"]]
    for noise in noises:
        _check_noise(noise, len(noises[0]["slopes"]), r)
    found = tuple(LogLinearNoise(**parts, correction=network) for parts, network in zip(noises, corrections, strict=True))
    strata = decode_strata(document, r, scores.shape)
    return {"noises": found, "disagreement_weight": weight, "scores": scores, "strata": strata}


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
        label_scores=decode_label_scores(document["label_scores"], r) if "label_scores" in document else None,
    )
    num_classes = len(model.classes)
    refuse_if(len(r.scales.y_scale) != num_classes, "there are other classes than outputs")
    known = model.label_scores is None or int(model.label_scores.label.max()) < num_classes
    refuse_if(not known, "held-out rows are of other classes")
    valid = len(model.tempering_factor) == num_classes and (model.tempering_factor >= 0).all()
    refuse_if(not valid, "a tempering factor is negative, or not of a class")
    return model


_CODECS: dict[str, tuple[Callable[..., Node], Callable[..., Model]]] = {
    "regression": (_encode_numbers, _decode_numbers),
    _WITH_OUTCOME: (_encode_outcome, _decode_numbers),
    "linked": (_encode_linked, _decode_linked),
    "classification": (_encode_classes, _decode_classes),
}


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
        **({} if getattr(estimator._targets, "levels", None) is None else {"levels": encode_labels(estimator._targets.levels)}),
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
    refuse_if(wrong or not isinstance(node["salt"], str) or len(node["salt"]) != 32, "hashes of training rows are invalid")
    assert hashes is not None
    values = hashes.cpu().numpy().view(np.uint64)
    refuse_if(not 0 < len(values) <= MOST_HASHES or not (values[1:] > values[:-1]).all(), "hashes of training rows are invalid")
    return SeenRows(bytes.fromhex(node["salt"]), values, node["are_all"])
