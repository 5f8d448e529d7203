"""Reading model files back into estimators."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from gwi.estimators.classifier import GWIClassifier
from gwi.estimators.regressor import GWIRegressor
from gwi.exceptions import ModelFileError
from gwi.parts import decode_parameter
from gwi.storage.container import from_bytes
from gwi.storage.description import decode_labels, decode_summary
from gwi.storage.header import number, open_file, printable
from gwi.storage.models import decode_model, decode_seen
from gwi.storage.predictors import decode_frame_predictor
from gwi.tables.transformer import TableEncoder


def load(
    path: str | os.PathLike[str],
    *,
    module: nn.Module | Sequence[nn.Module] = (),
    device: torch.device | str = "cpu",
) -> GWIRegressor | GWIClassifier:
    """A fitted estimator from a file that `save` wrote; it predicts what the saved one did, bit for bit on the same machine.

    Args:
        path: of the file, or an address such as s3://bucket/model.gwi.
        module: instances of the networks of your own that the mean holds, whose numbers the file stores; they stay as they are.
        device: where tensors go.

    Raises:
        ModelFileError: when the file is no model file, is damaged or altered, or is of a later version.

    Examples:
        >>> import pathlib
        >>> import tempfile
        >>> import numpy as np
        >>> import gwi
        >>> X = np.linspace(0, 3, 20)[:, None]
        >>> y = 2 * X[:, 0] + 0.1 * np.random.default_rng(0).normal(size=20)
        >>> model = gwi.GWIRegressor("linear", random_state=0).fit(X, y)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = model.save(pathlib.Path(folder) / "line.gwi")
        ...     again = gwi.load(pathlib.Path(folder) / "line.gwi")
        >>> bool((again.predict(X) == model.predict(X)).all())
        True
    """
    with open_file(path) as file:
        data = file.read()
    return from_content(data, str(path), module=module, device=device)


def from_content(
    data: bytes,
    name: str = "The file",
    *,
    module: nn.Module | Sequence[nn.Module] = (),
    device: torch.device | str = "cpu",
) -> GWIRegressor | GWIClassifier:
    """As `load`, from the content of a file."""
    name = printable(name)
    document, tensors = from_bytes(data, name)
    modules = [module] if isinstance(module, nn.Module) else list(module)
    kinds: dict[str, type[GWIRegressor] | type[GWIClassifier]] = {"regressor": GWIRegressor, "classifier": GWIClassifier}
    kind = kinds.get(str(document.get("estimator")))
    if kind is None:
        raise ModelFileError(f"{name} holds an estimator that this version of gwi does not know; upgrade gwi to open it.")
    content, summary = _part(document, "model", dict, name), _part(document, "summary", dict, name)
    parameters = _part(document, "parameters", dict, name)
    known = kind().get_params(deep=False)
    try:
        chosen = {key: decode_parameter(parameters[key]) for key in known if key in parameters}
        estimator = kind(**chosen).set_params(device=device)
        estimator._check()
    except (TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise ModelFileError(
            f"{name} has parameters that the estimator does not accept ({printable(error)}); save the model again."
        ) from error
    estimator.model_, estimator.summary_ = decode_model(content, tensors, modules, device), decode_summary(summary)
    if not isinstance(estimator.model_, kind._model):
        raise ModelFileError(f"{name} holds a model whose task is not that of its estimator; save the model again.")
    estimator._targets, estimator._fit = estimator._new_targets(), None
    try:
        estimator._seen = decode_seen(document, tensors)
    except (LookupError, TypeError, ValueError) as error:
        raise ModelFileError(f"{name}: {printable(error, 100)}; save the model again.") from error
    try:
        levels = decode_labels(document["levels"], in_order=False) if "levels" in document else None
    except (LookupError, TypeError, ValueError) as error:
        raise ModelFileError(f"{name}: {printable(error, 100)}; save the model again.") from error
    estimator._targets.restore(estimator.model_, _part(document, "one_target", bool, name), levels, name)
    num_features = estimator.model_.embedding.num_own
    try:
        estimator.frame_predictors_ = tuple(
            decode_frame_predictor(node, tensors) for node in document.get("frame_predictors", ())
        )
    except (LookupError, TypeError, ValueError) as error:
        raise ModelFileError(f"{name}: {printable(error, 100)}; save the model again.") from error
    carried = math.prod(estimator.model_.embedding.shape) - num_features
    if carried != len(estimator.frame_predictors_) * len(estimator.model_.embedding.scales.y_scale):
        raise ModelFileError(f"{name}: stored rows have other values than its predictors give; save the model again.")
    # A parameter that was an object is not in the file; what it became is in the model.
    if "kernel" not in parameters:
        estimator.set_params(kernel=estimator.model_.posterior.kernel.prior_kernel)
    if "prior_mean" not in parameters and "divergence" in parameters and "prior_mean" in known:
        estimator.set_params(prior_mean="(an object that the file does not hold)")
    if "mean" not in parameters:
        estimator.set_params(mean="(an object that the file does not hold)")
    estimator.n_features_in_ = num_features
    names, table = document.get("feature_names"), document.get("table")
    if table is not None:
        try:
            encoder = TableEncoder.from_json(table["columns"])
            estimator.held_out_scores_ = {key: number(value, "a score") for key, value in table["scores"].items()}
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise ModelFileError(f"{name}: {printable(error, 100)}; save the model again.") from error
        if len(encoder.encoder_.features) != num_features:
            raise ModelFileError(
                f"{name}: the model has {num_features} inputs, its columns give {len(encoder.encoder_.features)}; save it again."
            )
        estimator.encoder_ = encoder
        estimator.n_features_in_, estimator.feature_names_in_ = encoder.n_features_in_, encoder.feature_names_in_
    elif names is not None:
        if not isinstance(names, list) or len(names) != num_features or not all(isinstance(n, str) for n in names):
            raise ModelFileError(f"{name} names other columns than the model has; save the model again.")
        estimator.feature_names_in_ = np.array(names, dtype=object)
    return estimator


def _part(document: dict[str, Any], key: str, kind: type, name: str) -> Any:
    value = document.get(key)
    if not isinstance(value, kind):
        raise ModelFileError(f"{name} lacks the part {key!r}, or it is of the wrong kind; save the model again.")
    return value
