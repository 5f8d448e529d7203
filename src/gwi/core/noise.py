"""Observation noise σ²(x), fitted to N(y | m, r + σ²) on rows the mean has not seen, so that r is not counted twice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import product

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from gwi.core.networks import EnsembleMLP
from gwi.core.noise_fit import NoiseProblem, NoiseState, nll
from gwi.core.noise_network import train_correction

# The penalty is chosen on so many rows.
MAX_CROSS_VALIDATED = 10_000
# The noise is then fitted to so many rows: some hundred for each slope of the widest table that has slopes. Rows held at a time.
MAX_FITTED, CHUNK_SIZE = 50_000, 65_536
# Weaker penalties are not tried where one is worse by so many nats a row than a stronger one.
OVERFITTED = 0.01
# With fewer units than this nothing is learned of how noise bends. What stands for the penalty of noise with a network.
FEWEST_CORRECTED, BY_NETWORK = 500, 0.0


def noise_features(x: Float[Tensor, "N D"], mean: Float[Tensor, "J N"]) -> Float[Tensor, "N F"]:
    """What the noise may depend on: the row, its squares, and the predicted level."""
    return torch.cat([x, x.square().clamp_max(16), mean.mT, mean.mT.square().clamp_max(16)], dim=1)


class LogLinearNoise(nn.Module):
    """σ²(x) = exp(b + wᵀψ(x) + g(ψ(x))) with ψ the standardised features of each row; w = 0 is constant noise.

    Args:
        log_level: b.
        slopes: w.
        centre: taken off the features.
        scale: what they are divided by.
        correction: g, a network; none unless held-out rows ask for it.
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
        correction: EnsembleMLP | None = None,
    ):
        super().__init__()
        self.correction = correction
        for name, value in (("log_level", log_level), ("slopes", slopes), ("centre", centre), ("scale", scale)):
            self.register_buffer(name, value.detach().clone())

    def forward(self, features: Float[Tensor, "N F"]) -> Float[Tensor, " N"]:
        """σ² at rows with these features; the exponent is kept within what training rows support."""
        standardised = ((features - self.centre) / self.scale).clamp(-4, 4)
        slope = standardised @ self.slopes
        if self.correction is not None:
            slope = slope + self.correction(standardised)[:, 0]
        return (self.log_level + slope.clamp(-8, 4)).exp()


@dataclass(frozen=True)
class NoiseFit:
    """A fitted noise model, and what stacked means that disagree add to the variance.

    Attributes:
        noise: σ² as a function of features.
        disagreement_weight: γ of the variance γ d², where d² is the spread of the means; zero where there is none.
        penalty: on the slopes; infinity for constant noise, zero for noise with a network.
        degrees_of_freedom: of the law under which it was fitted.
        unseen: γ d² + σ² at each row, from fits that had not seen the row where there was cross-validation.
        scores: cross-validated NLL of each law and penalty tried.
    """

    noise: LogLinearNoise
    disagreement_weight: float
    penalty: float
    degrees_of_freedom: float
    unseen: Float[Tensor, " N"]
    scores: dict[tuple[float, float], float]


@dataclass(frozen=True)
class _Rows:
    """What a noise model is fitted to; each attribute has one entry a row."""

    residuals: Tensor
    variance: Tensor
    disagreement: Tensor
    features: Tensor
    weight: Tensor

    def __getitem__(self, rows: Tensor) -> _Rows:
        return _Rows(*(getattr(self, field.name)[rows] for field in fields(self)))


@dataclass(frozen=True)
class _Fit:
    noise: LogLinearNoise
    disagreement_weight: float

    def __call__(self, rows: _Rows) -> Tensor:
        return self.noise(rows.features) + self.disagreement_weight * rows.disagreement


