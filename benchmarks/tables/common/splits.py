"""Which rows train and which test: the standard splits of the literature, and splits with gaps and tails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Split:
    """Which rows train and which test.

    Attributes:
        name: ``standard-3``, or ``gap-0`` and ``tail-0`` for those in the first feature.
        train: indices of rows.
        test: indices of rows.
    """

    name: str
    train: Int[Tensor, " N"]
    test: Int[Tensor, " T"]


def standard_splits(num_rows: int, num_splits: int = 20) -> list[Split]:
    """The random 90/10 splits that the literature uses (Hernández-Lobato and Adams, 2015), row for row."""
    generator = np.random.RandomState(1)
    splits = []
    for i in range(num_splits):
        order = torch.from_numpy(generator.choice(num_rows, num_rows, replace=False))
        size = round(0.9 * num_rows)
        splits.append(Split(f"standard-{i}", order[:size], order[size:]))
    return splits


def gap_splits(x: Float[Tensor, "N D"]) -> list[Split]:
    """One split a feature: rows sorted by it, the middle third held out (Foong et al., 2019); constant features have none."""
    splits = []
    for d, order in _orders(x):
        first, last = len(order) // 3, 2 * len(order) // 3
        splits.append(Split(f"gap-{d}", torch.cat([order[:first], order[last:]]), order[first:last]))
    return splits


def tail_splits(x: Float[Tensor, "N D"]) -> list[Split]:
    """One split a feature: rows sorted by it, the highest fifth held out; constant features have none."""
    return [Split(f"tail-{d}", order[: 4 * len(order) // 5], order[4 * len(order) // 5 :]) for d, order in _orders(x)]


def _orders(x: Float[Tensor, "N D"]) -> Iterator[tuple[int, Int[Tensor, " N"]]]:
    """Rows sorted by each feature that is not constant."""
    for d in range(x.shape[1]):
        if x[:, d].min() < x[:, d].max():
            yield d, x[:, d].argsort(stable=True)
