"""What scores are computed from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from numpy.typing import NDArray

from gwi._typing import Array

# What is predicted, as scores, checks, pictures and reports take it.
TargetKind = Literal["numbers", "counts", "levels", "times", "classes"]


@dataclass(frozen=True)
class Judged:
    """Predictions and targets of some rows.

    Attributes:
        first: the mean, of times the median; or a probability for each class or level.
        std: the standard deviation; None for classes, levels and times.
        y: the target, of times its bounds; or the place of the label among the classes or levels.
        law: of the target; None for classes, and where there are no rows.
    """

    first: Array
    std: Array | None
    y: NDArray[Any]
    law: Any = None
