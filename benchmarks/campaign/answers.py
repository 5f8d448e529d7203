"""What models of several kinds answer, all of it in one array in which differences are shares of the target's spread."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import psutil
import torch

from benchmarks.campaign import model_files
from gwi import GWIRegressor
from gwi.core.measures import kernel_variance
from gwi.estimators.persistence import from_content
from gwi.storage.container import to_bytes
from gwi.storage.models import encode_estimator

# The largest difference of one answer in two ways, in standard deviations of the target; of the prior, where that is wider.
TOLERANCE = 1e-12
# Models of `model_files`, and one of a wide table, whose kernel has parts for some of the columns.
NAMES = ("regressor-stack", "regressor-svgp", "classifier-stack", "targets", "features", "wide")


@functools.cache
def _content(name: str) -> bytes:
    if name != "wide":
        return model_files.contents()[name]
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 120))
    model = GWIRegressor("svgp", random_state=0).fit(x, x[:, 0] + np.sin(2 * x[:, 1]) + 0.1 * rng.normal(size=40))
    return to_bytes(*encode_estimator(model))


def fresh(name: str) -> Any:
    """The model of this name, read again."""
    return from_content(_content(name))


@functools.cache
def model_of(name: str) -> Any:
    """The same model each time."""
    return fresh(name)


def rows_like(name: str, rng: np.random.Generator, num_rows: int) -> np.ndarray[Any, Any]:
    """Rows like those that a model was fitted to, one in ten farther away."""
    scales = model_of(name).model_.embedding.scales
    shape = model_of(name).model_.embedding.shape
    unit = rng.normal(size=(num_rows, *shape))
    unit[::10] *= 4
    if len(scales.x_centre) != shape[0]:
        return unit
    return unit * scales.x_scale + scales.x_centre


def answers(model: Any, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Means and the variances of their parts, or probabilities, one column a row; numbers in the target's standard deviations."""
    if model.task == "classification":
        return np.concatenate([model.predict_proba(x).T, np.atleast_2d(model.ood_score(x))])
    scale = model.model_.scales.y_scale
    mean, parts = model.predict(x).reshape(len(x), -1) / scale, model.decompose(x)
    # A mean is a sum of terms as large as the prior's standard deviation, the variance of f what is left of the prior's variance.
    prior = prior_variance(model, x)[:, None]
    epistemic, aleatoric = (np.asarray(part).reshape(len(x), -1) / scale**2 for part in (parts.epistemic, parts.aleatoric))
    return np.concatenate([(mean / prior**0.5).T, (epistemic / prior).T, aleatoric.T, np.atleast_2d(model.ood_score(x))])


def prior_variance(model: Any, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Of f at each row, in variances of the target; at least one."""
    with torch.no_grad():
        rows = torch.cat(list(model.model_.rows(x)))
        return kernel_variance(model.model_.posterior.kernel.prior_kernel, rows).clamp_min(1.0).numpy()


def megabytes() -> float:
    """Memory of this process."""
    return psutil.Process().memory_info().rss / 2**20
