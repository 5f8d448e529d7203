"""Scores of predicted class probabilities, and of scores that should tell outliers from the data of the training."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.special import entr

from gwi._typing import Array

# Bins of the confidence behind the calibration error: the number in common use since Guo et al. (2017).
NUM_BINS = 15
# A row of probabilities may miss one by this much: rounding in float32 does not, logits do.
SUM_TOLERANCE = 1e-3


@dataclass(frozen=True)
class ClassScores:
    """How good predicted class probabilities were; lower is better except for accuracy.

    Attributes:
        accuracy: share of rows whose most probable class is the right one; of equals the first counts.
        nll: mean negative logarithm of the right class's probability; infinite where one of these is zero.
        brier: mean, over rows, of the squared distance from the probabilities to the right class's corner: 0 to 2.
        ece: expected calibration error: over 15 bins (b/15, (b+1)/15] of the confidence, which is the largest probability,
            the distance of its mean from the bin's accuracy, weighted by the bin's share of rows.

    Examples:
        >>> import numpy as np
        >>> from gwi.evaluation.classification import score_classes
        >>> probabilities = np.array([[0.9, 0.1], [0.4, 0.6]])
        >>> found = score_classes(probabilities, np.array([0, 1]))
        >>> found.accuracy, round(found.nll, 3)
        (1.0, 0.308)
    """

    accuracy: float
    nll: float
    brier: float
    ece: float


@dataclass(frozen=True)
class ClassTotals:
    """Sums over rows from which all scores follow; those of parts add up to those of the whole.

    Attributes:
        num_rows: N.
        sums: of hits, NLL and squared distance.
        excess: Σ (hit − confidence) over the rows of each bin of the confidence.

    Examples:
        >>> import numpy as np
        >>> from gwi.evaluation.classification import class_totals
        >>> probabilities = np.array([[0.9, 0.1], [0.4, 0.6]])
        >>> total = class_totals(probabilities, np.array([0, 1]))
        >>> (total + total).num_rows
        4
    """

    num_rows: int
    sums: Float[Array, 3]
    excess: Float[Array, " bins"]

    def __add__(self, other: ClassTotals) -> ClassTotals:
        return ClassTotals(self.num_rows + other.num_rows, self.sums + other.sums, self.excess + other.excess)

    def named(self) -> dict[str, float]:
        """All scores by name."""
        return asdict(self.scores())

    def scores(self) -> ClassScores:
        """All of them."""
        accuracy, nll, brier = (float(value) / self.num_rows for value in self.sums)
        return ClassScores(accuracy, nll, brier, float(np.abs(self.excess).sum() / self.num_rows))


def score_classes(probabilities: Float[Array, "N J"], y: Int[NDArray[np.int64], " N"]) -> ClassScores:
    """All scores of the probabilities at these labels, which are 0 to J − 1; nothing is clipped, so that the NLL may be infinite.

    Raises:
        ValueError: when there are no rows, a row is no probability distribution, or a label is no class.

    Examples:
        >>> import numpy as np
        >>> from gwi.evaluation.classification import score_classes
        >>> probabilities = np.array([[0.9, 0.1], [0.4, 0.6]])
        >>> found = score_classes(probabilities, np.array([0, 1]))
        >>> found.accuracy, round(found.nll, 3)
        (1.0, 0.308)
    """
    return class_totals(probabilities, y).scores()


def class_totals(probabilities: Float[Array, "N J"], y: Int[NDArray[np.int64], " N"]) -> ClassTotals:
    """The sums behind `score_classes`, with its errors.

    Examples:
        >>> import numpy as np
        >>> from gwi.evaluation.classification import class_totals
        >>> probabilities = np.array([[0.9, 0.1], [0.4, 0.6]])
        >>> total = class_totals(probabilities, np.array([0, 1]))
        >>> (total + total).num_rows
        4
    """
    num_rows, num_classes = probabilities.shape
    if num_rows == 0:
        raise ValueError("Scores need at least one row; got none.")
    total = probabilities.sum(1)
    # Said this way round, NaN is refused too.
    if not (probabilities.min() >= 0 and np.abs(total - 1).max() <= SUM_TOLERANCE):
        raise ValueError(
            "Each row of probabilities must be non-negative and sum to one; "
            f"the lowest value is {probabilities.min():.3g} and the sums go from {total.min():.3g} to {total.max():.3g}."
        )
    if y.min() < 0 or y.max() >= num_classes:
        raise ValueError(f"Labels must be 0 to {num_classes - 1}, the columns of the probabilities; got {y.min()} to {y.max()}.")
    with np.errstate(divide="ignore"):
        nll = -np.log(probabilities[np.arange(num_rows), y]).sum()
    hit = probabilities.argmax(1) == y
    residual = probabilities.copy()
    residual[np.arange(num_rows), y] -= 1
    confidence = probabilities.max(1)
    place = np.searchsorted(np.arange(1, NUM_BINS) / NUM_BINS, confidence)
    excess = np.bincount(place, weights=hit - confidence, minlength=NUM_BINS).astype(np.float64)
    return ClassTotals(num_rows, np.array([float(hit.sum()), nll, np.square(residual).sum()]), excess)


def entropy(probabilities: Float[Array, "*rows J"]) -> Float[Array, "*rows"]:
    """−Σ_j p_j log p_j in nats, where 0 log 0 = 0.

    Examples:
        >>> import numpy as np
        >>> from gwi.evaluation.classification import entropy
        >>> probabilities = np.array([[0.9, 0.1], [0.4, 0.6]])
        >>> entropy(probabilities).round(3).tolist()
        [0.325, 0.673]
    """
    return entr(probabilities).sum(-1)


@dataclass(frozen=True)
class OODScores:
    """How well a score tells outliers, the positive class, from in-distribution rows.

    A row is called an outlier when its score is at or above a threshold, so that rows with equal scores are called alike.

    Attributes:
        auroc: probability that an outlier scores above an in-distribution row, equal scores counting one half.
        aupr: average precision: the precision at each threshold, weighted by the share of the outliers that it adds.
        fpr95: share of in-distribution rows called outliers at the highest threshold that finds at least 95 % of the outliers:
            the false positive rate of in-distribution data at 95 % true positive rate for outliers; lower is better.

    Examples:
        >>> import numpy as np
        >>> from gwi.evaluation.classification import score_ood
        >>> found = score_ood(inside=np.array([0.1, 0.2, 0.6]), outside=np.array([0.5, 0.9]))
        >>> round(found.auroc, 3), round(found.fpr95, 3)
        (0.833, 0.333)
    """

    auroc: float
    aupr: float
    fpr95: float


def score_ood(inside: Float[Array, " N"], outside: Float[Array, " M"]) -> OODScores:
    """All scores of a score that is meant to be higher for outliers (outside) than for in-distribution rows (inside).

    Raises:
        ValueError: when one of the two has no rows, or a score is NaN.

    Examples:
        >>> import numpy as np
        >>> from gwi.evaluation.classification import score_ood
        >>> found = score_ood(inside=np.array([0.1, 0.2, 0.6]), outside=np.array([0.5, 0.9]))
        >>> round(found.auroc, 3), round(found.fpr95, 3)
        (0.833, 0.333)
    """
    if len(inside) == 0 or len(outside) == 0:
        raise ValueError(f"Both sides need at least one row; got {len(inside)} inside and {len(outside)} outside.")
    scores = np.concatenate([inside, outside])
    if np.isnan(scores).any():
        raise ValueError(f"{np.isnan(scores).sum()} of {len(scores)} scores are NaN; a row without a score cannot be ranked.")
    thresholds, place = np.unique(scores, return_inverse=True)
    # How many rows of each side each threshold adds, from the highest down; whole numbers, so that ties are exact.
    new_false = np.bincount(place[: len(inside)], minlength=len(thresholds))[::-1]
    new_true = np.bincount(place[len(inside) :], minlength=len(thresholds))[::-1]
    false, true = new_false.cumsum(), new_true.cumsum()
    enough = int(np.argmax(100 * true >= 95 * len(outside)))
    return OODScores(
        auroc=float((new_false * (2 * true - new_true)).sum() / (2 * len(inside) * len(outside))),
        aupr=float((new_true * (true / (true + false))).sum() / len(outside)),
        fpr95=float(false[enough] / len(inside)),
    )
