"""Likelihoods, with their options."""

from __future__ import annotations

from numbers import Real
from typing import Literal

from sklearn.base import BaseEstimator

from gwi.parts.checks import require_choice, require_positive

NoiseKind = Literal["auto", "constant", "input-dependent"]
TailsKind = Literal["auto", "normal"]
ShapeKind = Literal["auto", "normal", "weibull", "logistic"]
DivergenceKind = Literal["beta", "gamma"]


class _WithTails(BaseEstimator):
    """Gaussian noise of the target or of its logarithm, with tails."""

    def __init__(self, noise: NoiseKind = "auto", *, tails: TailsKind = "auto", conformal: bool = False):
        self.noise = noise
        self.tails = tails
        self.conformal = conformal

    def check(self) -> None:
        """Refuse options that mean nothing."""
        require_choice("noise", self.noise, NoiseKind)
        require_choice("tails", self.tails, TailsKind)


class Gaussian(_WithTails):
    """Gaussian noise around f, with Student's tails where held-out rows ask for them.

    Args:
        noise: ``"constant"``, ``"input-dependent"``, or ``"auto"``, by cross-validated likelihood on held-out rows.
        tails: ``"normal"``, or ``"auto"`` for Student's t where held-out rows ask for it.
        conformal: take intervals from the quantiles of held-out residuals rather than from the law.

    Examples:
        >>> import numpy as np
        >>> from gwi import GWIRegressor, Gaussian
        >>> X = np.linspace(0, 3, 20)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=20)
        >>> model = GWIRegressor("linear", likelihood=Gaussian("constant", conformal=True), cv=2, random_state=0).fit(X, y)
        >>> model.predict_interval(X, coverage=0.9).shape
        (20, 2)
    """


class StudentT(BaseEstimator):
    """Numbers with far values: Student's t noise around f.

    Args:
        noise: ``"constant"``, ``"input-dependent"``, or ``"auto"``, by cross-validated likelihood on held-out rows.
        degrees_of_freedom: more than two, or ``"auto"`` for those that held-out rows like best.
        conformal: take intervals from the quantiles of held-out residuals rather than from the law.

    Examples:
        >>> import numpy as np
        >>> from gwi import GWIRegressor, StudentT
        >>> X = np.linspace(0, 3, 20)[:, None]
        >>> y = 2 * X[:, 0] + np.random.default_rng(0).standard_t(3, 20)
        >>> model = GWIRegressor("linear", likelihood=StudentT("constant", degrees_of_freedom=4), cv=2, random_state=0).fit(X, y)
        >>> bool(abs(model.predict([[1.0]])[0] - 2.0) < 1)
        True
    """

    def __init__(
        self, noise: NoiseKind = "auto", *, degrees_of_freedom: float | Literal["auto"] = "auto", conformal: bool = False
    ):
        self.noise = noise
        self.degrees_of_freedom = degrees_of_freedom
        self.conformal = conformal

    def check(self) -> None:
        """Refuse options that mean nothing."""
        require_choice("noise", self.noise, NoiseKind)
        require_positive("degrees_of_freedom", self.degrees_of_freedom, ("auto",))
        if self.degrees_of_freedom != "auto" and not float(self.degrees_of_freedom) > 2:
            raise ValueError(f"degrees_of_freedom must be above 2, so that the variance exists; got {self.degrees_of_freedom!r}.")


class LogNormal(_WithTails):
    """Positive numbers whose logarithm has Gaussian noise, with tails where held-out rows ask for them: prices, durations.

    Args:
        noise: ``"constant"``, ``"input-dependent"``, or ``"auto"``, by cross-validated likelihood on held-out rows.
        tails: of the logarithm, ``"normal"``, or ``"auto"`` for heavier ones where held-out rows ask for it.
        conformal: take intervals from the quantiles of held-out residuals rather than from the law.

    Examples:
        >>> import numpy as np
        >>> from gwi import GWIRegressor, LogNormal
        >>> X = np.linspace(0, 3, 20)[:, None]
        >>> y = np.exp(X[:, 0] + 0.1 * np.random.default_rng(0).normal(size=20))
        >>> model = GWIRegressor("linear", likelihood=LogNormal("constant"), cv=2, random_state=0).fit(X, y)
        >>> bool((model.predict_interval(X) > 0).all())
        True
    """


class _WithNoise(BaseEstimator):
    """Likelihoods with a dispersion that may depend on the row."""

    def __init__(self, noise: NoiseKind = "auto", *, conformal: bool = False):
        self.noise = noise
        self.conformal = conformal

    def check(self) -> None:
        """Refuse options that mean nothing."""
        require_choice("noise", self.noise, NoiseKind)


