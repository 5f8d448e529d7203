"""Forests and boosting of our own plan: judged by few trees, and no more of them grown than held-out rows gain from.

A user's own estimator is fitted as it is (`learners.estimator_learner`); here it is ours to say how many trees there are.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import clone
from torch import Tensor, nn

from gwi.core.early_stopping import never
from gwi.core.means import FixedMean, OriginalRowsMean
from gwi.fitting.data import FitData, FitOptions, at_rows
from gwi.fitting.jobs import OwnLearner, Pending, on_one_worker
from gwi.fitting.late import LateMean
from gwi.fitting.learners import estimator_learner, fitted
from gwi.fitting.race import Race
from gwi.fitting.task import Member, Task
from gwi.predictors.trees import first_rounds

# Trees of each fold that judge a forest.
JUDGING_TREES = 30
# Rounds of boosting before held-out rows are looked at for the first time; then half as many more each time as there are.
FIRST_ROUNDS = 16
# Rounds between which the best is looked for, as a share of those done.
LOOK_SHARE = 1 / 6
# Boosting ends when the best round is this share of those done behind, or when the last third of them, which grew since the look
# before, have lowered the held-out loss by less than this share of it.
PATIENCE_SHARE, LATE_SHARE, LEAST_GAIN = 0.3, 1 / 3, 0.015


@dataclass(frozen=True, eq=False)
class JudgedForest(OwnLearner):
    """A forest that few trees of each fold judge; all its trees, of all rows, are grown only where the stack has a weight for it.

    In a race the trees of the first fold come first, and the forest is left out where they have nothing to add.

    Attributes:
        estimator: unfitted, with the number of all trees.
        name: what it is called.
    """

    estimator: Any
    name: str

    def learn(self, data: FitData, task: Task, options: FitOptions, race: Race | None) -> Member | Pending | None:
        """Trees of each fold; a forest of all rows where none judge in folds."""
        held_out = data.held_out
        if held_out.fold is None:
            return estimator_learner(self.estimator, data, task, name=self.name)
        most = int(self.estimator.get_params()["n_estimators"])
        few = clone(self.estimator).set_params(n_estimators=min(most, JUDGING_TREES))
        x, weight, targets = _own_rows(data), data.weight.cpu().numpy(), task.estimator_targets(data)
        jobs: list[Callable[[], tuple[Any, float]]] = [
            partial(_fitted_rows, few, data.seed(), x, target, weight, others.cpu().numpy())
            for target, (_, others) in zip(targets[1:], held_out.splits(), strict=True)
        ]
        if race is not None:
            first = data.decided(partial(on_one_worker, jobs[0]))
            inside, _ = next(held_out.splits())
            here = race.at(inside)
            outputs = at_rows(_mean(first[0], data, task), held_out.x[inside])
            if not data.agreed(here.is_worth_it(task.in_scale(outputs, here.y, here.weight))):
                return None
            jobs[0] = partial(_as_it_is, first)
        job = partial(_fitted_mean, self.estimator, data.seed(), data, targets[0], weight, np.ones(len(x), bool), task)
        return _PendingForest(self.name, tuple(jobs), task, LateMean(job))


@dataclass(frozen=True)
class _PendingForest(Pending):
    """Trees of each fold.

    Attributes:
        task: what is learned.
        whole: the forest of all rows.
    """

    task: Task
    whole: LateMean

    def finished(self, data: FitData, results: Any) -> Member:
        """The forest, judged by trees that have not seen a row."""
        means = [_mean(model, data, self.task) for model, _ in results]
        held_out = data.held_out.predicted(self.whole, means)
        return Member(self.name, self.whole, held_out, sum(took for _, took in results))


@dataclass(frozen=True, eq=False)
class Boosting(OwnLearner):
    """Histogram boosting of all folds at once, for as long as rows that a fold has not seen gain from it.

    One number of rounds is best for all folds. That choice flatters them, so each is judged at the number that is best for the
    others. Boosting of all rows is done last, and only where the stack has a weight for it.

    Attributes:
        estimator: unfitted, with the most rounds.
        name: what it is called.
    """

    estimator: Any
    name: str

    def learn(self, data: FitData, task: Task, options: FitOptions, race: Race | None) -> Member | Pending:
        """Rounds until nothing is gained, or until the race is lost; of several targets as many rounds as there may be."""
        if task.num_outputs(data.y) > 1 and task.estimator_target(data.y[:, :2].mT.cpu().numpy()).ndim > 1:
            return estimator_learner(self.estimator, data, task, name=self.name)
        start = time.perf_counter()
        held_out, in_turn = data.held_out, data.held_out.fold is not None
        everything = np.ones(len(data.x), bool)
        kept = [others.cpu().numpy() for _, others in held_out.splits()] if in_turn else [everything]
        targets = task.estimator_targets(data)
        x, weight = _own_rows(data), data.weight.cpu().numpy()
        growing = [
            _Growing(
                clone(self.estimator).set_params(warm_start=True, random_state=data.seed()), x[rows], target[rows], weight[rows]
            )
            for target, rows in zip(targets[1:] if in_turn else targets[:1], kept, strict=True)
        ]
        seed, most = data.seed(), int(self.estimator.max_iter)

        rounds, predicted, models = data.decided(partial(_grown, self.name, growing, data, task, options, race, most))
        if not in_turn:
            return Member(self.name, _mean(first_rounds(models[0], rounds), data, task), predicted, time.perf_counter() - start)
        few = clone(self.estimator).set_params(max_iter=rounds)
        job = partial(_fitted_mean, few, seed, data, targets[0], weight, everything, task)
        return Member(self.name, LateMean(job), predicted, time.perf_counter() - start)


@dataclass(frozen=True, eq=False)
class _Growing:
    """Boosting that grows, and the rows that it learns from."""

    model: Any
    x: NDArray[Any]
    target: NDArray[Any]
    weight: NDArray[Any]

    def grown(self, num_rounds: int, task: Task) -> Any:
        """The model with so many rounds, or a constant where there is nothing to learn."""
        constant = task.constant_mean(self.target)
        if constant is not None:
            return constant
        return fitted(self.model.set_params(max_iter=num_rounds), self.x, self.target, self.weight)


def _grown(
    name: str, growing: list[_Growing], data: FitData, task: Task, options: FitOptions, race: Race | None, most: int
) -> tuple[int, Tensor, list[Any]]:
    """The best number of rounds, held-out predictions, and the models."""
    held_out = data.held_out
    y, weight = held_out.y.mT, held_out.weight
    # Rows of one fold, which others' rows choose the rounds for; rows of their own choose for themselves.
    parts = [inside for inside, _ in held_out.splits()] if held_out.fold is not None else []
    best, least, predicted = (1, math.inf), [math.inf] * len(parts), None
    looks: list[tuple[int, float]] = []
    gives_up = never if race is None else race.runner(most)
    done, over = 0, False
    while done < most and not over:
        before, done = done, min(most, max(FIRST_ROUNDS, 3 * done // 2))
        # Growing models come back with their trees: joblib may have grown them in other processes.
        models = Parallel(n_jobs=options.n_jobs)(delayed(on_one_worker)(partial(part.grown, done, task)) for part in growing)
        growing = [
            part if isinstance(model, nn.Module) else replace(part, model=model)
            for part, model in zip(growing, models, strict=True)
        ]
        for rounds in _looks(before, done):
            shorter = map(partial(first_rounds, num_rounds=rounds), models)
            means = list(map(partial(_mean, data=data, task=task), shorter))
            outputs = held_out.predicted(means[0], means if parts else ())
            losses = task.loss(outputs.mT, y) * weight
            total = float(losses.sum()) / float(weight.sum())
            predicted = outputs if predicted is None else predicted
            if total < best[1]:
                best = (rounds, total)
                predicted = predicted if parts else outputs
            for k, inside in enumerate(parts):
                others = total - float(losses[inside].sum()) / float(weight.sum())
                if others < least[k]:
                    least[k] = others
                    predicted[:, inside] = outputs[:, inside]
            looks.append((rounds, best[1]))
            over = gives_up(rounds, best[1], outputs.mT)
        options.report(name, done / most)
        early = [value for rounds, value in looks if rounds <= (1 - LATE_SHARE) * done + 1] or [looks[0][1]]
        gained = early[-1] - best[1] >= LEAST_GAIN * abs(early[-1])
        over = over or not gained or done - best[0] > PATIENCE_SHARE * done
    assert predicted is not None
    return best[0], predicted, models


def _looks(before: int, done: int) -> Iterator[int]:
    """Numbers of rounds from one to the other, each larger than the last by its share."""
    rounds = before
    while rounds < done:
        rounds = min(done, rounds + max(4, int(LOOK_SHARE * rounds)))
        yield rounds


def _own_rows(data: FitData) -> NDArray[Any]:
    return data.scales.original_rows(data.x.cpu().numpy())


def _fitted_rows(
    estimator: Any, seed: int, x: NDArray[Any], target: NDArray[Any], weight: NDArray[Any], rows: NDArray[Any]
) -> tuple[Any, float]:
    """A clone, fitted to these rows."""
    start = time.perf_counter()
    model = clone(estimator).set_params(random_state=seed)
    return fitted(model, x[rows], target[rows], weight[rows]), time.perf_counter() - start


def _as_it_is(done: tuple[Any, float]) -> tuple[Any, float]:
    """What was fitted already."""
    return done


def _fitted_mean(
    estimator: Any, seed: int, data: FitData, target: NDArray[Any], weight: NDArray[Any], rows: NDArray[Any], task: Task
) -> nn.Module:
    """The mean of a clone, fitted to these rows."""
    constant = task.constant_mean(target)
    if constant is not None:
        return constant
    return _mean(_fitted_rows(estimator, seed, _own_rows(data), target, weight, rows)[0], data, task)


def _mean(model: Any, data: FitData, task: Task) -> nn.Module:
    """Of a fitted estimator, on standardised rows; a mean as it is."""
    if isinstance(model, nn.Module):
        return model
    return task.of_response(OriginalRowsMean(FixedMean(task.plain(model)), data.scales))
