"""What a fit needs to know of P where it is not the usual one: its mean, and whether the divergence from it is finite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from gwi.core.means import FixedMean, ModuleMean, SumMean
from gwi.fitting.data import FitData, FitOptions
from gwi.fitting.hyperparameters import PriorChoice
from gwi.fitting.learners import name_of
from gwi.fitting.task import Member, Task

# Means for which KL(Q, P) is finite: kernel functions at the inducing points of the covariance.
FINITE = "svgp"


def with_prior_mean(task: Task, data: FitData, options: FitOptions) -> Task:
    """The task, told the mean of P.

    Raises:
        ValueError: when it is nothing that can be asked, or this task takes none.
    """
    asked = options.prior_mean
    if asked is None:
        return task
    if isinstance(asked, str) or not (hasattr(asked, "predict") or callable(asked)):
        raise ValueError(f"prior_mean must be a fitted predictor or a function from rows to targets; got {asked!r}.")
    if data.is_sample:
        raise ValueError("prior_mean is for rows in memory, as arrays or a frame of numbers.")
    mean = ModuleMean(asked) if isinstance(asked, nn.Module) else FixedMean(task.plain(asked))
    own = task.in_own_units(mean, data.scales)
    try:
        with torch.no_grad():
            task.require_outputs(own(data.x[:2]), task.num_outputs(data.y), "The prior mean")
    except (TypeError, IndexError, KeyError, AttributeError) as error:
        raise ValueError(f"prior_mean does not take rows of {data.x.shape[1]} numbers: {error}") from error
    return replace(task, prior_mean=own)  # type: ignore[type-var]


def beside(prior_mean: nn.Module | None, data: FitData) -> FitData:
    """The rows with what the mean of P leaves over as targets."""
    return data if prior_mean is None else data.less(prior_mean, data.held_out.same_in_folds(prior_mean))


def finite_means(means: Sequence[Any] | None, options: FitOptions) -> Sequence[Any] | None:
    """The means that were asked for; where the divergence is KL the one for which it is finite, None being the plan.

    Raises:
        ValueError: for another one.
    """
    if options.divergence != "kl":
        return means
    for item in means or ():
        if item != FINITE:
            raise infinite(name_of(item))
    return [FINITE]


def infinite(name: str) -> ValueError:
    """What to say where KL is asked for with another mean."""
    return ValueError(
        f"KL(Q, P) is infinite for the mean {name!r}: two Gaussian measures on functions are singular to each other unless the "
        'difference of their means is in the RKHS of the prior\'s kernel. Use mean="svgp", or divergence="wasserstein-squared", '
        "which is finite for any mean."
    )


def under(divergence: str, choice: PriorChoice) -> PriorChoice:
    """Of KL the mean has the inducing points and the kernel of the covariance, and no other kernel is tried."""
    return replace(choice, basis=choice.inducing_points, of_bound=None) if divergence == "kl" else choice


def scaled_noise(options: FitOptions) -> float:
    """What KL with a weight multiplies the noise by: the minimiser of −E log p + β KL is the posterior under noise β σ²."""
    weight = options.covariance.weight
    return 1.0 if options.divergence != "kl" or weight == "auto" else float(weight)


def added(prior_mean: nn.Module | None, member: Member, data: FitData) -> Member:
    """A member that has learned what the mean of P leaves over, and that mean."""
    if prior_mean is None:
        return member
    values = data.held_out.same_in_folds(prior_mean) + member.held_out
    return replace(member, mean=SumMean([prior_mean, member.mean]), held_out=values)
