"""Strata and scores of labels in model files, in the order of the scores, which tells nothing of that of the rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gwi.models.strata import LabelScores, Strata
from gwi.storage.description import decode_labels, encode_labels
from gwi.storage.header import refuse_if
from gwi.storage.kernels import Node, Reader, Writer


def encode_strata(strata: Strata | None, w: Writer) -> Node:
    """What a document holds of strata: nothing where there are none.

    Raises:
        UnsavableError: for labels that a file cannot hold.
    """
    if strata is None:
        return {}
    return {"strata": {"labels": encode_labels(strata.labels), "code": w.put("strata", strata.code)}}


def decode_strata(document: Node, r: Reader, shape: Sequence[int]) -> Strata | None:
    """The strata of scores of this shape; None where there are none, ValueError where they do not fit."""
    if "strata" not in document:
        return None
    node = document["strata"]
    strata = Strata(decode_labels(node["labels"], least=1), _places(node["code"], r, shape))
    refuse_if(int(strata.code.max()) >= len(strata.labels), "held-out rows are of strata without a name")
    return strata


def encode_label_scores(scores: LabelScores, w: Writer) -> Node:
    """Scores of labels, and the strata of their rows."""
    parts = {name: w.put(f"label_scores.{name}", getattr(scores, name)) for name in ("score", "label", "weight")}
    return parts | encode_strata(scores.strata, w)


def decode_label_scores(node: Node, r: Reader) -> LabelScores:
    """The scores that were encoded; ValueError when they are none."""
    score, weight = r.get(node["score"], 1), r.get(node["weight"], 1)
    refuse_if(not len(score) or score.shape != weight.shape or not (weight > 0).all(), "held-out rows have no weights")
    ordered = score[0] >= 0 and score[-1] <= 1 and (score.diff() >= 0).all()
    refuse_if(not ordered, "held-out scores of labels are not in ascending order from zero to one")
    return LabelScores(score, _places(node["label"], r, score.shape), weight, decode_strata(node, r, score.shape))


def _places(name: str, r: Reader, shape: Sequence[int]) -> Tensor:
    code = r.get(name, len(shape), torch.int64)
    refuse_if(code.shape != tuple(shape) or not code.numel() or int(code.min()) < 0, "places of held-out rows do not fit them")
    return code
