"""Kernels known by name, in closed form and at points that stay where they are: what predictions evaluate.

GPyTorch's kernels are built for training: each call divides the points by the length-scales again, finds distances in general
ways, and passes through objects that put work off. At rest one matrix product and one pass over its result are enough.
"""

from __future__ import annotations

import copy
import math
from typing import Literal

import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, RQKernel, ScaleKernel
from jaxtyping import Float
from torch import Tensor, nn

Shape = Literal["rbf", "matern12", "matern32", "matern52", "rq"]

_LOG2_E = math.log2(math.e)
_MATERN: dict[float, Shape] = {0.5: "matern12", 1.5: "matern32", 2.5: "matern52"}
# Above this many columns differences are many times slower than a matrix product, and rows are too far apart for a nearly
# singular k(Z, Z); squares from the product are then taken up to the second number.
MANY_COLUMNS, FARTHEST = 20, 5000.0


class ClosedKernel(nn.Module):
    """k_Z(x)/σ_f² of a named kernel, one row for each row of x.

    Args:
        shape: of the kernel.
        points: Z.
        lengthscale: of each column, or of all.
        outputscale: σ_f².
        alpha: of the rational quadratic kernel.
        columns: those that the kernel looks at; all when None.
    """

    points: Tensor
    factor: Tensor
    centre: Tensor
    doubled: Tensor
    lengths: Tensor
    columns: Tensor | None

    def __init__(
        self,
        shape: Shape,
        points: Float[Tensor, "M D"],
        lengthscale: Float[Tensor, "1 L"],
        outputscale: float = 1.0,
        alpha: float = 1.0,
        columns: Tensor | None = None,
    ):
        super().__init__()
        self.shape, self.outputscale, self.alpha = shape, outputscale, alpha
        self.register_buffer("columns", columns)
        own = points.detach() if columns is None else points.detach()[:, columns]
        # What the shape multiplies distances by is part of the length-scales. Powers of two: torch has them from vectors of the
        # processor, and powers of e from a library that is three times slower on some.
        unit = {
            "rbf": math.sqrt(_LOG2_E / 2),
            "matern12": 1.0,
            "matern32": math.sqrt(3),
            "matern52": math.sqrt(5),
            "rq": 1 / math.sqrt(2 * alpha),
        }
        factor = (unit[shape] / lengthscale.detach()).expand(1, own.shape[1]).to(own)[0]
        centre = own.mean(0)
        scaled = (own - centre) * factor
        lengths = scaled.square().sum(1)
        for name, value in (
            ("factor", factor),
            ("centre", centre),
            ("points", scaled),
            ("doubled", (2 * scaled).mT.contiguous()),
            ("lengths", -lengths),
        ):
            self.register_buffer(name, value.contiguous().clone())
        # The error of ‖x − z‖² as ‖x‖² − 2xᵀz + ‖z‖² is some eps · ‖z‖² where it counts: far from all points k is flat, or zero.
        self.radius_squared = float(lengths.max()) / unit[shape] ** 2 if len(own) else 0.0
        self.expands = True

    @property
    def num_points(self) -> int:
        """M."""
        return len(self.points)

    def rounding(self, expands: bool) -> float:
        """About how far a value may be off, in units of σ_f², with squares of distances from the product or from differences."""
        eps = torch.finfo(self.points.dtype).eps
        if not expands:
            return 4 * eps * (1 + math.sqrt(self.radius_squared))
        of_square = 4 * eps * (1 + self.radius_squared)
        # A distance, not its square, is off by the root of that at coincident points, and so is exp(−d).
        return of_square if self.shape != "matern12" else math.sqrt(of_square)

    def with_expansion(self, wanted: bool) -> ClosedKernel:
        """The same with squares of distances from one matrix product, where that is wanted, else from differences."""
        many = self.points.shape[1] > MANY_COLUMNS and self.radius_squared < FARTHEST and self.shape != "matern12"
        found = copy.copy(self)
        found.expands = wanted or many
        return found

    def differs_by_a_factor(self, other: ClosedKernel) -> bool:
        """Whether it is the other but for σ_f²."""
        same_columns = self.columns is None if other.columns is None else self.columns is not None
        if self.columns is not None and other.columns is not None:
            same_columns = torch.equal(self.columns, other.columns)
        tensors = ("points", "factor", "centre")
        same = all(torch.equal(getattr(self, name), getattr(other, name)) for name in tensors)
        return same_columns and same and (self.shape, self.alpha) == (other.shape, other.alpha)

    def forward(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N M"]:
        """Its values."""
        x = x if self.columns is None else x.index_select(1, self.columns)
        # As the points are: equal rows are at distance zero, and digits go to what tells rows apart.
        scaled = (x - self.centre).mul_(self.factor)
        if self.expands:
            # Minus the squares, never above zero.
            values = torch.addmm(self.lengths, scaled, self.doubled)
            values = values.sub_(torch.linalg.vecdot(scaled, scaled)[:, None]).clamp_max_(0)
            if self.shape == "rbf":
                return values.exp2_()
            values = values.neg_()
            if self.shape == "rq":
                return values.add_(1).pow_(-self.alpha)
            return _matern(self.shape, values.sqrt_())
        values = torch.cdist(scaled, self.points, compute_mode="donot_use_mm_for_euclid_dist")
        if self.shape == "rbf":
            return values.square_().neg_().exp2_()
        if self.shape == "rq":
            return values.square_().add_(1).pow_(-self.alpha)
        return _matern(self.shape, values)


def _matern(shape: Shape, distance: Tensor) -> Tensor:
    """e^−s, times 1 + s or 1 + s + s²/3."""
    decay = (distance * -_LOG2_E).exp2_()
    if shape == "matern12":
        return decay
    polynomial = distance + 1 if shape == "matern32" else torch.addcmul(distance + 1, distance, distance, value=1 / 3)
    return decay.mul_(polynomial)


@torch.no_grad()
def closed_kernel(kernel: Kernel, points: Float[Tensor, "M D"]) -> ClosedKernel | None:
    """The closed form of a kernel at these points; None for one that is not known by its exact type, or not in float64."""
    scaled = type(kernel) is ScaleKernel
    base = kernel.base_kernel if scaled else kernel
    if type(base) is RBFKernel:
        shape: Shape | None = "rbf"
    elif type(base) is MaternKernel:
        shape = _MATERN.get(base.nu)
    else:
        shape = "rq" if type(base) is RQKernel else None
    if shape is None or points.dtype != torch.float64 or not len(points):
        return None
    if kernel.batch_shape or base.batch_shape or base.lengthscale.dtype != torch.float64:
        return None
    alpha = float(base.alpha) if shape == "rq" else 1.0
    outputscale = float(kernel.outputscale) if scaled else 1.0
    found = ClosedKernel(shape, points, base.lengthscale, outputscale, alpha, kernel.active_dims)
    # Length-scales of zero and scales that overflow have no closed form that helps.
    finite = bool(
        torch.isfinite(found.factor).all() and torch.isfinite(found.points).all() and torch.isfinite(found.lengths).all()
    )
    return found if finite and math.isfinite(outputscale) and math.isfinite(alpha) else None
