"""Tables on what each part of a fit brings, and where another method is the better choice."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from benchmarks.figures.parts import PLACES, differences
from benchmarks.render.markdown import table
from benchmarks.tables.common.records import Record, read
from benchmarks.tables.common.words import NOTHING

# Of the UCI run, as they stand beside ours.
PEERS = (
    "exact GP",
    "SVGP",
    "deep ensemble",
    "MC dropout",
    "Bayes by Backprop",
    "last-layer Laplace",
    "NGBoost",
    "histogram boosting",
)
# A comparison of fewer splits is none.
FEWEST_SPLITS = 3
DIGITS = 2


def signed(value: float, digits: int = DIGITS) -> str:
    """With a sign that can be seen."""
    return f"{value:+.{digits}f}".replace("-", "−")


def with_error(values: Sequence[float]) -> str:
    """Mean ± standard error."""
    if not values:
        return NOTHING
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{signed(float(np.mean(values)))} ± {error:.2f}"


def _by_place(one: str, other: str) -> str:
    """NLL of one minus that of the other on every set, at home, in gaps and in tails."""
    records = read("uci")
    found = {place: differences(records, place, one, other) for place in PLACES}
    sets = [name for name in dict.fromkeys(r["set"] for r in records) if name in found["gap"]]
    rows = [[name, *(with_error(found[place].get(name, [])) for place in PLACES)] for name in sets]
    return table(["", "at home", "in gaps", "in tails"], rows)


def pays_covariance() -> str:
    """What r brings."""
    return _by_place("gwi", "gwi, no r")


def pays_tails() -> str:
    """What Student's tails bring."""
    return _by_place("gwi", "gwi, normal tails")


def pays_mean() -> str:
    """RMSE of peers over ours, geometric mean over the tables with at least two splits of both."""
    records = read("uci")
    rows = []
    for place, title in (("standard", "at home"), ("gap", "in gaps"), ("tail", "in tails")):
        ours = {(r["set"], r["split"]): float(r["rmse"]) for r in records if (r["protocol"], r["method"]) == (place, "gwi")}
        cells = []
        for method in PEERS:
            ratios: dict[str, list[float]] = {}
            for r in records:
                if (r["protocol"], r["method"]) == (place, method) and (r["set"], r["split"]) in ours:
                    ratios.setdefault(r["set"], []).append(math.log(float(r["rmse"]) / ours[r["set"], r["split"]]))
            means = [float(np.mean(values)) for values in ratios.values() if len(values) >= 2]
            cells.append(f"{math.exp(float(np.mean(means))):.2f} ({len(means)})" if means else NOTHING)
        rows.append([title, *cells])
    return table(["", *PEERS], rows)


# The paper's model by itself, beside networks without r.
NETWORKS = ("gwi", "GWI-net", "GWI-net, one network", "deep ensemble", "deep ensemble, treated", "last-layer Laplace")


def pays_network() -> str:
    """NLL of networks with and without r on the sets of each place, means over the splits that all have done."""
    records = read("uci")
    rows = []
    for place, title in (("standard", "at home"), ("gap", "in gaps"), ("tail", "in tails")):
        nll: dict[str, dict[tuple[str, str], float]] = {method: {} for method in NETWORKS}
        for r in records:
            if r["protocol"] == place and r["method"] in nll:
                nll[r["method"]][r["set"], r["split"]] = float(r["nll"])
        common = sorted(set.intersection(*(set(own) for own in nll.values())))
        for name in dict.fromkeys(key[0] for key in common):
            splits = [key for key in common if key[0] == name]
            means = {method: float(np.mean([own[key] for key in splits])) for method, own in nll.items()}
            rows.append([title, name, str(len(splits)), *(signed(value, 2).lstrip("+") for value in means.values())])
    return table(["", "", "splits", *NETWORKS], rows)


