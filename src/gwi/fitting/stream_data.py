"""Rows of a source that are read some at a time: one pass for a sample and held-out rows, sums and gradient steps over all."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from gwi._progress import Report, silent
from gwi._typing import Array
from gwi._validation import as_array, is_source
from gwi.core.early_stopping import GivesUp, Loss, never
from gwi.core.means import ModuleMean
from gwi.core.networks import EnsembleMLP
from gwi.core.row_sums import RowSums
from gwi.core.scaling import Scales
from gwi.exceptions import UserError
from gwi.fitting.data import FitData, HeldOut, Mean, Rule
from gwi.streaming.checkpoints import Checkpoints
from gwi.streaming.fingerprint import described, estimator_description
from gwi.streaming.loaders import LoaderSource, as_source, content_of, fingerprint_of, in_order, shares_of
from gwi.streaming.process_group import ProcessGroup
from gwi.streaming.stream import Encode, Stream, class_indicators
from gwi.streaming.summary import NUM_JUDGES, Moments, Sketch, sketch
from gwi.streaming.training import RowLoss, train_on_stream
from gwi.tables.rows import FEW_NUMBERS as FEW_NUMBERS
from gwi.tables.rows import Chunk, RowSource

T = TypeVar("T")


@dataclass(frozen=True)
class StreamData(FitData):
    """Rows of a stream.

    Attributes:
        stream: all training rows.
        classes: the labels, in order; none for numbers.
        rule: what is learned at each row; its targets unless given.
    """

    stream: Stream
    classes: NDArray[Any]
    rule: Rule | None = None
    is_sample = True

    @property
    def num_rows(self) -> int:
        """N."""
        return self.stream.num_rows

    def totals(self) -> Float[Tensor, " J"]:
        """How many rows have each label."""
        return self.y.new_tensor([self.stream.sketch.labels[label] for label in self.classes.tolist()])

    def agreed(self, value: T) -> T:
        """The value; where processes share the rows, that of the first of them."""
        return self.stream.processes.from_first(lambda: value)

    def decided(self, function: Callable[[], T]) -> T:
        """What the function gives; where processes share the rows, what it gives on the first of them."""
        value, state = self.stream.processes.from_first(lambda: (function(), self.generator.get_state()))
        self.generator.set_state(state)
        return value

    def with_targets(self, rule: Rule) -> StreamData:
        """The same rows with other targets, made from those that they have."""
        before = self.rule
        return replace(self, y=rule(self.x, self.y), rule=rule if before is None else lambda x, y: rule(x, before(x, y)))

    def less(self, mean: Mean, held_out: Float[Tensor, "J V"]) -> StreamData:
        """The same rows, with what a mean leaves over as targets."""
        return self.with_targets(lambda x, y: y - mean(x))

    def sums(
        self, kernel: Kernel, z: Float[Tensor, "M D"], noise_variance: Float[Tensor, ...] | float, *, folds: bool = True
    ) -> tuple[RowSums, list[RowSums]]:
        """Sums over all rows, of all processes."""
        return self.stream.sums(kernel, z, self.rule).weighted(float(noise_variance)), []

    def gram(self, kernel: Kernel, z: Float[Tensor, "M D"]) -> RowSums:
        """Σ φφᵀ over all rows, which Titsias' covariance needs too."""
        return self.stream.sums(kernel, z, targets=False)

    def train_ensemble(
        self,
        network: EnsembleMLP,
        loss: Loss,
        max_steps: int,
        train_linear: bool,
        name: str,
        place: int,
        report: Report,
        gives_up: GivesUp = never,
    ) -> Float[Tensor, "J V"]:
        """Train all members on the same batches, as many as the rows ask for; there are no folds."""
        dtype = network.dtype
        network.linear.requires_grad_(train_linear)

        def losses(x: Tensor, y: Tensor) -> Tensor:
            outputs = network.members(x.to(dtype))
            return loss(outputs, y.mT.to(outputs.dtype).expand(outputs.shape)).sum(0)

        self._train(network, losses, name, place)
        return self.held_out.predicted(ModuleMean(network.settled()))

    def train_module(
        self,
        fresh: Callable[[], ModuleMean],
        loss: Loss,
        num_epochs: int,
        learning_rate: float,
        name: str,
        place: int,
        report: Report,
    ) -> tuple[ModuleMean, list[Mean]]:
        """A user's module, trained on all rows; there are no folds."""
        mean = fresh().train()
        self._train(mean, lambda x, y: loss(mean(x).mT, y.mT), name, place, learning_rate=learning_rate)
        return mean.eval().requires_grad_(False), []

    def _train(self, module: nn.Module, loss: RowLoss, name: str, place: int, **options: Any) -> None:
        train_on_stream(module, loss, self.stream, name=name, seed=self.seed(), rule=self.rule, place=place, **options)


