"""From records to statements: means over splits, paired differences, mean ranks, Friedman's and Nemenyi's tests."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import friedmanchisquare, rankdata, studentized_range

Row = Mapping[str, Any]
# Of both tests.
LEVEL = 0.05
# Marks in the source of a published number that keep it from being called the best.
NOT_HONEST = ("chosen by best test NLL", "doubtful")


@dataclass(frozen=True)
class Estimate:
    """A mean over splits.

    Attributes:
        mean: over the splits.
        error: its standard error; not a number for a single split.
        count: of splits.
    """

    mean: float
    error: float
    count: int

    def clear(self) -> bool:
        """Whether the mean is more than two standard errors away from zero."""
        return abs(self.mean) > 2 * self.error


def estimate(values: Sequence[float]) -> Estimate | None:
    """Mean and standard error; none without values."""
    if not values:
        return None
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return Estimate(float(np.mean(values)), error, len(values))


@dataclass(frozen=True)
class Comparison:
    """The finished fits of one protocol, and which of them are compared.

    On each set the compared methods are those that finished at least half of the splits that any method finished there, except
    `fewer`, which are planned with fewer splits. They are compared on the splits that all of them finished, so means are paired.

    Attributes:
        records: by set and method, then by split.
        sets: with records.
        methods: with records, in the order of the tables, without parts.
        parts: ablations of our own; never ranked.
        compared: methods by set.
        splits: by set, those that all compared methods finished.
    """

    records: Mapping[tuple[str, str], Mapping[int, Row]]
    sets: tuple[str, ...]
    methods: tuple[str, ...]
    parts: tuple[str, ...]
    compared: Mapping[str, tuple[str, ...]]
    splits: Mapping[str, tuple[int, ...]]

    def splits_of(self, table: str, method: str) -> tuple[int, ...]:
        """Those that the method's mean is taken over: the common ones, or all that it has where it is not compared."""
        own = self.records.get((table, method), {})
        if method in self.compared[table] or method in self.parts:
            return tuple(split for split in self.splits[table] if split in own)
        return tuple(own)

    def score(self, table: str, method: str, metric: str, splits: Iterable[int] | None = None) -> Estimate | None:
        """Of a method on a set, over its splits or over those given."""
        own = self.records.get((table, method), {})
        chosen = self.splits_of(table, method) if splits is None else splits
        return estimate([own[split][metric] for split in chosen if own[split].get(metric) is not None])

    def difference(self, table: str, one: str, other: str, metric: str) -> Estimate | None:
        """One method's score minus another's, paired over the splits that both means are taken over."""
        theirs = set(self.splits_of(table, other))
        pairs = [
            (self.records[table, one][split][metric], self.records[table, other][split][metric])
            for split in self.splits_of(table, one)
            if split in theirs
        ]
        return estimate([a - b for a, b in pairs if a is not None and b is not None])

    def means(self, table: str, metric: str) -> dict[str, float]:
        """Of the compared methods, the best first, for scores of which less is better."""
        found = {method: self.score(table, method, metric) for method in self.compared[table]}
        known = {method: score.mean for method, score in found.items() if score is not None}
        return dict(sorted(known.items(), key=lambda item: item[1]))


def compare(
    rows: Iterable[Row], *, sets: Sequence[str], methods: Sequence[str], parts: Sequence[str], fewer: Sequence[str]
) -> Comparison:
    """The records of one protocol; names are in the order of the tables, and what has no record is left out."""
    records: dict[tuple[str, str], dict[int, Row]] = {}
    for row in rows:
        if row.get("failure") is None:
            records.setdefault((row["set"], row["method"]), {})[row["split"]] = row
    compared, common = {}, {}
    present = tuple(table for table in sets if any(key[0] == table for key in records))
    for table in present:
        finished = {m: set(records[table, m]) for m in methods if m not in fewer and (table, m) in records}
        most = max((len(splits) for splits in finished.values()), default=0)
        compared[table] = tuple(m for m, splits in finished.items() if 2 * len(splits) >= most)
        common[table] = tuple(sorted(set.intersection(*(finished[m] for m in compared[table])))) if compared[table] else ()
        if not common[table]:
            compared[table] = ()
    with_records = {method for _, method in records}
    return Comparison(
        records,
        present,
        tuple(m for m in methods if m in with_records),
        tuple(m for m in parts if m in with_records),
        compared,
        common,
    )


