"""Prior kernels in a graph: k(x, z) for each row x and point z, and k(x, x)."""

from __future__ import annotations

import math
from typing import Any

import gpytorch.kernels as gk
import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray

from gwi.core.kernels import has_one_variance
from gwi.exceptions import UnexportableError
from gwi.onnx.graph import Graph, Value

Points = NDArray[np.float64]
# With more columns squares of distances are formed by a product of matrices: differences would fill the memory.
MOST_DIFFERENCES = 32


def numbers(tensor: Any) -> NDArray[np.float64]:
    """A tensor as an array in double precision."""
    return np.asarray(tensor.detach().cpu().double().numpy() if isinstance(tensor, torch.Tensor) else tensor, dtype=np.float64)


def kernel_values(g: Graph, kernel: Kernel, x: Value, points: Points) -> Value:
    """k(x, z), (N, M).

    Raises:
        UnexportableError: for kernels that have no graph, naming them.
    """
    x, points = _own_columns(kernel, x, points)
    if type(kernel) is gk.ScaleKernel:
        return kernel_values(g, kernel.base_kernel, x, points) * float(kernel.outputscale)
    if type(kernel) in (gk.AdditiveKernel, gk.ProductKernel):
        first, *others = (kernel_values(g, part, x, points) for part in kernel.kernels)
        for other in others:
            first = first + other if type(kernel) is gk.AdditiveKernel else first * other
        return first
    if type(kernel) is gk.LinearKernel:
        return x @ (numbers(kernel.variance).reshape(1, -1) * points).T
    if type(kernel) is gk.PolynomialKernel:
        return g.op("Pow", x @ points.T + numbers(kernel.offset).reshape(1, 1), float(kernel.power))
    if type(kernel) is gk.ConstantKernel:
        return x.columns(0, 1) * 0.0 + np.full((1, len(points)), float(kernel.constant))
    if type(kernel) is gk.RBFKernel:
        return (squared_distances(g, kernel, x, points) * -0.5).exp()
    if type(kernel) is gk.RQKernel:
        alpha = float(kernel.alpha)
        return ((squared_distances(g, kernel, x, points) / (2 * alpha) + 1.0).log() * -alpha).exp()
    if type(kernel) is gk.MaternKernel:
        # Of several smoothnesses one polynomial each, in r = √(2ν) d.
        distance = squared_distances(g, kernel, x, points, 2 * kernel.nu).sqrt()
        falling = (-distance).exp()
        if kernel.nu == 0.5:
            return falling
        first = distance + 1.0
        return (first if kernel.nu == 1.5 else first + distance.square() * (1 / 3)) * falling
    raise UnexportableError(
        f"A kernel of type {type(kernel).__name__} cannot be exported to ONNX; RBF, Matérn, RQ, linear, polynomial and constant "
        "kernels, their sums, products and scalings can: choose one of them."
    )


def kernel_diagonal(g: Graph, kernel: Kernel, x: Value) -> Value:
    """k(x, x), (N, 1), or (1, 1) where it is the same at every row."""
    if has_one_variance(kernel):
        return g.constant(np.full((1, 1), float(kernel.outputscale) if type(kernel) is gk.ScaleKernel else 1.0))
    x, _ = _own_columns(kernel, x, None)
    if type(kernel) is gk.ScaleKernel:
        return numbers(kernel.outputscale).reshape(1, 1) * kernel_diagonal(g, kernel.base_kernel, x)
    if type(kernel) in (gk.AdditiveKernel, gk.ProductKernel):
        first, *others = (kernel_diagonal(g, part, x) for part in kernel.kernels)
        for other in others:
            first = first + other if type(kernel) is gk.AdditiveKernel else first * other
        return first
    if type(kernel) is gk.LinearKernel:
        return (x.square() * numbers(kernel.variance).reshape(1, -1)).sum(-1, keep=True)
    if type(kernel) is gk.PolynomialKernel:
        return g.op("Pow", x.square().sum(-1, keep=True) + numbers(kernel.offset).reshape(1, 1), float(kernel.power))
    return g.constant(np.full((1, 1), float(kernel.constant) if type(kernel) is gk.ConstantKernel else 1.0))


def squared_distances(g: Graph, kernel: Kernel, x: Value, points: Points, factor: float = 1.0) -> Value:
    """Of rows and points in units of the length-scales, times a factor; (N, M)."""
    scale = numbers(kernel.lengthscale).reshape(1, -1) / math.sqrt(factor)
    x, points = x / scale, points / scale
    if points.shape[1] <= MOST_DIFFERENCES:
        # Points last, so that sums over columns run along them.
        return g.reduced("ReduceSumSquare", x.new_axis(2) - points.T[None], 1, False)
    centre = points.mean(0, keepdims=True)
    x, points = x - centre, points - centre
    whole = x.square().sum(-1, keep=True) + np.square(points).sum(-1)[None]
    return (whole + x @ (-2 * points.T)).least(0.0)


def _own_columns(kernel: Kernel, x: Value, points: Points | None) -> tuple[Value, Any]:
    """The columns that a kernel looks at."""
    if kernel.batch_shape.numel() != 1:
        raise UnexportableError("A batch of kernels cannot be exported to ONNX; give all outputs one prior kernel.")
    if kernel.active_dims is None:
        return x, points
    places = kernel.active_dims.tolist()
    return x.chosen(places), None if points is None else points[:, places]
