"""What rows a trained classifier has not seen say about its logits: a kernel mean on top of them, learned by their likelihood."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax
from torch import Tensor

from gwi._typing import Array
from gwi.core.kernels import whitened_features
from gwi.core.linalg import cholesky
from gwi.core.means import ConstantMean, KernelMean, SumMean
from gwi.core.measures import kernel_matrix, kernel_variance
from gwi.core.prior import PriorFit
from gwi.fitting.data import CHUNK_SIZE, HeldOut
from gwi.fitting.logit_targets import smoothed
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
    # φ = U s Wᵀ: few directions hold nearly all of the basis.
    values, vectors = torch.linalg.eigh(features @ features.mT)
    directions = vectors[:, values > LEAST_SHARE * values[-1]].flip(-1)
    basis = directions.mT @ features
    problem = _Problem(*(part.cpu().numpy() for part in (logits.mT, basis.mT, smoothed(y).mT, weight)))
    fold = np.random.default_rng(0).permutation(num_rows) % NUM_FOLDS
    starts: Sequence[Array | None] = [None] * NUM_FOLDS
    plain = problem.losses(problem.cross_fitted(fold, 0.0, starts)[0])
    tried: list[_Tried] = []
    for variance in VARIANCES:
        judged, starts = problem.cross_fitted(fold, variance, starts)
        tried.append(_Tried(variance, judged, problem.losses(judged), starts[0]))
        if len(tried) > 1 and tried[-1].losses.mean() >= tried[-2].losses.mean():
            break
    best = min(tried, key=lambda item: item.losses.mean())
    # The least one that the rows cannot tell from the best: which is best of several, and that it is, is partly chance.
    chosen = next(item for item in tried if not _is_beyond(item.losses - best.losses, 1.0))
    if not _is_beyond(plain - chosen.losses, LEAST_GAIN):
        return None
    scale, offset, inner = problem.parts(problem.solve(chosen.variance, chosen.start))
    v, b, found = (torch.from_numpy(part).to(features) for part in (chosen.variance**0.5 * inner.T, offset, chosen.logits.T))
    return Correction(scale, v @ directions.mT, b, found, chosen.variance)


def _is_beyond(gains: Array, errors: float) -> bool:
    """Whether the mean over rows is above so many of its standard errors."""
    return bool(gains.mean() > errors * gains.std() / len(gains) ** 0.5)


class _Tried(NamedTuple):
    """A prior variance, the logits and losses of each row from the other folds, and the solution without the first fold."""

    variance: float
    logits: Array
    losses: Array
    start: Array | None


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
        return -self.weight * (self.target * log_softmax(logits, axis=1)).sum(1)

    def parts(self, parameters: Array) -> tuple[float, Array, Array]:
        """t, b, and v/τ, one column a class; no row of the last where there is no variance."""
        num_classes = self.logits.shape[1]
        inner = parameters[1 + num_classes :].reshape(-1, num_classes)
        return float(parameters[0]), parameters[1 : 1 + num_classes], inner

    def corrected(self, parameters: Array, variance: float) -> Array:
        """t·m + vᵀφ + b of each row."""
        scale, offset, inner = self.parts(parameters)
        return scale * self.logits + offset + variance**0.5 * (self.basis[:, : len(inner)] @ inner)

    def solve(self, variance: float, start: Array | None) -> Array:
        """The most probable parameters; without variance, of the scale alone."""
        num_rows, num_classes = self.logits.shape
        size = 1 + num_classes * (1 + self.basis.shape[1] if variance > 0 else 1)

        def objective(parameters: Array) -> tuple[float, Array]:
            _, offset, inner = self.parts(parameters)
            log_p = log_softmax(self.corrected(parameters, variance), axis=1)
            loss = 0.5 * (offset @ offset + (inner * inner).sum()) - self.weight @ (self.target * log_p).sum(1)
            error = self.weight[:, None] * (np.exp(log_p) - self.target)
            into_offset = error.sum(0) + offset if variance > 0 else np.zeros(num_classes)
            into_inner = variance**0.5 * (self.basis[:, : len(inner)].T @ error) + inner
            gradient = np.concatenate([[(error * self.logits).sum()], into_offset, into_inner.ravel()])
            return loss / num_rows, gradient / num_rows

        begin = np.r_[1.0, np.zeros(size - 1)] if start is None else start
        bounds = [(1e-3, 50.0), *[(None, None)] * (size - 1)]
        found = minimize(objective, begin, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 200, "ftol": 1e-8})
        return np.asarray(found.x)

    def cross_fitted(self, fold: NDArray[np.int64], variance: float, starts: Sequence[Array | None]) -> tuple[Array, list[Array]]:
        """Each row's logits from the rows of other folds, and the solutions they come from."""
        found, solutions = np.empty_like(self.logits), []
        for i, start in enumerate(starts):
            solutions.append(self._at(fold != i).solve(variance, start))
            found[fold == i] = self._at(fold == i).corrected(solutions[-1], variance)
        return found, solutions

    def _at(self, rows: NDArray[np.bool_]) -> _Problem:
        return _Problem(self.logits[rows], self.basis[rows], self.target[rows], self.weight[rows])


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
    said = f"logits corrected on {len(held_out.x)} held-out rows, with prior variance {correction.variance:g}"
    return replace(stacked, members=(better,), scale=correction.scale), said
