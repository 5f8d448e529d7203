"""Peers with a law over the weights: MC dropout, mean-field variational inference, Kronecker Laplace on the last layer."""

from __future__ import annotations

import copy
import importlib
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.tables.images.interface import NUM_DRAWS, Fitted, Method, Prediction, Problem, mixed, softmax
from benchmarks.tables.images.training import in_batches, train, trained
from gwi._typing import Array
from gwi.evaluation.classification import score_classes

DROPOUT = 0.2
# Mean-field inference: the weight of the KL divergence, where it starts, and how it is trained.
KL_WEIGHT = 0.1
START_SHARE = 0.05
RATE, STD_RATE = 5e-4, 2e-2
PRIOR_PRECISIONS = tuple(10 ** (i / 4) for i in range(-12, 17))


def mc_dropout(problem: Problem) -> Fitted:
    """A network trained with dropout 0.2 after each block and the dense layer, kept on at prediction: the mean of 20 passes.

    As in Gal and Ghahramani (2016); its own score is the mutual information of label and weights.
    """
    own = trained(problem.data, problem.recipe, problem.seed, dropout=DROPOUT)
    network = own.network
    for module in network.modules():
        if isinstance(module, nn.Dropout):
            module.train()
    return Fitted(
        drawn(network, problem.seed),
        {"dropout": DROPOUT, "draws": NUM_DRAWS},
        score_name="mutual information",
        seconds=own.seconds,
        uses_shared=False,
    )


def drawn(network: nn.Module, seed: int, *, before: Callable[[], None] = lambda: None) -> Callable[[Tensor], Prediction]:
    """The mean of passes through a network that draws by itself, or for which something is drawn before each pass."""

    def one(x: Tensor) -> Array:
        before()
        return softmax(in_batches(network, x))

    def predict(x: Tensor) -> Prediction:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return mixed(np.stack([one(x) for _ in range(NUM_DRAWS)]))

    return predict


class MeanField(nn.Module):
    """A convolution or linear layer whose weights are independent normal variables.

    In training its output, which is normal given the input, is drawn: local reparameterisation (Kingma et al., 2015), where the
    places of a convolution's output are drawn independently, as is usual. At evaluation it has the weights of the last `draw`.

    Args:
        layer: whose weights are the first means.
    """

    weight: Tensor

    def __init__(self, layer: nn.Conv2d | nn.Linear) -> None:
        super().__init__()
        self.layer = layer
        size = layer.weight.detach().square().mean().sqrt()
        self.log_std = nn.Parameter(torch.full_like(layer.weight, math.log(START_SHARE)) + size.log())
        self.register_buffer("weight", layer.weight.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """A draw of the outputs, or the outputs of a draw."""
        if not self.training:
            return self._apply_weight(x, self.weight, self.layer.bias)
        mean = self.layer(x)
        variance = self._apply_weight(x.square(), (2 * self.log_std).exp(), None)
        return mean + (variance + 1e-12).sqrt() * torch.randn_like(mean)

    def _apply_weight(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if isinstance(self.layer, nn.Conv2d):
            return nn.functional.conv2d(x, weight, bias, self.layer.stride, self.layer.padding)
        return nn.functional.linear(x, weight, bias)

    @torch.no_grad()
    def draw(self) -> None:
        """Weights for evaluation."""
        self.weight = self.layer.weight + self.log_std.exp() * torch.randn_like(self.log_std)

    def divergence(self) -> Tensor:
        """KL from the prior N(0, s²) of this layer, where s², the mean of E w², is the one with the least divergence."""
        prior_variance = (self.layer.weight.square() + (2 * self.log_std).exp()).mean()
        return (prior_variance.log() / 2 - self.log_std).sum()


def mean_field(network: nn.Module) -> nn.Module:
    """A copy of the network with mean-field layers; biases and batch normalisation stay numbers."""
    found = copy.deepcopy(network)
    for parent in list(found.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Conv2d | nn.Linear):
                setattr(parent, name, MeanField(child))
    return found


def mean_field_inference(problem: Problem) -> Fitted:
    """Independent normal weights (Blundell et al., 2015) by local reparameterisation, from the shared network on; 20 draws.

    Half the epochs, by Adam, each at the cost of two. The prior's scale in each layer is that of the least divergence, and the
    divergence is tempered by 0.1: with weight one the noise in as many weights as there are images drowns the network. The own
    score is the mutual information of label and weights.
    """
    network = mean_field(problem.shared.network)
    layers = [module for module in network.modules() if isinstance(module, MeanField)]
    stds = [layer.log_std for layer in layers]
    known = {id(std) for std in stds}
    means = [p for p in network.parameters() if id(p) not in known]
    groups: list[dict[str, Any]] = [{"params": means, "lr": RATE}, {"params": stds, "lr": STD_RATE}]
    weight = KL_WEIGHT / len(problem.data.train_x)

    def penalty() -> Tensor:
        return weight * torch.stack([layer.divergence() for layer in layers]).sum()

    recipe = replace(problem.recipe, num_epochs=math.ceil(problem.recipe.num_epochs / 2))
    train(network, torch.optim.Adam(groups), problem.data, recipe, problem.seed, penalty=penalty)
    with torch.no_grad():
        shares = [float(layer.log_std.exp().mean() / layer.layer.weight.square().mean().sqrt()) for layer in layers]
    settings = {"kl_weight": KL_WEIGHT, "epochs": recipe.num_epochs, "draws": NUM_DRAWS, "noise_shares": shares}

    def draw() -> None:
        for layer in layers:
            layer.draw()

    return Fitted(drawn(network, problem.seed, before=draw), settings, score_name="mutual information")


def laplace(*, damped: bool) -> Method:
    """laplace-torch's Kronecker Laplace on the shared network's last layer, with the probit approximation.

    Last layer, its recommended default (Daxberger et al., 2021): on all layers of these networks a prediction takes
    0.2 s an image. Plain, the prior precision is one; damped, that with the least NLL on validation images, from 0.001 to 10,000.
    """

    def fit(problem: Problem) -> Fitted:
        library: Any = importlib.import_module("laplace")
        data, network = problem.data, problem.shared.network
        # The last layer's own Laplace approximation, on its inputs, is the network's on the last layer.
        found = library.Laplace(copy.deepcopy(network.output), "classification", "all", "kron")
        images = torch.utils.data.TensorDataset(in_batches(network.features, data.train_x), data.train_y)
        found.fit(torch.utils.data.DataLoader(images, batch_size=500))

        def of_features(features: Tensor) -> Array:
            probabilities = in_batches(lambda part: found(part, pred_type="glm", link_approx="probit"), features)
            return probabilities.double().numpy()

        precision = 1.0
        if damped:
            features, y = in_batches(network.features, data.validation_x), data.validation_y.numpy()

            def nll(precision: float) -> float:
                found.prior_precision = precision
                return score_classes(of_features(features), y).nll

            precision = min(PRIOR_PRECISIONS, key=nll)
        found.prior_precision = precision
        settings = {"prior_precision": precision, "layers": "last"}
        return Fitted(lambda x: Prediction(of_features(in_batches(network.features, x))), settings)

    return fit
