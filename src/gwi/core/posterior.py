"""A fitted posterior made ready for many predictions: what does not depend on the row is computed once.

`GaussianMeasure.marginals` factorises k(Z, Z) at every call, as it must while parameters move. Here they are at rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from torch import Tensor, nn

from gwi.core.kernels import DisagreementKernel, SparsePosteriorKernel
from gwi.core.linalg import condition_estimate, solve_lower, solve_lower_transposed
from gwi.core.means import ConvexMean, KernelMean, SumMean
from gwi.core.measures import GaussianMeasure, kernel_matrix, kernel_variance, residual_part

# Above this condition number of k(Z, Z) a product with L⁻¹ loses digits that a triangular solve keeps.
WELL_CONDITIONED = 1e8
# Largest cosine between columns that are taken as orthogonal.
RIGHT_ANGLE = 1e-12


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


class AtRows(NamedTuple):
    """Rows, and what Q has of them: the mean, √w_k (m_k − m_Q) of each member, and c."""

    x: Tensor
    mean: Tensor
    spread: Tensor
    coordinates: Tensor


class CachedPosterior(nn.Module):
    """The marginals of Q at one kernel evaluation and one matrix product an output.

    With L Lᵀ = k(Z, Z) and S = U diag(s) Uᵀ, the coordinates c(x) = UᵀL⁻¹ k_Z(x) give
    r(x, x) = (k(x, x) − Σ c²) + Σ s c²  [eq:r_SVGP], both parts at least zero. The mean is taken apart into its terms, and kernel
    terms on the same Z share k_Z(x). Of a `DisagreementKernel`, a r + γ Σ_k w_k δ_k δ_k', the second part comes from the same
    members.

    Args:
        posterior: Q with a `SparsePosteriorKernel`, or one inside a `DisagreementKernel` of its means; its parameters must not
            change afterwards.
    """

    coordinates: Tensor
    spectrum: Tensor
    coefficients: Tensor
    weights: Tensor
    gamma: Tensor
    scale: Tensor

    @torch.no_grad()
    def __init__(self, posterior: GaussianMeasure):
        super().__init__()
        mean, whole = posterior.mean, posterior.kernel
        kernel = whole.kernel if isinstance(whole, DisagreementKernel) else whole
        if not isinstance(kernel, SparsePosteriorKernel) or kernel.prior_kernel.batch_shape.numel() != 1:
            raise TypeError("Only a posterior with a SparsePosteriorKernel over one prior kernel can be prepared.")
        if not isinstance(mean, nn.Module | None):
            raise TypeError(
                "The mean of a posterior to be prepared is a module: wrap a plain function in gwi.core.means.FixedMean."
            )
        lower = kernel.inducing_factor()
        self.basis = Basis(kernel.prior_kernel, kernel.inducing_points, lower)
        vectors, spectrum = _spectrum(kernel.whitened_factor)
        num_outputs = spectrum.shape[:-1].numel()
        members, weights = _members(mean, lower.new_ones(num_outputs))
        own = lower.new_zeros(len(members), num_outputs, lower.shape[-1])
        self.terms = nn.ModuleList()
        for i, member in enumerate(members):
            others = nn.ModuleList()
            for term in _terms(member):
                if not isinstance(term, KernelMean) or term.prior_mean is not None:
                    others.append(term)
                elif term.prior_kernel is kernel.prior_kernel and torch.equal(term.inducing_points, kernel.inducing_points):
                    own[i] += self.basis.coefficients(term)
                else:
                    others.append(KernelTerm(term))
            self.terms.append(others)
        self.shares_basis = [bool((part != 0).any()) for part in own]
        self.handover = mean.handover if isinstance(mean, ConvexMean) else None
        self.register_buffer("weights", weights)
        self.register_buffer("coefficients", own)
        self.register_buffer("spectrum", spectrum)
        has_parts = isinstance(whole, DisagreementKernel)
        self.register_buffer("gamma", whole.disagreement_weight if has_parts else lower.new_zeros(num_outputs))
        self.register_buffer("scale", whole.scale if has_parts else lower.new_ones(num_outputs))
        self.posterior = posterior
        whitened = self.basis.factor is not None
        self.register_buffer("coordinates", vectors.mT.contiguous() if whitened else solve_lower_transposed(lower, vectors).mT)

    def mean_at(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "J N"]:
        """m_Q at the rows of x."""
        basis = self.basis(x)
        variance = None if self.handover is None else self._variance(x, self.coordinates @ basis)
        return self._mean(x, basis, variance)[0]

    def _variance(self, x: Tensor, coordinates: Tensor) -> Float[Tensor, "*J N"]:
        """r at the rows of x."""
        squares = coordinates.square()
        variance = residual_part(kernel_variance(self.basis.prior_kernel, x), squares.sum(-2))
        return variance + (self.spectrum[..., None, :] @ squares)[..., 0, :]

    def _mean(self, x: Tensor, basis: Tensor, variance: Tensor | None) -> tuple[Tensor, Tensor]:
        """m_Q, and √w_k (m_k − m_Q) of each member; no member where γ is zero. r is for weights that depend on it."""
        handover = self.handover
        away = handover is not None and variance is not None and bool((variance > handover.known[:, None]).any())
        values = []
        for weight, shares, coefficients, terms in zip(
            self.weights, self.shares_basis, self.coefficients, self.terms, strict=True
        ):
            if not away and not weight.any():
                # At home those have no part who only receive.
                values.append(basis.new_zeros(len(weight), basis.shape[-1]))
                continue
            assert isinstance(terms, nn.ModuleList)
            parts = [term(x) for term in terms]
            if shares or not parts:
                parts.append(coefficients @ basis)
            values.append(torch.stack(parts).sum(0) if len(parts) > 1 else parts[0])
        members = torch.stack(torch.broadcast_tensors(*values))
        if len(members) == 1:
            return members[0], members[:0]
        weights = self.weights[..., None]
        if away and handover is not None and variance is not None:
            weights = handover(self.weights.mT, members, variance)
        mean = (weights * members).sum(0)
        if not (self.gamma > 0).any():
            return mean, members[:0]
        return mean, weights.sqrt() * (members - mean)

    def parts(self, x: Float[Tensor, "N D"]) -> tuple[Float[Tensor, "J N"], Float[Tensor, "J N"], Float[Tensor, "J N"]]:
        """Mean, r and γ d² at each row; the variance of F is a r + γ d²."""
        basis = self.basis(x)
        variance = self._variance(x, self.coordinates @ basis)
        mean, spread = self._mean(x, basis, variance)
        mean, variance = torch.broadcast_tensors(mean, variance)
        return mean, variance, self.gamma[:, None] * spread.square().sum(0).expand_as(variance)

    def at(self, x: Float[Tensor, "N D"]) -> AtRows:
        """What `cross` needs of rows."""
        basis = self.basis(x)
        coordinates = self.coordinates @ basis
        return AtRows(x, *self._mean(x, basis, self._variance(x, coordinates)), coordinates)

    def cross(self, first: AtRows, second: AtRows) -> tuple[Float[Tensor, "J n N"], Float[Tensor, "J n N"]]:
        """r, and γ Σ_k w_k δ_k δ_k', between rows."""
        prior = kernel_matrix(self.basis.prior_kernel, first.x, second.x)
        explained = first.coordinates.mT @ ((1 - self.spectrum)[..., None] * second.coordinates)
        r = (prior - explained).expand(len(self.scale), -1, -1)
        return r, self.gamma[:, None, None] * torch.einsum("kjn,kjm->jnm", first.spread, second.spread).expand_as(r)

    def residual(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "*J N"]:
        """k(x, x) − φ(x)ᵀφ(x) at each row: the prior variance that Z leaves unexplained."""
        squares = (self.coordinates @ self.basis(x)).square()
        return residual_part(kernel_variance(self.basis.prior_kernel, x), squares.sum(-2))

    def marginals(self, x: Float[Tensor, "N D"]) -> tuple[Float[Tensor, "J N"], Float[Tensor, "J N"]]:
        """Mean and variance of F(x) at each row."""
        mean, variance, disagreement = self.parts(x)
        return mean, self.scale[:, None] * variance + disagreement

    def joint(self, x: Float[Tensor, "*B Q D"]) -> tuple[Float[Tensor, "*B J Q"], Float[Tensor, "*B J Q Q"]]:
        """Mean and covariance of F at each batch of rows, differentiable in x where the mean is."""
        rows = x.reshape(-1, x.shape[-1])
        basis = self.basis(rows)
        batch, size = x.shape[:-2], x.shape[-2]
        c = self.coordinates @ basis
        mean, spread = self._mean(rows, basis, self._variance(rows, c))
        c = c.expand(mean.shape[0], -1, -1)
        c = c.reshape(*c.shape[:2], -1, size).permute(2, 0, 1, 3)
        prior = kernel_matrix(self.basis.prior_kernel, x.reshape(-1, size, x.shape[-1]))[:, None]
        covariance = self.scale[:, None, None] * (prior - c.mT @ ((1 - self.spectrum)[..., :, None] * c))
        if len(spread) > 0:
            spread = spread.reshape(*spread.shape[:2], -1, size)
            covariance = covariance + self.gamma[:, None, None] * torch.einsum("kjbn,kjbm->bjnm", spread, spread)
        mean = mean.reshape(mean.shape[0], -1, size).movedim(0, 1)
        return mean.reshape(*batch, -1, size), covariance.reshape(*batch, -1, size, size)


