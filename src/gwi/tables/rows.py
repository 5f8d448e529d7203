"""Some rows, and what anything gives that rows are read from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int, Shaped
from numpy.typing import NDArray

# Rows read at a time.
CHUNK_SIZE = 1 << 15
# Numbers that are read into memory without a thought: 80 MB.
FEW_NUMBERS = 10**7


@dataclass(frozen=True)
class Chunk:
    """Some rows.

    Attributes:
        x: features, or rows of any other shape.
        y: targets, one column each, or labels.
        number: of each row in the source, from 0.
    """

    x: Shaped[NDArray[Any], "n ..."]
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
        fingerprint: tells these rows from others, without reading all of them where there are many.
    """

    @property
    def features(self) -> tuple[str, ...] | None:
        """Names of the columns of x."""
        ...

    @property
    def group_sizes(self) -> tuple[int, ...]:
        """How many rows each group has."""
        ...

    @property
    def fingerprint(self) -> Any:
        """Plain lists, numbers and text that are other ones where the rows are."""
        ...

    def read(self, group: int, size: int = CHUNK_SIZE) -> Iterator[Chunk]:
        """The rows of a group in order, at most about `size` at a time."""
        ...
