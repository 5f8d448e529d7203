"""Tables on sets of labels and intervals by stratum."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from scipy.stats import betabinom

from benchmarks.render.markdown import table
from benchmarks.tables.common.records import Record, read
from benchmarks.tables.common.words import NOTHING

# What the study asked for, and how much of what chance does is called chance.
COVERAGE, LEVEL = 0.9, 0.99


def bounds(record: Record) -> tuple[float, float]:
    """Between which numbers of new rows the covered ones lie by chance, of the new rows and of those that judged."""
    judged, new = int(record["num_judged"]), int(record["num_new"])
    rank = math.ceil((judged + 1) * COVERAGE - 1e-9)
    # With too few to judge nothing may be left out.
    return (new, new) if rank > judged else betabinom.interval(LEVEL, new, rank, judged + 1 - rank)


def inside(records: Iterable[Record]) -> str:
    """How many cells cover too little or too much for chance."""
    some = list(records)
    below = sum(int(r["covered"]) < bounds(r)[0] for r in some)
    above = sum(int(r["covered"]) > bounds(r)[1] for r in some)
    return f"{below}, {above} of {len(some)}"


def _share(records: Iterable[Record]) -> float:
    """Of new rows that are covered, in percent."""
    some = list(records)
    return 100 * sum(int(r["covered"]) for r in some) / sum(int(r["num_new"]) for r in some)


def _size(records: Iterable[Record]) -> float:
    return float(np.mean([float(r["size"]) for r in records]))


def _rows(kind: str, cell: str, ways: dict[str, tuple[str, str]]) -> str:
    """One row a table, coverage and mean size of each way; then how many fits, and how many cells, chance does not explain."""
    records = [r for r in read("sets") if r["kind"] == kind]
    found = {way: [r for r in records if (r["method"], r["by"]) == chosen] for way, chosen in ways.items()}
    rows = []
    for name in dict.fromkeys(r["table"] for r in records):
        row = [name, str(len({r["cell"] for r in records if r["table"] == name}) - 1)]
        for own in found.values():
            some = [r for r in own if r["table"] == name and not r["cell"]]
            odd = 100 * float(np.mean([float(r["odd"]) for r in some])) if some else 0.0
            said = f" ({odd:.1f} % {'empty' if kind == 'classes' else 'infinite'})" if odd else ""
            row.append(f"{_share(some):.1f}, {_size(some):.2f}{said}" if some else NOTHING)
        rows.append(row)
    rows.append(["fits below, above", "", *(inside(r for r in own if not r["cell"]) for own in found.values())])
    rows.append([f"{cell} below, above", "", *(inside(r for r in own if r["cell"]) for own in found.values())])
    return table(["table", cell, *ways], rows)


def label_sets() -> str:
    """Sets of labels."""
    ways = {
        "gwi": ("gwi", ""),
        "gwi, by class": ("gwi", "class"),
        "gwi around boosting": ("gwi around it", ""),
        "the same, by class": ("gwi around it", "class"),
        "MAPIE, LAC": ("MAPIE, LAC", ""),
        "MAPIE, APS": ("MAPIE, APS", ""),
    }
    return _rows("classes", "classes", ways)


def stratum_intervals() -> str:
    """Intervals by stratum."""
    ways = {
        "gwi around boosting": ("gwi around it", ""),
        "the same, by stratum": ("gwi around it", "stratum"),
        "MAPIE": ("MAPIE", ""),
        "MAPIE, by stratum": ("MAPIE, by stratum", "stratum"),
    }
    return _rows("numbers", "strata", ways)


def set_scores() -> str:
    """One row a score: means over tables and splits, sizes beside those of LAC."""
    records = read("set_scores")
    sizes = {(r["table"], r["split"]): float(r["size"]) for r in records if r["score"] == "LAC"}
    rows = []
    for score in dict.fromkeys(r["score"] for r in records):
        some = [r for r in records if r["score"] == score]
        ratios = [float(r["size"]) / sizes[r["table"], r["split"]] for r in some]
        covered, unsure = (100 * float(np.mean([float(r[key]) for r in some])) for key in ("covered", "covered_unsure"))
        rows.append([score, f"{covered:.1f}", f"{unsure:.1f}", f"{np.exp(np.mean(np.log(ratios))):.3f}", f"{max(ratios):.2f}"])
    return table(["score", "covered, %", "covered in the least sure fifth, %", "size beside LAC's", "at most"], rows)
