"""Predictions and scores for rows of any number, read and written some at a time."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gwi.estimators.classifier import GWIClassifier
from gwi.estimators.columns import encoder_of
from gwi.estimators.regressor import GWIRegressor
from gwi.evaluation.classification import ClassScores
from gwi.evaluation.regression import Scores
from gwi.exceptions import UserError
from gwi.streaming.contract import CheckedSource
from gwi.streaming.loaders import as_source, in_order
from gwi.tables.addresses import as_path
from gwi.tables.files import atomic_file
from gwi.tables.names import require_columns
from gwi.tables.parquet import ParquetReader, parquet_source
from gwi.tables.rows import Chunk, RowSource
from gwi.tables.writer import Writer

_NO_FRAMES = "The model was fitted to a data frame, and a source gives numbers; write the rows to a Parquet file and pass that."


def predict_source(
    model: GWIRegressor | GWIClassifier,
    data: Any,
    output: str | os.PathLike[str],
    *,
    coverage: float = 0.95,
    shard: tuple[int, int] | None = None,
) -> Any:
    """Predict rows of any number into a Parquet file, all of it or nothing.

    Args:
        model: fitted.
        data: a Parquet file, a folder of them, a ``pyarrow.dataset`` or a `RowSource`, with the columns of the fit, found by name
            where the fit and the data know names, else all columns in their order.
        output: one row a row: prediction, std, lower and upper, or prediction and a probability a class; and the OOD score.
        coverage: of the interval from lower to upper.
        shard: (i, n) predicts the i-th of n parts only, i from 0. The parts are whole row groups, one after another and about as
            many rows each: the files of all of them, in order, hold what one file without shards does, to the last bit.

    Examples:
        >>> import pathlib
        >>> import tempfile
        >>> import numpy as np
        >>> import pandas as pd
        >>> import gwi
        >>> y = np.linspace(0, 6, 20) + 0.1 * np.random.default_rng(0).normal(size=20)
        >>> rows = pd.DataFrame({"x": np.linspace(0, 3, 20), "y": y})
        >>> model = gwi.GWIRegressor("linear", random_state=0).fit(rows[["x"]], rows["y"])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     rows.to_parquet(pathlib.Path(folder) / "new.parquet")
        ...     written = gwi.predict_source(model, f"{folder}/new.parquet", f"{folder}/predicted.parquet")
        ...     list(pd.read_parquet(written).columns)
        ['prediction', 'std', 'lower', 'upper', 'ood_score']
    """
    parts = _Predicted(model, data, coverage)
    if not sum(parts.group_sizes):
        raise ValueError("There are no rows to predict.")
    groups = range(len(parts.group_sizes)) if shard is None else groups_of_shard(parts.group_sizes, shard)
    with atomic_file(output) as file, Writer(file, [".parquet"]) as writer:
        # A shard without rows has the columns of the others: some row tells them.
        full = int(np.argmax(parts.group_sizes))
        found = parts.of(groups) if any(parts.group_sizes[group] for group in groups) else (_none(next(parts.of([full]))),)
        for part in found:
            writer.write(part)
    return as_path(output)


def groups_of_shard(group_sizes: Sequence[int], shard: Any) -> range:
    """The groups of one of several parts, which follow each other and have about as many rows each.

    Args:
        group_sizes: how many rows each group has.
        shard: which part, from 0, and how many parts there are.
    """
    try:
        place, count = (operator.index(number) for number in shard)
    except (TypeError, ValueError):
        place, count = -1, 0
    if not 0 <= place < count:
        raise ValueError(f"shard must be (i, n): one of n parts, i from 0 to n − 1; got {shard!r}.")
    sizes = np.array(group_sizes, dtype=np.float64)
    # Each group belongs where its middle is.
    part = (count * (np.cumsum(sizes) - sizes / 2) / max(sizes.sum(), 1.0)).astype(np.int64).clip(0, count - 1)
    return range(int(np.searchsorted(part, place)), int(np.searchsorted(part, place, side="right")))


def _none(columns: dict[str, Any]) -> dict[str, Any]:
    return {name: values[:0] for name, values in columns.items()}


class _Predicted:
    """Predictions of a model for the groups of rows of some data."""

    def __init__(self, model: Any, data: Any, coverage: float):
        self._model, self._coverage = model, coverage
        self._reader: ParquetReader | None = None
        self._source: RowSource | None = None
        known = getattr(model, "feature_names_in_", None)
        of_frames = hasattr(model, "encoder_") or bool(model.frame_predictors_)
        if hasattr(data, "group_sizes") and not isinstance(data, ParquetReader):
            if of_frames:
                raise UserError(_NO_FRAMES)
            self._source = CheckedSource(data, features=None if known is None else known.tolist(), targets=False)
            self.group_sizes = self._source.group_sizes
            return
        reader = ParquetReader(data)
        self.group_sizes = reader.group_sizes
        if of_frames:
            self._reader, self._names = reader, names_in_frames(model)
            require_columns(self._names, reader.schema.names, "The data")
            return
        names = reader.schema.names if known is None else known.tolist()
        missing = [name for name in names if name not in reader.schema.names]
        if missing or len(names) != model.n_features_in_:
            lacking = f"lacks the columns {', '.join(map(repr, missing[:8]))}" if missing else f"has {len(names)} columns"
            raise ValueError(f"The data {lacking}; the model was fitted to {model.n_features_in_} columns.")
        self._source = parquet_source(reader, (), features=names)

    def of(self, groups: Sequence[int]) -> Iterator[dict[str, Any]]:
        """Of some groups, some rows at a time."""
        if self._reader is not None:
            for rows, _ in self._reader.tables(self._names, groups):
                yield self._model.predict_columns(rows, self._coverage)
        elif self._source is not None:
            for chunk in in_order(self._source, groups):
                _require_width(self._model, chunk)
                yield self._model.predict_columns(chunk.x, self._coverage)


def _require_width(model: Any, chunk: Chunk) -> None:
    if chunk.x.shape[1] != model.n_features_in_:
        raise ValueError(f"The data has {chunk.x.shape[1]} columns; the model was fitted to {model.n_features_in_}.")


def names_in_frames(model: Any) -> list[str]:
    """The columns that the encoder or a predictor of frames reads."""
    own = encoder_of(model).inputs
    return list(dict.fromkeys([*own, *(name for predictor in model.frame_predictors_ for name in predictor.form.columns)]))


def score_source(model: GWIRegressor | GWIClassifier, data: Any, target: Any = None) -> Scores | ClassScores:
    """All scores on a Parquet file, a folder, a ``pyarrow.dataset``, a loader or a `RowSource` of any size; of one target.

    Args:
        model: fitted.
        data: rows with their targets; columns are found by name where the fit knew names.
        target: the column of the targets; None with a loader or a source.

    Examples:
        >>> import pathlib
        >>> import tempfile
        >>> import numpy as np
        >>> import pandas as pd
        >>> import gwi
        >>> y = np.linspace(0, 6, 20) + 0.1 * np.random.default_rng(0).normal(size=20)
        >>> rows = pd.DataFrame({"x": np.linspace(0, 3, 20), "y": y})
        >>> model = gwi.GWIRegressor("linear", random_state=0).fit(rows[["x"]], rows["y"])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     rows.to_parquet(pathlib.Path(folder) / "test.parquet")
        ...     scores = gwi.score_source(model, f"{folder}/test.parquet", "y")
        >>> bool(scores.rmse < 0.2)
        True
    """
    if hasattr(model, "encoder_") or model.frame_predictors_:
        return _scores_of_frames(model, data, target)
    # By name where the fit knew names: a file may have the columns in another order.
    known = getattr(model, "feature_names_in_", None)
    features = None if known is None else known.tolist()
    source = as_source(data, target, labels=model._targets.are_labels, features=features)
    totals: list[Any] = []
    for chunk in in_order(source, range(len(source.group_sizes))):
        _require_width(model, chunk)
        totals.append(model.score_totals(model.judge(chunk.x, chunk.y)))
    if not totals:
        raise ValueError("There are no rows to score.")
    return sum(totals[1:], start=totals[0]).scores()


def _scores_of_frames(model: Any, data: Any, target: Any) -> Scores | ClassScores:
    """Scores of a model of data frames on a Parquet file, a folder or a dataset; rows without a target are left out."""
    if hasattr(data, "group_sizes") and not isinstance(data, ParquetReader):
        raise UserError(_NO_FRAMES)
    reader, names = ParquetReader(data), names_in_frames(model)
    if not isinstance(target, str):
        raise UserError(f"score_source needs the name of the column of the targets; got {target!r}.")
    require_columns([*names, target], reader.schema.names, "The data")
    totals: list[Any] = []
    for rows, _ in reader.tables([*names, target]):
        known = rows.filter(rows.column(target).is_valid())
        if len(known):
            totals.append(model.score_totals(model.judge(model._rows(known.select(names)), known.column(target).to_numpy())))
    if not totals:
        raise ValueError("There are no rows to score.")
    return sum(totals[1:], start=totals[0]).scores()
