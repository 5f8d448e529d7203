"""What is run: data sets, seeds and methods; and one task of it, from training images to scores."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor

from benchmarks.tables.common.machine import peak_megabytes, reset_peak, versions
from benchmarks.tables.common.running import judged
from benchmarks.tables.images.data import DATASETS, OUTLIERS, Data, DatasetName, load
from benchmarks.tables.images.interface import Fitted, Prediction, Problem
from benchmarks.tables.images.methods import METHODS, PAPER
from benchmarks.tables.images.store import Key, outlier_column
from benchmarks.tables.images.training import RECIPES, Recipe, Trained, in_batches, trained
from gwi._typing import Array
from gwi.evaluation.classification import NUM_BINS, entropy, score_classes, score_ood

NUM_SEEDS = 2
NUM_PAPER_SEEDS = 1
# Passes of the bare network, of which the quickest counts; so it does of predictions that take less than so many seconds.
NUM_PASSES, QUICK_SECONDS = 3, 20.0
# All that takes part.
LIBRARIES = ("gwi", "torch", "gpytorch", "numpy", "scipy", "laplace-torch")


@dataclass(frozen=True)
class Task:
    """One fit.

    Attributes:
        dataset: the image set.
        seed: of the shared network and of the fit.
        method: one of `METHODS`.
        quick: some hundred images and one epoch, only to try the machinery out.
    """

    dataset: DatasetName
    seed: int
    method: str
    quick: bool = False

    def records(self) -> list[Key]:
        """The key of the record that it yields."""
        return [Key(self.dataset, self.seed, self.method)]

    def recipe(self) -> Recipe:
        """Of its networks."""
        whole = RECIPES[self.dataset]
        return replace(whole, num_epochs=1) if self.quick else whole


def extent(datasets: tuple[str, ...] = DATASETS, methods: tuple[str, ...] = tuple(METHODS)) -> Iterator[Task]:
    """All tasks: first seeds first, so that a part of the run is a smaller table rather than some of its columns."""
    for seed in range(NUM_SEEDS):
        for dataset in DATASETS:
            for method in METHODS:
                most = NUM_PAPER_SEEDS if method in PAPER else NUM_SEEDS
                if dataset in datasets and method in methods and seed < most:
                    yield Task(dataset, seed, method)


def shared_network(task: Task, member: int = 0) -> Trained:
    """The network that the task's method shares with others of its seed, from the cache or else trained now.

    Member 0 is that of all, the others those of the ensembles.
    """
    with one_thread():
        return trained(load(task.dataset, quick=task.quick), task.recipe(), task.seed, member=member)


def run(task: Task) -> list[dict[str, Any]]:
    """Fit on the training images, choosing by the validation images; predict; only then look at the test labels."""
    with one_thread():
        data = load(task.dataset, quick=task.quick)
        problem = Problem(data, task.recipe(), task.seed, shared_network(task))
        reset_peak()
        start = time.perf_counter()
        # Neither the test images nor any outliers are there to be learned from.
        fitted = METHODS[task.method](replace(problem, data=hidden(data)))
        seconds = time.perf_counter() - start if fitted.seconds is None else fitted.seconds
        plain, predict_seconds = timed(fitted.predict, data.test_x)
        if predict_seconds < QUICK_SECONDS:
            predict_seconds = min(predict_seconds, *(timed(fitted.predict, data.test_x)[1] for _ in range(NUM_PASSES - 1)))
        inside, score_seconds = timed(lambda x: scored(fitted, x, plain), data.test_x)
        forward_seconds = min(timed(lambda x: in_batches(problem.shared.network, x), data.test_x)[1] for _ in range(NUM_PASSES))
        outside = {name: scored(fitted, x, fitted.predict(x)) for name, x in data.outliers.items()}
        peak = peak_megabytes()
    y = data.test_y.numpy()
    record: dict[str, Any] = {
        **identity(task),
        **asdict(score_classes(inside.probabilities, y)),
        "hard_accuracy": float((outside["hard"].probabilities.argmax(1) == y).mean()),
        "reliability": reliability(inside.probabilities, y),
        "score_name": fitted.score_name,
        "fit_seconds": seconds,
        "predict_seconds": predict_seconds,
        "score_seconds": score_seconds,
        "forward_seconds": forward_seconds,
        "training_seconds": problem.shared.seconds if fitted.uses_shared else 0.0,
        "peak_mb": peak,
        "num_train": len(data.train_x),
        "num_validation": len(data.validation_x),
        "num_test": len(data.test_x),
        "settings": dict(fitted.settings),
        "versions": versions(LIBRARIES),
    }
    for name in OUTLIERS:
        by = {"entropy": [entropy(p.probabilities) for p in (inside, outside[name])]}
        by["score"] = [p.score for p in (inside, outside[name]) if p.score is not None]
        for scorer, (one, other) in by.items():
            for metric, value in asdict(score_ood(one, other)).items():
                record[outlier_column(metric, scorer, name)] = value
    return [judged(record, ("nll", "brier"))]


def hidden(data: Data) -> Data:
    """The data without what a method must not see."""
    nothing = data.test_x[:0]
    return replace(data, test_x=nothing, test_y=data.test_y[:0], outliers=dict.fromkeys(data.outliers, nothing))


def scored(fitted: Fitted, x: Tensor, prediction: Prediction) -> Prediction:
    """The prediction with a score: the method's own, or the entropy where it has none."""
    if prediction.score is not None:
        return prediction
    score = entropy(prediction.probabilities) if fitted.score is None else fitted.score(x)
    return replace(prediction, score=score)


def timed(function: Callable[[Tensor], Any], x: Tensor) -> tuple[Any, float]:
    """A function's value, and its seconds by the clock on the wall."""
    start = time.perf_counter()
    return function(x), time.perf_counter() - start


def reliability(probabilities: Array, y: NDArray[np.int64]) -> Mapping[str, list[float]]:
    """By bins of the confidence, those of the calibration error: images, sum of confidences, right answers."""
    confidence, hit = probabilities.max(1), probabilities.argmax(1) == y
    place = np.searchsorted(np.arange(1, NUM_BINS) / NUM_BINS, confidence)
    sums = {"count": np.ones(len(y)), "confidence": confidence, "right": hit.astype(float)}
    return {name: np.bincount(place, weights=values, minlength=NUM_BINS).tolist() for name, values in sums.items()}


def failed(task: Task, reason: str) -> list[dict[str, Any]]:
    """The record of a task that failed for good."""
    return [identity(task) | {"failure": reason, "versions": versions(LIBRARIES)}]


def identity(task: Task) -> dict[str, Any]:
    """What all records have."""
    return {"dataset": task.dataset, "seed": task.seed, "method": task.method}


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread in every library, so that fits side by side do not share a core and their seconds compare."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)
