"""New rows for a model as it is: Q is conditioned on them, and the summary says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from gwi._typing import Array
from gwi.core.conditioning import ConditionedPosterior
from gwi.core.scaling import StandardisedRows
from gwi.models.summary import Summary

# Their joint covariance is kept, which takes the square of their number in memory and at every prediction.
MOST_ROWS = 5000


def updated(model: Any, summary: Summary, x: NDArray[Any], y: NDArray[Any], weight: Array) -> tuple[Any, Summary]:
    """The model given new rows, their targets, numbers or places of labels, and their weights; and its summary.

    Raises:
        ValueError: when there would be more rows from updates than a model can hold.
    """
    before = len(model.cached.observations.points) if isinstance(model.cached, ConditionedPosterior) else 0
    total = before + len(x)
    if total > MOST_ROWS:
        raise ValueError(
            f"update takes at most {MOST_ROWS:,} new rows in all, as it keeps their joint covariance; with these there "
            f"are {total:,}. Fit again on all rows."
        )
    new = model.given(x, y, weight)
    if isinstance(new.embedding, StandardisedRows) and len(x):
        new = replace(new, embedding=new.embedding.reaching(x), cached=new.cached)
    note = "; ".join(part for part in summary.note.split("; ") if part and not part.endswith(_SAID))
    said = f"{total} rows added by update: {_SAID}"
    return new, replace(summary, num_rows=summary.num_rows + len(x), note="; ".join(filter(None, (note, said))))


_SAID = "only mean and covariance changed, and a saved model contains these rows and their residuals"
