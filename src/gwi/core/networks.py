"""Networks for the mean."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn


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


class EnsembleMLP(nn.Module):
    """E fully connected networks of one shape, evaluated together as batched matrix products; the output is their mean.

    Args:
        num_features: D.
        num_outputs: J.
        num_members: E.
        hidden: widths of the hidden layers.
        generator: for the weights, drawn as He for rectified units.
    """

    def __init__(
        self,
        num_features: int,
        num_outputs: int = 1,
        *,
        num_members: int = 5,
        hidden: Sequence[int] = (128, 128),
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        widths = [num_features, *hidden, num_outputs]
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for width_in, width_out in itertools.pairwise(widths):
            scale = (2 / width_in) ** 0.5
            self.weights.append(nn.Parameter(scale * torch.randn(num_members, width_in, width_out, generator=generator)))
            self.biases.append(nn.Parameter(torch.zeros(num_members, 1, width_out)))

    @property
    def num_members(self) -> int:
        """E."""
        return self.weights[0].shape[0]

    @property
    def dtype(self) -> torch.dtype:
        """In which it computes."""
        return self.weights[0].dtype

    def members(self, x: Float[Tensor, "*E N D"]) -> Float[Tensor, "E N J"]:
        """Each member's outputs, for rows that all share or for rows of each member's own."""
        h = x.expand(self.weights[0].shape[0], *x.shape[-2:])
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            h = torch.baddbmm(bias, h, weight)
            if i < len(self.weights) - 1:
                h = nn.functional.silu(h)
        return h

    def forward(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N J"]:
        """The mean over members."""
        return self.members(x).mean(0)
