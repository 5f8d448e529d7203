"""Eight threads that ask one model at once, each for all rows and for rows of its own, get the numbers that one thread gets."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np

from benchmarks.campaign import answers

FINE, FAULTS = ("same",), ("differs", "not_finite")
COUNT, BATCH, MOST_CPU = 20, 10, 60
NUM_THREADS, NUM_ROWS, NUM_REPEATS = 8, 200, 3


def trial(number: int) -> str:
    rng = np.random.default_rng([number, 6])
    name = answers.NAMES[number % len(answers.NAMES)]
    model, x = answers.model_of(name), answers.rows_like(name, rng, NUM_ROWS)
    wanted = answers.answers(model, x)
    if not np.isfinite(wanted).all():
        return f"not_finite: {name}"
    together = Barrier(NUM_THREADS)

    def ask(thread: int) -> float:
        together.wait()
        own = slice(thread, None, NUM_THREADS)
        found = [np.abs(answers.answers(model, x) - wanted).max() for _ in range(NUM_REPEATS)]
        return float(max(*found, np.abs(answers.answers(model, x[own]) - wanted[:, own]).max()))

    with ThreadPoolExecutor(NUM_THREADS) as pool:
        worst = max(pool.map(ask, range(NUM_THREADS)))
    return "same" if worst <= answers.TOLERANCE else f"differs: {name} by {worst:.2g} of the target's standard deviation"
