"""A fitted posterior made ready for many predictions: what does not depend on the row is computed once.

`GaussianMeasure.marginals` factorises k(Z, Z) at every call, as it must while parameters move. Here they are at rest.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from torch import Tensor, nn

from gwi.kernels import SparsePosteriorKernel, residual_part
from gwi.linalg import condition_estimate, solve_lower, solve_lower_transposed
from gwi.means import ConvexMean, KernelMean, SumMean
from gwi.measures import GaussianMeasure, kernel_matrix, kernel_variance

# Above this condition number of k(Z, Z) a product with L⁻¹ loses digits that a triangular solve keeps.
WELL_CONDITIONED = 1e8


class Basis(nn.Module):
    """k_Z(x), or φ(x) = L⁻¹ k_Z(x) where k(Z, Z) is ill-conditioned: the functions that means and variances are products with.

    Args:
        prior_kernel: k.
        inducing_points: Z.
        factor: L with L Lᵀ = k(Z, Z).
    """

    inducing_points: Tensor
    factor: Tensor | None

    def __init__(self, prior_kernel: Kernel, inducing_points: Float[Tensor, "M D"], factor: Float[Tensor, "M M"]):
        super().__init__()
        self.prior_kernel = prior_kernel
        self.register_buffer("inducing_points", inducing_points.detach())
        self.register_buffer("factor", None if condition_estimate(factor) < WELL_CONDITIONED else factor)

    def forward(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "M N"]:
        """Its values, one column a row of x."""
        k_zx = kernel_matrix(self.prior_kernel, self.inducing_points, x)
        return k_zx if self.factor is None else solve_lower(self.factor, k_zx)

    def coefficients(self, mean: KernelMean) -> Float[Tensor, "J M"]:
        """Those of a kernel mean in this basis."""
        return mean.coefficients if self.factor is None else mean.whitened_coefficients


class KernelTerm(nn.Module):
    """A kernel mean with its coefficients at hand: one evaluation of the basis and one product with a vector."""

    coefficients: Tensor

    def __init__(self, mean: KernelMean):
        super().__init__()
        self.basis = Basis(mean.prior_kernel, mean.inducing_points, mean.inducing_factor())
        self.register_buffer("coefficients", self.basis.coefficients(mean))

    def forward(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "J N"]:
        """The mean at the rows of x."""
        return self.coefficients @ self.basis(x)


class PreparedPosterior(nn.Module):
    """The marginals of Q at one kernel evaluation and one matrix product an output.

    With L Lᵀ = k(Z, Z) and S = U diag(s) Uᵀ, the coordinates c(x) = UᵀL⁻¹ k_Z(x) give
    r(x, x) = (k(x, x) − Σ c²) + Σ s c²  [eq:r_SVGP], both parts at least zero. The mean is taken apart into its terms, and kernel
    terms on the same Z share k_Z(x).

    Args:
        posterior: Q with a `SparsePosteriorKernel`; its parameters must not change afterwards.
    """

    coordinates: Tensor
    spectrum: Tensor
    coefficients: Tensor
    weights: Tensor

    @torch.no_grad()
    def __init__(self, posterior: GaussianMeasure):
        super().__init__()
        kernel = posterior.kernel
        mean = posterior.mean
        if not isinstance(kernel, SparsePosteriorKernel) or kernel.prior_kernel.batch_shape.numel() != 1:
            raise TypeError("Only a posterior with a SparsePosteriorKernel over one prior kernel can be prepared.")
        if not isinstance(mean, nn.Module | None):
            raise TypeError("The mean of a posterior to be prepared is a module: wrap a plain function in gwi.means.FixedMean.")
        lower = kernel.inducing_factor()
        self.basis = Basis(kernel.prior_kernel, kernel.inducing_points, lower)
        vectors, spectrum = _spectrum(kernel.whitened_factor)
        num_outputs = spectrum.shape[:-1].numel()
        own = lower.new_zeros(num_outputs, lower.shape[-1])
        others: list[tuple[nn.Module, Tensor]] = []
        for term, weight in _terms(mean, own.new_ones(num_outputs)):
            if not isinstance(term, KernelMean) or term.prior_mean is not None:
                others.append((term, weight))
            elif term.prior_kernel is kernel.prior_kernel and torch.equal(term.inducing_points, kernel.inducing_points):
                own = own + weight[:, None] * self.basis.coefficients(term)
            else:
                others.append((KernelTerm(term), weight))
        self.terms = nn.ModuleList([term for term, _ in others])
        self.register_buffer("weights", torch.stack([w for _, w in others]) if others else own.new_zeros(0, num_outputs))
        self.register_buffer("coefficients", own)
        self.register_buffer("spectrum", spectrum)
        whitened = self.basis.factor is not None
        self.register_buffer("coordinates", vectors.mT.contiguous() if whitened else solve_lower_transposed(lower, vectors).mT)

    def mean_at(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "J N"]:
        """m_Q at the rows of x."""
        return self._mean(x, self.basis(x))

    def _mean(self, x: Tensor, basis: Tensor) -> Tensor:
        mean = self.coefficients @ basis
        for term, weight in zip(self.terms, self.weights, strict=True):
            mean = mean + weight[:, None] * term(x)
        return mean

    def marginals(self, x: Float[Tensor, "N D"]) -> tuple[Float[Tensor, "J N"], Float[Tensor, "J N"]]:
        """Mean and variance of F(x) at each row."""
        basis = self.basis(x)
        squares = (self.coordinates @ basis).square()
        variance = residual_part(kernel_variance(self.basis.prior_kernel, x), squares.sum(-2))
        variance = variance + (self.spectrum[..., None, :] @ squares)[..., 0, :]
        mean, variance = torch.broadcast_tensors(self._mean(x, basis), variance)
        return mean, variance

    def joint(self, x: Float[Tensor, "*B Q D"]) -> tuple[Float[Tensor, "*B J Q"], Float[Tensor, "*B J Q Q"]]:
        """Mean and covariance of F at each batch of rows, differentiable in x where the mean is."""
        rows = x.reshape(-1, x.shape[-1])
        basis = self.basis(rows)
        batch, size = x.shape[:-2], x.shape[-2]
        mean = self._mean(rows, basis)
        c = (self.coordinates @ basis).expand(mean.shape[0], -1, -1)
        c = c.reshape(*c.shape[:2], -1, size).permute(2, 0, 1, 3)
        prior = kernel_matrix(self.basis.prior_kernel, x.reshape(-1, size, x.shape[-1]))[:, None]
        covariance = prior - c.mT @ ((1 - self.spectrum)[..., :, None] * c)
        mean = mean.reshape(mean.shape[0], -1, size).movedim(0, 1)
        return mean.reshape(*batch, -1, size), covariance.reshape(*batch, -1, size, size)


def _spectrum(factor: Float[Tensor, "*J M M"]) -> tuple[Float[Tensor, "*J M M"], Float[Tensor, "*J M"]]:
    """U and s with F Fᵀ = U diag(s) Uᵀ."""
    diagonal = factor.diagonal(dim1=-2, dim2=-1)
    if torch.equal(factor, torch.diag_embed(diagonal)):
        return torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device).expand_as(factor), diagonal.square()
    values, vectors = torch.linalg.eigh(factor @ factor.mT)
    return vectors, values.clamp_min(0)


def _terms(mean: nn.Module | None, weight: Tensor) -> Iterator[tuple[nn.Module, Tensor]]:
    """The parts that add up to the mean, each with its weight in each output."""
    if isinstance(mean, ConvexMean):
        for part, share in zip(mean.means, mean.weights.expand(len(weight), -1).mT, strict=True):
            yield from _terms(part, weight * share)
    elif isinstance(mean, SumMean):
        for part in mean.means:
            yield from _terms(part, weight)
    elif mean is not None:
        yield mean, weight
