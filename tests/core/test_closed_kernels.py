"""Kernels in closed form have the values of GPyTorch's, however they find distances."""

import numpy as np
import pytest
import torch
from gpytorch.kernels import AdditiveKernel, LinearKernel, MaternKernel, PeriodicKernel, RBFKernel, RQKernel, ScaleKernel

from gwi.core.closed_kernels import closed_kernel
from gwi.core.kernels import default_kernel
from gwi.core.measures import kernel_matrix

F64 = torch.float64
SHAPES = {
    "rbf": (RBFKernel, {}),
    "matern12": (MaternKernel, {"nu": 0.5}),
    "matern32": (MaternKernel, {"nu": 1.5}),
    "matern52": (MaternKernel, {"nu": 2.5}),
    "rq": (RQKernel, {}),
}


def rows(num_rows, dim, seed=0):
    return torch.randn(num_rows, dim, dtype=F64, generator=torch.Generator().manual_seed(seed))


def named(shape, dim, lengthscale):
    kind, arguments = SHAPES[shape]
    scales = lengthscale * torch.linspace(0.5, 2.0, dim, dtype=F64)
    kernel = default_kernel(dim, lengthscale=scales, outputscale=1.7, shape=kind, **arguments).requires_grad_(False)
    if shape == "rq":
        kernel.base_kernel.alpha = torch.tensor(1.3, dtype=F64)
    return kernel


def in_loops(shape, kernel, x, z):
    """The same in extended precision, entry by entry."""
    wide = np.longdouble
    scaled = [v.numpy().astype(wide) / kernel.base_kernel.lengthscale[0].numpy().astype(wide) for v in (x, z)]
    squares = np.array([[((a - b) ** 2).sum() for b in scaled[1]] for a in scaled[0]])
    if shape == "rbf":
        return np.exp(-squares / 2)
    if shape == "rq":
        alpha = wide(float(kernel.base_kernel.alpha))
        return (1 + squares / (2 * alpha)) ** -alpha
    nu = {"matern12": 1, "matern32": 3, "matern52": 5}[shape]
    s = np.sqrt(wide(nu) * squares)
    return np.exp(-s) * {1: 1, 3: 1 + s, 5: 1 + s + s**2 / 3}[nu]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dim", [1, 3, 30])
@pytest.mark.parametrize("lengthscale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("expands", [True, False])
def test_values_are_those_of_the_kernel_to_the_rounding_that_is_said(shape, dim, lengthscale, expands):
    kernel, z = named(shape, dim, lengthscale), rows(12, dim) + 100.0
    x = torch.cat([z[:4], z[:4] + 1e-7, rows(5, dim, seed=1) + 100.0, rows(2, dim, seed=2) - 1e6])
    closed = closed_kernel(kernel, z).with_expansion(expands)
    found, wanted = closed(x).numpy(), in_loops(shape, kernel, x, z)
    assert closed.outputscale == pytest.approx(1.7)
    # Of z = 100 + 1e-7 itself the last digits are lost, which is no fault of a kernel.
    lost = 1e-13 / lengthscale * 100
    assert np.abs(found - wanted).max() <= 3 * closed.rounding(closed.expands) + lost
    np.testing.assert_allclose(1.7 * found, kernel_matrix(kernel, x, z).numpy(), atol=4 * closed.rounding(True) + lost)


def test_no_value_is_above_that_of_equal_rows():
    for shape in SHAPES:
        z = rows(30, 3)
        for expands in (True, False):
            closed = closed_kernel(named(shape, 3, 1e-2), z).with_expansion(expands)
            assert closed(z).max() <= 1.0
            assert closed(z).diagonal().min() >= 1 - (3 * closed.rounding(expands) if expands else 0)


def test_columns_that_a_kernel_looks_at_are_taken():
    base = RBFKernel(active_dims=[2, 0], ard_num_dims=2).double()
    kernel, z, x = ScaleKernel(base).double().requires_grad_(False), rows(6, 4), rows(9, 4, seed=1)
    closed = closed_kernel(kernel, z)
    torch.testing.assert_close(closed.outputscale * closed(x), kernel_matrix(kernel, x, z), rtol=1e-13, atol=1e-14)


def test_only_kernels_of_exactly_these_types_have_a_closed_form():
    class Mine(RBFKernel):
        pass

    z = rows(5, 2)
    known = RBFKernel().double().requires_grad_(False)
    assert closed_kernel(known, z).outputscale == 1.0
    batch = ScaleKernel(RBFKernel(batch_shape=torch.Size([2])), batch_shape=torch.Size([2])).double()
    others = [Mine().double(), LinearKernel().double(), PeriodicKernel().double(), AdditiveKernel(known, known), batch]
    assert [closed_kernel(kernel.requires_grad_(False), z) for kernel in others] == [None] * 5
    assert closed_kernel(known.float(), z.float()) is None


def test_kernels_that_differ_by_a_factor_are_known():
    z = rows(7, 2)
    one, other = named("rbf", 2, 1.0), named("rbf", 2, 1.0)
    other.outputscale = torch.tensor(0.3, dtype=F64)
    assert closed_kernel(one, z).differs_by_a_factor(closed_kernel(other, z))
    assert not closed_kernel(one, z).differs_by_a_factor(closed_kernel(named("rbf", 2, 1.1), z))
    assert not closed_kernel(one, z).differs_by_a_factor(closed_kernel(named("matern32", 2, 1.0), z))
    assert not closed_kernel(one, z).differs_by_a_factor(closed_kernel(one, z + 1))
