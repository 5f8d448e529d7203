"""From the user's rows to the rows that Q knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from numpy.typing import NDArray
from torch import Tensor, nn

from gwi.core.features import NetworkFeatures
from gwi.core.scaling import Scales

# Rows held at a time.
CHUNK_SIZE = 2048


class StandardisedRows(nn.Module):
    """Rows of any shape, flattened and standardised.

    Args:
        scales: centre and scale of each column.
        shape: of one row.
    """

    def __init__(self, scales: Scales, shape: tuple[int, ...]):
        super().__init__()
        self.scales = scales
        self.shape = tuple(shape)

    @property
    def is_table(self) -> bool:
        """Whether each number of a row is a column that means something by itself, as a pixel does not."""
        return len(self.shape) == 1

    def forward(self, x: Float[Tensor, "N ..."]) -> Float[Tensor, "N D"]:
        """The rows that Q knows."""
        flat = x.flatten(1).double()
        return (flat - flat.new_tensor(self.scales.x_centre)) / flat.new_tensor(self.scales.x_scale)


class OutputsAndFeatures(nn.Module):
    """A frozen network's outputs and features side by side, from one pass: Q's mean are the first columns, its kernel is on the
    rest.

    Args:
        features: of the network.
        scales: of the outputs, which are standardised by them.
        shape: of one row.
    """

    def __init__(self, features: NetworkFeatures, scales: Scales, shape: tuple[int, ...]):
        super().__init__()
        self.features = features
        self.scales = scales
        self.shape = tuple(shape)

    is_table = False

    def forward(self, x: Float[Tensor, "N ..."]) -> Float[Tensor, "N E"]:
        """The rows that Q knows."""
        outputs, features = self.features.evaluate(x)
        outputs = (outputs - outputs.new_tensor(self.scales.y_centre)) / outputs.new_tensor(self.scales.y_scale)
        return torch.cat([outputs, features], dim=1)


Embedding = StandardisedRows | OutputsAndFeatures


def embedded_rows(
    embedding: Embedding, X: Shaped[NDArray[Any], "N ..."], device: torch.device, chunk_size: int = CHUNK_SIZE
) -> Iterator[Float[Tensor, "n E"]]:
    """The rows that Q knows, some at a time."""
    for start in range(0, len(X), chunk_size):
        # A copy only of what torch cannot take: columns of a data frame may be read-only.
        yield embedding(torch.as_tensor(np.require(X[start : start + chunk_size], requirements=["C", "W"])).to(device))
