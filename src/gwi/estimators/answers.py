"""What a regressor says of each kind of target: columns of predictions, one score, and what all scores are computed from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gwi._typing import Array
from gwi.core.laws.protocol import most_probable, survival_of
from gwi.core.outcomes import as_bounds
from gwi.evaluation.judged import Judged, TargetKind
from gwi.evaluation.levels import level_totals
from gwi.evaluation.regression import score_totals
from gwi.evaluation.survival import concordance
from gwi.evaluation.times import time_totals
from gwi.models.numbers import NumberModel, Parts


def kind_of(model: NumberModel, likelihood: str, levels: Any) -> TargetKind:
    """What is predicted: numbers, counts, levels of which only the order means anything, or times to an event.

    Args:
        model: fitted.
        likelihood: as its summary names it.
        levels: names of the levels; None where there are none.
    """
    if model.has_bounds:
        return "times"
    if levels is not None or likelihood == "ordinal":
        return "levels"
    return "counts" if model.are_counts else "numbers"


def level_names(model: NumberModel, levels: Any) -> NDArray[Any]:
    """Of each level in order: as they were called, else the numbers that they are."""
    return model.level_values if levels is None else levels


def columns_of(
    model: NumberModel,
    kind: TargetKind,
    parts: Parts,
    coverage: float,
    conformal: bool,
    levels: Any,
    quantiles: Sequence[Any],
    times: Sequence[Any],
    with_variances: bool,
) -> dict[str, Any]:
    """Columns of predictions by name, one array an output in each: without the outlier score.

    Args:
        model: fitted.
        kind: of its target.
        parts: of the rows.
        coverage: of the interval.
        conformal: whether that is a conformal one.
        levels: names of the levels.
        quantiles: of more columns.
        times: of times to an event, at which the probability of none so far is asked for.
        with_variances: whether these follow, too.
    """
    if len(times) and kind != "times":
        raise ValueError('times goes with likelihood="censored" only: it gives the probability of no event up to each time.')
    laws = model.laws_of(parts)
    if kind == "levels":
        names, law = level_names(model, levels), laws[0]
        values = {"prediction": names[most_probable(law)][None]}
        values |= {f"probability_{name}": row[None] for name, row in zip(names, law.probabilities, strict=True)}  # type: ignore[attr-defined]
        quantiles = ()
    else:
        lower, upper = model.intervals_of(parts, coverage, conformal)
        if kind == "times":
            values = {"median": laws[0].quantile(0.5)[None], "lower": lower, "upper": upper}
            values |= {f"survival_{t:g}": survival_of(laws[0], np.full(len(lower[0]), float(t)))[None] for t in times}
        else:
            mean, std = model.law_of(parts)
            values = {"prediction": mean, "std": std, "lower": lower, "upper": upper}
    if len(quantiles):
        ends = np.moveaxis(model.quantiles_of(parts, quantiles), -1, 0)
        values |= {f"quantile_{level:g}": end for level, end in zip(quantiles, ends, strict=True)}
    if with_variances:
        values |= dict(zip(("epistemic", "aleatoric"), model.variances_of(parts), strict=True))
    one = len(model.noises) == 1
    return {name if one else f"{name}_{j}": row for name, rows in values.items() for j, row in enumerate(rows)}


def judged_numbers(model: NumberModel, parts: Parts, y: Array) -> Judged:
    """Mean and standard deviation beside numbers."""
    mean, std = model.law_of(parts)
    if len(mean) != 1:
        raise ValueError(f"Scores need a model of one target; this one has {len(mean)}.")
    return Judged(mean[0], std[0], y[:, 0], model.laws_of(parts)[0])


def judged_levels(model: NumberModel, parts: Parts, y: Array) -> Judged:
    """The probability of each level beside the place of the right one."""
    law: Any = model.laws_of(parts)[0]
    places = np.abs(y[:, :1] - model.level_values).argmin(1)
    strange = model.level_values[places] != y[:, 0]
    if strange.any():
        known = ", ".join(f"{value:g}" for value in model.level_values)
        raise ValueError(f"The model was fitted to the levels {known}; got {y[strange][0, 0]:g}.")
    return Judged(law.probabilities.T.copy(), None, places.astype(np.int64), law)


def judged_times(model: NumberModel, parts: Parts, y: Array) -> Judged:
    """The median beside bounds."""
    law = model.laws_of(parts)[0]
    return Judged(law.quantile(0.5), None, as_bounds(y), law)


JUDGED: dict[TargetKind, Callable[[NumberModel, Parts, Array], Judged]] = {
    "numbers": judged_numbers,
    "counts": judged_numbers,
    "levels": judged_levels,
    "times": judged_times,
}
# Sums over rows from which all scores follow.
TOTALS: dict[TargetKind, Callable[[Judged], Any]] = {
    "numbers": lambda judged: score_totals(judged.law, judged.y),
    "counts": lambda judged: score_totals(judged.law, judged.y),
    "levels": lambda judged: level_totals(judged.first, judged.y),
    "times": lambda judged: time_totals(judged.law, judged.y),
}


def score_of(kind: TargetKind, judged: Judged, weight: Any = None) -> float:
    """What `score` gives of targets without R²: the share of levels that are right, or the C-index of times.

    Args:
        kind: of the target.
        judged: predictions and targets.
        weight: of each row; not of times.
    """
    if kind == "times":
        if weight is not None:
            raise ValueError("The C-index takes no sample weights; leave sample_weight out.")
        return concordance(judged.y, judged.first)
    return float(np.average(judged.first.argmax(1) == judged.y, weights=weight))
