"""The kind of data frame that a predictor knows, and any other frame as one of that kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gwi.exceptions import UnsavableError, UserError
from gwi.tables.frames import frame_names, frame_table, is_pandas, named
from gwi.tables.names import require_columns
from gwi.tables.parsing import numbers, texts
from gwi.tables.source import Table

Library = Literal["pandas", "polars", "pyarrow"]
# How kinds of numbers begin in all libraries, and truth values as text files write them.
_NUMBERS = ("int", "uint", "float", "double", "half", "decimal")
_TRUTH = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}


@dataclass(frozen=True)
class Column:
    """What a column of a frame is.

    Attributes:
        kind: as its library calls it, such as ``float64``.
        categories: of a pandas column of categories, in their order; None of others.
        ordered: whether they have an order that means something.
        none: of pandas' objects, whether missing cells are None, which encoders take for a value, or NaN; None where neither, or
            both, came.
    """

    kind: str
    categories: tuple[Any, ...] | None = None
    ordered: bool = False
    none: bool | None = None


@dataclass(frozen=True)
class FrameForm:
    """A library of data frames and what each column is there.

    Attributes:
        library: whose frames they are.
        columns: by name, in their order.
    """

    library: Library
    columns: Mapping[str, Column]

    @staticmethod
    def of(X: Any, names: Sequence[str] | None = None) -> FrameForm:
        """That of a frame, or of some of its columns; frames of a library that is not on the list are taken as pandas'."""
        library = library_of(X)
        if library == "pandas":
            frame = named(X) if is_pandas(X) else frame_table(X).data.to_pandas()
            return FrameForm(library, {name: _pandas_column(frame[name]) for name in names or frame_names(X)})
        table = frame_table(X).data
        return FrameForm(library, {name: Column(str(table.schema.field(name).type)) for name in names or table.column_names})

    def like(self, X: Any, *, only_known: bool = False) -> Any:
        """The columns of any frame, found by name, as a frame of this form.

        Args:
            X: a frame of any library.
            only_known: whether categories of pandas that are new are missing cells; else they come last.

        Raises:
            UserError: naming columns that are missing.
        """
        names = list(self.columns)
        require_columns(names, X.names if isinstance(X, Table) else frame_names(X), "X")
        if self.library == "pandas":
            known = not isinstance(X, Table) and is_pandas(X)
            frame = named(X)[names] if known else _arrow(X, self.columns).to_pandas()
            changed = {name: _as_pandas(frame[name], column, only_known) for name, column in self.columns.items()}
            return frame.assign(**{name: values for name, values in changed.items() if values is not frame[name]})
        if not isinstance(X, Table) and library_of(X) == self.library and not hasattr(X, "collect"):
            return X.select(names)
        table = _cast(_arrow(X, self.columns), [column.kind for column in self.columns.values()])
        if self.library == "pyarrow":
            return table
        import polars

        return polars.from_arrow(table)

    def to_json(self) -> dict[str, Any]:
        """As plain lists and text.

        Raises:
            UnsavableError: naming a column whose categories are neither numbers nor text.
        """
        for name, column in self.columns.items():
            if not all(isinstance(value, str | int | float | bool) for value in column.categories or ()):
                raise UnsavableError(
                    f"The categories of column {name!r} are neither numbers nor text, which a file does not hold; make them text."
                )
        described = []
        for name, c in self.columns.items():
            last = [] if c.none is None else [c.none]
            described.append([name, c.kind, None if c.categories is None else list(c.categories), c.ordered, *last])
        return {"library": self.library, "columns": described}

    @staticmethod
    def from_json(document: Any) -> FrameForm:
        """The form that was described.

        Raises:
            ValueError: when it is something else.
        """
        columns = {}
        for name, kind, categories, *flags in document["columns"]:
            plain = categories is None or all(isinstance(value, str | int | float | bool) for value in categories)
            named = isinstance(name, str) and isinstance(kind, str)
            if not (named and plain and len(flags) in (1, 2) and all(isinstance(flag, bool) for flag in flags)):
                raise ValueError("The description of a frame's columns is invalid.")
            columns[name] = Column(kind, None if categories is None else tuple(categories), *flags)
        if document["library"] not in ("pandas", "polars", "pyarrow"):
            raise ValueError("A frame is of an unknown library.")
        return FrameForm(document["library"], columns)


