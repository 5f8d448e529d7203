"""The network mean alone against ridge regression, a constant and an ensemble of five networks.

    python -m benchmarks.studies.network_mean [--splits 5] [--cells smooth]

writes results/network_mean.csv: errors, NLL, CRPS, the rank correlation of σ and error, and processor seconds. Tables are the
practice ones, diabetes and the UCI sets, each with up to 2,000 rows to learn from and up to 2,000 to be judged on; and smooth
functions with hardly any noise, of more rows. The ensemble is what many would write: five networks of two layers of 128 units
with a mean and a variance, each stopped by a tenth of the rows that it has not seen. A run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import copy
import math
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.stats import spearmanr
from sklearn.datasets import load_diabetes
from sklearn.linear_model import RidgeCV
from torch import nn

from benchmarks.tables.common.practice import NUMBERS, numbers
from benchmarks.tables.common.records import append, read
from benchmarks.tables.common.splits import standard_splits
from benchmarks.tables.uci.data import load_uci
from benchmarks.tables.uci.interface import Rows, hold_out, standardised
from benchmarks.tables.uci.methods import law_of
from benchmarks.tables.uci.protocol import SETS
from gwi import GWIRegressor
from gwi._typing import Array
from gwi.core.laws.protocol import PredictiveLaw
from gwi.evaluation.regression import Law, score

MOST_ROWS, MOST_TEST = 2000, 2000
# Of the simulated functions: columns, and rows to learn from.
SMOOTH_COLUMNS, SMOOTH_ROWS = (8, 16), (1000, 4000, 16_000)
SMOOTH_TABLES, SMOOTH_TABLE_ROWS = ("sml",), (1000, 3000)
NUM_NETWORKS, WIDTH, MAX_EPOCHS, PATIENCE = 5, 128, 1000, 30

Predict = Callable[[Array], PredictiveLaw]


class Cell(NamedTuple):
    """Rows to learn from and to judge, of one split of a table."""

    kind: str
    table: str
    num_rows: int
    split: int
    train: tuple[Array, Array]
    test: tuple[Array, Array]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--cells", choices=("tables", "smooth"), nargs="+", default=("tables", "smooth"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    done = {(r["kind"], r["table"], int(r["num_rows"]), int(r["split"])) for r in read("network_mean")}
    for split in range(arguments.splits):
        for cell in (cell for kind in arguments.cells for cell in {"tables": tables, "smooth": smooth}[kind](split)):
            if cell[:4] not in done:
                append("network_mean", list(measure(cell)))
                print(*cell[:4], flush=True)


def tables(split: int) -> Iterator[Cell]:
    """Practice tables and diabetes, at random; UCI sets, in the standard splits."""
    for name in (*NUMBERS, "diabetes"):
        x, y = load_diabetes(return_X_y=True) if name == "diabetes" else numbers(name)
        order = np.random.default_rng(split).permutation(len(x))
        yield cell("practice", name, split, x, y, order[len(x) // 5 :], order[: len(x) // 5])
    for table in SETS:
        features, targets = load_uci(table)
        found = standard_splits(len(features), split + 1)[split]
        yield cell("uci", table, split, features.numpy(), targets[0].numpy(), found.train.numpy(), found.test.numpy())


def cell(kind: str, name: str, split: int, x: Array, y: Array, train: Rows, test: Rows, most: int = MOST_ROWS) -> Cell:
    """So many rows of a split, at most."""
    train, test = train[:most], test[:MOST_TEST]
    return Cell(kind, name, len(train), split, (x[train], y[train]), (x[test], y[test]))


def smooth(split: int) -> Iterator[Cell]:
    """Nearly noiseless tables: sml, and sums of waves with noise of a hundredth."""
    for name in SMOOTH_TABLES:
        x, y = numbers(name)
        order = np.random.default_rng(split).permutation(len(x))
        for size in SMOOTH_TABLE_ROWS:
            yield cell("smooth", name, split, x, y, order[MOST_TEST:], order[:MOST_TEST], size)
    for num_columns in SMOOTH_COLUMNS:
        rng = np.random.default_rng([num_columns, split])
        x = rng.uniform(-1, 1, (max(SMOOTH_ROWS) + MOST_TEST, num_columns))
        waves = np.cos(x @ rng.normal(size=(num_columns, 64)) + rng.uniform(0, 2 * np.pi, 64)) @ rng.normal(size=64)
        y = (waves - waves.mean()) / waves.std() + 0.01 * rng.normal(size=len(x))
        for size in SMOOTH_ROWS:
            order = np.arange(len(x))
            yield cell("smooth", f"waves of {num_columns} columns", split, x, y, order[MOST_TEST:], order[:MOST_TEST], size)


def measure(found: Cell) -> Iterator[dict[str, Any]]:
    """Every method on one split."""
    x, y = found.train
    for method, fit in METHODS.items():
        start = time.process_time()
        predict = fit(x, y, found.split)
        seconds = time.process_time() - start
        law = predict(found.test[0])
        scores, unit = score(law, found.test[1]), float(y.std())
        error = np.abs(found.test[1] - law.expectation())
        spread = law.quantile(0.84) - law.quantile(0.16)
        yield {
            "kind": found.kind,
            "table": found.table,
            "num_rows": found.num_rows,
            "split": found.split,
            "method": method,
            "rmse": scores.rmse / unit,
            "nll": scores.nll - math.log(unit),
            "crps": scores.crps / unit,
            "coverage_95": scores.coverage_95,
            "rank": float(spearmanr(spread, error)[0]) if np.ptp(spread) > 1e-9 * unit else 0.0,
            "cpu_seconds": seconds,
        }


def network(x: Array, y: Array, seed: int) -> Predict:
    """Ours, with r around it and our noise."""
    model = GWIRegressor("network", random_state=seed).fit(x, y)
    return lambda new: law_of(model.model_, new)


def constant(x: Array, y: Array, seed: int) -> Predict:
    """Mean and standard deviation of the targets."""
    return lambda new: Law(np.full((1, len(new)), y.mean()), np.full((1, len(new)), y.std()))


def ridge(x: Array, y: Array, seed: int) -> Predict:
    """Its penalty, and the variance of its errors, by leaving rows out one at a time."""
    data = standardised(x, y)
    model = RidgeCV(np.logspace(-3, 4, 15), store_cv_results=True).fit(data.x, data.y)
    std = math.sqrt(model.cv_results_[:, list(model.alphas).index(model.alpha_)].mean())
    return lambda new: data.law(model.predict(data.rows(new)), np.array(std))


def ensemble(x: Array, y: Array, seed: int) -> Predict:
    """Five networks with variances of their own, mixed in equal parts."""
    data = standardised(x, y)
    rows, targets = torch.from_numpy(data.x).float(), torch.from_numpy(data.y).float()
    batch_size = 32 if len(x) < 1000 else 128
    members = []
    for member in range(NUM_NETWORKS):
        torch.manual_seed(100 * seed + member)
        learn, judge = (torch.from_numpy(part) for part in hold_out(len(x), 0.1, 100 * seed + member))
        model = nn.Sequential(nn.Linear(x.shape[1], WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 2))
        members.append(stopped_early(model, rows, targets, learn, judge, batch_size))

    @torch.no_grad()
    def predict(new: Array) -> Law:
        mean, variance = torch.stack([moments(model, torch.from_numpy(data.rows(new)).float()) for model in members]).unbind(1)
        return data.law(mean.numpy(), variance.sqrt().numpy())

    return predict


def moments(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Mean and variance at rows."""
    mean, raw = model(x).unbind(-1)
    return torch.stack([mean, nn.functional.softplus(raw) + 1e-6])


def stopped_early(
    model: nn.Module, x: torch.Tensor, y: torch.Tensor, learn: torch.Tensor, judge: torch.Tensor, batch_size: int
) -> nn.Module:
    """Trained by Adam on the Gaussian NLL; as it was when the rows that it has not seen liked it best."""
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)

    def nll(index: torch.Tensor) -> torch.Tensor:
        mean, variance = moments(model, x[index])
        return ((y[index] - mean).square() / variance + variance.log()).mean() / 2

    best, kept, age = math.inf, copy.deepcopy(model.state_dict()), 0
    for _ in range(MAX_EPOCHS):
        for batch in learn[torch.randperm(len(learn))].split(batch_size):
            optimiser.zero_grad()
            nll(batch).backward()
            optimiser.step()
        with torch.no_grad():
            judged = float(nll(judge))
        age += 1
        if judged < best:
            best, kept, age = judged, copy.deepcopy(model.state_dict()), 0
        elif age >= PATIENCE:
            break
    model.load_state_dict(kept)
    return model


METHODS: dict[str, Callable[[Array, Array, int], Predict]] = {
    "network": network,
    "ridge": ridge,
    "constant": constant,
    "ensemble": ensemble,
}


if __name__ == "__main__":
    main()
