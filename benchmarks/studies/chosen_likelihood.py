"""What likelihood="auto" chooses: beside each likelihood that the target allows, and on tables whose likelihood is known.

    python -m benchmarks.studies.chosen_likelihood [--known]

writes results/chosen_likelihood.csv: fits to 400 rows of each practice table whose target leaves a choice, and of each UCI set,
judged on at most 600 others, two draws or more; the UCI sets are reported, and nothing is chosen by them. With --known it writes
results/known_likelihood.csv: 30 tables drawn from a known likelihood, and what was chosen. A run that was stopped goes on where
it was.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from benchmarks.tables.common.records import append, read
from gwi import GWIRegressor
from gwi._typing import Array

MOST_ROWS, MOST_JUDGED, NUM_DRAWS = 400, 600, 2
# Of tables with few rows to judge by more draws.
DRAWS_OF_FEW = {"grouped/sleepstudy": 6, "grouped/orthodont": 6, "time/airline_passengers": 6}
LIKELIHOODS = ("auto", "gaussian", "log-normal", "gamma", "negative-binomial", "few-valued", "beta")
# The target of each practice table that leaves a choice, and columns that give it away or name the row.
PRACTICE = {
    "counts/quine_absence": ("Days", ()),
    "counts/doctor_visits": ("visits", ("nvisits", "ovisits", "novisits", "emergency")),
    "mixed/mpg": ("mpg", ("name",)),
    "mixed/penguins": ("body_mass_g", ()),
    "mixed/storms": ("wind", ("name", "category", "status")),
    "mixed/ames": ("Sale_Price", ()),
    "mixed/diamonds": ("price", ()),
    "grouped/sleepstudy": ("Reaction", ()),
    "grouped/orthodont": ("distance", ()),
    "time/airline_passengers": ("Passengers", ()),
    "time/daily_min_temperature": ("Temp", ()),
}
UCI = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine_red", "yacht")
# Sizes of tables of a known likelihood, and how many of each are drawn.
KNOWN_ROWS, DRAWS_OF_EACH = 300, 3
FAMILIES = (
    "gaussian",
    "gaussian, positive",
    "student-t",
    "log-normal",
    "gamma",
    "poisson",
    "negative-binomial",
    "beta",
    "few-valued",
    "censored",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--known", action="store_true", help="tables whose likelihood is known")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if parser.parse_args().known:
        known()
        return
    done = {(r["table"], int(r["draw"]), r["likelihood"]) for r in read("chosen_likelihood")}
    for kind, names in (("practice", tuple(PRACTICE)), ("UCI", UCI)):
        for draw, name in product(range(max(NUM_DRAWS, *DRAWS_OF_FEW.values())), names):
            for likelihood in LIKELIHOODS if draw < DRAWS_OF_FEW.get(name, NUM_DRAWS) else ():
                if (name, draw, likelihood) not in done:
                    append("chosen_likelihood", [measure(kind, name, draw, likelihood)])
                    print(kind, name, draw, likelihood, flush=True)


def table_of(kind: str, name: str) -> tuple[pd.DataFrame, Array]:
    """Rows, and the target."""
    folder = Path(os.environ["GWI_DATA"])
    frame = pd.read_csv(folder / ("practice" if kind == "practice" else "uci") / f"{name}.csv.gz")
    target, dropped = PRACTICE.get(name, (frame.columns[-1], ()))
    frame = frame[frame[target].notna()].drop(columns=list(dropped)).reset_index(drop=True)
    if name.startswith("time/"):
        frame[frame.columns[0]] = pd.to_datetime(frame[frame.columns[0]])
    return frame, frame.pop(target).to_numpy(dtype=np.float64)


def measure(kind: str, name: str, draw: int, likelihood: str) -> dict[str, Any]:
    """One fit; a likelihood that the target does not allow has no scores."""
    frame, y = table_of(kind, name)
    order = np.random.default_rng(draw).permutation(len(y))
    size = min(MOST_ROWS, 3 * len(y) // 4)
    train, test = order[:size], order[size : size + MOST_JUDGED]
    row = {"kind": kind, "table": name, "draw": draw, "likelihood": likelihood, "chosen": "", "train": size, "test": len(test)}
    start = time.process_time()
    try:
        model = GWIRegressor(likelihood=likelihood, random_state=0).fit(frame.iloc[train], y[train])
    except ValueError:
        return row | dict.fromkeys(("nll", "crps", "rmse", "inside_95", "below_support", "cpu_seconds"), "")
    seconds = time.process_time() - start
    found = model.predict_dist(frame.iloc[test])
    low, high = model.predict_interval(frame.iloc[test]).T
    unit = float(y[train].std())
    return row | {
        "chosen": model.summary_.likelihood,
        "nll": float(-found.laws[0].log_density(y[test]).mean()) - (0.0 if found.laws[0].is_discrete else np.log(unit)),
        "crps": float(found.crps(y[test]).mean()) / unit,
        "rmse": float(np.sqrt(np.mean(np.square(found.mean - y[test])))) / unit,
        "inside_95": float(np.mean((low <= y[test]) & (y[test] <= high))),
        "below_support": float(np.mean(low < 0)) if y.min() >= 0 else 0.0,
        "cpu_seconds": seconds,
    }


def drawn(family: str, seed: int) -> tuple[Array, Any]:
    """Rows, and targets of a known likelihood around a smooth function of two to seven columns."""
    rng = np.random.default_rng(seed)
    n, d = KNOWN_ROWS, int(rng.integers(2, 8))
    x = rng.standard_normal((n, d))
    f = np.sin(1.5 * x[:, 0]) + x @ rng.standard_normal(d) * 0.6 / d**0.5
    noise = rng.standard_normal(n)
    if family == "gaussian":
        return x, f + rng.uniform(0.2, 0.8) * noise
    if family == "gaussian, positive":
        return x, rng.uniform(6, 12) + f + 0.6 * noise
    if family == "student-t":
        return x, f + rng.uniform(0.2, 0.5) * rng.standard_t(3, n)
    if family == "log-normal":
        return x, np.exp(1 + 0.8 * f + rng.uniform(0.3, 0.8) * noise)
    if family == "gamma":
        shape = rng.uniform(1, 4)
        return x, rng.gamma(shape, np.exp(1 + 0.8 * f) / shape)
    if family == "poisson":
        return x, rng.poisson(np.exp(rng.uniform(0, 2) + 0.7 * f)).astype(float)
    if family == "negative-binomial":
        mean, shape = np.exp(rng.uniform(1, 2.5) + 0.7 * f), rng.uniform(0.8, 3)
        return x, rng.negative_binomial(shape, shape / (shape + mean)).astype(float)
    if family == "beta":
        mean, size = 1 / (1 + np.exp(-f)), rng.uniform(4, 20)
        return x, np.clip(rng.beta(size * mean, size * (1 - mean)), 1e-6, 1 - 1e-6)
    if family == "few-valued":
        return x, np.clip(np.round(5 + 1.2 * f + 0.7 * noise), 3, 8)
    time_of, limit = np.exp(2 + 0.6 * f + 0.5 * noise), np.exp(2.5 + 0.8 * rng.standard_normal(n))
    found = np.empty(n, dtype=[("event", bool), ("time", float)])
    found["event"], found["time"] = time_of <= limit, np.minimum(time_of, limit)
    return x, found


def known() -> None:
    """What is chosen for targets of each likelihood."""
    done = {(r["family"], int(r["draw"])) for r in read("known_likelihood")}
    for draw in range(DRAWS_OF_EACH):
        for place, family in enumerate(FAMILIES):
            if (family, draw) in done:
                continue
            x, y = drawn(family, 1000 + 100 * draw + place)
            start = time.process_time()
            model = GWIRegressor(random_state=0).fit(x, y)
            chosen = model.summary_.likelihood
            wanted = family.partition(",")[0]
            row = {"family": family, "draw": draw, "chosen": chosen, "right": int(chosen.startswith(wanted))}
            append("known_likelihood", [row | {"cpu_seconds": time.process_time() - start}])
            print(row, flush=True)


if __name__ == "__main__":
    main()
