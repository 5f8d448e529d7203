"""Telling test rows from rows of another table by the variance of f: GFSVI's test, with other tables than theirs.

    python -m benchmarks.studies.ood_tables [--draw]

writes results/ood_tables.csv and docs/assets/figures/ood_tables.{png,svg}. The test is that of Cinquin & Bamler (2025), as we
read it: as many rows of the other table as there are test rows, its first columns, standardised by their own
mean and standard deviation; a decision tree of depth one on the variance of f, and the share of the same rows that it gets right.
So a half is chance, the threshold is fitted to the rows that it is scored on, and columns are paired by their place alone.
AUROC stands beside: it needs no threshold, and below a half means that strange rows have the lower variance.

Theirs is the song table, which we do not have. Ours are three practice tables with at least 13 columns: skillcraft, parkinsons
and pumadyn32nm. Numbers are therefore comparable between methods here, and not with the published ones. At most 600 training
and 300 test rows of the first three standard splits; theirs are five folds of all rows. A run that was stopped goes on where it
was.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gpytorch
import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from sklearn.tree import DecisionTreeClassifier

from benchmarks.figures.style import BLACK, BLUE, GREEN, ORANGE, PICTURES, SKY, VERMILION, canvas, look, save
from benchmarks.studies.loading import load
from benchmarks.tables.common.records import Record, append, read
from benchmarks.tables.common.splits import standard_splits
from benchmarks.tables.uci.interface import Budget, standardised
from benchmarks.tables.uci.networks import deep_ensemble
from benchmarks.tables.uci.peers import trained_gp
from gwi import GWIRegressor
from gwi._typing import Array

NAME = "ood_tables"
TABLES = ("boston", "concrete", "energy", "wine_red", "yacht", "power", "protein")
OTHERS = ("skillcraft", "parkinsons", "pumadyn32nm")
NUM_SPLITS, MOST_TRAIN, MOST_TEST, PEER_SECONDS = 3, 600, 300, 8.0
# GFSVI, the GWI that its authors ran, and their exact GP, all with the song table (Cinquin & Bamler, 2025).
PUBLISHED: dict[str, dict[str, float]] = {
    "GFSVI": dict(zip(TABLES, (0.893, 0.656, 0.997, 0.865, 0.616, 0.698, 0.860), strict=True)),
    "GWI": dict(zip(TABLES, (0.817, 0.730, 0.998, 0.810, 0.563, 0.754, 0.942), strict=True)),
    "exact GP": {"boston": 0.952, "concrete": 0.933, "energy": 0.998, "wine_red": 0.787, "yacht": 0.787},
}
# Colour and marker. A single mean's ood_score is in the record only: it orders rows as the variance of f does.
METHODS = {
    "gwi": (BLUE, "o"),
    "gwi, ood_score": (SKY, "D"),
    "network": (GREEN, "s"),
    "exact GP": (ORANGE, "^"),
    "deep ensemble": (VERMILION, "v"),
}

# From rows to what should be larger where they are strange.
Measure = Callable[[Array], Array]


def stump_accuracy(known: Array, strange: Array) -> float:
    """Share of rows that a threshold, found by a tree of depth one on these rows, puts on the right side."""
    values = np.concatenate([known, strange])[:, None]
    labels = np.repeat([0, 1], [len(known), len(strange)])
    tree = DecisionTreeClassifier(criterion="log_loss", max_depth=1, random_state=0)
    # Ranks, not values: trees round to single precision, and variances may span more than that.
    ranks = np.unique(values, return_inverse=True)[1].reshape(-1, 1)
    return float(tree.fit(ranks, labels).score(ranks, labels))


def auroc(known: Array, strange: Array) -> float:
    """Probability that a strange row has the larger value."""
    labels = np.repeat([0, 1], [len(known), len(strange)])
    return float(roc_auc_score(labels, np.concatenate([known, strange])))


def rows_of_another(other: str, x: Array, count: int) -> Array:
    """The first rows and columns of another table, standardised by themselves, in the units of the training rows."""
    cut = load(other)[0][:count, : x.shape[1]]
    data = standardised(x, np.arange(len(x), dtype=float))
    return standardised(cut, np.arange(len(cut), dtype=float)).x * data.x_scale + data.x_centre


def epistemic(model: GWIRegressor, rows: Array) -> Array:
    """The variance of f at rows."""
    return np.asarray(model.decompose(rows).epistemic)


def methods(x: Array, y: Array, seed: int) -> Iterator[tuple[str, Measure, float]]:
    """Every measure of a fit to these rows, and the seconds of the fit."""
    for label, mean in (("gwi", "auto"), ("network", "network")):
        start = time.process_time()
        model = GWIRegressor(mean, random_state=seed).fit(x, y)
        seconds = time.process_time() - start
        yield label, partial(epistemic, model), seconds
        yield f"{label}, ood_score", model.ood_score, seconds
    start = time.process_time()
    data, gp = trained_gp(x, y, Budget(PEER_SECONDS))
    seconds = time.process_time() - start

    @torch.no_grad()
    def gp_variance(rows: Array) -> Array:
        with gpytorch.settings.max_cholesky_size(10_000):
            return np.asarray(gp(torch.from_numpy(data.rows(rows))).variance.numpy())

    yield "exact GP", gp_variance, seconds
    start = time.process_time()
    ensemble = deep_ensemble(x, y, seed, Budget(PEER_SECONDS))
    yield "deep ensemble", lambda rows: ensemble.mixture(rows).mean.var(0), time.process_time() - start


def measure(table: str, split: int) -> Iterator[dict[str, Any]]:
    """Every method and other table on one split."""
    x, y = load(table)
    found = standard_splits(len(y), split + 1)[split]
    train, test = found.train[:MOST_TRAIN].numpy(), found.test[:MOST_TEST].numpy()
    for label, judge, seconds in methods(x[train], y[train], split):
        known = judge(x[test])
        for other in OTHERS:
            strange = judge(rows_of_another(other, x[train], len(test)))
            yield {
                "table": table,
                "split": split,
                "other": other,
                "method": label,
                "num_train": len(train),
                "num_test": len(test),
                "accuracy": stump_accuracy(known, strange),
                "auroc": auroc(known, strange),
                "cpu_seconds": round(seconds, 2),
            }


def average(records: list[Record], table: str, method: str, other: str | None = None, column: str = "accuracy") -> float:
    """Over splits, and over other tables unless one is named."""
    found = [r for r in records if (r["table"], r["method"]) == (table, method) and other in (None, r["other"])]
    return float(np.mean([float(r[column]) for r in found]))


def draw() -> None:
    records = read(NAME)
    with look():
        figure = canvas(9.5, 3.6)
        axes = figure.subplots()
        offsets = np.linspace(-0.3, 0.3, len(METHODS))
        for offset, (method, (colour, marker)) in zip(offsets, METHODS.items(), strict=True):
            places = np.arange(len(TABLES)) + offset
            each = np.array([[average(records, table, method, other) for other in OTHERS] for table in TABLES])
            axes.vlines(places, each.min(1), each.max(1), color=colour, lw=1)
            axes.plot(places, each.mean(1), marker, color=colour, ms=5.5, label=method)
        for name, marker in (("GFSVI", "x"), ("GWI", "+")):
            axes.plot(
                range(len(TABLES)),
                [PUBLISHED[name][table] for table in TABLES],
                marker,
                color=BLACK,
                ms=7,
                label=f"{name}, published, song table",
            )
        axes.axhline(0.5, color=BLACK, lw=0.6, ls=":")
        axes.set_xticks(range(len(TABLES)), TABLES)
        axes.set(
            ylim=(0.48, 1.02), ylabel="rows told right", title="test rows against rows of another table; lines: three tables"
        )
        figure.legend(loc="outside right center")
        save(figure, NAME, PICTURES)


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if "--draw" not in sys.argv:
        done = {(r["table"], int(r["split"])) for r in read(NAME)}
        for split in range(NUM_SPLITS):
            for table in TABLES:
                if (table, split) not in done:
                    append(NAME, list(measure(table, split)))
                    print(table, split, flush=True)
    draw()


if __name__ == "__main__":
    main()
