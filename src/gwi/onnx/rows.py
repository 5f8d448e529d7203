"""From the user's rows to those that Q knows, in a graph: columns of a table, standardised rows, features of a network."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor, nn

from gwi.core.features import NetworkFeatures
from gwi.core.scaling import OutputsAndFeatures, StandardisedRows
from gwi.exceptions import UnexportableError
from gwi.onnx.graph import Graph, Value
from gwi.onnx.kernels import numbers
from gwi.onnx.networks import traced_values
from gwi.tables.encoder import FAR_AWAY, FAR_AWAY_IF_WIDE, WIDE, Column, Encoder

TINY = float(np.finfo(np.float64).tiny)


def require_numbers(encoder: Encoder) -> None:
    """Refuse tables of which a column that the model uses is no number.

    Raises:
        UnexportableError: naming the columns.
    """
    others = [f"{column.name!r}" for column in encoder.columns if column.kind != "number"]
    if others:
        raise UnexportableError(
            f"The column{'s' * (len(others) > 1)} {', '.join(others[:8])} of text or dates cannot be exported to ONNX, only "
            "numbers can; turn them into numbers before the fit, or leave them out."
        )


def encoded(g: Graph, encoder: Encoder, cells: Value) -> Value:
    """The numbers of each row of a table, as the encoder has them; missing cells are NaN."""
    num_features = len(encoder.features)
    far = (FAR_AWAY if num_features <= WIDE else FAR_AWAY_IF_WIDE) * math.sqrt(num_features)
    missing = g.op("IsNaN", cells)
    columns = [part for place, column in enumerate(encoder.columns) for part in _column(g, column, cells, missing, place)]
    unknown = np.array([[1 not in column.kept for column in encoder.columns]])
    blank = (missing & g.constant(unknown)).cast(np.float64).max(-1, keep=True)
    return g.joined([*columns, blank * far])


def _column(g: Graph, column: Column, cells: Value, missing: Value, place: int) -> list[Value]:
    """A number, with its median where it is missing, and whether it is; those of both that are kept."""
    own, is_missing = cells.columns(place, place + 1), missing.columns(place, place + 1)
    fill = dict(zip(column.kept, column.fill, strict=True))
    parts = [g.where(is_missing, fill.get(0, 0.0), own), is_missing.cast(np.float64)]
    return [parts[i] for i in column.kept]


def known_rows(g: Graph, embedding: Any, rows: Value) -> Value:
    """The rows that Q knows, (N, E).

    Raises:
        UnexportableError: for embeddings that have no graph.
    """
    write = _EMBEDDINGS.get(type(embedding))
    if write is None:
        raise UnexportableError(
            f"Rows of type {type(embedding).__name__} cannot be exported to ONNX; those of the estimators can."
        )
    return write(g, embedding, rows)


def _standardised(g: Graph, embedding: StandardisedRows, rows: Value) -> Value:
    flat = rows if len(embedding.shape) == 1 else rows.reshaped(0, -1)
    # Divided, as the model does: trees see rows that were standardised and put back, and their thresholds tell the last bit.
    return (flat - embedding.scales.x_centre[None]) / embedding.scales.x_scale[None]


class _LayersAndOutputs(nn.Module):
    """A network's outputs, and the values of the layers that its features are made of."""

    def __init__(self, features: NetworkFeatures):
        super().__init__()
        self.features = features

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Both, from one pass."""
        outputs, layers = self.features._one_pass(x)
        return (outputs[:, None] if outputs.ndim == 1 else outputs.flatten(1), *layers)


def _features(g: Graph, embedding: OutputsAndFeatures, rows: Value) -> Value:
    """Standardised outputs, and features with norm one."""
    features, scales = embedding.features, embedding.scales
    outputs, *layers = traced_values(g, _LayersAndOutputs(features), features.network, rows, embedding.shape)
    found = [(outputs.cast(np.float64) - scales.y_centre[None]) / scales.y_scale[None]]
    offset, start = numbers(features.offset), 0
    sizes = _sizes(embedding)
    for layer, size in zip(layers, sizes, strict=True):
        values = layer.cast(np.float64)
        if offset.any():
            values = values - (offset[None, start : start + size] if offset.ndim else offset.reshape(1, 1))
        start += size
        if features.directions is not None:
            values = values @ numbers(features.directions)
        if features.sphere:
            norm = g.reduced("ReduceL2", values, -1, True)
            values = values / (norm * math.sqrt(len(layers))).least(TINY)
        found.append(values)
    return g.joined(found)


def _sizes(embedding: OutputsAndFeatures) -> list[int]:
    """Numbers of each layer."""
    import torch

    example = torch.zeros((1, *embedding.shape))
    parameter = next(embedding.features.network.parameters(), example)
    with torch.no_grad():
        return [part.shape[1] for part in embedding.features._one_pass(example.to(parameter))[1]]


_EMBEDDINGS: dict[type, Callable[[Graph, Any, Value], Value]] = {
    StandardisedRows: _standardised,
    OutputsAndFeatures: _features,
}
