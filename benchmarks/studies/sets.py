"""Coverage of sets of labels and of intervals by stratum, beside MAPIE's around the same predictor, on sixteen tables.

    python -m benchmarks.studies.sets [--splits 3]

adds what is not there yet to results/sets.csv, a row for each cell that is to have the coverage (all rows, a class, a stratum),
and to results/set_scores.csv. Half of the rows learn and judge, half are new; of large tables 2,000 rows at random. The predictor
is boosting with 60 trees, the same for all, on the numbers that `TableEncoder` makes of the columns. Each method has the same
rows and five folds; MAPIE by stratum takes rows apart, half to fit and half to judge. One thread.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from mapie.classification import CrossConformalClassifier
from mapie.regression import CrossConformalRegressor, SplitConformalRegressor
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from benchmarks.tables.common.records import append, read
from gwi import Gaussian, GWIClassifier, GWIRegressor
from gwi.tables import TableEncoder

COVERAGE, MOST_ROWS, NUM_REPEATS = 0.9, 2000, 20
BUILT_IN = {"wine": load_wine, "breast cancer": load_breast_cancer, "digits": load_digits}
# Table, target, columns left out because they are made from the target or name a row.
CLASSES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "penguins": ("practice/mixed/penguins", "species", ()),
    "car origin": ("practice/mixed/mpg", "origin", ("name",)),
    "credit": ("practice/mixed/credit", "Status", ()),
    "churn": ("practice/mixed/churn", "churn", ()),
    "taxi tip": ("practice/mixed/taxi_tip", "tip", ()),
    "red wine, grades": ("uci/wine_red", "target", ()),
    "diamonds, cut": ("practice/mixed/diamonds", "cut", ()),
}
# Table, target, stratum, columns left out, likelihood.
NUMBERS: dict[str, tuple[str, str, str, tuple[str, ...], Any]] = {
    "houses by foundation": ("practice/mixed/ames", "Sale_Price", "Foundation", (), "gaussian"),
    "diamonds by cut": ("practice/mixed/diamonds", "price", "cut", (), "gaussian"),
    "cars by origin": ("practice/mixed/mpg", "mpg", "origin", ("name",), "gaussian"),
    "storms by status": ("practice/mixed/storms", "wind", "status", ("name", "category"), "gaussian"),
    "visits by health": ("practice/counts/doctor_visits", "visits", "health", (), "negative-binomial"),
    "players by league": ("practice/numbers/skillcraft", "target", "x1", (), "gaussian"),
}
Record = dict[str, Any]


def frame(place: str) -> pd.DataFrame:
    """A table, or some of its rows."""
    rows = pd.read_csv(Path(os.environ["GWI_DATA"]) / f"{place}.csv.gz")
    return rows.sample(min(MOST_ROWS, len(rows)), random_state=0).reset_index(drop=True)


def halves(num_rows: int, split: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    order = np.random.default_rng(split).permutation(num_rows)
    return order[: num_rows // 2], order[num_rows // 2 :]


def encoded(rows: pd.DataFrame, learn: NDArray[np.int64]) -> NDArray[Any]:
    return np.asarray(TableEncoder().fit(rows.iloc[learn]).transform(rows), dtype=np.float64)


def classes(name: str, split: int) -> tuple[Any, ...]:
    """Rows and labels to learn from, and new ones; labels of which fewer than ten rows learn are left out."""
    if name in BUILT_IN:
        x, y = BUILT_IN[name](return_X_y=True)
        learn, new = halves(len(y), split)
    else:
        place, target, out = CLASSES[name]
        rows = frame(place).dropna(subset=[target])
        y = rows[target].to_numpy().astype(str)
        learn, new = halves(len(y), split)
        x = encoded(rows.drop(columns=[target, *out]), learn)
    known, count = np.unique(y[learn], return_counts=True)
    learn, new = (rows[np.isin(y[rows], known[count >= 10])] for rows in (learn, new))
    places = np.searchsorted(np.unique(y[learn]), y)
    return x[learn], places[learn], x[new], places[new]


def numbers(name: str, split: int) -> tuple[Any, ...]:
    """Rows, targets and strata to learn from, and new ones."""
    place, target, stratum, out, _ = NUMBERS[name]
    rows = frame(place).dropna(subset=[target, stratum])
    y, strata = rows[target].to_numpy(dtype=np.float64), rows[stratum].to_numpy().astype(str)
    learn, new = halves(len(y), split)
    x = encoded(rows.drop(columns=[target, *out]), learn)
    return x[learn], y[learn], strata[learn], x[new], y[new], strata[new]


def cells(found: Record, judged: NDArray[Any], new: NDArray[Any], hit: NDArray[Any], size: NDArray[Any]) -> Iterator[Record]:
    """A record of all rows, and one of each value: how many rows judged, how many are new, how many of these are covered.

    Sizes are those of finite ones; the share of empty and infinite ones stands beside them.
    """
    for value in (None, *np.unique(judged).tolist()):
        own, judging = (np.ones(len(part), bool) if value is None else part == value for part in (new, judged))
        if own.any():
            cell = {"cell": "" if value is None else value, "num_judged": int(judging.sum()), "num_new": int(own.sum())}
            finite = own & np.isfinite(size)
            mean = float(size[finite].mean()) if finite.any() else np.nan
            odd = float(((size == 0) | np.isinf(size))[own].mean())
            yield found | cell | {"covered": int(hit[own].sum()), "size": mean, "odd": odd}


def class_records(name: str, split: int) -> tuple[list[Record], list[Record]]:
    x, y, x_new, y_new = classes(name, split)
    base = HistGradientBoostingClassifier(max_iter=60, max_leaf_nodes=15, early_stopping=False)

    records: list[Record] = []
    scores: list[Record] = []

    def ours(mean: Any) -> Callable[[], list[tuple[str, NDArray[Any]]]]:
        def found() -> list[tuple[str, NDArray[Any]]]:
            model = GWIClassifier(mean, random_state=split).fit(x, y)
            if mean is base:
                scores.extend(score_records(name, split, model.predict_proba(x_new), y_new))
            return [("", model.predict_set(x_new, COVERAGE)), ("class", model.predict_set(x_new, COVERAGE, by="class"))]

        return found

    def mapie(score: str) -> Callable[[], list[tuple[str, NDArray[Any]]]]:
        def found() -> list[tuple[str, NDArray[Any]]]:
            model = CrossConformalClassifier(base, COVERAGE, score, cv=5, random_state=split).fit_conformalize(x, y)
            return [("", model.predict_set(x_new)[1][..., 0])]

        return found

    methods = {"gwi around it": ours(base), "MAPIE, LAC": mapie("lac"), "MAPIE, APS": mapie("aps"), "gwi": ours("auto")}
    if y.max() == 1:
        # It has LAC alone for two classes.
        del methods["MAPIE, APS"]
    for method, sets in methods.items():
        start = time.process_time()
        for by, found in sets():
            head = {"kind": "classes", "table": name, "split": split, "method": method, "by": by}
            hit, size = found[np.arange(len(y_new)), y_new], found.sum(1)
            seconds = {"seconds": time.process_time() - start}
            records += [record | seconds for record in cells(head, y, y_new, hit, size)]
    return records, scores


def number_records(name: str, split: int) -> tuple[list[Record], list[Record]]:
    x, y, strata, x_new, y_new, new = numbers(name, split)
    base = HistGradientBoostingRegressor(max_iter=60, max_leaf_nodes=15, early_stopping=False)
    likelihood = Gaussian() if NUMBERS[name][4] == "gaussian" else NUMBERS[name][4]

    records: list[Record] = []

    def ours() -> list[tuple[str, NDArray[Any]]]:
        model = GWIRegressor(base, likelihood=likelihood, random_state=split).fit(x, y, strata=strata)
        return [("", model.predict_interval(x_new, COVERAGE)), ("stratum", model.predict_interval(x_new, COVERAGE, strata=new))]

    def mapie() -> list[tuple[str, NDArray[Any]]]:
        model = CrossConformalRegressor(base, COVERAGE, cv=5, random_state=split).fit_conformalize(x, y)
        return [("", model.predict_interval(x_new)[1][..., 0])]

    def mapie_by_stratum() -> list[tuple[str, NDArray[Any]]]:
        fitted, judges = base.fit(x[::2], y[::2]), np.arange(len(y)) % 2 == 1
        ends = np.full((len(x_new), 2), [-np.inf, np.inf])
        for value in np.unique(new):
            own, rows = new == value, judges & (strata == value)
            # With fewer it raises; nothing but the whole line holds what is promised.
            if rows.sum() > COVERAGE / (1 - COVERAGE):
                model = SplitConformalRegressor(fitted, COVERAGE, prefit=True).conformalize(x[rows], y[rows])
                ends[own] = model.predict_interval(x_new[own])[1][..., 0]
        return [("stratum", ends)]

    for method, intervals in {"gwi around it": ours, "MAPIE": mapie, "MAPIE, by stratum": mapie_by_stratum}.items():
        start = time.process_time()
        for by, ends in intervals():
            head = {"kind": "numbers", "table": name, "split": split, "method": method, "by": by}
            hit = (ends[:, 0] <= y_new) & (y_new <= ends[:, 1])
            width = (ends[:, 1] - ends[:, 0]) / y.std()
            seconds = {"seconds": time.process_time() - start}
            records += [record | seconds for record in cells(head, strata, new, hit, width)]
    return records, []


def label_scores(p: NDArray[Any], u: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Scores of every label, by name; u is uniform, one a row."""
    order = np.argsort(-p, axis=1, kind="stable")
    rank = np.argsort(order, axis=1)
    above = np.take_along_axis(np.cumsum(np.take_along_axis(p, order, 1), axis=1), rank, 1) - p
    top = p.max(1, keepdims=True)
    return {
        "LAC": 1 - p,
        "APS": above + p,
        "APS, randomised": above + u * p,
        "RAPS, randomised": above + u * p + 0.1 * np.maximum(rank - 1, 0),
        "SAPS, randomised": np.where(rank == 0, u * top, top + 0.1 * (rank - 1 + u)),
    }


