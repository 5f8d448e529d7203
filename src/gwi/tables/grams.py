"""Text with many values as numbers: texts that share runs of letters get numbers that are alike, also texts never seen before.

Each text is counted by its runs of two to four letters inside words; rare runs count more, and of all counts the directions in
which texts differ most are kept (TF-IDF and principal directions, as in latent semantic analysis).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from gwi._typing import Array

# Runs of letters that are counted, the most frequent of all, and directions that are kept.
LENGTHS, MOST_GRAMS, MOST_DIRECTIONS = (2, 4), 300, 20
# Directions with less than this share of the largest one's variance are rounding.
SMALLEST_SHARE = 1e-10
# Texts at a time.
CHUNK_SIZE = 10_000


@dataclass(frozen=True)
class Grams:
    """From a text to its numbers.

    Attributes:
        grams: the runs of letters.
        weights: of each run: larger where fewer texts have it.
        directions: one row of numbers for each run.
    """

    grams: tuple[str, ...]
    weights: tuple[float, ...]
    directions: tuple[tuple[float, ...], ...]

    @property
    def num_directions(self) -> int:
        """Numbers of a text."""
        return len(self.directions[0])

    @staticmethod
    def of(values: Sequence[str], shares: Sequence[float]) -> Grams:
        """Learned from different texts, none empty, and the share of the rows that each has."""
        grams = tuple(map(str, _vectorizer(max_features=MOST_GRAMS).fit(values).get_feature_names_out()))
        found, seen = np.zeros((len(grams), len(grams))), np.zeros(len(grams))
        for part in _chunks(values):
            seen += (_counts(part, grams) > 0).sum(0)
        # As scikit-learn has it: one text more with every run, so that none divides by zero.
        weights = np.log((1 + len(values)) / (1 + seen)) + 1
        rows = np.asarray(shares)
        for i, part in enumerate(_chunks(values)):
            vectors = _vectors(part, grams, weights)
            found += vectors.T @ (rows[i * CHUNK_SIZE : (i + 1) * CHUNK_SIZE, None] * vectors)
        variance, directions = np.linalg.eigh(found)
        count = min(MOST_DIRECTIONS, len(values) - 1, int((variance > SMALLEST_SHARE * variance[-1]).sum()))
        kept = directions[:, ::-1][:, : max(count, 1)]
        # Of each direction and its opposite the one whose largest number is positive.
        kept = kept * np.sign(kept[np.abs(kept).argmax(0), np.arange(kept.shape[1])])
        return Grams(grams, tuple(weights.tolist()), tuple(map(tuple, kept.tolist())))

    def numbers(self, values: Sequence[str]) -> Float[Array, "V K"]:
        """The numbers of each text."""
        directions, weights = np.array(self.directions), np.array(self.weights)
        parts = [_vectors(part, self.grams, weights) @ directions for part in _chunks(values)]
        return np.concatenate(parts) if parts else np.empty((0, self.num_directions))


def grams_from_json(node: Any) -> Grams | None:
    """What a model file says; None where it says nothing.

    Raises:
        ValueError: when parts do not fit together.
    """
    if node is None:
        return None
    grams, weights = tuple(map(_run, node["grams"])), tuple(map(float, node["weights"]))
    directions = tuple(tuple(map(float, row)) for row in node["directions"])
    fits = 0 < len(grams) == len(set(grams)) == len(weights) == len(directions) <= MOST_GRAMS
    if not fits or len({len(row) for row in directions}) != 1 or not 0 < len(directions[0]) <= MOST_DIRECTIONS:
        raise ValueError("The description of a text's runs of letters does not fit together.")
    if not np.isfinite(weights).all() or not np.isfinite(directions).all():
        raise ValueError("The description of a text's runs of letters has numbers that are not finite.")
    return Grams(grams, weights, directions)


def _run(value: Any) -> str:
    if not isinstance(value, str) or not LENGTHS[0] <= len(value) <= LENGTHS[1]:
        raise ValueError("A run of letters is of another length.")
    return value


def _chunks(values: Sequence[str]) -> list[Sequence[str]]:
    return [values[start : start + CHUNK_SIZE] for start in range(0, len(values), CHUNK_SIZE)]


def _vectorizer(**options: Any) -> Any:
    # On first use: it takes a second to import, and few tables need it.
    from sklearn.feature_extraction.text import CountVectorizer

    return CountVectorizer(analyzer="char_wb", ngram_range=LENGTHS, dtype=np.float64, **options)


def _counts(values: Sequence[str], grams: tuple[str, ...]) -> Float[Array, "V G"]:
    return _vectorizer(vocabulary=list(grams)).transform(values).toarray()


def _vectors(values: Sequence[str], grams: tuple[str, ...], weights: Float[Array, " G"]) -> Float[Array, "V G"]:
    """Weighted counts of length one; a second run of the same letters counts less than the first. Zero where there is none."""
    counts = _counts(values, grams)
    vectors = np.where(counts > 0, 1 + np.log(np.maximum(counts, 1)), 0.0) * weights
    norm = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(norm > 0, norm, 1.0)
