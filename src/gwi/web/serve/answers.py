"""Predictions as the body of an answer: JSON in the form of the request, CSV as `gwi predict` writes it, Arrow."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from gwi._progress import said
from gwi.tables.writer import Writer
from gwi.web.serve.bodies import Form

# Characters of the header that holds notes.
LONGEST_NOTES = 3000


def body_of(columns: dict[str, Any], kind: str, form: Form, model: str, notes: Sequence[str]) -> bytes:
    """The answer.

    Args:
        columns: predictions by name.
        kind: json, csv or arrow.
        form: of JSON: one row, rows, or columns.
        model: its name.
        notes: what is unlike the rows of the fit, in sentences.
    """
    if kind == "csv":
        file = io.BytesIO()
        with Writer(file, ()) as writer:
            writer.write(columns)
        return file.getvalue()
    if kind == "arrow":
        import pyarrow as pa

        table, sink = pa.table(columns), io.BytesIO()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        return sink.getvalue()
    lists = {name: plain(values) for name, values in columns.items()}
    predictions: Any = lists
    if form != "columns":
        rows = [dict(zip(lists, cells, strict=True)) for cells in zip(*lists.values(), strict=True)]
        predictions = rows if form == "rows" else rows[0]
    answer = {"model": model, "predictions": predictions, "notes": list(map(said, notes))}
    return orjson.dumps(answer, default=str, option=orjson.OPT_APPEND_NEWLINE)


def header_of_notes(notes: Sequence[str]) -> str:
    """Notes as JSON in characters that a header may have; the last are left out where they are long."""
    found: list[str] = []
    for note in map(said, notes):
        if len(json.dumps([*found, note])) <= LONGEST_NOTES:
            found.append(note)
    return json.dumps(found)


def plain(values: Any) -> list[Any]:
    """Cells for JSON, which has neither NaN nor infinity."""
    cells: list[Any] = values.to_pylist() if hasattr(values, "to_pylist") else values.tolist()
    if isinstance(values, np.ndarray) and (values.dtype.kind != "f" or np.isfinite(values).all()):
        return cells
    return [None if isinstance(cell, float) and not np.isfinite(cell) else cell for cell in cells]
