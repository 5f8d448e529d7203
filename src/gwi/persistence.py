"""Reading model files back into estimators."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from gwi.encoding import decode_model, decode_summary
from gwi.estimators import GWIRegressor
from gwi.files import ModelFileError, from_bytes


def load(
    path: str | os.PathLike[str],
    *,
    module: nn.Module | Sequence[nn.Module] = (),
    device: torch.device | str = "cpu",
) -> GWIRegressor:
    """A fitted estimator from a file that `save` wrote; it predicts what the saved one did, bit for bit on the same machine.

    Args:
        path: of the file.
        module: instances of the networks of your own that the mean holds, whose numbers the file stores; they stay as they are.
        device: where tensors go.

    Raises:
        ModelFileError: when the file is no model file, is damaged or altered, or is of a later version.
    """
    return from_content(Path(path).read_bytes(), str(path), module=module, device=device)


def from_content(
    data: bytes,
    name: str = "The file",
    *,
    module: nn.Module | Sequence[nn.Module] = (),
    device: torch.device | str = "cpu",
) -> GWIRegressor:
    """As `load`, from the content of a file."""
    document, tensors = from_bytes(data, name)
    modules = [module] if isinstance(module, nn.Module) else list(module)
    if document.get("estimator") != "GWIRegressor":
        raise ModelFileError(f"{name} holds another kind of estimator than GWIRegressor; upgrade gwi to open it.")
    model = decode_model(_part(document, "model", dict, name), tensors, modules, device)
    parameters = _part(document, "parameters", dict, name)
    known = GWIRegressor().get_params(deep=False)
    estimator = GWIRegressor(**{key: parameters[key] for key in known if key in parameters}).set_params(device=device)
    # A parameter that was an object is not in the file; what it became is in the model.
    if "kernel" not in parameters:
        estimator.set_params(kernel=model.posterior.kernel.prior_kernel)
    if "mean" not in parameters:
        estimator.set_params(mean="(an object that the file does not hold)")
    estimator.n_features_in_ = len(model.scales.x_scale)
    names = document.get("feature_names")
    if names is not None:
        if not isinstance(names, list) or len(names) != estimator.n_features_in_ or not all(isinstance(n, str) for n in names):
            raise ModelFileError(f"{name} names other columns than the model has; save the model again.")
        estimator.feature_names_in_ = np.array(names, dtype=object)
    estimator._one_target = _part(document, "one_target", bool, name)
    if estimator._one_target and len(model.noises) != 1:
        raise ModelFileError(f"{name} says one target and has {len(model.noises)}; save the model again.")
    estimator.model_, estimator.summary_ = model, decode_summary(_part(document, "summary", dict, name))
    estimator._learned = None
    return estimator


def _part(document: dict[str, Any], key: str, kind: type, name: str) -> Any:
    value = document.get(key)
    if not isinstance(value, kind):
        raise ModelFileError(f"{name} lacks the part {key!r}, or it is of the wrong kind; save the model again.")
    return value
