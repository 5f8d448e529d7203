"""Short tables and sentences of the pages on the UCI tables and the images; all scores are on the pages of records."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from benchmarks.render.markdown import table
from benchmarks.tables.common.records import read
from benchmarks.tables.common.words import NOTHING, listed, number

if TYPE_CHECKING:
    from benchmarks.tables.common.statistics import Comparison
    from benchmarks.tables.images.goals import Goal

OURS = "gwi"
KINDS = {"standard": "standard", "gap": "gaps", "tail": "tails"}


def _numbers(record: dict[str, str], words: tuple[str, ...]) -> dict[str, Any]:
    """A record with numbers where it has some: `read` gives text."""
    numbers = {name: float(text) if text else None for name, text in record.items() if name not in words}
    return {**record, **numbers, "failure": None}


@cache
def _uci() -> dict[str, Comparison]:
    # The module brings every method along.
    from benchmarks.tables.uci import page

    rows = [_numbers(dict(record), ("protocol", "set", "split", "method")) for record in read("uci")]
    rows = [{**row, "split": int(row["split"])} for row in rows]
    return {name: page.compared(rows, name) for name in KINDS}


def uci_answer() -> str:
    """On how many tables ours is first, what its intervals hold, and how it stands beside what was published."""
    from benchmarks.tables.common.statistics import read_published
    from benchmarks.tables.uci.page import PUBLISHED, against_published, coverage
    from benchmarks.tables.uci.tables import RANKED

    found = _uci()
    counts = []
    for name, shown in KINDS.items():
        one = found[name]
        sets = [each for each in one.sets if len(one.compared[each]) > 1]
        won = [sum(next(iter(one.means(each, metric.name)), "") == OURS for each in sets) for metric in RANKED]
        counts.append([shown, str(len(sets)), *map(str, won)])
    heads = [
        "test rows",
        "tables",
        *(f"{OURS} first in {metric.heading if metric.heading.isupper() else metric.heading.lower()}" for metric in RANKED),
    ]
    said = f"{coverage(found['standard'])} {against_published(found['standard'], read_published(PUBLISHED))}"
    return f"{table(heads, counts)}\n\n{said}"


def uci_scores() -> str:
    """NLL of the compared methods on standard splits, and beneath them the best published one and the paper's."""
    from benchmarks.tables.common.statistics import best_published, read_published
    from benchmarks.tables.uci.page import PUBLISHED
    from benchmarks.tables.uci.tables import NLL, cell, printed

    found, published = _uci()["standard"], read_published(PUBLISHED)
    plain = replace(NLL, errors=False)
    methods = [m for m in found.methods if any(m in found.compared[each] for each in found.sets)]
    rows = [[m, *(cell(found, each, m, plain) if m in found.compared[each] else NOTHING for each in found.sets)] for m in methods]
    ours = [found.score(each, OURS, "nll") for each in found.sets]
    rows.insert(1, ["± (gwi)", *(NOTHING if value is None else f"{value.error:.2f}" for value in ours)])
    best = [best_published(published, "nll", each) for each in found.sets]
    rows.append(["*best published*", *(NOTHING if p is None else p.printed.replace("-", "−") for p in best)])
    rows.append(["*GWI-net, published*", *(printed(published, "nll", each, "GWI-net*") for each in found.sets)])
    return table(["", *(f"{each} ({len(found.splits[each])})" for each in found.sets)], rows)


def uci_losses() -> str:
    """Every table and score in which another method is first."""
    from benchmarks.tables.uci.tables import RANKED, scale_of

    rows = []
    for name, shown in KINDS.items():
        one = _uci()[name]
        for each in one.sets:
            for metric in RANKED:
                best = next(iter(one.means(each, metric.name)), OURS)
                if best == OURS:
                    continue
                scale = scale_of(one, each, metric)
                own, other = one.score(each, OURS, metric.name), one.score(each, best, metric.name)
                gap = one.difference(each, OURS, best, metric.name)
                doubt = "yes" if gap is not None and gap.clear() else "no"
                written = [scale.write(value, unit=True) for value in (own, other)]
                rows.append([shown, each, metric.heading, written[0], f"{best}: {written[1]}", doubt])
    return table(["test rows", "table", "score", OURS, "first", "by more than two standard errors"], rows)


def uci_extent() -> str:
    """How many records there are, of those planned."""
    from benchmarks.tables.uci.page import plan
    from benchmarks.tables.uci.store import Key

    planned = plan()
    done = planned & {Key(r["protocol"], r["set"], int(r["split"]), r["method"]) for r in read("uci")}
    left = "" if done == planned else "; [the others are listed in the records](records/uci.md#not-there-yet)"
    return f"Of {len(planned):,} planned fits {len(done):,} are done{left}."


@cache
def _images() -> Comparison:
    from benchmarks.tables.images.tables import compared

    rows = [_numbers(dict(record), ("dataset", "seed", "method", "score_name")) for record in read("images")]
    return compared([{**row, "seed": int(row["seed"])} for row in rows])


def _goals() -> list[Goal]:
    from benchmarks.tables.images import goals

    return list(goals.goals(_images()))


def images_missed() -> str:
    """How many goals are met, and those that are not."""
    all_goals = _goals()
    known = [goal for goal in all_goals if goal.met is not None]
    rows = [[goal.dataset, goal.what, goal.found or NOTHING] for goal in known if not goal.met]
    met = f"Of {len(all_goals)} goals {len(known) - len(rows)} are met"
    return f"{met}; these {len(rows)} are missed:\n\n{table(['images', 'goal', 'found'], rows)}" if rows else f"{met}."


def images_cost() -> str:
    """Seconds of our fit and of the shared training, on both sets."""
    parts = []
    for dataset in _images().sets:
        values = [_images().score(dataset, OURS, name) for name in ("fit_seconds", "training_seconds")]
        if values[0] is not None and values[1] is not None:
            parts.append(f"{number(values[0].mean, 0)} s beside {number(values[1].mean, 0)} s of training on {dataset}")
    return f"A fit of {OURS} takes {listed(parts)}; both times are by the clock, on one thread." if parts else "Not measured yet."
