"""Context rows, and the measure at which W₂'s S is as wide as the exact posterior."""

import numpy as np
import pytest
import torch

from gwi.core.context import context_covariance, context_rows, noise_sized_points
from gwi.core.covariance import covariance_objective, covariance_problem, titsias_covariance, wasserstein_covariance
from gwi.core.kernels import SparsePosteriorKernel, default_kernel
from gwi.core.measures import kernel_matrix, kernel_variance
from gwi.core.row_sums import row_sums

F64 = torch.float64


def sides(num_rows=80, dimension=2, gap=2.9, seed=0):
    """Rows either side of a gap in the first column, and new ones in it."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 2, (num_rows, dimension))
    x[num_rows // 2 :, 0] += 2 + gap
    new = rng.uniform(0, 2, (50, dimension))
    new[:, 0] = 2 + gap * rng.uniform(size=50)
    return torch.from_numpy(x), torch.from_numpy(new)


def test_box_rows_fill_the_box_and_mixtures_lie_between_rows():
    x, _ = sides()
    generator = torch.Generator().manual_seed(0)
    box = context_rows("box", x, 500, generator)
    assert box.shape == (500, 2)
    assert (box >= x.amin(0)).all()
    assert (box <= x.amax(0)).all()
    in_gap = (box[:, 0] > 2) & (box[:, 0] < 4.9)
    assert 0.3 < in_gap.double().mean() < 0.55
    mixed = context_rows("mixtures", x[:2], 20, generator)
    direction = x[1] - x[0]
    along = (mixed - x[0]) @ direction / direction.square().sum()
    torch.testing.assert_close(mixed, x[0] + along[:, None] * direction)
    assert ((along > -1e-12) & (along < 1 + 1e-12)).all()


def test_inducing_points_explain_every_row_to_ten_times_the_noise_over_n():
    x, _ = sides()
    kernel = default_kernel(2, lengthscale=1.0)
    z = noise_sized_points(kernel, x, 0.04, 80, 80)
    left = kernel_variance(SparsePosteriorKernel(kernel, z, torch.zeros(len(z), len(z), dtype=F64)), x)
    assert left.max() <= 0.005 + 1e-9
    assert len(z) < 80
    assert len(noise_sized_points(kernel, x, 0.04, 80, 7)) == 7


def test_weights_of_points_are_as_many_copies_of_them():
    x, _ = sides(12)
    kernel, z = default_kernel(2, lengthscale=1.0), x[::3]
    noise = torch.full((12,), 0.1, dtype=F64)
    equal = covariance_problem(kernel, z, x, noise_variance=noise, num_data=12, divergence_weight=5.0)
    weights = torch.tensor([2.0, 1.0, 1.0] * 4, dtype=F64)
    weighted = equal.weighted(weights / weights.mean(), 12 / (2 * noise), 5.0)
    often = weights.long()
    # A copy of a row counts in W₂² and, with twice the noise, together with the row once in the likelihood.
    copied = covariance_problem(
        kernel,
        z,
        x.repeat_interleave(often, 0),
        noise_variance=(0.1 * weights * 12 / 16).repeat_interleave(often),
        num_data=12,
        divergence_weight=5.0,
    )
    for factor in (0.3 * torch.eye(4, dtype=F64), torch.ones(4, 4, dtype=F64).tril() / 3):
        torch.testing.assert_close(covariance_objective(weighted, factor), covariance_objective(copied, factor))


@pytest.mark.parametrize("dimension", [1, 2, 4])
@pytest.mark.parametrize("noise_std", [0.1, 0.3])
def test_with_context_variances_are_those_of_the_exact_posterior_in_the_gap_and_at_the_data(dimension, noise_std):
    x, new = sides(dimension=dimension)
    home, _ = sides(50, dimension, seed=1)
    kernel, noise = default_kernel(dimension, lengthscale=1.0), noise_std**2
    z = noise_sized_points(kernel, x, noise, 80, 80)
    titsias = titsias_covariance(row_sums(kernel, z, x, noise_variance=noise))
    context = context_rows("box", x, 80, torch.Generator().manual_seed(0))
    solved = context_covariance(kernel, z, x, context, titsias, noise_variance=noise, num_data=80)
    values = torch.linalg.eigvalsh(solved.whitened_covariance)
    assert -1e-12 <= values[0] <= values[-1] <= 1 + 1e-9
    assert solved.duality_gap <= 1e-4
    assert 0 < solved.context_share < 0.5
    assert all(abs(error - 1) < 0.05 for error in solved.errors)
    k_xx = kernel_matrix(kernel, x) + noise * torch.eye(80, dtype=F64)
    problem = covariance_problem(kernel, z, x, noise_variance=noise, num_data=80, divergence_weight=solved.divergence_weight)
    on_data = wasserstein_covariance(problem).whitened_covariance
    for points in (new, home):
        k_xp = kernel_matrix(kernel, x, points)
        exact = 1 - (k_xp * torch.linalg.solve(k_xx, k_xp)).sum(0)
        ratio = kernel_variance(SparsePosteriorKernel(kernel, z, solved.whitened_covariance), points) / exact
        # The mean NLL of f above the exact posterior's.
        assert ((ratio.log() + 1 / ratio - 1) / 2).mean() < 0.05
    if dimension == 1:
        narrow = kernel_variance(SparsePosteriorKernel(kernel, z, on_data), new)
        wide = kernel_variance(SparsePosteriorKernel(kernel, z, solved.whitened_covariance), new)
        assert (narrow < wide).all()
