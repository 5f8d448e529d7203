"""Which means small tables are fitted with: candidates on a few of the training rows of seven tables.

    python -m benchmarks.studies.small_tables

writes results/small_tables.csv. Test rows are never touched: all rows are training rows of the first standard split. A table of
N rows is drawn from them, and the fit is judged at other rows (random), or at the middle third by one of the features (gap).
A run that was stopped goes on where it was.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV

from benchmarks.tables.common.records import append, read
from benchmarks.tables.common.splits import gap_splits, standard_splits
from benchmarks.tables.uci.data import UCIName, load_uci
from benchmarks.tables.uci.methods import law_of
from gwi import GWIRegressor
from gwi._typing import Array
from gwi.evaluation.regression import score

SETS: tuple[UCIName, ...] = ("boston", "concrete", "energy", "wine_red", "yacht", "kin8nm", "power")
SIZES, NUM_DRAWS, MAX_TEST = (60, 120, 200), 2, 300
RIDGE = RidgeCV(np.logspace(-3, 3, 13))
# As the default has them for larger tables.
TREES = ExtraTreesRegressor(300, max_features=0.6)
BOOSTING = HistGradientBoostingRegressor(
    max_iter=500, learning_rate=0.05, max_leaf_nodes=15, min_samples_leaf=10, early_stopping=False
)
CANDIDATES: dict[str, list[Any]] = {
    "GP": ["svgp"],
    "GP, ridge": ["svgp", RIDGE],
    "GP, ridge, trees": ["svgp", RIDGE, TREES],
    "GP, ridge, network, trees": ["svgp", RIDGE, "network", TREES],
    "GP, boosting, trees": ["svgp", BOOSTING, TREES],
    "GP, network, boosting, trees": ["svgp", "network", BOOSTING, TREES],
}


def main() -> None:
    torch.set_num_threads(1)
    done = {(r["set"], r["kind"], int(r["num_rows"]), int(r["draw"])) for r in read("small_tables")}
    for draw in range(NUM_DRAWS):
        for size in SIZES:
            for name in SETS:
                for kind, train, test in splits(name, size, draw):
                    if (name, kind, size, draw) not in done:
                        append("small_tables", list(measure(name, kind, size, draw, train, test)))
                        print(name, kind, size, draw, flush=True)


def splits(name: UCIName, size: int, draw: int) -> Iterator[tuple[str, Array, Array]]:
    """Rows to fit and to judge, both among the training rows of the first standard split."""
    features, _ = load_uci(name)
    known = standard_splits(len(features), 1)[0].train
    order = known[torch.randperm(len(known), generator=torch.Generator().manual_seed(draw))]
    if len(order) > size:
        yield "random", order[:size].numpy(), order[size : size + MAX_TEST].numpy()
    some = order[: 3 * size // 2]
    gaps = gap_splits(features[some])
    gap = gaps[draw % len(gaps)]
    yield "gap", some[gap.train].numpy(), some[gap.test].numpy()


def measure(name: UCIName, kind: str, size: int, draw: int, train: Array, test: Array) -> Iterator[dict[str, Any]]:
    """Every candidate on one table."""
    features, targets = load_uci(name)
    x, y = features.numpy(), targets[0].numpy()
    for label, means in CANDIDATES.items():
        start = time.process_time()
        model = GWIRegressor([clone(m) if hasattr(m, "fit") else m for m in means], random_state=0).fit(x[train], y[train])
        seconds = time.process_time() - start
        found = score(law_of(model.model_, x[test]), y[test])
        unit = float(y[train].std())
        yield {
            "set": name,
            "kind": kind,
            "num_rows": size,
            "draw": draw,
            "means": label,
            "nll": found.nll - math.log(unit),
            "crps": found.crps / unit,
            "coverage_95": found.coverage_95,
            "cpu_seconds": seconds,
        }


if __name__ == "__main__":
    main()
