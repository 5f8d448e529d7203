"""All records of the UCI benchmark as one long page, and the short tables of others, made from the records and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.render.markdown import paragraphs, sentence
from benchmarks.render.markdown import table as markdown
from benchmarks.render.pages import rendered
from benchmarks.tables.common.page import how_much, versions
from benchmarks.tables.common.records import RESULTS, ROOT
from benchmarks.tables.common.splits import gap_splits, standard_splits, tail_splits
from benchmarks.tables.common.statistics import Comparison, Published, Row, best_published, compare, fields, read_published
from benchmarks.tables.common.words import NOTHING, listed, number, starred
from benchmarks.tables.uci import methods as ours
from benchmarks.tables.uci import networks, peers, pictures, protocol, tables, treated
from benchmarks.tables.uci.caveats import duplicates, failures, missing, over_cap, test_selection
from benchmarks.tables.uci.methods import ABLATIONS, METHODS, VARIANTS
from benchmarks.tables.uci.store import Key, Store
from benchmarks.tables.uci.tables import CRPS, NLL, OURS, RMSE
from gwi import GWIRegressor

PUBLISHED = Path(__file__).with_name("published.csv")
SELECTION = RESULTS / "test_selection.csv"
FOLDER = ROOT / "docs" / "results"
README = ROOT / "README.md"
PROTOCOLS = {"standard": "Standard splits", "gap": "Gap splits", "tail": "Tail splits"}
# Whose docstring says what a method does.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "gwi": ours.gwi,
    "GWI-net (paper)": ours.paper,
    "GWI: SVGP (paper)": ours.paper,
    "GWI-net": ours.gwi_net,
    "GWI-net, one network": ours.one_network,
    "exact GP": peers.exact_gp,
    "SVGP": peers.svgp,
    "deep ensemble": networks.deep_ensemble,
    "MC dropout": networks.mc_dropout,
    "Bayes by Backprop": networks.bayes_by_backprop,
    "last-layer Laplace": networks.last_layer_laplace,
    "NGBoost": peers.ngboost,
    "histogram boosting": peers.histogram_boosting,
    "exact GP, treated": treated.treated_gp,
    "deep ensemble, treated": treated.treated,
    "NGBoost, treated": treated.treated,
    "histogram boosting, treated": treated.treated_mean,
}
# The paper's names of what it published.
PRESETS = {"GWI-net (paper)": "GWI-net*", "GWI: SVGP (paper)": "GWI-SVGP*"}


def render(
    store: Store,
    published: Path = PUBLISHED,
    folder: Path = FOLDER,
    *,
    selection: Path = SELECTION,
    others: Sequence[Path] = (README, FOLDER / "uci.md"),
) -> None:
    """Write records/uci.md and its pictures into the folder, and renew the tables of other pages."""
    (folder / "records").mkdir(parents=True, exist_ok=True)
    rows = store.rows()
    (folder / "records" / "uci.md").write_text(text(rows, read_published(published), selection))
    for name in PROTOCOLS:
        for path, draw in drawings(name, compared(rows, name)).items():
            draw(folder / path)
    for page in others:
        page.write_text(rendered(page.read_text()))


def text(rows: Sequence[Row], published: Sequence[Published], selection: Path = SELECTION) -> str:
    """The whole page."""
    found = {name: compared(rows, name) for name in PROTOCOLS}
    parts = [top(rows, found, published)]
    parts += [section(name, found[name]) for name in PROTOCOLS]
    parts += [set_by_set(found), beside(found["standard"], published), procedure(rows), caveats(rows, found, selection)]
    return paragraphs(parts) + "\n"


def compared(rows: Iterable[Row], name: str) -> Comparison:
    """The records of one protocol."""
    chosen = [row for row in rows if row["protocol"] == name]
    return compare(
        chosen,
        sets=protocol.SETS,
        methods=tuple(m for m in METHODS if m not in VARIANTS),
        parts=(*ABLATIONS, *VARIANTS),
        fewer=protocol.PAPER,
    )


def short(rows: Iterable[Row]) -> str:
    """The README's table."""
    found = compared(rows, "standard")
    return tables.short(found) if found.sets else "No records yet."


