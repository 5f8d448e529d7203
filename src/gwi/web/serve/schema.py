"""What a model takes and gives, as OpenAPI says it: names, kinds and known categories of its own columns."""

from __future__ import annotations

from typing import Any

from gwi.estimators.columns import encoder_of
from gwi.tables.encoder import Column
from gwi.web.serve.asked import PARAMETERS
from gwi.web.serve.bodies import KINDS
from gwi.web.serve.served import Served

# Values of a text column that are listed.
MOST_VALUES = 50
_KINDS: dict[str, dict[str, Any]] = {
    "number": {"type": ["number", "string", "boolean", "null"], "description": "A number; null where it is missing."},
    "categories": {"type": ["string", "number", "boolean", "null"]},
    "frequency": {"type": ["string", "number", "boolean", "null"]},
    "date": {"type": ["string", "null"], "description": "A date such as 2024-12-31 or 2024-12-31T23:59:59Z."},
}
STATUSES = {
    "400": "The body is not complete JSON or Arrow.",
    "401": "The token is missing or wrong.",
    "406": "The answer has none of the types that the client accepts.",
    "408": "The body came too slowly.",
    "413": "Too many bytes or rows, or too long a cell.",
    "415": "The Content-Type is not one of these, or the body is compressed.",
    "422": "Columns are missing, a cell does not fit its column, or a parameter is wrong.",
    "503": "There is too much to do, or the answer took too long; try again, with fewer rows.",
}


def column_schema(column: Column) -> dict[str, Any]:
    """Of one column of the model."""
    found = dict(_KINDS[column.kind])
    if column.kind in ("categories", "frequency"):
        values = list(column.values[:MOST_VALUES])
        more = f" and {len(column.values) - MOST_VALUES} more" if len(column.values) > MOST_VALUES else ""
        found |= {
            "examples": values,
            "description": f"Text; known values: {', '.join(map(repr, values))}{more}. Other values are allowed.",
        }
    return found | {"x-gwi-kind": column.kind}


def row_schema(model: Served) -> dict[str, Any]:
    """Of one row that is asked about."""
    known = {column.name: column_schema(column) for column in encoder_of(model.estimator).columns}
    properties = {name: known.get(name, {}) for name in model.wanted}
    return {"type": "object", "required": list(model.wanted), "properties": properties, "example": model.example}


def prediction_schema(model: Served) -> dict[str, Any]:
    """Of what is said of one row."""
    kinds = {name: "string" if isinstance(value, str) else "number" for name, value in model.outputs.items()}
    properties = {name: {"type": [kind, "null"]} for name, kind in kinds.items()}
    return {"type": "object", "properties": properties, "example": model.outputs}


def _as_columns(row: dict[str, Any]) -> dict[str, Any]:
    properties = {name: {"type": "array", "items": part} for name, part in row["properties"].items()}
    return {"type": "object", "properties": properties} | ({"required": row["required"]} if "required" in row else {})


def operation(model: Served) -> dict[str, Any]:
    """What OpenAPI says of a prediction of this model, beside its path."""
    row, said = row_schema(model), prediction_schema(model)
    packed = {kind: {"schema": {"type": "string", "format": "binary"}} for kind in (KINDS["csv"], KINDS["arrow"])}
    answer = {
        "type": "object",
        "properties": {
            "model": {"type": "string"},
            "predictions": {"anyOf": [said, {"type": "array", "items": said}, _as_columns(said)]},
            "notes": {"type": "array", "items": {"type": "string"}},
        },
    }
    error = {KINDS["json"]: {"schema": {"type": "object", "properties": {"error": {"type": "string"}}}}}
    body = {"anyOf": [row, {"type": "array", "items": row}, _as_columns(row)]}
    return {
        "parameters": [
            {"name": name, "in": "query", "required": False, "description": text, "schema": {"type": "string"}}
            for name, text in PARAMETERS.items()
        ],
        "requestBody": {"required": True, "content": {KINDS["json"]: {"schema": body, "example": model.example}, **packed}},
        "responses": {
            "200": {
                "description": "Predictions, in the form and order of the rows, as JSON, CSV or Arrow (Accept).",
                "content": {KINDS["json"]: {"schema": answer}, **packed},
            },
            **{status: {"description": text, "content": error} for status, text in STATUSES.items()},
        },
    }
