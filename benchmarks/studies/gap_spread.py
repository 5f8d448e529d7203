"""Whether other rules for the spread would do better in gaps and tails than what held-out rows at random ask for.

    python -m benchmarks.studies.gap_spread [--splits 2]

writes results/gap_spread.csv: NLL, CRPS, interval score and coverage on practice tables with the middle third, or the highest
fifth, of a column held out, and at random; all of one fit, with the same mean. *members without weight* count a tenth in the
disagreement, by the inverse of their squared error. *r by regions* multiplies r by the factor, at least one, that a GP's errors
ask for when the lowest fifth, the middle third or the highest fifth of a column is left out. *twice r* and *shorter
length-scales* (by 0.7) do what their name says. *r not tempered* has tempering below one for the noise alone. A run that was
stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy.optimize import brentq, minimize_scalar
from torch import Tensor

from benchmarks.studies.region_folds import TABLES, regions, splits
from benchmarks.tables.common.practice import numbers
from benchmarks.tables.common.records import append, read
from benchmarks.tables.common.splits import Split
from gwi import GWIRegressor
from gwi._typing import Array
from gwi.core.kernels import SparsePosteriorKernel, with_lengthscales_times
from gwi.core.linalg import cholesky, solve_lower
from gwi.core.measures import kernel_matrix, kernel_variance
from gwi.core.noise import noise_features
from gwi.core.prior import PriorFit
from gwi.evaluation.regression import Law, score
from gwi.fitting.held_out_covariance import CovarianceSolver
from gwi.fitting.regression import RegressionTask, choose_noise
from gwi.fitting.task import Fit
from gwi.parts import Covariance

MOST_ROWS, NUM_ROWS = 900, 600
# Of the disagreement, what is shared out among all members; degrees of freedom of errors in regions, and how many nats a factor
# of e on r costs: half of one.
SHARE, DEGREES = 0.1, 5.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    done = {(r["table"], r["split"]) for r in read("gap_spread")}
    for place in range(arguments.splits):
        for name in TABLES:
            x, y = numbers(name)
            some = np.random.default_rng(11).permutation(len(x))[:MOST_ROWS]
            for split in (*splits(x[some], place), at_random(len(some), place)):
                if (name, split.name) not in done:
                    append("gap_spread", list(measure(name, x[some], y[some], split)))
                    print(name, split.name, flush=True)


def at_random(num_rows: int, place: int) -> Split:
    """A fifth held out."""
    order = torch.from_numpy(np.random.default_rng(place).permutation(num_rows))
    return Split(f"random-{place}", order[num_rows // 5 :], order[: num_rows // 5])


def measure(name: str, x: Array, y: Array, split: Split) -> Iterator[dict[str, Any]]:
    """Scores of each rule on one split."""
    train, test = np.random.default_rng(3).permutation(split.train.numpy())[:NUM_ROWS], split.test.numpy()
    fit = GWIRegressor(random_state=0).fit(x[train], y[train])._fit
    assert fit is not None
    scales = fit.data.scales
    target = (y[test] - scales.y_centre[0]) / scales.y_scale[0]
    for rule, law in laws(fit, scales.rows(x[test], "cpu")):
        found = score(law, target)
        yield {
            "table": name,
            "split": split.name,
            "rule": rule,
            "nll": found.nll,
            "crps": found.crps,
            "interval": found.interval_score_95,
            "coverage_95": found.coverage_95,
        }


def laws(fit: Fit, x: Tensor) -> Iterator[tuple[str, Law]]:
    """What each rule predicts at the rows of x."""
    stacked, prior = fit.stacked, fit.prior.fit
    members = torch.stack([member.held_out[0] for member in stacked.members])
    with torch.no_grad():
        new = torch.stack([member.mean(x)[0] for member in stacked.members])
    held_out_weights, weights = stacked.held_out_weights[0], stacked.weights[0]
    precision = (members - fit.data.held_out.y[0]).square().mean(1).reciprocal()
    shared = SHARE * precision / precision.sum()
    held, at_new = variances(fit, prior, x)
    shorter = replace(prior, kernel=with_lengthscales_times(prior.kernel, 0.7))
    factor = max(1.0, factor_by_regions(fit, prior))
    calibration = Calibration(fit, x, held_out_weights, weights @ new)
    known = ((members - calibration.held_out) ** 2, (new - calibration.mean) ** 2)

    def spread(extra: Tensor | float, kept: float) -> tuple[Tensor, Tensor]:
        parts = (kept * held_out_weights + torch.as_tensor(extra).reshape(-1, 1), kept * weights[:, None])
        return (parts[0] * known[0]).sum(0), ((parts[1] + torch.as_tensor(extra).reshape(-1, 1)) * known[1]).sum(0)

    usual = spread(0.0, 1.0)
    yield "default", calibration.law((held, at_new), usual)
    yield "members without weight", calibration.law((held, at_new), spread(shared, 1 - SHARE))
    yield "r by regions", calibration.law((factor * held, factor * at_new), usual)
    yield "twice r", calibration.law((2 * held, 2 * at_new), usual)
    yield "shorter length-scales", calibration.law(variances(fit, shorter, x), usual)
    yield "r not tempered", calibration.law((held, at_new), usual, tempers_r=False)


class Calibration:
    """Noise, tails and tempering by the held-out rows for any r and disagreement."""

    def __init__(self, fit: Fit, x: Tensor, held_out_weights: Tensor, mean: Tensor):
        held_out = fit.data.held_out
        members = torch.stack([member.held_out[0] for member in fit.stacked.members])
        self.held_out, self.mean, self.weight = (held_out_weights * members).sum(0), mean, held_out.weight
        self.errors = held_out.y[0] - self.held_out
        self.features = noise_features(held_out.x, self.held_out[None])
        self.new_features = noise_features(x, mean[None])

    def law(self, r: tuple[Tensor, Tensor], spread: tuple[Tensor, Tensor], *, tempers_r: bool = True) -> Law:
        """What is predicted at the new rows."""
        noise = choose_noise(self.errors, r[0], self.features, self.weight, "auto", spread[0])
        shape = RegressionTask()._shape(self.errors / (r[0] + noise.unseen).sqrt(), self.weight, None, True, None)
        with torch.no_grad():
            others = noise.noise(self.new_features) + noise.disagreement_weight * spread[1]
        factor, of_r = shape.factor, shape.factor
        if not tempers_r and factor < 1:
            wanted, of_r = float((factor * (r[0] + noise.unseen)).log().mean()), 1.0
            # The factor of the rest that leaves the average spread at held-out rows as it is.
            factor = brentq(lambda part: float((r[0] + part * noise.unseen).log().mean()) - wanted, 1e-6, 1.0)
        std = (of_r * r[1] + factor * others).sqrt()
        return Law(self.mean.numpy()[None], std.numpy()[None], shape.degrees_of_freedom)


@torch.no_grad()
def variances(fit: Fit, prior: PriorFit, x: Tensor) -> tuple[Tensor, Tensor]:
    """r at the held-out rows and at new rows."""
    z = fit.prior.inducing_points
    solver = CovarianceSolver(fit.data, prior, z, Covariance())
    covariance = solver.solve(RegressionTask().noise_levels(fit.data, solver, fit.stacked))[0]
    s = covariance.whitened_covariance
    return covariance.variance, kernel_variance(SparsePosteriorKernel(prior.kernel, z, s), x)


@torch.no_grad()
def factor_by_regions(fit: Fit, prior: PriorFit) -> float:
    """c that suits N(0, c r + σ²) best, at rows of regions that a GP has not seen; each region counts as one row."""
    x, y, noise = fit.data.x, fit.data.y[0], prior.noise_variance
    errors = []
    for learned, judged in regions(x.numpy()):
        k = kernel_matrix(prior.kernel, x[learned])
        root = cholesky(k + noise * torch.eye(len(k), dtype=k.dtype), name="k(X, X) + σ²").factor
        phi = solve_lower(root, kernel_matrix(prior.kernel, x[learned], x[judged]))
        mean = phi.mT @ solve_lower(root, y[learned][:, None])[:, 0]
        r = (kernel_variance(prior.kernel, x[judged]) - phi.square().sum(0)).clamp_min(0)
        errors.append(((y[judged] - mean).square().numpy(), r.numpy()))

    def objective(log_factor: float) -> float:
        total = log_factor**2 / 2
        for square, r in errors:
            variance = math.exp(log_factor) * r + noise
            parts = np.log(variance) / 2 + (DEGREES + 1) / 2 * np.log1p(square / variance / (DEGREES - 2))
            total += float(parts.mean())
        return total

    return math.exp(minimize_scalar(objective, bounds=(-2.0, 6.0), method="bounded").x)


if __name__ == "__main__":
    main()
