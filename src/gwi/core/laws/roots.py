"""Where an increasing function of one number for each row crosses zero."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from gwi._typing import Array

MOST_STEPS = 200


def increasing_root(
    function: Callable[[Array], Array], low: Float[Array, " N"], high: Float[Array, " N"], within: float = 0.0
) -> Float[Array, " N"]:
    """The root between two ends at each row, by inverse quadratic interpolation or halving (Chandrupatla, 1997).

    Where the function has one sign only, the end that is nearer to a root.

    Args:
        function: of a number for each row.
        low: the lower end.
        high: the upper end.
        within: values so small count as zero.
    """
    a, b, fa, fb = high, low, function(high), function(low)
    outside = np.where(fb >= 0, low, np.where(fa <= 0, high, np.nan))
    c, fc = a, fa
    share = np.full(len(low), 0.5)
    best = np.where(np.abs(fa) < np.abs(fb), a, b)
    for _ in range(MOST_STEPS):
        x = a + share * (b - a)
        fx = function(x)
        same = np.sign(fx) == np.sign(fa)
        c, fc = np.where(same, a, b), np.where(same, fa, fb)
        b, fb = np.where(same, b, a), np.where(same, fb, fa)
        a, fa = x, fx
        best, least = np.where(np.abs(fa) < np.abs(fb), a, b), np.minimum(np.abs(fa), np.abs(fb))
        tolerance = 2 * np.finfo(np.float64).eps * np.abs(best) + np.finfo(np.float64).tiny
        with np.errstate(all="ignore"):
            nearest = tolerance / np.abs(b - a)
            if ((nearest > 0.5) | (least <= within) | (a == b) | ~np.isnan(outside)).all():
                break
            xi, phi = (a - b) / (c - b), (fa - fb) / (fc - fb)
            curved = fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
            is_smooth = (np.square(phi) < xi) & (np.square(1 - phi) < 1 - xi) & np.isfinite(curved)
            nearest = np.minimum(np.nan_to_num(nearest, nan=0.5, posinf=0.5), 0.5)
            share = np.clip(np.where(is_smooth, curved, 0.5), nearest, 1 - nearest)
    return np.where(np.isnan(outside), best, outside)
