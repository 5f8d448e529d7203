"""Tables to fit that nobody should bring: each drawn from the number of its trial, with some hostilities among ordinary parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
import torch
from sklearn.model_selection import GroupKFold, KFold, LeaveOneOut, StratifiedKFold, TimeSeriesSplit

Rng = np.random.Generator
Table = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """What `fit` is given.

    Attributes:
        x: rows, in whatever they come.
        y: targets, in whatever they come.
        given: what else.
        cv: how rows judge.
        rows: those of x as plain numbers, to be predicted where the fit succeeds.
    """

    x: Any
    y: Any
    given: dict[str, Any]
    cv: Any
    rows: Table


def drawn(rng: Rng, few: int, many: int, *, labels: bool, num_hostile: int) -> Case:
    """A table of so many rows, with about so many hostilities."""
    n = int(rng.integers(few, many + 1))
    d = int(_pick(rng, (1, 1, 2, 2, 3, 5, 8, n + 3 if n <= 60 else 12)))
    hostile = set(rng.choice(("shape", "cells", "target", "container", "y container", "extra"), num_hostile).tolist())
    plain = _pick(rng, PLAIN)(rng, n, d)
    latent = np.tanh(plain @ rng.normal(size=d) / max(d, 1) ** 0.5) + 0.3 * rng.normal(size=n)
    x = _pick(rng, SCALES)(rng, plain) if rng.random() < 0.4 else plain
    if "shape" in hostile:
        x = _pick(rng, SHAPES)(rng, x)
    if "cells" in hostile:
        x = _pick(rng, CELLS)(rng, x.astype(np.float64))
    if labels:
        num_classes = min(int(_pick(rng, (2, 2, 2, 3, 4))), n)
        place = np.argsort(np.argsort(latent)) * num_classes // n
        y = _pick(rng, LABELS)(rng, place) if "target" in hostile else np.array(["low", "high", "mid", "top"])[place]
    else:
        y = _pick(rng, TARGETS)(rng, latent) if "target" in hostile else latent
    rows = np.array(x, dtype=np.float64, ndmin=2)
    given, cv = _extra(rng, rows, y) if "extra" in hostile else ({}, "auto")
    if "container" in hostile:
        x = _contained(rng, x, X_CONTAINERS)
    if "y container" in hostile:
        y = _contained(rng, y, Y_CONTAINERS)
    return Case(x, y, given, cv, rows)


def _pick(rng: Rng, choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]


def _contained(rng: Rng, values: Any, containers: tuple[Callable[[Any], Any], ...]) -> Any:
    """The values in something else; as they are where they do not go into it."""
    with np.errstate(all="ignore"):
        try:
            return _pick(rng, containers)(values)
        except (ValueError, TypeError, AttributeError, OverflowError, IndexError, NotImplementedError):
            return values


PLAIN: tuple[Callable[[Rng, int, int], Table], ...] = (
    lambda rng, n, d: rng.normal(size=(n, d)),
    lambda rng, n, d: rng.uniform(size=(n, d)),
    lambda rng, n, d: rng.integers(-3, 4, size=(n, d)).astype(np.float64),
    lambda rng, n, d: rng.standard_cauchy(size=(n, d)),
    lambda rng, n, d: rng.lognormal(0, 3, size=(n, d)),
    lambda rng, n, d: (rng.random((n, d)) < 0.5).astype(np.float64),
    lambda rng, n, d: np.arange(n)[:, None] + 0.1 * rng.normal(size=(n, d)),
)
SCALES: tuple[Callable[[Rng, Table], Table], ...] = (
    lambda rng, x: x * 10.0 ** rng.uniform(-300, 300),
    lambda rng, x: x * 10.0 ** rng.uniform(-140, 140),
    lambda rng, x: x * 10.0 ** rng.uniform(-12, 12),
    lambda rng, x: x * 10.0 ** rng.uniform(-100, 100, x.shape[1]),
    lambda rng, x: x + 10.0 ** rng.uniform(0, 18),
    lambda rng, x: 1 + 1e-13 * x,
    lambda rng, x: x * 5e-324,
    lambda rng, x: np.clip(x, -1.7, 1.7) * 1e308,
    lambda rng, x: np.round(x * 1000).astype(np.int64),
)
SHAPES: tuple[Callable[[Rng, Table], Table], ...] = (
    lambda rng, x: x[:, :1],
    lambda rng, x: np.zeros_like(x),
    lambda rng, x: np.full_like(x, 7),
    lambda rng, x: np.column_stack([x, np.full(len(x), 3.0)]),
    lambda rng, x: np.column_stack([x, x, x]),
    lambda rng, x: x[np.arange(len(x)) // 2],
    lambda rng, x: x[rng.integers(0, max(1, len(x) // 5), len(x))],
    lambda rng, x: np.sort(x, axis=0),
    lambda rng, x: np.column_stack([x, x @ np.ones(x.shape[1])]),
    lambda rng, x: np.tile(x, (1, 1 + 40 // x.shape[1])),
    lambda rng, x: np.where(np.arange(len(x))[:, None] == 0, x, x[-1:]),
)
CELLS: tuple[Callable[[Rng, Table], Table], ...] = (
    *((lambda rng, x, cell=cell: _with_cell(rng, x, cell)) for cell in (np.nan, np.inf, -np.inf, 1e308, -1e160, 1e20, 1e-320)),
    lambda rng, x: np.where(rng.random(x.shape) < 0.3, np.nan, x),
    lambda rng, x: np.full_like(x, np.nan),
    lambda rng, x: np.where(rng.random(x.shape) < 0.9, 0.0, x),
)


def _with_cell(rng: Rng, values: Table, cell: float) -> Table:
    found = values.astype(np.float64)
    found.flat[int(rng.integers(found.size))] = cell
    return found


TARGETS: tuple[Callable[[Rng, Table], Any], ...] = (
    lambda rng, y: np.zeros_like(y),
    lambda rng, y: np.full_like(y, -1e9),
    lambda rng, y: np.round(3 * y),
    lambda rng, y: np.round(3 * y).astype(np.int8),
    lambda rng, y: y > 0,
    lambda rng, y: y * 10.0 ** rng.uniform(-300, 300),
    lambda rng, y: y * 10.0 ** rng.uniform(-140, 140),
    lambda rng, y: y + 10.0 ** rng.uniform(3, 17),
    lambda rng, y: np.exp(20 * y),
    lambda rng, y: np.sign(y) * np.abs(y) ** 60,
    lambda rng, y: rng.standard_cauchy(len(y)),
    lambda rng, y: np.where(np.arange(len(y)) == 0, 1e12, y),
    lambda rng, y: np.where(np.arange(len(y)) == 0, 1.0, 0.0),
    lambda rng, y: _with_cell(rng, y, float(_pick(rng, (np.nan, np.inf, -np.inf, 1e308, 1e200)))),
    lambda rng, y: y[:, None],
    lambda rng, y: np.column_stack([y, -y]),
    lambda rng, y: np.column_stack([y, np.zeros(len(y)), rng.normal(size=len(y))]),
    lambda rng, y: np.column_stack([y, 1e100 * y, 1e-100 * y]),
    lambda rng, y: y[:, None, None],
    lambda rng, y: y[:-1],
    lambda rng, y: y[:0],
    lambda rng, y: None,
    lambda rng, y: np.array([f"{value:.3f}" for value in y]),
    lambda rng, y: np.array(["a", *y[1:].tolist()], dtype=object),
    lambda rng, y: np.array([None, *y[1:].tolist()], dtype=object),
    lambda rng, y: y + 0j,
    lambda rng, y: 3.0,
)


def _named(*names: Any, dtype: Any = None) -> Callable[[Rng, Table], Table]:
    """Labels by the place of their class."""
    return lambda rng, place: np.array([names[k % len(names)] for k in place], dtype=dtype)


LABELS: tuple[Callable[[Rng, Table], Any], ...] = (
    _named(True, False),
    _named(-1, -5, 3, 0),
    _named(2**63 - 1, -(2**63), 0, 1),
    _named(0.0, 1.0, 2.0, 3.0),
    _named(0.5, 1.5, 2.5, 3.5),
    _named("ä", "名", "🍎", "🥝"),
    _named("é", "e\u0301", "", " "),
    _named("\x1b[31mred", "\x1b]0;x\x07", "\0", "a\nb"),
    _named("x" * 10_000, "x" * 10_000 + "y", "y", "z"),
    _named("nan", "None", "1", "inf"),
    _named("a", "b", "c", "d", dtype=object),
    _named(1, "a", 2.5, True, dtype=object),
    _named(1, "1", 2, "2", dtype=object),
    _named(None, "a", "b", "c", dtype=object),
    _named(float("nan"), "a", "b", "c", dtype=object),
    _named(float("nan"), 1.0, 2.0, 3.0),
    _named(float("inf"), 1.0, 2.0, 3.0),
    _named(b"a", b"b", b"c", b"d"),
    _named(3, 1, 2, 0, dtype=np.int8),
    _named(200, 1, 2, 0, dtype=np.uint64),
    _named(np.datetime64("2024-01-01"), np.datetime64("2024-01-02"), np.datetime64("NaT"), np.datetime64("2025-01-01")),
    _named("only"),
    lambda rng, place: np.where(np.arange(len(place)) == 0, "lonely", "common"),
    lambda rng, place: np.arange(len(place)),
    lambda rng, place: np.array([f"v{k}" for k in rng.permutation(len(place))]),
    lambda rng, place: np.array(["a", "b"])[rng.integers(0, 2, len(place))],
    lambda rng, place: np.eye(4, dtype=int)[place],
    lambda rng, place: place[:, None],
    lambda rng, place: np.column_stack([place, place]),
    lambda rng, place: place[:-1],
    lambda rng, place: place[:0],
    lambda rng, place: None,
    lambda rng, place: [(int(k),) for k in place],
    lambda rng, place: [[int(k)] * (1 + int(k)) for k in place],
    lambda rng, place: place + 0j,
    lambda rng, place: "one word",
)
X_CONTAINERS: tuple[Callable[[Any], Any], ...] = (
    lambda x: x.tolist(),
    lambda x: tuple(map(tuple, x.tolist())),
    np.asfortranarray,
    lambda x: _read_only(x.copy()),
    lambda x: np.repeat(x, 2, axis=0)[::2],
    lambda x: x[::-1][::-1],
    lambda x: x.astype(np.float32),
    lambda x: x.astype(np.float16),
    lambda x: x.astype(np.longdouble),
    lambda x: x.astype(">f8"),
    lambda x: x.astype(np.int8),
    lambda x: x.astype(np.bool_),
    lambda x: x.astype(object),
    lambda x: x.astype(str),
    lambda x: x + 0j,
    lambda x: np.array([[*row[:-1], "word"] for row in x.tolist()], dtype=object),
    lambda x: np.array([[*row[:-1], None] for row in x.tolist()], dtype=object),
    lambda x: np.array([[10**400, *row[1:]] for row in x.tolist()], dtype=object),
    lambda x: [row if i else row[:-1] for i, row in enumerate(x.tolist())],
    scipy.sparse.csr_matrix,
    scipy.sparse.coo_array,
    torch.tensor,
    lambda x: torch.tensor(x, dtype=torch.float16),
    lambda x: torch.tensor(x, dtype=torch.float64, requires_grad=True),
    pd.DataFrame,
    lambda x: pd.DataFrame(x, columns=["\x1b[31m" * (j == 0) + f"c{j}" for j in range(x.shape[1])]),
    lambda x: pd.DataFrame(x, columns=["same"] * x.shape[1]),
    lambda x: pd.DataFrame(x).astype("Float64"),
    lambda x: pd.DataFrame(x).astype("category"),
    lambda x: pd.DataFrame(x, index=np.arange(len(x))[::-1] * 7),
    lambda x: np.ma.masked_greater(x, 0.5),
    np.asmatrix,
    lambda x: x.astype("datetime64[s]"),
    lambda x: x[:, 0],
    lambda x: x[:, :, None],
    lambda x: x[:0],
    lambda x: x[:, :0],
    lambda x: x[:1],
    lambda x: x[:2],
    lambda x: x[:3],
    lambda x: np.empty((0, 0)),
    lambda x: [],
    lambda x: None,
    lambda x: 5.0,
    lambda x: iter(x.tolist()),
    lambda x: {"a": x[:, 0]},
)
Y_CONTAINERS: tuple[Callable[[Any], Any], ...] = (
    lambda y: y.tolist(),
    lambda y: tuple(y.tolist()),
    lambda y: _read_only(y.copy()),
    lambda y: np.repeat(y, 2, axis=0)[::2],
    lambda y: y.astype(object),
    lambda y: y.astype(np.float16),
    lambda y: y.astype(">f4"),
    lambda y: torch.tensor(y),
    lambda y: pd.Series(y, index=np.arange(len(y))[::-1]),
    lambda y: pd.Series(y, dtype="category"),
    lambda y: pd.Series(y).convert_dtypes(),
    lambda y: pd.DataFrame({"y": y}),
    lambda y: np.ma.masked_array(y, np.arange(len(y)) % 2 == 0),
    scipy.sparse.csr_matrix,
    lambda y: np.asfortranarray(np.column_stack([y, y])),
    lambda y: set(y.tolist()),
    lambda y: iter(y.tolist()),
    lambda y: dict(enumerate(y.tolist())),
)


def _read_only(values: Table) -> Table:
    values.flags.writeable = False
    return values


def _extra(rng: Rng, x: Table, y: Any) -> tuple[dict[str, Any], Any]:
    """Weights, groups or rows to judge, or another way to judge."""
    kind = rng.integers(4)
    n = len(x)
    if kind == 0:
        return {"sample_weight": _pick(rng, WEIGHTS)(rng, n)}, "auto"
    if kind == 1:
        return {"groups": _pick(rng, GROUPS)(rng, n)}, _pick(rng, ("auto", "auto", 3, "time", GroupKFold(2)))
    if kind == 2:
        return {}, _pick(rng, JUDGES)(rng, n)
    some = rng.integers(0, n, max(1, n // 3))
    near = x[some] * (1 + 0.01 * rng.normal(size=x[some].shape))
    targets = np.asarray(y)[some] if np.ndim(y) and len(y) == n else y
    return {"validation": _pick(rng, VALIDATIONS)(near, targets, (x, y))}, "auto"


WEIGHTS: tuple[Callable[[Rng, int], Any], ...] = (
    lambda rng, n: rng.uniform(size=n),
    lambda rng, n: rng.integers(0, 4, n),
    lambda rng, n: np.where(np.arange(n) < 2, 1.0, 0.0),
    lambda rng, n: np.where(np.arange(n) < 1, 1.0, 0.0),
    lambda rng, n: np.zeros(n),
    lambda rng, n: np.full(n, 1e300),
    lambda rng, n: np.full(n, 1e-300),
    lambda rng, n: np.full(n, 5e-324),
    lambda rng, n: np.full(n, 1.7e308),
    lambda rng, n: 10.0 ** rng.uniform(-300, 300, n),
    lambda rng, n: 10.0 ** rng.uniform(-4, 4, n),
    lambda rng, n: 10.0 ** rng.uniform(290, 297, n),
    lambda rng, n: -rng.uniform(size=n),
    lambda rng, n: np.where(np.arange(n) == 0, np.nan, 1.0),
    lambda rng, n: np.where(np.arange(n) == 0, np.inf, 1.0),
    lambda rng, n: np.ones(n + 1),
    lambda rng, n: np.ones((n, 1)),
    lambda rng, n: [1] * n,
    lambda rng, n: np.arange(n) % 2 == 0,
    lambda rng, n: 2.5,
    lambda rng, n: "balanced",
    lambda rng, n: np.array(["1"] * n),
)
GROUPS: tuple[Callable[[Rng, int], Any], ...] = (
    lambda rng, n: rng.integers(0, 3, n),
    lambda rng, n: np.arange(n),
    lambda rng, n: np.arange(n) // 2,
    lambda rng, n: np.zeros(n),
    lambda rng, n: np.array(["ä", "b\x1b", ""])[rng.integers(0, 3, n)],
    lambda rng, n: np.array([None, "a", 3], dtype=object)[rng.integers(0, 3, n)],
    lambda rng, n: np.array([1, "a"], dtype=object)[rng.integers(0, 2, n)],
    lambda rng, n: np.array([np.nan, 1.0, 2.0])[rng.integers(0, 3, n)],
    lambda rng, n: rng.integers(0, 3, n).tolist(),
    lambda rng, n: rng.integers(0, 3, n + 1),
    lambda rng, n: rng.integers(0, 3, (n, 2)),
    lambda rng, n: pd.Series(rng.integers(0, 3, n), dtype="category"),
    lambda rng, n: [(int(k), 1) for k in rng.integers(0, 3, n)],
    lambda rng, n: "patient",
    lambda rng, n: 7,
)
JUDGES: tuple[Callable[[Rng, int], Any], ...] = (
    *((lambda rng, n, cv=cv: cv) for cv in (2, 3, 10, 1, 0, -2, 2.5, 10**9, True, None, "time", "tiem", [], [[0, 1]], "5")),
    lambda rng, n: n,
    lambda rng, n: KFold(3, shuffle=True, random_state=0),
    lambda rng, n: StratifiedKFold(2),
    lambda rng, n: TimeSeriesSplit(3),
    lambda rng, n: LeaveOneOut() if n < 20 else KFold(n // 4),
    lambda rng, n: GroupKFold(2),
    lambda rng, n: [(np.arange(n // 2), np.arange(n // 2, n))],
    lambda rng, n: [(np.arange(n // 2, n), np.arange(n // 2)), (np.arange(n // 2), np.arange(n // 2, n))],
    lambda rng, n: [(np.arange(n), np.arange(n))],
    lambda rng, n: [(np.arange(n // 2), np.arange(n // 2, n + 5))],
    lambda rng, n: [(np.arange(n) < n // 2, np.arange(n) >= n // 2)],
    lambda rng, n: [(np.arange(n // 2), np.array([], dtype=int))],
    lambda rng, n: [(np.array([], dtype=int), np.arange(n))],
    lambda rng, n: [(np.arange(n // 2) + 0.5, np.arange(n // 2, n))],
    lambda rng, n: [("a", "b")],
    lambda rng, n: [(np.arange(n // 2), -np.arange(1, n // 2 + 1))],
    lambda rng, n: iter([(np.arange(n // 2), np.arange(n // 2, n))]),
)
# Of rows near the training rows and their targets, and of the training rows.
VALIDATIONS: tuple[Callable[[Table, Any, tuple[Table, Any]], Any], ...] = (
    *(lambda x, y, training: (x, y),) * 4,
    lambda x, y, training: [x.tolist(), y],
    lambda x, y, training: training,
    lambda x, y, training: (x[:1], y[:1]),
    lambda x, y, training: (x[:0], y[:0]),
    lambda x, y, training: (np.column_stack([x, x]), y),
    lambda x, y, training: (x * np.nan, y),
    lambda x, y, training: (x * 1e200, y),
    lambda x, y, training: (x, y[:-1]),
    lambda x, y, training: (x, np.array(["unknown"] * len(x))),
    lambda x, y, training: (x, np.full(len(x), np.nan)),
    lambda x, y, training: (x, np.full(len(x), 1e200)),
    lambda x, y, training: (x, None),
    lambda x, y, training: (x, y, y),
    lambda x, y, training: {"x": x},
    lambda x, y, training: x,
    lambda x, y, training: 0.2,
)
