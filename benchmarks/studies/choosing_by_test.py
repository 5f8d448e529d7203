"""What choosing by test NLL does to a reported number: thirty fits, each on a split of its own, and the best of them.

    python -m benchmarks.studies.choosing_by_test

writes results/test_selection.csv: the test NLL of every trial. Nothing but the split and the seed differs between the trials, so
the best of them is better than their mean by luck alone. A run that was stopped goes on where it was.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from benchmarks.tables.common.records import append, read
from benchmarks.tables.uci.data import UCIName, load_uci
from gwi import GWIRegressor

NUM_TRIALS = 30
SETS: tuple[UCIName, ...] = ("boston", "yacht")
# The paper's GWI-net with a tenth of its steps, and the exact GP's mean, which is quick.
METHODS: dict[str, dict[str, Any]] = {
    "GWI-net (paper), 250 steps": {"mean": "network", "preset": "paper", "max_steps": 250},
    'GWIRegressor(mean="svgp")': {"mean": "svgp"},
}


def main() -> None:
    torch.set_num_threads(1)
    done = {(r["set"], r["method"], int(r["trial"])) for r in read("test_selection")}
    for table in SETS:
        features, targets = load_uci(table)
        x, y = features.numpy(), targets[0].numpy()
        for trial in range(NUM_TRIALS):
            order = np.random.default_rng(trial).permutation(len(x))
            count = round(0.9 * len(x))
            train, test = order[:count], order[count:]
            for method, arguments in METHODS.items():
                if (table, method, trial) in done:
                    continue
                model = GWIRegressor(random_state=trial, **arguments).fit(x[train], y[train])
                nll = float(model.nll(x[test], y[test]))
                append("test_selection", [{"set": table, "method": method, "trial": trial, "nll": nll}])
                print(table, method, trial, round(nll, 3), flush=True)


if __name__ == "__main__":
    main()
