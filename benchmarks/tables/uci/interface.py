"""What a method of the table is: it gets training rows, a seed and a budget, and gives laws at new rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gwi import GWIRegressor
from gwi._typing import Array
from gwi.core.laws.protocol import PredictiveLaw
from gwi.evaluation.regression import Law
from gwi.models.regression import RegressionModel

# Indices of rows.
Rows = NDArray[np.signedinteger[Any]]


@dataclass
class Budget:
    """Processor seconds that a fit may take, tuning included.

    Attributes:
        seconds: allowed.
        share_of_steps: of every bound on a number of steps or rounds; below one only to try the machinery out.
        known: settings that a fit on all rows has chosen; a fit without a fold takes them instead of a search of its own.
    """

    seconds: float
    share_of_steps: float = 1.0
    known: Mapping[str, Any] = field(default_factory=dict)
    started: float = field(default_factory=time.process_time)

    def spent(self) -> float:
        """Processor seconds since the start."""
        return time.process_time() - self.started

    def left(self) -> float:
        """Processor seconds to go."""
        return self.seconds - self.spent()

    def steps(self, count: int) -> int:
        """A bound on steps or rounds."""
        return max(1, round(count * self.share_of_steps))


@dataclass(frozen=True)
class Fitted:
    """A fitted method.

    Attributes:
        predict: from rows to their laws.
        settings: what was chosen, for the record.
        cpu_seconds: of the fit.
        seconds: of the fit, by the clock on the wall.
    """

    predict: Callable[[Array], PredictiveLaw]
    settings: Mapping[str, Any]
    cpu_seconds: float
    seconds: float

    def mixture(self, x: Array) -> Law:
        """The prediction of a method that gives normal or t laws, mixed."""
        law = self.predict(x)
        assert isinstance(law, Law)
        return law


# From training rows, targets, a seed and a budget to fitted methods by name: several where they share their most costly part.
Method = Callable[[Array, Array, int, Budget], dict[str, Fitted]]


@dataclass(frozen=True)
class Standardised:
    """Rows and targets with mean zero and unit variance, and the way back for laws.

    Attributes:
        x: rows; constant columns are zero.
        y: targets.
    """

    x: Array
    y: Array
    x_centre: Array
    x_scale: Array
    y_centre: float
    y_scale: float

    def rows(self, x: Array) -> Array:
        """New rows in the same units."""
        return (x - self.x_centre) / self.x_scale

    def law(self, mean: Array, std: Array) -> Law:
        """A mixture of normal laws in the target's own units."""
        mean, std = np.atleast_2d(np.asarray(mean, float)), np.atleast_2d(np.asarray(std, float))
        return Law(mean * self.y_scale + self.y_centre, np.broadcast_to(std, mean.shape) * self.y_scale)


def standardised(x: Array, y: Array) -> Standardised:
    """By the moments of the training rows."""
    scale = x.std(0)
    # A constant column's standard deviation may come out as rounding error instead of zero.
    scale = np.where(scale > 1e-12 * np.abs(x).max(0), scale, 1.0)
    centre, y_centre, y_scale = x.mean(0), float(y.mean()), float(y.std())
    return Standardised((x - centre) / scale, (y - y_centre) / y_scale, centre, scale, y_centre, y_scale)


def hold_out(num_rows: int, share: float, seed: int) -> tuple[Rows, Rows]:
    """Rows to learn from and rows to choose by, both inside the training rows."""
    order = np.random.default_rng(seed).permutation(num_rows)
    count = max(1, round(share * num_rows))
    return order[count:], order[:count]


def gaussian(model: GWIRegressor) -> RegressionModel:
    """What predicts after a fit with the Gaussian likelihood."""
    assert isinstance(model.model_, RegressionModel)
    return model.model_