class Gamma(_WithNoise):
    """Positive numbers whose standard deviation is a share of their mean, with a logarithmic link.

    Args:
        noise: that share is ``"constant"``, ``"input-dependent"``, or ``"auto"``, by held-out rows.
        conformal: take intervals from how far out held-out rows were in their distributions.

    Examples:
        >>> import numpy as np
        >>> from gwi import GWIRegressor, Gamma
        >>> X = np.linspace(0, 3, 20)[:, None]
        >>> y = np.random.default_rng(0).gamma(2, 1 + X[:, 0])
        >>> model = GWIRegressor("linear", likelihood=Gamma("constant"), cv=2, random_state=0).fit(X, y)
        >>> bool((model.predict_interval(X) > 0).all())
        True
    """


class Poisson(BaseEstimator):
    """Counts whose variance is their mean, with a logarithmic link.

    Args:
        conformal: take intervals from how far out held-out rows were in their distributions.

    Examples:
        >>> import numpy as np
        >>> from gwi import GWIRegressor, Poisson
        >>> X = np.linspace(0, 3, 20)[:, None]
        >>> y = np.random.default_rng(0).poisson(1 + X[:, 0])
        >>> model = GWIRegressor("linear", likelihood=Poisson(), cv=2, random_state=0).fit(X, y)
        >>> bool(model.predict([[3.0]])[0] > model.predict([[0.0]])[0])
        True
    """

    def __init__(self, *, conformal: bool = False):
        self.conformal = conformal

    def check(self) -> None:
        """Nothing can be wrong."""


class NegativeBinomial(_WithNoise):
    """Counts that vary more than Poisson's, with a logarithmic link.

    Args:
        noise: what they vary more is ``"constant"``, ``"input-dependent"``, or ``"auto"``, by held-out rows.
        conformal: take intervals from how far out held-out rows were in their distributions.

    Examples:
        >>> import numpy as np
        >>> from gwi import GWIRegressor, NegativeBinomial
        >>> X = np.linspace(0, 3, 20)[:, None]
        >>> y = np.random.default_rng(0).negative_binomial(2, 0.3, 20)
        >>> model = GWIRegressor("linear", likelihood=NegativeBinomial("constant"), cv=2, random_state=0).fit(X, y)
        >>> bool((model.predict_interval(X) >= 0).all())
        True
    """


class Beta(_WithNoise):
    """Numbers between two bounds, such as shares, with a logistic link.

    Args:
        low: the lower bound.
        high: the upper bound.
        noise: the dispersion is ``"constant"``, ``"input-dependent"``, or ``"auto"``, by held-out rows.
        conformal: take intervals from how far out held-out rows were in their distributions.

    Examples:
        >>> import numpy as np
        >>> from gwi import GWIRegressor, Beta
        >>> X = np.linspace(0, 3, 20)[:, None]
        >>> y = np.random.default_rng(0).beta(2, 5, 20) * 100
        >>> model = GWIRegressor("linear", likelihood=Beta(0, 100, noise="constant"), cv=2, random_state=0).fit(X, y)
        >>> interval = model.predict_interval(X)
        >>> bool((interval > 0).all()), bool((interval < 100).all())
        (True, True)
    """

    def __init__(self, low: float = 0.0, high: float = 1.0, *, noise: NoiseKind = "auto", conformal: bool = False):
        self.low = low
        self.high = high
        self.noise = noise
        self.conformal = conformal

    def check(self) -> None:
        """Refuse bounds that are none."""
        super().check()
        if not (
            isinstance(self.low, Real) and isinstance(self.high, Real) and -1e300 < float(self.low) < float(self.high) < 1e300
        ):
            raise ValueError(f"low and high must be two numbers, the first below the second; got {self.low!r} and {self.high!r}.")


class Ordinal(_WithNoise):
    """Levels in order, such as grades: thresholds on f with Gaussian noise. Only the order of the levels means anything.

    Args:
        noise: ``"constant"``, ``"input-dependent"``, or ``"auto"``, by held-out rows.
        conformal: take intervals from how far out held-out rows were in their distributions.

    Examples:
        >>> import numpy as np
        >>> from gwi import GWIRegressor, Ordinal
        >>> X = np.linspace(0, 3, 20)[:, None]
        >>> y = np.repeat([1, 2, 3, 4], 5)
        >>> model = GWIRegressor("linear", likelihood=Ordinal("constant"), cv=2, random_state=0).fit(X, y)
        >>> model.predict([[0.0], [3.0]]).round().tolist()
        [1.0, 4.0]
    """


class FewValues(_WithNoise):
    """Numbers that take some few values only, such as stars or points: a probability for each value that was seen.

    Args:
        noise: ``"constant"``, ``"input-dependent"``, or ``"auto"``, by held-out rows.
        conformal: take intervals from how far out held-out rows were in their distributions.

    Examples:
        >>> import numpy as np
        >>> from gwi import GWIRegressor, FewValues
        >>> X = np.linspace(0, 3, 20)[:, None]
        >>> y = np.repeat([1, 2, 4, 5], 5)
        >>> model = GWIRegressor("linear", likelihood=FewValues("constant"), cv=2, random_state=0).fit(X, y)
        >>> np.unique(model.predict_interval(X)).tolist()
        [1.0, 2.0, 4.0, 5.0]
    """


