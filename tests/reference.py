"""The paper's equations once more, as slow and obvious NumPy loops in float64 that share no line with the package.

A kernel is a function of two rows, a mean a function of one row. Inverses are formed where the paper writes them, so compare on
well-conditioned problems.
"""

import itertools
import math
from collections.abc import Callable

import numpy as np
import scipy.integrate
import scipy.linalg
import scipy.stats
from numpy.typing import NDArray

Array = NDArray[np.float64]
Kernel = Callable[[Array, Array], float]
Mean = Callable[[Array], float]


def ard_kernel(lengthscale: Array, outputscale: float) -> Kernel:
    """k(x, x') = σ_f² exp(−½ Σ_d (x_d − x'_d)² / α_d²)  [eq:ARD_kernel]; `outputscale` is σ_f²."""

    def k(a: Array, b: Array) -> float:
        exponent = 0.0
        for d in range(len(lengthscale)):
            exponent += (a[d] - b[d]) ** 2 / lengthscale[d] ** 2
        return outputscale * math.exp(-exponent / 2)

    return k


def matrix(k: Kernel, x1: Array, x2: Array) -> Array:
    """k(X₁, X₂), entry by entry."""
    return np.array([[k(a, b) for b in x2] for a in x1])


def svgp_kernel(k: Kernel, z: Array, covariance: Array) -> Kernel:
    """r(x, x') = k(x, x') − k_Z(x)ᵀ k(Z, Z)⁻¹ k_Z(x') + k_Z(x)ᵀ Σ k_Z(x')  [eq:r_SVGP]."""
    inverse = np.linalg.inv(matrix(k, z, z))

    def r(a: Array, b: Array) -> float:
        k_a = np.array([k(a, z_m) for z_m in z])
        k_b = np.array([k(b, z_m) for z_m in z])
        return k(a, b) - k_a @ inverse @ k_b + k_a @ covariance @ k_b

    return r


def svgp_mean(k: Kernel, z: Array, beta: Array, prior_mean: Mean = lambda x: 0.0) -> Mean:
    """m_Q(x) = m_P(x) + Σ_m β_m k(x, z_m)  [eq:svgp_mean]."""

    def m(x: Array) -> float:
        value = prior_mean(x)
        for m_th in range(len(z)):
            value += beta[m_th] * k(x, z[m_th])
        return value

    return m


def gaussian_wasserstein_squared(mean_p: Array, cov_p: Array, mean_q: Array, cov_q: Array) -> float:
    """W₂² = ‖m_P − m_Q‖² + tr C_P + tr C_Q − 2 tr (C_P^½ C_Q C_P^½)^½  [eq:WD_Gaussians]."""
    root = scipy.linalg.sqrtm(cov_p)
    cross = scipy.linalg.sqrtm(root @ cov_q @ root)
    distance = float(np.sum((mean_p - mean_q) ** 2))
    return distance + np.trace(cov_p) + np.trace(cov_q) - 2 * float(np.real(np.trace(cross)))


def wasserstein_squared(mean_p: Mean, k: Kernel, mean_q: Mean, r: Kernel, x: Array) -> float:
    """W₂² of P and Q on L² of the empirical measure of x [eq:WD_Gaussians]: there an operator is its matrix over n."""
    root_n = math.sqrt(len(x))
    m_p = np.array([mean_p(row) for row in x]) / root_n
    m_q = np.array([mean_q(row) for row in x]) / root_n
    return gaussian_wasserstein_squared(m_p, matrix(k, x, x) / len(x), m_q, matrix(r, x, x) / len(x))


def wasserstein_squared_two_sample(mean_p: Mean, k: Kernel, mean_q: Mean, r: Kernel, x: Array, x_s: Array) -> float:
    """Ŵ² of the paper [eq:WD_approx1, eq:WD_approx2], from the eigenvalues of r(X_S, X) k(X, X_S)."""
    n, n_s = len(x), len(x_s)
    value = 0.0
    for row in x:
        value += ((mean_p(row) - mean_q(row)) ** 2 + k(row, row) + r(row, row)) / n
    eigenvalues = np.linalg.eigvals(matrix(r, x_s, x) @ matrix(k, x, x_s))
    for eigenvalue in eigenvalues:
        value -= 2 / math.sqrt(n * n_s) * math.sqrt(max(eigenvalue.real, 0.0))
    return value


def kl_divergence(mean_p: Array, cov_p: Array, mean_q: Array, cov_q: Array) -> float:
    """KL(Q, P) [eq:def_KLD] of two Gaussians on ℝⁿ; the paper's measures have it when they differ on n inducing values only."""
    inverse = np.linalg.inv(cov_p)
    difference = mean_p - mean_q
    log_determinants = np.linalg.slogdet(cov_p)[1] - np.linalg.slogdet(cov_q)[1]
    return (np.trace(inverse @ cov_q) + difference @ inverse @ difference - len(mean_p) + log_determinants) / 2


def expected_log_likelihood(y: Array, mean: Array, variance: Array, noise_variance: float) -> float:
    """Σ_n E_Q[log N(y_n | F(x_n), σ²)]  [eq:ELL]."""
    value = -len(y) / 2 * math.log(2 * math.pi * noise_variance)
    for n in range(len(y)):
        value -= ((y[n] - mean[n]) ** 2 + variance[n]) / (2 * noise_variance)
    return value


