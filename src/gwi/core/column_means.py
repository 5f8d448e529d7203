"""Means that read columns which a row carries along, such as the values of other means."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn


class FirstColumns(nn.Module):
    """The first J numbers of a row: the mean of rows that carry its values along, such as a network's logits and features."""

    def __init__(self, num_outputs: int):
        super().__init__()
        self.num_outputs = num_outputs

    def forward(self, x: Float[Tensor, "N E"]) -> Float[Tensor, "J N"]:
        """They."""
        return x[:, : self.num_outputs].mT


class SomeColumns(nn.Module):
    """Numbers of a row that are the values of a mean, which the row carries along.

    Args:
        first: the place of the first.
        count: J.
    """

    def __init__(self, first: int, count: int):
        super().__init__()
        self.first, self.count = first, count

    def forward(self, x: Float[Tensor, "N E"]) -> Float[Tensor, "J N"]:
        """They."""
        return x[:, self.first : self.first + self.count].mT


class LeadingColumns(nn.Module):
    """A mean of the first columns of a row, where others carry values of other means."""

    def __init__(self, mean: nn.Module, count: int):
        super().__init__()
        self.mean, self.count = mean, count

    def forward(self, x: Float[Tensor, "N E"]) -> Float[Tensor, "J N"]:
        """Its values."""
        return self.mean(x[:, : self.count])
