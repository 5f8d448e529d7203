"""Protocols that an estimator can follow as a whole instead of its own."""

from __future__ import annotations

import math

import numpy as np
import torch

from gwi.core.noise import LogLinearNoise, noise_features
from gwi.fitting.learners import Task
from gwi.fitting.paper import Kind, fit_paper
from gwi.fitting.regression import average_nll
from gwi.models.regression import Member, RegressionModel, Summary


def paper_preset(task: Task, kind: Kind, max_steps: int | None) -> tuple[RegressionModel, Summary]:
    """GWI-net or GWI: SVGP by the paper's protocol [ap:Implementation], as a model that predicts; one target.

    Args:
        task: rows and targets; everything random comes from its generator.
        kind: ``"network"`` or ``"svgp"``.
        max_steps: bound on the gradient steps for each M.
    """
    if len(task.y) != 1:
        raise ValueError(f'preset="paper" takes one target; got {len(task.y)}: fit one estimator for each.')
    if not torch.isclose(task.weight, task.weight[:1]).all():
        raise ValueError('preset="paper" knows no sample weights; leave them out, or leave the preset out.')
    epochs: list[int] = []

    def on_epoch(num_inducing: int, epoch: int, loss: float) -> None:
        epochs.append(epoch)
        task.report(f"M = {num_inducing}", (epoch + 1) / 1000)

    fit = fit_paper(
        task.x,
        task.y[0],
        kind,
        max_steps=max_steps,
        # The text bounds it by one, the released code does not, and where the prior came out too narrow it has to widen.
        max_tempering_factor=math.inf,
        generator=task.generator,
        on_epoch=on_epoch,
    )
    x, y = task.x[fit.validation_rows], task.y[:, fit.validation_rows]
    mean, variance = fit.posterior.marginals(x)
    size = noise_features(x, mean).shape[1]
    zeros, ones = torch.zeros(size, dtype=x.dtype, device=x.device), torch.ones(size, dtype=x.dtype, device=x.device)
    level = torch.tensor(math.log(fit.noise_variance), dtype=x.dtype, device=x.device)
    spread = variance + fit.noise_variance
    model = RegressionModel(
        posterior=fit.posterior.eval(),
        noises=(LogLinearNoise(level, zeros, zeros, ones),),
        scales=task.scales,
        tempering_factor=np.array([fit.tempering_factor]),
        degrees_of_freedom=np.array([math.inf]),
        disagreement_weight=np.zeros(1),
        scores=((y - mean).abs() / (fit.tempering_factor * spread).sqrt()).sort(-1).values,
    )
    weight = torch.ones_like(y[0])
    tried = ", ".join(f"{m}: {nll:.3f}" for m, nll in fit.validation_nll.items())
    summary = Summary(
        num_rows=len(task.x),
        members=(Member(kind, (1.0,), float((y - mean).square().mean().sqrt()), sum(fit.seconds.values())),),
        covariance="trained",
        num_inducing=fit.num_inducing,
        stores_all_rows=False,
        divergence_weight=(1.0,),
        noise=(math.inf,),
        tempering=(fit.tempering_factor,),
        degrees_of_freedom=(math.inf,),
        disagreement_weight=(0.0,),
        unseen_nll=(
            average_nll(y - mean, spread, weight, [math.inf]),
            average_nll(y - mean, fit.tempering_factor * spread, weight, [math.inf]),
        ),
        seconds=math.nan,
        note=f"the paper's protocol, {len(epochs)} epochs in all; validation NLL of each M: {tried}",
    )
    return model, summary
