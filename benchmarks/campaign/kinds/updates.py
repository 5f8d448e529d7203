"""Two hundred updates of one model, one row each: it stays finite, its spreads honest and its memory small, in any order."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.campaign import answers
from benchmarks.campaign.model_files import FAULTS as WRONG_ANSWERS
from benchmarks.campaign.model_files import judged

FINE, FAULTS = ("same",), (*WRONG_ANSWERS, "order_matters", "grows")
COUNT, BATCH, MOST_CPU = 6, 6, 300
NUM_UPDATES, LOOKED_AT, MOST_GROWTH = 200, 25, 30.0
# Of answers after the same rows in another order: of numbers what rounding makes of it, by the condition of their covariance.
# Labels are learned by Laplace's approximation, which each update makes anew around the last; of them the mean difference counts.
LEAST_TOLERANCE, ROUNDING, OF_LABELS = 1e-10, 1e-15, 0.05


def trial(number: int) -> str:
    rng = np.random.default_rng([number, 8])
    name = answers.NAMES[number % len(answers.NAMES)]
    model, x, new = answers.fresh(name), answers.rows_like(name, rng, NUM_UPDATES), answers.rows_like(name, rng, 40)
    y = _targets(model, x, rng)
    before = 0.0
    for i in range(NUM_UPDATES):
        model.update(x[i : i + 1], y[i : i + 1])
        if i % LOOKED_AT == LOOKED_AT - 1 and (found := judged(model, new)) != "answered":
            return f"{found}: after {i + 1} updates of {name}"
        # The first updates bring what is made once.
        before = answers.megabytes() if i == LOOKED_AT else before
    grown = answers.megabytes() - before
    backwards, at_once = answers.fresh(name), answers.fresh(name).update(x, y)
    for i in reversed(range(NUM_UPDATES)):
        backwards.update(x[i : i + 1], y[i : i + 1])
    away = [np.abs(answers.answers(other, new) - answers.answers(model, new)) for other in (backwards, at_once)]
    if model.task == "regression":
        worst, most = float(np.max(away)), max(LEAST_TOLERANCE, ROUNDING * _condition(name, x))
    else:
        worst, most = float(np.mean(away, axis=(1, 2)).max()), OF_LABELS
    if worst > most:
        return f"order_matters: {name} by {worst:.2g} of the target's standard deviation"
    return "same" if grown <= MOST_GROWTH else f"grows: {name} by {grown:.1f} megabytes"


def _condition(name: str, x: np.ndarray[Any, Any]) -> float:
    """Of the covariance of new targets, at most: all rows' prior variance over the least noise."""
    model = answers.model_of(name)
    noise = np.asarray(model.decompose(x).aleatoric).reshape(len(x), -1) / model.model_.scales.y_scale**2
    return float(answers.prior_variance(model, x).sum() / noise.min())


def _targets(model: Any, x: np.ndarray[Any, Any], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """What the model expects, and noise; some labels are others."""
    expected = model.predict(x)
    if model.task == "classification":
        return np.where(rng.random(len(x)) < 0.1, rng.choice(model.classes_, len(x)), expected)
    return expected + model.model_.scales.y_scale.mean() * 0.3 * rng.normal(size=expected.shape)
