"""What rows a trained classifier has not seen say about its logits: a kernel mean on top of them, learned by their likelihood."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from gwi._typing import Array
from gwi.core.kernels import whitened_features
from gwi.core.linalg import cholesky
from gwi.core.means import ConstantMean, KernelMean, SumMean
from gwi.core.measures import kernel_matrix, kernel_variance
from gwi.core.prior import PriorFit
from gwi.fitting.data import CHUNK_SIZE, HeldOut
from gwi.fitting.task import StackedMean

# Prior variances of a correction, in squared logits.
VARIANCES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
NUM_FOLDS = 5
# Directions of the basis that hold less than this share of the largest one's variance change no prediction.
LEAST_SHARE = 1e-4
# Standard errors that a correction must gain. Folds drawn anew move the gain by as much as one.
LEAST_GAIN = 2.0
# Below so many unseen rows they only set the scale.
FEWEST_ROWS = 200


@dataclass(frozen=True)
class Correction:
    """t·m(x) + vᵀφ(x) + b instead of the logits m(x).

    Attributes:
        scale: t.
        coefficients: v, one row a class.
        offset: b.
        held_out: corrected logits of each row, from the other folds.
        variance: of the prior that was chosen, in squared logits.
    """

    scale: float
    coefficients: Float[Tensor, "J M"]
    offset: Float[Tensor, " J"]
    held_out: Float[Tensor, "J V"]
    variance: float


def learn_correction(
    logits: Float[Tensor, "J V"],
    features: Float[Tensor, "M V"],
    y: Float[Tensor, "J V"],
    weight: Float[Tensor, " V"],
) -> Correction | None:
    """The correction of the prior variance that folds of the rows prefer; None where it gains no more than two standard errors.

    Of variances that folds cannot tell from the best, by one standard error, it is the least.

    With v ~ N(0, τ² I) in a whitened basis the correction is a Gaussian process before it sees the rows; the most probable one is
    found, a convex problem.

    Args:
        logits: of rows that the classifier has not seen.
        features: φ, the whitened basis at these rows, of a kernel with unit variance.
        y: indicators of the classes.
        weight: of each row.
    """
    num_rows = y.shape[1]
    if num_rows < FEWEST_ROWS:
        return None
    # φ = U s Wᵀ: few directions matter.
    directions, basis = _principal(features)
    problem = _Problem(*(part.cpu().numpy() for part in (logits.mT, basis.mT, _smoothed(y).mT, weight)))
    fold = np.random.default_rng(0).permutation(num_rows) % NUM_FOLDS
    plain = problem.losses(problem.cross_fitted(fold, 0.0, None).logits)
    tried: list[tuple[float, _CrossFitted, Array]] = []
    starts = None
    for variance in VARIANCES:
        fitted = problem.cross_fitted(fold, variance, starts)
        starts = fitted.solutions
        tried.append((variance, fitted, problem.losses(fitted.logits)))
        if len(tried) > 1 and tried[-1][2].mean() >= tried[-2][2].mean():
            break
    best = min(tried, key=lambda item: item[2].mean())
    # The least one that the rows cannot tell from the best: which is best of several, and that it is, is partly chance.
    variance, chosen, losses = next(item for item in tried if not _is_beyond(item[2] - best[2], 1.0))
    if not _is_beyond(plain - losses, LEAST_GAIN):
        return None
    scale, offset, coefficients = problem.parts(problem.solve(np.ones(num_rows, bool), variance, chosen.solutions[0]), variance)
    v, b, judged = (torch.from_numpy(part).to(features) for part in (coefficients.T, offset, chosen.logits.T))
    return Correction(scale, v @ directions.mT, b, judged, variance)


def _is_beyond(gains: Array, errors: float) -> bool:
    """Whether the mean over rows is above so many of its standard errors."""
    return bool(gains.mean() > errors * gains.std() / len(gains) ** 0.5)


def _principal(features: Float[Tensor, "M V"]) -> tuple[Float[Tensor, "M R"], Float[Tensor, "R V"]]:
    """Directions that hold nearly all of the basis, and the rows in them."""
    values, vectors = torch.linalg.eigh(features @ features.mT)
    directions = vectors[:, values > LEAST_SHARE * values[-1]].flip(-1)
    return directions, directions.mT @ features


def _smoothed(y: Float[Tensor, "J V"]) -> Float[Tensor, "J V"]:
    """As if one more row had every label: rows that are all told apart would else ask for an infinite scale (Platt 1999)."""
    wrong = 1 / (y.shape[1] + 1)
    return (1 - wrong) * y + wrong / len(y)


@dataclass(frozen=True)
class _CrossFitted:
    """Logits of each row from the other folds, and the solutions they come from."""

    logits: Array
    solutions: list[Array]


@dataclass(frozen=True)
class _Problem:
    """Penalised maximum likelihood in (t, b, v/τ).

    Attributes:
        logits: one row an example.
        basis: likewise.
        target: shares of the classes.
        weight: of each row.
    """

    logits: Array
    basis: Array
    target: Array
    weight: Array

    def losses(self, logits: Array) -> Array:
        """The weighted cross-entropy of each row."""
        return self.weight * (_log_total(logits) - (self.target * logits).sum(1))

    def solve(self, rows: NDArray[np.bool_], variance: float, start: Array | None) -> Array:
        """The most probable parameters by some of the rows; without variance, of the scale alone."""
        logits, target, weight = self.logits[rows], self.target[rows], self.weight[rows]
        basis = variance**0.5 * self.basis[rows]
        num_classes, num_directions = logits.shape[1], basis.shape[1] if variance > 0 else 0

        def objective(parameters: Array) -> tuple[float, Array]:
            scale, offset = parameters[0], parameters[1 : 1 + num_classes]
            inner = parameters[1 + num_classes :].reshape(num_directions, num_classes)
            combined = scale * logits + offset + basis[:, :num_directions] @ inner
            log_total = _log_total(combined)
            loss = weight @ (log_total - (target * combined).sum(1)) + 0.5 * (offset @ offset + (inner * inner).sum())
            error = weight[:, None] * (np.exp(combined - log_total[:, None]) - target)
            into_offset = error.sum(0) + offset if variance > 0 else np.zeros(num_classes)
            into_inner = basis[:, :num_directions].T @ error + inner
            gradient = np.concatenate([[(error * logits).sum()], into_offset, into_inner.ravel()])
            return loss / len(weight), gradient / len(weight)

        size = 1 + num_classes * (1 + num_directions)
        begin = np.r_[1.0, np.zeros(size - 1)] if start is None else start
        bounds = [(1e-3, 50.0), *[(None, None)] * (size - 1)]
        found = minimize(objective, begin, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 200, "ftol": 1e-8})
        return np.asarray(found.x)

    def parts(self, solution: Array, variance: float) -> tuple[float, Array, Array]:
        """t, b, and v, one column a class."""
        num_classes = self.logits.shape[1]
        inner = solution[1 + num_classes :].reshape(-1, num_classes)
        return float(solution[0]), solution[1 : 1 + num_classes], variance**0.5 * inner

    def cross_fitted(self, fold: NDArray[np.int64], variance: float, starts: list[Array] | None) -> _CrossFitted:
        """Each row's logits from the rows of other folds."""
        found, solutions = np.empty_like(self.logits), []
        for i in range(NUM_FOLDS):
            solution = self.solve(fold != i, variance, None if starts is None else starts[i])
            scale, offset, inner = self.parts(solution, variance)
            rows = fold == i
            found[rows] = scale * self.logits[rows] + offset + self.basis[rows][:, : len(inner)] @ inner
            solutions.append(solution)
        return _CrossFitted(found, solutions)


