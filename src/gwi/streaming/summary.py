"""What one pass over all rows keeps: moments of the columns, the classes, and a sample, however the rows are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Shaped, UInt
from numpy.typing import NDArray

from gwi._progress import Report, silent
from gwi._typing import Array
from gwi.core.scaling import Scales
from gwi.streaming.loaders import shares_of
from gwi.streaming.process_group import ProcessGroup
from gwi.streaming.rows import Chunk, RowSource

# Rows that judge, and rows for all that is learned from a sample.
NUM_JUDGES, NUM_SAMPLED = 10_000, 20_000
# The largest share of the rows that judges.
LARGEST_SHARE = 0.2
# More labels than this are no classes.
MOST_LABELS = 10_000


@dataclass(frozen=True)
class Moments:
    """Number, mean and sum of squared deviations of columns; those of parts merge to those of the whole (Chan et al. 1983).

    Attributes:
        count: of the rows.
        mean: of each column.
        deviation: Σ (x − mean)² of each column.
    """

    count: int
    mean: Float[Array, " D"]
    deviation: Float[Array, " D"]

    @staticmethod
    def of(values: Float[Array, "n D"]) -> Moments:
        """Those of these rows."""
        if not len(values):
            return Moments(0, np.zeros(values.shape[1]), np.zeros(values.shape[1]))
        mean = values.mean(0)
        return Moments(len(values), mean, np.square(values - mean).sum(0))

    def __add__(self, other: Moments) -> Moments:
        """Those of the rows of both."""
        count = self.count + other.count
        if not count:
            return self
        step = other.mean - self.mean
        mean = self.mean + step * (other.count / count)
        return Moments(count, mean, self.deviation + other.deviation + step**2 * (self.count * other.count / count))

    @property
    def std(self) -> Float[Array, " D"]:
        """The standard deviation of each column."""
        return np.sqrt(self.deviation / max(self.count, 1))


def priorities(number: Int[NDArray[Any], " n"], seed: int) -> UInt[NDArray[Any], " n"]:
    """A random number for each row that depends on its number and the seed alone: two rounds of SplitMix64."""
    with np.errstate(over="ignore"):
        start = _mixed(np.array([seed], dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15))
        return _mixed(_mixed(number.astype(np.uint64) + start) + start)


def _mixed(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = z + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@dataclass(frozen=True)
class Sample:
    """The rows of lowest priority, in the order of priority: a sample without replacement, in random order.

    Attributes:
        rows: them.
        priority: of each.
        capacity: how many there may be.
    """

    rows: Chunk
    priority: UInt[NDArray[Any], " n"]
    capacity: int

    @staticmethod
    def of(rows: Chunk, seed: int, capacity: int) -> Sample:
        """That of these rows."""
        return Sample(rows, priorities(rows.number, seed), capacity)._lowest()

    def _lowest(self) -> Sample:
        order = np.argsort(self.priority, kind="stable")[: self.capacity]
        return Sample(self.rows[order], self.priority[order], self.capacity)

    def with_rows(self, rows: Chunk, seed: int) -> Sample:
        """That of these rows too."""
        priority = priorities(rows.number, seed)
        if len(self.priority) == self.capacity:
            low = priority < self.priority[-1]
            rows, priority = rows[low], priority[low]
        return self.merged([Sample(rows, priority, self.capacity)]) if len(priority) else self

    def merged(self, others: Sequence[Sample]) -> Sample:
        """That of the rows of all."""
        parts = [part for part in (self, *others) if len(part.priority)]
        if not parts:
            return self
        joined = Chunk.join([part.rows for part in parts])
        return Sample(joined, np.concatenate([part.priority for part in parts]), self.capacity)._lowest()


@dataclass(frozen=True)
class Sketch:
    """What one pass over a source found.

    Attributes:
        seed: of the sample.
        x: moments of the features.
        y: moments of the targets; of no columns for labels.
        sample: of the rows.
        labels: how many rows have each label; empty for numbers.
        num_judges: how many of the sample, from its beginning, judge.
        group_counts: rows that were found in each group.
    """

    seed: int
    x: Moments
    y: Moments
    sample: Sample
    labels: dict[Any, int]
    num_judges: int
    group_counts: tuple[int, ...]

    @property
    def num_rows(self) -> int:
        """N, judging rows included."""
        return self.x.count

    @property
    def judges(self) -> Chunk:
        """Rows that judge; no mean learns from them."""
        return self.sample.rows[: self.num_judges]

    @property
    def learning(self) -> Chunk:
        """The other sampled rows."""
        return self.sample.rows[self.num_judges :]

    def is_judge(self, number: Int[NDArray[Any], " n"]) -> NDArray[np.bool_]:
        """Whether each row is one of those that judge."""
        if not self.num_judges:
            return np.zeros(len(number), dtype=np.bool_)
        return priorities(number, self.seed) <= self.sample.priority[self.num_judges - 1]

    def scales(self) -> Scales:
        """Centre and scale of the columns."""
        return Scales.from_moments(self.x.mean, self.x.std, self.y.mean, self.y.std)


def sketch(
    source: RowSource,
    seed: int,
    *,
    labels: bool = False,
    judges: bool = True,
    num_sampled: int = NUM_SAMPLED,
    num_judges: int = NUM_JUDGES,
    processes: ProcessGroup | None = None,
    groups: Sequence[int] | None = None,
    report: Report = silent,
) -> Sketch:
    """One pass over this process's groups, joined with what the others found: the same to the last bit on any number of them.

    Args:
        source: of rows.
        seed: of the sample.
        labels: whether targets are labels.
        judges: whether rows are set apart to judge.
        num_sampled: rows for all that is learned from a sample.
        num_judges: the most rows that judge.
        processes: processes that share the source.
        groups: of this process; an even share unless given.
        report: of progress.
    """
    processes = ProcessGroup.current() if processes is None else processes
    mine = shares_of(source.group_sizes, processes.size)[processes.rank] if groups is None else groups
    moments: dict[int, tuple[Moments, Moments]] = {}
    sample: Sample | None = None
    counted: Counter[Any] = Counter()
    for i, group in enumerate(mine):
        for chunk in source.read(group):
            found = Moments.of(chunk.x), Moments.of(np.empty((len(chunk), 0)) if labels else chunk.y)
            held = moments.get(group)
            moments[group] = found if held is None else (held[0] + found[0], held[1] + found[1])
            capacity = num_sampled + num_judges
            sample = Sample.of(chunk, seed, capacity) if sample is None else sample.with_rows(chunk, seed)
            if labels:
                counted.update(_counts(chunk.y))
                if len(counted) > MOST_LABELS:
                    raise ValueError(f"There are more than {MOST_LABELS} different labels; this is a regression.")
        report("reading all rows", (i + 1) / len(mine))
    found_by_all = processes.gathered((moments, sample, counted))
    by_group = {group: pair for part, _, _ in found_by_all for group, pair in part.items()}
    samples = [part for _, part, _ in found_by_all if part is not None]
    if not samples:
        raise ValueError("There are no rows to learn from: the source is empty.")
    # In the order of the groups, whoever read them: sums in another order differ in their last bits.
    order = sorted(by_group)
    x, y = by_group[order[0]]
    for group in order[1:]:
        x, y = x + by_group[group][0], y + by_group[group][1]
    whole = samples[0].merged(samples[1:])
    held_out = min(num_judges, int(LARGEST_SHARE * x.count)) if judges else 0
    totals: Counter[Any] = sum((part for _, _, part in found_by_all), Counter())
    counts = tuple(by_group[group][0].count if group in by_group else 0 for group in range(len(source.group_sizes)))
    return Sketch(seed, x, y, whole, dict(totals), held_out, counts)


def _counts(labels: Shaped[NDArray[Any], " n"]) -> dict[Any, int]:
    values, counts = np.unique(labels, return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))