def drawings(name: str, found: Comparison) -> dict[str, Callable[[Path], None]]:
    """File names of the pictures that a protocol's records allow, and what draws them."""
    result: dict[str, Callable[[Path], None]] = {}
    ranked = [field.rank(found, metric.name) for field in fields(found)[:1] for metric in (NLL, CRPS)]
    rankings = {
        metric.heading: r for metric, r in zip((NLL, CRPS), ranked, strict=False) if r and len(r.ranks) >= 3 and len(r.sets) >= 2
    }
    if rankings:
        result[f"uci_ranks_{name}.png"] = lambda path: pictures.draw_ranks(rankings, OURS, path)
    if found.methods:
        result[f"uci_coverage_{name}.png"] = lambda path: pictures.draw_coverage(found, OURS, path)
    if pictures.with_differences(found, OURS):
        result[f"uci_differences_{name}.png"] = lambda path: pictures.draw_differences(found, OURS, path)
    return result


def top(rows: Sequence[Row], found: Mapping[str, Comparison], published: Sequence[Published]) -> str:
    """What it is, how much of it is there, who is first how often."""
    lines = [
        "# The UCI tables: all records",
        f"Every score of every method behind [the page on the UCI tables](../uci.md), which says what was asked, what came "
        f"out and [which results we saw before fixing a choice](../uci.md#seen-too-early). {OURS} has its defaults. Lower is "
        "better in all scores but coverage. `python -m benchmarks.tables.uci --render` writes this page and its pictures "
        "from the records.",
        how_much(plan(), keys(rows, failed=False), keys(rows, failed=True)),
    ]
    standard = found["standard"]
    if not standard.sets:
        return paragraphs(lines)
    if any(fields(one) for one in found.values()):
        lines += ["How often each method is first, and its mean rank ([on which sets](#mean-ranks)):", tables.firsts(found)]
    lines += [
        f"{coverage(standard)} {against_published(standard, published)}".strip(),
        tables.with_published(standard, published),
        f"Mean test NLL on standard splits ± standard error, the number of splits beside each set. {reading(standard)} The "
        "rows in italics are from the literature: other splits, other budgets, other tuning, ± not always the same thing. "
        "They show the level and are not ranked; those with a star were chosen by test NLL and are not among the best "
        "published ([why](#caveats)).",
    ]
    return paragraphs(lines)


def plan() -> set[Key]:
    """Of all records of the whole run."""
    return {key for task in protocol.extent() for key in task.records()}


def keys(rows: Iterable[Row], *, failed: bool) -> set[Key]:
    """Of the records that failed, or that did not."""
    return {Key(r["protocol"], r["set"], r["split"], r["method"]) for r in rows if (r["failure"] is not None) == failed}


def reading(found: Comparison) -> str:
    """How to read a table of scores."""
    own = {(t, m): len(splits) for (t, m), splits in found.records.items() if m in found.methods}
    apart = [m for m in found.methods if any((t, m) in own and m not in found.compared[t] for t in found.sets)]
    fewer = {t: max((own.get((t, m), 0) for m in found.compared[t]), default=0) for t in found.sets}
    cut = [f"{t} ({len(found.splits[t])} of {count})" for t, count in fewer.items() if len(found.splits[t]) < count]
    text = "The best of the compared methods is bold."
    if apart:
        text += f" A number in brackets after a value is a method's own number of splits: {listed(apart)} are not compared there."
    if cut:
        text += f" Methods are compared on the splits that all of them finished, which are not all splits on {listed(cut)}."
    return text


def against_published(found: Comparison, published: Sequence[Published]) -> str:
    """On how many sets our NLL is at most the best published one, to that one's digits."""
    reached: list[str] = []
    missed: list[str] = []
    for table in found.sets:
        best, own = best_published(published, "nll", table), found.score(table, OURS, "nll")
        if best is not None and own is not None:
            digits = len(best.printed.partition(".")[2])
            (reached if round(own.mean, digits) <= float(best.printed) else missed).append(table)
    if not reached and not missed:
        return ""
    tail = f", above it on {listed(missed)}" if missed else ""
    at = f" ({listed(reached)})" if reached else ""
    return (
        f"The NLL of {OURS} is at most the best published one on {len(reached)} of {len(reached) + len(missed)} sets{at}{tail}."
    )


