"""Fits of the default configuration to some hundred rows that nobody should bring.

Even trials are regressors, odd ones classifiers. How long each took is in the record: none should take three times the median of
its size.
"""

from __future__ import annotations

import functools

import numpy as np

from benchmarks.campaign import fits
from benchmarks.campaign.hostile_tables import Case, drawn
from gwi import GWIClassifier, GWIRegressor

FINE, FAULTS = fits.FINE, fits.FAULTS
COUNT, BATCH, MOST_CPU = 300, 10, 120
FEWEST, MOST = 50, 300
MANY_LABELS = 20


@functools.lru_cache(maxsize=1)
def _case(number: int) -> Case:
    rng = np.random.default_rng([number, 3])
    return drawn(rng, FEWEST, MOST, labels=number % 2 == 1, num_hostile=int(rng.choice([0, 0, 1, 1, 1, 2])))


def trial(number: int) -> str:
    case = _case(number)
    model = (GWIClassifier if number % 2 else GWIRegressor)(cv=case.cv, random_state=number)
    return fits.tried(model, case)


def size(number: int) -> str:
    """The task, whether rows are few, some or many, and whether labels and folds are as usual: either may be as many as rows.

    From 250 rows on the plan for classes has five means in place of two. Work grows with the number of labels.
    """
    case = _case(number)
    num_rows = len(case.rows)
    rows = "below-120" if num_rows < 120 else "below-250" if num_rows < 250 else "to-300"
    folds = "" if case.cv == "auto" and not case.given else "-own-folds"
    labels = len(set(map(str, np.asarray(case.y, dtype=object).ravel()))) if number % 2 else 0
    return f"{'many-' if labels > MANY_LABELS else ''}{'classes' if number % 2 else 'numbers'}-{rows}{folds}"
