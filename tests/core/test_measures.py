"""Any GPyTorch kernel is a prior, and a measure gives the joint law that its mean and kernel say."""

import math
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import gpytorch.kernels as gk
import numpy as np
import pytest
import torch
from gpytorch.distributions import MultivariateNormal

import reference
from gwi.core.kernels import SparsePosteriorKernel, default_kernel
from gwi.core.means import FixedMean, ModuleMean
from gwi.core.measures import GaussianMeasure, kernel_factor, kernel_matrix, kernel_variance
from gwi.exceptions import NotPositiveDefiniteError

F64 = torch.float64
THREE = torch.Size([3])

PRIOR_KERNELS = {
    "rbf": lambda: gk.RBFKernel(),
    "ard rbf": lambda: gk.ScaleKernel(gk.RBFKernel(ard_num_dims=2)),
    "matern 1/2": lambda: gk.MaternKernel(nu=0.5),
    "matern 3/2": lambda: gk.MaternKernel(nu=1.5),
    "matern 5/2": lambda: gk.ScaleKernel(gk.MaternKernel(nu=2.5, ard_num_dims=2)),
    "periodic": lambda: gk.PeriodicKernel(),
    "rational quadratic": lambda: gk.ScaleKernel(gk.RQKernel()),
    "linear": lambda: gk.LinearKernel(),
    "polynomial": lambda: gk.PolynomialKernel(power=2),
    "one feature": lambda: gk.RBFKernel(active_dims=[1]),
    "sum": lambda: gk.ScaleKernel(gk.RBFKernel()) + gk.LinearKernel(),
    "product": lambda: gk.RBFKernel() * gk.PeriodicKernel(),
    "sum of products": lambda: gk.ScaleKernel(gk.MaternKernel() * gk.LinearKernel()) + gk.RQKernel(),
}
BATCHES_OF_KERNELS = {
    "rbf": lambda: gk.ScaleKernel(gk.RBFKernel(batch_shape=THREE, ard_num_dims=2), batch_shape=THREE),
    "matern": lambda: gk.ScaleKernel(gk.MaternKernel(nu=1.5, batch_shape=THREE), batch_shape=THREE),
    "periodic": lambda: gk.ScaleKernel(gk.PeriodicKernel(batch_shape=THREE), batch_shape=THREE),
    "rational quadratic": lambda: gk.RQKernel(batch_shape=THREE),
    "linear": lambda: gk.LinearKernel(batch_shape=THREE),
    "sum": lambda: gk.ScaleKernel(gk.RBFKernel(), batch_shape=THREE) + gk.LinearKernel(),
}


def randomised(kernel, generator):
    """A float64 kernel with every raw hyper-parameter moved, so that the entries of a batch differ."""
    kernel = kernel.double()
    with torch.no_grad():
        for parameter in kernel.parameters():
            parameter.add_(0.5 * torch.randn(parameter.shape, dtype=F64, generator=generator))
    return kernel


def rows(num_rows, generator, num_features=2):
    return torch.randn(num_rows, num_features, dtype=F64, generator=generator)


def assert_is_a_joint_law(measure, x, num_outputs):
    law = measure(x)
    num_rows = x.shape[0]
    assert isinstance(law, MultivariateNormal)
    assert law.mean.shape == (num_outputs, num_rows)
    assert law.covariance_matrix.shape == (num_outputs, num_rows, num_rows)
    assert law.rsample(torch.Size([4])).shape == (4, num_outputs, num_rows)
    mean, variance = measure.marginals(x)
    assert mean.shape == variance.shape == (num_outputs, num_rows)
    assert (variance >= 0).all()
    prior_kernel = getattr(measure.kernel, "prior_kernel", measure.kernel)
    tolerance = {"rtol": 0, "atol": 1e-11 * kernel_variance(prior_kernel, x).mean().item()}
    torch.testing.assert_close(law.mean, mean, rtol=0, atol=0)
    torch.testing.assert_close(law.covariance_matrix.diagonal(dim1=-2, dim2=-1), variance, **tolerance)
    expected = kernel_matrix(measure.kernel, x).expand(num_outputs, num_rows, num_rows)
    torch.testing.assert_close(law.covariance_matrix, expected, **tolerance)


