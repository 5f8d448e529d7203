"""Tables of the likelihoods beside their peers, and of sets that were drawn from their priors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom

from benchmarks.render.evidence_tables import signed
from benchmarks.render.markdown import table
from benchmarks.tables.common.records import Record, read
from benchmarks.tables.common.words import NOTHING

# What each family is judged by first, and by what else; then how it is shown, and with how many digits.
SCORES: dict[str, dict[str, tuple[str, int]]] = {
    "counts": {"nll": ("NLL", 3), "crps": ("CRPS", 3), "rmse": ("RMSE", 2), "pit_95": ("in 95 %", 1)},
    "censored": {
        "ibs": ("Brier score", 4),
        "c_index": ("C-index", 3),
        "gap": ("gap to Kaplan–Meier", 3),
        "d_calibration": ("D-calibration, p", 2),
    },
    "positive": {"nll": ("NLL", 3), "crps": ("CRPS", 4), "rmse": ("RMSE", 4), "inside_95": ("in 95 %", 1)},
    "ordered": {"rps": ("ranked probability score", 4), "nll": ("NLL", 3), "accuracy": ("accuracy", 3), "gap": ("gap", 3)},
    "few-valued": {"crps": ("CRPS", 4), "rmse": ("RMSE", 3), "inside_95": ("in 95 %", 1)},
}
# Of each family the method that counts, fixed before anything was run.
OURS = {
    "counts": "gwi, negative-binomial",
    "censored": "gwi, censored",
    "positive": "gwi, log-normal",
    "ordered": "gwi, ordinal",
    "few-valued": "gwi, few-valued",
}
LARGER_IS_BETTER = ("c_index", "accuracy")
SHARES = ("pit_95", "inside_95")
NAME, ALL = "likelihoods", "all"


@dataclass(frozen=True)
class Difference:
    """Of paired scores over folds.

    Attributes:
        mean: of ours minus the other.
        error: its standard error, for training sets that overlap.
    """

    mean: float
    error: float


def difference(ours: Sequence[float], other: Sequence[float], train: int, test: int) -> Difference:
    """Mean and corrected standard error, √((1/n + test/train) s²) over n folds (Nadeau and Bengio, 2003)."""
    d = np.subtract(ours, other)
    if len(d) < 2:
        return Difference(float(d.mean()), math.nan)
    return Difference(float(d.mean()), math.sqrt((1 / len(d) + test / train) * float(d.var(ddof=1))))


def _by_method(name: str) -> dict[str, list[Record]]:
    """Records of a table, ours first, the one that counts before all."""
    records = [r for r in read(NAME) if r["table"] == name]
    methods = sorted(
        dict.fromkeys(r["method"] for r in records), key=lambda m: (m not in OURS.values(), not m.startswith("gwi"), m)
    )
    return {method: [r for r in records if r["method"] == method] for method in methods}


def _tables(family: str) -> list[str]:
    return list(dict.fromkeys(r["table"] for r in read(NAME) if r["family"] == family))


def _values(records: Sequence[Record], score: str) -> dict[tuple[str, str], float]:
    """By repetition and fold."""
    return {(r["repetition"], r["fold"]): float(r["value"]) for r in records if r["score"] == score}


def compared(records: dict[str, list[Record]], one: str, other: str, score: str) -> Difference:
    """One method minus another on the folds that both have."""
    a, b = _values(records[one], score), _values(records[other], score)
    folds = [key for key in a if key in b]
    first = next(r for r in records[one] if r["fold"] != ALL)
    return difference([a[key] for key in folds], [b[key] for key in folds], int(first["train"]), int(first["test"]))


def _mean(records: Sequence[Record], score: str) -> float:
    found = list(_values(records, score).values())
    return float(np.mean(found)) if found else math.nan


def _shown(value: float, score: str, digits: int) -> str:
    if math.isnan(value):
        return NOTHING
    if score in SHARES:
        return f"{100 * value:.1f}"
    return f"{value:.0f}" if abs(value) >= 1000 else signed(value, digits).lstrip("+")


def _family(family: str) -> str:
    """One row a table and method; the least main score of each table is bold."""
    scores = SCORES[family]
    main = next(iter(scores))
    rows = []
    for name in _tables(family):
        records = _by_method(name)
        best = min(records, key=lambda m: _mean(records[m], main))
        for method, own in records.items():
            cells = [_shown(_mean(own, score), score, digits) for score, (_, digits) in scores.items()]
            cells[0] = f"**{cells[0]}**" if method == best else cells[0]
            last = NOTHING
            if method != OURS[family] and OURS[family] in records and _values(own, main):
                found = compared(records, OURS[family], method, main)
                digits = scores[main][1] if abs(found.mean) < 1000 else 0
                last = f"{signed(found.mean, digits)} ± {found.error:.{digits}f}"
            rows.append([name if method == next(iter(records)) else "", method, *cells, last])
    return table(["", "method", *(shown for shown, _ in scores.values()), "ours − it"], rows)


def _of(family: str) -> Callable[[], str]:
    def made() -> str:
        return _family(family)

    made.__name__ = f"likelihoods_{family.replace('-', '_')}"
    made.__doc__ = f"Scores of {family} targets."
    return made


BY_FAMILY = [_of(family) for family in SCORES]


def places() -> list[tuple[str, str, str, Difference]]:
    """Family, table, best of the others, and ours minus it by the main score."""
    found = []
    for family, scores in SCORES.items():
        main = next(iter(scores))
        for name in _tables(family):
            records = _by_method(name)
            if OURS[family] not in records:
                continue
            others = [method for method in records if not method.startswith("gwi")]
            if not others:
                continue
            best = min(others, key=lambda m: _mean(records[m], main))
            found.append((family, name, best, compared(records, OURS[family], best, main)))
    return found


def likelihoods_places() -> str:
    """Where ours is first, within one standard error of the best of the others, or behind, by the main score of each family."""
    rows = []
    for family, name, best, found in places():
        shown, digits = next(iter(SCORES[family].values()))
        digits = digits if abs(found.mean) < 1000 else 0
        place = "first" if found.mean < 0 else "within one error" if found.mean <= found.error else "behind"
        clear = "" if abs(found.mean) <= 2 * found.error else ", clearly"
        text = f"{signed(found.mean, digits)} ± {found.error:.{digits}f}"
        rows.append([family, name, f"{shown}", best, text, place + clear])
    return table(["", "table", "main score", "best of the others", "ours − it", "ours is"], rows)


def likelihoods_count() -> str:
    """How often ours is first or close."""
    found = [d for *_, d in places()]
    first, near = sum(d.mean < 0 for d in found), sum(d.mean <= d.error for d in found)
    return (
        f"By the main score ours is first on {first} of {len(found)} tables, first or within one standard error of the best of "
        f"the others on {near}, and behind on {len(found) - near}."
    )


def likelihoods_folds() -> str:
    """Rows and folds of each table."""
    rows = []
    for name in dict.fromkeys(r["table"] for r in read(NAME)):
        own = [r for r in read(NAME) if r["table"] == name]
        folds = {(r["repetition"], r["fold"]) for r in own if r["fold"] != ALL}
        whole = next(r for r in own if r["fold"] == ALL)
        low, high = binom.interval(0.99, int(whole["test"]), 0.95)
        bounds = f"{100 * low / int(whole['test']):.1f} to {100 * high / int(whole['test']):.1f}"
        rows.append([name, whole["train"], whole["test"], str(len(folds)), bounds])
    return table(["", "training rows", "test rows of a repetition", "folds", "in 95 % intervals of the true law"], rows)


def prior_draws() -> str:
    """Coverage of f and y over sets, in percent, with the standard error over sets."""
    records = read("prior_draws")
    rows = []
    for name in dict.fromkeys(r["likelihood"] for r in records):
        own = [r for r in records if r["likelihood"] == name]
        cells = []
        for score in ("f_covered", "y_covered"):
            values = [100 * float(r[score]) for r in own]
            cells.append(f"{np.mean(values):.1f} ± {np.std(values, ddof=1) / math.sqrt(len(values)):.1f}")
        low, high = binom.interval(0.99, len(own), 0.95)
        cells += [f"{100 * np.mean([float(r[score]) for r in own]):.1f}" for score in ("first_f", "first_y")]
        rows.append([name, str(len(own)), *cells, f"{100 * low / len(own):.1f} to {100 * high / len(own):.1f}"])
    header = [
        "",
        "sets",
        "f, all test rows",
        "y, all test rows",
        "f, first row",
        "y, first row",
        "exact, first row",
    ]
    return table(header, rows)
