"""Parquet files, folders of them and Arrow datasets, read row group by row group: the one reader of fits and of the command."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from gwi._extras import require
from gwi._typing import Array
from gwi.exceptions import UserError
from gwi.tables.addresses import AnyPath, Remote, as_path
from gwi.tables.rows import CHUNK_SIZE, Chunk

# The most bytes at the end of a file that are looked at to tell it from others.
LARGEST_FOOTER = 1 << 26

# From an Arrow table and the numbers of its rows to features, targets, and the rows among them that have a target.
Convert = Callable[[Any, NDArray[np.int64]], Chunk]


class ParquetReader:
    """A Parquet file, a folder of them, or a `pyarrow.dataset`. Rows are numbered in the order of files and row groups.

    Args:
        data: a path or a dataset.

    Raises:
        UserError: when there are no Parquet files, one is damaged, or they are not parts of one table.
    """

    def __init__(self, data: Any):
        self._dataset = _open_dataset(data) if isinstance(data, str | os.PathLike) else data
        self._parts = [part for fragment in self._dataset.get_fragments() for part in _row_groups(fragment)]
        self.schema = self._dataset.schema
        self.group_sizes = tuple(_num_rows(part) for part in self._parts)
        self._starts = np.concatenate([[0], np.cumsum(self.group_sizes)]).astype(np.int64)

    @property
    def fingerprint(self) -> Any:
        """Size, time and footer of each file."""
        return [_file_state(fragment) for fragment in self._dataset.get_fragments()]

    @property
    def content(self) -> Any:
        """Size and footer of each file: the same for copies of the files elsewhere."""
        return [[state[0], state[-1]] for state in self.fingerprint]

    def tables(
        self, columns: Sequence[str] | None = None, groups: Sequence[int] | None = None, size: int = CHUNK_SIZE
    ) -> Iterator[tuple[Any, NDArray[np.int64]]]:
        """Arrow tables with the numbers of their rows.

        Args:
            columns: to read; all unless given.
            groups: of rows, one after another; all unless given.
            size: the most rows of a table.

        Raises:
            UserError: naming a file that is damaged in its middle.
        """
        import pyarrow as pa

        names = self.schema.names if columns is None else list(columns)
        for group in range(len(self._parts)) if groups is None else groups:
            start, part = int(self._starts[group]), self._parts[group]
            try:
                for batch in _batches(part, self.schema, names, size):
                    if batch.num_rows:
                        # Text that is no UTF-8 and the like, which would fail in the midst of the work.
                        batch.validate(full=True)
                        yield pa.Table.from_batches([batch]), np.arange(start, start + batch.num_rows)
                        start += batch.num_rows
            except (pa.ArrowException, OSError) as error:
                file = getattr(part, "path", "The dataset")
                raise UserError(f"{file} is a damaged Parquet file ({first_line(error)}).") from error


def _open_dataset(path: str | os.PathLike[str]) -> Any:
    require("files", f"Reading {os.fspath(path)}")
    import pyarrow.dataset as ds

    root = as_path(path)
    if not root.exists():
        raise FileNotFoundError(f"{root} does not exist.")
    files = parquet_files(root)
    if not files:
        raise UserError(f"{root} holds no Parquet files.")
    schema = joint_schema(file_schemas(files))
    options: dict[str, Any] = {"format": "parquet"}
    is_remote = isinstance(root, Remote)
    if root.is_dir():
        # Columns whose values are in the names of folders: year=2024/part.parquet.
        options |= {"partitioning": "hive", "partition_base_dir": root.inside if is_remote else str(root)}
    if is_remote:
        options["filesystem"] = arrow_filesystem(root)
    names = [file.inside if isinstance(file, Remote) else str(file) for file in files]
    dataset = ds.dataset(names, **options)
    for name in dataset.schema.names:
        if name not in schema.names:
            schema = schema.append(dataset.schema.field(name))
    return dataset if schema.equals(dataset.schema) else ds.dataset(names, schema=schema, **options)


def arrow_filesystem(root: Remote) -> Any:
    """The file system of an address, for Arrow."""
    from pyarrow.fs import FSSpecHandler, PyFileSystem

    return PyFileSystem(FSSpecHandler(root.reader))


def parquet_files(path: AnyPath) -> list[Any]:
    """The file itself, or those of a folder in the order of their names."""
    if not path.is_dir():
        return [path]
    found = [part for part in path.rglob("*") if part.suffix in (".parquet", ".pq")]
    # What is found below an address are files.
    return sorted(part for part in found if isinstance(part, Remote) or part.is_file())


def file_schemas(files: Sequence[Any]) -> list[tuple[str, Any]]:
    """The name and the Arrow schema of each file.

    Raises:
        UserError: naming a file that is damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schemas = []
    for file in files:
        try:
            if isinstance(file, Remote):
                with file.open() as opened:
                    schemas.append((str(file), pq.read_schema(opened)))
            else:
                schemas.append((str(file), pq.read_schema(file)))
        except (pa.ArrowException, OSError) as error:
            raise UserError(f"{file} is a damaged Parquet file ({first_line(error)}).") from error
    return schemas


