"""Networks averaged into one mean: over several views of a row, or over the members of an ensemble."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gwi.parts import require_choice

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
