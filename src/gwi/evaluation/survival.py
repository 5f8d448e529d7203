"""Scores of predicted times to an event, where some events have not come yet: concordance, Brier score, calibration.

Targets are those of `GWIRegressor(likelihood="censored")`: a structured array of a bool (whether the event came) and a time, or
two columns of bounds. What is predicted comes from `predict_dist`, or is an array as each function says.
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


@dataclass(frozen=True)
class SurvivalCalibration:
    """Predicted survival beside Kaplan and Meier's, at some times in groups of rows.

    Attributes:
        times: that were asked for.
        predicted: the mean probability of no event up to each time, in each group.
        found: Kaplan and Meier's estimate of it.
        std: its standard error.
        num_rows: of each group.
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
    """

    shares: Float[Array, " B"]
    statistic: float
    p_value: float
    num_rows: int


def events_and_times(y: Any) -> tuple[Bool[NDArray[Any], " N"], Float[Array, " N"]]:
    """Whether the event of each row came, and when, or up to when it did not.

    Raises:
        ValueError: for targets that lie between two bounds.
    """
    low, high = as_bounds(y).T
    is_event = low == high
    between = ~is_event & ~(np.isinf(high) & np.isfinite(low))
    if between.any():
        raise ValueError(
            f"This needs events and times without one; {int(between.sum())} targets lie between two bounds or below one. "
            "concordance and d_calibration take these, too."
        )
    return is_event, low


def kaplan_meier(y: Any, *, of_censoring: bool = False) -> SurvivalCurve:
    """The share of rows without an event up to each time, of rows some of which were left before theirs.

    Args:
        y: events and times.
        of_censoring: the same of leaving in the place of the event; at equal times events come first.
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

    Example:
        >>> import numpy as np
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
    """
    is_event, time = events_and_times(y)
    at = _times(times)
    survival = _survival(predicted, at, len(time))
    curve = kaplan_meier(y if training is None else training, of_censoring=True)
    last = float(time.max())
    stays, stayed = curve.at(at), curve.before(time)
    if (at >= last).any() or (stays <= 0).any() or (stayed[is_event & (time <= at.max())] <= 0).any():
        raise ValueError(f"Times lie before the last at which a row is watched, {last:g} here; got {at.min():g} to {at.max():g}.")
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
    """
    at = inner_times(y) if times is None else _times(times)
    if len(at) < 2 or not (np.diff(at) > 0).all():
        raise ValueError("An integrated score takes at least two times, in ascending order.")
    scores = brier_at(y, predicted, at, training=training)
    return float((scores[1:] + scores[:-1]) @ np.diff(at) / 2 / (at[-1] - at[0]))


def inner_times(y: Any, num_times: int = NUM_TIMES) -> Array:
    """Times between the 10 % and the 90 % quantile of those that were observed.

    Args:
        y: events and times.
        num_times: how many.
    """
    low, high = np.quantile(events_and_times(y)[1], INNER).tolist()
    return np.linspace(low, high, num_times)


def groups_by(values: Float[Array, " N"], num_groups: int) -> list[NDArray[np.int64]]:
    """Rows in groups of equally many, from small to large values, at least ten in each.

    Args:
        values: of each row.
        num_groups: at most.
    """
    return np.array_split(np.argsort(values, kind="stable"), max(1, min(num_groups, len(values) // 10)))


def calibration_at(y: Any, predicted: Any, times: Any, *, num_groups: int = 5) -> SurvivalCalibration:
    """Predicted survival at each time beside Kaplan and Meier's, in groups of rows with a low to a high prediction.

    Args:
        y: events and times.
        predicted: from `predict_dist`, or the probability of no event up to each time, (N, T).
        times: at which.
        num_groups: of equally many rows, at least ten in each.
    """
    is_event, time = events_and_times(y)
    at = _times(times)
    survival = _survival(predicted, at, len(time))
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


def _medians(predicted: Any) -> Array:
    return np.asarray(predicted.laws[0].quantile(0.5) if hasattr(predicted, "laws") else predicted, dtype=np.float64)


def _times(times: Any) -> Array:
    at = np.atleast_1d(np.asarray(times, dtype=np.float64))
    if at.ndim != 1 or not len(at) or not np.isfinite(at).all():
        raise ValueError(f"times is one number or a list of them; got {times!r}.")
    return at


def _survival(predicted: Any, times: Float[Array, " T"], num_rows: int) -> Float[Array, "N T"]:
    """P(Y > t) of each row at each time."""
    if hasattr(predicted, "survival"):
        found = np.asarray(predicted.survival(times))
    else:
        found = np.asarray(predicted, dtype=np.float64)
        found = found[:, None] if found.ndim == 1 else found
    if found.shape != (num_rows, len(times)):
        raise ValueError(
            f"There must be a probability for each of the {num_rows} rows at each of the {len(times)} times; got the shape "
            f"{found.shape}."
        )
    return found
