"""The columns of a table that a fitted model reads, whether it was fitted to a table, a frame or an array."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gwi.core.scaling import StandardisedRows
from gwi.exceptions import UserError
from gwi.tables.encoder import Encoder
from gwi.tables.plain import numbered, plain_rows
from gwi.tables.source import Table


def column_names(estimator: Any) -> list[str]:
    """Of the columns of the fit; those of an array are called by their number."""
    names = getattr(estimator, "feature_names_in_", None)
    return numbered(estimator.n_features_in_) if names is None else [str(name) for name in names]


def takes_tables(estimator: Any) -> bool:
    """Whether a row is one number, or one encoded cell, after another: no image, and no inputs of a module by their names."""
    embedding = estimator.model_.embedding
    return len(embedding.shape) == 1 and embedding.layout is None


def encoder_of(estimator: Any) -> Encoder:
    """From the columns of a table to the rows of the model: what was learned of them, or that each is a number."""
    learned = getattr(estimator, "encoder_", None)
    if learned is not None:
        return learned.encoder_
    names, embedding = column_names(estimator), estimator.model_.embedding
    usual = embedding.scales.x_centre[: len(names)].tolist() if isinstance(embedding, StandardisedRows) else None
    return Encoder.plain(names, usual)


def numbers_of(estimator: Any, table: Table) -> NDArray[Any]:
    """Rows of a model of plain numbers out of a table with its columns.

    Raises:
        UserError: when columns are missing, or naming the first cell that is no number.
    """
    # Validation rows come before there is a model.
    if hasattr(estimator, "model_") and not takes_tables(estimator):
        shape = tuple(estimator.model_.embedding.shape)
        raise UserError(
            f"The model was fitted to rows of shape {shape}, or to the inputs of a module, which a table cannot give."
        )
    names, note = column_names(estimator), ""
    if not hasattr(estimator, "feature_names_in_"):
        note = f"it was fitted to an array, whose columns are called {names[0]} to {names[-1]} here, in their order"
    return plain_rows(table, names, note)


def require_present(estimator: Any, rows: NDArray[Any]) -> None:
    """Refuse an array with missing numbers; one of other columns is for others to refuse.

    Raises:
        UserError: naming the first.
    """
    if rows.dtype.kind != "f" or rows.ndim != 2 or not (missing := np.isnan(rows)).any():
        return
    row, place = (int(where[0]) for where in np.nonzero(missing))
    names = column_names(estimator)
    if len(names) != rows.shape[1]:
        return
    raise UserError(
        f"Input X contains NaN: row {row}, column {names[place]!r}; the model was fitted to numbers without missing cells, fill "
        "it in or leave the row out."
    )
