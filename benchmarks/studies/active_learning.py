"""Error against rows bought, by largest variance of f and at random: does r know which rows to measure next?

    python -m benchmarks.studies.active_learning [--draw]

writes results/active_learning.csv and docs/assets/figures/active_learning.{png,svg}. At most 300 rows of five tables may be
bought, 150 others judge and are never looked at. 20 rows at random, then 10 at a time to 120, three seeds; all methods start with
the same rows, and buying at random buys the same rows for all. Rules:

- variance: the ten rows with the largest variance of f (`decompose(X).epistemic`; an ensemble's is that of its members' means);
- greedy: one after the other, each time the row with the largest variance given those that were just chosen, by the joint
  covariance (`posterior(X)`): ten rows that differ, not ten neighbours; for Titsias' covariance only;
- random. S does not change the mean, so W₂'s errors are then Titsias', and are not measured again.

Models are fitted anew at every size. The networks of the ensemble have at most 600 epochs instead of 2,000, chosen on held-out
rows as elsewhere. A run that was stopped goes on where it was.
"""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.figures.style import BLUE, GREEN, GREY, PICTURES, canvas, look, save
from benchmarks.studies.ablation import without_covariance
from benchmarks.studies.loading import drawn, random_split
from benchmarks.tables.common.records import Record, append, read
from benchmarks.tables.uci.interface import Budget, Rows, gaussian
from benchmarks.tables.uci.networks import deep_ensemble
from gwi import GWIRegressor
from gwi._typing import Array
from gwi.evaluation.regression import Law

NAME = "active_learning"
TABLES = ("yacht", "energy", "boston", "concrete", "autompg")
NUM_SEEDS, START, STEP, END = 3, 20, 10, 120


class Found(NamedTuple):
    """What a fit says.

    Attributes:
        law: at the rows that judge.
        variance: of f at the rows to be bought.
        covariance: of f at these rows, and the variance of the noise; computed when asked for.
        bare: the law without r at the rows that judge, of our own fits.
    """

    law: Law
    variance: Array
    covariance: Callable[[], tuple[Array, Array]]
    bare: Law | None = None


# From rows, targets, rows to judge by, rows to be bought and a seed.
Method = Callable[[Array, Array, Array, Array, int], Found]


def ours(x: Array, y: Array, x_test: Array, pool: Array, seed: int, *, mean: str, covariance: str = "auto") -> Found:
    """A fit of ours."""
    model = GWIRegressor(mean, covariance=covariance, likelihood="gaussian", random_state=seed).fit(x, y)
    centre, std = model.model_.law(x_test)
    law = Law(centre[:1], std[:1], float(gaussian(model).degrees_of_freedom[0]))
    assert model._fit is not None
    found = model.decompose(pool)

    def joint() -> tuple[Array, Array]:
        factor = float(model.tempering_factor_[0])
        return model.posterior(pool).covariance_matrix.detach().numpy() * factor, np.asarray(found.aleatoric)

    return Found(law, np.asarray(found.epistemic), joint, without_covariance(model._fit, x_test))


def ensemble(x: Array, y: Array, x_test: Array, pool: Array, seed: int) -> Found:
    """Five networks; variance of f is how far their means are apart."""
    fitted = deep_ensemble(x, y, seed, Budget(10.0, share_of_steps=0.3))
    means = fitted.mixture(pool)
    spread = (means.mean - means.mean.mean(0)) / math.sqrt(len(means.mean))
    return Found(fitted.mixture(x_test), np.square(spread).sum(0), lambda: (spread.T @ spread, np.square(means.std).mean(0)))


def highest(found: Found, count: int) -> Rows:
    """The rows with the largest variance of f."""
    return np.argsort(-found.variance, kind="stable")[:count]


def greedy(found: Found, count: int) -> Rows:
    """Rows one after the other, each the one of largest variance given noisy targets at those before."""
    covariance, noise = found.covariance()
    covariance = covariance.copy()
    chosen: list[int] = []
    for _ in range(count):
        variance = covariance.diagonal().copy()
        variance[chosen] = -math.inf
        best = int(np.argmax(variance))
        chosen.append(best)
        column = covariance[:, best].copy()
        covariance -= np.outer(column, column) / (column[best] + noise[best])
    return np.array(chosen)


