"""Tables and the picture of how long fits take and what the time buys."""

from __future__ import annotations

from statistics import mean, median, stdev
from typing import Any

from matplotlib.figure import Figure

from benchmarks.render.markdown import table
from benchmarks.tables.common.pictures import FONT, OTHER, OURS, OUTSIDE
from benchmarks.tables.common.practice import NUMBERS
from benchmarks.tables.common.records import read

# The fit before members raced, in the record beside today's.
BEFORE, OWN = "gwi before", "gwi"
PEERS = ("NGBoost", "CatBoost, uncertainty", "LightGBM, noise of folds", "deep ensemble", "GPyTorch SVGP")
TIMED = ("kin8nm", "power", "skillcraft", "sml", "parkinsons")
BOUNDS = (2, 5, 10, 30, 120)
NO_RECORD = "Not measured yet."
# Of an NLL in the picture.
MOST_SHOWN = 3.0


def cells(methods: tuple[str, ...]) -> dict[tuple[str, int], dict[tuple[str, str], dict[str, float]]]:
    """By method and size the numbers of each table and draw, where every one of these methods has them."""
    found: dict[tuple[str, int], dict[tuple[str, str], dict[str, float]]] = {}
    for record in read("fast_fits"):
        if record["table"] in TIMED and record["method"] in methods:
            numbers = {key: float(record[key]) for key in ("cpu_seconds", "nll", "crps", "coverage_95")}
            found.setdefault((record["method"], int(record["num_rows"])), {})[record["table"], record["draw"]] = numbers
    return found


def fit_speed() -> str:
    """Medians over five tables of the seconds of each fit, at each number of rows."""
    methods = (OWN, BEFORE, *PEERS)
    found = cells(methods)
    sizes = sorted({size for _, size in found})
    if not sizes:
        return NO_RECORD
    rows = []
    for method in methods:
        medians = [
            f"{median(part['cpu_seconds'] for part in found[method, size].values()):.1f}" if (method, size) in found else "–"
            for size in sizes
        ]
        rows.append([method, *medians])
    counts = [f"{size:,} rows" for size in sizes]
    return table(["seconds of a fit", *counts], rows)


def fit_scores() -> str:
    """Mean NLL and CRPS over the tables that all have, in standard deviations of the target."""
    methods = (OWN, BEFORE, *PEERS)
    found = cells(methods)
    sizes = sorted({size for _, size in found})
    if not sizes:
        return NO_RECORD
    rows = []
    for method in methods:
        line = [method]
        for size in sizes:
            part = found.get((method, size))
            shared = _shared(found, size)
            if part is None or not shared <= set(part):
                line.append("–")
                continue
            line.append(" / ".join(f"{mean(part[key][name] for key in shared):.{digits}f}" for name, digits in SCORES))
        rows.append(line)
    return table(["NLL / CRPS", *[f"{size:,} rows" for size in sizes]], rows)


SCORES = (("nll", 2), ("crps", 3))


def _shared(found: dict[Any, Any], size: int) -> set[tuple[str, str]]:
    """Tables and draws of this size that all methods with any have."""
    parts = [set(part) for (_, count), part in found.items() if count == size]
    return set.intersection(*parts) if parts else set()


def max_time_kept() -> str:
    """Seconds of fits with a bound on their time, as shares of it, and their scores."""
    methods = tuple(f"gwi, {seconds} s" for seconds in BOUNDS)
    found = cells((*methods, OWN))
    sizes = sorted({size for method, size in found if method in methods})
    if not sizes:
        return NO_RECORD
    rows = []
    for seconds, method in zip(BOUNDS, methods, strict=True):
        line = [f"{seconds} s"]
        for size in sizes:
            part = found.get((method, size))
            if part is None:
                line.append("–")
                continue
            spent = [values["cpu_seconds"] for values in part.values()]
            line.append(f"{median(spent):.1f} ({max(spent):.1f}), {mean(values['nll'] for values in part.values()):.2f}")
        rows.append(line)
    return table(["`max_time`", *[f"{size:,} rows" for size in sizes]], rows)


