"""How near Shapley values of the variance with few background rows are to those with many, and what a row costs.

    python -m benchmarks.studies.explanations [--only background|cost]

writes results/explanation_background.csv: on practice tables, of test rows (the three with the highest outlier score and five at
random), the sum of absolute differences of parts from those with 150 training rows as background, over the sum of their absolute
values. Background rows are inducing points: at random, by herding as `explain` takes them, or the nearest to centres of clusters.
And results/explanation_cost.csv: processor milliseconds of a call for one row, on one thread, with 300 inducing points, the
median over rows; and the standard error of the largest part, relative to it.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from sklearn.cluster import KMeans
from torch import Tensor

from benchmarks.tables.common.practice import numbers
from benchmarks.tables.common.records import write
from gwi import Covariance, GWIRegressor
from gwi._typing import Array
from gwi.estimators.explaining import herded

TABLES = ("autompg", "stock", "servo", "sml", "pumadyn32nm")
NUM_ROWS, NUM_REFERENCE, NUM_RANDOM, NUM_FAR = 400, 150, 5, 3
COUNTS = (4, 8, 16, 32)
# Evaluations for one row: enough for the background to be the larger error.
MANY = {"svgp": 40_000, "auto": 12_000}
COST_COLUMNS, NUM_TIMED = (4, 8, 20, 100, 1000), 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("background", "cost"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if arguments.only != "cost":
        write("explanation_background", backgrounds())
    if arguments.only != "background":
        write("explanation_cost", costs())


def nearest_to_centres(z: Tensor, count: int) -> list[int]:
    """The points nearest to the centres of as many clusters."""
    centres = torch.from_numpy(KMeans(count, n_init=3, random_state=0).fit(z.numpy()).cluster_centers_)
    return torch.cdist(centres, z).argmin(1).unique().tolist()


def at_random(z: Tensor, count: int) -> list[int]:
    """Some."""
    return np.random.default_rng(0).choice(len(z), min(count, len(z)), replace=False).tolist()


def far_apart(z: Tensor, count: int) -> list[int]:
    """One after another the point farthest from those taken, from the one nearest to the middle on."""
    found = [int((z - z.mean(0)).square().sum(1).argmin())]
    while len(found) < min(count, len(z)):
        found.append(int(torch.cdist(z, z[found]).amin(1).argmax()))
    return found


RULES: dict[str, Callable[[Tensor, int], list[int]]] = {
    "at random": at_random,
    "centres": nearest_to_centres,
    "far apart": far_apart,
    "herded": herded,
}


def backgrounds() -> Iterator[dict[str, Any]]:
    """The error of each rule with each number of rows."""
    for name in TABLES:
        x, y = numbers(name)
        order = np.random.default_rng(0).permutation(len(x))
        train, test = order[:NUM_ROWS], order[NUM_ROWS : 2 * NUM_ROWS]
        if len(test) < NUM_RANDOM:
            train, test = order[: len(x) // 2], order[len(x) // 2 :]
        for mean, many in MANY.items():
            model = GWIRegressor(mean, likelihood="gaussian", random_state=0, verbose=0).fit(x[train], y[train])
            far = np.argsort(-model.ood_score(x[test]))
            rows = x[test][np.unique([*far[:NUM_FAR], *far[np.linspace(NUM_FAR, len(far) - 1, NUM_RANDOM).astype(int)]])]
            exact = _parts(model, rows, x[train][:NUM_REFERENCE], many)
            z = model.posterior_.kernel.inducing_points.detach()
            for rule, choose in RULES.items():
                for count in COUNTS:
                    back = model.model_.scales.original_rows(z[choose(z, count)].numpy())
                    gap = np.abs(_parts(model, rows, back, many) - exact).sum(1) / np.abs(exact).sum(1)
                    yield {"table": name, "columns": x.shape[1], "mean": mean, "rule": rule, "rows": count, "error": gap.mean()}


def _parts(model: GWIRegressor, rows: Array, background: Array, many: int) -> Array:
    return model.explain(rows, background=background, max_evaluations=many).parts


def costs() -> Iterator[dict[str, Any]]:
    """Milliseconds, and the error of orders drawn at random."""
    for num_columns in COST_COLUMNS:
        rng = np.random.default_rng(0)
        x = rng.normal(size=(600, num_columns))
        y = x[:, 0] + np.sin(2 * x[:, 1]) + x[:, 2] * x[:, 3] + 0.1 * rng.normal(size=len(x))
        few = Covariance(num_inducing=300, inducing_points="random")
        for mean in ("svgp", "auto"):
            model = GWIRegressor(mean, covariance=few, likelihood="gaussian", random_state=0, verbose=0).fit(x, y)
            rows = 1.5 * rng.normal(size=(NUM_TIMED, num_columns))
            model.explain(rows[:1])
            seconds = []
            for row in rows:
                start = time.process_time()
                model.explain(row)
                seconds.append(time.process_time() - start)
            found = model.explain(rows)
            yield {
                "columns": num_columns,
                "mean": mean,
                "inducing": len(model.posterior_.kernel.inducing_points),
                "background": found.background,
                "evaluations": found.num_evaluations / NUM_TIMED,
                "milliseconds": 1000 * float(np.median(seconds)),
                "error": float(np.mean(found.standard_errors.max(1) / np.abs(found.parts).max(1))),
            }


if __name__ == "__main__":
    main()
