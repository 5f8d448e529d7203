"""How much work a fit may be: decided before it starts, from the size of the table, the time allowed and the machine's speed.

Nothing looks at a clock on the way. The same table, seed, time and speed give the same fit, and the speed is kept with the
result.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingRegressor

from gwi.core.linalg import cholesky, solve_lower

# Seconds of `_work` on the machine whose seconds the table below has.
SECONDS_OF_WORK = 0.034
# Repetitions, the fastest of which counts.
REPETITIONS = 3
# A plan is taken when it is expected to need at most this share of the time: the estimates are right to a fifth.
SAFETY = 0.9


@dataclass(frozen=True)
class Effort:
    """Bounds on the work of each part of a fit.

    Attributes:
        name: of the plan.
        rows: how many are learned from; the others are left out.
        network_steps: of training; none leaves the network out, None is as many as it asks for.
        trees: share of the trees and rounds of boosting.
        finer_prior: whether more rows say more of the hyper-parameters, and folds have their own.
        all_rows: up to so many rows every row is an inducing point.
        mean_basis: centres of a kernel mean beyond that.
    """

    name: str = "full"
    rows: int | float = math.inf
    network_steps: int | None = None
    trees: float = 1.0
    finer_prior: bool = True
    all_rows: int | float = math.inf
    mean_basis: int = 1000


FULL = Effort()
PLANS = (
    FULL,
    Effort("most", network_steps=600, trees=0.5, finer_prior=False, all_rows=1000, mean_basis=600),
    Effort("some", network_steps=250, trees=0.3, finer_prior=False, all_rows=600, mean_basis=500),
    Effort("few", network_steps=0, trees=0.15, finer_prior=False, all_rows=500, mean_basis=400),
)
# With too little time for the smallest plan on all rows it learns from so many of them.
ROW_BOUNDS = (16_000, 8000, 4000, 2000, 1000, 500, 250)
# Rows, and processor seconds of each plan on a table of ten columns (`benchmarks/studies/plan_costs.py`); logarithms are
# interpolated. Each column more, or less, changes them by this share; each output beyond the first by the next.
SIZES = (100, 300, 1000, 2000, 4000, 16_000, 64_000)
SECONDS = {
    "full": (1.2, 2.5, 5.5, 10.0, 11.0, 24.0, 60.0),
    "most": (0.8, 1.4, 3.2, 3.4, 5.2, 10.5, 35.0),
    "some": (0.5, 1.0, 1.8, 2.1, 4.0, 7.2, 25.0),
    "few": (0.4, 0.6, 1.2, 1.4, 2.8, 6.0, 18.0),
}
OF_A_COLUMN, OF_AN_OUTPUT = 0.015, 0.35
# Seconds of a row that is only looked at, as for copies.
OF_A_LOOK = 4e-5


def effort_for(
    num_rows: int, num_features: int, num_outputs: int, max_time: int | float | None, speed: int | float = 1.0
) -> tuple[Effort, float]:
    """The most work that fits into the time, and the seconds that it is expected to take; all of it without a bound.

    Args:
        num_rows: N.
        num_features: D.
        num_outputs: J; classes, or targets.
        max_time: seconds.
        speed: of the machine, as `machine_speed` gives it.
    """
    if max_time is None:
        return FULL, math.nan
    for plan in PLANS:
        seconds = expected_seconds(plan, num_rows, num_features, num_outputs) / speed
        if seconds <= SAFETY * max_time:
            return plan, seconds
    least = PLANS[-1]
    for bound in ROW_BOUNDS:
        if bound < num_rows:
            least = replace(PLANS[-1], rows=bound)
            seconds = expected_seconds(least, num_rows, num_features, num_outputs) / speed
            if seconds <= SAFETY * max_time:
                break
    return least, expected_seconds(least, num_rows, num_features, num_outputs) / speed


def expected_seconds(plan: Effort, num_rows: int, num_features: int, num_outputs: int = 1) -> float:
    """What a plan takes on one core of the machine of the table."""
    rows = min(num_rows, plan.rows)
    logs, seconds = np.log(SIZES), np.log(SECONDS[plan.name])
    if rows > SIZES[-1]:
        # In proportion beyond.
        found = SECONDS[plan.name][-1] * rows / SIZES[-1]
    else:
        found = math.exp(float(np.interp(math.log(max(rows, 1)), logs, seconds)))
    return found * max(0.5, 1 + OF_A_COLUMN * (num_features - 10)) * (1 + OF_AN_OUTPUT * (num_outputs - 1)) + OF_A_LOOK * num_rows


def machine_speed() -> float:
    """How fast this machine is, in processor time, where the one whose seconds are above is one; to two digits."""
    took = []
    for _ in range(REPETITIONS):
        start = time.process_time()
        _work()
        took.append(time.process_time() - start)
    return float(f"{SECONDS_OF_WORK / max(min(took), 1e-6):.2g}")


def _work() -> None:
    """A little of what fits are made of: a factorisation, a triangular solve, and trees."""
    x = torch.linspace(0, 1, 500, dtype=torch.float64)
    matrix = torch.exp(-((x[:, None] - x) ** 2)) + torch.eye(500, dtype=torch.float64)
    for _ in range(4):
        solve_lower(cholesky(matrix, name="a matrix to measure by").factor, matrix)
    rows = np.linspace(0, 1, 900).reshape(300, 3)
    trees = HistGradientBoostingRegressor(max_iter=30, max_leaf_nodes=15, early_stopping=False, random_state=0)
    trees.fit(rows, np.sin(9 * rows[:, 0]))
