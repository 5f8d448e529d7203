"""What both estimators share at their edge: arrays from tensors and back, dtypes by name."""

from __future__ import annotations

import os
from typing import Any, get_args

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


def document_of(estimator: Any, tag: str, **parts: Any) -> dict[str, Any]:
    """The document of a model file: its tag, the estimator's plain parameters, the names of its columns, and other parts."""
    names = getattr(estimator, "feature_names_in_", None)
    plain = {k: v for k, v in estimator.get_params(deep=False).items() if isinstance(v, bool | int | float | str | None)}
    named = {"estimator": tag, "feature_names": None if names is None else list(names)}
    return {**named, "parameters": plain, **parts}


def require_choice(name: str, value: Any, choices: Any) -> None:
    """Refuse, before anything is fitted, what is not one of a Literal's values.

    Raises:
        ValueError: naming the choices.
    """
    known = [f'"{choice}"' for choice in get_args(choices)]
    if not isinstance(value, str) or value not in get_args(choices):
        raise ValueError(f"{name} is {', '.join(known[:-1])} or {known[-1]}; got {value!r}.")


def listed(means: Any) -> list[Any]:
    """One mean or several, as a list.

    Raises:
        ValueError: when there is none.
    """
    found = list(means) if isinstance(means, list | tuple) else [means]
    if not found:
        raise ValueError("mean is an empty list; name at least one mean.")
    return found


def floating_dtype(name: str | torch.dtype) -> torch.dtype:
    """A dtype by its name.

    Raises:
        ValueError: when it is neither float32 nor float64.
    """
    found = getattr(torch, name, None) if isinstance(name, str) else name
    if found not in (torch.float32, torch.float64):
        raise ValueError(f'dtype is "float32" or "float64"; got {name!r}.')
    return found
