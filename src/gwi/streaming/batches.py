"""Rows and targets a batch at a time, from arrays or from a loader, so that what does not fit in memory can be learned from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import column_or_1d
from torch import Tensor
from torch.utils.data import DataLoader

from gwi._validation import as_array
from gwi.streaming.sample import Sample
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
        raise ValueError("The validation loader is empty; means need rows to be judged on.")
    return np.concatenate([rows for rows, _ in parts]), np.concatenate([labels for _, labels in parts])


def indices(labels: Any, classes: NDArray[Any]) -> NDArray[np.int64]:
    """The place of each label among the classes.

    Raises:
        ValueError: for a label that is none of them.
    """
    values = column_or_1d(as_array(labels))
    index = np.searchsorted(classes, values).clip(0, len(classes) - 1)
    if not (known := classes[index] == values).all():
        raise ValueError(f"The label {values[~known][0]!r} is none of the {len(classes)} classes of the fit.")
    return index.astype(np.int64)
