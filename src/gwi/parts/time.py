"""The time that a fit may take."""

from __future__ import annotations

from numbers import Real
from typing import Any

from sklearn.base import BaseEstimator

from gwi.parts.checks import require_seconds


class MaxTime(BaseEstimator):
    """Processor seconds to aim for, and how fast the machine is.

    The plan is made before the fit starts, from the size of the table, the seconds and the speed; no clock is looked at on the
    way. With the speed of `summary_.machine_speed` the same fit can be had again on another machine.

    Args:
        seconds: to aim for.
        speed: of the machine, where 1 is that of our measurements; measured in a tenth of a second when ``"auto"``.

    Examples:
        >>> import numpy as np
        >>> from gwi import GWIRegressor, MaxTime
        >>> X = np.linspace(0, 3, 20)[:, None]
        >>> model = GWIRegressor(max_time=MaxTime(1, speed=1.0), random_state=0)
        >>> model.max_time.seconds
        1
    """

    def __init__(self, seconds: int | float = 60.0, speed: int | float | str = "auto"):
        self.seconds = seconds
        self.speed = speed

    def check(self) -> None:
        """Refuse options that mean nothing."""
        require_seconds("max_time", self.seconds)
        known = isinstance(self.speed, Real) and not isinstance(self.speed, bool) and 0 < float(self.speed) < 1e6
        if not known and self.speed != "auto":
            raise ValueError(
                f'speed must be "auto" or a positive number, 1 for the machine of our benchmarks; got {self.speed!r}.'
            )


def time_part(value: Any) -> MaxTime | None:
    """The part that a number of seconds names; None for no bound.

    Raises:
        ValueError: when it is neither.
    """
    if isinstance(value, MaxTime):
        value.check()
        return value
    require_seconds("max_time", value)
    return None if value is None else MaxTime(float(value))
