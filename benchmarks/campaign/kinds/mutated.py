"""Model files with bytes flipped, cut, doubled, moved, zeroed or spliced from another file."""

from __future__ import annotations

import numpy as np

from benchmarks.campaign import model_files

# What was altered is refused by its checksum, so that no answer can be right.
FINE, FAULTS = ("refused", "unchanged"), (*model_files.FAULTS, "refused_later", "answered")
COUNT = 100_000


def trial(number: int) -> str:
    rng = np.random.default_rng([number, 0])
    contents = model_files.contents()
    name, other = rng.choice(list(contents), 2)
    data = contents[name]
    # Half of them in the header, which is the part with structure.
    end = 8 + int.from_bytes(data[:8], "little") if number % 2 else len(data)
    bad = mutated(data[:end], contents[other], rng) + data[end:]
    return "unchanged" if bad == data else model_files.asked(bad, name)


def mutated(data: bytes, other: bytes, rng: np.random.Generator) -> bytes:
    """The content, harmed."""
    i, j = sorted(int(place) for place in rng.integers(0, len(data), 2))
    size = int(rng.integers(1, 64))
    kind = rng.integers(8)
    if kind == 0:
        return data[:i] + bytes([data[i] ^ (1 << int(rng.integers(8)))]) + data[i + 1 :]
    if kind == 1:
        return data[:i]
    if kind == 2:
        return data[:i] + rng.bytes(size) + data[i:]
    if kind == 3:
        return data[:i] + data[i + size :]
    if kind == 4:
        return data[:i] + bytes(size) + data[i + size :]
    if kind == 5:
        return data[:i] + data[j : j + size] + data[i + size :]
    if kind == 6:
        return data[:i] + other[i:]
    return data + rng.bytes(size)
