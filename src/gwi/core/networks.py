"""Networks for the mean."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from gwi.parts import require_choice

# Of the first layer's biases: rows lie around zero, and units that bend elsewhere are needed too.
FIRST_BIAS_STD = 0.5
# Rows whose hidden units stay in a processor's cache.
ROWS_AT_ONCE = 256


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

    Examples:
        >>> import torch
        >>> from gwi.core.networks import mlp
        >>> network = mlp(3, hidden=(20, 20), activation=torch.nn.ReLU)
        >>> network(torch.zeros(5, 3)).shape
        torch.Size([5, 1])
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
    """E fully connected networks of one shape with a linear path beside each, evaluated together; the output is their mean.

    The last layer starts at zero, so each member starts as its linear path. Columns are multiplied by a scale of their own before
    the first layer, which is learned; `settled` makes it part of that layer.

    Args:
        num_features: D.
        num_outputs: J.
        num_members: E.
        hidden: widths of the hidden layers.
        column_scales: of each member's columns at the start; one unless given. Columns with small scales learn slowly.
        span: the lowest and the highest value of each column that is told from those beyond; none unless given.
        generator: for the weights, drawn as He for rectified units.
    """

    low: Tensor
    high: Tensor

    def __init__(
        self,
        num_features: int,
        num_outputs: int = 1,
        *,
        num_members: int = 5,
        hidden: Sequence[int] = (128, 128),
        column_scales: Float[Tensor, "E D"] | None = None,
        span: tuple[Float[Tensor, " D"], Float[Tensor, " D"]] | None = None,
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        widths = [num_features, *hidden, num_outputs]
        scales = torch.ones(num_members, num_features) if column_scales is None else column_scales.detach().cpu()
        self.log_scales: nn.Parameter | None = nn.Parameter(scales.log()) if hidden else None
        self.linear = nn.Parameter(torch.zeros(num_members, num_features, num_outputs))
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for i, (width_in, width_out) in enumerate(itertools.pairwise(widths)):
            draws = torch.randn(num_members, width_in, width_out, generator=generator)
            bias = torch.zeros(num_members, 1, width_out)
            if i == len(hidden):
                draws.zero_()
            elif i == 0:
                # By the columns that count: many that do not would else leave little of those that do.
                draws *= (2 / scales.square().sum(1))[:, None, None].sqrt()
                bias = FIRST_BIAS_STD * torch.randn(num_members, 1, width_out, generator=generator)
            else:
                draws *= (2 / width_in) ** 0.5
            self.weights.append(nn.Parameter(draws))
            self.biases.append(nn.Parameter(bias))
        infinite = torch.full((num_features,), torch.inf)
        low, high = (-infinite, infinite) if span is None else span
        self.register_buffer("low", low.detach().clone())
        self.register_buffer("high", high.detach().clone())

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
        self.linear = nn.Parameter(self.linear.detach()[chosen], requires_grad=self.linear.requires_grad)
        if self.log_scales is not None:
            self.log_scales = nn.Parameter(self.log_scales.detach()[chosen], requires_grad=self.log_scales.requires_grad)
        return self

    def settled(self) -> EnsembleMLP:
        """The same function in double precision, with nothing left to learn.

        In single precision a row's prediction would depend, in the seventh digit, on the rows that are predicted with it.
        """
        # Gradients of the training would stay, in single precision, beside parameters that no longer are.
        self.zero_grad(set_to_none=True)
        self.double().requires_grad_(False)
        if self.log_scales is not None:
            self.weights[0] = nn.Parameter(self.weights[0] * self.log_scales.exp()[..., None], requires_grad=False)
            self.log_scales = None
        return self

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to learn."""
        return self.log_scales is None and not any(parameter.requires_grad for parameter in self.parameters())

    def members(self, x: Float[Tensor, "N D"], which: slice = slice(None)) -> Float[Tensor, "e N J"]:
        """The outputs of each member, or of some of them."""
        x = x.clamp(self.low, self.high)
        h: Tensor | None = None
        for i, (weights, biases) in enumerate(zip(self.weights, self.biases, strict=True)):
            weight, bias = weights[which], biases[which]
            if h is None:
                if self.log_scales is not None:
                    weight = weight * self.log_scales[which].exp()[..., None]
                # One product for all members.
                count, _, width = weight.shape
                h = torch.addmm(bias.flatten(), x, weight.transpose(0, 1).reshape(len(weight[0]), -1))
                h = h.reshape(x.shape[0], count, width).transpose(0, 1)
            else:
                h = torch.baddbmm(bias, h, weight)
            if i < len(self.weights) - 1:
                h = nn.functional.silu(h)
        assert h is not None
        linear = self.linear[which]
        path = x @ linear.transpose(0, 1).reshape(x.shape[1], -1)
        return h + path.reshape(x.shape[0], len(linear), linear.shape[2]).transpose(0, 1)

    def forward(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N J"]:
        """The mean over members."""
        return self.members(x).mean(0)


class FlatEnsemble(nn.Module):
    """A settled `EnsembleMLP` that only predicts: the mean over its members, with weights as products want them.

    Outputs are linear in the last layer and in the linear paths, so that these are averaged once and for all. Units come before
    rows: a layer of all members is then one block of memory.

    Args:
        ensemble: what it stands for; its parameters must not change afterwards.
    """

    low: Tensor
    high: Tensor
    first: Tensor
    first_bias: Tensor
    last: Tensor
    last_bias: Tensor
    path: Tensor

    @torch.no_grad()
    def __init__(self, ensemble: EnsembleMLP):
        super().__init__()
        weights, biases = list(ensemble.weights), list(ensemble.biases)
        path = ensemble.linear.mean(0)
        if len(weights) == 1:
            # Without a hidden layer all of it is linear.
            path = path + weights[0].mean(0)
        values = {
            "low": ensemble.low,
            "high": ensemble.high,
            "path": path.mT,
            "last_bias": biases[-1].mean(0).mT,
            "first": weights[0].mT.flatten(0, 1),
            "first_bias": biases[0].mT.flatten(0, 1),
            "last": weights[-1].flatten(0, 1).mT / len(weights[-1]),
        }
        for name, value in values.items():
            self.register_buffer(name, value.detach().clone(memory_format=torch.contiguous_format))
        # Most networks clamp nothing.
        self.is_bounded = bool((torch.isfinite(self.low) | torch.isfinite(self.high)).any())
        self.is_linear, self.num_members = len(weights) == 1, ensemble.num_members
        self.num_middle = len(weights) - 2
        for i in range(1, len(weights) - 1):
            self.register_buffer(f"weight_{i}", weights[i].detach().mT.contiguous())
            self.register_buffer(f"bias_{i}", biases[i].detach().mT.contiguous())

    def forward(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N J"]:
        """The mean over members."""
        if self.is_bounded:
            x = x.clamp(self.low, self.high)
        if self.is_linear:
            return torch.addmm(self.last_bias, self.path, x.mT).mT
        if len(x) <= ROWS_AT_ONCE:
            return self._some(x).mT
        return torch.cat([self._some(rows) for rows in x.split(ROWS_AT_ONCE)], dim=1).mT

    def _some(self, x: Tensor) -> Float[Tensor, "J N"]:
        """At as many rows as a processor's cache has room for."""
        x, in_place = x.mT, not torch.is_grad_enabled()
        h = nn.functional.silu(torch.addmm(self.first_bias, self.first, x), inplace=in_place)
        h = h.reshape(self.num_members, -1, x.shape[1])
        for i in range(1, self.num_middle + 1):
            h = torch.baddbmm(getattr(self, f"bias_{i}"), getattr(self, f"weight_{i}"), h)
            h = nn.functional.silu(h, inplace=in_place)
        return torch.addmm(self.last_bias, self.path, x).addmm(self.last, h.flatten(0, 1))


View = Callable[[Float[Tensor, "N ..."]], Float[Tensor, "N ..."]]
Averaged = Literal["probabilities", "outputs"]


class AveragedViews(nn.Module):
    """m(x) = average of network(v(x)) over views v: the row as it is, and those given, such as mirror images.

    For a network that was trained on such views. Each view is one more pass; the row as it is passes last, so that
    `NetworkFeatures` are its own.

    Args:
        network: with one row of outputs for each row.
        views: each from a batch to one of as many rows, as in ``[lambda x: x.flip(-1)]``.

    Examples:
        >>> import torch
        >>> from gwi.core.networks import AveragedViews
        >>> network = torch.nn.Linear(4, 3)
        >>> mean = AveragedViews(network, [lambda x: x.flip(-1)])
        >>> x = torch.arange(4.0)[None]
        >>> torch.allclose(mean(x), (network(x) + network(x.flip(-1))) / 2)
        True
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

    Examples:
        >>> import torch
        >>> from gwi.core.networks import AveragedNetworks
        >>> mean = AveragedNetworks([torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)])
        >>> mean(torch.ones(5, 4)).exp().sum(-1).round(decimals=4).tolist()  # logarithms of probabilities
        [1.0, 1.0, 1.0, 1.0, 1.0]
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
