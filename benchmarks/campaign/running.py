"""Trials in processes with bounds on time and memory, and their records."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import selectors
import signal
import subprocess
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from statistics import median
from types import TracebackType
from typing import Any

import psutil

from benchmarks.tables.common import records
from benchmarks.tables.common.records import ROOT

# Trials in one line of a record. Seconds on the processor, and by the clock, after which a trial hangs; bytes of memory. A kind
# may have its own of the first three.
BATCH, MOST_CPU, MOST_TIME, MOST_MEMORY = 100, 10, 120, 6 << 30
# Times the median of its size that a trial may take, and how many of a size there must be for a median.
MOST_MEDIANS, FEWEST_OF_A_SIZE = 3, 5
# Outcomes that a process does not survive, or that its bounds cause.
BROUGHT_DOWN = ("crashed", "killed", "hung", "starved")


class Worker:
    """A process that does trials one at a time; when one brings it down, the next one gets a new process."""

    def __init__(self, module: str):
        self.module = module
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end()

    def _end(self) -> int:
        """End the process, and say how it ended."""
        if self.process is None:
            return 0
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        code = self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        self.process = None
        return code

    def _start(self) -> subprocess.Popen[str]:
        most_cpu = str(bound(self.module, "MOST_CPU"))
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.campaign.running", self.module, most_cpu]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment)

    def trial(self, number: int) -> dict[str, Any]:
        """What came of the trial: outcome, words, seconds on the processor, megabytes of memory beyond those at the start."""
        self.process = self._start() if self.process is None else self.process
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        # A process that died between trials shows when it is asked.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"{number}\n")
            self.process.stdin.flush()
        most_time = bound(self.module, "MOST_TIME")
        with selectors.DefaultSelector() as ready:
            ready.register(self.process.stdout, selectors.EVENT_READ)
            # On a busy machine a process may wait long for the processor; then its own clock is what counts.
            while not (is_ready := bool(ready.select(most_time))) and psutil.Process(self.process.pid).status() == "running":
                continue
            line = self.process.stdout.readline() if is_ready else None
        if line:
            return json.loads(line)
        if line == "":
            # Its end has come, or comes now; only a signal that is not ours says how.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=10)
        code = self.process.returncode
        self._end()
        hung = line is None or code == -signal.SIGXCPU
        words = f"no answer within {most_time} s" if line is None else f"the process ended with code {code}"
        seconds = float(bound(self.module, "MOST_CPU"))
        return {"outcome": "hung" if hung else "killed", "words": words, "seconds": seconds, "megabytes": 0.0}


def bound(module: str, name: str) -> int:
    """A bound that a kind has of its own, or that of all kinds."""
    return int(getattr(importlib.import_module(module), name, globals()[name]))


def outcomes(module: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Those of a kind that are right, and its faults."""
    kind = importlib.import_module(module)
    return tuple(kind.FINE), (*kind.FAULTS, *BROUGHT_DOWN)


def batch(worker: Worker, first: int, count: int) -> dict[str, Any]:
    """One line of the record: so many trials from the first on."""
    fine, faults = outcomes(worker.module)
    found = {number: worker.trial(number) for number in range(first, first + count)}
    counts = Counter(str(trial["outcome"]) for trial in found.values())
    examples = [f"{number} {trial['outcome']} {trial['words']}" for number, trial in found.items() if trial["outcome"] in faults]
    size = getattr(importlib.import_module(worker.module), "size", None)
    took = [f"{n} {size(n)} {trial['seconds']}" for n, trial in found.items() if trial["outcome"] == "answered"] if size else []
    return {
        "first": first,
        "trials": count,
        **{name: counts[name] for name in (*fine, *faults)},
        "slowest_seconds": max(trial["seconds"] for trial in found.values()),
        "largest_megabytes": max(trial["megabytes"] for trial in found.values()),
        "faulty": "; ".join(examples[:5]),
        **({"took": "; ".join(took)} if size else {}),
    }


