"""Whether folds that leave out regions choose better weights for gaps and tails than folds at random.

    python -m benchmarks.studies.region_folds [--splits 2]

writes results/region_folds.csv. Rows are 300 of each practice table with the middle third, or the highest fifth, of a column held
out. One fit has five folds at random and, of three columns, folds without the lowest fifth, the middle fifth and the highest
fifth. Its members are weighed by the errors at random, by both kinds (each kind's errors in units of its own least), and by the
test rows themselves, which no one can beat. "calibrated" are the scores of the default and of the default with all these folds,
which then also set noise, disagreement and tempering. A run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.model_selection import KFold

from benchmarks.tables.common.practice import NUMBERS, WITHOUT_SIGNAL, numbers
from benchmarks.tables.common.records import append, read
from benchmarks.tables.common.splits import Split, gap_splits, tail_splits
from benchmarks.tables.uci.methods import law_of
from gwi import GWIRegressor
from gwi._typing import Array
from gwi.evaluation.regression import score
from gwi.fitting.stacking import convex_weights

TABLES = tuple(name for name in NUMBERS if name not in WITHOUT_SIGNAL)
MOST_ROWS, NUM_ROWS, NUM_COLUMNS, NUM_RANDOM = 600, 300, 3, 5
FEWEST_VALUES, FEWEST_ROWS = 3, 3
# Of the errors in regions against those at random.
SHARES = (0.3, 1.0)

Folds = list[tuple[NDArray[Any], NDArray[Any]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    done = {(r["table"], r["split"]) for r in read("region_folds")}
    for place in range(arguments.splits):
        for name in TABLES:
            x, y = numbers(name)
            some = np.random.default_rng(7).permutation(len(x))[:MOST_ROWS]
            for split in splits(x[some], place):
                if (name, split.name) not in done:
                    append("region_folds", list(measure(name, x[some], y[some], split)))
                    print(name, split.name, flush=True)


def splits(x: Array, place: int) -> Iterator[Split]:
    """A gap and a tail in columns at random."""
    for found in (gap_splits(torch.from_numpy(x)), tail_splits(torch.from_numpy(x))):
        order = np.random.default_rng(1).permutation(len(found))
        yield found[order[place % len(order)]]


def measure(name: str, x: Array, y: Array, split: Split) -> Iterator[dict[str, Any]]:
    """Errors by each kind of weights, and scores of both calibrations, in units of the target's standard deviation."""
    train, test = np.random.default_rng(3).permutation(split.train.numpy())[:NUM_ROWS], split.test.numpy()
    unit = float(y[train].std())
    pairs = [*KFold(NUM_RANDOM, shuffle=True, random_state=0).split(x[train]), *regions(x[train])]
    fits = {
        "random": GWIRegressor(random_state=0).fit(x[train], y[train]),
        "random and regions": GWIRegressor(random_state=0, cv=pairs).fit(x[train], y[train]),
    }
    whole = fits["random and regions"]._fit
    assert whole is not None
    held_out, scales = whole.data.held_out, whole.data.scales
    assert held_out.fold is not None
    members = torch.stack([member.held_out[0] for member in whole.stacked.members])
    with torch.no_grad():
        rows = scales.rows(x[test], "cpu")
        at_test = torch.stack([member.mean(rows)[0] for member in whole.stacked.members])
    target = torch.from_numpy((y[test] - scales.y_centre[0]) / scales.y_scale[0])
    at_random = held_out.fold < NUM_RANDOM
    weights = {
        "random": weighed(members, held_out.y[0], at_random, 0.0),
        **{f"regions by {share:g}": weighed(members, held_out.y[0], at_random, share) for share in SHARES},
        "the test rows": convex_weights(at_test, target, torch.ones_like(target), 0.0),
    }
    for label, w in weights.items():
        error = float((target - w @ at_test).square().mean().sqrt()) * float(scales.y_scale[0]) / unit
        yield {"table": name, "split": split.name, "what": "weights", "folds": label, "rmse": error, "nll": "", "interval": ""}
    for label, model in fits.items():
        found = score(law_of(model.model_, x[test]), y[test])
        yield {
            "table": name,
            "split": split.name,
            "what": "calibrated",
            "folds": label,
            "rmse": found.rmse / unit,
            "nll": found.nll - math.log(unit),
            "interval": found.interval_score_95 / unit,
        }


def regions(x: Array) -> Folds:
    """Folds without the lowest, the middle and the highest fifth of some columns, whole values at a time."""
    folds: Folds = []
    columns = [d for d in np.random.default_rng(0).permutation(x.shape[1]) if len(np.unique(x[:, d])) >= FEWEST_VALUES]
    for column in x[:, columns[:NUM_COLUMNS]].T:
        cuts = np.quantile(column, [0.2, 0.4, 0.6, 0.8])
        parts = (column <= cuts[0], (cuts[1] <= column) & (column <= cuts[2]), column >= cuts[3])
        large_enough = [inside for inside in parts if FEWEST_ROWS <= inside.sum() <= len(x) / 2]
        folds += [(np.flatnonzero(~inside), np.flatnonzero(inside)) for inside in large_enough]
    return folds


def weighed(members: torch.Tensor, y: torch.Tensor, at_random: torch.Tensor, share: float) -> torch.Tensor:
    """Weights by errors at random and, in this share, in regions; those of each kind in units of the least that it can have."""
    weight = torch.zeros_like(y)
    for inside, part in ((at_random, 1.0), (~at_random, share)):
        best = convex_weights(members[:, inside], y[inside], torch.ones_like(y[inside]))
        least = (y[inside] - best @ members[:, inside]).square().mean()
        weight[inside] = part / (least * inside.sum())
    used = weight > 0
    return convex_weights(members[:, used], y[used], weight[used] * used.sum() / weight[used].sum())


if __name__ == "__main__":
    main()
