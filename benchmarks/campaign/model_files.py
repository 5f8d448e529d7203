"""Model files to do harm to, and what is asked of them afterwards."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

import gwi
from benchmarks.tables.common.records import ROOT
from gwi import GWIClassifier, GWIRegressor, cli
from gwi.core.networks import mlp
from gwi.exceptions import ModelFileError
from gwi.parts import Covariance, Gaussian
from gwi.storage.container import from_bytes, to_bytes
from gwi.storage.models import encode_estimator

FINE = ("refused", "refused_later", "answered")
FAULTS = ("not_finite", "negative", "crossed", "no_share", "command_failed")
# Models of the golden record that need no module of the user's.
_STORED = ("regressor-stack", "regressor-svgp", "classifier-stack", "table")


@functools.cache
def contents() -> dict[str, bytes]:
    """The content of files that hold all kinds of parts between them."""
    found = {name: (ROOT / "tests" / "golden" / "models" / f"{name}.gwi").read_bytes() for name in _STORED}
    return found | {
        name: to_bytes(*encode_estimator(model)) for name, model in (("targets", _targets()), ("features", _features()))
    }


def _rows() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3))
    return x, np.column_stack([x[:, 0] ** 2, x[:, 1] + 0.1 * rng.normal(size=60)])


def _targets() -> GWIRegressor:
    """Two targets, noise that depends on the input, conformal intervals."""
    likelihood = Gaussian("input-dependent", conformal=True)
    model = GWIRegressor("svgp", likelihood=likelihood, covariance=Covariance(num_inducing=8), random_state=0)
    return model.fit(*_rows())


def _features() -> GWIClassifier:
    """A frozen network of layers, with a kernel on its features."""
    network: nn.Module = mlp(3, 2, hidden=(6,), generator=torch.Generator().manual_seed(0))
    x, y = _rows()
    labels = np.where(y[:, 0] > 1, "high", "low")
    model = GWIClassifier(network, kernel="features", random_state=0, covariance=Covariance(num_inducing=8))
    return model.fit(x[:40], labels[:40], validation=(x[40:], labels[40:]))


@functools.cache
def rows_for(name: str) -> np.ndarray[Any, Any]:
    """Rows like those that a model was fitted to, and one far from them."""
    document, tensors = from_bytes(contents()[name])
    embedding = document["model"]["embedding"]
    shape = tuple(embedding["shape"])
    unit = np.random.default_rng(1).normal(size=(5, *shape))
    unit[-1] *= 100
    if embedding["type"] != "rows":
        return unit
    centre, scale = (tensors[embedding["scales"][key]].numpy().reshape(shape) for key in ("x_centre", "x_scale"))
    return unit * scale + centre


def forged(document: Any, tensors: Mapping[str, Tensor]) -> bytes:
    """A file with the right checksum, whatever the document holds."""
    blank = "0" * 64
    metadata = {"format": "gwi", "version": "1", "document": json.dumps(document), "sha256": blank}
    data = save_tensors({key: value.contiguous() for key, value in tensors.items()}, metadata=metadata)
    return data.replace(f'"sha256":"{blank}"'.encode(), f'"sha256":"{hashlib.sha256(data).hexdigest()}"'.encode(), 1)


def asked(data: bytes, name: str) -> str:
    """The outcome of loading a file that was the one of this name, asking `gwi info`, and predicting where it loads."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gwi"
        path.write_bytes(data)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
            code = cli.run(["info", str(path)])
        if code not in (0, 2) or not said.getvalue().rstrip("\n").isprintable():
            return f"command_failed: gwi info ended with {code} and {said.getvalue()[-150:]}"
        try:
            model = gwi.load(path)
        except ModelFileError as error:
            return f"refused: {error}"
    try:
        return judged(model, rows_for(name))
    except (ValueError, ArithmeticError) as error:
        return f"refused_later: {error}"


def judged(model: Any, x: np.ndarray[Any, Any]) -> str:
    """Whether predictions are numbers, spreads not negative, intervals not crossed, and shares between zero and one."""
    share = model.ood_score(x)
    if model.task == "regression":
        mean, std = model.predict(x, return_std=True)
        lower, upper = np.moveaxis(model.predict_interval(x, 0.9), -1, 0)
        parts = model.decompose(x)
        found = [mean, std, lower, upper, parts.epistemic, parts.aleatoric, parts.total, share]
        spreads, ends, shares = [std, parts.epistemic, parts.aleatoric], (lower, upper), [share]
    else:
        probabilities = model.predict_proba(x)
        entropy = model.decompose(x)
        found = [probabilities, entropy.total, entropy.expected, share, model.ood_score(x, energy=True)]
        spreads, ends, shares = [entropy.total, entropy.mutual_information], (share, share), [probabilities, share]
        if np.isfinite(probabilities).all() and not np.allclose(probabilities.sum(1), 1):
            return "no_share: probabilities do not sum to one"
    if not all(np.isfinite(part).all() for part in found):
        return "not_finite"
    if any((part < 0).any() for part in spreads):
        return "negative"
    if (ends[0] > ends[1]).any():
        return "crossed"
    return "answered" if all(((part >= 0) & (part <= 1)).all() for part in shares) else "no_share"
