"""The one loop of everything that is trained by gradient steps, and epochs around it."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
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


def gradient_steps(
    optimiser: torch.optim.Optimizer,
    losses: Iterable[Callable[[], Tensor]],
    rate: Callable[[int], float],
    *,
    first_step: int = 0,
    backward: Callable[[Tensor], None] = Tensor.backward,
) -> Iterator[tuple[int, Tensor]]:
    """One step for each loss: evaluate, differentiate, move. Yields the number of the step and its loss.

    Args:
        optimiser: with the parameters, and the learning rate at its peak.
        losses: each evaluates one batch.
        rate: the share of the peak that the learning rate has in a step.
        first_step: the number of the first.
        backward: leaves gradients; by default those of the loss, which is then one number.
    """
    # Noted in the groups, as torch's own schedules do, so that a second call goes on from the same peak.
    peaks = [group.setdefault("initial_lr", group["lr"]) for group in optimiser.param_groups]
    for step, loss in enumerate(losses, start=first_step):
        for group, peak in zip(optimiser.param_groups, peaks, strict=True):
            group["lr"] = peak * rate(step)
        optimiser.zero_grad(set_to_none=True)
        value = loss()
        backward(value)
        optimiser.step()
        yield step, value.detach()


def warm_up_and_cosine(num_steps: int) -> Callable[[int], float]:
    """A rate that rises in a line for a twentieth of the steps and falls in half a cosine."""
    warm_up = max(1, num_steps // 20)
    return lambda step: min((step + 1) / warm_up, 0.5 * (1 + math.cos(math.pi * step / num_steps)) + 1e-3)


def train_epochs(
    module: nn.Module,
    optimiser: torch.optim.Optimizer,
    loss: Callable[..., Tensor],
    batches: Callable[[], Iterable[tuple[Tensor, ...]]],
    *,
    num_epochs: int,
    rate: Callable[[int], float],
    validation_loss: Callable[[], Tensor | float] | None = None,
    patience: int | None = None,
    on_epoch: Callable[[int, float], None] | None = None,
) -> TrainingRecord:
    """Gradient steps on batches, epoch after epoch; `module` is changed in place.

    Args:
        module: whose state is kept and given back.
        optimiser: with the parameters.
        loss: of a batch.
        batches: one epoch of them, rows first in the first tensor.
        num_epochs: passes over the rows.
        rate: the share of the peak that the learning rate has in a step.
        validation_loss: evaluated after each epoch; the parameters of the best epoch are kept.
        patience: stop after so many epochs without a better validation loss.
        on_epoch: called with the epoch and its mean loss.

    Raises:
        FloatingPointError: when the loss, the validation loss or a parameter becomes NaN or infinite; parameters are then those
            of the best epoch, without validation those of the last finite one.
    """
    trained = [p for group in optimiser.param_groups for p in group["params"]]
    losses: list[float] = []
    validation_losses: list[float] = []
    best_epoch, best_loss, num_steps = 0, math.inf, 0
    kept = _state(module, trained)
    try:
        for epoch in range(num_epochs):
            sizes: list[int] = []
            total = 0.0
            closures = _closures(loss, batches(), sizes, epoch)
            for _, value in gradient_steps(optimiser, closures, rate, first_step=num_steps):
                total += value.item() * sizes[-1]
            num_steps += len(sizes)
            if not all(p.isfinite().all() for p in trained):
                raise FloatingPointError(
                    f"A parameter became NaN or infinite in epoch {epoch} while the loss was still finite. Look for an infinite "
                    "slope in the loss, such as the square root of a zero."
                )
            losses.append(total / max(sum(sizes), 1))
            if on_epoch is not None:
                on_epoch(epoch, losses[-1])
            if validation_loss is not None:
                with torch.no_grad():
                    validation_losses.append(float(validation_loss()))
                if not math.isfinite(validation_losses[-1]):
                    raise FloatingPointError(f"The validation loss became {validation_losses[-1]} in epoch {epoch}.")
            if validation_loss is None or validation_losses[-1] < best_loss:
                best_loss = min(validation_losses, default=math.inf)
                best_epoch, kept = epoch, _state(module, trained)
            elif patience is not None and epoch - best_epoch >= patience:
                break
    except FloatingPointError:
        _restore(module, trained, kept)
        raise
    if validation_loss is not None:
        _restore(module, trained, kept)
    return TrainingRecord(tuple(losses), tuple(validation_losses), best_epoch)


def _closures(
    loss: Callable[..., Tensor], batches: Iterable[tuple[Tensor, ...]], sizes: list[int], epoch: int
) -> Iterator[Callable[[], Tensor]]:
    """What evaluates each batch, refusing a loss that is no number; the sizes of the batches are noted."""
    for batch in batches:

        def evaluate(batch: tuple[Tensor, ...] = batch) -> Tensor:
            value = loss(*batch)
            if not torch.isfinite(value):
                raise FloatingPointError(
                    f"The loss became {value.item()} in epoch {epoch}. Lower the learning rate, or standardise the data."
                )
            return value

        sizes.append(len(batch[0]))
        yield evaluate


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
    num_steps = num_epochs * math.ceil(x.shape[0] / batch_size)

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        for rows in torch.randperm(x.shape[0], generator=generator).to(x.device).split(batch_size):
            yield x[rows], y[..., rows]

    return train_epochs(
        module,
        torch.optim.Adam(trained, lr=learning_rate),
        loss,
        batches,
        num_epochs=num_epochs,
        rate=lambda step: (1 + math.cos(math.pi * step / num_steps)) / 2,
        validation_loss=validation_loss,
        patience=patience,
        on_epoch=on_epoch,
    )


def _state(module: nn.Module, trained: Sequence[Tensor]) -> tuple[dict[str, Any], list[Tensor]]:
    # Buffers are in the module's state only; `parameters` may hold tensors, such as a likelihood's, that the module does not.
    return copy.deepcopy(module.state_dict()), [p.detach().clone() for p in trained]


def _restore(module: nn.Module, trained: Sequence[Tensor], kept: tuple[dict[str, Any], list[Tensor]]) -> None:
    state, values = kept
    module.load_state_dict(state)
    with torch.no_grad():
        for p, value in zip(trained, values, strict=True):
            p.copy_(value)
