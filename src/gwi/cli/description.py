"""What the header of a model file says, for `gwi info` and as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def description_of(path: Path) -> dict[str, Any]:
    """What the header of a model file says."""
    from gwi.storage.description import Description
    from gwi.storage.header import read_document, user_errors

    with user_errors(path):
        known = Description.of(read_document(path), str(path))
    encoder = known.encoder
    description = {
        "file": str(path),
        "task": known.task,
        "target": encoder.target,
        "rows": known.summary.num_rows,
        "columns": {column.name: column.kind for column in encoder.columns},
        "inputs": list(encoder.features),
        "not_used": dict(encoder.dropped),
        "held_out_scores": known.scores,
        "summary": str(known.summary),
        "fit": known.summary.to_dict(),
    }
    if not known.labels:
        description["likelihood"] = known.summary.likelihood
    for name, value in {"event": encoder.event, "levels": known.levels, "classes": known.labels}.items():
        description |= {name: value} if value else {}
    return description