def batch_generalized_loss(
    mean_p: Mean,
    k: Kernel,
    mean_q: Mean,
    r: Kernel,
    noise_variance: float,
    x_b: Array,
    y_b: Array,
    x_s: Array,
    num_data: int,
) -> float:
    """L̂ of the paper's appendix on batches: (N/N_B) times the batch's misfit [eq:ELL], plus Ŵ² [eq:WD_approx1, eq:WD_approx2]."""
    loss = num_data / 2 * math.log(2 * math.pi * noise_variance)
    for row, target in zip(x_b, y_b, strict=True):
        loss += num_data / len(x_b) * ((target - mean_q(row)) ** 2 + r(row, row)) / (2 * noise_variance)
    return loss + wasserstein_squared_two_sample(mean_p, k, mean_q, r, x_b, x_s)


def log_marginal_likelihood(k: Kernel, x: Array, y: Array, noise_variance: float) -> float:
    """log p(y_Z) of the paper's appendix, with the −M/2 log 2π that it leaves out."""
    covariance = matrix(k, x, x) + noise_variance * np.eye(len(x))
    log_determinant = np.linalg.slogdet(covariance)[1]
    return -(log_determinant + y @ np.linalg.inv(covariance) @ y + len(x) * math.log(2 * math.pi)) / 2


def collapsed_bound(k: Kernel, z: Array, x: Array, y: Array, noise_variance: float) -> float:
    """log N(y | 0, Q_XX + σ² I) − tr(k(X, X) − Q_XX) / 2σ², Q_XX = k(X, Z) k(Z, Z)⁻¹ k(Z, X) (Titsias 2009), N × N and dense."""
    k_xz = matrix(k, x, z)
    explained = k_xz @ np.linalg.inv(matrix(k, z, z)) @ k_xz.T
    covariance = explained + noise_variance * np.eye(len(x))
    log_density = -(np.linalg.slogdet(covariance)[1] + y @ np.linalg.inv(covariance) @ y + len(x) * math.log(2 * math.pi)) / 2
    return log_density - np.trace(matrix(k, x, x) - explained) / (2 * noise_variance)


def gp_posterior_mean(k: Kernel, x: Array, y: Array, noise_variance: float, new: Array) -> Array:
    """k(x*, X) (k(X, X) + σ² I)⁻¹ y: the mean of the exact posterior."""
    return matrix(k, new, x) @ np.linalg.inv(matrix(k, x, x) + noise_variance * np.eye(len(x))) @ y


def titsias_mean(k: Kernel, z: Array, x: Array, y: Array, noise_variance: float, new: Array) -> Array:
    """k(x*, Z) (k(Z, Z) + k(Z, X) k(X, Z)/σ²)⁻¹ k(Z, X) y/σ²: the mean of the sparse posterior (Titsias 2009)."""
    k_zx = matrix(k, z, x)
    system = matrix(k, z, z) + k_zx @ k_zx.T / noise_variance
    return matrix(k, new, z) @ np.linalg.inv(system) @ k_zx @ y / noise_variance


def greedy_variance_indices(k: Kernel, x: Array, num_inducing: int) -> list[int]:
    """Rows in the order of largest conditional variance given the rows before, each conditional variance from its own inverse."""
    chosen: list[int] = []
    for _ in range(num_inducing):
        variances = []
        for i, row in enumerate(x):
            variance = k(row, row)
            if chosen:
                cross = np.array([k(row, x[j]) for j in chosen])
                variance -= cross @ np.linalg.inv(matrix(k, x[chosen], x[chosen])) @ cross
            variances.append(-math.inf if i in chosen else variance)
        chosen.append(int(np.argmax(variances)))
    return chosen


def argmax_probability(mean: Array, variance: Array, j: int) -> float:
    """S(x, j) = Q(F_j is the largest) = ∫ N(t | m_j, r_j) Π_{l≠j} Φ((t − m_l)/√r_l) dt, by adaptive quadrature."""
    std = np.sqrt(variance)

    def integrand(t: float) -> float:
        value = scipy.stats.norm.pdf(t, mean[j], std[j])
        for m_l, std_l in zip(np.delete(mean, j), np.delete(std, j), strict=True):
            value *= scipy.stats.norm.cdf((t - m_l) / std_l)
        return float(value)

    low, high = mean[j] - 12 * std[j], mean[j] + 12 * std[j]
    breaks = sorted({m + c * s for m, s in zip(mean, std, strict=True) for c in (-4, 0, 4) if low < m + c * s < high})
    edges = [low, *breaks, high]
    pieces = [
        scipy.integrate.quad(integrand, a, b, epsabs=1e-14, epsrel=1e-13, limit=200)[0] for a, b in itertools.pairwise(edges)
    ]
    return float(sum(pieces))


def multiclass_expected_log_likelihood(mean: Array, variance: Array, y: int, epsilon: float) -> float:
    """log(1 − ε) S(x, y) + log(ε / (J − 1)) (1 − S(x, y)) of one row  [eq:multiclass_ell]."""
    s = argmax_probability(mean, variance, y)
    return math.log(1 - epsilon) * s + math.log(epsilon / (len(mean) - 1)) * (1 - s)


def negative_log_likelihood(y: float, mean: float, variance: float, noise_variance: float, tempering_factor: float) -> float:
    """−log N(y* | m_Q(x*), α_T (r(x*, x*) + σ²))  [ap_eq: NLL], with y* − m_Q(x*) where the paper prints y − y*."""
    total = tempering_factor * (variance + noise_variance)
    return math.log(total) / 2 + (y - mean) ** 2 / (2 * total) + math.log(2 * math.pi) / 2
