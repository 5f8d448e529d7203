"""Tables and sentences of the UCI page. Each is made from the records and says nothing that other records could make false."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.render.markdown import table as markdown
from benchmarks.tables.common.statistics import LEVEL, Comparison, Estimate, Published, best_published, fields
from benchmarks.tables.common.words import NOTHING, listed, minus, number, ordinal, shown, standing, starred

OURS = "gwi"


@dataclass(frozen=True)
class Metric:
    """A score and how it is shown.

    Attributes:
        name: of its column in the records.
        heading: of its table.
        digits: after the point; without a number, three significant ones of a set's best.
        percent: whether shares are shown as percentages.
        errors: whether standard errors are shown.
        ranked: whether less is better, so that there is a best.
        note: what to know when reading the table.
    """

    name: str
    heading: str
    digits: int | None = None
    percent: bool = False
    errors: bool = True
    ranked: bool = True
    note: str = ""


NLL = Metric("nll", "NLL", 2, note="Mean negative log density of the test targets, in their own units.")
CRPS = Metric("crps", "CRPS", note="The continuous ranked probability score, in the target's units.")
INTERVAL = Metric(
    "interval_score_95",
    "Interval score",
    note="Width of the 95 % interval plus 40 times the distance of a target outside it, in the target's units.",
)
RMSE = Metric("rmse", "RMSE", note="Of the predictive mean, in the target's units.")
METRICS = (
    NLL,
    Metric(
        "nll_no_duplicates",
        "NLL without duplicates",
        2,
        note="On test rows that are not also, features and target, among the training rows.",
    ),
    CRPS,
    INTERVAL,
    RMSE,
    Metric("coverage_95", "Coverage of 95 % intervals", 1, percent=True, ranked=False, note="Percent of test targets inside."),
    Metric(
        "calibration_error",
        "Calibration error",
        3,
        errors=False,
        note="Root mean square, over levels p of 1 to 99 %, of p minus the share of targets below the p-quantile.",
    ),
    Metric(
        "fit_seconds",
        "Fit seconds",
        1,
        errors=False,
        ranked=False,
        note="By the clock on the wall, tuning included; other fits may have run on the machine's other cores.",
    ),
    Metric("cpu_seconds", "Fit, processor seconds", 1, errors=False, ranked=False, note="The cap is on these."),
)


# By which methods are ranked.
RANKED = (NLL, CRPS, INTERVAL)


@dataclass(frozen=True)
class Part:
    """A part of our score: a difference of two rows.

    Attributes:
        name: in the table and in sentences.
        one: the row with it.
        other: the row without it.
    """

    name: str
    one: str
    other: str


MEAN = Part("mean", "gwi, constant variance", "histogram boosting")
NOISE = Part("noise model", "gwi, no r", "gwi, constant variance")
COVARIANCE = Part("covariance r", "gwi, no disagreement", "gwi, no r")
DISAGREEMENT = Part("disagreement", OURS, "gwi, no disagreement")
TAILS = Part("tails", OURS, "gwi, normal tails")
WASSERSTEIN = Part("W₂ for Titsias", "gwi, W₂", OURS)
PARTS = (MEAN, NOISE, COVARIANCE, DISAGREEMENT, TAILS, WASSERSTEIN)


@dataclass(frozen=True)
class Scale:
    """How the numbers of one set are written.

    Attributes:
        factor: that they are multiplied with.
        digits: after the point.
        unit: what the factor is made up for by.
    """

    factor: float
    digits: int
    unit: str = ""

    def write(self, value: Estimate | None, *, errors: bool = True, unit: bool = False) -> str:
        """Mean ± standard error, with the unit where the reader cannot know it."""
        text = shown(value, self.digits, errors=errors, factor=self.factor)
        return f"({text}) · {self.unit}" if unit and self.unit else text


def scale_of(found: Comparison, table: str, metric: Metric) -> Scale:
    """As the metric says, else three significant digits of the least score, as a power of ten where that is tiny."""
    if metric.digits is not None:
        return Scale(100.0 if metric.percent else 1.0, metric.digits)
    values = [found.score(table, method, metric.name) for method in found.methods]
    least = min((abs(value.mean) for value in values if value is not None and value.mean != 0), default=1.0)
    power = math.floor(math.log10(least))
    if power < -2:
        return Scale(10.0**-power, 2, "10" + str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")))
    return Scale(1.0, max(2, 2 - power))


def header(found: Comparison, metric: Metric) -> list[str]:
    """Sets with the number of splits that are compared, and their unit."""
    units = [scale_of(found, table, metric).unit for table in found.sets]
    counts = [f"{table} ({len(found.splits[table])})" for table in found.sets]
    return ["", *(f"{count}, {unit}" if unit else count for count, unit in zip(counts, units, strict=True))]


def cell(found: Comparison, table: str, method: str, metric: Metric) -> str:
    """One method on one set: bold where it is the best of those compared, with its number of splits where it is not compared."""
    value = found.score(table, method, metric.name)
    text = scale_of(found, table, metric).write(value, errors=metric.errors)
    if value is None or method in found.parts:
        return text
    if method not in found.compared[table]:
        return f"{text} ({value.count})"
    best = next(iter(found.means(table, metric.name)), None)
    return f"**{text}**" if metric.ranked and method == best and len(found.compared[table]) > 1 else text


def rows(found: Comparison, metric: Metric) -> list[list[str]]:
    """One a method, in columns of sets."""
    return [[method, *(cell(found, table, method, metric) for table in found.sets)] for method in found.methods]


def scores(found: Comparison, metric: Metric) -> str:
    """All methods on all sets, then the parts of ours in italics."""
    parts = [[f"*{part}*", *(cell(found, table, part, metric) for table in found.sets)] for part in found.parts]
    return markdown(header(found, metric), rows(found, metric) + parts)


def with_published(found: Comparison, published: Sequence[Published]) -> str:
    """NLL of all methods, and beneath it the lowest published one of each set and the paper's own."""
    best = [best_published(published, "nll", table) for table in found.sets]
    lines = [["*best published*", *(NOTHING if p is None else f"{minus(p.printed)} ({p.method})" for p in best)]]
    lines += [
        [f"*{starred(method)}, published*", *(printed(published, "nll", table, method) for table in found.sets)]
        for method in dict.fromkeys(p.method for p in published if p.method.endswith("*"))
    ]
    return markdown(header(found, NLL), rows(found, NLL) + lines)


