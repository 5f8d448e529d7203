"""A prepared posterior predicts what the measure itself predicts."""

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from sklearn.linear_model import LinearRegression

from gwi.core.handover import Handover
from gwi.core.kernels import SparsePosteriorKernel, default_kernel
from gwi.core.means import ConvexMean, FixedMean, KernelMean, ModuleMean, SumMean
from gwi.core.measures import GaussianMeasure, kernel_matrix
from gwi.core.networks import mlp
from gwi.core.posterior import CachedPosterior, with_disagreement

F64 = torch.float64


def rows(num_rows, seed=0, dim=2):
    return torch.randn(num_rows, dim, dtype=F64, generator=torch.Generator().manual_seed(seed))


def covariance(num_outputs, size, seed=1):
    root = torch.randn(num_outputs, size, size, dtype=F64, generator=torch.Generator().manual_seed(seed)) / size**0.5
    return 0.3 * root @ root.mT


def every_mean(kernel, z):
    v = torch.linspace(-1, 1, 2 * len(z), dtype=F64).reshape(2, -1)
    own = KernelMean(kernel, z, v)
    other = KernelMean(MaternKernel(ard_num_dims=2).double(), rows(7, seed=3), v[:, :7])
    # In single precision a row's output depends, in its last digits, on how many rows there are.
    network = ModuleMean(mlp(2, 2, generator=torch.Generator().manual_seed(0)).double())
    line = FixedMean(LinearRegression().fit(np.eye(2), np.eye(2)))
    weights = torch.tensor([[0.2, 0.3, 0.5], [0.0, 1.0, 0.0]], dtype=F64)
    return {
        "none": None,
        "own points": own,
        "other points": other,
        "network": network,
        "sum": SumMean([own, network, line]),
        "mixture of sums": ConvexMean([SumMean([own, other]), network, line], weights),
    }


@pytest.mark.parametrize("name", every_mean(default_kernel(2), rows(10)))
@pytest.mark.parametrize("lengthscale", [1.0, 30.0], ids=["well conditioned", "ill conditioned"])
def test_prepared_marginals_are_those_of_the_measure(name, lengthscale):
    kernel = default_kernel(2, lengthscale=lengthscale).requires_grad_(False)
    z = rows(10)
    posterior = GaussianMeasure(every_mean(kernel, z)[name], SparsePosteriorKernel(kernel, z, covariance(2, 10))).requires_grad_(
        False
    )
    prepared = CachedPosterior(posterior)
    assert (prepared.basis.factor is None) == (lengthscale == 1.0)
    x = rows(50, seed=5)
    for found, wanted in zip(prepared.marginals(x), posterior.marginals(x), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(prepared.mean_at(x), posterior.mean_at(x), rtol=1e-9, atol=1e-9)


def test_batches_of_rows_have_the_joint_law_of_the_measure():
    kernel = default_kernel(2).requires_grad_(False)
    z = rows(10)
    posterior = GaussianMeasure(
        every_mean(kernel, z)["mixture of sums"], SparsePosteriorKernel(kernel, z, covariance(2, 10))
    ).requires_grad_(False)
    batches = rows(24, seed=6).reshape(2, 3, 4, 2)
    mean, joint = CachedPosterior(posterior).joint(batches)
    assert mean.shape == (2, 3, 2, 4)
    for i in range(2):
        for j in range(3):
            law = posterior(batches[i, j])
            torch.testing.assert_close(mean[i, j], law.mean, rtol=1e-9, atol=1e-9)
            torch.testing.assert_close(joint[i, j], law.covariance_matrix, rtol=1e-8, atol=1e-8)


def test_gradients_with_respect_to_rows_pass_through():
    kernel = default_kernel(2).requires_grad_(False)
    z = rows(10)
    prepared = CachedPosterior(
        GaussianMeasure(every_mean(kernel, z)["own points"], SparsePosteriorKernel(kernel, z, covariance(2, 10)))
    ).requires_grad_(False)
    x = rows(3, seed=7).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: prepared.joint(x)[1].sum() + prepared.joint(x)[0].sum(), x)


def test_a_diagonal_covariance_needs_no_decomposition_and_zero_is_one():
    kernel, z, x = default_kernel(2).requires_grad_(False), rows(10), rows(20, seed=4)
    for s in (torch.zeros(10, 10, dtype=F64), 0.25 * torch.eye(10, dtype=F64)):
        r = SparsePosteriorKernel(kernel, z, s)
        _, variance = CachedPosterior(GaussianMeasure(None, r)).marginals(x)
        torch.testing.assert_close(variance[0], r(x, diag=True))


def test_other_kernels_and_plain_functions_are_refused():
    with pytest.raises(TypeError, match="SparsePosteriorKernel"):
        CachedPosterior(GaussianMeasure(None, ScaleKernel(RBFKernel())))
    kernel = SparsePosteriorKernel(default_kernel(2), rows(3), torch.eye(3, dtype=F64))
    with pytest.raises(TypeError, match="FixedMean"):
        CachedPosterior(GaussianMeasure(lambda x: x[None, :, 0], kernel))


