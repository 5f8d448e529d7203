"""W₂² is a squared distance, agrees with POT and the paper's loops; the paper's estimate is biased."""

import math
from functools import partial

import gpytorch.kernels as gk
import numpy as np
import ot
import pytest
import torch

import reference
from gwi.core.divergences import (
    gaussian_wasserstein_squared,
    kl_divergence,
    wasserstein,
    wasserstein_squared,
    wasserstein_squared_two_sample,
)
from gwi.core.kernels import ShrunkenKernel, SparsePosteriorKernel, default_kernel
from gwi.core.likelihoods.gaussian import GaussianLikelihood
from gwi.core.means import FixedMean, KernelMean, ModuleMean
from gwi.core.measures import GaussianMeasure, kernel_matrix, kernel_variance
from gwi.core.objectives import generalized_loss
from gwi.exceptions import NotPositiveDefiniteError

F64 = torch.float64


def rows(num_rows, generator, num_features=2):
    return torch.randn(num_rows, num_features, dtype=F64, generator=generator)


def uniform(low, high, generator):
    return low + (high - low) * torch.rand((), dtype=F64, generator=generator)


def integer(low, high, generator):
    return int(torch.randint(low, high, (), generator=generator))


def whitened_covariance(size, generator):
    """A random S between 0 and I of random rank, the ends included."""
    basis = torch.linalg.qr(torch.randn(size, size, dtype=F64, generator=generator)).Q
    eigenvalues = torch.rand(size, dtype=F64, generator=generator)
    kind = integer(0, 4, generator)
    eigenvalues = {0: torch.zeros_like(eigenvalues), 1: torch.ones_like(eigenvalues)}.get(kind, eigenvalues)
    if kind == 2:
        eigenvalues[: size // 2] = 0
    return basis * eigenvalues @ basis.mT


def random_kernel(generator, num_features):
    bases = (
        lambda: gk.RBFKernel(ard_num_dims=num_features),
        lambda: gk.MaternKernel(nu=0.5),
        lambda: gk.MaternKernel(nu=1.5, ard_num_dims=num_features),
        lambda: gk.MaternKernel(nu=2.5),
        lambda: gk.RQKernel(),
        lambda: gk.PeriodicKernel(),
    )
    base = bases[integer(0, len(bases), generator)]().double()
    base.lengthscale = 10 ** uniform(-2, 2, generator)
    kernel = gk.ScaleKernel(base).double()
    kernel.outputscale = 10 ** uniform(-3, 3, generator)
    return kernel + gk.LinearKernel().double() if integer(0, 8, generator) == 0 else kernel


def random_points(generator, num_features):
    x = rows(integer(1, 30, generator), generator, num_features) * 10 ** uniform(-1, 1, generator)
    if integer(0, 4, generator) == 0:
        x = x[torch.randint(len(x), (len(x),), generator=generator)]
    return x


def random_mean(kernel, x, generator):
    slope = rows(x.shape[1], generator, 1)
    v = rows(1, generator, len(x[:5]))
    choices = (None, FixedMean(lambda x: (x @ slope.numpy())[:, 0]), KernelMean(kernel, x[:5], v))
    return choices[integer(0, 3, generator)]


def random_pair(seed):
    """P, Q and points: Q has its own kernel, a sparse posterior kernel of P's, or a shrunken one."""
    generator = torch.Generator().manual_seed(seed)
    num_features = integer(1, 5, generator)
    x = random_points(generator, num_features)
    k = random_kernel(generator, num_features)
    kind = integer(0, 6, generator)
    if kind == 0:
        r = random_kernel(generator, num_features)
    elif kind == 1:
        r = ShrunkenKernel(k, float(10 ** uniform(0, 3, generator)))
    else:
        num_inducing = integer(1, 1 + len(x), generator)
        near = x[torch.randperm(len(x), generator=generator)[:num_inducing]]
        z = near if kind < 5 else rows(num_inducing, generator, num_features)
        r = SparsePosteriorKernel(k, z, whitened_covariance(num_inducing, generator))
    return GaussianMeasure(random_mean(k, x, generator), k), GaussianMeasure(random_mean(k, x, generator), r), x


def scale_of(p, q, x):
    return (kernel_variance(p.kernel, x).mean() + kernel_variance(q.kernel, x).mean()).item()


@pytest.fixture(scope="module")
def pairs(thorough):
    return [random_pair(seed) for seed in range(1000 if thorough else 150)]


@torch.no_grad()
def test_distance_of_a_measure_to_itself_is_zero(pairs):
    worst = max(abs(wasserstein_squared(m, m, x).item()) / scale_of(p, q, x) for p, q, x in pairs[:100] for m in (p, q))
    assert worst <= 1e-12


@torch.no_grad()
def test_distance_of_two_measures_is_never_negative(pairs):
    lowest = min(wasserstein_squared(p, q, x).item() / scale_of(p, q, x) for p, q, x in pairs)
    assert lowest >= -1e-12


@torch.no_grad()
def test_distance_is_symmetric_and_obeys_the_triangle_inequality(pairs):
    for p, q, x in pairs[:40]:
        scale = scale_of(p, q, x)
        assert wasserstein_squared(p, q, x).item() == pytest.approx(
            wasserstein_squared(q, p, x).item(), abs=1e-12 * scale, rel=1e-12
        )
        third = GaussianMeasure(None, p.kernel)
        direct, first, second = (wasserstein(*pair, x).item() for pair in ((p, q), (p, third), (third, q)))
        assert direct <= first + second + 1e-5 * math.sqrt(scale)


@pytest.fixture(scope="module")
@torch.no_grad()
def well_conditioned(pairs):
    """A fifth of the pairs, with condition numbers up to 1e6, the smaller covariance not just rounding error of the larger."""
    found = []
    for p, q, x in pairs:
        c_p, c_q = (kernel_matrix(m.kernel, x) / len(x) for m in (p, q))
        traces = sorted([c_p.trace().item(), c_q.trace().item()])
        if traces[0] > 1e-6 * traces[1] and max(torch.linalg.cond(c_p), torch.linalg.cond(c_q)) <= 1e6:
            found.append((p, q, x, c_p, c_q))
    assert len(found) >= len(pairs) // 5
    return found[: len(pairs) // 5]


@torch.no_grad()
def test_distance_equals_pots_where_covariances_are_well_conditioned(well_conditioned):
    for p, q, x, c_p, c_q in well_conditioned:
        m_p, m_q = (m.mean_at(x)[0] / math.sqrt(len(x)) for m in (p, q))
        expected = ot.gaussian.bures_wasserstein_distance(m_p, m_q, c_p, c_q).item() ** 2
        size = scale_of(p, q, x) + (m_p - m_q).square().sum().item()
        assert abs(wasserstein_squared(p, q, x).item() - expected) <= 1e-8 * size


def reference_problem(generator, num_rows=12):
    """The same P and Q as measures and as loops."""
    lengthscale, outputscale = torch.tensor([0.8, 1.3], dtype=F64), 1.6
    x, z = rows(num_rows, generator), rows(4, generator)
    kernel = default_kernel(2, lengthscale=lengthscale, outputscale=outputscale)
    prior_mean = FixedMean(lambda x: 0.5 + 0.1 * x[:, 0])
    basis = torch.linalg.qr(rows(4, generator, 4)).Q
    r = SparsePosteriorKernel(kernel, z, basis * torch.tensor([0.9, 0.5, 0.2, 0.05], dtype=F64) @ basis.mT)
    mean = KernelMean(kernel, z, rows(1, generator, 4), prior_mean=prior_mean)
    p, q = GaussianMeasure(prior_mean, kernel), GaussianMeasure(mean, r)
    loop_k = reference.ard_kernel(lengthscale.numpy(), outputscale)
    loop_r = reference.svgp_kernel(loop_k, z.numpy(), r.covariance.detach().numpy())

    def loop_mean_p(row):
        return 0.5 + 0.1 * row[0]

    loop_mean_q = reference.svgp_mean(loop_k, z.numpy(), mean.coefficients.detach().numpy()[0], loop_mean_p)
    return p, q, x, (loop_mean_p, loop_k, loop_mean_q, loop_r)


def test_distance_equals_the_papers_closed_form_in_loops(generator):
    p, q, x, loops = reference_problem(generator)
    expected = reference.wasserstein_squared(*loops, x.numpy())
    assert wasserstein_squared(p, q, x).item() == pytest.approx(expected, rel=1e-8)


def test_the_two_sample_estimate_equals_the_papers_in_loops(generator):
    p, q, x, loops = reference_problem(generator)
    x_s = rows(5, generator)
    expected = reference.wasserstein_squared_two_sample(*loops, x.numpy(), x_s.numpy())
    assert wasserstein_squared_two_sample(p, q, x, x_s).item() == pytest.approx(expected, rel=1e-9)


def test_the_batch_loss_equals_the_papers_in_loops(generator):
    p, q, x, loops = reference_problem(generator)
    x_s, y = rows(5, generator), rows(1, generator, len(x))
    expected = reference.batch_generalized_loss(*loops, 0.3, x.numpy(), y[0].numpy(), x_s.numpy(), num_data=100)
    divergence = partial(wasserstein_squared_two_sample, comparison_points=x_s)
    loss = generalized_loss(p, q, GaussianLikelihood(0.3), x, y, num_data=100, divergence=divergence)
    assert loss.item() == pytest.approx(expected, rel=1e-10)


@torch.no_grad()
def test_the_two_sample_estimate_on_one_set_of_points_is_the_distance(well_conditioned):
    for p, q, x, _, _ in well_conditioned:
        size = scale_of(p, q, x) + (p.mean_at(x) - q.mean_at(x)).square().mean().item()
        difference = wasserstein_squared_two_sample(p, q, x, x) - wasserstein_squared(p, q, x)
        assert abs(difference.item()) <= 1e-8 * size


@torch.no_grad()
@pytest.mark.parametrize(("lengthscale", "expected"), [(2.0, 0.40), (1.0, 1.40)])
def test_the_two_sample_estimate_of_the_distance_to_itself_is_visibly_positive(lengthscale, expected, generator):
    x = rows(1000, generator, 8)
    comparison_points = rows(100, generator, 8)
    p = GaussianMeasure(None, default_kernel(8, lengthscale=lengthscale))
    biased = wasserstein_squared_two_sample(p, p, x, comparison_points).item()
    # The values of the method notes, for other rows of the same distribution.
    assert biased == pytest.approx(expected, abs=0.1)
    assert abs(wasserstein_squared(p, p, x[:300]).item()) < 1e-12


@torch.no_grad()
def test_the_two_sample_estimate_can_be_negative():
    # One comparison point where k is large stands for the spectrum of points where it is small.
    kernel = gk.LinearKernel().double()
    p = GaussianMeasure(None, kernel)
    points, comparison_points = torch.tensor([[0.1], [0.2]], dtype=F64), torch.tensor([[3.0]], dtype=F64)
    assert wasserstein_squared_two_sample(p, p, points, comparison_points).item() < -0.1
    assert wasserstein_squared(p, p, points).item() == pytest.approx(0, abs=1e-14)


def test_the_two_sample_estimate_differentiates(generator):
    p, q, x, _ = reference_problem(generator, num_rows=6)
    q.kernel.inducing_points.requires_grad_()
    x_s = rows(3, generator)
    parameters = tuple(t for t in q.parameters() if t.requires_grad)
    assert torch.autograd.gradcheck(lambda *_: wasserstein_squared_two_sample(p, q, x, x_s), parameters, atol=1e-6)


@pytest.mark.parametrize("rank", [6, 3])
def test_the_closed_form_on_vectors_equals_loops_and_pot(rank, generator):
    roots = torch.randn(2, 4, 6, rank, dtype=F64, generator=generator)
    (c_p, c_q), (m_p, m_q) = roots @ roots.mT, torch.randn(2, 4, 6, dtype=F64, generator=generator)
    actual = gaussian_wasserstein_squared(m_p, c_p, m_q, c_q)
    assert actual.shape == (4,)
    tolerance = 1e-10 if rank == 6 else 1e-5  # Roots of singular matrices have half the digits.
    for j in range(4):
        arrays = [t[j].numpy() for t in (m_p, c_p, m_q, c_q)]
        if rank == 6:
            assert actual[j].item() == pytest.approx(reference.gaussian_wasserstein_squared(*arrays), rel=tolerance)
        expected = ot.gaussian.bures_wasserstein_distance(m_p[j], m_q[j], c_p[j], c_q[j]).item() ** 2
        assert actual[j].item() == pytest.approx(expected, rel=tolerance)


def test_the_closed_form_on_vectors_is_the_distance_of_commuting_covariances_and_of_points():
    m = torch.tensor([1.0, 2.0], dtype=F64)
    a, b = torch.diag(torch.tensor([4.0, 0.0], dtype=F64)), torch.diag(torch.tensor([1.0, 9.0], dtype=F64))
    zero = torch.zeros(2, 2, dtype=F64)
    assert gaussian_wasserstein_squared(m, a, m, b).item() == pytest.approx((2 - 1) ** 2 + (0 - 3) ** 2)
    assert gaussian_wasserstein_squared(m, zero, 0 * m, zero).item() == pytest.approx(5.0)
    with pytest.raises(NotPositiveDefiniteError, match="covariance of Q"):
        gaussian_wasserstein_squared(m, a, m, -b)


@torch.no_grad()
def test_the_closed_form_on_vectors_is_the_distance_of_measures_times_n(generator):
    p, q, x, _ = reference_problem(generator)
    law_p, law_q = p(x), q(x)
    expected = gaussian_wasserstein_squared(law_p.mean, law_p.covariance_matrix, law_q.mean, law_q.covariance_matrix) / len(x)
    torch.testing.assert_close(wasserstein_squared(p, q, x), expected, rtol=1e-7, atol=0)


def test_kl_is_that_of_the_inducing_values(generator):
    p, q, _, _ = reference_problem(generator)
    z = q.kernel.inducing_points
    with torch.no_grad():
        prior = torch.distributions.MultivariateNormal(p.mean_at(z), kernel_matrix(p.kernel, z))
        posterior = torch.distributions.MultivariateNormal(q.mean_at(z), kernel_matrix(q.kernel, z))
        expected = torch.distributions.kl_divergence(posterior, prior)
        torch.testing.assert_close(kl_divergence(p, q), expected, rtol=1e-9, atol=0)
        laws = [t[0].numpy() if t.ndim > 2 else t.reshape(-1).numpy() for t in (prior.mean, prior.covariance_matrix)]
        laws += [t[0].numpy() if t.ndim > 2 else t.reshape(-1).numpy() for t in (posterior.mean, posterior.covariance_matrix)]
        laws = [a.reshape(4, 4) if a.size == 16 else a for a in laws]
        assert kl_divergence(p, q).item() == pytest.approx(reference.kl_divergence(*laws), rel=1e-8)


def test_kl_of_the_prior_to_itself_is_zero_and_of_a_degenerate_posterior_infinite(generator):
    kernel, z = default_kernel(2), rows(4, generator)
    p, mean = GaussianMeasure(None, kernel), KernelMean(kernel, z, torch.zeros(1, 4, dtype=F64))
    same = GaussianMeasure(mean, SparsePosteriorKernel(kernel, z, torch.eye(4, dtype=F64)))
    degenerate = GaussianMeasure(mean, SparsePosteriorKernel(kernel, z, torch.zeros(4, 4, dtype=F64)))
    assert kl_divergence(p, same).item() == pytest.approx(0, abs=1e-14)
    assert kl_divergence(p, degenerate).item() == math.inf


def test_kl_of_several_outputs_is_that_of_each(generator):
    kernel, z = default_kernel(2), rows(4, generator)
    p, v = GaussianMeasure(None, kernel), rows(3, generator, 4)
    s = torch.stack([c * torch.eye(4, dtype=F64) for c in (0.2, 0.5, 0.9)])
    together = kl_divergence(p, GaussianMeasure(KernelMean(kernel, z, v), SparsePosteriorKernel(kernel, z, s)))
    for j in range(3):
        alone = GaussianMeasure(KernelMean(kernel, z, v[j : j + 1]), SparsePosteriorKernel(kernel, z, s[j]))
        torch.testing.assert_close(together[j : j + 1], kl_divergence(p, alone))


def test_kl_to_a_network_mean_or_to_another_kernel_is_refused(generator):
    kernel, z = default_kernel(2), rows(4, generator)
    p, r = GaussianMeasure(None, kernel), SparsePosteriorKernel(kernel, z, torch.eye(4, dtype=F64))
    v = torch.zeros(1, 4, dtype=F64)
    network = ModuleMean(torch.nn.Linear(2, 1).double())
    with pytest.raises(
        ValueError, match=r"infinite unless.*got mean ModuleMean, kernel SparsePosteriorKernel.*wasserstein_squared"
    ):
        kl_divergence(p, GaussianMeasure(network, r))
    singular = (
        GaussianMeasure(KernelMean(kernel, z, v), kernel),
        GaussianMeasure(KernelMean(kernel, z + 1, v), r),
        GaussianMeasure(KernelMean(default_kernel(2), z, v), r),
        GaussianMeasure(KernelMean(kernel, z, v, prior_mean=lambda x: x[:, 0][None]), r),
    )
    for q in singular:
        with pytest.raises(ValueError, match="infinite unless"):
            kl_divergence(p, q)


@torch.no_grad()
def test_the_unsquared_distance_is_the_root(pairs):
    for p, q, x in pairs[:50]:
        squared = wasserstein_squared(p, q, x).clamp_min(0)
        torch.testing.assert_close(wasserstein(p, q, x), squared.sqrt(), rtol=1e-12, atol=0)


def test_the_unsquared_distance_has_a_finite_gradient_at_zero(generator):
    kernel, x = default_kernel(2), rows(10, generator)
    p = GaussianMeasure(None, kernel)
    wasserstein(p, p, x).sum().backward()
    assert all(torch.isfinite(t.grad).all() for t in kernel.parameters())
    assert max(t.grad.abs().max().item() for t in kernel.parameters()) < 1e-6


@torch.no_grad()
def test_outputs_together_are_outputs_one_by_one(generator):
    x, z = rows(15, generator), rows(5, generator)
    batch = torch.Size([3])
    kernels = gk.ScaleKernel(gk.RBFKernel(batch_shape=batch), batch_shape=batch).double()
    lengthscales, outputscales = (0.5, 1.0, 2.0), (1.0, 3.0, 0.2)
    kernels.base_kernel.lengthscale = torch.tensor(lengthscales, dtype=F64)[:, None, None]
    kernels.outputscale = torch.tensor(outputscales, dtype=F64)
    s = torch.stack([whitened_covariance(5, generator) for _ in range(3)])
    v = rows(3, generator, 5)
    p = GaussianMeasure(None, kernels)
    q = GaussianMeasure(KernelMean(kernels, z, v), SparsePosteriorKernel(kernels, z, s))
    divergences = (wasserstein_squared, wasserstein, partial(wasserstein_squared_two_sample, comparison_points=x[:6]))
    together = [divergence(p, q, x) for divergence in divergences]
    for j in range(3):
        single = default_kernel(2, lengthscale=lengthscales[j], outputscale=outputscales[j])
        q_j = GaussianMeasure(KernelMean(single, z, v[j : j + 1]), SparsePosteriorKernel(single, z, s[j]))
        for divergence, values in zip(divergences, together, strict=True):
            assert values.shape == (3,)
            alone = divergence(GaussianMeasure(None, single), q_j, x)
            torch.testing.assert_close(values[j : j + 1], alone, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("rank", [4, 2, 0])
def test_gradients_of_the_distance_match_finite_differences(rank, generator):
    x, z = rows(7, generator), rows(4, generator)
    kernel = default_kernel(2, lengthscale=0.8)
    s = torch.diag((torch.arange(4) < rank).to(F64) * 0.3)
    r = SparsePosteriorKernel(kernel, z, s)
    mean = KernelMean(kernel, r.inducing_points, rows(1, generator, 4))
    p, q = GaussianMeasure(None, kernel), GaussianMeasure(mean, r)
    r.inducing_points.requires_grad_()
    r.whitened_factor.requires_grad_(rank == 4)
    parameters = tuple(t for t in q.parameters() if t.requires_grad)
    assert torch.autograd.gradcheck(lambda *_: wasserstein_squared(p, q, x), parameters, atol=1e-6, rtol=1e-4)


def test_the_gradient_vanishes_at_the_minimum(generator):
    # Q = P minimises W₂² over S; the gradient there is zero, not NaN.
    x, kernel = rows(20, generator), default_kernel(2)
    r = SparsePosteriorKernel(kernel, x[:5], torch.eye(5, dtype=F64))
    r.whitened_factor.requires_grad_()
    value = wasserstein_squared(GaussianMeasure(None, kernel), GaussianMeasure(None, r), x)
    value.sum().backward()
    assert abs(value.item()) < 1e-12
    assert r.whitened_factor.grad.abs().max() < 1e-6


def test_translation_of_a_measure_is_at_the_distance_of_the_means(generator):
    x, kernel = rows(20, generator), default_kernel(2)
    p, q = GaussianMeasure(None, kernel), GaussianMeasure(FixedMean(lambda x: np.full(len(x), 3.0)), kernel)
    assert wasserstein_squared(p, q, x).item() == pytest.approx(9.0, rel=1e-12)
