"""Kernel means of a stack by kernel and points: each k_Z(x) is evaluated once, and in the form that keeps its digits."""

from __future__ import annotations

import math
from typing import cast

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from torch import Tensor, nn

from gwi.core.closed_kernels import ClosedKernel, closed_kernel
from gwi.core.linalg import cholesky, solve_lower, solve_lower_transposed
from gwi.core.means import KernelMean
from gwi.core.measures import kernel_matrix
from gwi.core.products import Root

# How far a variance, in units of the prior's, and a mean of standardised targets may be off by the rounding of products with
# k_Z(x), as it is estimated. Beyond, k_Z is whitened by a triangular solve first, which keeps those digits.
MOST_ROUNDING = 1e-10
# What the values of a kernel that has no closed form may be off by, in units of their size.
ROUNDING = 5e-15


class Basis(nn.Module):
    """k_Z(x), or φ(x) = L⁻¹ k_Z(x) where products with that would lose digits: what means and variances are products with.

    Args:
        prior_kernel: k.
        inducing_points: Z.
        factor: L with L Lᵀ = k(Z, Z), to whiten by; None for k_Z itself.
        closed: k_Z in closed form; None where there is none.
    """

    inducing_points: Tensor
    factor: Tensor | None

    def __init__(
        self,
        prior_kernel: Kernel,
        inducing_points: Float[Tensor, "M D"],
        factor: Float[Tensor, "M M"] | None,
        closed: ClosedKernel | None,
    ):
        super().__init__()
        self.prior_kernel = prior_kernel
        self.closed = closed
        self.register_buffer("inducing_points", inducing_points.detach())
        self.register_buffer("factor", factor)

    def forward(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "M N"]:
        """Its values, one column a row of x; differentiable where gradients are wanted."""
        if self.closed is None or torch.is_grad_enabled():
            k_zx = kernel_matrix(self.prior_kernel, self.inducing_points, x)
        else:
            k_zx = (self.closed(x) * self.closed.outputscale).mT
        return k_zx if self.factor is None else solve_lower(self.factor, k_zx)


class KernelGroup(nn.Module):
    """Kernel means on one kernel and one Z: one evaluation of the basis, and one product with all their coefficients.

    Args:
        basis: of them.
        coefficients: of each member of a stack and each output; zero for members that are not on this basis.
    """

    coefficients: Tensor

    def __init__(self, basis: Basis, coefficients: Float[Tensor, "K J M"]):
        super().__init__()
        self.basis = basis
        self.register_buffer("coefficients", coefficients)
        self.members = [bool((part != 0).any()) for part in coefficients]

    def forward(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "K J N"]:
        """What each member has of them."""
        return self.coefficients @ self.basis(x)


class KernelTerms:
    """Kernel means that share a kernel, but for its output scale, and points, while a posterior is prepared.

    Args:
        kernel: k.
        points: Z.
        jitter: of the factorisation of k(Z, Z).
    """

    def __init__(self, kernel: Kernel, points: Float[Tensor, "M D"], jitter: float):
        self.kernel, self.points, self.jitter = kernel, points, jitter
        self.closed = closed_kernel(kernel, points)
        self.found: list[tuple[int, Tensor]] = []

    def take(self, member: int, term: KernelMean) -> bool:
        """Take a term of one member of the stack, if it is on this kernel and these points."""
        if term.jitter != self.jitter or not torch.equal(term.inducing_points, self.points):
            return False
        v = term.whitened_coefficients.detach()
        if term.prior_kernel is not self.kernel:
            closed = closed_kernel(term.prior_kernel, term.inducing_points)
            if closed is None or self.closed is None or not closed.differs_by_a_factor(self.closed):
                return False
            # With k' = a k and its factor √a L, φ' = √a φ.
            v = math.sqrt(closed.outputscale / self.closed.outputscale) * v
        self.found.append((member, v))
        return True

    def prepared(
        self, num_members: int, num_outputs: int, lower: Float[Tensor, "M M"], root: Root | None
    ) -> tuple[Basis, Float[Tensor, "K J M"]]:
        """The basis, and the coefficients of each member in it.

        Args:
            num_members: K.
            num_outputs: J.
            lower: L with L Lᵀ = k(Z, Z).
            root: R of a variance that the basis is for, too.
        """
        whitened = lower.new_zeros(num_members, num_outputs, lower.shape[-1])
        for member, v in self.found:
            whitened[member] += v
        # Of coefficients of moderate size L⁻ᵀ keeps the digits that count, however ill-conditioned L is.
        coefficients = solve_lower_transposed(lower, whitened.flatten(0, 1).mT).mT.reshape(whitened.shape)
        level = float(lower.square().sum(-1).mean())
        of_mean = level * float(coefficients.abs().sum(-1).max()) if self.found else 0.0
        of_variance = 0.0 if root is None else 2 * math.sqrt(level) * root.size
        sensitivity = max(of_mean, of_variance)
        closed = self.closed
        if closed is None:
            is_accurate = sensitivity * ROUNDING <= MOST_ROUNDING
        else:
            expands = sensitivity * closed.rounding(expands=True) <= MOST_ROUNDING
            is_accurate = expands or sensitivity * closed.rounding(expands=False) <= MOST_ROUNDING
            closed = closed.with_expansion(expands)
        basis = Basis(self.kernel, self.points, None if is_accurate else lower, closed)
        return basis, coefficients if is_accurate else whitened

    def group(self, num_members: int, num_outputs: int) -> KernelGroup:
        """They by themselves."""
        k_zz = kernel_matrix(self.kernel, self.points)
        lower = cholesky(k_zz, jitter=self.jitter, name="k(Z, Z)").factor
        return KernelGroup(*self.prepared(num_members, num_outputs, cast("Tensor", lower), None))
