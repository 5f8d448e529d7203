"""Write the tables of the documentation from the committed records.

    python -m benchmarks.render [--check]

A page marks where a table goes with ``<!-- table: name -->`` and ``<!-- end -->``; what stands between is replaced.
With --check nothing is written and the exit code says whether a page is out of date.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import inspect
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parent.parent
Record = dict[str, str]


def read(name: str) -> list[Record]:
    with (ROOT / "benchmarks" / "results" / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def paragraphs(lines: Iterable[str]) -> str:
    """Those that say something."""
    return "\n\n".join(line for line in lines if line)


def sentence(function: Callable[..., Any]) -> str:
    """A docstring's first paragraph, on one line."""
    return " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split()).replace("|", "\\|")


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


def speed() -> str:
    shown = [r for r in read("speed") if r["set"] != "generated"]
    return table(["quantity", "set", "value", "note"], [[r["quantity"], r["set"], r["value"], r["note"]] for r in shown])


def stream_speed() -> str:
    """Rows, seconds, rows a second and peak memory of fits and predictions from Parquet, and the other quantities as they are."""
    found = {r["quantity"]: float(r["value"]) for r in read("speed") if r["set"] == "generated"}
    counts = sorted(int(name.split("_")[-2]) for name in found if name.startswith("stream_fit_seconds_"))
    if not counts:
        return "Not measured yet."
    rows = [
        [
            f"{count:,}",
            *(
                f"{found[f'stream_{work}_{what}_{count}_rows']:,.0f}"
                for work in ("fit", "predict")
                for what in ("seconds", "rows_per_second", "megabytes")
            ),
        ]
        for count in counts
    ]
    header = [f"{work}, {what}" for work in ("fit", "predict") for what in ("seconds", "rows/s", "peak MB")]
    names = {"stream_fit_exponent": "exponent of the fit in N", "stream_predict_exponent": "of the prediction"}
    names |= {"stream_over_memory_std": "standard deviation of y, streamed over in memory"}
    names |= {"stream_over_memory_variance_of_f": "variance of f, streamed over in memory"}
    said = "; ".join(f"{text} {found[name]:.3g}" for name, text in names.items() if name in found)
    return f"{table(['rows', *header], rows)}\n\n{said[0].upper()}{said[1:]}."


def processes() -> str:
    if not (ROOT / "benchmarks" / "results" / "processes.csv").is_file():
        return "Not measured yet."
    rows = [
        [
            f"{int(r['rows']):,}",
            r["ranks"],
            *(f"{float(r[key]):.1f}" for key in ("sketch_seconds", "sums_seconds", "processor_seconds")),
        ]
        for r in read("processes")
    ]
    return table(["rows", "processes", "first pass, s", "sums, s", "processor seconds of all, start included"], rows)


def scaling() -> str:
    """Seconds of a fit by the cost model: a fixed part, a part that machines share, and messages that grow with their number."""
    found = {r["quantity"]: float(r["value"]) for r in read("speed") if r["set"] == "generated"}
    counts = sorted(int(name.split("_")[-2]) for name in found if name.startswith("stream_fit_seconds_"))
    if len(counts) < 2:
        return "Not measured yet."
    low, high = (found[f"stream_fit_seconds_{count}_rows"] for count in (counts[0], counts[-1]))
    a_row = (high - low) / (counts[-1] - counts[0])
    fixed = max(low - a_row * counts[0], 0.0)
    size = 8 * (200**2 + 200) + 240_000 * 13

    def seconds(num_rows: float, machines: int) -> float:
        return fixed + a_row * num_rows / machines + (2 * size / 1e8 * (machines - 1) / machines + 1e-4 * machines)

    def shown(value: float) -> str:
        return f"{value:.0f} s" if value < 600 else f"{value / 60:.0f} min" if value < 36_000 else f"{value / 3600:.0f} h"

    machines = (1, 4, 16, 64)
    rows = [
        [f"10{power}", *(shown(seconds(10.0**n, m)) for m in machines)] for n, power in zip(range(6, 10), "⁶⁷⁸⁹", strict=True)
    ]
    said = f"Fixed {fixed:.1f} s, {a_row * 1e6:.1f} s for a million rows on one core."
    return f"{table(['rows', *(f'{m} machine' + 's' * (m > 1) for m in machines)], rows)}\n\n{said}"


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


def uci() -> str:
    """Mean NLL of each method on each UCI table, from the fits that `benchmarks.table1_uci` exported."""
    # The page's module takes `table` from this one, and brings every method along.
    from benchmarks.uci.page import short

    if not (ROOT / "benchmarks" / "results" / "uci.csv").is_file():
        return short([])
    return short({**record, "split": int(record["split"]), "nll": float(record["nll"])} for record in read("uci"))


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


def figure(name: str) -> Callable[[], str]:
    """What a figure's own module says in numbers of its records; it takes `table` from this one, hence the late import."""
    return lambda: importlib.import_module(f"benchmarks.figures.{name}").words()


FIGURES = ("one_dimension", "comparison", "two_dimensions", "spectrum", "misspecification", "calibration", "shrinkage")

TABLES: dict[str, Callable[[], str]] = {
    f.__name__: f
    for f in (
        coverage,
        covariance,
        covariance_summary,
        robust_max,
        hostile,
        convergence,
        hyper_priors,
        estimator_coverage,
        ablation,
        ablation_within,
        speed,
        stream_speed,
        processes,
        scaling,
        bayesian_optimisation,
        uci,
        diagnostics_faults,
        diagnostics_uci,
    )
} | {f"figure_{name}": figure(name) for name in FIGURES}


def rendered(text: str) -> str:
    """The page with every marked table renewed."""

    def replace(match: re.Match[str]) -> str:
        return f"<!-- table: {match[1]} -->\n{TABLES[match[1]]()}\n<!-- end -->"

    return re.sub(r"<!-- table: (\w+) -->\n.*?<!-- end -->", replace, text, flags=re.DOTALL)


def pages() -> list[Path]:
    return [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if a page is out of date")
    check = parser.parse_args().check
    stale = [page for page in pages() if rendered(page.read_text()) != page.read_text()]
    for page in stale:
        print(f"{'out of date' if check else 'written'}: {page.relative_to(ROOT)}")
        if not check:
            page.write_text(rendered(page.read_text()))
    sys.exit(1 if check and stale else 0)


if __name__ == "__main__":
    main()