@pytest.mark.parametrize("name", PRIOR_KERNELS)
def test_any_gpytorch_kernel_is_a_prior(name, generator):
    kernel, x = randomised(PRIOR_KERNELS[name](), generator), rows(25, generator)
    assert_is_a_joint_law(GaussianMeasure(None, kernel), x, 1)
    posterior = SparsePosteriorKernel(kernel, x[:6], 0.3 * torch.eye(6, dtype=F64))
    assert_is_a_joint_law(GaussianMeasure(None, posterior), x, 1)


@pytest.mark.parametrize("name", BATCHES_OF_KERNELS)
def test_a_batch_of_kernels_is_a_prior_of_as_many_outputs(name, generator):
    kernel, x = randomised(BATCHES_OF_KERNELS[name](), generator), rows(25, generator)
    prior = GaussianMeasure(None, kernel)
    assert_is_a_joint_law(prior, x, 3)
    assert_is_a_joint_law(GaussianMeasure(None, SparsePosteriorKernel(kernel, x[:6], 0.3 * torch.eye(6, dtype=F64))), x, 3)


@pytest.mark.parametrize("num_rows", [1, 2])
def test_one_row_has_a_law_too(num_rows, generator):
    kernel, x = default_kernel(2), rows(num_rows, generator)
    assert_is_a_joint_law(GaussianMeasure(None, kernel), x, 1)
    assert_is_a_joint_law(
        GaussianMeasure(None, SparsePosteriorKernel(kernel, x, torch.zeros(num_rows, num_rows, dtype=F64))), x, 1
    )


def test_the_default_kernel_is_the_papers(generator):
    lengthscale, x = torch.tensor([0.3, 1.7], dtype=F64), rows(7, generator)
    kernel = default_kernel(2, lengthscale=lengthscale, outputscale=2.5)
    expected = reference.matrix(reference.ard_kernel(lengthscale.numpy(), 2.5), x.numpy(), x[:4].numpy())
    np.testing.assert_allclose(kernel_matrix(kernel, x, x[:4]).detach().numpy(), expected, rtol=1e-13)


def test_a_prior_mean_shifts_the_law_and_leaves_the_covariance(generator):
    kernel, x = default_kernel(2), rows(10, generator)
    shifted = GaussianMeasure(FixedMean(lambda x: 3 + x[:, 0]), kernel)
    assert_is_a_joint_law(shifted, x, 1)
    torch.testing.assert_close(shifted(x).mean[0], 3 + x[:, 0])
    torch.testing.assert_close(shifted(x).covariance_matrix, GaussianMeasure(None, kernel)(x).covariance_matrix)


def test_one_kernel_serves_all_outputs_of_a_mean(generator):
    x = rows(8, generator)
    network = torch.nn.Linear(2, 4).double()
    torch.nn.init.normal_(network.weight, generator=generator)
    measure = GaussianMeasure(ModuleMean(network), default_kernel(2))
    assert_is_a_joint_law(measure, x, 4)


def test_a_measure_without_a_mean_has_mean_zero(generator):
    x = rows(5, generator)
    assert torch.equal(GaussianMeasure(None, default_kernel(2)).mean_at(x), torch.zeros(1, 5, dtype=F64))
    batch = BATCHES_OF_KERNELS["rbf"]().double()
    assert torch.equal(GaussianMeasure(None, batch).mean_at(x), torch.zeros(3, 5, dtype=F64))


def test_a_mean_of_the_wrong_shape_is_an_error_that_names_the_remedy(generator):
    measure = GaussianMeasure(lambda x: x[:, 0], default_kernel(2))
    with pytest.raises(ValueError, match=r"\(J, 5\) here; got \(5,\).*ModuleMean"):
        measure(rows(5, generator))


