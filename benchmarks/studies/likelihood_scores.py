"""One judge for all methods of `benchmarks.studies.likelihoods`: scores of numbers, of levels and of times to an event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from gwi._typing import Array
from gwi.core.laws.discrete import DiscreteLaw
from gwi.core.laws.protocol import pit

# Of the 95 % interval.
LOW, HIGH = 0.025, 0.975
NUM_TIMES, NUM_GROUPS, NUM_BINS = 50, 5, 10
# A survival of zero has no finite hazard.
LEAST_SURVIVAL = 1e-12
Scores = dict[str, float]


class Survival(Protocol):
    """What is predicted of the time to an event at N rows."""

    def at(self, times: Array) -> Array:
        """P(T > t) at each row and each of some times, (N, T)."""
        ...

    def own(self, times: Array) -> Array:
        """P(T > t) with a time for each row, (N,)."""
        ...


@dataclass(frozen=True)
class Table:
    """Rows, targets, and what kind they are of.

    Attributes:
        frame: rows.
        y: numbers, places of levels, or events and times as a structured array.
    """

    frame: Any
    y: NDArray[Any]


# Numbers.


def of_numbers(family: str, law: Any, y: Array) -> Scores:
    """NLL in the target's own units, CRPS, RMSE of the expectation, and what the 95 % intervals are like."""
    low, high = law.quantile(LOW), law.quantile(HIGH)
    scores = {
        "crps": float(law.crps(y).mean()),
        "rmse": float(np.sqrt(np.square(law.expectation() - y).mean())),
        "inside_95": float(((low <= y) & (y <= high)).mean()),
        "width_95": float((high - low).mean()),
        "ends_outside": float((low < 0).sum()) if family != "few-valued" else float(((low < y.min()) | (high > y.max())).sum()),
    }
    # A density and a probability are not compared.
    return scores if family == "few-valued" else {"nll": float(-law.log_density(y).mean()), **scores}


def of_all_numbers(laws: Sequence[Any], ys: Sequence[Array]) -> Scores:
    """The share of targets whose randomised place in their law is between 2.5 and 97.5 %."""
    places = np.concatenate([pit(law, y) for law, y in zip(laws, ys, strict=True)])
    return {"pit_95": float(((places >= LOW) & (places <= HIGH)).mean())}


# Levels in order.


def of_levels(law: DiscreteLaw, y: Array) -> Scores:
    """NLL, ranked probability score and accuracy."""
    return {
        "nll": float(-np.log(np.maximum(np.exp(law.log_density(y)), 1e-15)).mean()),
        "rps": float(law.crps(y).mean()),
        "accuracy": float((law.values[law.probabilities.argmax(0)] == y).mean()),
    }


def of_all_levels(laws: Sequence[DiscreteLaw], ys: Sequence[Array]) -> Scores:
    """How far predicted and observed shares of P(y ≤ k) are apart in fifths of the rows, on average over k and fifths."""
    y = np.concatenate(list(ys))
    below = np.concatenate([law.probabilities.cumsum(0)[:-1] for law in laws], axis=1)
    gaps = [gap_of_groups(p, (y <= k).astype(float)) for k, p in zip(laws[0].values[:-1], below, strict=True)]
    return {"gap": float(np.mean(gaps))}


def groups_of(predicted: Array) -> list[NDArray[np.int64]]:
    """Fifths of the rows by what is predicted; rows with equal predictions may lie in two."""
    return np.array_split(np.argsort(predicted, kind="stable"), NUM_GROUPS)


def gap_of_groups(predicted: Array, observed: Array) -> float:
    """The mean over fifths of the rows of |mean prediction − share observed|."""
    return float(np.mean([abs(predicted[rows].mean() - observed[rows].mean()) for rows in groups_of(predicted)]))


# Times to an event.