def short(found: Comparison) -> str:
    """Mean NLL of the compared methods, without errors."""
    plain = Metric("nll", "NLL", 2, errors=False)
    methods = [method for method in found.methods if any(method in found.compared[table] for table in found.sets)]
    lines = [
        [m, *(cell(found, table, m, plain) if m in found.compared[table] else NOTHING for table in found.sets)] for m in methods
    ]
    return markdown(["", *found.sets], lines)


def literature(found: Comparison, published: Sequence[Published], metric: Metric) -> str:
    """Every published number, with ours above."""
    sets = dict.fromkeys(p.table for p in published)
    names = dict.fromkeys(p.method for p in published if p.metric == metric.name)
    known = {t: scale_of(found, t, metric).write(found.score(t, OURS, metric.name), unit=True) for t in found.sets}
    lines = [[OURS, *(known.get(table, NOTHING) for table in sets)]]
    lines += [[starred(name), *(printed(published, metric.name, table, name) for table in sets)] for name in names]
    return markdown(["", *sets], lines)


def printed(published: Sequence[Published], metric: str, table: str, method: str) -> str:
    """A published number as its source has it."""
    known = [p for p in published if (p.metric, p.table, p.method) == (metric, table, method)]
    return minus(known[0].printed) + ("?" if "doubtful" in known[0].source else "") if known else NOTHING


def presets(found: Comparison, published: Sequence[Published], names: dict[str, str]) -> str:
    """The paper's protocol as we ran it, ours on the same splits, and what the paper printed."""
    lines = []
    for table in found.sets:
        have = [set(found.records[table, method]) for method in (OURS, *names) if (table, method) in found.records]
        splits = sorted(set.intersection(*have)) if len(have) > 1 else []
        if splits:
            values = [found.score(table, m, "nll", splits) if (table, m) in found.records else None for m in (OURS, *names)]
            theirs = [printed(published, "nll", table, name) for name in names.values()]
            lines.append([table, str(len(splits)), *(shown(value, 2) for value in values), *theirs])
    heads = ["", "splits", OURS, *names, *(f"{starred(name)}, published" for name in names.values())]
    return markdown(heads, lines) if lines else "No records yet."


def parts(found: Comparison) -> str:
    """What each part adds to our NLL on each set."""
    known = [part for part in PARTS if any(found.difference(table, part.one, part.other, "nll") for table in found.sets)]
    if not known:
        return "No records yet."
    lines = [
        [
            table,
            shown(found.score(table, OURS, "nll"), 2),
            *(shown(found.difference(table, part.one, part.other, "nll"), 3, signed=True) for part in known),
        ]
        for table in found.sets
    ]
    return markdown(["", OURS, *(f"{part.name}: *{part.one}* − *{part.other}*" for part in known)], lines)


