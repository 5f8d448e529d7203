"""How small the leaves of forests may be, for targets that are not plain numbers; measured on practice tables alone.

    python -m benchmarks.studies.linked_trees [--look]

writes results/linked_trees.csv: the stack of a likelihood with forests of leaves of one, three and five rows, fitted to 600 rows
of targets with few values and of positive ones, and judged on at most 1,000 others. With --look it writes
results/look_leaves.csv: what the first look of likelihood="auto" chooses with such leaves, and how good the fit with that
likelihood was, as recorded in results/chosen_likelihood.csv. A run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import os
import warnings
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import torch
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesRegressor

from benchmarks.studies.chosen_likelihood import MOST_ROWS, NUM_DRAWS, PRACTICE, table_of
from benchmarks.tables.common.records import append, read
from gwi import GWIRegressor
from gwi.fitting import likelihood_choice, plan
from gwi.parts.likelihoods import LIKELIHOODS
from gwi.tables import TableEncoder

NUM_ROWS, NUM_JUDGED, LEAVES = 600, 1000, (1, 3, 5)
# Tables, targets, and columns that give the target away or name the row.
TARGETS = {
    "few-valued": (
        ("censored/lung", "pat.karno", ("ph.karno",)),
        ("counts/doctor_visits", "chronic", ()),
        ("counts/doctor_visits", "school", ()),
        ("mixed/mpg", "model_year", ("name",)),
        ("mixed/ames", "TotRms_AbvGrd", ()),
        ("mixed/ames", "Bedroom_AbvGr", ()),
        ("mixed/credit", "Time", ()),
        ("numbers/skillcraft", "x8", ()),
    ),
    "gamma": (
        ("mixed/mpg", "mpg", ("name",)),
        ("mixed/penguins", "body_mass_g", ()),
        ("mixed/ames", "Sale_Price", ()),
        ("mixed/diamonds", "price", ()),
        ("mixed/storms", "pressure", ("name",)),
        ("mixed/credit", "Income", ()),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--look", action="store_true", help="what the first look chooses")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if parser.parse_args().look:
        looks()
        return
    done = {(r["likelihood"], r["table"], r["target"], int(r["draw"]), int(r["leaf"])) for r in read("linked_trees")}
    for draw, likelihood in product(range(2), TARGETS):
        for (table, target, dropped), leaf in product(TARGETS[likelihood], LEAVES):
            key = (likelihood, table, target, draw, leaf)
            if key not in done:
                row = dict(zip(("likelihood", "table", "target", "draw", "leaf"), key, strict=True))
                append("linked_trees", [row | measure(likelihood, table, target, dropped, draw, leaf)])
                print(*key, flush=True)


def measure(likelihood: str, table: str, target: str, dropped: tuple[str, ...], draw: int, leaf: int) -> dict[str, float]:
    """Scores of the stack that the plan has for so many rows, its forest with such leaves."""
    frame = pd.read_csv(Path(os.environ["GWI_DATA"]) / "practice" / f"{table}.csv.gz")
    frame = frame[frame[target].notna()].drop(columns=list(dropped)).reset_index(drop=True)
    y = frame.pop(target).to_numpy(dtype=np.float64)
    order = np.random.default_rng(draw).permutation(len(y))
    size = min(NUM_ROWS, 3 * len(y) // 4)
    train, test = order[:size], order[size : size + NUM_JUDGED]
    means = [
        clone(mean).set_params(min_samples_leaf=leaf) if isinstance(mean, ExtraTreesRegressor) else mean
        for mean in plan.linked_members(size, frame.shape[1], likelihood)
    ]
    model = GWIRegressor(means, likelihood=likelihood, random_state=0).fit(frame.iloc[train], y[train])
    found = model.predict_dist(frame.iloc[test])
    unit = float(y[train].std())
    # A value that was not seen has no probability; of those that were seen the score is fair.
    seen = np.isin(y[test], y[train]) if likelihood == "few-valued" else np.ones(len(test), bool)
    nll = -found.laws[0].log_density(y[test])[seen].mean()
    return {"nll": float(nll), "crps": float(found.crps(y[test]).mean()) / unit}


def looks() -> None:
    """What would be chosen, and the CRPS of a fit with that likelihood."""
    recorded = {(r["table"], int(r["draw"]), r["likelihood"]): r["crps"] for r in read("chosen_likelihood")}
    done = {(r["table"], int(r["draw"]), int(r["leaf"])) for r in read("look_leaves")}
    for draw, table, leaf in product(range(NUM_DRAWS), PRACTICE, LEAVES):
        if (table, draw, leaf) in done:
            continue
        frame, y = table_of("practice", table)
        order = np.random.default_rng(draw).permutation(len(y))
        train = order[: min(MOST_ROWS, 3 * len(y) // 4)]
        x = TableEncoder().fit_transform(frame.iloc[train])
        chosen = chosen_with(leaf, x, y[train])
        crps = recorded[table, draw, chosen]
        append("look_leaves", [{"table": table, "draw": draw, "leaf": leaf, "chosen": chosen, "crps": float(crps)}])


def chosen_with(leaf: int, x: Any, y: Any) -> str:
    """The likelihood that a look with such leaves chooses, by its name."""
    with mock.patch.object(likelihood_choice, "ExtraTreesRegressor", partial(ExtraTreesRegressor, min_samples_leaf=leaf)):
        part = likelihood_choice.chosen(x, y[:, None], np.ones(len(y))).part
    return next(name for name, kind in LIKELIHOODS.items() if type(part) is kind)


if __name__ == "__main__":
    main()
