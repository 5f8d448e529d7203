"""Two clusters in two dimensions, and what each method knows about the space between them (Foong et al., 2020).

Rows, targets, network and prior are made as theirs, whose picture the paper's appendix repeats. All methods but GWI have the
network's own prior; GWI-net has a squared-exponential prior fitted to the rows, and a network of its own for the mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import ScaleKernel
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter
from torch import Tensor

from benchmarks.figures import nuts
from benchmarks.figures.limit import NetworkPrior, drawn_clusters, two_clusters, wide_limit_posterior
from benchmarks.figures.networks import Moments, dropout, mean_field
from benchmarks.figures.style import BLUE, GREY, PICTURES, RECORDS, VERMILION, Array, band, canvas, look, save
from benchmarks.render.markdown import table
from benchmarks.tables.common.records import read, write
from gwi.core.covariance import covariance_problem, matched_divergence_weight, titsias_covariance, wasserstein_covariance
from gwi.core.inducing import choose_inducing_points
from gwi.core.kernels import SparsePosteriorKernel, default_kernel
from gwi.core.means import ModuleMean
from gwi.core.measures import GaussianMeasure, kernel_variance
from gwi.core.networks import mlp
from gwi.core.objectives import mean_loss
from gwi.core.prior import fit_prior
from gwi.core.row_sums import row_sums
from gwi.core.training import train

NAME = "two_dimensions"
MATCHED, PAPER, TITSIAS, LIMIT = "GWI-net, β_match", "GWI-net, β = 1", "GWI-net, Titsias", "wide limit, exact"
METHODS = (MATCHED, PAPER, TITSIAS, LIMIT, "NUTS", "mean-field VI", "MC dropout")
# Half the side of the square that is shown, and the λ that lie in between: the clusters are at ±√2.
SIDE, BETWEEN = 2.0, 1.0
# Larger standard deviations have the last colour, in units of the target.
BRIGHTEST = 2.0

Law = Callable[[Array], tuple[Array, Array]]


@dataclass(frozen=True)
class Setting:
    """How much of everything.

    Attributes:
        prior: of the network, and the noise.
        per_cluster: rows.
        num_inducing: M of GWI.
        num_epochs: of GWI's mean.
        dropout_rate: Foong et al.'s.
        num_steps: of mean-field inference and dropout.
        num_starts: of the same, the best of which counts.
        num_draws: of rows and targets, for GWI and the wide limit.
        inducing_counts: the M tried on those.
        num_grid: points along a side of the map.
        num_cut: points along λ.
    """

    prior: NetworkPrior = field(default_factory=NetworkPrior)
    per_cluster: int = 50
    num_inducing: int = 20
    num_epochs: int = 2000
    dropout_rate: float = 0.05
    num_steps: int = 6000
    num_starts: int = 2
    num_draws: int = 20
    inducing_counts: tuple[int, ...] = (10, 20, 50, 100)
    num_grid: int = 45
    num_cut: int = 121

    def cut(self) -> tuple[Array, Array]:
        """λ, and the rows x(λ) = λ (1, 1)/√2."""
        along = np.linspace(-SIDE * 2**0.5, SIDE * 2**0.5, self.num_cut)
        return along, along[:, None] * np.full((1, 2), 2**-0.5)

    def grid(self) -> Array:
        """The rows of the map, x₁ fastest."""
        side = np.linspace(-SIDE, SIDE, self.num_grid)
        return np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)


@dataclass(frozen=True)
class Fitted:
    """What GWI fits to rows and targets before it has a mean; all but centre and scale for standardised targets.

    Attributes:
        kernel: k.
        noise_variance: σ².
        inducing_points: Z.
        divergence_weight: β_match.
        covariances: S of each of GWI's methods.
        centre: of the targets.
        scale: of the targets.
    """

    kernel: ScaleKernel
    noise_variance: float
    inducing_points: Tensor
    divergence_weight: float
    covariances: dict[str, Tensor]
    centre: float
    scale: float

    def std(self, method: str, new: Array) -> Array:
        """Of f at rows, in the targets' own units."""
        r = SparsePosteriorKernel(self.kernel, self.inducing_points, self.covariances[method])
        return kernel_variance(r, torch.from_numpy(new)).detach().sqrt().numpy() * self.scale


