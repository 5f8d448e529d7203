"""A fit to points in one dimension, by the library as anybody would call it, and what is drawn of it.

Each option is kept beside the Python that makes it, so the Python that the page hands out does the same fit.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import MaternKernel, RQKernel, ScaleKernel
from jaxtyping import Float
from sklearn.ensemble import GradientBoostingRegressor

from gwi._progress import Report, told_to
from gwi._typing import Array
from gwi.core.kernels import default_kernel
from gwi.estimators.regressor import GWIRegressor
from gwi.exceptions import GWIWarning
from gwi.parts import Covariance, Gaussian, Network
from gwi.web.play.asked import Asked, Held

# Points of each curve.
NUM_DRAWN = 181
# Of both bands.
COVERAGE, HALF_WIDTH = 0.95, 1.96
# While a point moves: two folds judge, and a network has so many steps.
MOVING_FOLDS, MOVING_STEPS = 2, 40
# Few steps, of trees whose splits are exact: as near to a function as twice as many of histograms, in half the time.
TREES: dict[str, float] = {"n_estimators": 20, "learning_rate": 0.2, "max_depth": 5, "min_samples_leaf": 4, "random_state": 0}
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "rbf": ("", {}),
    "matern52": ("shape=MaternKernel, nu=2.5", {"shape": MaternKernel, "nu": 2.5}),
    "matern32": ("shape=MaternKernel, nu=1.5", {"shape": MaternKernel, "nu": 1.5}),
    "rq": ("shape=RQKernel", {"shape": RQKernel}),
}


@dataclass(frozen=True)
class Option:
    """One argument of the estimator.

    Attributes:
        name: of the argument.
        value: of the argument.
        code: the Python that makes the value.
        imports: lines that this Python needs.
        before: lines that come before the estimator.
    """

    name: str
    value: Any
    code: str
    imports: tuple[str, ...] = ()
    before: tuple[str, ...] = ()


@dataclass(frozen=True)
class Drawn:
    """Curves over x, and what was found.

    Attributes:
        x: where the curves are taken.
        mean: prediction.
        f_low: lower end of the 95 % band of f, whose width is epistemic.
        f_high: upper end of it.
        y_low: lower end of the 95 % interval of y.
        y_high: upper end of it.
        prior_share: 0 for inputs like the points, 1 far away from all of them.
        inducing: x of the inducing points.
        lengthscale: of the kernel, in the unit of x.
        noise_std: of y around f, the median over x.
        held: the kernel's scales, to keep while a point moves.
        summary: of the fit, in words.
        notes: warnings.
    """

    x: Float[Array, " G"]
    mean: Float[Array, " G"]
    f_low: Float[Array, " G"]
    f_high: Float[Array, " G"]
    y_low: Float[Array, " G"]
    y_high: Float[Array, " G"]
    prior_share: Float[Array, " G"]
    inducing: Float[Array, " M"]
    lengthscale: float
    noise_std: float
    held: Held
    summary: str
    notes: tuple[str, ...]


def options(asked: Asked) -> list[Option]:
    """The arguments of `GWIRegressor` that the choices stand for."""
    return [
        _mean(asked),
        _kernel(asked),
        *_covariance(asked),
        _likelihood(asked),
        *([Option("cv", MOVING_FOLDS, str(MOVING_FOLDS))] if asked.moving else []),
        Option("random_state", 0, "0"),
    ]


def draw(asked: Asked, report: Report) -> Drawn:
    """Fit, and take the curves; `report` hears how far the fit is, and may end it."""
    x, y, grid = np.array(asked.x), np.array(asked.y), np.linspace(*asked.window, NUM_DRAWN)
    model = GWIRegressor(**{option.name: option.value for option in options(asked)}, verbose=0)
    with told_to(report), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", GWIWarning)
        model.fit(x[:, None], y)
        found = model.predict_columns(grid[:, None], COVERAGE, parts=True)
    half = HALF_WIDTH * np.sqrt(found["epistemic"])
    # Of positive targets and counts the mean is never below zero.
    least = 0.0 if asked.likelihood in ("log-normal", "poisson") else -math.inf
    posterior, scales = model.posterior_.kernel, model.model_.embedding.scales
    held = _held(posterior.prior_kernel)
    return Drawn(
        x=grid,
        mean=found["prediction"],
        f_low=np.maximum(found["prediction"] - half, least),
        f_high=found["prediction"] + half,
        y_low=found["lower"],
        y_high=found["upper"],
        prior_share=found["ood_score"],
        inducing=np.sort(scales.original_rows(posterior.inducing_points.detach().numpy())[:, 0]),
        lengthscale=held.lengthscale * float(scales.x_scale[0]),
        noise_std=float(np.sqrt(np.median(found["aleatoric"]))),
        held=held,
        summary=str(model.summary_),
        notes=tuple(dict.fromkeys(str(warning.message) for warning in caught)),
    )


def _mean(asked: Asked) -> Option:
    if asked.mean == "trees":
        arguments = ", ".join(f"{name}={value}" for name, value in TREES.items())
        code = f"GradientBoostingRegressor({arguments})"
        return Option("mean", GradientBoostingRegressor(**TREES), code, (_import("sklearn.ensemble", code),))
    if asked.mean == "network" and asked.moving:
        network = Network(max_steps=MOVING_STEPS, per_fold=1)
        code = f"Network(max_steps={MOVING_STEPS}, per_fold=1)"
        return Option("mean", network, code, (_import("gwi", code),))
    name = {"gp": "svgp", "network": "network", "line": "linear"}[asked.mean]
    return Option("mean", name, f'"{name}"')


def _kernel(asked: Asked) -> Option:
    """By its name; with a length-scale of the user's, or the scales of the fit before, as an object that keeps them."""
    shown, shape = SHAPES[asked.kernel]
    imports = tuple(_import("gpytorch.kernels", part.__name__) for part in shape.values() if isinstance(part, type))
    imports = (_import("gwi.core.kernels", "default_kernel"), *imports)
    if asked.moving and asked.held is not None and asked.lengthscale is None:
        held = asked.held
        kernel = default_kernel(1, lengthscale=held.lengthscale, outputscale=held.outputscale, **shape)
        if asked.kernel == "rq" and held.alpha is not None:
            kernel.base_kernel.alpha = torch.tensor(held.alpha, dtype=torch.float64)
        return Option("kernel", kernel.requires_grad_(False), "kernel", imports)
    if asked.lengthscale is None:
        return Option("kernel", asked.kernel, f'"{asked.kernel}"')
    kernel = default_kernel(1, lengthscale=asked.lengthscale / float(np.std(asked.x)), **shape)
    kernel.base_kernel.raw_lengthscale.requires_grad_(False)
    made = ", ".join(filter(None, [f"1, lengthscale={asked.lengthscale!r} / float(x.std())", shown]))
    kept = "kernel.base_kernel.raw_lengthscale.requires_grad_(False)  # as it is, not fitted"
    before = (f"kernel = default_kernel({made})", kept)
    return Option("kernel", kernel, "kernel", imports, before)


