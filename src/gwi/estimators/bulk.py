"""Predictions and scores for rows of any number, read and written some at a time."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gwi._typing import Array
from gwi.core.distributions import quantile
from gwi.core.tempering import conformal_quantile
from gwi.estimators.classifier import GWIClassifier
from gwi.estimators.regressor import GWIRegressor
from gwi.evaluation.classification import ClassScores, class_totals
from gwi.evaluation.regression import Law, Scores, score_totals
from gwi.streaming.batches import indices
from gwi.streaming.loaders import as_source, in_order
from gwi.streaming.parquet import ArrowSource, finite_numbers, open_dataset
from gwi.streaming.rows import Chunk, RowSource


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
    import pyarrow as pa
    import pyarrow.parquet as pq

    target = Path(output)
    beside = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    writer: Any = None
    try:
        for chunk in _rows(model, data):
            part = pa.table(_columns(model, chunk.x, coverage))
            if writer is None:
                writer = pq.ParquetWriter(beside, part.schema)
            writer.write_table(part)
        if writer is None:
            raise ValueError("There are no rows to predict.")
        writer.close()
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)
    return target


def _rows(model: GWIRegressor | GWIClassifier, data: Any) -> Iterator[Chunk]:
    dataset = open_dataset(data)
    known = getattr(model, "feature_names_in_", None)
    names = tuple(dataset.schema.names if known is None else known.tolist())
    missing = [name for name in names if name not in dataset.schema.names]
    if missing or len(names) != model.n_features_in_:
        lacking = f"lacks the columns {', '.join(map(repr, missing[:8]))}" if missing else f"has {len(names)} columns"
        raise ValueError(f"The data {lacking}; the model was fitted to {model.n_features_in_} columns.")

    def convert(table: Any, numbers: NDArray[np.int64]) -> Chunk:
        x = np.column_stack([finite_numbers(table, name, numbers) for name in names])
        return Chunk(x, np.empty((len(x), 0)), numbers)

    source = ArrowSource(dataset, convert, names, names)
    yield from in_order(source, range(len(source.group_sizes)))


def _columns(model: GWIRegressor | GWIClassifier, X: Array, coverage: float) -> dict[str, Any]:
    """What `predict`, `predict_interval` and `ood_score` give, from one evaluation of Q where that is enough."""
    if isinstance(model, GWIClassifier):
        probabilities, _ = model.model_.probabilities(X)
        found: dict[str, Any] = {"prediction": model.classes_[probabilities.argmax(1)]}
        found |= {f"probability_{label}": probabilities[:, j] for j, label in enumerate(model.classes_)}
        return found | {"ood_score": model.model_.remaining_variance(X)}
    fitted = model.model_
    known = fitted.parts(X)
    mean, std = fitted.law_of(known)
    if model.conformal:
        half = np.array([conformal_quantile(scores, coverage) for scores in fitted.scores])
    else:
        half = np.array([quantile(np.array((1 + coverage) / 2), degrees) for degrees in fitted.degrees_of_freedom])
    parts = {"prediction": mean, "std": std, "lower": mean - std * half[:, None], "upper": mean + std * half[:, None]}
    one = len(mean) == 1
    found = {name if one else f"{name}_{j}": row for name, values in parts.items() for j, row in enumerate(values)}
    return found | {"ood_score": fitted.unknown_share(X, known)}


def score_source(model: GWIRegressor | GWIClassifier, data: Any, target: Any = None) -> Scores | ClassScores:
    """All scores on a Parquet file, a folder, a ``pyarrow.dataset`` or a loader of any size; of one target.

    Args:
        model: fitted.
        data: rows with their targets; columns are found by name where the fit knew names.
        target: the column of the targets; None with a loader.
    """
    is_classifier = isinstance(model, GWIClassifier)
    # By name where the fit knew names: a file may have the columns in another order.
    known = getattr(model, "feature_names_in_", None)
    features = None if known is None else known.tolist()
    source: RowSource = as_source(data, target, labels=is_classifier, features=features)
    totals: Any = None
    for chunk in in_order(source, range(len(source.group_sizes))):
        if chunk.x.shape[1] != model.n_features_in_:
            raise ValueError(f"The data has {chunk.x.shape[1]} columns; the model was fitted to {model.n_features_in_}.")
        if isinstance(model, GWIClassifier):
            labels = indices(np.array(chunk.y.tolist()), model.classes_)
            part: Any = class_totals(model.model_.probabilities(chunk.x)[0], labels)
        else:
            mean, std = model.model_.law(chunk.x)
            if len(mean) != 1:
                raise ValueError(f"Scores are those of one target; the model has {len(mean)}.")
            part = score_totals(Law(mean, std, float(model.model_.degrees_of_freedom[0])), chunk.y[:, 0])
        totals = part if totals is None else totals + part
    if totals is None:
        raise ValueError("There are no rows to score.")
    return totals.scores()
