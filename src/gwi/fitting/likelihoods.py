"""From a likelihood that is asked for to the task that fits it, with a look at the targets."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from torch import nn

from gwi._typing import Array
from gwi.core.likelihoods.censored import CensoredFamily
from gwi.core.likelihoods.external import TorchFamily
from gwi.core.likelihoods.families import BetaFamily, Family, GammaFamily, NegativeBinomialFamily, PoissonFamily
from gwi.core.likelihoods.ordinal import OrdinalFamily
from gwi.core.likelihoods.robust import RobustFamily
from gwi.core.likelihoods.shapes import SHAPES
from gwi.core.outcomes import NO_END, Outcome
from gwi.fitting.likelihood_choice import MOST_VALUES, chosen
from gwi.fitting.linked import LinkedTask
from gwi.fitting.regression import RegressionTask
from gwi.fitting.task import Task, Tempering
from gwi.parts import Frozen, Joint, Network, Paper, Trained
from gwi.parts.likelihoods import (
    LIKELIHOODS,
    Beta,
    Censored,
    FewValues,
    Gamma,
    Gaussian,
    LogNormal,
    NegativeBinomial,
    Ordinal,
    Poisson,
    Robust,
    StudentT,
)
from gwi.predictors.boosters import is_fitted

Float2D = NDArray[Any]


def likelihood_part(asked: Any) -> Any:
    """The part that a name says, or what was given: a part, a family of ours, or a likelihood of GPyTorch as one.

    Raises:
        ValueError: naming the choices.
    """
    if isinstance(asked, str):
        if asked == "auto":
            return Gaussian()
        if asked not in LIKELIHOODS:
            known = ", ".join(f'"{name}"' for name in ("auto", *LIKELIHOODS))
            raise ValueError(f"likelihood must be {known}, or an object; got {asked!r}.")
        return LIKELIHOODS[asked]()
    if isinstance(asked, (*LIKELIHOODS.values(), Family)):
        return asked
    if hasattr(asked, "expected_log_prob"):
        return TorchFamily(asked)
    raise ValueError(
        f"likelihood must be a name, a part such as gwi.Poisson(), an object with the functions of Family, or one of GPyTorch; "
        f"got {asked!r}."
    )


def takes_any_likelihood(mean: Any) -> bool:
    """Whether a mean, or each of a list, can be one of f for whatever likelihood is chosen.

    Modules, fitted predictors and functions are taken as they are, and predictions keep to their values; the mean of a logarithm
    or of a count would be another.
    """
    items = list(mean) if isinstance(mean, list | tuple) else [mean]
    own = ("auto", *LinkedTask.names)
    return all(item in own if isinstance(item, str) else isinstance(item, Network) or not _is_kept(item) for item in items)


def _is_kept(mean: Any) -> bool:
    return isinstance(mean, nn.Module | Frozen | Joint | Paper | Trained) or is_fitted(mean)


def chosen_task(
    rows: NDArray[Any], y: Float2D, weight: Array, groups: NDArray[Any] | None, tempering: Tempering, **kinds: bool
) -> Task:
    """The task of the likelihood that suits the targets; `kinds` says whether these are bounds, or levels."""
    choice = chosen(rows, y, weight, groups, **kinds)
    if isinstance(choice.part, Gaussian):
        return RegressionTask(choice.part, tempering, outcome=Outcome(low=choice.low), note=choice.why)
    task = task_of(choice.part, y, weight, tempering)
    if choice.counts:
        task = replace(task, families=(NegativeBinomialFamily(), PoissonFamily()))  # type: ignore[type-var]
    return replace(task, note=choice.why)  # type: ignore[type-var]


def task_of(part: Any, y: Float2D, weight: Array, tempering: Tempering) -> Task:
    """The task of a likelihood.

    Args:
        part: the likelihood.
        y: targets in the user's units, one column each, or two bounds.
        weight: of each row.
        tempering: as the estimator has it.

    Raises:
        ValueError: when the targets are none of this likelihood's.
    """
    if isinstance(part, Gaussian | StudentT):
        return RegressionTask(part, tempering)
    if isinstance(part, LogNormal):
        _require(y > 0, y, "a log-normal target is positive")
        return RegressionTask(part, tempering, outcome=Outcome(log=True))
    name = type(part).__name__
    if isinstance(part, Censored):
        return _censored(part, y, weight, tempering)
    if y.shape[1] != 1:
        raise ValueError(f"The likelihood {name} is of one target; got {y.shape[1]}. Fit one model for each.")
    values = y[:, 0]
    if isinstance(part, Poisson | NegativeBinomial):
        _require((y >= 0) & (y == np.round(y)), y, "counts are whole numbers of at least 0")
        family: Family = PoissonFamily() if isinstance(part, Poisson) else NegativeBinomialFamily()
        return LinkedTask((family,), link="log", tempering=tempering, noise=getattr(part, "noise", "constant"))
    if isinstance(part, Gamma):
        _require(y > 0, y, "a target with the likelihood Gamma is positive")
        unit = float(np.exp(np.average(np.log(values), weights=weight)))
        return LinkedTask((GammaFamily(),), link="log", unit=unit, tempering=tempering, noise=part.noise)
    if isinstance(part, Beta):
        low, high = float(part.low), float(part.high)
        _require((y >= low) & (y <= high), y, f"with the likelihood Beta a target must be between {low:g} and {high:g}")
        at_bounds = bool(((values == low) | (values == high)).any())
        family = BetaFamily(low, high, margin=0.5 / len(y) if at_bounds else 0.0)
        return LinkedTask((family,), link="logit", tempering=tempering, noise=part.noise)
    if isinstance(part, Ordinal | FewValues):
        label = "few-valued" if isinstance(part, FewValues) else "ordinal"
        return LinkedTask((_levels(part, values, weight),), tempering=tempering, noise=part.noise, label=label)
    if isinstance(part, Robust):
        centre = float(np.median(values))
        unit = 1.4826 * float(np.median(np.abs(values - centre))) or float(values.std()) or 1.0
        family = RobustFamily(power=float(part.power), divergence=part.divergence)
        return LinkedTask((family,), centre=centre, unit=unit, tempering=tempering, noise=part.noise)
    return LinkedTask((part,), tempering=tempering)


def _require(fits: NDArray[np.bool_], y: NDArray[Any], what: str) -> None:
    if not fits.all():
        place = int(np.flatnonzero(~fits.all(1))[0])
        wrong = y[place][~fits[place]][0]
        raise ValueError(f"{what[0].upper()}{what[1:]}; got {wrong:g}, the first of {int((~fits).any(1).sum())} such rows.")


def _levels(part: Ordinal | FewValues, values: Array, weight: Array) -> OrdinalFamily:
    """Thresholds of few values on the scale of f: between values as they are, or where their shares are those of a normal law."""
    known, place = np.unique(values, return_inverse=True)
    if not 2 <= len(known) <= MOST_VALUES:
        raise ValueError(
            f"The likelihood {type(part).__name__} takes two to {MOST_VALUES} different values; the target has {len(known)}."
        )
    if isinstance(part, FewValues):
        centre = float(np.average(values, weights=weight))
        std = math.sqrt(float(np.average(np.square(values - centre), weights=weight)))
        middles = ((known[1:] + known[:-1]) / 2 - centre) / std
        return OrdinalFamily(thresholds=tuple(middles.tolist()), values=tuple(known.tolist()))
    shares = np.cumsum(np.bincount(place, weights=weight))[:-1] / weight.sum()
    return OrdinalFamily(thresholds=tuple(norm.ppf(shares).tolist()), values=tuple(known.tolist()))


def _censored(part: Censored, y: Float2D, weight: Array, tempering: Tempering) -> LinkedTask:
    """Bounds of numbers, or of logarithms where all are positive."""
    if y.shape[1] not in (1, 2):
        raise ValueError(f"A censored target has a lower and an upper bound in each row, two columns; got {y.shape[1]}.")
    bounds = np.repeat(y, 2, axis=1) if y.shape[1] == 1 else y
    _require(np.repeat((bounds[:, :1] <= bounds[:, 1:]), 2, axis=1), bounds, "a lower bound is at most the upper one")
    known = np.abs(bounds) < NO_END
    if not known.any(1).all():
        raise ValueError(f"{int((~known.any(1)).sum())} targets have no bound at all; leave these rows out.")
    exact = bounds[:, 0] == bounds[:, 1]
    if not (exact | known.all(1)).any():
        raise ValueError("No target is known or lies between two bounds, so the spread cannot be learned.")
    positive = bool((bounds[known[:, 1], 1] > 0).all() and (bounds[exact, 0] > 0).all() and (bounds[known[:, 0], 0] >= 0).all())
    log = positive if part.log == "auto" else bool(part.log)
    if log and not positive:
        raise ValueError("The logarithm of a censored target needs positive numbers; got others. Pass Censored(log=False).")
    outcome = Outcome(log=log)
    low, high = outcome.encode(bounds).T
    middle = np.where(np.isinf(low), high, np.where(np.isinf(high), low, (low + high) / 2))
    centre = float(np.average(middle, weights=weight))
    unit = math.sqrt(float(np.average(np.square(middle - centre), weights=weight))) or 1.0
    families = tuple(CensoredFamily(shape) for name, shape in SHAPES.items() if part.shape in ("auto", name.lower()))
    return LinkedTask(families, outcome=outcome, centre=centre, unit=unit, tempering=tempering, noise=part.noise)
