"""Kernels of Q: r is the paper's, lies between zero and k, and differentiates in Z, S and the hyper-parameters."""

import gpytorch.kernels as gk
import numpy as np
import pytest
import torch
from torch import nn

import reference
from gwi.core.kernels import FeatureKernel, ShrunkenKernel, SparsePosteriorKernel, default_kernel, residual_variance
from gwi.core.measures import GaussianMeasure, kernel_factor, kernel_matrix, kernel_variance
from gwi.exceptions import NotPositiveDefiniteError

F64 = torch.float64


def rows(num_rows, generator):
    return torch.randn(num_rows, 2, dtype=F64, generator=generator)


def covariance(size, generator, *batch):
    """A random S with eigenvalues between zero and one, some near the ends."""
    basis = torch.linalg.qr(torch.randn(*batch, size, size, dtype=F64, generator=generator)).Q
    eigenvalues = torch.rand(*batch, 1, size, dtype=F64, generator=generator).pow(3)
    return basis * eigenvalues @ basis.mT


def seeded(network, generator):
    """The network with weights from the generator rather than from torch's global one."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(0, 0.5, generator=generator)
    return network


def assert_close(actual, expected, atol=1e-11):
    torch.testing.assert_close(torch.as_tensor(actual), torch.as_tensor(expected), rtol=0, atol=atol, check_dtype=True)


@pytest.mark.parametrize("num_outputs", [None, 3])
def test_the_sparse_posterior_kernel_is_the_papers(num_outputs, kernel, reference_kernel, generator):
    x, new, z = rows(6, generator), rows(4, generator), rows(5, generator)
    batch = () if num_outputs is None else (num_outputs,)
    r = SparsePosteriorKernel(kernel, z, covariance(5, generator, *batch))
    sigma = r.covariance.detach().reshape(-1, 5, 5).numpy()
    square, cross = kernel_matrix(r, x).detach(), kernel_matrix(r, x, new).detach()
    variance = kernel_variance(r, x).detach()
    assert square.shape == (*batch, 6, 6)
    assert cross.shape == (*batch, 6, 4)
    assert variance.shape == (*batch, 6)
    for j, sigma_j in enumerate(sigma):
        expected = reference.svgp_kernel(reference_kernel, z.numpy(), sigma_j)
        assert_close(square.reshape(-1, 6, 6)[j], reference.matrix(expected, x.numpy(), x.numpy()))
        assert_close(cross.reshape(-1, 6, 4)[j], reference.matrix(expected, x.numpy(), new.numpy()))
        assert_close(variance.reshape(-1, 6)[j], np.array([expected(row, row) for row in x.numpy()]))


def test_a_batch_of_prior_kernels_gives_each_output_its_own_posterior(generator):
    kernels = gk.ScaleKernel(gk.RBFKernel(batch_shape=torch.Size([2]), ard_num_dims=2), batch_shape=torch.Size([2])).double()
    lengthscales, outputscales = torch.tensor([[[0.5, 1.0]], [[2.0, 0.7]]], dtype=F64), torch.tensor([1.0, 3.0], dtype=F64)
    kernels.base_kernel.lengthscale, kernels.outputscale = lengthscales, outputscales
    x, z, s = rows(6, generator), rows(4, generator), covariance(4, generator, 2)
    for shared in (False, True):
        r = SparsePosteriorKernel(kernels, z, s[0] if shared else s)
        for j in range(2):
            single = default_kernel(2, lengthscale=lengthscales[j, 0], outputscale=float(outputscales[j]))
            expected = SparsePosteriorKernel(single, z, s[0] if shared else s[j])
            assert_close(kernel_matrix(r, x)[j], kernel_matrix(expected, x))
            assert_close(kernel_variance(r, x)[j], kernel_variance(expected, x))
            both = kernel_factor(r, x)[j], kernel_factor(expected, x)
            assert_close(both[0] @ both[0].mT, both[1] @ both[1].mT)


def test_the_whitened_covariance_is_the_papers_in_other_coordinates(kernel, generator):
    z, s = rows(5, generator), covariance(5, generator)
    r = SparsePosteriorKernel(kernel, z, s)
    factor = torch.linalg.cholesky(kernel_matrix(kernel, z))
    assert_close(r.whitened_covariance, s)
    assert_close(factor.mT @ r.covariance @ factor, s, atol=1e-9)


def test_the_identity_gives_the_prior_back(kernel, generator):
    x, z = rows(20, generator), rows(6, generator)
    r = SparsePosteriorKernel(kernel, z, torch.eye(6, dtype=F64))
    assert_close(kernel_matrix(r, x), kernel_matrix(kernel, x), atol=1e-13)
    assert_close(kernel_variance(r, x), kernel_variance(kernel, x), atol=1e-13)


def test_zero_gives_the_nystroem_residual(kernel, reference_kernel, generator):
    x, z = rows(20, generator), rows(6, generator)
    r = SparsePosteriorKernel(kernel, z, torch.zeros(6, 6, dtype=F64))
    k_xz, k_zz = kernel_matrix(kernel, x, z), kernel_matrix(kernel, z)
    assert_close(kernel_matrix(r, x), kernel_matrix(kernel, x) - k_xz @ torch.linalg.inv(k_zz) @ k_xz.mT)
    assert_close(kernel_variance(r, z), torch.zeros(6, dtype=F64), atol=1e-13)


def test_z_need_not_be_many_or_distinct(kernel, generator):
    x = rows(20, generator)
    one = SparsePosteriorKernel(kernel, x[:1], torch.zeros(1, 1, dtype=F64))
    twice = SparsePosteriorKernel(kernel, torch.cat([x[:1], x[:1]]), torch.zeros(2, 2, dtype=F64))
    assert_close(kernel_matrix(one, x), kernel_matrix(twice, x), atol=1e-12)
    every = SparsePosteriorKernel(kernel, x, torch.zeros(20, 20, dtype=F64))
    assert kernel_variance(every, x).max() < 1e-11


@pytest.mark.parametrize("base", ["rbf", "matern", "rational quadratic", "periodic", "linear", "sum"])
def test_the_posterior_variance_lies_between_zero_and_the_priors(base, generator):
    prior = {
        "rbf": gk.RBFKernel(),
        "matern": gk.MaternKernel(nu=0.5),
        "rational quadratic": gk.RQKernel(),
        "periodic": gk.PeriodicKernel(),
        "linear": gk.LinearKernel(),
        "sum": gk.RBFKernel() + gk.LinearKernel(),
    }[base].double()
    x, z = rows(60, generator), rows(10, generator)
    upper = kernel_variance(prior, x)
    for s in (torch.zeros(10, 10, dtype=F64), torch.eye(10, dtype=F64), covariance(10, generator)):
        variance = kernel_variance(SparsePosteriorKernel(prior, z, s), x)
        assert (variance >= 0).all()
        assert (variance <= upper * (1 + 1e-12) + 1e-13).all()


def lowest_residual(kernel, z, x):
    """The lowest eigenvalue and the lowest variance of k(X, X) − ΦᵀΦ, as computed."""
    r = SparsePosteriorKernel(kernel, z, torch.zeros(len(z), len(z), dtype=F64))
    features = r.features(x)
    residual = kernel_matrix(kernel, x) - features.mT @ features
    return min(torch.linalg.eigvalsh(residual).min().item(), residual.diagonal().min().item())


@torch.no_grad()
@pytest.mark.parametrize("lengthscale", [0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0])
def test_what_z_leaves_unexplained_is_never_negative_however_singular_k_zz(lengthscale):
    # Rows on a line and a smooth kernel: k(Z, Z) is singular to working precision at every length-scale but the shortest.
    kernel = default_kernel(2, lengthscale=lengthscale)
    for seed in range(20):
        x = torch.randn(64, 1, dtype=F64, generator=torch.Generator().manual_seed(seed)) * torch.tensor([[1.0, 3.0]], dtype=F64)
        assert lowest_residual(kernel, x[::2], x) > -1e-13


@torch.no_grad()
@pytest.mark.parametrize("separation", [1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4])
def test_what_z_leaves_unexplained_is_never_negative_when_inducing_points_nearly_coincide(separation):
    # Two points a hair apart are a derivative, which extrapolates, and extrapolates the rounding errors.
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        pairs, x = rows(6, generator), 2 * rows(20, generator)
        z = torch.cat([pairs, pairs + separation * rows(6, generator)])
        for kernel in (default_kernel(2, lengthscale=3.0), (gk.RQKernel() + gk.LinearKernel()).double()):
            assert lowest_residual(kernel, z, torch.cat([x, z])) > -1e-13 * kernel_variance(kernel, x).mean().item()


@pytest.mark.parametrize("num_outputs", [None, 3])
def test_the_factor_times_its_transpose_is_the_matrix(num_outputs, kernel, generator):
    x, z = rows(15, generator), rows(5, generator)
    batch = () if num_outputs is None else (num_outputs,)
    for s in (covariance(5, generator, *batch), torch.zeros(*batch, 5, 5, dtype=F64)):
        r = SparsePosteriorKernel(kernel, z, s)
        factor = kernel_factor(r, torch.cat([x, z]))
        assert_close(factor @ factor.mT, kernel_matrix(r, torch.cat([x, z])), atol=1e-12)


def test_gradients_reach_inducing_points_covariance_and_hyperparameters(kernel, generator):
    x, z = rows(5, generator), rows(3, generator)
    r = SparsePosteriorKernel(kernel, z, covariance(3, generator))
    r.inducing_points.requires_grad_()
    r.whitened_factor.requires_grad_()
    parameters = tuple(r.parameters())
    assert len(parameters) == 4
    assert torch.autograd.gradcheck(lambda *_: kernel_variance(r, x), parameters)
    assert torch.autograd.gradcheck(lambda *_: kernel_matrix(r, x, x[:2]), parameters)
    assert torch.autograd.gradcheck(lambda *_: r.factor(x), parameters)


@pytest.mark.parametrize(
    "prior", [gk.MaternKernel(nu=2.5), gk.RQKernel(), gk.PeriodicKernel(), gk.RBFKernel() + gk.LinearKernel()]
)
def test_gradients_match_finite_differences_for_other_priors(prior, generator):
    x, z = rows(5, generator), rows(3, generator)
    r = SparsePosteriorKernel(prior.double(), z, covariance(3, generator))
    r.inducing_points.requires_grad_()
    assert torch.autograd.gradcheck(lambda *_: kernel_variance(r, x), tuple(p for p in r.parameters() if p.requires_grad))


def test_gradients_are_finite_at_inducing_points_that_are_data_and_duplicates(kernel, generator):
    x = rows(12, generator)
    x = torch.cat([x, x[:4]])
    r = SparsePosteriorKernel(kernel, x[[0, 1, 2, 12, 13]], torch.zeros(5, 5, dtype=F64))
    r.inducing_points.requires_grad_()
    r.whitened_factor.requires_grad_()
    for value in (kernel_variance(r, x).sum(), kernel_factor(r, x).square().sum()):
        assert all(torch.isfinite(g).all() for g in torch.autograd.grad(value, tuple(r.parameters())))


def test_inducing_points_are_fixed_until_asked_and_are_a_copy(kernel, generator):
    z = rows(3, generator)
    r = SparsePosteriorKernel(kernel, z, torch.eye(3, dtype=F64))
    assert not r.inducing_points.requires_grad
    assert not r.whitened_factor.requires_grad
    r.inducing_points.data.zero_()
    assert (z != 0).all()


def test_a_covariance_that_does_not_fit_is_an_error_that_says_what_came(kernel, generator):
    with pytest.raises(ValueError, match=r"4 inducing points need a whitened covariance of 4 × 4; got \(3, 3\)"):
        SparsePosteriorKernel(kernel, rows(4, generator), torch.eye(3, dtype=F64))
    with pytest.raises(NotPositiveDefiniteError, match=r"whitened covariance S \(4 × 4, float64\) has eigenvalue -1"):
        SparsePosteriorKernel(kernel, rows(4, generator), -torch.eye(4, dtype=F64))


def test_our_kernels_add_multiply_and_scale_like_gpytorchs(kernel, generator):
    x, z = rows(9, generator), rows(4, generator)
    r = SparsePosteriorKernel(kernel, z, covariance(4, generator))
    matrix, k = kernel_matrix(r, x), kernel_matrix(kernel, x)
    scaled = gk.ScaleKernel(r).double()
    scaled.outputscale = torch.tensor(0.25, dtype=F64)
    for combined, expected in ((scaled, 0.25 * matrix), (r + kernel, matrix + k), (r * kernel, matrix * k)):
        assert_close(kernel_matrix(combined, x), expected)
        assert_close(kernel_variance(combined, x), expected.diagonal())
        assert GaussianMeasure(None, combined)(x).covariance_matrix.shape == (1, 9, 9)


def test_the_residual_variance_is_what_the_features_leave(kernel, generator):
    x, z = rows(9, generator), rows(4, generator)
    r = SparsePosteriorKernel(kernel, z, torch.zeros(4, 4, dtype=F64))
    assert_close(residual_variance(kernel, x, r.features(x)), kernel_variance(r, x), atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_feature_kernel_is_the_kernel_of_the_features(dtype, generator):
    x, new = rows(7, generator), rows(3, generator)
    network = seeded(nn.Sequential(nn.Linear(2, 6), nn.Tanh()), generator).to(dtype)
    base = gk.ScaleKernel(gk.RBFKernel()).double()
    kernel = FeatureKernel(base, network)
    features, new_features = network(x.to(dtype)).double(), network(new.to(dtype)).double()
    assert_close(kernel_matrix(kernel, x), kernel_matrix(base, features), atol=1e-14)
    assert_close(kernel_matrix(kernel, x, new), kernel_matrix(base, features, new_features), atol=1e-14)
    assert_close(kernel_variance(kernel, x), kernel_variance(base, features), atol=1e-14)
    matrix = kernel_matrix(kernel, x)
    assert_close(matrix, matrix.mT, atol=1e-15)
    matrix.square().sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in kernel.parameters())


def test_a_feature_kernel_takes_any_function_and_batches_with_its_base(generator):
    x = rows(7, generator)
    base = gk.RBFKernel(batch_shape=torch.Size([3])).double()
    kernel = FeatureKernel(base, lambda x: x.square())
    assert kernel.batch_shape == (3,)
    assert_close(kernel_matrix(kernel, x), kernel_matrix(base, x.square()), atol=1e-14)
    posterior = SparsePosteriorKernel(kernel, x[:3], torch.eye(3, dtype=F64))
    assert_close(kernel_matrix(posterior, x), kernel_matrix(kernel, x), atol=1e-13)


def test_rows_with_equal_features_are_one_point_to_a_feature_kernel(generator):
    x = rows(7, generator)
    kernel = FeatureKernel(gk.RBFKernel().double(), lambda x: x.square())
    r = SparsePosteriorKernel(kernel, x, torch.zeros(7, 7, dtype=F64))
    assert kernel_variance(r, -x).max() < 1e-12


@pytest.mark.parametrize("varies", [False, True])
def test_the_shrunken_kernel_is_the_prior_divided_by_a(varies, kernel, generator):
    x, new = rows(7, generator), rows(3, generator)

    def shrinkage(x):
        return 2 + x[:, 0].square() if varies else torch.full((len(x),), 2.5, dtype=F64)

    shrunken = ShrunkenKernel(kernel, shrinkage if varies else 2.5)
    a = shrinkage(x)
    assert_close(kernel_matrix(shrunken, x, new), kernel_matrix(kernel, x, new) / a[:, None] / shrinkage(new), atol=1e-14)
    assert_close(kernel_variance(shrunken, x), kernel_variance(kernel, x) / a.square(), atol=1e-14)
    factor = kernel_factor(shrunken, x)
    assert_close(factor @ factor.mT, kernel_matrix(shrunken, x), atol=1e-13)


def test_the_shrunken_kernel_does_not_know_where_the_data_are(kernel, generator):
    x = 100 * rows(50, generator)
    assert_close(kernel_variance(ShrunkenKernel(kernel, 3.0), x), torch.full((50,), 1.7 / 9, dtype=F64), atol=1e-14)
    r = SparsePosteriorKernel(kernel, x[:5], torch.zeros(5, 5, dtype=F64))
    assert kernel_variance(r, x[:5]).max() < 1e-12 < kernel_variance(r, 3 * x).max()


def test_default_scales_are_the_typical_distance_and_one():
    kernel = default_kernel(9)
    assert_close(kernel.base_kernel.lengthscale, torch.full((1, 9), 3.0, dtype=F64), atol=1e-14)
    assert kernel.outputscale.item() == 1.0
    assert {p.dtype for p in kernel.parameters()} == {F64}
    assert default_kernel(3, lengthscale=1e-9).base_kernel.lengthscale.tolist()[0] == pytest.approx([1e-9] * 3, rel=1e-13)
