"""Tables on what likelihood="auto" chooses."""

from __future__ import annotations

import math
from collections import Counter
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
        fair = np.array([whole["auto"][k] - whole[_best_but(whole, k)][k] for k in range(len(draws))])
        auto = [r for r in some if r["likelihood"] == "auto"]
        names = ", ".join(dict.fromkeys(r["chosen"] for r in auto))
        below, inside = (float(np.mean([float(r[part]) for r in auto])) for part in ("below_support", "inside_95"))
        cells = [f"{np.mean(whole[way]):.4f}" for way in ("auto", "gaussian", best)]
        rows.append([kind, name, names, *cells, best, _shown(gap), _shown(fair), f"{100 * inside:.1f}", f"{100 * below:.0f}"])
    head = ["", "table", "chosen", "CRPS", "Gaussian", "best", "which is", "gap to it", "gap to other draws' best"]
    return table([*head, "95 % hold", "intervals below 0, %"], rows)


def leaves() -> str:
    """Scores with forests of other leaves less those with whole trees, by likelihood and target."""
    records = read("linked_trees")
    rows = []
    for kind, name, target in dict.fromkeys((r["likelihood"], r["table"], r["target"]) for r in records):
        some = [r for r in records if (r["likelihood"], r["table"], r["target"]) == (kind, name, target)]
        cells = []
        for score, leaf in product(("crps", "nll"), ("3", "5")):
            found, whole = ([float(r[score]) for r in some if r["leaf"] == each] for each in (leaf, "1"))
            cells.append(f"{np.mean(np.subtract(found, whole)):+.4f}")
        rows.append([kind, f"{name}, {target}", *cells])
    for kind in dict.fromkeys(row[0] for row in rows):
        means = np.mean([[float(cell) for cell in row[2:]] for row in rows if row[0] == kind], axis=0)
        rows.append([f"**{kind}**", "**mean**", *(f"**{value:+.4f}**" for value in means)])
    return table(["", "target", "CRPS, three rows", "five rows", "NLL, three rows", "five rows"], rows)


def _best_but(by_way: dict[str, list[float]], left: int) -> str:
    """The likelihood with the lowest mean of all draws but one."""
    return min((way for way in by_way if way != "auto"), key=lambda way: float(np.mean(np.delete(by_way[way], left))))


def _shown(gaps: NDArray[Any]) -> str:
    """A mean with its standard error."""
    return f"{gaps.mean():+.4f} ± {gaps.std(ddof=1) / math.sqrt(len(gaps)):.4f}"


def _crps(records: list[Record], way: str, draw: str) -> float:
    return next((float(r["crps"]) for r in records if r["likelihood"] == way and r["draw"] == draw), math.nan)
