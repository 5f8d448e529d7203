"""What held-out rows say of a likelihood around stacked means: its family, its dispersion, and the size of r."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from gwi.core.dispersion import DispersionFit, JudgedRows, best_of, fit_dispersion, label_of
from gwi.core.likelihoods.families import Family
from gwi.core.means import ConvexMean
from gwi.core.means import affine as on_a_line
from gwi.core.measures import GaussianMeasure
from gwi.core.noise import noise_features
from gwi.core.scaling import Embedding
from gwi.fitting.data import FitData
from gwi.fitting.held_out_covariance import HeldOutCovariance
from gwi.fitting.hyperparameters import is_wide
from gwi.fitting.linked_means import fitted_dispersion, mean_nll
from gwi.fitting.scores import holds_all_rows
from gwi.fitting.task import StackedMean, fixed_factor
from gwi.models.linked import LinkedModel, distance_from_middle, law_of_family
from gwi.models.strata import ascending
from gwi.models.summary import MemberSummary, Summary

if TYPE_CHECKING:
    from gwi.fitting.linked import LinkedTask


def calibrated(
    task: LinkedTask,
    data: FitData,
    posterior: GaussianMeasure,
    stacked: StackedMean,
    covariance: HeldOutCovariance,
    embedding: Embedding,
    note: str,
) -> tuple[LinkedModel, Summary]:
    """The model and what to say of it; seconds are left to others."""
    held_out = data.held_out
    of_columns = embedding.is_table and not is_wide(data.num_rows, data.x.shape[1])
    columns = held_out.x if of_columns else held_out.x[:, :0]
    rows = JudgedRows(
        task.own(held_out.y),
        stacked.held_out[0],
        covariance.variance,
        stacked.disagreement[0] if stacked.num_means > 1 else torch.zeros_like(held_out.weight),
        noise_features(columns, stacked.held_out),
        held_out.weight,
    )
    fixed = fixed_factor(task.tempering)
    family, said = task.family, ""
    if len(task.families) > 1:
        family, scores = best_of(task.families, rows, tempering=1.0 if fixed is None else fixed)
        said = "held-out NLL by likelihood: " + ", ".join(f"{name} {score:.4g}" for name, score in scores.items())
    generator = torch.Generator().manual_seed(0)
    fit = fit_dispersion(family, rows, tempering=fixed, kind=task.noise, unit=held_out.unit, generator=generator)
    moved = shifted(posterior.mean, held_out.y.new_tensor([fit.shift]))
    distances, strata = ascending(_scores(fit, rows), held_out.strata, held_out.weight)
    model = LinkedModel(
        posterior=GaussianMeasure(moved, posterior.kernel).requires_grad_(False).eval(),
        embedding=embedding,
        noises=(fit.noise,),
        tempering_factor=np.array([fit.tempering]),
        disagreement_weight=np.array([fit.disagreement_weight]),
        scores=distances,
        strata=strata,
        outcome=task.outcome,
        family=fit.family,
    )
    note = "; ".join(filter(None, (said, note)))
    return model, _summary(task, data, posterior, stacked, covariance, fit, rows, note)


def _scores(fit: DispersionFit, rows: JudgedRows) -> Float[Tensor, "1 V"]:
    """How far out each target lies in its law; nothing where it may be a bound."""
    if fit.family.num_columns > 1:
        return rows.weight.new_zeros(1, 0)
    variance = fit.tempering * rows.variance + fit.disagreement_weight * rows.disagreement
    columns = (rows.mean + fit.shift, variance, fit.noise(rows.features))
    law = law_of_family(fit.family, *(part.cpu().numpy() for part in columns))
    y = rows.y.cpu().numpy()
    if hasattr(fit.family, "values"):
        y = np.array(fit.family.values)[y.astype(np.int64)]
    return torch.from_numpy(distance_from_middle(law, y)[None]).to(rows.weight)


def _summary(
    task: LinkedTask,
    data: FitData,
    posterior: GaussianMeasure,
    stacked: StackedMean,
    covariance: HeldOutCovariance,
    fit: DispersionFit,
    rows: JudgedRows,
    note: str,
) -> Summary:
    y, weight = rows.y, rows.weight
    # From the density of the family's numbers to that of the user's.
    own = _log_unit(task, y, weight)

    def nll(f: Tensor, family: Family) -> float:
        return mean_nll(family, y, f, weight, fitted_dispersion(family, y, f, weight)) + own

    return Summary(
        num_rows=data.num_rows if data.is_sample else round(float(data.weight.sum())),
        members=tuple(
            MemberSummary(m.name, (float(stacked.weights[0, i]),), (nll(m.held_out[0], task.family),), m.seconds)
            for i, m in enumerate(stacked.members)
        ),
        score_name="loss" if fit.family.name == "robust" else "NLL",
        covariance=covariance.kind,
        num_inducing=len(posterior.kernel.inducing_points),
        stores_all_rows=holds_all_rows(posterior, data.num_rows),
        divergence_weight=(covariance.divergence_weight,),
        tempering=(fit.tempering,),
        disagreement_weight=(fit.disagreement_weight,),
        held_out_nll=(
            nll(stacked.held_out[0], fit.family),
            float(-(weight * fit.log_density).sum() / weight.sum()) + own,
        ),
        seconds=math.nan,
        noise=(fit.penalty,),
        likelihood=task.label or label_of(fit.family),
        dispersion=float((weight * fit.noise(rows.features)).sum() / weight.sum()) if fit.family.has_dispersion else math.nan,
        note=note,
    )


def _log_unit(task: LinkedTask, y: Tensor, weight: Tensor) -> float:
    """What the mean NLL of the user's numbers has more than that of the family's."""
    if task.family.is_discrete:
        return 0.0
    if task.family.num_columns == 1:
        return math.log(task.unit)
    exact = y[0] == y[1]
    logs = (y[0] * task.unit + task.centre if task.outcome.log else torch.zeros_like(y[0])) + math.log(task.unit)
    return float((weight * torch.where(exact, logs, 0.0)).sum() / weight.sum())


def shifted(mean: Any, shift: Float[Tensor, " J"]) -> nn.Module:
    """The mean, moved; of a stack each member."""
    one = torch.ones_like(shift)
    if isinstance(mean, ConvexMean):
        return ConvexMean([on_a_line(part, shift, one) for part in mean.means], mean.weights, mean.handover)
    return on_a_line(mean, shift, one)