def in_memory(source: RowSource) -> Chunk | None:
    """All rows, where they are few and no other process shares them; else None."""
    if ProcessGroup.current().size > 1 or not sum(source.group_sizes):
        return None
    num_columns = next(source.read(int(np.argmax(source.group_sizes)))).x.shape[1] + 1
    if sum(source.group_sizes) * num_columns > FEW_NUMBERS:
        return None
    return Chunk.join(list(in_order(source, range(len(source.group_sizes)))))


def stream_data(
    source: RowSource,
    generator: torch.Generator,
    *,
    labels: bool = False,
    validation: Any = None,
    device: torch.device | str = "cpu",
    checkpoints: str | os.PathLike[str] | None = None,
    estimator: Any = None,
    report: Report = silent,
    shares: Sequence[Sequence[int]] | None = None,
) -> StreamData:
    """One pass over a source, shared by all processes, and the rows of a fit that come of it.

    Args:
        source: of rows.
        generator: for everything random; that of the first process counts.
        labels: whether the targets are labels.
        validation: rows and targets that judge, or a source of them; None sets some of the source's rows apart.
        device: where tensors go.
        checkpoints: the folder of checkpoints; None for none.
        estimator: whose parameters tell this fit from others; without a `random_state` the seed is kept with the checkpoints.
        report: of progress.
        shares: the groups of each process; even ones unless given.
    """
    processes = ProcessGroup.current()
    _require_one_source(source, processes)
    if validation is None and isinstance(source, LoaderSource):
        source = source.in_one_order()

    def chosen_seed() -> int:
        drawn = int(torch.randint(2**62, (1,), generator=generator))
        is_chosen = getattr(estimator, "random_state", 0) is not None
        return drawn if checkpoints is None or is_chosen else Checkpoints.seed(checkpoints, drawn)

    given = None if validation is None else _given_rows(validation, labels, source.features)
    seed = processes.from_first(chosen_seed)
    generator.manual_seed(seed)
    kept = Checkpoints()
    if checkpoints is not None:
        description = None if estimator is None else estimator_description(estimator)
        judging = described(given) if isinstance(given, Chunk) else None if given is None else fingerprint_of(given)
        key = processes.from_first(lambda: [fingerprint_of(source), labels, seed, description, judging])
        kept = Checkpoints.of(checkpoints, key)
    divided = shares_of(source.group_sizes, processes.size) if shares is None else tuple(map(tuple, shares))
    found = processes.from_first(lambda: _read_sketch(kept, seed))
    if found is None:
        found = sketch(source, seed, labels=labels, judges=given is None, groups=divided[processes.rank], report=report)
        if processes.is_first and checkpoints is not None:
            _write_sketch(kept, found)
    scales, classes = found.scales(), np.empty(0)
    encode: Encode = Scales.targets
    if labels:
        classes = np.array(sorted(found.labels))
        if len(classes) < 2:
            raise ValueError(f"A classifier needs rows of at least two classes; got one class, {classes[0]!r}.")
        scales = Scales(scales.x_centre, scales.x_scale, np.zeros(len(classes)), np.ones(len(classes)))
        encode = class_indicators(classes)
    if not len(found.learning):
        raise ValueError(f"The source has {found.num_rows} rows, too few to learn from; pass them as arrays.")
    stream = Stream(source, found, scales, divided, processes, device, encode, kept, report)
    x, y = stream.tensors(found.learning)
    judges = found.judges if given is None else _sampled(given, found.seed, labels)
    if judges.x.ndim != 2 or judges.x.shape[1] != x.shape[1]:
        raise ValueError(f"validation needs {x.shape[1]} columns, like the training rows; got {judges.x.shape[1:]}.")
    x_judge, y_judge = stream.tensors(judges)
    if y_judge.shape[0] != y.shape[0]:
        raise ValueError(f"validation needs {y.shape[0]} target(s), like the training rows; got {y_judge.shape[0]}.")
    held_out = HeldOut(x_judge, y_judge, torch.ones_like(y_judge[0]), None, may_be_known=found.num_judges > 0)
    note = f"rows were streamed; {len(judges)} of them are held out, {len(x)} more are the sample for prior and inducing points"
    return StreamData(x, y, torch.ones_like(y[0]), held_out, scales, generator, stream, classes, note=note)


