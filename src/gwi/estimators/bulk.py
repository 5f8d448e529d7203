"""Predictions and scores for rows of any number, read and written some at a time."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gwi._files import atomic_file
from gwi.estimators.classifier import GWIClassifier
from gwi.estimators.regressor import GWIRegressor
from gwi.evaluation.classification import ClassScores
from gwi.evaluation.regression import Scores
from gwi.exceptions import UserError
from gwi.streaming.loaders import as_source, in_order
from gwi.tables.names import require_columns
from gwi.tables.parquet import ParquetReader, parquet_source
from gwi.tables.writer import Writer


def predict_source(
    model: GWIRegressor | GWIClassifier, data: Any, output: str | os.PathLike[str], *, coverage: float = 0.95
) -> Path:
    """Predict the rows of a Parquet file, a folder of them or a ``pyarrow.dataset`` into a Parquet file, all of it or nothing.

    Args:
        model: fitted.
        data: with the columns of the fit, found by name where the fit knew names, else all columns in their order.
        output: one row a row: prediction, std, lower and upper, or prediction and a probability a class; and the OOD score.
        coverage: of the interval from lower to upper.
    """
    reader = ParquetReader(data)
    if not sum(reader.group_sizes):
        raise ValueError("There are no rows to predict.")
    if hasattr(model, "encoder_") or model.frame_predictors_:
        names = names_in_frames(model)
        require_columns(names, reader.schema.names, "The data")
        return _written(output, (model.predict_columns(rows, coverage) for rows, _ in reader.tables(names)))
    known = getattr(model, "feature_names_in_", None)
    names = reader.schema.names if known is None else known.tolist()
    missing = [name for name in names if name not in reader.schema.names]
    if missing or len(names) != model.n_features_in_:
        lacking = f"lacks the columns {', '.join(map(repr, missing[:8]))}" if missing else f"has {len(names)} columns"
        raise ValueError(f"The data {lacking}; the model was fitted to {model.n_features_in_} columns.")
    source = parquet_source(reader, (), features=names)
    chunks = in_order(source, range(len(source.group_sizes)))
    return _written(output, (model.predict_columns(chunk.x, coverage) for chunk in chunks))


def names_in_frames(model: Any) -> list[str]:
    """The columns that the encoder or a predictor of frames reads."""
    own = list(model.encoder_.encoder_.inputs) if hasattr(model, "encoder_") else model.feature_names_in_.tolist()
    return list(dict.fromkeys([*own, *(name for predictor in model.frame_predictors_ for name in predictor.form.columns)]))


def _written(output: str | os.PathLike[str], parts: Iterable[dict[str, Any]]) -> Path:
    """Predictions in a Parquet file, all of them or none."""
    with atomic_file(output) as file, Writer(file, [".parquet"]) as writer:
        for part in parts:
            writer.write(part)
    return Path(output)


def score_source(model: GWIRegressor | GWIClassifier, data: Any, target: Any = None) -> Scores | ClassScores:
    """All scores on a Parquet file, a folder, a ``pyarrow.dataset`` or a loader of any size; of one target.

    Args:
        model: fitted.
        data: rows with their targets; columns are found by name where the fit knew names.
        target: the column of the targets; None with a loader.
    """
    if hasattr(model, "encoder_") or model.frame_predictors_:
        return _scores_of_frames(model, data, target)
    # By name where the fit knew names: a file may have the columns in another order.
    known = getattr(model, "feature_names_in_", None)
    features = None if known is None else known.tolist()
    source = as_source(data, target, labels=model._targets.are_labels, features=features)
    totals: list[Any] = []
    for chunk in in_order(source, range(len(source.group_sizes))):
        if chunk.x.shape[1] != model.n_features_in_:
            raise ValueError(f"The data has {chunk.x.shape[1]} columns; the model was fitted to {model.n_features_in_}.")
        totals.append(model.score_totals(model.judge(chunk.x, chunk.y)))
    if not totals:
        raise ValueError("There are no rows to score.")
    return sum(totals[1:], start=totals[0]).scores()


def _scores_of_frames(model: Any, data: Any, target: Any) -> Scores | ClassScores:
    """Scores of a model of data frames on a Parquet file, a folder or a dataset; rows without a target are left out."""
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
