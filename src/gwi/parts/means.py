"""Means, and features of a network, with their options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from sklearn.base import BaseEstimator
from torch import nn

from gwi.parts.checks import require_count, require_positive


class Network(BaseEstimator):
    """Our own network as the mean: an ensemble of fully connected ones, each trained without one fold.

    Args:
        hidden: widths of the hidden layers; ``"auto"`` goes by the number of rows.
        max_steps: of gradient descent; held-out rows say when to stop before.
        per_fold: networks for each fold.

    Examples:
        >>> import numpy as np
        >>> from gwi import GWIRegressor, Network
        >>> X = np.linspace(0, 3, 20)[:, None]
        >>> network = Network((20,), max_steps=50, per_fold=1)
        >>> model = GWIRegressor(network, cv=2, random_state=0).fit(X, np.sin(X[:, 0]))
        >>> model.predict(X).shape
        (20,)
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
            raise ValueError(f'hidden must be "auto" or a list of widths, such as (64, 64); got {self.hidden!r}.')
        for width in self.hidden:
            require_count("each width in hidden", width)


class Frozen(BaseEstimator):
    """A trained torch module as the mean, taken as it is; `fit` needs ``validation``, rows that it has not seen.

    Args:
        module: from rows to one output for each target or class.
        correct: let the validation rows add a kernel mean to a classifier's logits if they ask for it; False: a scale only.

    Examples:
        >>> import torch
        >>> from gwi import Frozen, GWIRegressor
        >>> network = torch.nn.Linear(1, 1)  # trained before
        >>> X = torch.linspace(0, 3, 20)[:, None]
        >>> model = GWIRegressor(Frozen(network), random_state=0)
        >>> model = model.fit(X[::2], 2 * X[::2, 0], validation=(X[1::2], 2 * X[1::2, 0]))
        >>> torch.allclose(model.predict(X).float(), network(X)[:, 0], atol=1e-4)
        True
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

    Examples:
        >>> import torch
        >>> from gwi import GWIClassifier, Trained
        >>> _ = torch.manual_seed(0)
        >>> X = torch.linspace(-1, 1, 30)[:, None]
        >>> model = GWIClassifier(Trained(torch.nn.Linear(1, 2)), cv=2, random_state=0).fit(X, (X[:, 0] > 0).long())
        >>> model.predict([[-1.0], [1.0]]).tolist()
        [0, 1]
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

    Examples:
        >>> import torch
        >>> from gwi import GWIClassifier, Joint
        >>> X = torch.linspace(-1, 1, 40)[:, None]
        >>> model = GWIClassifier(Joint(torch.nn.Linear(1, 2), max_epochs=5), random_state=0).fit(X, (X[:, 0] > 0).long())
        >>> model.predict_proba(X).shape
        torch.Size([40, 2])
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
    """Mean and covariance by the paper's protocol; of other options only `tempering` is used, and for classes the number
    of inducing points.

    Args:
        mean: ``"network"`` for GWI-net or ``"svgp"`` for GWI: SVGP in regression; a torch module for classes.
        max_steps: bound on the gradient steps for each number of inducing points, in regression.
        max_epochs: passes over the rows, for classes.
        batch_size: rows a step, for classes; 1,000 unless given.
        learning_rate: at its peak, for classes; ``"auto"`` is 1e-3.

    Examples:
        >>> import numpy as np
        >>> from gwi import GWIRegressor, Paper
        >>> X = np.linspace(0, 3, 20)[:, None]
        >>> model = GWIRegressor(Paper("network", max_steps=20), random_state=0).fit(X, np.sin(X[:, 0]))
        >>> model.predict(X).shape
        (20,)
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

    Examples:
        >>> import torch
        >>> from gwi import Features, GWIRegressor
        >>> network = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))  # trained before
        >>> X = torch.linspace(0, 3, 20)[:, None]
        >>> model = GWIRegressor(network, kernel=Features(), random_state=0)
        >>> model = model.fit(X[::2], X[::2, 0].sin(), validation=(X[1::2], X[1::2, 0].sin()))
        >>> model.ood_score(X).shape
        torch.Size([20])
    """

    def __init__(self, layer: str | Sequence[str] = "auto"):
        self.layer = layer


def check_means(mean: Any) -> None:
    """Refuse wrong options of a part that is the mean, or one of several."""
    for item in mean if isinstance(mean, list | tuple) else [mean]:
        if isinstance(item, Network | Frozen | Trained | Joint | Paper):
            item.check()


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