def ranks(found: Comparison) -> str:
    """Mean ranks in every field, Friedman's test and Nemenyi's critical difference, and what they say of ours."""
    known = [metric for metric in RANKED if any(field.rank(found, metric.name) for field in fields(found))]
    ranked = [(field, [field.rank(found, metric.name) for metric in known]) for field in fields(found)]
    if not ranked or not known:
        return "Too few methods to rank."
    letters = "ABC"[: len(ranked)]
    text = []
    for letter, (field, (by_nll, *_)) in zip(letters, ranked, strict=True):
        counts = sorted({len(splits) for splits in field.splits.values()})
        left_out = [method for method in found.methods if method not in field.methods]
        text.append(
            f"- **{letter}**: {len(field.methods)} methods on {listed(field.splits)}, "
            f"{' to '.join(str(n) for n in dict.fromkeys((counts[0], counts[-1])))} splits a set"
            + (f"; without {listed(left_out)}." if left_out else "; every method that was run.")
        )
        if by_nll is None:
            text[-1] += " A score is missing."
    columns = [ranking for _, both in ranked for ranking in both]
    lines = [[m, *(number(c.ranks[m], 2) if c and m in c.ranks else NOTHING for c in columns)] for m in found.methods]
    lines.append(["*p, Friedman*", *(NOTHING if c is None or math.isnan(c.p_value) else f"{c.p_value:.2g}" for c in columns)])
    lines.append(["*critical difference*", *(number(c.critical_difference, 2) if c else NOTHING for c in columns)])
    heads = ["", *(f"{metric.heading}, {letter}" for letter in letters for metric in known)]
    return "\n\n".join(["\n".join(text), markdown(heads, lines), ranks_in_words(found)])


def ranks_in_words(found: Comparison) -> str:
    """Who has the best mean rank in the first field, and whom the test tells apart from ours."""
    sentences = []
    for metric in RANKED:
        ranking = fields(found)[0].rank(found, metric.name)
        if ranking is None or OURS not in ranking.ranks:
            continue
        names = list(ranking.ranks)
        own = ranking.ranks[OURS]
        best = [name for name in names if ranking.ranks[name] == ranking.ranks[names[0]]]
        behind = sum(value < own for value in ranking.ranks.values())
        place = "" if OURS in best else f"; {OURS} is {ordinal(behind + 1)} with {number(own, 2)}"
        worse = [name for name, value in ranking.ranks.items() if value - own >= ranking.critical_difference]
        better = [name for name, value in ranking.ranks.items() if own - value >= ranking.critical_difference]
        doubt = " Friedman's test does not reject that all are alike." if ranking.p_value >= LEVEL else ""
        sentences.append(
            f"In {metric.heading} (A) the best mean rank is that of {listed(best)}, {number(ranking.ranks[best[0]], 2)}{place}. "
            f"Worse than {OURS} by the critical difference or more: {listed(worse)}; better: {listed(better)}.{doubt}"
        )
    return " ".join(sentences)


def firsts(found: Mapping[str, Comparison]) -> str:
    """On how many sets each compared method is first, and its mean rank in the largest field, by protocol."""
    heads, columns = [""], []
    names = dict.fromkeys(m for one in found.values() for m in one.methods if any(m in c for c in one.compared.values()))
    for name, one in found.items():
        usable = [table for table in one.sets if len(one.compared[table]) > 1]
        ranked = next(iter(fields(one)), None)
        for metric in RANKED if ranked else ():
            if not any(one.means(table, metric.name) for table in usable):
                continue
            heads += [f"{name}, {metric.heading}: first of {len(usable)}", "mean rank"]
            won = Counter(next(iter(one.means(table, metric.name)), "") for table in usable)
            took_part = {method for table in usable for method in one.compared[table]}
            ranking = ranked.rank(one, metric.name) if ranked else None
            ranks = ranking.ranks if ranking else {}
            columns.append({m: str(won[m]) for m in took_part})
            columns.append({m: number(rank, 2) for m, rank in ranks.items()})
    return markdown(heads, [[m, *(column.get(m, NOTHING) for column in columns)] for m in names])


def first(found: Comparison, table: str, metric: Metric) -> str:
    """Who is first on a set, and by how much; plainly so where it is not us."""
    scale = scale_of(found, table, metric)
    finer = replace(scale, digits=scale.digits + 1)
    return standing(
        found,
        table,
        metric.name,
        list(found.means(table, metric.name)),
        ours=OURS,
        heading=metric.heading,
        write=lambda value: scale.write(value, unit=True),
        write_gap=lambda value: finer.write(value, unit=True),
    )


def in_parts(found: Comparison, table: str) -> str:
    """Which part of our score comes from the mean, the noise model, the covariance and the tails."""
    known = {part: found.difference(table, part.one, part.other, "nll") for part in PARTS}
    values = {part: value for part, value in known.items() if value is not None}
    if not values:
        return ""
    text = ", ".join(f"{part.name} {shown(value, 3, signed=True)}" for part, value in values.items())
    rmse = list(found.means(table, "rmse"))
    others = [method for method in rmse if method != OURS]
    if OURS in rmse and others:
        scale = scale_of(found, table, RMSE)
        own, best = (scale.write(found.score(table, method, "rmse"), unit=True) for method in (OURS, others[0]))
        text += f"; RMSE {own}, the best other's {best} ({others[0]})"
    steps = {part: values[part].mean for part in (MEAN, NOISE, COVARIANCE, DISAGREEMENT) if part in values}
    if not steps:
        return f"Parts of the NLL: {text}."
    most = min(steps, key=steps.__getitem__)
    said = f"the {most.name} gains most" if steps[most] < 0 else "none lowers the NLL"
    return f"Parts of the NLL: {text}. Of {listed(part.name for part in steps)}, {said}."
