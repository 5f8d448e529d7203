"""What one pass over all rows keeps: moments of the columns, the classes, and a sample, however the rows are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from gwi._progress import Report, silent
from gwi._typing import Array
from gwi.core.scaling import Scales
from gwi.streaming.batches import Sample, priorities
from gwi.streaming.loaders import shares_of
from gwi.streaming.process_group import ProcessGroup
from gwi.tables.rows import Chunk, RowSource

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


@dataclass(frozen=True)
class Sketch:
    """What one pass over a source keeps.

    Attributes:
        seed: of the sample.
        x: moments of the features.
        y: moments of the targets; of no columns for labels.
        sample: of the rows, in random order.
        labels: how many rows have each label; empty for numbers.
        num_judges: how many of the sample, from its beginning, judge.
        group_counts: how many rows each group had.
    """

    seed: int
    x: Moments
    y: Moments
    sample: Chunk
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
        return self.sample[: self.num_judges]

    @property
    def learning(self) -> Chunk:
        """The other sampled rows."""
        return self.sample[self.num_judges :]

    def is_judge(self, number: Int[NDArray[Any], " n"]) -> NDArray[np.bool_]:
        """Whether each row is one of those that judge."""
        if not self.num_judges:
            return np.zeros(len(number), dtype=np.bool_)
        return priorities(number, self.seed) <= priorities(self.judges.number[-1:], self.seed)

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
    groups: Sequence[int] | None = None,
    report: Report = silent,
) -> Sketch:
    """One pass over this process's groups, joined with those of the others: the same to the last bit on any number of them.

    Args:
        source: of rows.
        seed: of the sample.
        labels: whether targets are labels.
        judges: whether rows are set apart to judge.
        num_sampled: rows for all that is learned from a sample.
        num_judges: the most rows that judge.
        groups: of this process; an even share unless given.
        report: of progress.
    """
    processes = ProcessGroup.current()
    mine = shares_of(source.group_sizes, processes.size)[processes.rank] if groups is None else groups
    whole: Sample[Chunk] = Sample(num_sampled + num_judges, seed)
    parts = processes.gathered(lambda: _own_part(source, mine, Sample(whole.capacity, seed), labels, report))
    for part in parts:
        if part.sample is not None:
            whole.add(part.sample)
    sample = whole.rows()
    by_group = {group: pair for part in parts for group, pair in part.moments.items()}
    # In the order of the groups, whoever read them: sums in another order differ in their last bits.
    ordered = [by_group[group] for group in sorted(by_group)]
    x, y = (sum(others, start=first) for first, *others in zip(*ordered, strict=True))
    held_out = min(num_judges, int(LARGEST_SHARE * x.count)) if judges else 0
    totals: Counter[Any] = sum((part.labels for part in parts), Counter())
    counts = tuple(by_group[group][0].count if group in by_group else 0 for group in range(len(source.group_sizes)))
    return Sketch(seed, x, y, sample, dict(totals), held_out, counts)


@dataclass(frozen=True)
class _Part:
    """What one process keeps of its groups."""

    moments: dict[int, tuple[Moments, Moments]]
    sample: Chunk | None
    labels: Counter[Any]


def _own_part(source: RowSource, groups: Sequence[int], sample: Sample[Chunk], labels: bool, report: Report) -> _Part:
    moments: dict[int, tuple[Moments, Moments]] = {}
    counted: Counter[Any] = Counter()
    for i, group in enumerate(groups):
        for chunk in source.read(group):
            x, y = Moments.of(chunk.x), Moments.of(np.empty((len(chunk), 0)) if labels else chunk.y)
            before = moments.get(group)
            moments[group] = (x, y) if before is None else (before[0] + x, before[1] + y)
            sample.add(chunk)
            if labels:
                counted.update(chunk.y.ravel().tolist())
                if len(counted) > MOST_LABELS:
                    raise ValueError(f"There are more than {MOST_LABELS} different labels; this is a regression.")
        report("reading all rows", (i + 1) / len(groups))
    return _Part(moments, sample.rows() if sample.num_seen else None, counted)
