"""A report on rows and targets in memory: what the command makes of a file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gwi._validation import as_array
from gwi.estimators.columns import encoder_of, takes_tables
from gwi.estimators.inputs import checked_rows
from gwi.estimators.tables import Estimator
from gwi.exceptions import UserError
from gwi.report.examination import MOST_CELLS, MOST_ROWS, examined
from gwi.report.page import report_page
from gwi.tables.encoder import Encoder
from gwi.tables.forms import rows_of
from gwi.tables.frames import array_table, frame_table, is_frame
from gwi.tables.source import Table


def report_on(estimator: Estimator, X: Any, y: Any) -> str:
    """The page.

    Raises:
        UserError: for rows that are no table, and none at all.
    """
    if not takes_tables(estimator):
        raise UserError(
            f"A report is on tables; the model was fitted to rows of shape {tuple(estimator.model_.embedding.shape)}."
        )
    target = getattr(y, "name", None)
    target = target if isinstance(target, str) and target else "y"
    num_rows = len(X) if hasattr(X, "__len__") else 0
    if not num_rows or len(y) != num_rows:
        raise UserError(f"A report needs rows and a target for each; got {num_rows} rows and {len(y)} targets.")
    X, y = _sample(X, y, num_rows)
    numbers = checked_rows(estimator, X)
    encoder = replace(encoder_of(estimator), target=target)
    table = _table(X, encoder, hasattr(estimator, "feature_names_in_"))
    found = examined(estimator, encoder, table, numbers, estimator.judge(numbers, y), num_rows, 0)
    return report_page(found, type(estimator).__name__, "X, y")


def _sample(X: Any, y: Any, num_rows: int) -> tuple[Any, Any]:
    """As many rows as a report looks at, in their order."""
    shape = getattr(X, "shape", (num_rows, 1))
    most = max(1, min(MOST_ROWS, MOST_CELLS // max(shape[1], 1) if len(shape) > 1 else MOST_ROWS))
    if num_rows <= most:
        return X, y
    rows = np.sort(np.random.default_rng(0).permutation(num_rows)[:most])
    targets = y.iloc[rows] if hasattr(y, "iloc") else np.asarray(as_array(y))[rows]
    return rows_of(X, rows) if is_frame(X) else as_array(X)[rows], targets


def _table(X: Any, encoder: Encoder, knows_names: bool) -> Table:
    # To a model of an array the columns of a frame are those places.
    if is_frame(X) and knows_names:
        return frame_table(X)
    return X if isinstance(X, Table) else array_table(np.asarray(as_array(X)), encoder.inputs)
