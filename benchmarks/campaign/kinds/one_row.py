"""A hundred rows that are predicted one at a time get what they get together, and memory stays as it is."""

from __future__ import annotations

import numpy as np

from benchmarks.campaign import answers

FINE, FAULTS = ("same",), ("differs", "not_finite", "grows")
COUNT, MOST_CPU = 100, 60
NUM_ROWS, MOST_GROWTH = 100, 8.0


def trial(number: int) -> str:
    rng = np.random.default_rng([number, 7])
    name = answers.NAMES[number % len(answers.NAMES)]
    model, x = answers.model_of(name), answers.rows_like(name, rng, NUM_ROWS)
    together = answers.answers(model, x)
    if not np.isfinite(together).all():
        return f"not_finite: {name}"
    # What is made once, at the first small prediction, is no growth.
    for row in x[:5]:
        answers.answers(model, row[None])
    before = answers.megabytes()
    alone = np.concatenate([answers.answers(model, row[None]) for row in x], axis=1)
    grown, worst = answers.megabytes() - before, float(np.abs(alone - together).max())
    if worst > answers.TOLERANCE:
        return f"differs: {name} by {worst:.2g} of the target's standard deviation"
    return "same" if grown <= MOST_GROWTH else f"grows: {name} by {grown:.1f} megabytes"
