"""Options in a model file."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from gwi.parts.covariance import Covariance
from gwi.parts.likelihoods import LIKELIHOODS, RobustMax, Softmax
from gwi.parts.means import Features, Network
from gwi.parts.time import MaxTime

# Parts that a model file can hold, by tags.
_STORED: dict[str, type[BaseEstimator]] = {
    "covariance": Covariance,
    **LIKELIHOODS,
    "softmax": Softmax,
    "robust-max": RobustMax,
    "network": Network,
    "features": Features,
    "max-time": MaxTime,
}


def encode_parameter(value: Any) -> Any:
    """A parameter of an estimator as JSON can hold it: plain values, dicts of them, parts with plain options.

    NotImplemented for others.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        items = [[part.item() if isinstance(part, np.generic) else part for part in pair] for pair in value.items()]
        is_plain = all(isinstance(part, bool | int | float | str) for pair in items for part in pair)
        return {"part": "dict", "items": items} if is_plain else NotImplemented
    tag = next((tag for tag, kind in _STORED.items() if type(value) is kind), None)
    if tag is None:
        return NotImplemented
    options = {key: list(option) if isinstance(option, tuple) else option for key, option in value.get_params(deep=False).items()}
    return {"part": tag} | {key: v for key, v in options.items() if v is None or isinstance(v, bool | int | float | str | list)}


def decode_parameter(value: Any) -> Any:
    """The parameter that was encoded; ValueError when it describes none."""
    if not isinstance(value, dict):
        return value
    if value.get("part") == "dict":
        return dict(value["items"])
    if value.get("part") not in _STORED:
        raise ValueError("a part of the estimator is of an unknown kind")
    kind = _STORED[value["part"]]
    known = kind().get_params(deep=False)
    return kind(**{key: option for key, option in value.items() if key in known})
