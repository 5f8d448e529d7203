"""Whether 95 % intervals hold 95 % where rows have copies, groups or an order in time, told and not told to the fit.

    python -m benchmarks.studies.who_judges [--mean auto] [--splits 10]

writes results/who_judges.csv. Tables are the practice ones in GWI_DATA and some simulated ones; none of the benchmark sets.
"bootstrapped" are 300 rows drawn with replacement to 800, judged at rows not drawn. "grouped" are judged at new groups, "time" at
later rows. *before* is a fit that is not told: copies are made to differ by a little, groups and order are kept back.
A run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.model_selection import GroupKFold

from benchmarks.tables.common.practice import columns, numbers
from benchmarks.tables.common.records import append, read
from gwi import GWIRegressor
from gwi._typing import Array

TABLES = ("autompg", "autos", "machine", "parkinsons", "pendulum", "pumadyn32nm", "servo", "stock")
MOST_ROWS, NUM_DRAWN, NUM_ROWS = 1200, 800, 300


class Case(NamedTuple):
    """Rows to fit and to judge, and what the fit may be told."""

    kind: str
    name: str
    split: int
    train: tuple[Array, Array]
    test: tuple[Array, Array]
    groups: NDArray[Any] | None = None


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--mean", default="svgp")
    arguments.add_argument("--splits", type=int, default=3)
    chosen = arguments.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    done = {(r["kind"], r["table"], int(r["split"]), r["mean"]) for r in read("who_judges")}
    for split in range(chosen.splits):
        for case in cases(split):
            if (case.kind, case.name, case.split, chosen.mean) not in done:
                append("who_judges", [measure(case, chosen.mean, told) for told in (False, True)])
                print(case.kind, case.name, split, flush=True)


def measure(case: Case, mean: str, told: bool) -> dict[str, Any]:
    """Coverage and NLL at the rows to judge."""
    x, y = case.train
    model = GWIRegressor(mean, random_state=case.split, cv="time" if told and case.kind == "time" else "auto")
    if case.kind == "bootstrapped" and not told:
        # Too little to matter to any mean, and enough to make no row a copy of another.
        x = x + 1e-6 * x.std(0) * np.random.default_rng(0).standard_normal(x.shape)
    model.fit(x, y, groups=case.groups if told else None)
    lower, upper = model.predict_interval(case.test[0]).T
    return {
        "kind": case.kind,
        "table": case.name,
        "split": case.split,
        "mean": mean,
        "told": "after" if told else "before",
        "coverage": float(((lower <= case.test[1]) & (case.test[1] <= upper)).mean()),
        "nll": model.nll(*case.test) - float(np.log(y.std())),
        "width": float((upper - lower).mean() / y.std()),
    }


def cases(split: int) -> Iterator[Case]:
    """All tables, with a split of each."""
    for name in TABLES:
        x, y = numbers(name)
        rng = np.random.default_rng(split)
        order = rng.permutation(len(x))
        num_rows = min(NUM_ROWS, int(0.75 * len(x)))
        train, test = order[:num_rows], order[num_rows : num_rows + 1000]
        yield Case("random", name, split, (x[train], y[train]), (x[test], y[test]))
        drawn = rng.choice(train, NUM_DRAWN * num_rows // NUM_ROWS)
        yield Case("bootstrapped", name, split, (x[drawn], y[drawn]), (x[test], y[test]))
    for name, x, y, group in grouped():
        folds = list(GroupKFold(5, shuffle=True, random_state=1 + split // 5).split(x, y, group))
        train, test = folds[split % 5]
        train = np.random.default_rng(split).permutation(train)[:MOST_ROWS]
        yield Case("grouped", name, split, (x[train], y[train]), (x[test], y[test]), group[train])
    for name, x, y in in_time():
        first = int((0.6 + 0.1 * (split % 3)) * len(y))
        train, test = np.arange(max(0, first - MOST_ROWS), first), np.arange(first, min(len(y), first + len(y) // 5))
        yield Case("time", name, split, (x[train], y[train]), (x[test], y[test]))


def grouped() -> Iterator[tuple[str, Array, Array, Array]]:
    """Four practice tables and two simulated ones, with the group of each row."""
    sleep, growth, speech = columns("grouped/sleepstudy"), columns("grouped/orthodont"), columns("numbers/parkinsons")
    yield "sleepstudy", sleep["Days"][:, None], sleep["Reaction"], sleep["Subject"]
    yield "orthodont", np.column_stack([growth["age"], growth["Sex"]]), growth["distance"], growth["Subject"]
    inputs = [values for name, values in speech.items() if name not in ("x0", "target")]
    yield "parkinsons", np.column_stack(inputs), speech["target"], speech["x0"]
    storms = columns("mixed/storms")
    x = np.column_stack([storms[name] for name in ("lat", "long", "month", "hour", "pressure")])
    storm = storms["name"] * 10_000 + storms["year"]
    some = np.isin(storm, np.random.default_rng(0).choice(np.unique(storm), 120, replace=False))
    some &= np.isfinite(x).all(1) & np.isfinite(storms["wind"])
    yield "storms", x[some], storms["wind"][some], storm[some]
    for name, num_groups, size, effect in (("many groups", 30, 10, 1.0), ("few groups", 12, 40, 2.0)):
        rng = np.random.default_rng(size)
        group = np.repeat(np.arange(num_groups), size)
        tells = rng.normal(size=(num_groups, 2))[group] + 0.05 * rng.normal(size=(len(group), 2))
        x = np.column_stack([rng.normal(size=(len(group), 3)), tells])
        shift = effect * rng.normal(size=num_groups)
        yield name, x, np.sin(2 * x[:, 0]) + x[:, 1] + shift[group] + 0.3 * rng.normal(size=len(group)), group.astype(np.float64)


def in_time() -> Iterator[tuple[str, Array, Array]]:
    """Three practice tables and three simulated ones, in the order of time."""
    for name, table, target, period in (
        ("temperature", "daily_min_temperature", "Temp", 365.25),
        ("airline", "airline_passengers", "Passengers", 12.0),
    ):
        y = columns(f"time/{table}")[target]
        t = np.arange(len(y))
        yield name, np.column_stack([t, np.sin(2 * np.pi * t / period), np.cos(2 * np.pi * t / period)]), y
    storms = columns("mixed/storms")
    x, wind = np.column_stack([storms[name] for name in ("year", "lat", "long", "month", "hour")]), storms["wind"]
    order = np.argsort(storms["year"], kind="stable")
    order = order[(np.isfinite(x).all(1) & np.isfinite(wind))[order]][::8]
    yield "storms by year", x[order], wind[order]
    for name, memory, trend in (("short memory", 0.9, 0.0), ("long memory", 0.98, 0.0), ("trend", 0.98, 0.004)):
        rng = np.random.default_rng(int(100 * memory) + bool(trend))
        t, z, drift = np.arange(500), rng.normal(size=(500, 3)), np.zeros(500)
        for i in range(1, 500):
            drift[i] = memory * drift[i - 1] + 0.3 * rng.normal()
        yield name, np.column_stack([t, z]), z[:, 0] + np.sin(z[:, 1]) + drift + trend * t


if __name__ == "__main__":
    main()
