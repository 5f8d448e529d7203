"""Means that cost time race against those that are there already: who cannot catch up any more stops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# A mean is hopeless when its held-out loss, going on to fall as it has, would end at more than so many times that of the others:
# of two means of which one errs twice as much, least squares gives the worse one less than a fiftieth where a quarter of the
# errors are shared, and nothing where half of them are.
LOST_AT = 4.0
# Who has done less than this share of all steps is not judged.
FAIR_START = 0.05


@dataclass(frozen=True)
class Race:
    """What there is to beat.

    Attributes:
        bar: the mean held-out loss of the stack so far; None where nobody races.
    """

    bar: float | None = None

    def is_lost(self, looks: Sequence[tuple[int, float]], most: int) -> bool:
        """Whether a mean is left behind for good.

        A loss that falls like a power of the steps goes on as it fell over the last half of them.

        Args:
            looks: steps done and the least loss so far, in ascending order of steps.
            most: steps that there may be.
        """
        if self.bar is None or not looks or looks[-1][0] < FAIR_START * most:
            return False
        done, now = looks[-1]
        early = [(steps, loss) for steps, loss in looks if 0 < steps <= done / 2 and math.isfinite(loss)]
        if not early or not 0 < now < math.inf or self.bar <= 0:
            return False
        steps, loss = early[-1]
        power = max(0.0, math.log(loss / now) / math.log(done / steps))
        return now * (done / most) ** power > LOST_AT * self.bar


NO_RACE = Race()
