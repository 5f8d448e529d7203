"""The predictive distribution of each row as one object: densities, probabilities, quantiles, draws and scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gwi._typing import Array
from gwi.core.laws.discrete import DiscreteLaw
from gwi.core.laws.gaussian import Law
from gwi.core.laws.others import as_scipy, as_torch, described
from gwi.core.laws.protocol import PredictiveLaw, survival_of
from gwi.core.laws.protocol import pit as places
from gwi.tables.frames import frame_of


@dataclass(frozen=True, eq=False)
class Predictive:
    """What is predicted of y at N rows, of one target or of J.

    Values have the shape of a prediction, (N,) or (N, J). Rows are looked at one by one: draws of several rows together, with
    their correlations, are `GWIRegressor.sample_y`.

    Attributes:
        laws: of each target.
        epistemic: the variance that more data would lower.
        aleatoric: the variance that they would not.
        one: whether there is one target, without an axis for it.

    Examples:
        >>> import numpy as np
        >>> from gwi.core.laws.gaussian import Law
        >>> from gwi.evaluation.predictive import Predictive
        >>> law = Law(np.array([[1.0, 2.0]]), np.array([[0.5, 1.0]]))
        >>> found = Predictive((law,), np.array([0.0, 0.5]), np.array([0.25, 0.5]), True)
        >>> found.interval(0.95).round(2).tolist()
        [[0.02, 1.98], [0.04, 3.96]]
        >>> found[1].cdf(2.0).tolist()
        [0.5]
    """

    laws: tuple[PredictiveLaw, ...]
    epistemic: Array
    aleatoric: Array
    one: bool

    def __len__(self) -> int:
        return self.laws[0].num_rows

    def __getitem__(self, rows: Any) -> Predictive:
        """Some rows, by numbers, a slice or a bool for each; of one number a distribution of one row."""
        chosen = np.arange(len(self))[rows]
        chosen = np.atleast_1d(chosen)
        laws = tuple(law.rows(chosen) for law in self.laws)
        return Predictive(laws, self.epistemic[chosen], self.aleatoric[chosen], self.one)

    @property
    def mean(self) -> Array:
        """The expectation of y."""
        return self._shaped([law.expectation() for law in self.laws])

    @property
    def std(self) -> Array:
        """Its standard deviation."""
        return self._shaped([_std(law) for law in self.laws])

    @property
    def median(self) -> Array:
        """The value with one half of the probability at or below it."""
        return self.ppf(0.5)

    @property
    def var(self) -> Array:
        """Its variance."""
        return np.square(self.std)

    def logpdf(self, y: Any) -> Array:
        """The log density at y, one value for each row or one for all; of counts and other single values their probability's."""
        return self._shaped([law.log_density(part) for law, part in self._with(y)])

    def pdf(self, y: Any) -> Array:
        """The density at y."""
        return np.exp(self.logpdf(y))

    def cdf(self, y: Any) -> Array:
        """The probability of a value of at most y."""
        return self._shaped([law.cumulative(part) for law, part in self._with(y)])

    def survival(self, times: Any) -> Array:
        """The probability of a larger value than each of some numbers, such as of no event up to a time; they are the last axis.

        Args:
            times: one number, or some.
        """
        at = np.asarray(times, dtype=np.float64)
        found = [self._shaped([survival_of(law, np.full(len(self), one)) for law in self.laws]) for one in np.atleast_1d(at)]
        return found[0] if at.ndim == 0 else np.stack(found, axis=-1)

    def ppf(self, level: float | Sequence[float]) -> Array:
        """The quantile of one level; of several levels the last axis runs over them."""
        levels = np.asarray(level, dtype=np.float64)
        if levels.ndim > 1 or not ((levels > 0) & (levels < 1)).all():
            raise ValueError(f"Levels must be strictly between 0 and 1; got {level}.")
        found = [self._shaped([law.quantile(float(one)) for law in self.laws]) for one in np.atleast_1d(levels)]
        return found[0] if levels.ndim == 0 else np.stack(found, axis=-1)

    def interval(self, coverage: float = 0.95) -> Array:
        """The central interval with this probability; the last axis is (lower, upper)."""
        if not 0 < coverage < 1:
            raise ValueError(f"coverage must be strictly between 0 and 1; got {coverage}.")
        return self.ppf([0.5 - coverage / 2, 0.5 + coverage / 2])

    def sample(self, size: int = 1, random_state: Any = None) -> Array:
        """Draws of each row by itself; the last axis runs over them."""
        rng = np.random.default_rng(random_state)
        return self._shaped([np.moveaxis(law.sample(size, rng), 0, -1) for law in self.laws])

    def pit(self, y: Any) -> Array:
        """Where y lies in its distribution, from 0 to 1; of counts and other single values by lot inside the jump at y."""
        return self._shaped([places(law, part) for law, part in self._with(y)])

    def crps(self, y: Any) -> Array:
        """The continuous ranked probability score of each row, lower is better."""
        return self._shaped([law.crps(part) for law, part in self._with(y)])

    def nll(self, y: Any) -> Array:
        """The negative log density at y, of each row."""
        return -self.logpdf(y)

    def to_dict(self, coverage: float = 0.95) -> dict[str, Array]:
        """Columns for a data frame: mean, std, the ends of an interval and both variances, of each target."""
        ends = self.interval(coverage)
        columns = {"mean": self.mean, "std": self.std, "lower": ends[..., 0], "upper": ends[..., 1]}
        columns |= {"epistemic": self.epistemic, "aleatoric": self.aleatoric}
        if self.one:
            return columns
        return {f"{name}_{j}": values[:, j] for name, values in columns.items() for j in range(len(self.laws))}

    def to_frame(self, coverage: float = 0.95, library: Literal["pandas", "polars", "arrow"] = "pandas") -> Any:
        """The columns of `to_dict` as a data frame of a library, which is imported here.

        Args:
            coverage: of the interval.
            library: whose frame.
        """
        return frame_of(self.to_dict(coverage), library)

    @property
    def values(self) -> Array | None:
        """The values that y can take, where these are few; None elsewhere."""
        law = self.laws[0]
        return law.values if isinstance(law, DiscreteLaw) else None

    @property
    def probabilities(self) -> Array:
        """The probability of each of `values`, (N, K).

        Raises:
            ValueError: where y can take any number.
        """
        law = self.laws[0]
        if not isinstance(law, DiscreteLaw):
            raise ValueError('Only likelihood="few-valued" and "ordinal" have probabilities of values; use pdf or cdf.')
        return law.probabilities.T

    def to_scipy(self) -> Any:
        """A frozen distribution of scipy.stats: norm, t or lognorm.

        Raises:
            ValueError: for a distribution that SciPy has not; its functions are those of this object.
        """
        return as_scipy(self.laws, self.one)

    def to_torch(self) -> Any:
        """A distribution of torch.distributions, in float64: Normal, StudentT, LogNormal or Categorical; one for each target.

        Raises:
            ValueError: for a distribution that torch has not.
        """
        found = [as_torch(law) for law in self.laws]
        return found[0] if self.one else tuple(found)

    def __repr__(self) -> str:
        several = "" if self.one else f", {len(self.laws)} targets"
        return f"Predictive({len(self)} rows{several}, {' and '.join(sorted({described(law) for law in self.laws}))})"

    def _with(self, y: Any) -> list[tuple[PredictiveLaw, Array]]:
        """Each target's law beside its values."""
        shape = (len(self),) if self.one else (len(self), len(self.laws))
        values = np.asarray(y, dtype=np.float64)
        if values.ndim and values.shape != shape:
            raise ValueError(f"y must be one number, or has the shape {shape} of the prediction; got {values.shape}.")
        values = np.broadcast_to(values, shape).reshape(len(self), -1)
        return list(zip(self.laws, values.T, strict=True))

    def _shaped(self, parts: list[Array]) -> Array:
        """From one array a target to what the user expects: a column each, or one axis."""
        return parts[0] if self.one else np.stack(parts, axis=1)


def _std(law: PredictiveLaw) -> Array:
    """Of one normal or t law as it is, to the last digit."""
    return law.std[0] if isinstance(law, Law) and len(law.std) == 1 else np.sqrt(law.variance())
