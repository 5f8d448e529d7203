"""From numbers back to cells that a person reads, as far as they tell."""

from __future__ import annotations

from jaxtyping import Float

from gwi._typing import Array
from gwi.tables.encoder import Column, Encoder

UNKNOWN = "…"


def cells_of(encoder: Encoder, numbers: Float[Array, "N F"]) -> list[list[str]]:
    """The cells of each row, as text; of text that became numbers by its letters, and of dates, `UNKNOWN`."""
    places = list(encoder.places())
    return [[_cell(column, row[place]) for column, place in places] for row in numbers]


def _cell(column: Column, own: Float[Array, " K"]) -> str:
    found = dict(zip(column.kept, own.tolist(), strict=True))
    if found.get(len(column.all_features) - 1, 0.0) > 0.5:
        return "missing"
    if column.kind == "number":
        return cell_text(found[0]) if 0 in found else UNKNOWN
    if column.kind == "categories":
        present = [column.values[i] for i, value in found.items() if i < len(column.values) and value > 0.5]
        return present[0] if present else UNKNOWN
    return UNKNOWN


def cell_text(value: object) -> str:
    """A cell for a reader: of a number five digits."""
    if value is None or value != value:
        return "missing"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:.5g}" if abs(value) < 1e5 or value != int(value) else f"{value:.0f}"
