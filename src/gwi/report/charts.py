"""The pictures of a report: each with a title that says what it shows here, and a sentence on how to read it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.stats import binom

from gwi._typing import Array
from gwi.core.distributions import quantile
from gwi.evaluation.classification import NUM_BINS
from gwi.report.examination import Examined
from gwi.report.svg import Axis, Chart, around, percent, shown

LEVELS = np.arange(1, 20) / 20
NUM_BARS = 10
# Dots that a small picture can hold.
MOST_DOTS = 600
BY_CHANCE = "by chance, 95 %"


@dataclass(frozen=True)
class Figure:
    """A picture and its words.

    Attributes:
        title: what it shows here.
        picture: SVG.
        legend: HTML.
        reading: how to read it.
    """

    title: str
    picture: str
    legend: str
    reading: str


def figures(found: Examined) -> list[Figure]:
    """The pictures for the task of the model."""
    if found.tool.task == "classification":
        return [reliability(found), confidence(found), outliers(found)]
    return [calibration(found), pit(found), errors(found), levels(found), predicted(found), outliers(found)]


def verdict(count: int, num_rows: int, level: float) -> str:
    """What a share of targets inside intervals says about them."""
    low, high = binom.interval(0.95, num_rows, level)
    return "as promised" if low <= count <= high else _off(count / num_rows - level)


def _off(gap: float) -> str:
    """Which way intervals are wrong, and whether by much: by as much as `diagnose` makes a word of."""
    return f"{'a little ' * (abs(gap) < 0.05)}too {'wide' if gap > 0 else 'narrow'}"


def calibration(found: Examined) -> Figure:
    """Share of targets inside intervals of each level."""
    law, y = found.law, found.judged.y
    score = np.abs(y - law.mean[0]) / law.std[0]
    covered = (score[:, None] <= quantile((1 + LEVELS) / 2, law.degrees_of_freedom)).mean(0)
    low, high = (ends / len(y) for ends in binom.interval(0.95, len(y), LEVELS))
    chart = Chart(Axis(0, 1, "promised by the interval", "share"), Axis(0, 1, "rows inside the interval", "share"))
    ends = np.array([0.0, 1.0])
    chart.band(LEVELS, low, high, "chance", BY_CHANCE)
    chart.line(ends, ends, "wanted", "as promised")
    chart.line(LEVELS, covered, "data", "found")
    chart.dots(LEVELS, covered, "data-dots")
    inside = int(((covered >= low) & (covered <= high)).sum())
    is_right = inside >= 0.85 * len(LEVELS)
    gap = covered - LEVELS
    title = "Intervals keep their promise" if is_right else f"Intervals are {_off(float(gap[np.argmax(np.abs(gap))]))}"
    reading = (
        "On the dashed line an interval holds as many rows as it promises. Below it intervals are too narrow, above too wide."
    )
    words = f"{inside} of {len(LEVELS)} levels lie in the grey band. {reading}"
    description = f"Calibration: 95 % intervals hold {percent(float(covered[-1]), 1)} of {len(y)} rows."
    return Figure(title, chart.svg(description), chart.legend(), words)


def pit(found: Examined) -> Figure:
    """Histogram of P(Y ≤ y)."""
    values = found.law.cumulative(found.judged.y)
    count = np.histogram(values, NUM_BARS, (0, 1))[0].astype(np.float64)
    low, high = binom.interval(0.95, len(values), 1 / NUM_BARS)
    top = 1.1 * max(float(count.max()), float(high), 1.0)
    chart = Chart(Axis(0, 1, "probability of a lower target (PIT)", "share"), Axis(0, top, "rows"))
    edges, none = np.linspace(0, 1, NUM_BARS + 1), np.zeros(NUM_BARS)
    notes = [f"{c:.0f} rows, {len(values) / NUM_BARS:.4g} expected" for c in count]
    chart.band(np.array([0.0, 1.0]), np.full(2, low), np.full(2, high), "chance", BY_CHANCE)
    chart.bars(edges, none, count, "bar pale", "rows", notes)
    chart.tops(edges, count, "tops")
    chart.line(np.array([0.0, 1.0]), np.full(2, len(values) / NUM_BARS), "wanted", "expected")
    outside = int(((count < low) | (count > high)).sum())
    ends, middle = count[[0, -1]].mean(), count[3:7].mean()
    title = "Targets fall evenly over the predictions" if outside <= 1 else "Targets fall unevenly over the predictions"
    if outside > 1 and ends > 1.3 * middle and count[[0, -1]].min() > high:
        title = "Too many targets at both ends of the predictions"
    elif outside > 1 and middle > 1.3 * ends and count[[0, -1]].max() < low:
        title = "Too many targets in the middle of the predictions"
    reading = "Flat is right. High at both ends: too narrow. High in the middle: too wide. High at one end: predictions are off."
    description = f"Histogram of the probability integral transform: {outside} of {NUM_BARS} bars outside of the band of chance."
    words = f"{NUM_BARS - outside} of {NUM_BARS} bars end in the grey band. {reading}"
    return Figure(title, chart.svg(description), chart.legend(), words)


def errors(found: Examined) -> Figure:
    """Absolute error against predicted standard deviation."""
    law = found.law
    std, error = law.std[0], np.abs(found.judged.y - law.mean[0])
    alike = std.max() < 1.01 * std.min()
    bins = np.array_split(np.argsort(std, kind="stable"), 1 if alike else max(1, min(8, len(std) // 10)))
    # The median of |error| is a fixed multiple of the standard deviation, and chance moves its rank by a binomial law.
    slope = float(quantile(np.array(0.75), law.degrees_of_freedom))
    centre = np.array([np.median(std[b]) for b in bins])
    middle = np.array([np.median(error[b]) for b in bins])
    level = np.array([binom.interval(0.95, len(b), 0.5) for b in bins]) / np.array([[len(b)] for b in bins])
    low, high = (slope_at(level[:, i], law.degrees_of_freedom) * centre for i in (0, 1))
    dots = dots_of(len(std))
    is_wide = std.max() > 5 * std.min()
    if is_wide:
        x = Axis(float(std.min()) / 1.1, float(std.max()) * 1.1, "predicted standard deviation", "log")
        top = max(float(error.max()), float(high.max()))
        y = Axis(max(float(std.min()) / 20, top / 1e5), 1.2 * top, "absolute error", "log")
    else:
        x = around(std, "predicted standard deviation")
        y = Axis(0.0, 1.05 * max(float(error.max()), float(high.max())), "absolute error")
    chart = Chart(x, y)
    chart.dots(std[dots], error[dots], "faint-dots", "rows")
    chart.posts(centre, low, high, "chance-posts", BY_CHANCE)
    ends = np.geomspace(x.low, x.high, 30) if is_wide else np.array([max(x.low, 0.0), x.high])
    chart.line(ends, slope * ends, "wanted", "expected median")
    chart.line(centre, middle, "data", "median found")
    chart.dots(centre, middle, "data-dots")
    if len(bins) == 1:
        title = "Errors beside their prediction"
    else:
        grows = middle[-1] > middle[0]
        title = "Where the model doubts, it errs more" if grows else "Doubt and error do not go together"
    reading = (
        "Each dot is a row. Blue should follow the dashed line: where the model says twice the spread, errors are twice as large."
    )
    description = "Absolute error against predicted standard deviation, medians of groups of rows beside what is expected."
    return Figure(title, chart.svg(description), chart.legend(), reading)


def slope_at(share: Float[Array, " B"], degrees_of_freedom: float) -> Float[Array, " B"]:
    """The multiple of the standard deviation below which this share of the absolute errors lies."""
    return quantile(np.clip((1 + share) / 2, 0.5, 1 - 1e-6), degrees_of_freedom)


def levels(found: Examined) -> Figure:
    """Coverage of 95 % intervals in groups of rows with low to high predictions."""
    law, y = found.law, found.judged.y
    inside = (law.quantile(0.025) <= y) & (y <= law.quantile(0.975))
    groups = np.array_split(np.argsort(law.mean[0], kind="stable"), max(1, min(5, len(y) // 10)))
    share = np.array([inside[group].mean() for group in groups])
    low, high = np.array([np.array(binom.interval(0.95, len(group), 0.95)) / len(group) for group in groups]).T
    least = max(0.0, math.floor(10 * min(float(share.min()), float(low.min()), 0.85)) / 10 - 0.1)
    middle = np.array([float(np.median(law.mean[0][group])) for group in groups])
    chart = Chart(around(middle, "prediction, median of the group", 0.12), Axis(least, 1.005, "inside 95 % interval", "share"))
    chart.posts(middle, low, high, "chance-posts", BY_CHANCE)
    chart.line(np.array([chart.x.low, chart.x.high]), np.full(2, 0.95), "wanted", "as promised")
    chart.line(middle, share, "data", "found")
    chart.dots(middle, share, "data-dots")
    kept = int(((share >= low) & (share <= high)).sum())
    # One group of five is outside by chance in every fourth file.
    is_even = kept >= len(groups) - 1
    title = "The promise holds for low and high predictions" if is_even else "The promise depends on the prediction"
    if len(groups) == 1:
        title = "Intervals hold what they promise" if kept else "Intervals do not hold what they promise"
    count = f"{len(groups)} group{'s' * (len(groups) > 1)} of equally many rows, from low to high predictions"
    reading = f"{count}. Intervals that are right on average but not everywhere would miss the grey strokes."
    return Figure(title, chart.svg(f"Coverage by level of the prediction. {title}."), chart.legend(), reading)


def predicted(found: Examined) -> Figure:
    """Targets against predictions, those outside of their 95 % interval apart."""
    law, y = found.law, found.judged.y
    mean = law.mean[0]
    half = law.std[0] * float(quantile(np.array(0.975), law.degrees_of_freedom))
    outside = np.abs(y - mean) > half
    dots = np.isin(np.arange(len(y)), np.arange(len(y))[dots_of(len(y))])
    axis = around(np.concatenate([mean, y]), "")
    chart = Chart(Axis(axis.low, axis.high, "predicted"), Axis(axis.low, axis.high, f"found: {found.tool.columns.target}"))
    ends = np.array([axis.low, axis.high])
    chart.line(ends, ends, "wanted", "equal")
    chart.dots(mean[dots & ~outside], y[dots & ~outside], "blue-dots", "inside 95 % interval")
    chart.dots(mean[dots & outside], y[dots & outside], "alarm-dots", "outside")
    spread = float(np.square(y - y.mean()).sum())
    explained = 1 - float(np.square(y - mean).sum()) / spread if spread > 0 else math.nan
    if math.isnan(explained):
        title = "Predictions beside targets"
    elif explained <= 0:
        title = "Predictions are no better than the mean"
    else:
        title = f"Predictions explain {percent(explained)} of the variance"
    reading = f"{int(outside.sum())} of {len(y)} rows lie outside of their 95 % interval; {0.05 * len(y):.1f} are expected."
    return Figure(title, chart.svg(f"{title}. {reading}"), chart.legend(), reading)


def outliers(found: Examined) -> Figure:
    """Histogram of the outlier score."""
    edges = np.linspace(0, 1, 21)
    count = np.histogram(found.ood, edges)[0].astype(np.float64)
    chart = Chart(Axis(0, 1, "outlier score"), Axis(0, 1.1 * max(float(count.max()), 1.0), "rows"))
    chart.bars(edges, np.zeros(20), count, "bar", "rows", [f"{c:.0f} rows" for c in count])
    middle, high = (shown(round(float(np.quantile(found.ood, share)), 3)) for share in (0.5, 0.95))
    title = f"How new the rows are: {middle} at the median"
    reading = (
        f"0: the fit has seen many rows like this one; 1: none, and the mean stands alone. One row in twenty is above {high}."
    )
    return Figure(title, chart.svg(f"Histogram of outlier scores. {title}. {reading}"), chart.legend(), reading)


def reliability(found: Examined) -> Figure:
    """Accuracy against confidence, in bins of the confidence."""
    probabilities, y = found.judged.first, found.judged.y
    sure, hit = probabilities.max(1), (probabilities.argmax(1) == y).astype(np.float64)
    place = np.searchsorted(np.arange(1, NUM_BINS) / NUM_BINS, sure)
    count = np.bincount(place, minlength=NUM_BINS)
    used = count > 0
    mean, accuracy = (np.bincount(place, v, NUM_BINS)[used] / count[used] for v in (sure, hit))
    low, high = (ends / count[used] for ends in binom.interval(0.95, count[used], np.clip(mean, 0, 1)))
    least = min(0.5, 1 / probabilities.shape[1])
    chart = Chart(Axis(least, 1.005, "confidence", "share"), Axis(0, 1.01, "rows predicted right", "share"))
    chart.posts(mean, low, high, "chance-posts", BY_CHANCE)
    chart.line(np.array([least, 1.0]), np.array([least, 1.0]), "wanted", "as promised")
    chart.line(mean, accuracy, "data", "found")
    chart.dots(mean, accuracy, "data-dots")
    inside = int(((accuracy >= low - 1e-12) & (accuracy <= high + 1e-12)).sum())
    title = "Probabilities keep their promise" if inside >= 0.8 * used.sum() else "Probabilities do not keep their promise"
    reading = (
        "Of the rows predicted with confidence 80 %, 80 % should be right: on the dashed line. Below it the model is too sure."
    )
    words = f"{inside} of {used.sum()} groups lie within the grey strokes. {reading}"
    description = f"Reliability: accuracy {percent(float(hit.mean()), 1)} at mean confidence {percent(float(sure.mean()), 1)}."
    return Figure(title, chart.svg(description), chart.legend(), words)


def confidence(found: Examined) -> Figure:
    """Histogram of the confidence, rows that were right and wrong on top of each other."""
    probabilities, y = found.judged.first, found.judged.y
    sure, hit = probabilities.max(1), probabilities.argmax(1) == y
    least = 1 / probabilities.shape[1]
    edges = np.linspace(least, 1, 13)
    wrong, right = (np.histogram(sure[chosen], edges)[0].astype(np.float64) for chosen in (~hit, hit))
    top = 1.1 * max(float((wrong + right).max()), 1.0)
    chart = Chart(Axis(least, 1, "confidence: the highest probability", "share"), Axis(0, top, "rows"))
    chart.bars(edges, np.zeros(12), wrong, "bar alarm-bar", "wrong", [f"{c:.0f} wrong" for c in wrong])
    chart.bars(edges, wrong, wrong + right, "bar", "right", [f"{c:.0f} right" for c in right])
    title = f"{percent(float((sure > 0.9).mean()))} of the rows are predicted with more than 90 %"
    if (~hit).any():
        reading = (
            f"Mean confidence {percent(float(sure[hit].mean()), 1)} at rows that were right and "
            f"{percent(float(sure[~hit].mean()), 1)} at the {int((~hit).sum())} that were wrong. Orange should lie to the left."
        )
    else:
        reading = "Every row is predicted right."
    return Figure(title, chart.svg(f"Histogram of the confidence. {reading}"), chart.legend(), reading)


def dots_of(num_rows: int) -> Any:
    """An index of all rows, or of a fixed sample."""
    return slice(None) if num_rows <= MOST_DOTS else np.random.default_rng(0).choice(num_rows, MOST_DOTS, replace=False)
