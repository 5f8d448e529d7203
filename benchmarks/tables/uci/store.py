"""What is recorded of a fit on a UCI table."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from benchmarks.tables.common import store

SCORES = (
    "nll",
    "nll_no_duplicates",
    "crps",
    "rmse",
    "coverage_90",
    "coverage_95",
    "width_90",
    "width_95",
    "interval_score_95",
    "calibration_error",
)
COSTS = ("fit_seconds", "cpu_seconds", "predict_seconds", "peak_mb")


class Key(NamedTuple):
    """Which fit.

    Attributes:
        protocol: ``standard``, ``gap`` or ``tail``.
        table: the data set.
        split: its number, or the place in the list of gaps or tails.
        method: as in the table.
    """

    protocol: str
    table: str
    split: int
    method: str

    def kind(self) -> tuple[str, str]:
        """Fits of one kind take about the same time."""
        return self.table, self.method


class Store(store.Store[Key]):
    """The records in one file."""

    def __init__(self, path: Path) -> None:
        numbers = dict.fromkeys((*SCORES, *COSTS, "cpu_cap"), "REAL")
        others = dict.fromkeys(("seed", "num_train", "num_test"), "INTEGER") | dict.fromkeys(("settings", "versions"), "TEXT")
        super().__init__(path, Key, {"protocol": "TEXT", "set": "TEXT", "split": "INTEGER", "method": "TEXT"}, numbers | others)