def _log_total(logits: Array) -> Array:
    top = logits.max(1)
    return top + np.log(np.exp(logits - top[:, None]).sum(1))


@torch.no_grad()
def corrected(held_out: HeldOut, prior: PriorFit, z: Float[Tensor, "M D"], stacked: StackedMean) -> tuple[StackedMean, str]:
    """A single mean with a kernel mean on Z added, learned from the held-out rows, and what was done in words.

    The held-out logits are then those of folds of these rows. The basis is that of the covariance, so predictions cost no more.
    """
    member = stacked.members[0]
    factor = cholesky(kernel_matrix(prior.kernel, z), name="k(Z, Z)").factor
    phi = torch.cat([whitened_features(prior.kernel, z, factor, rows) for rows in held_out.x.split(CHUNK_SIZE)], dim=-1)
    amplitude = float(kernel_variance(prior.kernel, z).mean()) ** 0.5
    correction = learn_correction(member.held_out, phi / amplitude, held_out.y, held_out.weight)
    if correction is None:
        return stacked, ""
    kernel_mean = KernelMean(prior.kernel, z, correction.coefficients / (amplitude * correction.scale))
    mean = SumMean([member.mean, kernel_mean, ConstantMean(correction.offset / correction.scale)])
    better = replace(member, mean=mean, held_out=correction.held_out / correction.scale)
    said = f"logits corrected by {len(held_out.x)} unseen rows, prior variance {correction.variance:g}"
    return replace(stacked, members=(better,), scale=correction.scale), said
