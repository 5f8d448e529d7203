"""The spectrum of C_Q C_P on five UCI tables, and what it does to estimates of W₂².

The paper shows the first 100 eigenvalues of r(X_S, X) k(X, X_S); here they are divided by N N_S, so that they estimate those of
C_Q C_P [eq:spec_CPQ], and stand beside those of the symmetric estimate, exact for the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.figures.style import BLUE, GREY, PICTURES, RECORDS, VERMILION, Array, canvas, look, save
from benchmarks.render.markdown import table
from benchmarks.tables.common.records import read, write
from benchmarks.tables.common.splits import standard_splits
from benchmarks.tables.uci.data import UCIName, load_uci, standardise
from gwi.core.covariance import covariance_problem, matched_divergence_weight, wasserstein_covariance
from gwi.core.divergences import wasserstein_squared, wasserstein_squared_two_sample
from gwi.core.inducing import choose_inducing_points
from gwi.core.kernels import SparsePosteriorKernel, default_kernel
from gwi.core.measures import GaussianMeasure, kernel_matrix, kernel_variance
from gwi.core.prior import fit_prior
from gwi.core.row_sums import row_sums

NAME = "spectrum"
TABLES: tuple[UCIName, ...] = ("boston", "concrete", "energy", "wine_red", "yacht")
SYMMETRIC, TWO_SAMPLE, SAME = "symmetric", "two-sample", "two-sample of (P, P)"


@dataclass(frozen=True)
class Setting:
    """How much of everything.

    Attributes:
        num_inducing: M of Q.
        num_comparison: N_S of the paper's estimate.
        num_eigenvalues: shown.
        shares: of the rows, at which W₂² is estimated.
        repeats: draws of rows for each share.
    """

    num_inducing: int = 100
    num_comparison: int = 100
    num_eigenvalues: int = 100
    shares: tuple[float, ...] = (0.2, 0.35, 0.6, 1.0)
    repeats: int = 5


def measures(x: Tensor, y: Tensor, setting: Setting) -> tuple[GaussianMeasure, GaussianMeasure]:
    """P fitted to standardised rows, and Q with the covariance that W₂² chooses at β_match; both with mean zero."""
    generator = torch.Generator().manual_seed(0)
    z = choose_inducing_points(x, setting.num_inducing, "kmeans", generator=generator)
    fit = fit_prior(default_kernel(x.shape[1]), x, y, inducing_points=z, max_iterations=100)
    k, noise = fit.kernel.requires_grad_(False), fit.noise_variance
    points = x[torch.randperm(len(x), generator=generator)[: 3 * setting.num_inducing]]
    beta = matched_divergence_weight(row_sums(k, z, x), noise)
    problem = covariance_problem(k, z, points, noise_variance=noise, num_data=len(x), divergence_weight=beta)
    s = wasserstein_covariance(problem, tolerance=1e-5).whitened_covariance
    return GaussianMeasure(None, k), GaussianMeasure(None, SparsePosteriorKernel(k, z, s))


def symmetric_spectrum(p: GaussianMeasure, q: GaussianMeasure, points: Tensor) -> Array:
    """Eigenvalues of C_Q C_P for the empirical measure of the points, largest first: squares of singular values of L_kᵀ L_r/n."""
    values = torch.linalg.svdvals(p.factor(points).mT @ q.factor(points)) / len(points)
    return values.square().numpy()


def two_sample_spectrum(p: GaussianMeasure, q: GaussianMeasure, points: Tensor, comparison_points: Tensor) -> Array:
    """The paper's: eigenvalues of r(X_S, X) k(X, X_S)/(N N_S), real parts, largest first."""
    product = kernel_matrix(q.kernel, comparison_points, points) @ kernel_matrix(p.kernel, points, comparison_points)
    values = torch.linalg.eigvals(product).real / (len(points) * len(comparison_points))
    return values.sort(descending=True).values.numpy()


def training_rows(name: UCIName) -> tuple[Tensor, Tensor]:
    """Standardised rows and targets of the first standard split."""
    x, y = load_uci(name)
    rows = standard_splits(len(x), 1)[0].train
    return standardise(x[rows]), standardise(y[:, rows].mT).mT


@torch.no_grad()
def records_of(
    name: str, p: GaussianMeasure, q: GaussianMeasure, x: Tensor, setting: Setting
) -> tuple[list[dict[str, object]], ...]:
    """Eigenvalues, and estimates of W₂² at each number of rows."""
    generator = torch.Generator().manual_seed(1)

    def drawn(count: int) -> Tensor:
        return x[torch.randperm(len(x), generator=generator)[:count]]

    compared = min(setting.num_comparison, len(x))
    variance = float(kernel_variance(p.kernel, x).mean())
    spectra = {SYMMETRIC: symmetric_spectrum(p, q, x), TWO_SAMPLE: two_sample_spectrum(p, q, x, drawn(compared))}
    values: list[dict[str, object]] = [
        {"set": name, "estimate": kind, "index": i + 1, "eigenvalue": float(value)}
        for kind, found in spectra.items()
        for i, value in enumerate(found[: setting.num_eigenvalues])
    ]
    distances: list[dict[str, object]] = []
    for share in setting.shares:
        count = round(share * len(x))
        for repeat in range(setting.repeats if share < 1 else 1):
            points, others = drawn(count), drawn(compared)
            found = {
                SYMMETRIC: wasserstein_squared(p, q, points),
                TWO_SAMPLE: wasserstein_squared_two_sample(p, q, points, others),
                SAME: wasserstein_squared_two_sample(p, p, points, others),
            }
            label = {"set": name, "prior_variance": variance, "num_points": count, "repeat": repeat}
            distances += ({**label, "estimate": kind, "value": float(value)} for kind, value in found.items())
    return values, distances


