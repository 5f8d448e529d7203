"""Observation noise σ²(x), fitted to N(y | m, r + σ²) on rows the mean has not seen, so that r is not counted twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gwi.lbfgs import minimize_lbfgs
from gwi.linalg import LOG_TWO_PI

# The penalty is chosen on so many rows; the slopes are then fitted to all.
MAX_CROSS_VALIDATED = 20_000


def noise_features(x: Float[Tensor, "N D"], mean: Float[Tensor, "J N"]) -> Float[Tensor, "N F"]:
    """What the noise may depend on: the row, its squares, and the predicted level."""
    return torch.cat([x, x.square().clamp_max(16), mean.mT, mean.mT.square().clamp_max(16)], dim=1)


class LogLinearNoise(nn.Module):
    """σ²(x) = exp(b + wᵀψ(x)) with ψ the standardised features of each row; w = 0 is constant noise.

    Args:
        log_level: b.
        slopes: w.
        centre: taken off the features.
        scale: what they are divided by.
    """

    log_level: Tensor
    slopes: Tensor
    centre: Tensor
    scale: Tensor

    def __init__(
        self,
        log_level: Float[Tensor, ""],
        slopes: Float[Tensor, " F"],
        centre: Float[Tensor, " F"],
        scale: Float[Tensor, " F"],
    ):
        super().__init__()
        for name, value in (("log_level", log_level), ("slopes", slopes), ("centre", centre), ("scale", scale)):
            self.register_buffer(name, value.detach().clone())

    def forward(self, features: Float[Tensor, "N F"]) -> Float[Tensor, " N"]:
        """σ² at rows with these features; the exponent is kept within what training rows support."""
        slope = ((features - self.centre) / self.scale).clamp(-4, 4) @ self.slopes
        return (self.log_level + slope.clamp(-8, 4)).exp()


@dataclass(frozen=True)
class NoiseFit:
    """A fitted noise model.

    Attributes:
        noise: σ² as a function of features.
        penalty: on the slopes; infinity for constant noise.
        scores: cross-validated NLL of each penalty tried.
    """

    noise: LogLinearNoise
    penalty: float
    scores: dict[float, float]


def fit_noise(
    residuals: Float[Tensor, " N"],
    variance: Float[Tensor, " N"],
    features: Float[Tensor, "N F"],
    *,
    penalties: Sequence[float] = (300.0, 100.0, 30.0, 10.0, 3.0),
    allow_constant: bool = True,
    sample_weight: Float[Tensor, " N"] | None = None,
    num_folds: int = 5,
    generator: torch.Generator | None = None,
) -> NoiseFit:
    """Choose between constant and input-dependent noise by cross-validated NLL, then fit on all rows.

    A slope must earn its place: it is taken only if its NLL is lower than that of constant noise by more than one standard
    error of the difference.

    Args:
        residuals: y − m on rows unseen by the mean.
        variance: r at those rows, as for new rows.
        features: what the noise may depend on.
        penalties: candidates for the squared-norm penalty on the slopes; none for constant noise only.
        allow_constant: whether constant noise may win.
        sample_weight: of each row.
        num_folds: of the cross-validation.
        generator: for the folds.
    """
    num_rows = residuals.shape[0]
    weight = torch.ones_like(residuals) if sample_weight is None else sample_weight / sample_weight.mean()
    candidates = (float("inf"), *penalties) if num_rows >= 10 * num_folds else (float("inf"),)
    best, scores = candidates[0], dict[float, float]()
    if len(candidates) > 1:
        order = torch.randperm(num_rows, generator=generator).to(residuals.device)
        some = order < MAX_CROSS_VALIDATED
        fold = order[some] % num_folds
        errors = _cross_validated(residuals[some], variance[some], features[some], weight[some], candidates, fold)
        scores = {p: float(e.mean()) for p, e in errors.items()}
        contender = min(penalties, key=lambda p: scores[p])
        gain = errors[candidates[0]] - errors[contender]
        if not allow_constant or gain.mean() > gain.std() / len(gain) ** 0.5:
            best = contender
    return NoiseFit(_fit(residuals, variance, features, weight, best), best, scores)


def _cross_validated(
    residuals: Tensor, variance: Tensor, features: Tensor, weight: Tensor, penalties: Sequence[float], fold: Tensor
) -> dict[float, Tensor]:
    """The weighted NLL of each row, with each penalty, from rows of the other folds."""
    errors = {penalty: torch.empty_like(residuals) for penalty in penalties}
    for k in range(int(fold.max()) + 1):
        inside, outside = fold != k, fold == k
        noise = None
        # From strong to weak, each fit starts where the last one ended.
        for penalty in sorted(penalties, reverse=True):
            noise = _fit(residuals[inside], variance[inside], features[inside], weight[inside], penalty, noise)
            nll = _nll(residuals[outside], variance[outside] + noise(features[outside]))
            errors[penalty][outside] = nll * weight[outside]
    return errors


def _nll(residuals: Tensor, variance: Tensor) -> Tensor:
    return (LOG_TWO_PI + variance.log() + residuals.square() / variance) / 2


def _fit(
    residuals: Tensor, variance: Tensor, features: Tensor, weight: Tensor, penalty: float, start: LogLinearNoise | None = None
) -> LogLinearNoise:
    centre, scale = features.mean(0), features.std(0, correction=0)
    scale = torch.where(scale > 1e-12, scale, torch.ones_like(scale))
    standardised = ((features - centre) / scale).clamp(-4, 4)
    square = (residuals.square() * weight).mean()
    floor = torch.finfo(residuals.dtype).eps * (square + variance.mean()) + torch.finfo(residuals.dtype).tiny
    level = (square - (variance * weight).mean()).clamp_min(0.05 * square).clamp_min(floor).log()
    level = (level if start is None else start.log_level).clone().requires_grad_(True)
    slopes = features.new_zeros(features.shape[1]) if start is None else start.slopes.clone()
    slopes.requires_grad_(penalty < float("inf"))

    def objective() -> Tensor:
        log_noise = level.clamp_min(floor.log())
        if penalty < float("inf"):
            log_noise = log_noise + (standardised @ slopes).clamp(-8, 4)
        value = (_nll(residuals, variance + log_noise.exp()) * weight).sum()
        return value + penalty * slopes.square().sum() / 2 if penalty < float("inf") else value

    parameters = [level, slopes] if penalty < float("inf") else [level]
    minimize_lbfgs(objective, parameters, max_iterations=100, tolerance=1e-7)
    return LogLinearNoise(level.detach().clamp_min(floor.log()), slopes, centre, scale)
