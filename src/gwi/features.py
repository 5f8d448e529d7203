"""Features of a trained network for a kernel: which layer, and what is done to its values.

These choices decide whether the remaining variance grows away from the data. Networks map what they do not know to the middle of
feature space, where centred features call it familiar; direction keeps what length loses. `docs/classification.md` measures it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


class NetworkFeatures(nn.Module):
    """h(x) = normalise(Wᵀ (layer(x) − c)): features of a network, which stays as it is.

    Args:
        network: a trained module; held as a copy in evaluation mode.
        layer: the name of the submodule whose output is taken, as in `network.named_modules()`. ``"auto"``: what goes into the
            first linear layer after the last convolution; without convolutions, what goes into the last linear layer.
        centre: whether the mean of the training features is taken off.
        projection: the number of principal directions to keep; None keeps all.
        sphere: whether features are divided by their norm.
    """

    offset: Tensor
    directions: Tensor | None

    def __init__(
        self,
        network: nn.Module,
        layer: str = "auto",
        *,
        centre: bool = False,
        projection: int | None = None,
        sphere: bool = True,
    ):
        super().__init__()
        self.network = copy.deepcopy(network).eval().requires_grad_(False)
        names = [name for name, _ in self.network.named_modules()]
        if layer != "auto" and layer not in names:
            shown = ", ".join(repr(name) for name in names if name)
            raise ValueError(f"The network has no submodule {layer!r} to take features from; it has {shown}.")
        if projection is not None and projection < 1:
            raise ValueError(f"projection is the number of directions to keep, at least 1, or None; got {projection}.")
        self.layer = layer
        self.watched: str | None = None if layer == "auto" else layer
        self.centre, self.projection, self.sphere = centre, projection, sphere
        self.register_buffer("offset", torch.zeros(()))
        self.register_buffer("directions", None)

    @torch.no_grad()
    def fit(self, x: Float[Tensor, "N ..."]) -> NetworkFeatures:
        """Find the layer, and set centre and directions, by a sample of training rows."""
        if self.layer == "auto":
            self.watched = automatic_layer(self.network, self._cast(x[:1]))
        values = self._layer_values(x)[1].double()
        self.offset = offset = values.mean(0) if self.centre else torch.zeros_like(values[0])
        if self.projection is not None:
            if self.projection > min(values.shape):
                raise ValueError(
                    f"A projection to {self.projection} directions needs as many features and rows; got {values.shape[1]} "
                    f"features of {values.shape[0]} rows."
                )
            # The largest eigenvectors of the second moment: without a centre, directions of what is there, not of how it varies.
            moved = values - offset
            self.directions = torch.linalg.eigh(moved.mT @ moved)[1][:, -self.projection :].flip(-1).contiguous()
        return self

    def forward(self, x: Float[Tensor, "N ..."]) -> Float[Tensor, "N F"]:
        """h at the rows of x."""
        return self.evaluate(x)[1]

    def evaluate(self, x: Float[Tensor, "N ..."]) -> tuple[Float[Tensor, "N J"], Float[Tensor, "N F"]]:
        """The network's outputs and h, both from one pass."""
        outputs, values = self._layer_values(x)
        values = values.double() - self.offset
        if self.directions is not None:
            values = values @ self.directions
        if self.sphere:
            values = values / values.norm(dim=1, keepdim=True).clamp_min(torch.finfo(values.dtype).tiny)
        return outputs.double(), values

    def _cast(self, x: Tensor) -> Tensor:
        parameter = next(self.network.parameters(), x)
        return x.to(parameter.device, parameter.dtype)

    def _layer_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs and the layer's values, flattened to one row each."""
        if self.watched is None:
            raise RuntimeError("These features have not found their layer yet: call fit with some training rows first.")
        module, watch_input = self.network.get_submodule(self.watched), self.layer == "auto"
        caught: list[Tensor] = []

        def catch(_: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
            caught.append(arguments[0] if watch_input else output)

        handle = module.register_forward_hook(catch)
        try:
            outputs = self.network(self._cast(x))
        finally:
            handle.remove()
        if not caught or not isinstance(caught[-1], Tensor) or len(caught[-1]) != len(x):
            raise ValueError(
                f"The submodule {self.watched!r} does not give one row of features for each input row; name another with layer=."
            )
        return outputs, caught[-1].flatten(1)


def automatic_layer(network: nn.Module, x: Float[Tensor, "1 ..."]) -> str:
    """The linear layer whose input are the features: the first after the last convolution, else the last.

    Raises:
        ValueError: when the network has no linear layer.
    """
    order: list[tuple[str, bool]] = []

    def note(name: str, convolution: bool) -> Callable[..., None]:
        return lambda *_: order.append((name, convolution))

    handles = [
        module.register_forward_hook(note(name, isinstance(module, _CONVOLUTIONS)))
        for name, module in network.named_modules()
        if isinstance(module, (nn.Linear, *_CONVOLUTIONS))
    ]
    try:
        with torch.no_grad():
            network(x)
    finally:
        for handle in handles:
            handle.remove()
    convolutions = [i for i, (_, convolution) in enumerate(order) if convolution]
    linear = [name for i, (name, convolution) in enumerate(order) if not convolution and i > max(convolutions, default=-1)]
    if not linear:
        raise ValueError(
            'The network has no linear layer after its convolutions to take features before; name a submodule with layer="...".'
        )
    return linear[0] if convolutions else linear[-1]
