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
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any

import psutil

from benchmarks.tables.common import records
from benchmarks.tables.common.records import ROOT

# Trials in one line of a record. Seconds on the processor, and by the clock, after which a trial hangs; bytes of memory.
BATCH, MOST_CPU, MOST_TIME, MOST_MEMORY = 100, 10, 120, 6 << 30
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
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.campaign.running", self.module, str(MOST_CPU)]
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
        with selectors.DefaultSelector() as ready:
            ready.register(self.process.stdout, selectors.EVENT_READ)
            # On a busy machine a process may wait long for the processor; then its own clock is what counts.
            while not (is_ready := bool(ready.select(MOST_TIME))) and psutil.Process(self.process.pid).status() == "running":
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
        words = f"no answer within {MOST_TIME} s" if line is None else f"the process ended with code {code}"
        return {"outcome": "hung" if hung else "killed", "words": words, "seconds": float(MOST_CPU), "megabytes": 0.0}


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
    return {
        "first": first,
        "trials": count,
        **{name: counts[name] for name in (*fine, *faults)},
        "slowest_seconds": max(trial["seconds"] for trial in found.values()),
        "largest_megabytes": max(trial["megabytes"] for trial in found.values()),
        "faulty": "; ".join(examples[:5]),
    }


def run(module: str, count: int, jobs: int, folder: Path) -> list[Mapping[str, Any]]:
    """So many trials, but for those in the record; all lines of the record that belong to them."""
    name = f"campaign_{module.rpartition('.')[2]}"
    lines: list[Mapping[str, Any]] = [line for line in records.read(name, folder) if int(line["first"]) < count]
    done = {(int(line["first"]), int(line["trials"])) for line in lines}
    wanted = [(first, min(BATCH, count - first)) for first in range(0, count, BATCH)]
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
        for line in pool.map(with_a_worker, [part for part in wanted if part not in done]):
            lines.append(line)
            ordered = sorted(lines, key=lambda row: int(row["first"]))
            records.write(name, ordered, echo=False, folder=folder)
            print(name, ", ".join(f"{key} {value}" for key, value in line.items() if value), flush=True)
    return [line for line in lines if (int(line["first"]), int(line["trials"])) in wanted]


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