def better_elsewhere() -> str:
    """Sets and places where a peer's NLL or CRPS is below ours by more than two standard errors, paired over splits."""
    records = read("uci")
    rows = []
    for place, title in (("standard", "at home"), ("gap", "in gaps"), ("tail", "in tails")):
        for score, heading in (("nll", "NLL"), ("crps", "CRPS"), ("interval_score_95", "interval score")):
            for method in dict.fromkeys(r["method"] for r in records if not r["method"].startswith(("gwi", "GWI"))):
                for name, values in differences(records, place, method, "gwi", score).items():
                    if len(values) < FEWEST_SPLITS:
                        continue
                    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
                    if np.mean(values) < -2 * error:
                        rows.append([title, name, method, heading, f"{signed(float(np.mean(values)), 3)} ± {error:.3f}"])
    return table(["where", "table", "method", "score", "theirs minus ours"], rows)


def pays_wasserstein() -> str:
    """Coverage of f in gaps and at the data, and NLL above the exact posterior's, for each form of S."""
    shown = {
        "exact": "exact posterior",
        "W₂ on data, Z = X": "W₂ on the data",
        "W₂ with context, box": "W₂ on the data and a box",
        "Titsias": "KL (Titsias)",
    }
    records = read("context")
    rows = []
    for dimension in dict.fromkeys(r["dimension"] for r in records):
        cells = []
        for kind in shown:
            some = [r for r in records if (r["dimension"], r["covariance"]) == (dimension, kind)]
            cells += [f"{100 * mean_of(some, f'coverage_{place}'):.0f}" if some else NOTHING for place in ("gap", "data")]
        rows.append([dimension, *cells])
    return table(["columns", *(f"{name}, {place}" for name in shown.values() for place in ("gap", "data"))], rows)


def mean_of(records: Iterable[Record], name: str) -> float:
    """Of a column."""
    return float(np.mean([float(r[name]) for r in records]))


def joint_predictions() -> str:
    """NLL a row of five neighbours, one by one, together without correlations, and together."""
    records = read("joint_predictions")
    methods = [m for m in dict.fromkeys(r["method"] for r in records) if m != "gwi, Titsias"]
    parts = ("marginal", "common", "joint")
    rows = []
    for method in methods:
        some = {kind: [r for r in records if (r["method"], r["kind"]) == (method, kind)] for kind in ("random", "gap")}
        rows.append([method, *(signed(mean_of(found, f"nll_{part}"), 3) for found in some.values() for part in parts)])
    words = ("one by one", "together, no correlations", "together")
    return table(["", *(f"{place}: {word}" for place in ("random", "gaps") for word in words)], rows)


def active_learning() -> str:
    """RMSE over that with rows bought at random, over the whole curve."""
    records = read("active_learning")
    value = {(r["table"], r["seed"], r["method"], r["rule"], r["num_rows"]): float(r["rmse"]) for r in records}
    rows = []
    for method, rule in dict.fromkeys((r["method"], r["rule"]) for r in records if r["rule"] != "random"):
        runs: dict[tuple[str, str], list[float]] = {}
        # At random the errors of both forms of S are the same.
        twin = "svgp, Titsias" if method == "svgp, W₂" else method
        for (name, seed, m, how, count), rmse in value.items():
            if (m, how) == (method, rule):
                runs.setdefault((name, seed), []).append(math.log(rmse / value[name, seed, twin, "random", count]))
        curves = [float(np.mean(logs)) for logs in runs.values()]
        rows.append(
            [
                f"{method}, by {rule}",
                f"{math.exp(float(np.mean(curves))):.3f}",
                f"{sum(curve < 0 for curve in curves)} of {len(curves)}",
            ]
        )
    return table(["", "RMSE over that of random rows", "runs better than random"], rows)


def ood_tables() -> str:
    """Share of rows told right, by table."""
    records = read("ood_tables")
    names = list(dict.fromkeys(r["table"] for r in records))
    methods = dict.fromkeys(r["method"] for r in records)
    rows = []
    for method in methods:
        cells = [mean_of([r for r in records if (r["table"], r["method"]) == (name, method)], "accuracy") for name in names]
        rows.append([method, *(f"{cell:.3f}" for cell in cells), f"{np.mean(cells):.3f}"])
    return table(["", *names, "mean"], rows)


