"""Tables on what likelihood="auto" chooses."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from benchmarks.render.markdown import table
from benchmarks.tables.common.records import Record, read
from benchmarks.tables.common.words import NOTHING


def known() -> str:
    """How often the likelihood that a table was drawn from is found."""
    records = read("known_likelihood")
    rows = []
    for family in dict.fromkeys(r["family"] for r in records):
        some = [r for r in records if r["family"] == family]
        right = sum(int(r["right"]) for r in some)
        others = Counter(r["chosen"] for r in some if not int(r["right"]))
        rows.append([family, f"{right} of {len(some)}", ", ".join(others) or NOTHING])
    total = sum(int(r["right"]) for r in records)
    return table(["drawn from", "found", "else"], [*rows, ["**all**", f"**{total} of {len(records)}**", ""]])


def chosen() -> str:
    """CRPS of the choice, of the Gaussian, and of the best with hindsight, by table."""
    records = [r for r in read("chosen_likelihood") if r["crps"]]
    rows = []
    for kind, name in dict.fromkeys((r["kind"], r["table"]) for r in records):
        some = [r for r in records if r["table"] == name]
        draws = sorted({r["draw"] for r in some})
        by_way = {way: [_crps(some, way, draw) for draw in draws] for way in dict.fromkeys(r["likelihood"] for r in some)}
        whole = {way: values for way, values in by_way.items() if not any(map(math.isnan, values))}
        best = min((way for way in whole if way != "auto"), key=lambda way: float(np.mean(whole[way])))
        gap = np.subtract(whole["auto"], whole[best])
        error = float(gap.std(ddof=1)) / math.sqrt(len(gap)) if len(gap) > 1 else math.nan
        shown = f"{gap.mean():+.4f}" + ("" if math.isnan(error) else f" ± {error:.4f}")
        auto = [r for r in some if r["likelihood"] == "auto"]
        names = ", ".join(dict.fromkeys(r["chosen"] for r in auto))
        below, inside = (float(np.mean([float(r[part]) for r in auto])) for part in ("below_support", "inside_95"))
        cells = [f"{np.mean(whole[way]):.4f}" for way in ("auto", "gaussian", best)]
        rows.append([kind, name, names, *cells, best, shown, f"{100 * inside:.1f}", f"{100 * below:.0f}"])
    head = ["", "table", "chosen", "CRPS", "Gaussian", "best", "which is", "gap to it", "95 % hold", "intervals below 0, %"]
    return table(head, rows)


def _crps(records: list[Record], way: str, draw: str) -> float:
    return next((float(r["crps"]) for r in records if r["likelihood"] == way and r["draw"] == draw), math.nan)