class Censored(_WithNoise):
    """Numbers of which only bounds may be known, such as times to an event that has not come yet.

    Targets are pairs of bounds, (N, 2), equal where a number is known, infinite where there is no bound; or a structured array of
    events and times, as scikit-survival has them.

    Args:
        log: whether the logarithm has the noise, as of times; ``"auto"`` where all bounds are positive.
        shape: of the noise: ``"normal"``, ``"weibull"``, ``"logistic"``, or ``"auto"``, by held-out rows.
        noise: ``"constant"``, ``"input-dependent"``, or ``"auto"``, by held-out rows.

    Examples:
        >>> import numpy as np
        >>> from gwi import GWIRegressor, Censored
        >>> X = np.linspace(0, 3, 20)[:, None]
        >>> time = np.exp(X[:, 0] + 0.1 * np.random.default_rng(0).normal(size=20))
        >>> y = np.column_stack([time, np.where(time < 9, time, np.inf)])  # no event until 9
        >>> model = GWIRegressor("linear", likelihood=Censored(shape="normal", noise="constant"), cv=2, random_state=0).fit(X, y)
        >>> bool(model.predict([[3.0]])[0] > model.predict([[0.0]])[0])
        True
    """

    conformal = False

    def __init__(self, log: bool | Literal["auto"] = "auto", *, shape: ShapeKind = "auto", noise: NoiseKind = "auto"):
        self.log = log
        self.shape = shape
        self.noise = noise

    def check(self) -> None:
        """Refuse options that mean nothing."""
        super().check()
        require_choice("shape", self.shape, ShapeKind)
        if not (isinstance(self.log, bool) or self.log == "auto"):
            raise ValueError(f'log must be "auto", True or False; got {self.log!r}.')


class Robust(_WithNoise):
    """Numbers some of which are wrong: Gaussian noise, learned by a bounded loss in the place of the likelihood.

    Args:
        divergence: between the data and the noise: ``"beta"`` (Basu et al., 1998) or ``"gamma"`` (Fujisawa and Eguchi, 2008).
        power: how little far values count; towards zero they count as in the likelihood.
        noise: ``"constant"``, ``"input-dependent"``, or ``"auto"``, by held-out rows.
        conformal: take intervals from how far out held-out rows were, the wrong ones among them.

    Examples:
        >>> import numpy as np
        >>> from gwi import GWIRegressor, Robust
        >>> X = np.linspace(0, 3, 20)[:, None]
        >>> y = 2 * X[:, 0] + 0.1 * np.random.default_rng(0).normal(size=20)
        >>> y[10] = 1000  # a wrong number
        >>> model = GWIRegressor("linear", likelihood=Robust(power=0.5), cv=2, random_state=0).fit(X, y)
        >>> bool(abs(model.predict([[1.0]])[0] - 2) < 0.5)
        True
    """

    def __init__(
        self, divergence: DivergenceKind = "beta", *, power: float = 0.3, noise: NoiseKind = "constant", conformal: bool = False
    ):
        self.divergence = divergence
        self.power = power
        self.noise = noise
        self.conformal = conformal

    def check(self) -> None:
        """Refuse options that mean nothing."""
        super().check()
        require_choice("divergence", self.divergence, DivergenceKind)
        require_positive("power", self.power, ())


class Softmax(BaseEstimator):
    """Class probabilities by the softmax of the logits, integrated without sampling."""

    epsilon = None

    def check(self) -> None:
        """Nothing can be wrong."""


class RobustMax(BaseEstimator):
    """The paper's likelihood of classes: the largest logit wins, and a share of the labels is wrong.

    Args:
        epsilon: that share.

    Examples:
        >>> import numpy as np
        >>> from gwi import GWIClassifier, RobustMax
        >>> X = np.linspace(-1, 1, 20)[:, None]
        >>> model = GWIClassifier("svgp", likelihood=RobustMax(0.05), random_state=0).fit(X, X[:, 0] > 0)
        >>> model.predict([[-1.0], [1.0]]).tolist()
        [False, True]
    """

    def __init__(self, epsilon: float = 0.01):
        self.epsilon = epsilon

    def check(self) -> None:
        """Refuse what is no share."""
        if not isinstance(self.epsilon, Real) or not 0 < float(self.epsilon) < 1:
            raise ValueError(f"epsilon must be strictly between 0 and 1; got {self.epsilon!r}.")


# Of numbers, by their names.
LIKELIHOODS: dict[str, type[BaseEstimator]] = {
    "gaussian": Gaussian,
    "student-t": StudentT,
    "log-normal": LogNormal,
    "gamma": Gamma,
    "poisson": Poisson,
    "negative-binomial": NegativeBinomial,
    "beta": Beta,
    "ordinal": Ordinal,
    "few-valued": FewValues,
    "censored": Censored,
    "robust": Robust,
}