def infinite_kl() -> str:
    """KL in nats, and W₂², on more and more points."""
    records = read("figures/infinite_kl")
    shown = ("5", "9", "33", "129", "1025")
    rows = []
    for case in dict.fromkeys(r["case"] for r in records):
        found = {r["num_points"]: r for r in records if r["case"] == case}
        cells = [_large(float(found[n]["kl"])) if n in found else NOTHING for n in shown]
        last = " → ".join(f"{float(found[n]['wasserstein_squared']):.3f}" for n in ("513", "1025"))
        rows.append([case, *cells, last])
    return table(["KL at n points", *shown, "W₂² at 513 → 1,025"], rows)


def _large(value: float) -> str:
    if math.isnan(value):
        return "not computed"
    if value < 1e5:
        return f"{value:,.1f}"
    power = math.floor(math.log10(value))
    return f"{value / 10**power:.0f}·10" + str(power).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def region_folds() -> str:
    """Geometric means of RMSE by who weighs the members, and scores of both calibrations."""
    records = read("region_folds")
    rows = []
    for what in ("weights", "calibrated"):
        for folds in dict.fromkeys(r["folds"] for r in records if r["what"] == what):
            cells = []
            for kind in ("gap", "tail"):
                some = [r for r in records if (r["what"], r["folds"]) == (what, folds) and r["split"].startswith(kind)]
                cells.append(f"{math.exp(float(np.mean([math.log(float(r['rmse'])) for r in some]))):.3f}")
                cells.append(signed(mean_of(some, "nll"), 3) if some[0]["nll"] else NOTHING)
            rows.append([f"{what}, {folds}", *cells])
    return table(["", "gaps: RMSE", "gaps: NLL", "tails: RMSE", "tails: NLL"], rows)


def gap_spread() -> str:
    """What other rules for the spread change against the default, with the same mean."""
    records = read("gap_spread")
    rows = []
    for kind, called in (("gap", "gaps"), ("tail", "tails"), ("random", "at random")):
        some = [r for r in records if r["split"].startswith(kind)]
        before = [r for r in some if r["rule"] == "default"]
        for rule in dict.fromkeys(r["rule"] for r in some):
            now = [r for r in some if r["rule"] == rule]
            pairs = list(zip(now, before, strict=True))
            change = NOTHING if rule == "default" else with_error([float(a["nll"]) - float(b["nll"]) for a, b in pairs])
            ratios = [np.mean([math.log(float(a[part]) / float(b[part])) for a, b in pairs]) for part in ("crps", "interval")]
            held = f"{100 * mean_of(now, 'coverage_95'):.1f}"
            rows.append([called, str(len(now)), rule, change, *(f"{math.exp(ratio):.3f}" for ratio in ratios), held])
    return table(["", "fits", "rule", "NLL", "CRPS ratio", "interval score ratio", "95 % hold"], rows)


def handover() -> str:
    """What weights that depend on r change against weights that are the same at every row."""
    records = read("handover")
    rows = []
    for kind, called in (("gap", "gaps"), ("tail", "tails")):
        some = [r for r in records if r["split"].startswith(kind)]
        now, before = ([r for r in some if r["weights"] == way] for way in ("by r", "the same everywhere"))
        pairs = list(zip(now, before, strict=True))
        change = with_error([float(a["nll"]) - float(b["nll"]) for a, b in pairs])
        logs = [[math.log(float(a[part]) / float(b[part])) for a, b in pairs] for part in ("rmse", "crps", "interval")]
        worst = f"{math.exp(max(logs[0])):.2f}"
        held = [f"{100 * mean_of(part, 'coverage_95'):.1f}" for part in (before, now)]
        rows.append([called, str(len(pairs)), *(f"{math.exp(float(np.mean(part))):.3f}" for part in logs), worst, change, *held])
    names = ["RMSE", "CRPS", "interval score", "RMSE, worst", "NLL", "95 % hold, before", "after"]
    return table(["", "fits", *names], rows)


