"""Tables of numbers that studies share: the UCI tables and the practice ones, by name."""

from __future__ import annotations

from typing import cast, get_args

import numpy as np
import torch

from benchmarks.tables.common.practice import numbers
from benchmarks.tables.common.splits import gap_splits
from benchmarks.tables.uci.data import UCIName, load_uci
from benchmarks.tables.uci.interface import Rows
from gwi._typing import Array

SHARE, MOST_TRAIN, MOST_TEST = 2 / 3, 300, 150


def load(name: str) -> tuple[Array, Array]:
    """Inputs and targets of a UCI table, or of a practice table in ``$GWI_DATA/practice/numbers``."""
    if name in get_args(UCIName):
        features, targets = load_uci(cast("UCIName", name))
        return features.numpy(), targets[0].numpy()
    return numbers(name)


def drawn(name: str, seed: int) -> tuple[Array, Array]:
    """At most 450 rows of a table in an order of chance: the rows of one split, two thirds to fit and one third to judge."""
    x, y = load(name)
    order = np.random.default_rng(seed).permutation(len(y))[: MOST_TRAIN + MOST_TEST]
    return x[order], y[order]


def random_split(num_rows: int) -> tuple[Rows, Rows]:
    """Places of the rows to fit and to judge among rows in an order of chance."""
    places = np.arange(num_rows)
    first = round(SHARE * num_rows)
    return places[:first], places[first:]


def gap_split(x: Array, seed: int) -> tuple[Rows, Rows]:
    """The same with the middle third by one column held out; seeds 0, 1, 2 take columns from the start, middle and end."""
    gaps = gap_splits(torch.from_numpy(x))
    gap = gaps[(2 * seed + 1) * len(gaps) // 6 % len(gaps)]
    return gap.train.numpy(), gap.test.numpy()
