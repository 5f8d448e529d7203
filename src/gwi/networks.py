"""Networks for the mean."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import nn


def mlp(
    num_features: int,
    num_outputs: int = 1,
    *,
    hidden: Sequence[int] = (10, 10),
    activation: type[nn.Module] = nn.Tanh,
    generator: torch.Generator | None = None,
) -> nn.Sequential:
    """A fully connected network; the default is the paper's two layers of ten tanh units.

    Weights are drawn from `generator` (Glorot for tanh-like, He for ReLU-like units), biases start at zero.
    """
    widths = [num_features, *hidden, num_outputs]
    layers: list[nn.Module] = []
    rectified = issubclass(activation, (nn.ReLU, nn.LeakyReLU, nn.GELU, nn.SiLU))
    for i, (width_in, width_out) in enumerate(itertools.pairwise(widths)):
        # The usual constructor would draw weights from the global generator first.
        linear = nn.utils.skip_init(nn.Linear, width_in, width_out)
        if rectified:
            nn.init.kaiming_normal_(linear.weight, generator=generator)
        else:
            nn.init.xavier_normal_(linear.weight, generator=generator)
        nn.init.zeros_(linear.bias)
        layers += [linear] if i == len(widths) - 2 else [linear, activation()]
    return nn.Sequential(*layers)
