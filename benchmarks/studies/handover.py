"""What it brings that kernel means hand over to the others where r is larger than anywhere at home.

    python -m benchmarks.studies.handover [--splits 3]

writes results/handover.csv: scores of the default, and of the same fit with weights that are the same at every row, on practice
tables with the middle third, or the highest fifth, of a column held out. At held-out rows the two agree by construction. A run
that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from benchmarks.studies.region_folds import TABLES, splits
from benchmarks.tables.common.practice import numbers
from benchmarks.tables.common.records import append, read
from benchmarks.tables.common.splits import Split
from benchmarks.tables.uci.interface import gaussian
from gwi import GWIRegressor
from gwi._typing import Array
from gwi.core.kernels import DisagreementKernel
from gwi.core.means import ConvexMean
from gwi.core.measures import GaussianMeasure
from gwi.evaluation.regression import Law, score
from gwi.models.regression import RegressionModel

MOST_ROWS, NUM_ROWS = 900, 600


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    done = {(r["table"], r["split"]) for r in read("handover")}
    for place in range(arguments.splits):
        for name in TABLES:
            x, y = numbers(name)
            some = np.random.default_rng(11).permutation(len(x))[:MOST_ROWS]
            for split in splits(x[some], place):
                if (name, split.name) not in done:
                    append("handover", list(measure(name, x[some], y[some], split)))
                    print(name, split.name, flush=True)


def measure(name: str, x: Array, y: Array, split: Split) -> Iterator[dict[str, Any]]:
    """Scores of both on one split."""
    train, test = np.random.default_rng(3).permutation(split.train.numpy())[:NUM_ROWS], split.test.numpy()
    model = gaussian(GWIRegressor(likelihood="gaussian", random_state=0).fit(x[train], y[train]))
    for weights, variant in (("by r", model), ("the same everywhere", without_handover(model))):
        mean, std = variant.law(x[test])
        found = score(Law(mean, std, float(variant.degrees_of_freedom[0])), y[test])
        yield {
            "table": name,
            "split": split.name,
            "weights": weights,
            "rmse": found.rmse / float(y[train].std()),
            "nll": found.nll,
            "crps": found.crps,
            "interval": found.interval_score_95,
            "coverage_95": found.coverage_95,
        }


def without_handover(model: RegressionModel) -> RegressionModel:
    """The same model with the weights that its means have at home."""
    mean, kernel = model.posterior.mean, model.posterior.kernel
    if not isinstance(mean, ConvexMean) or mean.handover is None:
        return model
    inner = kernel.kernel if isinstance(kernel, DisagreementKernel) else kernel
    same = GaussianMeasure(ConvexMean(list(mean.means), mean.weights), inner)
    return replace(model, posterior=same.requires_grad_(False).eval())


if __name__ == "__main__":
    main()
