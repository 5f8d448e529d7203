"""Times, and predicted survival at them, as scores take them."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from gwi._typing import Array


def as_times(times: Any) -> Array:
    """One number or a list of them."""
    at = np.atleast_1d(np.asarray(times, dtype=np.float64))
    if at.ndim != 1 or not len(at) or not np.isfinite(at).all():
        raise ValueError(f"times must be one number or a list of them; got {times!r}.")
    return at


def as_survival(predicted: Any, times: Float[Array, " T"], num_rows: int) -> Float[Array, "N T"]:
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