def coverage(found: Comparison) -> str:
    """Where our 95 % intervals hold what they promise."""
    shares = {table: found.score(table, OURS, "coverage_95") for table in found.sets}
    known = {table: 100 * share.mean for table, share in shares.items() if share is not None}
    if not known:
        return ""
    low, high = 100 * pictures.LOW, 100 * pictures.HIGH
    outside = [f"{table} ({number(share, 1)} %)" for table, share in known.items() if not low <= share <= high]
    tail = f"; outside: {listed(outside)}" if outside else ""
    return (
        f"The 95 % intervals of {OURS} hold between {low:.0f} and {high:.0f} % of the test targets on "
        f"{len(known) - len(outside)} of {len(known)} sets{tail}."
    )


def section(name: str, found: Comparison) -> str:
    """All scores of one protocol, ranks and pictures."""
    doc = {"standard": standard_splits, "gap": gap_splits, "tail": tail_splits}[name].__doc__ or ""
    lines = [f"## {PROTOCOLS[name]}", doc.strip()]
    if not found.sets:
        return paragraphs([*lines, "No records yet."])
    lines.append(
        f"Means over splits ± standard error. {reading(found)} Rows in italics are {OURS} with a part changed; they are not "
        "compared."
    )
    drawn = drawings(name, found)

    def picture(kind: str, caption: str) -> list[str]:
        return [f"![{caption}](../uci_{kind}_{name}.png)"] if f"uci_{kind}_{name}.png" in drawn else []

    after = {
        "nll": picture("differences", f"NLL minus that of {OURS}, by set and method"),
        "coverage_95": [coverage(found), *picture("coverage", "Coverage of 95 % intervals, by method and set")],
    }
    recorded = [row for splits in found.records.values() for row in splits.values()]
    for metric in tables.METRICS:
        if all(row.get(metric.name) is None for row in recorded):
            continue
        lines += [f"### {metric.heading}", metric.note, tables.scores(found, metric), *after.get(metric.name, [])]
    lines += ["### Mean ranks", RANKS, tables.ranks(found)]
    lines += picture("ranks", "Mean ranks in NLL and CRPS (A); bars join methods that Nemenyi's test does not tell apart")
    return paragraphs([*lines, "### What each part does", SIGNS, tables.parts(found)])


RANKS = (
    "On each set methods are ranked by their mean over splits, and ranks are averaged over sets. All ranked methods must be "
    "there on all ranked sets: each choice of them has a letter. Friedman's test asks whether all are alike; Nemenyi's says, "
    "at 5 %, which two differ (Demšar, 2006)."
)
SIGNS = (
    "Differences of NLL, paired over splits, ± standard error; negative is better. The mean's part sets our means with one "
    "variance for all rows against histogram boosting, a single mean with one variance, where that was run. From there, "
    f"input-dependent noise, the covariance r and the disagreement of means lead to {OURS}. The tails' part is inside: {OURS} "
    "against the same with a normal law. In the last column W₂'s covariance, of at most 300 inducing points, replaces ours, and "
    "a positive number speaks for ours."
)


def set_by_set(found: Mapping[str, Comparison]) -> str:
    """One paragraph a set and protocol."""
    lines = ["## Set by set", "Differences are paired over splits; of parts, negative is better, as in the tables above."]
    for table in protocol.SETS:
        told = []
        for name, heading in PROTOCOLS.items():
            one = found[name]
            if table in one.sets:
                count = len(one.splits[table])
                said = " ".join(tables.first(one, table, metric) for metric in (NLL, CRPS))
                told.append(f"**{heading}** ({count}). {said} {tables.in_parts(one, table)}".strip())
        if told:
            lines += [f"### {table}", *told]
    return paragraphs(lines)