def _require_one_source(source: RowSource, processes: ProcessGroup) -> None:
    """Refuse shares of rows where all rows are wanted: processes share them by themselves.

    Raises:
        UserError: when processes were given different rows.
    """
    if processes.size == 1:
        return
    seen = processes.gathered(lambda: (source.group_sizes, content_of(source)))
    for rank, other in enumerate(seen):
        if other != seen[0]:
            rows = [f"{sum(sizes)} rows in {len(sizes)} groups" for sizes, _ in (seen[0], other)]
            raise UserError(
                f"Process 0 was given {rows[0]}, process {rank} {rows[1]}, and they are not the same rows; give all of them the "
                "same files, source or loader with all rows: they divide the rows among themselves."
            )


def validation_arrays(validation: Any, features: Sequence[str] | NDArray[Any] | None, *, labels: bool = False) -> Any:
    """Validation rows and targets as arrays where a source of them is given; anything else as it is.

    Args:
        validation: what the user gave.
        features: names of the columns, to find them by; None where they have none.
        labels: whether the targets are labels.
    """
    if validation is None or not is_source(_parted(validation)[0]):
        return validation
    chunk = _sampled(_given_rows(validation, labels, None if features is None else tuple(features)), 0, labels)
    chunk = chunk[np.argsort(chunk.number)]
    return chunk.x, np.array(chunk.y.tolist()) if labels else chunk.y


def _given_rows(validation: Any, labels: bool, features: Sequence[str] | None) -> RowSource | Chunk:
    """Rows that judge, as a user gave them."""
    data, target = _parted(validation)
    if is_source(data):
        return as_source(data, target, labels=labels, features=features)
    x, y = np.asarray(as_array(data), dtype=np.float64), np.asarray(as_array(target))
    return Chunk(x, y if labels else y.reshape(len(x), -1).astype(np.float64), np.arange(len(x)))


def _sampled(given: RowSource | Chunk, seed: int, labels: bool) -> Chunk:
    """The rows, or a sample of a source of them."""
    if isinstance(given, Chunk):
        return given
    return sketch(given, seed, labels=labels, judges=False, num_sampled=NUM_JUDGES).sample[:NUM_JUDGES]


def _parted(validation: Any) -> tuple[Any, Any]:
    if isinstance(validation, list | tuple) and len(validation) == 2:
        return validation[0], validation[1]
    return validation, None


def _write_sketch(checkpoints: Checkpoints, found: Sketch) -> None:
    rows = found.sample
    is_text = rows.y.dtype.kind not in "iufb"
    progress = {
        "count": found.x.count,
        "labels": [[key, count] for key, count in found.labels.items()],
        "num_judges": found.num_judges,
        "group_counts": list(found.group_counts),
        "y": rows.y.tolist() if is_text else None,
    }
    arrays = {"x": rows.x, "number": rows.number} | ({} if is_text else {"y": rows.y})
    for name, moments in (("x", found.x), ("y", found.y)):
        arrays |= {f"{name}_mean": moments.mean, f"{name}_deviation": moments.deviation}
    checkpoints.write("rows", progress, {name: torch.from_numpy(np.ascontiguousarray(v)) for name, v in arrays.items()})


def _read_sketch(checkpoints: Checkpoints, seed: int) -> Sketch | None:
    read = checkpoints.read("rows")
    if read is None:
        return None
    progress, tensors = read
    a: dict[str, Array] = {name: value.numpy() for name, value in tensors.items()}
    y = a["y"] if progress["y"] is None else np.array(progress["y"], dtype=object)
    count = int(progress["count"])
    return Sketch(
        seed,
        Moments(count, a["x_mean"], a["x_deviation"]),
        Moments(count, a["y_mean"], a["y_deviation"]),
        Chunk(a["x"], y, a["number"]),
        {key: int(number) for key, number in progress["labels"]},
        int(progress["num_judges"]),
        tuple(progress["group_counts"]),
    )
