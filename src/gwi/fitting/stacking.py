"""Weights of stacked means by their errors on held-out rows: least squares for numbers, cross-entropy for logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.optimize import minimize, nnls
from scipy.special import log_softmax
from torch import Tensor

from gwi._typing import Array
from gwi.fitting.logit_targets import smoothed

# Of the weights of a stack towards equal ones; of logits. On practice tables less than 0.1 lowers the NLL of numbers by 0.005, at
# home and in tails, and none at all does no better.
SHRINKAGE, LOGIT_SHRINKAGE = 0.03, 0.1
# Held-out rows without folds of their own, or all in one, get so many for the weights; below so many rows the weights of all
# serve.
NUM_WEIGHT_FOLDS, FEWEST_CROSS_FITTED = 5, 20
# Degrees of freedom of the law by which a row counts in the weights, and the least variance, as a share of the mean, of any row.
WEIGHT_DEGREES, SMALLEST_VARIANCE = 5.0, 1e-6
# Nats that a stack of logits pays for twice the scale, or none, of its members.
SCALE_PENALTY = 2.0
# A share of the logits below which a mean is left out, and the others are weighed again.
SMALLEST_SHARE = 0.06


def convex_weights(
    held_out: Float[Tensor, "K V"], y: Float[Tensor, " V"], sample_weight: Float[Tensor, " V"], shrinkage: float = SHRINKAGE
) -> Float[Tensor, " K"]:
    """w ≥ 0, Σ w = 1 that minimise mean (y − Σ w_k m_k)² + λ s² ‖w − 1/K‖² on rows the means have not seen.

    s² is what is left at λ = 0. Rows that are alike to those learned from favour one or two means; new rows may not be alike, and
    equal weights are the safer the less is lost by them.

    Args:
        held_out: predictions of each mean.
        y: targets.
        sample_weight: of each row.
        shrinkage: λ.
    """
    errors = ((y - held_out) * sample_weight.sqrt()).mT.cpu().numpy() / len(y) ** 0.5
    num_means = errors.shape[1]
    # Non-negative least squares on the errors, ‖E w‖², with Σ w = 1 as one heavy row.
    heavy = 1e3 * max(float(np.abs(errors).max()) * len(errors) ** 0.5, 1e-12)

    def solve(penalty: float) -> Array:
        rows = [errors, penalty * np.eye(num_means), np.full((1, num_means), heavy)]
        target = np.concatenate([np.zeros(len(errors)), np.full(num_means, penalty / num_means), [heavy]])
        weights, _ = nnls(np.concatenate(rows), target)
        return weights / weights.sum()

    left = float(np.linalg.norm(errors @ solve(0.0)))
    return torch.from_numpy(solve(shrinkage**0.5 * left)).to(held_out)


def student_precision(residuals: Float[Tensor, " V"], variance: Float[Tensor, " V"]) -> Float[Tensor, " V"]:
    """(ν + 1)/((ν − 2) v + e²): the weight of each row in the step of least squares that climbs Student's likelihood.

    Rows that can be known well have small v, those that err more than v says count less.
    """
    floor = SMALLEST_VARIANCE * variance.mean()
    return (WEIGHT_DEGREES + 1) / ((WEIGHT_DEGREES - 2) * variance.clamp_min(floor) + residuals.square())


def cross_fitted(
    weigh: Callable[[Tensor], Float[Tensor, " K"]], num_rows: int, fold: Int[Tensor, " V"] | None, device: torch.device
) -> tuple[Float[Tensor, " K"], Float[Tensor, "K V"]]:
    """Weights by all held-out rows, and those of each row from other folds: weights, too, flatter the rows they are fitted to.

    Args:
        weigh: the weights by the rows whose places it is given.
        num_rows: V.
        fold: of each row; None where they have none. Where all have the same one, no others are left to learn weights from.
        device: where tensors live.
    """
    weights = weigh(torch.ones(num_rows, dtype=torch.bool, device=device))
    unseen = weights[:, None].repeat(1, num_rows)
    if len(weights) > 1 and num_rows >= FEWEST_CROSS_FITTED:
        if fold is None or (fold == fold[0]).all():
            fold = torch.randperm(num_rows, generator=torch.Generator().manual_seed(0)).to(device) % NUM_WEIGHT_FOLDS
        for k in fold.unique().tolist():
            others = fold != k
            unseen[:, ~others] = weigh(others)[:, None]
    return weights, unseen


def logit_weights(
    held_out: Float[Tensor, "K J V"],
    y: Float[Tensor, "J V"],
    sample_weight: Float[Tensor, " V"],
    *,
    scale: float | Literal["auto"] = "auto",
) -> tuple[Float[Tensor, " K"], float]:
    """w ≥ 0 with Σ w = 1, and s ≥ 0, that minimise the cross-entropy of s Σ w_k m_k on rows the means have not seen.

    Convex in s·w. Each mean is first brought to the scale that suits it alone. Then a ridge of some nats draws the products
    towards each other, and their sum towards one: few held-out rows with fewer errors would else ask for any scale. 1/s is the
    temperature of the combined logits.

    Args:
        held_out: logits of each mean.
        y: indicators.
        sample_weight: of each row.
        scale: s, or ``"auto"``.
    """
    own = torch.ones_like(held_out[:, 0, 0])
    if len(held_out) > 1 and scale == "auto":
        own = held_out.new_tensor([best_scale(part, y, sample_weight)[0] for part in held_out])
    logits = (own[:, None, None] * held_out).cpu().numpy()
    target, weight = smoothed(y).cpu().numpy(), sample_weight.cpu().numpy()
    num_means = len(logits)
    scale_penalty = SCALE_PENALTY if num_means > 1 and scale == "auto" else 0.0

    def objective(products: Array) -> tuple[float, Array]:
        log_p = log_softmax(np.tensordot(products, logits, axes=1), axis=0)
        loss = -weight @ (target * log_p).sum(0)
        gradient = np.einsum("jv,kjv->k", weight * (np.exp(log_p) - target), logits)
        away, excess = products - products.mean(), products.sum() - 1
        loss += LOGIT_SHRINKAGE * num_means * away @ away + scale_penalty * excess**2
        gradient += 2 * LOGIT_SHRINKAGE * num_means * away + 2 * scale_penalty * excess
        return loss / len(weight), gradient / len(weight)

    products = np.full(num_means, (1.0 if scale == "auto" else scale) / num_means)
    if scale == "auto":
        products = minimize(objective, products, jac=True, method="L-BFGS-B", bounds=[(1e-6, 50.0)] * num_means).x
    elif num_means > 1:
        total = {"type": "eq", "fun": lambda p: p.sum() - scale, "jac": np.ones_like}
        bounds = [(0.0, scale)] * num_means
        found = minimize(objective, products, jac=True, method="SLSQP", bounds=bounds, constraints=[total])
        products = found.x.clip(0.0)
    products = products * own.cpu().numpy()
    # Weights that no prediction can tell from zero would keep their members in the model for nothing.
    kept = products >= SMALLEST_SHARE * products.sum()
    if not kept.all():
        rest, total_of_rest = logit_weights(held_out[torch.from_numpy(kept)], y, sample_weight, scale=scale)
        weights = torch.zeros_like(own)
        weights[torch.from_numpy(kept).to(own.device)] = rest
        return weights, total_of_rest
    return torch.from_numpy(products / products.sum()).to(held_out), float(products.sum())


def best_scale(logits: Float[Tensor, "J V"], y: Float[Tensor, "J V"], sample_weight: Float[Tensor, " V"]) -> tuple[float, float]:
    """The scale that suits logits best on these rows, and the NLL that they then have."""
    _, scale = logit_weights(logits[None], y, sample_weight)
    chosen = ((scale * logits).log_softmax(0) * y).sum(0)
    return scale, float(-(sample_weight * chosen).sum() / sample_weight.sum())
