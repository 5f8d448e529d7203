"""Tables and sentences of the image page. Each is made from the records and says nothing that other records could make false."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.render.markdown import table as markdown
from benchmarks.tables.common.statistics import Comparison, Estimate, compare
from benchmarks.tables.common.words import NOTHING, listed, minus, number, shown, standing, starred
from benchmarks.tables.images.data import DATASETS, OutlierName
from benchmarks.tables.images.methods import METHODS, OURS, PAPER, SCORES_ONLY
from benchmarks.tables.images.store import outlier_column

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Metric:
    """A score and how it is shown.

    Attributes:
        name: of its column in the records.
        heading: of its column on the page.
        digits: after the point.
        percent: whether shares are shown as percentages.
        higher: whether more is better.
        ranked: whether there is a best.
    """

    name: str
    heading: str
    digits: int
    percent: bool = False
    higher: bool = False
    ranked: bool = True

    def write(self, value: Estimate | None) -> str:
        """Mean ± standard error."""
        return shown(value, self.digits, factor=100.0 if self.percent else 1.0)

    def plain(self, value: float) -> str:
        """A number of this kind."""
        return number(value * (100.0 if self.percent else 1.0), self.digits) + (" %" if self.percent else "")


ACCURACY = Metric("accuracy", "accuracy, %", 2, percent=True, higher=True)
NLL = Metric("nll", "NLL", 4)
ECE = Metric("ece", "ECE", 4)
CLASSES = (ACCURACY, NLL, Metric("brier", "Brier", 4), ECE)
COSTS = (
    Metric("fit_seconds", "fit, s", 1, ranked=False),
    Metric("training_seconds", "shared training, s", 0, ranked=False),
    Metric("predict_seconds", "prediction, s", 2, ranked=False),
    Metric("score_seconds", "own score, s", 2, ranked=False),
    Metric("forward_seconds", "bare network, s", 2, ranked=False),
    Metric("peak_mb", "peak memory, MB", 0, ranked=False),
)


def outlier_metrics(outliers: OutlierName) -> tuple[Metric, ...]:
    """The scores on a set of outliers."""
    return (
        Metric(outlier_column("auroc", "entropy", outliers), "AUROC, entropy", 4, higher=True),
        Metric(outlier_column("auroc", "score", outliers), "AUROC, own score", 4, higher=True),
        Metric(outlier_column("aupr", "score", outliers), "AUPR, own score", 4, higher=True),
        Metric(outlier_column("fpr95", "score", outliers), "FPR95, own score, %", 1, percent=True),
    )


def compared(rows: Iterable[Row]) -> Comparison:
    """The finished fits, paired over seeds."""
    adapted = [{**row, "set": row["dataset"], "split": row["seed"]} for row in rows]
    return compare(adapted, sets=DATASETS, methods=tuple(METHODS), parts=(), fewer=PAPER)


def order(found: Comparison, dataset: str, metric: Metric, among: Iterable[str] | None = None) -> list[str]:
    """Compared methods, the best first."""
    means = found.means(dataset, metric.name)
    chosen = set(means if among is None else among)
    names = [method for method in means if method in chosen]
    return names[::-1] if metric.higher else names


def probabilistic(found: Comparison) -> list[str]:
    """Methods with probabilities of their own."""
    return [method for method in found.methods if method not in SCORES_ONLY]


def scores(found: Comparison, dataset: str, metrics: Sequence[Metric], methods: Sequence[str]) -> str:
    """Methods in rows and metrics in columns: the best of those compared is bold, the number of seeds stands where it is not."""
    ordered = {metric.name: order(found, dataset, metric, methods)[:1] for metric in metrics}
    # Methods on one network may have the very same numbers.
    best = {name: _mean(found, dataset, first[0], name) for name, first in ordered.items() if first}
    lines = []
    for method in methods:
        if (dataset, method) not in found.records:
            continue
        cells = []
        for metric in metrics:
            value = found.score(dataset, method, metric.name)
            text = metric.write(value)
            if value is not None and method not in found.compared[dataset]:
                text += f" ({value.count})"
            elif value is not None and metric.ranked and best[metric.name] == value.mean and len(found.compared[dataset]) > 1:
                text = f"**{text}**"
            cells.append(text)
        lines.append([method, *cells])
    return markdown(["", *(metric.heading for metric in metrics)], lines)


def first(found: Comparison, dataset: str, metric: Metric, methods: Sequence[str]) -> str:
    """Who is first, and by how much; plainly so where it is not us."""

    def plain(value: Estimate) -> str:
        return metric.plain(value.mean)

    names = order(found, dataset, metric, methods)
    heading = metric.heading.removesuffix(", %")
    return standing(found, dataset, metric.name, names, ours=OURS, heading=heading, write=plain, write_gap=plain)


def _mean(found: Comparison, dataset: str, method: str, metric: str) -> float:
    value = found.score(dataset, method, metric)
    assert value is not None
    return value.mean


def own_scores(rows: Iterable[Row]) -> str:
    """Which score each method has of its own, by the records."""
    known = {row["method"]: row["score_name"] for row in rows if row["failure"] is None and row["score_name"]}
    by: dict[str, list[str]] = {}
    for method in METHODS:
        if method in known:
            by.setdefault(known[method], []).append(f"*{method}*")
    without = by.pop("entropy", [])
    said = "; ".join(f"`{name}` for {listed(names)}" for name, names in by.items())
    text = f"Own scores are {said}. " if said else ""
    if without:
        text += f"For {listed(without)}, which have none, the predictive entropy stands in its place."
    return text.strip()


@dataclass(frozen=True)
class Published:
    """A row of the literature; numbers as their source prints them.

    Attributes:
        dataset: the image set.
        method: as its source calls it.
        numbers: printed values by column of the records.
        source: where they stand, and what is to be said about them.
    """

    dataset: str
    method: str
    numbers: Mapping[str, str]
    source: str


PUBLISHED_METRICS = (ACCURACY, NLL, ECE, outlier_metrics("main")[0])


def read_published(path: Path) -> list[Published]:
    """The rows of a file."""
    with path.open(newline="") as file:
        return [
            Published(r["dataset"], r["method"], {m.name: r[m.name] for m in PUBLISHED_METRICS}, r["source"])
            for r in csv.DictReader(file)
        ]


def literature(found: Comparison, dataset: str, published: Sequence[Published]) -> str:
    """Every published row of a set, with ours and the paper's preset above."""
    lines = []
    for method in (OURS, *PAPER):
        if (dataset, method) in found.records:
            values = [found.score(dataset, method, metric.name) for metric in PUBLISHED_METRICS]
            lines.append([method, *(m.write(v) for m, v in zip(PUBLISHED_METRICS, values, strict=True)), "these records"])
    for row in published:
        if row.dataset == dataset:
            printed = [minus(row.numbers[metric.name]) or NOTHING for metric in PUBLISHED_METRICS]
            lines.append([f"*{starred(row.method)}*", *printed, row.source])
    return markdown(["", *(metric.heading for metric in PUBLISHED_METRICS), "source"], lines)
