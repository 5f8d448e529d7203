"""What tells one fit from another: values of any kind as plain lists and text, the same in every process."""

from __future__ import annotations

import hashlib
import json
from types import FunctionType, MethodType
from typing import Any

import numpy as np
from joblib import hash as pickled_hash
from torch import Tensor, nn

# How a fit is done, not what comes of it; the seed is kept apart.
NOT_DESCRIBED = ("verbose", "n_jobs", "device", "random_state")
# What every module of torch has, besides what its author gave it.
_OF_MODULES = frozenset(vars(nn.Module()))


def digest(value: Any) -> str:
    """One word for a value that `described` has made plain."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def estimator_description(estimator: Any) -> Any:
    """The parameters of an estimator on which its fit depends."""
    parameters = estimator.get_params(deep=False)
    kept = {name: value for name, value in parameters.items() if name not in NOT_DESCRIBED}
    return [type(estimator).__name__, described(kept)]


def described(value: Any, above: tuple[int, ...] = ()) -> Any:
    """A value as lists and text: numbers in arrays and modules as a hash, objects by their parts.

    Args:
        value: any.
        above: identities of the objects that this one is a part of.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, Tensor):
        return described(value.detach().cpu().numpy())
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            return ["objects", list(value.shape), described(value.ravel().tolist(), above)]
        return [str(value.dtype), list(value.shape), hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()]
    if id(value) in above:
        return "itself"
    above = (*above, id(value))
    if isinstance(value, dict):
        return sorted(([described(key, above), described(part, above)] for key, part in value.items()), key=str)
    if isinstance(value, list | tuple):
        return [described(part, above) for part in value]
    if isinstance(value, set | frozenset):
        return sorted((described(part, above) for part in value), key=str)
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    return [f"{type(value).__module__}.{type(value).__qualname__}", _parts(value, above)]


def _parts(value: Any, above: tuple[int, ...]) -> Any:
    if isinstance(value, nn.Module):
        own = {name: part for name, part in vars(value).items() if name not in _OF_MODULES}
        numbers = {**dict(value.named_parameters(recurse=False)), **dict(value.named_buffers(recurse=False))}
        return [described(part, above) for part in (own, numbers, dict(value.named_children()))]
    if isinstance(value, MethodType):
        return [described(part, above) for part in (value.__func__, value.__self__)]
    if isinstance(value, FunctionType):
        code = value.__code__
        # Functions inside of this one are told by their names: their text holds addresses.
        constants = [getattr(constant, "co_name", repr(constant)) for constant in code.co_consts]
        enclosed = [described(cell.cell_contents, above) for cell in value.__closure__ or ()]
        return [
            value.__qualname__,
            code.co_code.hex(),
            constants,
            list(code.co_names),
            enclosed,
            described(value.__defaults__, above),
        ]
    if hasattr(value, "__dict__"):
        # Libraries write their version and caches beside what was learned; both only make a fit begin anew.
        return described(vars(value), above)
    try:
        return pickled_hash(value)
    except Exception:
        # Generators, locks and open files: no two of them are the same.
        return repr(value)
