"""A noisy wave, and the default fitted to it."""

import numpy as np


def wave(num_rows=120, noise=0.2, seed=0):
    """Rows and targets."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-3, 3, (num_rows, 1))
    return x, 5 + 10 * (np.sin(2 * x[:, 0]) + noise * rng.standard_normal(num_rows))
