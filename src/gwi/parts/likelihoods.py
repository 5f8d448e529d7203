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
    """


class StudentT(BaseEstimator):
    """Numbers with far values: Student's t noise around f.

    Args:
        noise: ``"constant"``, ``"input-dependent"``, or ``"auto"``, by cross-validated likelihood on held-out rows.
        degrees_of_freedom: more than two, or ``"auto"`` for those that held-out rows like best.
        conformal: take intervals from the quantiles of held-out residuals rather than from the law.
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
            raise ValueError(f"degrees_of_freedom are more than 2, so that there is a variance; got {self.degrees_of_freedom!r}.")


class LogNormal(_WithTails):
    """Positive numbers whose logarithm has Gaussian noise, with tails where held-out rows ask for them: prices, durations.

    Args:
        noise: ``"constant"``, ``"input-dependent"``, or ``"auto"``, by cross-validated likelihood on held-out rows.
        tails: of the logarithm, ``"normal"``, or ``"auto"`` for heavier ones where held-out rows ask for it.
        conformal: take intervals from the quantiles of held-out residuals rather than from the law.
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
    """


class Poisson(BaseEstimator):
    """Counts whose variance is their mean, with a logarithmic link.

    Args:
        conformal: take intervals from how far out held-out rows were in their distributions.
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
    """


class Beta(_WithNoise):
    """Numbers between two bounds, such as shares, with a logistic link.

    Args:
        low: the lower bound.
        high: the upper bound.
        noise: the dispersion is ``"constant"``, ``"input-dependent"``, or ``"auto"``, by held-out rows.
        conformal: take intervals from how far out held-out rows were in their distributions.
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
            raise ValueError(f"low and high are two numbers, the first below the second; got {self.low!r} and {self.high!r}.")


class Ordinal(_WithNoise):
    """Levels in order, such as grades: thresholds on f with Gaussian noise. Only the order of the levels means anything.

    Args:
        noise: ``"constant"``, ``"input-dependent"``, or ``"auto"``, by held-out rows.
        conformal: take intervals from how far out held-out rows were in their distributions.
    """


class FewValues(_WithNoise):
    """Numbers that take some few values only, such as stars or points: a probability for each value that was seen.

    Args:
        noise: ``"constant"``, ``"input-dependent"``, or ``"auto"``, by held-out rows.
        conformal: take intervals from how far out held-out rows were in their distributions.
    """


class Censored(_WithNoise):
    """Numbers of which only bounds may be known, such as times to an event that has not come yet.

    Targets are pairs of bounds, (N, 2), equal where a number is known, infinite where there is no bound; or a structured array of
    events and times, as scikit-survival has them.

    Args:
        log: whether the logarithm has the noise, as of times; ``"auto"`` where all bounds are positive.
        shape: of the noise: ``"normal"``, ``"weibull"``, ``"logistic"``, or ``"auto"``, by held-out rows.
        noise: ``"constant"``, ``"input-dependent"``, or ``"auto"``, by held-out rows.
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
            raise ValueError(f'log is "auto", True or False; got {self.log!r}.')


class Robust(_WithNoise):
    """Numbers some of which are wrong: Gaussian noise, learned by a bounded loss in the place of the likelihood.

    Args:
        divergence: between the data and the noise: ``"beta"`` (Basu et al., 1998) or ``"gamma"`` (Fujisawa and Eguchi, 2008).
        power: how little far values count; towards zero they count as in the likelihood.
        noise: ``"constant"``, ``"input-dependent"``, or ``"auto"``, by held-out rows.
        conformal: take intervals from how far out held-out rows were, the wrong ones among them.
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
    """

    def __init__(self, epsilon: float = 0.01):
        self.epsilon = epsilon

    def check(self) -> None:
        """Refuse what is no share."""
        if not isinstance(self.epsilon, Real) or not 0 < float(self.epsilon) < 1:
            raise ValueError(f"epsilon lies strictly between 0 and 1; got {self.epsilon!r}.")


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
