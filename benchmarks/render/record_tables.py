"""Tables of the documentation, each from the records of one measurement."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Sequence
from statistics import median

from benchmarks.campaign.running import num_faults
from benchmarks.render.markdown import table
from benchmarks.tables.common.records import RESULTS, Record, read
from benchmarks.tables.common.words import NOTHING


def coverage() -> str:
    """One row a setting, one column a method."""
    methods = {
        "titsias": "Titsias",
        "beta_match": "W₂², β_match",
        "beta_1": "W₂², β = 1",
        "beta_match_own_mean": "β_match, own mean",
    }
    settings: dict[tuple[str, ...], dict[str, Record]] = {}
    for record in read("coverage"):
        key = tuple(
            record[name] for name in ("num_data", "num_features", "num_inducing", "lengthscale", "noise_variance", "num_sets")
        )
        settings.setdefault(key, {})[record["method"]] = record
    rows = [
        [*key, *(f"{100 * float(found[m]['coverage_f']):.1f} ({100 * float(found[m]['coverage_y']):.1f})" for m in methods)]
        for key, found in settings.items()
    ]
    return table(["N", "D", "M", "ℓ", "σ²", "sets", *methods.values()], rows)


def covariance() -> str:
    rows = [
        [
            r["set"],
            r["num_inducing"],
            {"1": "1", "match": f"match = {float(r['divergence_weight']):.0f}", "N": f"N = {r['num_data']}"}[r["beta"]],
            f"{float(r['residual_share']):.1e}",
            r["iterations"],
            f"{float(r['duality_gap']):.0e}",
            f"{max(abs(float(r[f'lbfgs_{i}_minus_fixed_point'])) for i in (1, 2)):.0e}",
            f"{float(r['largest_eigenvalue_of_s']):.1e}" if float(r["largest_eigenvalue_of_s"]) else "0",
            "–" if float(r["cheap_form_excess"]) == float("inf") else f"{float(r['cheap_form_excess']):.3f}",
            f"{float(r['lbfgs_seconds']) / float(r['seconds']):.1f}",
        ]
        for r in read("covariance")
        if r["prior"] == "collapsed"
    ]
    header = [
        "set",
        "M",
        "β",
        "mean R₀/k̄",
        "steps",
        "gap",
        "L-BFGS differs by",
        "λ_max(S)",
        "cheap form's excess",
        "L-BFGS time ratio",
    ]
    return table(header, rows)


def covariance_summary() -> str:
    records = read("covariance")
    zero = [r for r in records if r["beta"] == "1" and float(r["largest_eigenvalue_of_s"]) == 0]
    ones = [r for r in records if r["beta"] == "1"]
    worst = max(max(abs(float(r[f"lbfgs_{i}_minus_fixed_point"])) for i in (1, 2)) for r in records)
    rise = max(float(r["largest_increase"]) for r in records)
    cheap = {
        prior: [
            float(r["cheap_form_excess"])
            for r in records
            if r["beta"] == "match" and r["prior"] == prior and r["num_inducing"] != "20"
        ]
        for prior in ("collapsed", "marginal")
    }
    finite = [value for value in cheap["marginal"] if value != float("inf")]
    return (
        f"In all {len(records)} cases (three tables, two priors, M = 20, 50, 100, three weights) the gap is at most "
        f"{max(float(r['duality_gap']) for r in records):.0e}, L-BFGS from two starts differs by at most {worst:.0e} of J, and "
        f"{'J falls at every step' if rise < 0 else f'J rises by at most {rise:.0e}'}. "
        f"At β = 1 the optimum is S = 0 in {len(zero)} of {len(ones)} cases. "
        f"At β_match with M ≥ 50 the cheap form's excess is {min(cheap['collapsed']):.3f} to {max(cheap['collapsed']):.3f} "
        f"when the prior was fitted with the same Z, but {min(finite):.2f} to {max(finite):.1f} when it was not (and infinite "
        "where S = 0 is optimal)."
    )


def robust_max() -> str:
    records = [r for r in read("robust_max") if r["num_classes"] == "2"]
    ratios = sorted({r["variance_ratio"] for r in records}, key=float)
    rules = list(dict.fromkeys((r["rule"], r["nodes"]) for r in records))
    found = {(r["rule"], r["nodes"], r["variance_ratio"]): float(r["max_error"]) for r in records}
    rows = [[f"{rule}, {nodes} nodes", *(f"{found[rule, nodes, ratio]:.0e}" for ratio in ratios)] for rule, nodes in rules]
    return table(["largest error of S, J = 2; variance ratio:", *(f"{float(ratio):g}" for ratio in ratios)], rows)


def hostile() -> str:
    records = read("hostile")
    rows = []
    for dtype in ("float64", "float32"):
        outcomes = Counter(r["outcome"] for r in records if r["dtype"] == dtype)
        rows.append(
            [dtype, str(sum(outcomes.values())), ", ".join(f"{name} {count}" for name, count in sorted(outcomes.items()))]
        )
    return table(["dtype", "matrices", "outcome"], rows)


def convergence() -> str:
    records = read("wasserstein_convergence")
    largest = max(int(r["num_points"]) for r in records)
    rows = []
    for key in dict.fromkeys((r["num_features"], r["lengthscale"]) for r in records):
        chosen = [r for r in records if (r["num_features"], r["lengthscale"]) == key and int(r["num_points"]) == largest]
        means = [
            sum(float(r[name]) for r in chosen) / len(chosen)
            for name in ("exact", "symmetric", "two_sample", "two_sample_of_p_and_p")
        ]
        rows.append([*key, *(f"{value:.3f}" for value in means)])
    return table(["D", "ℓ", "exact", f"symmetric, n = {largest}", "two-sample", "two-sample of (P, P)"], rows)


def estimator_coverage() -> str:
    records = read("estimator_coverage")
    cells = {(r["configuration"], r["of"], r["nominal"]): f"{100 * float(r['coverage']):.1f}" for r in records}
    bands = {r["nominal"]: f"{100 * float(r['band_low']):.1f}–{100 * float(r['band_high']):.1f}" for r in records}
    columns = list(dict.fromkeys((r["of"], r["nominal"]) for r in records))
    rows = [
        [name, *(cells[name, of, nominal] for of, nominal in columns)]
        for name in dict.fromkeys(r["configuration"] for r in records)
    ]
    rows.append(["band of 95 % of exact intervals", *(bands[nominal] for _, nominal in columns)])
    return table(["percent covered", *(f"{of} at {float(nominal):.0%}" for of, nominal in columns)], rows)


def small_tables() -> str:
    """One row a size and kind of split, one column a list of means: tables on which it is better than the GP, and by how much."""
    records = read("small_tables")
    names = list(dict.fromkeys(r["means"] for r in records))
    tables: dict[tuple[str, ...], dict[str, Record]] = {}
    for record in records:
        key = tuple(record[name] for name in ("kind", "num_rows", "set", "draw"))
        tables.setdefault(key, {})[record["means"]] = record
    rows = []
    for kind, size in sorted({key[:2] for key in tables}, key=lambda pair: (pair[0], int(pair[1]))):
        chosen = [found for key, found in tables.items() if key[:2] == (kind, size)]
        cells = []
        for name in names[1:]:
            nll, crps = (
                [float(found[name][score]) - float(found[names[0]][score]) for found in chosen] for score in ("nll", "crps")
            )
            better = sum(change < 0 for change in nll)
            cells.append(f"{better} of {len(chosen)}, {median(nll):+.3f}, {sum(crps) / len(crps):+.3f}".replace("-", "−"))
        rows.append([kind, size, *cells])
    seconds = [
        f"{sum(values) / len(values):.1f} s"
        for values in ([float(r["cpu_seconds"]) for r in records if r["means"] == name] for name in names)
    ]
    rows.append(["a fit", f"GP {seconds[0]}", *seconds[1:]])
    return table(["judged at", "rows", *names[1:]], rows)


def hyper_priors() -> str:
    records = read("hyper_priors")
    rows = []
    for name in dict.fromkeys(r["set"] for r in records):
        cells = []
        for kind in ("none", "weak"):
            chosen = [r for r in records if r["set"] == name and r["hyper_priors"] == kind]
            cells += [
                f"{sum(float(r[c]) for r in chosen) / len(chosen):.{d}f}"
                for c, d in (("outputscale", 1), ("nll", 3), ("steps", 0))
            ]
        rows.append([name, *cells])
    return table(["set", "σ_f², none", "NLL, none", "steps, none", "σ_f², weak", "NLL, weak", "steps, weak"], rows)


def _ablation(name: str) -> str:
    """One row a covariance, tempered or not; columns are sets by kind of split: mean NLL, and how many rows intervals hold."""
    records = read(name)
    columns = list(dict.fromkeys((r["set"], r["split"].split("-")[0]) for r in records))
    splits = {column: {r["split"] for r in records if (r["set"], r["split"].split("-")[0]) == column} for column in columns}
    rows = []
    for label, tempered in dict.fromkeys((r["covariance"], r["tempered"]) for r in records):
        cells = []
        for table_name, kind in columns:
            chosen = [
                r
                for r in records
                if (r["covariance"], r["tempered"], r["set"]) == (label, tempered, table_name) and r["split"].startswith(kind)
            ]
            nll, inside = (sum(float(r[c]) for r in chosen) / len(chosen) for c in ("nll", "coverage_95"))
            cells.append(f"{nll:.2f} ({100 * inside:.0f})")
        rows.append([label, "yes" if tempered == "1" else "no", *cells])
    header = [f"{name}, {kind} ({len(splits[name, kind])})" for name, kind in columns]
    return table(["covariance", "tempered", *header], rows)


def ablation() -> str:
    return _ablation("ablation")


def ablation_within() -> str:
    return _ablation("ablation_within")


def bayesian_optimisation() -> str:
    """Median regret of each method at each budget; methods in a block of ten seeds had the same seeds."""
    records = [r | {"block": str(int(r["seed"]) // 10)} for r in read("bayesian_optimisation")]
    rows = []
    for function, block in dict.fromkeys((r["function"], r["block"]) for r in sorted(records, key=lambda r: r["function"])):
        chosen = [r for r in records if (r["function"], r["block"]) == (function, block)]
        budgets = sorted({int(r["evaluations"]) for r in chosen})
        for method in dict.fromkeys(r["method"] for r in chosen):
            own = [r for r in chosen if r["method"] == method]
            found = [[float(r["regret"]) for r in own if int(r["evaluations"]) == budget] for budget in budgets]
            cells = [f"{median(regrets):.3g} at {budget}" for budget, regrets in zip(budgets, found, strict=True)]
            seeds = sorted({int(r["seed"]) for r in own})
            rows.append([function, f"{seeds[0]}–{seeds[-1]}", method, *cells])
    return table(["function", "seeds", "method", "start", *["median regret"] * (len(rows[0]) - 4)], rows)


def _measured(record: Record) -> str:
    """A number, and how severe it was found to be."""
    value = float(record["value"])
    shown = f"{value:.0f}" if abs(value) >= 10 else f"{value:.2g}".replace("-0.", "−0.")
    return "–" if value != value else shown + (f" ({record['severity']})" if record["severity"] else "")


def diagnostics_faults() -> str:
    """One row a fault: the finding that must come, and which others did."""
    records = [r for r in read("diagnostics") if r["group"] == "fault"]
    rows = []
    for case in dict.fromkeys(r["case"] for r in records):
        chosen = [r for r in records if r["case"] == case]
        own = [f"`{r['kind']}` {_measured(r)}" for r in chosen if r["kind"] == r["seeded"]]
        others = [f"{r['kind']} {_measured(r)}" for r in chosen if r["severity"] and r["kind"] != r["seeded"]]
        rows.append([case, ", ".join(own) or "–", ", ".join(others) or "–"])
    return table(["fault", "finding", "others"], rows)


def diagnostics_uci() -> str:
    """One row a split, one column a kind of finding."""
    records = [r for r in read("diagnostics") if r["group"] == "uci"]
    kinds = list(dict.fromkeys(r["kind"] for r in records))
    found = {(r["case"], r["split"], r["kind"]): _measured(r) for r in records}
    cases = dict.fromkeys((r["case"], r["split"]) for r in records)
    return table(["set", "split", *kinds], [[*case, *(found[*case, kind] for kind in kinds)] for case in cases])


def classification() -> str:
    """One row a set and method, means over splits; the least NLL of a set is bold."""
    found: dict[tuple[str, str], list[Record]] = {}
    for record in read("classification"):
        found.setdefault((record["set"], record["method"]), []).append(record)
    sets = list(dict.fromkeys(name for name, _ in found))
    rows = []
    # Ours first in each set.
    for (name, method), records in sorted(
        found.items(), key=lambda item: (sets.index(item[0][0]), not item[0][1].startswith("gwi"))
    ):
        best = min(_mean(others, "nll") for (other, _), others in found.items() if other == name)
        nll = f"{_mean(records, 'nll'):.3f}"
        rows.append(
            [
                name,
                method,
                f"{100 * _mean(records, 'accuracy'):.1f}",
                f"**{nll}**" if _mean(records, "nll") == best else nll,
                f"{_mean(records, 'brier'):.3f}",
                f"{_mean(records, 'ece'):.3f}",
                f"{_mean(records, 'fit_seconds'):.1f}",
                str(len(records)),
            ]
        )
    return table(["set", "method", "accuracy, %", "NLL", "Brier", "ECE", "fit, s", "splits"], rows)


def optimism() -> str:
    """One row a kind of mean and size, one column a candidate; coverage in percent and NLL."""
    found: dict[tuple[str, str], dict[str, list[Record]]] = {}
    for record in read("optimism"):
        found.setdefault((record["means"], record["num_rows"]), {}).setdefault(record["optimism"], []).append(record)
    candidates = sorted({c for cell in found.values() for c in cell}, key=float)
    rows = []
    for (means, size), cell in sorted(found.items(), key=lambda item: (item[0][0], int(item[0][1]))):
        shown = [f"{100 * _mean(cell[c], 'coverage_95'):.1f} ({_mean(cell[c], 'nll'):.3f})".replace("-", "−") for c in candidates]
        rows.append(["default" if means == "auto" else "GP alone", size, str(len(cell[candidates[0]])), *shown])
    return table(["means", "rows", "tables", *(f"1 + {float(c):g}/V" if float(c) else "1" for c in candidates)], rows)


def campaign() -> str:
    """One row a kind of fault: how many trials there were of those that are planned, how they ended, and how many were wrong."""
    rows = []
    for path in sorted(RESULTS.glob("campaign_*.csv")):
        name = path.stem.removeprefix("campaign_")
        kind = importlib.import_module(f"benchmarks.campaign.kinds.{name}")
        lines = read(path.stem)
        ended = {word: sum(int(line[word]) for line in lines) for word in kind.FINE}
        shown = ", ".join(f"{count:,} {word.replace('_', ' ')}" for word, count in ended.items() if count)
        trials = sum(int(line["trials"]) for line in lines)
        wrong = num_faults(kind.__name__, lines)
        slowest = max(float(line["slowest_seconds"]) for line in lines)
        rows.append([name.replace("_", " "), f"{trials:,} of {kind.COUNT:,}", shown, str(wrong), f"{slowest:.1f}"])
    return table(["kind", "trials", "ended as", "faults", "slowest, CPU s"], rows)


def who_judges() -> str:
    """One row a table: coverage in percent and NLL of fits that were not told who judges, and of those that were."""
    found: dict[tuple[str, str], dict[tuple[str, str], list[Record]]] = {}
    for record in read("who_judges"):
        for name in (record["table"], "all"):
            found.setdefault((record["kind"], name), {}).setdefault((record["mean"], record["told"]), []).append(record)
    rows = []
    for (kind, name), cell in sorted(found.items(), key=lambda item: (item[0][0], item[0][1] == "all")):
        shown = [kind, f"**{name}**" if name == "all" else name]
        for mean in ("svgp", "auto"):
            shown.append(str(len(cell.get((mean, "after"), []))))
            shown += [_coverage_and_nll(cell.get((mean, told), [])) for told in ("before", "after")]
        rows.append(shown)
    return table(["rows", "table", "svgp: splits", "before", "after", "default: splits", "before", "after"], rows)


def _coverage_and_nll(records: Sequence[Record]) -> str:
    if not records:
        return NOTHING
    return f"{100 * _mean(records, 'coverage'):.1f} ({_mean(records, 'nll'):.2f})".replace("-", "−")


def _mean(records: Sequence[Record], name: str) -> float:
    return sum(float(record[name]) for record in records) / len(records)


def feature_choice() -> str:
    """For each set, one row a choice of features and one column a kind of outliers: means over the networks."""
    found: dict[str, dict[str, dict[str, list[Record]]]] = {}
    for record in read("feature_choice"):
        choices = found.setdefault(record["dataset"], {})
        choices.setdefault(record["choice"], {}).setdefault(record["outliers"], []).append(record)
    names = {"fashion-mnist": "Fashion-MNIST", "cifar10-20k": "CIFAR-10, 20k"}
    parts = []
    for dataset, choices in found.items():
        rows = [[choice, *(f"{_mean(own, 'auroc'):.3f}" for own in kinds.values())] for choice, kinds in choices.items()]
        parts.append(table([names[dataset], *next(iter(choices.values()))], rows))
    return "\n\n".join(parts)


# Of the image table, those that a reader looks for first.
SHOWN = (
    "gwi",
    "gwi, with energy",
    "gwi, ensemble",
    "MAP, temperature",
    "deep ensemble",
    "MC dropout",
    "mean-field VI",
    "Kronecker Laplace",
    "kNN distance, all layers",
    "kNN distance, with energy",
)


def images() -> str:
    """NLL and AUROC of some methods on both image sets: means over the seeds that all of them have, the best in bold."""
    found: dict[tuple[str, str], dict[str, Record]] = {}
    for record in read("images"):
        if record["method"] in SHOWN:
            found.setdefault((record["dataset"], record["method"]), {})[record["seed"]] = record
    sets = {"fashion-mnist": ("Fashion-MNIST", "MNIST"), "cifar10-20k": ("CIFAR-10, 20k", "SVHN")}
    columns: list[dict[str, tuple[float, str]]] = []
    for name in sets:
        own = {method: records for (dataset, method), records in found.items() if dataset == name}
        common = set.intersection(*(set(records) for records in own.values())) if own else set()
        nll, auroc = {}, {}
        for method, records in own.items():
            compared = [records[seed] for seed in common]
            if compared:
                nll[method] = -_mean(compared, "nll"), f"{_mean(compared, 'nll'):.3f}"
                # The better of a method's entropy and its own score.
                best = max(_mean(compared, f"auroc_{scorer}") for scorer in ("entropy", "score"))
                auroc[method] = best, f"{best:.3f}"
        # They have the probabilities of the network as it is.
        for method in SHOWN[-2:]:
            nll.pop(method, None)
        columns += [nll, auroc]

    def cell(column: dict[str, tuple[float, str]], method: str) -> str:
        if method not in column:
            return "–"
        best = max(value for value, _ in column.values())
        value, text = column[method]
        return f"**{text}**" if value == best else text

    header = ["", *(text for inside, outside in sets.values() for text in (f"{inside}: NLL", f"AUROC against {outside}"))]
    return table(header, [[method, *(cell(column, method) for column in columns)] for method in SHOWN])
