"""Checks of the arrays that a predictor is built from, which come from a file, and of the rows that it is asked about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Array = NDArray[Any]
Arrays = Mapping[str, Array]
# The dtype and number of axes of each array.
Wanted = Mapping[str, tuple[DTypeLike, int]]


def checked(arrays: Arrays, wanted: Wanted) -> dict[str, Array]:
    """The arrays without subclasses, once they are those wanted, each finite with its dtype and number of axes.

    Raises:
        ValueError: when they are others.
    """
    require(set(arrays) == set(wanted), f"the arrays {', '.join(wanted)}", ", ".join(map(str, arrays)) or "none")
    # A subclass could compare in its own way: a masked array is never wrong where it is masked.
    arrays = {name: np.asarray(arrays[name]) for name in wanted}
    for name, (dtype, num_axes) in wanted.items():
        array = arrays[name]
        fits = array.dtype == np.dtype(dtype) and array.ndim == num_axes
        require(fits, f"{name} as {np.dtype(dtype)} with {num_axes} axes", f"{array.dtype} with shape {array.shape}")
        require(np.isfinite(array).all(), f"a finite {name}", "another")
    return arrays


def require(holds: Any, wanted: str, came: object) -> None:
    """Raise a ValueError that says what was wanted and what came, unless it holds."""
    if not holds:
        raise ValueError(
            f"A stored model needs {wanted}; got {came}: the arrays are damaged or of another kind, so save the model again."
        )


def wrong_columns(X: Any, num_features: int) -> ValueError:
    """What to raise when the rows of X have not so many columns."""
    return ValueError(
        f"Rows must have the {num_features} columns that the model was fitted on; got shape {np.shape(X)}: pass them all."
    )
