"""W₂² on more and more points approaches that of the Mercer spectrum."""

import math

import gpytorch.kernels as gk
import numpy as np
import pytest
import torch

from gwi.core.divergences import wasserstein_squared
from gwi.core.kernels import default_kernel
from gwi.core.measures import GaussianMeasure

F64 = torch.float64


class SquaredOperatorKernel(gk.Kernel):
    """∫ k(x, t) k(t, x') dN(t | 0, s²) for the RBF kernel k of one input: the kernel of C_P²."""

    def __init__(self, lengthscale, input_std):
        super().__init__()
        self.half_square, self.input_variance = lengthscale**2 / 2, input_std**2

    def forward(self, x1, x2, diag=False, **_):
        a, b = (x1[..., 0], x2[..., 0]) if diag else (x1, x2.mT)
        # (x − t)² + (x' − t)² = 2 (t − m)² + (x − x')²/2 with m the midpoint: a Gaussian in t.
        variance = self.half_square + self.input_variance
        midpoint = (a + b) / 2
        exponent = -(a - b).square() / (8 * self.half_square) - midpoint.square() / (2 * variance)
        return math.sqrt(self.half_square / variance) * exponent.exp()


def mercer_eigenvalues(lengthscale, input_std, num=400):
    """λ_i = √(2a/A) Bⁱ of the RBF kernel under N(0, s²) (Rasmussen and Williams 2006, section 4.3.1)."""
    a, b = 1 / (4 * input_std**2), 1 / (2 * lengthscale**2)
    big_a = a + b + math.sqrt(a * a + 2 * a * b)
    return math.sqrt(2 * a / big_a) * (b / big_a) ** np.arange(num)


@torch.no_grad()
@pytest.mark.parametrize("lengthscale", [0.3, 1.0])
def test_the_distance_on_points_approaches_that_of_the_mercer_spectrum(lengthscale, generator):
    eigenvalues = mercer_eigenvalues(lengthscale, 1.0)
    assert eigenvalues.sum() == pytest.approx(1.0)  # tr C_P = k(x, x)
    # C_Q = C_P² has the same eigenfunctions, so W₂² = Σ (√λ − √λ²)².
    exact = ((np.sqrt(eigenvalues) - eigenvalues) ** 2).sum()
    p = GaussianMeasure(None, default_kernel(1, lengthscale=lengthscale))
    q = GaussianMeasure(None, SquaredOperatorKernel(lengthscale, 1.0))

    def relative_error(x):
        return abs(wasserstein_squared(p, q, x).item() / exact - 1)

    sizes = (10, 30, 100, 300, 1000)
    # Normal quantiles stand for N(0, 1) without sampling error.
    quantiles = [torch.special.ndtri((torch.arange(n, dtype=F64) + 0.5) / n)[:, None] for n in sizes]
    errors = [relative_error(x) for x in quantiles]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 0.02
    assert errors[-1] < 2e-4
    # Sampled points get there at the rate of sampling.
    assert relative_error(torch.randn(1000, 1, dtype=F64, generator=generator)) < 0.03
