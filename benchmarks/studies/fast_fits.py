"""Seconds of a default fit and what they buy, at growing numbers of rows, beside the peers that are known to be quick.

    python -m benchmarks.studies.fast_fits [--methods gwi NGBoost ...] [--tables ...] [--rows ...] [--label "gwi before"]

writes results/fast_fits.csv: processor seconds of the fit alone, and scores at up to 2,000 other rows, NLL and CRPS in units of
the target's standard deviation. Everything runs in one thread. Another version of gwi, first on the path, writes under its own
label. A run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import cast

import numpy as np
import torch
from sklearn.model_selection import KFold, cross_val_predict

from benchmarks.tables.common.practice import NUMBERS, numbers
from benchmarks.tables.common.records import append, read
from benchmarks.tables.uci import networks, peers
from benchmarks.tables.uci.data import UCIName, load_uci
from benchmarks.tables.uci.interface import Budget, Fitted
from benchmarks.tables.uci.methods import law_of
from gwi import GWIRegressor
from gwi._typing import Array
from gwi.core.laws.protocol import PredictiveLaw
from gwi.evaluation.regression import Law, score

SIZES, MOST_TEST = (100, 300, 1000, 3000, 8000), 2000
# Whose seconds are compared. The first two are also UCI sets: nothing is chosen by their scores.
# Processor seconds that a peer whose steps are ours to choose may take.
PEER_SECONDS = 20.0
TIMED = ("kin8nm", "power", "skillcraft", "sml", "parkinsons")
Predict = Callable[[Array], Law | PredictiveLaw]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--tables", nargs="+", default=list(TIMED))
    parser.add_argument("--rows", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--label", default="gwi", help="of our own fits")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    tables = list(NUMBERS) if arguments.tables == ["practice"] else arguments.tables
    done = {(r["method"], r["table"], int(r["num_rows"]), int(r["draw"])) for r in read("fast_fits")}
    for draw, size, table in product(range(arguments.draws), arguments.rows, tables):
        x, y = table_of(table)
        if len(x) < size + 100:
            continue
        for method in arguments.methods:
            key = (arguments.label if method == "gwi" else method, table, size, draw)
            if key not in done:
                names = dict(zip(("method", "table", "num_rows", "draw"), key, strict=True))
                append("fast_fits", [names | measure(METHODS[method], x, y, size, draw)])
                print(*key, flush=True)


def table_of(name: str) -> tuple[Array, Array]:
    """Rows and targets."""
    if name in NUMBERS:
        return numbers(name)
    found = load_uci(cast(UCIName, name))
    return found[0].numpy(), found[1][0].numpy()


def measure(fit: Callable[[Array, Array, int], Predict], x: Array, y: Array, size: int, draw: int) -> dict[str, float]:
    """One fit, and how good it is at other rows."""
    order = np.random.default_rng([draw, size]).permutation(len(x))
    train, test = order[:size], order[size : size + MOST_TEST]
    unit = float(y[train].std())
    start = time.process_time()
    predict = fit(x[train], y[train], draw)
    seconds = time.process_time() - start
    found = score(predict(x[test]), y[test])
    return {
        "cpu_seconds": seconds,
        "nll": found.nll - math.log(unit),
        "crps": found.crps / unit,
        "rmse": found.rmse / unit,
        "coverage_95": found.coverage_95,
    }


def gwi(x: Array, y: Array, seed: int, max_time: float | None = None) -> Predict:
    """Our default, with a bound on its time or without."""
    model = GWIRegressor(random_state=seed, max_time=max_time).fit(x, y)
    return lambda new: law_of(model.model_, new)


def ngboost(x: Array, y: Array, seed: int) -> Predict:
    """As it comes: 500 stages of small steps."""
    from ngboost import NGBRegressor

    centre, unit = y.mean(), y.std()
    model = NGBRegressor(random_state=seed, verbose=False).fit(x, (y - centre) / unit)

    def predict(new: Array) -> Law:
        found = model.pred_dist(new)
        return Law(centre + unit * found.loc[None], unit * found.scale[None])

    return predict


def catboost(x: Array, y: Array, seed: int) -> Predict:
    """Its uncertainty switch, else as it comes."""
    from catboost import CatBoostRegressor

    model = CatBoostRegressor(
        loss_function="RMSEWithUncertainty", random_seed=seed, verbose=False, thread_count=1, allow_writing_files=False
    )
    model.fit(x, y)

    def predict(new: Array) -> Law:
        mean, variance = model.predict(new, prediction_type="RMSEWithUncertainty").T
        return Law(mean[None], np.sqrt(variance)[None])

    return predict


def lightgbm(x: Array, y: Array, seed: int) -> Predict:
    """As it comes, with the spread that its errors in five folds have."""
    from lightgbm import LGBMRegressor

    model = LGBMRegressor(random_state=seed, n_jobs=1, verbose=-1)
    errors = y - cross_val_predict(model, x, y, cv=KFold(5, shuffle=True, random_state=seed))
    std = float(np.sqrt(np.mean(errors**2)))
    model.fit(x, y)

    def predict(new: Array) -> Law:
        mean = np.asarray(model.predict(new))
        return Law(mean[None], np.full((1, len(mean)), std))

    return predict


def peer(fit: Callable[[Array, Array, int, Budget], Fitted]) -> Callable[[Array, Array, int], Predict]:
    """A peer of the UCI tables, its steps chosen inside the time of a peer."""
    return lambda x, y, seed: fit(x, y, seed, Budget(PEER_SECONDS)).predict


METHODS: dict[str, Callable[[Array, Array, int], Predict]] = {
    "gwi": gwi,
    **{f"gwi, {seconds} s": partial(gwi, max_time=seconds) for seconds in (2, 5, 10, 30, 120)},
    "NGBoost": ngboost,
    "CatBoost, uncertainty": catboost,
    "LightGBM, noise of folds": lightgbm,
    "deep ensemble": peer(networks.deep_ensemble),
    "GPyTorch SVGP": peer(peers.svgp),
}


if __name__ == "__main__":
    main()
