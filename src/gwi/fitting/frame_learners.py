"""Means that see rows as they came: predictors of data frames, judged like all others, while kernels see the encoder's numbers.

Their values cannot be had from the numbers that Q knows. So a row of Q carries them along, behind its own columns: `widened`
makes room for them when all is fitted.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from numpy.typing import NDArray
from sklearn.base import clone
from torch import Tensor, nn

from gwi.core.means import AffineMean, ConstantMean, KernelMean, LeadingColumns, LinkMean, SomeColumns, SumMean
from gwi.core.scaling import StandardisedRows
from gwi.exceptions import UserError
from gwi.fitting.data import FitData, FitOptions
from gwi.fitting.jobs import OwnLearner, Pending
from gwi.fitting.learners import fitted, require_weights
from gwi.fitting.race import Race
from gwi.fitting.task import Member, Task
from gwi.predictors.boosters import booster_of, is_fitted
from gwi.tables.forms import FrameForm, rows_of
from gwi.tables.frame_predictor import FramePredictor, fitted_predictor


@dataclass(frozen=True, eq=False)
class OnFrames(OwnLearner):
    """A predictor of data frames, and the frames.

    Attributes:
        predictor: fitted or not.
        training: the training rows, in the order in which the fit has them.
        judging: rows that none has learned from; None where training rows judge in folds.
        name: what it is called.
    """

    predictor: Any
    training: Any
    judging: Any
    name: str

    def learn(self, data: FitData, task: Task, options: FitOptions, race: Race | None) -> Member | Pending:
        """A predictor that is only asked, at rows it has not seen; or one fitted here, once for each fold and on all rows."""
        if is_fitted(self.predictor):
            return _asked(self, data, task)
        targets = task.frame_targets(data)
        weight = data.weight.cpu().numpy()
        require_weights(self.predictor, weight, self.name)
        kept = [np.arange(len(weight)), *(np.flatnonzero(others.cpu().numpy()) for _, others in data.held_out.splits())]
        needs_seed = hasattr(self.predictor, "get_params") and self.predictor.get_params().get("random_state", 0) is None
        jobs = [
            partial(_fit_on_frames, self, data.seed() if needs_seed else None, target, weight, rows, task)
            for target, rows in zip(targets, kept, strict=True)
        ]
        return PendingOnFrames(self.name, tuple(jobs), self, task)


class FrameMean(nn.Module):
    """The mean of a predictor of frames, until a row of Q carries its values."""

    def __init__(self, predictor: FramePredictor):
        super().__init__()
        self.predictor = predictor

    def forward(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "J N"]:
        """There is none of numbers alone."""
        raise RuntimeError("This mean takes data frames, and cannot predict from plain numbers.")


def _asked(item: OnFrames, data: FitData, task: Task) -> Member:
    start = time.perf_counter()
    if item.judging is None:
        raise ValueError(
            f"The fitted {item.name} may have been trained on these rows, and then its errors on them are too small. "
            "Pass rows it has not seen: fit(X, y, validation=(X_unseen, y_unseen))."
        )
    model = booster_of(item.predictor) or item.predictor
    mean = fitted_predictor(task.frame_model(model), item.predictor, item.training, item.name)
    values = _standardised(mean, item.judging, data, task)
    held_out = task.of_brought(SomeColumns(0, len(values)), data.scales)(values.mT)
    return Member(item.name, task.of_brought(FrameMean(mean), data.scales), held_out, time.perf_counter() - start)


@dataclass(frozen=True)
class PendingOnFrames(Pending):
    """Fits of a predictor of frames."""

    item: OnFrames
    task: Task

    def finished(self, data: FitData, results: Sequence[tuple[nn.Module, float]]) -> Member:
        """The mean, judged, from what the jobs gave."""
        means, held_out = [mean for mean, _ in results], data.held_out
        if held_out.fold is None:
            values = _values(means[0], self.item.judging, data, self.task)
        else:
            values = torch.empty_like(held_out.y[: self.task.num_outputs(held_out.y)])
            place = torch.arange(len(held_out.x)) if held_out.folds is None else torch.from_numpy(held_out.folds.row)
            for (inside, _), mean in zip(held_out.splits(), means[1:], strict=True):
                values[:, inside] = _values(mean, rows_of(self.item.training, place[inside.cpu()].numpy()), data, self.task)
        return Member(self.name, means[0], values, sum(seconds for _, seconds in results))


def _fit_on_frames(
    item: OnFrames, seed: int | None, target: NDArray[Any], weight: NDArray[Any], rows: NDArray[Any], task: Task
) -> tuple[nn.Module, float]:
    start = time.perf_counter()
    frame, target, weight = rows_of(item.training, rows), target[rows], weight[rows]
    constant = task.constant_mean(target)
    if constant is not None:
        return constant, time.perf_counter() - start
    model = clone(item.predictor) if hasattr(item.predictor, "get_params") else copy.deepcopy(item.predictor)
    if seed is not None:
        model.set_params(random_state=seed)
    # Some fit in place and give nothing back.
    model = fitted(model, frame, target, weight, rows_of) or model
    mean = FrameMean(FramePredictor(task.frame_model(model), FrameForm.of(frame), item.name))
    return task.of_response(mean), time.perf_counter() - start


def _values(mean: nn.Module, frame: Any, data: FitData, task: Task) -> Float[Tensor, "J n"]:
    if isinstance(mean, ConstantMean):
        return mean(torch.zeros(len(frame), 1, dtype=data.y.dtype, device=data.y.device))
    inner = frame_part(mean)
    assert inner is not None
    values = _standardised(inner.predictor, frame, data, task)
    return task.of_response(SomeColumns(0, len(values)))(values.mT)


def _standardised(predictor: FramePredictor, frame: Any, data: FitData, task: Task) -> Float[Tensor, "J n"]:
    values = predictor.predict(frame)
    task.require_outputs(torch.from_numpy(values.T), task.num_outputs(data.y), f"The {predictor.name}")
    return data.scales.targets(values, data.y.device).to(data.y)


def frame_predictors(means: Sequence[nn.Module]) -> tuple[FramePredictor, ...]:
    """Those whose values a row carries, in their order."""
    return tuple(part.predictor for part in map(frame_part, means) if part is not None)


def frame_part(mean: nn.Module) -> FrameMean | None:
    """The mean of a predictor of frames, also inside a link or a line."""
    while isinstance(mean, AffineMean | LinkMean):
        mean = mean.mean
    return mean if isinstance(mean, FrameMean) else None


def _with_inner(mean: nn.Module, inner: nn.Module) -> nn.Module:
    """A link or a line, as it is, of another mean."""
    if not isinstance(mean, AffineMean | LinkMean):
        return inner
    outer = copy.copy(mean)
    outer._modules = {**mean._modules, "mean": _with_inner(mean.mean, inner)}
    return outer


def widened(
    means: Sequence[nn.Module], kernel: Kernel, z: Float[Tensor, "M D"], embedding: Any
) -> tuple[list[nn.Module], Kernel, Float[Tensor, "M E"], Any]:
    """Means, prior kernel, Z and embedding for rows that carry values of predictors of frames behind their own columns."""
    count = len(frame_predictors(means))
    if not count:
        return list(means), kernel, z, embedding
    if not isinstance(embedding, StandardisedRows):
        raise UserError("A predictor of data frames and a network on features cannot be means of one model; pass one of them.")
    scales, num_features = embedding.scales, z.shape[1]
    num_outputs = len(scales.y_scale)
    wider = replace(
        scales,
        x_centre=np.concatenate([scales.x_centre, *[scales.y_centre] * count]),
        x_scale=np.concatenate([scales.x_scale, *[scales.y_scale] * count]),
    )
    kernels: dict[int, Kernel] = {}

    def on_first_columns(one: Kernel) -> Kernel:
        if id(one) not in kernels:
            kernels[id(one)] = copy.deepcopy(one)
            if one.active_dims is None:
                kernels[id(one)].active_dims = torch.arange(num_features, device=z.device)
        return kernels[id(one)]

    def padded(points: Float[Tensor, "n D"]) -> Float[Tensor, "n E"]:
        return nn.functional.pad(points.detach(), (0, count * num_outputs))

    def of_wider_rows(mean: nn.Module) -> nn.Module:
        if isinstance(mean, SumMean):
            return SumMean([of_wider_rows(part) for part in mean.means])
        if isinstance(mean, KernelMean) and mean.prior_mean is None:
            own, points = on_first_columns(mean.prior_kernel), padded(mean.inducing_points)
            return KernelMean(own, points, mean.whitened_coefficients, jitter=mean.jitter)
        return LeadingColumns(mean, num_features)

    found: list[nn.Module] = []
    first = num_features
    for mean in means:
        if frame_part(mean) is not None:
            found.append(_with_inner(mean, SomeColumns(first, num_outputs)))
            first += num_outputs
        else:
            found.append(of_wider_rows(mean))
    rows = StandardisedRows(wider, (first,), embedding.span)
    return found, on_first_columns(kernel), padded(z), rows
