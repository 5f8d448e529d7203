"""Records of fits in SQLite: each is written once, in one transaction, and read back to know what is left to do."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCORES = ("nll", "nll_no_duplicates", "crps", "rmse", "coverage_90", "coverage_95", "width_90", "width_95", "calibration_error")
COSTS = ("fit_seconds", "cpu_seconds", "predict_seconds", "peak_mb")
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS fits (
    protocol TEXT NOT NULL, "set" TEXT NOT NULL, split INTEGER NOT NULL, method TEXT NOT NULL,
    {", ".join(f"{name} REAL" for name in (*SCORES, *COSTS, "cpu_cap"))},
    seed INTEGER, num_train INTEGER, num_test INTEGER, settings TEXT, versions TEXT, failure TEXT, finished TEXT NOT NULL,
    PRIMARY KEY (protocol, "set", split, method)
)
"""


@dataclass(frozen=True, order=True)
class Key:
    """Which fit.

    Attributes:
        protocol: ``standard`` or ``gap``.
        table: the data set.
        split: its number, or for a gap the feature's.
        method: as in the table.
    """

    protocol: str
    table: str
    split: int
    method: str


class Store:
    """The records in one file.

    A record is there whole or not at all, and a second one of the same key is refused by the primary key.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        with closing(self._open()) as connection, connection:
            connection.execute(_SCHEMA)

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=60)

    def add(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Write the records of one task together."""
        with closing(self._open()) as connection, connection:
            for record in records:
                values = {k: json.dumps(v, ensure_ascii=False) if isinstance(v, Mapping) else v for k, v in record.items()}
                names = ", ".join(f'"{name}"' for name in values)
                marks = ", ".join("?" for _ in values)
                connection.execute(
                    f"INSERT INTO fits ({names}, finished) VALUES ({marks}, strftime('%Y-%m-%dT%H:%M:%SZ'))",
                    list(values.values()),
                )

    def keys(self, *, failed: bool | None = None) -> set[Key]:
        """Of all records, or of those that failed, or that did not."""
        condition = {None: "", True: "WHERE failure IS NOT NULL", False: "WHERE failure IS NULL"}[failed]
        with closing(self._open()) as connection:
            return {Key(*row) for row in connection.execute(f'SELECT protocol, "set", split, method FROM fits {condition}')}

    def forget(self, keys: Iterable[Key]) -> None:
        """Take records out, so that they are made again."""
        with closing(self._open()) as connection, connection:
            for key in keys:
                connection.execute(
                    'DELETE FROM fits WHERE protocol = ? AND "set" = ? AND split = ? AND method = ?',
                    (key.protocol, key.table, key.split, key.method),
                )

    def rows(self) -> list[dict[str, Any]]:
        """All records in the order of their keys."""
        with closing(self._open()) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute('SELECT * FROM fits ORDER BY protocol, "set", split, method')]
