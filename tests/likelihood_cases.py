"""Likelihoods as SciPy knows them, and integrals over f by brute force: Gauss–Legendre in hundreds of panels."""

import numpy as np
import torch
from scipy import stats
from scipy.special import expit, gammaln, logsumexp

from gwi.core.laws.mixed import MixedLaw
from gwi.core.likelihoods.families import MARGIN, BetaFamily, GammaFamily, NegativeBinomialFamily, PoissonFamily

RULE = np.polynomial.legendre.leggauss(12)
LINKED = {
    "poisson": PoissonFamily(),
    "negative-binomial": NegativeBinomialFamily(),
    "gamma": GammaFamily(),
    "beta": BetaFamily(),
    "beta between bounds": BetaFamily(-2.0, 5.0),
}


def panels(low, high, count=300):
    """Nodes and weights between two ends."""
    edges = np.linspace(low, high, count + 1)
    half, middle = np.diff(edges)[:, None] / 2, ((edges[1:] + edges[:-1]) / 2)[:, None]
    return (middle + half * RULE[0]).ravel(), (half * RULE[1]).ravel()


def under_normal(mean, variance, count=300):
    """f and the logarithm of its weights under N(m, v), the density included."""
    std = np.sqrt(variance)
    f, weight = panels(mean - 12 * std, mean + 12 * std, count)
    return f, np.log(weight) + stats.norm.logpdf(f, mean, std)


def scipy_law(family, f, phi):
    """p(y | f, φ) as SciPy has it."""
    if family.name == "beta":
        share = np.clip(expit(f), MARGIN, 1 - MARGIN)
        return stats.beta(share / phi, (1 - share) / phi, loc=family.low, scale=family.high - family.low)
    rate = np.exp(f)
    if family.name == "gamma":
        return stats.gamma(1 / phi, scale=phi * rate)
    return stats.poisson(rate) if family.name == "poisson" else stats.nbinom(1 / phi, 1 / (1 + phi * rate))


def log_probability(family, y, f, phi):
    """log p(y | f, φ); SciPy's own of negative binomial laws takes most of its time for checks."""
    if family.name == "negative-binomial":
        size, rate = 1 / phi, np.exp(f)
        choose = gammaln(y + size) - gammaln(size) - gammaln(y + 1)
        return choose - size * np.log1p(phi * rate) - y * np.log1p(size / rate)
    law = scipy_law(family, f, phi)
    with np.errstate(all="ignore"):
        return law.logpmf(y) if family.is_discrete else law.logpdf(y)


def log_marginal(family, y, mean, variance, phi):
    """log ∫ p(y | f, φ) N(f; m, v) df."""
    f, log_weight = under_normal(mean, variance)
    return logsumexp(log_probability(family, y, f, phi) + log_weight)


def expectation(function, mean, variance, count=300):
    """E h(f)."""
    f, log_weight = under_normal(mean, variance, count)
    return float(np.exp(log_weight) @ function(f))


def law_of(family, mean, variance, phi, unit=1.0):
    """Rows as the library has them."""
    mean, variance, phi = np.broadcast_arrays(
        *(np.atleast_1d(np.asarray(part, dtype=np.float64)) for part in (mean, variance, phi))
    )
    return MixedLaw(family, mean.copy(), variance.copy(), phi.copy(), unit)


def tensors(*values):
    """One row of each, in float64."""
    return tuple(torch.as_tensor(value, dtype=torch.float64).reshape(-1) for value in values)
