"""A sample of rows that come some at a time: the same one however they are read, in what order and by how many processes."""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Bool, Int, UInt
from numpy.typing import NDArray


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
