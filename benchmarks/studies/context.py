"""W₂'s S with context rows in the measure: does it cover f in a gap, and at home, as the exact posterior does?

    python -m benchmarks.studies.context
    python -m benchmarks.studies.context points

write results/context.csv: functions from an RBF prior whose hyper-parameters are known, rows either side of a gap of 2.9
length-scales in the first column, the exact mean, and r from each S; the length-scale grows with √D. The second adds, on fewer
draws, inducing points that reach into the context. A run that was stopped goes on where it was.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.tables.common.records import append, read
from gwi.core.bounded_covariance import bounded_by_prior
from gwi.core.context import ContextKind, context_covariance, context_rows, noise_sized_points
from gwi.core.covariance import (
    covariance_problem,
    matched_divergence_weight,
    relative_gap,
    titsias_covariance,
    wasserstein_covariance,
)
from gwi.core.kernels import SparsePosteriorKernel, default_kernel
from gwi.core.linalg import cholesky, positive_semidefinite_factor, solve_lower
from gwi.core.measures import kernel_matrix, kernel_variance
from gwi.core.row_sums import row_sums

# Each table of rows has so many functions: S depends on rows alone.
NUM_TABLES, NUM_FUNCTIONS = 40, 10
NUM_POINT_TABLES = 10
NUM_ROWS, NUM_CONTEXT, NUM_NEW, GAP, WIDTH = 100, 100, 100, 2.9, 4.0
DIMENSIONS, NOISES = (1, 2, 4, 8), (0.1, 0.3)
KERNEL_JITTER, NAN = 1e-10, float("nan")


# From k, rows, new rows, σ² and a seed to r of each S at the new rows, its duality gap and largest eigenvalue, M, ρ's mass at the
# context, and the mean squares of standardised errors that the rule left.
Covariances = Callable[[Any, Tensor, list[Tensor], float, int], Iterator[tuple[str, tuple[Any, ...]]]]


def drawn(rng: np.random.Generator, num_rows: int, dimension: int, where: str) -> Tensor:
    """Rows in units of the length-scale: at either side of the gap, or in it."""
    side = WIDTH / 2 / dimension**0.5
    x = rng.uniform(0, 2 * side, (num_rows, dimension))
    if where == "data":
        x[:, 0] = rng.uniform(0, side, num_rows) + (side + GAP) * rng.integers(0, 2, num_rows)
    else:
        x[:, 0] = side + rng.uniform(0, GAP, num_rows)
    return torch.from_numpy(x)


@torch.no_grad()
def of_table(dimension: int, noise_std: float, table: int, covariances: Covariances) -> Iterator[dict[str, Any]]:
    """The exact posterior and some S on one table of rows, scored on functions at new rows."""
    rng = np.random.default_rng([dimension, round(100 * noise_std), table])
    noise, kernel = noise_std**2, default_kernel(dimension, lengthscale=1.0)
    x, new = drawn(rng, NUM_ROWS, dimension, "data"), [drawn(rng, NUM_NEW, dimension, where) for where in ("data", "gap")]
    everywhere = torch.cat([x, *new])
    covariance = kernel_matrix(kernel, everywhere)
    f = positive_semidefinite_factor(covariance, slack=1e-6) @ torch.from_numpy(
        rng.standard_normal((len(everywhere), NUM_FUNCTIONS))
    )
    y = f[:NUM_ROWS] + noise_std * torch.from_numpy(rng.standard_normal((NUM_ROWS, NUM_FUNCTIONS)))
    factor = cholesky(covariance[:NUM_ROWS, :NUM_ROWS] + noise * torch.eye(NUM_ROWS, dtype=x.dtype)).factor
    phi = solve_lower(factor, covariance[:NUM_ROWS, NUM_ROWS:])
    errors, exact = f[NUM_ROWS:] - phi.mT @ solve_lower(factor, y), 1 - phi.square().sum(0)
    variances = {"exact": (exact, 0.0, NAN, NUM_ROWS, 0.0, (1.0, 1.0))} | dict(covariances(kernel, x, new, noise, table))
    for kind, (variance, gap, top, num_inducing, share, found) in variances.items():
        z = errors / variance.sqrt()[:, None]
        nll = z.square() / 2 + variance.log()[:, None] / 2 + np.log(2 * np.pi) / 2
        inside, home = (z.abs() < 1.959964).double(), slice(0, NUM_NEW)
        there = slice(NUM_NEW, None)
        # Given the data f − m has the variance of the exact posterior, so that draws have these expectations.
        ratio = variance / exact
        expected = torch.special.erf(1.959964 * (ratio / 2).sqrt())
        excess = (ratio.log() + 1 / ratio - 1) / 2
        yield {
            "dimension": dimension,
            "noise_std": noise_std,
            "table": table,
            "functions": NUM_FUNCTIONS,
            "covariance": kind,
            "coverage_data": float(inside[home].mean()),
            "coverage_gap": float(inside[there].mean()),
            "nll_data": float(nll[home].mean()),
            "nll_gap": float(nll[there].mean()),
            "expected_coverage_data": float(expected[home].mean()),
            "expected_coverage_gap": float(expected[there].mean()),
            "expected_excess_data": float(excess[home].mean()),
            "expected_excess_gap": float(excess[there].mean()),
            "duality_gap": gap,
            "largest_eigenvalue": top,
            "num_inducing": num_inducing,
            "context_share": share,
            "errors_data": found[0],
            "errors_context": found[1],
        }


def found(
    kernel: Any, new: list[Tensor], s: Tensor, z: Tensor, gap: float, share: float = 0.0, errors: Any = (NAN, NAN)
) -> tuple[Any, ...]:
    """What is recorded of an S."""
    variance = kernel_variance(SparsePosteriorKernel(kernel, z, s), torch.cat(new))
    return variance, gap, float(torch.linalg.eigvalsh(s)[-1]), len(z), share, errors


def of_rows(kernel: Any, x: Tensor, new: list[Tensor], noise: float, seed: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Titsias' S, W₂'s on the data, and W₂'s with context."""
    z = noise_sized_points(kernel, x, noise, len(x), len(x))
    reference = titsias_covariance(row_sums(kernel, z, x, noise_variance=noise))
    yield "Titsias", found(kernel, new, reference, z, 0.0)
    for name, points in (("W₂ on data", z), ("W₂ on data, Z = X", x)):
        weight = matched_divergence_weight(row_sums(kernel, points, x, jitter=KERNEL_JITTER), noise)
        if points is x:
            share = (1 + len(x) / (2 * weight * noise)) ** -2
            yield name, found(kernel, new, share * torch.eye(len(x), dtype=x.dtype), x, 0.0)
            continue
        problem = covariance_problem(kernel, points, x, noise_variance=noise, num_data=len(x), divergence_weight=weight)
        solution = wasserstein_covariance(problem, tolerance=1e-4)
        s = bounded_by_prior(solution.whitened_covariance)
        yield name, found(kernel, new, s, points, relative_gap(problem, s, solution.lower_bound))
    kinds: tuple[ContextKind, ...] = ("box", "mixtures")
    for kind in kinds:
        context = context_rows(kind, x, NUM_CONTEXT, torch.Generator().manual_seed(seed))
        yield f"W₂ with context, {kind}", with_context(kernel, x, new, noise, z, context)


