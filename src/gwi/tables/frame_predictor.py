"""Predictors that see data frames as they came, in the form that they know."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from gwi._typing import Array
from gwi.exceptions import UserError
from gwi.predictors.boosters import Booster
from gwi.predictors.boosters import library_of as booster_library
from gwi.tables.forms import FrameForm, library_of, pandas_forms, rows_of
from gwi.tables.frames import frame_names
from gwi.tables.source import Table

# Rows that tell whether a predictor knows frames of a form.
NUM_TRIED = 5


@dataclass(frozen=True, eq=False)
class FramePredictor:
    """A fitted predictor and the form of the frames that it knows.

    Attributes:
        model: anything with ``predict``, or a function, from a frame of N rows to N or (N, J) values.
        form: of the frames.
        name: what it is called.
    """

    model: Any
    form: FrameForm
    name: str

    def predict(self, X: Any) -> Float[Array, "N J"]:
        """Its values at the rows of any frame with its columns.

        Raises:
            UserError: when columns are missing, or its values are not one, or one row of them, for each row, all finite.
        """
        ask = self.model.predict if hasattr(self.model, "predict") else self.model
        # XGBoost refuses categories that are new, where others take them for missing.
        inner = getattr(self.model, "estimator", self.model)
        library = inner.library if isinstance(inner, Booster) else booster_library(inner)
        frame = self.form.like(X, only_known=library == "xgboost")
        with warnings.catch_warnings():
            # Names are those of its fit: some libraries say so at every call.
            warnings.filterwarnings("ignore", message=".*feature.?names?.*")
            try:
                values = np.asarray(ask(frame), dtype=np.float64)
            except Exception as error:
                # Of any type: it is the user's own code, or that of any library.
                said = " ".join(str(error).split())[:300]
                raise UserError(f"{self.name} does not take these rows: {type(error).__name__}: {said}") from error
        values = values[:, None] if values.ndim == 1 else values
        num_rows = len(X) if isinstance(X, Table) else len(frame)
        if values.ndim != 2 or len(values) != num_rows:
            raise UserError(
                f"{self.name} must return one value, or one row of values, for each of the {num_rows} rows; got shape "
                f"{values.shape}."
            )
        bad = np.flatnonzero(~np.isfinite(values).all(1))
        if len(bad):
            raise UserError(f"{self.name} gives no finite number at {len(bad)} of {num_rows} rows, the first is row {bad[0]}.")
        return values


def fitted_predictor(model: Any, known: Any, X: Any, name: str) -> FramePredictor:
    """A predictor that was fitted elsewhere, with the form in which it takes frames like X.

    Args:
        model: whose values are asked for.
        known: the user's own object behind it, which may know the names of its columns.
        X: a frame.
        name: what it is called.

    Raises:
        UserError: with its own words, when it takes the frame in no form.
    """
    some = rows_of(X, np.arange(min(NUM_TRIED, len(X))))
    last: UserError | None = None
    for form in _forms(known, X):
        predictor = FramePredictor(model, form, name)
        try:
            predictor.predict(some)
        except UserError as error:
            last = error
        else:
            return predictor
    assert last is not None
    raise last


def _forms(known: Any, X: Any) -> Iterator[FrameForm]:
    """As X came, as pandas' frames, and these with text as categories; of the columns that the predictor names.

    Boosters know pandas' categories by their places, so that they get frames of pandas first.
    """
    names = _known_names(known)
    names = names if names is not None and set(names) <= set(frame_names(X)) else None
    forms = list(pandas_forms(X))
    as_it_came = FrameForm.of(X)
    if library_of(X) != "pandas":
        forms = [*forms, as_it_came] if booster_library(known) else [as_it_came, *forms]
    for form in forms:
        yield form if names is None else FrameForm(form.library, {name: form.columns[name] for name in names})


def _known_names(model: Any) -> Sequence[str] | None:
    """The columns that a model was fitted on, in their order; None where it does not say."""
    for attribute in ("feature_names_in_", "feature_names_", "feature_names", "feature_name"):
        found = getattr(model, attribute, None)
        found = found() if attribute == "feature_name" and callable(found) else found
        if found is not None and len(found) and all(isinstance(name, str) for name in found):
            return list(found)
    return None
