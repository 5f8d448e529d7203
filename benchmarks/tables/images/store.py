"""What is recorded of a fit of the image table."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from benchmarks.tables.common import store
from benchmarks.tables.images.data import OUTLIERS, OutlierName

CLASS_SCORES = ("accuracy", "nll", "brier", "ece")
SCORERS = ("entropy", "score")
COSTS = ("fit_seconds", "predict_seconds", "score_seconds", "forward_seconds", "training_seconds", "peak_mb")


def outlier_column(metric: str, scorer: str, outliers: OutlierName) -> str:
    """The column of a score of a scorer on a set of outliers; that of the main set has no prefix."""
    return f"{metric}_{scorer}" if outliers == "main" else f"{outliers}_{metric}_{scorer}"


OUTLIER_SCORES = tuple(
    outlier_column(metric, scorer, outliers)
    for outliers in OUTLIERS
    for scorer in SCORERS
    for metric in ("auroc", "aupr", "fpr95")
)
NUMBERS = (*CLASS_SCORES, *OUTLIER_SCORES, "hard_accuracy", *COSTS)


class Key(NamedTuple):
    """Which fit.

    Attributes:
        dataset: the image set.
        seed: of the shared network and of the fit.
        method: as in the table.
    """

    dataset: str
    seed: int
    method: str

    def kind(self) -> tuple[str, str]:
        """Fits of one kind take about the same time."""
        return self.dataset, self.method


class Store(store.Store[Key]):
    """The records in one file."""

    def __init__(self, path: Path) -> None:
        columns = dict.fromkeys(NUMBERS, "REAL") | dict.fromkeys(("num_train", "num_validation", "num_test"), "INTEGER")
        columns |= dict.fromkeys(("score_name", "reliability", "settings", "versions"), "TEXT")
        super().__init__(path, Key, {"dataset": "TEXT", "seed": "INTEGER", "method": "TEXT"}, columns)
