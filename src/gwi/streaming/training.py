"""Gradient steps on a stream of rows, shared by processes, with checkpoints: AdamW, a warm-up and a cosine."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from gwi.core.training import gradient_steps, warm_up_and_cosine
from gwi.streaming.loaders import seed_of
from gwi.streaming.process_group import ProcessGroup
from gwi.streaming.stream import Rule, Stream

# Rows a step, fewer where there are few rows, and the fewest steps.
SMALLEST_BATCH, LARGEST_BATCH = 128, 1024
FEWEST_STEPS = 5000

# The loss of each row from standardised rows and targets, rows last.
RowLoss = Callable[[Tensor, Tensor], Tensor]


def add_gradients(loss: Tensor, parameters: Sequence[Tensor], processes: ProcessGroup) -> None:
    """Set each gradient to that of the sum of the losses of all processes.

    Each process's loss is divided by the rows of all, not by its own: shares may be uneven or empty.

    Args:
        loss: of the rows of this process, over the number of rows of all.
        parameters: the same on every process.
        processes: those that share the rows.
    """
    if loss.requires_grad:
        loss.backward()
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    totals = processes.total([parameter.grad for parameter in parameters if parameter.grad is not None])
    for parameter, total in zip(parameters, totals, strict=True):
        parameter.grad = total


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
        batch_size: rows a step, of all processes together; a share of the rows unless given.
        learning_rate: at its highest.
        place: among the means of the fit, for its snapshot.
    """
    parameters = [p for p in module.parameters() if p.requires_grad]
    usual = min(LARGEST_BATCH, max(SMALLEST_BATCH, stream.num_rows // 64))
    steps = math.ceil(stream.num_rows / (usual if batch_size is None else batch_size))
    epochs = math.ceil(FEWEST_STEPS / steps) if num_epochs is None else num_epochs
    optimiser = torch.optim.AdamW(parameters, lr=learning_rate, weight_decay=1e-2)
    # Not by name: two means of a list may have the same.
    stage = f"mean-{place + 1}"
    done = _resume(module, optimiser, stream, stage)

    def evaluated(x: Tensor, y: Tensor, epoch: int, step: int) -> Tensor:
        if not len(x):
            return x.new_zeros(())
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_of(seed, epoch, step, stream.processes.rank))
            losses = loss(x, y if rule is None else rule(x, y).detach())
        return losses.sum() / sum(stream.batch_sizes(step, steps))

    def batches(first: int) -> Iterator[Callable[[], Tensor]]:
        for epoch in range(first // steps, epochs):
            for step, (x, y) in enumerate(stream.batches(steps, seed_of(seed, epoch))):
                if epoch * steps + step >= first:
                    yield partial(evaluated, x, y, epoch, step)
            if not all(bool(p.isfinite().all()) for p in parameters):
                raise FloatingPointError(f"A parameter of {name} became NaN or infinite in epoch {epoch}; standardise the rows.")

    backward = partial(add_gradients, parameters=parameters, processes=stream.processes)
    last, wait = time.monotonic(), stream.checkpoints.interval
    rate = warm_up_and_cosine(epochs * steps)
    for step, _ in gradient_steps(optimiser, batches(done), rate, first_step=done, backward=backward):
        done = step + 1
        if stream.processes.is_first and time.monotonic() - last >= wait:
            start = time.monotonic()
            stream.checkpoints.write(stage, {"steps": done}, _state(module, optimiser))
            last = time.monotonic()
            wait = stream.checkpoints.wait_after(last - start)
        if done % 50 == 0:
            stream.report(name, done / (epochs * steps))
    if stream.processes.is_first:
        stream.checkpoints.write(stage, {"steps": done}, _state(module, optimiser))
    # Running averages, such as those of batch normalisation, are each process's own: all take those of the first.
    module.load_state_dict(stream.processes.from_first(module.state_dict))


def _state(module: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    found = {f"module.{key}": value for key, value in module.state_dict().items()}
    for place, values in optimiser.state_dict()["state"].items():
        found |= {f"optimiser.{place}.{key}": torch.as_tensor(value) for key, value in values.items()}
    return found


def _resume(module: nn.Module, optimiser: torch.optim.Optimizer, stream: Stream, stage: str) -> int:
    """Take over the last snapshot; how many steps it has behind it. One of a module of another shape is passed over."""
    found = stream.processes.from_first(lambda: stream.checkpoints.read(stage))
    shapes = {f"module.{key}": value.shape for key, value in module.state_dict().items()}
    if found is None or {key: value.shape for key, value in found[1].items() if key.startswith("module.")} != shapes:
        module.load_state_dict(stream.processes.from_first(module.state_dict))
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