def label_speed() -> str:
    """Seconds of fits of classes, their ratio to CatBoost's, and log loss, on average over draws."""
    found: dict[tuple[str, int], dict[str, list[tuple[float, float]]]] = {}
    for record in read("fast_labels"):
        by = found.setdefault((record["table"], int(record["num_rows"])), {})
        by.setdefault(record["method"], []).append((float(record["cpu_seconds"]), float(record["log_loss"])))
    rows = []
    ratios: dict[int, list[float]] = {}
    for (name, size), by in sorted(found.items(), key=lambda item: (item[0][1], item[0][0])):
        means = [[mean(part) for part in zip(*by[method], strict=True)] for method in (OWN, "CatBoost", "histogram boosting")]
        (own, _), (other, _), _ = means
        ratios.setdefault(size, []).append(own / other)
        seconds, losses = ([f"{mean[i]:.{digits}f}" for mean in means] for i, digits in ((0, 1), (1, 3)))
        rows.append([name.removeprefix("mixed/"), f"{size:,}", *seconds, f"{own / other:.1f}", *losses])
    rows += [["median", f"{size:,}", "", "", "", f"{median(ratio):.1f}", "", "", ""] for size, ratio in ratios.items()]
    header = ["table", "rows", "gwi, s", "CatBoost, s", "boosting, s", "gwi / CatBoost", "gwi, log loss", "CatBoost", "boosting"]
    return table(header, rows) if rows else NO_RECORD


def practice_scores() -> str:
    """NLL and CRPS of practice tables less those of the version before, table by table."""
    found: dict[int, dict[str, dict[str, dict[str, float]]]] = {}
    for record in read("fast_fits"):
        if record["method"] in (OWN, BEFORE) and record["table"] in NUMBERS:
            numbers = {key: float(record[key]) for key in ("nll", "crps", "coverage_95")}
            found.setdefault(int(record["num_rows"]), {}).setdefault(record["table"], {})[record["method"]] = numbers
    rows = []
    for size, by_table in sorted(found.items()):
        pairs = {name: by for name, by in by_table.items() if len(by) == 2}
        nll = {name: by[OWN]["nll"] - by[BEFORE]["nll"] for name, by in pairs.items()}
        crps = [by[OWN]["crps"] / by[BEFORE]["crps"] - 1 for by in pairs.values()]
        if len(pairs) < 2:
            continue
        worst, held = max(nll, key=nll.__getitem__), mean(by[OWN]["coverage_95"] for by in pairs.values())
        shown = [f"{mean(nll.values()):+.3f} ± {stdev(nll.values()) / len(nll) ** 0.5:.3f}", f"{nll[worst]:+.3f} ({worst})"]
        rows.append([f"{size:,}", str(len(pairs)), *shown, f"{mean(crps):+.1%}", f"{held:.1%}"])
    return table(["rows", "tables", "NLL less that before", "worst table", "CRPS", "95 % hold"], rows) if rows else NO_RECORD


def draw() -> Figure:
    """Mean NLL against median seconds of a fit, a panel for each number of rows."""
    from matplotlib import rc_context

    methods = (OWN, *[f"gwi, {seconds} s" for seconds in BOUNDS], *PEERS)
    found = cells(methods)
    sizes = [size for size in sorted({size for _, size in found}) if (PEERS[0], size) in found]
    with rc_context(FONT):
        figure = Figure(figsize=(3.1 * len(sizes), 3.4), layout="constrained")
        panels = figure.subplots(1, len(sizes), squeeze=False)[0]
        for axes, size in zip(panels, sizes, strict=True):
            shared = _shared(found, size)
            bounded: list[tuple[float, float]] = []
            beyond: list[str] = []
            for method in methods:
                part = found.get((method, size))
                if part is None or not shared:
                    continue
                seconds = median(values["cpu_seconds"] for values in part.values())
                nll = mean(part[key]["nll"] for key in shared)
                label = method.replace(", uncertainty", "").replace(", noise of folds", "")
                # A method that is far too sure of itself would hide all others.
                if nll > MOST_SHOWN:
                    beyond.append(label)
                elif method.startswith("gwi,"):
                    bounded.append((seconds, nll))
                else:
                    colour, marker = (OURS, "o") if method == OWN else (OTHER, "s")
                    axes.plot(seconds, nll, marker, color=colour, ms=6)
                    axes.annotate(label, (seconds, nll), xytext=(6, 4), textcoords="offset points", fontsize=8, color=colour)
            if bounded:
                axes.plot(
                    *zip(*sorted(bounded), strict=True), ".-", color=OUTSIDE, lw=1, ms=5, label="gwi with max_time", zorder=0
                )
            axes.set_xscale("log")
            low, high = axes.get_xlim()
            axes.set_xlim(low, high * (high / low) ** 0.35)
            bottom, top = axes.get_ylim()
            axes.set_ylim(bottom - 0.05 * (top - bottom), top + 0.25 * (top - bottom))
            if beyond:
                said = "above the panel: " + ",\n".join(beyond)
                axes.text(0.98, 0.98, said, transform=axes.transAxes, ha="right", va="top", fontsize=8, color=OTHER)
            axes.set_title(f"{size:,} rows", fontsize=9)
            axes.set_xlabel("processor seconds of a fit")
        panels[0].set_ylabel("NLL, lower is better")
        panels[-1].legend(frameon=False, fontsize=8, loc="upper right")
    return figure