def with_disagreement(
    posterior: GaussianMeasure, disagreement_weight: Float[Tensor, " J"], scale: Float[Tensor, " J"] | None = None
) -> GaussianMeasure:
    """Q with kernel a r + γ Σ_k w_k δ_k δ_k' in place of r; as it is where that is the same, or its kernel is whole already."""
    mean, kernel = posterior.mean, posterior.kernel
    stacked = isinstance(mean, ConvexMean) and bool((disagreement_weight > 0).any())
    scaled = scale is not None and bool((scale != 1).any())
    if not isinstance(kernel, SparsePosteriorKernel) or not (stacked or scaled):
        return posterior
    scale = torch.ones_like(disagreement_weight) if scale is None else scale
    if stacked and isinstance(mean, ConvexMean):
        weights = mean.weights.expand(len(scale), -1)
        whole = DisagreementKernel(kernel, list(mean.means), weights, disagreement_weight, scale, mean.handover)
    else:
        whole = DisagreementKernel(kernel, [], scale[:, None][:, :0], disagreement_weight, scale)
    return GaussianMeasure(mean, whole).requires_grad_(False).eval()


def _spectrum(factor: Float[Tensor, "*J M M"]) -> tuple[Float[Tensor, "*K M M"], Float[Tensor, "*J M"]]:
    """U and s with F Fᵀ = U diag(s) Uᵀ."""
    diagonal = factor.diagonal(dim1=-2, dim2=-1)
    if torch.equal(factor, torch.diag_embed(diagonal)):
        # One basis for all outputs.
        return torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device), diagonal.square()
    # Columns at right angles, as a factor of eigenvectors has them, are known already.
    values = factor.square().sum(-2)
    if (values > 0).all():
        vectors = factor * values.rsqrt()[..., None, :]
        eye = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
        if ((vectors.mT @ vectors - eye).abs() <= RIGHT_ANGLE).all():
            return vectors, values
    values, vectors = torch.linalg.eigh(factor @ factor.mT)
    return vectors, values.clamp_min(0)


def _members(mean: nn.Module | None, one: Tensor) -> tuple[list[nn.Module | None], Float[Tensor, "K J"]]:
    """The means that are combined, and the weight of each in each output."""
    if isinstance(mean, ConvexMean):
        return list(mean.means), mean.weights.to(one).expand(len(one), -1).mT.contiguous()
    return [mean], one[None]


def _terms(mean: nn.Module | None) -> Iterator[nn.Module]:
    """The parts that add up to a member."""
    if isinstance(mean, SumMean):
        for part in mean.means:
            yield from _terms(part)
    elif mean is not None:
        yield mean
