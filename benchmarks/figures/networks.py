"""Mean-field variational inference and MC dropout for a network with one hidden layer of rectified units, without sampling.

With one hidden layer, mean and variance of f under either family are sums over units of closed forms, and the Gaussian likelihood
needs nothing else. So the objectives are exact, training is deterministic, and standard deviations have no Monte Carlo error.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.figures.limit import NetworkPrior
from benchmarks.figures.style import Array

Moments = Callable[[Tensor], tuple[Tensor, Tensor]]
SQRT_TWO_PI = math.sqrt(2 * math.pi)


def rectified_moments(mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
    """First and second moment of max(0, A) for A normal."""
    z = mean / std
    density, below = torch.exp(-z.square() / 2) / SQRT_TWO_PI, torch.special.ndtr(z)
    first = mean * below + std * density
    return first, (mean.square() + std.square()) * below + mean * std * density


def mean_field_moments(x: Tensor, parameters: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Mean and variance of f(x) when all weights and biases are independent and normal.

    Units are then independent given x, and so are a unit and its outgoing weight.
    """
    p = parameters
    mean = x @ p["w1"] + p["b1"]
    std = (x.square() @ (2 * p["log_w1"]).exp() + (2 * p["log_b1"]).exp()).sqrt()
    first, second = rectified_moments(mean, std)
    spread = (second @ ((2 * p["log_w2"]).exp() + p["w2"].square())) - first.square() @ p["w2"].square()
    return first @ p["w2"] + p["b2"], spread + (2 * p["log_b2"]).exp()


def dropout_moments(x: Tensor, parameters: dict[str, Tensor], rate: float) -> tuple[Tensor, Tensor]:
    """Mean and variance of f(x) when each hidden unit is dropped with probability `rate`."""
    p = parameters
    out = torch.relu(x @ p["w1"] + p["b1"]) * p["w2"]
    return (1 - rate) * out.sum(-1) + p["b2"], rate * (1 - rate) * out.square().sum(-1)


def _prior_stds(num_features: int, prior: NetworkPrior) -> dict[str, float]:
    return {
        "w1": prior.weight_std / math.sqrt(num_features),
        "b1": prior.bias_std,
        "w2": prior.weight_std / math.sqrt(prior.width),
        "b2": prior.bias_std,
    }


def _start(num_features: int, prior: NetworkPrior, seed: int) -> dict[str, Tensor]:
    """Means of weights: those of a layer with J outputs have standard deviation 1/√2J, biases are zero."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {"w1": (num_features, prior.width), "b1": (prior.width,), "w2": (prior.width,), "b2": ()}
    scale = {"w1": (2 * prior.width) ** -0.5, "b1": 0.0, "w2": 2**-0.5, "b2": 0.0}
    return {
        name: (scale[name] * torch.randn(shape, dtype=torch.float64, generator=generator)).requires_grad_(True)
        for name, shape in shapes.items()
    }


def _expected_misfit(moments: tuple[Tensor, Tensor], y: Tensor, prior: NetworkPrior) -> Tensor:
    """−E log p(y | f) without its constant."""
    mean, variance = moments
    return ((y - mean).square() + variance).sum() / (2 * prior.noise_std**2)


def _minimise(loss: Callable[[], Tensor], parameters: list[Tensor], num_steps: int, learning_rate: float) -> float:
    optimiser = torch.optim.Adam(parameters, lr=learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, num_steps)
    for _ in range(num_steps):
        optimiser.zero_grad()
        loss().backward()
        optimiser.step()
        schedule.step()
    with torch.no_grad():
        return float(loss())


def mean_field(x: Array, y: Array, prior: NetworkPrior, *, num_steps: int, num_starts: int) -> Moments:
    """The independent normal law of weights with the best evidence lower bound of several starts (Hinton and van Camp, 1993)."""
    rows, targets = torch.from_numpy(x), torch.from_numpy(y)
    stds = _prior_stds(x.shape[1], prior)
    best: tuple[float, dict[str, Tensor]] | None = None
    for seed in range(num_starts):
        p = _start(x.shape[1], prior, seed)
        p |= {f"log_{name}": torch.full_like(value, math.log(1e-2)).requires_grad_(True) for name, value in p.items()}

        def loss(p: dict[str, Tensor] = p) -> Tensor:
            misfit = _expected_misfit(mean_field_moments(rows, p), targets, prior)
            ratios = (((2 * p[f"log_{name}"]).exp() + p[name].square()) / stds[name] ** 2 for name in stds)
            # KL(q, p) of each weight, up to a constant.
            return misfit + sum(
                ((ratio / 2 - p[f"log_{name}"]).sum() for name, ratio in zip(stds, ratios, strict=True)), misfit.new_zeros(())
            )

        reached = _minimise(loss, list(p.values()), num_steps, 1e-2)
        if best is None or reached < best[0]:
            best = reached, {name: value.detach() for name, value in p.items()}
    assert best is not None
    chosen = best[1]
    return lambda new: mean_field_moments(new, chosen)


def dropout(x: Array, y: Array, prior: NetworkPrior, *, rate: float, num_steps: int, num_starts: int) -> Moments:
    """Dropout of hidden units as variational inference, with the weight decay that matches the prior (Gal, 2016)."""
    rows, targets = torch.from_numpy(x), torch.from_numpy(y)
    stds = _prior_stds(x.shape[1], prior)
    keep = {"w1": 1.0, "b1": 1.0, "w2": 1 - rate, "b2": 1.0}
    best: tuple[float, dict[str, Tensor]] | None = None
    for seed in range(num_starts):
        p = _start(x.shape[1], prior, seed)

        def loss(p: dict[str, Tensor] = p) -> Tensor:
            misfit = _expected_misfit(dropout_moments(rows, p, rate), targets, prior)
            decays = (keep[name] * p[name].square().sum() / (2 * stds[name] ** 2) for name in stds)
            return misfit + sum(decays, misfit.new_zeros(()))

        reached = _minimise(loss, list(p.values()), num_steps, 1e-2)
        if best is None or reached < best[0]:
            best = reached, {name: value.detach() for name, value in p.items()}
    assert best is not None
    chosen = best[1]
    return lambda new: dropout_moments(new, chosen, rate)
