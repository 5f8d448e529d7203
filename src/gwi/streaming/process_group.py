"""Processes that fit one model together: their number, sums over all of them, and what the first decides for all.

Plain `torch.distributed`, gloo between processors and nccl between GPUs, started by `torchrun` or by `gwi launch`. Alone, every
function here does nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")

# Seconds that a process waits for another before it gives up: longer than any stage that only the first works on.
TIMEOUT = 1800.0


@dataclass(frozen=True)
class ProcessGroup:
    """One process among those that fit together.

    Attributes:
        rank: which one it is, from 0.
        size: how many there are.
    """

    rank: int = 0
    size: int = 1

    @staticmethod
    def current() -> ProcessGroup:
        """Those of the process group, or this process alone."""
        if dist.is_available() and dist.is_initialized():
            return ProcessGroup(dist.get_rank(), dist.get_world_size())
        return ProcessGroup()

    @property
    def is_first(self) -> bool:
        """Whether this process decides, prints and writes."""
        return self.rank == 0

    def total(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The sum of each tensor over all processes, in one message."""
        if self.size == 1:
            return list(tensors)
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        dist.all_reduce(flat)
        parts = flat.split([tensor.numel() for tensor in tensors])
        return [part.reshape(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]

    def gathered(self, function: Callable[[], T]) -> list[T]:
        """What the function gives on every process, in their order; an error of one is an error of all."""
        if self.size == 1:
            return [function()]
        answers: list[Any] = [None] * self.size
        dist.all_gather_object(answers, _answer(function))
        return [_value(answer) for answer in answers]

    def from_first(self, function: Callable[[], T]) -> T:
        """What the function gives on the first process, on all; an error there is an error everywhere."""
        if self.size == 1:
            return function()
        message = [_answer(function) if self.is_first else None]
        dist.broadcast_object_list(message, src=0)
        return _value(message[0])


def _answer(function: Callable[[], T]) -> tuple[T | None, Exception | None]:
    """A value, or the error there was instead: both can be sent to other processes."""
    try:
        return function(), None
    except Exception as error:
        return None, error


def _value(answer: Any) -> Any:
    value, failure = answer
    if failure is not None:
        raise failure
    return value


@contextmanager
def joined(timeout: float = TIMEOUT) -> Iterator[ProcessGroup]:
    """The process group that `torchrun` has prepared, while inside; alone where it has not, and as it is where there is one.

    The timeout is finite, so that a process whose partners died ends and can be started again.

    Examples:
        >>> from gwi.streaming.process_group import joined
        >>> with joined() as group:  # under `torchrun` every process enters here
        ...     group.size
        1
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        yield ProcessGroup.current()
        return
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    has_gpu = local_rank < torch.cuda.device_count()
    if has_gpu:
        torch.cuda.set_device(local_rank)
    backend = "cpu:gloo,cuda:nccl" if has_gpu else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout))
    try:
        yield ProcessGroup.current()
    finally:
        dist.destroy_process_group()
