"""From the user's rows to those that Q knows, in model files: scales and range of columns, or features of a network."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gwi.core.features import NetworkFeatures
from gwi.core.module_calls import LaidOut
from gwi.core.scaling import Embedding, OutputsAndFeatures, Scales, StandardisedRows
from gwi.exceptions import UnsavableError
from gwi.storage.header import refuse_if, whole
from gwi.storage.kernels import Node, Reader, Writer
from gwi.storage.means import decode_module, decode_shape, encode_module

_SCALES = ("x_centre", "x_scale", "y_centre", "y_scale")
# Of the range of columns.
_SPAN = ("lowest", "highest")


def encode_embedding(embedding: Embedding, w: Writer) -> Node:
    """Scales, and what they are of.

    Raises:
        UnsavableError: for an embedding that the estimators do not make.
    """
    scales = {name: w.put(name, getattr(embedding.scales, name)) for name in _SCALES}
    common: Node = {"shape": list(embedding.shape), "scales": scales}
    if isinstance(embedding, StandardisedRows):
        ends = zip(_SPAN, embedding.span or (), strict=embedding.span is not None)
        span = [w.put(f"x_{end}", value) for end, value in ends] or None
        return {"type": "rows", "span": span} | common
    if not isinstance(embedding, OutputsAndFeatures):
        raise UnsavableError(f"Rows of type {type(embedding).__name__} cannot be stored; those of the estimators can.")
    features = embedding.features
    directions = None if features.directions is None else w.put("features.directions", features.directions)
    return common | {
        "type": "network-features",
        "network": encode_module(features.network, w, "features.network"),
        "watched": list(features.layers),
        **{name: getattr(features, name) for name in ("automatic", "centre", "sphere", "projection")},
        "offset": w.put("features.offset", features.offset),
        "directions": directions,
    }


def decode_embedding(node: Node, r: Reader) -> Embedding:
    """What was encoded; ValueError when it describes none."""
    scales = Scales(*(r.get(node["scales"][name], 1).cpu().numpy() for name in _SCALES))
    sizes_fit = (len(scales.x_centre), len(scales.y_centre)) == (len(scales.x_scale), len(scales.y_scale))
    refuse_if(not sizes_fit, "centres and scales have different sizes")
    positive = all(((scale >= 1e-165) & (scale <= 1e150)).all() for scale in (scales.x_scale, scales.y_scale))
    refuse_if(not positive, "a scale is not positive")
    r.scales = scales
    if node["type"] == "rows":
        span = None
        if node["span"] is not None:
            low, high = (r.get(name, 1).cpu().numpy() for name in node["span"])
            fits = 0 < len(low) == len(high) <= len(scales.x_scale)
            refuse_if(not fits, "the range of the columns is that of other columns")
            span = low, high
        return StandardisedRows(scales, decode_shape(node["shape"], scales), span)
    refuse_if(node["type"] != "network-features", "rows are of an unknown type")
    shape, watched, projection = decode_shape(node["shape"]), node["watched"], node["projection"]
    named = isinstance(watched, list) and all(isinstance(name, str) for name in watched)
    refuse_if(not named, "the layers of the features have no names")
    network = decode_module(node["network"], r)
    sizes = [part.size for part in network.layout.parts] if isinstance(network, LaidOut) else [math.prod(shape)]
    refuse_if(math.prod(shape) != sum(sizes), "the parts of a row have other sizes than it")
    features = NetworkFeatures(
        network,
        watched,
        centre=bool(node["centre"]),
        sphere=bool(node["sphere"]),
        projection=None if projection is None else whole(projection, "the projection", len(scales.x_scale)),
    ).to(r.device)
    features.automatic = bool(node["automatic"])
    features.offset = r.get(node["offset"], 1)
    features.directions = None if node["directions"] is None else r.get(node["directions"], 2)
    embedding = OutputsAndFeatures(features, scales, shape)
    with torch.no_grad():
        outputs, values = features.evaluate(torch.from_numpy(one_row(embedding)).to(r.device))
    fits = outputs.shape == (1, len(scales.y_scale)) and outputs.shape[1] + values.shape[1] == len(scales.x_scale)
    refuse_if(not fits, "the network has other outputs or features than the model")
    return embedding


def one_row(embedding: Embedding) -> NDArray[Any]:
    """A row that any model of this embedding can be asked about."""
    if isinstance(embedding, StandardisedRows):
        return embedding.scales.x_centre.reshape(1, *embedding.shape)
    if isinstance(embedding.features.network, LaidOut):
        return embedding.features.network.layout.example()
    return np.zeros((1, *embedding.shape), dtype=np.float32)
