"""Half a matrix product says what the whole measure says, where its digits are enough; elsewhere another form is taken."""

import copy
import math
import pickle

import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, RQKernel

from gwi.core.kernels import SparsePosteriorKernel, default_kernel
from gwi.core.linalg import cholesky, cholesky_solve, solve_lower
from gwi.core.means import ConstantMean, ConvexMean, KernelMean, SumMean
from gwi.core.measures import GaussianMeasure, kernel_matrix
from gwi.core.posterior import CachedPosterior, with_disagreement

F64 = torch.float64
SHAPES = {
    "rbf": (RBFKernel, {}),
    "matern32": (MaternKernel, {"nu": 1.5}),
    "matern12": (MaternKernel, {"nu": 0.5}),
    "rq": (RQKernel, {}),
}


def rows(num_rows, seed=0, dim=2):
    return torch.randn(num_rows, dim, dtype=F64, generator=torch.Generator().manual_seed(seed))


def exact(kernel, x, noise):
    """The posterior of a Gaussian process given sin of the first column at x: Titsias' S and coefficients at Z = X."""
    k_zz = kernel_matrix(kernel, x)
    phi = solve_lower(cholesky(k_zz).factor, k_zz)
    factor = cholesky(torch.eye(len(x), dtype=F64) + phi @ phi.mT / noise).factor
    s = cholesky_solve(factor, torch.eye(len(x), dtype=F64))
    v = cholesky_solve(factor, phi @ torch.sin(2 * x[:, :1]) / noise).mT
    return GaussianMeasure(KernelMean(kernel, x, v), SparsePosteriorKernel(kernel, x, (s + s.mT) / 2)).requires_grad_(False)


def agree(posterior, x, tolerance=1e-10):
    """Whether a prepared posterior says what the measure itself says, in units of k, in one call and row by row."""
    prepared = CachedPosterior(posterior)
    with torch.no_grad():
        mean, variance = prepared.marginals(x)
        wanted_mean, wanted = posterior.marginals(x)
        alone = torch.cat([prepared.marginals(row)[1] for row in x.split(1)], dim=1)
    level = float(posterior.kernel.prior_kernel(x[:1], diag=True))
    assert (variance - wanted).abs().max() <= tolerance * level
    assert (mean - wanted_mean).abs().max() <= tolerance * (1 + wanted_mean.abs().max())
    assert (alone - variance).abs().max() <= 1e-12 * level
    assert variance.min() >= 0
    return prepared


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("noise", [1e-6, 1e-2, 0.5])
@pytest.mark.parametrize("lengthscale", [1e-3, 0.3, 1.0, 30.0, 1e4])
def test_half_a_product_is_as_good_as_the_whole_measure(shape, noise, lengthscale):
    kind, arguments = SHAPES[shape]
    kernel = default_kernel(2, lengthscale=lengthscale, outputscale=1.7, shape=kind, **arguments).requires_grad_(False)
    x = rows(60)
    x[30:33] = x[:3]
    # At the rows themselves, two of them equal, beside them, among them, and far from all.
    asked = torch.cat([x[:5], x[:5] + 1e-4, rows(10, seed=1), rows(3, seed=2) + 1e3])
    prepared = agree(exact(kernel, x, noise), asked)
    if noise >= 1e-2 or lengthscale <= 0.3:
        # With noise that counts K + σ² is well-conditioned, and K need not be.
        assert prepared.products is not None


def test_many_points_are_multiplied_by_blocks_and_many_rows_by_chunks():
    kernel = default_kernel(2, lengthscale=0.5).requires_grad_(False)
    posterior = exact(kernel, rows(700), 0.1)
    prepared = agree(posterior, rows(20, seed=1))
    assert len(prepared.products.blocks) > 4
    assert len(prepared.products.blocks_for_few) == 2
    x = rows(3 * prepared.products.chunk_rows + 1, seed=3)
    with torch.no_grad():
        whole, parts = prepared.parts(x), [prepared.parts(some) for some in x.split(100)]
    for found, wanted in zip(whole, zip(*parts, strict=True), strict=True):
        torch.testing.assert_close(found, torch.cat(wanted, dim=1), rtol=0, atol=1e-13)


def test_where_digits_are_short_rows_are_whitened_and_multiplied_by_chunks_too():
    kernel = default_kernel(2, lengthscale=10.0, outputscale=1.7).requires_grad_(False)
    posterior = exact(kernel, rows(200), 1e-4)
    prepared = agree(posterior, rows(20, seed=1), 1e-9)
    assert prepared.products.factor is not None
    x = rows(prepared.products.chunk_rows + 1, seed=3)
    with torch.no_grad():
        for found, wanted in zip(prepared.marginals(x), posterior.marginals(x), strict=True):
            torch.testing.assert_close(found, wanted, rtol=0, atol=1e-9)
        torch.testing.assert_close(prepared.mean_at(x), posterior.mean_at(x), rtol=0, atol=1e-9)


def test_variances_of_mixed_rows_leave_the_solve_out_where_only_the_mean_needs_it():
    kernel = default_kernel(6, lengthscale=10.0, outputscale=200.0).requires_grad_(False)
    x = torch.randn(120, 6, dtype=F64, generator=torch.Generator().manual_seed(0))
    prepared = CachedPosterior(exact(kernel, x, 1e-2))
    asked = torch.cat([x[:20], x[:20] + 0.01, 2 * x[:40], x[:3] + 1e3])
    with torch.no_grad():
        whole, nearly = prepared.variance(asked), prepared.variance(asked, nearly=True)
        assert prepared.products.factor is not None
        assert prepared.nearly.factor is None
        assert not torch.equal(whole, nearly)
        torch.testing.assert_close(nearly, whole, rtol=0, atol=200 * 1e-10)
    # Where the variance needs the solve, too, there is no other way.
    prepared = CachedPosterior(exact(default_kernel(2, lengthscale=10.0).requires_grad_(False), rows(200), 1e-6))
    assert prepared.products.factor is not None
    assert prepared.nearly is None


