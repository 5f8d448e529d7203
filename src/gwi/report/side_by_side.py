"""Estimators of the user's own side by side: scikit-learn's interface, same folds, same scores."""

from __future__ import annotations

import copy
import inspect
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from numbers import Integral
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, KFold, StratifiedGroupKFold, StratifiedKFold
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from gwi._extras import require
from gwi._progress import progress
from gwi._typing import Array
from gwi._validation import as_array
from gwi.core.laws.gaussian import Law
from gwi.estimators.table_targets import TaskName
from gwi.evaluation.regression import score
from gwi.report.comparison import METRICS, Compared, Comparison, score_labels
from gwi.tables.forms import rows_of
from gwi.tables.frames import is_frame

TASKS: dict[str, TaskName] = {"regressor": "regression", "classifier": "classification"}
POINTS = "predicts points only: its CRPS is the mean absolute error, and it has no other scores of uncertainty"
LABELS_ONLY = "predicts labels without probabilities"
NORMAL = "normal, with the standard deviation that predict(return_std=True) gives"
LONGEST_ERROR = 120


def compare(
    estimators: Any,
    X: Any,
    y: Any,
    *,
    cv: Any = 5,
    groups: Any = None,
    random_state: int = 0,
    verbose: bool = False,
) -> Comparison:
    """Fit and score estimators on the same folds; differences to the first are paired.

    What is scored is what an estimator says: the predictive distribution of ours, a normal one of those whose ``predict`` takes
    ``return_std``, points of all others; probabilities of classes where there are some. One that fails at a fold has no scores
    there, and the note says why.

    Args:
        estimators: regressors, or classifiers, by name; none is changed. A ``random_state`` of None becomes that below.
        X: rows, an array or a data frame.
        y: one number or label for each.
        cv: a number of folds, a splitter of scikit-learn's, or a list of pairs of row numbers. Of a number the folds are at
            random, of each class as many rows in each.
        groups: of each row; rows of a group are in one fold.
        random_state: seed of folds and estimators.
        verbose: whether progress is shown.

    Returns:
        A record that prints as a table; `Comparison.save` writes it as a page.

    Raises:
        ValueError: for what cannot be compared, in one sentence.

    Examples:
        >>> from sklearn.datasets import load_diabetes
        >>> from sklearn.linear_model import BayesianRidge
        >>> import gwi
        >>> X, y = load_diabetes(return_X_y=True)
        >>> found = gwi.compare({"gwi": gwi.GWIRegressor("linear"), "ridge": BayesianRidge()}, X[:60], y[:60], cv=2)
        >>> [method.name for method in found.methods]
        ['gwi', 'ridge']
    """
    # What shows the comparison, before the minutes that it takes.
    require("report", "compare")
    names, task = _checked(estimators)
    targets, num_rows = np.asarray(as_array(y)), len(y)
    if targets.ndim != 1 or targets.dtype.names is not None or not num_rows or _length(X) != num_rows:
        raise ValueError(f"compare needs one target for each row; got {_length(X)} rows and targets of shape {targets.shape}.")
    targets = READ[task](targets)
    folds = _folds(cv, targets, groups, task, random_state)
    scores = {name: {metric: np.full(len(folds), np.nan) for metric in METRICS[task]} for name in names}
    notes = dict.fromkeys(names, "")
    with progress(verbose) as report:
        for k, (train, test) in enumerate(folds):
            for i, name in enumerate(names):
                report("folds", (k + i / len(names)) / len(folds))
                found, said = _run(_fresh(estimators[name], random_state), task, (X, targets), train, test)
                notes[name] = said if not notes[name] or said.startswith("failed") else notes[name]
                for metric, value in found.items():
                    scores[name][metric][k] = value
    target = getattr(y, "name", None)
    compared = tuple(Compared(name, _described(estimators[name], notes[name]), scores[name]) for name in names)
    return Comparison(task, str(target) if target is not None else "y", num_rows, len(folds), compared)


