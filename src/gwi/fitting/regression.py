"""Fitting a regression in two stages: the means with their errors on unseen rows, then covariance, noise and tempering.

The second stage is cheap, so what it decides can be decided again: with other options, or with more rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from torch import Tensor

from gwi._progress import silent
from gwi.core.distributions import DEGREES, STACK_OPTIMISM, choose_tails, log_density, match_coverage
from gwi.core.inducing import Method
from gwi.core.kernels import SparsePosteriorKernel
from gwi.core.means import KernelMean
from gwi.core.measures import GaussianMeasure
from gwi.core.noise import noise_features
from gwi.core.prior import PriorFit
from gwi.fitting.held_out_covariance import CovarianceChoice, NoiseName, calibrate, choose_prior, decided_covariance, prior_for
from gwi.fitting.learners import Task, Trained, kernel_learner
from gwi.fitting.sklearn_learner import run_pending
from gwi.fitting.stacking import cross_fitted_weights, learn, name_of, stack
from gwi.models.regression import Member, RegressionModel, Summary

# Centres of a kernel mean beyond `ALL_ROWS` rows: more than the covariance's Z, because a mean costs less a point; but no more
# than make M² N this number.
MEAN_BASIS, MEAN_OPERATIONS = 1000, 1e13

# Errors at unseen rows are kept as often as the rows stand in the table, up to so many.
MOST_REPEATED = 100_000

TailsName = Literal["auto", "normal"]
KernelFitName = Literal["targets", "residuals"]


@dataclass(frozen=True)
class Learned:
    """The means, and what they predicted at rows they had not seen.

    Attributes:
        task: rows to learn from and rows to be judged on.
        kernel: k before it was fitted.
        prior: k fitted to the targets.
        inducing_points: Z.
        members: the means.
        mixing: their weights in each target's mean.
        unseen_mixing: the weights by other judging rows than each.
        y_judge: targets at the judging rows.
        judge_weight: of each judging row.
        late_variance: r at judging rows that came by `extended`, from before they were taken in; None where folds judge.
    """

    task: Task
    kernel: Kernel
    prior: PriorFit
    inducing_points: Float[Tensor, "M D"]
    members: tuple[Trained, ...]
    mixing: Float[Tensor, "J K"]
    unseen_mixing: Float[Tensor, "J K V"]
    y_judge: Float[Tensor, "J V"]
    judge_weight: Float[Tensor, " V"]
    late_variance: Float[Tensor, "J n"] | None = None

    @property
    def judged(self) -> Float[Tensor, "J V"]:
        """The stacked mean at the judging rows, neither its parts nor their weights from the row itself."""
        return torch.einsum("jkv,kjv->jv", self.unseen_mixing, torch.stack([member.judged for member in self.members]))

    @property
    def disagreement(self) -> Float[Tensor, "J V"]:
        """d² = Σ_k w_k (m_k − m_Q)² at the judging rows."""
        errors = torch.stack([member.judged for member in self.members]) - self.judged
        return torch.einsum("jkv,kjv->jv", self.unseen_mixing, errors.square())


def learn_means(
    task: Task,
    y_judge: Float[Tensor, "J V"],
    judge_weight: Float[Tensor, " V"],
    means: Sequence[Any],
    kernel: Kernel,
    *,
    num_inducing: int | Literal["auto"] = "auto",
    inducing_points: Method | Float[Tensor, "M D"] = "kmeans",
    freeze: bool = False,
) -> Learned:
    """Fit the prior, train every mean, and weigh them by their errors on unseen rows."""
    task.report("prior", 0.0)

    def chosen() -> tuple[PriorFit, Tensor, Tensor]:
        kernel_means = any(isinstance(item, str) and "svgp" in item for item in means)
        prior, z = choose_prior(task, kernel, num_inducing, inducing_points, judges_kernel_means=kernel_means)
        if num_inducing != "auto" or z is task.x:
            return prior, z, z
        count = mean_basis_size(task.num_rows, len(z))
        return prior, z, task.x[torch.randperm(len(task.x), generator=task.generator)[:count].to(task.x.device)]

    prior, z, basis = task.decided(chosen)
    begun = []
    for place, item in enumerate(means):
        task.report(name_of(item), 0.0)
        begun.append(learn(item, replace(task, place=place), prior, basis, freeze))
    members = run_pending(task, begun)
    judged = torch.stack([member.judged for member in members])
    found = [cross_fitted_weights(judged[:, j], y_judge[j], judge_weight, task.fold) for j in range(len(y_judge))]
    mixing, unseen_mixing = (torch.stack(part) for part in zip(*found, strict=True))
    # A progress display is of this fit, and cannot be pickled.
    return Learned(replace(task, report=silent), kernel, prior, z, members, mixing, unseen_mixing, y_judge, judge_weight)


def mean_basis_size(num_rows: int, num_inducing: int) -> int:
    """How many basis functions a kernel mean has where their number is not given."""
    return min(MEAN_BASIS, max(num_inducing, int((MEAN_OPERATIONS / num_rows) ** 0.5)))


def extended(learned: Learned, model: RegressionModel, x: Tensor, y: Tensor) -> Learned:
    """With more rows, unseen by the means, to judge them and to learn S from; a mean that is one kernel expansion learns too."""
    task = learned.task
    rows = torch.cat([task.x, x])
    fold = task.fold
    if fold is not None:
        fold = torch.cat([fold, torch.randint(task.num_folds, x.shape[:1], generator=task.generator).to(fold)])
    new_task = replace(
        task,
        x=rows,
        y=torch.cat([task.y, y], dim=1),
        weight=torch.cat([task.weight, torch.ones_like(y[0])]),
        fold=fold,
        x_judge=rows if fold is not None else torch.cat([task.x_judge, x]),
    )
    z = rows if learned.inducing_points is task.x else learned.inducing_points
    with torch.no_grad():
        late = None
        if fold is None:
            late = model.prepared.parts(x)[1]
            late = late if learned.late_variance is None else torch.cat([learned.late_variance, late], dim=1)
        members = tuple(replace(m, judged=torch.cat([m.judged, m.mean(x)], dim=1)) for m in learned.members)
    only = members[0]
    if len(members) == 1 and isinstance(only.mean, KernelMean):
        basis = rows if torch.equal(only.mean.inducing_points, task.x) else only.mean.inducing_points
        again = kernel_learner(learned.prior, basis, new_task, only.name)
        # Validation rows keep the predictions of the mean that had not seen the later ones.
        members = (again if fold is not None else replace(again, judged=only.judged),)
    return replace(
        learned,
        task=new_task,
        inducing_points=z,
        members=members,
        unseen_mixing=torch.cat([learned.unseen_mixing, learned.mixing[..., None].expand(-1, -1, len(x))], dim=2),
        y_judge=torch.cat([learned.y_judge, y], dim=1),
        judge_weight=torch.cat([learned.judge_weight, torch.ones_like(y[0])]),
        late_variance=late,
    )


def assemble(
    learned: Learned,
    *,
    covariance: CovarianceChoice = "auto",
    divergence_weight: float | Literal["auto"] = "auto",
    noise: NoiseName = "auto",
    tempering: float | Literal["auto"] | None = "auto",
    tails: TailsName = "auto",
    kernel_fit: KernelFitName = "targets",
    disagreement: bool = True,
) -> tuple[RegressionModel, Summary]:
    """Covariance, noise and tempering for the means as they are; seconds in the summary are left to the caller.

    `disagreement` says whether means that disagree add to the variance.
    """
    task, z, y_judge, weight = learned.task, learned.inducing_points, learned.y_judge, learned.judge_weight
    judged = learned.judged
    residuals = y_judge - judged
    features = noise_features(task.x_judge, judged)
    spread = learned.disagreement if disagreement and len(learned.members) > 1 else None
    prior = learned.prior
    num_means = int((learned.mixing > 1e-6).any(0).sum())
    kind = decided_covariance(task, z, num_means, covariance, divergence_weight)
    if kernel_fit == "residuals":
        prior = prior_for(learned.kernel, task.x_judge, residuals, weight, z, torch.Generator().manual_seed(0))
    found = [
        calibrate(
            task,
            prior,
            z,
            residuals[j],
            features,
            weight,
            covariance=kind,
            divergence_weight=divergence_weight,
            noise=noise,
            disagreement=None if spread is None else spread[j],
            late_variance=None if learned.late_variance is None else learned.late_variance[j],
        )
        for j in range(len(y_judge))
    ]
    s = torch.stack([part.whitened_covariance for part, _ in found])
    mean = stack([member.mean for member in learned.members], learned.mixing)
    # Noise at a row from fits that had not seen it: a model of noise, too, is surer of the rows it was fitted to.
    variance = torch.stack([part.variance + fit.unseen for part, fit in found])
    gamma = tuple(fit.disagreement_weight for _, fit in found)
    fixed = None if tempering == "auto" else 1.0 if tempering is None else float(tempering)
    degrees = DEGREES if tails == "auto" else ()
    z_scores = (residuals / variance.sqrt()).cpu().numpy()
    shapes = [choose_tails(row, weight.cpu().numpy(), factor=fixed, degrees=degrees) for row in z_scores]
    if fixed is None:
        optimism = STACK_OPTIMISM if num_means > 1 else 0.0
        shapes = [
            match_coverage(row, weight.cpu().numpy(), law, optimism=optimism) for row, law in zip(z_scores, shapes, strict=True)
        ]
    factor = np.array([shape.factor for shape in shapes])
    tempered = variance * variance.new_tensor(factor)[:, None]
    model = RegressionModel(
        posterior=GaussianMeasure(mean, SparsePosteriorKernel(prior.kernel, z, s)).requires_grad_(False).eval(),
        noises=tuple(fit.noise for _, fit in found),
        scales=task.scales,
        tempering_factor=factor,
        degrees_of_freedom=np.array([shape.degrees_of_freedom for shape in shapes]),
        disagreement_weight=np.array(gamma),
        scores=repeated(residuals.abs() / tempered.sqrt(), weight).sort(-1).values,
    )
    summary = Summary(
        num_rows=task.num_rows if task.stream is not None else round(float(task.weight.sum())),
        members=tuple(
            Member(m.name, tuple(learned.mixing[:, i].tolist()), float((y_judge - m.judged).square().mean().sqrt()), m.seconds)
            for i, m in enumerate(learned.members)
        ),
        covariance=found[0][0].kind,
        num_inducing=len(z),
        stores_all_rows=any(len(p) == task.num_rows for p in (z, *_bases(model.posterior))),
        divergence_weight=tuple(part.divergence_weight for part, _ in found),
        noise=tuple(fit.penalty for _, fit in found),
        tempering=tuple(factor.tolist()),
        degrees_of_freedom=tuple(shape.degrees_of_freedom for shape in shapes),
        disagreement_weight=gamma,
        unseen_nll=(
            average_nll(residuals, variance, weight, [math.inf] * len(shapes)),
            average_nll(residuals, tempered, weight, [shape.degrees_of_freedom for shape in shapes]),
        ),
        seconds=math.nan,
    )
    return model, summary


def repeated(values: Float[Tensor, "J V"], weight: Float[Tensor, " V"]) -> Float[Tensor, "J W"]:
    """Each column as often as its row stands there, where weights are such numbers and not too many."""
    if (weight == weight.round()).all() and len(weight) < weight.sum() <= MOST_REPEATED:
        return values.repeat_interleave(weight.long(), dim=1)
    return values


def average_nll(residuals: Tensor, variance: Tensor, weight: Tensor, degrees_of_freedom: Sequence[float]) -> float:
    """The weighted mean NLL of the residuals under laws with this variance, summed over targets."""
    std, w = variance.sqrt().cpu().numpy(), weight.cpu().numpy()
    z = residuals.cpu().numpy() / std
    nll = [np.log(s) - log_density(row, degrees) for row, s, degrees in zip(z, std, degrees_of_freedom, strict=True)]
    return float(np.sum([np.average(row, weights=w) for row in nll]))


def _bases(posterior: GaussianMeasure) -> list[Tensor]:
    return [part.inducing_points for part in posterior.modules() if isinstance(part, KernelMean)]
