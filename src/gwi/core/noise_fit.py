"""Log-linear noise for several sets of rows at once, by Newton's method: laws and folds side by side.

A fit to few rows makes some hundred of these small fits; one by one and by first derivatives they were a third of its time.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gwi.core.linalg import LOG_TWO_PI, newton_step

# Bounds on the exponent beside its level: what training rows support.
LOWEST_SLOPE, HIGHEST_SLOPE, MOST_DEVIATIONS = -8.0, 4.0, 4.0
# γ before rows have been seen, the median of its log-normal hyper-prior, and the width of that. On rows held out of the training
# rows of four tables, gaps included, 1 … 4 did about equally well, much better than none and better than a γ fitted to few rows.
DISAGREEMENT_WEIGHT, DISAGREEMENT_WIDTH, LARGEST_LOG_WEIGHT = 3.0, 0.3, 20.0
# Newton steps, halvings of one, and how much a parameter changes at most by one.
MOST_STEPS, MOST_HALVINGS, LONGEST_STEP = 60, 12, 3.0
# A step that gains less than this share of the objective is the last.
TOLERANCE = 1e-7


@dataclass(frozen=True)
class NoiseState:
    """Parameters of B fits.

    Attributes:
        level: log σ² where features are at their centre.
        slopes: w.
        log_gamma: log γ of the disagreement.
    """

    level: Float[Tensor, " B"]
    slopes: Float[Tensor, "B F"]
    log_gamma: Float[Tensor, " B"]

    def moved(self, step: Float[Tensor, "B P"], where: Bool[Tensor, " B"]) -> NoiseState:
        """By a step of all parameters, in some of the fits."""
        step = torch.where(where[:, None], step, torch.zeros_like(step))
        return NoiseState(self.level + step[:, 0], self.slopes + step[:, 1:-1], self.log_gamma + step[:, -1])

    def __getitem__(self, sets: Bool[Tensor, " B"]) -> NoiseState:
        return NoiseState(self.level[sets], self.slopes[sets], self.log_gamma[sets])

    def with_those(self, places: Int[Tensor, " b"], others: NoiseState) -> NoiseState:
        """With others at these places."""
        return NoiseState(
            self.level.index_copy(0, places, others.level),
            self.slopes.index_copy(0, places, others.slopes),
            self.log_gamma.index_copy(0, places, others.log_gamma),
        )


class NoiseProblem:
    """B sets of the same rows, each with its own law, whose residuals have the variance r + σ²(x) + γ d².

    Args:
        residuals: y − m.
        variance: r.
        disagreement: d².
        features: that σ² may depend on.
        weight: of each row.
        inside: the rows of each set.
        degrees: of freedom of each law.
    """

    def __init__(
        self,
        residuals: Float[Tensor, " N"],
        variance: Float[Tensor, " N"],
        disagreement: Float[Tensor, " N"],
        features: Float[Tensor, "N F"],
        weight: Float[Tensor, " N"],
        inside: Bool[Tensor, "B N"],
        degrees: Float[Tensor, " B"],
    ):
        self.residuals, self.variance, self.disagreement = residuals, variance, disagreement
        self.degrees = degrees.to(residuals)[:, None]
        share = inside.to(residuals)
        self.weight = weight * share
        count = share.sum(1, keepdim=True)
        self.centre = share @ features / count
        # Not `std`, which warns where there are no features.
        apart = features - self.centre[:, None]
        scale = ((apart.square() * share[..., None]).sum(1) / count).sqrt()
        self.scale = torch.where(scale > 1e-12, scale, torch.ones_like(scale))
        standardised = (apart / self.scale[:, None]).clamp(-MOST_DEVIATIONS, MOST_DEVIATIONS)
        self._with_level = torch.cat([standardised.new_ones(*standardised.shape[:2], 1), standardised], dim=2)
        self.features = self._with_level[..., 1:]
        square = (residuals.square() * self.weight).sum(1) / count[:, 0]
        eps = torch.finfo(residuals.dtype)
        least = eps.eps * (square + (variance * share).sum(1) / count[:, 0]) + eps.tiny
        self.lowest = least.log()
        level = square - (variance * self.weight).sum(1) / count[:, 0]
        self._first = torch.maximum(torch.maximum(level, 0.05 * square), least).log()
        self.disagrees = ((disagreement > 0) & inside).any(1)

    def start(self) -> NoiseState:
        """Constant noise that explains what r does not."""
        size, num_features = self.features.shape[0], self.features.shape[2]
        gamma = torch.where(self.disagrees, math.log(DISAGREEMENT_WEIGHT), 0.0).to(self._first)
        return NoiseState(self._first, self._first.new_zeros(size, num_features), gamma)

    def fit(self, penalty: float, start: NoiseState | None = None) -> NoiseState:
        """The minimum of Σ w NLL + penalty ‖slopes‖²/2 of each set; constant noise where the penalty is infinite."""
        state = self.start() if start is None else start
        part, places = self, torch.arange(len(self.lowest), device=self.lowest.device)
        value, ended = part.value(state, penalty), state
        for _ in range(MOST_STEPS):
            state, value, gain = part._stepped(state, value, penalty)
            ended = ended.with_those(places, state)
            going = gain > TOLERANCE * (1 + value.abs())
            if not going.any():
                break
            if not going.all():
                part, places, state, value = part[going], places[going], state[going], value[going]
        return ended

    def _stepped(self, state: NoiseState, value: Float[Tensor, " B"], penalty: float) -> tuple[NoiseState, Tensor, Tensor]:
        """The next state, its value, and what it gained; where no part of a step gains it stays."""
        step = -newton_step(*self.derivatives(state, penalty))
        step = step * (LONGEST_STEP / step.abs().amax(1, keepdim=True).clamp_min(LONGEST_STEP))
        left, gain = torch.ones_like(value, dtype=torch.bool), torch.zeros_like(value)
        for _ in range(MOST_HALVINGS):
            tried = state.moved(step, left)
            found = self.value(tried, penalty)
            better = left & (found < value)
            gain = torch.where(better, value - found, gain)
            value, state = torch.where(better, found, value), _chosen(better, tried, state)
            left = left & ~better
            if not left.any():
                break
            step = step / 2
        return state, value, gain

    def __getitem__(self, sets: Bool[Tensor, " B"]) -> NoiseProblem:
        """Some of the sets."""
        part = copy.copy(self)
        for name in ("degrees", "weight", "centre", "scale", "lowest", "disagrees", "_first", "_with_level"):
            setattr(part, name, getattr(self, name)[sets])
        part.features = part._with_level[..., 1:]
        return part

    def noise(self, state: NoiseState) -> Float[Tensor, "B N"]:
        """σ² at each row."""
        slope = torch.einsum("bnf,bf->bn", self.features, state.slopes)
        return (torch.maximum(state.level, self.lowest)[:, None] + slope.clamp(LOWEST_SLOPE, HIGHEST_SLOPE)).exp()

    def gamma(self, state: NoiseState) -> Float[Tensor, " B"]:
        """γ of each set; zero where no means disagree."""
        return torch.where(self.disagrees, state.log_gamma.clamp(-LARGEST_LOG_WEIGHT, LARGEST_LOG_WEIGHT).exp(), 0.0)

    def value(self, state: NoiseState, penalty: float) -> Float[Tensor, " B"]:
        """The objective of each set."""
        variance = self.variance + self.noise(state) + self.gamma(state)[:, None] * self.disagreement
        found = (nll(self.residuals, variance, self.degrees) * self.weight).sum(1)
        if penalty < math.inf:
            found = found + penalty * state.slopes.square().sum(1) / 2
        away = (state.log_gamma - math.log(DISAGREEMENT_WEIGHT)) / DISAGREEMENT_WIDTH
        found = found + torch.where(self.disagrees, away.square() / 2, 0.0)
        return torch.where(found.isfinite(), found, math.inf)

    def derivatives(self, state: NoiseState, penalty: float) -> tuple[Tensor, Tensor, Callable[[], Tensor]]:
        """The gradient, the second derivatives, and what gives the expected ones, which are never indefinite."""
        sloping = penalty < math.inf
        noise, spread = self.noise(state), self.gamma(state)[:, None] * self.disagreement
        variance = self.variance + noise + spread
        # In units of the variance, whose square may be too small for a number.
        first, second, expected = (
            part * self.weight for part in nll_derivatives(self.residuals, torch.ones_like(variance), self.degrees, variance)
        )
        by_noise = noise / variance
        by_gamma = spread / variance * (state.log_gamma.abs() <= LARGEST_LOG_WEIGHT)[:, None]
        basis = self._basis(state, sloping)
        level = (state.level >= self.lowest).to(first)
        gradient = first.new_zeros(len(first), self.features.shape[2] + 2)
        size = basis.shape[2]

        def gram(weight: Tensor, second_weight: Tensor) -> Tensor:
            """Σ of the products of what parameters change, by the weights of two noises, of a noise and γ, and of two γ."""
            found = first.new_zeros(*gradient.shape, gradient.shape[1])
            found[:, :size, :size] = basis.mT @ ((second_weight * by_noise.square() + weight * by_noise)[..., None] * basis)
            across = torch.einsum("bn,bnp->bp", second_weight * by_noise * by_gamma, basis)
            found[:, -1, :size] = found[:, :size, -1] = across
            found[:, -1, -1] = (second_weight * by_gamma.square() + weight * by_gamma).sum(1)
            found[:, 0] *= level[:, None]
            found[:, :, 0] *= level[:, None]
            # Parameters that nothing depends on stay where they are.
            diagonal = torch.zeros_like(gradient)
            diagonal[:, 0] = 1 - level
            diagonal[:, 1:-1] = penalty if sloping else 1.0
            diagonal[:, -1] = torch.where(self.disagrees, DISAGREEMENT_WIDTH**-2, 1.0)
            return found + torch.diag_embed(diagonal)

        gradient[:, :size] = torch.einsum("bn,bnp->bp", first * by_noise, basis)
        gradient[:, 0] *= level
        if sloping:
            gradient[:, 1:-1] += penalty * state.slopes
        away = (state.log_gamma - math.log(DISAGREEMENT_WEIGHT)) / DISAGREEMENT_WIDTH**2
        gradient[:, -1] = torch.where(self.disagrees, (first * by_gamma).sum(1) + away, 0.0)
        # The exponential's own second derivative is itself.
        return gradient, gram(first, second), lambda: gram(torch.zeros_like(first), expected)

    def _basis(self, state: NoiseState, sloping: bool) -> Float[Tensor, "B N P"]:
        """What level and slopes change of the exponent of each row: where it is at a bound slopes change nothing."""
        if not sloping:
            return self._with_level[..., :1]
        slope = torch.einsum("bnf,bf->bn", self.features, state.slopes)
        free = (slope >= LOWEST_SLOPE) & (slope <= HIGHEST_SLOPE)
        if free.all():
            return self._with_level
        return torch.cat([self._with_level[..., :1], self.features * free[..., None]], dim=2)


def _chosen(which: Bool[Tensor, " B"], first: NoiseState, second: NoiseState) -> NoiseState:
    return NoiseState(
        torch.where(which, first.level, second.level),
        torch.where(which[:, None], first.slopes, second.slopes),
        torch.where(which, first.log_gamma, second.log_gamma),
    )


def nll(residuals: Tensor, variance: Tensor, degrees: Tensor) -> Tensor:
    """−log p of residuals with this variance under Student's law, or the normal one where degrees of freedom are infinite."""
    normal = degrees.isinf()
    d = torch.where(normal, 5.0, degrees)
    share = residuals.square() / variance
    constant = torch.lgamma((d + 1) / 2) - torch.lgamma(d / 2) - (math.pi * (d - 2)).log() / 2
    tailed = variance.log() / 2 - constant + (d + 1) / 2 * torch.log1p(share / (d - 2))
    return torch.where(normal, (LOG_TWO_PI + variance.log() + share) / 2, tailed)


def nll_derivatives(
    residuals: Tensor, variance: Tensor, degrees: Tensor, unit: Tensor | float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Of `nll` by the variance: first, second, and the second as it is expected under the law.

    Args:
        residuals: y − m.
        variance: in multiples of the unit.
        degrees: of freedom.
        unit: of the variance.
    """
    normal = degrees.isinf()
    d = torch.where(normal, 5.0, degrees)
    share = residuals.square() / unit / variance
    below = d - 2 + share
    first = torch.where(normal, 1 - share, 1 - (d + 1) * share / below) / (2 * variance)
    curved = torch.where(normal, 2 * share - 1, (d + 1) * share / below * (1 + (d - 2) / below) - 1)
    second = curved / (2 * variance.square())
    return first, second, torch.where(normal, 1.0, d / (d + 3)) / (2 * variance.square())