def joint_schema(schemas: Sequence[tuple[str, Any]]) -> Any:
    """The columns of all files in the order of the first, each of a type that holds the values of all.

    Raises:
        UserError: naming two files with different columns, or a column of which the types cannot be reconciled.
    """
    import pyarrow as pa

    first, schema = schemas[0]
    if len(schemas) == 1:
        return schema
    for other, its in schemas[1:]:
        if different := set(its.names) ^ set(schema.names):
            shown = ", ".join(map(repr, sorted(different)[:8]))
            raise UserError(f"{other} has other columns than {first} ({shown}); files of a folder must be parts of one table.")
    try:
        return pa.unify_schemas([its for _, its in schemas], promote_options="permissive")
    except pa.ArrowException as error:
        raise UserError(f"The files beside {first} hold different kinds of values in a column: {first_line(error)}.") from error


def first_line(error: Exception) -> str:
    """What a library says was wrong, for a sentence."""
    return str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__


def _batches(part: Any, schema: Any, columns: Sequence[str], size: int) -> Iterator[Any]:
    """Batches of a part. A row group of a local file is decoded as they are asked for: a scanner would hold all of it."""
    import pyarrow as pa
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq
    from pyarrow.fs import LocalFileSystem

    stored = [name for name in columns if name in part.physical_schema.names]
    # With a format of the user's come options of the user's.
    plain_format = isinstance(part, ds.ParquetFileFragment) and part.format.equals(ds.ParquetFileFormat())
    if not (plain_format and isinstance(part.filesystem, LocalFileSystem) and part.row_groups and stored):
        # One batch ahead and one thread: several decoded row groups at a time would be most of the memory.
        options: dict[str, Any] = {"batch_readahead": 1, "fragment_readahead": 1, "use_threads": False}
        if plain_format:
            options["fragment_scan_options"] = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
        yield from part.to_batches(schema=schema, columns=list(columns), batch_size=size, **options)
        return
    keys = ds.get_partition_keys(part.partition_expression)
    wanted = pa.schema([schema.field(name) for name in columns])
    reading: dict[str, Any] = {"pre_buffer": False, "buffer_size": 1 << 20, "page_checksum_verification": True}
    with pq.ParquetFile(part.path, metadata=part.metadata, **reading) as file:
        groups = [part.row_groups[0].id]
        for batch in file.iter_batches(batch_size=size, row_groups=groups, columns=stored, use_threads=False):
            for name in columns:
                if name not in stored:
                    batch = batch.append_column(name, pa.repeat(pa.scalar(keys.get(name)), batch.num_rows))
            yield batch.select(list(columns)).cast(wanted, safe=False)


def _row_groups(fragment: Any) -> list[Any]:
    return list(fragment.split_by_row_group()) if hasattr(fragment, "split_by_row_group") else [fragment]


def _num_rows(part: Any) -> int:
    groups = getattr(part, "row_groups", None)
    return int(groups[0].num_rows) if groups else int(part.count_rows())


def _file_state(fragment: Any) -> Any:
    """What changes with the content of a file; of rows in memory their number and the first of them."""
    if not getattr(fragment, "path", None):
        return [fragment.count_rows(), hashlib.sha256(repr(fragment.head(1000).to_pydict()).encode()).hexdigest()]
    info = fragment.filesystem.get_file_info(fragment.path)
    with fragment.filesystem.open_input_file(fragment.path) as file:
        end = file.size()
        file.seek(max(end - 8, 0))
        # The last eight bytes of a Parquet file are the length of its footer and four letters.
        length = int.from_bytes(file.read(4), "little") + 8 if end >= 8 else end
        file.seek(max(end - min(length, LARGEST_FOOTER), 0))
        return [info.size, info.mtime_ns, hashlib.sha256(file.read()).hexdigest()]


