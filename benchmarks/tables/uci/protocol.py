"""What is run: sets, splits, methods and caps; and one task of it, from training rows to scores."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from benchmarks.tables.common.machine import peak_megabytes, reset_peak, versions
from benchmarks.tables.common.running import judged
from benchmarks.tables.common.splits import Split, gap_splits, standard_splits, tail_splits
from benchmarks.tables.uci.data import UCIName, load_uci
from benchmarks.tables.uci.interface import Budget
from benchmarks.tables.uci.methods import METHODS, TREATED, VARIANTS, YIELDS, fit
from benchmarks.tables.uci.store import Key
from gwi._typing import Array
from gwi.evaluation.regression import score

SETS: tuple[UCIName, ...] = get_args(UCIName)
SMALL: tuple[UCIName, ...] = ("boston", "concrete", "energy", "wine_red", "yacht")
MIDDLE: tuple[UCIName, ...] = ("kin8nm", "power", "naval")
# Processor seconds a fit may take, tuning included.
CAPS = dict.fromkeys(SMALL, 60.0) | dict.fromkeys(MIDDLE, 180.0) | {"protein": 400.0}
NUM_SPLITS = dict.fromkeys(SMALL, 10) | dict.fromkeys(MIDDLE, 5) | {"protein": 2}
NUM_PAPER_SPLITS = dict.fromkeys(SMALL, 3) | dict.fromkeys(MIDDLE, 1) | {"protein": 1}
# Splits with a gap or a tail of each set.
NUM_SHIFTED = 5
SHIFTED: tuple[UCIName, ...] = (*SMALL, "kin8nm")
PAPER = ("GWI-net (paper)", "GWI: SVGP (paper)")
PROTOCOLS = ("standard", "gap", "tail")
# The exact GP is for tables up to 2,000 rows.
LARGE_SETS = (*MIDDLE, "protein")
# All that takes part.
LIBRARIES = ("gwi", "torch", "gpytorch", "botorch", "scikit-learn", "numpy", "scipy", "ngboost", "laplace-torch")


@dataclass(frozen=True)
class Task:
    """One fit, or several that share their costly part.

    Attributes:
        protocol: ``standard``, ``gap`` or ``tail``.
        table: the data set.
        split: its number; of a gap or a tail, the place in the list of them.
        method: one of `METHODS`.
        cpu_cap: processor seconds.
        share_of_steps: of every bound on steps; below one only to try the machinery out.
    """

    protocol: str
    table: UCIName
    split: int
    method: str
    cpu_cap: float
    share_of_steps: float = 1.0

    def records(self) -> list[Key]:
        """The keys of the records that it yields."""
        return [Key(self.protocol, self.table, self.split, method) for method in YIELDS[self.method]]


def extent(
    sets: tuple[str, ...] = SETS, methods: tuple[str, ...] = tuple(METHODS), protocols: tuple[str, ...] = PROTOCOLS
) -> Iterator[Task]:
    """All tasks: first splits first, so that a part of the run is a smaller table rather than some of its columns."""
    for split in range(max(NUM_SPLITS.values())):
        for table in SETS:
            for method in METHODS:
                if table not in sets or method not in methods:
                    continue
                if "standard" in protocols and split < num_splits(table, method):
                    yield Task("standard", table, split, method, CAPS[table])
                for protocol in ("gap", "tail"):
                    if protocol in protocols and split < num_shifted(table, method):
                        yield Task(protocol, table, split, method, CAPS[table])


def num_splits(table: UCIName, method: str) -> int:
    """Standard splits of a method on a set."""
    if method in PAPER:
        return 0 if (table, method) == ("protein", "GWI: SVGP (paper)") else NUM_PAPER_SPLITS[table]
    if (method == "exact GP" or method in TREATED) and table in LARGE_SETS:
        return 0
    return 0 if method in VARIANTS and table not in SHIFTED else NUM_SPLITS[table]


def num_shifted(table: UCIName, method: str) -> int:
    """Splits with a gap, and with a tail, of a method on a set."""
    return NUM_SHIFTED if table in SHIFTED and method not in PAPER and num_splits(table, method) else 0


def split_of(task: Task, x: Any) -> Split:
    """The task's rows."""
    if task.protocol != "standard":
        return {"gap": gap_splits, "tail": tail_splits}[task.protocol](x)[task.split]
    return standard_splits(len(x), task.split + 1)[task.split]


def run(task: Task) -> list[dict[str, Any]]:
    """Fit on the training rows, predict at the test rows, and only then look at the test targets."""
    features, targets = load_uci(task.table)
    split = split_of(task, features)
    x, train, test = features.numpy(), split.train.numpy(), split.test.numpy()
    y_train = targets[0].numpy()[train]
    reset_peak()
    budget = Budget(task.cpu_cap, task.share_of_steps)
    fitted = fit(task.method, x[train], y_train, task.split, budget)
    laws = {}
    for method, found in fitted.items():
        start = time.perf_counter()
        laws[method] = (found.predict(x[test]), time.perf_counter() - start)
    peak = peak_megabytes()
    y_test = targets[0].numpy()[test]
    seen = duplicated(np.column_stack([x[test], y_test]), np.column_stack([x[train], y_train]))
    records = []
    for method, (law, seconds) in laws.items():
        record: dict[str, Any] = {
            **identity(task, method),
            **asdict(score(law, y_test)),
            "nll_no_duplicates": -float(law.log_density(y_test)[~seen].mean()),
            "fit_seconds": fitted[method].seconds,
            "cpu_seconds": fitted[method].cpu_seconds,
            "predict_seconds": seconds,
            "peak_mb": peak,
            "num_train": len(train),
            "num_test": len(test),
            "settings": dict(fitted[method].settings) | {"split": split.name},
            "versions": versions(LIBRARIES),
        }
        records.append(judged(record, ("nll", "crps", "rmse")))
    return records


def failed(task: Task, reason: str) -> list[dict[str, Any]]:
    """Records of a task that failed for good."""
    return [identity(task, key.method) | {"failure": reason, "versions": versions(LIBRARIES)} for key in task.records()]


def identity(task: Task, method: str) -> dict[str, Any]:
    """What all records of a task have."""
    return {
        "protocol": task.protocol,
        "set": task.table,
        "split": task.split,
        "method": method,
        "seed": task.split,
        "cpu_cap": task.cpu_cap,
    }


def duplicated(rows: Array, among: Array) -> NDArray[np.bool_]:
    """Which rows are also, to the last bit, among others."""
    known = {row.tobytes() for row in np.ascontiguousarray(among)}
    return np.array([row.tobytes() in known for row in np.ascontiguousarray(rows)])
