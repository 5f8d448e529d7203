"""What a report says of times to an event only."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from gwi._typing import Array
from gwi.estimators.tables import Estimator
from gwi.evaluation.diagnostics import diagnose
from gwi.evaluation.judged import Judged
from gwi.evaluation.survival import inner_times, integrated_brier, kaplan_meier
from gwi.evaluation.survival_calibration import calibration_at
from gwi.evaluation.times import JoinedLaws
from gwi.plots.histograms import draw_pit
from gwi.plots.numbers import shown
from gwi.plots.survival import (
    calibration_times,
    draw_group_curves,
    draw_survival_calibration,
    group_curves,
    pit_of_times,
    time_axis,
)
from gwi.report.examined import Checked, Examined
from gwi.report.rendering import Cell, picture
from gwi.tables.transformer import Encoded

NUM_DIAGNOSED = 5_000
CELLS = {"predicted median": True, "95 % interval": False, "found": True, "event": False, "": False}


def check(estimator: Estimator, X: Float[Array, "N D"], judged: Judged) -> Checked:
    """Look for the ways in which uncertainty is silently wrong."""
    order = np.sort(np.random.default_rng(0).permutation(len(X))[:NUM_DIAGNOSED])
    diagnosis = diagnose(estimator, Encoded(X[order]), judged.y[order])
    num_checks = sum(value == value for _, value in diagnosis.measures)
    low, high = (judged.law.quantile(level) for level in (0.025, 0.975))
    are_positive = bool((low > 0).all())
    places = JoinedLaws((judged.law,)).places(judged.y)
    is_event = judged.y[:, 0] == judged.y[:, 1]
    # An event is a surprise when it comes early or late, a row without one when it should long have had it.
    surprise = np.where(is_event, np.abs(2 * places[:, 0] - 1), places[:, 0])
    return Checked(diagnosis.findings, num_checks, np.log(high / low) if are_positive else high - low, surprise)


def details(found: Examined) -> dict[str, Any]:
    """Numbers and pictures for the template."""
    law, bounds = found.judged.law, found.judged.y
    is_event = bounds[:, 0] == bounds[:, 1]
    times = inner_times(bounds)
    overall = np.tile(kaplan_meier(bounds).at(times), (len(bounds), 1))
    axis = time_axis(law, False, float(bounds[:, 0].max()))
    groups = group_curves(law, bounds, axis)
    bins, p_value = pit_of_times(law, bounds)
    off = next((finding for finding in found.checked.findings if finding.kind == "miscalibrated"), None)
    at = calibration_times(bounds) if is_event.any() else times[:1]
    calibration = calibration_at(bounds, JoinedLaws((law,)), at)
    return {
        "num_events": int(is_event.sum()),
        "off": off,
        "p_value": p_value,
        "guess_brier": integrated_brier(bounds, overall, times),
        "bins": bins,
        "num_groups": len(groups),
        "at": [shown(float(t), 3) for t in at],
        "likelihood": found.estimator.summary_.likelihood,
        "pictures": {
            "survival": picture("survival", lambda ax: draw_group_curves(ax, axis, groups)),
            "calibration": picture("calibration", lambda ax: draw_survival_calibration(ax, calibration)),
            "pit": picture("pit", lambda ax: draw_pit(ax, bins, len(bounds))),
        },
    }


def cells(found: Examined, row: int) -> list[str | Cell]:
    """Of one row, under the names of `CELLS`."""
    law, (low, high) = found.judged.law.rows([row]), found.judged.y[row]
    ends = [float(law.quantile(level)[0]) for level in (0.025, 0.975)]
    is_event = low == high
    outside = low > ends[1] or (is_event and low < ends[0])
    mark = Cell("outside", mood="bad") if outside else Cell("inside", mood="good") if is_event else ""
    interval = f"{shown(ends[0], 3)} to {shown(ends[1], 3)}"
    return [shown(float(found.judged.first[row])), interval, shown(float(low)), "yes" if is_event else "not so far", mark]
