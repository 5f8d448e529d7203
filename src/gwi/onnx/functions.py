"""Functions that ONNX does not have in double precision, and functions of one number by tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gwi.onnx.graph import Graph, Operand, Value

# Of erf below one, and of erfc from one to eight and beyond: the rational functions of Cephes (Moshier, 1984), to 16 digits.
_ERF = (
    (
        9.60497373987051638749e0,
        9.00260197203842689217e1,
        2.23200534594684319226e3,
        7.00332514112805075473e3,
        5.55923013010394962768e4,
    ),
    (
        1.0,
        3.35617141647503099647e1,
        5.21357949780152679795e2,
        4.59432382970980127987e3,
        2.26290000613890934246e4,
        4.92673942608635921086e4,
    ),
)
_MIDDLE = (
    (
        2.46196981473530512524e-10,
        5.64189564831068821977e-1,
        7.46321056442269912687e0,
        4.86371970985681366614e1,
        1.96520832956077098242e2,
        5.26445194995477358631e2,
        9.34528527171957607540e2,
        1.02755188689515710272e3,
        5.57535335369399327526e2,
    ),
    (
        1.0,
        1.32281951154744992508e1,
        8.67072140885989742329e1,
        3.54937778887819891062e2,
        9.75708501743205489753e2,
        1.82390916687909736289e3,
        2.24633760818710981792e3,
        1.65666309194161350182e3,
        5.57535340817727675546e2,
    ),
)
_FAR = (
    (
        5.64189583547755073984e-1,
        1.27536670759978104416e0,
        5.01905042251180477414e0,
        6.16021097993053585195e0,
        7.40974269950448939160e0,
        2.97886665372100240670e0,
    ),
    (
        1.0,
        2.26052863220117276590e0,
        9.39603524938001434673e0,
        1.20489539808096656605e1,
        1.70814450747565897222e1,
        9.60896809063285878198e0,
        3.36907645100081516050e0,
    ),
)
# Beyond, erfc is zero.
_MOST = 27.0
# Of polynomials on the pieces of a table; how often pieces are halved, how many there are at a time, and the error wanted.
DEGREE, MOST_HALVINGS, MOST_PIECES, WITHIN = 10, 18, 500, 1e-11


def polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """By Horner's rule, the highest power first."""
    found: Operand = float(coefficients[0])
    for coefficient in coefficients[1:]:
        found = x * found + float(coefficient)
    assert isinstance(found, Value)
    return found


def half_erfc(g: Graph, a: Value) -> tuple[Value, Value]:
    """½ erfc(a) for a ≥ 0, and whether it is the difference of ½ and something smaller."""
    small = a.most(1.0)
    square = small.square()
    inner = 0.5 - small * polynomial(square, _ERF[0]) / polynomial(square, _ERF[1]) * 0.5
    middle, far = a.clip(1.0, 8.0), a.clip(8.0, _MOST)
    ratio = g.where(
        a < 8.0,
        polynomial(middle, _MIDDLE[0]) / polynomial(middle, _MIDDLE[1]),
        polynomial(far, _FAR[0]) / polynomial(far, _FAR[1]),
    )
    near = a < 1.0
    return g.where(near, inner, (-a.most(_MOST).square()).exp() * ratio * 0.5), near


def normal_cumulative(g: Graph, z: Value) -> Value:
    """Φ, with all digits where it is small."""
    tail, _ = half_erfc(g, z.abs() * (0.5**0.5))
    return g.where(z < 0.0, tail, 1.0 - tail)


def expm1(g: Graph, x: Value) -> Value:
    """eˣ − 1, with all digits where x is small."""
    t = g.op("Tanh", x.most(1.0) * 0.5)
    return g.where(x < 1.0, t * 2.0 / (1.0 - t), x.exp() - 1.0)


class Table:
    """Several functions of one number by polynomials on pieces of an interval, as short as it takes.

    Args:
        function: from (n,) places to (n, K) values.
        low: the least place.
        high: the largest.
        size: of what the values are a part at these places: errors are looked at beside it. One unless given.
    """

    def __init__(
        self,
        function: Callable[[NDArray[Any]], NDArray[Any]],
        low: float,
        high: float,
        size: Callable[[NDArray[Any]], NDArray[Any]] = np.ones_like,
    ):
        nodes = np.cos(np.pi * (np.arange(DEGREE + 1) + 0.5) / (DEGREE + 1))
        tests = np.linspace(-0.97, 0.97, 7)
        places = np.concatenate([nodes, tests])
        fit, powers = np.linalg.inv(np.vander(nodes, DEGREE + 1, increasing=True)), np.vander(tests, DEGREE + 1, increasing=True)
        pieces, done = np.array([[low, (low + high) / 2], [(low + high) / 2, high]]), []
        for halving in range(MOST_HALVINGS + 1):
            middle, half = pieces.mean(1), (pieces[:, 1] - pieces[:, 0]) / 2
            at = middle[:, None] + half[:, None] * places
            values = function(at.ravel()).reshape(*at.shape, -1)
            coefficients, seen = fit @ values[:, : len(nodes)], values[:, len(nodes) :]
            whole = size(at[:, len(nodes) :])[..., None] + np.abs(seen)
            error = (np.abs(powers @ coefficients - seen) / whole).max((1, 2))
            good = (error <= WITHIN) | (halving == MOST_HALVINGS) | (len(pieces) > MOST_PIECES)
            done += [(piece[0], piece[1], part) for piece, part, ok in zip(pieces, coefficients, good, strict=True) if ok]
            rest, centre = pieces[~good], middle[~good]
            pieces = np.concatenate([np.stack([rest[:, 0], centre], 1), np.stack([centre, rest[:, 1]], 1)])
            if not len(pieces):
                break
        done.sort(key=lambda piece: piece[0])
        self.low, self.high = low, high
        self.starts, self.ends = (np.array([piece[i] for piece in done]) for i in (0, 1))
        # Axes: piece, function, power.
        self.coefficients = np.stack([piece[2].T for piece in done])

    def at(self, g: Graph, x: Value) -> Value:
        """The values at the places of x, (N, 1); (N, K)."""
        x = x.clip(self.low, self.high)
        place = (x >= self.starts[None, 1:]).cast(np.int64).sum(1)
        middle, half = (self.starts + self.ends) / 2, (self.ends - self.starts) / 2
        own = g.op("Gather", g.constant(np.stack([middle, half], 1)), place, axis=0)
        t = (x - own.columns(0, 1)) / own.columns(1, 2)
        powers = g.op("Pow", t, np.arange(DEGREE + 1.0)[None]).new_axis(2)
        return (g.op("Gather", g.constant(self.coefficients), place, axis=0) @ powers).without_axis(2)