def _checked(estimators: Any) -> tuple[list[str], TaskName]:
    """Names, and what all of them predict."""
    if not isinstance(estimators, Mapping) or not estimators:
        kind = type(estimators).__name__
        raise ValueError(f"compare takes estimators by name, such as {{'ours': GWIRegressor()}}; got {kind}.")
    kinds = {}
    for name, estimator in estimators.items():
        learns = hasattr(estimator, "fit") and hasattr(estimator, "predict") and not inspect.isclass(estimator)
        if not isinstance(name, str) or not learns:
            raise ValueError(f"An estimator has a name, and fit and predict; {name!r} is {estimator!r:.60}.")
        kinds[name] = _kind(estimator)
    told = {kind: name for name, kind in kinds.items() if kind is not None}
    if len(told) != 1:
        first = " and ".join(f"{name!r} a {kind}" for kind, name in told.items())
        raise ValueError(
            f"All must be regressors, or all classifiers; got {first}."
            if told
            else "None says whether it is a regressor or a classifier; one at least must, as scikit-learn's estimators do."
        )
    return list(estimators), TASKS[next(iter(told))]


def _kind(estimator: Any) -> str | None:
    """A key of `TASKS`, where it says so."""
    try:
        kind = get_tags(estimator).estimator_type
    except (AttributeError, TypeError, ValueError):
        kind = getattr(estimator, "_estimator_type", None)
    return kind if kind in TASKS else None


def _length(X: Any) -> int:
    shape = getattr(X, "shape", None)
    return int(shape[0]) if shape else len(X)


def _numbers(targets: NDArray[Any]) -> Array:
    try:
        values = targets.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"Targets of regressors are numbers; got {targets.dtype}.") from None
    if not np.isfinite(values).all():
        raise ValueError(f"{int((~np.isfinite(values)).sum())} targets are missing or infinite; leave these rows out.")
    return values


def _folds(
    cv: Any, y: NDArray[Any], groups: Any, task: TaskName, seed: int
) -> list[tuple[Int[NDArray[Any], " n"], Int[NDArray[Any], " m"]]]:
    """Rows to fit and rows to score of each fold."""
    groups = None if groups is None else np.asarray(as_array(groups))
    if groups is not None and groups.shape != (len(y),):
        raise ValueError(f"groups has one value for each of the {len(y)} rows; got the shape {groups.shape}.")
    wanted = f"cv must be a number of folds from 2 to {len(y)}, a splitter, or pairs of row numbers; got {cv!r:.60}."
    if isinstance(cv, Integral):
        count = int(cv)
        if not 2 <= count <= len(y):
            raise ValueError(wanted)
        cv = SPLITTERS[task, groups is not None](count, seed)
    if not hasattr(cv, "split") and not isinstance(cv, Iterable):
        raise ValueError(wanted)
    pairs = list(cv.split(np.zeros((len(y), 1)), y, groups) if hasattr(cv, "split") else cv)
    folds = [(np.asarray(train), np.asarray(test)) for train, test in pairs]
    if len(folds) < 2:
        raise ValueError(f"A comparison needs at least two folds, for standard errors; got {len(folds)}.")
    return folds


SPLITTERS: dict[tuple[TaskName, bool], Callable[[int, int], Any]] = {
    ("regression", False): lambda k, seed: KFold(k, shuffle=True, random_state=seed),
    ("regression", True): lambda k, seed: GroupKFold(k),
    ("classification", False): lambda k, seed: StratifiedKFold(k, shuffle=True, random_state=seed),
    ("classification", True): lambda k, seed: StratifiedGroupKFold(k, shuffle=True, random_state=seed),
}


def _some(X: Any, rows: NDArray[Any]) -> Any:
    if is_frame(X):
        return rows_of(X, np.flatnonzero(rows) if rows.dtype == np.bool_ else rows)
    return (X if hasattr(X, "shape") else np.asarray(X))[rows]


