"""Means that are the user's own predictors of data frames: who they are, and rows that carry their values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from torch import nn

from gwi.fitting.frame_learners import OnFrames
from gwi.fitting.learners import name_of
from gwi.tables.forms import require_frame, rows_of
from gwi.tables.frame_predictor import FramePredictor
from gwi.tables.frames import is_frame


def on_frames(estimator: Any, means: list[Any] | None, X: Any, rows: NDArray[np.int64], validation: Any) -> list[Any] | None:
    """The means that are asked for, those that see frames with the frames; None for the plan.

    Args:
        estimator: that has looked at X.
        means: as they were asked for.
        X: what the user brought.
        rows: which of them are learned from.
        validation: the pair of rows and targets to judge on; None without.
    """
    mixed = hasattr(estimator, "encoder_")
    if means is None or not is_frame(X) or not any(sees_frames(mean, mixed) for mean in means):
        return means
    training, judging = rows_of(X, rows), None if validation is None else validation[0]
    if judging is not None:
        require_frame(judging, is_frame(judging))
    return [OnFrames(mean, training, judging, name_of(mean)) if sees_frames(mean, mixed) else mean for mean in means]


def sees_frames(mean: Any, mixed: bool) -> bool:
    """Whether a mean gets data frames: of mixed ones all predictors and functions, of plain numbers those not scikit-learn's."""
    if isinstance(mean, str | nn.Module) or not (hasattr(mean, "predict") or callable(mean)):
        return False
    if mixed:
        return True
    own = isinstance(mean, BaseEstimator) and type(mean).__module__.startswith("sklearn.") and not isinstance(mean, Pipeline)
    return hasattr(mean, "predict") and not own


def with_predictions(predictors: Sequence[FramePredictor], X: Any, numbers: NDArray[Any]) -> NDArray[Any]:
    """Rows with what predictors of frames say of each behind its own columns."""
    return np.column_stack([numbers, *(predictor.predict(X) for predictor in predictors)])
