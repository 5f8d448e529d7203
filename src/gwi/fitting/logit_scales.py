"""The scales of a classification: how large logits and their variances are, by the likelihood of unseen rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
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

TemperingName = Literal["auto", "per-class"]

# Where the unseen rows do not say how large logits and their variances are, s, α and γ are near these: log-normal, median, width.
# A few hundred rows of which most are told apart would else ask for logits of three times their size, and new rows regret it.
PRIORS = {"scale": (1.0, 0.3), "alpha": (1.0, 1.5), "gamma": (1.0, 1.0)}
# Edges of the first simplex, in logarithms.
EDGES = {"scale": 0.1, "alpha": -1.0, "gamma": -1.0}
# Of the logarithms of all scales that are chosen.
LOG_BOUNDS = (-8.0, 2.0)
# Numbers (rows times classes) on which scales are chosen: the likelihood is then known to a thousandth of a nat. Those of the
# first search, and the fewest rows of either.
JUDGED_NUMBERS, FIRST_NUMBERS, FEWEST_ROWS = 20_000, 2500, 250


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
        return self._at(order[: max(FEWEST_ROWS, JUDGED_NUMBERS // len(self.mean))])

    def some(self, numbers: int) -> Judgement:
        """The first rows, so many that they hold at most so many numbers, though some rows in any case."""
        count = max(FEWEST_ROWS, numbers // len(self.mean))
        return self if count >= len(self.label) else self._at(slice(count))

    def _at(self, rows: Tensor | slice) -> Judgement:
        mean, variance, label = self.mean[:, rows], self.variance[:, rows], self.label[rows]
        disagreement = None if self.disagreement is None else self.disagreement[:, rows]
        weight = self.weight[rows] / self.weight[rows].mean()
        return replace(self, mean=mean, variance=variance, disagreement=disagreement, label=label, weight=weight)

    @torch.no_grad()
    def nll(self, scale: float, alpha: Array, gamma: float, digits: Literal[3, 5] = 5) -> float:
        """Mean NLL with logits times scale, variances times α and spreads times γ."""
        variance = self.variance * self.variance.new_tensor(alpha).reshape(-1, 1)
        if self.disagreement is not None:
            variance = variance + scale**2 * gamma * self.disagreement
        if self.epsilon is not None:
            likelihood = RobustMaxLikelihood(len(self.mean), self.epsilon)
            return float((self.weight * likelihood.nll(self.label, scale * self.mean, variance)).mean())
        probabilities = softmax_moments(scale * self.mean, variance, digits=digits).probabilities
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
        raise ValueError(f'tempering is "auto", "per-class", a factor of at least zero, or None; got {tempering!r}.')
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

    def scales(parameters: Array) -> dict[str, float]:
        return dict(zip(free, np.exp(np.clip(parameters, *LOG_BOUNDS)).tolist(), strict=True))

    def unpack(chosen: dict[str, float]) -> tuple[float, Array, float]:
        values = given | chosen
        return values["scale"], np.full(len(judgement.mean), values["alpha"]), values["gamma"]

    def objective(parameters: Array, judgement: Judgement, digits: Literal[3, 5]) -> float:
        chosen = scales(parameters)
        penalty = sum(_log_normal(value, PRIORS[name]) for name, value in chosen.items())
        return judgement.nll(*unpack(chosen), digits) + penalty / judgement.num_rows

    if not free:
        return unpack({})
    # Few rows and digits tell roughly, at a twelfth of the cost; all of them finish.
    lengths = np.array([EDGES[name] for name in free])
    stages = ((judgement.some(FIRST_NUMBERS), 3, 1.0, 40), (judgement, 3, 0.3, 6))
    point = np.zeros(len(lengths))
    for rows, digits, share, evaluations in stages:
        # A corner at the start and edges along the axes.
        simplex = np.vstack([point, point + np.diag(share * lengths)])
        options = {"maxfev": evaluations * len(lengths), "xatol": 0.02, "fatol": 2e-5, "initial_simplex": simplex}
        point = minimize(objective, point, args=(rows, digits), method="Nelder-Mead", options=options).x
    scale, alpha, gamma = unpack(scales(point))
    if tempering == "per-class":
        alpha = _factor_of_each_class(lambda a: judgement.nll(scale, a, gamma), alpha, judgement.num_rows)
    return scale, alpha, gamma


def _factor_of_each_class(nll: Callable[[Array], float], start: Array, num_rows: int) -> Array:
    """α_j one at a time, twice around, each drawn towards the common factor by the same hyper-prior."""
    alpha = start.copy()
    for _ in range(2):
        for j in range(len(alpha)):

            def objective(log_factor: Array, j: int = j) -> float:
                tried = alpha.copy()
                tried[j] = start[j] * math.exp(float(log_factor[0]))
                return nll(tried) + _log_normal(tried[j] / start[j], PRIORS["alpha"]) / num_rows

            begin = math.log(alpha[j] / start[j])
            simplex = np.array([[begin], [begin + 0.7]])
            options = {"maxfev": 12, "xatol": 0.05, "fatol": 1e-5, "initial_simplex": simplex}
            alpha[j] = start[j] * math.exp(float(minimize(objective, [begin], method="Nelder-Mead", options=options).x[0]))
    return alpha


def _log_normal(value: float, prior: tuple[float, float]) -> float:
    """−log density of a log-normal law, up to a constant."""
    median, width = prior
    return 0.5 * (math.log(value / median) / width) ** 2
