"""Three one-dimensional functions, and three ways to fit them: GWI-net, GWI: SVGP, SVGP.

As in the paper's illustration: N = 1000 equidistant points, noise of standard deviation 0.5, a stretch of them set apart as
unseen, M = 30 inducing points, and for GWI the training of its appendix [ap:Implementation]: Z at random, k and σ² from the M
pairs, β = 1, a thousand epochs. No tempering, which the caption leaves out as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import gpytorch
import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from matplotlib.axes import Axes
from torch import Tensor

from benchmarks.figures.style import BLACK, INDUCING, SEEN, UNSEEN, Array, band
from benchmarks.tables.common.records import read, write
from gwi.cli.demo import Toy
from gwi.core.kernels import default_kernel
from gwi.core.means import KernelMean, wasserstein_coefficients
from gwi.core.row_sums import row_sums
from gwi.fitting.paper import Kind, initial_posterior, train_posterior

NOISE_STD = 0.5


@dataclass(frozen=True)
class Function:
    """A function on [−5, 5] with a stretch that nobody measured.

    Attributes:
        name: for readers.
        formula: for readers.
        value: f.
        gap: the stretch.
    """

    name: str
    formula: str
    value: Callable[[Tensor], Tensor]
    gap: tuple[float, float]


def _zigzag(x: Tensor) -> Tensor:
    """Straight lines between −2 and 2 with a corner every 1.6."""
    return 4 * (torch.remainder(x / 3.2, 1) - 0.5).abs() * 2 - 2


FUNCTIONS = (
    Function("wave", "0.6 x sin 2x", lambda x: 0.6 * x * torch.sin(2 * x), (-1.7, 1.7)),
    Function("zigzag", "straight lines with corners", _zigzag, (0.6, 3.4)),
    Function("step", "2 tanh 4(x − 2)", lambda x: 2 * torch.tanh(4 * (x - 2)), (-2.5, 0.5)),
)


@dataclass(frozen=True)
class Setting:
    """How much of everything.

    Attributes:
        num_data: N, unseen rows included.
        num_inducing: M.
        num_steps: of Adam, each on all rows.
        num_points: of each curve, from −7 to 7.
        every: how many-th row is drawn.
    """

    num_data: int = 1000
    num_inducing: int = 30
    num_steps: int = 1000
    num_points: int = 141
    every: int = 4

    def grid(self) -> Tensor:
        """Where curves are taken."""
        return torch.linspace(-7, 7, self.num_points, dtype=torch.float64)[:, None]


@dataclass(frozen=True)
class Fit:
    """A fitted law of f.

    Attributes:
        marginals: mean and variance of f at rows.
        noise_variance: σ².
        inducing_points: Z where it was in the end.
        minimum_mean: the mean at rows if its coefficients were at the minimum of the loss; that of `marginals` unless known.
    """

    marginals: Callable[[Tensor], tuple[Tensor, Tensor]]
    noise_variance: float
    inducing_points: Tensor
    minimum_mean: Callable[[Tensor], Tensor] | None = None


def sample(function: Function, num_data: int, seed: int = 1) -> Toy:
    """Noisy rows of a function, those of its gap set apart."""
    x = torch.linspace(-5, 5, num_data, dtype=torch.float64)
    noise = torch.randn(num_data, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    y = function.value(x) + NOISE_STD * noise
    unseen = (x > function.gap[0]) & (x < function.gap[1])
    return Toy(x[~unseen, None], y[None, ~unseen], x[unseen, None], y[None, unseen])


def _gwi(data: Toy, setting: Setting, kind: Kind) -> Fit:
    generator = torch.Generator().manual_seed(0)
    q, noise = initial_posterior(
        data.x, data.y[0], kind, setting.num_inducing, batch_size=len(data.x), jitter=1e-6, generator=generator
    )
    train_posterior(
        q,
        noise,
        data.x,
        data.y[0],
        num_epochs=setting.num_steps,
        batch_size=len(data.x),
        num_comparison_points=100,
        learning_rate=1e-2,
        generator=generator,
    )
    z = q.kernel.inducing_points.detach().clone()
    if kind == "network":
        return Fit(q.marginals, noise, z)
    k = q.kernel.prior_kernel
    weighted, plain = (row_sums(k, z, data.x, data.y, noise_variance=v, jitter=1e-6) for v in (noise, 1.0))
    return Fit(q.marginals, noise, z, KernelMean(k, z, wasserstein_coefficients(weighted, plain, 1.0), jitter=1e-6))


def gwi_net(data: Toy, setting: Setting) -> Fit:
    """The mean is a network of two layers of ten tanh units; Z stays."""
    return _gwi(data, setting, "network")


def gwi_svgp(data: Toy, setting: Setting) -> Fit:
    """The mean is a kernel expansion at Z, which is learned; a thousand steps do not reach the minimum of its coefficients."""
    return _gwi(data, setting, "svgp")


class SparseGP(gpytorch.models.ApproximateGP):
    """GPyTorch's SVGP, whitened, whose inducing points are learned."""

    def __init__(self, z: Tensor, kernel: gpytorch.kernels.Kernel) -> None:
        law = gpytorch.variational.CholeskyVariationalDistribution(len(z))
        super().__init__(gpytorch.variational.VariationalStrategy(self, z, law, learn_inducing_locations=True))
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = kernel

    def forward(self, x: Tensor) -> MultivariateNormal:
        """The prior at rows."""
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def svgp(data: Toy, setting: Setting) -> Fit:
    """GPyTorch's SVGP under the evidence lower bound: kernel, noise, Z and the law at Z, all by Adam."""
    generator = torch.Generator().manual_seed(0)
    z = data.x[torch.randperm(len(data.x), generator=generator)[: setting.num_inducing]]
    torch.manual_seed(0)
    model = SparseGP(z, default_kernel(1, hyper_priors=False)).double()
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(data.x))
    optimiser = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.03)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, setting.num_steps)
    for _ in range(setting.num_steps):
        optimiser.zero_grad()
        (-objective(model(data.x), data.y[0])).backward()
        optimiser.step()
        schedule.step()
    model.eval()

    def marginals(x: Tensor) -> tuple[Tensor, Tensor]:
        law = model(x)
        return law.mean[None], law.variance[None]

    return Fit(marginals, likelihood.noise.item(), model.variational_strategy.inducing_points.detach())