def compute(folder: Path = RECORDS, setting: Setting | None = None, tables: tuple[UCIName, ...] = TABLES) -> None:
    setting = setting or Setting()
    values: list[dict[str, object]] = []
    distances: list[dict[str, object]] = []
    for name in tables:
        x, y = training_rows(name)
        parts = records_of(name, *measures(x, y, setting), x, setting)
        values += parts[0]
        distances += parts[1]
        print(name, len(x), "rows", flush=True)
    write(f"{NAME}_eigenvalues", values, echo=False, folder=folder)
    write(f"{NAME}_distances", distances, echo=False, folder=folder)


def eigenvalues(name: str, kind: str, records: Path = RECORDS) -> Array:
    """Of one table by one estimate, largest first."""
    rows = read(f"{NAME}_eigenvalues", records)
    return np.array([float(r["eigenvalue"]) for r in rows if (r["set"], r["estimate"]) == (name, kind)])


def distances_of(name: str, kind: str, records: Path = RECORDS) -> dict[int, float]:
    """Mean estimate of W₂² at each number of rows, in units of the prior variance."""
    found: dict[int, list[float]] = {}
    for r in read(f"{NAME}_distances", records):
        if (r["set"], r["estimate"]) == (name, kind):
            found.setdefault(int(r["num_points"]), []).append(float(r["value"]) / float(r["prior_variance"]))
    return {count: sum(values) / len(values) for count, values in found.items()}


def errors_of(name: str, kind: str, records: Path = RECORDS) -> dict[int, float]:
    """The same minus what it should be: zero for (P, P), else the symmetric estimate on all rows, exact for them."""
    exact = distances_of(name, SYMMETRIC, records)
    target = 0.0 if kind == SAME else exact[max(exact)]
    return {count: value - target for count, value in distances_of(name, kind, records).items()}


def draw(folder: Path = PICTURES, records: Path = RECORDS) -> None:
    styles = {SYMMETRIC: (BLUE, "-", "o"), TWO_SAMPLE: (VERMILION, "--", "s"), SAME: (GREY, ":", "^")}
    labels = {
        SYMMETRIC: "symmetric (ours): all rows, exact for them",
        TWO_SAMPLE: "two-sample (paper): N_S = 100 comparison points",
        SAME: "two-sample of (P, P), should be 0",
    }
    with look():
        figure = canvas(10.5, 4.8)
        top, below = figure.subplots(2, len(TABLES), sharey="row")
        for upper, lower, name in zip(top, below, TABLES, strict=True):
            for kind in (SYMMETRIC, TWO_SAMPLE):
                found = eigenvalues(name, kind, records)
                colour, dash, _ = styles[kind]
                positive = found > 0
                upper.plot(np.arange(1, len(found) + 1)[positive], found[positive], color=colour, ls=dash, lw=1.5)
            upper.set(yscale="log", title=name, xlabel="index", ylim=(1e-13, 3))
            for kind, (colour, dash, marker) in styles.items():
                means = errors_of(name, kind, records)
                lower.plot(
                    list(means), list(means.values()), color=colour, ls=dash, marker=marker, ms=4, lw=1.3, label=labels[kind]
                )
            lower.axhline(0, color="black", lw=0.6)
            lower.set(xlabel="number of points", xlim=(0, None))
        top[0].set_ylabel("eigenvalue of $C_Q C_P$")
        below[0].set_ylabel("error of $W_2^2$ / prior variance")
        figure.legend(*below[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
        save(figure, NAME, folder)


def words(records: Path = RECORDS) -> str:
    rows = []
    for name in TABLES:
        exact, paper = (eigenvalues(name, kind, records) for kind in (SYMMETRIC, TWO_SAMPLE))
        full = {kind: list(distances_of(name, kind, records).values())[-1] for kind in (SYMMETRIC, TWO_SAMPLE, SAME)}
        share = np.sqrt(np.maximum(paper, 0)).sum() / np.sqrt(exact).sum()
        rows.append(
            [name, f"{exact[0]:.2g}", f"{exact[9] / exact[0]:.0e}", f"{exact[-1] / exact[0]:.0e}", f"{share:.2f}"]
            + [f"{full[kind]:.3f}" for kind in (SYMMETRIC, TWO_SAMPLE, SAME)]
        )
    header = [
        "set",
        "λ₁",
        "λ₁₀/λ₁",
        "λ₁₀₀/λ₁",
        "Σ√λ, two-sample/symmetric",
        "W₂², symmetric",
        "two-sample",
        "two-sample of (P, P)",
    ]
    return table(header, rows)
