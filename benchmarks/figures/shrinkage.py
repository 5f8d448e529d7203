"""What W₂² alone does: the best kernel of all is the shrunken prior, which does not know where the data are.

The sparse form does. Both for β from 1 to N in one dimension, with known prior and noise: (6) to (11) in
`docs/method-covariance.md`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.colors import LogNorm
from torch import Tensor

from benchmarks.figures.style import BLACK, BLUE, PICTURES, RECORDS, VERMILION, Array, canvas, look, save
from benchmarks.tables.common.records import read, write
from gwi.core.covariance import (
    covariance_problem,
    matched_divergence_weight,
    shrinkage,
    titsias_covariance,
    wasserstein_covariance,
)
from gwi.core.kernels import ShrunkenKernel, SparsePosteriorKernel, default_kernel
from gwi.core.measures import kernel_variance
from gwi.core.row_sums import row_sums

NAME = "shrinkage"


@dataclass(frozen=True)
class Setting:
    """One-dimensional rows, equidistant between −2 and 2, and the model that is known of them.

    Attributes:
        num_data: N.
        num_inducing: M, equidistant as well.
        lengthscale: of k, squared exponential with k(x, x) = 1.
        noise_variance: σ².
        num_weights: values of β from 1 to N, in equal ratios.
        num_points: of each curve, from −6 to 6.
    """

    num_data: int = 300
    num_inducing: int = 12
    lengthscale: float = 0.7
    noise_variance: float = 0.1
    num_weights: int = 6
    num_points: int = 145


@torch.no_grad()
def rows(setting: Setting) -> Iterator[dict[str, object]]:
    """Standard deviation of f along x for each form and β."""
    x = torch.linspace(-2, 2, setting.num_data, dtype=torch.float64)[:, None]
    z = torch.linspace(-2, 2, setting.num_inducing, dtype=torch.float64)[:, None]
    grid = torch.linspace(-6, 6, setting.num_points, dtype=torch.float64)[:, None]
    k = default_kernel(1, lengthscale=setting.lengthscale)
    noise, count = setting.noise_variance, setting.num_data
    matched = matched_divergence_weight(row_sums(k, z, x), noise)

    def curve(form: str, beta: float, kernel: torch.nn.Module) -> Iterator[dict[str, object]]:
        std: Tensor = kernel_variance(kernel, grid).sqrt()
        for place, value in zip(grid[:, 0].tolist(), std.tolist(), strict=True):
            yield {"form": form, "beta": beta, "x": place, "std": value}

    for beta in [*np.geomspace(1, count, setting.num_weights).tolist(), matched]:
        name = ", matched" if beta == matched else ""
        problem = covariance_problem(k, z, x, noise_variance=noise, num_data=count, divergence_weight=beta)
        s = wasserstein_covariance(problem).whitened_covariance
        yield from curve(f"sparse{name}", beta, SparsePosteriorKernel(k, z, s))
        yield from curve(f"shrunken{name}", beta, ShrunkenKernel(k, float(shrinkage(noise, count, beta))))
    yield from curve("titsias", 0.0, SparsePosteriorKernel(k, z, titsias_covariance(row_sums(k, z, x, noise_variance=noise))))


def compute(folder: Path = RECORDS, setting: Setting | None = None) -> None:
    write(NAME, rows(setting or Setting()), echo=False, folder=folder)


def curves(records: Path = RECORDS) -> dict[tuple[str, float], tuple[Array, Array]]:
    """x and standard deviation by form and β."""
    found: dict[tuple[str, float], list[tuple[float, float]]] = {}
    for r in read(NAME, records):
        found.setdefault((r["form"], float(r["beta"])), []).append((float(r["x"]), float(r["std"])))
    return {key: (np.array(pairs)[:, 0], np.array(pairs)[:, 1]) for key, pairs in found.items()}


def ratio(x: Array, std: Array) -> float:
    """Mean standard deviation of f far from the rows, |x| > 4, over that among them."""
    return float(std[np.abs(x) > 4].mean() / std[np.abs(x) <= 2].mean())


def draw(folder: Path = PICTURES, records: Path = RECORDS) -> None:
    found = curves(records)
    (matched,) = (beta for form, beta in found if form == "sparse, matched")
    weights = sorted(beta for form, beta in found if form == "sparse")
    colour = mpl.colormaps["viridis_r"]
    scale = LogNorm(weights[0] / 8, weights[-1])
    with look():
        figure = canvas(10.5, 3.3)
        left, middle, right = figure.subplots(1, 3)
        for axes, form, title in (
            (left, "shrunken", "best of all kernels: k / a²"),
            (middle, "sparse", "best of the sparse form"),
        ):
            axes.axvspan(-2, 2, color="#EFEFEF", lw=0)
            for beta in weights:
                axes.plot(*found[form, beta], color=colour(scale(beta)), lw=1.6)
            axes.set(yscale="log", ylim=(1e-4, 2), xlim=(-6, 6), xlabel="x", title=title)
            axes.text(0, 1.2e-4, "rows", ha="center", va="bottom", fontsize=8, color="#555555")
        for beta in weights:
            label = f"β = N = {beta:.0f}" if beta == weights[-1] else f"β = {beta:.0f}"
            left.text(-5.8, found["shrunken", beta][1][0] * 1.1, label, fontsize=8, va="bottom", color=colour(scale(beta)))
        middle.plot(*found["titsias", 0.0], color=BLACK, lw=1.2, ls=(0, (4, 2)), label="Titsias (KL)")
        middle.plot(*found["sparse, matched", matched], color=VERMILION, lw=1.2, label=f"β_match = {matched:.0f}")
        middle.legend(loc="lower left", bbox_to_anchor=(-0.03, 0.03), fontsize=8, handlelength=1.4, handletextpad=0.4)
        left.set_ylabel("standard deviation of f")
        for form, shade, marker, title in (
            ("sparse", BLUE, "o", "sparse form"),
            ("shrunken", VERMILION, "s", "shrunken prior"),
        ):
            shares = [ratio(*found[form, beta]) for beta in weights]
            right.plot(weights, shares, color=shade, marker=marker, ms=4.5, lw=1.4, label=title)
        right.axvline(matched, color=BLACK, lw=0.8, ls=":")
        right.text(matched * 0.92, 120, "β_match", ha="right", fontsize=8)
        right.axhline(ratio(*found["titsias", 0.0]), color=BLACK, lw=1.2, ls=(0, (4, 2)), label="Titsias")
        right.set(xscale="log", yscale="log", xlabel="β", ylabel="sd far away / sd among rows", title="does it know where it is?")
        right.legend(loc="lower left", bbox_to_anchor=(0.0, 0.07))
        save(figure, NAME, folder)


def words(records: Path = RECORDS) -> str:
    found = curves(records)
    (matched,) = (beta for form, beta in found if form == "sparse, matched")
    weights = sorted(beta for form, beta in found if form == "sparse")
    shrunken = {beta: found["shrunken", beta][1][0] for beta in weights}
    return (
        f"From β = 1 to β = N = {weights[-1]:.0f} the shrunken prior's standard deviation goes from "
        f"{shrunken[weights[0]]:.1e} to {shrunken[weights[-1]]:.2f} everywhere alike: far over near is "
        f"{ratio(*found['shrunken', weights[0]]):.2f} at every β. The sparse form's is "
        f"{ratio(*found['sparse', weights[0]]):.0f} at β = 1, {ratio(*found['sparse, matched', matched]):.1f} at β_match = "
        f"{matched:.0f}, {ratio(*found['sparse', weights[-1]]):.1f} at β = N; with Titsias' covariance it is "
        f"{ratio(*found['titsias', 0.0]):.1f}."
    )
