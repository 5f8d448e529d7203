"""A Gaussian measure given observations is the one of the textbook, in whatever order they come."""

import pytest
import torch

from gwi.core.conditioning import conditioned, prepared
from gwi.core.covariance import titsias_covariance
from gwi.core.kernels import SparsePosteriorKernel, default_kernel
from gwi.core.likelihoods.softmax_mode import softmax_mode
from gwi.core.means import ConvexMean, FixedMean, KernelMean, titsias_coefficients
from gwi.core.measures import GaussianMeasure, kernel_matrix
from gwi.core.posterior import CachedPosterior, with_disagreement
from gwi.core.row_sums import row_sums

F64 = torch.float64


def rows(count, seed=0):
    return torch.randn(count, 2, dtype=F64, generator=torch.Generator().manual_seed(seed))


def stack():
    """Two outputs, two means that disagree, a factor on r."""
    kernel, z = default_kernel(2).requires_grad_(False), rows(9)
    means = [FixedMean(lambda x: x), FixedMean(lambda x: x**2)]
    root = torch.randn(2, 9, 9, dtype=F64, generator=torch.Generator().manual_seed(3)) / 9
    mean = ConvexMean(means, torch.tensor([[0.3, 0.7], [0.5, 0.5]], dtype=F64))
    q = GaussianMeasure(mean, SparsePosteriorKernel(kernel, z, root @ root.mT)).requires_grad_(False)
    return with_disagreement(q, torch.tensor([2.0, 0.5], dtype=F64), torch.tensor([1.0, 0.4], dtype=F64))


def textbook(q, x, y, noise, new):
    together = torch.cat([x, new])
    mean, joint = q.mean_at(together), kernel_matrix(q.kernel, together)
    n = len(x)
    gain = torch.linalg.solve(joint[:, :n, :n] + torch.diag_embed(noise), joint[:, :n, n:]).mT
    shift = (gain @ (y - mean[:, :n])[..., None])[..., 0]
    return mean[:, n:] + shift, joint[:, n:, n:] - gain @ joint[:, :n, n:]


@pytest.mark.parametrize("sizes", [(12,), (5, 7), (1,) * 12], ids=str)
def test_observing_is_the_textbooks_conditioning_in_any_number_of_steps(sizes):
    q, x, new = stack(), rows(12, 1), rows(6, 2)
    y, noise = torch.stack([x.sum(1), x.prod(1)]), 0.05 + torch.rand(2, 12, dtype=F64)
    found = CachedPosterior(q)
    for part in torch.arange(12).split(sizes):
        found = conditioned(found, x[part], y[:, part], noise[:, part])
    mean, covariance = textbook(q, x, y, noise, new)
    for got, wanted in zip(found.joint(new), (mean, covariance), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(found.mean_at(new), mean, rtol=1e-8, atol=1e-8)
    # The measure, its marginals, and the same measure made ready again say so too.
    for other in (found, prepared(found.posterior)):
        torch.testing.assert_close(other.marginals(new)[1], covariance.diagonal(dim1=1, dim2=2), rtol=1e-8, atol=1e-8)
        batches = torch.stack([new[:3], new[3:]])
        torch.testing.assert_close(other.joint(batches)[1][1], covariance[:, 3:, 3:], rtol=1e-8, atol=1e-8)
    law = found.posterior(new)
    torch.testing.assert_close(law.mean, mean, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(law.covariance_matrix, covariance, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(found.posterior.marginals(new)[1], covariance.diagonal(dim1=1, dim2=2), rtol=1e-8, atol=1e-8)
    _, left, rest = found.parts(new)
    assert (left >= 0).all()
    assert (rest >= 0).all()


def test_an_exact_gp_given_more_rows_is_the_gp_of_all_rows():
    kernel, x, y = default_kernel(2).requires_grad_(False), rows(40), rows(40, 5)[:, 0][None]
    noise, new = 0.1, rows(7, 6)

    def gp(seen):
        sums = row_sums(kernel, x[seen], x[seen], y[:, seen], noise_variance=noise)
        mean = KernelMean(kernel, x[seen], titsias_coefficients(sums)).requires_grad_(False)
        return CachedPosterior(GaussianMeasure(mean, SparsePosteriorKernel(kernel, x[seen], titsias_covariance(sums))))

    whole, part = gp(slice(40)), gp(slice(25))
    updated = conditioned(part, x[25:], y[:, 25:], torch.full((1, 15), noise, dtype=F64))
    for got, wanted in zip(updated.joint(new), whole.joint(new), strict=True):
        torch.testing.assert_close(got, wanted.reshape(got.shape), rtol=1e-8, atol=1e-8)


def test_gradients_pass_through_observations():
    kernel, z = default_kernel(2).requires_grad_(False), rows(8)
    q = GaussianMeasure(None, SparsePosteriorKernel(kernel, z, 0.1 * torch.eye(8, dtype=F64)[None])).requires_grad_(False)
    found = conditioned(CachedPosterior(q), rows(4, 1), rows(4, 1)[:, :1].mT, torch.full((1, 4), 0.1, dtype=F64))
    x = rows(3, 7).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: found.joint(x)[1].sum() + found.joint(x)[0].sum(), x)


def test_observed_labels_move_the_mean_to_the_mode():
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(3, 6, 6, dtype=F64, generator=generator)
    mean, q = torch.randn(3, 6, dtype=F64, generator=generator), root @ root.mT
    labels = torch.eye(3, dtype=F64)[torch.tensor([0, 1, 2, 0, 1, 1])].mT
    weight, scale = torch.tensor([1.0, 2, 1, 1, 3, 1], dtype=F64), 1.7
    target, variance = softmax_mode(mean, q, labels, weight, scale)
    a = torch.linalg.solve(q + torch.diag_embed(variance), (target - mean)[..., None])
    mode = mean + (q @ a)[..., 0]
    # Where the gradient of the likelihood is that of the Gaussian.
    torch.testing.assert_close(a[..., 0], scale * weight * (labels - (scale * mode).softmax(0)), rtol=1e-6, atol=1e-6)
    assert (variance >= 4 / (scale**2 * weight) - 1e-9).all()
