"""Features of a trained network for a kernel: which layers, and what is done to their values.

These choices decide whether the remaining variance grows away from the data. Networks map what they do not know to the middle of
feature space, where centred features call it familiar; direction keeps what length loses. Late layers keep only what tells the
classes apart; early ones still know what an image looks like. `docs/classification.md` measures it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from threading import RLock
from typing import Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gwi.core.module_calls import LaidOut, as_input, outputs_of, pooled, states_of

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
# Of maps that are looked at when no layer is named: deep networks have dozens, of which neighbours say the same.
MOST_MAPS = 4
# Of these a row has a state for each token, of which the mean is taken.
_OF_TOKENS = (nn.Linear, nn.LayerNorm, nn.RMSNorm, nn.TransformerEncoder, nn.TransformerEncoderLayer, nn.Embedding)
# Images that pass through the network at once, not on a GPU. The maps of more than some hundred outgrow the processor's cache,
# and memory allocators hand such arrays back and fetch them anew each time: a pass takes twice as long.
PASS_SIZE = 256
# A hook sees every pass of its network, also that of another thread: of each network, one hooked pass at a time.
_passes: WeakKeyDictionary[nn.Module, RLock] = WeakKeyDictionary()


class NetworkFeatures(nn.Module):
    """h(x) = normalise(Wᵀ (layer(x) − c)): features of a network, which stays as it is.

    Of several layers each is normalised by itself, and they stand side by side. A map, whose channels have places, then counts
    with the root mean square of each channel over its places.

    Args:
        network: a trained module; held as a copy in evaluation mode.
        layer: the name of the submodule whose output is taken, as in `network.named_modules()`, or several. ``"auto"``: what goes
            into each convolution but the first (into four of them, when there are more) and into the first linear layer after
            them; without convolutions, and of transformers, what goes into the last linear layer. Of layers with a state for
            each token the mean state is taken.
        centre: whether the mean of the training features is taken off.
        projection: the number of principal directions to keep, of one layer; None keeps all.
        sphere: whether features are divided by their norm, those of each layer by their own.

    Examples:
        >>> import torch
        >>> from gwi.core.features import NetworkFeatures
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        >>> features = NetworkFeatures(network).fit(torch.randn(10, 4))
        >>> features(torch.ones(5, 4)).shape
        torch.Size([5, 8])
    """

    offset: Tensor
    directions: Tensor | None

    def __init__(
        self,
        network: nn.Module,
        layer: str | Sequence[str] = "auto",
        *,
        centre: bool = False,
        projection: int | None = None,
        sphere: bool = True,
    ):
        super().__init__()
        self.network = copy.deepcopy(network).eval().requires_grad_(False)
        self.automatic = layer == "auto"
        self.watched: tuple[str, ...] = () if layer == "auto" else (layer,) if isinstance(layer, str) else tuple(layer)
        inside = "module." if isinstance(network, LaidOut) else ""
        names = [name.removeprefix(inside) for name, _ in self.network.named_modules()]
        for name in self.watched:
            if name not in names:
                shown = ", ".join(repr(name) for name in names if name)
                raise ValueError(f"The network has no submodule {name!r} to take features from; it has {shown}.")
        self.watched = tuple(f"{inside}{name}" for name in self.watched)
        if not self.automatic and not self.watched:
            raise ValueError('layer must be the name of a submodule, several names, or "auto"; got no name.')
        if projection is not None and projection < 1:
            raise ValueError(f"projection must be the number of directions to keep, at least 1, or None; got {projection}.")
        if projection is not None and len(self.watched) != 1:
            raise ValueError("projection is for the features of one layer: name it with layer=.")
        self.centre, self.projection, self.sphere = centre, projection, sphere
        self.register_buffer("offset", torch.zeros(()))
        self.register_buffer("directions", None)

    @property
    def layers(self) -> tuple[str, ...]:
        """The submodules that are looked at, by their names in the user's own module."""
        inside = "module." if isinstance(self.network, LaidOut) else ""
        return tuple(name.removeprefix(inside) for name in self.watched)

    @torch.no_grad()
    def fit(self, x: Float[Tensor, "N ..."]) -> NetworkFeatures:
        """Find the layers, and set centre and directions, by a sample of training rows."""
        if self.automatic:
            self.watched = automatic_layers(self.network, as_input(self.network, x[:1]))
        # Features that are neither centred nor projected are only counted.
        rows = x if self.centre or self.projection is not None else x[:1]
        values = torch.cat([part.double() for part in self._layer_values(rows)[1]], dim=1)
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
        outputs, layers = self._layer_values(x)
        offsets = self.offset.split([part.shape[1] for part in layers]) if self.offset.ndim else [self.offset] * len(layers)
        parts = []
        for part, offset in zip(layers, offsets, strict=True):
            values = part.double() - offset
            if self.directions is not None:
                values = values @ self.directions
            if self.sphere:
                # The whole has norm one.
                norm = len(layers) ** 0.5 * values.norm(dim=1, keepdim=True)
                values = values / norm.clamp_min(torch.finfo(values.dtype).tiny)
            parts.append(values)
        # One output may come without an axis for it.
        return outputs.reshape(len(x), -1).double(), torch.cat(parts, dim=1)

    def _layer_values(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Outputs, and one row of numbers for each row and layer."""
        if not self.watched:
            raise RuntimeError("These features have not found their layers yet: call fit with some training rows first.")
        size = len(x) if x.device.type == "cuda" else PASS_SIZE
        passes = [self._one_pass(part) for part in (x.split(size) if len(x) > size else [x])]
        outputs, layers = zip(*passes, strict=True)
        return torch.cat(outputs), [torch.cat(parts) for parts in zip(*layers, strict=True)]

    def _one_pass(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The same of few rows."""
        caught: dict[str, Any] = {}
        mask = self.network.mask(x) if isinstance(self.network, LaidOut) else None

        def catch(name: str, module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
            found = arguments[0] if self.automatic else output
            states = states_of(found)
            of_tokens = states is not None or isinstance(module, _OF_TOKENS)
            found = found if states is None else states
            if of_tokens and isinstance(found, Tensor) and found.ndim == 3:
                found = pooled(found, mask)
            # At once: what comes after may write into the same memory.
            caught[name] = self._row_of_numbers(found) if isinstance(found, Tensor) else None

        outputs = outputs_of(_hooked_pass(self.network, as_input(self.network, x), self.watched, catch), len(x))
        for name in self.watched:
            if caught.get(name) is None or len(caught[name]) != len(x):
                raise ValueError(
                    f"The submodule {name!r} does not give one row of features for each input row; name another with layer=."
                )
        return outputs, [caught[name] for name in self.watched]

    def _row_of_numbers(self, values: Float[Tensor, "N ..."]) -> Float[Tensor, "N F"]:
        """One layer alone as it is; of several, maps by the root mean square of each channel over its places."""
        if len(self.watched) == 1 or values.ndim < 3:
            return values.flatten(1)
        # Neither a difference that cancels nor a copy, unlike standard deviations, which tell outliers no better.
        return values.square().mean(dim=tuple(range(2, values.ndim))).sqrt()


def _hooked_pass(network: nn.Module, x: Tensor, names: Sequence[str], hook: Callable[..., None]) -> Any:
    """What the network gives; the hook is called with the name of each submodule, itself, its arguments and its output."""
    with ExitStack() as hooks:
        hooks.enter_context(_passes.setdefault(network, RLock()))
        for name in names:
            hooks.callback(network.get_submodule(name).register_forward_hook(partial(hook, name)).remove)
        return network(x)


def automatic_layers(network: nn.Module, x: Float[Tensor, "1 ..."]) -> tuple[str, ...]:
    """The submodules whose inputs are the features.

    These are the convolutions after the first, or `MOST_MAPS` of them in even steps to the last, and the first linear layer after
    the last one; without convolutions the last linear layer. Where linear layers see tokens, as in a transformer, it is the last
    one that sees a row. Of modules that say which part of them is looked at, by the name of
    a submodule in ``features_of``, only that part.

    Raises:
        ValueError: when the network has no linear layer.
    """
    part = part_looked_at(network)
    kinds = (nn.Linear, *_CONVOLUTIONS)
    names = [name for name, module in network.named_modules() if isinstance(module, kinds) and f"{name}.".startswith(part)]
    # In the order of their first call: a module may be called again, or the whole network, for another view of the row.
    called: dict[str, bool] = {}
    of_tokens: set[str] = set()

    def note(name: str, module: nn.Module, arguments: tuple[Any, ...], _: Any) -> None:
        called.setdefault(name, isinstance(module, _CONVOLUTIONS))
        if isinstance(module, nn.Linear) and arguments and isinstance(arguments[0], Tensor) and arguments[0].ndim > 2:
            of_tokens.add(name)

    with torch.no_grad():
        _hooked_pass(network, x, names, note)
    order = list(called.items())
    places = [i for i, (_, convolution) in enumerate(order) if convolution]
    linear = [name for i, (name, convolution) in enumerate(order) if not convolution and i > max(places, default=-1)]
    if not linear:
        raise ValueError(
            'The network has no linear layer after its convolutions to take features before; name a submodule with layer="...".'
        )
    of_rows = [name for name in linear if name not in of_tokens]
    if not places or of_tokens & set(linear):
        return ((of_rows or linear)[-1],)
    # What goes into the first one is the row itself.
    later = [order[i][0] for i in places[1:]]
    count = min(MOST_MAPS, len(later))
    chosen = [later[round((i + 1) * len(later) / count) - 1] for i in range(count)]
    return (*chosen, linear[0])


def part_looked_at(network: nn.Module) -> str:
    """The names' common beginning of the submodules that features may come from: all, unless ``features_of`` names a part."""
    found, name = "", getattr(network, "features_of", None)
    while isinstance(name, str):
        found, network = f"{found}{name}.", network.get_submodule(name)
        name = getattr(network, "features_of", None)
    return found
