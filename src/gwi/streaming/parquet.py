"""Rows from Parquet files, folders of them and Arrow datasets, read row group by row group."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gwi._typing import Array
from gwi.streaming.fingerprint import described
from gwi.streaming.rows import CHUNK_SIZE, Chunk
from gwi.tables.schemas import joint_schema

# The most bytes at the end of a file that are looked at to tell it from others.
LARGEST_FOOTER = 1 << 26

# From an Arrow table and the numbers of its rows to features, targets, and the rows among them that have a target.
Convert = Callable[[Any, NDArray[np.int64]], Chunk]


class ArrowSource:
    """A Parquet file, a folder of them, or a `pyarrow.dataset`; groups are row groups.

    Args:
        data: a path, several, or a dataset.
        convert: from a table with `columns` to rows.
        columns: to read.
        features: names of the columns of x; None where they have none.
        conversion: tells `convert` from others, in plain lists, numbers and text.
    """

    def __init__(
        self, data: Any, convert: Convert, columns: Sequence[str], features: tuple[str, ...] | None, conversion: Any = None
    ):
        dataset = open_dataset(data)
        self._dataset, self._conversion = dataset, conversion
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

    @property
    def fingerprint(self) -> Any:
        """Size, time and footer of each file, the columns in their order, and what becomes of them."""
        return [[_file_state(fragment) for fragment in self._dataset.get_fragments()], self._columns, self._conversion]

    def tables(self, group: int, size: int = CHUNK_SIZE) -> Iterator[tuple[Any, NDArray[np.int64]]]:
        """Arrow tables of a group with the numbers of their rows."""
        import pyarrow as pa

        start = int(self._starts[group])
        part = self._parts[group]
        read = _plain_batches if _is_plain(part, self._columns) else _scanned_batches
        for batch in read(part, self._schema, self._columns, size):
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
    options: dict[str, Any] = {"format": "parquet"}
    if isinstance(paths, str) and Path(paths).is_dir():
        # Columns whose values are in the names of folders: year=2024/part.parquet.
        options["partitioning"] = "hive"
    try:
        found = ds.dataset(paths, **options)
        fragments = list(found.get_fragments())
        if not fragments:
            raise ValueError(f"{paths} holds no Parquet files.")
        schema = joint_schema([(fragment.path, fragment.physical_schema) for fragment in fragments])
        for name in found.schema.names:
            if name not in schema.names:
                schema = schema.append(found.schema.field(name))
        return found if schema.equals(found.schema) else ds.dataset(paths, schema=schema, **options)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{paths} cannot be read as Parquet: {str(error).splitlines()[0]}") from error


def _is_plain(part: Any, columns: Sequence[str]) -> bool:
    """Whether a part is a row group of a Parquet file of this machine, read without options of its own."""
    import pyarrow.dataset as ds
    from pyarrow.fs import LocalFileSystem

    return (
        isinstance(part, ds.ParquetFileFragment)
        and isinstance(part.filesystem, LocalFileSystem)
        and part.format.equals(ds.ParquetFileFormat())
        and bool(part.row_groups)
        and any(name in part.physical_schema.names for name in columns)
    )


def _plain_batches(part: Any, schema: Any, columns: Sequence[str], size: int) -> Iterator[Any]:
    """Batches of a row group, decoded as they are asked for: a scanner would hold the whole row group."""
    import pyarrow as pa
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    keys = ds.get_partition_keys(part.partition_expression)
    stored = [name for name in columns if name in part.physical_schema.names]
    wanted = pa.schema([schema.field(name) for name in columns])
    with pq.ParquetFile(part.path, metadata=part.metadata, pre_buffer=False, buffer_size=1 << 20) as file:
        groups = [part.row_groups[0].id]
        for batch in file.iter_batches(batch_size=size, row_groups=groups, columns=stored, use_threads=False):
            arrays = []
            for field in wanted:
                if field.name not in stored:
                    arrays.append(pa.repeat(pa.scalar(keys.get(field.name), field.type), batch.num_rows))
                else:
                    column = batch.column(field.name)
                    arrays.append(column if column.type == field.type else column.cast(field.type, safe=False))
            yield pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _scanned_batches(part: Any, schema: Any, columns: Sequence[str], size: int) -> Iterator[Any]:
    # One batch ahead and one thread: several decoded row groups at a time would be most of the memory.
    options: dict[str, Any] = {"batch_readahead": 1, "fragment_readahead": 1, "use_threads": False}
    return part.to_batches(schema=schema, columns=list(columns), batch_size=size, **options)


def _row_groups(fragment: Any) -> list[Any]:
    return list(fragment.split_by_row_group()) if hasattr(fragment, "split_by_row_group") else [fragment]


def _file_state(fragment: Any) -> Any:
    """What changes with the content of a file; of rows in memory their number and the first of them."""
    import pyarrow as pa

    if not getattr(fragment, "path", None):
        return [fragment.count_rows(), described(pa.Table.to_pydict(fragment.head(1000)))]
    info = fragment.filesystem.get_file_info(fragment.path)
    with fragment.filesystem.open_input_file(fragment.path) as file:
        end = file.size()
        file.seek(max(end - 8, 0))
        # The last eight bytes of a Parquet file are the length of its footer and four letters.
        length = int.from_bytes(file.read(4), "little") + 8 if end >= 8 else end
        file.seek(max(end - min(length, LARGEST_FOOTER), 0))
        return [info.size, info.mtime_ns, hashlib.sha256(file.read()).hexdigest()]


def _num_rows(part: Any) -> int:
    groups = getattr(part, "row_groups", None)
    return int(groups[0].num_rows) if groups else int(part.count_rows())


def parquet_source(
    data: Any, target: str | Sequence[str], *, labels: bool = False, features: Sequence[str] | None = None
) -> ArrowSource:
    """A source from columns of numbers: those called `target` are the targets, all others features unless these are named.

    Args:
        data: a path, a folder, or a dataset.
        target: the column to predict, or several.
        labels: whether the target is a label rather than a number.
        features: the columns of x in their order; other columns are then passed over.

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
    missing = [name for name in features or () if name not in schema.names]
    if missing:
        raise ValueError(f"The data lacks {len(missing)} of {len(features or ())} columns: {', '.join(map(repr, missing[:8]))}.")
    features = tuple((name for name in schema.names if name not in targets) if features is None else features)
    if not features:
        raise ValueError(f"There is no column to predict {', '.join(map(repr, targets))} from.")
    for name in features if labels else (*features, *targets):
        kind = schema.field(name).type
        if not (
            pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_boolean(kind)
        ):
            raise ValueError(f"Column {name!r} holds {kind}, not numbers; leave it out, or use `gwi fit`, which encodes it.")

    def convert(table: Any, numbers: NDArray[np.int64]) -> Chunk:
        x = np.column_stack([finite_numbers(table, name, numbers) for name in features])
        if labels:
            return Chunk(x, present_labels(table, targets[0], numbers), numbers)
        return Chunk(x, np.column_stack([finite_numbers(table, name, numbers) for name in targets]), numbers)

    return ArrowSource(dataset, convert, [*features, *targets], features, [list(features), targets, labels])


def present_labels(table: Any, name: str, numbers: NDArray[np.int64]) -> NDArray[Any]:
    """A column of labels; decimals, dates and times as text.

    Raises:
        ValueError: naming the first row where there is none.
    """
    import pyarrow as pa

    column = table.column(name)
    if column.null_count:
        row = int(np.argmax(np.asarray(column.is_null())))
        raise ValueError(f"Row {numbers[row] + 1}, column {name!r} has no label; drop such rows first.")
    kind = column.type
    if pa.types.is_decimal(kind) or pa.types.is_temporal(kind):
        column = column.cast(pa.string())
    return column.to_numpy(zero_copy_only=False)


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
