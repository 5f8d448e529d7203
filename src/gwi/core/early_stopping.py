"""Networks side by side, each without some of the rows, trained for as long as the rows that they have not seen gain from it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gwi.core.networks import EnsembleMLP
from gwi.core.training import FlatAdam, gradient_steps

# Of outputs and targets, whose last axis runs over outputs, at each row.
Loss = Callable[[Tensor, Tensor], Tensor]
# Of steps, the least mean loss so far, and outputs at all judges or None: whether to give up.
GivesUp = Callable[[int, float, Tensor | None], bool]

# Of a step at its peak, which is reached after so many steps, and falls with the root of the steps beyond so many. Scales of
# columns move faster: they are logarithms.
LEARNING_RATE, WARM_UP, SLOWER_FROM, SCALE_RATE, WEIGHT_DECAY = 1e-2, 50, 300, 3.0, 1e-2
# Parameters are averaged over about the last tenth of the steps (Karras et al. 2024): less noise than any learning rate has.
AVERAGE_POWER = 9
# Held-out rows are looked at after so many steps more, and after this share of those done.
FIRST_LOOK, LOOK_SHARE = 10, 1 / 12
# Training ends when the best step is so far behind, in steps and as a share of those done; and when all but this share of the
# steps have lowered the held-out loss by less than that share of it.
PATIENCE, PATIENCE_SHARE, LATE_SHARE, LEAST_GAIN, FEWEST_STEPS = 50, 0.35, 0.6, 0.06, 300
# So many held-out rows say when to stop; with more than that, the choice flatters none of them.
MOST_JUDGES = 20_000
# Rows in a batch, for few rows and for many; and rows evaluated at a time.
FEW_ROWS, SMALL_BATCH, LARGE_BATCH, CHUNK_SIZE = 600, 128, 256, 4096


def never(steps: int, loss: float, outputs: Tensor | None) -> bool:
    """For who does not give up."""
    return False


@dataclass(frozen=True)
class Judges:
    """Rows that say when to stop, each by members that have not learned from it.

    Attributes:
        x: rows.
        y: their targets.
        weight: of each row.
        group: of the members that have not seen it.
        part: rows of one part get the step that is best for the others.
    """

    x: Float[Tensor, "V D"]
    y: Float[Tensor, "V T"]
    weight: Float[Tensor, " V"]
    group: Int[Tensor, " V"]
    part: Int[Tensor, " V"]

    def __getitem__(self, rows: Tensor) -> Judges:
        return Judges(self.x[rows], self.y[rows], self.weight[rows], self.group[rows], self.part[rows])


def train_early_stopped(
    network: EnsembleMLP,
    loss: Loss,
    x: Float[Tensor, "N D"],
    y: Float[Tensor, "N T"],
    weight: Float[Tensor, " N"],
    learned: Bool[Tensor, "G N"],
    judges: Judges,
    *,
    max_steps: int,
    train_linear: bool = False,
    unit: float | None = None,
    generator: torch.Generator | None = None,
    on_step: Callable[[float], None] | None = None,
    gives_up: GivesUp = never,
    patience: int = PATIENCE,
) -> Float[Tensor, "V J"]:
    """Train all members at once, `network` in place; what the members that have not seen a row predict there, on average.

    All members see the same batches; rows that a member is not to see have no weight in its loss. One step is best for all, by
    the loss of all judges. That choice flatters them, so the predictions that come back are those at the step that is best for
    the judges of other parts.

    Args:
        network: whose members belong to the groups in turn, as many to each.
        loss: of each row.
        x: rows, standardised.
        y: what the loss takes as targets.
        weight: of each row.
        learned: which rows the members of each group learn from.
        judges: rows that say when to stop; where there are none, all steps are done.
        max_steps: the bound on steps.
        train_linear: whether the linear path is learned too, or stays as it is.
        unit: of each row's loss, against which gains are measured; the loss itself unless given.
        generator: for the order of rows.
        on_step: called with the share of `max_steps` that is done.
        gives_up: asked at each look.
        patience: steps that the best one may be behind.
    """
    num_groups, dtype = len(learned), network.dtype
    x, y, share = x.to(dtype), y.to(dtype), learned.to(dtype) * weight.to(dtype)
    # A member that sees few rows takes steps as long as one that sees many.
    share = (share / share.mean(1, keepdim=True)).repeat(network.num_members // num_groups, 1)
    optimiser = _optimiser(network, train_linear)
    history = _History(network, loss, judges, num_groups, optimiser.values, unit, gives_up, patience)

    def evaluated(rows: Tensor) -> Tensor:
        outputs = network.members(x[rows])
        return (loss(outputs, y[rows].expand(len(outputs), -1, -1)) * share[:, rows]).mean(1).sum()

    closures = ((lambda rows=rows: evaluated(rows)) for rows in _batches(len(x), max_steps, generator, x.device))
    for step, _ in gradient_steps(optimiser, closures, _rate):
        history.average.lerp_(optimiser.values, 1 - (1 - 1 / (step + 2)) ** (AVERAGE_POWER + 1))
        if on_step is not None:
            on_step((step + 1) / max_steps)
        if history.is_over(step + 1):
            break
    return history.settle()


def _rate(step: int) -> float:
    return min(1.0, (step + 1) / WARM_UP) / math.sqrt(1 + step / SLOWER_FROM)


def _optimiser(network: EnsembleMLP, train_linear: bool) -> FlatAdam:
    groups = [
        {"params": list(network.weights), "lr": LEARNING_RATE, "weight_decay": WEIGHT_DECAY},
        {"params": list(network.biases), "lr": LEARNING_RATE, "weight_decay": 0.0},
    ]
    if network.log_scales is not None:
        groups.append({"params": [network.log_scales], "lr": SCALE_RATE * LEARNING_RATE, "weight_decay": 0.0})
    network.linear.requires_grad_(train_linear)
    if train_linear:
        groups.append({"params": [network.linear], "lr": LEARNING_RATE, "weight_decay": WEIGHT_DECAY})
    return FlatAdam(groups)


def _batches(num_rows: int, num_steps: int, generator: torch.Generator | None, device: torch.device) -> Iterator[Tensor]:
    """Rows of each step, in an order that is drawn anew when all have been seen."""
    size = min(num_rows, SMALL_BATCH if num_rows < FEW_ROWS else LARGE_BATCH)
    order = torch.empty(0, dtype=torch.long)
    for _ in range(num_steps):
        if len(order) < size:
            order = torch.randperm(num_rows, generator=generator)
        yield order[:size].to(device)
        order = order[size:]


class _History:
    """What held-out rows have said so far.

    Args:
        network: that is trained.
        loss: of each row.
        judges: rows that say when to stop.
        num_groups: of members.
        values: of all parameters.
        unit: against which gains of each row are measured; None for the loss itself.
        gives_up: asked at each look.
        patience: steps that the best one may be behind.
    """

    def __init__(
        self,
        network: EnsembleMLP,
        loss: Loss,
        judges: Judges,
        num_groups: int,
        values: Tensor,
        unit: float | None,
        gives_up: GivesUp,
        patience: int,
    ):
        self._network, self._loss, self._judges, self._num_groups, self._values = network, loss, judges, num_groups, values
        self._unit, self._gives_up, self._patience, self.average = unit, gives_up, patience, values.clone()
        some = judges
        if len(judges.x) > MOST_JUDGES:
            rows = torch.randperm(len(judges.x), generator=torch.Generator().manual_seed(0))[:MOST_JUDGES]
            some = judges[rows.sort().values.to(judges.x.device)]
        self._some = some
        self._parts = [part == some.part for part in some.part.unique()]
        self._best, self._best_step, self._best_values = math.inf, 0, values.clone()
        # For each part: the least loss of all other parts, and the predictions for the part at that step.
        self._least = [math.inf] * len(self._parts)
        self._predicted = torch.zeros(len(some.x), network.linear.shape[2], dtype=network.dtype, device=values.device)
        self._losses: list[tuple[int, float]] = []
        self._next = 0
        self.is_over(0)

    def is_over(self, step: int) -> bool:
        """Look at held-out rows when it is time to; whether to stop."""
        if not len(self._some.x) or step < self._next:
            return False
        self._next = step + max(FIRST_LOOK, int(LOOK_SHARE * step))
        outputs = self._at_average(self._some)
        losses = (self._loss(outputs, self._some.y.to(outputs.dtype)) * self._some.weight).double()
        found = float(losses.sum())
        if not math.isfinite(found):
            return True
        if found < self._best:
            self._best, self._best_step, self._best_values = found, step, self.average.clone()
        for i, inside in enumerate(self._parts):
            others = found - float(losses[inside].sum()) if len(self._parts) > 1 else found
            if others < self._least[i]:
                self._least[i] = others
                self._predicted[inside] = outputs[inside]
        self._losses.append((step, self._best))
        given_up = self._gives_up(
            step, self._best / float(self._some.weight.sum()), outputs if self._some is self._judges else None
        )
        early = [best for looked, best in self._losses if looked <= LATE_SHARE * step]
        unit = abs(early[-1]) if self._unit is None else self._unit * float(self._some.weight.sum())
        gained = step < FEWEST_STEPS or early[-1] - self._best >= LEAST_GAIN * unit
        return given_up or not gained or step - self._best_step > max(PATIENCE_SHARE * step, self._patience)

    def settle(self) -> Float[Tensor, "V J"]:
        """Take the best parameters, and say what is predicted at held-out rows."""
        with torch.no_grad():
            self._values.copy_(self._best_values if len(self._some.x) else self.average)
        if self._some is self._judges:
            return self._predicted
        return self._outputs(self._judges)

    def _at_average(self, rows: Judges) -> Tensor:
        with torch.no_grad():
            now = self._values.clone()
            self._values.copy_(self.average)
            try:
                return self._outputs(rows)
            finally:
                self._values.copy_(now)

    @torch.no_grad()
    def _outputs(self, rows: Judges) -> Tensor:
        """The average of the members that have not seen each row."""
        network = self._network
        outputs = torch.empty(len(rows.x), network.linear.shape[2], dtype=network.dtype, device=rows.x.device)
        for k in rows.group.unique().tolist():
            members = slice(k, None, self._num_groups)
            for some in (rows.group == k).nonzero()[:, 0].split(CHUNK_SIZE):
                outputs[some] = network.members(rows.x[some].to(network.dtype), members).mean(0)
        return outputs
