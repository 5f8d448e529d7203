"""The log marginal likelihood of the squared-exponential kernel, with its gradients in closed form.

Most of the time of a fit to some hundred rows is spent on it. Differentiation keeps a dozen matrices of the size of k(X, X) on
the way; here there are three, in half the time.
"""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from gwi.core.linalg import LOG_TWO_PI, cholesky, cholesky_solve, log_determinant

# ‖x − x'‖² by a matrix product is off by eps times the squares of the rows. Below this number that is less than the jitter.
MOST_SQUARED = 1e6


def rbf_parts(
    kernel: Kernel, x: Float[Tensor, "N D"]
) -> tuple[Float[Tensor, "N D"], Float[Tensor, "1 L"], Float[Tensor, ""]] | None:
    """Centred rows, length-scales and variance of a squared-exponential kernel of all columns; None of any other."""
    # Not of a subclass, which may be another function.
    if type(kernel) is not ScaleKernel or type(kernel.base_kernel) is not RBFKernel or kernel.batch_shape:
        return None
    base = kernel.base_kernel
    if kernel.active_dims is not None or base.active_dims is not None or x.dtype != torch.float64:
        return None
    rows, lengthscale = x - x.mean(0), base.lengthscale
    with torch.no_grad():
        radius_squared = (rows / lengthscale).square().sum(1).max()
    return (rows, lengthscale, kernel.outputscale) if radius_squared < MOST_SQUARED else None


class RBFEvidence(torch.autograd.Function):
    """`RBFEvidence.apply(X, Y, ℓ, σ_f², σ², jitter)`: Σ_j log N(y_j | 0, k(X, X) + σ² I), with σ² of all rows or of each."""

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx, rows: Tensor, y: Tensor, lengthscale: Tensor, outputscale: Tensor, noise: Tensor, jitter: float
    ) -> Tensor:
        """The value, and the gradients while the matrices are at hand."""
        num_rows, num_targets = len(rows), y.numel() // len(rows)
        scaled, targets = rows / lengthscale, y.reshape(num_targets, num_rows)
        squares = scaled.square()
        half = squares.sum(1) / -2
        shape = torch.addmm(half[:, None], scaled, scaled.mT).add_(half).clamp_max_(0).exp_()
        shape.fill_diagonal_(1.0)
        covariance = outputscale * shape
        covariance.diagonal().add_(noise)
        factor = cholesky(covariance, jitter=jitter, name="k(X, X) + σ²I").factor
        solved = cholesky_solve(factor, targets.mT)
        # (A⁻¹ Y Yᵀ A⁻¹ − J A⁻¹)/2, the gradient in A = k(X, X) + σ²; as in `linalg.LogGaussian` the inverse multiplies nothing.
        by_covariance = torch.cholesky_inverse(factor).mul_(-num_targets / 2).addmm_(solved, solved.mT, alpha=0.5)
        by_noise = by_covariance.diagonal().clone()
        by_shape = by_covariance.mul_(shape)
        by_outputscale = by_shape.sum()
        # Σ_ij W_ij (u_i − u_j)² in each column, with one product.
        spread = 2 * ((by_shape.sum(1)[:, None] * squares).sum(0) - (scaled * (by_shape @ scaled)).sum(0))
        by_lengthscale = (outputscale * spread / lengthscale).sum_to_size(lengthscale.shape)
        ctx.save_for_backward(by_lengthscale, by_outputscale, by_noise.sum_to_size(noise.shape))
        energy = (targets * solved.mT).sum()
        return -(energy + num_targets * (log_determinant(factor) + num_rows * LOG_TWO_PI)) / 2

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[None, None, Tensor, Tensor, Tensor, None]:  # type: ignore[no-untyped-def]
        """The gradients that were found with the value."""
        by_lengthscale, by_outputscale, by_noise = ctx.saved_tensors
        return None, None, grad * by_lengthscale, grad * by_outputscale, grad * by_noise, None
