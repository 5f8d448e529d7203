"""Writing records: one CSV a measurement, a row as soon as it is known."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def write(name: str, records: Iterable[Mapping[str, Any]], *, echo: bool = True) -> None:
    """Write records to results/<name>.csv, floats with six digits; print each."""
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"{name}.csv").open("w", newline="") as file:
        writer: csv.DictWriter[str] | None = None
        for record in records:
            shown = {key: f"{value:.6g}" if isinstance(value, float) else value for key, value in record.items()}
            if writer is None:
                writer = csv.DictWriter(file, list(shown), lineterminator="\n")
                writer.writeheader()
            writer.writerow(shown)
            if echo:
                print(", ".join(f"{key} {value}" for key, value in shown.items()), flush=True)
