"""All training rows of a source, standardised, some at a time: in order for sums, in random order for gradient steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from gwi._progress import Report, silent
from gwi.core.linalg import cholesky
from gwi.core.measures import kernel_matrix
from gwi.core.row_sums import SUMMED, RowSums, combined, no_sums, row_sums
from gwi.core.scaling import Scales
from gwi.streaming.batches import indices
from gwi.streaming.checkpoints import Checkpoints
from gwi.streaming.loaders import in_order, seed_of, shuffled
from gwi.streaming.process_group import ProcessGroup
from gwi.streaming.summary import Sketch
from gwi.tables.rows import Chunk, RowSource

# From standardised rows and targets to what is to be learned there.
Rule = Callable[[Tensor, Tensor], Tensor]


# From the targets of a source to what is learned: `Scales.targets` for numbers.
Encode = Callable[[Scales, NDArray[Any], "torch.device | str"], Tensor]


def class_indicators(classes: NDArray[Any]) -> Encode:
    """Labels, as indicators of these classes."""

    def encode(scales: Scales, y: NDArray[Any], device: torch.device | str) -> Float[Tensor, "J n"]:
        place = torch.from_numpy(indices(np.array(y.tolist()), classes))
        return nn.functional.one_hot(place, len(classes)).mT.to(device, torch.float64).contiguous()

    return encode


@dataclass(frozen=True)
class Stream:
    """Training rows: all of a source but those that judge.

    Attributes:
        source: of all rows.
        sketch: what one pass over them found.
        scales: between the source's values and standardised ones.
        shares: the groups of each process.
        processes: those that share the rows.
        device: where tensors go.
        encode: from the targets of a source to standardised numbers or indicators of classes.
        checkpoints: where progress is kept.
        report: of progress.
    """

    source: RowSource
    sketch: Sketch
    scales: Scales
    shares: tuple[tuple[int, ...], ...]
    processes: ProcessGroup = field(default_factory=ProcessGroup.current)
    device: torch.device | str = "cpu"
    encode: Encode = Scales.targets
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    report: Report = silent
    # The last sums, found again by the value of kernel and Z, never by name: what is asked for twice is read once.
    _last: list[tuple[str, list[Tensor], bool, RowSums]] = field(default_factory=list, repr=False)

    @property
    def num_rows(self) -> int:
        """N, judging rows not counted."""
        return self.sketch.num_rows - self.sketch.num_judges

    @property
    def num_outputs(self) -> int:
        """J."""
        return len(self.scales.y_scale)

    @cached_property
    def rows_of_processes(self) -> tuple[int, ...]:
        """How many training rows each process has."""
        ends = np.cumsum(self.source.group_sizes)
        judging = np.bincount(np.searchsorted(ends, self.sketch.judges.number, side="right"), minlength=len(ends))
        rows = np.array(self.sketch.group_counts) - judging
        return tuple(int(rows[list(share)].sum()) for share in self.shares)

    def tensors(self, chunk: Chunk) -> tuple[Float[Tensor, "n D"], Float[Tensor, "J n"]]:
        """Standardised rows and targets."""
        return self.scales.rows(chunk.x, self.device), self.encode(self.scales, chunk.y, self.device)

    def _training(self, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        for chunk in chunks:
            kept = ~self.sketch.is_judge(chunk.number)
            if kept.any():
                yield chunk[kept]

    def chunks(self) -> Iterator[tuple[Float[Tensor, "n D"], Float[Tensor, "J n"]]]:
        """The training rows of this process, in order."""
        for chunk in self._training(in_order(self.source, self.shares[self.processes.rank])):
            yield self.tensors(chunk)

    def batch_sizes(self, step: int, num_steps: int) -> tuple[int, ...]:
        """Rows of each process in a step of an epoch: in proportion to what it has, so that all end an epoch together."""
        return tuple((step + 1) * rows // num_steps - step * rows // num_steps for rows in self.rows_of_processes)

    def batches(self, num_steps: int, seed: int) -> Iterator[tuple[Float[Tensor, "b D"], Float[Tensor, "J b"]]]:
        """One epoch of this process in random order: a batch, which may be empty, for each step.

        Args:
            num_steps: of the epoch.
            seed: of the order, one each epoch.
        """
        mine = self.shares[self.processes.rank]
        blocks = self._training(shuffled(self.source, mine, seed_of(seed, self.processes.rank)))
        empty = torch.empty(0, len(self.scales.x_scale), dtype=torch.float64, device=self.device)
        held, start = (empty, empty.new_empty(self.num_outputs, 0)), 0
        for step in range(num_steps):
            size = self.batch_sizes(step, num_steps)[self.processes.rank]
            while len(held[0]) - start < size:
                x, y = self.tensors(next(blocks))
                held = torch.cat([held[0][start:], x]), torch.cat([held[1][:, start:], y], dim=1)
                start = 0
            yield held[0][start : start + size], held[1][:, start : start + size]
            start += size

    def sums(self, kernel: Kernel, z: Float[Tensor, "M D"], rule: Rule | None = None, *, targets: bool = True) -> RowSums:
        """Unweighted sums over all training rows of all processes, in one pass.

        Args:
            kernel: k.
            z: Z.
            rule: the targets; those of the rows unless given.
            targets: whether Σ φy is needed; without it, sums with another rule do as well.
        """
        # Copies: a kernel that is changed in place is another one.
        key = str(kernel), [value.detach().clone() for value in (z, *kernel.state_dict().values())]
        for text, values, is_plain, found in self._last:
            same = text == key[0] and all(map(torch.equal, values, key[1]))
            if same and (not targets or (is_plain and rule is None)):
                return found
        found = self.total_sums(self._own_sums(kernel, z, rule))
        self._last[:] = [(*key, rule is None, found)]
        return found

    @torch.no_grad()
    def _own_sums(self, kernel: Kernel, z: Tensor, rule: Rule | None) -> RowSums:
        factor = cholesky(kernel_matrix(kernel, z), name="k(Z, Z)").factor
        total: RowSums | None = None
        done, mine = 0, max(self.rows_of_processes[self.processes.rank], 1)
        for x, y in self.chunks():
            part = row_sums(kernel, z, x, y if rule is None else rule(x, y), inducing_factor=factor)
            total = part if total is None else combined([total, part], [1.0, 1.0])
            done += len(x)
            self.report(f"sums, {len(z)} points", done / mine)
        return no_sums(factor, self.num_outputs) if total is None else total

    def total_sums(self, sums: RowSums) -> RowSums:
        """Sums of all processes together, in one message."""
        count = sums.gram.new_tensor(float(sums.num_rows))
        *parts, rows = self.processes.total([*(getattr(sums, name) for name in SUMMED), count])
        return replace(sums, num_rows=round(float(rows)), **dict(zip(SUMMED, parts, strict=True)))
