"""Data frames of pandas, polars, Arrow and their like as tables, with columns as they came."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gwi._extras import is_installed, require
from gwi.exceptions import MissingPackageError, UserError
from gwi.tables.names import require_columns, some
from gwi.tables.source import Table


@dataclass(frozen=True)
class FrameSource:
    """A table that is in memory.

    Attributes:
        path: what a sentence calls it.
        header: names of the columns.
        decimal: the mark before the decimals of numbers that are text.
        leave_out: what its user does to leave a column out.
        unit: what rows are counted by.
    """

    path: str
    header: tuple[str, ...]
    decimal: str = "."
    leave_out: str = "leave the column out"
    unit: str = "row"

    def place(self, row: int, column: str) -> str:
        """Where a cell is, rows from 0."""
        return f"{self.path}, row {row}, column {column!r}"

    def lines(self, rows: Sequence[int]) -> list[int]:
        """The places of rows are what they are."""
        return list(rows)


def is_frame(X: Any) -> bool:
    """Whether X has named columns that may be of different kinds."""
    from narwhals.dependencies import is_into_dataframe, is_polars_lazyframe

    return bool(is_into_dataframe(X) or is_polars_lazyframe(X) or _is_batch(X))


def _is_arrow(X: Any) -> bool:
    return type(X).__module__.partition(".")[0] == "pyarrow"


def _is_batch(X: Any) -> bool:
    return _is_arrow(X) and type(X).__name__ == "RecordBatch"


def _whole(X: Any) -> Any:
    """A frame of its library's usual kind: of a lazy one its rows, of a batch a table."""
    if _is_batch(X):
        import pyarrow as pa

        return pa.Table.from_batches([X])
    return X.collect() if hasattr(X, "collect") else named(X)


def named(X: Any) -> Any:
    """A frame of pandas whose columns are called by whole numbers, as ``DataFrame(array)`` makes it, with these as text.

    Names are then what they are in every other library, and columns are found by them, in any order.
    """
    if not (is_pandas(X) and hasattr(X, "columns") and len(X.columns)):
        return X
    if not all(isinstance(name, Integral) and not isinstance(name, bool) for name in X.columns):
        return X
    X = X.copy(deep=False)
    X.columns = [str(name) for name in X.columns]
    return X


def is_pandas(X: Any) -> bool:
    """Whether a frame is of pandas, where columns may be called anything."""
    return hasattr(X, "dtypes") and hasattr(X, "isna")


def frame_names(X: Any) -> list[Any]:
    """Of the columns of a frame."""
    if hasattr(X, "collect_schema"):
        return list(X.collect_schema().names())
    return list(X.schema.names) if _is_arrow(X) else list(named(X).columns)


def is_plain(X: Any) -> bool:
    """Whether a frame is numbers and truth values alone, none of them missing, so that an array says the same."""
    import narwhals as nw

    if is_pandas(X):
        return all(getattr(kind, "kind", "O") in "iufb" for kind in X.dtypes) and not bool(X.isna().any(axis=None))
    frame = nw.from_native(_whole(X))
    for name in frame.columns:
        column = frame[name]
        if not (column.dtype.is_numeric() or column.dtype == nw.Boolean) or column.null_count():
            return False
        if column.dtype.is_float() and bool(column.is_nan().any()):
            return False
    return True


def require_rows_and_columns(X: Any) -> None:
    """Refuse a frame that there is nothing to learn from in.

    Raises:
        UserError: saying what it has.
    """
    names = frame_names(X)
    num_rows = len(_whole(X))
    if num_rows < 2 or not names:
        raise UserError(
            f"X has {num_rows} row{'s' * (num_rows != 1)} (n_samples={num_rows}) and {len(names)} columns; a fit needs at least "
            "two rows, and a column."
        )


def require_finite(rows: NDArray[Any], names: Sequence[Any]) -> None:
    """Refuse infinite numbers of a frame.

    Raises:
        UserError: naming the first cell.
    """
    infinite = np.isinf(rows) if rows.dtype.kind == "f" else np.zeros((0, 0), dtype=np.bool_)
    if infinite.any():
        row, column = (int(place[0]) for place in np.nonzero(infinite))
        raise UserError(f"Input X contains infinity: row {row}, column {names[column]!r}; make it missing, or leave the row out.")


def in_order(X: Any, names: Sequence[str]) -> Any:
    """The columns of a frame with these names, in this order, as an array.

    Raises:
        UserError: naming columns that are missing.
    """
    require_columns(names, frame_names(X), "X")
    if (plain := plain_numbers(X, names)) is not None:
        return plain
    table = frame_table(X).data
    return np.column_stack([np.asarray(table[name].to_numpy(), dtype=np.float64) for name in names])


def plain_numbers(X: Any, names: Sequence[str]) -> Any:
    """The same where these columns are plain numbers, which needs no more than NumPy; else None."""
    import narwhals as nw

    X = _whole(X)
    _check_names(frame_names(X), "X")
    chosen = nw.from_native(X).select(list(names))
    if not is_plain(chosen.to_native()):
        return None
    return np.column_stack([np.asarray(chosen[name].to_numpy(), dtype=np.float64) for name in names])