def library_of(X: Any) -> Library:
    """Whose frame it is; pandas' where it is of none of the others."""
    first = type(X).__module__.partition(".")[0]
    return "polars" if first == "polars" else "pyarrow" if first == "pyarrow" else "pandas"


def rows_of(X: Any, rows: NDArray[Any]) -> Any:
    """Some rows of a frame, by their numbers, as a frame of the same library."""
    import narwhals as nw

    return nw.from_native(X.collect() if hasattr(X, "collect") else named(X))[np.asarray(rows).tolist()].to_native()


def pandas_forms(X: Any) -> Iterator[FrameForm]:
    """The forms that a predictor of pandas frames may know a frame of another library by: text as text, and as categories."""
    frame = named(X) if is_pandas(X) else frame_table(X).data.to_pandas()
    form = FrameForm.of(frame)
    yield form
    text = [name for name, column in form.columns.items() if column.kind in ("object", "str", "string")]
    if text:
        yield FrameForm.of(frame.astype(dict.fromkeys(text, "category")))


def _pandas_column(values: Any) -> Column:
    kind = values.dtype
    if str(kind) == "object":
        return Column("object", none=_missing_as_none(values))
    if str(kind) != "category":
        return Column(str(kind))
    return Column("category", tuple(np.asarray(kind.categories).tolist()), bool(kind.ordered))


def _missing_as_none(values: Any) -> bool | None:
    """Whether missing cells of a column of objects are None, or NaN; None where neither, or both, came."""
    kinds = {value is None for value in values[values.isna()]}
    return kinds.pop() if len(kinds) == 1 else None


def _as_pandas(values: Any, column: Column, only_known: bool) -> Any:
    """A column of pandas as it was when the predictor was fitted; as it is where that cannot be."""
    import pandas as pd

    if column.categories is not None:
        known = set(column.categories)
        same = str(values.dtype) == "category" and tuple(values.cat.categories) == column.categories
        if same:
            return values
        seen = [] if only_known else pd.unique(values.dropna()).tolist()
        new = [value for value in seen if value not in known]
        return values.astype(pd.CategoricalDtype([*column.categories, *new], ordered=column.ordered))
    if str(values.dtype) != column.kind:
        try:
            values = values.astype(column.kind)
        except (TypeError, ValueError):
            return values
    if column.none is not None and any((value is None) != column.none for value in values[values.isna()]):
        values = values.where(values.notna(), None if column.none else np.nan)
    return values


def _arrow(X: Any, columns: Mapping[str, Column]) -> Any:
    """Columns of Arrow; those of a text file, whose cells are all text, as the numbers or the text that they are."""
    import pyarrow as pa

    table = X if isinstance(X, Table) else frame_table(X)
    found = {}
    for name, column in columns.items():
        raw = table.data.column(name)
        is_text = isinstance(X, Table) and (pa.types.is_string(raw.type) or pa.types.is_large_string(raw.type))
        if is_text and column.kind.lower().startswith(_NUMBERS):
            values = numbers(table, name)
            raw = pa.array(values, mask=np.isnan(values))
        elif is_text and column.kind.startswith("bool"):
            raw = pa.array([_TRUTH.get(str(value).lower()) for value in texts(table, name).to_pylist()])
        elif is_text:
            raw = texts(table, name)
        found[name] = raw
    return pa.table(found)


def _cast(table: Any, kinds: Sequence[str]) -> Any:
    """Columns of Arrow as they were; as they are where that cannot be."""
    import pyarrow as pa

    columns = []
    for column, kind in zip(table.columns, kinds, strict=True):
        try:
            wanted = pa.dictionary(pa.int32(), pa.string()) if kind.startswith("dictionary") else pa.type_for_alias(kind)
            columns.append(column if str(column.type) == kind else column.cast(wanted))
        except (pa.ArrowException, ValueError):
            columns.append(column)
    return pa.table(dict(zip(table.column_names, columns, strict=True)))


def require_frame(X: Any, is_one: bool) -> None:
    """Refuse rows without names where a mean sees data frames."""
    if not is_one:
        raise UserError(
            f"The mean was fitted on data frames, whose columns it knows by name; got {type(X).__name__}: pass a data frame."
        )
