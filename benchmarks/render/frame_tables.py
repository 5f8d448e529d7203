"""Tables on data frames: the default beside boosting, models that are wrapped, files between versions."""

from __future__ import annotations

import math

import numpy as np

from benchmarks.render.evidence_tables import mean_of, signed
from benchmarks.render.markdown import table
from benchmarks.tables.common.records import Record, read
from benchmarks.tables.common.words import NOTHING

METHODS = (
    "gwi",
    "CatBoost's own variance",
    "CatBoost",
    "CatBoost, tails",
    "LightGBM",
    "LightGBM, tails",
    "HistGB",
    "HistGB, tails",
)


def mixed_tables() -> str:
    """NLL of each method on each table, and how far ours is from the best of the others."""
    return table(["", "splits", *METHODS, "gwi − best other"], [_row(name, "nll") for name in _tables()])


def mixed_losses() -> str:
    """CRPS, or the Brier score of classes."""
    return table(["", "splits", *METHODS, "gwi / best other"], [_row(name, "loss") for name in _tables()])


def _tables() -> list[str]:
    return list(dict.fromkeys(r["table"] for r in read("mixed_tables")))


def _row(name: str, score: str) -> list[str]:
    """Of the splits that every method has done."""
    records = [r for r in read("mixed_tables") if r["table"] == name]
    methods = [method for method in METHODS if any(r["method"] == method for r in records)]
    by: dict[str, dict[str, Record]] = {m: {r["split"]: r for r in records if r["method"] == m} for m in methods}
    splits = [split for split in by["gwi"] if all(split in by[method] for method in methods)]
    means = {m: float(np.mean([float(by[m][split][score]) for split in splits])) for m in methods}
    best = min((m for m in methods if m != "gwi"), key=means.__getitem__)
    pairs = [(float(by["gwi"][split][score]), float(by[best][split][score])) for split in splits]
    if score == "nll":
        gained = [a - b for a, b in pairs]
        error = float(np.std(gained, ddof=1)) / math.sqrt(len(gained)) if len(gained) > 1 else math.nan
        last = f"{signed(float(np.mean(gained)), 3)} ± {error:.3f}"
    else:
        last = f"{math.exp(float(np.mean([math.log(a / b) for a, b in pairs]))):.3f}"
    shown = [signed(means[m], 3).lstrip("+") if m in means else NOTHING for m in METHODS]
    lowest = min(means, key=means.__getitem__)
    return [name, str(len(splits)), *(f"**{s}**" if m == lowest else s for m, s in zip(METHODS, shown, strict=True)), last]


def wrapped_models() -> str:
    """How well wrapped models keep their predictions and their word, one row a model."""
    records = read("wrapped_models")
    tables = list(dict.fromkeys(r["table"] for r in records))
    rows = []
    for name in dict.fromkeys(r["model"] for r in records):
        own = {r["table"]: r for r in records if r["model"] == name}
        worst = max(float(r["relative_difference"]) for r in own.values())
        saved = {r["saved"] for r in own.values()}
        said = "no" if "no" in saved else f"the same to {max(map(float, saved)):.0e}" if max(map(float, saved)) else "the same"
        held = [f"{100 * float(own[t]['coverage_95']):.1f}" if t in own else NOTHING for t in tables]
        rows.append([name, f"{worst:.0e}" if worst else "0", *held, said])
    return table(["model", "largest relative difference", *(f"{t}: 95 % hold" for t in tables), "saved"], rows)


def versions() -> str:
    """Files between versions, one row a pair."""
    records = read("versions")
    rows = []
    for pair in dict.fromkeys((r["written_by"], r["read_by"]) for r in records):
        some = [r for r in records if (r["written_by"], r["read_by"]) == pair]
        rows.append([*pair, str(len(some)), f"{max(float(r['relative_difference']) for r in some):g}"])
    return table(["written by", "read by", "kinds of model", "largest relative difference"], rows)


def mixed_coverage() -> str:
    """Of the default's 95 % intervals on each table of numbers, averaged over splits."""
    records = [r for r in read("mixed_tables") if r["method"] == "gwi" and r["coverage_95"] not in ("nan", "")]
    names = list(dict.fromkeys(r["table"] for r in records))
    return table(names, [[f"{100 * mean_of([r for r in records if r['table'] == n], 'coverage_95'):.1f}" for n in names]])


def large_modules() -> str:
    """What a measure around large torch modules costs, one row a module and method."""
    rows = [
        [
            f"{r['module']}, {float(r['parameters']) / 1e6:.0f} million numbers",
            r["method"],
            f"{float(r['fit_cpu_seconds']):.0f}",
            f"{float(r['predict_cpu_seconds']):.0f}",
            f"{float(r['peak_mb']) / 1000:.1f}",
        ]
        for r in read("large_modules")
    ]
    return table(["network", "", "fit, seconds", "prediction, seconds", "most memory, GB"], rows)


def text_columns() -> str:
    """NLL and RMSE of each way to see text of many values, one row a table."""
    records = read("text_columns")
    ways = list(dict.fromkeys(r["way"] for r in records))
    rows = []
    for name in dict.fromkeys(r["table"] for r in records):
        own = [r for r in records if r["table"] == name]
        values = [[r for r in own if r["way"] == way] for way in ways]
        shown = [f"{signed(mean_of(some, 'nll'), 2)} / {mean_of(some, 'rmse'):.3f}" for some in values]
        rows.append([name, own[0]["num_values"], str(len(values[0])), *shown])
    return table(["table, column", "values", "splits", *ways], rows)


def tree_inputs() -> str:
    """Errors of trees on a frame's own cells over those on the encoder's numbers, one row a member."""
    records = read("tree_inputs")
    names = list(dict.fromkeys(r["table"] for r in records))
    rows = []
    for member in ("HistGradientBoosting", "ExtraTrees"):
        ratios = []
        for name in names:
            own = [r for r in records if r["table"] == name and r["member"].startswith(member)]
            first, second = (mean_of([r for r in own if r["way"] == way], "loss") for way in ("own", "encoded"))
            ratios.append(first / second)
        mean = math.exp(float(np.mean(np.log(ratios))))
        rows.append([member, *(f"{ratio:.3f}" for ratio in ratios), f"{mean:.3f}"])
    return table(["", *names, "geometric mean"], rows)
