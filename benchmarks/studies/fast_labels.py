"""Seconds of a default fit of classes and what they buy, beside CatBoost and histogram boosting as they come.

    python -m benchmarks.studies.fast_labels [--methods gwi CatBoost ...] [--rows 1000 4000] [--draws 2] [--label "gwi before"]

writes results/fast_labels.csv: processor seconds of the fit alone, and log loss and accuracy at up to 2,000 other rows. Text is
given as the place of each value, to all methods alike. Everything runs in one thread. A run that was stopped goes on where it
was.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import accuracy_score, log_loss

from benchmarks.tables.common.practice import columns
from benchmarks.tables.common.records import append, read
from gwi import GWIClassifier
from gwi._typing import Array

SIZES, MOST_TEST = (1000, 4000), 2000
# The label of each practice table, and columns that give it away or name the row.
TABLES = {
    "mixed/churn": ("churn", ()),
    "mixed/credit": ("Status", ()),
    "mixed/diamonds": ("cut", ()),
    "mixed/storms": ("status", ("name", "category")),
    "mixed/taxi_tip": ("tip", ()),
}
DIGITS = "digits"


def gwi(seed: int) -> Any:
    """Our default."""
    return GWIClassifier(random_state=seed)


def catboost(seed: int) -> Any:
    """As it comes."""
    from catboost import CatBoostClassifier

    return CatBoostClassifier(random_seed=seed, verbose=False, thread_count=1, allow_writing_files=False)


def boosting(seed: int) -> Any:
    """As it comes."""
    return HistGradientBoostingClassifier(random_state=seed)


METHODS: dict[str, Callable[[int], Any]] = {"gwi": gwi, "CatBoost": catboost, "histogram boosting": boosting}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--rows", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--label", default="gwi", help="of our own fits")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    done = {(r["method"], r["table"], int(r["num_rows"]), int(r["draw"])) for r in read("fast_labels")}
    for draw, size, table in product(range(arguments.draws), arguments.rows, (*TABLES, DIGITS)):
        x, y = labelled(table)
        if len(x) < size + 300:
            continue
        for method in arguments.methods:
            key = (arguments.label if method == "gwi" else method, table, size, draw)
            if key not in done:
                names = dict(zip(("method", "table", "num_rows", "draw"), key, strict=True))
                append("fast_labels", [names | measure(METHODS[method](draw), x, y, size, draw)])
                print(*key, flush=True)


def labelled(name: str) -> tuple[Array, NDArray[np.int64]]:
    """Rows without missing cells, and labels."""
    if name == DIGITS:
        x, y = load_digits(return_X_y=True)
        return x, y
    found = columns(name)
    target, without = TABLES[name]
    y = found.pop(target)
    x = np.column_stack([values for column, values in found.items() if column not in without])
    complete = np.isfinite(x).all(1) & np.isfinite(y)
    return x[complete], y[complete].astype(np.int64)


def measure(model: Any, x: Array, y: NDArray[np.int64], size: int, draw: int) -> dict[str, float]:
    """One fit, and how good it is at other rows with labels that it has seen."""
    order = np.random.default_rng([draw, size]).permutation(len(x))
    train, test = order[:size], order[size : size + MOST_TEST]
    test = test[np.isin(y[test], y[train])]
    start = time.process_time()
    model.fit(x[train], y[train])
    seconds = time.process_time() - start
    p = model.predict_proba(x[test])
    labels = np.unique(y[train])
    return {
        "cpu_seconds": seconds,
        "log_loss": log_loss(y[test], p, labels=labels),
        "accuracy": accuracy_score(y[test], labels[p.argmax(1)]),
    }


if __name__ == "__main__":
    main()
