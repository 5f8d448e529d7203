"""Rows that need not fit in memory: arrays, Parquet files, Arrow datasets and loaders, read group by group.

A source is a list of groups of rows, which are what processes share and what is shuffled. Every row has a number, the same
however the source is read.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Shaped
from numpy.typing import NDArray
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
)

from gwi._typing import Array
from gwi._validation import as_array
from gwi.streaming.contract import CheckedSource
from gwi.streaming.fingerprint import described, digest
from gwi.tables.parquet import ParquetSource, parquet_source
from gwi.tables.rows import CHUNK_SIZE, Chunk, RowSource

# Groups that are mixed when rows are shuffled, and rows of a group where the source has none of its own.
MIXED = 4
GROUP_SIZE = 1 << 16
# Rows of a loader by which it is told from another.
NUM_COMPARED = 256


@dataclass(frozen=True)
class ArraySource:
    """Rows in memory, for comparison and for sharing them between processes.

    Attributes:
        x: features.
        y: targets or labels.
        group_size: rows of a group.
    """

    x: Float[Array, "N D"]
    y: Shaped[NDArray[Any], "N ..."]
    group_size: int = GROUP_SIZE
    # None have names.
    features: ClassVar[None] = None

    @property
    def group_sizes(self) -> tuple[int, ...]:
        """All of one size but the last."""
        return _even_groups(len(self.x), self.group_size)

    @property
    def fingerprint(self) -> Any:
        """A hash of all rows."""
        return [self.group_size, described(np.asarray(self.x)), described(np.asarray(self.y))]

    def read(self, group: int, size: int = CHUNK_SIZE) -> Iterator[Chunk]:
        """The rows of a group."""
        stop = min((group + 1) * self.group_size, len(self.x))
        for start in range(group * self.group_size, stop, size):
            rows = slice(start, min(start + size, stop))
            yield Chunk(self.x[rows], self.y[rows], np.arange(rows.start, rows.stop))


class LoaderSource:
    """A loader of (rows, targets). With a dataset that has places it is read by place, whatever order the loader shuffles to.

    Args:
        loader: whose batches are rows with one axis of features, and targets or labels.
        labels: whether the targets are labels.
    """

    def __init__(self, loader: DataLoader[Any], *, labels: bool = False):
        self._loader, self._labels = loader, labels
        self._places = _places(loader)
        self._first, self._keeps_order = "", False
        self.features = None
        if self._places is not None:
            self.group_sizes = _even_groups(len(self._places), GROUP_SIZE)
        else:
            # One that decides its own order is one group.
            self.group_sizes = (sum(len(rows) for rows, _ in self._batches()),)

    @property
    def decides_order(self) -> bool:
        """Whether the loader alone knows its rows, which may come in another order each time."""
        return self._places is None

    def in_one_order(self) -> LoaderSource:
        """The same, but a pass that begins with other rows than the first is an error: where rows are known by their number."""
        ordered = copy.copy(self)
        ordered._keeps_order = True
        return ordered

    def _batches(self) -> Iterator[Any]:
        """One pass of a loader that decides its own order."""
        for i, batch in enumerate(self._loader):
            if i == 0:
                first = digest(described(list(batch)))
                self._first = self._first or first
                if self._keeps_order and first != self._first:
                    raise ValueError(
                        "The loader gives its rows in a different order each time, so held-out rows cannot be told "
                        "from training rows; do not let it shuffle, or pass validation=."
                    )
            yield batch

    @property
    def fingerprint(self) -> Any:
        """A hash of some rows at even distances; of a loader that decides its own order of the first batch."""
        if self._places is None:
            return [self.group_sizes, self._first]
        dataset: Any = self._loader.dataset
        chosen = self._places[:: max(1, len(self._places) // NUM_COMPARED)]
        return [self.group_sizes, digest([[place, described(dataset[place])] for place in chosen])]

    def read(self, group: int, size: int = CHUNK_SIZE) -> Iterator[Chunk]:
        """The rows of a group, one batch of the loader at a time."""
        loader, number = self._loader, group * GROUP_SIZE
        batches: Iterable[Any] = self._batches()
        if self._places is not None:
            batches = DataLoader(
                loader.dataset,
                batch_size=loader.batch_size,
                sampler=self._places[number : number + self.group_sizes[group]],
                num_workers=loader.num_workers,
                collate_fn=loader.collate_fn,
            )
        held: list[Chunk] = []
        for rows, targets in batches:
            x = np.asarray(as_array(rows), dtype=np.float64)
            if x.ndim != 2 or not np.isfinite(x).all():
                raise ValueError(
                    f"A loader must give rows of finite numbers, (rows, columns); got {x.shape} from row {number + 1} on."
                )
            y = np.asarray(as_array(targets))
            y = y if self._labels else y.reshape(len(x), -1).astype(np.float64)
            held.append(Chunk(x, y, np.arange(number, number + len(x))))
            number += len(x)
            if sum(map(len, held)) >= size:
                yield Chunk.join(held)
                held = []
        if held:
            yield Chunk.join(held)


def _places(loader: DataLoader[Any]) -> Sequence[int] | None:
    """The places of a loader's dataset that it reads, in order; None where the loader alone knows its rows."""
    sampler, dataset = loader.sampler, loader.dataset
    if loader.batch_size is None or isinstance(dataset, IterableDataset):
        return None
    if isinstance(sampler, DistributedSampler):
        # Processes share rows out by themselves, once.
        return range(len(dataset))  # type: ignore[arg-type]
    if isinstance(sampler, SubsetRandomSampler):
        return sorted(int(place) for place in sampler.indices)
    if isinstance(sampler, SequentialSampler | RandomSampler) and not getattr(sampler, "replacement", False):
        return range(len(dataset))  # type: ignore[arg-type]
    return None


