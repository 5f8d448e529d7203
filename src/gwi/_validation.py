"""What both estimators share at their edge: arrays from tensors and back, dtypes by name."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import issparse
from torch import Tensor
from torch.utils.data import DataLoader

from gwi._typing import Array

# The largest weight of a row over the smallest, and how many rows whole numbers may count in all.
FARTHEST_WEIGHTS, MOST_COUNTED = 1e8, 1e9
# Of a sparse matrix that is spread out: two gigabytes.
MOST_NUMBERS = 2.5e8


def as_array(values: Any) -> Any:
    """A tensor or a sparse matrix as an array; anything else as it is.

    Raises:
        ValueError: for a sparse matrix that would not fit in memory.
    """
    if issparse(values):
        if math.prod(values.shape) > MOST_NUMBERS:
            raise ValueError(
                f"A sparse matrix of {' × '.join(map(str, values.shape))} is too large to be made dense: at most "
                f"{MOST_NUMBERS:g} fit. Reduce its columns first, for example by sklearn.decomposition.TruncatedSVD."
            )
        return values.toarray()
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else values


def checked_weights(weight: Array) -> Array:
    """Weights of rows that a fit can weigh against each other in floating point.

    Raises:
        ValueError: when none is positive, they are too far apart, or whole numbers count more rows than there can be.
    """
    used = weight[weight > 0]
    if not len(used):
        raise ValueError("All sample weights are zero; give at least one row a positive weight.")
    least, most = float(used.min()), float(used.max())
    if least < most / FARTHEST_WEIGHTS:
        raise ValueError(
            f"Sample weights from {least:.3g} to {most:.3g} are too far apart; set the small ones to 0, or give them at least "
            f"{1 / FARTHEST_WEIGHTS:g} of the largest."
        )
    if most * len(used) > MOST_COUNTED and (used == np.round(used)).all():
        raise ValueError(
            f"Whole-number sample weights count copies of a row; up to {most:.3g} copies per row are too many. "
            "Divide them by their mean to make them relative weights."
        )
    # Numbers this small have few digits.
    return weight / most if least < np.finfo(np.float64).tiny else weight


def require_order(name: str, values: NDArray[Any]) -> None:
    """Refuse values of kinds that have no order among them, such as numbers and words, and missing ones.

    Raises:
        ValueError: naming the kinds.
    """
    if values.dtype != object:
        return
    try:
        np.unique(values)
    except TypeError:
        kinds = sorted({type(value).__name__ for value in values.flat})
        raise ValueError(
            f"{name} must be all numbers or all text; got {' and '.join(kinds)}, which cannot be sorted together. Leave out rows "
            "without a value, and convert the others to text."
        ) from None


def is_source(value: Any) -> bool:
    """Whether rows come from here some at a time: a path, a dataset, a loader, or a source."""
    if isinstance(value, str | os.PathLike | DataLoader):
        return True
    return hasattr(value, "get_fragments") or (hasattr(value, "group_sizes") and hasattr(value, "read"))


def like(values: Array, X: Any) -> Any:
    """Values as a tensor where X is one, on its device; integers give float64."""
    if not isinstance(X, Tensor):
        return values
    return torch.as_tensor(values, dtype=X.dtype if X.is_floating_point() else torch.float64, device=X.device)


def floating_dtype(name: str | torch.dtype) -> torch.dtype:
    """A dtype by its name.

    Raises:
        ValueError: when it is neither float32 nor float64.
    """
    found = getattr(torch, name, None) if isinstance(name, str) else name
    if found not in (torch.float32, torch.float64):
        raise ValueError(f'dtype must be "float32" or "float64"; got {name!r}.')
    return found