def grid_of(y: NDArray[Any]) -> Array:
    """Times of the integrated Brier score: from the first to the last tenth of the events."""
    events = y["time"][y["event"]]
    return np.linspace(np.quantile(events, 0.1), np.quantile(events, 0.9), NUM_TIMES)


def of_times(law: Survival, y: NDArray[Any], every: NDArray[Any]) -> Scores:
    """C-index and integrated Brier score, weighted by the censoring of all rows of the table (IPCW), on one grid for all.

    Who comes first is judged by the cumulative hazard, averaged over the grid, which keeps the order of proportional hazards.
    """
    from sksurv.metrics import concordance_index_censored, integrated_brier_score

    grid = grid_of(every)
    grid = grid[(grid > y["time"].min()) & (grid < y["time"].max())]
    found = np.clip(law.at(grid), 0.0, 1.0)
    risk = -np.log(np.maximum(found, LEAST_SURVIVAL)).mean(1)
    return {
        "c_index": float(concordance_index_censored(y["event"], y["time"], risk)[0]),
        "ibs": float(integrated_brier_score(every, y, found, grid)),
    }


def of_all_times(laws: Sequence[Survival], ys: Sequence[NDArray[Any]], every: NDArray[Any]) -> Scores:
    """The gap to Kaplan and Meier's curve in fifths of the rows at the quartiles of the events, and D-calibration's p-value."""
    y = np.concatenate(list(ys))
    times = np.quantile(every["time"][every["event"]], (0.25, 0.5, 0.75))
    at = np.concatenate([law.at(times) for law in laws])
    gaps = [gap_of_survival(at[:, i], y, time) for i, time in enumerate(times)]
    own = np.concatenate([law.own(part["time"]) for law, part in zip(laws, ys, strict=True)])
    return {
        **{f"gap_{i + 1}": gap for i, gap in enumerate(gaps)},
        "gap": float(np.mean(gaps)),
        "d_calibration": d_calibration(own, y["event"]),
    }


def gap_of_survival(predicted: Array, y: NDArray[Any], time: float) -> float:
    """The mean over fifths of the rows of |mean predicted survival − Kaplan and Meier's| at a time."""
    from sksurv.nonparametric import kaplan_meier_estimator

    gaps = []
    for rows in groups_of(predicted):
        steps, survival = kaplan_meier_estimator(y["event"][rows], y["time"][rows])
        place = int(np.searchsorted(steps, time, side="right")) - 1
        gaps.append(abs(float(predicted[rows].mean()) - (float(survival[place]) if place >= 0 else 1.0)))
    return float(np.mean(gaps))


def d_calibration(own: Array, event: NDArray[np.bool_]) -> float:
    """The p-value of the χ² test that P(T > t) at the times of the events is uniform (Haider et al., 2020).

    A censored row, of which P(T > c) is s, is spread evenly over what lies below s.
    """
    own = np.clip(own, LEAST_SURVIVAL, 1.0)
    edges = np.linspace(0.0, 1.0, NUM_BINS + 1)
    counts = np.histogram(own[event], edges)[0].astype(float)
    for s in own[~event]:
        counts += np.clip(s - edges[:-1], 0.0, 1 / NUM_BINS) / s
    expected = len(own) / NUM_BINS
    return float(chi2.sf(np.square(counts - expected).sum() / expected, NUM_BINS - 1))


def of_fold(family: str, law: Any, y: NDArray[Any], every: NDArray[Any]) -> Scores:
    """Scores of the test rows of one fold."""
    if family == "censored":
        return of_times(law, y, every)
    return of_levels(law, y) if family == "ordered" else of_numbers(family, law, y)


def of_repetition(family: str, laws: Sequence[Any], ys: Sequence[NDArray[Any]], every: NDArray[Any]) -> Scores:
    """Scores that need more rows than those of one fold: of the test rows of all folds of a repetition."""
    if family == "censored":
        return of_all_times(laws, ys, every)
    return of_all_levels(laws, ys) if family == "ordered" else of_all_numbers(laws, ys)
