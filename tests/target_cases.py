"""Small tables with one target for each likelihood, drawn from it."""

import numpy as np


def table(name, num_rows=120, seed=0):
    """Rows, targets, f, and the dispersion that they were drawn with."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (num_rows, 2))
    f = 0.8 * x[:, 0] - 0.4 * x[:, 1]
    noise = 0.3 * rng.normal(size=num_rows)
    if name == "censored":
        event, end = np.exp(f + noise), rng.exponential(6, num_rows)
        return x, np.column_stack([np.minimum(event, end), np.where(event <= end, event, np.inf)]), f, 0.09
    if name == "beta":
        share = 1 / (1 + np.exp(-f))
        return x, rng.beta(share / 0.1, (1 - share) / 0.1), f, 0.1
    if name == "robust":
        y = f + noise
        y[::12] += 8.0
        return x, y, f, 0.09
    targets = {
        "gaussian": (f + noise, 0.09),
        "student-t": (f + 0.3 * rng.standard_t(5, num_rows), 0.09),
        "log-normal": (np.exp(f + noise), 0.09),
        "gamma": (rng.gamma(5, np.exp(f) / 5), 0.2),
        "poisson": (rng.poisson(np.exp(f + 1)), np.nan),
        "negative-binomial": (rng.poisson(rng.gamma(2, np.exp(f + 1) / 2)), 0.5),
        "ordinal": (np.digitize(f + noise, [-1.0, 0.0, 1.0]), np.nan),
        "few-valued": (2 * np.digitize(f + noise, [-1.0, 0.0, 1.0]) + 1, np.nan),
    }
    y, dispersion = targets[name]
    return x, y.astype(np.float64), f, dispersion


NAMES = [
    "gaussian",
    "student-t",
    "log-normal",
    "gamma",
    "poisson",
    "negative-binomial",
    "beta",
    "ordinal",
    "few-valued",
    "censored",
    "robust",
]
