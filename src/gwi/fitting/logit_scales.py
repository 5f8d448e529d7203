"""The scales of a classification: how large logits and their variances are, by the likelihood of unseen rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
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
JUDGED_NUMBERS, FIRST_NUMBERS, FEWEST_ROWS = 20_000, 2500, 1000
# How far each step may go, in logarithms of the scales, how far apart two values tell a slope, and a step that is none.
REACH, PROBE, LEAST_MOVE, LEAST_GAIN, MOST_STEPS = 1.0, 0.15, 0.03, 2e-5, 8


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

    def _scaled_variance(self, scale: float, alpha: Array, gamma: float) -> Float[Tensor, "J V"]:
        variance = self.variance * self.variance.new_tensor(alpha).reshape(-1, 1)
        return variance if self.disagreement is None else variance + scale**2 * gamma * self.disagreement

    @torch.no_grad()
    def close_nll(self, scale: float, alpha: Array, gamma: float) -> float:
        """The same to a hundredth or so, for a thirtieth of the work: logits j and y differ by a normal number, and the logistic
        function is close to a normal law of variance 8/π.
        """
        mean, variance = scale * self.mean, self._scaled_variance(scale, alpha, gamma)
        ahead = mean - mean.gather(0, self.label[None])
        spread = variance + variance.gather(0, self.label[None])
        others = (ahead * (1 + math.pi / 8 * spread).rsqrt()).scatter(0, self.label[None], 0.0)
        return float((self.weight * others.logsumexp(0)).mean())

    @torch.no_grad()
    def nll(self, scale: float, alpha: Array, gamma: float, digits: Literal[3, 5] = 5) -> float:
        """Mean NLL with logits times scale, variances times α and spreads times γ."""
        variance = self._scaled_variance(scale, alpha, gamma)
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

    def penalty(chosen: dict[str, float]) -> float:
        return sum(_log_normal(value, PRIORS[name]) for name, value in chosen.items()) / judgement.num_rows

    if not free:
        return unpack({})
    rough = judgement.some(FIRST_NUMBERS)

    def close(point: Array) -> float:
        # Robust-max is cheap, and fewer rows are as good.
        chosen = scales(point)
        return (judgement.close_nll if judgement.epsilon is None else rough.nll)(*unpack(chosen)) + penalty(chosen)

    search = minimum_by_steps(close, np.zeros(len(free)), np.array([EDGES[name] for name in free]))
    asked = next(search)
    while True:
        chosen = scales(asked)
        try:
            asked = search.send(judgement.nll(*unpack(chosen), digits=3) + penalty(chosen))
        except StopIteration as end:
            scale, alpha, gamma = unpack(scales(end.value))
            break
    if tempering == "per-class":
        alpha = _factor_of_each_class(lambda a: judgement.nll(scale, a, gamma), alpha, judgement.num_rows)
    return scale, alpha, gamma


def minimum_by_steps(close: Callable[[Array], float], start: Array, edges: Array) -> Generator[Array, float, Array]:
    """Where a function is least, by few of its values: another one, which is cheap and close to it, says where to look.

    Yields points, is sent the function's value at each, and returns the best. At each step the other is tilted so that both fall
    alike there. A step that does not gain is tried again, half as long.

    Args:
        close: the other one.
        start: where to begin.
        edges: of the first simplex in which the other's minimum is looked for.
    """
    point, reach, moved = start, REACH, True
    value = yield point
    probe, tilt = PROBE * np.sign(edges), np.zeros(len(start))
    for _ in range(MOST_STEPS):
        if moved:
            cheap = close(point)
            for i in range(len(point)):
                there = point + np.where(np.arange(len(point)) == i, probe, 0.0)
                tilt[i] = ((yield there) - value - close(there) + cheap) / probe[i]

        def tilted(there: Array, point: Array = point, tilt: Array = tilt, reach: float = reach) -> float:
            inside = np.clip(there, point - reach, point + reach)
            return close(inside) + float(tilt @ (inside - point)) + float(np.abs(there - inside).sum())

        simplex = np.vstack([point, point + np.diag(min(reach, 1.0) * edges)])
        options = {"maxfev": 60 * len(point), "xatol": 0.01, "fatol": 1e-5, "initial_simplex": simplex}
        found = minimize(tilted, point, method="Nelder-Mead", options=options).x
        found = np.clip(found, point - reach, point + reach)
        length, lower = float(np.abs(found - point).max()), (yield found)
        gained, moved = value - lower, lower < value
        if moved:
            point, value = found, lower
        else:
            reach = length / 2
        if length < LEAST_MOVE or abs(gained) < LEAST_GAIN:
            break
    return point


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
