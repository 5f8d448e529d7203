"""Means of f under any likelihood of one number: linear and kernel ones by Newton's method, lines through others, weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.linear_model import RidgeCV
from torch import Tensor

from gwi.core.kernels import whitened_features
from gwi.core.likelihoods.families import LEAST_DISPERSION, MOST_DISPERSION, Family
from gwi.core.linalg import cholesky, cholesky_solve
from gwi.core.measures import kernel_matrix
from gwi.core.training import minimize_lbfgs
from gwi.fitting.folds import counted_cells
from gwi.fitting.stacking import convex_weights

# Penalties of a ridge regression, for each row.
RIDGE_PENALTIES = np.logspace(-5, 2, 15)
# Newton steps: of a linear mean, each with a penalty chosen anew; of a kernel mean; of weights.
LINEAR_STEPS, KERNEL_STEPS, WEIGHT_STEPS = 8, 40, 6
# Nats that a line pays for a slope of two, or of none; and the least slope.
SLOPE_PENALTY, LEAST_SLOPE = 2.0, 1e-3
# Numbers of the features of a kernel mean held at a time.
MOST_FEATURES = 10**8
# Of an expected curvature: a row that says nothing still has this share of the mean.
LEAST_SHARE = 1e-6


@dataclass(frozen=True)
class LinearFit:
    """a + b·x, and the dispersion around it.

    Attributes:
        coefficients: b.
        intercept: a.
        dispersion: φ.
    """

    coefficients: Float[Tensor, " D"]
    intercept: float
    dispersion: float

    def at(self, x: Float[Tensor, "N D"]) -> Float[Tensor, " N"]:
        """f at rows."""
        return self.intercept + x @ self.coefficients


def working_response(
    family: Family, y: Float[Tensor, "*C N"], f: Float[Tensor, " N"], phi: float
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
    """The number of the kind of f by which least squares makes a Newton step, f + ∂ log p/curvature, and its weight."""
    dispersion = torch.full_like(f, phi)
    curvature = family.curvature(y, f, dispersion)
    curvature = curvature.clamp_min(LEAST_SHARE * float(curvature.mean()))
    return f + family.score(y, f, dispersion) / curvature, curvature


@torch.no_grad()
def fitted_dispersion(family: Family, y: Float[Tensor, "*C N"], f: Float[Tensor, " N"], weight: Float[Tensor, " N"]) -> float:
    """φ by the likelihood of rows whose f is known: by golden section of its logarithm."""
    if not family.has_dispersion:
        return 1.0

    def loss(log_phi: float) -> float:
        value = -(weight * family.log_prob(y, f, torch.full_like(f, math.exp(log_phi)))).sum()
        return float(value) if torch.isfinite(value) else math.inf

    centre = math.log(min(max(family.rough_dispersion(y, family.mean(f, torch.ones_like(f)), weight), 1e-5), MOST_DISPERSION))
    low, high = max(centre - 6, math.log(LEAST_DISPERSION)), min(centre + 4, math.log(MOST_DISPERSION))
    ratio = (math.sqrt(5) - 1) / 2
    a, b = high - ratio * (high - low), low + ratio * (high - low)
    at_a, at_b = loss(a), loss(b)
    for _ in range(28):
        if at_a <= at_b:
            high, b, at_b = b, a, at_a
            a = high - ratio * (high - low)
            at_a = loss(a)
        else:
            low, a, at_a = a, b, at_b
            b = low + ratio * (high - low)
            at_b = loss(b)
    return math.exp((low + high) / 2)


@torch.no_grad()
def linear_fit(family: Family, y: Float[Tensor, "*C N"], x: Float[Tensor, "N D"], weight: Float[Tensor, " N"]) -> LinearFit:
    """Ridge regression of f on the columns: weighted least squares of working responses, its penalty by leaving rows out.

    Each step is halved until the likelihood does not fall.
    """
    z = family.working(y)
    level = float((weight * z).sum() / weight.sum())
    found = LinearFit(x.new_zeros(x.shape[1]), level, 1.0)
    found = LinearFit(found.coefficients, level, fitted_dispersion(family, y, found.at(x), weight))

    def value(fit: LinearFit, phi: float) -> float:
        f = fit.at(x)
        return float((weight * family.log_prob(y, f, torch.full_like(f, phi))).sum())

    columns = x.cpu().numpy() if x.shape[1] else np.zeros((len(x), 1))
    cell = counted_cells(columns, weight.cpu().numpy())
    for _ in range(LINEAR_STEPS):
        z, curvature = working_response(family, y, found.at(x), found.dispersion)
        w = (weight * curvature).cpu().numpy()
        model = RidgeCV(len(x) * RIDGE_PENALTIES).fit(*_one_a_cell(columns, z.cpu().numpy(), w / w.mean(), cell))
        new = x.new_tensor(model.coef_[: x.shape[1]]), float(model.intercept_)
        now, share = value(found, found.dispersion), 1.0
        while True:
            tried = LinearFit(
                found.coefficients + share * (new[0] - found.coefficients),
                found.intercept + share * (new[1] - found.intercept),
                found.dispersion,
            )
            # A penalty that is chosen anew may cost a little likelihood.
            if value(tried, found.dispersion) >= now - 1e-2 * abs(now) or share < 1e-3:
                break
            share /= 2
        moved = float((weight * (tried.at(x) - found.at(x)).square()).sum() / weight.sum())
        phi = fitted_dispersion(family, y, tried.at(x), weight)
        settled = moved < 1e-8 and abs(math.log(phi / found.dispersion)) < 1e-3
        found = LinearFit(tried.coefficients, tried.intercept, phi)
        if settled:
            break
    return found


def _one_a_cell(
    x: NDArray[Any], z: NDArray[Any], weight: NDArray[Any], cell: NDArray[np.int64] | None
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Of rows that are left out together one with their mean and the sum of their weights: least squares see no difference."""
    if cell is None:
        return x, z, weight
    total = np.bincount(cell, weights=weight)
    first = np.unique(cell, return_index=True)[1]
    return x[first], np.bincount(cell, weights=weight * z) / total, total


