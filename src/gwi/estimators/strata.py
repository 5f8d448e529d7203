"""Strata as users bring them, one value a row or the name of a column, and what is said of strata that are new or rare."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray

from gwi._typing import Array
from gwi._validation import as_array, require_order
from gwi.exceptions import GWIWarning
from gwi.models.strata import LabelScores, Strata, needed_rows
from gwi.tables.frames import frame_table, is_frame
from gwi.tables.names import require_columns, some

WIDEST = "the widest interval or set of all strata, whose coverage is not guaranteed"


def stratum_values(X: Any, strata: Any, num_rows: int) -> NDArray[Any]:
    """One value for each row, from an array of them or the name of a column of a data frame.

    Raises:
        ValueError: when there is no such column, or not one value for each row.
    """
    if isinstance(strata, str):
        if not is_frame(X):
            raise ValueError(f"strata={strata!r} names a column, and the rows are not a data frame; pass one value for each row.")
        table = frame_table(X).data
        require_columns([strata], table.column_names, "X")
        values = np.empty(len(table), dtype=object)
        values[:] = table[strata].to_pylist()
    else:
        values = np.asarray(as_array(strata))
        # Dates and bytes as text, which files can hold.
        values = values.astype(str) if values.dtype.kind in "mMS" else values
    if values.shape != (num_rows,):
        raise ValueError(f"strata has one value for each of the {num_rows} rows; got the shape {values.shape}.")
    return values


def strata_to_learn(X: Any, strata: Any, num_rows: int) -> NDArray[Any]:
    """The same for rows of a fit, in which none is missing and all are of one kind.

    Raises:
        ValueError: when there is no such column, not one value for each row, or one is missing.
    """
    values = stratum_values(X, strata, num_rows)
    missing = np.array([value is None or value != value for value in values.tolist()], dtype=np.bool_)
    if missing.any():
        raise ValueError(
            f"strata is missing in {int(missing.sum())} rows, the first is {int(missing.argmax())}; fill these values in."
        )
    require_order("strata", values)
    return np.array(values.tolist()) if values.dtype == object else values


def places_of(strata: Strata | None, X: Any, given: Any, num_rows: int, coverage: float | None = None) -> Int[Array, " N"]:
    """The place of the stratum of each row to predict, −1 of those that the fit has not seen; a warning names these.

    With a coverage another names strata that have too few held-out rows for it.

    Raises:
        ValueError: when the fit had no strata, or they are not one for each row.
    """
    if strata is None:
        raise ValueError("The model was fitted without strata: pass them to fit(X, y, strata=...) as well.")
    values = stratum_values(X, given, num_rows)
    places = strata.places(values)
    new = places < 0
    if new.any():
        names = list(dict.fromkeys(str(value) for value in values[new].tolist()))
        said = f"{int(new.sum())} of {num_rows} rows are of strata that the fit has not seen ({some(names)}): they get {WIDEST}."
        warnings.warn(said, GWIWarning, stacklevel=3)
    if coverage is not None:
        _warn_of_rare(strata, places, coverage)
    return places


def _warn_of_rare(strata: Strata, places: Int[Array, " N"], coverage: float) -> None:
    """A warning that names the strata of these rows that have too few held-out rows for the coverage."""
    used, needed = np.unique(places[places >= 0]), needed_rows(coverage)
    # Scores of several targets are of the same rows.
    code = strata.code.reshape(-1, strata.code.shape[-1])[0]
    counts = np.bincount(code.cpu().numpy(), minlength=len(strata.labels))
    rare = [f"{strata.labels[s]} ({counts[s]})" for s in used if counts[s] < needed]
    if rare:
        warnings.warn(f"{_few(coverage)} strata {some(rare)}: their rows get {WIDEST}.", GWIWarning, stacklevel=4)


def warn_of_rare_classes(
    scores: LabelScores, classes: NDArray[Any], places: Int[Array, " N"] | None, coverage: float, by_class: bool
) -> None:
    """A warning that names what has too few held-out rows for the coverage: all rows, strata, or classes."""
    counts = scores.counts(len(classes), by_class=by_class, by_stratum=places is not None)
    needed = needed_rows(coverage)
    if by_class:
        strata: Sequence[Any] = [""] if places is None or scores.strata is None else [f" in {s}" for s in scores.strata.labels]
        used = np.array([0]) if places is None else np.unique(places[places >= 0])
        rare = [f"{classes[j]}{strata[s]} ({counts[s, j]})" for s in used for j in range(len(classes)) if counts[s, j] < needed]
        if rare:
            warnings.warn(f"{_few(coverage)} classes {some(rare)}: these are in every set.", GWIWarning, stacklevel=3)
    elif places is not None and scores.strata is not None:
        _warn_of_rare(scores.strata, places, coverage)
    elif counts[0, 0] < needed:
        warnings.warn(f"{_few(coverage)} the model ({counts[0, 0]}): every set holds all classes.", GWIWarning, stacklevel=3)


def _few(coverage: float) -> str:
    return f"A coverage of {coverage:.4g} needs {needed_rows(coverage)} held-out rows, more than there are for"
