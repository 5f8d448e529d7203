"""Expectations of any likelihood of one number under f ~ N(m, v), by rules that are exact to floating point where they can be.

Integrands are analytic and fall like the normal law or faster: the trapezoidal rule converges exponentially, once its step is
shorter than the distance over which the likelihood changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from gwi.core.likelihoods.families import Family
from gwi.core.linalg import LOG_TWO_PI

# Nodes lie apart by this share of f at least.
LEAST_SPREAD = 1e-6
# Standard deviations at which a normal law is cut; the step in them, and as a share of the likelihood's width.
REACH, NORMAL_STEP, WIDTH_STEP = 8.5, 0.6, 0.35
FEWEST_NODES, MOST_NODES = 30, 3000
# Numbers held in one array at a time.
MOST_NUMBERS = 4_000_000
# Steps of Newton's method to the mode of p(y | f) N(f), nodes over it, and the fall of its logarithm where it is cut.
NEWTON_STEPS, MODE_NODES, FALL, BRACKET_STEPS = 30, 160, 40.0, 16
# Of standard deviations a step that is the last.
ARRIVED = 1e-7


def node_rule(std: Float[Tensor, " N"], width: Float[Tensor, " N"]) -> tuple[Float[Tensor, " K"], Float[Tensor, " K"]]:
    """Nodes in standard deviations and weights that add up to one, close enough for every one of these rows."""
    step = min(NORMAL_STEP, WIDTH_STEP / max(float((std / width).max()), 1e-12))
    count = min(max(FEWEST_NODES, 2 * math.ceil(REACH / step)), MOST_NODES) + 1
    nodes = torch.linspace(-REACH, REACH, count, dtype=std.dtype, device=std.device)
    weights = (-nodes.square() / 2).exp()
    return nodes, weights / weights.sum()


def groups_of_rows(std: Float[Tensor, " N"], width: Float[Tensor, " N"]) -> list[Tensor]:
    """Rows that ask for like numbers of nodes, so many at a time as fit into memory."""
    order = (std / width).argsort()
    found, start = [], 0
    while start < len(order):
        ratio = float((std / width)[order[min(start + 4096, len(order)) - 1]])
        nodes = min(MOST_NODES, max(FEWEST_NODES, 2 * REACH * max(ratio / WIDTH_STEP, 1 / NORMAL_STEP)))
        size = max(1, min(4096, int(MOST_NUMBERS / nodes)))
        found.append(order[start : start + size])
        start += size
    return found


def gaussian_expectation(
    function: Callable[[Tensor, Tensor], Tensor], mean: Float[Tensor, " N"], variance: Float[Tensor, " N"], width: Any
) -> Float[Tensor, " N"]:
    """E h(f) of each row; h takes f of shape (n, K) and the places of the n rows. Differentiable in mean and variance."""
    std = variance.clamp_min(torch.finfo(variance.dtype).tiny).sqrt()
    wide = torch.as_tensor(width, dtype=mean.dtype, device=mean.device).expand_as(mean).detach()
    parts, places = [], groups_of_rows(std.detach(), wide)
    for rows in places:
        nodes, weights = node_rule(std.detach()[rows], wide[rows])
        parts.append(function(mean[rows, None] + std[rows, None] * nodes, rows) @ weights)
    return torch.cat(parts)[torch.cat(places).argsort()] if parts else mean


def expected_log_prob(
    family: Family,
    y: Float[Tensor, "*C N"],
    mean: Float[Tensor, " N"],
    variance: Float[Tensor, " N"],
    phi: Float[Tensor, " N"],
) -> Float[Tensor, " N"]:
    """E log p(y | f, φ) of each row  [eq:ELL]: in closed form where the family has one."""
    if hasattr(family, "expected"):
        return family.expected(y, mean, variance, phi)
    width = torch.as_tensor(family.width(torch.zeros_like(mean) if family.num_columns > 1 else y, phi)).clamp_min(0.3)
    return gaussian_expectation(lambda f, rows: family.log_prob(y[..., rows, None], f, phi[rows, None]), mean, variance, width)


@torch.no_grad()
def _mode(family: Family, y: Tensor, mean: Tensor, variance: Tensor, phi: Tensor) -> tuple[Tensor, Tensor]:
    """Where p(y | f) N(f; m, v) is largest, and 1/√ of minus the second derivative of its logarithm there, nearly."""
    v = variance.clamp_min(torch.finfo(variance.dtype).tiny)

    def value(at: Tensor) -> Tensor:
        return family.log_prob(y, at, phi) - (at - mean).square() / (2 * v)

    # From where y is likely, or where f is, whichever is better: from the other one Newton's steps may be far too long.
    near = family.working(y).clamp(mean - REACH * v.sqrt(), mean + REACH * v.sqrt())
    f = torch.where(value(near) > value(mean), near, mean)
    now = value(f)
    for _ in range(NEWTON_STEPS):
        precision = 1 / v + family.curvature(y, f, phi)
        step = (family.score(y, f, phi) - (f - mean) / v) / precision
        # Of a row that has arrived rounding says whether a step is for the better.
        going = step.abs() * precision.sqrt() > ARRIVED
        if not going.any():
            break
        share = torch.ones_like(step)
        for _ in range(12):
            new = value(f + share * step)
            worse = going & ~(new >= now)
            if not worse.any():
                break
            share = torch.where(worse, share / 3, share)
        better = new >= now
        f, now = torch.where(better, f + share * step, f), torch.where(better, new, now)
    return f, (1 / v + family.curvature(y, f, phi)).rsqrt()


def resolved(mean: Float[Tensor, " N"], variance: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
    """The variance, no smaller than nodes around the mean can be told apart in floating point; f is as good as known then."""
    return torch.maximum(variance, (LEAST_SPREAD * (1 + mean.abs())).square())


def log_marginal(
    family: Family,
    y: Float[Tensor, "*C N"],
    mean: Float[Tensor, " N"],
    variance: Float[Tensor, " N"],
    phi: Float[Tensor, " N"],
    *,
    num_nodes: int = 0,
) -> Float[Tensor, " N"]:
    """log ∫ p(y | f, φ) N(f; m, v) df of each row: the logarithm of the predictive density. Differentiable.

    Nodes lie around the mode of the integrand, so that a likelihood much narrower than N(m, v) is met too.

    Args:
        family: of y.
        y: targets.
        mean: of f.
        variance: of f.
        phi: dispersion.
        num_nodes: a few for speed, in the rule of Gauss and Hermite; zero for as many as give all digits.
    """
    if hasattr(family, "closed_log_marginal"):
        return family.closed_log_marginal(y, mean, variance, phi)
    v = resolved(mean, variance)
    parts = []
    for rows in torch.arange(len(mean), device=mean.device).split(max(1, MOST_NUMBERS // (num_nodes or MODE_NODES))):
        some = (y[..., rows], mean[rows], v[rows], phi[rows])
        mode, scale = _mode(family, *(part.detach() for part in some))
        nodes, log_weights = _few_nodes(mode, scale, num_nodes) if num_nodes else _many_nodes(family, some, mode)
        values, centre, spread, dispersion = some
        log_p = family.log_prob(values[..., None], nodes, dispersion[:, None])
        log_normal = -(LOG_TWO_PI + spread.log())[:, None] / 2 - (nodes - centre[:, None]).square() / (2 * spread[:, None])
        parts.append((log_p + log_normal + log_weights).logsumexp(-1))
    return torch.cat(parts) if parts else mean


def _few_nodes(mode: Tensor, scale: Tensor, count: int) -> tuple[Tensor, Tensor]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    z, w = mode.new_tensor(nodes), mode.new_tensor(weights)
    return mode[:, None] + scale[:, None] * z, (w.log() + z.square() / 2) + scale[:, None].log()


@torch.no_grad()
def _many_nodes(family: Family, some: tuple[Tensor, ...], mode: Tensor) -> tuple[Tensor, Tensor]:
    """The trapezoidal rule between the two places where the integrand has fallen to nothing."""
    y, mean, v, phi = some

    def fall(f: Tensor) -> Tensor:
        return top - family.log_prob(y, f, phi) + (f - mean).square() / (2 * v)

    top = family.log_prob(y, mode, phi) - (mode - mean).square() / (2 * v)
    ends = []
    for side in (-1.0, 1.0):
        near, far = torch.zeros_like(mode), (2 * FALL * v).sqrt() + (mode - mean).abs()
        for _ in range(BRACKET_STEPS):
            middle = (near + far) / 2
            inside = fall(mode + side * middle) < FALL
            near, far = torch.where(inside, middle, near), torch.where(inside, far, middle)
        ends.append(far)
    below, above = ends
    share = torch.linspace(0, 1, MODE_NODES, dtype=mode.dtype, device=mode.device)
    nodes = (mode - below)[:, None] + (below + above)[:, None] * share
    return nodes, ((below + above) / (MODE_NODES - 1)).log()[:, None].expand_as(nodes)


class NodesAtModes:
    """A few nodes at the mode of each row's p(y | f) N(f), for searches that change m, v and φ a little.

    In standard deviations of f they stay where they are, so that they move along with m and v.

    Args:
        family: of y.
        y: targets.
        mean: of f.
        variance: of f.
        phi: dispersion.
        count: nodes a row.
    """

    @torch.no_grad()
    def __init__(self, family: Family, y: Tensor, mean: Tensor, variance: Tensor, phi: Tensor, count: int = 12):
        self.family, self.y = family, y
        v = resolved(mean, variance)
        nodes, log_weights = _few_nodes(*_mode(family, y, mean, v, phi), count)
        self.z = (nodes - mean[:, None]) / v.sqrt()[:, None]
        self.log_weights = log_weights - (self.z.square() + LOG_TWO_PI + v.log()[:, None]) / 2

    def log_marginal(self, mean: Tensor, variance: Tensor, phi: Tensor) -> Float[Tensor, " N"]:
        """log ∫ p(y | f, φ) N(f; m, v) df of each row, differentiable."""
        std = resolved(mean, variance).sqrt()
        log_p = self.family.log_prob(self.y[..., None], mean[:, None] + std[:, None] * self.z, phi[:, None])
        return (log_p + self.log_weights).logsumexp(-1)


class LinkedLikelihood(nn.Module):
    """A likelihood of one number as the generalized loss takes it, with its dispersion as a parameter.

    Args:
        family: p(y | f, φ).
        dispersion: φ to start from.
    """

    def __init__(self, family: Family, dispersion: float = 1.0):
        super().__init__()
        if not dispersion > 0:
            raise ValueError(f"A dispersion is positive; got {dispersion:.3g}.")
        self.family = family
        start = torch.tensor(math.log(dispersion), dtype=torch.float64)
        self.log_dispersion = nn.Parameter(start, requires_grad=family.has_dispersion)

    def _phi(self, mean: Tensor) -> Tensor:
        return self.log_dispersion.exp().expand_as(mean[0])

    def expected_log_likelihood(
        self, y: Float[Tensor, "*J N"], mean: Float[Tensor, "1 N"], variance: Float[Tensor, "1 N"], x: Any = None
    ) -> Float[Tensor, " N"]:
        """E log p(y | f) of each row."""
        return expected_log_prob(self.family, self._columns(y), mean[0], variance[0], self._phi(mean))

    def nll(
        self, y: Float[Tensor, "*J N"], mean: Float[Tensor, "1 N"], variance: Float[Tensor, "1 N"], x: Any = None
    ) -> Float[Tensor, " N"]:
        """−log of the predictive density of each row."""
        return -log_marginal(self.family, self._columns(y), mean[0], variance[0], self._phi(mean))

    def _columns(self, y: Tensor) -> Tensor:
        return y if y.ndim == 1 or self.family.num_columns > 1 else y[0]
