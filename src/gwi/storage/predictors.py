"""Predictors in model files: plain arrays, boosters in their own formats, pipelines, and the form of frames that they know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gwi.exceptions import UnsavableError
from gwi.predictors.boosters import Booster, booster_from, booster_of, version_of
from gwi.predictors.linear import TAGS, Predictor, plain_predictor
from gwi.predictors.logits import ClassifierLogits, PlainClassifier
from gwi.storage.description import decode_labels, encode_labels
from gwi.storage.header import number, printable, refuse_if
from gwi.storage.kernels import Node, Writer, tag_of
from gwi.tables.forms import FrameForm
from gwi.tables.frame_predictor import FramePredictor
from gwi.tables.pipelines import PlainPipeline, checked_steps, plain_steps

_PREDICTORS: dict[str, type[Predictor | PlainClassifier]] = {**TAGS, "classifier": PlainClassifier}
_LIBRARIES = ("lightgbm", "xgboost", "catboost")


def encode_predictor(predictor: Any, w: Writer, name: str) -> Node | None:
    """A fitted predictor of numbers as plain arrays, or a booster in its own format; None for anything else."""
    plain: Predictor | PlainClassifier | None
    if isinstance(predictor, ClassifierLogits):
        plain = predictor.plain()
    else:
        plain = predictor if isinstance(predictor, PlainClassifier) else plain_predictor(predictor)
    if plain is None:
        return encode_booster(predictor, w, name)
    return {"type": tag_of(plain, _PREDICTORS), "arrays": {k: w.put(f"{name}.{k}", v) for k, v in plain.arrays().items()}}


def decode_predictor(node: Node, get: Callable[[Any], Tensor]) -> Any:
    """What was encoded, from tensors by their names; ValueError when it describes none."""
    if node["type"] == "booster":
        return decode_booster(node, get(node["content"]))
    refuse_if(node["type"] not in _PREDICTORS, "a predictor is of an unknown type")
    return _PREDICTORS[node["type"]].from_arrays({key: get(ref).cpu().numpy() for key, ref in node["arrays"].items()})


def encode_booster(model: Any, w: Writer, name: str) -> Node | None:
    """A booster, or logits of one, whose bytes go into the tensors; None for anything else."""
    logits = model if isinstance(model, ClassifierLogits) else None
    model = model if logits is None else logits.estimator
    booster = model if isinstance(model, Booster) else booster_of(model)
    if booster is None:
        return None
    labels = booster.classes_
    node: Node = {
        "type": "booster",
        "library": booster.library,
        "version": version_of(booster.library),
        "content": w.put(f"{name}.content", np.frombuffer(booster.content(), np.uint8).copy()),
        "labels": None if labels is None else encode_labels(labels),
    }
    return node if logits is None else node | {"classes": encode_labels(logits.classes), "floor": logits.floor}


def decode_booster(node: Node, content: Tensor) -> Any:
    """What was encoded, from its bytes; ValueError when it describes none.

    Raises:
        ModelFileError: when its library is not installed, or cannot read it.
    """
    refuse_if(node["library"] not in _LIBRARIES, "a booster is of an unknown library")
    refuse_if(content.dtype != torch.uint8 or content.ndim != 1, "a booster has no content")
    labels = None if node["labels"] is None else decode_labels(node["labels"])
    booster = booster_from(node["library"], content.cpu().numpy().tobytes(), labels)
    if "classes" not in node:
        return booster
    return ClassifierLogits(booster, decode_labels(node["classes"]), number(node["floor"], "the floor", 0.0, 1.0))


def encode_frame_predictor(predictor: FramePredictor, w: Writer, name: str) -> Node:
    """A predictor of frames.

    Raises:
        UnsavableError: for one that cannot be stored, with what works instead.
    """
    node = encode_booster(predictor.model, w, name)
    node = _encode_pipeline(predictor, w, name) if node is None else node
    if node is None:
        raise UnsavableError(
            f"A mean of type {predictor.name} that sees data frames cannot be stored without running code when it is read; "
            "boosters of LightGBM, XGBoost and CatBoost can, and pipelines of scikit-learn's scalers, encoders, imputers and "
            "column transformers before them, or before a linear model or trees. Keep the model with pickle or joblib, and open "
            "only such files that you trust."
        )
    return {"model": node, "form": predictor.form.to_json(), "name": predictor.name}


def _encode_pipeline(predictor: FramePredictor, w: Writer, name: str) -> Node | None:
    """A pipeline of steps that can be held, and what predicts at its end; None for anything else."""
    model = predictor.model
    if isinstance(model, PlainPipeline):
        names, steps, last = model.names, model.steps, model.last
    else:
        logits = model if isinstance(model, ClassifierLogits) else None
        pipeline = model if logits is None else logits.estimator
        names = tuple(predictor.form.columns)
        found = plain_steps(pipeline, names)
        if found is None:
            return None
        steps, end = found, pipeline.steps[-1][1]
        last = end if logits is None else ClassifierLogits(end, logits.classes, logits.floor)
    node = encode_predictor(last, w, name)
    return None if node is None else {"type": "pipeline", "names": list(names), "steps": list(steps), "last": node}


def decode_frame_predictor(node: Node, tensors: dict[str, Tensor]) -> FramePredictor:
    """The predictor that was encoded; ValueError when it describes none.

    Raises:
        ModelFileError: when its library is not installed, or cannot read it.
    """
    described, form = node["model"], FrameForm.from_json(node["form"])
    if described["type"] != "pipeline":
        return FramePredictor(decode_predictor(described, tensors.__getitem__), form, printable(node["name"], 80))
    names, last = described["names"], decode_predictor(described["last"], tensors.__getitem__)
    refuse_if(not isinstance(names, list) or not set(names) <= set(form.columns), "a pipeline has other columns than its frames")
    model = PlainPipeline(tuple(names), checked_steps(described["steps"]), last)
    return FramePredictor(model, form, printable(node["name"], 80))
