"""Scores and checks of levels in order, such as grades, and of classes: probabilities beside what happened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.stats import norm

from gwi._typing import Array
from gwi.evaluation.checks import Check, graded
from gwi.evaluation.classification import ClassTotals, class_totals

# How rare by chance a gap between confidence and accuracy must be before it is worth a word.
RARE = 1e-3


def ranked_probability_score(places: Int[NDArray[np.int64], " N"], probabilities: Float[Array, "N K"]) -> float:
    """The mean squared distance of the cumulative probabilities of levels from what happened: 0 is perfect, 1 the worst.

    Over the K − 1 places between two levels. A probability on a level far from the right one costs more than one beside it.

    Args:
        places: the level of each row, from 0 in their order.
        probabilities: of each level.

    Examples:
        >>> import numpy as np
        >>> from gwi.evaluation.levels import ranked_probability_score
        >>> place = np.array([0])
        >>> ranked_probability_score(place, np.array([[0.5, 0.5, 0.0]]))
        0.125
        >>> ranked_probability_score(place, np.array([[0.5, 0.0, 0.5]]))
        0.25
    """
    return float(_ranked(places, probabilities).mean())


def _ranked(places: Int[NDArray[np.int64], " N"], probabilities: Float[Array, "N K"]) -> Float[Array, " N"]:
    num_between = probabilities.shape[1] - 1
    below = probabilities.cumsum(1)[:, :-1]
    return np.square(below - (places[:, None] <= np.arange(num_between))).sum(1) / num_between


@dataclass(frozen=True)
class LevelTotals:
    """Sums over rows from which all scores of levels follow; those of parts add up to those of the whole.

    Attributes:
        classes: the sums of accuracy, NLL and calibration error.
        ranked: Σ of the ranked probability score.
        off: Σ of the number of levels between the most probable one and the right one.

    Examples:
        >>> import numpy as np
        >>> from gwi.evaluation.levels import level_totals
        >>> total = level_totals(np.array([[0.9, 0.1], [0.4, 0.6]]), np.array([0, 1]))
        >>> total.off, round(total.ranked, 3)
        (0.0, 0.17)
    """

    classes: ClassTotals
    ranked: float
    off: float

    def __add__(self, other: LevelTotals) -> LevelTotals:
        return LevelTotals(self.classes + other.classes, self.ranked + other.ranked, self.off + other.off)

    @property
    def num_rows(self) -> int:
        """N."""
        return self.classes.num_rows

    def named(self) -> dict[str, float]:
        """All scores by name."""
        of_classes = self.classes.scores()
        return {
            "accuracy": of_classes.accuracy,
            "rps": self.ranked / self.num_rows,
            "levels_off": self.off / self.num_rows,
            "nll": of_classes.nll,
            "ece": of_classes.ece,
        }

    def scores(self) -> dict[str, float]:
        """All of them."""
        return self.named()


def level_totals(probabilities: Float[Array, "N K"], places: Int[NDArray[np.int64], " N"]) -> LevelTotals:
    """The sums behind the scores of predicted levels.

    Examples:
        >>> import numpy as np
        >>> from gwi.evaluation.levels import level_totals
        >>> total = level_totals(np.array([[0.9, 0.1], [0.4, 0.6]]), np.array([0, 1]))
        >>> total.off, round(total.ranked, 3)
        (0.0, 0.17)
    """
    off = np.abs(probabilities.argmax(1) - places).sum()
    return LevelTotals(class_totals(probabilities, places), float(_ranked(places, probabilities).sum()), float(off))


def class_checks(probabilities: Float[Array, "N J"], y: NDArray[Any], classes: Any, word: str = "Class") -> tuple[Check, ...]:
    """What the rows say about predicted probabilities: whether they are right on average, for all classes and for each.

    Args:
        probabilities: of each class.
        y: the place of the right one.
        classes: their names.
        word: what they are called.

    Examples:
        >>> import numpy as np
        >>> from gwi.evaluation.levels import class_checks
        >>> checks = class_checks(np.full((20, 2), 0.5), np.arange(20) % 2, ["no", "yes"])
        >>> len(checks) > 0
        True
    """
    confidence = probabilities.max(1)
    gap = float((probabilities.argmax(1) == y).mean() - confidence.mean())
    # If every confidence is right, the number of hits has this variance.
    spread = np.sqrt((confidence * (1 - confidence)).sum()) / len(y)
    chance = 2 * norm.sf(abs(gap) / spread) if spread > 0 else float(gap == 0)
    count = np.bincount(y, minlength=len(classes))
    expected = probabilities.sum(0)
    off = (count - expected) / np.sqrt(np.maximum((probabilities * (1 - probabilities)).sum(0), 1e-12))
    worst = int(np.argmax(np.abs(off)))
    # One class of many is off by chance more often than one of two.
    is_off = len(classes) * 2 * norm.sf(abs(off[worst])) < RARE
    many = f"{word.lower()}es" if word.endswith("s") else f"{word.lower()}s"
    return (
        Check(
            "miscalibrated",
            gap,
            graded(abs(gap), note=0.02, warning=0.1, severe=0.2) if chance < RARE else None,
            f"The model's mean confidence is {confidence.mean():.1%}, and it is right on {confidence.mean() + gap:.1%} "
            f"of {len(y)} rows: it is {'under' if gap > 0 else 'over'}confident.",
            "Fit again with rows like these; until then do not take its probabilities literally.",
        ),
        Check(
            "classes-have-shifted" if word == "Class" else "levels-have-shifted",
            float(off[worst]),
            graded(abs(count[worst] - expected[worst]) / len(y), note=0.02, warning=0.1) if is_off else None,
            f"{word} {str(classes[worst])!r} occurs {count[worst]} times; the probabilities add up to {expected[worst]:.1f}.",
            f"The {many} have other shares in these rows than in the training rows; fit again with rows like these.",
        ),
    )
