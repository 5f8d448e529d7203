"""How far out rows were that no mean had seen, by kind of row: what sets of labels, and intervals of strata, are made of."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from numpy.typing import NDArray
from torch import Tensor

from gwi._typing import Array
from gwi.core.distributions import conformal_quantile

# Rows that judge are counted as often as they stand in the table, up to so many.
MOST_REPEATED = 100_000


@dataclass(frozen=True)
class Strata:
    """The stratum of each row that judged a fit.

    Attributes:
        labels: of the strata, in ascending order.
        code: the place of each row's label; a row a target where the scores of each target have an order of their own.
    """

    labels: Shaped[NDArray[np.generic], " S"]
    code: Int[Tensor, "*J V"]

    @staticmethod
    def of(values: Shaped[NDArray[np.generic], " V"]) -> Strata:
        """From one value a row."""
        labels, code = np.unique(values, return_inverse=True)
        return Strata(labels, torch.from_numpy(code.astype(np.int64)))

    def at(self, rows: Int[Tensor, "*J W"]) -> Strata:
        """Of these rows."""
        return replace(self, code=self.code.to(rows.device)[rows])

    def places(self, values: Shaped[NDArray[np.generic], " N"]) -> Int[Array, " N"]:
        """The place of each value among the labels; −1 of others."""
        known = {label: place for place, label in enumerate(self.labels.tolist())}
        return np.array([known.get(value, -1) for value in values.tolist()], dtype=np.int64)


def ascending(
    scores: Float[Tensor, "J V"], strata: Strata | None, weight: Float[Tensor, " N"]
) -> tuple[Float[Tensor, "J W"], Strata | None]:
    """Scores of each target in ascending order, as often as rows stand in the table where weights say so; and their strata."""
    number = torch.arange(scores.shape[1], device=scores.device)
    if scores.shape[1] and (weight == weight.round()).all() and len(weight) < weight.sum() <= MOST_REPEATED:
        number = number.repeat_interleave(weight.long())
    values, order = scores[:, number].sort(-1)
    return values, None if strata is None or not scores.shape[1] else strata.at(number[order])


def quantile_of(scores: Float[Tensor, " V"], coverage: float, weight: Float[Tensor, " V"] | None = None) -> float:
    """The least of ascending scores with this share of them, and of one that is to come, at or below it; infinity where none is.

    Without weights the ⌈(V + 1) · coverage⌉-th smallest; the one to come has the mean of the weights.
    """
    weight = torch.ones_like(scores) if weight is None else weight / weight.mean()
    place = int((weight.cumsum(0) < (len(scores) + 1) * coverage - 1e-9).sum())
    return float(scores[place]) if place < len(scores) else math.inf


def needed_rows(coverage: float) -> int:
    """Held-out rows from which on a quantile with this coverage is finite."""
    return math.ceil(coverage / (1 - coverage) - 1e-9)


def reaches(scores: Float[Tensor, "J V"], strata: Strata, coverage: float) -> Float[Array, "J T"]:
    """How far intervals of each stratum reach, in the unit of the scores, with those of rows of no stratum at the end.

    A stratum with too few rows reaches as far as any other and as its own farthest row, rows of no stratum as far as any.

    Raises:
        ValueError: when all rows together are too few.
    """
    number = range(len(strata.labels))
    parts = [[row[code == s] for s in number] for row, code in zip(scores, strata.code.to(scores.device), strict=True)]
    found = np.array([[quantile_of(part, coverage) for part in of_target] for of_target in parts])
    for row, of_target, every in zip(found, parts, scores, strict=True):
        few = np.isinf(row)
        widest = max([conformal_quantile(every, coverage), *row[~few]])
        row[few] = [max([widest, *of_target[s][-1:].tolist()]) for s in np.flatnonzero(few)]
    return np.column_stack([found, found.max(1)])


@dataclass(frozen=True)
class LabelScores:
    """1 − p of the labels of rows that no mean had seen, in ascending order.

    Attributes:
        score: 1 − p.
        label: the place of the class.
        weight: of each row, without that of its class; mean one.
        strata: of the rows; None without.
    """

    score: Float[Tensor, " V"]
    label: Int[Tensor, " V"]
    weight: Float[Tensor, " V"]
    strata: Strata | None = None

    @staticmethod
    def of(
        probabilities: Float[Tensor, "J V"], label: Int[Tensor, " V"], weight: Float[Tensor, " V"], strata: Strata | None
    ) -> LabelScores:
        """Those of these rows."""
        score, order = (1 - probabilities.gather(0, label[None])[0]).clamp(0.0, 1.0).sort()
        kept = None if strata is None else strata.at(order)
        return LabelScores(score, label[order], (weight / weight.mean())[order], kept)

    def limits(self, coverage: float, num_classes: int, *, by_class: bool, by_stratum: bool) -> Float[Array, "T J"]:
        """The largest 1 − p with which a class is in a set, for each stratum, with those of rows of no stratum at the end.

        By class, one with too few rows is in every set (infinity). Else a stratum with too few rows has the largest limit of all
        and of its own rows. Rows of no stratum have the largest limit of all.
        """
        rows = self._rows(num_classes, by_class=by_class, by_stratum=by_stratum)
        found = np.array([[quantile_of(self.score[cell], coverage, self.weight[cell]) for cell in cells] for cells in rows])
        if not by_class:
            few = np.isinf(found[:, 0])
            widest = max([quantile_of(self.score, coverage, self.weight), *found[~few, 0]])
            for s in np.flatnonzero(few):
                found[s] = max([widest, *self.score[rows[s][0]][-1:].tolist()])
        found = np.broadcast_to(found, (len(found), num_classes))
        return np.vstack([found, found.max(0)])

    def counts(self, num_classes: int, *, by_class: bool, by_stratum: bool) -> Int[Array, "S C"]:
        """By how many rows each limit is found; one column where classes share it."""
        rows = self._rows(num_classes, by_class=by_class, by_stratum=by_stratum)
        return np.array([[int(cell.sum()) for cell in cells] for cells in rows], dtype=np.int64)

    def _rows(self, num_classes: int, *, by_class: bool, by_stratum: bool) -> list[list[Bool[Tensor, " V"]]]:
        """Which rows have a say, for each stratum and class."""
        everything = torch.ones_like(self.label, dtype=torch.bool)
        of_strata, of_classes = [everything], [everything]
        if by_stratum and self.strata is not None:
            of_strata = [self.strata.code.to(self.label.device) == s for s in range(len(self.strata.labels))]
        if by_class:
            of_classes = [self.label == j for j in range(num_classes)]
        return [[of_stratum & of_class for of_class in of_classes] for of_stratum in of_strata]
