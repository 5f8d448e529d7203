"""Model files in which a JSON field or a tensor is replaced by a hostile value, with the right checksum.

The first trials replace each field and each tensor by each value, in an order drawn once; those after them replace two to four.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.campaign import model_files
from gwi.storage.container import from_bytes

FINE, FAULTS = model_files.FINE, model_files.FAULTS
COUNT = 10_000
Place = tuple[str | int, ...]

_NESTED = json.loads("[" * 80 + "]" * 80)
# Of a field. A function makes its value of the one that was there.
FIELDS: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2, 7, 2**31, 2**63, 10**12, 10**400),
    *(-1.0, 1e-320, 1e-12, 0.5, 1.5, 1e12, 1e200, 1e308, -1e308, float("nan"), float("inf"), -float("inf")),
    *(
        "",
        "nan",
        "inf",
        "1e400",
        "auto",
        "mean",
        "rbf",
        "kernel",
        "scale",
        "weighted",
        "\x1b]0;x\x07\x9b",
        "x" * 100_000,
        "\ud800",
    ),
    *([], {}, [0], [[]], [None, None], [-1, -2], _NESTED, {"type": "sum", "means": []}, {"part": "network", "hidden": [-1]}),
    lambda old: [old],
    lambda old: [old, old],
    lambda old: old * 3000 if isinstance(old, list) else -old if isinstance(old, float) else old,
    lambda old: old[::-1] if isinstance(old, list | str) else old,
    lambda old: old[:1] if isinstance(old, list | str) else old,
)
TENSORS: tuple[Callable[[Tensor], Tensor], ...] = (
    torch.zeros_like,
    torch.neg,
    torch.ones_like,
    lambda t: t.flatten(),
    lambda t: t[None],
    lambda t: t.flip(0) if t.ndim else -t,
    lambda t: t[:0] if t.ndim else t[None][:0],
    lambda t: t[:1] if t.ndim else t,
    lambda t: torch.cat([t, t]) if t.ndim else t.expand(2).clone(),
    lambda t: t.mT.contiguous() if t.ndim > 1 else t,
    lambda t: t.expand(1, 1, *t.shape).clone(),
    lambda t: t.repeat(300, *[1] * (t.ndim - 1)) if t.ndim else t,
    lambda t: t.repeat(*[1] * (t.ndim - 1), 300) if t.ndim else t,
    lambda t: t.float(),
    lambda t: t.long() if t.is_floating_point() else t + 1,
    lambda t: t.to(torch.uint8),
    lambda t: t.to(torch.float8_e5m2),
    lambda t: t.to(torch.complex64),
    *((lambda t, size=size: _filled(t, size)) for size in (1e-320, 1e-300, 1e-12, 1e3, 1e12, 1e100, 1e200, 1.7e308, -1e308)),
    *((lambda t, size=size: _drawn(t, size)) for size in (1e-3, 1.0, 1e3, 1e150, 1e300)),
    lambda t: _filled(t, float("nan")),
    lambda t: _filled(t, float("inf")),
)


def _filled(t: Tensor, value: float) -> Tensor:
    # As NumPy rounds: torch refuses a number that overflows float32.
    return torch.full_like(t, value, dtype=torch.float64).to(t.dtype) if t.is_floating_point() else torch.full_like(t, 100)


def _drawn(t: Tensor, size: float) -> Tensor:
    drawn = torch.randn(t.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * size
    return drawn.to(t.dtype) if t.is_floating_point() else drawn.clamp(-100, 100).to(t.dtype)


def fields(value: Any, place: Place = ()) -> Iterator[Place]:
    """The place of each field in a document; of long lists the first two."""
    parts: list[tuple[str | int, Any]] = list(value.items() if isinstance(value, dict) else enumerate(value[:2]))
    for key, part in parts:
        yield (*place, key)
        if isinstance(part, dict | list):
            yield from fields(part, (*place, key))


@functools.cache
def opened() -> dict[str, tuple[str, dict[str, Tensor], list[tuple[str, Place]]]]:
    """Of each file its document as text, its tensors, and the places where something can be replaced."""
    found = {}
    for name, data in model_files.contents().items():
        document, tensors = from_bytes(data)
        places: list[tuple[str, Place]] = [("field", place) for place in fields(document)]
        places += [("tensor", (key,)) for key in sorted(tensors)]
        found[name] = json.dumps(document), tensors, places
    return found


@functools.cache
def singles() -> list[tuple[str, int, int]]:
    """Each file, place and value, in an order drawn once."""
    every = [
        (name, i, j)
        for name, (_, _, places) in opened().items()
        for i, (kind, _) in enumerate(places)
        for j in range(len(FIELDS if kind == "field" else TENSORS))
    ]
    return [every[k] for k in np.random.default_rng(0).permutation(len(every))]


def trial(number: int) -> str:
    rng = np.random.default_rng([number, 1])
    if number < len(singles()):
        name, i, j = singles()[number]
        edits = [(i, j)]
    else:
        name = str(rng.choice(list(opened())))
        edits = [(int(rng.integers(10**9)), int(rng.integers(10**9))) for _ in range(int(rng.integers(2, 5)))]
    text, tensors, places = opened()[name]
    document, tensors = json.loads(text), dict(tensors)
    for i, j in edits:
        kind, place = places[i % len(places)]
        if kind == "tensor":
            tensors[str(place[0])] = changed(tensors[str(place[0])], j % len(TENSORS))
        else:
            replace(document, place, FIELDS[j % len(FIELDS)], delete=j >= len(FIELDS) and rng.random() < 0.2)
    return model_files.asked(model_files.forged(document, tensors), name)


def changed(tensor: Tensor, number: int) -> Tensor:
    """A tensor by one of the functions; by way of int64 where torch computes nothing with its dtype."""
    if tensor.dtype not in (torch.uint16, torch.uint32, torch.uint64):
        return TENSORS[number](tensor)
    found = TENSORS[number](tensor.long())
    return found.to(tensor.dtype) if found.dtype == torch.int64 else found


def replace(document: Any, place: Place, value: Any, delete: bool) -> None:
    """Put a value, or nothing, at a place; do nothing where an edit before has taken the place away."""
    try:
        for key in place[:-1]:
            document = document[key]
        old = document[place[-1]]
        document[place[-1]] = value(old) if callable(value) else value
        if delete:
            del document[place[-1]]
    except (LookupError, TypeError):
        return
