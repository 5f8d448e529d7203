"""What both estimators share at their edge: arrays from tensors and back, dtypes by name."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from gwi._typing import Array


def as_array(values: Any) -> Any:
    """A tensor as an array; anything else as it is."""
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else values


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
        raise ValueError(f'dtype is "float32" or "float64"; got {name!r}.')
    return found
