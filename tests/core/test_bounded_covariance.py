"""The W₂-optimal S under S ⪯ I: a second solver, the closed form, and the certificate."""

import numpy as np
import pytest
import torch

from gwi.core.bounded_covariance import bounded_by_prior, bounded_wasserstein_covariance
from gwi.core.covariance import (
    covariance_objective,
    covariance_problem,
    relative_gap,
    wasserstein_covariance,
)
from gwi.core.kernels import default_kernel
from gwi.core.linalg import positive_semidefinite_factor

F64 = torch.float64


def gap_problem(num_inducing=4, beta=20.0, num_side=20, num_context=40, noise=0.1, seed=0):
    """Data either side of a gap, which the likelihood sees, and context rows in between and around, which it does not."""
    generator = torch.Generator().manual_seed(seed)
    side = 2 * torch.rand(2 * num_side, 1, dtype=F64, generator=generator)
    side[num_side:] += 5
    context = -1 + 9 * torch.rand(num_context, 1, dtype=F64, generator=generator)
    z = torch.linspace(0.0, 7.0, num_inducing, dtype=F64)[:, None]
    noise_variance = torch.cat([torch.full((len(side),), noise, dtype=F64), torch.full((num_context,), torch.inf, dtype=F64)])
    kernel = default_kernel(1, lengthscale=1.5)
    return covariance_problem(
        kernel, z, torch.cat([side, context]), noise_variance=noise_variance, num_data=len(side), divergence_weight=beta
    )


def by_projected_gradient(problem, steps=2000):
    """min J over 0 ⪯ S ⪯ I with r(X, X) formed, in NumPy, and its least value."""
    phi, a, beta = problem.features.numpy(), problem.precision.numpy(), problem.divergence_weight
    r0, n = (problem.residual_factor @ problem.residual_factor.mT).numpy(), problem.features.shape[1]
    values, vectors = np.linalg.eigh(r0 + phi.T @ phi)
    root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T

    def value_and_gradient(s):
        r = r0 + phi.T @ s @ phi
        e, v = np.linalg.eigh(root @ r @ root)
        e = np.maximum(e, 1e-14)
        transport = root @ (v / np.sqrt(e)) @ v.T @ root
        value = (a * np.diag(r)).mean() + beta * (np.trace(root @ root) - 2 * np.sqrt(e).sum()) / n
        return value, (phi * a) @ phi.T / n - beta / n * phi @ transport @ phi.T

    s, step = 0.5 * np.eye(len(phi)), 1.0
    value, gradient = value_and_gradient(s)
    for _ in range(steps):
        e, v = np.linalg.eigh(s - step * gradient)
        new = (v * np.clip(e, 0, 1)) @ v.T
        found, slope = value_and_gradient(new)
        if found <= value:
            s, value, gradient, step = new, found, slope, 1.5 * step
        else:
            step /= 2
    return s, value


@pytest.mark.parametrize("beta", [20.0, 200.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_projected_gradient_finds_the_same_covariance(beta, seed):
    problem = gap_problem(beta=beta, seed=seed, num_side=6, num_context=8)
    solution = bounded_wasserstein_covariance(problem, tolerance=1e-9, max_iterations=500)
    s, value = by_projected_gradient(problem)
    assert solution.objective == pytest.approx(value, rel=1e-6)
    np.testing.assert_allclose(solution.whitened_covariance.numpy(), s, atol=2e-3)


@pytest.mark.parametrize("num_inducing", [4, 8, 12])
@pytest.mark.parametrize("beta", [5.0, 100.0, 1000.0])
def test_the_certificate_closes_and_the_covariance_stays_below_the_prior(num_inducing, beta):
    problem = gap_problem(num_inducing, beta)
    solution = bounded_wasserstein_covariance(problem)
    values = torch.linalg.eigvalsh(solution.whitened_covariance)
    assert solution.converged
    assert solution.duality_gap <= 1e-6
    assert values[0] >= -1e-12
    assert values[-1] <= 1 + 1e-12
    # No S between 0 and I is below what the certificate says.
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        factor = torch.linalg.qr(torch.randn(num_inducing, num_inducing, dtype=F64, generator=generator))[0]
        factor = factor * torch.rand(num_inducing, dtype=F64, generator=generator)
        mixed = 0.05 * factor @ factor.mT + 0.95 * solution.whitened_covariance
        value = float(covariance_objective(problem, positive_semidefinite_factor(mixed)))
        assert value >= solution.lower_bound - 1e-10 * abs(value)


def test_some_of_these_problems_have_a_free_optimum_above_the_prior_and_cutting_it_costs():
    problem = gap_problem(12, 100.0)
    free = wasserstein_covariance(problem)
    assert torch.linalg.eigvalsh(free.whitened_covariance)[-1] > 1.05
    bounded = bounded_wasserstein_covariance(problem)
    cut = bounded_by_prior(free.whitened_covariance)
    assert free.lower_bound <= bounded.objective < float(covariance_objective(problem, positive_semidefinite_factor(cut)))
    # The certificate of the free problem cannot know that S is bounded.
    assert relative_gap(problem, bounded.whitened_covariance, free.lower_bound) > bounded.duality_gap


def test_where_the_free_optimum_is_below_the_prior_it_is_the_answer():
    problem = gap_problem(4, 1.0, num_context=2)
    free = wasserstein_covariance(problem, tolerance=1e-10)
    assert torch.linalg.eigvalsh(free.whitened_covariance)[-1] < 1
    bounded = bounded_wasserstein_covariance(problem, tolerance=1e-10, max_iterations=500)
    torch.testing.assert_close(bounded.whitened_covariance, free.whitened_covariance, rtol=1e-3, atol=1e-6)


def test_without_residual_it_is_the_closed_form():
    x = torch.linspace(0, 5, 6, dtype=F64)[:, None]
    noise = torch.tensor([0.1, 0.1, torch.inf, torch.inf, 0.1, 0.1], dtype=F64)
    problem = covariance_problem(
        default_kernel(1, lengthscale=1.0), x, x, noise_variance=noise, num_data=4, divergence_weight=30.0
    )
    factor = 30.0 * torch.linalg.solve(
        (problem.features * problem.precision) @ problem.features.mT, problem.features @ problem.features.mT
    )
    s = factor @ factor.mT
    solution = bounded_wasserstein_covariance(problem, tolerance=1e-10, max_iterations=500)
    if torch.linalg.eigvalsh(s)[-1] <= 1:
        torch.testing.assert_close(solution.whitened_covariance, s, rtol=1e-5, atol=1e-8)
    else:
        assert solution.objective > float(covariance_objective(problem, factor))
    assert solution.duality_gap <= 1e-10
