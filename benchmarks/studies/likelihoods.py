"""Every likelihood beside peers of its kind: counts, times to an event, positive numbers, levels in order, few values.

    pip install --no-deps -r benchmarks/requirements-peers.txt
    python -m benchmarks.studies.likelihoods [--tables lung gbsg] [--methods gwi Cox] [--auto]

writes results/likelihoods.csv, a row a table, repetition, fold, method and score; the fold "all" has what is judged on the test
rows of all folds of a repetition together. Five folds, twice for small tables, once for the others, and the first three of five
where a table is large or wide. All methods get the same rows and columns. Columns that give the target away are left out, and so
are codes of persons and hospitals. With --auto ours is also fitted with likelihood="auto", as the method "gwi, auto". A run that
was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.model_selection import KFold, StratifiedKFold

from benchmarks.studies.likelihood_peers import PEERS, Predict
from benchmarks.studies.likelihood_scores import of_fold, of_repetition
from benchmarks.tables.common.records import append, read
from gwi import GWIRegressor
from gwi._typing import Array

NAME = "likelihoods"
NUM_FOLDS = 5
Family = Literal["counts", "censored", "positive", "ordered", "few-valued"]


@dataclass(frozen=True)
class Source:
    """Where a table is, and what is asked of it.

    Attributes:
        family: the kind of target.
        file: under the folder of the data.
        target: its column; of times to an event the column of times.
        dropped: columns that no method sees.
        event: of times the column that says whether the event came, and the value that says so.
        levels: of text in order.
        count: the column that says how many persons a row stands for.
        once: whether rows that come again are left out.
        most_rows: so many are drawn at random.
        repetitions: of the five folds.
        folds: how many of them are done.
    """

    family: Family
    file: str
    target: str
    dropped: tuple[str, ...] = ()
    event: tuple[str, int] | None = None
    levels: tuple[str, ...] = ()
    count: str | None = None
    once: bool = False
    most_rows: int = 10_000
    repetitions: int = 1
    folds: int = NUM_FOLDS


# Of visits to a doctor other counts of the same visits are left out; of persons their numbers, and the cause of death.
SOURCES: dict[str, Source] = {
    "quine_absence": Source("counts", "practice/counts/quine_absence", "Days", repetitions=2),
    "lung": Source("censored", "practice/censored/lung", "time", ("inst",), ("status", 2), repetitions=2),
    "housing_satisfaction": Source(
        "ordered",
        "practice/ordered/housing_satisfaction",
        "Sat",
        levels=("Low", "Medium", "High"),
        count="Freq",
        repetitions=2,
    ),
    "mpg": Source("positive", "practice/mixed/mpg", "mpg", ("name",), repetitions=2),
    "gbsg": Source("censored", "practice/censored/gbsg", "rfstime", ("pid",), ("status", 1), repetitions=2),
    "wine_red": Source("few-valued", "uci/wine_red", "target"),
    # A quarter of the wines have a copy among the training rows, which a forest knows by heart.
    "wine_red_once": Source("few-valued", "uci/wine_red", "target", once=True),
    "wine_red_levels": Source("ordered", "uci/wine_red", "target"),
    "diamonds_cut": Source(
        "ordered",
        "practice/mixed/diamonds",
        "cut",
        levels=("Fair", "Good", "Very Good", "Premium", "Ideal"),
        most_rows=1500,
        folds=3,
    ),
    "doctor_visits": Source("counts", "practice/counts/doctor_visits", "visits", ("nvisits", "ovisits", "novisits", "emergency")),
    "flchain": Source("censored", "practice/censored/flchain", "futime", ("chapter",), ("death", 1)),
    "diamonds": Source("positive", "practice/mixed/diamonds", "price", most_rows=2500, folds=3),
    "ames": Source("positive", "practice/mixed/ames", "Sale_Price", folds=3),
}
# Ours; the first of each family is the one that counts, which was fixed before anything was run.
OURS: dict[Family, dict[str, str]] = {
    "counts": {"gwi, negative-binomial": "negative-binomial", "gwi, Poisson": "poisson"},
    "censored": {"gwi, censored": "censored"},
    "positive": {"gwi, log-normal": "log-normal", "gwi, gamma": "gamma", "gwi, Gaussian": "gaussian"},
    "ordered": {"gwi, ordinal": "ordinal"},
    "few-valued": {"gwi, few-valued": "few-valued", "gwi, Gaussian": "gaussian"},
}
AUTO = "gwi, auto"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", choices=list(SOURCES), default=list(SOURCES))
    parser.add_argument("--methods", nargs="+", default=[""], help="beginnings of names of methods; all unless given")
    parser.add_argument("--auto", action="store_true", help='also likelihood="auto"')
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    done = {(r["table"], int(r["repetition"]), r["method"]) for r in read(NAME)}
    for name in arguments.tables:
        source = SOURCES[name]
        methods = [m for m in methods_of(source.family, arguments.auto) if m.startswith(tuple(arguments.methods))]
        for repetition in range(source.repetitions):
            for method in methods:
                if (name, repetition, method) not in done:
                    append(NAME, list(measure(name, repetition, method)))
                    print(name, repetition, method, flush=True)


def methods_of(family: Family, auto: bool = False) -> list[str]:
    """Ours first."""
    return [*OURS[family], *([AUTO] if auto else []), *PEERS[family]]


def table_of(source: Source) -> tuple[pd.DataFrame, NDArray[Any]]:
    """Rows, and numbers, places of levels, or events and times; a row a person."""
    frame = pd.read_csv(Path(os.environ["GWI_DATA"]) / f"{source.file}.csv.gz")
    if source.count is not None:
        frame = frame.loc[frame.index.repeat(frame[source.count])].drop(columns=source.count)
    if source.once:
        frame = frame.drop_duplicates()
    if len(frame) > source.most_rows:
        frame = frame.sample(source.most_rows, random_state=0)
    frame = frame.reset_index(drop=True)
    target = frame[source.target]
    leave = [source.target, *source.dropped]
    if source.event is not None:
        column, came = source.event
        # Who died on the day of the sample lived for half of it.
        pairs = zip(frame[column] == came, np.maximum(target, 0.5), strict=True)
        return frame.drop(columns=[*leave, column]), np.array(list(pairs), dtype=[("event", bool), ("time", float)])
    y = target.map(source.levels.index) if source.levels else target
    return frame.drop(columns=leave), y.to_numpy(dtype=np.float64)


def folds_of(source: Source, y: NDArray[Any], repetition: int) -> list[tuple[Any, Any]]:
    """Training and test rows; events, levels and values have the same shares in all folds."""
    if source.family in ("counts", "positive"):
        return list(KFold(NUM_FOLDS, shuffle=True, random_state=repetition).split(y))[: source.folds]
    label = y["event"] if source.family == "censored" else y
    splitter = StratifiedKFold(NUM_FOLDS, shuffle=True, random_state=repetition)
    return list(splitter.split(np.zeros(len(y)), label))[: source.folds]


def measure(name: str, repetition: int, method: str) -> Iterator[dict[str, Any]]:
    """All scores of a method on the folds of a repetition."""
    source = SOURCES[name]
    frame, y = table_of(source)
    fit = ours(source, method) if method.startswith("gwi") else PEERS[source.family][method]
    laws, ys = [], []
    common = {"family": source.family, "table": name, "repetition": repetition}
    folds = folds_of(source, y, repetition)
    for fold, (train, test) in enumerate(folds):
        start = time.process_time()
        predict = fit(frame.iloc[train].reset_index(drop=True), y[train], repetition)
        laws.append(predict(frame.iloc[test].reset_index(drop=True)))
        ys.append(y[test])
        scores = {**of_fold(source.family, laws[-1], y[test], y), "cpu_seconds": time.process_time() - start}
        for score, value in scores.items():
            yield {
                **common,
                "fold": fold,
                "method": method,
                "train": len(train),
                "test": len(test),
                "score": score,
                "value": value,
            }
    sizes = {"train": len(folds[0][0]), "test": sum(map(len, ys))}
    for score, value in of_repetition(source.family, laws, ys, y).items():
        yield {**common, "fold": "all", "method": method, **sizes, "score": score, "value": value}


@dataclass(frozen=True)
class Ours:
    """Times to an event by the law of a fitted model.

    Attributes:
        law: of each row.
    """

    law: Any

    def at(self, times: Array) -> Array:
        """P(T > t)."""
        return np.column_stack([self.own(np.full(self.law.num_rows, time)) for time in times])

    def own(self, times: Array) -> Array:
        """With a time for each row."""
        found: Array = self.law.survival(times)
        return found


def ours(source: Source, method: str) -> Callable[[pd.DataFrame, Any, int], Predict]:
    """The default of everything but the likelihood."""
    likelihood = "auto" if method == AUTO else OURS[source.family][method]

    def fitted(frame: pd.DataFrame, y: Any, seed: int) -> Predict:
        rows, target, weight = merged(frame, y) if source.count is not None else (frame, y, None)
        if likelihood == "auto" and source.family == "ordered":
            target = pd.Categorical.from_codes(target.astype(int), categories=range(int(target.max()) + 1), ordered=True)
        model = GWIRegressor(likelihood=likelihood, random_state=seed).fit(rows, target, sample_weight=weight)

        def predict(new: pd.DataFrame) -> Any:
            law = model.predict_dist(new).laws[0]
            return Ours(law) if source.family == "censored" else law

        return predict

    return fitted


def merged(frame: pd.DataFrame, y: Array) -> tuple[pd.DataFrame, Array, Array]:
    """Equal rows as one, with their number as a weight."""
    columns = list(frame)
    counted = frame.assign(_target=y).groupby([*columns, "_target"], sort=True, as_index=False).size()
    return counted[columns], counted["_target"].to_numpy(dtype=np.float64), counted["size"].to_numpy(dtype=np.float64)


if __name__ == "__main__":
    main()
