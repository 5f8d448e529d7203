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
        number: of each row, its place among all rows of the source, from 0.

    Examples:
        >>> import numpy as np
        >>> import gwi
        >>> chunk = gwi.streaming.Chunk(x=np.zeros((3, 2)), y=np.array([1.0, 2.0, 3.0]), number=np.arange(3))
        >>> len(chunk.number), chunk.y.tolist()
        (3, [1.0, 2.0, 3.0])
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
    """Where rows come from: a file, a query of a database, a log. `fit`, `predict_source` and `score_source` take one.

    Rows are in groups, which processes share and which are shuffled. They are read several times, in several processes, and told
    by their places, so each time there must be the same rows in the same order. What else comes is refused in one sentence.

    A source may have a `fingerprint` besides: plain lists, numbers and text, other ones where the rows are others, by which
    checkpoints tell it. Without one they are told by a few rows.

    Attributes:
        features: names of the columns of x; None where they have none.
        group_sizes: how many rows each group has.

    Examples:
        >>> import numpy as np
        >>> import gwi
        >>> class Squares:
        ...     features, group_sizes = ("a", "b"), (40,) * 2
        ...
        ...     def read(self, group, size=1 << 15):
        ...         number = np.arange(40 * group, 40 * (group + 1))
        ...         x = np.column_stack([np.sin(number), np.cos(3 * number)])
        ...         yield gwi.streaming.Chunk(x, x[:, 0] ** 2, number)
        >>> [chunk.x.shape for group in range(2) for chunk in Squares().read(group)]
        [(40, 2), (40, 2)]
        >>> isinstance(Squares(), gwi.streaming.RowSource)
        True
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
