"""What the weights of a stack, the GP by itself, the evidence and the inducing points each change.

    python -m benchmarks.studies.one_rule [--draws 3] [--sizes large]

writes results/one_rule.csv: NLL, CRPS and RMSE in units of the target's standard deviation on practice tables, at random with 60
to 1,000 rows, in gaps and tails with 300, and at random with 2,500. Fits of up to 1,000 rows share their means: *plain squares*
weighs them as least squares does, *by likelihood* as the default does, *with the GP* is the default. With 2,500 rows, of smooth
simulated functions too, *as it was* has the collapsed bound, 300 inducing points and plain squares; *exact evidence* is the
default before the bound of more rows may go on from there, *one prior* before the covariance may have another prior than the
mean. A run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch

from benchmarks.studies.network_mean import SMOOTH_ROWS, smooth
from benchmarks.studies.region_folds import splits
from benchmarks.tables.common.practice import NUMBERS, numbers
from benchmarks.tables.common.records import append, read
from benchmarks.tables.uci.interface import gaussian
from benchmarks.tables.uci.methods import law_of
from gwi import GWIRegressor
from gwi._typing import Array
from gwi.core.inducing import choose_inducing_points
from gwi.evaluation.regression import score
from gwi.fitting import hyperparameters, pipeline, regression
from gwi.fitting.held_out_covariance import variance_before_noise
from gwi.fitting.pipeline import finish
from gwi.fitting.stacking import convex_weights
from gwi.fitting.task import Fit, StackedMean
from gwi.models.regression import RegressionModel

SIZES, LARGE, MOST_TEST = (60, 100, 200, 1000), 2500, 1000
# Of which a region is held out, and how many then are left to learn from.
SHIFTED_ROWS, SHIFTED_TRAIN = 600, 300
# Of the weights, before.
OLD_SHRINKAGE = 0.1


class Cell(NamedTuple):
    """Rows to learn from and to judge."""

    where: str
    table: str
    num_rows: int
    draw: int
    train: tuple[Array, Array]
    test: tuple[Array, Array]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--sizes", choices=("small", "large"), nargs="+", default=("small", "large"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    done = {(r["where"], r["table"], int(r["num_rows"]), int(r["draw"])) for r in read("one_rule")}
    for draw in range(arguments.draws):
        for cell in cells(draw):
            if cell[:4] not in done and ("large" if cell.num_rows == LARGE else "small") in arguments.sizes:
                append("one_rule", list(measure(cell)))
                print(*cell[:4], flush=True)


def cells(draw: int) -> Iterator[Cell]:
    """Tables at random, with a region held out, and large ones."""
    for name in NUMBERS:
        x, y = numbers(name)
        order = np.random.default_rng([draw, 1]).permutation(len(x))
        for size in (*SIZES, LARGE):
            # One draw of the large ones; a quarter of the rows at least must be left to judge.
            if 4 * size <= 3 * len(x) and (draw == 0 or size < SIZES[-1]):
                train, test = order[:size], order[size : size + MOST_TEST]
                yield Cell("random", name, size, draw, (x[train], y[train]), (x[test], y[test]))
        some = np.random.default_rng(7).permutation(len(x))[:SHIFTED_ROWS]
        for split in splits(x[some], draw):
            train = np.random.default_rng(3).permutation(some[split.train.numpy()])[:SHIFTED_TRAIN]
            test = some[split.test.numpy()]
            yield Cell(split.name.split("-")[0], name, len(train), draw, (x[train], y[train]), (x[test], y[test]))
    for found in smooth(draw) if draw == 0 else ():
        if found.num_rows == SMOOTH_ROWS[1] and found.table.startswith("waves"):
            (x, y), (x_new, y_new) = found.train, found.test
            yield Cell("random", found.table, LARGE, draw, (x[:LARGE], y[:LARGE]), (x_new[:MOST_TEST], y_new[:MOST_TEST]))


def measure(cell: Cell) -> Iterator[dict[str, Any]]:
    """Scores of each way on one cell."""
    x, y = cell.train
    unit = float(y.std())
    for way, model in (large if cell.num_rows == LARGE else small)(x, y, cell.draw):
        found = score(law_of(model, cell.test[0]), cell.test[1])
        yield {
            "where": cell.where,
            "table": cell.table,
            "num_rows": cell.num_rows,
            "draw": cell.draw,
            "way": way,
            "nll": found.nll - math.log(unit),
            "crps": found.crps / unit,
            "rmse": found.rmse / unit,
            "interval": found.interval_score_95 / unit,
            "coverage_95": found.coverage_95,
        }


def small(x: Array, y: Array, seed: int) -> Iterator[tuple[str, RegressionModel]]:
    """The same means, weighed in each way."""
    model = GWIRegressor(likelihood="gaussian", random_state=seed).fit(x, y)
    fit = model._fit
    assert fit is not None
    task, held_out = regression.RegressionTask(), fit.data.held_out
    with mock.patch.object(regression, "convex_weights", partial(convex_weights, shrinkage=OLD_SHRINKAGE)):
        plain = task.stack(fit.stacked.members, held_out)
    variance = variance_before_noise(fit.data, fit.prior.fit, fit.prior.inducing_points)
    likely = task.reweighed(task.stack(fit.stacked.members, held_out), held_out, variance)
    for way, stacked in (("plain squares", plain), ("by likelihood", likely)):
        yield way, pipeline.finish(fit.data, task, fit.prior, stacked, model._options(), fit.embedding).model
    yield "with the GP", gaussian(model)


def large(x: Array, y: Array, seed: int) -> Iterator[tuple[str, RegressionModel]]:
    """The default, and how it was."""
    with as_it_was():
        yield "as it was", gaussian(GWIRegressor(covariance="wasserstein", likelihood="gaussian", random_state=seed).fit(x, y))
    with mock.patch.object(hyperparameters, "widened", lambda prior, *_, **__: (prior, None)):
        yield "exact evidence", gaussian(GWIRegressor(likelihood="gaussian", random_state=seed).fit(x, y))
    tried: list[Fit] = []

    def recorded(*arguments: Any) -> Fit:
        tried.append(finish(*arguments))
        return tried[-1]

    with mock.patch.object(pipeline, "finish", recorded):
        model = GWIRegressor(likelihood="gaussian", random_state=seed).fit(x, y)
    yield "one prior", tried[0].model
    yield "default", gaussian(model)


@contextmanager
def as_it_was() -> Iterator[None]:
    """Fits above 2,000 rows with the collapsed bound, 300 inducing points and plain squares; W₂'s S is asked for by name."""
    prior_for = hyperparameters.prior_for

    def with_bound(kernel: Any, x: Any, y: Any, weight: Any, z: Any, generator: Any, **others: Any) -> Any:
        z = choose_inducing_points(x, hyperparameters.SPARSE_INDUCING, "kmeans", generator=generator)
        return prior_for(kernel, x, y, weight, z, generator, **others)

    def unchanged(task: Any, stacked: StackedMean, *_: Any) -> StackedMean:
        return stacked

    with (
        mock.patch.object(hyperparameters, "prior_for", with_bound),
        mock.patch.object(hyperparameters, "explains", return_value=True),
        mock.patch.object(hyperparameters, "refined", lambda prior, *_, **__: prior),
        mock.patch.object(hyperparameters, "widened", lambda prior, *_, **__: (prior, None)),
        mock.patch.object(regression.RegressionTask, "reweighed", unchanged),
        mock.patch.object(regression, "convex_weights", partial(convex_weights, shrinkage=OLD_SHRINKAGE)),
    ):
        yield


if __name__ == "__main__":
    main()