def test_a_measure_without_a_kernel_is_an_error_that_names_one():
    with pytest.raises(TypeError, match="default_kernel"):
        GaussianMeasure(None)


def test_samples_have_the_mean_and_covariance_of_their_law(generator):
    kernel, x = default_kernel(2), rows(4, generator)
    r = SparsePosteriorKernel(kernel, x[:2], torch.diag(torch.tensor([0.2, 0.9], dtype=F64)))
    law = GaussianMeasure(FixedMean(lambda x: x[:, 1]), r)(x)
    noise = torch.randn(200_000, 1, 4 + 2, dtype=F64, generator=generator)
    # A rectangular factor takes as many normals as it has columns; the law is the same.
    samples = (law.mean[:, None] + noise.movedim(1, 0) @ law.lazy_covariance_matrix.root.to_dense().mT)[0]
    torch.testing.assert_close(samples.mean(0), law.mean[0], rtol=0, atol=0.01)
    torch.testing.assert_close(torch.cov(samples.mT), law.covariance_matrix[0], rtol=0, atol=0.02)


def test_samples_of_a_degenerate_law_stay_on_its_support(generator):
    # S = 0: nothing is left uncertain at Z, and nothing at a duplicate of a row of Z.
    z = rows(5, generator)
    measure = GaussianMeasure(None, SparsePosteriorKernel(default_kernel(2), z, torch.zeros(5, 5, dtype=F64)))
    samples = measure(torch.cat([z, z])).rsample(torch.Size([100]))
    assert samples.abs().max() < 1e-5


def test_a_kernel_that_is_not_positive_is_a_typed_error(generator):
    # cos ‖x − x'‖ is a kernel on the line only.
    measure = GaussianMeasure(None, gk.CosineKernel().double())
    with pytest.raises(NotPositiveDefiniteError, match=r"k\(X, X\) \(20 × 20, float64\).*lowest eigenvalue -"):
        measure(rows(20, generator))


@pytest.mark.parametrize("lengthscale", [1e-6, 1e-3, 0.05, 1.0, 1e3])
@pytest.mark.parametrize("needs_gradient", [False, True])
def test_equal_rows_have_the_same_values_however_short_the_lengthscale(lengthscale, needs_gradient, generator):
    x = rows(30, generator).add(100.0)
    x = torch.cat([x, x]).requires_grad_(needs_gradient)
    for base in (gk.RBFKernel(ard_num_dims=2), gk.MaternKernel(nu=0.5), gk.RQKernel()):
        kernel = base.double()
        kernel.lengthscale = torch.tensor(lengthscale, dtype=F64)
        k = kernel_matrix(kernel, x).detach()
        torch.testing.assert_close(k.diagonal(), torch.ones(60, dtype=F64), rtol=0, atol=1e-15)
        torch.testing.assert_close(k[:30, 30:].diagonal(), torch.ones(30, dtype=F64), rtol=0, atol=1e-14)
        torch.testing.assert_close(kernel_variance(kernel, x).detach(), torch.ones(60, dtype=F64), rtol=0, atol=1e-15)
        assert torch.linalg.eigvalsh(k).min() > -1e-13