def fit_gwi(x: Array, y: Array, setting: Setting, generator: torch.Generator) -> Fitted:
    """Prior by the collapsed bound, and three covariances."""
    centre, scale = float(y.mean()), float(y.std())
    rows, targets = torch.from_numpy(x), torch.from_numpy((y - centre) / scale)[None]
    z = choose_inducing_points(rows, setting.num_inducing, "kmeans", generator=generator)
    fit = fit_prior(default_kernel(2), rows, targets, inducing_points=z)
    k, noise = fit.kernel.requires_grad_(False), fit.noise_variance
    beta = matched_divergence_weight(row_sums(k, z, rows), noise)

    def wasserstein(weight: float) -> Tensor:
        problem = covariance_problem(k, z, rows, noise_variance=noise, num_data=len(x), divergence_weight=weight)
        return wasserstein_covariance(problem).whitened_covariance

    covariances = {
        MATCHED: wasserstein(beta),
        PAPER: wasserstein(1.0),
        TITSIAS: titsias_covariance(row_sums(k, z, rows, noise_variance=noise)),
    }
    return Fitted(k, noise, z, beta, covariances, centre, scale)


def gwi_laws(x: Array, y: Array, setting: Setting) -> tuple[dict[str, Law], dict[str, float]]:
    """GWI-net with three covariances, in the targets' own units, and what was fitted for it."""
    generator = torch.Generator().manual_seed(0)
    fit = fit_gwi(x, y, setting, generator)
    rows, targets = torch.from_numpy(x), torch.from_numpy((y - fit.centre) / fit.scale)[None]
    prior, mean = GaussianMeasure(None, fit.kernel), ModuleMean(mlp(2, generator=generator))
    beta, noise = fit.divergence_weight, fit.noise_variance
    train(
        mean,
        lambda a, b: mean_loss(prior, mean, noise, a, b, num_data=len(x), divergence_weight=beta),
        rows,
        targets,
        num_epochs=setting.num_epochs,
        generator=generator,
    )

    def law(method: str) -> Law:
        @torch.no_grad()
        def at(new: Array) -> tuple[Array, Array]:
            return mean(torch.from_numpy(new))[0].numpy() * fit.scale + fit.centre, fit.std(method, new)

        return at

    fitted = {
        "divergence_weight": beta,
        "noise_std": noise**0.5 * fit.scale,
        "prior_std": float(fit.kernel.outputscale) ** 0.5 * fit.scale,
        "lengthscale_1": float(fit.kernel.base_kernel.lengthscale[0, 0]),
        "lengthscale_2": float(fit.kernel.base_kernel.lengthscale[0, 1]),
    }
    return {method: law(method) for method in fit.covariances}, fitted


def ratio(std: Callable[[Array], Array], x: Array, setting: Setting) -> tuple[float, float, float]:
    """Mean standard deviation of f in between and at the rows, and the one over the other."""
    along, cut = setting.cut()
    between, clusters = float(std(cut)[np.abs(along) <= BETWEEN].mean()), float(std(x).mean())
    return between, clusters, between / clusters


def other_draws(setting: Setting) -> list[dict[str, object]]:
    """Ratios of GWI by number of inducing points, and of the wide limit, on draws of rows and targets as they come."""
    found: list[dict[str, object]] = []
    for seed in range(setting.num_draws):
        x, y = drawn_clusters(seed, setting.prior, setting.per_cluster)
        for count in setting.inducing_counts:
            fit = fit_gwi(x, y, replace(setting, num_inducing=count), torch.Generator().manual_seed(0))
            stds: dict[str, Callable[[Array], Array]] = {m: partial(fit.std, m) for m in fit.covariances}
            if count == setting.num_inducing:
                stds[LIMIT] = partial(_limit_std, x, y, setting.prior)
            lengthscale = float(fit.kernel.base_kernel.lengthscale.log().mean().exp())
            label = {"seed": seed, "num_inducing": count, "lengthscale": lengthscale}
            found += ({**label, "method": method, "ratio": ratio(std, x, setting)[2]} for method, std in stds.items())
    return found


def _std_of(law: Law, new: Array) -> Array:
    return law(new)[1]


def _limit_std(x: Array, y: Array, prior: NetworkPrior, new: Array) -> Array:
    return wide_limit_posterior(x, y, new, prior)[1]


