"""Sums over rows are those of a loop, whatever the chunk, and their gradient by hand is the true one."""

import pytest
import torch

from gwi.core.kernels import default_kernel, residual_variance, whitened_features
from gwi.core.linalg import cholesky
from gwi.core.measures import kernel_matrix
from gwi.core.row_sums import row_sums

F64 = torch.float64


def data(num_rows=23, num_inducing=5):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(num_rows, 2, dtype=F64, generator=generator)
    y = torch.randn(2, num_rows, dtype=F64, generator=generator)
    noise = 0.1 + torch.rand(num_rows, dtype=F64, generator=generator)
    return x, x[:num_inducing] + 0.1, y, noise


def plain_sums(kernel, z, x, y, noise):
    phi = whitened_features(kernel, z, cholesky(kernel_matrix(kernel, z)).factor, x)
    w = 1 / noise
    return (phi * w) @ phi.mT, (phi * w) @ y.mT, (residual_variance(kernel, x, phi) * w).sum()


@pytest.mark.parametrize("chunk_size", [4096, 7, 1])
def test_chunks_add_up_to_the_plain_sums(chunk_size):
    kernel = default_kernel(2).requires_grad_(False)
    x, z, y, noise = data()
    sums = row_sums(kernel, z, x, y, noise_variance=noise, chunk_size=chunk_size)
    gram, projection, residual = plain_sums(kernel, z, x, y, noise)
    torch.testing.assert_close(sums.gram, gram)
    torch.testing.assert_close(sums.projection.mT, projection)
    torch.testing.assert_close(sums.residual, residual)


@pytest.mark.parametrize("chunk_size", [4096, 7])
def test_gradients_by_hand_are_those_of_autograd(chunk_size):
    x, z, y, noise = data()
    weights = [torch.randn(5, 5, dtype=F64), torch.randn(2, 5, dtype=F64), torch.randn((), dtype=F64)]
    found = []
    for by_hand in (True, False):
        kernel = default_kernel(2)
        leaves = [z.clone().requires_grad_(), noise.clone().requires_grad_(), y.clone().requires_grad_(), *kernel.parameters()]
        if by_hand:
            sums = row_sums(kernel, leaves[0], x, leaves[2], noise_variance=leaves[1], chunk_size=chunk_size)
            parts = (sums.gram, sums.projection, sums.residual)
        else:
            gram, projection, residual = plain_sums(kernel, leaves[0], x, leaves[2], leaves[1])
            parts = (gram, projection.mT, residual)
        value = sum((weight * part).sum() for weight, part in zip(weights, parts, strict=True))
        found.append(torch.autograd.grad(value, leaves))
    for by_hand, wanted in zip(*found, strict=True):
        torch.testing.assert_close(by_hand, wanted, rtol=1e-8, atol=1e-10)


def test_no_rows_are_refused():
    with pytest.raises(ValueError, match="at least one row"):
        row_sums(default_kernel(2), torch.zeros(1, 2, dtype=F64), torch.zeros(0, 2, dtype=F64))


def test_sums_where_every_row_is_an_inducing_point_are_those_of_the_same_rows_apart():
    x = torch.randn(60, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.randn(2, 60, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    weight = 0.5 + torch.rand(2, 60, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    kernel = default_kernel(2, lengthscale=0.5)
    for noise in (0.3, weight[0], weight):
        with torch.no_grad():
            together, apart = (row_sums(kernel, x, rows, y, noise_variance=noise) for rows in (x, x.clone()))
        for name in ("gram", "projection", "residual", "target_energy", "log_weight"):
            found, wanted = getattr(together, name), getattr(apart, name)
            torch.testing.assert_close(found, wanted, atol=1e-8, rtol=1e-8)