@torch.no_grad()
def kernel_coefficients(
    family: Family,
    y: Float[Tensor, "*C N"],
    x: Float[Tensor, "N D"],
    weight: Float[Tensor, " N"],
    phi: float,
    kernel: Kernel,
    z: Float[Tensor, "M D"],
    centre: Float[Tensor, " N"],
) -> Float[Tensor, " M"]:
    """The whitened v that maximises Σ w log p(y | c + φᵀv) − ½ ‖v‖²: the mode of f under the prior, by Newton's method."""
    factor = cholesky(kernel_matrix(kernel, z), name="k(Z, Z)").factor
    chunks = x.split(max(1, MOST_FEATURES // len(z)))
    features = [whitened_features(kernel, z, factor, part) for part in chunks]
    eye = torch.eye(len(z), dtype=x.dtype, device=x.device)

    def f_of(v: Tensor) -> Tensor:
        return centre + torch.cat([v @ part for part in features])

    def objective(v: Tensor) -> float:
        f = f_of(v)
        return float((weight * family.log_prob(y, f, torch.full_like(f, phi))).sum() - v.square().sum() / 2)

    v = x.new_zeros(len(z))
    value = objective(v)
    for _ in range(KERNEL_STEPS):
        f = f_of(v)
        response, curvature = working_response(family, y, f, phi)
        w = weight * curvature
        parts = list(zip(features, w.split([len(part) for part in chunks]), strict=True))
        gram = sum((phi_x * w_x) @ phi_x.mT for phi_x, w_x in parts)
        moments = sum(
            phi_x @ (w_x * r_x)
            for (phi_x, w_x), r_x in zip(parts, (response - centre).split([len(part) for part in chunks]), strict=True)
        )
        step = cholesky_solve(cholesky(eye + gram, name="I + ΦWΦᵀ").factor, moments[:, None])[:, 0] - v
        share = 1.0
        while (new := objective(v + share * step)) < value and share > 1e-4:
            share /= 2
        if not new > value + 1e-9 * (1 + abs(value)):
            break
        v, value = v + share * step, new
    return v


def line(
    family: Family, y: Float[Tensor, "*C V"], f: Float[Tensor, " V"], weight: Float[Tensor, " V"], phi: float
) -> tuple[float, float, float]:
    """a, b ≥ 0 and φ by the likelihood of y given a + b f, on rows that f has not learned from; the slope is drawn to one."""
    spread = float(f.std()) if len(f) > 1 else 1.0
    centre = float(f.mean())
    shift, slope = (f.new_tensor(value).requires_grad_(True) for value in (0.0, 1.0))
    log_phi = f.new_tensor(math.log(phi)).requires_grad_(True)

    def objective() -> Tensor:
        moved = centre + shift + slope.clamp_min(LEAST_SLOPE) * (f - centre)
        log_p = family.log_prob(y, moved, log_phi.exp().expand_as(f))
        return -(weight * log_p).sum() + SLOPE_PENALTY * (slope - 1).square()

    parameters = [shift, slope, *([log_phi] if family.has_dispersion else [])]
    bounds = [(None, None), (LEAST_SLOPE, 10.0), (math.log(LEAST_DISPERSION), math.log(MOST_DISPERSION))]
    # Of values that do not vary only the level means anything.
    if spread < 1e-9:
        parameters, bounds = [shift, *parameters[2:]], [bounds[0], bounds[2]]
    minimize_lbfgs(objective, parameters, bounds=bounds[: len(parameters)], max_iterations=50, tolerance=1e-9)
    b = float(slope.detach())
    return float(shift.detach()) + centre * (1 - b), b, float(log_phi.detach().exp()) if family.has_dispersion else 1.0


@torch.no_grad()
def linked_weights(
    family: Family, y: Float[Tensor, "*C V"], predictions: Float[Tensor, "K V"], weight: Float[Tensor, " V"], phi: float
) -> Float[Tensor, " K"]:
    """w ≥ 0, Σ w = 1 by the likelihood of y given Σ w_k f_k: least squares of working responses, again and again."""
    weights = predictions.new_full((len(predictions),), 1 / len(predictions))
    if len(weights) == 1:
        return weights
    for _ in range(WEIGHT_STEPS):
        response, curvature = working_response(family, y, weights @ predictions, phi)
        w = weight * curvature
        new = convex_weights(predictions, response, w / w.mean())
        if float((new - weights).abs().max()) < 1e-4:
            return new
        weights = new
    return weights


def mean_nll(family: Family, y: Float[Tensor, "*C V"], f: Float[Tensor, " V"], weight: Float[Tensor, " V"], phi: float) -> float:
    """The mean of −log p(y | f, φ)."""
    value = -(weight * family.log_prob(y, f, torch.full_like(f, phi))).sum() / weight.sum()
    return float(value)


def expected_between(y: Float[Tensor, "2 N"], f: Float[Tensor, " N"], variance: float) -> NDArray[Any]:
    """E[Z | low ≤ Z ≤ high] of Z ~ N(f, σ²) at each row; y itself where both bounds are one."""
    std, ends = math.sqrt(variance), y.cpu().numpy()
    centre = f.cpu().numpy()
    low, high = (ends - centre) / std
    mass = np.maximum(norm.cdf(high) - norm.cdf(low), 1e-300)
    middle = (norm.pdf(low) - norm.pdf(high)) / mass
    # Far out it lies next to the nearer end.
    middle = np.where(mass < 1e-12, np.where(low > 0, low, high), middle)
    return np.where(ends[0] == ends[1], ends[0], centre + std * np.clip(middle, low, high))
