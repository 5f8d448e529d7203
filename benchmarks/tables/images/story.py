"""What the choice of features does to our score of outliers, told from the records."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.render.markdown import table as markdown
from benchmarks.tables.common.statistics import Comparison
from benchmarks.tables.common.words import NOTHING, listed, number
from benchmarks.tables.images.data import DATASETS, DatasetName, OutlierName
from benchmarks.tables.images.goals import value
from benchmarks.tables.images.methods import OURS

# From what comes first to mind to what the library does.
STEPS = {
    "gwi, pixels": "pixels",
    "gwi, naive features": "last hidden layer, centred, 32 directions, lengths kept",
    "gwi, last features": "last block, not centred, divided by the norm",
    OURS: "every block, each divided by its norm",
}
CHANCE = 0.5
MAIN, HARD = "auroc_score", "hard_auroc_score"


def told(found: Comparison, names: Mapping[DatasetName, Mapping[OutlierName, str]]) -> list[str]:
    """Paragraphs: the score of each kernel on all outliers, which of them are upside down, why, and what cured it.

    Args:
        found: all records.
        names: of the outliers ``main`` and ``hard`` of each set.
    """
    places = [(dataset, metric) for dataset in DATASETS for metric in (MAIN, HARD)]
    there = {dataset: [method for method in STEPS if (dataset, method) in found.records] for dataset in DATASETS}
    numbers = {method: [value(found, dataset, method, name, there[dataset]) for dataset, name in places] for method in STEPS}
    if all(score is None for scores in numbers.values() for score in scores):
        return []
    header = [names[dataset]["main" if metric == MAIN else "hard"] for dataset, metric in places]
    lines = [
        [method, kernel, *(NOTHING if score is None else number(score, 4) for score in numbers[method])]
        for method, kernel in STEPS.items()
    ]
    inverted = [
        f"*{method}* on {name} ({number(score, 2)})"
        for method in STEPS
        for name, score in zip(header, numbers[method], strict=True)
        if score is not None and score < CHANCE
    ]
    said = f"Below one half, upside down: {listed(inverted)}." if inverted else "All are above one half."
    return [
        "## The score that turns upside down",
        "The score is the share of the prior variance that the inducing points leave: it is large where an image is far from all "
        "training images, in whatever space the kernel looks at. That space decides everything. AUROC of the same score with "
        "four kernels around the same network:",
        markdown(["method", "kernel on", *header], lines),
        f"{said} Why: smooth images of few colours, as SVHN's, are near the middle of all images, and a network maps what it "
        "does not know near the middle of its features, too. Measured from there, outliers are closer to the training images "
        "than these are to each other. Two things cure it. Features are not centred and are divided by their norm: then only "
        "directions count, and the middle is nowhere. And not the last block alone is looked at, which keeps what tells the "
        "classes apart and little else, but every block: what an image looks like is known to the early ones.",
    ]
