"""Where kernel, dispersion and thresholds are known, f and y drawn from the prior are covered as promised."""

import gpytorch.kernels as gk
import numpy as np
import pytest
import torch
from scipy.stats import binom, norm

from gwi.core.covariance import titsias_covariance
from gwi.core.kernels import SparsePosteriorKernel
from gwi.core.laws.protocol import pit
from gwi.core.likelihoods.censored import CensoredFamily
from gwi.core.likelihoods.families import BetaFamily, GammaFamily, NegativeBinomialFamily, PoissonFamily
from gwi.core.likelihoods.ordinal import OrdinalFamily
from gwi.core.means import KernelMean
from gwi.core.measures import kernel_variance
from gwi.core.row_sums import row_sums
from gwi.fitting.linked_means import kernel_coefficients
from gwi.models.linked import law_of_family

NUM_SETS, NUM_ROWS = 300, 40
FAMILIES = {
    "gaussian": (CensoredFamily(), 0.09),
    "poisson": (PoissonFamily(), 1.0),
    "negative-binomial": (NegativeBinomialFamily(), 0.4),
    "gamma": (GammaFamily(), 0.3),
    "beta": (BetaFamily(), 0.1),
    "ordinal": (OrdinalFamily(thresholds=(-0.5, 0.7), values=(0.0, 1.0, 2.0)), 0.25),
}


@pytest.mark.slow
@pytest.mark.unchecked
@pytest.mark.parametrize("name", FAMILIES)
def test_f_and_y_are_covered_where_the_parameters_are_known(name):
    family, phi = FAMILIES[name]
    kernel = gk.ScaleKernel(gk.RBFKernel()).double()
    kernel.outputscale, kernel.base_kernel.lengthscale = 0.8, 0.7
    kernel.requires_grad_(False)
    in_f = in_y = 0
    for seed in range(NUM_SETS):
        rng = np.random.default_rng(seed)
        x = torch.from_numpy(rng.uniform(-2, 2, (NUM_ROWS + 1, 1)))
        k = kernel(x).to_dense().numpy()
        values, vectors = np.linalg.eigh(k)
        f = vectors @ (np.sqrt(np.maximum(values, 0)) * rng.standard_normal(len(x)))
        law = law_of_family(family, f, np.full(len(f), 1e-14), np.full(len(f), phi))
        y = torch.from_numpy(np.array(law.sample(1, rng)[0]))
        train, target = x[:NUM_ROWS], y[:NUM_ROWS]
        columns = torch.stack([target, target]) if name == "gaussian" else target
        weight, zero = torch.ones(NUM_ROWS, dtype=torch.float64), torch.zeros(NUM_ROWS, dtype=torch.float64)
        v = kernel_coefficients(family, columns, train, weight, phi, kernel, train, zero)
        mean = KernelMean(kernel, train, v[None])
        curvature = family.curvature(columns, mean(train)[0].detach(), torch.full_like(zero, phi)).clamp_min(1e-9)
        s = titsias_covariance(row_sums(kernel, train, train, noise_variance=1 / curvature))
        m = float(mean(x[NUM_ROWS:])[0, 0].detach())
        r = float(kernel_variance(SparsePosteriorKernel(kernel, train, s), x[NUM_ROWS:])[0])
        in_f += abs(f[-1] - m) <= norm.ppf(0.975) * r**0.5
        place = pit(law_of_family(family, np.array([m]), np.array([r]), np.array([phi])), y[NUM_ROWS:].numpy(), seed)
        in_y += bool(0.025 <= place[0] <= 0.975)
    low, high = binom.interval(0.99, NUM_SETS, 0.95)
    print(name, in_f / NUM_SETS, in_y / NUM_SETS)
    assert low <= in_f <= high
    assert low <= in_y <= high
