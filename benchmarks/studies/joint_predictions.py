"""NLL of five neighbouring rows together: what correlations of the predictive distribution are worth.

    python -m benchmarks.studies.joint_predictions [--draw]

writes results/joint_predictions.csv and docs/assets/figures/joint_predictions.{png,svg}. At most 300 training rows of five
tables, three splits at random and three with the middle third of a column held out. A group is a test row and its four nearest
test rows.
Each method is scored three ways, per row and for targets in units of their standard deviation:

- nll_marginal: rows one by one, as if they were independent;
- nll_common: together without correlations. For normal laws that is the same. A multivariate t has one scale for all its rows,
  so that one large error makes others likely, even where its covariance is diagonal;
- nll_joint: together with all correlations.

Ours is the multivariate t that `sample_y` draws from, with the degrees of freedom of the fit and the covariance of
`predict(return_cov=True)`. An ensemble's law is the mixture of its members, each independent over rows: members that disagree
correlate rows. A run that was stopped goes on where it was.
"""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import gpytorch
import numpy as np
import torch
from scipy.linalg import solve_triangular
from scipy.special import gammaln, logsumexp
from sklearn.neighbors import NearestNeighbors

from benchmarks.figures.style import BLUE, GREY, PICTURES, VERMILION, canvas, look, save
from benchmarks.studies.ablation import finished, without_covariance
from benchmarks.studies.loading import drawn, gap_split, random_split
from benchmarks.tables.common.records import Record, append, read
from benchmarks.tables.uci.interface import Budget, Rows, gaussian, standardised
from benchmarks.tables.uci.networks import deep_ensemble
from benchmarks.tables.uci.peers import trained_gp
from gwi import GWIRegressor
from gwi._typing import Array
from gwi.evaluation.regression import Law
from gwi.fitting.regression import RegressionTask
from gwi.models.regression import RegressionModel
from gwi.parts import Covariance, Gaussian

NAME = "joint_predictions"
TABLES = ("yacht", "energy", "boston", "concrete", "autompg")
KINDS = ("random", "gap")
NUM_SPLITS, NUM_GROUPS, NUM_NEIGHBOURS, PEER_SECONDS = 3, 60, 4, 10.0
METHODS = (
    "gwi",
    "gwi, W₂",
    "gwi, Titsias",
    "gwi, no r",
    "svgp, W₂",
    "svgp, Titsias",
    "exact GP",
    "deep ensemble",
)


class Scores(NamedTuple):
    """Log densities of one group: rows one by one, together without correlations, together."""

    marginal: float
    common: float
    joint: float


# From the places of rows among the test rows to scores.
Judge = Callable[[Rows], Scores]


def joint_log_density(errors: Array, covariance: Array, degrees_of_freedom: float = math.inf) -> float:
    """log p of a multivariate normal or t law with this covariance (not scale matrix) at a distance from its mean."""
    size, d = len(errors), degrees_of_freedom
    factor = np.linalg.cholesky(covariance)
    squared = float(np.square(solve_triangular(factor, errors, lower=True)).sum())
    log_det = 2 * float(np.log(factor.diagonal()).sum())
    if math.isinf(d):
        return -(squared + log_det + size * math.log(2 * math.pi)) / 2
    constant = float(gammaln((d + size) / 2) - gammaln(d / 2)) - size / 2 * math.log((d - 2) * math.pi)
    return constant - log_det / 2 - (d + size) / 2 * math.log1p(squared / (d - 2))


def of_covariance(errors: Array, covariance: Array, degrees_of_freedom: float = math.inf) -> Judge:
    """Scores of a law that is one normal or t."""

    def judge(group: Rows) -> Scores:
        here, joint = errors[group], covariance[np.ix_(group, group)]
        variance = joint.diagonal()
        alone = sum(
            joint_log_density(here[i : i + 1], joint[i : i + 1, i : i + 1], degrees_of_freedom) for i in range(len(group))
        )
        return Scores(
            alone,
            joint_log_density(here, np.diag(variance), degrees_of_freedom),
            joint_log_density(here, joint, degrees_of_freedom),
        )

    return judge


def of_mixture(law: Law, y: Array) -> Judge:
    """Scores of a mixture whose components are independent over rows; its joint law has all there is."""
    parts = -np.square((y - law.mean) / law.std) / 2 - np.log(law.std) - math.log(2 * math.pi) / 2
    alone = law.log_density(y)

    def judge(group: Rows) -> Scores:
        marginal = float(alone[group].sum())
        joint = float(logsumexp(parts[:, group].sum(1))) - math.log(len(parts))
        return Scores(marginal, marginal, joint)

    return judge


def groups_of(x: Array, x_test: Array, seed: int) -> list[Rows]:
    """Test rows drawn at random, each with its nearest test rows for inputs in units of the training rows."""
    rows = standardised(x, np.arange(len(x), dtype=float)).rows(x_test)
    starts = np.random.default_rng(seed).permutation(len(rows))[:NUM_GROUPS]
    # A row with copies need not be its own nearest: it is taken first, then others.
    near = NearestNeighbors(n_neighbors=NUM_NEIGHBOURS + 1).fit(rows).kneighbors(rows[starts], return_distance=False)
    return [
        np.array([start, *[i for i in line if i != start][:NUM_NEIGHBOURS]]) for start, line in zip(starts, near, strict=True)
    ]


