"""Targets that a likelihood gives no probability are refused before anything is computed from them."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float

from gwi._typing import Array
from gwi.core.likelihoods.families import Family

# As a share of the largest value: as close to one of few values as this is that value.
SAME = 1e-9


def require_support(family: Family, y: Float[Array, "N C"]) -> None:
    """Refuse what is no target of this likelihood; bounds are looked at where they come.

    Raises:
        ValueError: naming what the likelihood takes, and the first target that is something else.
    """
    if family.num_columns > 1:
        return
    values, (low, high) = y[:, 0], family.support
    if hasattr(family, "values"):
        known = np.array(family.values)
        wrong = np.abs(values[:, None] - known).min(1) > SAME * max(1.0, float(np.abs(known).max()))
        wanted = f"the values {', '.join(f'{value:g}' for value in known)}"
    else:
        wrong = (values < low) | (values > high)
        if family.is_discrete:
            wrong |= values != np.round(values)
        is_open = not family.is_discrete and not getattr(family, "margin", 0.0)
        if is_open:
            wrong |= (values == low) | (values == high)
        kind = "whole numbers" if family.is_discrete else "numbers"
        if math.isfinite(low) and math.isfinite(high):
            wanted = f"{kind} {'strictly ' if is_open else ''}between {low:g} and {high:g}"
        else:
            wanted = f"{kind} of at least {low:g}" if family.is_discrete else f"{kind} above {low:g}"
    if wrong.any():
        raise ValueError(
            f"The likelihood {family.name} takes {wanted}; got {values[wrong][0]:g}, the first of {int(wrong.sum())} such rows."
        )
