"""All scores of predicted times, and the checks that rows with events and times allow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from gwi._typing import Array
from gwi.core.laws.protocol import log_likelihood_of_bounds, survival_of
from gwi.evaluation.checks import Check, graded
from gwi.evaluation.survival import concordance_with_error, inner_times, integrated_brier
from gwi.evaluation.survival_calibration import d_calibration

# Rows that are kept for scores of pairs and curves; of more an even sample. Below so few events nothing is said of the order.
MOST_ROWS, FEW_EVENTS = 100_000, 20
RARE = 1e-3


@dataclass(frozen=True)
class JoinedLaws:
    """Predicted distributions of times, of several parts of the rows, with what scores ask of `Predictive`.

    Attributes:
        parts: one law after another.
    """

    parts: tuple[Any, ...]

    def survival(self, times: Float[Array, " T"]) -> Float[Array, "N T"]:
        """The probability of no event up to each time."""
        columns = [[survival_of(law, np.full(law.num_rows, t)) for law in self.parts] for t in times]
        return np.column_stack([np.concatenate(column) for column in columns])

    def medians(self) -> Array:
        """Of each row."""
        return np.concatenate([law.quantile(0.5) for law in self.parts])

    def places(self, bounds: Float[Array, "N 2"]) -> Float[Array, "N 2"]:
        """The probability of an event before each bound."""
        ends, found = np.cumsum([0, *(law.num_rows for law in self.parts)]), np.empty_like(bounds)
        for law, start, end in zip(self.parts, ends, ends[1:], strict=False):
            part = bounds[start:end]
            there = np.where(np.isfinite(part), part, 1.0)
            found[start:end] = np.column_stack([law.cumulative(column) for column in there.T])
        return np.clip(np.where(np.isfinite(bounds), found, (bounds > 0).astype(np.float64)), 0.0, 1.0)


@dataclass(frozen=True)
class TimeTotals:
    """What all scores of times are computed from; those of parts are put together.

    Attributes:
        num_rows: N.
        nll: Σ of minus the log density of a time, or the log probability of its bounds.
        num_events: rows whose time is known.
        bounds: of the rows that are kept, a sample of many.
        laws: of these.
        order: a number for each of them; of too many the smallest are kept.
    """

    num_rows: int
    nll: float
    num_events: int
    bounds: Float[Array, "n 2"]
    laws: tuple[Any, ...]
    order: Float[Array, " n"]

    def __add__(self, other: TimeTotals) -> TimeTotals:
        order = np.concatenate([self.order, other.order])
        bounds, laws = np.concatenate([self.bounds, other.bounds]), (*self.laws, *other.laws)
        if len(order) > MOST_ROWS:
            kept = order <= np.partition(order, MOST_ROWS)[MOST_ROWS]
            ends = np.cumsum([law.num_rows for law in laws])[:-1]
            laws = tuple(law.rows(chosen) for law, chosen in zip(laws, np.split(kept, ends), strict=True))
            order, bounds = order[kept], bounds[kept]
        counts = self.num_rows + other.num_rows, self.nll + other.nll, self.num_events + other.num_events
        return TimeTotals(*counts, bounds, laws, order)

    def named(self) -> dict[str, float]:
        """All scores by name; those that these rows do not allow are left out."""
        predicted = JoinedLaws(self.laws)
        scores = {
            "concordance": lambda: concordance_with_error(self.bounds, predicted.medians())[0],
            "integrated_brier": lambda: integrated_brier(self.bounds, predicted, inner_times(self.bounds)),
        }
        found = {name: _or_nan(score) for name, score in scores.items()}
        found |= {"nll": self.nll / self.num_rows, "events": self.num_events / self.num_rows}
        found["d_calibration_p"] = d_calibration(self.bounds, predicted.places(self.bounds)).p_value
        return {name: value for name, value in found.items() if np.isfinite(value)}

    def scores(self) -> dict[str, float]:
        """All of them."""
        return self.named()


def _or_nan(score: Any) -> float:
    """A score, or nothing where the rows have no pair or no curve."""
    try:
        return float(score())
    except ValueError:
        return float("nan")


def time_totals(law: Any, bounds: Float[Array, "N 2"]) -> TimeTotals:
    """What the scores of the laws at these targets are computed from.

    Args:
        law: of the times.
        bounds: of each, infinite where there is none.
    """
    order = np.random.default_rng(0).uniform(size=len(bounds))
    known = int((bounds[:, 0] == bounds[:, 1]).sum())
    return TimeTotals(len(bounds), float(-log_likelihood_of_bounds(law, bounds).sum()), known, bounds, (law,), order)


def time_checks(law: Any, bounds: Float[Array, "N 2"]) -> tuple[Check, ...]:
    """What rows say of predicted times: whether events come when they should, and in the order in which they should.

    Args:
        law: of the times.
        bounds: of each.
    """
    predicted = JoinedLaws((law,))
    found = d_calibration(bounds, predicted.places(bounds))
    levels = np.arange(1, len(found.shares)) / len(found.shares)
    gaps = found.shares.cumsum()[:-1] - levels
    worst = int(np.argmax(np.abs(gaps)))
    gap, level = float(gaps[worst]), float(levels[worst])
    num_events = int((bounds[:, 0] == bounds[:, 1]).sum())
    off = Check(
        "miscalibrated",
        gap,
        graded(abs(gap), note=0.05, warning=0.1, severe=0.2) if found.p_value < RARE else None,
        f"Events come {'earlier' if gap > 0 else 'later'} than predicted: by the time by which {level:.0%} of {len(bounds)} rows "
        f"should have theirs, {level + gap:.0%} had (D-calibration, p = {found.p_value:.1g}).",
        "Fit again with rows like these, or with another shape of the noise, as in Censored(shape=...).",
        "Fit again with rows like these among the training rows; until then keep this gap in mind when you read survival.",
    )
    return off, _order(bounds, predicted.medians(), num_events)


def _order(bounds: Float[Array, "N 2"], medians: Array, num_events: int) -> Check:
    kind = "order-is-chance"
    try:
        value, error = concordance_with_error(bounds, medians)
    except ValueError:
        return Check(kind, float("nan"))
    is_chance, is_wrong = value - 2 * error <= 0.5, value + 2 * error < 0.5
    return Check(
        kind,
        value,
        None if num_events < FEW_EVENTS or not is_chance else "warning" if is_wrong else "note",
        f"Predicted times put {value:.0%} of the pairs of rows in the right order (C-index); chance alone gives 50%.",
        "These rows differ from the training rows; fit again with some of them."
        if is_wrong
        else "Add columns that help to predict the time; now all rows have about the same curve.",
    )
