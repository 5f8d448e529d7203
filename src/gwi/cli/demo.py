"""GWI-net on the paper's one-dimensional toy data: a network for the mean, a sparse GP kernel for the uncertainty.

`gwi demo` runs it, and so does examples/demo.py.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from gwi._progress import progress
from gwi.cli.console import sized
from gwi.core.context import context_covariance, context_rows, noise_sized_points
from gwi.core.covariance import matched_divergence_weight, titsias_covariance
from gwi.core.inducing import choose_inducing_points
from gwi.core.kernels import SparsePosteriorKernel, default_kernel
from gwi.core.likelihoods.gaussian import GaussianLikelihood
from gwi.core.means import ModuleMean
from gwi.core.measures import GaussianMeasure
from gwi.core.networks import mlp
from gwi.core.objectives import generalized_loss, mean_loss
from gwi.core.prior import fit_prior
from gwi.core.row_sums import row_sums
from gwi.core.training import train
from gwi.exceptions import UserError
from gwi.tables.files import atomic_file

NUM_INDUCING, NUM_CONTEXT, NUM_EPOCHS = 30, 100, 600
SEED = 0
# The paper's colours: training data, unseen data, inducing points.
SEEN, UNSEEN, INDUCING = "#1f77b4", "#d62728", "#2ca02c"


@dataclass(frozen=True)
class Toy:
    """One-dimensional data with a stretch that nobody measured.

    Attributes:
        x: inputs of the training rows.
        y: their noisy targets.
        x_unseen: inputs in the gap.
        y_unseen: targets in the gap, kept from training.
    """

    x: Float[Tensor, "N 1"]
    y: Float[Tensor, "1 N"]
    x_unseen: Float[Tensor, "U 1"]
    y_unseen: Float[Tensor, "1 U"]


def toy_1d(generator: torch.Generator) -> Toy:
    """f(x) = 0.6 x sin(2x) at equidistant points with Gaussian noise; the points of the gap are set apart [1d_illustration]."""
    x = torch.linspace(-5.0, 5.0, 1000, dtype=torch.float64)[:, None]
    noise = torch.randn(len(x), dtype=torch.float64, generator=generator)
    y = (0.6 * x[:, 0] * torch.sin(2 * x[:, 0]) + 0.5 * noise)[None]
    unseen = x[:, 0].abs() < 1.7
    return Toy(x[~unseen], y[:, ~unseen], x[unseen], y[:, unseen])


# Everything the method does, in five steps.
def fit(data: Toy) -> tuple[GaussianMeasure, GaussianLikelihood, Tensor]:
    """Prior, mean and covariance for the toy data, in its own units."""
    generator = torch.Generator().manual_seed(SEED)
    num_data = len(data.x)

    z = choose_inducing_points(data.x, NUM_INDUCING, "kmeans", generator=generator)
    prior_fit = fit_prior(default_kernel(1, lengthscale=1.0), data.x, data.y, inducing_points=z)
    kernel, noise_variance = prior_fit.kernel.requires_grad_(False), prior_fit.noise_variance
    prior = GaussianMeasure(None, kernel)
    print(
        f"Prior      length-scale {kernel.base_kernel.lengthscale.item():.2f}, "
        f"noise {noise_variance**0.5:.2f} (true: 0.50), in {prior_fit.num_iterations} L-BFGS steps"
    )

    beta = matched_divergence_weight(row_sums(kernel, z, data.x), noise_variance)
    mean = ModuleMean(mlp(1, generator=generator))
    with progress(True) as report:
        train(
            mean,
            lambda x, y: mean_loss(prior, mean, noise_variance, x, y, num_data=num_data, divergence_weight=beta),
            data.x,
            data.y,
            num_epochs=NUM_EPOCHS,
            batch_size=200,
            learning_rate=0.02,
            generator=generator,
            on_epoch=lambda epoch, loss: report("network", (epoch + 1) / NUM_EPOCHS),
        )

    # W₂ on the data and on a box around them: where nobody measured, Q is to stay near the prior.
    z = noise_sized_points(kernel, data.x, noise_variance, num_data, NUM_INDUCING)
    context = context_rows("box", data.x, NUM_CONTEXT, generator)
    titsias = titsias_covariance(row_sums(kernel, z, data.x, noise_variance=noise_variance))
    rows = data.x[torch.randperm(num_data, generator=generator)[: 2 * NUM_CONTEXT]]
    solution = context_covariance(kernel, z, rows, context, titsias, noise_variance=noise_variance, num_data=num_data)
    print(
        f"Covariance optimal under W₂² on the data and a box around them (weight {100 * solution.context_share:.0f} %), "
        f"{len(z)} inducing points, at most {solution.duality_gap:.0e} above the optimum"
    )
    posterior = GaussianMeasure(mean, SparsePosteriorKernel(kernel, z, solution.whitened_covariance))
    likelihood = GaussianLikelihood(noise_variance)
    loss = generalized_loss(prior, posterior, likelihood, data.x, data.y, num_data=num_data, divergence_weight=beta)
    print(f"Loss       {loss.item():.1f}, the paper's generalized loss on all {num_data} rows")
    return posterior, likelihood, z


@torch.no_grad()
def draw(data: Toy, posterior: GaussianMeasure, likelihood: GaussianLikelihood, z: Tensor, path: Path) -> None:
    """Mean, 95 % bands of y and of f, data and inducing points."""
    x = torch.linspace(-7, 7, 600, dtype=torch.float64)[:, None]
    mean, variance = (values[0] for values in posterior.marginals(x))
    grid, noise = x[:, 0], likelihood.noise_variance_at(x)[0]
    figure = Figure((8, 4.2), layout="constrained")
    axes = figure.subplots()
    for spread, shade, label in ((variance + noise, 0.15, "95 % of y"), (variance, 0.3, "95 % of f")):
        half = 1.96 * spread.sqrt()
        axes.fill_between(grid, mean - half, mean + half, color="black", alpha=shade, lw=0, label=label)
    axes.scatter(data.x[:, 0], data.y[0], s=4, color=SEEN, alpha=0.6, lw=0, label="training data")
    axes.scatter(data.x_unseen[:, 0], data.y_unseen[0], s=4, color=UNSEEN, alpha=0.6, lw=0, label="unseen data")
    axes.plot(grid, mean, color="black", lw=1.5, label="mean (network)")
    axes.scatter(z[:, 0], torch.full((len(z),), -5.6), marker="^", s=22, color=INDUCING, label="inducing points")
    axes.set(xlabel="x", ylabel="y", xlim=(-7, 7), ylim=(-6, 6.5), title="GWI-net: the band widens where there are no data")
    axes.legend(ncols=3, fontsize=8, loc="upper left", frameon=False)
    with atomic_file(path) as file:
        figure.savefig(file, format=path.suffix.lstrip(".") or "png", dpi=150)


@torch.no_grad()
def coverage(x: Tensor, y: Tensor, posterior: GaussianMeasure, likelihood: GaussianLikelihood) -> float:
    """Share of targets inside the 95 % interval of y."""
    law = likelihood.predictive(*posterior.marginals(x), x)
    return ((y - law.mean).abs() <= 1.96 * law.stddev).double().mean().item()


def run(output: Path) -> None:
    """Fit, draw, say what happened.

    Raises:
        UserError: when the name says no kind of picture.
    """
    kinds = Figure().canvas.get_supported_filetypes()
    if output.suffix and output.suffix.lstrip(".").lower() not in kinds:
        raise UserError(f"{output}: the name of the picture must end in {', '.join(f'.{kind}' for kind in sorted(kinds))}.")
    torch.set_num_threads(1)  # Matrices this small are faster without.
    start = time.perf_counter()
    data = toy_1d(torch.Generator().manual_seed(1))
    print(f"Data       {len(data.x)} noisy points of one function, {len(data.x_unseen)} more held out in a gap")
    posterior, likelihood, z = fit(data)
    draw(data, posterior, likelihood, z, output)
    print(
        f"Coverage   95 % intervals contain {coverage(data.x, data.y, posterior, likelihood):.0%} of the training targets and "
        f"{coverage(data.x_unseen, data.y_unseen, posterior, likelihood):.0%} of the unseen ones"
    )
    print(f"Picture    {sized(output)}, {time.perf_counter() - start:.0f} s in all")
