"""W₂'s and Titsias' S where every row is an inducing point: coverage in a gap of the model's own prior, NLL on practice tables.

    python -m benchmarks.studies.gap_covariance prior [first draw] [step]
    python -m benchmarks.studies.gap_covariance tables

write results/gap_covariance.csv: functions from an RBF prior with 40 rows either side of a gap of 2.9 length-scales, and random
and gap splits of practice tables. A run that was stopped goes on where it was; no UCI table is read.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.neighbors import KNeighborsRegressor

from benchmarks.tables.common.records import append, read
from benchmarks.tables.uci.methods import law_of
from gwi import GWIRegressor
from gwi._typing import Array
from gwi.core.kernels import default_kernel
from gwi.core.measures import kernel_matrix
from gwi.evaluation.regression import score

NUM_DRAWS, SIDE, GAP, NOISE_STD = 200, 40, 2.9, 0.2
MEANS: dict[str, list[Any]] = {"svgp": ["svgp"], "svgp, neighbours": ["svgp", KNeighborsRegressor(5)]}
KINDS = ("wasserstein", "titsias")
TABLES, MOST_ROWS = ("autompg", "autos", "machine", "servo", "stock", "pendulum", "forest"), 250


def drawn(seed: int) -> tuple[Array, Array, Array, Array]:
    """Rows either side of the gap and their targets; new rows over both sides and the gap, and theirs."""
    rng = np.random.default_rng(seed)
    side = rng.uniform(0, 3, 2 * SIDE) + np.repeat([0.0, 3.0 + GAP], SIDE)
    new = np.linspace(0, 6 + GAP, 120)
    x = np.concatenate([side, new])[:, None]
    k = kernel_matrix(default_kernel(1, lengthscale=1.0), torch.from_numpy(x)).detach().numpy()
    values, vectors = np.linalg.eigh(k)
    y = vectors @ (np.sqrt(np.maximum(values, 0)) * rng.standard_normal(len(x))) + NOISE_STD * rng.standard_normal(len(x))
    return x[: 2 * SIDE], y[: 2 * SIDE], x[2 * SIDE :], y[2 * SIDE :]


def exact(model: GWIRegressor, x: Array, y: Array, x_new: Array) -> tuple[Array, Array]:
    """Mean and standard deviation of y by the exact GP posterior with the hyper-parameters of a fit."""
    assert model._fit is not None
    fit, scales = model._fit.prior.fit, model.model_.scales
    z, new = scales.rows(x, "cpu"), scales.rows(x_new, "cpu")
    with torch.no_grad():
        factor = torch.linalg.cholesky(kernel_matrix(fit.kernel, z) + fit.noise_variance * torch.eye(len(z), dtype=z.dtype))
        phi = torch.linalg.solve_triangular(factor, kernel_matrix(fit.kernel, z, new), upper=False)
        mean = phi.mT @ torch.linalg.solve_triangular(factor, scales.targets(y[:, None], "cpu").mT, upper=False)
        variance = kernel_matrix(fit.kernel, new).diagonal() - phi.square().sum(0) + fit.noise_variance
    return (mean[:, 0] * scales.y_scale[0] + scales.y_centre[0]).numpy(), (variance.sqrt() * scales.y_scale[0]).numpy()


def of_prior(draw: int) -> Iterator[dict[str, Any]]:
    """Every mean and S, and the exact posterior, on one draw."""
    x, y, x_new, y_new = drawn(draw)
    in_gap = (x_new[:, 0] > 3) & (x_new[:, 0] < 3 + GAP)
    for name, means in MEANS.items():
        for kind in KINDS:
            model = GWIRegressor(means, covariance=kind, random_state=0).fit(x, y)
            low, high = model.predict_interval(x_new).T
            yield row("prior", draw, name, kind, (low <= y_new) & (y_new <= high), in_gap, nll(model, x_new, y_new))
    mean, std = exact(model, x, y, x_new)
    z = (y_new - mean) / std
    yield row("prior", draw, "exact", "exact", np.abs(z) < 1.96, in_gap, float(np.mean(z**2 / 2 + np.log(std) + 0.919)))


def of_table(name: str, draw: int) -> Iterator[dict[str, Any]]:
    """A kernel mean and neighbours, stacked, on a random split and a gap split of a table."""
    table = np.loadtxt(Path(os.environ["GWI_DATA"]) / f"practice/numbers/{name}.csv.gz", delimiter=",", skiprows=1)
    rng = np.random.default_rng(draw)
    some = table[rng.permutation(len(table))[:MOST_ROWS]]
    x, y = some[:, :-1], some[:, -1]
    order = np.argsort(x[:, rng.integers(x.shape[1])], kind="stable")
    third = len(y) // 3
    gap = np.zeros(len(y), bool)
    gap[order[third : 2 * third]] = True
    for split, held in (("random", np.arange(len(y)) < third), ("gap", gap)):
        for kind in KINDS:
            model = GWIRegressor(MEANS["svgp, neighbours"], covariance=kind, random_state=0).fit(x[~held], y[~held])
            low, high = model.predict_interval(x[held]).T
            inside = (low <= y[held]) & (y[held] <= high)
            unit = float(np.log(y[~held].std()))
            yield row(f"{name}, {split}", draw, "svgp, neighbours", kind, inside, held[held], nll(model, x[held], y[held]) - unit)


def nll(model: GWIRegressor, x: Array, y: Array) -> float:
    return score(law_of(model.model_, x), y).nll


def row(table: str, draw: int, means: str, kind: str, inside: NDArray[Any], in_gap: NDArray[Any], found: float) -> dict[str, Any]:
    return {
        "table": table,
        "draw": draw,
        "means": means,
        "covariance": kind,
        "coverage": round(float(inside.mean()), 4),
        "coverage_in_gap": round(float(inside[in_gap].mean()), 4),
        "nll": round(found, 4),
    }


def main(what: str, first: int = 0, step: int = 1) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    done = {(r["table"], int(r["draw"])) for r in read("gap_covariance")}
    if what == "prior":
        for draw in range(first, NUM_DRAWS, step):
            if ("prior", draw) not in done:
                append("gap_covariance", list(of_prior(draw)))
        return
    for draw in range(5):
        for name in TABLES:
            if (f"{name}, gap", draw) not in done:
                append("gap_covariance", list(of_table(name, draw)))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
