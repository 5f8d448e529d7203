"""KL to the prior grows without bound as points are added where the mean is a network; W₂ settles.

    python -m benchmarks.figures.infinite_kl

writes results/figures/infinite_kl.csv and docs/assets/figures/infinite_kl.{png,svg}.

P and Q are compared on nested grids of n points on [0, 1]. m_Q is a small network of rectified units, trained on 40 rows; it is
piecewise linear, with kinks. r is the sparse form on five of the grid's points. KL of the marginals, KL(Q_n ‖ P_n), cannot fall
as n grows, and its limit is the KL of the measures. No KL here has seen any jitter:

- the part of the mean, ½ (m_Q − m_P)ᵀ k(X, X)⁻¹ (m_Q − m_P), is a sum of squared innovations. For the Matérn kernels they come
  from their Markov form, for the squared exponential from an LDLᵀ factorisation with hundreds of digits; a mean in the span of
  k(·, Z) has βᵀ k(Z, Z) β instead;
- the part of the covariance is ½ (tr S − M − log det S) on every grid that holds Z; two Ornstein–Uhlenbeck processes are Markov
  chains, and their KL is a sum over steps.

A second computation is kept beside each: dense, with hundreds of digits, on grids of at most 33 points.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import mpmath
import numpy as np
import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel

from benchmarks.figures.style import BLUE, GREEN, ORANGE, PICTURES, PURPLE, RECORDS, VERMILION, Array, canvas, look, save
from benchmarks.tables.common.records import read, write
from gwi.core.covariance import titsias_covariance
from gwi.core.divergences import wasserstein_squared
from gwi.core.kernels import SparsePosteriorKernel
from gwi.core.measures import GaussianMeasure
from gwi.core.networks import mlp
from gwi.core.row_sums import row_sums

NAME = "infinite_kl"
LENGTHSCALE, OTHER_LENGTHSCALE, NOISE_VARIANCE, NUM_DATA, NUM_UNITS = 0.3, 0.2, 0.01, 40, 16
# Grids of 2^level + 1 points; the first is Z.
LEVELS, MOST_DIGITAL, MOST_CHECKED = range(2, 11), 129, 33
Form = Literal["matern12", "matern32", "rbf"]
SMOOTHNESS: dict[Form, float] = {"matern12": 0.5, "matern32": 1.5, "rbf": math.inf}


@dataclass(frozen=True)
class Case:
    """A prior and a posterior.

    Attributes:
        prior: the form of k.
        network: whether m_Q is the network; else it is in the span of k(·, Z).
        own_kernel: whether r is k with another length-scale; else it is the sparse form.
    """

    prior: Form
    network: bool = True
    own_kernel: bool = False


CASES: dict[str, Case] = {
    "squared exponential": Case("rbf"),
    "Matérn-3/2": Case("matern32"),
    "Matérn-1/2": Case("matern12"),
    "Matérn-1/2, r with another length-scale": Case("matern12", own_kernel=True),
    "squared exponential, kernel mean": Case("rbf", network=False),
}
STYLES = {
    "squared exponential": (VERMILION, "o", "-"),
    "Matérn-3/2": (ORANGE, "s", "-"),
    "Matérn-1/2, r with another length-scale": (PURPLE, "D", "-"),
    "Matérn-1/2": (BLUE, "^", "--"),
    "squared exponential, kernel mean": (GREEN, "v", "--"),
}


def truth(x: Array) -> Array:
    """What the rows come from."""
    return np.sin(7 * x) + x


@cache
def units() -> tuple[Array, Array, Array, float]:
    """Slopes, offsets and weights of the network's rectified units, and its own offset, after 3,000 steps of Adam."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.uniform(0, 1, (NUM_DATA, 1)))
    y = torch.from_numpy(truth(x.numpy()) + math.sqrt(NOISE_VARIANCE) * rng.standard_normal((NUM_DATA, 1)))
    network = mlp(1, hidden=(NUM_UNITS,), activation=torch.nn.ReLU, generator=torch.Generator().manual_seed(0)).double()
    with torch.no_grad():
        # Units that all bend at zero would make it linear on the interval.
        slopes = network.get_parameter("0.weight")[:, 0]
        network.get_parameter("0.bias").copy_(-slopes * torch.linspace(0, 0.95, NUM_UNITS, dtype=torch.float64))
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(3000):
        optimiser.zero_grad()
        (network(x) - y).square().mean().backward()
        optimiser.step()
    first, last = network.get_submodule("0"), network.get_submodule("2")
    weight, offset = first.get_parameter("weight").detach().numpy(), first.get_parameter("bias").detach().numpy()
    return weight[:, 0], offset, last.get_parameter("weight").detach().numpy()[0], last.get_parameter("bias").item()


