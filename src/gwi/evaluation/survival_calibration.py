"""Whether predicted times to an event are right on average, in groups of rows and over their distributions.

Targets and predictions are those of `gwi.evaluation.survival`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from scipy.stats import chi2

from gwi._typing import Array
from gwi.core.outcomes import as_bounds
from gwi.evaluation.survival import events_and_times, kaplan_meier
from gwi.evaluation.survival_inputs import as_survival, as_times


@dataclass(frozen=True)
class SurvivalCalibration:
    """Predicted survival beside Kaplan and Meier's, at some times in groups of rows.

    Attributes:
        times: that were asked for.
        predicted: the mean probability of no event up to each time, in each group.
        found: Kaplan and Meier's estimate of it.
        std: its standard error.
        num_rows: of each group.

    Examples:
        >>> import numpy as np
        >>> from gwi.evaluation.survival_calibration import calibration_at
        >>> y = np.array([(True, t) for t in range(1, 41)], dtype=[("event", bool), ("time", float)])
        >>> found = calibration_at(y, np.full((40, 1), 0.5), [20.0], num_groups=2)
        >>> found.predicted.tolist(), found.found.shape
        ([[0.5, 0.5]], (1, 2))
    """

    times: Float[Array, " T"]
    predicted: Float[Array, "T G"]
    found: Float[Array, "T G"]
    std: Float[Array, "T G"]
    num_rows: Float[Array, " G"]


@dataclass(frozen=True)
class DCalibration:
    """Whether targets lie evenly over their predicted distributions (Haider et al., 2020).

    Attributes:
        shares: of rows in bins of the predicted probability of an earlier event; equal ones are right.
        statistic: Pearson's χ².
        p_value: the probability of one as large by chance: small where predictions are off.
        num_rows: N.

    Examples:
        >>> import numpy as np
        >>> from gwi.evaluation.survival_calibration import d_calibration
        >>> y = np.array([(True, t) for t in range(1, 41)], dtype=[("event", bool), ("time", float)])
        >>> found = d_calibration(y, np.arange(40) / 40, num_bins=4)
        >>> found.shares.tolist(), round(found.p_value, 3)
        ([0.25, 0.25, 0.25, 0.25], 1.0)
    """

    shares: Float[Array, " B"]
    statistic: float
    p_value: float
    num_rows: int


def groups_by(values: Float[Array, " N"], num_groups: int) -> list[NDArray[np.int64]]:
    """Rows in groups of equally many, from small to large values, at least ten in each.

    Args:
        values: of each row.
        num_groups: at most.

    Examples:
        >>> import numpy as np
        >>> from gwi.evaluation.survival_calibration import groups_by
        >>> [len(rows) for rows in groups_by(np.arange(30.0), 3)]
        [10, 10, 10]
    """
    return np.array_split(np.argsort(values, kind="stable"), max(1, min(num_groups, len(values) // 10)))


def calibration_at(y: Any, predicted: Any, times: Any, *, num_groups: int = 5) -> SurvivalCalibration:
    """Predicted survival at each time beside Kaplan and Meier's, in groups of rows with a low to a high prediction.

    Args:
        y: events and times.
        predicted: from `predict_dist`, or the probability of no event up to each time, (N, T).
        times: at which.
        num_groups: of equally many rows, at least ten in each.

    Examples:
        >>> import numpy as np
        >>> from gwi.evaluation.survival_calibration import calibration_at
        >>> y = np.array([(True, t) for t in range(1, 41)], dtype=[("event", bool), ("time", float)])
        >>> found = calibration_at(y, np.full((40, 1), 0.5), [20.0], num_groups=2)
        >>> found.predicted.tolist(), found.found.shape
        ([[0.5, 0.5]], (1, 2))
    """
    is_event, time = events_and_times(y)
    at = as_times(times)
    survival = as_survival(predicted, at, len(time))
    columns = []
    for t, values in zip(at, survival.T, strict=True):
        for group in groups_by(values, num_groups):
            curve = kaplan_meier(_as_events(is_event[group], time[group]))
            columns.append((values[group].mean(), float(curve.at(t)), float(curve.std_at(t)), len(group)))
    predicted_, found, std, size = np.array(columns, dtype=np.float64).reshape(len(at), -1, 4).transpose(2, 0, 1)
    return SurvivalCalibration(at, predicted_, found, std, size[0])


def d_calibration(y: Any, predicted: Any, *, num_bins: int = 10) -> DCalibration:
    """Whether events are spread evenly over their predicted distributions; a row that was left is spread over all later bins.

    Of 100 rows 10 should have their event before the 10 % quantile of their prediction, 10 more before the 20 % quantile, and so
    on. The p-value is that of Pearson's χ² (Haider et al., 2020).

    Args:
        y: events and times, or bounds.
        predicted: from `predict_dist`, or the probability of an event before each bound, (N, 2), or before the time of each row.
        num_bins: of equal probability.

    Examples:
        >>> import numpy as np
        >>> from gwi.evaluation.survival_calibration import d_calibration
        >>> y = np.array([(True, t) for t in range(1, 41)], dtype=[("event", bool), ("time", float)])
        >>> found = d_calibration(y, np.arange(40) / 40, num_bins=4)
        >>> found.shares.tolist(), round(found.p_value, 3)
        ([0.25, 0.25, 0.25, 0.25], 1.0)
    """
    bounds = as_bounds(y)
    low, high = _places(predicted, bounds)
    edges = np.linspace(0, 1, num_bins + 1)
    # A place known to the digit is in one bin; a span of them is shared among its bins.
    width = np.maximum(high - low, 1e-300)[:, None]
    shared = np.clip(np.minimum(high[:, None], edges[1:]) - np.maximum(low[:, None], edges[:-1]), 0.0, None) / width
    bin_of = np.minimum(np.searchsorted(edges, low, side="right") - 1, num_bins - 1)
    exact = (high <= low)[:, None]
    share = np.where(exact, bin_of[:, None] == np.arange(num_bins), shared)
    count, expected = share.sum(0), len(bounds) / num_bins
    statistic = float(np.square(count - expected).sum() / expected)
    return DCalibration(count / len(bounds), statistic, float(chi2.sf(statistic, num_bins - 1)), len(bounds))


def _places(predicted: Any, bounds: Float[Array, "N 2"]) -> tuple[Array, Array]:
    """The predicted probability of an event before each bound."""
    if not hasattr(predicted, "laws"):
        given = np.asarray(predicted, dtype=np.float64)
        if given.shape[:1] != (len(bounds),):
            raise ValueError(f"There must be a probability for each of the {len(bounds)} targets; got the shape {given.shape}.")
        if given.ndim == 2:
            return given[:, 0], given[:, 1]
        return given, np.where(bounds[:, 0] == bounds[:, 1], given, 1.0)
    law = predicted.laws[0]
    low, high = (_finite_cumulative(law, end) for end in bounds.T)
    return low, high


def _finite_cumulative(law: Any, y: Float[Array, " N"]) -> Array:
    """P(Y ≤ y), also at infinity."""
    found = law.cumulative(np.where(np.isfinite(y), y, 1.0))
    return np.clip(np.where(np.isfinite(y), found, (y > 0).astype(np.float64)), 0.0, 1.0)


def _as_events(is_event: Bool[NDArray[Any], " N"], time: Float[Array, " N"]) -> Array:
    return np.column_stack([time, np.where(is_event, time, np.inf)])
