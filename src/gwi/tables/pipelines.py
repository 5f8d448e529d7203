"""Fitted pipelines of scikit-learn as plain numbers and text: steps that we can hold, and the predictor at their end.

A step takes columns and gives columns, each an array of numbers, where missing is NaN, or of anything else. There None and NaN
are what they are to scikit-learn, a value like others and a missing cell: of frames of pandas NaN, but for None among objects, of
all other frames None. What is kept of a step is what its `transform` reads. Held are pipelines, column transformers, scalers,
`SimpleImputer`, `OneHotEncoder`, `OrdinalEncoder` and our `TableEncoder`; types exactly, since a subclass may do otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from sklearn import preprocessing
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline

from gwi._typing import Array
from gwi.exceptions import UserError
from gwi.tables.frames import frame_table, is_pandas
from gwi.tables.transformer import TableEncoder

Columns = list[NDArray[Any]]
# What a step is in a file: its tag and its parts, of JSON's kinds.
Step = dict[str, Any]


@dataclass(frozen=True, eq=False)
class PlainPipeline:
    """Steps, and what predicts from the numbers that they give.

    Attributes:
        names: of the columns of a frame, in the order of the fit.
        steps: one after another.
        last: with ``predict``, from rows of numbers.
    """

    names: tuple[str, ...]
    steps: tuple[Step, ...]
    last: Any

    def predict(self, X: Any) -> Float[Array, ...]:
        """What the pipeline predicts at the rows of a frame."""
        table, steps = frame_table(X), self.steps
        if steps and steps[0]["step"] == "table":
            columns, steps = list(TableEncoder.from_json(steps[0]["encoder"]).transform(table.data).T), steps[1:]
        else:
            missing = math.nan if is_pandas(X) else None
            columns = [_column(table.data.column(name), missing) for name in self.names]
            for place, name in enumerate(self.names):
                if missing is not None and columns[place].dtype == object:
                    columns[place][[value is None for value in X[name]]] = None
        for step in steps:
            columns = _APPLY[step["step"]](step, columns, self.names)
        return self.last.predict(np.column_stack([np.asarray(column, dtype=np.float64) for column in columns]))


def plain_steps(pipeline: Any, names: Sequence[str]) -> tuple[Step, ...] | None:
    """The steps of a fitted pipeline but its last; None where one of them cannot be held."""
    if type(pipeline) is not Pipeline:
        return None
    steps = [step for _, step in pipeline.steps[:-1]]
    found: list[Step | None] = []
    if steps and type(steps[0]) is TableEncoder:
        # It knows truth values, dates and text by their kinds, so that it comes first.
        found.append({"step": "table", "encoder": steps.pop(0).to_json()})
    found += [_described(step, names) for step in steps]
    return None if any(step is None for step in found) else tuple(step for step in found if step is not None)


def checked_steps(steps: Any) -> tuple[Step, ...]:
    """Steps from a file.

    Raises:
        ValueError: when they are none.
    """
    known = isinstance(steps, list) and all(isinstance(step, dict) for step in steps)
    if known and steps and steps[0].get("step") == "table":
        TableEncoder.from_json(steps[0]["encoder"])
        return (steps[0], *checked_steps(steps[1:]))
    if not known or not all(step.get("step") in _APPLY for step in steps):
        raise ValueError("a step of a pipeline is of an unknown kind")
    for step in steps:
        for part in (*step.get("steps", ()), *(inner for inner, _ in step.get("parts", ()))):
            checked_steps([part])
    return tuple(steps)


def _column(values: Any, missing: float | None) -> NDArray[Any]:
    """Numbers and truth values as float64 with NaN, all else as objects with what is missing there."""
    import pyarrow as pa

    kind = values.type
    if pa.types.is_dictionary(kind):
        values = pa.chunked_array([chunk.dictionary_decode() for chunk in values.chunks], type=kind.value_type)
        kind = values.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return np.array([math.nan if v is None else v for v in values.to_pylist()], dtype=np.float64)
    return np.array([*(missing if v is None else v for v in values.to_pylist()), None], dtype=object)[:-1]


def _is_missing(column: NDArray[Any], none: bool | None) -> NDArray[np.bool_]:
    """Where cells are None, or NaN, or for a file that does not say either; a column of numbers knows one kind."""
    if column.dtype == np.float64:
        return np.isnan(column)
    return np.array([none is not False if value is None else not none and value != value for value in column], dtype=np.bool_)


# What is kept of each step; None where it cannot be.


def _described(step: Any, names: Sequence[str]) -> Step | None:
    if isinstance(step, str) and step == "passthrough":
        return {"step": "as it is"}
    describe = _DESCRIBE.get(type(step))
    return None if describe is None else describe(step, names)


def _of_pipeline(step: Any, names: Sequence[str]) -> Step | None:
    steps = [_described(part, names) for _, part in step.steps]
    return None if any(part is None for part in steps) else {"step": "in turn", "steps": steps}


def _of_columns(step: Any, names: Sequence[str]) -> Step | None:
    parts = []
    for _, part, columns in step.transformers_:
        if isinstance(part, str) and part == "drop":
            continue
        places = _places(columns, names)
        if places == []:
            # Of no columns nothing was learned.
            continue
        described = None if places is None else _described(part, names)
        if described is None:
            return None
        parts.append([described, places])
    return {"step": "side by side", "parts": parts}


def _places(columns: Any, names: Sequence[str]) -> list[int] | None:
    """Where columns are that a column transformer names: by text, numbers, truth values or a slice."""
    if isinstance(columns, slice):
        ends = [names.index(end) if isinstance(end, str) else end for end in (columns.start, columns.stop)]
        last = ends[1] + 1 if isinstance(columns.stop, str) else ends[1]
        return list(range(len(names)))[slice(ends[0], last, columns.step)]
    given = [columns] if isinstance(columns, str | int) else np.asarray(columns).tolist()
    if given and all(isinstance(value, bool) for value in given):
        return np.flatnonzero(given).tolist()
    if not all((isinstance(value, str) and value in names) or type(value) is int for value in given):
        return None
    return [names.index(value) if isinstance(value, str) else value % len(names) for value in given]


def _of_scaler(step: Any, names: Sequence[str]) -> Step:
    """(x − centre)/scale, or x · factor + shift as scikit-learn has it for ranges."""
    if isinstance(step, preprocessing.MinMaxScaler):
        clip = list(step.feature_range) if step.clip else None
        return {"step": "range", "factor": step.scale_.tolist(), "shift": step.min_.tolist(), "clip": clip}
    centre = {"mean_": "with_mean", "center_": "with_centering"}
    shift = next((getattr(step, name) for name, option in centre.items() if getattr(step, option, False)), None)
    return {
        "step": "scale",
        "centre": None if shift is None else shift.tolist(),
        "scale": None if step.scale_ is None else step.scale_.tolist(),
    }


def _of_imputer(step: Any, names: Sequence[str]) -> Step | None:
    values = [value.item() if isinstance(value, np.generic) else value for value in step.statistics_]
    plain = all(isinstance(value, str | int | float) and value == value for value in values)
    none = step.missing_values is None
    if (
        not plain
        or step.add_indicator
        or not (none or (isinstance(step.missing_values, float) and math.isnan(step.missing_values)))
    ):
        return None
    return {"step": "fill", "values": values, "none": none}


def _categories(step: Any) -> Step | None:
    """Of each column, null for None or NaN, and in which of them it is None; None where they are neither numbers nor text."""
    found, none = [], []
    for column in step.categories_:
        values = [None if value is None or value != value else value for value in column.tolist()]
        if values.count(None) > 1 or not all(value is None or isinstance(value, str | int | float | bool) for value in values):
            return None
        found.append(values)
        none.append(any(value is None for value in column.tolist()))
    return {"categories": found, "none": none}


def _of_one_hot(step: Any, names: Sequence[str]) -> Step | None:
    categories = _categories(step)
    rare = step.min_frequency is not None or step.max_categories is not None
    if categories is None or rare:
        return None
    dropped = (
        [None] * len(step.categories_) if step.drop_idx_ is None else [None if d is None else int(d) for d in step.drop_idx_]
    )
    return {"step": "one column a value", **categories, "dropped": dropped, "strict": step.handle_unknown == "error"}


def _of_ordinal(step: Any, names: Sequence[str]) -> Step | None:
    categories = _categories(step)
    if categories is None or step.min_frequency is not None or step.max_categories is not None:
        return None
    unknown, missing = step.unknown_value, step.encoded_missing_value
    return {
        "step": "place of the value",
        **categories,
        "strict": step.handle_unknown == "error",
        "unknown": None if unknown is None or unknown != unknown else float(unknown),
        "missing": None if missing != missing else float(missing),
    }


# What each step does.


def _in_turn(step: Step, columns: Columns, names: Sequence[str]) -> Columns:
    for part in step["steps"]:
        columns = _APPLY[part["step"]](part, columns, names)
    return columns


def _side_by_side(step: Step, columns: Columns, names: Sequence[str]) -> Columns:
    found: Columns = []
    for part, places in step["parts"]:
        found += _APPLY[part["step"]](part, [columns[place] for place in places], names)
    return found


def _scale(step: Step, columns: Columns, names: Sequence[str]) -> Columns:
    found = [np.asarray(column, dtype=np.float64) for column in columns]
    if step["centre"] is not None:
        found = [column - centre for column, centre in zip(found, step["centre"], strict=True)]
    if step["scale"] is not None:
        found = [column / scale for column, scale in zip(found, step["scale"], strict=True)]
    return found


def _range(step: Step, columns: Columns, names: Sequence[str]) -> Columns:
    found = [np.asarray(c, np.float64) * f + s for c, f, s in zip(columns, step["factor"], step["shift"], strict=True)]
    return found if step["clip"] is None else [np.clip(column, *step["clip"]) for column in found]


def _fill(step: Step, columns: Columns, names: Sequence[str]) -> Columns:
    found = []
    for column, value in zip(columns, step["values"], strict=True):
        new = column.copy()
        new[_is_missing(column, step.get("none"))] = value
        found.append(new)
    return found


def _codes(step: Step, columns: Columns) -> Columns:
    """The place of each value among the categories of its column; −1 where it is none of them.

    Raises:
        UserError: for such a value, where the encoder was told to be strict.
    """
    found = []
    for column, categories, none in zip(columns, step["categories"], _are_none(step), strict=True):
        place = {value: i for i, value in enumerate(categories) if value is not None}
        codes = np.array([place.get(value, -1) for value in column.tolist()], dtype=np.int64)
        if None in categories:
            codes[_is_missing(column, none)] = categories.index(None)
        if step["strict"] and (codes < 0).any():
            raise UserError(f"An encoder was told to refuse values that it has not seen; one is {column[codes < 0][0]!r}.")
        found.append(codes)
    return found


def _are_none(step: Step) -> list[bool] | list[None]:
    """Of each column whether the missing one of its categories is None, a value, or NaN."""
    return step.get("none") or [None] * len(step["categories"])


def _one_hot(step: Step, columns: Columns, names: Sequence[str]) -> Columns:
    found: Columns = []
    for codes, categories, dropped in zip(_codes(step, columns), step["categories"], step["dropped"], strict=True):
        found += [(codes == place).astype(np.float64) for place in range(len(categories)) if place != dropped]
    return found


def _ordinal(step: Step, columns: Columns, names: Sequence[str]) -> Columns:
    unknown, missing = (math.nan if step[key] is None else step[key] for key in ("unknown", "missing"))
    found: Columns = []
    for codes, categories, none in zip(_codes(step, columns), step["categories"], _are_none(step), strict=True):
        gone = codes == (categories.index(None) if None in categories and not none else -2)
        found.append(np.where(codes < 0, unknown, np.where(gone, missing, codes)))
    return found


_DESCRIBE: dict[type, Callable[[Any, Sequence[str]], Step | None]] = {
    Pipeline: _of_pipeline,
    ColumnTransformer: _of_columns,
    preprocessing.StandardScaler: _of_scaler,
    preprocessing.MinMaxScaler: _of_scaler,
    preprocessing.RobustScaler: _of_scaler,
    preprocessing.MaxAbsScaler: _of_scaler,
    SimpleImputer: _of_imputer,
    preprocessing.OneHotEncoder: _of_one_hot,
    preprocessing.OrdinalEncoder: _of_ordinal,
    # What a column transformer puts in the place of "passthrough".
    preprocessing.FunctionTransformer: lambda step, names: {"step": "as it is"} if step.func is None else None,
}
_APPLY: dict[str, Callable[[Step, Columns, Sequence[str]], Columns]] = {
    "as it is": lambda step, columns, names: columns,
    "in turn": _in_turn,
    "side by side": _side_by_side,
    "scale": _scale,
    "range": _range,
    "fill": _fill,
    "one column a value": _one_hot,
    "place of the value": _ordinal,
}
