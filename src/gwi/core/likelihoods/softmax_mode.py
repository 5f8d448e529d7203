"""Labels as observations of logits: Laplace's approximation for independent Gaussian logits under the softmax."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from gwi.core.linalg import cholesky, cholesky_solve

# A label that is as good as certain still counts for this share of one in doubt: what it tells is small, its noise finite.
LEAST_CURVATURE = 1e-6
MOST_STEPS, TOLERANCE = 100, 1e-10


def softmax_mode(
    mean: Float[Tensor, "J N"],
    covariance: Float[Tensor, "J N N"],
    labels: Float[Tensor, "J N"],
    weight: Float[Tensor, " N"],
    scale: float,
) -> tuple[Float[Tensor, "J N"], Float[Tensor, "J N"]]:
    """Targets t and variances 1/W whose Gaussian observation moves the mean of the logits to the mode given the labels.

    The mode f = m + q a maximises Σ w log softmax(s f)_label − ½ aᵀ q a, where a = s w (y − p). With W = s² w p(1 − p) an
    observation of t = m + (q + W⁻¹) a leads there. Steps use 2 W, which is at least the whole curvature diag p − p pᵀ, and are
    halved until the objective does not fall (Rasmussen and Williams, 2006, 3.5).

    Args:
        mean: m of each logit.
        covariance: q of each logit.
        labels: y, indicators.
        weight: w of each row.
        scale: s, what logits are multiplied by.
    """

    def objective(a: Tensor) -> Tensor:
        moved = covariance @ a[..., None]
        logits = scale * (mean + moved[..., 0])
        return (weight * labels * logits.log_softmax(0)).sum() - 0.5 * (a[..., None] * moved).sum()

    a = torch.zeros_like(mean)
    value = objective(a)
    for _ in range(MOST_STEPS):
        moved = (covariance @ a[..., None])[..., 0]
        p = (scale * (mean + moved)).softmax(0)
        curvature = (2 * scale**2 * weight * p * (1 - p)).clamp_min(LEAST_CURVATURE * scale**2 * float(weight.min()))
        wanted = _solved(covariance, curvature, moved + scale * weight * (labels - p) / curvature)
        step = wanted - a
        while (new := objective(a + step)) < value and step.abs().max() > TOLERANCE * scale:
            step = step / 2
        a, value = a + step, torch.maximum(new, value)
        if step.abs().max() <= TOLERANCE * scale * float(weight.max()):
            break
    moved = (covariance @ a[..., None])[..., 0]
    p = (scale * (mean + moved)).softmax(0)
    variance = (scale**2 * weight * (p * (1 - p)).clamp_min(LEAST_CURVATURE)).reciprocal()
    return mean + moved + variance * a, variance


def _solved(covariance: Tensor, curvature: Tensor, target: Tensor) -> Tensor:
    """(q + W⁻¹)⁻¹ t, in units of W so that rows of very different curvature stand side by side."""
    root = curvature.sqrt()
    eye = torch.eye(root.shape[-1], dtype=root.dtype, device=root.device)
    factor = cholesky(eye + root[:, :, None] * covariance * root[:, None, :], name="I + W^½ q W^½").factor
    return root * cholesky_solve(factor, (root * target)[..., None])[..., 0]