def first(found: Found, count: int) -> Rows:
    """The next rows in an order that is one of chance already."""
    return np.arange(count)


METHODS: dict[str, Method] = {
    "svgp, Titsias": partial(ours, mean="svgp", covariance="titsias"),
    "svgp, W₂": partial(ours, mean="svgp", covariance="wasserstein"),
    "network": partial(ours, mean="network"),
    "deep ensemble": ensemble,
}
RULES: dict[str, Callable[[Found, int], Rows]] = {"variance": highest, "greedy": greedy, "random": first}
LEFT_OUT = {("svgp, W₂", "greedy"), ("network", "greedy"), ("deep ensemble", "greedy"), ("svgp, W₂", "random")}


def run(table: str, method: str, rule: str, seed: int) -> Iterator[dict[str, Any]]:
    """One purchase after the other."""
    x, y = drawn(table, seed)
    shop, test = random_split(len(y))
    bought, left = shop[:START], shop[START:]
    unit = float(y[shop].std())
    start = time.process_time()
    while True:
        found = METHODS[method](x[bought], y[bought], x[test], x[left], seed)
        yield {
            "table": table,
            "method": method,
            "rule": rule,
            "seed": seed,
            "num_rows": len(bought),
            "rmse": math.sqrt(float(np.square(y[test] - found.law.expectation()).mean())) / unit,
            "nll": -float(found.law.log_density(y[test]).mean()) - math.log(unit),
            "nll_without_r": math.nan if found.bare is None else -float(found.bare.log_density(y[test]).mean()) - math.log(unit),
            "cpu_seconds": round(time.process_time() - start, 2),
        }
        count = min(STEP, END - len(bought), len(left))
        if count <= 0:
            return
        chosen = RULES[rule](found, count)
        bought, left = np.concatenate([bought, left[chosen]]), np.delete(left, chosen)


def mean_curve(records: list[Record], method: str, rule: str, column: str = "rmse", table: str | None = None) -> dict[int, float]:
    """Geometric mean over tables and seeds of an error, arithmetic mean of an NLL, by the number of rows."""
    found: dict[int, list[float]] = {}
    for r in records:
        if (r["method"], r["rule"]) == (method, rule) and table in (None, r["table"]):
            found.setdefault(int(r["num_rows"]), []).append(float(r[column]))
    if column == "rmse":
        return {count: math.exp(float(np.mean(np.log(values)))) for count, values in sorted(found.items())}
    return {count: float(np.mean(values)) for count, values in sorted(found.items())}


def draw() -> None:
    records = read(NAME)
    styles = {"variance": (BLUE, "o", "-"), "greedy": (GREEN, "s", "-"), "random": (GREY, "^", "--")}
    with look():
        figure = canvas(10.5, 3.1)
        for axes, method in zip(figure.subplots(1, len(METHODS), sharey=True), METHODS, strict=True):
            for rule, (colour, marker, dash) in styles.items():
                # At random the errors of both forms of S are the same.
                twin = "svgp, Titsias" if (method, rule) == ("svgp, W₂", "random") else method
                if curve := mean_curve(records, twin, rule):
                    axes.plot(list(curve), list(curve.values()), color=colour, marker=marker, ls=dash, ms=4, lw=1.4, label=rule)
            axes.set(title=method, xlabel="rows bought", yscale="log")
            axes.set_yticks([0.2, 0.3, 0.4, 0.6, 0.8], ["0.2", "0.3", "0.4", "0.6", "0.8"])
            axes.minorticks_off()
        figure.axes[0].set_ylabel("RMSE / sd of the target\ngeometric mean of five tables")
        figure.axes[0].legend(title="bought by", title_fontsize=8.5)
        save(figure, NAME, PICTURES)


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if "--draw" not in sys.argv:
        done = {(r["table"], r["method"], r["rule"], int(r["seed"])) for r in read(NAME)}
        for seed in range(NUM_SEEDS):
            for table in TABLES:
                for method in METHODS:
                    for rule in RULES:
                        if (method, rule) not in LEFT_OUT and (table, method, rule, seed) not in done:
                            append(NAME, list(run(table, method, rule, seed)))
                print(table, seed, flush=True)
    draw()


if __name__ == "__main__":
    main()
