"""A source of a user's own, checked as it is read: each row once, whole, finite, and the same in every pass."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from gwi._validation import as_array
from gwi.exceptions import UserError
from gwi.tables.rows import CHUNK_SIZE, Chunk, RowSource


class CheckedSource:
    """Rows of another source; what breaks the contract of `RowSource` is one sentence.

    Args:
        source: of a user's own.
        labels: whether the targets are labels.
        features: the columns of x in the order wanted; as they come unless given, or where the source has no names.
        targets: whether there are targets; without them those that come are passed over.

    Raises:
        UserError: when the groups or the columns are not what they should be.
    """

    def __init__(self, source: RowSource, *, labels: bool = False, features: Sequence[str] | None = None, targets: bool = True):
        self._source, self._labels, self._has_targets = source, labels, targets
        self.group_sizes = _group_sizes(source)
        self._starts = np.concatenate([[0], np.cumsum(self.group_sizes)]).astype(np.int64)
        self._known, self._places = _names(source), None
        if self._known is not None and features is not None:
            missing = [name for name in features if name not in self._known]
            if missing:
                raise UserError(f"The source lacks {len(missing)} of {len(features)} columns: {_some(missing)}.")
            self._places = [self._known.index(name) for name in features]
        self.features = self._known if self._places is None else tuple(features or ())
        self._shape: tuple[Any, ...] | None = None
        # Checksums of each group, from the first time that it was read to its end.
        self._sums: dict[int, tuple[int, int]] = {}

    @property
    def fingerprint(self) -> Any:
        """The source's own; None where it has none."""
        return getattr(self._source, "fingerprint", None)

    def read(self, group: int, size: int = CHUNK_SIZE) -> Iterator[Chunk]:
        """The rows of a group.

        Raises:
            UserError: naming the group and what is wrong with it.
        """
        start, wanted = int(self._starts[group]), self.group_sizes[group]
        place, sums, found = f"Group {group} of the source", (0, 0), 0
        for given in self._source.read(group, size):
            chunk = self._checked(given, place, start + found)
            found += len(chunk)
            if found > wanted:
                break
            sums = _checksums(chunk, sums)
            for first in range(0, len(chunk), size):
                part = chunk[first : first + size]
                yield part if self._places is None else Chunk(part.x[:, self._places], part.y, part.number)
        if found != wanted:
            many = f"more than {wanted}" if found > wanted else str(found)
            again = " (the first time it gave as many as it should)" if group in self._sums else ""
            raise UserError(
                f"{place} gave {many} rows{again}, and group_sizes says {wanted}. read(group) is called once per pass: each call "
                "must start again with the same rows, so open the cursor or the file inside read, and count rows that do not "
                "change."
            )
        if self._sums.setdefault(group, sums) != sums:
            raise UserError(
                f"{place} gave other rows than the first time, or the same rows in another order. Rows are known by their place, "
                "so read(group) must give the same rows in the same order in every pass: sort a query by a key, and read from "
                "data that do not change during the fit."
            )

    def _checked(self, given: Any, place: str, start: int) -> Chunk:
        if not all(hasattr(given, name) for name in ("x", "y", "number")):
            raise UserError(f"{place} gave {type(given).__name__}; read must yield gwi.streaming.Chunk(x, y, number).")
        x, y, number = (np.asarray(as_array(values)) for values in (given.x, given.y, given.number))
        if x.ndim != 2 or x.dtype.kind not in "fiub":
            raise UserError(f"{place} gave x of shape {x.shape} and type {x.dtype}; it must be numbers, (rows, columns).")
        if not self._has_targets:
            y = np.empty((len(x), 0))
        if y.ndim == 0 or number.ndim != 1 or not len(x) == len(y) == len(number):
            raise UserError(
                f"{place} gave x, y and number of shapes {x.shape}, {y.shape} and {number.shape}; each must have all of the rows."
            )
        if self._known is not None and x.shape[1] != len(self._known):
            raise UserError(f"{place} gave {x.shape[1]} columns; features names {len(self._known)}.")
        y = self._targets(y, place)
        shape = x.shape[1:], y.shape[1:]
        self._shape = self._shape or shape
        if shape != self._shape:
            raise UserError(
                f"{place} gave {_columns(*shape)} in rows from {start + 1} on, and {_columns(*self._shape)} before; all "
                "rows must have the same."
            )
        x = x.astype(np.float64)
        for values, name in ((x, "x"), (y, "y")):
            wrong = np.argwhere(~np.isfinite(values)) if values.dtype.kind == "f" else np.empty((0, 2))
            if len(wrong):
                which = f"column {int(wrong[0, 1]) + 1} of {name}" if values.ndim == 2 else "its label"
                row = start + int(wrong[0, 0]) + 1
                raise UserError(f"{place}, row {row}: {which} is NaN or infinite; impute or drop such rows first.")
        if number.dtype.kind not in "iu" or not np.array_equal(number, np.arange(start, start + len(x))):
            shown = f"{number[0]}, …" if number.size else "none"
            raise UserError(
                f"{place} numbered its rows {shown}; the number of a row is its place among all rows of the source, here from "
                f"{start} on: np.arange({start}, {start + len(x)})."
            )
        return Chunk(x, y, number.astype(np.int64))

    def _targets(self, y: NDArray[Any], place: str) -> NDArray[Any]:
        if self._labels:
            if y.ndim == 2 and y.shape[1] == 1:
                y = y[:, 0]
            if y.ndim != 1:
                raise UserError(f"{place} gave labels of shape {y.shape}; there is one for each row.")
            if y.dtype == object and any(value is None or value != value for value in y):
                raise UserError(f"{place} gave rows without a label; drop such rows first.")
            return y
        if y.ndim not in (1, 2) or y.dtype.kind not in "fiub":
            raise UserError(
                f"{place} gave y of shape {y.shape} and type {y.dtype}; it must be numbers, (rows,) or (rows, targets)."
            )
        return (y[:, None] if y.ndim == 1 else y).astype(np.float64)


def _group_sizes(source: RowSource) -> tuple[int, ...]:
    sizes = source.group_sizes
    try:
        found = tuple(int(size) for size in sizes)
        is_right = all(size == given and size >= 0 for size, given in zip(found, sizes, strict=True))
    except (TypeError, ValueError):
        is_right = False
    if not is_right:
        raise UserError(
            f"group_sizes of the source is {sizes!r}; it is a tuple with the number of rows of each group, such as (1000, 1000)."
        )
    return found


def _names(source: RowSource) -> tuple[str, ...] | None:
    names = getattr(source, "features", None)
    if names is None:
        return None
    if isinstance(names, str) or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise UserError(f"features of the source is {names!r}; it is a tuple with a name for each column of x, or None.")
    return tuple(names)


def _checksums(chunk: Chunk, before: tuple[int, int]) -> tuple[int, int]:
    """Of features and of targets of all rows so far: the same however the rows are cut into chunks."""
    targets: Any = np.ascontiguousarray(chunk.y)
    if targets.dtype.kind not in "fiub":
        targets = "".join(f"{label}\0" for label in targets.tolist()).encode()
    return zlib.crc32(cast(Any, np.ascontiguousarray(chunk.x)), before[0]), zlib.crc32(targets, before[1])


def _columns(x: tuple[int, ...], y: tuple[int, ...]) -> str:
    return f"{x[0]} columns" + (f" and {y[0]} targets" if y else "")


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:8]))
