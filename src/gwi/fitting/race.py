"""Means that cost time race against those that are there already: who cannot add anything any more stops."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gwi.core.early_stopping import GivesUp

# A held-out loss goes on to fall as it has fallen. Who would end at more than so many times the loss of the others is lost:
# least squares gives a mean that errs twice as much nothing where half of the errors are shared.
LOST_AT = 4.0
# Who would end at more than so many times their loss, or has a share in the stack, goes on only while the stack gains by it: this
# share of its loss with each doubling of the steps. Leaders go on.
BEHIND_AT, LEAST_GAIN = 1.15, 0.01
# Who has done less than this share of all steps is not judged.
FAIR_START = 0.1
# Shares of a newcomer that are tried.
SHARES = (0.03, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0)


@dataclass(frozen=True)
class Race:
    """What there is to beat.

    Attributes:
        loss: of outputs and targets at each row.
        y: targets of the held-out rows.
        weight: of each.
        others: what the stack so far predicts there.
    """

    loss: Callable[[Tensor, Tensor], Tensor]
    y: Float[Tensor, "C V"]
    weight: Float[Tensor, " V"]
    others: Float[Tensor, "J V"]

    def mean_loss(self, outputs: Float[Tensor, "J V"]) -> float:
        """Over the held-out rows."""
        return float((self.loss(outputs.mT, self.y.mT) * self.weight).sum() / self.weight.sum())

    def at(self, rows: Bool[Tensor, " V"]) -> Race:
        """The race at some of the rows."""
        return Race(self.loss, self.y[:, rows], self.weight[rows], self.others[:, rows])

    def gain(self, outputs: Float[Tensor, "J V"]) -> float:
        """The share of the others' loss that a mix with them saves."""
        own, bar = outputs.to(self.others), self.mean_loss(self.others)
        with torch.no_grad():
            mixed = min(self.mean_loss((1 - share) * self.others + share * own) for share in SHARES)
        return max(0.0, 1 - mixed / bar) if bar > 0 else 0.0

    def is_worth_it(self, outputs: Float[Tensor, "J V"]) -> bool:
        """Whether the others gain by a newcomer that is done; of a loss below zero nobody knows."""
        return self.mean_loss(self.others) <= 0 or self.gain(outputs) >= LEAST_GAIN

    def runner(self, most: int) -> GivesUp:
        """For one mean, which may do so many steps."""
        return _Runner(self, most, self.mean_loss(self.others))


@dataclass
class _Runner:
    """One mean on its way.

    Attributes:
        race: what there is to beat.
        most: steps that there may be.
        bar: the loss of the others.
        looks: steps, loss, and the share of the others' loss that a mix with them gains, so far.
    """

    race: Race
    most: int
    bar: float
    looks: list[tuple[int, float, float]] = field(default_factory=list)

    def __call__(self, steps: int, loss: float, outputs: Tensor | None) -> bool:
        """Whether to stop, after so many steps with this loss and these outputs at the held-out rows."""
        if not (0 < loss < math.inf and self.bar > 0) or steps == 0:
            return False
        self.looks.append((steps, loss, self._gain(outputs)))
        early = [look for look in self.looks if look[0] <= steps / 2]
        if steps < FAIR_START * self.most or not early:
            return False
        before, worse, gained = early[-1]
        power = max(0.0, math.log(worse / loss) / math.log(steps / before))
        end = loss * (steps / self.most) ** power
        stagnates = self.looks[-1][2] - gained < LEAST_GAIN * math.log2(steps / before)
        behind = end > BEHIND_AT * self.bar or (loss > self.bar and self.looks[-1][2] > LEAST_GAIN)
        return end > LOST_AT * self.bar or (behind and stagnates)

    def _gain(self, outputs: Tensor | None) -> float:
        if outputs is None or outputs.shape[0] != self.race.others.shape[1]:
            return math.nan
        return self.race.gain(outputs.mT)
