"""Whether intervals hold what they promise on small tables, and what a wider or narrower law would do.

    python -m benchmarks.studies.optimism

writes results/optimism.csv: the default and a GP alone on tables drawn from the training rows of the first standard split of
eight UCI sets, judged at other training rows; test rows are never touched. One record a fit and a candidate c of the factor
1 + c/V on the predictive variance. A run that was stopped goes on where it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from benchmarks.tables.common.records import append, read
from benchmarks.tables.common.splits import standard_splits
from benchmarks.tables.uci.data import UCIName, load_uci
from benchmarks.tables.uci.interface import gaussian
from gwi import GWIRegressor
from gwi.core.distributions import STACK_OPTIMISM
from gwi.evaluation.regression import Law, score

SETS: tuple[UCIName, ...] = ("concrete", "energy", "wine_red", "kin8nm", "power", "protein", "naval", "boston")
MEANS = ("auto", "svgp")
SIZES, NUM_DRAWS, FEWEST_TEST, MAX_TEST = (100, 250, 500), 4, 150, 2000
CANDIDATES = (0.0, 10.0, 20.0, 30.0)
NAME = "optimism"


def main() -> None:
    torch.set_num_threads(1)
    done = {(r["set"], int(r["num_rows"]), int(r["draw"]), r["means"]) for r in read(NAME)}
    for draw in range(NUM_DRAWS):
        for size in SIZES:
            for name in SETS:
                for means in MEANS:
                    if (name, size, draw, means) in done:
                        continue
                    if records := list(measure(name, size, draw, means)):
                        append(NAME, records)
                        print(name, size, draw, means, flush=True)


def measure(name: UCIName, size: int, draw: int, means: str) -> Iterator[dict[str, Any]]:
    """One fit, and its scores with every candidate; nothing where too few rows are left to judge by."""
    features, targets = load_uci(name)
    x, y = features.numpy(), targets[0].numpy()
    known = standard_splits(len(x), 1)[0].train
    order = known[torch.randperm(len(known), generator=torch.Generator().manual_seed(draw + 50))].numpy()
    train, test = order[:size], order[size : size + MAX_TEST]
    if len(test) < FEWEST_TEST:
        return
    model = GWIRegressor(means, likelihood="gaussian", random_state=0).fit(x[train], y[train])
    mean, std = model.model_.law(x[test])
    weights = [weight for member in model.summary_.members for weight in member.weights]
    built_in = STACK_OPTIMISM if np.count_nonzero(np.array(weights) > 1e-6) > 1 else 0.0
    law = Law(mean[:1], std[:1], float(gaussian(model).degrees_of_freedom[0]))
    for candidate in CANDIDATES:
        factor = (1 + candidate / size) / (1 + built_in / size)
        found = score(replace(law, std=std[:1] * factor**0.5), y[test])
        yield {
            "set": name,
            "num_rows": size,
            "draw": draw,
            "means": means,
            "built_in": built_in,
            "optimism": candidate,
            "nll": found.nll - float(np.log(y[train].std())),
            "coverage_95": found.coverage_95,
        }


if __name__ == "__main__":
    main()
