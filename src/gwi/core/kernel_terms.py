"""Kernel means of a stack by kernel and points: each k_Z(x) is evaluated once, and in the form that keeps its digits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from torch import Tensor, nn

from gwi.core.closed_kernels import ClosedKernel, closed_kernel
from gwi.core.linalg import cholesky, solve_lower, solve_lower_transposed
from gwi.core.means import KernelMean
from gwi.core.measures import kernel_matrix
from gwi.core.products import KernelProducts, Root

# How far a variance, in units of the prior's, and a mean of standardised targets may be off by the rounding of products with
# k_Z(x), as it is estimated. Beyond, k_Z is whitened by a triangular solve first, which keeps those digits.
MOST_ROUNDING = 1e-10
# The same where variances are averaged over thousands of rows: the parts of a variance then change by at most 4e-7 of it.
MOST_OF_SPREAD = 1e-8
# What the values of a kernel that has no closed form may be off by, in units of their size and of eps.
ROUNDING = 24


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
        self.kernel, self.points, self.jitter = kernel, points.detach(), jitter
        self.closed = closed_kernel(kernel, self.points)
        self._whitened: list[tuple[int, Tensor]] = []
        self._others: list[tuple[int, KernelMean, float]] = []

    def take(self, member: int, term: KernelMean) -> bool:
        """Take a term of one member of the stack, if it is on this kernel and these points."""
        if not torch.equal(term.inducing_points, self.points):
            return False
        if term.prior_kernel is self.kernel and term.jitter == self.jitter:
            self._whitened.append((member, term.whitened_coefficients.detach()))
            return True
        closed = closed_kernel(term.prior_kernel, self.points)
        if closed is None or self.closed is None or not closed.differs_by_a_factor(self.closed):
            return False
        self._others.append((member, term, closed.outputscale / self.closed.outputscale))
        return True

    def prepared(
        self, num_members: int, num_outputs: int, lower: Float[Tensor, "M M"], root: Root | None
    ) -> tuple[Basis, Float[Tensor, "K J M"], list[KernelTerms]]:
        """The basis, the coefficients of each member in it, and terms that this basis has no place for.

        Args:
            num_members: K.
            num_outputs: J.
            lower: L with L Lᵀ = k(Z, Z).
            root: R of a variance that the basis is for, too.
        """
        whitened = lower.new_zeros(num_members, num_outputs, lower.shape[-1])
        for member, v in self._whitened:
            whitened[member] += v
        # Where they are of moderate size, β = L⁻ᵀ v has the digits that count, however ill-conditioned L is.
        coefficients = solve_lower_transposed(lower, whitened.flatten(0, 1).mT).mT.reshape(whitened.shape)
        for member, term, ratio in self._others:
            # By its own factor: where digits are short, jitter may be in one and not in the other.
            coefficients[member] += ratio * term.coefficients
        closed, accurate = self.closed, self._is_accurate(lower, coefficients, root)
        if closed is not None:
            closed = closed.with_expansion(accurate == "expanded")
        if accurate != "no":
            return Basis(self.kernel, self.points, None, closed), coefficients, []
        # φ of a kernel that is another by a factor has roundings of its own.
        left = []
        for member, term, _ in self._others:
            left.append(KernelTerms(term.prior_kernel, term.inducing_points, term.jitter))
            left[-1].take(member, term)
        return Basis(self.kernel, self.points, lower, closed), whitened, left

    def _is_accurate(self, lower: Tensor, coefficients: Tensor, root: Root | None) -> Literal["expanded", "differences", "no"]:
        """Whether products with k_Z(x) are, and with which squares of distances."""
        sensitivity = self._sensitivity(lower, coefficients, root)
        if not math.isfinite(sensitivity):
            # Coefficients that overflow give predictions that are no numbers, and these are refused.
            return "differences"
        if self.closed is None:
            rounding = ROUNDING * torch.finfo(lower.dtype).eps
            return "differences" if sensitivity * rounding <= MOST_ROUNDING else "no"
        if sensitivity * self.closed.rounding(expands=True) <= MOST_ROUNDING:
            return "expanded"
        return "differences" if sensitivity * self.closed.rounding(expands=False) <= MOST_ROUNDING else "no"

    def _sensitivity(self, lower: Tensor, coefficients: Tensor, root: Root | None) -> float:
        """What a rounding of k_Z(x), in units of the kernel's values, is multiplied by in the mean or in the variance."""
        level = float(lower.square().sum(-1).mean())
        of_mean = level * float(coefficients.abs().sum(-1).max())
        return max(of_mean, 0.0 if root is None else 2 * math.sqrt(level) * root.size)

    def nearly(self, lower: Tensor, whitened: Float[Tensor, "K J M"], root: Root) -> KernelProducts | None:
        """Products with k_Z(x) where φ is the basis, for variances that are averaged over rows; None where that is too rough.

        Args:
            lower: L.
            whitened: coefficients of φ.
            root: R, beside k_Z.
        """
        if self.closed is None:
            return None
        coefficients = solve_lower_transposed(lower, whitened.flatten(0, 1).mT).mT
        sensitivity = self._sensitivity(lower, coefficients, root)
        for expands in (True, False):
            # Coefficients that overflow are no less than the bound.
            if sensitivity * self.closed.rounding(expands) <= MOST_OF_SPREAD:
                return KernelProducts(self.closed.with_expansion(expands), coefficients, root)
        return None

    def group(self, num_members: int, num_outputs: int) -> Iterator[KernelGroup]:
        """They by themselves."""
        k_zz = kernel_matrix(self.kernel, self.points)
        lower = cholesky(k_zz, jitter=self.jitter, name="k(Z, Z)").factor
        basis, coefficients, left = self.prepared(num_members, num_outputs, lower, None)
        yield KernelGroup(basis, coefficients)
        for terms in left:
            yield from terms.group(num_members, num_outputs)
