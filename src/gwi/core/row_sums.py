"""Sums over rows, in chunks: all that closed forms for mean, covariance and evidence need of the data.

With φ(x) = L⁻¹ k_Z(x) and weights w (usually 1/σ²), every closed form of the sparse family is a function of Σ w φφᵀ, Σ w φ y and
three scalars. They are accumulated chunk by chunk, and when gradients are wanted each chunk is recomputed in the backward
pass, so memory stays O(chunk × M) however many rows there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from gwi.core.linalg import cholesky, solve_lower, solve_lower_transposed
from gwi.core.measures import kernel_matrix, kernel_variance, residual_part


@dataclass(frozen=True)
class RowSums:
    """Weighted sums over all rows, in the whitened basis of the inducing points.

    Batch axes are those of kernel, weights and targets, broadcast only where they meet: outputs that share a kernel and a noise
    share one `gram`.

    Attributes:
        num_rows: N.
        inducing_factor: L with L Lᵀ = k(Z, Z); coordinates below are with respect to it.
        gram: Σ w φφᵀ.
        projection: Σ w φ y.
        residual: Σ w (k(x, x) − φᵀφ).
        target_energy: Σ w y².
        log_weight: Σ log w.

    Examples:
        >>> import torch
        >>> from gwi.core.kernels import default_kernel
        >>> from gwi.core.row_sums import row_sums
        >>> x = torch.linspace(0, 1, 20, dtype=torch.float64)[:, None]
        >>> sums = row_sums(default_kernel(1), x[::4], x, x.sin().mT, noise_variance=0.1)
        >>> sums.num_rows, tuple(sums.gram.shape)
        (20, (5, 5))
    """

    num_rows: int
    inducing_factor: Float[Tensor, "*K M M"]
    gram: Float[Tensor, "*G M M"]
    projection: Float[Tensor, "*J M"]
    residual: Float[Tensor, "*G"]
    target_energy: Float[Tensor, "*Y"]
    log_weight: Float[Tensor, "*W"]

    def weighted(self, noise_variance: float) -> RowSums:
        """With every weight divided by a common σ²."""
        parts = {name: getattr(self, name) / noise_variance for name in ("gram", "projection", "residual", "target_energy")}
        return replace(self, log_weight=self.log_weight - self.num_rows * math.log(noise_variance), **parts)


SUMMED = ("gram", "projection", "residual", "target_energy", "log_weight")


def combined(parts: Sequence[RowSums], signs: Sequence[float]) -> RowSums:
    """Sums over the rows of all parts, each with its sign: all rows, or all but some."""

    def total(name: str) -> Tensor:
        return torch.stack([sign * getattr(part, name) for part, sign in zip(parts, signs, strict=True)]).sum(0)

    num_rows = int(sum(sign * part.num_rows for part, sign in zip(parts, signs, strict=True)))
    return RowSums(num_rows, parts[0].inducing_factor, **{name: total(name) for name in SUMMED})


def no_sums(inducing_factor: Float[Tensor, "M M"], num_outputs: int) -> RowSums:
    """Sums over no rows at all, with one weight for all outputs."""
    zero = inducing_factor.new_zeros
    size = inducing_factor.shape[-1]
    return RowSums(0, inducing_factor, zero(size, size), zero(num_outputs, size), zero(()), zero(num_outputs), zero(()))


def row_sums(
    kernel: Kernel,
    inducing_points: Float[Tensor, "M D"],
    x: Float[Tensor, "N D"],
    y: Float[Tensor, "*J N"] | None = None,
    *,
    noise_variance: Float[Tensor, ...] | float = 1.0,
    chunk_size: int = 4096,
    jitter: float = 0.0,
    inducing_factor: Float[Tensor, "M M"] | None = None,
) -> RowSums:
    """The sums of `RowSums` with w = 1/σ²(x).

    Args:
        kernel: prior kernel k.
        inducing_points: Z.
        x: all rows.
        y: targets with the prior mean already taken off; zero when None.
        noise_variance: σ², one for all rows or one each, and one for all outputs or one each.
        chunk_size: how many rows are held at a time.
        jitter: relative jitter of the first Cholesky attempt on k(Z, Z).
        inducing_factor: L with L Lᵀ = k(Z, Z), where it is known already.

    Examples:
        >>> import torch
        >>> from gwi.core.kernels import default_kernel
        >>> from gwi.core.row_sums import row_sums
        >>> x = torch.linspace(0, 1, 20, dtype=torch.float64)[:, None]
        >>> whole = row_sums(default_kernel(1), x[::4], x)
        >>> parts = [row_sums(default_kernel(1), x[::4], half) for half in (x[:10], x[10:])]
        >>> torch.allclose(whole.gram, parts[0].gram + parts[1].gram)
        True
    """
    factor = inducing_factor
    if factor is None:
        factor = cholesky(kernel_matrix(kernel, inducing_points), jitter=jitter, name="k(Z, Z)").factor
    targets = x.new_zeros(x.shape[0]) if y is None else y
    weights = torch.as_tensor(noise_variance, dtype=x.dtype, device=x.device).reciprocal()
    weights = weights.expand(*weights.shape[:-1], x.shape[0]) if weights.ndim else weights.expand(x.shape[0])

    def chunk_sums(z: Tensor, l_z: Tensor, x_c: Tensor, y_c: Tensor, w_c: Tensor) -> tuple[Tensor, ...]:
        whitened = _WhitenedSums.apply(kernel_matrix(kernel, z, x_c), kernel_variance(kernel, x_c), l_z, y_c, w_c)
        return (*whitened, (w_c * y_c.square()).sum(-1), w_c.log().expand(*w_c.shape[:-1], x_c.shape[0]).sum(-1))

    if x is inducing_points and factor.ndim == 2 and not torch.is_grad_enabled():
        return _sums_at_themselves(kernel, x, targets, weights, factor)
    totals: tuple[Tensor, ...] | None = None
    for start in range(0, x.shape[0], chunk_size):
        rows = slice(start, start + chunk_size)
        chunk = (inducing_points, factor, x[rows], targets[..., rows], weights[..., rows])
        parts = (
            checkpoint(chunk_sums, *chunk, use_reentrant=False)
            if torch.is_grad_enabled() and x.shape[0] > chunk_size
            else chunk_sums(*chunk)
        )
        totals = parts if totals is None else tuple(total + part for total, part in zip(totals, parts, strict=True))
    if totals is None:
        raise ValueError("Sums over rows need at least one row; got none.")
    return RowSums(x.shape[0], factor, *totals)


def _sums_at_themselves(
    kernel: Kernel, x: Float[Tensor, "N D"], y: Float[Tensor, "*J N"], w: Float[Tensor, "*W N"], factor: Float[Tensor, "N N"]
) -> RowSums:
    """Where every row is an inducing point: there φ is a column of Lᵀ, up to the jitter of L, and nothing has to be solved."""
    weighted = factor.mT * w[..., None, :]
    rest = residual_part(kernel_variance(kernel, x), factor.square().sum(-1))
    projection = (weighted @ y[..., :, None])[..., 0]
    energy, logs = (w * y.square()).sum(-1), w.log().sum(-1)
    return RowSums(x.shape[0], factor, weighted @ factor, projection, (rest * w).sum(-1), energy, logs)


class _WhitenedSums(torch.autograd.Function):
    # Σ wφφᵀ, Σ wφy and Σ w(k − φᵀφ) from k(Z, X), with the gradient by hand. Autograd would pass through φ = L⁻¹ k(Z, X) row by
    # row, with two triangular solves and four products of M × M by M × N. But what reaches φ is C Φ W + p̄ (Wy)ᵀ with an M × M
    # matrix C, so L⁻ᵀ goes to C, the gradient of L is made of the sums themselves, and one product is left.
    @staticmethod
    def forward(ctx: Any, k_zx: Tensor, k_xx: Tensor, factor: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        phi = solve_lower(factor, k_zx)
        weighted = phi * w[..., None, :]
        gram = weighted @ phi.mT
        projection = (weighted @ y[..., :, None])[..., 0]
        ctx.save_for_backward(k_zx, k_xx, factor, y, w, phi, gram, projection)
        return gram, projection, (residual_part(k_xx, phi.square().sum(-2)) * w).sum(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_gram: Tensor, d_projection: Tensor, d_residual: Tensor) -> tuple[Tensor, ...]:
        k_zx, k_xx, factor, y, w, phi, gram, projection = ctx.saved_tensors
        eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
        inner = solve_lower_transposed(factor, d_gram + d_gram.mT - 2 * d_residual[..., None, None] * eye)
        outer = solve_lower_transposed(factor, d_projection[..., None])
        d_factor = (inner @ gram).sum_to_size(factor.shape) + (outer @ projection[..., None, :]).sum_to_size(factor.shape)
        d_phi = inner @ phi
        # φᵀCφ = k_Zᵀ L⁻ᵀCφ, so weights and targets need no further product with a matrix.
        along = (outer.mT @ k_zx)[..., 0, :]
        d_w = ((k_zx * d_phi).sum(-2) / 2 + d_residual[..., None] * k_xx).sum_to_size(w.shape)
        d_k_zx = (d_phi * w[..., None, :]).sum_to_size(k_zx.shape) + (outer * (w * y)[..., None, :]).sum_to_size(k_zx.shape)
        d_k_xx = (d_residual[..., None] * w).sum_to_size(k_xx.shape)
        return d_k_zx, d_k_xx, -d_factor.tril(), (along * w).sum_to_size(y.shape), d_w + (along * y).sum_to_size(w.shape)
