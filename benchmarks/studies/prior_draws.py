"""Tables drawn from the prior of each likelihood with known parameters: does what is fitted cover f and y as often as it says?

    python -m benchmarks.studies.prior_draws [--sets 300] [--likelihoods poisson gamma]

writes results/prior_draws.csv, a row a set and likelihood: the share of test rows whose f, and whose y, is in its 95 % interval,
and whether those of the first test row do. In each set f is drawn from a Gaussian process on 70 rows in two dimensions and 40
test rows, y from the likelihood given f. The kernel's length-scales and all else are then fitted as always, with mean="svgp" and
one dispersion for all rows. Of levels only the distance of f from a threshold in standard deviations of the noise means anything:
it is judged in place of f. The place of a count or level in its distribution is drawn by lot inside its jump. Rows of one set err
together, so the error is that of a mean over sets. A run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.tables.common.records import append, read
from gwi import GWIRegressor
from gwi._typing import Array
from gwi.core.laws.protocol import pit
from gwi.models.linked import LinkedModel
from gwi.parts.likelihoods import LIKELIHOODS

NAME = "prior_draws"
NUM_ROWS, NUM_TEST, NUM_FEATURES, LENGTHSCALE, WIDTH = 70, 40, 2, 1.0, 2.0
# Sets that are written together.
BATCH = 10
NORMAL_95, LOW, HIGH = 1.959964, 0.025, 0.975
# Of f, and of the noise of likelihoods that have one.
CENTRE, SCALE, NOISE, SHARE, SIZE, PRECISION = 1.0, 0.8, 0.4, 4.0, 3.0, 12.0
THRESHOLDS = np.array([-0.3, 1.0, 2.3])
Draw = Callable[[Array, np.random.Generator], Array]


def _censored(f: Array, rng: np.random.Generator) -> Array:
    """Log-normal times, a third of them known by a lower bound only."""
    time, end = np.exp(f + NOISE * rng.standard_normal(f.shape)), np.exp(CENTRE + 0.5 + rng.standard_normal(f.shape))
    return np.stack([np.minimum(time, end), np.where(time <= end, time, np.inf), time], axis=-1)


def _levels(f: Array, rng: np.random.Generator) -> Array:
    return np.searchsorted(THRESHOLDS, f + NOISE * rng.standard_normal(f.shape)).astype(np.float64)


def _beta(f: Array, rng: np.random.Generator) -> Array:
    mean = 1 / (1 + np.exp(-(f - CENTRE)))
    return np.clip(rng.beta(PRECISION * mean, PRECISION * (1 - mean)), 1e-9, 1 - 1e-9)


# y given f; counts have the mean e^f.
DRAWS: dict[str, Draw] = {
    "gaussian": lambda f, rng: f + NOISE * rng.standard_normal(f.shape),
    "student-t": lambda f, rng: f + NOISE * rng.standard_t(4, f.shape),
    "log-normal": lambda f, rng: np.exp(f + NOISE * rng.standard_normal(f.shape)),
    "gamma": lambda f, rng: np.exp(f) * rng.gamma(SHARE, 1 / SHARE, f.shape),
    "poisson": lambda f, rng: rng.poisson(np.exp(f)).astype(np.float64),
    "negative-binomial": lambda f, rng: rng.negative_binomial(SIZE, SIZE / (SIZE + np.exp(f))).astype(np.float64),
    "beta": _beta,
    "ordinal": _levels,
    "few-valued": _levels,
    "censored": _censored,
    "robust": lambda f, rng: f + NOISE * rng.standard_normal(f.shape),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=300)
    parser.add_argument("--likelihoods", nargs="+", choices=list(DRAWS), default=list(DRAWS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    done = {(r["likelihood"], int(r["set"])) for r in read(NAME)}
    for start in range(0, arguments.sets, BATCH):
        for name in arguments.likelihoods:
            wanted = [i for i in range(start, min(start + BATCH, arguments.sets)) if (name, i) not in done]
            if wanted:
                append(NAME, [{"likelihood": name, "set": i, **measure(name, i)} for i in wanted])
        print(start + BATCH, "sets", flush=True)


def drawn(seed: int) -> tuple[Array, Array, np.random.Generator]:
    """Rows, f at them, and the generator for y."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-WIDTH, WIDTH, (NUM_ROWS + NUM_TEST, NUM_FEATURES))
    square = np.square(x[:, None] - x).sum(-1)
    values, vectors = np.linalg.eigh(np.exp(-square / (2 * LENGTHSCALE**2)))
    f = vectors @ (np.sqrt(np.maximum(values, 0)) * rng.standard_normal(len(x)))
    return x, CENTRE + SCALE * f, rng


def measure(name: str, seed: int) -> dict[str, float]:
    """Which test rows are covered."""
    x, f, rng = drawn(seed)
    y, train, test = DRAWS[name](f, rng), slice(NUM_ROWS), slice(NUM_ROWS, None)
    known, true = (y[train, :2], y[test, 2]) if name == "censored" else (y[train], y[test])
    part = LIKELIHOODS[name]()
    if "noise" in part.get_params():
        part.set_params(noise="constant")
    start = time.process_time()
    model = GWIRegressor("svgp", kernel="rbf", likelihood=part, random_state=seed).fit(x[train], known)
    mean, std = latent(model.model_, x[test])
    wanted = f[test]
    if name in ("ordinal", "few-valued"):
        # The middle one of the levels that were seen.
        family: Any = getattr(model.model_, "family", None)
        place = len(family.thresholds) // 2
        level = THRESHOLDS[int(family.values[place])]
        noise = np.sqrt(model.model_.parts(x[test])[3][0])
        mean, std, wanted = (family.thresholds[place] - mean) / noise, std / noise, (level - wanted) / NOISE
    if name == "beta":
        wanted = wanted - CENTRE
    in_f = np.abs(wanted - mean) <= NORMAL_95 * std
    places = pit(model.predict_dist(x[test]).laws[0], true, seed)
    in_y = (places >= LOW) & (places <= HIGH)
    return {
        "f_covered": float(in_f.mean()),
        "y_covered": float(in_y.mean()),
        "first_f": float(in_f[0]),
        "first_y": float(in_y[0]),
        "f_error": float(np.sqrt(np.square(wanted - mean).mean())),
        "f_std": float(np.sqrt(np.square(std).mean())),
        "cpu_seconds": time.process_time() - start,
    }


def latent(model: Any, x: Array) -> tuple[Array, Array]:
    """Mean and standard deviation of f, tempered, on the scale of the link: of log-normal targets and times their logarithm."""
    mean, variance, disagreement, *_ = (part[0] for part in model.parts(x))
    factor = float(model.tempering_factor[0])
    spread = factor * variance + disagreement if isinstance(model, LinkedModel) else factor * (variance + disagreement)
    linked = isinstance(model, LinkedModel)
    discrete = linked and model.family.is_discrete
    scale, centre = (1.0, 0.0) if discrete else (float(model.scales.y_scale[0]), float(model.scales.y_centre[0]))
    if linked and model.family.name == "gamma":
        # A unit of y is a shift of its logarithm.
        scale, centre = 1.0, math.log(scale)
    if linked and model.family.name == "beta":
        scale, centre = 1.0, 0.0
    return mean * scale + centre, np.sqrt(spread) * scale


if __name__ == "__main__":
    main()