def frame_table(X: Any, what: str = "X") -> Table:
    """A data frame as a table.

    Args:
        X: a frame of pandas, polars, Arrow, or another that narwhals knows.
        what: what sentences call it.

    Raises:
        UserError: naming a column that has no name of its own, or holds values of several kinds.
    """
    require("files", f"Reading {what}, a data frame,")
    import narwhals as nw
    import pyarrow as pa

    X = _whole(X)
    if isinstance(X, pa.Table):
        _check_names(X.column_names, what)
        data = X
    else:
        _check_names([*X.columns], what)
        data = _arrow_columns(nw.from_native(X), what)
    return Table(FrameSource(what, tuple(data.column_names)), data, np.arange(data.num_rows))


def frame_of(columns: dict[str, Any], library: Literal["pandas", "polars", "arrow"]) -> Any:
    """Columns as a data frame of a library, which is imported here.

    Raises:
        ValueError: for another library, or one that is not installed.
    """
    package = {"arrow": "pyarrow"}.get(library, library)
    if package in ("pandas", "polars", "pyarrow") and not is_installed(package):
        sentence = f"A data frame of {library} needs {package}, which is not installed: pip install {package}"
        raise MissingPackageError(sentence, package)
    if library == "polars":
        import polars

        return polars.DataFrame(columns)
    if library == "arrow":
        import pyarrow as pa

        return pa.table(columns)
    if library != "pandas":
        raise ValueError(f'library must be "pandas", "polars" or "arrow"; got {library!r}.')
    import pandas as pd

    return pd.DataFrame(columns)


def array_table(X: NDArray[Any], names: Sequence[str], what: str = "X") -> Table:
    """Rows of an array as a table whose columns have these names."""
    require("files", f"Reading the columns of {what}")
    import pyarrow as pa

    columns = {}
    for name, values in zip(names, X.T, strict=True):
        columns[name] = _arrow(pa, name, values.tolist() if X.dtype == object else np.ascontiguousarray(values), what)
    # A table without columns would not know how many rows it has.
    data = pa.table(columns) if columns else pa.table({"": pa.nulls(len(X))}).select([])
    return Table(FrameSource(what, tuple(names)), data, np.arange(len(X)))


def columns_table(columns: Mapping[str, Sequence[Any]], num_rows: int, what: str) -> Table:
    """Columns of plain values, such as JSON has, as a table.

    Args:
        columns: by name: numbers, text, truth values; None where a cell is missing.
        num_rows: of each.
        what: what sentences call it.

    Raises:
        UserError: naming a column that holds other things, or several kinds of them.
    """
    import pyarrow as pa

    # A column of nothing but missing cells is text, which each kind of column takes.
    found = {name: _arrow(pa, name, values, what) for name, values in columns.items()}
    found = {name: values.cast(pa.string()) if pa.types.is_null(values.type) else values for name, values in found.items()}
    data = pa.table(found) if found else pa.table({"": pa.nulls(num_rows)}).select([])
    return Table(FrameSource(what, tuple(found)), data, np.arange(num_rows))


def _check_names(names: Sequence[Any], what: str) -> None:
    twice = [str(name) for name, times in Counter(names).items() if times > 1]
    if twice:
        raise UserError(f"{what} has more than one column called {some(twice)}; names must differ.")
    strange = [str(name) for name in names if not isinstance(name, str)]
    if strange:
        raise UserError(f"{what} has columns whose names are not text: {some(strange)}; rename them, or pass an array.")


def _arrow_columns(frame: Any, what: str) -> Any:
    """Column by column, so that the one that cannot be converted is named."""
    import pyarrow as pa

    columns = {}
    for name in frame.columns:
        native = frame[name].to_native()
        values = native.to_numpy() if str(getattr(native, "dtype", "")) == "object" else None
        if values is None:
            try:
                columns[name] = frame[name].to_arrow()
            except (pa.ArrowException, TypeError):
                kind = getattr(native, "dtype", type(native).__name__)
                raise UserError(
                    f"{what}, column {name!r} holds {kind}, which is neither numbers, text, booleans, dates nor durations; "
                    "leave it out."
                ) from None
        else:
            # Of any objects; missing ones are None, NaN or NA.
            missing = np.array(native.isna()) if hasattr(native, "isna") else np.zeros(len(values), dtype=np.bool_)
            columns[name] = _arrow(pa, name, [None if gone else value for value, gone in zip(values, missing, strict=True)], what)
    return pa.table(columns) if columns else pa.table({"": pa.nulls(len(frame))}).select([])


def _arrow(pa: Any, name: str, values: Any, what: str) -> Any:
    try:
        return pa.array(values, from_pandas=True)
    except UnicodeEncodeError:
        raise UserError(
            f"{what}, column {name!r} holds text with half a character (a lone surrogate); write valid Unicode."
        ) from None
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        if all(value is None or type(value) in (int, float) for value in values):
            # Whole numbers beyond 64 bits.
            return pa.array([None if value is None else _as_float(value) for value in values], pa.float64(), from_pandas=True)
        kinds = Counter(type(value).__name__ for value in values if value is not None)
        shown = " and ".join(f"{count} of {kind}" for kind, count in kinds.most_common(4))
        raise UserError(f"{what}, column {name!r} holds values of several kinds ({shown}); make all of them one.") from None


def _as_float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf
