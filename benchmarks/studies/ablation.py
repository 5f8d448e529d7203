"""What each part of the estimator does: the same means with every covariance, tempered or not, and both kernel fits.

    python -m benchmarks.studies.ablation [--sets boston concrete power] [--within]

writes results/ablation.csv: test NLL and coverage on standard and gap splits. Means are trained once a split. With --within test
rows are never touched: splits are made inside the training rows of the first standard split, which is how defaults were chosen;
that record is results/ablation_within.csv. A run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch

from benchmarks.tables.common.records import append, read
from benchmarks.tables.common.splits import Split, gap_splits, standard_splits
from benchmarks.tables.uci.data import UCIName, load_uci
from benchmarks.tables.uci.interface import gaussian
from gwi import GWIRegressor
from gwi._typing import Array
from gwi.core.distributions import DEGREES, choose_tails, log_density, quantile
from gwi.core.noise import noise_features
from gwi.evaluation.regression import Law
from gwi.fitting.hyperparameters import SPARSE_INDUCING
from gwi.fitting.pipeline import finish
from gwi.fitting.regression import RegressionTask, choose_noise
from gwi.fitting.task import Fit
from gwi.models.regression import RegressionModel
from gwi.parts import Covariance, Gaussian, NoiseKind

# Each with whether means that disagree add to the variance.
COVARIANCES: dict[str, tuple[Covariance, bool]] = {
    "S = 0": (Covariance("zero"), True),
    "W₂², β = 1": (Covariance(weight=1.0), True),
    "W₂², β_match": (Covariance("wasserstein"), True),
    "W₂², β_match, no disagreement": (Covariance("wasserstein"), False),
    "W₂², β_match, kernel on residuals": (Covariance("wasserstein", kernel_fit="residuals"), True),
    "Titsias": (Covariance("titsias"), True),
}
NUM_STANDARD: dict[UCIName, int] = {"boston": 5, "concrete": 5, "power": 3}
WITHIN: tuple[UCIName, ...] = ("boston", "concrete", "energy", "wine_red", "power")
MAX_GAPS = 5
TEMPERINGS: tuple[Literal["auto"] | None, ...] = (None, "auto")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+")
    parser.add_argument("--within", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    name = "ablation_within" if arguments.within else "ablation"
    done = {(record["set"], record["split"]) for record in read(name)}
    for table in arguments.sets or (WITHIN if arguments.within else NUM_STANDARD):
        features, targets = load_uci(table)
        for split in splits(table, features, arguments.within):
            if (table, split.name) not in done:
                records = list(measure(features.numpy(), targets[0].numpy(), split))
                append(name, [{"set": table, "split": split.name} | record for record in records])
                print(table, split.name, "done", flush=True)


def splits(table: UCIName, features: torch.Tensor, within: bool) -> list[Split]:
    """Those of the record."""
    if not within:
        return [*standard_splits(len(features), NUM_STANDARD[table]), *gap_splits(features)[:MAX_GAPS]]
    rows = standard_splits(len(features), 1)[0].train
    inner = [*standard_splits(len(rows), 2), *gap_splits(features[rows])[:3]]
    return [replace(split, train=rows[split.train], test=rows[split.test]) for split in inner]


def measure(x: Array, y: Array, split: Split) -> Iterator[dict[str, Any]]:
    """Every variant on one split."""
    train, test = split.train.numpy(), split.test.numpy()
    base = GWIRegressor(likelihood="gaussian", random_state=0).fit(x[train], y[train])
    fit = base._fit
    assert fit is not None
    for label, (covariance, disagreement) in COVARIANCES.items():
        for tempering in TEMPERINGS:
            task = RegressionTask(Gaussian(tails="normal"), tempering, disagreement)
            mean, std = finished(base, task, covariance).law(x[test])
            yield scores(label, tempering, y[test], mean[0], std[0])
    for tempering in TEMPERINGS:
        law = without_covariance(fit, x[test], tempered=tempering is not None, tails=False)
        yield scores("none", tempering, y[test], law.mean[0], law.std[0])
    mean, std = base.model_.law(x[test])
    yield scores("the default", "auto", y[test], mean[0], std[0], float(gaussian(base).degrees_of_freedom[0]))


def finished(model: GWIRegressor, task: RegressionTask, covariance: Covariance | None = None) -> RegressionModel:
    """The means of a fit with other noise and tempering, or another covariance, around them."""
    fit = model._fit
    assert fit is not None
    options = replace(model._options(), covariance=covariance or Covariance())
    prior = fit.prior
    if options.covariance.kind == "wasserstein" and prior.inducing_points is not fit.data.x:
        # As many as W₂ has by itself.
        prior = replace(prior, inducing_points=prior.inducing_points[:SPARSE_INDUCING])
    return finish(fit.data, task, prior, fit.stacked, options, fit.embedding).model


def without_covariance(fit: Fit, x: Array, *, noise: NoiseKind = "auto", tempered: bool = True, tails: bool = True) -> Law:
    """The predictive law when r is zero everywhere and the noise is fitted to that."""
    held_out, stacked, scales = fit.data.held_out, fit.stacked, fit.data.scales
    residuals = held_out.y[0] - stacked.held_out[0]
    features = noise_features(held_out.x, stacked.held_out)
    found = choose_noise(residuals, torch.zeros_like(residuals), features, held_out.weight, noise)
    z_scores = (residuals / found.unseen.sqrt()).numpy()
    shape = choose_tails(z_scores, held_out.weight.numpy(), factor=None if tempered else 1.0, degrees=DEGREES if tails else ())
    with torch.no_grad():
        rows = scales.rows(x, "cpu")
        mean = torch.einsum("jk,kjn->jn", stacked.weights, torch.stack([member.mean(rows) for member in stacked.members]))
        std = (found.noise(noise_features(rows, mean)) * shape.factor).sqrt()
    mean_ = mean[:1].numpy() * scales.y_scale[0] + scales.y_centre[0]
    return Law(mean_, std[None].numpy() * scales.y_scale[0], shape.degrees_of_freedom)


def scores(
    label: str, tempering: str | None, y: Array, mean: Array, std: Array, degrees_of_freedom: float = math.inf
) -> dict[str, Any]:
    """One record."""
    nll = np.log(std) - log_density((y - mean) / std, degrees_of_freedom)
    return {
        "covariance": label,
        "tempered": int(tempering is not None),
        "nll": float(nll.mean()),
        "median_nll": float(np.median(nll)),
        "rmse": math.sqrt(float(np.square(y - mean).mean())),
        "coverage_95": float((np.abs(y - mean) <= quantile(np.array(0.975), degrees_of_freedom) * std).mean()),
        "mean_std": float(std.mean()),
    }


if __name__ == "__main__":
    main()
