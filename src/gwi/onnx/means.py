"""Means in a graph: from the rows that Q knows, (N, E), to values, (N, J)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from gpytorch.kernels import Kernel

from gwi.core import means
from gwi.exceptions import UnexportableError
from gwi.onnx.graph import Graph, Value
from gwi.onnx.kernels import Points, kernel_values, numbers
from gwi.onnx.networks import network_values
from gwi.onnx.trees import predictor_values


def shared_values(g: Graph, kernel: Kernel, x: Value, points: Points) -> Value:
    """k(x, z), (N, M); for the same kernel and points the same values."""
    return g.once(("kernel", id(kernel), x.name, points.tobytes()), lambda: kernel_values(g, kernel, x, points))


class MeanWriter:
    """Writes means of one graph.

    Args:
        g: the graph.
        num_columns: E.
        num_outputs: J.
        at_rows: r at the rows, for stacks inside of the mean that hand over by it; None where there is none.
    """

    def __init__(self, g: Graph, num_columns: int, num_outputs: int, at_rows: Callable[[], Value] | None = None):
        self.g, self.num_columns, self.num_outputs, self.at_rows = g, num_columns, num_outputs, at_rows

    def values(self, mean: Any, x: Value, shape: tuple[int, ...] | None = None) -> Value:
        """The values of a mean.

        Args:
            mean: a module of `gwi.core.means`.
            x: rows, of shape (N, E) or what the mean takes.
            shape: of a row, where it is not flat.

        Raises:
            UnexportableError: for means that have no graph, naming them.
        """
        write = _WRITERS.get(type(mean))
        if write is None:
            raise UnexportableError(
                f"A mean of type {type(mean).__name__} cannot be exported to ONNX; those of the estimators can."
            )
        return write(self, mean, x, (self.num_columns,) if shape is None else shape)

    def kernel(self, mean: means.KernelMean, x: Value, shape: tuple[int, ...]) -> Value:
        """Σ β k(x, z)."""
        basis = shared_values(self.g, mean.prior_kernel, x, numbers(mean.inducing_points))
        found = basis @ numbers(mean.coefficients).T
        return found if mean.prior_mean is None else found + self.values(mean.prior_mean, x, shape)

    def module(self, mean: means.ModuleMean, x: Value, shape: tuple[int, ...]) -> Value:
        """A network's outputs."""
        found = network_values(self.g, mean.module, x, shape)
        return found if mean.prior_mean is None else found + self.values(mean.prior_mean, x, shape)

    def fixed(self, mean: means.FixedMean, x: Value, shape: tuple[int, ...]) -> Value:
        """A predictor's values."""
        return predictor_values(self.g, mean.predictor, x)

    def sum(self, mean: means.SumMean, x: Value, shape: tuple[int, ...]) -> Value:
        """Of several means."""
        first, *others = (self.values(part, x, shape) for part in mean.means)
        for other in others:
            first = first + other
        return first

    def joined(self, mean: means.JoinedMean, x: Value, shape: tuple[int, ...]) -> Value:
        """One mean a target."""
        inner = MeanWriter(self.g, self.num_columns, 1, self.at_rows)
        return self.g.joined([inner.values(part, x, shape) for part in mean.means])

    def convex(self, mean: means.ConvexMean, x: Value, shape: tuple[int, ...]) -> Value:
        """A stack inside of a mean."""
        if mean.handover is not None:
            raise UnexportableError(
                "A stack whose means replace one another far from the data cannot be exported to ONNX inside another "
                "mean; use it alone."
            )
        weights = np.broadcast_to(numbers(mean.weights), (self.num_outputs, len(mean.means)))
        parts = [(self.values(part, x, shape), w) for part, w in zip(mean.means, weights.T, strict=True) if w.any()]
        found = parts[0][0] * parts[0][1][None]
        for values, weight in parts[1:]:
            found = found + values * weight[None]
        return found

    def constant(self, mean: means.ConstantMean, x: Value, shape: tuple[int, ...]) -> Value:
        """One value an output."""
        flat = x if len(shape) == 1 else x.reshaped(0, -1)
        return flat.columns(0, 1) * 0.0 + numbers(mean.values)[None]

    def affine(self, mean: means.AffineMean, x: Value, shape: tuple[int, ...]) -> Value:
        """a + b m."""
        return self.values(mean.mean, x, shape) * numbers(mean.factor)[None] + numbers(mean.shift)[None]

    def link(self, mean: means.LinkMean, x: Value, shape: tuple[int, ...]) -> Value:
        """g(m)."""
        values = self.values(mean.mean, x, shape) * mean.factor + mean.shift
        above = (values - mean.low).least(mean.margin).log()
        return above if mean.link == "log" else above - (mean.high - values).least(mean.margin).log()

    def first(self, mean: means.FirstColumns, x: Value, shape: tuple[int, ...]) -> Value:
        """The first numbers of a row."""
        return x.columns(0, mean.num_outputs)

    def some(self, mean: means.SomeColumns, x: Value, shape: tuple[int, ...]) -> Value:
        """Some numbers of a row."""
        return x.columns(mean.first, mean.first + mean.count)

    def leading(self, mean: means.LeadingColumns, x: Value, shape: tuple[int, ...]) -> Value:
        """A mean of the first columns."""
        inner = MeanWriter(self.g, mean.count, self.num_outputs, self.at_rows)
        return inner.values(mean.mean, x.columns(0, mean.count))

    def original(self, mean: means.OriginalRowsMean, x: Value, shape: tuple[int, ...]) -> Value:
        """A mean of rows in the user's own units."""
        rows = x * mean.scales.x_scale[None] + mean.scales.x_centre[None]
        if mean.shape is None or len(mean.shape) == 1:
            return self.values(mean.mean, rows, shape)
        assert math.prod(mean.shape) == self.num_columns
        return self.values(mean.mean, rows.reshaped(-1, *mean.shape), mean.shape)

    def rescaled(self, mean: means.RescaledMean, x: Value, shape: tuple[int, ...]) -> Value:
        """A predictor in the user's own units, of targets too."""
        values = self.original(means.OriginalRowsMean(mean.mean, mean.scales, mean.shape), x, shape)
        return (values - mean.scales.y_centre[None]) / mean.scales.y_scale[None]


_WRITERS: dict[type, Callable[[MeanWriter, Any, Value, tuple[int, ...]], Value]] = {
    means.KernelMean: MeanWriter.kernel,
    means.ModuleMean: MeanWriter.module,
    means.FixedMean: MeanWriter.fixed,
    means.SumMean: MeanWriter.sum,
    means.JoinedMean: MeanWriter.joined,
    means.ConvexMean: MeanWriter.convex,
    means.ConstantMean: MeanWriter.constant,
    means.AffineMean: MeanWriter.affine,
    means.LinkMean: MeanWriter.link,
    means.FirstColumns: MeanWriter.first,
    means.SomeColumns: MeanWriter.some,
    means.LeadingColumns: MeanWriter.leading,
    means.OriginalRowsMean: MeanWriter.original,
    means.RescaledMean: MeanWriter.rescaled,
}
