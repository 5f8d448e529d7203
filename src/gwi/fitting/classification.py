"""Fitting a classification: the logits with their errors on unseen rows, then covariance and tempering.

Around its mean the softmax's log-likelihood is quadratic in each logit, with the curvature p(1 − p). Averaged over rows, it plays
the part that 1/σ² plays in regression, and the covariances of regression serve.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from gwi.core.covariance import matched_divergence_weights
from gwi.core.kernels import SparsePosteriorKernel, whitened_features
from gwi.core.linalg import cholesky
from gwi.core.means import ConstantMean, KernelMean, SumMean
from gwi.core.measures import GaussianMeasure, kernel_matrix, kernel_variance
from gwi.core.prior import PriorFit
from gwi.fitting.held_out_covariance import (
    COVARIANCE_TOLERANCE,
    CovarianceName,
    JudgedCovariance,
    judged_covariance,
    left_out_for,
    matching_sums,
)
from gwi.fitting.learners import Task, Trained
from gwi.fitting.logit_correction import learn_correction
from gwi.fitting.logit_scales import FEWEST_ROWS, JUDGED_NUMBERS, Judgement, TemperingName, choose_scales
from gwi.fitting.logits import best_scale, learn_logits, rescaled, stacking_weights
from gwi.fitting.sklearn_learner import run_pending
from gwi.fitting.stacking import name_of, stack
from gwi.models.classification import (
    CHUNK_SIZE,
    ClassificationModel,
    ClassMember,
    ClassSummary,
    LogitsAndFeatures,
    StandardRows,
    UsualScores,
    energy,
    share_of_prior,
)

# Covariances are solved for at most so many classes; others share that of the class with the nearest curvature.
MOST_COVARIANCES = 16


@dataclass(frozen=True)
class LearnedLogits:
    """The means, and what they predicted at rows they had not seen.

    Attributes:
        task: rows to learn from and rows to be judged on.
        prior: k, fitted to standardised indicators of the classes.
        inducing_points: Z.
        members: the means.
        mixing: their weights.
        logit_scale: s.
        y_judge: indicators at the judging rows.
        judge_weight: of each judging row.
        correct: whether the judging rows, which no mean has learned from, may correct the logits.
    """

    task: Task
    prior: PriorFit
    inducing_points: Float[Tensor, "M E"]
    members: tuple[Trained, ...]
    mixing: Float[Tensor, " K"]
    logit_scale: float
    y_judge: Float[Tensor, "J V"]
    judge_weight: Float[Tensor, " V"]
    correct: bool = False

    @property
    def judged(self) -> Float[Tensor, "J V"]:
        """The combined logits at the judging rows, unscaled."""
        return torch.einsum("k,kjv->jv", self.mixing, torch.stack([member.judged for member in self.members]))

    @property
    def disagreement(self) -> Float[Tensor, "J V"]:
        """d² = Σ_k w_k (m_k − m)² at the judging rows, unscaled."""
        errors = torch.stack([member.judged for member in self.members]) - self.judged
        return torch.einsum("k,kjv->jv", self.mixing, errors.square())


def combine_logits(
    task: Task,
    prior: PriorFit,
    z: Float[Tensor, "M E"],
    members: Sequence[Trained],
    y_judge: Float[Tensor, "J V"],
    judge_weight: Float[Tensor, " V"],
    scale: float | Literal["auto"] = "auto",
) -> LearnedLogits:
    """Weigh the means by the likelihood of unseen rows."""
    judged = torch.stack([member.judged for member in members])
    mixing, logit_scale = stacking_weights(judged, y_judge, judge_weight, scale=scale)
    return LearnedLogits(task, prior, z, tuple(members), mixing, logit_scale, y_judge, judge_weight)


def learn_members(
    task: Task,
    prior: PriorFit,
    basis: Float[Tensor, "M E"],
    means: Sequence[Any],
    y_judge: Float[Tensor, "J V"],
    judge_weight: Float[Tensor, " V"],
    *,
    freeze: bool = True,
) -> list[Trained]:
    """Train, or ask, every mean; a module is only asked if `freeze`."""
    begun = []
    for place, item in enumerate(means):
        task.report(name_of(item), 0.0)
        begun.append(learn_logits(item, replace(task, place=place), prior, basis, y_judge, judge_weight, freeze=freeze))
    return list(run_pending(task, begun))


def class_covariances(
    learned: LearnedLogits, prior: PriorFit, kind: CovarianceName, divergence_weight: float | Literal["auto"]
) -> list[JudgedCovariance]:
    """S of each class, with 1/σ² the mean curvature of the softmax in its logit at rows the mean has not seen."""
    probabilities = (learned.logit_scale * learned.judged).softmax(0)
    weight = learned.judge_weight / learned.judge_weight.mean()
    # A class that is never in doubt still has some curvature: that of one row in doubt.
    floor = 0.25 / probabilities.shape[1]
    curvature = (probabilities * (1 - probabilities) * weight).mean(1).clamp_min(floor)
    levels = curvature.sort().values
    if len(levels) > MOST_COVARIANCES:
        levels = levels[torch.linspace(0, len(levels) - 1, MOST_COVARIANCES).round().long().to(levels.device)]
    nearest = (curvature[:, None] / levels).log().abs().argmin(1)
    task, z = learned.task, learned.inducing_points
    chosen = sorted(set(nearest.tolist()))
    noises = [1 / float(levels[i]) for i in chosen]
    if divergence_weight == "auto":
        betas = matched_divergence_weights(matching_sums(task, prior, z), noises)
    else:
        betas = [float(divergence_weight)] * len(noises)
    left_out = left_out_for(task, prior, z, kind)
    solved = {
        i: judged_covariance(task, prior, z, noise, kind, beta, COVARIANCE_TOLERANCE, left_out)
        for i, noise, beta in zip(chosen, noises, betas, strict=True)
    }
    return [solved[i] for i in nearest.tolist()]


def assemble_classes(
    learned: LearnedLogits,
    embedding: StandardRows | LogitsAndFeatures,
    *,
    covariance: CovarianceName = "wasserstein",
    divergence_weight: float | Literal["auto"] = "auto",
    tempering: float | TemperingName | None = "auto",
    epsilon: float | None = None,
    note: str = "",
) -> tuple[ClassificationModel, ClassSummary]:
    """Covariance and tempering for the means as they are; seconds in the summary are left to the caller."""
    scaled = learned.logit_scale * learned.judged
    # A prior of the logits' own size: the evidence knows length-scales, the logits their amplitude.
    spread = (scaled - scaled.mean(1, keepdim=True)).square().mean()
    level = float(kernel_variance(learned.prior.kernel, learned.task.x[:1000]).detach().mean())
    prior = replace(learned.prior, kernel=rescaled(learned.prior, max(float(spread), 1e-6) / max(level, 1e-12)))
    if learned.correct:
        learned, said = corrected(learned, prior)
        note = "; ".join(part for part in (note, said) if part)
    found = class_covariances(learned, prior, covariance, divergence_weight)
    kernel = SparsePosteriorKernel(
        prior.kernel, learned.inducing_points, torch.stack([part.whitened_covariance for part in found])
    )
    return temper_classes(
        learned,
        embedding,
        kernel,
        torch.stack([part.variance for part in found]),
        torch.cat([kernel_variance(prior.kernel, rows) for rows in learned.task.x_judge.split(CHUNK_SIZE)]),
        kind=found[0].kind,
        divergence_weight=tuple(part.divergence_weight for part in found),
        tempering=tempering,
        epsilon=epsilon,
        note=note,
    )


@torch.no_grad()
def corrected(learned: LearnedLogits, prior: PriorFit) -> tuple[LearnedLogits, str]:
    """A single mean with a kernel mean on Z added, learned from the judging rows, and what was done in words.

    The judged logits are then those of folds of these rows. The basis is that of the covariance, so predictions cost no more.
    """
    assert len(learned.members) == 1
    member, z = learned.members[0], learned.inducing_points
    factor = cholesky(kernel_matrix(prior.kernel, z), name="k(Z, Z)").factor
    rows = learned.task.x_judge
    phi = torch.cat([whitened_features(prior.kernel, z, factor, part) for part in rows.split(CHUNK_SIZE)], dim=-1)
    amplitude = float(kernel_variance(prior.kernel, z).mean()) ** 0.5
    found = learn_correction(member.judged, phi / amplitude, learned.y_judge, learned.judge_weight)
    if found is None:
        return learned, ""
    kernel_mean = KernelMean(prior.kernel, z, found.coefficients / (amplitude * found.scale))
    mean = SumMean([member.mean, kernel_mean, ConstantMean(found.offset / found.scale)])
    better = replace(member, mean=mean, judged=found.judged / found.scale)
    said = f"logits corrected by {len(rows)} unseen rows, prior variance {found.variance:g}"
    return replace(learned, members=(better,), logit_scale=found.scale, correct=False), said


def temper_classes(
    learned: LearnedLogits,
    embedding: StandardRows | LogitsAndFeatures,
    kernel: SparsePosteriorKernel,
    variance: Float[Tensor, "J V"],
    level: Float[Tensor, " V"],
    *,
    kind: str,
    divergence_weight: tuple[float, ...],
    tempering: float | TemperingName | None,
    epsilon: float | None,
    note: str,
) -> tuple[ClassificationModel, ClassSummary]:
    """The scales of logits and variances by unseen rows, and the whole as a model.

    Args:
        learned: judged logits.
        embedding: from the user's rows to those of the task.
        kernel: of Q.
        variance: r at the judging rows, as it would be at new ones.
        level: k at the judging rows.
        kind: of covariance, for the summary.
        divergence_weight: β of each class, for the summary.
        tempering: as `choose_scales` takes it.
        epsilon: ε of robust-max; None for softmax.
        note: for the summary.
    """
    task = learned.task
    assert task.classes is not None
    judgement = judged(learned, variance, epsilon)
    scale, alpha, gamma = choose_scales(judgement, tempering)
    mean = stack([member.mean for member in learned.members], learned.mixing.expand(len(learned.y_judge), -1))
    posterior = GaussianMeasure(mean, kernel).requires_grad_(False).eval()
    model = ClassificationModel(
        posterior=posterior,
        embedding=embedding,
        classes=task.classes,
        logit_scale=learned.logit_scale * scale,
        tempering_factor=alpha,
        disagreement_weight=gamma,
        epsilon=epsilon,
        usual=UsualScores.of(share_of_prior(variance, level), energy(learned.judged), learned.judge_weight),
    )
    points = (kernel.inducing_points, *(part.inducing_points for part in mean.modules() if isinstance(part, KernelMean)))
    summary = ClassSummary(
        num_rows=task.num_rows,
        num_classes=len(task.classes),
        members=tuple(
            ClassMember(
                member.name, float(weight), best_scale(member.judged, learned.y_judge, learned.judge_weight)[1], member.seconds
            )
            for member, weight in zip(learned.members, learned.mixing, strict=True)
        ),
        covariance=kind,
        num_inducing=len(kernel.inducing_points),
        stores_all_rows=any(len(z) == task.num_rows for z in points),
        divergence_weight=divergence_weight,
        logit_scale=model.logit_scale,
        tempering=tuple(alpha.tolist()),
        disagreement_weight=gamma,
        unseen_nll=(judgement.nll_of_mean(), judgement.nll(scale, alpha, gamma)),
        seconds=math.nan,
        note=note,
    )
    return model, summary


def judged(learned: LearnedLogits, variance: Float[Tensor, "J V"], epsilon: float | None) -> Judgement:
    """What scales are chosen on: a sample of the judging rows, or all."""
    num_classes, num_rows = learned.y_judge.shape
    count = min(num_rows, max(FEWEST_ROWS, JUDGED_NUMBERS // num_classes))
    rows = torch.randperm(num_rows, generator=torch.Generator().manual_seed(0))[:count].to(variance.device)
    several = int((learned.mixing > 0).sum()) > 1
    return Judgement(
        mean=learned.logit_scale * learned.judged[:, rows],
        variance=variance[:, rows],
        disagreement=learned.logit_scale**2 * learned.disagreement[:, rows] if several else None,
        label=learned.y_judge[:, rows].argmax(0),
        weight=learned.judge_weight[rows] / learned.judge_weight[rows].mean(),
        num_rows=num_rows,
        epsilon=epsilon,
    )