class ParquetSource:
    """Rows of a reader as numbers; groups are row groups.

    Args:
        reader: of the files.
        convert: from a table with `columns` to rows.
        columns: to read.
        features: names of the columns of x; None where they have none.
        conversion: tells `convert` from others, in plain lists, numbers and text.
    """

    def __init__(
        self,
        reader: ParquetReader,
        convert: Convert,
        columns: Sequence[str],
        features: tuple[str, ...] | None,
        conversion: Any = None,
    ):
        self._reader, self._convert, self._columns, self._conversion = reader, convert, list(columns), conversion
        self.features, self.group_sizes = features, reader.group_sizes

    @property
    def fingerprint(self) -> Any:
        """The files, the columns in their order, and what becomes of them."""
        return [self._reader.fingerprint, self._columns, self._conversion]

    @property
    def content(self) -> Any:
        """Of the files and the columns: the same for copies of the files elsewhere."""
        return [self._reader.content, self._columns]

    def read(self, group: int, size: int = CHUNK_SIZE) -> Iterator[Chunk]:
        """The rows of a group."""
        for table, numbers in self._reader.tables(self._columns, [group], size):
            yield self._convert(table, numbers)


def parquet_source(
    data: Any, target: str | Sequence[str], *, labels: bool = False, features: Sequence[str] | None = None
) -> ParquetSource:
    """A source from columns of numbers: those called `target` are the targets, all others features unless these are named.

    Args:
        data: a path, a folder, a dataset, or a reader.
        target: the column to predict, or several, or none.
        labels: whether the target is a label rather than a number.
        features: the columns of x in their order; other columns are then passed over.

    Raises:
        ValueError: when a column is missing or holds no numbers.
    """
    import pyarrow as pa

    reader = data if isinstance(data, ParquetReader) else ParquetReader(data)
    schema = reader.schema
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
    are_numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean)
    for name in features if labels else (*features, *targets):
        kind = schema.field(name).type
        if not any(is_numeric(kind) for is_numeric in are_numbers):
            raise ValueError(f"Column {name!r} holds {kind}, not numbers; leave it out, or use `gwi fit`, which encodes it.")

    def convert(table: Any, numbers: NDArray[np.int64]) -> Chunk:
        y = _present_labels(table, targets[0], numbers) if labels else _finite_numbers(table, targets, numbers)
        return Chunk(_finite_numbers(table, features, numbers), y, numbers)

    return ParquetSource(reader, convert, [*features, *targets], features, [list(features), targets, labels])


def _present_labels(table: Any, name: str, numbers: NDArray[np.int64]) -> NDArray[Any]:
    """A column of labels; decimals, dates and times as text.

    Raises:
        ValueError: naming the first row where there is none.
    """
    import pyarrow as pa

    column = table.column(name)
    if column.null_count:
        row = int(np.argmax(np.asarray(column.is_null())))
        raise ValueError(f"Row {numbers[row] + 1}, column {name!r} has no label; drop such rows first.")
    if pa.types.is_decimal(column.type) or pa.types.is_temporal(column.type):
        column = column.cast(pa.string())
    return column.to_numpy(zero_copy_only=False)


def _finite_numbers(table: Any, names: Sequence[str], numbers: NDArray[np.int64]) -> Float[Array, "n D"]:
    """Columns of finite numbers.

    Raises:
        ValueError: naming the first row where one is none.
    """
    import pyarrow as pa

    result = np.empty((len(numbers), len(names)))
    for values, name in zip(result.T, names, strict=True):
        column = table.column(name)
        kind = pa.int8() if pa.types.is_boolean(column.type) else pa.float64()
        values[:] = column.cast(kind, safe=False).to_numpy(zero_copy_only=False)
        wrong = ~np.isfinite(values)
        if wrong.any():
            raise ValueError(
                f"Row {numbers[wrong.argmax()] + 1}, column {name!r} is missing, NaN or infinite; impute or drop such rows first."
            )
    return result
