"""Why the model is unsure: the rows that known rows say least of, with the columns that are the reason."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gwi.evaluation.explanation import LEAST_WEIGHT, Explanation
from gwi.exceptions import UserError
from gwi.plots.explanation import draw_explanation
from gwi.plots.numbers import percent
from gwi.report.examined import Examined
from gwi.report.rendering import Picture, picture, short
from gwi.tables.decoding import UNKNOWN

# Rows, and of each: background rows, evaluations, bars, and columns of the known row that is named. Half a second for a stack on
# a thousand rows; who wants to know more asks `explain`.
NUM_ROWS, NUM_BACKGROUND, NUM_EVALUATIONS, MOST_BARS, MOST_CELLS = 3, 8, 1024, 6, 4


@dataclass(frozen=True)
class Reason:
    """One row.

    Attributes:
        title: where it is, and what is left of the prior variance there.
        known: the known row that says most of it.
        picture: of the columns.
    """

    title: str
    known: str
    picture: Picture


def reasons(found: Examined) -> list[Reason]:
    """Of the rows with the highest outlier scores; none of models that cannot say."""
    chosen = np.argsort(-found.ood, kind="stable")[:NUM_ROWS]
    try:
        why = found.estimator.explain(found.table[chosen], background=NUM_BACKGROUND, max_evaluations=NUM_EVALUATIONS)
    except UserError:
        # Means that see data frames, and features of networks, need background rows of the user's.
        return []
    source = found.table.source
    lines = source.lines(found.table.number[chosen].tolist())
    result = []
    for i, line in enumerate(lines):
        drawn = picture(f"reasons-{i}", lambda ax, i=i: draw_explanation(ax, why, i, None, MOST_BARS))  # type: ignore[misc]
        title = f"{source.unit.capitalize()} {line}: {percent(float(found.ood[chosen[i]]))} of the prior’s variance is left"
        result.append(Reason(title, _known(why, i), drawn))
    return result


def _known(why: Explanation, row: int) -> str:
    """The known row that takes most of the variance away."""
    best = why.known[row][0]
    if best.weight < LEAST_WEIGHT:
        return "No training row is informative about it."
    shown = sorted(np.argsort(-np.abs(why.of(row)[0]), kind="stable")[:MOST_CELLS])
    cells = ", ".join(f"{short(why.columns[d])} = {short(best.cells[d])}" for d in shown if best.cells[d] != UNKNOWN)
    removed = f"The most informative training row removes {percent(best.weight)} of the prior variance by itself"
    return f"{removed}: {cells or 'its cells are not kept'}."
