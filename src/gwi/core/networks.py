"""Networks for the mean."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

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


def train_ensemble(
    network: EnsembleMLP,
    x: Float[Tensor, "N D"],
    y: Float[Tensor, "N J"],
    *,
    num_steps: int,
    batch_size: int = 128,
    learning_rate: float = 3e-3,
    weight_decay: float = 1e-2,
    sample_weight: Float[Tensor, " N"] | None = None,
    member_rows: Sequence[Tensor] | None = None,
    loss: Callable[[Tensor, Tensor], Tensor] | None = None,
    generator: torch.Generator | None = None,
    on_step: Callable[[int], None] | None = None,
) -> None:
    """Train every member at once, each on batches of its own: AdamW with a warm-up and a cosine.

    `loss` takes outputs and targets, whose last axis runs over outputs, to one value a row; least squares unless given. The
    members start from different weights and see rows in different orders, as in a deep ensemble; `member_rows` gives each the
    rows it may see, for example all but one fold.
    """
    num_members = network.weights[0].shape[0]
    optimiser = torch.optim.AdamW(network.parameters(), lr=learning_rate, weight_decay=weight_decay)
    warm_up = max(1, num_steps // 20)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser,
        lambda step: min((step + 1) / warm_up, 0.5 * (1 + math.cos(math.pi * step / num_steps)) + 1e-3),
    )
    weights = None if sample_weight is None else sample_weight / sample_weight.mean()
    rows_of = [torch.arange(x.shape[0])] * num_members if member_rows is None else list(member_rows)
    shortest = min(len(rows) for rows in rows_of)
    batch = min(batch_size, shortest)
    order = torch.empty(num_members, 0, dtype=torch.long)
    for step in range(num_steps):
        if order.shape[1] < batch:
            fresh = torch.stack([rows[torch.randperm(len(rows), generator=generator)][:shortest] for rows in rows_of])
            order = torch.cat([order, fresh], dim=1)
        rows, order = order[:, :batch].to(x.device), order[:, batch:]
        optimiser.zero_grad(set_to_none=True)
        outputs = network.members(x[rows])
        errors = (outputs - y[rows]).square().sum(-1) if loss is None else loss(outputs, y[rows])
        (errors if weights is None else errors * weights[rows]).mean(1).sum().backward()
        optimiser.step()
        schedule.step()
        if on_step is not None:
            on_step(step)
