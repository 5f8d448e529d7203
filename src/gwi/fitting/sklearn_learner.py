"""Fits that are independent of each other, folds times means, done by joblib: here, on all cores, or on a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from joblib import Parallel, delayed, parallel_config
from joblib.parallel import get_active_backend
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter
from torch import nn

from gwi.core.means import ConstantMean, FixedMean, JoinedMean
from gwi.core.scaling import OriginalRowsMean, Scales
from gwi.fitting.learners import Task, Trained, at_rows
from gwi.predictors.linear import plain_predictor
from gwi.predictors.logits import ClassifierLogits, logits_of_one_class, plain_classifier

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

    def finished(self, task: Task, found: Sequence[tuple[nn.Module, float]]) -> Trained:
        """The mean, judged, from what the jobs gave."""
        (mean, _), *others = found
        seconds = sum(seconds for _, seconds in found)
        if task.fold is None:
            return Trained(self.name, mean, at_rows(mean, task.x_judge), seconds)
        judged = torch.empty_like(task.y)
        for k, (fold_mean, _) in enumerate(others):
            judged[:, task.fold == k] = at_rows(fold_mean, task.x[task.fold == k])
        return Trained(self.name, mean, judged, seconds)


def run_pending(task: Task, members: Sequence[Trained | Pending]) -> tuple[Trained, ...]:
    """The members, with all pending fits done: side by side where `n_jobs` or joblib's context says so."""
    jobs = [job for member in members if isinstance(member, Pending) for job in member.jobs]
    if not jobs:
        return tuple(member for member in members if isinstance(member, Trained))

    def run() -> list[tuple[nn.Module, float]]:
        found = Parallel(n_jobs=task.n_jobs, return_as="generator")(delayed(_on_one_worker)(job) for job in jobs)
        results = []
        for i, result in enumerate(found):
            results.append(result)
            task.report("independent fits", (i + 1) / len(jobs))
        return results

    results = iter(task.decided(run))
    done = []
    for member in members:
        finished = member.finished(task, [next(results) for _ in member.jobs]) if isinstance(member, Pending) else member
        done.append(finished)
    return tuple(done)


def _on_one_worker(job: Callable[[], T]) -> T:
    """The job; on a Dask cluster, with what it does side by side in threads of its own worker.

    Without that the trees of a forest become tasks of the cluster, thousands of them, around data that lives on one worker: when
    it dies the whole fit fails, where a job is just done again.
    """
    if type(get_active_backend()[0]).__name__ != "DaskDistributedBackend":
        return job()
    with parallel_config(backend="threading"):
        return job()


def estimator_learner(estimator: Any, task: Task, *, name: str, standardised: bool = False) -> Pending:
    """An unfitted scikit-learn regressor or classifier: a clone for each fold, and one on all rows; with a stream on the sample.

    Rows are in the user's own units, unless `standardised`.
    """
    x, y, weight = task.x.cpu().numpy(), task.y.mT.cpu().numpy(), task.weight.cpu().numpy()
    x = x if standardised else task.scales.original_rows(x)
    target = task.classes[y.argmax(1)] if task.classes is not None else y[:, 0] if y.shape[1] == 1 else y
    scales = None if standardised else task.scales
    needs_seed = "random_state" in estimator.get_params() and estimator.get_params()["random_state"] is None
    require_weights(estimator, weight, name)
    kept = [None, *(() if task.fold is None else ((task.fold != k).cpu().numpy() for k in range(task.num_folds)))]
    # Seeds are drawn here, in this order: what a fit gives does not depend on where and when it is done.
    return Pending(
        name,
        tuple(
            partial(_fit_estimator, estimator, task.seed() if needs_seed else None, x, target, weight, rows, scales, task.classes)
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
    classes: NDArray[Any] | None,
) -> tuple[nn.Module, float]:
    start = time.perf_counter()
    learned = target if rows is None else target[rows]
    if classes is not None and (learned == learned[0]).all():
        # The others of a rare class are in the fold that is left out, and many classifiers refuse a single class.
        return ConstantMean(torch.from_numpy(logits_of_one_class(learned[0], classes))), time.perf_counter() - start
    model = clone(estimator)
    if seed is not None:
        model.set_params(random_state=seed)
    if rows is not None:
        x, target, weight = x[rows], target[rows], weight[rows]
    mean: nn.Module
    if target.ndim == 1 or get_tags(model).target_tags.multi_output:
        mean = FixedMean(plain_mean(fitted(model, x, target, weight), classes))
    else:
        parts = [fitted(clone(model), x, column, weight) for column in target.T]
        mean = JoinedMean([FixedMean(plain_mean(part, classes)) for part in parts])
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


def plain_mean(model: Any, classes: NDArray[Any] | None) -> Any:
    """A fitted predictor, or a classifier's logits, as plain numbers where it can be held so."""
    if classes is None:
        return plain_predictor(model) or model
    return plain_classifier(model, classes) or ClassifierLogits(model, classes)
