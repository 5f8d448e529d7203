"""One visible loop for everything that is trained by gradient steps."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn


@dataclass(frozen=True)
class TrainingRecord:
    """What happened in `train`.

    Attributes:
        losses: mean batch loss of each epoch.
        validation_losses: of each epoch, empty without validation.
        best_epoch: whose parameters were kept; the last one without validation.
    """

    losses: tuple[float, ...]
    validation_losses: tuple[float, ...]
    best_epoch: int


def train(
    module: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    x: Float[Tensor, "N ..."],
    y: Shaped[Tensor, "*J N"],
    *,
    num_epochs: int,
    batch_size: int = 1000,
    learning_rate: float = 1e-2,
    parameters: Sequence[Tensor] | None = None,
    validation_loss: Callable[[], Tensor] | None = None,
    patience: int | None = None,
    generator: torch.Generator | None = None,
    on_epoch: Callable[[int, float], None] | None = None,
) -> TrainingRecord:
    """Adam with a cosine learning rate on shuffled batches; `module` is changed in place.

    Args:
        module: what holds the parameters; those that ask for gradients are trained.
        loss: of a batch (x, y).
        x: rows.
        y: targets, rows last.
        num_epochs: passes over the rows.
        batch_size: rows a step; all of them when there are fewer.
        learning_rate: at the start.
        parameters: train these instead of the module's.
        validation_loss: evaluated after each epoch; the parameters of the best epoch are kept.
        patience: stop after so many epochs without a better validation loss.
        generator: for the order of rows.
        on_epoch: called with the epoch and its mean loss.

    Raises:
        FloatingPointError: when the loss, the validation loss or a parameter becomes NaN or infinite; parameters are then those
            of the best epoch, without validation those of the last finite one.
    """
    trained = [p for p in (module.parameters() if parameters is None else parameters) if p.requires_grad]
    if not trained:
        raise ValueError("Nothing to train: no parameter asks for gradients. Call requires_grad_(True) on what should move.")
    num_rows = x.shape[0]
    num_batches = math.ceil(num_rows / batch_size)
    optimiser = torch.optim.Adam(trained, lr=learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, num_epochs * num_batches)
    losses: list[float] = []
    validation_losses: list[float] = []
    best_epoch, best_loss = 0, math.inf
    kept = _snapshot(module, trained)
    try:
        for epoch in range(num_epochs):
            order = torch.randperm(num_rows, generator=generator).to(x.device)
            total = 0.0
            for rows in order.split(batch_size):
                optimiser.zero_grad()
                value = loss(x[rows], y[..., rows])
                if not torch.isfinite(value):
                    raise FloatingPointError(
                        f"The loss became {value.item()} in epoch {epoch}. Lower the learning rate, or standardise the data."
                    )
                value.backward()
                optimiser.step()
                schedule.step()
                total += value.item() * len(rows)
            if not all(p.isfinite().all() for p in trained):
                raise FloatingPointError(
                    f"A parameter became NaN or infinite in epoch {epoch} while the loss was still finite. Look for an infinite "
                    "slope in the loss, such as the square root of a zero."
                )
            losses.append(total / num_rows)
            if on_epoch is not None:
                on_epoch(epoch, losses[-1])
            if validation_loss is not None:
                with torch.no_grad():
                    validation_losses.append(validation_loss().item())
                if not math.isfinite(validation_losses[-1]):
                    raise FloatingPointError(f"The validation loss became {validation_losses[-1]} in epoch {epoch}.")
            if validation_loss is None or validation_losses[-1] < best_loss:
                best_loss = min(validation_losses, default=math.inf)
                best_epoch, kept = epoch, _snapshot(module, trained)
            elif patience is not None and epoch - best_epoch >= patience:
                break
    except FloatingPointError:
        _restore(module, trained, kept)
        raise
    if validation_loss is not None:
        _restore(module, trained, kept)
    return TrainingRecord(tuple(losses), tuple(validation_losses), best_epoch)


def _snapshot(module: nn.Module, trained: Sequence[Tensor]) -> tuple[dict[str, Any], list[Tensor]]:
    # Buffers are in the module's state only; `parameters` may hold tensors, such as a likelihood's, that the module does not.
    return copy.deepcopy(module.state_dict()), [p.detach().clone() for p in trained]


def _restore(module: nn.Module, trained: Sequence[Tensor], kept: tuple[dict[str, Any], list[Tensor]]) -> None:
    state, values = kept
    module.load_state_dict(state)
    with torch.no_grad():
        for p, value in zip(trained, values, strict=True):
            p.copy_(value)
