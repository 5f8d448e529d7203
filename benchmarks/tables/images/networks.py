"""The small convolutional networks that all methods of the image table share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from benchmarks.tables.images.data import DatasetName

NUM_CLASSES = 10


@dataclass(frozen=True)
class Architecture:
    """Sizes of a `SmallCNN`.

    Attributes:
        num_channels: of an image.
        size: of an image, in pixels.
        widths: channels of the three blocks.
        grid: places, in each direction, that the last block's output is averaged to.
        num_hidden: units of the dense layer.
    """

    num_channels: int
    size: int
    widths: tuple[int, int, int]
    grid: int
    num_hidden: int = 128


# 8.2 and 14.5 million multiply-adds an image; DeepOBS' 2c2d and 3c3d have 14 and 16 (Schneider et al., 2019).
ARCHITECTURES: dict[DatasetName, Architecture] = {
    "fashion-mnist": Architecture(1, 28, (32, 64, 72), grid=3),
    "cifar10-20k": Architecture(3, 32, (32, 64, 96), grid=2),
}


class Residual(nn.Module):
    """x + f(x)."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """x + f(x)."""
        return x + self.layers(x)


class ChannelsLast(nn.Module):
    """The same images, stored channels last.

    Convolutions guess the order from the strides. Those of images with one channel fit both orders, and the guess is then the
    slower one for all that follows: with `Tensor.to` the strides are written anew, and a step takes three quarters of the time.
    """

    def forward(self, x: Tensor) -> Tensor:
        """The same numbers."""
        return x.to(memory_format=torch.channels_last)


def convolution(num_in: int, num_out: int, *, pool: bool = False) -> list[nn.Module]:
    """3 × 3 convolution, batch normalisation, ReLU; pooling comes first, so that the other two see a quarter of the pixels."""
    halved = [nn.MaxPool2d(2)] if pool else []
    return [nn.Conv2d(num_in, num_out, 3, padding=1, bias=False), *halved, nn.BatchNorm2d(num_out), nn.ReLU()]


class SmallCNN(nn.Module):
    """Three blocks of convolutions, the last one with a residual convolution, and one dense layer, all with batch normalisation.

    Layers of use for features have names that stay: ``blocks`` (the last of them ``blocks.2``, of shape (C, H/4, W/4)), ``pool``
    (its averages, flat) and ``dense`` (what the last linear layer, ``output``, sees).

    Weights and images are stored channels last, in which a step takes two thirds of the time on a processor; inputs may be in any
    order.

    Args:
        architecture: the sizes.
        dropout: the probability after each block and after the dense layer; above zero only for MC dropout.
    """

    def __init__(self, architecture: Architecture, *, dropout: float = 0.0) -> None:
        super().__init__()
        a, b, c = architecture.widths
        self.blocks = nn.Sequential(
            nn.Sequential(ChannelsLast(), *convolution(architecture.num_channels, a, pool=True), nn.Dropout(dropout)),
            nn.Sequential(*convolution(a, b, pool=True), nn.Dropout(dropout)),
            nn.Sequential(*convolution(b, c), Residual(*convolution(c, c)), nn.Dropout(dropout)),
        )
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(architecture.grid), nn.Flatten())
        self.dense = nn.Sequential(
            nn.Linear(c * architecture.grid**2, architecture.num_hidden, bias=False),
            nn.BatchNorm1d(architecture.num_hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
        )
        self.output = nn.Linear(architecture.num_hidden, NUM_CLASSES)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                module.weight.data = module.weight.data.contiguous(memory_format=torch.channels_last)

    def features(self, x: Tensor) -> Tensor:
        """What the last linear layer sees, (N, hidden)."""
        return self.dense(self.pool(self.blocks(x)))

    def forward(self, x: Tensor) -> Tensor:
        """Logits (N, J) of images (N, C, H, W)."""
        return self.output(self.features(x))


def build(architecture: Architecture, *, seed: int, dropout: float = 0.0) -> SmallCNN:
    """An untrained network, the same for the same seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return SmallCNN(architecture, dropout=dropout)


def multiply_adds(network: SmallCNN, architecture: Architecture) -> int:
    """Of convolutions and linear layers, for one image."""
    counted: list[int] = []

    def count(module: nn.Module, _: Sequence[Tensor], output: Tensor) -> None:
        places = output.shape[2:].numel()
        weight = module.weight
        assert isinstance(weight, Tensor)
        counted.append(places * weight.numel())

    layers = [module for module in network.modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    handles = [layer.register_forward_hook(count) for layer in layers]
    training = network.training
    try:
        with torch.no_grad():
            network.eval()(torch.zeros(1, architecture.num_channels, architecture.size, architecture.size))
    finally:
        network.train(training)
        for handle in handles:
            handle.remove()
    return sum(counted)
