"""Regularised KL and Rényi divergences are those of the values on the points, with noise added."""

import math

import gpytorch.kernels as gk
import numpy as np
import pytest
import torch

from gwi.core.divergences import regularised_kl, regularised_renyi
from gwi.core.means import FixedMean
from gwi.core.measures import GaussianMeasure, kernel_matrix

F64 = torch.float64


def regular_pair(generator, count=9):
    """P, Q and points, and both as normal laws of values on the points, with noise added: what the regularised forms compare."""
    x = torch.randn(count, 2, dtype=F64, generator=generator)
    p, q = (
        GaussianMeasure(FixedMean(lambda r, a=a: np.sin(a * r[:, 0])), k)
        for a, k in ((1.0, gk.RBFKernel()), (2.0, gk.MaternKernel()))
    )
    p, q = (GaussianMeasure(m.mean, m.kernel.double()) for m in (p, q))
    laws = []
    for measure in (p, q):
        covariance = kernel_matrix(measure.kernel, x).detach() / count + 0.01 * torch.eye(count, dtype=F64)
        laws.append(torch.distributions.MultivariateNormal(measure.mean_at(x)[0] / count**0.5, covariance))
    return p, q, x, laws


@pytest.mark.parametrize("seed", range(5))
def test_regularised_kl_is_that_of_normal_laws_with_noise(seed):
    p, q, x, (law_p, law_q) = regular_pair(torch.Generator().manual_seed(seed))
    expected = torch.distributions.kl_divergence(law_q, law_p)
    torch.testing.assert_close(regularised_kl(p, q, x, regularisation=0.01)[0].detach(), expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(
        regularised_kl(p, p, x, regularisation=0.01)[0].detach(), torch.zeros((), dtype=F64), atol=1e-12, rtol=0
    )


@pytest.mark.parametrize("order", [0.3, 0.7, 1.1])
def test_regularised_renyi_is_the_integral_that_defines_it(order):
    p, q, x, (law_p, law_q) = regular_pair(torch.Generator().manual_seed(2), count=2)
    # log ∫ q^α p^(1 − α) / (α − 1) on a grid.
    side = torch.linspace(-8, 8, 1201, dtype=F64)
    grid = torch.cartesian_prod(side, side)
    log = order * law_q.log_prob(grid) + (1 - order) * law_p.log_prob(grid)
    expected = (log.logsumexp(0) + 2 * math.log(float(side[1] - side[0]))) / (order - 1)
    found = regularised_renyi(p, q, x, order=order, regularisation=0.01)[0].detach()
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)


def test_regularised_renyi_becomes_kl_and_grows_with_its_order():
    p, q, x, _ = regular_pair(torch.Generator().manual_seed(3))
    values = [float(regularised_renyi(p, q, x, order=order, regularisation=0.01)) for order in (0.2, 0.6, 1 - 1e-6)]
    assert values == sorted(values)
    assert values[-1] == pytest.approx(float(regularised_kl(p, q, x, regularisation=0.01)), rel=1e-4)


def test_regularised_kl_grows_without_bound_where_kl_is_infinite():
    p, q, x, _ = regular_pair(torch.Generator().manual_seed(4), count=40)
    values = [float(regularised_kl(p, q, x, regularisation=gamma)) for gamma in (1e-1, 1e-3, 1e-5)]
    assert values[2] > 10 * values[1] > 0
    assert values[1] > 5 * values[0] > 0


def test_orders_and_regularisations_that_mean_nothing_are_refused():
    p, q, x, _ = regular_pair(torch.Generator().manual_seed(5))
    for order in (1.0, -0.5):
        with pytest.raises(ValueError, match="positive and not 1"):
            regularised_renyi(p, q, x, order=order, regularisation=0.01)
    with pytest.raises(ValueError, match="positive variance"):
        regularised_kl(p, q, x, regularisation=0.0)
    with pytest.raises(ValueError, match="infinite here"):
        regularised_renyi(p, q, x, order=30.0, regularisation=1e-4)