def _fresh(estimator: Any, seed: int) -> Any:
    """A copy that is not fitted, with a seed where it has none."""
    if not hasattr(estimator, "get_params"):
        return copy.deepcopy(estimator)
    fresh = clone(estimator)
    options = fresh.get_params().items()
    open_seeds = {name: seed for name, value in options if name.split("__")[-1] == "random_state" and value is None}
    return fresh.set_params(**open_seeds)


def _run(
    estimator: Any, task: TaskName, data: tuple[Any, NDArray[Any]], train: NDArray[Any], test: NDArray[Any]
) -> tuple[dict[str, float], str]:
    """Scores of one fold, and what is to be said of the method."""
    X, y = data
    rows, unseen = _some(X, train), _some(X, test)
    start = time.perf_counter()
    try:
        estimator.fit(rows, y[train])
        values, note = SAID[task](estimator, unseen, y[test])
    except Exception as error:
        # Of any type: it is the user's own code, or that of any library.
        said = " ".join(str(error).split())
        return {}, f"failed: {type(error).__name__}: {said[:LONGEST_ERROR]}"
    return {metric: values[metric] for metric in METRICS[task] if metric in values} | {"seconds": values["at"] - start}, note


def _said_of_numbers(estimator: Any, X: Any, y: Float[Array, " n"]) -> tuple[dict[str, float], str]:
    """Scores of a distribution, or of points, and the time when it was there."""
    if hasattr(estimator, "predict_dist"):
        law, note = estimator.predict_dist(X).laws[0], ""
    else:
        model, rows = _last_step(estimator, X)
        if "return_std" not in inspect.signature(model.predict).parameters:
            mean, at = np.asarray(as_array(estimator.predict(X)), dtype=np.float64).reshape(len(y), -1)[:, 0], time.perf_counter()
            return {"rmse": float(np.sqrt(np.square(y - mean).mean())), "crps": float(np.abs(y - mean).mean()), "at": at}, POINTS
        if hasattr(model, "predict_dist"):
            law, note = model.predict_dist(rows).laws[0], ""
        else:
            mean, std = (np.asarray(part, dtype=np.float64).reshape(-1) for part in model.predict(rows, return_std=True))
            law, note = Law(mean[None], np.maximum(std, np.finfo(np.float64).tiny ** 0.5)[None]), NORMAL
    law.quantile(0.5)
    at = time.perf_counter()
    return asdict(score(law, y)) | {"at": at}, note


def _said_of_labels(estimator: Any, X: Any, y: NDArray[Any]) -> tuple[dict[str, float], str]:
    """Scores of probabilities, or of labels."""
    probabilities = getattr(estimator, "predict_proba", None)
    if probabilities is None:
        hit: Bool[NDArray[Any], " n"] = np.asarray(estimator.predict(X)).reshape(-1) == y
        return {"accuracy": float(hit.mean()), "at": time.perf_counter()}, LABELS_ONLY
    predicted = np.asarray(as_array(probabilities(X)), dtype=np.float64)
    at = time.perf_counter()
    return asdict(score_labels((predicted, np.asarray(estimator.classes_)), y)) | {"at": at}, ""


READ: dict[TaskName, Callable[[NDArray[Any]], NDArray[Any]]] = {"regression": _numbers, "classification": lambda labels: labels}
SAID: dict[TaskName, Callable[[Any, Any, Any], tuple[dict[str, float], str]]] = {
    "regression": _said_of_numbers,
    "classification": _said_of_labels,
}


def _last_step(estimator: Any, X: Any) -> tuple[Any, Any]:
    """What predicts inside searches and pipelines, and the rows that it sees."""
    while True:
        if hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        elif isinstance(estimator, Pipeline):
            X = estimator[:-1].transform(X) if len(estimator) > 1 else X
            estimator = estimator[-1]
        else:
            return estimator, X


def _described(estimator: Any, note: str) -> str:
    text = " ".join(repr(estimator).split())
    text = text if len(text) <= LONGEST_ERROR else f"{text[: LONGEST_ERROR - 1]}…"
    return f"{text}; {note}" if note else text