def _law(moments: Moments) -> Law:
    @torch.no_grad()
    def at(new: Array) -> tuple[Array, Array]:
        mean, variance = moments(torch.from_numpy(new))
        return mean.numpy(), variance.sqrt().numpy()

    return at


def laws(x: Array, y: Array, setting: Setting, records: Path = RECORDS) -> tuple[dict[str, Law], dict[str, float]]:
    """Mean and standard deviation of f at rows, by method."""
    found, fitted = gwi_laws(x, y, setting)
    found[LIMIT] = lambda new: wide_limit_posterior(x, y, new, setting.prior)
    found["NUTS"] = lambda new: nuts.posterior(new, records)
    steps: dict[str, Any] = {"num_steps": setting.num_steps, "num_starts": setting.num_starts}
    found["mean-field VI"] = _law(mean_field(x, y, setting.prior, **steps))
    found["MC dropout"] = _law(dropout(x, y, setting.prior, rate=setting.dropout_rate, **steps))
    return found, fitted


def compute(folder: Path = RECORDS, setting: Setting | None = None, draws: Path = RECORDS) -> None:
    """Maps and cuts as arrays, ratios as a table; `draws` is where NUTS' record is."""
    setting = setting or Setting()
    x, y = two_clusters(setting.prior, setting.per_cluster)
    along, cut = setting.cut()
    arrays = {"x": x, "y": y, "lambda": along}
    found, fitted = laws(x, y, setting, draws)
    rows = []
    for i, method in enumerate(METHODS):
        law = found[method]
        mean, std = law(cut)
        arrays |= {f"map_{i}": law(setting.grid())[1], f"mean_{i}": mean, f"std_{i}": std}
        between, clusters, share = ratio(partial(_std_of, law), x, setting)
        error = float(np.sqrt(np.square(law(x)[0] - y).mean()))
        rows.append({"method": method, "std_between": between, "std_clusters": clusters, "ratio": share, "rmse": error})
    write(NAME, rows, folder=folder)
    write(f"{NAME}_fitted", [fitted], folder=folder)
    write(f"{NAME}_draws", other_draws(setting), echo=False, folder=folder)
    kept: dict[str, Any] = {name: values.astype(np.float32) for name, values in arrays.items()}
    np.savez_compressed(folder / f"{NAME}.npz", **kept)