@dataclass(frozen=True)
class Ranking:
    """Mean ranks of methods over sets.

    Attributes:
        metric: that is ranked; less is better.
        sets: ranked on.
        ranks: mean over the sets, by method, the best first; ties share the mean of their places.
        p_value: of Friedman's test that all methods are alike; not a number for fewer than three methods or two sets.
        critical_difference: of two mean ranks, by Nemenyi's test at 5 %.
    """

    metric: str
    sets: tuple[str, ...]
    ranks: Mapping[str, float]
    p_value: float
    critical_difference: float

    def alike(self) -> list[tuple[str, ...]]:
        """The longest runs of methods whose mean ranks differ by less than the critical difference."""
        names, values = list(self.ranks), list(self.ranks.values())
        runs: list[tuple[int, int]] = []
        for first in range(len(names)):
            last = max(i for i in range(first, len(names)) if i == first or values[i] - values[first] < self.critical_difference)
            # A run inside the one before it says nothing new.
            if last > first and (not runs or last > runs[-1][1]):
                runs.append((first, last))
        return [tuple(names[first : last + 1]) for first, last in runs]


def rank(metric: str, means: Mapping[str, Mapping[str, float]]) -> Ranking:
    """Rank the same methods on each set by their means there."""
    tables = tuple(means)
    methods = list(means[tables[0]])
    scores = np.array([[means[table][method] for method in methods] for table in tables])
    averages = np.array([rankdata(row) for row in scores]).mean(0)
    enough = len(methods) >= 3 and len(tables) >= 2
    # All ties: no evidence, where the statistic is 0/0.
    flat = bool(np.all(scores == scores[:, :1]))
    p_value = math.nan if not enough else 1.0 if flat else float(friedmanchisquare(*scores.T).pvalue)
    order = np.argsort(averages, kind="stable")
    ranks = {methods[i]: float(averages[i]) for i in order}
    return Ranking(metric, tables, ranks, p_value, critical_difference(len(methods), len(tables)))


def critical_difference(num_methods: int, num_sets: int, level: float = LEVEL) -> float:
    """Nemenyi's least difference of two mean ranks that is significant (Demšar, 2006)."""
    if num_methods < 2:
        return math.nan
    q = float(studentized_range.ppf(1 - level, num_methods, math.inf)) / math.sqrt(2)
    return q * math.sqrt(num_methods * (num_methods + 1) / (6 * num_sets))


@dataclass(frozen=True)
class Field:
    """Who is ranked together, and on what.

    Attributes:
        methods: that are all there on each of the sets.
        splits: by set.
    """

    methods: tuple[str, ...]
    splits: Mapping[str, tuple[int, ...]]

    def rank(self, found: Comparison, metric: str) -> Ranking | None:
        """By means over the splits; none where a score is missing."""
        means: dict[str, dict[str, float]] = {}
        for table, splits in self.splits.items():
            scores = {method: found.score(table, method, metric, splits) for method in self.methods}
            means[table] = {method: score.mean for method, score in scores.items() if score is not None}
        return rank(metric, means) if all(len(row) == len(self.methods) for row in means.values()) else None


def fields(found: Comparison) -> list[Field]:
    """What can be ranked without a hole: the largest block of methods and sets; all compared methods; everything.

    More methods are together on fewer sets, and on fewer splits where a method has fewer. Each has at least two methods.
    """

    def block(methods: Sequence[str]) -> Field:
        together = [table for table in found.sets if set(methods) <= set(found.compared[table])]
        return Field(tuple(methods), {table: found.splits[table] for table in together})

    blocks = [block(found.compared[table]) for table in found.sets if found.compared[table]]
    largest = max(blocks, key=lambda field: len(field.methods) * len(field.splits), default=block(()))
    somewhere = block([m for m in found.methods if any(m in names for names in found.compared.values())])
    shared = {t: set.intersection(*(set(found.records.get((t, m), {})) for m in found.methods)) for t in found.sets}
    everything = Field(found.methods, {t: tuple(sorted(splits)) for t, splits in shared.items() if splits})
    unique = dict.fromkeys((field.methods, tuple(field.splits.items())) for field in (largest, somewhere, everything))
    return [Field(methods, dict(splits)) for methods, splits in unique if len(methods) >= 2 and splits]


@dataclass(frozen=True)
class Published:
    """A number of the literature.

    Attributes:
        metric: ``nll`` or ``rmse``.
        table: the data set.
        method: as its source calls it.
        printed: the value, in the target's own units, with the digits of its source.
        source: where it stands, and what is to be said about it.
    """

    metric: str
    table: str
    method: str
    printed: str
    source: str

    def honest(self) -> bool:
        """Whether nothing is known against it."""
        return not any(mark in self.source for mark in NOT_HONEST)


def read_published(path: Path) -> list[Published]:
    """The numbers of a file with columns metric, set, method, value, source."""
    with path.open(newline="") as file:
        return [Published(r["metric"], r["set"], r["method"], r["value"], r["source"]) for r in csv.DictReader(file)]


def best_published(published: Iterable[Published], metric: str, table: str) -> Published | None:
    """The lowest value of a set that nothing is known against."""
    known = [p for p in published if (p.metric, p.table) == (metric, table) and p.honest()]
    return min(known, key=lambda p: float(p.printed), default=None)
