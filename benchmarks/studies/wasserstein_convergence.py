"""W₂² against the number of points: the symmetric estimate, the paper's, and the truth from the Mercer spectrum.

    python -m benchmarks.studies.wasserstein_convergence

writes results/wasserstein_convergence.csv and docs/assets/wasserstein_convergence.{png,svg}.

P has an RBF kernel and ρ is a standard normal, so the eigenvalues λ of C_P are known (Rasmussen & Williams 2006, §4.3.1). Q has
the covariance C_Q = C_P², whose kernel ∫ k(x, t) k(t, x') dρ(t) is a Gaussian integral. The two commute, so
W₂² = Σ (√λ − λ)² exactly. Beside it Ŵ²(P, P), which should be zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import matplotlib as mpl
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from benchmarks.tables.common.records import ROOT, write
from gwi.core.divergences import wasserstein_squared, wasserstein_squared_two_sample
from gwi.core.kernels import default_kernel
from gwi.core.measures import GaussianMeasure

mpl.use("Agg")
import matplotlib.pyplot as plt

SETTINGS = ((1, 0.5), (2, 1.0), (8, 2.0), (8, 1.0))
NUM_POINTS = (10, 30, 100, 300, 1000, 2000)
NUM_COMPARISON = 100
REPEATS = 5


def mercer_eigenvalues(lengthscale: float, num: int = 2000) -> Tensor:
    """Eigenvalues of exp(−(x − x')²/2ℓ²) for ρ = N(0, 1)."""
    a, b = 1 / 4, 1 / (2 * lengthscale**2)
    c = math.sqrt(a * a + 2 * a * b)
    total = a + b + c
    return math.sqrt(2 * a / total) * (b / total) ** torch.arange(num, dtype=torch.float64)


def exact_distance(num_features: int, lengthscale: float) -> float:
    """Σ (√λ − λ)² over all products of D one-dimensional eigenvalues."""
    eigenvalues = mercer_eigenvalues(lengthscale)
    moments = [float(eigenvalues.pow(power).sum()) ** num_features for power in (1.0, 1.5, 2.0)]
    return moments[0] - 2 * moments[1] + moments[2]


class SquaredOperatorKernel(Kernel):
    """∫ k(x, t) k(t, x') dρ(t) for the RBF kernel and ρ = N(0, I): the kernel of C_P²."""

    has_lengthscale = False

    def __init__(self, width: float):
        super().__init__()
        self.width = width

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **_: object) -> Tensor:
        """A product over features of one-dimensional Gaussian integrals."""
        first, second = (x1, x2) if diag else (x1[:, None, :], x2[None, :, :])
        inverse, precision = 1 / self.width**2, 2 / self.width**2 + 1
        total = inverse * (first + second)
        exponent = -inverse * (first.square() + second.square()) / 2 + total.square() / (2 * precision)
        return exponent.sum(-1).exp() * precision ** (-x1.shape[-1] / 2)


@torch.no_grad()
def rows() -> Iterator[dict[str, Any]]:
    for num_features, lengthscale in SETTINGS:
        p = GaussianMeasure(None, default_kernel(num_features, lengthscale=lengthscale))
        q = GaussianMeasure(None, SquaredOperatorKernel(lengthscale))
        for num_points in NUM_POINTS:
            for repeat in range(REPEATS):
                generator = torch.Generator().manual_seed(repeat)
                x = torch.randn(num_points, num_features, dtype=torch.float64, generator=generator)
                x_s = torch.randn(NUM_COMPARISON, num_features, dtype=torch.float64, generator=generator)
                yield {
                    "num_features": num_features,
                    "lengthscale": lengthscale,
                    "num_points": num_points,
                    "repeat": repeat,
                    "exact": exact_distance(num_features, lengthscale),
                    "symmetric": wasserstein_squared(p, q, x).item(),
                    "two_sample": wasserstein_squared_two_sample(p, q, x, x_s).item(),
                    "two_sample_of_p_and_p": wasserstein_squared_two_sample(p, p, x, x_s).item(),
                }


def draw(records: list[dict[str, Any]]) -> None:
    figure, grid = plt.subplots(1, len(SETTINGS), figsize=(11, 3.1), layout="constrained")
    for axes, (num_features, lengthscale) in zip(grid, SETTINGS, strict=True):
        chosen = [r for r in records if (r["num_features"], r["lengthscale"]) == (num_features, lengthscale)]
        for name, colour, marker, label in (
            ("symmetric", "#0072B2", "o", "symmetric (ours)"),
            ("two_sample", "#D55E00", "s", f"two-sample (paper, N_S = {NUM_COMPARISON})"),
            ("two_sample_of_p_and_p", "#999999", "^", "two-sample of (P, P), should be 0"),
        ):
            values = [[r[name] for r in chosen if r["num_points"] == n] for n in NUM_POINTS]
            axes.plot(NUM_POINTS, [sum(v) / len(v) for v in values], color=colour, marker=marker, ms=4, lw=1.3, label=label)
        axes.axhline(chosen[0]["exact"], color="black", lw=1, ls="--", label="exact (Mercer spectrum)")
        axes.axhline(0, color="black", lw=0.5)
        axes.set(xscale="log", xlabel="number of points", title=f"D = {num_features}, ℓ = {lengthscale:g}")
    grid[0].set_ylabel("W₂²")
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    assets = ROOT / "docs" / "assets"
    assets.mkdir(exist_ok=True)
    for suffix in ("png", "svg"):
        figure.savefig(
            assets / f"wasserstein_convergence.{suffix}", dpi=150, metadata={"Date": None} if suffix == "svg" else None
        )
    plt.close(figure)


def main() -> None:
    torch.set_num_threads(1)
    mpl.rcParams["svg.hashsalt"] = "gwi"
    records = list(rows())
    write("wasserstein_convergence", records, echo=False)
    draw(records)
    for record in records:
        if record["num_points"] == NUM_POINTS[-1] and record["repeat"] == 0:
            print({key: round(value, 4) for key, value in record.items()})


if __name__ == "__main__":
    main()
