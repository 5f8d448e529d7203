"""Q in a graph: mean, r and the disagreement of stacked means at each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gwi._typing import Array
from gwi.core.handover import Handover
from gwi.core.kernels import DisagreementKernel, SparsePosteriorKernel
from gwi.core.linalg import solve_lower_transposed
from gwi.core.means import ConvexMean
from gwi.core.measures import GaussianMeasure
from gwi.exceptions import UnexportableError
from gwi.onnx.graph import Graph, Value
from gwi.onnx.kernels import kernel_diagonal, numbers
from gwi.onnx.means import MeanWriter, shared_values

TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Parts:
    """What Q says at each row, with one column an output.

    Attributes:
        mean: m.
        variance: r.
        disagreement: γ d²; None where it is zero.
        prior_variance: k(x, x), (N, 1) or (1, 1).
    """

    mean: Value
    variance: Value
    disagreement: Value | None
    prior_variance: Value

    def whole(self, scale: Any) -> Value:
        """a r + γ d²."""
        scaled = self.variance if np.all(np.asarray(scale) == 1) else self.variance * np.asarray(scale, dtype=np.float64)[None]
        return scaled if self.disagreement is None else scaled + self.disagreement


class PosteriorWriter:
    """Writes Q of one graph.

    With L Lᵀ = k(Z, Z), S = U diag(s) Uᵀ and B = L⁻ᵀ U diag(1 − s)^½, r = k − Σ (Bᵀ k_Z)²  [eq:r_SVGP]: one product with a matrix
    that is found here. Where noise keeps B small, as it does with every row in Z, this has more digits than c = UᵀL⁻¹ k_Z and
    (k − Σ c²) + Σ s c², which is taken where outputs have one U and different s. Kernel means are β k_Z, which depends on the
    rounding of k_Z as little as any form.

    Args:
        g: the graph.
        posterior: Q.
        x: rows that Q knows.
        num_outputs: J.

    Raises:
        UnexportableError: for measures that have no graph.
    """

    def __init__(self, g: Graph, posterior: GaussianMeasure, x: Value, num_outputs: int):
        self.g, self.mean, self.x, self.num_outputs = g, posterior.mean, x, num_outputs
        whole = posterior.kernel
        kernel = whole.kernel if isinstance(whole, DisagreementKernel) else whole
        if not isinstance(kernel, SparsePosteriorKernel):
            raise UnexportableError(
                "A model that has learned new rows by update cannot be exported to ONNX; export it before, or fit again on all "
                "rows."
            )
        self.gamma = numbers(whole.disagreement_weight) if isinstance(whole, DisagreementKernel) else np.zeros(num_outputs)
        self.scale = numbers(whole.scale) if isinstance(whole, DisagreementKernel) else np.ones(num_outputs)
        self.kernel, self.prior_variance = kernel, kernel_diagonal(g, kernel.prior_kernel, x)
        points = numbers(kernel.inducing_points)
        basis = shared_values(g, kernel.prior_kernel, x, points)
        self.variance = self._variance(basis, kernel.inducing_factor().detach(), *spectrum_of(kernel.whitened_factor.detach()))

    def _variance(self, basis: Value, lower: Tensor, vectors: Tensor, spectrum: Tensor) -> Value:
        """r, with one column an output, or one for all."""
        shares_vectors, rows = vectors.ndim == 2, spectrum.reshape(-1, spectrum.shape[-1])
        left = 1 - rows if shares_vectors else 1 - spectrum
        if bool((left >= 0).all()) and not (shares_vectors and bool((rows != rows[:1]).any())):
            root = left[0] if shares_vectors else left[:, None]
            map_ = numbers(solve_lower_transposed(lower, vectors * root.sqrt()))
            product = basis @ map_ if shares_vectors else basis.new_axis(0) @ map_
            if shares_vectors:
                # ONNX Runtime leaves the last axis of no rows as it is where sums of squares are asked for.
                return (self.prior_variance - product.square() @ np.ones((len(lower), 1))).least(0.0)
            return (self.prior_variance - self.g.reduced("ReduceSumSquare", product, -1, False).moved(1, 0)).least(0.0)
        map_ = numbers(solve_lower_transposed(lower, vectors))
        if shares_vectors:
            sums = (basis @ map_).square() @ np.concatenate([np.ones((1, len(lower))), numbers(rows)]).T
            explained, inside = sums.columns(0, 1), sums.columns(1, 1 + len(rows))
        else:
            squares = (basis.new_axis(0) @ map_).square()
            explained, inside = squares.sum(-1).moved(1, 0), (squares @ numbers(spectrum)[..., None]).without_axis(2).moved(1, 0)
        return (self.prior_variance - explained).least(0.0) + inside

    def parts(self) -> Parts:
        """Mean, r and γ d² at the rows."""
        if not isinstance(self.mean, ConvexMean):
            return Parts(self._member(self.mean), self.variance, None, self.prior_variance)
        weights = np.broadcast_to(numbers(self.mean.weights), (self.num_outputs, len(self.mean.means)))
        if self.mean.handover is None:
            kept = [i for i, own in enumerate(weights.T) if own.any()]
            members = [self._member(self.mean.means[i]) for i in kept]
            at_rows: list[Any] = [weights[:, i][None] for i in kept]
        else:
            members, at_rows = self._handed_over(self.mean, self.mean.handover, weights)
        mean = _sum([member * weight for member, weight in zip(members, at_rows, strict=True)])
        if not (self.gamma > 0).any() or len(members) < 2:
            return Parts(mean, self.variance, None, self.prior_variance)
        spread = _sum([(member - mean).square() * weight for member, weight in zip(members, at_rows, strict=True)])
        return Parts(mean, self.variance, spread * self.gamma[None], self.prior_variance)

    def _handed_over(self, mean: ConvexMean, handover: Handover, weights: Array) -> tuple[list[Value], list[Any]]:
        """The members of a stack, and their weights at each row."""
        if handover.kernel is not self.kernel:
            raise UnexportableError(
                "A stack whose means replace one another by the variance of another model cannot be exported to ONNX."
            )
        gives, shares = handover.gives.cpu().numpy(), np.broadcast_to(numbers(handover.shares), weights.shape)
        beyond = (self.variance - numbers(handover.known)[None]).least(0.0)
        away = beyond.largest() > 0.0
        members = [self._member(part) if weights[:, i].any() else self._when(away, part) for i, part in enumerate(mean.means)]
        given = (weights * gives).sum(1)
        # What those who receive say, less what those say who give: a sum with constant weights.
        factors = np.where(gives, -weights / np.maximum(given, TINY)[:, None], shares)
        terms = [member * factor[None] for member, factor in zip(members, factors.T, strict=True) if factor.any()]
        error = numbers(handover.error)[None]
        share = beyond / (beyond + (_sum(terms).square() * 0.25 + error if terms else error))
        left = 1.0 - share
        at_rows = [
            left * own[None] if giving else share * (given * received)[None] + own[None]
            for own, received, giving in zip(weights.T, shares.T, gives, strict=True)
        ]
        return members, at_rows

    def _when(self, away: Value, part: Any) -> Value:
        """A member that counts only where others hand over: elsewhere it is not asked."""
        zero = self.variance.columns(0, 1) * np.zeros((1, self.num_outputs))
        return self.g.either(away, lambda: self._member(part), lambda: zero)

    def _member(self, mean: Any) -> Value:
        """The values of one mean; zero without one."""
        if mean is None:
            return self.variance.columns(0, 1) * np.zeros((1, self.num_outputs))
        return MeanWriter(self.g, int(self.kernel.inducing_points.shape[1]), self.num_outputs).values(mean, self.x)


def _sum(values: Sequence[Value]) -> Value:
    first, *others = values
    for other in others:
        first = first + other
    return first


def spectrum_of(factor: Tensor) -> tuple[Tensor, Tensor]:
    """U and s with F Fᵀ = U diag(s) Uᵀ; one U where S is diagonal."""
    diagonal = factor.diagonal(dim1=-2, dim2=-1)
    if torch.equal(factor, torch.diag_embed(diagonal)):
        return torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device), diagonal.square()
    values, vectors = torch.linalg.eigh(factor @ factor.mT)
    if factor.ndim == 3 and len(factor) == 1:
        return vectors[0], values.clamp_min(0)
    return vectors, values.clamp_min(0)