def score_records(name: str, split: int, p: NDArray[Any], y: NDArray[Any]) -> list[Record]:
    """What each score would give: half of the new rows judge, half are looked at, twenty times; and the least sure fifth."""
    rng = np.random.default_rng(split)
    found: dict[str, list[tuple[float, ...]]] = {}
    for _ in range(NUM_REPEATS):
        order = rng.permutation(len(y))
        judges, rest = order[: len(y) // 2], order[len(y) // 2 :]
        unsure = p[rest].max(1) <= np.quantile(p[rest].max(1), 0.2)
        for score, values in label_scores(p, rng.uniform(size=(len(y), 1))).items():
            rank = int(np.ceil((len(judges) + 1) * COVERAGE - 1e-9))
            sets = values[rest] <= np.sort(values[judges, y[judges]])[rank - 1]
            sets[np.arange(len(rest)), p[rest].argmax(1)] = True
            hit = sets[np.arange(len(rest)), y[rest]]
            found.setdefault(score, []).append((hit.mean(), sets.sum(1).mean(), hit[unsure].mean()))
    head = {"table": name, "split": split, "coverage": COVERAGE}
    return [
        head | {"score": score} | dict(zip(("covered", "size", "covered_unsure"), np.mean(values, axis=0).tolist(), strict=True))
        for score, values in found.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=3)
    num_splits = parser.parse_args().splits
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    known = {(row["kind"], row["table"], int(row["split"])) for row in read("sets")}
    tasks = [("classes", name, class_records) for name in (*BUILT_IN, *CLASSES)]
    tasks += [("numbers", name, number_records) for name in NUMBERS]
    for split in range(num_splits):
        for kind, name, records in tasks:
            if (kind, name, split) not in known:
                found, scores = records(name, split)
                append("sets", found)
                if scores:
                    append("set_scores", scores)
                for r in found:
                    if r["cell"] == "":
                        covered = r["covered"] / r["num_new"]
                        print(
                            f"{name}, {split}, {r['method']}, {r['by']}: {covered:.3f}, {r['size']:.3g}, {r['seconds']:.1f} s",
                            flush=True,
                        )


if __name__ == "__main__":
    main()