def of_points(kernel: Any, x: Tensor, new: list[Tensor], noise: float, seed: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """W₂'s S with context for inducing points that reach into the context."""
    context = context_rows("box", x, NUM_CONTEXT, torch.Generator().manual_seed(seed))
    reaching = noise_sized_points(kernel, torch.cat([x, context]), noise, len(x), len(x) + len(context))
    yield "W₂ with context, Z reaching it", with_context(kernel, x, new, noise, reaching, context)


def with_context(kernel: Any, x: Tensor, new: list[Tensor], noise: float, z: Tensor, context: Tensor) -> tuple[Any, ...]:
    """What is recorded of W₂'s S with context."""
    reference = titsias_covariance(row_sums(kernel, z, x, noise_variance=noise))
    solved = context_covariance(kernel, z, x, context, reference, noise_variance=noise, num_data=len(x))
    return found(kernel, new, solved.whitened_covariance, z, solved.duality_gap, solved.context_share, solved.errors)


def main(what: str = "all") -> None:
    """Every dimension and noise, some tables of rows each."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    covariances, num_tables, last = {
        "all": (of_rows, NUM_TABLES, "W₂ with context, mixtures"),
        "points": (of_points, NUM_POINT_TABLES, "W₂ with context, Z reaching it"),
    }[what]
    done = {(int(r["dimension"]), float(r["noise_std"]), int(r["table"])) for r in read("context") if r["covariance"] == last}
    for number in range(num_tables):
        for dimension in DIMENSIONS if what == "all" else DIMENSIONS[:2]:
            for noise_std in NOISES:
                if (dimension, noise_std, number) not in done:
                    records = of_table(dimension, noise_std, number, covariances)
                    append("context", [r for r in records if what == "all" or r["covariance"] != "exact"])


if __name__ == "__main__":
    main(*sys.argv[1:])
