"""The parts of an estimator, each with its own options: what a string names in its default form, an object sets in detail.

They have scikit-learn's `get_params` and `set_params`, so `clone` copies them and a grid search reaches inside
(``covariance__weight``). They hold what was asked for and check nothing until `fit`.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, Literal, get_args

from sklearn.base import BaseEstimator
from torch import nn

CovarianceKind = Literal["auto", "wasserstein", "titsias", "trained", "zero"]
KernelFit = Literal["targets", "residuals"]
NoiseKind = Literal["auto", "constant", "input-dependent"]
TailsKind = Literal["auto", "normal"]
PointsChoice = Literal["auto", "kmeans", "random", "greedy"]
ContextChoice = Literal["box", "mixtures"]


# Whole numbers beyond are no floating-point numbers.
MOST = 1e300


class Covariance(BaseEstimator):
    """The covariance of the posterior around any mean.

    Args:
        kind: ``"wasserstein"``, ``"titsias"``, ``"trained"``, ``"zero"`` for S = 0, or ``"auto"``: with `weight` or `context` the
            first; else the second, but for classes with fewer inducing points than rows, which have the first.
        weight: β, of the divergence, for standardised targets; ``"auto"`` is the matched weight, 1.0 the paper's.
        num_inducing: M; ``"auto"`` takes every row when they are few, else 300, or with Titsias' S 1,000 where 300 leave more of
            the function open than noise hides.
        inducing_points: how Z is chosen, ``"kmeans"``, ``"random"`` or ``"greedy"``, or Z itself in the units of the rows;
            ``"auto"`` is k-means, on pixels rows at random.
        kernel_fit: k is fitted to the ``"targets"``, or to the mean's ``"residuals"`` on held-out rows.
        context: rows beyond the data on which W₂ is taken too, so that it knows distance: ``"box"`` for rows anywhere between
            the least and the largest value of each column, ``"mixtures"`` for rows between two of the data; None for the data
            alone. `fit` also takes rows of your own. β is then part of the rule that weighs data and context.
    """

    def __init__(
        self,
        kind: CovarianceKind = "auto",
        *,
        weight: float | Literal["auto"] = "auto",
        num_inducing: int | Literal["auto"] = "auto",
        inducing_points: Any = "auto",
        kernel_fit: KernelFit = "targets",
        context: ContextChoice | None = None,
    ):
        self.kind = kind
        self.weight = weight
        self.num_inducing = num_inducing
        self.inducing_points = inducing_points
        self.kernel_fit = kernel_fit
        self.context = context

    def check(self) -> None:
        """Refuse options that mean nothing."""
        require_choice("covariance", self.kind, CovarianceKind)
        require_choice("kernel_fit", self.kernel_fit, KernelFit)
        require_positive("weight", self.weight, ("auto",))
        require_count("num_inducing", self.num_inducing, ("auto",))
        if self.inducing_points is None or isinstance(self.inducing_points, str):
            require_choice("inducing_points", self.inducing_points, PointsChoice)
        if self.context is not None:
            require_choice("context", self.context, ContextChoice)
            self.check_context()

    def check_context(self) -> None:
        """Refuse what does not go with rows beyond the data."""
        if self.kind not in ("auto", "wasserstein") or self.weight != "auto":
            raise ValueError(
                'Context rows are for covariance="wasserstein" or "auto" with weight="auto", which weighs data and context; got '
                f"{self.kind!r} with weight {self.weight!r}."
            )


class Gaussian(BaseEstimator):
    """Gaussian noise around f, with Student's tails where held-out rows ask for them.

    Args:
        noise: ``"constant"``, ``"input-dependent"``, or ``"auto"``, by cross-validated likelihood on held-out rows.
        tails: ``"normal"``, or ``"auto"`` for Student's t where held-out rows ask for it.
        conformal: take intervals from the quantiles of held-out residuals rather than from the law.
    """

    def __init__(self, noise: NoiseKind = "auto", *, tails: TailsKind = "auto", conformal: bool = False):
        self.noise = noise
        self.tails = tails
        self.conformal = conformal

    def check(self) -> None:
        """Refuse options that mean nothing."""
        require_choice("noise", self.noise, NoiseKind)
        require_choice("tails", self.tails, TailsKind)


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


class Network(BaseEstimator):
    """Our own network as the mean: an ensemble of fully connected ones, each trained without one fold.

    Args:
        hidden: widths of the hidden layers; ``"auto"`` goes by the number of rows.
        max_steps: of gradient descent; held-out rows say when to stop before.
        per_fold: networks for each fold.
    """

    def __init__(
        self,
        hidden: Sequence[int] | Literal["auto"] = "auto",
        *,
        max_steps: int | Literal["auto"] = "auto",
        per_fold: int | Literal["auto"] = "auto",
    ):
        self.hidden = hidden
        self.max_steps = max_steps
        self.per_fold = per_fold

    def check(self) -> None:
        """Refuse options that mean nothing."""
        require_count("max_steps", self.max_steps, ("auto",))
        require_count("per_fold", self.per_fold, ("auto",))
        if isinstance(self.hidden, str) and self.hidden == "auto":
            return
        if not isinstance(self.hidden, list | tuple):
            raise ValueError(f'hidden is "auto" or a list of widths, such as (64, 64); got {self.hidden!r}.')
        for width in self.hidden:
            require_count("each width in hidden", width)


class Frozen(BaseEstimator):
    """A trained torch module as the mean, taken as it is; `fit` needs ``validation``, rows that it has not seen.

    Args:
        module: from rows to one output for each target or class.
        correct: let the validation rows add a kernel mean to a classifier's logits if they ask for it; False: a scale only.
    """

    def __init__(self, module: Any, *, correct: bool = False):
        self.module = module
        self.correct = correct

    def check(self) -> None:
        """Refuse what is no network."""
        require_module("Frozen", self.module)


class Trained(BaseEstimator):
    """A torch module as the mean, trained on the training rows by the task's loss: a copy for each fold, and one on all rows.

    Args:
        module: from rows to one output for each target or class; a copy is trained, it stays as it is.
    """

    def __init__(self, module: Any):
        self.module = module

    def check(self) -> None:
        """Refuse what is no network."""
        require_module("Trained", self.module)


class Joint(BaseEstimator):
    """A torch module as the mean of a classifier, trained together with its covariance by the generalized loss.

    Args:
        module: with one output a class.
        max_epochs: passes over the rows.
        batch_size: rows a step, 128 unless given; a loader has its own.
        learning_rate: at its peak; ``"auto"`` is 4e-3.
    """

    def __init__(
        self,
        module: Any,
        *,
        max_epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | Literal["auto"] = "auto",
    ):
        self.module = module
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate

    def check(self) -> None:
        """Refuse options that mean nothing."""
        require_module("Joint", self.module)
        require_training(self)


class Paper(BaseEstimator):
    """Mean and covariance by the paper's protocol; of other options only the number of inducing points is used, for classes.

    Args:
        mean: ``"network"`` for GWI-net or ``"svgp"`` for GWI: SVGP in regression; a torch module for classes.
        max_steps: bound on the gradient steps for each number of inducing points, in regression.
        max_epochs: passes over the rows, for classes.
        batch_size: rows a step, for classes; 1,000 unless given.
        learning_rate: at its peak, for classes; ``"auto"`` is 1e-3.
    """

    def __init__(
        self,
        mean: Any = "network",
        *,
        max_steps: int | None = None,
        max_epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | Literal["auto"] = "auto",
    ):
        self.mean = mean
        self.max_steps = max_steps
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate

    def check(self) -> None:
        """Refuse options that mean nothing."""
        require_count("max_steps", self.max_steps, (None,))
        require_training(self)


class Features(BaseEstimator):
    """A kernel on features of the network that is the mean.

    Args:
        layer: the submodule whose output are the features, by name, or several; ``"auto"`` takes what goes into each convolution
            but the first and into the linear layer after them.
    """

    def __init__(self, layer: str | Sequence[str] = "auto"):
        self.layer = layer


# Parts that a model file can hold, by tags.
_STORED: dict[str, type[BaseEstimator]] = {
    "covariance": Covariance,
    "gaussian": Gaussian,
    "softmax": Softmax,
    "robust-max": RobustMax,
    "network": Network,
    "features": Features,
}


def encode_parameter(value: Any) -> Any:
    """A parameter of an estimator as JSON can hold it: plain values, and parts with plain options; NotImplemented for others."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    tag = next((tag for tag, kind in _STORED.items() if type(value) is kind), None)
    if tag is None:
        return NotImplemented
    options = {key: list(option) if isinstance(option, tuple) else option for key, option in value.get_params(deep=False).items()}
    return {"part": tag} | {key: v for key, v in options.items() if v is None or isinstance(v, bool | int | float | str | list)}


