"""What a report says of levels in order only."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from gwi._typing import Array
from gwi.estimators.answers import level_names
from gwi.estimators.tables import Estimator
from gwi.evaluation.classification import entropy
from gwi.evaluation.diagnostics import diagnose
from gwi.evaluation.judged import Judged
from gwi.evaluation.levels import ranked_probability_score
from gwi.plots.histograms import draw_confidence
from gwi.plots.levels import draw_level_reliability, level_reliability
from gwi.plots.numbers import percent
from gwi.report.classification import confusions
from gwi.report.examined import Checked, Examined
from gwi.report.rendering import Cell, picture, short
from gwi.tables.transformer import Encoded

NUM_DIAGNOSED = 5_000
CELLS = {"predicted": False, "probability": True, "found": False, "its probability": True, "": False}


def check(estimator: Estimator, X: Float[Array, "N D"], judged: Judged) -> Checked:
    """Look for the ways in which uncertainty is silently wrong."""
    order = np.sort(np.random.default_rng(0).permutation(len(X))[:NUM_DIAGNOSED])
    values = estimator.model_.level_values[judged.y[order]]  # type: ignore[union-attr]
    diagnosis = diagnose(estimator, Encoded(X[order]), values)
    num_checks = sum(value == value for _, value in diagnosis.measures)
    surprise = 1 - judged.first[np.arange(len(X)), judged.y]
    return Checked(diagnosis.findings, num_checks, entropy(judged.first), surprise)


def names_of(found: Examined) -> list[str]:
    """Of the levels, the lowest first."""
    estimator: Any = found.estimator
    names = level_names(estimator.model_, estimator._targets.levels)
    return [f"{name:g}" if isinstance(name, float) else str(name) for name in names.tolist()]


def details(found: Examined) -> dict[str, Any]:
    """Numbers and pictures for the template."""
    probabilities, y, names = found.judged.first, found.judged.y, names_of(found)
    hit, confidence = probabilities.argmax(1) == y, probabilities.max(1)
    groups, _ = level_reliability(probabilities, y)
    shares = np.bincount(y, minlength=len(names)) / len(y)
    return {
        "levels": names,
        "confidence": float(confidence.mean()),
        "num_wrong": int((~hit).sum()),
        "beside": float((np.abs(probabilities.argmax(1) - y) <= 1).mean()),
        "commonest": float(shares.max()),
        "guess_rps": ranked_probability_score(y, np.tile(shares, (len(y), 1))),
        "guess_nll": float(entropy(shares[None])[0]),
        "groups": groups,
        **confusions(probabilities, y, np.array(names)),
        "pictures": {
            "reliability": picture("reliability", lambda ax: draw_level_reliability(ax, groups)),
            "confidence": picture("confidence", lambda ax: draw_confidence(ax, confidence, hit)),
        },
    }


def cells(found: Examined, row: int) -> list[str | Cell]:
    """Of one row, under the names of `CELLS`."""
    probabilities, y, names = found.judged.first[row], int(found.judged.y[row]), names_of(found)
    best = int(probabilities.argmax())
    off = abs(best - y)
    mark = Cell(f"{off} level{'s' * (off > 1)} off", mood="bad") if off else Cell("right", mood="good")
    return [*(text for j in (best, y) for text in (short(names[j]), percent(float(probabilities[j]), 1))), mark]
