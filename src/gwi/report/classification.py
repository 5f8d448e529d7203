"""What a report says of a classification only."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from sklearn.metrics import confusion_matrix

from gwi._typing import Array
from gwi.estimators.tables import Estimator
from gwi.evaluation.checks import found
from gwi.evaluation.classification import entropy
from gwi.evaluation.diagnostics import far_from_training
from gwi.evaluation.judged import Judged
from gwi.evaluation.levels import class_checks as class_checks
from gwi.plots.calibration import draw_reliability, reliability
from gwi.plots.histograms import draw_confidence
from gwi.plots.numbers import percent
from gwi.report.examined import Checked, Examined
from gwi.report.rendering import Cell, picture, short

NUM_DIAGNOSED = 5_000
# Classes with a full table of confusions, and mistakes that are listed where there are more classes.
MOST_CLASSES, MOST_MISTAKES = 12, 15
CELLS = {"predicted": False, "probability": True, "found": False, "its probability": True, "": False}


def check(estimator: Estimator, X: Float[Array, "N D"], judged: Judged) -> Checked:
    """Are probabilities right on average, for all classes and for each, and are the rows like the training rows?"""
    model: Any = estimator.model_
    rows = torch.cat(list(model.rows(X[np.random.default_rng(0).permutation(len(X))[:NUM_DIAGNOSED]])))
    # Inducing points stand for the training rows.
    far = far_from_training(rows, model.posterior.kernel.inducing_points.detach())
    checks = (*class_checks(judged.first, judged.y, model.classes), far)
    surprise = 1 - judged.first[np.arange(len(X)), judged.y]
    return Checked(found(checks), sum(c.value == c.value for c in checks), entropy(judged.first), surprise)


def details(found: Examined) -> dict[str, Any]:
    """Numbers and pictures for the template."""
    probabilities, y, classes = found.judged.first, found.judged.y, found.estimator.classes_
    confidence = probabilities.max(1)
    hit = probabilities.argmax(1) == y
    groups, _ = reliability(confidence, hit)
    shares = np.bincount(y) / len(y)
    return {
        "classes": classes.tolist(),
        "confidence": float(confidence.mean()),
        "confidence_right": float(confidence[hit].mean()) if hit.any() else np.nan,
        "confidence_wrong": float(confidence[~hit].mean()) if not hit.all() else np.nan,
        "num_wrong": int((~hit).sum()),
        "share_sure": float((confidence > 0.9).mean()),
        "commonest": float(shares.max()),
        "guess_nll": float(entropy(shares[None])[0]),
        "groups": groups,
        **confusions(probabilities, y, classes),
        "pictures": {
            "reliability": picture("reliability", lambda ax: draw_reliability(ax, groups)),
            "confidence": picture("confidence", lambda ax: draw_confidence(ax, confidence, hit)),
        },
    }


def confusions(probabilities: Float[Array, "N J"], y: NDArray[Any], classes: NDArray[Any]) -> dict[str, Any]:
    """What is taken for what, and counts of each class."""
    confusion = confusion_matrix(y, probabilities.argmax(1), labels=range(len(classes)))
    # Rows, rows expected, rows predicted right and rows predicted, of each class.
    of_classes = (confusion.sum(1), probabilities.sum(0), confusion.diagonal(), confusion.sum(0))
    mistakes = [(short(classes[i]), short(classes[j]), int(confusion[i, j])) for i, j in np.argwhere(confusion) if i != j]
    order = np.argsort(-confusion.sum(1), kind="stable")[: 2 * MOST_CLASSES]
    return {
        "confusion": confusion.tolist() if len(classes) <= MOST_CLASSES else None,
        "mistakes": sorted(mistakes, key=lambda mistake: -mistake[2])[:MOST_MISTAKES],
        "each_class": [(classes[j], *(float(values[j]) for values in of_classes)) for j in order],
    }


def cells(found: Examined, row: int) -> list[str | Cell]:
    """Of one row, under the names of `CELLS`."""
    probabilities, y, classes = found.judged.first[row], int(found.judged.y[row]), found.estimator.classes_
    best = int(probabilities.argmax())
    mark = Cell("right", mood="good") if best == y else Cell("wrong", mood="bad")
    return [*(text for j in (best, y) for text in (short(classes[j]), percent(float(probabilities[j]), 1))), mark]