def draw(folder: Path = PICTURES, records: Path = RECORDS) -> None:
    with np.load(records / f"{NAME}.npz") as file:
        found = {name: file[name].astype(np.float64) for name in file.files}
    ratios = {r["method"]: float(r["ratio"]) for r in read(NAME, records)}
    size = round(len(found["map_0"]) ** 0.5)
    with look():
        figure = canvas(10.5, 9.4)
        draws = [r for r in read(f"{NAME}_draws", records) if r["num_inducing"] == str(Setting.num_inducing)]
        grid = figure.subplots(4, 4, height_ratios=[3, 2, 3, 2])
        image = None
        for i, method in enumerate(METHODS):
            top, below = grid[2 * (i // 4), i % 4], grid[2 * (i // 4) + 1, i % 4]
            image = top.imshow(
                found[f"map_{i}"].reshape(size, size),
                origin="lower",
                extent=(-SIDE, SIDE, -SIDE, SIDE),
                vmin=0,
                vmax=BRIGHTEST,
                cmap="viridis",
                interpolation="bilinear",
            )
            top.plot([-SIDE, SIDE], [-SIDE, SIDE], color="white", ls="--", lw=1)
            top.plot(found["x"][::5, 0], found["x"][::5, 1], "+", color="#FF6B5B", ms=3.5, mew=0.7)
            top.set_title(f"{method}\nbetween / clusters: {ratios[method]:.3g}")
            top.set(xticks=[-2, 0, 2], yticks=[-2, 0, 2])
            _draw_cut(below, found, i)
            if i % 4 == 0:
                top.set_ylabel("x₂")
                below.set_ylabel("f(x(λ))")
            else:
                top.set_yticklabels([])
                below.set_yticklabels([])
        assert image is not None
        bar = figure.colorbar(image, ax=grid[:, :], location="bottom", shrink=0.35, aspect=35, extend="max", pad=0.01)
        bar.set_label("standard deviation of f (+: every fifth row; dashed: the cut along λ, below each map with ± 2 sd)")
        for axes in grid[2:, 3]:
            axes.remove()
        _draw_ratios(figure.add_subplot(grid[0, 0].get_gridspec()[2:, 3]), ratios, draws)
        save(figure, NAME, folder, dpi=110)


def _draw_cut(axes: Axes, found: dict[str, Array], i: int) -> None:
    along, mean, std = found["lambda"], found[f"mean_{i}"], found[f"std_{i}"]
    axes.axvspan(-BETWEEN, BETWEEN, color="#F1F1F1", lw=0)
    band(axes, along, mean, 2 * std, BLUE, 0.35)
    axes.plot(along, mean, color=BLUE, lw=1.3)
    axes.plot(found["x"].sum(1)[::5] * 2**-0.5, found["y"][::5], "+", color=VERMILION, ms=3.5, mew=0.7)
    axes.set(xlim=(along[0], along[-1]), ylim=(-8, 8), xlabel="λ")


def _draw_ratios(axes: Axes, ratios: dict[str, float], draws: list[dict[str, str]]) -> None:
    """A dot for the picture's draw, small strokes for others."""
    for height, method in enumerate(METHODS):
        others = [float(r["ratio"]) for r in draws if r["method"] == method]
        axes.plot(others, [height + 0.22] * len(others), "|", color=GREY, ms=5, mew=0.7, alpha=0.8)
        shade = BLUE if method.startswith("GWI") else GREY
        axes.plot([1, ratios[method]], [height, height], color=shade, lw=1.4)
        axes.plot(ratios[method], height, "o", color=shade, ms=5)
        axes.text(1.25, height - 0.16, method, color=shade, fontsize=8.5, va="bottom")
    axes.axvline(1, color="black", lw=0.8)
    axes.set(xscale="log", yticks=[], xlim=(0.1, 1500), ylim=(len(METHODS) - 0.5, -0.9))
    axes.set_title("sd in between / sd at the clusters")
    axes.set_xlabel("strokes: other draws of the targets")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.spines["left"].set_visible(False)


def words(records: Path = RECORDS) -> str:
    digits = {"std_between": ".3f", "std_clusters": ".4f", "ratio": ".3g", "rmse": ".2f"}
    rows = [[r["method"], *(format(float(r[name]), form) for name, form in digits.items())] for r in read(NAME, records)]
    (fitted,) = ({name: float(value) for name, value in r.items()} for r in read(f"{NAME}_fitted", records))
    mixed = nuts.facts(records)
    header = ["method", "sd of f in between", "sd of f at the clusters", "ratio", "error of the mean at the rows"]
    return (
        f"{table(header, rows)}\n\nGWI's squared exponential was fitted with length-scales {fitted['lengthscale_1']:.2f} and "
        f"{fitted['lengthscale_2']:.2f}, standard deviation {fitted['prior_std']:.2f} and noise {fitted['noise_std']:.2f}; "
        f"β_match = {fitted['divergence_weight']:.0f}. NUTS: {mixed['num_draws']:.0f} draws in four chains, "
        f"r̂ ≤ {mixed['r_hat']:.3f} and at least {mixed['effective_draws']:.0f} effective draws for f along the cut, "
        f"{mixed['divergences']:.0f} divergences.\n\n{_words_of_draws(records)}"
    )


def _words_of_draws(records: Path) -> str:
    draws = read(f"{NAME}_draws", records)

    def ratios(method: str, count: str) -> list[float]:
        return sorted(float(r["ratio"]) for r in draws if (r["method"], r["num_inducing"]) == (method, count))

    counts = list(dict.fromkeys(r["num_inducing"] for r in draws))
    rows = []
    for count in counts:
        matched, titsias = ratios(MATCHED, count), ratios(TITSIAS, count)
        below = sum(value < 3 for value in matched)
        shown = [f"{found[0]:.1f} to {found[-1]:.0f}, median {median(found):.1f}" for found in (matched, titsias)]
        rows.append([count, *shown, f"{below} of {len(matched)}"])
    limit = ratios(LIMIT, str(Setting.num_inducing))
    return (
        "The picture is one draw of rows and targets. Of draws as they come, by the number of inducing points, the ratios:\n\n"
        f"{table(['M', 'β_match', 'Titsias', 'β_match below 3'], rows)}\n\n"
        f"The wide limit's ratio is {limit[0]:.0f} to {limit[-1]:.0f} on the same draws."
    )
