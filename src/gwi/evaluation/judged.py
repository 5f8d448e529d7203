"""What scores are computed from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from gwi._typing import Array


@dataclass(frozen=True)
class Judged:
    """Predictions and targets of some rows.

    Attributes:
        first: the mean, or a probability for each class.
        std: the standard deviation; None for classes.
        y: the target, or the place of the label among the classes.
        law: of the target; None for classes, and where there are no rows.
    """

    first: Array
    std: Array | None
    y: NDArray[Any]
    law: Any = None
