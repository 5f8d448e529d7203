"""All trees of an ensemble as one tree of scikit-learn, for few rows: one native call in the place of one a tree.

A row is asked once for each tree, with the number of the tree in one more column. Splits of that column, at the top, lead to the
root of that tree; from there on all is as it was, so that leaves are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
from sklearn.tree._tree import TREE_LEAF, Tree

from gwi.predictors.arrays import Array

# Rows for which one call is faster than one for each tree, and nodes of which a second copy is kept.
MOST_ROWS, MOST_NODES = 48, 1_000_000


class JoinedTrees:
    """Trees as one.

    Args:
        trees: scikit-learn's own, all of histogram boosting or none.
        num_features: columns of a row.
    """

    def __init__(self, trees: Sequence[Any], num_features: int):
        self.num_trees, self.num_features = len(trees), num_features
        self.is_histogram = isinstance(trees[0], TreePredictor)
        left, right = ("left", "right") if self.is_histogram else ("left_child", "right_child")
        parts = [tree.nodes if self.is_histogram else tree.__getstate__()["nodes"][: tree.node_count] for tree in trees]
        roots = np.cumsum([len(trees) - 1, *(len(part) for part in parts)])
        nodes = np.concatenate([np.zeros(len(trees) - 1, parts[0].dtype), *parts])
        for part, root in zip(parts, roots, strict=False):
            inside = nodes[root : root + len(part)]
            # Children of leaves mean nothing, or are marks.
            split = part["is_leaf"] == 0 if self.is_histogram else part[left] != TREE_LEAF
            for name in (left, right):
                inside[name][split] += np.asarray(root).astype(inside[name].dtype)
        feature, threshold = ("feature_idx", "num_threshold") if self.is_histogram else ("feature", "threshold")
        for node, (middle, below, above) in enumerate(_halvings(len(trees))):
            nodes[feature][node], nodes[threshold][node] = num_features, middle - 0.5
            nodes[left][node], nodes[right][node] = (place if place >= 0 else int(roots[-1 - place]) for place in (below, above))
        if self.is_histogram:
            no_bitsets = np.zeros((0, 8), np.uint32)
            self.tree = TreePredictor(nodes, no_bitsets, no_bitsets)
            return
        # Leaves only are looked up, so that what the native tree holds of values is not read.
        self.values = np.concatenate([np.zeros((len(trees) - 1, trees[0].value[0].size)), *(_values(tree) for tree in trees)])
        self.tree = Tree(num_features + 1, np.ones(1, np.intp), 1)
        no_values = np.zeros((len(nodes), 1, 1))
        self.tree.__setstate__({"max_depth": len(nodes), "node_count": len(nodes), "nodes": nodes, "values": no_values})

    def leaves(self, rows: Array) -> NDArray[np.float64]:
        """What each tree says of each row: (T, N) of histogram boosting, else (T, N, J)."""
        asked = np.empty((self.num_trees, len(rows), self.num_features + 1), rows.dtype)
        asked[:, :, :-1] = rows
        asked[:, :, -1] = np.arange(self.num_trees)[:, None]
        flat = asked.reshape(-1, self.num_features + 1)
        if not self.is_histogram:
            return self.values[self.tree.apply(flat)].reshape(self.num_trees, len(rows), -1)
        found = self.tree.predict(flat, np.zeros((0, 8), np.uint32), np.zeros(0, np.uint32), 1)
        return found.reshape(self.num_trees, len(rows))


def can_be_joined(trees: Sequence[Any]) -> bool:
    """Whether a second copy of their nodes is small enough."""
    sizes = (len(tree.nodes) if isinstance(tree, TreePredictor) else tree.node_count for tree in trees)
    return len(trees) > 1 and sum(sizes) <= MOST_NODES


def summed(start: Array, values: Array) -> NDArray[np.float64]:
    """start + values[0] + values[1] + …, in this order as a loop has it: NumPy's own sum of few numbers has another."""
    return np.add.accumulate(np.concatenate([np.broadcast_to(start, (1, *values.shape[1:])), values]))[-1]


def _values(tree: Any) -> Array:
    return tree.value.reshape(tree.node_count, -1)


def _halvings(num_trees: int) -> list[tuple[int, int, int]]:
    """Splits of the numbers below T: where each is cut, and what is on either side, a split, or −1 − t for the tree t."""
    ranges, found = [(0, num_trees)], []
    for first, last in ranges:
        middle = (first + last) // 2
        sides = []
        for start, end in ((first, middle), (middle, last)):
            if end - start > 1:
                ranges.append((start, end))
            sides.append(-1 - start if end - start == 1 else len(ranges) - 1)
        found.append((middle, sides[0], sides[1]))
    return found
