"""The W₂-optimal covariance on real tables: fixed point against L-BFGS, duality gap, S = 0 at β = 1, the cheap form.

    python -m benchmarks.studies.covariance

writes results/covariance.csv. W₂ is taken on 300 random rows, which stand for all N; Z is by k-means. Two priors: ``collapsed``
maximises Titsias' bound with that Z on all rows, so its length-scales are ones that Z can follow; ``marginal`` maximises the
marginal likelihood of 300 rows and knows nothing of Z.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, get_args

import torch

from benchmarks.tables.common import records
from benchmarks.tables.uci.data import UCIName, load_uci, standardise
from gwi.core.covariance import (
    CovarianceProblem,
    covariance_objective,
    covariance_problem,
    matched_divergence_weight,
    shrinkage,
    trained_covariance,
    wasserstein_covariance,
)
from gwi.core.inducing import choose_inducing_points
from gwi.core.kernels import default_kernel
from gwi.core.measures import kernel_variance
from gwi.core.prior import PriorFit, fit_prior
from gwi.core.row_sums import row_sums

SETS: tuple[UCIName, ...] = ("boston", "concrete", "yacht")


def table(name: UCIName) -> tuple[torch.Tensor, torch.Tensor]:
    """Standardised rows and targets."""
    assert name in get_args(UCIName)
    x, y = load_uci(name)
    return standardise(x), standardise(y.mT).mT


def compare(problem: CovarianceProblem, *, lbfgs_iterations: int = 400) -> dict[str, Any]:
    """The fixed point, and L-BFGS from an isotropic and from a random start."""
    num_inducing = problem.features.shape[0]
    start = time.perf_counter()
    solution = wasserstein_covariance(problem)
    seconds = time.perf_counter() - start
    generator = torch.Generator().manual_seed(1)
    random = torch.randn(num_inducing, num_inducing, dtype=torch.float64, generator=generator) / num_inducing
    starts = (0.01 * torch.eye(num_inducing, dtype=torch.float64), random @ random.mT)
    start = time.perf_counter()
    values = [trained_covariance(problem, first, max_iterations=lbfgs_iterations)[1].value for first in starts]
    lbfgs_seconds = (time.perf_counter() - start) / 2
    scale = abs(solution.objective)
    steps = zip(solution.objectives, solution.objectives[1:], strict=False)
    return {
        "iterations": len(solution.objectives),
        "objective": solution.objective,
        "duality_gap": solution.duality_gap,
        "largest_increase": max([(b - a) / scale for a, b in steps], default=0.0),
        "lbfgs_1_minus_fixed_point": (values[0] - solution.objective) / scale,
        "lbfgs_2_minus_fixed_point": (values[1] - solution.objective) / scale,
        "largest_eigenvalue_of_s": torch.linalg.eigvalsh(solution.whitened_covariance)[-1].item(),
        "seconds": seconds,
        "lbfgs_seconds": lbfgs_seconds,
    }


def rows() -> Iterator[dict[str, Any]]:
    for name in SETS:
        x, y = table(name)
        sample = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:300]
        start = default_kernel(x.shape[1])
        for prior in ("collapsed", "marginal"):
            for num_inducing in (20, 50, 100):
                z = choose_inducing_points(x, num_inducing, "kmeans", generator=torch.Generator().manual_seed(0))
                if prior == "collapsed":
                    fit = fit_prior(start, x, y, inducing_points=z)
                else:
                    fit = fit_prior(start, x[sample], y[:, sample], objective="marginal")
                for record in weights(fit, z, x, x[sample]):
                    yield {"set": name, "prior": prior, "num_data": len(x), "num_inducing": num_inducing, **record}


def weights(fit: PriorFit, z: torch.Tensor, x: torch.Tensor, points: torch.Tensor) -> Iterator[dict[str, Any]]:
    num_data = len(x)
    with torch.no_grad():
        sums = row_sums(fit.kernel, z, x)
        prior_variance = kernel_variance(fit.kernel, x).mean().item()
    matched = matched_divergence_weight(sums, fit.noise_variance)
    for label, weight in (("1", 1.0), ("match", matched), ("N", float(num_data))):
        problem = covariance_problem(
            fit.kernel, z, points, noise_variance=fit.noise_variance, num_data=num_data, divergence_weight=weight
        )
        record = compare(problem)
        a = float(shrinkage(fit.noise_variance, num_data, weight))
        eye = torch.eye(len(z), dtype=torch.float64)
        cheap = covariance_objective(problem, eye / a).item()
        gain = covariance_objective(problem, 0 * eye).item() - record["objective"]
        yield {
            "beta": label,
            "divergence_weight": weight,
            "prior_variance": prior_variance,
            "noise_variance": fit.noise_variance,
            "residual_share": sums.residual.item() / num_data / prior_variance,
            "shrinkage_squared_inverse": a**-2,
            "cheap_form_excess": (cheap - record["objective"]) / gain if gain > 0 else float("inf"),
            **record,
        }


def main() -> None:
    torch.set_num_threads(1)
    records.write("covariance", rows())


if __name__ == "__main__":
    main()
