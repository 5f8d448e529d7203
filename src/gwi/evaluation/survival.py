"""Scores of predicted times to an event, where some events have not come yet: concordance and Brier score.

Targets are those of `GWIRegressor(likelihood="censored")`: a structured array of a bool (whether the event came) and a time, or
two columns of bounds. What is predicted comes from `predict_dist`, or is an array as each function says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray

from gwi._typing import Array
from gwi.core.outcomes import as_bounds
from gwi.evaluation.survival_inputs import as_survival, as_times

# Fewer rows are compared pair by pair.
FEW_ROWS = 64
# Times of an integrated score when none are given, between these quantiles of the observed times.
NUM_TIMES, INNER = 50, (0.1, 0.9)


@dataclass(frozen=True)
class SurvivalCurve:
    """A step function: the share of rows without an event up to a time.

    Attributes:
        times: where it steps, in ascending order.
        survival: from each of these times on; 1 before the first.
        std: its standard error, by Greenwood's formula.

    Examples:
        >>> import numpy as np
        >>> from gwi.evaluation.survival import kaplan_meier
        >>> y = np.array([(True, 2.0), (False, 3.0), (True, 5.0)], dtype=[("event", bool), ("time", float)])
        >>> curve = kaplan_meier(y)
        >>> curve.times.tolist(), curve.survival.round(3).tolist()
        ([2.0, 5.0], [0.667, 0.0])
    """

    times: Float[Array, " T"]
    survival: Float[Array, " T"]
    std: Float[Array, " T"]

    def at(self, times: Any) -> Any:
        """The share without an event up to these times, P(Y > t)."""
        return np.append(1.0, self.survival)[np.searchsorted(self.times, times, side="right")]

    def before(self, times: Any) -> Any:
        """The share without an event before these times, P(Y ≥ t)."""
        return np.append(1.0, self.survival)[np.searchsorted(self.times, times, side="left")]

    def std_at(self, times: Any) -> Any:
        """The standard error at these times."""
        return np.append(0.0, self.std)[np.searchsorted(self.times, times, side="right")]


def events_and_times(y: Any) -> tuple[Bool[NDArray[Any], " N"], Float[Array, " N"]]:
    """Whether the event of each row came, and when, or up to when it did not.

    Raises:
        ValueError: for targets that lie between two bounds.

    Examples:
        >>> import numpy as np
        >>> from gwi.evaluation.survival import events_and_times
        >>> y = np.array([(True, 2.0), (False, 3.0), (True, 5.0)], dtype=[("event", bool), ("time", float)])
        >>> event, time = events_and_times(y)
        >>> event.tolist(), time.tolist()
        ([True, False, True], [2.0, 3.0, 5.0])
    """
    low, high = as_bounds(y).T
    is_event = low == high
    between = ~is_event & ~(np.isinf(high) & np.isfinite(low))
    if between.any():
        raise ValueError(
            f"This needs times of events, or times at which there was no event yet; {int(between.sum())} targets lie "
            "between two bounds or below one. concordance and d_calibration take these, too."
        )
    return is_event, low


def kaplan_meier(y: Any, *, of_censoring: bool = False) -> SurvivalCurve:
    """The share of rows without an event up to each time, of rows some of which were left before theirs.

    Args:
        y: events and times.
        of_censoring: the same of leaving in the place of the event; at equal times events come first.

    Examples:
        >>> import numpy as np
        >>> from gwi.evaluation.survival import kaplan_meier
        >>> y = np.array([(True, 2.0), (False, 3.0), (True, 5.0)], dtype=[("event", bool), ("time", float)])
        >>> curve = kaplan_meier(y)
        >>> curve.times.tolist(), curve.survival.round(3).tolist()
        ([2.0, 5.0], [0.667, 0.0])
    """
    is_event, time = events_and_times(y)
    times, place = np.unique(time, return_inverse=True)
    died, left = (np.bincount(place[chosen], minlength=len(times)).astype(np.float64) for chosen in (is_event, ~is_event))
    at_risk = len(time) - np.append(0.0, np.cumsum(died + left))[:-1]
    stepped = left if of_censoring else died
    at_risk = at_risk - died if of_censoring else at_risk
    used = stepped > 0
    times, stepped, at_risk = times[used], stepped[used], at_risk[used]
    survival = np.cumprod(1 - stepped / at_risk)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.sqrt(np.cumsum(stepped / (at_risk * (at_risk - stepped))))
    return SurvivalCurve(times, survival, np.where(survival > 0, survival * np.where(np.isfinite(spread), spread, 0.0), 0.0))


def concordance(y: Any, predicted: Any) -> float:
    """Harrell's C: of pairs of which the order is known, the share that predictions put in this order; 0.5 is chance, 1 perfect.

    The order is known where one event came before the other row's event, or before that row was left. Equal predictions count
    one half. It takes N log² N steps.

    Args:
        y: events and times, or bounds.
        predicted: times, larger where the event comes later; or from `predict_dist`, whose median is taken.

    Raises:
        ValueError: when no pair has a known order.

    Examples:
        >>> import numpy as np
        >>> from gwi.evaluation.survival import concordance
        >>> y = np.array([(True, 2.0), (False, 3.0), (True, 5.0)], dtype=[("event", bool), ("time", float)])
        >>> concordance(y, [1.0, 4.0, 2.0])
        1.0
    """
    return concordance_with_error(y, predicted)[0]


def concordance_with_error(y: Any, predicted: Any) -> tuple[float, float]:
    """Harrell's C and its standard error, from how much each row's pairs differ.

    Args:
        y: events and times, or bounds.
        predicted: as of `concordance`.

    Examples:
        >>> import numpy as np
        >>> from gwi.evaluation.survival import concordance_with_error
        >>> y = np.array([(True, 2.0), (False, 3.0), (True, 5.0)], dtype=[("event", bool), ("time", float)])
        >>> share, error = concordance_with_error(y, [1.0, 4.0, 2.0])
        >>> share
        1.0
    """
    bounds, times = as_bounds(y), _medians(predicted)
    if times.shape != (len(bounds),):
        raise ValueError(f"There must be a prediction for each of the {len(bounds)} targets; got the shape {times.shape}.")
    right, known = _pairs(bounds, times)
    num_pairs = known.sum() / 2
    if num_pairs == 0:
        raise ValueError("No two targets have a known order: there are no events, or none before another row's time.")
    value = float(right.sum() / 2 / num_pairs)
    return value, float(np.sqrt(np.square(right - value * known).sum()) / num_pairs)


def _pairs(bounds: Float[Array, "N 2"], predicted: Float[Array, " N"]) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
    """Of each row, its pairs in the right order, equal predictions for half, and its pairs of known order."""
    low, high = bounds.T
    exact, num_rows = low == high, len(low)
    # Each row stands in a line twice: as the one that may come first, at its upper bound, and as the later one, at its lower
    # bound. The order is known where the first stands before the later. Of equal numbers: two events are in no order.
    key = np.concatenate([high, low])
    kind = np.concatenate([np.where(exact, 2, 0), np.where(exact, 1, 3)])
    line = np.lexsort((kind, key))
    row, is_later = line % num_rows, line >= num_rows
    right, known = np.zeros(num_rows), np.zeros(num_rows)
    width = FEW_ROWS
    for start in range(0, len(line), width):
        part = slice(start, start + width)
        first, later = row[part][~is_later[part]], row[part][is_later[part]]
        place = np.arange(start, min(start + width, len(line)))
        before = place[~is_later[part]][:, None] < place[is_later[part]]
        gap = predicted[later] - predicted[first][:, None]
        count = np.where(before, (gap > 0) + 0.5 * (gap == 0), 0.0)
        np.add.at(right, first, count.sum(1))
        np.add.at(right, later, count.sum(0))
        np.add.at(known, first, before.sum(1))
        np.add.at(known, later, before.sum(0))
    while width < len(line):
        for start in range(0, len(line), 2 * width):
            left, other = slice(start, start + width), slice(start + width, start + 2 * width)
            first, later = row[left][~is_later[left]], row[other][is_later[other]]
            for own, others, sign in ((first, predicted[later], 1.0), (later, predicted[first], -1.0)):
                in_order = np.sort(sign * others)
                below, up_to = (np.searchsorted(in_order, sign * predicted[own], side=side) for side in ("left", "right"))
                right[own] += len(others) - (below + up_to) / 2
                known[own] += len(others)
        width *= 2
    return right, known


def brier_at(y: Any, predicted: Any, times: Any, *, training: Any = None) -> Array:
    """The Brier score at each time: the mean squared distance of the predicted survival from what happened, lower is better.

    Rows that were left before a time say nothing of it; the others count as much more as left ones are like them (inverse
    probability of censoring weights, Graf et al., 1999), by Kaplan and Meier's curve of leaving.

    Args:
        y: events and times.
        predicted: from `predict_dist`, or the probability of no event up to each time, (N, T).
        times: at which.
        training: events and times from which the curve of leaving is taken; y itself when None.

    Raises:
        ValueError: for times at which nobody is watched any more.

    Examples:
        >>> import numpy as np
        >>> from gwi.evaluation.survival import brier_at
        >>> y = np.array([(True, 2.0), (False, 3.0), (True, 5.0)], dtype=[("event", bool), ("time", float)])
        >>> brier_at(y, np.full((3, 1), 0.5), [2.5]).round(3).tolist()
        [0.25]
    """
    is_event, time = events_and_times(y)
    at = as_times(times)
    survival = as_survival(predicted, at, len(time))
    curve = kaplan_meier(y if training is None else training, of_censoring=True)
    last = float(time.max())
    stays, stayed = curve.at(at), curve.before(time)
    if (at >= last).any() or (stays <= 0).any() or (stayed[is_event & (time <= at.max())] <= 0).any():
        raise ValueError(
            f"Times must be before the end of the longest follow-up, {last:g} here; got {at.min():g} to {at.max():g}."
        )
    came, open_ = (time[:, None] <= at) & is_event[:, None], time[:, None] > at
    with np.errstate(divide="ignore"):
        found = np.where(came, np.square(survival) / stayed[:, None], 0.0) + np.where(open_, np.square(1 - survival) / stays, 0.0)
    return found.mean(0)


def integrated_brier(y: Any, predicted: Any, times: Any = None, *, training: Any = None) -> float:
    """The mean of the Brier score over a span of times, lower is better; 0.25 is that of saying one half always.

    Args:
        y: events and times.
        predicted: as of `brier_at`.
        times: at least two, in ascending order; 50 between the 10 % and the 90 % quantile of the observed times when None.
        training: as of `brier_at`.

    Examples:
        >>> import numpy as np
        >>> from gwi.evaluation.survival import integrated_brier
        >>> y = np.array([(True, 2.0), (False, 3.0), (True, 5.0)], dtype=[("event", bool), ("time", float)])
        >>> round(integrated_brier(y, np.full((3, 2), 0.5), [2.1, 2.5]), 3)
        0.25
    """
    at = inner_times(y) if times is None else as_times(times)
    if len(at) < 2 or not (np.diff(at) > 0).all():
        raise ValueError("An integrated score takes at least two times, in ascending order.")
    scores = brier_at(y, predicted, at, training=training)
    return float((scores[1:] + scores[:-1]) @ np.diff(at) / 2 / (at[-1] - at[0]))


def inner_times(y: Any, num_times: int = NUM_TIMES) -> Array:
    """Times between the 10 % and the 90 % quantile of those that were observed.

    Args:
        y: events and times.
        num_times: how many.

    Examples:
        >>> import numpy as np
        >>> from gwi.evaluation.survival import inner_times
        >>> y = np.array([(True, 2.0), (False, 3.0), (True, 5.0)], dtype=[("event", bool), ("time", float)])
        >>> inner_times(y, 3).round(2).tolist()
        [2.2, 3.4, 4.6]
    """
    low, high = np.quantile(events_and_times(y)[1], INNER).tolist()
    return np.linspace(low, high, num_times)


def _medians(predicted: Any) -> Array:
    return np.asarray(predicted.laws[0].quantile(0.5) if hasattr(predicted, "laws") else predicted, dtype=np.float64)
