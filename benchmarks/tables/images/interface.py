"""What a method of the image table is: it gets a problem, and gives class probabilities and perhaps a score for outliers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.tables.images.data import Data
from benchmarks.tables.images.training import Recipe, Trained
from gwi._typing import Array
from gwi.evaluation.classification import entropy

# Passes at prediction of the methods that draw; few of the other methods' predictions cost more than one.
NUM_DRAWS = 20


@dataclass(frozen=True)
class Problem:
    """What a method gets; of the data it may see the training and the validation images.

    Attributes:
        data: of the problem.
        recipe: of its networks.
        seed: of the fit.
        shared: the network that all post-hoc methods have in common; they leave it as it is.
    """

    data: Data
    recipe: Recipe
    seed: int
    shared: Trained


@dataclass(frozen=True)
class Prediction:
    """Of some images.

    Attributes:
        probabilities: of the classes, (N, J).
        score: higher for outliers, (N,), where it comes with the probabilities at no cost.
    """

    probabilities: Array
    score: Array | None = None


@dataclass(frozen=True)
class Fitted:
    """A fitted method.

    Attributes:
        predict: from images to probabilities.
        settings: what was chosen, for the record.
        score: from images to a score that is higher for outliers, where it does not come with the probabilities.
        score_name: of the method's own score; without one the entropy stands for it.
        seconds: of the fit where it is not that of the call, as for networks from the cache.
        uses_shared: whether the shared network's training is a part of the cost.
    """

    predict: Callable[[Tensor], Prediction]
    settings: Mapping[str, Any]
    score: Callable[[Tensor], Array] | None = None
    score_name: str = "entropy"
    seconds: float | None = None
    uses_shared: bool = True


Method = Callable[[Problem], Fitted]


def softmax(logits: Tensor) -> Array:
    """Probabilities of the classes on the last axis, in double precision."""
    return torch.softmax(logits.double(), -1).numpy()


def mixed(members: Array) -> Prediction:
    """The mean (N, J) of members' probabilities (K, N, J), and what members disagree by: the mutual information."""
    mean = members.mean(0)
    # Rounding can take it below zero.
    return Prediction(mean, np.maximum(entropy(mean) - entropy(members).mean(0), 0.0))
