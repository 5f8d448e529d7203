"""Which rows judge which fit: folds that keep copies and groups together, folds in time, and any splitter of scikit-learn's."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from sklearn.model_selection import GroupKFold, StratifiedGroupKFold

NUM_FOLDS = 5
# In time, the share of the rows before the first that judge.
TIME_START = 0.5
FEWEST_IN_TIME = 5
# Runs of rows for each fold that a splitter makes.
BLOCKS_A_FOLD = 5
# Columns are equal when they differ by no more than this share of their spread, which so many rows tell.
TOLERANCE, SPREAD_ROWS = 1e-9, 10_000
# Of rows whose features come more than once, the share with several targets up to which those with one are copies.
MOST_MIXED = 0.1
# The share of rows with a weight above one, and with features that come again, from which a table is one of counts.
MOSTLY = 0.5


@dataclass(frozen=True)
class Folds:
    """Rows that judge, and the rows that each of their folds may learn from.

    Attributes:
        row: of the training rows, those that judge; a row may judge more than once.
        fold: of each row that judges.
        learned: for each fold, the training rows that its fits see.
    """

    row: Int[NDArray[Any], " V"]
    fold: Int[NDArray[Any], " V"]
    learned: Bool[NDArray[Any], "K N"]

    def blocks(self) -> Int[NDArray[Any], " N"]:
        """Runs of rows, some for each fold: where nobody said what rows have in common, it is that they stand side by side."""
        num_rows = self.learned.shape[1]
        return np.arange(num_rows) * min(BLOCKS_A_FOLD * len(self.learned), num_rows) // num_rows

    @property
    def are_in_turn(self) -> bool:
        """Whether each row judges once, fits that have seen all folds but its own."""
        num_rows = self.learned.shape[1]
        if not np.array_equal(np.sort(self.row), np.arange(num_rows)):
            return False
        return bool((self.learned[:, self.row] == (self.fold != np.arange(len(self.learned))[:, None])).all())


def equal_rows(table: Float[NDArray[Any], "N C"], tolerance: float = TOLERANCE) -> Int[NDArray[Any], " N"]:
    """A number for each row, the same for rows whose columns all agree to this share of their spread, or of their own size.

    The spread is that of most rows: one value of 1e11 does not make copies of all others. Values beyond it agree to the share of
    themselves. Rows that agree are neighbours in the order of any weighted sum of their columns, so two such orders and a look at
    neighbours find them in N log N.
    """
    centre = np.median(table, axis=0)
    away = np.sort(np.abs(table[:: max(1, len(table) // SPREAD_ROWS)] - centre), axis=0)
    # The median distance from the centre of rows that are not there.
    equal = (away == 0).sum(axis=0)
    spread = np.take_along_axis(away, np.minimum((equal + len(away)) // 2, len(away) - 1)[None], axis=0)[0]
    spread = np.where(spread > 0, spread, np.ptp(table, axis=0))
    scaled = np.arcsinh((table - centre) / np.where(spread > 0, spread, 1.0))
    rng = np.random.default_rng(0)
    pairs = []
    for _ in range(2):
        order = np.argsort(scaled @ rng.uniform(1.0, 2.0, table.shape[1]), kind="stable")
        near = np.abs(np.diff(scaled[order], axis=0)).max(axis=1, initial=0.0) <= tolerance
        pairs.append(np.stack([order[:-1][near], order[1:][near]]))
    first, second = np.concatenate(pairs, axis=1)
    graph = coo_matrix((np.ones(len(first), dtype=np.int8), (first, second)), shape=(len(table), len(table)))
    return connected_components(graph, directed=False)[1].astype(np.int64)


def copies(x: Float[NDArray[Any], "N D"], y: Float[NDArray[Any], "N J"]) -> Int[NDArray[Any], " N"]:
    """A number for each row, the same for copies of one another: rows that agree in features and targets, and not by chance.

    Numbers that hardly come twice do not agree by chance. Where targets are a few values, such as classes or grades, rows agree
    by chance if their features do, as doses or categories do: such rows are repeated measurements, and to keep those of one
    target together would have every fold judge the ones by the others. So features must agree more often than by chance, and
    hardly ever where targets differ.
    """
    whole, alone = equal_rows(np.column_stack([x, y])), np.arange(len(x))
    _, first, size = np.unique(whole, return_index=True, return_counts=True)
    if (size == 1).all() or equal_rows(y[first]).max() + 1 > len(first) / 2:
        return whole
    place = equal_rows(x)
    targets, count = np.bincount(place[first]), np.bincount(place)
    _, distinct = np.unique(place, return_index=True)
    by_chance = len(x) ** 2 / 2 * _share_of_equal_pairs(x[distinct])
    if (targets > 1)[count > 1].mean() > MOST_MIXED or (count * (count - 1)).sum() / 2 < 2 * by_chance:
        return alone
    return np.unique(np.where(targets[place] > 1, len(x) + alone, whole), return_inverse=True)[1].ravel()


def counted_cells(x: Float[NDArray[Any], "N D"], weight: Float[NDArray[Any], " N"]) -> Int[NDArray[Any], " N"] | None:
    """A number for each row, the same where features are equal, in a table of counts; None where rows are no counts.

    In a table of counts a row is a cell of the features and one of its targets, and its weight says how often that came. What is
    left of a cell without one of its rows says the opposite of that row, so such rows must be left out together: by themselves
    they have every mean and every penalty judged as if features told nothing.
    """
    if len(x) < 2 or not ((weight == np.round(weight)).all() and (weight > 1).mean() > MOSTLY):
        return None
    cell = equal_rows(x)
    count = np.bincount(cell)
    return cell if len(count) >= NUM_FOLDS and (count[cell] > 1).mean() > MOSTLY else None


def _share_of_equal_pairs(x: Float[NDArray[Any], "N D"]) -> float:
    """The share of pairs of rows that would agree if columns knew nothing of each other."""
    log_share = 0.0
    for column in x.T:
        share = np.unique(column, return_counts=True)[1] / len(x)
        log_share += float(np.log((share**2).sum()))
    return float(np.exp(log_share))


def folds(cv: Any, x: NDArray[Any], y: NDArray[Any], groups: NDArray[Any] | None, seed: int, *, stratified: bool) -> Folds:
    """Those that `cv` asks for.

    Args:
        cv: a number of folds, ``"auto"`` for five, ``"time"``, a splitter of scikit-learn's, or pairs of row numbers, those to
            learn from and those to judge.
        x: rows.
        y: targets.
        groups: of each row; a group stays in one fold.
        seed: for what is random.
        stratified: whether to spread the values of y evenly over folds of groups.

    Raises:
        ValueError: when rows or groups are too few, or a splitter gives no folds that can be learned from.
    """
    if isinstance(cv, str) and cv == "time":
        if groups is not None:
            raise ValueError('cv="time" keeps rows in order, which groups would break; pass one of the two.')
        return time_folds(len(x))
    if isinstance(cv, str | Integral):
        assert groups is not None
        num_groups = len(np.unique(groups))
        if num_groups < 2:
            raise ValueError("groups has the same value in all rows, so no group can be held out. Leave groups out.")
        num_folds = min(NUM_FOLDS if isinstance(cv, str) else int(cv), num_groups)
        kind = StratifiedGroupKFold if stratified else GroupKFold
        cv = kind(num_folds, shuffle=True, random_state=seed)
    pairs = list(cv.split(x, y, groups) if hasattr(cv, "split") else cv)
    learned = np.zeros((len(pairs), len(x)), dtype=bool)
    for k, (train, test) in enumerate(pairs):
        learned[k, np.asarray(train)] = True
        if learned[k].sum() < 2 or not len(test) or learned[k, np.asarray(test)].any():
            raise ValueError(
                f"Fold {k} of cv has {learned[k].sum()} training rows and {len(test)} test rows; it needs at least two "
                "training rows, and at least one other row to test on."
            )
    row = np.concatenate([np.asarray(test) for _, test in pairs])
    return Folds(row, np.repeat(np.arange(len(pairs)), [len(test) for _, test in pairs]), learned)


def time_folds(num_rows: int) -> Folds:
    """Rows in the order of time: each fold judges all rows that follow those it learned from, near and far.

    Folds that judge only the next rows are too sure of the far ones: on six series intervals of 95 % then held 93 % (airline
    passengers 74 %), with all later rows 95 % (91 %), at a lower NLL.
    """
    starts = np.unique(np.round(np.linspace(TIME_START, 1, NUM_FOLDS, endpoint=False) * num_rows).astype(np.int64))
    if num_rows < FEWEST_IN_TIME:
        raise ValueError(
            f'cv="time" needs at least {FEWEST_IN_TIME} rows, so that some come before the held-out rows; got {num_rows}.'
        )
    later = [np.arange(start, num_rows) for start in starts]
    fold = np.repeat(np.arange(len(starts)), [len(rows) for rows in later])
    return Folds(np.concatenate(later), fold, np.arange(num_rows) < starts[:, None])