def fit_noise(
    residuals: Float[Tensor, " N"],
    variance: Float[Tensor, " N"],
    features: Float[Tensor, "N F"],
    *,
    disagreement: Float[Tensor, " N"] | None = None,
    penalties: Sequence[float] = (300.0, 100.0, 30.0, 10.0, 3.0),
    degrees: Sequence[float] = (math.inf,),
    allow_constant: bool = True,
    sample_weight: Float[Tensor, " N"] | None = None,
    unit: Int[Tensor, " N"] | None = None,
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
        disagreement: d² at those rows, the spread of stacked means.
        penalties: candidates for the squared-norm penalty on the slopes; none for constant noise only.
        degrees: of freedom of the laws that are tried, Student's t: a normal law takes a few far rows for noise all around them.
        allow_constant: whether constant noise may win.
        sample_weight: of each row.
        unit: of each row, such as its group; rows of one unit err alike, so they are judged and counted together.
        num_folds: of the cross-validation.
        generator: for the folds.
    """
    num_rows = residuals.shape[0]
    weight = torch.ones_like(residuals) if sample_weight is None else sample_weight / sample_weight.mean()
    rows = _Rows(residuals, variance, torch.zeros_like(variance) if disagreement is None else disagreement, features, weight)
    unit = torch.arange(num_rows) if unit is None else unit.unique(return_inverse=True)[1].cpu()
    num_units = int(unit.max()) + 1
    if num_units < 10 * num_folds or (not penalties and disagreement is None and len(degrees) == 1):
        fit = _fit(rows, math.inf, degrees[-1])
        return NoiseFit(fit.noise, fit.disagreement_weight, math.inf, degrees[-1], fit(rows), {})
    order = torch.randperm(num_units, generator=generator)[unit].to(residuals.device)
    some = order < max(num_folds, MAX_CROSS_VALIDATED * num_units // num_rows)
    fold = order[some] % num_folds
    errors, unseen, fits = _cross_validated(rows[some], (math.inf, *penalties), degrees, fold)
    scores = {key: float(nll.mean()) for key, nll in errors.items()}
    constant = min(product(degrees, (math.inf,)), key=scores.__getitem__)
    best = min((key for key in scores if key[1] < math.inf), key=scores.__getitem__, default=constant)
    if allow_constant and not earns_its_place(errors[constant] - errors[best], unit[some.cpu()]):
        best = constant
    known = order < max(num_folds, MAX_FITTED * num_units // num_rows)
    fit = _fit(rows if known.all() else rows[known], best[1], best[0])
    found = unseen[best]
    if penalties and num_units >= FEWEST_CORRECTED:
        corrected, values = _corrected(rows[some], fit, fits[best], fold, best[0], generator)
        nll = _nll(rows[some].residuals, rows[some].variance + values, best[0]) * rows[some].weight
        if earns_its_place(errors[best] - nll, unit[some.cpu()]):
            fit, found, best = corrected, values, (best[0], BY_NETWORK)
            scores[best] = float(nll.mean())
    everywhere = torch.cat([fit(rows[part]) for part in torch.arange(num_rows, device=order.device).split(CHUNK_SIZE)])
    everywhere[some] = found
    return NoiseFit(fit.noise, fit.disagreement_weight, best[1], best[0], everywhere, scores)


def earns_its_place(gain: Float[Tensor, " N"], unit: Int[Tensor, " N"]) -> bool:
    """Whether a gain is more than one standard error of itself, by units, whose sums are independent where rows are not."""
    total = sums_by(unit.to(gain.device), gain)
    return bool(total.mean() > total.std() / len(total) ** 0.5)


def sums_by(unit: Int[Tensor, " N"], values: Float[Tensor, " N"]) -> Float[Tensor, " U"]:
    """The sum over the rows of each unit."""
    known, place = unit.unique(return_inverse=True)
    return values.new_zeros(len(known)).index_add(0, place, values)


def effective_rows(z: Float[Tensor, " N"], unit: Int[Tensor, " N"] | None) -> float:
    """As how many independent rows these count when they are to tell a variance.

    Rows of one unit err alike: with the correlation ρ between their errors, their squares have ρ², and n rows of a unit count
    as n/(1 + (n − 1) ρ²) (Kish's design effect).
    """
    if unit is None:
        return float(len(z))
    square, size = sums_by(unit, z.square()), sums_by(unit, torch.ones_like(z))
    pairs = (size * (size - 1)).sum()
    if pairs == 0:
        return float(len(z))
    correlation = ((sums_by(unit, z).square() - square).sum() / pairs / z.square().mean()).clamp(0, 1)
    return float((size / (1 + (size - 1) * correlation.square())).sum())


def _cross_validated(
    rows: _Rows, penalties: Sequence[float], degrees: Sequence[float], fold: Tensor
) -> tuple[dict[tuple[float, float], Tensor], dict[tuple[float, float], Tensor], dict[tuple[float, float], list[_Fit]]]:
    """For each law and penalty the weighted NLL of each row, γ d² + σ² there, and the fits, from rows of the other folds."""
    laws = list(product(degrees, range(int(fold.max()) + 1)))
    errors: dict[tuple[float, float], Tensor] = {}
    unseen: dict[tuple[float, float], Tensor] = {}
    fits: dict[tuple[float, float], list[_Fit]] = {}
    least = dict.fromkeys(degrees, math.inf)
    problem = _problem(rows, torch.stack([fold != k for _, k in laws]), [law for law, _ in laws])
    state = None
    # From strong to weak, each fit starts where the last one ended.
    for penalty in sorted(penalties, reverse=True):
        state = problem.fit(penalty, state)
        found, noise = _found(problem, state), problem.noise(state) + problem.gamma(state)[:, None] * rows.disagreement
        for i, (law, k) in enumerate(laws):
            outside = fold == k
            fits.setdefault((law, penalty), []).append(found[i])
            unseen.setdefault((law, penalty), torch.empty_like(rows.residuals))[outside] = noise[i, outside]
        worse = []
        for law in degrees:
            errors[law, penalty] = _nll(rows.residuals, rows.variance + unseen[law, penalty], law) * rows.weight
            now = float(errors[law, penalty].mean())
            worse.append(now > least[law] + OVERFITTED)
            least[law] = min(least[law], now)
        if all(worse):
            break
    return errors, unseen, fits


def _corrected(
    rows: _Rows, whole: _Fit, folds: Sequence[_Fit], fold: Tensor, degrees: float, generator: torch.Generator | None
) -> tuple[_Fit, Tensor]:
    """The noise with a network on top of it, and γ d² + σ² at each row from networks that have not seen it."""
    centre, scale = whole.noise.centre, whole.noise.scale
    standardised = ((rows.features - centre) / scale).clamp(-4, 4)
    known = whole.disagreement_weight * rows.disagreement
    # Each fold's noise for features that are standardised alike.
    slopes = [fit.noise.slopes * scale / fit.noise.scale for fit in folds]
    levels = [fit.noise.log_level + ((centre - fit.noise.centre) / fit.noise.scale) @ fit.noise.slopes for fit in folds]
    network, values = train_correction(
        standardised,
        rows.residuals,
        rows.variance + known,
        rows.weight,
        fold,
        levels,
        slopes,
        lambda residuals, variance: _nll(residuals, variance, degrees),
        generator,
    )
    level, slope = network.biases[-1].mean(), network.linear.mean(0)[:, 0]
    network.linear.zero_()
    network.biases[-1].sub_(network.biases[-1].mean())
    noise = LogLinearNoise(level.to(scale), slope.to(scale), centre, scale, network)
    return _Fit(noise, whole.disagreement_weight), values + known


def _nll(residuals: Tensor, variance: Tensor, degrees_of_freedom: float) -> Tensor:
    return nll(residuals, variance, residuals.new_tensor(degrees_of_freedom))


def _problem(rows: _Rows, inside: Bool[Tensor, "B N"], degrees: Sequence[float]) -> NoiseProblem:
    laws = rows.residuals.new_tensor(degrees)
    return NoiseProblem(rows.residuals, rows.variance, rows.disagreement, rows.features, rows.weight, inside, laws)


def _found(problem: NoiseProblem, state: NoiseState) -> list[_Fit]:
    """The noise of each set of rows."""
    level, gamma = torch.maximum(state.level, problem.lowest), problem.gamma(state).tolist()
    parts = zip(level, state.slopes, problem.centre, problem.scale, gamma, strict=True)
    return [_Fit(LogLinearNoise(*part[:4]), part[4]) for part in parts]


def _fit(rows: _Rows, penalty: float, degrees_of_freedom: float) -> _Fit:
    """To all rows."""
    problem = _problem(rows, torch.ones_like(rows.residuals, dtype=torch.bool)[None], [degrees_of_freedom])
    return _found(problem, problem.fit(penalty))[0]