def _covariance(asked: Asked) -> list[Option]:
    given: dict[str, Any] = {}
    if asked.covariance == "box":
        given["context"] = "box"
    elif asked.covariance != "auto":
        given["kind"] = asked.covariance
    # Other covariances have no β.
    if asked.weight is not None and asked.covariance in ("auto", "wasserstein"):
        given["weight"] = asked.weight
    if asked.num_inducing is not None:
        given["num_inducing"] = asked.num_inducing
    if not given:
        return []
    code = f"Covariance({', '.join(f'{name}={value!r}' for name, value in given.items())})".replace("'", '"')
    return [Option("covariance", Covariance(**given), code, (_import("gwi", code),))]


def _likelihood(asked: Asked) -> Option:
    if asked.likelihood != "varying":
        return Option("likelihood", asked.likelihood, f'"{asked.likelihood}"')
    code = 'Gaussian("input-dependent")'
    return Option("likelihood", Gaussian("input-dependent"), code, (_import("gwi", code),))


def _import(module: str, code: str) -> str:
    return f"from {module} import {code.partition('(')[0]}"


def _held(kernel: Any) -> Held:
    base = kernel.base_kernel if isinstance(kernel, ScaleKernel) else kernel
    alpha = float(base.alpha.detach()) if isinstance(base, RQKernel) else None
    return Held(float(base.lengthscale.detach()), float(kernel.outputscale.detach()), alpha)
