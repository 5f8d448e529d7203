"""Gradient steps on a stream of rows, shared by processes, with snapshots: AdamW, a warm-up and a cosine."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from gwi.streaming.loaders import seed_of
from gwi.streaming.process_group import ProcessGroup
from gwi.streaming.stream import Rule, Stream

# Rows a step, fewer where there are few rows, and the fewest steps.
SMALLEST_BATCH, LARGEST_BATCH = 128, 1024
FEWEST_STEPS = 5000

# The loss of each row from standardised rows and targets, rows last.
RowLoss = Callable[[Tensor, Tensor], Tensor]


def add_gradients(losses: Tensor, parameters: Sequence[Tensor], num_rows: int, ranks: ProcessGroup) -> None:
    """Set each gradient to that of the mean loss over the `num_rows` rows of all processes.

    Losses are summed and divided by the rows of all, not averaged process by process: shares may be uneven or empty.

    Args:
        losses: of the rows of this process.
        parameters: the same on every process.
        num_rows: of all processes together.
        ranks: the processes.
    """
    if len(losses):
        # The one sum that is left to the end is over processes.
        (losses.sum() / num_rows).backward()
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    if ranks.size > 1:
        totals = ranks.total([parameter.grad for parameter in parameters if parameter.grad is not None])
        for parameter, total in zip(parameters, totals, strict=True):
            parameter.grad = total


def batch_size_for(num_rows: int) -> int:
    """Rows a step, of all processes together."""
    return min(LARGEST_BATCH, max(SMALLEST_BATCH, num_rows // 64))


def train_on_stream(
    module: nn.Module,
    loss: RowLoss,
    stream: Stream,
    *,
    name: str,
    seed: int,
    rule: Rule | None = None,
    num_epochs: int | None = None,
    batch_size: int | None = None,
    learning_rate: float = 3e-3,
    weight_decay: float = 1e-2,
    place: int = 0,
) -> None:
    """Train a module, the same on every process, in place.

    Every step is a function of the parameters and of (seed, epoch, step, process): a fit that was stopped and goes on from a
    snapshot ends with the parameters of one that was not.

    Args:
        module: what is trained.
        loss: of each row.
        stream: of training rows.
        name: of the module, for progress.
        seed: of order and dropout.
        rule: the targets; those of the rows unless given.
        num_epochs: passes over the rows; as many as give `FEWEST_STEPS` unless given, and one at least.
        batch_size: rows a step, of all processes together; `batch_size_for` unless given.
        learning_rate: at its highest.
        weight_decay: of AdamW.
        place: among the means of the fit, for its snapshot.
    """
    parameters = [p for p in module.parameters() if p.requires_grad]
    steps = math.ceil(stream.num_rows / (batch_size_for(stream.num_rows) if batch_size is None else batch_size))
    epochs = math.ceil(FEWEST_STEPS / steps) if num_epochs is None else num_epochs
    optimiser = torch.optim.AdamW(parameters, lr=learning_rate, weight_decay=weight_decay)
    warm_up = max(1, epochs * steps // 20)

    def rate(step: int) -> float:
        return min((step + 1) / warm_up, 0.5 * (1 + math.cos(math.pi * step / (epochs * steps))) + 1e-3)

    # Not by name: two means of a list may have the same.
    stage = f"mean-{place + 1}"
    done = _resume(module, optimiser, stream, stage)
    last, wait = time.monotonic(), stream.snapshots.interval
    for epoch in range(done // steps, epochs):
        for step, (x, y) in enumerate(stream.batches(steps, seed_of(seed, epoch))):
            place = epoch * steps + step
            if place < done:
                continue
            for group in optimiser.param_groups:
                group["lr"] = learning_rate * rate(place)
            optimiser.zero_grad(set_to_none=True)
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed_of(seed, epoch, step, stream.ranks.rank))
                losses = loss(x, y if rule is None else rule(x, y).detach()) if len(x) else x.new_empty(0)
                add_gradients(losses, parameters, sum(stream.batch_sizes(step, steps)), stream.ranks)
            optimiser.step()
            done = place + 1
            if stream.ranks.is_first and time.monotonic() - last >= wait:
                begun = time.monotonic()
                stream.snapshots.write(stage, {"steps": done}, _state(module, optimiser))
                last = time.monotonic()
                wait = stream.snapshots.wait_after(last - begun)
            if done % 50 == 0:
                stream.report(name, done / (epochs * steps))
        if not all(bool(p.isfinite().all()) for p in parameters):
            raise FloatingPointError(f"A parameter of {name} became NaN or infinite in epoch {epoch}; standardise the rows.")
    if stream.ranks.is_first:
        stream.snapshots.write(stage, {"steps": done}, _state(module, optimiser))
    # Running averages, such as those of batch normalisation, are each process's own: all take those of the first.
    module.load_state_dict(stream.ranks.from_first(module.state_dict))


def _state(module: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    found = {f"module.{key}": value for key, value in module.state_dict().items()}
    for place, values in optimiser.state_dict()["state"].items():
        found |= {f"optimiser.{place}.{key}": torch.as_tensor(value) for key, value in values.items()}
    return found


def _resume(module: nn.Module, optimiser: torch.optim.Optimizer, stream: Stream, stage: str) -> int:
    """Take over the last snapshot; how many steps it has behind it. One of a module of another shape is passed over."""
    found = stream.ranks.from_first(lambda: stream.snapshots.read(stage))
    shapes = {f"module.{key}": value.shape for key, value in module.state_dict().items()}
    if found is None or {key: value.shape for key, value in found[1].items() if key.startswith("module.")} != shapes:
        module.load_state_dict(stream.ranks.from_first(module.state_dict))
        return 0
    progress, tensors = found
    module.load_state_dict({key: tensors[f"module.{key}"] for key in module.state_dict()})
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        if key.startswith("optimiser."):
            _, place, part = key.split(".", 2)
            state.setdefault(int(place), {})[part] = value
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
    return int(progress["steps"])
