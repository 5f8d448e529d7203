"""Means give what the paper's sums, dense GP algebra, the network or the predictor gives."""

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from sklearn.ensemble import RandomForestRegressor
from torch import nn

import reference
from gwi.core.kernels import SparsePosteriorKernel, default_kernel
from gwi.core.means import ConvexMean, FixedMean, KernelMean, ModuleMean, SumMean, titsias_coefficients, wasserstein_coefficients
from gwi.core.measures import GaussianMeasure, kernel_matrix
from gwi.core.objectives import mean_loss
from gwi.core.row_sums import row_sums

F64 = torch.float64


def data(num_rows, generator, num_outputs=1):
    x = torch.randn(num_rows, 2, dtype=F64, generator=generator)
    y = torch.sin(2 * x[:, 0]) + 0.3 * torch.randn(num_outputs, num_rows, dtype=F64, generator=generator)
    return x, y


def seeded(network, generator):
    """The network with weights from the generator rather than from torch's global one."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(0, 0.5, generator=generator)
    return network


@pytest.mark.parametrize("num_outputs", [1, 3])
def test_a_kernel_mean_is_the_papers_sum_of_basis_functions(num_outputs, kernel, reference_kernel, generator):
    x, _ = data(12, generator)
    v = torch.randn(num_outputs, 5, dtype=F64, generator=generator)
    mean = KernelMean(kernel, x[:5], v)
    values, beta = mean(x).detach().numpy(), mean.coefficients.detach().numpy()
    assert values.shape == (num_outputs, 12)
    for j in range(num_outputs):
        m = reference.svgp_mean(reference_kernel, x[:5].numpy(), beta[j])
        np.testing.assert_allclose(values[j], [m(row) for row in x.numpy()], rtol=1e-10)


def test_a_kernel_mean_is_added_to_the_prior_mean(kernel, generator):
    x, _ = data(12, generator)
    v = torch.randn(1, 5, dtype=F64, generator=generator)
    without, with_prior = KernelMean(kernel, x[:5], v), KernelMean(kernel, x[:5], v, prior_mean=lambda x: 2 + x[:, 1][None])
    torch.testing.assert_close(with_prior(x), without(x) + 2 + x[:, 1])


def test_each_output_may_have_its_own_kernel(generator):
    kernels = ScaleKernel(RBFKernel(batch_shape=torch.Size([2])), batch_shape=torch.Size([2])).double()
    kernels.base_kernel.lengthscale = torch.tensor([[[0.5]], [[2.0]]], dtype=F64)
    kernels.outputscale = torch.tensor([1.0, 3.0], dtype=F64)
    x, _ = data(9, generator)
    v = torch.randn(2, 4, dtype=F64, generator=generator)
    values = KernelMean(kernels, x[:4], v)(x)
    for j, (lengthscale, outputscale) in enumerate([(0.5, 1.0), (2.0, 3.0)]):
        single = KernelMean(default_kernel(2, lengthscale=lengthscale, outputscale=outputscale), x[:4], v[j : j + 1])
        torch.testing.assert_close(values[j : j + 1], single(x))


def test_titsias_coefficients_give_the_sparse_gp_posterior_mean(kernel, reference_kernel, generator):
    x, y = data(40, generator)
    new, _ = data(7, generator)
    v = titsias_coefficients(row_sums(kernel, x[:8], x, y, noise_variance=0.09))
    values = KernelMean(kernel, x[:8], v)(new).detach().numpy()[0]
    expected = reference.titsias_mean(reference_kernel, x[:8].numpy(), x.numpy(), y[0].numpy(), 0.09, new.numpy())
    np.testing.assert_allclose(values, expected, rtol=1e-8, atol=1e-10)


def test_titsias_coefficients_on_all_rows_give_the_exact_gp_posterior_mean(kernel, reference_kernel, generator):
    x, y = data(25, generator)
    new, _ = data(7, generator)
    v = titsias_coefficients(row_sums(kernel, x, x, y, noise_variance=0.09))
    values = KernelMean(kernel, x, v)(new).detach().numpy()[0]
    expected = reference.gp_posterior_mean(reference_kernel, x.numpy(), y[0].numpy(), 0.09, new.numpy())
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-6)


def test_titsias_coefficients_weigh_each_row_by_its_own_noise(kernel, generator):
    x, y = data(30, generator)
    noise = torch.rand(30, dtype=F64, generator=generator) + 0.05
    v = titsias_coefficients(row_sums(kernel, x[:6], x, y, noise_variance=noise))
    # A row with half the noise variance counts as the same row twice.
    twice, y_twice = torch.cat([x, x]), torch.cat([y, y], dim=1)
    doubled = titsias_coefficients(row_sums(kernel, x[:6], twice, y_twice, noise_variance=torch.cat([2 * noise, 2 * noise])))
    torch.testing.assert_close(v, doubled, rtol=1e-9, atol=1e-11)


def test_coefficients_of_several_outputs_are_those_of_each(kernel, generator):
    x, y = data(30, generator, num_outputs=3)
    together = titsias_coefficients(row_sums(kernel, x[:6], x, y, noise_variance=0.1))
    for j in range(3):
        alone = titsias_coefficients(row_sums(kernel, x[:6], x, y[j : j + 1], noise_variance=0.1))
        torch.testing.assert_close(together[j : j + 1], alone)


@pytest.mark.parametrize("constant_noise", [True, False])
def test_wasserstein_coefficients_solve_the_least_squares_problem(constant_noise, kernel, generator):
    x, y = data(40, generator)
    noise = torch.full((40,), 0.2, dtype=F64) if constant_noise else torch.rand(40, dtype=F64, generator=generator) + 0.1
    beta = 3.0
    z = x[:7]
    v = wasserstein_coefficients(row_sums(kernel, z, x, y, noise_variance=noise), row_sums(kernel, z, x), beta, jitter=0.0)
    values = KernelMean(kernel, z, v)(x).detach()
    # Σ (y − m)²/2σ² + β mean m² as one least-squares problem in the paper's coefficients.
    basis = kernel_matrix(kernel, x, z).detach()
    design = torch.cat([basis / (2 * noise).sqrt()[:, None], basis * (beta / 40) ** 0.5])
    target = torch.cat([y[0] / (2 * noise).sqrt(), torch.zeros(40, dtype=F64)])
    expected = basis @ torch.linalg.lstsq(design, target[:, None], driver="gelsd").solution[:, 0]
    torch.testing.assert_close(values[0], expected, rtol=1e-7, atol=1e-9)


def test_wasserstein_coefficients_are_stationary_for_the_mean_loss(kernel, generator):
    x, y = data(40, generator, num_outputs=2)
    prior = GaussianMeasure(None, kernel)
    v = wasserstein_coefficients(row_sums(kernel, x[:7], x, y, noise_variance=0.2), row_sums(kernel, x[:7], x), 3.0)
    mean = KernelMean(kernel, x[:7], v)
    mean_loss(prior, mean, 0.2, x, y, num_data=40, divergence_weight=3.0).backward()
    assert mean.whitened_coefficients.grad.abs().max() < 1e-9


def test_wasserstein_coefficients_exist_with_more_basis_functions_than_rows(kernel, generator):
    x, y = data(30, generator)
    few, y_few = x[:10], y[:, :10]
    v = wasserstein_coefficients(row_sums(kernel, x, few, y_few, noise_variance=1e-4), row_sums(kernel, x, few), 1.0)
    torch.testing.assert_close(KernelMean(kernel, x, v)(few), y_few, rtol=0, atol=1e-2)


def test_gradients_reach_coefficients_inducing_points_and_hyperparameters(kernel, generator):
    x, _ = data(5, generator)
    mean = KernelMean(kernel, x[:3], torch.randn(2, 3, dtype=F64, generator=generator))
    mean.inducing_points.requires_grad_()
    assert torch.autograd.gradcheck(lambda *_: mean(x), tuple(mean.parameters()))


def test_a_kernel_mean_shares_the_inducing_points_of_a_posterior_kernel(kernel, generator):
    x, _ = data(5, generator)
    r = SparsePosteriorKernel(kernel, x[:3], torch.eye(3, dtype=F64))
    mean = KernelMean(kernel, r.inducing_points, torch.zeros(1, 3, dtype=F64))
    assert mean.inducing_points is r.inducing_points
    assert not mean.inducing_points.requires_grad
    apart = KernelMean(kernel, x, torch.zeros(1, 5, dtype=F64))
    apart.inducing_points.data.add_(1.0)
    assert not torch.equal(apart.inducing_points, x)


@pytest.mark.parametrize("num_outputs", [1, 3])
def test_a_float32_network_stands_beside_float64_rows(num_outputs, generator):
    network = seeded(nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, num_outputs)), generator)
    x, _ = data(6, generator)
    values = ModuleMean(network)(x)
    assert values.shape == (num_outputs, 6)
    assert values.dtype == F64
    torch.testing.assert_close(values, network(x.float()).mT.double(), rtol=0, atol=0)
    values.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in network.parameters())


def test_a_network_may_return_one_number_a_row(generator):
    class Flat(nn.Linear):
        def forward(self, x):
            return super().forward(x)[:, 0]

    x, _ = data(6, generator)
    network = seeded(Flat(2, 1), generator).double()
    assert ModuleMean(network)(x).shape == (1, 6)
    torch.testing.assert_close(ModuleMean(network, prior_mean=lambda x: x[:, 0][None])(x)[0], network(x) + x[:, 0])


def test_a_module_without_parameters_keeps_the_dtype_of_the_rows(generator):
    x, _ = data(6, generator)
    assert torch.equal(ModuleMean(nn.Identity())(x), x.mT)


@pytest.mark.parametrize("shape", [(5,), (6, 2, 1), (5, 6), ()])
def test_a_predictor_of_the_wrong_shape_is_an_error_that_says_what_came(shape, generator):
    class Wrong(nn.Module):
        def forward(self, x):
            return torch.zeros(shape, dtype=F64)

    x, _ = data(6, generator)
    for mean in (ModuleMean(Wrong()), FixedMean(lambda x: np.zeros(shape))):
        with pytest.raises(ValueError, match=r"each of the 6 input rows; got shape \(" + ", ".join(map(str, shape))):
            mean(x)


def test_a_scikit_learn_model_is_a_fixed_mean(generator):
    x, y = data(50, generator)
    forest = RandomForestRegressor(n_estimators=5, random_state=0).fit(x.numpy(), y[0].numpy())
    values = FixedMean(forest.predict)(x.clone().requires_grad_())
    assert values.shape == (1, 50)
    assert not values.requires_grad
    np.testing.assert_allclose(values[0].numpy(), forest.predict(x.numpy()))


@pytest.mark.parametrize(
    "predict",
    [
        lambda x: x[:, 0] + 1,
        lambda x: x[:, :1] + 1,
        lambda x: (x[:, 0] + 1).tolist(),
        lambda x: (x[:, 0] + 1)[::-1][::-1],
        lambda x: (x[::-1, 0] + 1)[::-1],
        lambda x: torch.as_tensor(x)[:, 0] + 1,
    ],
    ids=["vector", "column", "list", "view", "negative stride", "tensor"],
)
def test_any_callable_is_a_fixed_mean(predict, generator):
    x, _ = data(6, generator)
    assert torch.equal(FixedMean(predict)(x), x[:, 0][None] + 1)


def test_a_fixed_mean_may_have_several_outputs_and_any_number_type(generator):
    x, _ = data(6, generator)
    values = FixedMean(lambda x: np.stack([x[:, 0] > 0, x[:, 1] > 0, x[:, 0] > 9], axis=1).astype(np.int32))(x)
    assert values.shape == (3, 6)
    assert values.dtype == F64


def test_a_sum_of_means_is_their_sum(kernel, generator):
    x, _ = data(6, generator)
    first, second = KernelMean(kernel, x, torch.ones(1, 6, dtype=F64)), FixedMean(lambda x: x[:, 0])
    total = SumMean([first, second])
    torch.testing.assert_close(total(x), first(x) + second(x))
    assert first.whitened_coefficients in set(total.parameters())


def test_a_convex_mean_weighs_its_parts(generator):
    x, _ = data(6, generator)
    mean = ConvexMean([FixedMean(lambda x: x[:, 0]), FixedMean(lambda x: x[:, 1])], torch.tensor([0.25, 0.75], dtype=F64))
    torch.testing.assert_close(mean(x)[0], 0.25 * x[:, 0] + 0.75 * x[:, 1])
    assert "weights" in mean.state_dict()


@pytest.mark.parametrize("weights", [[0.5, 0.6], [1.5, -0.5], [1.0], [0.2, 0.3, 0.5], [float("nan"), 1.0]])
def test_weights_that_are_not_convex_are_an_error_that_shows_them(weights):
    means = [FixedMean(lambda x: x[:, 0]), FixedMean(lambda x: x[:, 1])]
    with pytest.raises(ValueError, match=r"2 means needs as many weights, none negative, that sum to 1; got \["):
        ConvexMean(means, torch.tensor(weights, dtype=F64))
