"""What a report says of a regression only."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Float

from gwi._typing import Array
from gwi.core.laws.protocol import PredictiveLaw
from gwi.estimators.tables import Estimator
from gwi.evaluation.checks import Finding
from gwi.evaluation.diagnostics import diagnose
from gwi.evaluation.judged import Judged
from gwi.plots.calibration import Promises, coverage, coverage_by_prediction, draw_coverage, draw_coverage_by_prediction
from gwi.plots.counts import draw_rootogram, frequencies
from gwi.plots.errors import draw_actual_vs_predicted, draw_errors, errors, outside_interval
from gwi.plots.histograms import draw_pit, pit
from gwi.plots.numbers import shown
from gwi.plots.style import chance
from gwi.report.examined import Checked, Examined
from gwi.report.rendering import Cell, picture
from gwi.tables.transformer import Encoded

NUM_DIAGNOSED = 5_000
# A gap from which on `diagnose` makes a word of it, where rows are enough to tell.
LITTLE = 0.05
CELLS = {"predicted": True, "± std": True, "found": True, "95 % interval": False}


def check(estimator: Estimator, X: Float[Array, "N D"], judged: Judged) -> Checked:
    """Look for the ways in which uncertainty is silently wrong."""
    assert judged.std is not None
    order = np.sort(np.random.default_rng(0).permutation(len(X))[:NUM_DIAGNOSED])
    diagnosis = diagnose(estimator, Encoded(X[order]), judged.y[order])
    num_checks = sum(value == value for _, value in diagnosis.measures)
    return Checked(diagnosis.findings, num_checks, judged.std, np.abs(judged.y - judged.first) / judged.std)


def law_of(found: Examined) -> PredictiveLaw:
    """What was predicted."""
    assert found.judged.law is not None
    return found.judged.law


def verdict(finding: Finding | None, levels: Promises) -> tuple[str, str]:
    """What intervals are, and whether that is good, "bad" or neither: the one judgement that all of the page repeats.

    Args:
        finding: that intervals are wrong, if `diagnose` found so.
        levels: shares of targets in intervals of each level, the last of 95 %.
    """
    if finding is not None:
        return f"too {'wide' if finding.value > 0 else 'narrow'}", "bad"
    last_is_kept = levels.low[-1] - 1e-12 <= levels.found[-1] <= levels.high[-1] + 1e-12
    if last_is_kept and levels.num_kept >= 0.85 * len(levels.found):
        return "as promised", "good"
    gap = levels.worst_gap if last_is_kept else levels.found[-1] - levels.promised[-1]
    return f"{'a little' if abs(gap) < LITTLE else 'perhaps'} too {'wide' if gap > 0 else 'narrow'}", ""


def details(found: Examined) -> dict[str, Any]:
    """Numbers and pictures for the template."""
    law, y = law_of(found), found.judged.y
    is_count = found.estimator._kind == "counts"
    levels, bins = coverage(law, y), pit(law, y)
    (medians, std), (by_prediction, middle) = errors(law, y), coverage_by_prediction(law, y)
    off = next((finding for finding in found.checked.findings if finding.kind == "miscalibrated"), None)
    said, mood = verdict(off, levels)
    spread = float(y.std())
    squared = float(np.square(y - found.judged.first).mean())
    return {
        "said": said,
        # Of counts an end of an interval is one by lot, as everywhere on the page.
        "covered": float(levels.found[-1]) if law.is_discrete else found.scores["coverage_95"],
        "is_discrete": law.is_discrete,
        "is_count": is_count,
        "said_mood": mood,
        "off": off,
        "by_chance": chance(len(y), 0.95),
        "spread": spread,
        "ratio": math.sqrt(squared) / spread if spread > 0 else None,
        "explained": 1 - squared / spread**2 if spread > 0 else None,
        "levels": levels,
        "bins": bins,
        "bins_shape": _shape(bins),
        "grows": bool(medians.found[-1] > medians.found[0]) if len(std) > 1 else None,
        "by_prediction": by_prediction,
        "num_outside": int(outside_interval(law, y).sum()),
        "noise_std": _noise_std(found.estimator),
        "pictures": {
            "calibration": picture("calibration", lambda ax: draw_coverage(ax, levels)),
            "pit": picture("pit", lambda ax: draw_pit(ax, bins, len(y))),
            "errors": picture("errors", lambda ax: draw_errors(ax, law, y, medians, std)),
            "by_prediction": picture("by-prediction", lambda ax: draw_coverage_by_prediction(ax, by_prediction, middle)),
            "predicted": picture("predicted", lambda ax: draw_actual_vs_predicted(ax, law, y)),
            "rootogram": picture("rootogram", lambda ax: draw_rootogram(ax, frequencies(law, y))) if is_count else None,
        },
    }


def _noise_std(estimator: Any) -> float | None:
    """Of Gaussian noise, or Student's; None of likelihoods that have other noise."""
    if not estimator.summary_.degrees_of_freedom:
        return None
    model = estimator.model_
    return math.exp(float(model.noises[0].log_level.detach()) / 2) * float(model.scales.y_scale[0])


def _shape(bins: Promises) -> str:
    """Even, uneven, or where there are too many rows: at both ends or in the middle."""
    ends, middle = bins.found[[0, -1]], bins.found[3:7].mean()
    if bins.num_kept >= len(bins.found) - 1:
        return "even"
    if ends.mean() > 1.3 * middle and ends.min() > bins.high[0]:
        return "ends"
    return "middle" if middle > 1.3 * ends.mean() and ends.max() < bins.low[0] else "uneven"


def cells(found: Examined, row: int) -> list[str | Cell]:
    """Of one row, under the names of `CELLS`."""
    law, y = law_of(found), found.judged.y
    outside = bool(outside_interval(law, y)[row])
    assert found.judged.std is not None
    numbers = [shown(float(values[row])) for values in (found.judged.first, found.judged.std, y)]
    return [*numbers, Cell("outside", mood="bad") if outside else Cell("inside", mood="good")]
