"""Means whose fits are independent of each other, folds times means: joblib does them here, on all cores, or on a cluster."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from joblib import Parallel, delayed, parallel_config
from joblib.parallel import get_active_backend
from torch import nn

from gwi.fitting.data import FitData, FitOptions
from gwi.fitting.race import Race
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
        for i, result in enumerate(Parallel(n_jobs=options.n_jobs, return_as="generator")(map(delayed(on_one_worker), jobs))):
            results.append(result)
            options.report("independent fits", (i + 1) / len(jobs))
        return results

    results = iter(data.decided(run))
    return tuple(
        member.finished(data, [next(results) for _ in member.jobs]) if isinstance(member, Pending) else member
        for member in members
    )


def on_one_worker(job: Callable[[], T]) -> T:
    """The job; on a Dask cluster, with what it does side by side in threads of its own worker.

    Without that the trees of a forest become tasks of the cluster, thousands of them, around data that lives on one worker: when
    it dies the whole fit fails, where a job is just done again.
    """
    if type(get_active_backend()[0]).__name__ != "DaskDistributedBackend":
        return job()
    with parallel_config(backend="threading"):
        return job()


class OwnLearner(ABC):
    """A mean that learns in a way of its own.

    Attributes:
        name: what it is called in the summary.
    """

    name: str

    @abstractmethod
    def learn(self, data: FitData, task: Task, options: FitOptions, race: Race | None) -> Member | Pending | None:
        """Train it, or ask it, and judge it; where there is something to beat it may give up, or be left out: None."""
