"""What the page asks for in one dimension: points, and the choices that say what is fitted to them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gwi.exceptions import UserError

FEWEST_POINTS, MOST_POINTS, MOST_INDUCING = 3, 200, 100
# The numbers of a page have no more digits, and are no larger.
LARGEST = 1e6
# What the page may choose: the word it sends, and the word it shows.
MEANS = {"gp": "Gaussian process", "network": "network", "trees": "boosted trees", "line": "straight line"}
KERNELS = {
    "rbf": "squared exponential",
    "matern52": "Matérn 5/2, less smooth",
    "matern32": "Matérn 3/2, rough",
    "rq": "rational quadratic",
}
COVARIANCES = {
    "auto": "automatic",
    "wasserstein": "Wasserstein-optimal",
    "titsias": "of an exact GP (Titsias)",
    "box": "Wasserstein, data and beyond",
    "trained": "trained",
    "zero": "none at the inducing points",
}
LIKELIHOODS = {
    "gaussian": "Gaussian",
    "varying": "Gaussian, varying noise",
    "student-t": "Student's t: far values",
    "log-normal": "log-normal: positive numbers",
    "poisson": "Poisson: counts",
}


@dataclass(frozen=True)
class Held:
    """The scales of a kernel that was fitted before, on standardised points; while a point moves they stay.

    Attributes:
        lengthscale: of the kernel.
        outputscale: variance of the prior.
        alpha: of a rational quadratic kernel; None of others.
    """

    lengthscale: float
    outputscale: float
    alpha: float | None = None


@dataclass(frozen=True)
class Asked:
    """Points, and what is to be fitted to them.

    Attributes:
        x: of the points.
        y: of the points.
        window: the least and the largest x that is drawn.
        mean: one of `MEANS`.
        kernel: one of `KERNELS`.
        lengthscale: of the kernel, in the unit of x; None where it is fitted.
        covariance: one of `COVARIANCES`.
        weight: β, of the divergence; None for the matched one.
        num_inducing: M; None for every point.
        likelihood: one of `LIKELIHOODS`.
        moving: whether a point is being moved: a picture at once counts more than the last digit.
        held: the kernel's scales, where it stays while a point moves.
    """

    x: tuple[float, ...]
    y: tuple[float, ...]
    window: tuple[float, float]
    mean: str = "gp"
    kernel: str = "rbf"
    lengthscale: float | None = None
    covariance: str = "auto"
    weight: float | None = None
    num_inducing: int | None = None
    likelihood: str = "gaussian"
    moving: bool = False
    held: Held | None = None


def asked_of(node: Any) -> Asked:
    """What a JSON body asks for.

    Raises:
        UserError: saying what cannot be fitted, or what is none of the page's.
    """
    if not isinstance(node, Mapping):
        raise UserError("The request must be one JSON object with points and choices.")
    points = node.get("points")
    if not isinstance(points, list) or not all(isinstance(point, list) and len(point) == 2 for point in points):
        raise UserError("points must be a list of pairs [x, y].")
    if len(points) > MOST_POINTS:
        raise UserError(f"There are {len(points)} points; the page takes up to {MOST_POINTS}. For more use Python or `gwi fit`.")
    x = tuple(_number(point[0], "x of a point") for point in points)
    y = tuple(_number(point[1], "y of a point") for point in points)
    if len(set(x)) < FEWEST_POINTS:
        raise UserError(f"Add points at {FEWEST_POINTS} or more different places; there are {len(set(x))}.")
    window = node.get("window")
    if not isinstance(window, list) or len(window) != 2:
        raise UserError("window must be a pair: the smallest and the largest x to draw.")
    low, high = (_number(end, "window") for end in window)
    if not low < high:
        raise UserError("The first number of window must be the smaller one.")
    count = _positive(node, "num_inducing")
    if count is not None and not (count == int(count) and count <= MOST_INDUCING):
        raise UserError(f"num_inducing must be a whole number up to {MOST_INDUCING}; got {count:g}.")
    return Asked(
        x,
        y,
        (low, high),
        mean=_choice(node, "mean", MEANS),
        kernel=_choice(node, "kernel", KERNELS),
        lengthscale=_positive(node, "lengthscale"),
        covariance=_choice(node, "covariance", COVARIANCES),
        weight=_positive(node, "weight"),
        num_inducing=None if count is None else int(count),
        likelihood=_choice(node, "likelihood", LIKELIHOODS),
        moving=node.get("moving") is True,
        held=_held(node.get("held")),
    )


def _number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or abs(value) > LARGEST:
        raise UserError(f"{what} must be a number between -{LARGEST:g} and {LARGEST:g}.")
    return float(value)


def _positive(node: Mapping[str, Any], name: str) -> float | None:
    if node.get(name) is None:
        return None
    value = _number(node[name], name)
    if value < 1 / LARGEST:
        raise UserError(f"{name} must be a positive number, or left out; got {value:g}.")
    return value


def _choice(node: Mapping[str, Any], name: str, known: Mapping[str, str]) -> str:
    value = node.get(name, next(iter(known)))
    if not isinstance(value, str) or value not in known:
        raise UserError(f"{name} must be one of {', '.join(known)}.")
    return value


def _held(node: Any) -> Held | None:
    if not isinstance(node, Mapping):
        return None
    lengthscale, outputscale, alpha = (_positive(node, name) for name in ("lengthscale", "outputscale", "alpha"))
    return None if lengthscale is None or outputscale is None else Held(lengthscale, outputscale, alpha)