def of_model(model: RegressionModel, x: Array, y: Array) -> Judge:
    """Scores of a fit of ours."""
    return of_covariance(y - model.mean(x)[0], model.covariance(x)[0], float(model.degrees_of_freedom[0]))


def judges(x: Array, y: Array, x_test: Array, y_test: Array, seed: int) -> Iterator[tuple[str, Judge, float, float]]:
    """Every method: its name, its judge, its degrees of freedom and its seconds; variants of a fit share its means."""
    start = time.process_time()

    def seconds() -> float:
        return time.process_time() - start

    base = GWIRegressor(likelihood="gaussian", random_state=seed).fit(x, y)
    model = gaussian(base)
    yield "gwi", of_model(model, x_test, y_test), float(model.degrees_of_freedom[0]), seconds()
    task = RegressionTask(Gaussian(), "auto")
    for label, covariance in (("gwi, W₂", Covariance("wasserstein")), ("gwi, Titsias", Covariance("titsias"))):
        start = time.process_time()
        model = finished(base, task, covariance)
        yield label, of_model(model, x_test, y_test), float(model.degrees_of_freedom[0]), seconds()
    start = time.process_time()
    assert base._fit is not None
    law = without_covariance(base._fit, x_test)
    none = of_covariance(y_test - law.mean[0], np.diag(np.square(law.std[0])), law.degrees_of_freedom)
    yield "gwi, no r", none, law.degrees_of_freedom, seconds()
    for label, kind in (("svgp, W₂", "wasserstein"), ("svgp, Titsias", "titsias")):
        start = time.process_time()
        model = gaussian(GWIRegressor("svgp", covariance=kind, likelihood="gaussian", random_state=seed).fit(x, y))
        yield label, of_model(model, x_test, y_test), float(model.degrees_of_freedom[0]), seconds()
    start = time.process_time()
    data, gp = trained_gp(x, y, Budget(PEER_SECONDS))
    with torch.no_grad(), gpytorch.settings.max_cholesky_size(10_000):
        found = gp.likelihood(gp(torch.from_numpy(data.rows(x_test))))
        mean, covariance = found.mean.numpy(), found.covariance_matrix.numpy()
    errors = y_test - (mean * data.y_scale + data.y_centre)
    yield "exact GP", of_covariance(errors, covariance * data.y_scale**2), math.inf, seconds()
    start = time.process_time()
    ensemble = deep_ensemble(x, y, seed, Budget(PEER_SECONDS)).mixture(x_test)
    yield "deep ensemble", of_mixture(ensemble, y_test), math.inf, seconds()


def measure(table: str, kind: str, split: int) -> Iterator[dict[str, Any]]:
    """Every method on one split."""
    x, y = drawn(table, split)
    train, test = random_split(len(y)) if kind == "random" else gap_split(x, split)
    groups = groups_of(x[train], x[test], split)
    size, unit = len(groups) * (NUM_NEIGHBOURS + 1), math.log(y[train].std())
    for label, judge, degrees, seconds in judges(x[train], y[train], x[test], y[test], split):
        marginal, common, joint = (-np.sum([judge(group) for group in groups], axis=0) / size - unit).tolist()
        yield {
            "table": table,
            "kind": kind,
            "split": split,
            "method": label,
            "num_groups": len(groups),
            "degrees_of_freedom": degrees,
            "nll_marginal": marginal,
            "nll_common": common,
            "nll_joint": joint,
            "cpu_seconds": round(seconds, 2),
        }


def averages(records: list[Record], kind: str, method: str, table: str | None = None) -> Scores:
    """NLL of a method over splits, of one table or over tables."""
    found = [r for r in records if r["kind"] == kind and r["method"] == method and table in (None, r["table"])]
    return Scores(*(float(np.mean([float(r[f"nll_{part}"]) for r in found])) for part in Scores._fields))


def draw() -> None:
    records = read(NAME)
    with look():
        figure = canvas(9.5, 3.8)
        for axes, kind in zip(figure.subplots(1, 2, sharey=True), KINDS, strict=True):
            for place, method in enumerate(reversed(METHODS)):
                found = averages(records, kind, method)
                axes.plot([found.marginal, found.joint], [place, place], color=GREY, lw=1)
                axes.plot(found.marginal, place, "o", color=VERMILION, mfc="white", ms=7, label="rows one by one")
                axes.plot(found.common, place, "|", color=GREY, ms=11, label="together, no correlations")
                axes.plot(found.joint, place, "o", color=BLUE, ms=5, label="together")
            axes.set_yticks(range(len(METHODS)), reversed(METHODS))
            title = "random splits" if kind == "random" else "gaps: middle third of a column"
            axes.set(title=title, xlabel="NLL per row, mean of five tables")
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles[:3], labels[:3], loc="outside lower center", ncols=3)
        save(figure, NAME, PICTURES)


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if "--draw" not in sys.argv:
        done = {(r["table"], r["kind"], int(r["split"])) for r in read(NAME)}
        for split in range(NUM_SPLITS):
            for table in TABLES:
                for kind in KINDS:
                    if (table, kind, split) not in done:
                        append(NAME, list(measure(table, kind, split)))
                        print(table, kind, split, flush=True)
    draw()


if __name__ == "__main__":
    main()
