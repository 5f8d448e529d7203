"""Rows and targets a batch at a time, from arrays or from a loader, so that what does not fit in memory can be learned from;
and a sample of them: the same one however rows are read, in what order and by how many processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Int, UInt
from numpy.typing import NDArray
from sklearn.utils import column_or_1d
from torch import Tensor
from torch.utils.data import DataLoader

from gwi._validation import as_array, require_order
from gwi.tables.rows import Chunk


@dataclass(frozen=True)
class Batches:
    """Batches of rows with their targets.

    Attributes:
        rows: all rows, or a loader of (rows, targets).
        targets: of each row, encoded; None with a loader.
        encode: from the targets that a loader gives to numbers: the places of classes, or one column a target.
    """

    rows: NDArray[Any] | DataLoader[Any]
    targets: NDArray[Any] | None
    encode: Callable[[Any], NDArray[Any]]

    def in_order(self, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Every row once."""
        if isinstance(self.rows, DataLoader):
            for rows, targets in self.rows:
                yield torch.from_numpy(checked_shapes(as_array(rows))), torch.from_numpy(self.encode(targets))
            return
        assert self.targets is not None
        for start in range(0, len(self.rows), batch_size):
            part = slice(start, start + batch_size)
            yield torch.from_numpy(np.ascontiguousarray(self.rows[part])), torch.from_numpy(self.targets[part])

    def shuffled(self, batch_size: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """Every row once, in a random order; a loader decides its own."""
        if isinstance(self.rows, DataLoader):
            yield from self.in_order(batch_size)
            return
        assert self.targets is not None
        for index in torch.randperm(len(self.rows), generator=generator).split(batch_size):
            yield torch.from_numpy(self.rows[index.numpy()]), torch.from_numpy(self.targets[index.numpy()])

    def num_batches(self, batch_size: int) -> int:
        """In one pass."""
        if not isinstance(self.rows, DataLoader):
            return -(-len(self.rows) // batch_size)
        try:
            return len(self.rows)
        except TypeError:
            # An iterable data set does not know its length.
            return sum(1 for _ in self.rows)

    def sample(
        self, count: int, batch_size: int, generator: torch.Generator, embedding: Callable[[Tensor], Tensor] | None = None
    ) -> tuple[Tensor, Tensor, int]:
        """At most `count` rows with their targets, each as likely as any other, in order; and how many rows there are.

        Args:
            count: of the rows.
            batch_size: rows read at a time.
            generator: for the choice.
            embedding: what is kept of rows; they themselves unless given.
        """
        sample: Sample[Chunk] = Sample(count, int(torch.randint(2**62, (1,), generator=generator)))
        for rows, targets in self.in_order(batch_size):
            kept = rows if embedding is None else embedding(rows)
            number = np.arange(sample.num_seen, sample.num_seen + len(rows))
            sample.add(Chunk(kept.detach().cpu().numpy(), targets.numpy(), number))
        chosen = sample.in_order()
        return torch.from_numpy(chosen.x), torch.from_numpy(chosen.y), sample.num_seen


def checked_shapes(X: Any) -> NDArray[Any]:
    """Rows with more axes than one, finite: float32 unless they are float64."""
    rows = np.asarray(X)
    if rows.ndim < 2 or len(rows) == 0:
        raise ValueError(
            f"Rows must have at least two axes, the first of them for rows, and there must be some; got {rows.shape}."
        )
    if rows.dtype not in (np.float32, np.float64):
        rows = rows.astype(np.float32)
    if not np.isfinite(rows).all():
        raise ValueError("Rows must be finite; some values are NaN or infinite: impute or drop them.")
    return rows


def labels_and_shape(loader: DataLoader[Any]) -> tuple[NDArray[Any], tuple[int, ...]]:
    """The labels that a loader gives, each at least once, and the shape of its rows."""
    known, shape = [], ()
    for rows, labels in loader:
        known.append(np.unique(as_array(labels)))
        shape = tuple(rows.shape[1:])
    if not known:
        raise ValueError("The loader is empty; a fit needs rows of at least two classes.")
    return np.concatenate(known), shape


def pair_of(validation: Any) -> tuple[Any, Any]:
    """Rows and labels of a pair, or all that a loader gives."""
    if not isinstance(validation, DataLoader):
        rows, labels = validation
        return as_array(rows), labels
    parts = [(as_array(rows), as_array(labels)) for rows, labels in validation]
    if not parts:
        raise ValueError("The validation loader is empty; it must give the rows on which means are scored.")
    return np.concatenate([rows for rows, _ in parts]), np.concatenate([labels for _, labels in parts])


def indices(labels: Any, classes: NDArray[Any]) -> NDArray[np.int64]:
    """The place of each label among the classes.

    Raises:
        ValueError: for a label that is none of them.
    """
    values = column_or_1d(as_array(labels))
    require_order("Labels", values)
    index = np.searchsorted(classes, values).clip(0, len(classes) - 1)
    if not (known := classes[index] == values).all():
        raise ValueError(f"The label {values[~known].tolist()[0]!r} is not one of the {len(classes)} classes of the fit.")
    return index.astype(np.int64)


@runtime_checkable
class Rows(Protocol):
    """Some rows, each with its number."""

    @property
    def number(self) -> NDArray[np.int64]:
        """Of each row, the same however rows are read."""
        ...

    def __getitem__(self, chosen: Any) -> Any:
        """Some of them."""
        ...

    @staticmethod
    def join(parts: Any) -> Any:
        """The rows of all parts."""
        ...


R = TypeVar("R", bound=Rows)


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


def in_share(number: Int[NDArray[Any], " n"], seed: int, share: float) -> Bool[NDArray[Any], " n"]:
    """Whether each row is one of a share of all rows, told by its number."""
    return priorities(number, seed) < np.uint64(min(int(share * 2**64), 2**64 - 1))


class Sample(Generic[R]):
    """The rows of lowest priority: a sample without replacement of rows of a number not known beforehand.

    Args:
        capacity: how many rows there may be.
        seed: of the priorities.
    """

    def __init__(self, capacity: int, seed: int):
        self.capacity, self.seed = capacity, seed
        self.num_seen = 0
        self._parts: list[R] = []
        self._num_held = 0
        self._limit = np.uint64(2**64 - 1)

    def add(self, rows: R) -> None:
        """Rows that may be in the sample."""
        self.num_seen += len(rows.number)
        low = priorities(rows.number, self.seed) <= self._limit
        if low.any():
            self._parts.append(rows if low.all() else rows[low])
            self._num_held += int(low.sum())
        # Not with every part: each time all rows are copied.
        if self._num_held > self.capacity + max(self.capacity // 4, 1000):
            self._parts = [self.rows()]
            self._num_held = self.capacity
            self._limit = priorities(self._parts[0].number[-1:], self.seed)[0]

    def rows(self) -> R:
        """The sample, by priority: in random order.

        Raises:
            ValueError: when there were no rows.
        """
        held = self._held()
        return held[np.argsort(priorities(held.number, self.seed), kind="stable")[: self.capacity]]

    def in_order(self) -> R:
        """The sample, by the numbers of the rows."""
        held = self._held() if self._num_held <= self.capacity else self.rows()
        is_ordered = (np.diff(held.number) > 0).all()
        return held if is_ordered else held[np.argsort(held.number)]

    def _held(self) -> R:
        if not self._parts:
            raise ValueError("There are no rows to learn from: the source is empty.")
        if len(self._parts) > 1:
            self._parts = [type(self._parts[0]).join(self._parts)]
        return self._parts[0]
