"""Writing records: one CSV a measurement, a row as soon as it is known."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
Record = dict[str, str]
RESULTS = ROOT / "benchmarks" / "results"


def read(name: str, folder: Path = RESULTS) -> list[Record]:
    """The records of results/<name>.csv; none when there is no such file."""
    path = folder / f"{name}.csv"
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def append(name: str, records: Iterable[Mapping[str, Any]]) -> None:
    """Add records to results/<name>.csv in one write, so that a run that was stopped can go on where it was."""
    shown = [{key: _shown(value) for key, value in record.items()} for record in records]
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.csv"
    text = io.StringIO()
    writer = csv.DictWriter(text, list(shown[0]), lineterminator="\n")
    if not path.is_file():
        writer.writeheader()
    writer.writerows(shown)
    with path.open("a", newline="") as file:
        file.write(text.getvalue())


def _shown(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def write(name: str, records: Iterable[Mapping[str, Any]], *, echo: bool = True, folder: Path = RESULTS) -> None:
    """Write records to results/<name>.csv, floats with six digits; print each."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.csv").open("w", newline="") as file:
        writer: csv.DictWriter[str] | None = None
        for record in records:
            shown = {key: _shown(value) for key, value in record.items()}
            if writer is None:
                writer = csv.DictWriter(file, list(shown), lineterminator="\n")
                writer.writeheader()
            writer.writerow(shown)
            if echo:
                print(", ".join(f"{key} {value}" for key, value in shown.items()), flush=True)