def decode_parameter(value: Any) -> Any:
    """The parameter that was encoded; ValueError when it describes none."""
    if not isinstance(value, dict):
        return value
    if value.get("part") not in _STORED:
        raise ValueError("a part of the estimator is of an unknown kind")
    kind = _STORED[value["part"]]
    known = kind().get_params(deep=False)
    return kind(**{key: option for key, option in value.items() if key in known})


def covariance_part(covariance: Any) -> Covariance:
    """The part that a string names, or the part itself."""
    return covariance if isinstance(covariance, Covariance) else Covariance(covariance)


def check_means(mean: Any) -> None:
    """Refuse wrong options of a part that is the mean, or one of several."""
    for item in mean if isinstance(mean, list | tuple) else [mean]:
        if isinstance(item, Network | Frozen | Trained | Joint | Paper):
            item.check()


def require_choice(name: str, value: Any, choices: Any) -> None:
    """Refuse, before anything is fitted, what is not one of a Literal's values.

    Raises:
        ValueError: naming the choices.
    """
    known = [f'"{choice}"' for choice in get_args(choices)]
    if not isinstance(value, str) or value not in get_args(choices):
        raise ValueError(f"{name} is {', '.join(known[:-1])} or {known[-1]}; got {value!r}.")


def require_positive(name: str, value: Any, others: Sequence[Any]) -> None:
    """Refuse what is neither a positive number nor one of the others.

    Raises:
        ValueError: naming what is taken.
    """
    number: Any = value
    if not (isinstance(value, Real) and 0 < number < MOST) and value not in others:
        raise ValueError(f"{name} is {_either(others)}a positive number; got {value!r}.")