@pytest.mark.parametrize("num_outputs", [1, 3])
@pytest.mark.parametrize("kind", ["zero", "one number", "diagonal", "any", "above the prior"])
def test_every_covariance_has_its_root(num_outputs, kind):
    kernel, z = default_kernel(2).requires_grad_(False), rows(12)
    root = torch.randn(num_outputs, 12, 12, dtype=F64, generator=torch.Generator().manual_seed(1)) / 12**0.5
    s = {
        "zero": torch.zeros(num_outputs, 12, 12, dtype=F64),
        "one number": torch.linspace(0.2, 0.7, num_outputs, dtype=F64)[:, None, None] * torch.eye(12, dtype=F64),
        "diagonal": torch.diag_embed(torch.linspace(0.1, 0.9, 12 * num_outputs, dtype=F64).reshape(num_outputs, 12)),
        "any": 0.2 * root @ root.mT,
        "above the prior": 3 * root @ root.mT,
    }[kind]
    v = torch.linspace(-1, 1, 12 * num_outputs, dtype=F64).reshape(num_outputs, 12)
    posterior = GaussianMeasure(KernelMean(kernel, z, v), SparsePosteriorKernel(kernel, z, s)).requires_grad_(False)
    prepared = agree(posterior, torch.cat([z[:4], rows(20, seed=4)]))
    assert prepared.products is not None
    assert prepared.products.is_lower == (kind in ("zero", "one number", "diagonal"))
    assert prepared.products.is_upper == (kind == "any")
    # Joint laws come from the same root.
    x = rows(5, seed=5)
    torch.testing.assert_close(prepared.joint(x)[1], posterior(x).covariance_matrix, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(
        prepared.cross(prepared.at(x), prepared.at(x))[0], kernel_matrix(posterior.kernel, x), rtol=1e-9, atol=1e-9
    )


def test_what_a_covariance_leaves_is_no_less_than_it_leaves_everywhere():
    kernel, z = default_kernel(2, lengthscale=3.0).requires_grad_(False), rows(40)
    s = 1e-13 * torch.eye(40, dtype=F64)
    r = CachedPosterior(GaussianMeasure(None, SparsePosteriorKernel(kernel, z, s)).requires_grad_(False))
    with torch.no_grad():
        assert r.marginals(z)[1].min() >= 1e-13 * 0.999


def test_means_on_the_kernel_at_another_scale_share_its_values():
    kernel, z = default_kernel(2).requires_grad_(False), rows(15)
    other, far = copy.deepcopy(kernel), default_kernel(2, lengthscale=0.4).requires_grad_(False)
    other.outputscale = torch.tensor(5.0, dtype=F64)
    v = torch.linspace(-1, 1, 15, dtype=F64)[None]
    line = LinearKernel().double().requires_grad_(False)
    members = [
        SumMean([KernelMean(kernel, z, v), KernelMean(other, z, v.flip(-1)), ConstantMean(torch.ones(1, dtype=F64))]),
        KernelMean(far, z, v),
        SumMean([KernelMean(far, z, 2 * v), KernelMean(line, z[:2], v[:, :2])]),
    ]
    stack = ConvexMean(members, torch.tensor([[0.5, 0.2, 0.3]], dtype=F64))
    r = SparsePosteriorKernel(kernel, z, 0.3 * torch.eye(15, dtype=F64))
    posterior = with_disagreement(GaussianMeasure(stack, r).requires_grad_(False), torch.ones(1, dtype=F64))
    prepared = CachedPosterior(posterior)
    # k on Z; the shorter kernel for two members; the linear one.
    assert prepared.shares_basis == [True, False, False]
    assert [group.members for group in prepared.groups] == [[False, True, True], [False, False, True]]
    x = rows(30, seed=6)
    with torch.no_grad():
        for found, wanted in zip(prepared.marginals(x), posterior.marginals(x), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(prepared.mean_at(x), posterior.mean_at(x), rtol=1e-10, atol=1e-10)


def test_gradients_take_the_other_way_and_find_the_same():
    posterior = exact(default_kernel(2).requires_grad_(False), rows(20), 0.1)
    prepared, x = CachedPosterior(posterior).requires_grad_(False), rows(4, seed=1).requires_grad_()
    mean, variance, _ = prepared.parts(x)
    (mean.sum() + variance.sum()).backward()
    assert torch.isfinite(x.grad).all()
    assert x.grad.abs().max() > 0
    with torch.no_grad():
        torch.testing.assert_close(prepared.parts(x)[1], variance, rtol=1e-11, atol=1e-12)


def test_a_prepared_posterior_can_be_copied_and_pickled():
    prepared = CachedPosterior(exact(default_kernel(2).requires_grad_(False), rows(20), 0.1))
    x = rows(9, seed=1)
    with torch.no_grad():
        wanted = prepared.parts(x)
        for found in (copy.deepcopy(prepared), pickle.loads(pickle.dumps(prepared))):
            assert all(torch.equal(a, b) for a, b in zip(found.parts(x), wanted, strict=True))


def test_one_point_is_enough():
    kernel = default_kernel(1, lengthscale=1.0).requires_grad_(False)
    posterior = exact(kernel, torch.zeros(1, 1, dtype=F64), 0.5)
    with torch.no_grad():
        found = CachedPosterior(posterior).marginals(torch.tensor([[0.0], [1.0]], dtype=F64))[1]
    torch.testing.assert_close(found, 1 - torch.tensor([[1.0, math.exp(-1.0)]], dtype=F64) / 1.5)
