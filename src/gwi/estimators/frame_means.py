"""Means that are the user's own predictors of data frames: who they are, and rows that carry their values."""

from __future__ import annotations

import contextlib
import copy
import io
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import Pipeline
from torch import nn

from gwi.fitting.frame_learners import OnFrames
from gwi.fitting.learners import name_of
from gwi.predictors.boosters import is_fitted
from gwi.tables.forms import require_frame, rows_of
from gwi.tables.frame_predictor import FramePredictor
from gwi.tables.frames import is_frame

# Rows by which a predictor shows whether it takes data frames.
NUM_TRIED = 60


def on_frames(estimator: Any, means: list[Any] | None, brought: Any, training: Any) -> list[Any] | None:
    """The means that are asked for, those that see frames with the frames; None for the plan.

    Args:
        estimator: that has looked at the frame.
        means: as they were asked for.
        brought: what the user brought.
        training: the rows to learn from, and which of those brought they are.
    """
    X, validation, mixed = brought.X, brought.validation, hasattr(estimator, "encoder_")
    if means is None or not is_frame(X) or not any(_may_see_frames(mean, mixed) for mean in means):
        return means
    frame, judging = rows_of(X, training.brought), None if validation is None else validation[0]
    found = []
    for mean in means:
        if _may_see_frames(mean, mixed) and (is_fitted(mean) or _learns(mean, frame, training.y)):
            if judging is not None:
                require_frame(judging, is_frame(judging))
            mean = OnFrames(mean, frame, judging, name_of(mean))
        found.append(mean)
    return found


def _may_see_frames(mean: Any, mixed: bool) -> bool:
    """Whether a mean may get data frames: of mixed ones predictors and functions, of plain numbers those not scikit-learn's."""
    if isinstance(mean, str | nn.Module) or not (hasattr(mean, "predict") or callable(mean)):
        return False
    if mixed:
        return True
    own = isinstance(mean, BaseEstimator) and type(mean).__module__.startswith("sklearn.") and not isinstance(mean, Pipeline)
    return hasattr(mean, "predict") and not own


def _learns(mean: Any, frame: Any, y: NDArray[Any]) -> bool:
    """Whether a predictor can be fitted to such frames, by a try with few rows; else it gets the encoder's numbers."""
    order = np.argsort(y if y.ndim == 1 else y[:, 0], kind="stable")
    some = np.unique(order[np.linspace(0, len(order) - 1, min(NUM_TRIED, len(order))).astype(np.int64)])
    trial = clone(mean) if hasattr(mean, "get_params") else copy.deepcopy(mean)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            trial.fit(rows_of(frame, some), y[some] if y.ndim == 1 or y.shape[1] > 1 else y[some, 0])
        except Exception:
            # Of any type: it is the user's own code, or that of any library.
            return False
    return True


def with_predictions(predictors: Sequence[FramePredictor], X: Any, numbers: NDArray[Any]) -> NDArray[Any]:
    """Rows with what predictors of frames say of each behind its own columns."""
    return np.column_stack([numbers, *(predictor.predict(X) for predictor in predictors)])