def network_mean(x: Any, number: Callable[[float], Any] = float) -> list[Any]:
    """The network at points; `number` says in which arithmetic."""
    slopes, offsets, weights, offset = units()
    lines = [
        (number(a), number(b), number(c)) for a, b, c in zip(slopes.tolist(), offsets.tolist(), weights.tolist(), strict=True)
    ]
    return [sum((c * max(a * t + b, number(0)) for a, b, c in lines), number(offset)) for t in x]


def kernel_coefficients() -> Array:
    """Of a mean in the span of k(·, Z), for the squared exponential: that of the sparse GP for the same rows, rounded."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, NUM_DATA)
    y = truth(x) + math.sqrt(NOISE_VARIANCE) * rng.standard_normal(NUM_DATA)
    z = np.array(grid(2))
    k_zx, k_zz = (np.exp(-(np.subtract.outer(z, other) ** 2) / (2 * LENGTHSCALE**2)) for other in (x, z))
    return np.linalg.solve(NOISE_VARIANCE * k_zz + k_zx @ k_zx.T, k_zx @ y)


def grid(level: int) -> list[float]:
    """2^level + 1 points from 0 to 1, exact in binary; each grid holds the ones before."""
    return [i / 2**level for i in range(2**level + 1)]


def kernel_value(form: Form, distance: Any, lengthscale: Any) -> Any:
    """k at a distance, in the arithmetic of its arguments."""
    exp, root = (mpmath.exp, mpmath.sqrt(3)) if isinstance(distance, mpmath.mpf) else (math.exp, math.sqrt(3))
    u = distance / lengthscale
    if form == "rbf":
        return exp(-u * u / 2)
    return exp(-u) if form == "matern12" else (1 + root * u) * exp(-root * u)


def mean_part_markov(form: Form, values: list[float], step: float) -> float:
    """½ mᵀ k(X, X)⁻¹ m for a Matérn kernel on an equidistant grid, by the innovations of its Markov form."""
    if form == "matern12":
        a = math.exp(-step / LENGTHSCALE)
        innovations = [(v - a * u) ** 2 for u, v in itertools.pairwise(values)]
        return (values[0] ** 2 + sum(innovations) / -math.expm1(-2 * step / LENGTHSCALE)) / 2
    # A Kalman filter without noise whose state is f and its derivative.
    rate = math.sqrt(3) / LENGTHSCALE
    decay = math.exp(-rate * step)
    move = decay * np.array([[1 + rate * step, step], [-(rate**2) * step, 1 - rate * step]])
    noise = _matern32_noise(rate, step)
    state, covariance = np.zeros(2), np.diag([1.0, rate**2])
    total = 0.0
    for i, value in enumerate(values):
        if i:
            state, covariance = move @ state, move @ covariance @ move.T + noise
        gain = covariance[:, 0] / covariance[0, 0]
        error = value - state[0]
        total += error**2 / covariance[0, 0]
        state = state + gain * error
        # f is known now: only the derivative has a variance left.
        covariance = np.array([[0.0, 0.0], [0.0, covariance[1, 1] - covariance[0, 1] ** 2 / covariance[0, 0]]])
    return total / 2


def _matern32_noise(rate: float, step: float) -> Array:
    """∫₀ʰ e^{As} b bᵀ e^{A's} ds, what a step of length h adds to the covariance of the Matérn-3/2 state."""
    # By quadrature: the usual closed form subtracts numbers that are nearly equal for small steps, and loses all digits.
    nodes, weights = np.polynomial.legendre.leggauss(12)
    s, w = step * (nodes + 1) / 2, step * weights / 2
    # The integrand is a polynomial times an exponential that is nearly constant over a step: 12 nodes are exact to rounding.
    reached = np.exp(-rate * s) * np.stack([s, 1 - rate * s])
    return 4 * rate**3 * (reached * w) @ reached.T


def mean_part_digital(form: Form, values: list[Any], points: list[float]) -> float:
    """½ mᵀ k(X, X)⁻¹ m by LDLᵀ in the working precision of mpmath."""
    x = [mpmath.mpf(point) for point in points]
    factor = _ldl([[kernel_value(form, abs(a - b), mpmath.mpf(LENGTHSCALE)) for b in x[: i + 1]] for i, a in enumerate(x)])
    total = mpmath.mpf(0)
    innovations: list[Any] = []
    for i, value in enumerate(values):
        innovations.append(value - mpmath.fdot(factor[i][:i], innovations))
        total += innovations[i] ** 2 / factor[i][i]
    return float(total / 2)


def _ldl(lower: list[list[Any]]) -> list[list[Any]]:
    """Rows of L, with D on the diagonal, of the matrix whose lower half is given."""
    for i, row in enumerate(lower):
        scaled: list[Any] = []
        for j in range(i):
            scaled.append(row[j] - mpmath.fdot(scaled, lower[j][:j]))
        for j in range(i):
            row[j] = scaled[j] / lower[j][j]
        row[i] -= mpmath.fdot(scaled, row[:i])
    return lower


def digits(num_points: int) -> int:
    """Decimal digits that the squared exponential's matrix needs on a grid: its last pivots fall faster than exponentially."""
    step = 1 / (num_points - 1)
    # The pivot of n equidistant points is ∏ (1 − q^{2i}) with q = exp(−h²/2ℓ²), i = 1 … n − 1.
    pivot = sum(math.log10(-math.expm1(-i * (step / LENGTHSCALE) ** 2)) for i in range(1, num_points))
    return 40 + math.ceil(-2 * pivot)


def own_kernel_part(num_points: int) -> float:
    """KL of two Ornstein–Uhlenbeck processes with unit variance on an equidistant grid, as Markov chains: step by step."""
    step = 1 / (num_points - 1)
    a_p, a_q = (math.exp(-step / lengthscale) for lengthscale in (LENGTHSCALE, OTHER_LENGTHSCALE))
    v_p, v_q = (-math.expm1(-2 * step / lengthscale) for lengthscale in (LENGTHSCALE, OTHER_LENGTHSCALE))
    one = (v_q / v_p + (a_q - a_p) ** 2 / v_p - 1 - math.log(v_q / v_p)) / 2
    return (num_points - 1) * one


def prior_kernel(form: Form, lengthscale: float = LENGTHSCALE) -> Kernel:
    """k as the library has it."""
    kernel = RBFKernel() if form == "rbf" else MaternKernel(nu=SMOOTHNESS[form])
    kernel.lengthscale = lengthscale
    return kernel.double()


def measures(case: Case) -> tuple[GaussianMeasure, GaussianMeasure, float]:
    """P, Q, and the part of KL that is the covariance's where r is the sparse form."""
    k = prior_kernel(case.prior)
    z, x = (
        torch.tensor(points, dtype=torch.float64)[:, None] for points in (grid(2), np.random.default_rng(0).uniform(0, 1, 40))
    )
    s = titsias_covariance(row_sums(k, z, x, noise_variance=NOISE_VARIANCE)).detach()
    r = prior_kernel(case.prior, OTHER_LENGTHSCALE) if case.own_kernel else SparsePosteriorKernel(k, z, s)

    def mean(points: torch.Tensor) -> torch.Tensor:
        return torch.tensor([mean_values(case, points[:, 0].tolist())], dtype=torch.float64)

    part = float((s.trace() - len(s) - torch.logdet(s)) / 2)
    return GaussianMeasure(None, k), GaussianMeasure(mean, r), part


def mean_values(case: Case, points: Any, number: Callable[[Any], Any] = float) -> list[Any]:
    """m_Q at points."""
    if case.network:
        return network_mean(points, number)
    terms = [(number(z), number(b)) for z, b in zip(grid(2), kernel_coefficients().tolist(), strict=True)]
    scale = number(LENGTHSCALE)
    return [sum((b * kernel_value(case.prior, abs(t - z), scale) for z, b in terms), number(0)) for t in points]


def mean_part(case: Case, num_points: int, points: list[float]) -> float:
    """The mean's part of KL, by the route that needs no jitter."""
    if not case.network:
        # m = k_XZ β on a grid that holds Z: mᵀ k_XX⁻¹ m = βᵀ k_ZZ β.
        return float(kernel_coefficients() @ mean_values(case, grid(2))) / 2
    if case.prior != "rbf":
        return mean_part_markov(case.prior, mean_values(case, points), 1 / (num_points - 1))
    return _digitally(case, points)


def _digitally(case: Case, points: list[float]) -> float:
    with mpmath.workdps(digits(len(points))):
        values = mean_values(case, [mpmath.mpf(point) for point in points], mpmath.mpf)
        return mean_part_digital(case.prior, values, points)


def dense_kl(case: Case, points: list[float]) -> float:
    """KL(Q_n ‖ P_n) from its definition, ½ (tr K⁻¹R − n + log det K/R + mᵀK⁻¹m), dense, with many digits: a second opinion."""
    with mpmath.workdps(2 * digits(len(points))):
        x = [mpmath.mpf(point) for point in points]
        scale = mpmath.mpf(LENGTHSCALE)

        def matrix(a: list[Any], b: list[Any], lengthscale: Any = scale) -> Any:
            return mpmath.matrix([[kernel_value(case.prior, abs(s - t), lengthscale) for t in b] for s in a])

        k = matrix(x, x)
        if case.own_kernel:
            r = matrix(x, x, mpmath.mpf(OTHER_LENGTHSCALE))
        else:
            # r = k − k_XZ (k_ZZ⁻¹ − (k_ZZ + k_ZD k_DZ/σ²)⁻¹) k_ZX: Titsias' covariance, without whitening.
            z = [mpmath.mpf(point) for point in grid(2)]
            data = [mpmath.mpf(point) for point in np.random.default_rng(0).uniform(0, 1, 40).tolist()]
            k_zz, k_zd, k_xz = matrix(z, z), matrix(z, data), matrix(x, z)
            inner = k_zz + k_zd * k_zd.T / mpmath.mpf(NOISE_VARIANCE)
            r = k - k_xz * (k_zz**-1 - inner**-1) * k_xz.T
        m = mpmath.matrix(mean_values(case, x, mpmath.mpf))
        solved = k**-1
        trace = mpmath.fsum((solved * r)[i, i] for i in range(len(x)))
        squared = (m.T * solved * m)[0]
        return float((trace - len(x) + mpmath.log(mpmath.det(k) / mpmath.det(r)) + squared) / 2)


def dense_wasserstein(p: GaussianMeasure, q: GaussianMeasure, points: list[float]) -> float:
    """W₂² over n by eigenvalues of K^½ R K^½: a second opinion."""
    x = torch.tensor(points, dtype=torch.float64)[:, None]
    with torch.no_grad():
        k, r, m = (v.numpy() for v in (p.kernel(x).to_dense(), q.kernel(x).to_dense(), q.mean_at(x)[0]))
    values, vectors = np.linalg.eigh(k)
    root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    fidelity = np.sqrt(np.maximum(np.linalg.eigvalsh(root @ r @ root), 0)).sum()
    return float((m @ m + np.trace(k) + np.trace(r) - 2 * fidelity) / len(points))


def rows(levels: range = LEVELS, most_digital: int = MOST_DIGITAL, most_checked: int = MOST_CHECKED) -> Iterator[dict[str, Any]]:
    """KL and W₂² of every case on every grid, each with its second opinion where that is affordable."""
    for name, case in CASES.items():
        p, q, part = measures(case)
        for level in levels:
            points = grid(level)
            count = len(points)
            affordable = case.prior != "rbf" or not case.network or count <= most_digital
            mean = mean_part(case, count, points) if affordable else math.nan
            with torch.no_grad():
                distance = float(wasserstein_squared(p, q, torch.tensor(points, dtype=torch.float64)[:, None]))
            checked = count <= most_checked
            yield {
                "case": name,
                "num_points": count,
                "kl_mean": mean,
                "kl_covariance": own_kernel_part(count) if case.own_kernel else part,
                "kl": mean + (own_kernel_part(count) if case.own_kernel else part),
                "kl_second": dense_kl(case, points) if checked else math.nan,
                "wasserstein_squared": distance,
                "wasserstein_squared_second": dense_wasserstein(p, q, points),
            }


def compute(folder: Path = RECORDS) -> None:
    write(NAME, rows(), echo=False, folder=folder)


def curve(case: str, column: str, records: Path = RECORDS) -> tuple[Array, Array]:
    """Numbers of points and values of a case, where they are known."""
    found = [(float(r["num_points"]), float(r[column])) for r in read(NAME, records) if r["case"] == case]
    kept = np.array([pair for pair in found if math.isfinite(pair[1])])
    return kept[:, 0], kept[:, 1]


def draw(folder: Path = PICTURES, records: Path = RECORDS) -> None:
    with look():
        figure = canvas(9.5, 3.7)
        left, right = figure.subplots(1, 2)
        for name, (colour, marker, dash) in STYLES.items():
            for axes, column in ((left, "kl"), (right, "wasserstein_squared")):
                axes.plot(*curve(name, column, records), color=colour, marker=marker, ls=dash, ms=4.5, lw=1.4, label=name)
        left.set(title="KL of Q to P on n points", xscale="log", yscale="log", xlabel="points n", ylabel="KL, nats")
        left.set_ylim(3, 300)
        counts, values = curve("squared exponential", "kl", records)
        powers = [
            (n, v, math.floor(math.log10(v))) for n, v in zip(counts.tolist(), values.tolist(), strict=True) if n in (9, 17, 129)
        ]
        shown = ", ".join(f"{v / 10**e:.0f}·10$^{{{e}}}$ at {n:.0f}" for n, v, e in powers)
        left.annotate(f"squared exponential:\n{shown}", (7.5, 200), fontsize=8, color=VERMILION, va="center")
        right.set(title="W₂² of Q and P on n points, over n", xscale="log", xlabel="points n", ylabel="W₂² in L²(ρ)")
        right.set_ylim(0, None)
        for axes in (left, right):
            axes.set_xticks([5, 17, 65, 257, 1025], ["5", "17", "65", "257", "1,025"])
            axes.minorticks_off()
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
        save(figure, NAME, folder)


if __name__ == "__main__":
    torch.set_num_threads(1)
    compute()
    draw()
