"""Two clusters of rows, a network's prior, and the law of f under it as the network grows wide, in closed form."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from benchmarks.figures.style import Array


@dataclass(frozen=True)
class NetworkPrior:
    """One hidden layer of rectified units, as in Foong et al. (2020).

    Attributes:
        width: units.
        weight_std: σ_w; the weights of a layer have standard deviation σ_w/√(number of its inputs).
        bias_std: σ_b.
        noise_std: of the targets, known.
    """

    width: int = 50
    weight_std: float = 4.0
    bias_std: float = 1.0
    noise_std: float = 0.1


def drawn_clusters(seed: int, prior: NetworkPrior, per_cluster: int = 50) -> tuple[Array, Array]:
    """Rows around (1, 1) and (−1, −1), standard deviation 0.1, with targets drawn from the wide limit of the prior."""
    rng = np.random.default_rng(seed)
    x = np.concatenate([rng.normal(centre, 0.1, (per_cluster, 2)) for centre in (1.0, -1.0)])
    covariance = wide_limit_kernel(x, x, prior) + prior.noise_std**2 * np.eye(len(x))
    return x, np.linalg.cholesky(covariance) @ rng.standard_normal(len(x))


def two_clusters(prior: NetworkPrior, per_cluster: int = 50) -> tuple[Array, Array]:
    """The first draw with the targets of both clusters around values within ±3, as those of Foong et al. are.

    The prior's standard deviation at the clusters is 12, so most draws lie farther apart.
    """
    seed = 0
    while True:
        x, y = drawn_clusters(seed, prior, per_cluster)
        if max(abs(y[:per_cluster].mean()), abs(y[per_cluster:].mean())) <= 3:
            return x, y
        seed += 1


def wide_limit_kernel(x1: Array, x2: Array, prior: NetworkPrior) -> Array:
    """Covariance of f at two sets of rows as the width grows (Matthews et al., 2018).

    For rectified units it is the arc-cosine kernel of order one (Cho and Saul, 2009).
    """
    w, b = prior.weight_std**2, prior.bias_std**2
    inner = b + w * x1 @ x2.T / x1.shape[1]
    lengths = np.sqrt(np.outer(b + w * np.square(x1).mean(1), b + w * np.square(x2).mean(1)))
    cosine = np.clip(inner / lengths, -1, 1)
    angle = np.arccos(cosine)
    return b + w * lengths * (np.sin(angle) + (math.pi - angle) * cosine) / (2 * math.pi)


def wide_limit_variance(x: Array, prior: NetworkPrior) -> Array:
    """Its diagonal."""
    w, b = prior.weight_std**2, prior.bias_std**2
    return b + w * (b + w * np.square(x).mean(1)) / 2


def wide_limit_posterior(x: Array, y: Array, new: Array, prior: NetworkPrior) -> tuple[Array, Array]:
    """Mean and standard deviation of f at new rows."""
    covariance = wide_limit_kernel(x, x, prior) + prior.noise_std**2 * np.eye(len(x))
    factor = cho_factor(covariance, lower=True)
    cross = wide_limit_kernel(x, new, prior)
    explained = solve_triangular(factor[0], cross, lower=True)
    variance = wide_limit_variance(new, prior) - np.square(explained).sum(0)
    return cross.T @ cho_solve(factor, y), np.sqrt(np.maximum(variance, 0))