def _even_groups(num_rows: int, size: int) -> tuple[int, ...]:
    return tuple(min(size, num_rows - start) for start in range(0, num_rows, size))


def as_source(data: Any, target: Any, *, labels: bool = False, features: Sequence[str] | None = None) -> RowSource:
    """The source that a user means.

    Args:
        data: a path, a folder, a `pyarrow.dataset`, a loader, or a source; a source of the user's own is checked as it is read.
        target: with files and datasets the column to predict, or several; else None.
        labels: whether the target is a label.
        features: with files and datasets the columns of x in their order; all but the target unless given.
    """
    if isinstance(data, DataLoader):
        if target is not None:
            raise ValueError("A DataLoader gives its own targets; leave y out.")
        return LoaderSource(data, labels=labels)
    if isinstance(data, ParquetSource | ArraySource | LoaderSource | CheckedSource):
        return data
    if hasattr(data, "group_sizes"):
        if target is not None:
            raise ValueError("A source gives its own targets; leave y out.")
        return CheckedSource(data, labels=labels, features=features)
    if not (isinstance(target, str) or (isinstance(target, list | tuple) and all(isinstance(name, str) for name in target))):
        raise ValueError(f"With a file or dataset y is the name of the target's column; got {type(target).__name__}.")
    return parquet_source(data, target, labels=labels, features=features)


def fingerprint_of(source: RowSource) -> str:
    """One word that tells the rows of a source from others; a user's own source that says nothing is told by a few rows."""
    own = getattr(source, "fingerprint", None)
    if own is None:
        first = next(iter(source.read(0)), None) if source.group_sizes else None
        own = None if first is None else described([first.x, first.y])
    return digest([own, source.group_sizes, source.features])


def content_of(source: RowSource) -> str:
    """One word that is the same where processes were given the same rows, also from copies of files on their own machines."""
    if isinstance(source, LoaderSource) and source.decides_order:
        return digest([source.group_sizes])
    if isinstance(source, ParquetSource):
        return digest([source.content, source.group_sizes, source.features])
    return fingerprint_of(source)


def seed_of(*parts: int) -> int:
    """One seed from several numbers, the same in every process and version."""
    digest = hashlib.blake2b(repr(tuple(int(part) for part in parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def shares_of(group_sizes: Sequence[int], num_processes: int) -> tuple[tuple[int, ...], ...]:
    """The groups of each process: the largest first, each to the process that has fewest rows so far."""
    held: list[list[int]] = [[] for _ in range(num_processes)]
    load = [0] * num_processes
    for group in sorted(range(len(group_sizes)), key=lambda g: (-group_sizes[g], g)):
        rank = min(range(num_processes), key=lambda r: (load[r], r))
        held[rank].append(group)
        load[rank] += group_sizes[group]
    return tuple(tuple(sorted(groups)) for groups in held)


def in_order(source: RowSource, groups: Sequence[int], size: int = CHUNK_SIZE) -> Iterator[Chunk]:
    """The rows of some groups, one after another."""
    for group in groups:
        yield from source.read(group, size)


def shuffled(source: RowSource, groups: Sequence[int], seed: int, size: int = CHUNK_SIZE, mixed: int = MIXED) -> Iterator[Chunk]:
    """Every row of some groups once: groups in random order, `mixed` of them read side by side, their chunks permuted together.

    Rows are as well mixed as groups are alike; a file sorted by its target needs many small groups, or to be shuffled once.
    """
    generator = torch.Generator().manual_seed(seed)
    waiting = [groups[i] for i in torch.randperm(len(groups), generator=generator).tolist()]
    opened: list[Iterator[Chunk]] = []
    while waiting or opened:
        while waiting and len(opened) < mixed:
            opened.append(source.read(waiting.pop(0), size))
        following = [(reader, next(reader, None)) for reader in opened]
        opened = [reader for reader, chunk in following if chunk is not None]
        parts = [chunk for _, chunk in following if chunk is not None]
        if parts:
            block = Chunk.join(parts)
            yield block[torch.randperm(len(block), generator=generator).numpy()]
