"""New rows for a fit as it is: they are learned by covariance, noise and tempering, and by a mean in closed form."""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from gwi.core.means import KernelMean
from gwi.core.posterior import CachedPosterior
from gwi.fitting.data import ArrayData, FitOptions
from gwi.fitting.pipeline import finish
from gwi.fitting.task import Fit, Member, Task


def updated(
    fit: Fit,
    cached: CachedPosterior,
    x: Float[Tensor, "n D"],
    y: Float[Tensor, "J n"],
    task: Task,
    options: FitOptions,
) -> Fit:
    """With more rows, unseen by the means, to judge them and to learn S from; a mean that is one kernel expansion learns too."""
    data, stacked, prior = fit.data, fit.stacked, fit.prior
    assert isinstance(data, ArrayData)
    rows, held_out, fold = torch.cat([data.x, x]), data.held_out, data.held_out.fold
    ones = torch.ones_like(y[0])
    if fold is not None:
        fold = torch.cat([fold, torch.randint(held_out.num_folds, x.shape[:1], generator=data.generator).to(fold)])
    with torch.no_grad():
        late = None
        if fold is None:
            late = cached.parts(x)[1]
            late = late if held_out.late_variance is None else torch.cat([held_out.late_variance, late], dim=1)
        members = tuple(replace(m, held_out=torch.cat([m.held_out, m.mean(x)], dim=1)) for m in stacked.members)
    new = replace(
        data,
        x=rows,
        y=torch.cat([data.y, y], dim=1),
        weight=torch.cat([data.weight, ones]),
        held_out=replace(
            held_out,
            x=rows if fold is not None else torch.cat([held_out.x, x]),
            y=torch.cat([held_out.y, y], dim=1),
            weight=torch.cat([held_out.weight, ones]),
            fold=fold,
            late_variance=late,
        ),
    )
    points = rows if prior.inducing_points is data.x else prior.inducing_points
    members = (_relearned(members[0], data, new, task, fit, options),) if len(members) == 1 else members
    weights = torch.cat([stacked.held_out_weights, stacked.weights[..., None].expand(-1, -1, len(x))], dim=2)
    stacked = replace(stacked, members=members, held_out_weights=weights)
    return finish(new, task, replace(prior, inducing_points=points), stacked, options, fit.embedding)


def _relearned(member: Member, data: ArrayData, new: ArrayData, task: Task, fit: Fit, options: FitOptions) -> Member:
    """A kernel mean with coefficients for all rows; any other mean as it is."""
    if not isinstance(member.mean, KernelMean):
        return member
    basis = new.x if torch.equal(member.mean.inducing_points, data.x) else member.mean.inducing_points
    name = "svgp-all" if member.name == "svgp-all" else "svgp"
    again = task.learn_named(name, new, fit.prior.fit, basis, options, 0)
    assert isinstance(again, Member)
    again = replace(again, name=member.name)
    # Held-out rows of their own keep the predictions of the mean that had not seen the later ones.
    return again if new.held_out.fold is not None else replace(again, held_out=member.held_out)