METHODS: dict[str, Callable[[Toy, Setting], Fit]] = {"GWI-net": gwi_net, "GWI: SVGP": gwi_svgp, "SVGP": svgp}


def compute_fits(name: str, methods: tuple[str, ...], folder: Path, setting: Setting) -> None:
    """Records of each method on each function: the curves, what is drawn beside them, and what came of it."""
    curves: list[dict[str, object]] = []
    points: list[dict[str, object]] = []
    facts: list[dict[str, object]] = []
    for function in FUNCTIONS:
        data = sample(function, setting.num_data)
        for method in methods:
            fit = METHODS[method](data, setting)
            label = {"method": method, "function": function.name}
            with torch.no_grad():
                curves += ({**label, **row} for row in _curve(fit, setting.grid()))
                facts.append({**label, **_facts(fit, function, data)})
            z = fit.inducing_points[:, 0].tolist()
            points += ({**label, "kind": "inducing", "x": at, "y": 0.0} for at in sorted(z))
        for kind, x, y in (("seen", data.x, data.y), ("unseen", data.x_unseen, data.y_unseen)):
            shown = zip(x[:: setting.every, 0].tolist(), y[0, :: setting.every].tolist(), strict=True)
            points += ({"method": "", "function": function.name, "kind": kind, "x": a, "y": b} for a, b in shown)
    write(f"{name}_curves", curves, echo=False, folder=folder)
    write(f"{name}_points", points, echo=False, folder=folder)
    write(f"{name}_facts", facts, folder=folder)


def _curve(fit: Fit, grid: Tensor) -> Iterator[dict[str, float]]:
    mean, variance = (values[0] for values in fit.marginals(grid))
    half = 1.96 * (variance + fit.noise_variance).sqrt()
    for x, m, h in zip(grid[:, 0].tolist(), mean.tolist(), half.tolist(), strict=True):
        yield {"x": x, "mean": m, "half_width": h}


def _facts(fit: Fit, function: Function, data: Toy) -> dict[str, float]:
    """Shares of targets inside 95 % intervals, standard deviations of f, errors of the mean."""
    found: dict[str, float] = {"noise_std": fit.noise_variance**0.5}
    for kind, x, y in (("seen", data.x, data.y[0]), ("unseen", data.x_unseen, data.y_unseen[0])):
        mean, variance = (values[0] for values in fit.marginals(x))
        inside = (y - mean).abs() <= 1.96 * (variance + fit.noise_variance).sqrt()
        found[f"coverage_{kind}"] = inside.double().mean().item()
        found[f"std_{kind}"] = variance.sqrt().mean().item()
        found[f"rmse_{kind}"] = (mean - function.value(x[:, 0])).square().mean().sqrt().item()
    at_minimum = mean if fit.minimum_mean is None else fit.minimum_mean(data.x_unseen)[0]
    found["rmse_unseen_at_minimum"] = (at_minimum - function.value(data.x_unseen[:, 0])).square().mean().sqrt().item()
    return found


def draw_fit(axes: Axes, method: str, function: str, curves: Path, points: Path, thin: int = 1) -> None:
    """One panel from the records of `compute_fits`; the two paths are its folder and its name, and those of the rows."""
    chosen = [r for r in read(f"{curves.name}_curves", curves.parent) if (r["method"], r["function"]) == (method, function)]
    x, mean, half = (np.array([float(r[c]) for r in chosen]) for c in ("x", "mean", "half_width"))
    band(axes, x, mean, half, label=r"$m_Q \pm 1.96\,\sqrt{r + \sigma^2}$")
    rows = [r for r in read(f"{points.name}_points", points.parent) if r["function"] == function]
    for kind, colour, marker, size, label in (
        ("seen", SEEN, "o", 2.0, "training data"),
        ("unseen", UNSEEN, "x", 3.0, "unseen data"),
    ):
        at, y = _places(rows, kind)
        axes.plot(at[::thin], y[::thin], marker, color=colour, ms=size, mew=0.8 if marker == "x" else 0, alpha=0.8, label=label)
    axes.plot(x, mean, color=BLACK, lw=1.5, label=r"$m_Q$")
    own = [r for r in read(f"{curves.name}_points", curves.parent) if (r["method"], r["function"]) == (method, function)]
    at, _ = _places(own, "inducing")
    axes.plot(at, np.full(len(at), -5.4), "^", color=INDUCING, ms=4, mew=0, label="inducing points")
    axes.set(xlim=(-7, 7), ylim=(-6, 6))


def _places(rows: list[dict[str, str]], kind: str) -> tuple[Array, Array]:
    pairs = [(float(r["x"]), float(r["y"])) for r in rows if r["kind"] == kind]
    return np.array([a for a, _ in pairs]), np.array([b for _, b in pairs])
