"""Which rows a model has seen: salted hashes of them, so that scores on training rows are told from scores on new ones."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import UInt
from numpy.typing import NDArray

# Hashes that are kept: of more rows those with the smallest, which are a sample of all.
MOST_HASHES = 100_000
# Rows held at a time.
CHUNK_SIZE = 4096


@dataclass(frozen=True, eq=False)
class SeenRows:
    """Hashes of training rows, features and targets together.

    Attributes:
        salt: of the training rows, so that hashes of models of other rows cannot be compared.
        hashes: in order.
        are_all: whether every training row has its hash here.
    """

    salt: bytes
    hashes: UInt[NDArray[Any], " H"]
    are_all: bool

    @staticmethod
    def of(x: NDArray[Any], y: NDArray[Any]) -> SeenRows:
        """Those of these rows."""
        salt = hashlib.blake2b(row_hashes(x, y, b"").tobytes(), digest_size=16).digest()
        hashes = np.unique(row_hashes(x, y, salt))
        return SeenRows(salt, hashes[:MOST_HASHES], len(hashes) <= MOST_HASHES)

    def share_of(self, x: NDArray[Any], y: NDArray[Any]) -> float:
        """The share of these rows that are training rows; of many training rows an estimate, NaN where there is none."""
        hashes = row_hashes(x, y, self.salt)
        if not self.are_all:
            hashes = hashes[hashes <= self.hashes[-1]]
        return float(np.isin(hashes, self.hashes).mean()) if len(hashes) else float("nan")


def row_hashes(x: NDArray[Any], y: NDArray[Any], salt: bytes) -> UInt[NDArray[Any], " N"]:
    """64 bits of each row with its target, in single precision: the same through a file and back."""
    digests = []
    for start in range(0, len(x), CHUNK_SIZE):
        some = slice(start, start + CHUNK_SIZE)
        with np.errstate(over="ignore"):
            parts = [values[some].reshape(len(values[some]), -1).astype(np.float32) for values in (x, y)]
        # Minus zero is zero.
        rows = np.concatenate(parts, axis=1) + np.float32(0)
        digests += [hashlib.blake2b(row.tobytes(), digest_size=8, key=salt).digest() for row in rows]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def share_of_copies(x: NDArray[Any], y: NDArray[Any]) -> float:
    """The share of rows that stand there more than once."""
    _, count = np.unique(row_hashes(x, y, b""), return_counts=True)
    return float(count[count > 1].sum() / len(x))
