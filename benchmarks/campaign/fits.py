"""Fits of hostile tables, and what is asked of them: finite predictions and spreads, or one sentence that says why not."""

from __future__ import annotations

import linecache
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import sklearn

import gwi
from benchmarks.campaign.hostile_tables import Case
from benchmarks.campaign.model_files import judged

FINE = ("answered", "refused", "refused_later")
FAULTS = ("not_finite", "negative", "crossed", "no_share", "no_label", "unclear", "in_vain")
# Of a sentence.
FEWEST_LETTERS, MOST_LETTERS = 10, 1000
OUR_FOLDER, USUAL_FOLDER = Path(gwi.__file__).parent, Path(sklearn.__file__).parent
CHECKING_FOLDERS = USUAL_FOLDER, USUAL_FOLDER.with_name("narwhals")


def tried(model: Any, case: Case) -> str:
    """The outcome of a fit, and of predictions at its rows and far from them."""
    try:
        model.fit(case.x, case.y, **case.given)
    except (ValueError, TypeError, ArithmeticError) as error:
        return f"refused: {_one_line(error)}" if is_clear(error) else f"unclear: {_where(error)} {_one_line(error)}"
    rows = np.atleast_2d(case.rows)
    rows = rows[:, :1] if model.n_features_in_ == 1 else rows
    if rows.shape[1] != model.n_features_in_ or not np.isfinite(rows).all():
        rows = np.zeros((2, model.n_features_in_))
    try:
        found = judged(model, rows)
    except ValueError as error:
        # Conformal intervals may need more rows than there are; but no number should overflow where it was fitted.
        later = is_clear(error) and "not finite" not in str(error)
        return f"{'refused_later' if later else 'in_vain'}: {_one_line(error)}"
    if found != "answered":
        return found
    if model.task == "classification":
        brought = {str(label) for label in np.asarray(model.classes_).tolist()}
        if not {str(label) for label in model.predict(rows).tolist()} <= brought:
            return "no_label"
    with np.errstate(all="ignore"):
        far = np.nan_to_num(rows.mean(0) + 100 * np.ptp(rows, axis=0) * np.array([[1.0], [-1.0]]))
    try:
        return judged(model, far)
    except ValueError as error:
        return f"refused_later: {_one_line(error)}" if is_clear(error) else f"unclear: {_where(error)} {_one_line(error)}"


def is_clear(error: BaseException) -> bool:
    """Whether an error was raised on purpose, by us or by scikit-learn's checks of what a user brings, and can be read."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    path, said = Path(last.filename), str(error).replace("\n", " ")
    on_purpose = linecache.getline(last.filename, last.lineno or 0).lstrip().startswith("raise ")
    if not said.isprintable() or len(said) < FEWEST_LETTERS or "Traceback" in said:
        return False
    if path.is_relative_to(OUR_FOLDER):
        return on_purpose and len(said) <= MOST_LETTERS
    # scikit-learn leaves it to NumPy to say that a word is no number, and to narwhals that columns have one name.
    return path.is_relative_to(USUAL_FOLDER / "utils") or (on_purpose and any(path.is_relative_to(f) for f in CHECKING_FOLDERS))


def _where(error: BaseException) -> str:
    """Where an error came from."""
    places = traceback.extract_tb(error.__traceback__)
    inside = [place for place in places if Path(place.filename).is_relative_to(OUR_FOLDER)]
    place = (inside or places)[-1]
    return f"{type(error).__name__} at {Path(place.filename).name}:{place.lineno}"


def _one_line(error: BaseException) -> str:
    said = " ".join(str(error).split())
    return said if said.isprintable() else repr(said)
