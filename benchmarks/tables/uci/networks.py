"""Peers that are networks: deep ensemble, MC dropout, Bayes by Backprop, last-layer Laplace.

Architecture and training follow the authors: one hidden layer of 50 units, 100 for protein (Hernández-Lobato and Adams, 2015, and
all who followed). Where a paper has a fixed number of epochs that its public results outgrew, the number is chosen on rows held
out of the training rows, and the network is trained again on all of them.
"""

from __future__ import annotations

import copy
import importlib
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.tables.uci.interface import Budget, Fitted, Rows, hold_out, standardised
from gwi._typing import Array

LARGE = 20_000
NUM_DRAWS = 100


def width(num_rows: int) -> int:
    """Hidden units."""
    return 100 if num_rows > LARGE else 50


class Layers(nn.Module):
    """K networks with one hidden layer, evaluated together."""

    def __init__(self, count: int, sizes: tuple[int, ...], seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for fan_in, fan_out in itertools.pairwise(sizes):
            bound = fan_in**-0.5
            self.weights.append(torch.empty(count, fan_in, fan_out).uniform_(-bound, bound, generator=generator))
            self.biases.append(torch.empty(count, 1, fan_out).uniform_(-bound, bound, generator=generator))

    def forward(self, x: Tensor, dropout: Tensor | None = None) -> Tensor:
        """From (K, B, D), or (B, D) for all, to (K, B, outputs); `dropout` is the probability of each network."""
        h = x.expand(len(self.weights[0]), *x.shape[-2:])
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            if dropout is not None:
                keep = 1 - dropout[:, None, None]
                h = h * torch.bernoulli(keep.expand_as(h)) / keep
            h = torch.baddbmm(bias, h, weight)
            h = torch.relu(h) if i + 1 < len(self.weights) else h
        return h


def train(
    parameters: Sequence[Tensor],
    loss: Callable[[Tensor], Tensor],
    num_rows: int,
    *,
    count: int,
    batch_size: int,
    num_epochs: int,
    learning_rate: float,
    seed: int,
    seconds: float,
    weight_decay: float = 0.0,
    on_epoch: Callable[[int], None] | None = None,
) -> int:
    """Adam on `loss` of (K, B) indices of rows; stops when processor `seconds` are spent. Returns the epochs done."""
    budget = Budget(seconds)
    optimiser = torch.optim.Adam(parameters, lr=learning_rate, weight_decay=weight_decay)
    generator = torch.Generator().manual_seed(seed)
    epoch = 0
    while epoch < num_epochs and budget.left() > 0:
        order = torch.stack([torch.randperm(num_rows, generator=generator) for _ in range(count)])
        for rows in order.split(batch_size, dim=1):
            optimiser.zero_grad(set_to_none=True)
            loss(rows).backward()
            optimiser.step()
        epoch += 1
        if on_epoch is not None:
            on_epoch(epoch)
    return epoch


def chosen_epochs(
    fit: Callable[[Rows, int, float, Callable[[int, Any], None] | None], Any],
    validation_loss: Callable[[Any, Rows], float],
    num_rows: int,
    max_epochs: int,
    seed: int,
    budget: Budget,
) -> tuple[int, float]:
    """The number of epochs, among powers of √2, with the least loss on held-out rows, and the seconds that a fit may take."""
    learn, judge = hold_out(num_rows, judging_share(num_rows), seed)
    marks = {round(10 * 2 ** (i / 2)) for i in range(40)} | {max_epochs}
    losses: dict[int, float] = {}

    def look(epoch: int, model: Any) -> None:
        if epoch in marks:
            losses[epoch] = validation_loss(model, judge)

    started = budget.spent()
    done = fit(learn, max_epochs, budget.seconds * 0.3, look)
    if not losses:
        losses[done[1]] = 0.0
    epochs = min(losses, key=losses.__getitem__)
    # Time enough for as many epochs on all rows as were done on nine tenths of them.
    return epochs, max(1.3 * (budget.spent() - started), 1.0)


def judging_share(num_rows: int) -> float:
    """Of the training rows, to choose by."""
    return 0.2 if num_rows < 2000 else 0.1


def epochs_for(num_rows: int) -> int:
    """A bound on epochs: about 10,000 steps of 100 rows on small tables, 30,000 on large ones."""
    return min(2000, max(40, (1_000_000 if num_rows < 3000 else 3_000_000) // num_rows))


def deep_ensemble(x: Array, y: Array, seed: int, budget: Budget) -> Fitted:
    """Five networks with a mean and a variance head and adversarial training (Lakshminarayanan et al., 2017)."""
    data = standardised(x, y)
    rows, targets = torch.from_numpy(data.x).float(), torch.from_numpy(data.y).float()
    step = 0.01 * (rows.amax(0) - rows.amin(0))
    sizes = (x.shape[1], width(len(x)), 2)

    def losses(model: Layers, inputs: Tensor, y_: Tensor) -> Tensor:
        mean, raw = model(inputs).unbind(-1)
        variance = nn.functional.softplus(raw) + 1e-6
        return (variance.log() + (y_ - mean).square() / variance) / 2

    def fit(index: Rows, epochs: int, seconds: float, look: Callable[[int, Any], None] | None) -> tuple[Layers, int]:
        model = Layers(5, sizes, seed)
        pool = torch.from_numpy(index)

        def loss(batch: Tensor) -> Tensor:
            chosen = pool[batch]
            inputs, wanted = rows[chosen].requires_grad_(True), targets[chosen]
            plain = losses(model, inputs, wanted).mean(1).sum()
            (gradient,) = torch.autograd.grad(plain, inputs, retain_graph=True)
            moved = (inputs + step * gradient.sign()).detach()
            return plain + losses(model, moved, wanted).mean(1).sum()

        done = train(
            list(model.parameters()),
            loss,
            len(index),
            count=5,
            batch_size=100,
            num_epochs=epochs,
            learning_rate=0.01,
            seed=seed,
            seconds=seconds,
            on_epoch=None if look is None else lambda epoch: look(epoch, model),
        )
        return model, done

    @torch.no_grad()
    def judged(model: Layers, index: Rows) -> float:
        return float(losses(model, rows[index], targets[index]).mean())

    if budget.known:
        epochs, seconds = int(budget.known["epochs"]), budget.left()
    else:
        epochs, seconds = chosen_epochs(fit, judged, len(x), budget.steps(epochs_for(len(x))), seed, budget)
    model, done = fit(np.arange(len(x)), epochs, min(seconds, budget.left()), None)

    @torch.no_grad()
    def predict(new: Array) -> Any:
        mean, raw = model(torch.from_numpy(data.rows(new)).float()).unbind(-1)
        return data.law(mean.numpy(), (nn.functional.softplus(raw) + 1e-6).sqrt().numpy())

    return Fitted(predict, {"networks": 5, "hidden": sizes[1], "epochs": done, "adversarial": 0.01}, 0.0, 0.0)


def mc_dropout(x: Array, y: Array, seed: int, budget: Budget) -> Fitted:
    """Dropout kept on at prediction (Gal and Ghahramani, 2016): rate and precision by held-out likelihood, 400 epochs."""
    data = standardised(x, y)
    rows, targets = torch.from_numpy(data.x).float(), torch.from_numpy(data.y).float()
    rates = torch.tensor([0.005, 0.01, 0.05, 0.1])
    sizes = (x.shape[1], width(len(x)), 1)
    learn, judge = hold_out(len(x), 0.2, seed)

    def fit(index: Rows, rate: Tensor, epochs: int, seconds: float) -> tuple[Layers, int]:
        torch.manual_seed(seed)
        model = Layers(len(rate), sizes, seed)
        pool = torch.from_numpy(index)
        # l²(1 − p)/2Nτ with the authors' l = 0.01; τ = 10 stands for any: the term is small.
        decay = 1e-4 * (1 - rate) / (2 * len(index) * 10.0)

        def loss(batch: Tensor) -> Tensor:
            chosen = pool[batch]
            error = (model(rows[chosen], rate)[..., 0] - targets[chosen]).square().mean(1)
            size = sum(weight.square().sum((1, 2)) for weight in model.weights)
            return (error + decay * size).sum()

        done = train(
            list(model.parameters()),
            loss,
            len(index),
            count=len(rate),
            batch_size=32,
            num_epochs=epochs,
            learning_rate=1e-3,
            seed=seed,
            seconds=seconds,
        )
        return model, done

    @torch.no_grad()
    def draws(model: Layers, rate: Tensor, new: Tensor) -> Tensor:
        torch.manual_seed(seed)
        return torch.stack([model(new, rate)[..., 0] for _ in range(NUM_DRAWS)])

    epochs = budget.steps(400)
    tried, done = fit(learn, rates, epochs, 0.55 * budget.seconds)
    sampled = draws(tried, rates, rows[judge])
    stds = torch.logspace(-3, 0.5, 60)
    densities = torch.stack(
        [
            (torch.distributions.Normal(sampled, std).log_prob(targets[judge]).logsumexp(0) - math.log(NUM_DRAWS)).mean(-1)
            for std in stds
        ]
    )
    which, best = divmod(int(densities.argmax()), len(rates))
    rate, std = rates[best : best + 1], float(stds[which])
    model, _ = fit(np.arange(len(x)), rate, done, budget.left())

    def predict(new: Array) -> Any:
        mean = draws(model, rate, torch.from_numpy(data.rows(new)).float())[:, 0]
        return data.law(mean.numpy(), np.array(std))

    return Fitted(
        predict, {"rate": float(rate), "noise_std": std, "hidden": sizes[1], "epochs": done, "draws": NUM_DRAWS}, 0.0, 0.0
    )


def bayes_by_backprop(x: Array, y: Array, seed: int, budget: Budget) -> Fitted:
    """Mean-field Gaussian weights with the scale-mixture prior (Blundell et al., 2015) and a learned noise level."""
    data = standardised(x, y)
    rows, targets = torch.from_numpy(data.x).float(), torch.from_numpy(data.y).float()
    sizes = (x.shape[1], width(len(x)), 1)
    network = Layers(1, sizes, seed)
    torch.manual_seed(seed)
    shapes = [p.shape for p in network.parameters()]
    mean = torch.cat([p.detach().flatten() for p in network.parameters()]).requires_grad_(True)
    raw = torch.full_like(mean, -5.0).requires_grad_(True)
    log_noise = torch.tensor(-1.0, requires_grad=True)
    num_batches = math.ceil(len(x) / 100)
    narrow, broad = torch.distributions.Normal(0.0, math.exp(-6)), torch.distributions.Normal(0.0, 1.0)

    def draw() -> tuple[Tensor, Tensor]:
        std = nn.functional.softplus(raw)
        return mean + std * torch.randn_like(mean), std

    def outputs(weights: Tensor, inputs: Tensor) -> Tensor:
        parts = [part.reshape(shape) for part, shape in zip(weights.split([s.numel() for s in shapes]), shapes, strict=True)]
        half = len(parts) // 2
        h = inputs[None]
        for i, (weight, bias) in enumerate(zip(parts[:half], parts[half:], strict=True)):
            h = torch.baddbmm(bias, h, weight)
            h = torch.relu(h) if i + 1 < half else h
        return h[0, :, 0]

    def loss(batch: Tensor) -> Tensor:
        weights, std = draw()
        fit = torch.distributions.Normal(outputs(weights, rows[batch[0]]), log_noise.exp()).log_prob(targets[batch[0]])
        posterior = torch.distributions.Normal(mean, std).log_prob(weights).sum()
        prior = torch.logaddexp(narrow.log_prob(weights), broad.log_prob(weights)).sum() - len(weights) * math.log(2)
        return (posterior - prior) / num_batches - fit.sum() * (len(x) / num_batches / batch.shape[1])

    done = train(
        [mean, raw, log_noise],
        loss,
        len(x),
        count=1,
        batch_size=100,
        num_epochs=budget.steps(epochs_for(len(x))),
        learning_rate=3e-3,
        seed=seed,
        seconds=0.95 * budget.left(),
    )

    @torch.no_grad()
    def predict(new: Array) -> Any:
        torch.manual_seed(seed)
        inputs = torch.from_numpy(data.rows(new)).float()
        sampled = torch.stack([outputs(draw()[0], inputs) for _ in range(NUM_DRAWS)])
        return data.law(sampled.numpy(), np.array(log_noise.exp().item()))

    return Fitted(
        predict, {"hidden": sizes[1], "epochs": done, "noise_std": log_noise.exp().item(), "draws": NUM_DRAWS}, 0.0, 0.0
    )


def last_layer_laplace(x: Array, y: Array, seed: int, budget: Budget) -> Fitted:
    """laplace-torch on a network's last layer (Daxberger et al., 2021), prior precision and noise on held-out rows.

    Its other way, the marginal likelihood of the training rows, takes the errors of a network that knows them by heart for the
    noise: on boston's first split intervals of 95 % then held 47 % of the rows.
    """
    laplace: Any = importlib.import_module("laplace")
    data = standardised(x, y)
    rows, targets = torch.from_numpy(data.x).float(), torch.from_numpy(data.y).float()[:, None]

    def network() -> nn.Module:
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(x.shape[1], width(len(x))), nn.ReLU(), nn.Linear(width(len(x)), 1))

    def fit(index: Rows, epochs: int, seconds: float, look: Callable[[int, Any], None] | None) -> tuple[nn.Module, int]:
        model = network()
        pool = torch.from_numpy(index)
        done = train(
            list(model.parameters()),
            lambda batch: (model(rows[pool[batch[0]]]) - targets[pool[batch[0]]]).square().mean(),
            len(index),
            count=1,
            batch_size=100,
            num_epochs=epochs,
            learning_rate=1e-2,
            weight_decay=5e-4,
            seed=seed,
            seconds=seconds,
            on_epoch=None if look is None else lambda epoch: look(epoch, model),
        )
        return model, done

    def approximate(model: nn.Module, index: Rows) -> Any:
        # In double precision: with the small precisions that are tried, float32 loses the definiteness of naval's.
        found = laplace.Laplace(
            copy.deepcopy(model).double(), "regression", subset_of_weights="last_layer", hessian_structure="full"
        )
        chosen = torch.utils.data.TensorDataset(rows[index].double(), targets[index].double())
        found.fit(torch.utils.data.DataLoader(chosen, batch_size=512))
        return found

    @torch.no_grad()
    def judged(model: nn.Module, index: Rows) -> float:
        return float((model(rows[index]) - targets[index]).square().mean())

    epochs, seconds = chosen_epochs(fit, judged, len(x), budget.steps(epochs_for(len(x))), seed, budget)
    learn, judge = hold_out(len(x), judging_share(len(x)), seed)
    tried, _ = fit(learn, epochs, seconds, None)
    approximation = approximate(tried, learn)
    best = (math.inf, 1.0, 1.0)
    for precision in torch.logspace(-3, 5, 17).tolist():
        approximation.prior_precision = precision
        with torch.no_grad():
            mean, variance = approximation(rows[judge].double())
            for noise in torch.logspace(-3, 0.3, 34).tolist():
                law = torch.distributions.Normal(mean[:, 0], (variance[:, 0, 0] + noise**2).sqrt())
                best = min(best, (-float(law.log_prob(targets[judge, 0]).mean()), precision, noise))
    _, precision, noise = best
    model, done = fit(np.arange(len(x)), epochs, min(seconds, 0.9 * budget.left()), None)
    fitted = approximate(model, np.arange(len(x)))
    fitted.prior_precision = precision

    @torch.no_grad()
    def predict(new: Array) -> Any:
        mean, variance = fitted(torch.from_numpy(data.rows(new)))
        return data.law(mean[:, 0].numpy(), (variance[:, 0, 0] + noise**2).sqrt().numpy())

    settings = {"hidden": width(len(x)), "epochs": done, "noise_std": noise, "prior_precision": precision}
    return Fitted(predict, settings, 0.0, 0.0)
