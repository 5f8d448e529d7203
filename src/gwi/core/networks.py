"""Networks for the mean."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from gwi.parts import require_choice


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

    def keep(self, chosen: Bool[Tensor, " E"]) -> EnsembleMLP:
        """Forget all members but these."""
        for parameters in (self.weights, self.biases):
            for i, parameter in enumerate(parameters):
                parameters[i] = nn.Parameter(parameter.detach()[chosen], requires_grad=parameter.requires_grad)
        return self

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


View = Callable[[Float[Tensor, "N ..."]], Float[Tensor, "N ..."]]
Averaged = Literal["probabilities", "outputs"]


class AveragedViews(nn.Module):
    """m(x) = average of network(v(x)) over views v: the row as it is, and those given, such as mirror images.

    For a network that was trained on such views. Each view is one more pass; the row as it is passes last, so that
    `NetworkFeatures` are its own.

    Args:
        network: with one row of outputs for each row.
        views: each from a batch to one of as many rows, as in ``[lambda x: x.flip(-1)]``.
    """

    features_of: ClassVar[str] = "network"

    def __init__(self, network: nn.Module, views: Sequence[View]):
        super().__init__()
        if not views:
            raise ValueError("views holds at least one function from a batch to another view of it; got none.")
        self.network = network
        self.views = tuple(views)

    def forward(self, x: Float[Tensor, "N ..."]) -> Float[Tensor, "N J"]:
        """The average at the rows of x."""
        outputs = []
        for i, view in enumerate(self.views):
            seen = view(x)
            if len(seen) != len(x):
                raise ValueError(f"View {i} gives {len(seen)} rows for {len(x)}; it must give one for each.")
            outputs.append(self.network(seen))
        return torch.stack([*outputs, self.network(x)]).mean(0)


class AveragedNetworks(nn.Module):
    """m(x) = log of the mean of the networks' softmax, or the mean of their outputs: a deep ensemble as one mean.

    Each network is one more pass. `NetworkFeatures` are by themselves those of the first.

    Args:
        networks: each with the same outputs for a row.
        of: what is averaged: ``"probabilities"`` of classifiers, whose outputs are logits, or ``"outputs"`` as they are, for
            regression.
    """

    features_of: ClassVar[str] = "networks.0"

    def __init__(self, networks: Sequence[nn.Module], of: Averaged = "probabilities"):
        super().__init__()
        if not networks:
            raise ValueError("networks holds at least one module; got none.")
        require_choice("of", of, Averaged)
        self.networks = nn.ModuleList(networks)
        self.of = of

    def forward(self, x: Float[Tensor, "N ..."]) -> Float[Tensor, "N J"]:
        """The average at the rows of x."""
        outputs = [network(x) for network in self.networks]
        for i, output in enumerate(outputs):
            if output.shape != outputs[0].shape:
                shapes = f"{tuple(output.shape)}, the first {tuple(outputs[0].shape)}"
                raise ValueError(f"Network {i} gives outputs of shape {shapes}; all must give the same.")
        stacked = torch.stack(outputs)
        if self.of == "outputs":
            return stacked.mean(0)
        return stacked.log_softmax(-1).logsumexp(0) - torch.tensor(len(outputs), dtype=stacked.dtype).log()
