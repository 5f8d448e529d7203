"""How a fit is made, whatever the task: start reading here.

    rows → prior and inducing points → means, each judged on held-out rows → their stack → covariance → calibration → a model

The task (`fitting.regression`, `fitting.classification`) says what is learned and how it is scored; the data (`fitting.data`,
`fitting.stream_data`) where the rows are. Frozen networks, joint training and the paper's protocol find the stacked mean in other
ways and join at `finish`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from gwi.core.kernels import SparsePosteriorKernel
from gwi.core.measures import GaussianMeasure
from gwi.core.scaling import Embedding, StandardisedRows
from gwi.fitting.data import ArrayData, FitData, FitOptions, HeldOut
from gwi.fitting.effort import effort_for, machine_speed
from gwi.fitting.folds import NUM_FOLDS, counted_cells, folds
from gwi.fitting.frame_learners import widened
from gwi.fitting.held_out_covariance import (
    CovarianceSolver,
    said_of_context,
    said_of_gap,
    variance_before_noise,
    with_context,
)
from gwi.fitting.hyperparameters import PriorChoice, choose_prior, row_kernel
from gwi.fitting.jobs import OwnLearner, Pending, run_pending
from gwi.fitting.late import settled
from gwi.fitting.learners import learn, name_of, stack
from gwi.fitting.plan import lessened
from gwi.fitting.priors import finite_means, under, with_prior_mean
from gwi.fitting.race import Race
from gwi.fitting.task import Fit, Member, StackedMean, Task
from gwi.fitting.tree_learners import Boosting, JudgedForest

# Nats of held-out rows by which another mean must be better than the stack. On practice tables with 60, 100 and 200 rows the GP
# by itself then lowers the NLL by 0.01, 0.03 and 0.04 on average; with no margin 60 rows lose 0.02.
SURE_GAIN = 0.03
# Nats by which another prior must be better for the covariance. There are thousands of rows then, and less is chance.
SURE_GAIN_OF_MANY = 0.01


def array_data(
    task: Task,
    x: NDArray[Any],
    y: NDArray[Any],
    options: FitOptions,
    *,
    weight: NDArray[Any] | None = None,
    validation: tuple[NDArray[Any], NDArray[Any]] | None = None,
    groups: NDArray[Any] | None = None,
) -> ArrayData:
    """Rows in memory, standardised as the task has them.

    Args:
        task: what is learned.
        x: rows.
        y: targets as the task takes them: one column each, or the places of labels.
        options: of the fit.
        weight: of each row; equal ones unless given.
        validation: rows and targets to judge means on; the rows themselves, in folds, unless given.
        groups: of each row; a group stays in one fold.
    """
    weight = np.ones(len(x)) if weight is None else weight
    if groups is None and x.ndim == 2 and options.cv != "time" and isinstance(options.cv, str | Integral):
        groups = counted_cells(x, weight)
    scales, device = task.scales(x, y, weight), options.device
    rows, targets = scales.rows(x, device), task.targets(y, scales, device)
    w = torch.as_tensor(task.weights(weight), device=device)
    if validation is None:
        held_out = _rows_in_folds(task, x, y, rows, targets, w, groups, options)
    else:
        x_new, y_new = scales.rows(validation[0], device), task.targets(validation[1], scales, device)
        held_out = HeldOut(x_new, y_new, task.judging_weight(y_new), None, may_be_known=False, strata=options.strata)
    return ArrayData(rows, targets, w, held_out, scales, options.generator)


def _rows_in_folds(
    task: Task,
    x: NDArray[Any],
    y: NDArray[Any],
    rows: Tensor,
    targets: Tensor,
    weight: Tensor,
    groups: NDArray[Any] | None,
    options: FitOptions,
) -> HeldOut:
    """The training rows, each judged by fits that have not seen it."""
    num_folds = NUM_FOLDS if options.cv == "auto" else options.cv
    if isinstance(num_folds, Integral) and groups is None:
        fold = task.folds(targets, min(int(num_folds), len(x)), options.generator)
        return HeldOut(rows, targets, weight, fold.to(rows.device), may_be_known=True, strata=options.strata)
    seed = int(torch.randint(2**31 - 1, (1,), generator=options.generator))
    chosen = folds(options.cv, x, y, groups, seed, stratified=y.ndim == 1)
    # Rows near in time err alike, as those of a group do.
    units = np.unique(groups, return_inverse=True)[1] if groups is not None else chosen.blocks()
    row, fold, unit = (torch.from_numpy(part).to(rows.device) for part in (chosen.row, chosen.fold, units[chosen.row]))
    strata = None if options.strata is None else options.strata.at(row)
    judges = rows[row], targets[:, row], weight[row], fold
    held_out = HeldOut(*judges, may_be_known=True, folds=chosen, unit=unit, strata=strata)
    if not chosen.are_in_turn:
        return held_out
    order = row.argsort()
    first = replace(held_out, x=rows, y=targets, weight=weight, fold=fold[order], folds=None, unit=unit[order])
    return replace(first, strata=options.strata)


def fit(data: FitData, task: Task, means: Sequence[Any] | None, options: FitOptions) -> Fit:
    """Learn means, stack them, surround them with a covariance, and calibrate the whole on held-out rows.

    Args:
        data: rows.
        task: what is learned.
        means: which; None for the task's plan.
        options: how.
    """
    races = False
    task, means = with_prior_mean(task, data, options).prepared(data), finite_means(means, options)
    plan_note = ""
    if means is None:
        options, plan_note = _within_time(data, task, options)
        data = sampled(data, options.effort.rows)
        means = lessened(task.plan(data), options.effort)
        races = True
    items = list(means)
    kernel, kernel_note = row_kernel(options.kernel, data.x.shape[1], data.num_rows)
    options.report("prior", 0.0)
    prior = choose_prior(
        task.prior_data(data),
        kernel.to(options.device),
        options,
        judges_kernel_means=any(isinstance(item, str) and "svgp" in item for item in items),
        most_inducing=task.most_inducing(task.num_outputs(data.y)),
        num_free=task.num_free(task.num_outputs(data.y)),
    )
    # Processes that share the rows have all found it, each to its own last digit.
    prior = under(options.divergence, data.agreed(prior))
    members, race_note = _learned(list(enumerate(items)), data, task, prior, options, races=races)
    stacked = task.stack(members, data.held_out)
    if len(stacked.members) > 1:
        stacked = task.reweighed(stacked, data.held_out, variance_before_noise(data, prior.fit, prior.inducing_points))
    tries = [(prior, weighed, SURE_GAIN) for weighed in task.candidates(stacked, data.num_rows)]
    # The evidence of y knows nothing of other means. Where trees know more than k lets any function know, r of an exact GP's k is
    # larger than their errors; that of the bound, which takes what few points cannot follow for noise, is smaller.
    tries += [] if prior.of_bound is None else [(prior.of_bound, stacked, SURE_GAIN_OF_MANY)]
    best: Fit | None = None
    for choice, weighed, gain in tries:
        found = finish(data.noted(task.note, plan_note, kernel_note, race_note), task, choice, weighed, options)
        if best is None or data.agreed(found.summary.held_out_nll[1] < best.summary.held_out_nll[1] - gain):
            best = found
    assert best is not None
    return best


def _within_time(data: FitData, task: Task, options: FitOptions) -> tuple[FitOptions, str]:
    """The options with as much effort as the time allows, and what to say of it."""
    if options.max_time is None:
        return options, ""
    speed = data.decided(machine_speed) if options.speed is None else options.speed
    num_outputs = task.num_outputs(data.y)
    effort, seconds = effort_for(data.num_rows, data.x.shape[1], num_outputs, options.max_time, speed)
    said = f"planned for max_time={options.max_time:g} s: about {seconds:.2g} s on one core"
    if effort.rows < data.num_rows:
        said += f", from {int(effort.rows)} of {data.num_rows} rows"
    return replace(options, effort=effort, speed=speed), said


def sampled(data: FitData, most: int | float) -> FitData:
    """At most so many of the rows, at random, all judged as before; rows of their own that judge stay."""
    held_out = data.held_out
    if len(data.x) <= most or not isinstance(data, ArrayData) or held_out.folds is not None:
        return data
    order = torch.randperm(len(data.x), generator=torch.Generator().manual_seed(0))
    rows = order[: int(most)].sort().values.to(data.x.device)
    x, y, weight = data.x[rows], data.y[:, rows], data.weight[rows]
    if held_out.fold is not None:
        strata = None if held_out.strata is None else held_out.strata.at(rows)
        unit = None if held_out.unit is None else held_out.unit[rows]
        # Numbers of folds without a gap.
        fold = held_out.fold[rows].unique(return_inverse=True)[1]
        held_out = replace(held_out, x=x, y=y, weight=weight, fold=fold, unit=unit, strata=strata)
    return replace(data, x=x, y=y, weight=weight, held_out=held_out)


def _learned(
    items: list[tuple[int, Any]], data: FitData, task: Task, prior: PriorChoice, options: FitOptions, *, races: bool
) -> tuple[tuple[Member, ...], str]:
    """The means in the order of the items, and a note on those that are not among them."""
    found: dict[int, Member] = {}
    for wave in _waves(items, found, data, task) if races else [items]:
        race = _race(tuple(found.values()), data, task) if found else None
        learned: dict[int, Member | Pending] = {}
        for place, item in wave:
            options.report(name_of(item), 0.0)
            if isinstance(item, OwnLearner):
                member = item.learn(data, task, options, race)
            else:
                member = learn(item, data, task, prior.fit, prior.basis, options, place, race)
            if member is not None:
                learned[place] = member
        # Fits that can be done apart are done together.
        found |= dict(zip(learned, run_pending(data, list(learned.values()), options), strict=True))
    left_out = [name_of(item) for place, item in items if place not in found]
    note = f"not used: {', '.join(left_out)}, which lowers the held-out loss by less than 1%" if left_out else ""
    return tuple(found[place] for place, _ in items if place in found), note


def _waves(items: list[tuple[int, Any]], found: dict[int, Member], data: FitData, task: Task) -> Iterator[list[tuple[int, Any]]]:
    """Means of our own plan, those that cost little first; each that costs time then runs against those that were `found`.

    A forest comes before the others, and may be left out after a look at one fold. Where it has most of the weight, boosting sets
    the bar for networks, else they for boosting: who comes last stops sooner.
    """
    forests = [entry for entry in items if isinstance(entry[1], JudgedForest)]
    late = [entry for entry in items if entry[1] == "network" or isinstance(entry[1], Boosting)]
    first = [entry for entry in items if entry not in forests + late]
    if not first:
        yield items
        return
    yield first
    for entry in forests:
        yield [entry]
    if late and len(found) > 1:
        places = list(found)
        weights = task.stack(tuple(found.values()), data.held_out).weights.mean(0)
        of_forests = weights[[places.index(place) for place, _ in forests if place in found]].sum()
        late.sort(key=lambda entry: isinstance(entry[1], Boosting) != bool(of_forests > weights.sum() / 2))
    for entry in late:
        yield [entry]


def _race(members: tuple[Member, ...], data: FitData, task: Task) -> Race:
    held_out = data.held_out
    stacked = task.stack(members, held_out)
    return Race(task.loss, held_out.y, held_out.weight, stacked.scale * stacked.held_out)


def finish(
    data: FitData,
    task: Task,
    prior: PriorChoice,
    stacked: StackedMean,
    options: FitOptions,
    embedding: Embedding | None = None,
) -> Fit:
    """Covariance, noise and tempering for a stacked mean as it is; cheap, so it can be done again with other options or rows."""
    start = time.perf_counter()
    options.report("covariance and noise", 0.0)
    embedding = StandardisedRows(data.scales, data.x.shape[1:]) if embedding is None else embedding
    if isinstance(embedding, StandardisedRows):
        embedding = embedding.spanning(data.x)
    fitted, refined, said = task.refine(data, prior, stacked, options)
    z, context = with_context(data, fitted, prior.inducing_points, options)
    rows = task.covariance_data(data, refined)
    sparse = "titsias" if prior.stands_for_rows else task.sparse_covariance
    solver = CovarianceSolver(
        rows, fitted, z, options.covariance, context, sparse, options.divergence, task.distance(data, refined)
    )
    covariances = solver.solve(task.noise_levels(rows, solver, refined))
    s = torch.stack([part.whitened_covariance for part in covariances])
    means, prior_kernel, z, embedding = widened([member.mean for member in refined.members], fitted.kernel, z, embedding)
    kernel = SparsePosteriorKernel(prior_kernel, z, s)
    # Only the r of what kernel means learned says where these know little.
    knows = options.covariance.kernel_fit == "targets"
    handover = task.handover(refined, data.held_out, covariances, kernel) if knows else None
    mean = settled(stack(means, refined.weights, handover))
    posterior = GaussianMeasure(mean, kernel).requires_grad_(False).eval()
    note = "; ".join(filter(None, (data.note, said, said_of_context(covariances), said_of_gap(covariances), solver.said)))
    model, summary = task.calibrate(data, posterior, refined, covariances, embedding, note)
    # For looks at the model at training rows; these carry the average of what others add.
    wide = data if z.shape[1] == data.x.shape[1] else replace(data, x=pad(data.x, (0, z.shape[1] - data.x.shape[1])))
    speed = math.nan if options.max_time is None or options.speed is None else options.speed
    summary = replace(summary, seconds=time.perf_counter() - start, machine_speed=speed)
    return Fit(model, summary, wide, prior, stacked, embedding)