def beside(found: Comparison, published: Sequence[Published]) -> str:
    """The published numbers and their sources, and the paper's presets on the same splits as ours."""
    lines = [
        "## Beside the published numbers",
        "Splits, budgets and tuning differ between sources and from ours. A question mark: doubtful.",
    ]
    for metric in (NLL, RMSE):
        lines += [f"### Published {metric.heading}", tables.literature(found, published, metric)]
    sources: dict[str, dict[str, None]] = {}
    remarks: dict[str, dict[str, list[str]]] = {}
    for p in published:
        source, *notes = p.source.split("; ")
        sources.setdefault(source, {})[starred(p.method)] = None
        for note in notes:
            remarks.setdefault(note, {}).setdefault(starred(p.method), []).append(p.table)
    lines.append("Sources: " + "; ".join(f"{', '.join(names)}: {source}" for source, names in sources.items()) + ".")
    counts = Counter(starred(p.method) for p in published)
    for note, methods in remarks.items():
        who = [m if len(on) == counts[m] else f"{m} on {listed(on)}" for m, on in methods.items()]
        lines.append(f"{note[0].upper()}{note[1:]}: {', '.join(who)}.")
    lines += [
        "### The paper's protocol",
        f"NLL of `Paper`, run without choosing by test rows, {OURS} on the same splits, and what the paper printed. The records "
        "of GWI: SVGP are from before its coefficients started in closed form; on a practice table 200 steps now end 0.6 nats "
        "lower.",
        tables.presets(found, published, PRESETS),
    ]
    return paragraphs(lines)


def procedure(rows: Sequence[Row]) -> str:
    """Splits, caps, seeds, and what each method does."""
    seeded = all(row["seed"] in (row["split"], None) for row in rows)
    seeds = "A split's number is the seed of its fits." if seeded else "Seeds are in the records."
    lines = [
        "## Protocol",
        f"{sentence(protocol.run)} {seeds} Caps are processor seconds of a fit on one thread, tuning included.",
        extents(rows),
        "What the methods do:",
        markdown(["method", ""], [[name, sentence(function)] for name, function in FUNCTIONS.items()]),
        f"{OURS} is `GWIRegressor`: {sentence(GWIRegressor)} Ablations ({listed(f'*{name}*' for name in ABLATIONS)}) share the "
        f"means of {OURS}.",
    ]
    return paragraphs([*lines, versions(rows)])


def extents(rows: Sequence[Row]) -> str:
    """Rows, splits and caps of each set."""
    planned = plan()
    done = keys(rows, failed=False)
    lines = []
    for table in protocol.SETS:
        sizes = {
            (r["num_train"], r["num_test"]) for r in rows if (r["protocol"], r["set"]) == ("standard", table) and r["num_train"]
        }
        counts = [
            " of ".join(str(len({k.split for k in some if (k.protocol, k.table) == (name, table)})) for some in (done, planned))
            for name in PROTOCOLS
        ]
        shown = [listed(str(size[i]) for size in sorted(sizes)) if sizes else NOTHING for i in (0, 1)]
        lines.append([table, *shown, *(c if c != "0 of 0" else NOTHING for c in counts), f"{protocol.CAPS[table]:g}"])
    heads = ["set", "training rows", "test rows", *(f"{name.lower()} begun" for name in PROTOCOLS.values()), "cap, seconds"]
    return markdown(heads, lines)


def caveats(rows: Sequence[Row], found: Mapping[str, Comparison], selection: Path) -> str:
    """What to hold against the numbers."""
    standard = found["standard"]
    lines = [
        "## Caveats",
        "Splits of a set share rows: standard errors over them are not those of independent repeats.",
        "Wine's targets are integers: a density that spikes on them can have as low an NLL as it likes, so look at CRPS too.",
        "### Duplicates",
        duplicates(standard),
        "### Choosing by test NLL",
        test_selection(selection),
        "### Over the cap",
        over_cap(rows),
        "### Failures",
        failures(rows),
        "### Not there yet",
        missing(plan(), keys(rows, failed=False) | keys(rows, failed=True)),
    ]
    return paragraphs(lines)
