"""A fitted estimator as an ONNX file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gwi.exceptions import UnexportableError, UserError
from gwi.models.classification import ClassificationModel
from gwi.models.linked import LinkedModel
from gwi.models.regression import RegressionModel
from gwi.onnx.classification import class_outputs
from gwi.onnx.graph import Graph, Value
from gwi.onnx.numbers import linked_outputs, regression_outputs
from gwi.onnx.rows import encoded, known_rows, require_numbers
from gwi.tables.files import is_taken, write_atomically

# The name of the one input, and of its axis of rows.
INPUT, ROWS = "X", "rows"
LEVELS = (0.025, 0.5, 0.975)
# Outputs with one number a row whatever the targets; and those with one a class.
OF_ROWS = ("outlier_score", "outlier_score_with_energy")


def export(estimator: Any, path: str | os.PathLike[str], levels: Sequence[float] = LEVELS, *, overwrite: bool = False) -> Path:
    """Write a fitted estimator as an ONNX file; its path.

    Args:
        estimator: fitted.
        path: of the file.
        levels: of the quantiles; none for a file without them.
        overwrite: whether a file that is there already is replaced.

    Raises:
        FileExistsError: when there is such a file and `overwrite` is False.
        UnexportableError: naming a part that has no form in ONNX.
    """
    levels = tuple(float(level) for level in levels)
    if not all(0 < level < 1 for level in levels):
        raise UserError(f"levels must be strictly between 0 and 1; got {levels}.")
    if not overwrite and is_taken(path):
        raise FileExistsError(f"{path} exists already; choose another name, or pass overwrite=True to replace it.")
    return write_atomically(path, content(estimator, levels))


def content(estimator: Any, levels: Sequence[float] = LEVELS) -> bytes:
    """The bytes of the file.

    Raises:
        UnexportableError: naming a part that has no form in ONNX.
    """
    model, encoder = estimator.model_, getattr(estimator, "encoder_", None)
    if estimator.frame_predictors_:
        names = ", ".join(predictor.name for predictor in estimator.frame_predictors_)
        raise UnexportableError(f"A mean that sees data frames ({names}) cannot be exported to ONNX; give it arrays of numbers.")
    if type(model) not in _WRITERS:
        raise UnexportableError(f"A model of type {type(model).__name__} cannot be exported to ONNX.")
    write, num_targets = _WRITERS[type(model)][0], _WRITERS[type(model)][1](model)
    g = Graph()
    if encoder is None:
        rows, declared = g.input(INPUT, [ROWS, *model.embedding.shape])
    else:
        require_numbers(encoder.encoder_)
        cells, declared = g.input(INPUT, [ROWS, len(encoder.encoder_.columns)])
        rows = encoded(g, encoder.encoder_, cells)
    found = write(g, model, known_rows(g, model.embedding, rows), levels)
    sizes = {"quantiles": [len(levels)], "probabilities": [_num_labels(model)]}
    each: list[int | str] = [ROWS, num_targets] if num_targets > 1 else [ROWS]
    outputs = {name: (value, [*([ROWS] if name in OF_ROWS else each), *sizes.get(name, [])]) for name, value in found.items()}
    return g.model([declared], outputs, _notes(estimator, levels if "quantiles" in found else ()))


def _classes(g: Graph, model: ClassificationModel, x: Value, levels: Sequence[float]) -> dict[str, Value]:
    return class_outputs(g, model, x)


# Of each kind of model what writes it, and how many targets there are.
_WRITERS: dict[type, tuple[Callable[[Graph, Any, Value, Sequence[float]], dict[str, Value]], Callable[[Any], int]]] = {
    RegressionModel: (regression_outputs, lambda model: len(model.noises)),
    LinkedModel: (linked_outputs, lambda model: 1),
    ClassificationModel: (_classes, lambda model: 1),
}


def _num_labels(model: Any) -> int:
    """Classes, or values of a target that has few."""
    return len(getattr(model, "classes", ())) or model.num_levels


def _notes(estimator: Any, levels: Sequence[float]) -> dict[str, str]:
    """What a reader of the file may want to know."""
    from gwi import __version__

    encoder, targets = getattr(estimator, "encoder_", None), estimator._targets
    columns = encoder.encoder_.inputs if encoder is not None else list(getattr(estimator, "feature_names_in_", ()))
    labels = getattr(targets, "classes", getattr(targets, "levels", None))
    notes = {"gwi": __version__, "task": estimator.task, "likelihood": str(estimator.summary_.likelihood)}
    notes |= {"levels": json.dumps(list(levels))} if levels else {}
    notes |= {"columns": json.dumps([str(name) for name in columns])} if columns else {}
    return notes | ({} if labels is None else {"labels": json.dumps(np.asarray(labels).tolist(), default=str)})
