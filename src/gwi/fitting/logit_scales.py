"""The scales of a classification: how large logits and their variances are, by the likelihood of unseen rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any, Literal, cast, get_args

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import minimize
from torch import Tensor

from gwi._typing import Array
from gwi.core.likelihoods.robust_max import RobustMaxLikelihood
from gwi.core.likelihoods.softmax import softmax_moments
from gwi.core.linalg import safe_sqrt

TemperingName = Literal["auto", "per-class"]

# Where the unseen rows do not say how large logits and their variances are, s, α and γ are near these: log-normal, median, width.
# A few hundred rows of which most are told apart would else ask for logits of three times their size, and new rows regret it.
PRIORS = {"scale": (1.0, 0.3), "alpha": (1.0, 1.5), "gamma": (1.0, 1.0)}
# Of the logarithms of all scales that are chosen.
LOG_BOUNDS = (-8.0, 2.0)
# Numbers (rows times classes) on which scales are chosen: the likelihood is then known to a thousandth of a nat. And the fewest
# rows.
JUDGED_NUMBERS, FEWEST_ROWS = 20_000, 1000
# Pairs of draws of the logits of each row, one the mirror image of the other: the likelihood of a thousand rows is then known to
# some ten-thousandths of a nat, in a tenth of the time of the integral. Numbers of draws that are held at a time.
NUM_PAIRS, HELD_DRAWS = 32, 1_000_000
# The share of the loss at which the search for the scales stops, and its most steps.
LEAST_GAIN, MOST_STEPS = 1e-6, 50


@dataclass(frozen=True)
class Judgement:
    """Logits, variances and labels of unseen rows, on which scales are chosen.

    Attributes:
        mean: logits, at their scale.
        variance: r of each, untempered.
        disagreement: d² of each, at the scale of the logits; None for a single mean.
        label: the class of each row.
        weight: of each row; mean one where it was sampled.
        num_rows: that they stand for.
        epsilon: ε of robust-max; None for softmax.
    """

    mean: Float[Tensor, "J V"]
    variance: Float[Tensor, "J V"]
    disagreement: Float[Tensor, "J V"] | None
    label: Tensor
    weight: Float[Tensor, " V"]
    num_rows: int
    epsilon: float | None

    def sampled(self) -> Judgement:
        """Some of the rows at random, or all where they are few."""
        order = torch.randperm(self.num_rows, generator=torch.Generator().manual_seed(0)).to(self.variance.device)
        rows = order[: max(FEWEST_ROWS, JUDGED_NUMBERS // len(self.mean))]
        disagreement = None if self.disagreement is None else self.disagreement[:, rows]
        weight = self.weight[rows] / self.weight[rows].mean()
        return replace(
            self,
            mean=self.mean[:, rows],
            variance=self.variance[:, rows],
            disagreement=disagreement,
            label=self.label[rows],
            weight=weight,
        )

    def _scaled_variance(self, scale: float, alpha: Array, gamma: float) -> Float[Tensor, "J V"]:
        variance = self.variance * self.variance.new_tensor(alpha).reshape(-1, 1)
        return variance if self.disagreement is None else variance + scale**2 * gamma * self.disagreement

    @torch.no_grad()
    def nll(self, scale: float, alpha: Array, gamma: float) -> float:
        """Mean NLL with logits times scale, variances times α and spreads times γ."""
        variance = self._scaled_variance(scale, alpha, gamma)
        if self.epsilon is not None:
            likelihood = RobustMaxLikelihood(len(self.mean), self.epsilon)
            return float((self.weight * likelihood.nll(self.label, scale * self.mean, variance)).mean())
        probabilities = softmax_moments(scale * self.mean, variance, digits=5).probabilities
        chosen = probabilities.gather(0, self.label[None])[0].clamp_min(torch.finfo(probabilities.dtype).tiny)
        return float(-(self.weight * chosen.log()).mean())

    def nll_of_mean(self) -> float:
        """Mean NLL of the logits without variances."""
        chosen = self.mean.log_softmax(0).gather(0, self.label[None])[0]
        return float(-(self.weight * chosen).mean())


def checked_tempering(tempering: Any) -> float | TemperingName | None:
    """The choice, a factor as a float.

    Raises:
        ValueError: when it is none.
    """
    if tempering is None or (isinstance(tempering, str) and tempering in get_args(TemperingName)):
        return cast("TemperingName | None", tempering)
    # A factor of zero leaves the mean alone.
    if not isinstance(tempering, Real) or isinstance(tempering, bool) or not 0 <= float(tempering) < math.inf:
        raise ValueError(f'tempering must be "auto", "per-class", a factor of at least zero, or None; got {tempering!r}.')
    return float(tempering)


def choose_scales(judgement: Judgement, tempering: float | TemperingName | None) -> tuple[float, Array, float]:
    """The scale of the logits, α of each class, and γ, by the likelihood of unseen rows and weak hyper-priors.

    With a given factor, or None for one, only γ is chosen.
    """
    automatic = isinstance(tempering, str)
    given = {"scale": 1.0, "alpha": 1.0 if tempering is None or automatic else float(tempering), "gamma": 0.0}
    # Robust-max sees only the ratio of means and standard deviations: a scale of both would change nothing.
    is_free = {"scale": automatic and judgement.epsilon is None, "alpha": automatic, "gamma": judgement.disagreement is not None}
    free = [name for name in given if is_free[name]]
    loss = SampledNLL(judgement) if judgement.epsilon is None else partial(_robust_nll, judgement)

    @torch.enable_grad()
    def objective(logs: Array) -> tuple[float, Array]:
        variables = torch.tensor(logs, dtype=torch.float64, requires_grad=True)
        values = {name: torch.tensor(value, dtype=torch.float64) for name, value in given.items()}
        values |= dict(zip(free, variables.exp(), strict=True))
        penalty = torch.stack([_log_normal(values[name], PRIORS[name]) for name in free]).sum() / judgement.num_rows
        total = penalty.detach().clone()
        penalty.backward(retain_graph=True)
        for part in loss(**values):
            total += part.detach()
            part.backward(retain_graph=True)
        assert variables.grad is not None
        return float(total), variables.grad.numpy()

    if free:
        options = {"maxiter": MOST_STEPS, "ftol": LEAST_GAIN}
        bounds = [LOG_BOUNDS] * len(free)
        found = minimize(objective, np.zeros(len(free)), jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        given |= dict(zip(free, np.exp(found.x).tolist(), strict=True))
    scale, alpha, gamma = given["scale"], np.full(len(judgement.mean), given["alpha"]), given["gamma"]
    if tempering == "per-class":
        alpha = _factor_of_each_class(lambda a: judgement.nll(scale, a, gamma), alpha, judgement.num_rows)
    return scale, alpha, gamma


class SampledNLL:
    """The mean NLL of the softmax by draws of the logits, the same at each call, so that it is smooth in the scales.

    Called with scales it gives the terms of parts of the rows, in single precision.

    Args:
        judgement: the rows.
    """

    def __init__(self, judgement: Judgement):
        # Only differences to the logit of the label matter.
        mean = judgement.mean - judgement.mean.gather(0, judgement.label[None])
        num_classes, num_rows = mean.shape
        size = max(1, min(num_rows, HELD_DRAWS // (NUM_PAIRS * num_classes)))
        generator = torch.Generator().manual_seed(0)
        self._draws = torch.randn(NUM_PAIRS, num_classes, size, generator=generator).to(mean.device)
        disagreement = torch.zeros_like(mean) if judgement.disagreement is None else judgement.disagreement
        columns = (mean, judgement.variance, disagreement, judgement.weight[None] / num_rows)
        pieces = zip(*(part.float().split(size, dim=1) for part in columns), judgement.label.split(size), strict=True)
        self._parts = list(pieces)

    def __call__(self, scale: Tensor, alpha: Tensor, gamma: Tensor) -> Iterator[Tensor]:
        """The terms."""
        scale, alpha, gamma = scale.float(), alpha.float(), gamma.float()
        for mean, variance, disagreement, weight, label in self._parts:
            away = safe_sqrt(alpha * variance + scale**2 * gamma * disagreement) * self._draws[..., : len(label)]
            chosen = label.expand(NUM_PAIRS, 1, -1)
            one, other = (f.gather(1, chosen)[:, 0] - f.logsumexp(1) for f in (scale * mean + away, scale * mean - away))
            of_pairs = torch.logaddexp(one, other) - math.log(2)
            log_p = of_pairs.logsumexp(0) - math.log(NUM_PAIRS)
            # The logarithm of a mean of few draws is too low by half of its relative variance.
            relative = (of_pairs - log_p).exp()
            too_low = (relative - 1).square().sum(0) / (2 * NUM_PAIRS * (NUM_PAIRS - 1))
            yield -(weight[0] * (log_p + too_low)).sum()


def _robust_nll(judgement: Judgement, scale: Tensor, alpha: Tensor, gamma: Tensor) -> Iterator[Tensor]:
    """The mean NLL of robust-max, with its slopes."""
    variance = alpha * judgement.variance
    if judgement.disagreement is not None:
        variance = variance + scale**2 * gamma * judgement.disagreement
    likelihood = RobustMaxLikelihood(len(judgement.mean), cast("float", judgement.epsilon))
    yield (judgement.weight * likelihood.nll(judgement.label, scale * judgement.mean, variance)).mean()


def _factor_of_each_class(nll: Callable[[Array], float], start: Array, num_rows: int) -> Array:
    """α_j one at a time, twice around, each drawn towards the common factor by the same hyper-prior."""
    alpha = start.copy()
    for _ in range(2):
        for j in range(len(alpha)):

            def objective(log_factor: Array, j: int = j) -> float:
                tried = alpha.copy()
                tried[j] = start[j] * math.exp(float(log_factor[0]))
                return nll(tried) + float(_log_normal(torch.as_tensor(tried[j] / start[j]), PRIORS["alpha"])) / num_rows

            begin = math.log(alpha[j] / start[j])
            simplex = np.array([[begin], [begin + 0.7]])
            options = {"maxfev": 12, "xatol": 0.05, "fatol": 1e-5, "initial_simplex": simplex}
            alpha[j] = start[j] * math.exp(float(minimize(objective, [begin], method="Nelder-Mead", options=options).x[0]))
    return alpha


def _log_normal(value: Tensor, prior: tuple[float, float]) -> Tensor:
    """−log density of a log-normal distribution, up to a constant."""
    median, width = prior
    return 0.5 * ((value / median).log() / width) ** 2
