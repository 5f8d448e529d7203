"""Practice tables: those on which defaults are chosen, none of them a benchmark's."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow.csv

from gwi._typing import Array

# Tables of numbers alone; the last two have hardly any signal.
NUMBERS = (
    "autompg",
    "autos",
    "machine",
    "servo",
    "stock",
    "pendulum",
    "skillcraft",
    "sml",
    "parkinsons",
    "pumadyn32nm",
    "forest",
    "tamielectric",
)
WITHOUT_SIGNAL = ("forest", "tamielectric")


def columns(name: str) -> dict[str, Array]:
    """Columns of a practice table, such as ``numbers/stock``; text as the place of each value."""
    table = pyarrow.csv.read_csv(Path(os.environ["GWI_DATA"]) / "practice" / f"{name}.csv.gz")
    found = {}
    for column in table.column_names:
        values = table[column].to_numpy()
        text = values.dtype.kind not in "fiub"
        found[column] = (np.unique(values.astype(str), return_inverse=True)[1] if text else values).astype(np.float64)
    return found


def numbers(name: str) -> tuple[Array, Array]:
    """Rows and targets of a table of numbers."""
    found = columns(f"numbers/{name}")
    y = found.pop("target")
    return np.column_stack(list(found.values())), y