@pytest.mark.filterwarnings("error::linear_operator.utils.warnings.NumericalWarning")
@pytest.mark.parametrize("outputscale", [1e-10, 1.0, 1e12])
def test_sums_and_products_are_those_of_their_terms(outputscale, generator):
    # GPyTorch adds a linear kernel by way of a Cholesky factor of the other term, with an absolute jitter, or fails.
    x = rows(30, generator)
    smooth, linear = gk.ScaleKernel(gk.RBFKernel()).double(), gk.LinearKernel().double()
    smooth.base_kernel.lengthscale = torch.tensor(100.0, dtype=F64)
    smooth.outputscale = linear.variance = torch.tensor(outputscale, dtype=F64)
    a, b = kernel_matrix(smooth, x).detach(), kernel_matrix(linear, x).detach()
    constant = gk.ConstantKernel().double()
    c = kernel_matrix(constant, x).detach()
    combinations = {
        "sum": (smooth + linear, a + b),
        "product": (smooth * linear, a * b),
        "nested": ((smooth + linear) * (linear + constant), (a + b) * (b + c)),
        "scaled": (gk.ScaleKernel(smooth + linear).double(), math.log(2) * (a + b)),
    }
    for kernel, expected in combinations.values():
        tolerance = {"rtol": 0, "atol": 1e-14 * expected.abs().max().item()}
        torch.testing.assert_close(kernel_matrix(kernel, x).detach(), expected, **tolerance)
        torch.testing.assert_close(kernel_matrix(kernel, x[:3], x).detach(), expected[:3], **tolerance)
        torch.testing.assert_close(kernel_variance(kernel, x).detach(), expected.diagonal(), **tolerance)


def test_evaluating_a_kernel_leaves_it_as_it_was(generator):
    kernel, broken = PRIOR_KERNELS["sum of products"]().double(), gk.ScaleKernel(gk.RBFKernel(ard_num_dims=5)).double()
    kernel_matrix(kernel, rows(3, generator))
    with pytest.raises(RuntimeError):
        kernel_matrix(broken, rows(3, generator))
    changed = {"covar_dist", "forward"}
    assert all(changed.isdisjoint(vars(part)) for part in (*kernel.modules(), *broken.modules()))


@pytest.mark.parametrize("base", [gk.RBFKernel, gk.MaternKernel, gk.RQKernel, gk.PeriodicKernel], ids=lambda base: base.__name__)
@pytest.mark.parametrize("lengthscale", [0.05, 2.0])
def test_distances_differentiate_in_inputs_and_lengthscale(base, lengthscale, generator):
    # Short and long: the two ways in which distances are computed.
    kernel = base().double()
    kernel.lengthscale = torch.tensor(lengthscale, dtype=F64)
    x1 = (lengthscale * rows(4, generator)).requires_grad_()
    x2 = (lengthscale * rows(3, generator)).requires_grad_()
    inputs = (x1, x2, *kernel.parameters())
    assert torch.autograd.gradcheck(lambda *_: kernel_matrix(kernel, x1, x2), inputs, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("base", [gk.RBFKernel, gk.MaternKernel, gk.RQKernel], ids=lambda base: base.__name__)
def test_gradients_at_coinciding_rows_are_finite(base, generator):
    kernel, x = base().double(), rows(3, generator)
    x = torch.cat([x, x]).requires_grad_()
    kernel_matrix(kernel, x).square().sum().backward()
    assert torch.isfinite(x.grad).all()
    assert torch.isfinite(kernel.raw_lengthscale.grad).all()


def test_the_factor_of_a_kernel_is_its_own_where_it_has_one(generator):
    kernel, x = default_kernel(2), rows(9, generator)
    assert kernel_factor(kernel, x).shape == (9, 9)
    assert kernel_factor(SparsePosteriorKernel(kernel, x[:2], torch.eye(2, dtype=F64)), x).shape == (9, 11)


@pytest.mark.parametrize("name", ["scaled", "sum"])
def test_threads_that_share_a_kernel_of_some_columns_get_the_same_matrix(name):
    parts = [gk.ScaleKernel(gk.RBFKernel(active_dims=[1, 2])), gk.RBFKernel(active_dims=[0])]
    kernel = (parts[0] if name == "scaled" else gk.AdditiveKernel(*parts)).to(F64).requires_grad_(False)
    x = torch.randn(60, 5, dtype=F64, generator=torch.Generator().manual_seed(0))
    wanted, together = kernel_matrix(kernel, x), Barrier(8)

    def ask(_):
        together.wait()
        return all(
            torch.equal(kernel_matrix(kernel, x), wanted) and torch.allclose(kernel_variance(kernel, x), wanted.diagonal())
            for _ in range(40)
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(8)))
