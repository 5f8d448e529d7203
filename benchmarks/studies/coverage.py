"""Coverage on data from the model's own prior: do 95 % intervals of f hold f, with hyper-parameters known?

    python -m benchmarks.studies.coverage

writes results/coverage.csv. Every set has its own inputs, function, noise and one test point; only the covariance of Q differs
between methods.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.tables.common import records
from gwi.core.covariance import covariance_problem, matched_divergence_weight, titsias_covariance, wasserstein_covariance
from gwi.core.inducing import choose_inducing_points
from gwi.core.kernels import SparsePosteriorKernel, default_kernel
from gwi.core.linalg import cholesky
from gwi.core.means import KernelMean, titsias_coefficients, wasserstein_coefficients
from gwi.core.measures import GaussianMeasure, kernel_matrix
from gwi.core.row_sums import row_sums


@dataclass(frozen=True)
class Setting:
    """One kind of problem."""

    num_data: int
    num_features: int
    num_inducing: int
    lengthscale: float
    noise_variance: float


SETTINGS = (
    Setting(num_data=100, num_features=1, num_inducing=30, lengthscale=0.5, noise_variance=0.1),
    Setting(num_data=100, num_features=2, num_inducing=40, lengthscale=1.0, noise_variance=0.1),
    Setting(num_data=100, num_features=2, num_inducing=100, lengthscale=1.0, noise_variance=0.1),
    Setting(num_data=200, num_features=4, num_inducing=60, lengthscale=2.0, noise_variance=0.25),
)


@torch.no_grad()
def standard_scores(setting: Setting, generator: torch.Generator) -> dict[str, tuple[float, float]]:
    """(f − m)/sd(f) and (y − m)/sd(y) at one new point, for each method, on one data set."""
    kernel = default_kernel(setting.num_features, lengthscale=setting.lengthscale)
    rows = torch.randn(setting.num_data + 1, setting.num_features, dtype=torch.float64, generator=generator)
    root = cholesky(kernel_matrix(kernel, rows), jitter=1e-12).factor
    f = root @ torch.randn(len(rows), dtype=torch.float64, generator=generator)
    y = f + math.sqrt(setting.noise_variance) * torch.randn(len(rows), dtype=torch.float64, generator=generator)
    x, new = rows[:-1], rows[-1:]
    z = choose_inducing_points(x, setting.num_inducing, "greedy", kernel=kernel)
    sums = row_sums(kernel, z, x, y[None, :-1], noise_variance=setting.noise_variance)
    unweighted = row_sums(kernel, z, x)
    matched = matched_divergence_weight(unweighted, setting.noise_variance)
    covariances = {"titsias": titsias_covariance(sums)}
    for label, weight in (("beta_match", matched), ("beta_1", 1.0)):
        problem = covariance_problem(
            kernel,
            z,
            x,
            noise_variance=setting.noise_variance,
            num_data=setting.num_data,
            divergence_weight=weight,
        )
        covariances[label] = wasserstein_covariance(problem).whitened_covariance
    mean = KernelMean(kernel, z, titsias_coefficients(sums))
    scores = {}
    for label, s in covariances.items():
        scores[label] = _scores(GaussianMeasure(mean, SparsePosteriorKernel(kernel, z, s)), new, f[-1], y[-1], setting)
    least_squares = KernelMean(kernel, z, wasserstein_coefficients(sums, unweighted, matched))
    own = GaussianMeasure(least_squares, SparsePosteriorKernel(kernel, z, covariances["beta_match"]))
    scores["beta_match_own_mean"] = _scores(own, new, f[-1], y[-1], setting)
    return scores


def _scores(
    posterior: GaussianMeasure, new: torch.Tensor, f: torch.Tensor, y: torch.Tensor, setting: Setting
) -> tuple[float, float]:
    mean, variance = posterior.marginals(new)
    of_f = (f - mean) / variance.sqrt()
    of_y = (y - mean) / (variance + setting.noise_variance).sqrt()
    return of_f.item(), of_y.item()


def rows(num_sets: int) -> Iterator[dict[str, Any]]:
    for setting in SETTINGS:
        generator = torch.Generator().manual_seed(0)
        scores = [standard_scores(setting, generator) for _ in range(num_sets)]
        for method in scores[0]:
            inside = torch.tensor([[abs(v) <= 1.959964 for v in s[method]] for s in scores]).double().mean(0)
            yield {
                **vars(setting),
                "method": method,
                "num_sets": num_sets,
                "coverage_f": f"{inside[0].item():.4f}",
                "coverage_y": f"{inside[1].item():.4f}",
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-sets", type=int, default=1000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    records.write("coverage", rows(arguments.num_sets))


if __name__ == "__main__":
    main()
