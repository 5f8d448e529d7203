"""Fits that are independent of each other, folds times means, done by joblib: here, on all cores, or on a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
from joblib import Parallel, delayed, parallel_config
from joblib.parallel import get_active_backend
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter
from torch import nn

from gwi.core.means import FixedMean, JoinedMean, OriginalRowsMean
from gwi.core.scaling import Scales
from gwi.fitting.data import FitData, FitOptions
from gwi.fitting.task import Member, Task

T = TypeVar("T")


@dataclass(frozen=True)
class Pending:
    """A mean whose fits, one for all rows and one for each fold, are independent of each other and of all else.

    Attributes:
        name: for the summary.
        jobs: each gives a mean and the seconds that it took; the first is that on all rows.
    """

    name: str
    jobs: tuple[Callable[[], tuple[nn.Module, float]], ...]

    def finished(self, data: FitData, results: Sequence[tuple[nn.Module, float]]) -> Member:
        """The mean, judged, from what the jobs gave."""
        (mean, _), *others = results
        held_out = data.held_out.predicted(mean, [fold_mean for fold_mean, _ in others])
        return Member(self.name, mean, held_out, sum(seconds for _, seconds in results))


def run_pending(data: FitData, members: Sequence[Member | Pending], options: FitOptions) -> tuple[Member, ...]:
    """The members, with all pending fits done: side by side where `n_jobs` or joblib's context says so."""
    jobs = [job for member in members if isinstance(member, Pending) for job in member.jobs]
    if not jobs:
        return tuple(member for member in members if isinstance(member, Member))

    def run() -> list[tuple[nn.Module, float]]:
        results = []
        for i, result in enumerate(Parallel(n_jobs=options.n_jobs, return_as="generator")(map(delayed(_on_one_worker), jobs))):
            results.append(result)
            options.report("independent fits", (i + 1) / len(jobs))
        return results

    results = iter(data.decided(run))
    return tuple(
        member.finished(data, [next(results) for _ in member.jobs]) if isinstance(member, Pending) else member
        for member in members
    )


def _on_one_worker(job: Callable[[], T]) -> T:
    """The job; on a Dask cluster, with what it does side by side in threads of its own worker.

    Without that the trees of a forest become tasks of the cluster, thousands of them, around data that lives on one worker: when
    it dies the whole fit fails, where a job is just done again.
    """
    if type(get_active_backend()[0]).__name__ != "DaskDistributedBackend":
        return job()
    with parallel_config(backend="threading"):
        return job()


def estimator_learner(estimator: Any, data: FitData, task: Task, *, name: str, standardised: bool = False) -> Pending:
    """An unfitted scikit-learn regressor or classifier: a clone for each fold, and one on all rows; with a stream on the sample.

    Rows are in the user's own units, unless `standardised`.
    """
    x, weight = data.x.cpu().numpy(), data.weight.cpu().numpy()
    x = x if standardised else data.scales.original_rows(x)
    scales = None if standardised else data.scales
    target = task.estimator_target(data.y.mT.cpu().numpy())
    needs_seed = "random_state" in estimator.get_params() and estimator.get_params()["random_state"] is None
    require_weights(estimator, weight, name)
    kept = [None, *(others.cpu().numpy() for _, others in data.held_out.splits())]
    # Seeds are drawn here, in this order: what a fit gives does not depend on where and when it is done.
    return Pending(
        name,
        tuple(
            partial(_fit_estimator, estimator, data.seed() if needs_seed else None, x, target, weight, rows, scales, task)
            for rows in kept
        ),
    )


def _fit_estimator(
    estimator: Any,
    seed: int | None,
    x: NDArray[Any],
    target: NDArray[Any],
    weight: NDArray[Any],
    rows: NDArray[Any] | None,
    scales: Scales | None,
    task: Task,
) -> tuple[nn.Module, float]:
    start = time.perf_counter()
    if rows is not None:
        x, target, weight = x[rows], target[rows], weight[rows]
    mean = task.constant_mean(target)
    if mean is not None:
        return mean, time.perf_counter() - start
    model = clone(estimator)
    if seed is not None:
        model.set_params(random_state=seed)
    if target.ndim == 1 or get_tags(model).target_tags.multi_output:
        mean = FixedMean(task.plain(fitted(model, x, target, weight)))
    else:
        mean = JoinedMean([FixedMean(task.plain(fitted(clone(model), x, column, weight))) for column in target.T])
    return mean if scales is None else OriginalRowsMean(mean, scales), time.perf_counter() - start


def fitted(model: Any, x: NDArray[Any], target: NDArray[Any], weight: NDArray[Any]) -> Any:
    """The model, fitted with the weights: as it takes them, or by rows that are repeated."""
    argument = _weight_argument(model)
    if np.allclose(weight, weight[0]):
        return model.fit(x, target)
    if argument is not None:
        return model.fit(x, target, **{argument: weight})
    count = _counts(weight)
    return model.fit(x.repeat(count, axis=0), target.repeat(count, axis=0))


def require_weights(estimator: Any, weight: NDArray[Any], name: str) -> None:
    """Refuse weights that a scikit-learn mean cannot take, before anything is trained."""
    counts = _counts(weight)
    whole = np.allclose(counts * weight.min(), weight) and counts.sum() <= 10 * len(weight)
    if not whole and _weight_argument(estimator) is None:
        raise ValueError(
            f"{name} takes no sample_weight, and the weights are no small multiples of one another that rows could be repeated "
            "by; leave the weights out, or choose a mean that takes them."
        )


def _counts(weight: NDArray[Any]) -> NDArray[Any]:
    """How often each row stands there, when the lightest stands there once."""
    return np.rint(weight / weight.min()).astype(np.int64)


def _weight_argument(model: Any) -> str | None:
    """The argument of `fit` that takes weights: in a pipeline that of its last step."""
    if isinstance(model, Pipeline):
        name, last = model.steps[-1]
        return f"{name}__sample_weight" if has_fit_parameter(last, "sample_weight") else None
    return "sample_weight" if has_fit_parameter(model, "sample_weight") else None
