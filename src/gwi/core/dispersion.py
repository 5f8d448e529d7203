"""What held-out rows tell of a likelihood whose f is Gaussian: its dispersion φ(x), its thresholds, the size of r.

All of it is found by the likelihood that the predictive law, ∫ p(y | f, φ) N(f; m, v) df, gives to rows that no mean has seen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gwi.core.likelihoods.expectations import NodesAtModes, log_marginal
from gwi.core.likelihoods.families import LEAST_DISPERSION, MOST_DISPERSION, Family
from gwi.core.noise import LogLinearNoise, earns_its_place
from gwi.core.noise_fit import DISAGREEMENT_WEIGHT, DISAGREEMENT_WIDTH
from gwi.core.training import minimize_lbfgs

# Penalties on the slopes of log φ, squared and summed, that are tried; and the number of rows by which one is chosen.
PENALTIES, MOST_CROSS_VALIDATED = (100.0, 10.0), 4000
NUM_FOLDS, FEWEST_UNITS = 5, 50
# Width of the log-normal hyper-prior of α, which multiplies r where the likelihood has no dispersion of its own.
TEMPERING_WIDTH = 0.5
# α, and γ in its own unit, are at most this: counts that vary far more than Poisson's ask for a law that says so, and where r or
# d² is large e^f has no bound. With α alone bounded γ took its place: 64, and predictions of visits to a doctor up to 10⁵.
MOST_TEMPERING = 4.0
# Times that nodes are placed anew, and steps of the search between.
ROUNDS, MOST_STEPS = 2, 60


@dataclass(frozen=True)
class JudgedRows:
    """Rows that no mean has seen, and what is said of f there.

    Attributes:
        y: targets as the likelihood takes them.
        mean: of f.
        variance: r.
        disagreement: d².
        features: what φ may depend on.
        weight: of each row.
    """

    y: Float[Tensor, "*C N"]
    mean: Float[Tensor, " N"]
    variance: Float[Tensor, " N"]
    disagreement: Float[Tensor, " N"]
    features: Float[Tensor, "N F"]
    weight: Float[Tensor, " N"]

    def __getitem__(self, rows: Tensor) -> JudgedRows:
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        return JudgedRows(**{name: part[..., rows] if name == "y" else part[rows] for name, part in parts.items()})

    def __len__(self) -> int:
        return len(self.mean)


@dataclass(frozen=True)
class DispersionFit:
    """What was found.

    Attributes:
        family: the likelihood, with its thresholds.
        noise: φ as a function of features.
        disagreement_weight: γ; zero where means do not disagree.
        tempering: α, on r.
        shift: what f is moved by.
        penalty: on the slopes of log φ; infinity where φ is constant.
        log_density: of each row, in the unit of the family.
    """

    family: Family
    noise: LogLinearNoise
    disagreement_weight: float
    tempering: float
    shift: float
    penalty: float
    log_density: Float[Tensor, " N"]

    def score(self, rows: JudgedRows) -> Float[Tensor, " N"]:
        """log p(y) of any rows."""
        variance = self.tempering * rows.variance + self.disagreement_weight * rows.disagreement
        return log_marginal(self.family, rows.y, rows.mean + self.shift, variance, self.noise(rows.features))

    @property
    def num_parameters(self) -> int:
        """Of the likelihood, as the Bayesian information criterion counts them."""
        return int(self.family.has_dispersion) + int((self.noise.slopes != 0).sum())


def fit_dispersion(
    family: Family,
    rows: JudgedRows,
    *,
    tempering: float | None = None,
    kind: Literal["auto", "constant", "input-dependent"] = "auto",
    unit: Int[Tensor, " N"] | None = None,
    generator: torch.Generator | None = None,
) -> DispersionFit:
    """φ, γ, α, a shift of f and what else the likelihood leaves free, by the likelihood of these rows.

    φ depends on the row if rows of other folds are more likely so, by more than one standard error.

    Args:
        family: p(y | f, φ).
        rows: to fit to.
        tempering: α; None to fit it where the likelihood has no dispersion.
        kind: whether φ depends on the row.
        unit: of each row, such as its group; rows of one unit err alike.
        generator: for the folds.
    """
    unit = torch.arange(len(rows)) if unit is None else unit.unique(return_inverse=True)[1].cpu()
    num_units = int(unit.max()) + 1
    constant = _fit(family, rows, math.inf, tempering)
    if kind == "constant" or not family.has_dispersion or num_units < FEWEST_UNITS or not rows.features.shape[1]:
        return constant
    order = torch.randperm(num_units, generator=generator)[unit].to(rows.mean.device)
    some = order < max(NUM_FOLDS, MOST_CROSS_VALIDATED * num_units // len(rows))
    chosen, fold = rows[some], order[some] % NUM_FOLDS
    errors = {penalty: torch.empty_like(chosen.mean) for penalty in (math.inf, *PENALTIES)}
    for k in range(NUM_FOLDS):
        inside, outside = chosen[fold != k], chosen[fold == k]
        start = constant
        for penalty in errors:
            start = _fit(family, inside, penalty, tempering, start, is_last=False)
            errors[penalty][fold == k] = -start.score(outside) * outside.weight
    best = min(PENALTIES, key=lambda penalty: float(errors[penalty].mean()))
    if kind == "auto" and not earns_its_place(errors[math.inf] - errors[best], unit[some.cpu()]):
        return constant
    return _fit(family, rows, best, tempering, constant)


def _fit(
    family: Family,
    rows: JudgedRows,
    penalty: float,
    tempering: float | None,
    start: DispersionFit | None = None,
    *,
    is_last: bool = True,
) -> DispersionFit:
    features, weight, like = rows.features, rows.weight, rows.mean
    centre = features.mean(0)
    scale = (features - centre).square().mean(0).sqrt()
    scale = torch.where(scale > 1e-12, scale, torch.ones_like(scale))
    standardised = ((features - centre) / scale).clamp(-4, 4)

    def parameter(value: float | Tensor) -> Tensor:
        return torch.as_tensor(value, dtype=like.dtype, device=like.device).clone().requires_grad_(True)

    first = family.rough_dispersion(rows.y, family.mean(rows.mean, torch.ones_like(like)), weight)
    level = parameter(math.log(first) if start is None else start.noise.log_level.detach())
    slopes = parameter(torch.zeros_like(centre) if start is None else start.noise.slopes * scale / start.noise.scale)
    log_gamma = parameter(math.log(DISAGREEMENT_WEIGHT if start is None else max(start.disagreement_weight, 1e-3)))
    log_alpha, shift = parameter(0.0 if start is None else math.log(start.tempering)), parameter(0.0)
    free = None if not hasattr(family, "free") else parameter(family.free if start is None else start.family.free)  # type: ignore[attr-defined]
    disagrees, sloping = bool((rows.disagreement > 0).any()), penalty < math.inf
    # Where f is known nothing is integrated.
    known = not disagrees and not bool((rows.variance > 0).any())
    tempers = tempering is None and not family.has_dispersion
    low, high = math.log(LEAST_DISPERSION), math.log(MOST_DISPERSION)
    most_gamma = 20.0 if family.has_dispersion else math.log(MOST_TEMPERING * DISAGREEMENT_WEIGHT)

    def state() -> tuple[Tensor, Tensor, Tensor]:
        slope = (standardised @ slopes).clamp(-8, 4) if sloping else torch.zeros_like(like)
        phi = (level.clamp(low, high) + slope).exp() if family.has_dispersion else torch.ones_like(like)
        alpha = log_alpha.exp() if tempers else 1.0 if tempering is None else tempering
        variance = alpha * rows.variance + (log_gamma.exp() * rows.disagreement if disagrees else 0.0)
        return rows.mean + (shift if free is None else 0.0), variance, phi

    def log_density(nodes: NodesAtModes | None) -> Tensor:
        if free is not None:
            return family.log_marginal_at(free, rows.y, *state())  # type: ignore[attr-defined]
        if known:
            mean, _, phi = state()
            return family.log_prob(rows.y, mean, phi)
        return log_marginal(family, rows.y, *state()) if nodes is None else nodes.log_marginal(*state())

    def objective(nodes: NodesAtModes | None) -> Tensor:
        value = -(weight * log_density(nodes)).sum()
        if sloping:
            value = value + penalty * slopes.square().sum() / 2
        if disagrees:
            value = value + ((log_gamma - math.log(DISAGREEMENT_WEIGHT)) / DISAGREEMENT_WIDTH).square() / 2
        return value + (log_alpha / TEMPERING_WIDTH).square() / 2 if tempers else value

    # Ends that stop a search, not the gradient: behind a clamp it would have none, and stay there.
    nothing, most_alpha = (None, None), math.log(MOST_TEMPERING)
    used: list[tuple[Tensor, tuple[float | None, float | None], bool]] = [
        (level, nothing, family.has_dispersion),
        (slopes, nothing, sloping),
        (log_gamma, (-20.0, most_gamma), disagrees),
        (log_alpha, (None, most_alpha), tempers),
        (shift, nothing, free is None),
        *([] if free is None else [(free, nothing, True)]),
    ]
    parameters = [p for p, _, needed in used if needed]
    bounds = [ends for p, ends, needed in used if needed for _ in range(p.numel())]
    closed = known or hasattr(family, "closed_log_marginal")
    if tempers and start is None:
        # Nodes around the modes of a narrow f do not see what a wide one would bring: of both ends the better is the start.
        with torch.no_grad():
            found = {}
            for factor in (MOST_TEMPERING, 1.0):
                log_alpha.fill_(math.log(factor))
                log_gamma.fill_(math.log(factor * DISAGREEMENT_WEIGHT))
                found[factor] = float(objective(None))
            better = min(found, key=found.__getitem__)
            log_alpha.fill_(math.log(better))
            log_gamma.fill_(math.log(better * DISAGREEMENT_WEIGHT))
    for _ in range(1 if closed else ROUNDS):
        with torch.no_grad():
            nodes = None if closed else NodesAtModes(family, rows.y, *state())
        minimize_lbfgs(
            lambda nodes=nodes: objective(nodes),  # type: ignore[misc]
            parameters,
            bounds=bounds,
            max_iterations=MOST_STEPS,
            tolerance=1e-8,
        )
    with torch.no_grad():
        noise = LogLinearNoise(
            level.clamp(low, high) if family.has_dispersion else torch.zeros_like(level),
            slopes if sloping else torch.zeros_like(slopes),
            centre,
            scale,
        )
        return DispersionFit(
            family=family if free is None else family.at(free),  # type: ignore[attr-defined]
            noise=noise,
            disagreement_weight=float(log_gamma.exp()) if disagrees else 0.0,
            tempering=float(log_alpha.exp()) if tempers else 1.0 if tempering is None else tempering,
            shift=float(shift) if free is None else 0.0,
            penalty=penalty,
            # Of fits that only serve to choose nobody asks for it.
            log_density=log_density(None) if is_last else torch.full_like(like, math.nan),
        )


def best_of(families: Sequence[Family], rows: JudgedRows, *, tempering: float | None = None) -> tuple[Family, dict[str, float]]:
    """The family by which the rows are the most likely, less ½ log N for a dispersion; and the mean NLL of each by its name."""
    scores = {}
    for family in families:
        fit = _fit(family, rows, math.inf, tempering)
        price = fit.num_parameters * math.log(max(len(rows), 2)) / 2
        scores[family] = float(-(rows.weight * fit.log_density).sum() + price) / float(rows.weight.sum())
    found = min(scores, key=scores.__getitem__)
    return found, {label_of(family): score for family, score in scores.items()}


def label_of(family: Family) -> str:
    """What a likelihood is called."""
    return str(getattr(family, "label", family.name))
