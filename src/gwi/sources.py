"""Rows that need not fit in memory: arrays, Parquet files, Arrow datasets and loaders, read group by group.

A source is a list of groups of rows, which are what processes share and what is shuffled. Every row has a number, the same
however the source is read.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler

from gwi.scaling import Array

# Rows read at a time, groups that are mixed when rows are shuffled, and rows of a group where the source has none of its own.
CHUNK_SIZE = 1 << 15
MIXED = 4
GROUP_SIZE = 1 << 16


@dataclass(frozen=True)
class Chunk:
    """Some rows.

    Attributes:
        x: features.
        y: targets, one column each, or labels.
        number: of each row in the source, from 0.
    """

    x: Float[Array, "n D"]
    y: Shaped[NDArray[Any], "n ..."]
    number: Int[NDArray[Any], " n"]

    def __len__(self) -> int:
        return len(self.number)

    def __getitem__(self, rows: Any) -> Chunk:
        return Chunk(self.x[rows], self.y[rows], self.number[rows])

    @staticmethod
    def join(parts: Sequence[Chunk]) -> Chunk:
        """The rows of all."""
        if len(parts) == 1:
            return parts[0]
        return Chunk(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("x", "y", "number")))


@runtime_checkable
class RowSource(Protocol):
    """Where rows come from.

    Attributes:
        features: names of the columns of x; None where they have none.
        group_sizes: how many rows each group has.
    """

    @property
    def features(self) -> tuple[str, ...] | None:
        """Names of the columns of x."""
        ...

    @property
    def group_sizes(self) -> tuple[int, ...]:
        """How many rows each group has."""
        ...

    def read(self, group: int, size: int = CHUNK_SIZE) -> Iterator[Chunk]:
        """The rows of a group in order, at most about `size` at a time."""
        ...


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

    @property
    def features(self) -> None:
        """None have names."""
        return

    @property
    def group_sizes(self) -> tuple[int, ...]:
        """All of one size but the last."""
        return _even_groups(len(self.x), self.group_size)

    def read(self, group: int, size: int = CHUNK_SIZE) -> Iterator[Chunk]:
        """The rows of a group."""
        stop = min((group + 1) * self.group_size, len(self.x))
        for start in range(group * self.group_size, stop, size):
            rows = slice(start, min(start + size, stop))
            yield Chunk(self.x[rows], self.y[rows], np.arange(rows.start, rows.stop))


# From an Arrow table and the numbers of its rows to features, targets, and the rows among them that have a target.
Convert = Callable[[Any, NDArray[np.int64]], Chunk]


class ArrowSource:
    """A Parquet file, a folder of them, or a `pyarrow.dataset`; groups are row groups.

    Args:
        data: a path, several, or a dataset.
        convert: from a table with `columns` to rows.
        columns: to read.
        features: names of the columns of x; None where they have none.
    """

    def __init__(self, data: Any, convert: Convert, columns: Sequence[str], features: tuple[str, ...] | None):
        dataset = open_dataset(data)
        self._convert, self._columns, self._features = convert, list(columns), features
        self._parts = [part for fragment in dataset.get_fragments() for part in _row_groups(fragment)]
        self._sizes = tuple(_num_rows(part) for part in self._parts)
        self._starts = np.concatenate([[0], np.cumsum(self._sizes)]).astype(np.int64)
        self._schema = dataset.schema

    @property
    def features(self) -> tuple[str, ...] | None:
        """Names of the columns of x."""
        return self._features

    @property
    def group_sizes(self) -> tuple[int, ...]:
        """Rows of each row group."""
        return self._sizes

    def tables(self, group: int, size: int = CHUNK_SIZE) -> Iterator[tuple[Any, NDArray[np.int64]]]:
        """Arrow tables of a group with the numbers of their rows."""
        import pyarrow as pa

        start = int(self._starts[group])
        # One batch ahead and one thread: several decoded row groups at a time would be most of the memory.
        batches = self._parts[group].to_batches(
            schema=self._schema,
            columns=self._columns,
            batch_size=size,
            batch_readahead=1,
            fragment_readahead=1,
            use_threads=False,
            cache_metadata=False,
        )
        for batch in batches:
            if batch.num_rows:
                yield pa.Table.from_batches([batch]), np.arange(start, start + batch.num_rows)
                start += batch.num_rows

    def read(self, group: int, size: int = CHUNK_SIZE) -> Iterator[Chunk]:
        """The rows of a group."""
        for table, numbers in self.tables(group, size):
            yield self._convert(table, numbers)


def open_dataset(data: Any) -> Any:
    """An Arrow dataset from a path, a folder, several paths, or itself.

    Raises:
        ValueError: when there is none.
    """
    import pyarrow as pa
    import pyarrow.dataset as ds

    if isinstance(data, ds.Dataset):
        return data
    paths = [str(path) for path in data] if isinstance(data, list | tuple) else str(data)
    try:
        found = ds.dataset(paths, format="parquet")
        if not any(True for _ in found.get_fragments()):
            raise ValueError(f"{paths} holds no Parquet files.")
        return found
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{paths} cannot be read as Parquet: {str(error).splitlines()[0]}") from error


def _row_groups(fragment: Any) -> list[Any]:
    return list(fragment.split_by_row_group()) if hasattr(fragment, "split_by_row_group") else [fragment]


def _num_rows(part: Any) -> int:
    groups = getattr(part, "row_groups", None)
    return int(groups[0].num_rows) if groups else int(part.count_rows())


def parquet_source(data: Any, target: str | Sequence[str], *, labels: bool = False) -> ArrowSource:
    """A source from columns of numbers: those called `target` are the targets, all others features.

    Args:
        data: a path, a folder, or a dataset.
        target: the column to predict, or several.
        labels: whether the target is a label rather than a number.

    Raises:
        ValueError: when a column is missing or holds no numbers.
    """
    import pyarrow as pa

    dataset = open_dataset(data)
    schema = dataset.schema
    targets = [target] if isinstance(target, str) else list(target)
    for name in targets:
        if name not in schema.names:
            shown = ", ".join(map(repr, schema.names[:8]))
            raise ValueError(f"There is no column {name!r} to predict; there are {shown}.")
    features = tuple(name for name in schema.names if name not in targets)
    if not features:
        raise ValueError(f"There is no column to predict {', '.join(map(repr, targets))} from.")
    for name in features if labels else schema.names:
        kind = schema.field(name).type
        if not (
            pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_boolean(kind)
        ):
            raise ValueError(f"Column {name!r} holds {kind}, not numbers; leave it out, or use `gwi fit`, which encodes it.")

    def convert(table: Any, numbers: NDArray[np.int64]) -> Chunk:
        x = np.column_stack([finite_numbers(table, name, numbers) for name in features])
        if labels:
            return Chunk(x, table.column(targets[0]).to_numpy(zero_copy_only=False), numbers)
        return Chunk(x, np.column_stack([finite_numbers(table, name, numbers) for name in targets]), numbers)

    return ArrowSource(dataset, convert, [*features, *targets], features)


def finite_numbers(table: Any, name: str, numbers: NDArray[np.int64]) -> Array:
    """A column as finite numbers.

    Raises:
        ValueError: naming the first row where it is none.
    """
    import pyarrow as pa

    column = table.column(name)
    kind = pa.int8() if pa.types.is_boolean(column.type) else pa.float64()
    values = np.asarray(column.cast(kind, safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)
    wrong = ~np.isfinite(values)
    if wrong.any():
        raise ValueError(
            f"Row {numbers[wrong.argmax()] + 1}, column {name!r} is missing, NaN or infinite; impute or drop such rows first."
        )
    return values


class LoaderSource:
    """A loader of (rows, targets). With a dataset that has places it is read by place, whatever order the loader shuffles to.

    Args:
        loader: whose batches are rows with one axis of features, and targets or labels.
        labels: whether the targets are labels.
    """

    def __init__(self, loader: DataLoader[Any], *, labels: bool = False):
        self._loader, self._labels = loader, labels
        plain = isinstance(loader.sampler, SequentialSampler | RandomSampler) and not getattr(
            loader.sampler, "replacement", False
        )
        self._has_places = plain and loader.batch_size is not None and not isinstance(loader.dataset, IterableDataset)
        if self._has_places:
            self._sizes = _even_groups(len(loader.dataset), GROUP_SIZE)  # type: ignore[arg-type]
        else:
            self._sizes = (sum(len(rows) for rows, _ in loader),)

    @property
    def features(self) -> None:
        """None have names."""
        return

    @property
    def group_sizes(self) -> tuple[int, ...]:
        """Runs of places; a loader that decides its own order is one group."""
        return self._sizes

    def read(self, group: int, size: int = CHUNK_SIZE) -> Iterator[Chunk]:
        """The rows of a group, one batch of the loader at a time."""
        loader, number = self._loader, group * GROUP_SIZE
        if self._has_places:
            loader = DataLoader(
                loader.dataset,
                batch_size=loader.batch_size,
                sampler=range(number, number + self._sizes[group]),
                num_workers=loader.num_workers,
                collate_fn=loader.collate_fn,
            )
        held: list[Chunk] = []
        for rows, targets in loader:
            x = np.asarray(_array(rows), dtype=np.float64)
            if x.ndim != 2 or not np.isfinite(x).all():
                raise ValueError(
                    f"A loader must give rows of finite numbers, (rows, columns); got {x.shape} from row {number + 1} on."
                )
            y = np.asarray(_array(targets))
            y = y if self._labels else y.reshape(len(x), -1).astype(np.float64)
            held.append(Chunk(x, y, np.arange(number, number + len(x))))
            number += len(x)
            if sum(map(len, held)) >= size:
                yield Chunk.join(held)
                held = []
        if held:
            yield Chunk.join(held)


def _array(values: Any) -> Any:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else values


def _even_groups(num_rows: int, size: int) -> tuple[int, ...]:
    return tuple(min(size, num_rows - start) for start in range(0, num_rows, size))


def is_source(value: Any) -> bool:
    """Whether rows come from here some at a time: a path, a dataset, a loader, or a source."""
    if isinstance(value, str | os.PathLike | DataLoader):
        return True
    return hasattr(value, "get_fragments") or (hasattr(value, "group_sizes") and hasattr(value, "read"))


def as_source(data: Any, target: Any, *, labels: bool = False) -> RowSource:
    """The source that a user means.

    Args:
        data: a path, a folder, a `pyarrow.dataset`, a loader, or a source.
        target: with files and datasets the column to predict, or several; else None.
        labels: whether the target is a label.
    """
    if isinstance(data, DataLoader):
        if target is not None:
            raise ValueError("A DataLoader gives its own targets; leave y out.")
        return LoaderSource(data, labels=labels)
    if hasattr(data, "group_sizes"):
        return data
    if not (isinstance(target, str) or (isinstance(target, list | tuple) and all(isinstance(name, str) for name in target))):
        raise ValueError(f"With a file or dataset y is the name of the target's column; got {type(target).__name__}.")
    if isinstance(data, str | os.PathLike) and not Path(data).exists():
        raise FileNotFoundError(f"{data} does not exist.")
    return parquet_source(data, target, labels=labels)


def seed_of(*parts: int) -> int:
    """One seed from several numbers, the same in every process and version."""
    digest = hashlib.blake2b(repr(tuple(int(part) for part in parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def shares_of(group_sizes: Sequence[int], num_ranks: int) -> tuple[tuple[int, ...], ...]:
    """The groups of each process: the largest first, each to the process that has fewest rows so far."""
    held: list[list[int]] = [[] for _ in range(num_ranks)]
    load = [0] * num_ranks
    for group in sorted(range(len(group_sizes)), key=lambda g: (-group_sizes[g], g)):
        rank = min(range(num_ranks), key=lambda r: (load[r], r))
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
        found = [(reader, next(reader, None)) for reader in opened]
        opened = [reader for reader, chunk in found if chunk is not None]
        parts = [chunk for _, chunk in found if chunk is not None]
        if parts:
            block = Chunk.join(parts)
            yield block[torch.randperm(len(block), generator=generator).numpy()]
