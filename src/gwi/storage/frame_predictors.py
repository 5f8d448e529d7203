"""Predictors of data frames in model files: boosters in their own formats, and the form of the frames that they know."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from gwi.exceptions import UnsavableError
from gwi.predictors.boosters import Booster, booster_from, booster_of, version_of
from gwi.predictors.logits import ClassifierLogits
from gwi.storage.description import decode_labels, encode_labels
from gwi.storage.header import number, printable, refuse_if
from gwi.storage.kernels import Node, Writer
from gwi.tables.forms import FrameForm
from gwi.tables.frame_predictor import FramePredictor

_LIBRARIES = ("lightgbm", "xgboost", "catboost")


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
    if node is None:
        raise UnsavableError(
            f"A mean of type {predictor.name} that sees data frames cannot be stored without running code when it is read; "
            "boosters of LightGBM, XGBoost and CatBoost can. Keep the model with pickle or joblib, and open only such files that "
            "you trust."
        )
    return {"model": node, "form": predictor.form.to_json(), "name": predictor.name}


def decode_frame_predictor(node: Node, tensors: dict[str, Tensor]) -> FramePredictor:
    """The predictor that was encoded; ValueError when it describes none.

    Raises:
        ModelFileError: when its library is not installed, or cannot read it.
    """
    model = decode_booster(node["model"], tensors[node["model"]["content"]])
    return FramePredictor(model, FrameForm.from_json(node["form"]), printable(node["name"], 80))