def require_count(name: str, value: Any, others: Sequence[Any] = ()) -> None:
    """Refuse what is neither a whole number from one on nor one of the others.

    Raises:
        ValueError: naming what is taken.
    """
    if not (isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1) and value not in others:
        raise ValueError(f"{name} is {_either(others)}a whole number, at least one; got {value!r}.")


def require_seconds(name: str, value: Any) -> None:
    """Refuse what is neither a time nor None.

    Raises:
        ValueError: naming what is taken.
    """
    if value is not None and not (isinstance(value, Real) and float(value) >= 0):
        raise ValueError(f"{name} is None or a number of seconds, at least zero; got {value!r}.")


def require_cv(value: Any) -> None:
    """Refuse what gives no folds.

    Raises:
        ValueError: naming what is taken.
    """
    if isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 2:
        return
    if (isinstance(value, str) and value in ("auto", "time")) or hasattr(value, "split") != isinstance(value, str):
        return
    if isinstance(value, list | tuple) and value and all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in value):
        return
    raise ValueError(
        'cv is "auto", "time", a number of folds from two on, a splitter of scikit-learn\'s, or a list of pairs of row numbers; '
        f"got {value!r}."
    )


def require_module(name: str, value: Any) -> None:
    """Refuse what is no torch module.

    Raises:
        ValueError: naming what is taken.
    """
    if not isinstance(value, nn.Module):
        raise ValueError(f"{name} takes a torch module; got {value!r}.")


def require_training(part: Joint | Paper) -> None:
    """Refuse epochs, batches and learning rates that mean nothing."""
    require_count("max_epochs", part.max_epochs, (None,))
    require_count("batch_size", part.batch_size, (None,))
    require_positive("learning_rate", part.learning_rate, ("auto",))


def _either(others: Sequence[Any]) -> str:
    words = ", ".join(f'"{other}"' if other else "None" for other in others)
    return f"{words} or " if words else ""
