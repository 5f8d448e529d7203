"""Means that are fitted only once it is known that they have a weight."""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn


class LateMean(nn.Module):
    """A mean that has been judged by its folds, and is fitted to all rows when it is first asked for.

    Args:
        fit: gives it.
    """

    def __init__(self, fit: Callable[[], nn.Module]):
        super().__init__()
        self._fit = fit
        self._found: list[nn.Module] = []

    @property
    def mean(self) -> nn.Module:
        """It, fitted."""
        if not self._found:
            self._found.append(self._fit())
        return self._found[0]

    def forward(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "J N"]:
        """Its values."""
        return self.mean(x)


def settled(mean: nn.Module) -> nn.Module:
    """The mean with all fits that were left for later; anything around them is changed in place."""
    if isinstance(mean, LateMean):
        return mean.mean
    for part in list(mean.modules()):
        for name, inner in part.named_children():
            if isinstance(inner, LateMean):
                part._modules[name] = inner.mean
    return mean
