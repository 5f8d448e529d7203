"""The default on 30 to 200 rows against ridge regression, an exact GP and CatBoost, each by itself.

    pip install -e .[boosters]
    python -m benchmarks.studies.few_rows [--draws 20]

writes results/few_rows.csv: NLL and CRPS in units of the target's standard deviation, at up to 1,000 other rows of eight practice
tables. All methods have the same rows. A run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from gpytorch.mlls import ExactMarginalLogLikelihood

from benchmarks.studies.network_mean import Predict, ridge
from benchmarks.tables.common.practice import numbers
from benchmarks.tables.common.records import append, read
from benchmarks.tables.uci.interface import hold_out, standardised
from benchmarks.tables.uci.methods import law_of
from gwi import GWIRegressor
from gwi._typing import Array
from gwi.evaluation.regression import Law, score

TABLES = ("autompg", "stock", "pendulum", "forest", "skillcraft", "sml", "parkinsons", "pumadyn32nm")
SIZES, MOST_TEST = (30, 60, 100, 200), 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=20)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    done = {(r["table"], int(r["num_rows"]), int(r["draw"]), r["method"]) for r in read("few_rows")}
    for draw in range(arguments.draws):
        for table in TABLES:
            for size in SIZES:
                left = [method for method in METHODS if (table, size, draw, method) not in done]
                if left:
                    append("few_rows", list(measure(table, size, draw, left)))
            print(table, draw, flush=True)


def measure(table: str, size: int, draw: int, methods: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Some methods on one draw of rows."""
    x, y = numbers(table)
    order = np.random.default_rng([draw, size]).permutation(len(x))
    train, test = order[:size], order[size : size + MOST_TEST]
    unit = float(y[train].std())
    for method in methods:
        start = time.process_time()
        law = METHODS[method](x[train], y[train], draw)(x[test])
        scores = score(law, y[test])
        yield {
            "table": table,
            "num_rows": size,
            "draw": draw,
            "method": method,
            "nll": scores.nll - math.log(unit),
            "crps": scores.crps / unit,
            "rmse": scores.rmse / unit,
            "coverage_95": scores.coverage_95,
            "cpu_seconds": time.process_time() - start,
        }


def default(x: Array, y: Array, seed: int) -> Predict:
    """Ours."""
    model = GWIRegressor(random_state=seed).fit(x, y)
    return lambda new: law_of(model.model_, new)


def gp(x: Array, y: Array, seed: int) -> Predict:
    """BoTorch's exact GP as it comes: inputs in a unit cube, hyper-priors that grow with the number of columns."""
    data = standardised(x, y)
    model = SingleTaskGP(
        torch.from_numpy(x),
        torch.from_numpy(data.y)[:, None],
        outcome_transform=None,
        input_transform=Normalize(x.shape[1]),
    )
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))

    @torch.no_grad()
    def predict(new: Array) -> Law:
        found = model.posterior(torch.from_numpy(new), observation_noise=True)
        return data.law(found.mean[:, 0].numpy(), found.variance[:, 0].sqrt().numpy())

    return predict


def catboost(x: Array, y: Array, seed: int) -> Predict:
    """CatBoost with a mean and a variance: the number of trees on held-out rows, then all rows."""
    from catboost import CatBoostRegressor

    def model(trees: int) -> Any:
        return CatBoostRegressor(
            loss_function="RMSEWithUncertainty",
            iterations=trees,
            random_seed=seed,
            thread_count=1,
            verbose=False,
            allow_writing_files=False,
        )

    learn, judge = hold_out(len(x), 0.2, seed)
    tried = model(1000).fit(x[learn], y[learn], eval_set=(x[judge], y[judge]), early_stopping_rounds=50)
    fitted = model(max(tried.get_best_iteration() + 1, 1)).fit(x, y)

    def predict(new: Array) -> Law:
        mean, variance = fitted.predict(new).T
        return Law(mean[None], np.sqrt(variance)[None])

    return predict


METHODS: dict[str, Callable[[Array, Array, int], Predict]] = {"gwi": default, "ridge": ridge, "GP": gp, "CatBoost": catboost}


if __name__ == "__main__":
    main()