def test_means_that_disagree_add_their_spread_to_the_kernel():
    kernel = default_kernel(2).requires_grad_(False)
    z = rows(10)
    stack = every_mean(kernel, z)["mixture of sums"]
    posterior = GaussianMeasure(stack, SparsePosteriorKernel(kernel, z, covariance(2, 10))).requires_grad_(False)
    gamma = torch.tensor([2.0, 5.0], dtype=F64)
    whole = with_disagreement(posterior, gamma, torch.tensor([1.0, 0.5], dtype=F64))
    prepared = CachedPosterior(whole)
    x = rows(6, seed=7)
    members, mean = [part(x) for part in stack.means], stack(x)
    expected = torch.zeros(2, 6, 6, dtype=F64)
    for j in range(2):
        for k, member in enumerate(members):
            delta = member[j] - mean[j]
            expected[j] += gamma[j] * stack.weights[j, k] * torch.outer(delta, delta)
    torch.testing.assert_close(prepared.cross(prepared.at(x), prepared.at(x))[1], expected)
    found_mean, r, spread = prepared.parts(x)
    torch.testing.assert_close(found_mean, mean)
    torch.testing.assert_close(spread, expected.diagonal(dim1=1, dim2=2))
    torch.testing.assert_close(r, posterior.marginals(x)[1])
    _, joint = prepared.joint(x[None])
    wanted = torch.tensor([1.0, 0.5], dtype=F64)[:, None, None] * posterior(x).covariance_matrix + expected
    torch.testing.assert_close(joint[0], wanted, rtol=1e-8, atol=1e-8)
    # The measure itself says the same in every way it is asked.
    torch.testing.assert_close(whole(x).covariance_matrix, wanted, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(whole.kernel(x, x[:2]).to_dense(), wanted[:, :, :2], rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(whole.marginals(x)[1], wanted.diagonal(dim1=1, dim2=2), rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(prepared.marginals(x)[1], whole.marginals(x)[1], rtol=1e-8, atol=1e-8)
    # One mean that has all the weight cannot disagree with itself.
    assert (expected[1] == 0).all()


def handing_over():
    """A posterior whose kernel mean hands over to a line and a network, of which the network has no weight at home."""
    kernel, z = default_kernel(2).requires_grad_(False), rows(10)
    r = SparsePosteriorKernel(kernel, z, covariance(2, 10))
    means = every_mean(kernel, z)
    members = [means["own points"], means["sum"].means[2], means["network"]]
    weights = torch.tensor([[0.6, 0.4, 0.0], [1.0, 0.0, 0.0]], dtype=F64)
    shares = torch.tensor([[0.0, 0.3, 0.7], [0.0, 1.0, 0.0]], dtype=F64)
    known, error = torch.tensor([0.5, 0.3], dtype=F64), torch.tensor([0.2, 0.1], dtype=F64)
    handover = Handover(r, torch.tensor([True, False, False]), shares, known, error)
    return GaussianMeasure(ConvexMean(members, weights, handover), r).requires_grad_(False)


def test_weights_are_those_of_home_where_r_is_small_and_the_others_where_nothing_is_known():
    posterior = handing_over()
    mean = posterior.mean
    x = torch.cat([rows(10), 100.0 + rows(3, seed=4)])
    members = torch.stack([part(x) for part in mean.means])
    found, r = mean.handover.at(mean.weights, members, x), posterior.kernel(x, diag=True)
    for j in range(2):
        for n in range(len(x)):
            beyond = max(float(r[j, n]) - (0.5, 0.3)[j], 0.0)
            difference = float(mean.handover.shares[j] @ members[:, j, n] - members[0, j, n])
            b = beyond / (beyond + (0.2, 0.1)[j] + difference**2 / 4)
            first = float(mean.weights[j, 0])
            wanted = [first * (1 - b)] + [float(mean.weights[j, k] + b * first * mean.handover.shares[j, k]) for k in (1, 2)]
            np.testing.assert_allclose(found[:, j, n], wanted, rtol=1e-12)
            # However far the others are off, what they move is within what r adds.
            assert b * abs(difference) <= beyond**0.5
    assert torch.equal(found[:, 0, 0], mean.weights[0])
    assert (found.sum(0) - 1).abs().max() < 1e-12
    assert (found[0, :, 10:] < mean.weights[:, :1]).all()


def test_a_prepared_posterior_hands_over_as_the_measure_does():
    posterior = with_disagreement(handing_over(), torch.tensor([0.7, 1.3], dtype=F64))
    prepared = CachedPosterior(posterior)
    for x in (rows(10), rows(6, seed=5), 100.0 + rows(3, seed=4), torch.cat([rows(10), 3.0 * rows(20, seed=6)])):
        for found, wanted in zip(prepared.marginals(x), posterior.marginals(x), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(prepared.mean_at(x), posterior.mean_at(x), rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(prepared.joint(x)[1], kernel_matrix(posterior.kernel, x), rtol=1e-9, atol=1e-9)


def test_who_only_receives_is_asked_at_rows_away_from_home_and_nowhere_else():
    prepared, posterior = CachedPosterior(handing_over()), handing_over()
    home, away = rows(10), 100.0 + rows(3, seed=4)
    is_away = (posterior.kernel(home, diag=True) > torch.tensor([[0.5], [0.3]], dtype=F64)).any(0)
    network, asked = prepared.terms[2][0], []
    hook = network.register_forward_pre_hook(lambda module, given: asked.append(given[0]))
    with torch.no_grad():
        prepared.mean_at(torch.cat([home, away]))
        torch.testing.assert_close(torch.cat(asked), torch.cat([home[is_away], away]))
        asked.clear()
        prepared.mean_at(home[~is_away])
    assert asked == []
    assert 0 < is_away.sum() < 10
    hook.remove()