def slow(lines: Sequence[Mapping[str, Any]]) -> tuple[int, list[str]]:
    """How many trials were held against the median of their size, where a kind says sizes; and those over three times it."""
    found = [tuple(part.split()) for line in lines for part in str(line.get("took", "")).split("; ") if part]
    seconds = defaultdict(list)
    for _, size, took in found:
        seconds[size].append(float(took))
    middle = {size: median(values) for size, values in seconds.items() if len(values) >= FEWEST_OF_A_SIZE}
    held = [(number, size, float(took)) for number, size, took in found if size in middle]
    late = [part for part in held if part[2] > MOST_MEDIANS * middle[part[1]]]
    return len(held), [f"{number} ({size}) took {took} s, the median is {middle[size]:.2f} s" for number, size, took in late]


def run(module: str, count: int, jobs: int, folder: Path) -> list[Mapping[str, Any]]:
    """So many trials, but for those in the record; all lines of the record that belong to them."""
    name, size = f"campaign_{module.rpartition('.')[2]}", bound(module, "BATCH")
    known: dict[int, Mapping[str, Any]] = {int(line["first"]): line for line in records.read(name, folder)}
    wanted = [(first, min(size, count - first)) for first in range(0, count, size)]
    missing = [(first, most) for first, most in wanted if first not in known or int(known[first]["trials"]) < most]
    with contextlib.ExitStack() as stack:
        idle: SimpleQueue[Worker] = SimpleQueue()
        for _ in range(jobs):
            idle.put(stack.enter_context(Worker(module)))

        def with_a_worker(part: tuple[int, int]) -> dict[str, Any]:
            worker = idle.get()
            try:
                return batch(worker, *part)
            finally:
                idle.put(worker)

        pool = stack.enter_context(ThreadPoolExecutor(jobs))
        for line in pool.map(with_a_worker, missing):
            known[line["first"]] = line
            records.write(name, [known[first] for first in sorted(known)], echo=False, folder=folder)
            print(name, ", ".join(f"{key} {value}" for key, value in line.items() if value and key != "took"), flush=True)
    return [known[first] for first, _ in wanted]


def num_faults(module: str, lines: Sequence[Mapping[str, Any]]) -> int:
    """Trials with a fault."""
    return sum(int(line[name]) for line in lines for name in outcomes(module)[1])


def _used() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@contextlib.contextmanager
def _bounded(most_cpu: int) -> Iterator[None]:
    """The processor's clock for one trial; the signal at its end kills."""
    bounds = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(_used()) + most_cpu + 1, bounds[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, bounds)


def _one(kind: Any, number: int, most_cpu: int) -> tuple[str, str]:
    """The outcome of a trial, and a few words."""
    try:
        with _bounded(most_cpu), contextlib.redirect_stdout(sys.stderr):
            outcome, _, words = str(kind.trial(number)).partition(": ")
    except BaseException as error:
        words = " ".join(f"{type(error).__name__}: {error}".split())
        outcome = "crashed"
    if "allocate memory" in words or "MemoryError" in words:
        outcome = "starved"
    return outcome, words[:200]


def work(module: str, most_cpu: int) -> None:
    """Do the trials whose numbers come in, and write a line for each."""
    warnings.simplefilter("ignore")
    kind, answers = importlib.import_module(module), os.fdopen(os.dup(1), "w")
    fine, faults = outcomes(module)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    for line in sys.stdin:
        start, before = _used(), _megabytes()
        outcome, words = _one(kind, int(line), most_cpu)
        if outcome not in (*fine, *faults):
            outcome, words = "crashed", f"the kind has no outcome {outcome!r}"
        cost = {"seconds": round(_used() - start, 2), "megabytes": round(_megabytes() - before)}
        print(json.dumps({"outcome": outcome, "words": words, **cost}), file=answers, flush=True)


if __name__ == "__main__":
    work(sys.argv[1], int(sys.argv[2]))