def one_rule() -> str:
    """NLL and RMSE by how means are weighed, and above 2,000 rows by the rule that chose the prior, averaged over tables."""
    records = read("one_rule")
    kinds = sorted(
        {(r["where"], int(r["num_rows"]) if r["where"] == "random" else 0) for r in records}, key=lambda k: (k[0] != "random", k)
    )
    rows = []
    for where, size in kinds:
        some = [r for r in records if r["where"] == where and (not size or int(r["num_rows"]) == size)]
        ways = list(dict.fromkeys(r["way"] for r in some))
        before = [r for r in some if r["way"] == ways[0]]
        for way in ways:
            now = [r for r in some if r["way"] == way]
            ratio = np.mean([math.log(float(a["rmse"]) / float(b["rmse"])) for a, b in zip(now, before, strict=True)])
            gained = [float(a["nll"]) - float(b["nll"]) for a, b in zip(now, before, strict=True)]
            change = NOTHING if way == ways[0] else with_error(gained)
            place = f"{size:,} rows" if size else f"{where}s"
            rows.append([place, str(len(now)), way, signed(mean_of(now, "nll"), 3), change, f"{math.exp(ratio):.3f}"])
    return table(["", "fits", "way", "NLL", "change", "RMSE ratio"], rows)


def network_mean() -> str:
    """The network beside ridge regression and an ensemble, one row a table."""
    return _network_rows("RMSE", {"practice", "uci"})


def network_smooth() -> str:
    """The same on smooth functions with hardly any noise, by CRPS."""
    return _network_rows("CRPS", {"smooth"})


def _network_rows(score: str, kinds: set[str]) -> str:
    records = [r for r in read("network_mean") if r["kind"] in kinds]
    rows = []
    for kind, name, size in dict.fromkeys((r["kind"], r["table"], r["num_rows"]) for r in records):
        some = [r for r in records if (r["kind"], r["table"], r["num_rows"]) == (kind, name, size)]
        own, ridge, constant, ensemble = (
            [r for r in some if r["method"] == method] for method in ("network", "ridge", "constant", "ensemble")
        )
        rows.append(
            [
                name,
                f"{int(size):,}",
                str(len(own)),
                *(f"{mean_of(part, score.lower()):.3f}" for part in (own, ensemble, ridge, constant)),
                *(signed(mean_of(part, "nll")) for part in (own, ensemble)),
                *(signed(mean_of(part, "rank")) for part in (own, ensemble)),
                f"{mean_of(own, 'cpu_seconds') / mean_of(ensemble, 'cpu_seconds'):.1f}",
            ]
        )
    heads = (
        score,
        "ensemble's",
        "ridge's",
        "a constant's",
        "NLL",
        "ensemble's",
        "rank of σ",
        "ensemble's",
        "CPU ratio",
    )
    return table(["table", "rows", "splits", *heads], rows)


FEW_ROWS_METHODS = ("gwi", "ridge", "GP", "CatBoost")


def few_rows() -> str:
    """NLL on few rows, one row a table and size, and how far ours is from that of the method that is best on the table."""
    by: dict[tuple[str, int], dict[str, dict[str, float]]] = {}
    for r in read("few_rows"):
        by.setdefault((r["table"], int(r["num_rows"])), {}).setdefault(r["method"], {})[r["draw"]] = float(r["nll"])
    # Of the draws that every method has done.
    draws = {cell: [d for d in own["gwi"] if all(d in own[m] for m in FEW_ROWS_METHODS)] for cell, own in by.items()}
    nll = {cell: {m: [own[m][d] for d in draws[cell]] for m in FEW_ROWS_METHODS} for cell, own in by.items()}
    rows, every = [], []
    for name, size in sorted(by):
        sizes = [cell for cell in by if cell[0] == name]
        best = min(FEW_ROWS_METHODS[1:], key=lambda m: float(np.mean([np.mean(nll[cell][m]) for cell in sizes])))
        own = nll[name, size]
        means = {m: float(np.mean(own[m])) for m in FEW_ROWS_METHODS}
        lowest = min(means, key=means.__getitem__)
        shown = [f"**{signed(value)}**" if m == lowest else signed(value) for m, value in means.items()]
        away = np.array(own["gwi"]) - np.array(own[best])
        every.append(float(away.mean()))
        error = float(away.std(ddof=1)) / math.sqrt(len(away)) if len(away) > 1 else math.nan
        rows.append([name, str(size), str(len(away)), *shown, f"{signed(every[-1])} ± {error:.2f} ({best})"])
    rows.append(["mean of all", "", "", *[""] * len(FEW_ROWS_METHODS), signed(float(np.mean(every)))])
    return table(["table", "rows", "draws", *FEW_ROWS_METHODS, "gwi − the table's best other"], rows)
