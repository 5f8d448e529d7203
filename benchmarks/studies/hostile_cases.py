"""Kernel matrices made to break a Cholesky factorisation, for `hostile` and for `tests/core/test_hostile_matrices.py`.

Duplicated, collinear, constant and gridded rows, near and far from the origin, inputs of 1e±30, length-scales and output scales
from 1e-12 to 1e12: identity matrices, matrices of ones, and everything singular between them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Literal

import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, RQKernel, ScaleKernel
from torch import Tensor

Layout = Literal["random", "duplicates", "constant column", "collinear", "grid", "far from the origin"]

KERNELS: dict[str, Callable[[], Kernel]] = {
    "rbf": lambda: RBFKernel(ard_num_dims=2),
    "matern 1/2": lambda: MaternKernel(nu=0.5),
    "matern 3/2": lambda: MaternKernel(nu=1.5),
    "matern 5/2": lambda: MaternKernel(nu=2.5),
    "rational quadratic": lambda: RQKernel(),
}
NUM_POINTS = (1, 2, 50, 200)
LAYOUTS: tuple[Layout, ...] = ("random", "duplicates", "constant column", "collinear", "grid", "far from the origin")
# Inputs of 1e±30 make every matrix an identity or a matrix of ones; between, a kernel becomes singular slowly, so there
# the length-scale takes more steps.
SCALES = (
    *((1.0, lengthscale) for lengthscale in (1e-12, 1e-6, 1e-2, 1.0, 10.0, 1e3, 1e12)),
    *product((1e-30, 1e30), (1e-12, 1e12)),
)
OUTPUTSCALES = (1e-12, 1.0, 1e12)


@dataclass(frozen=True)
class HostileCase:
    """One kernel on one set of points."""

    kernel: str
    num_points: int
    layout: Layout
    input_scale: float
    lengthscale: float
    outputscale: float

    def points(self, dtype: torch.dtype = torch.float64) -> Tensor:
        """The rows, two features each; the same rows at every scale."""
        generator = torch.Generator().manual_seed(self.num_points)
        x = torch.randn(self.num_points, 2, dtype=torch.float64, generator=generator)
        if self.layout == "duplicates":
            x = x[torch.arange(self.num_points) // 3]
        elif self.layout == "constant column":
            x[:, 1] = 0.7
        elif self.layout == "collinear":
            x = x[:, :1] * torch.tensor([[1.0, 3.0]], dtype=torch.float64)
        elif self.layout == "grid":
            side = torch.linspace(-1, 1, max(2, round(self.num_points**0.5 + 0.5)), dtype=torch.float64)
            x = torch.cartesian_prod(side, side)[: self.num_points]
        elif self.layout == "far from the origin":
            x = x + 1e6
        return (self.input_scale * x).to(dtype)

    def build_kernel(self, dtype: torch.dtype = torch.float64) -> ScaleKernel:
        """The GPyTorch kernel with its scales set, without rounding by way of float32."""
        kernel = ScaleKernel(KERNELS[self.kernel]()).to(dtype)
        kernel.base_kernel.lengthscale = torch.tensor(self.lengthscale, dtype=dtype)
        kernel.outputscale = torch.tensor(self.outputscale, dtype=dtype)
        return kernel


def hostile_cases() -> tuple[HostileCase, ...]:
    """The grid, in a fixed order."""
    return tuple(
        HostileCase(kernel, num_points, layout, input_scale, lengthscale, outputscale)
        for kernel, num_points, layout, (input_scale, lengthscale), outputscale in product(
            KERNELS, NUM_POINTS, LAYOUTS, SCALES, OUTPUTSCALES
        )
    )
