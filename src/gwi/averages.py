"""A network's answer averaged over several views of a row: often worth more than any correction of its logits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

View = Callable[[Float[Tensor, "N ..."]], Float[Tensor, "N ..."]]


class AveragedViews(nn.Module):
    """m(x) = average of network(v(x)) over views v: the row as it is, and those given, such as mirror images.

    For a network that was trained on such views. Each view is one more pass; the row as it is passes last, so that
    `NetworkFeatures` are its own.

    Args:
        network: with one row of outputs for each row.
        views: each from a batch to one of as many rows, as in ``[lambda x: x.flip(-1)]``.
    """

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
