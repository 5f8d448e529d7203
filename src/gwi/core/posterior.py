"""A fitted posterior made ready for many predictions: what does not depend on the row is computed once.

`GaussianMeasure.marginals` factorises k(Z, Z) at every call, as it must while parameters move. Here they are at rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gwi.core.kernel_terms import KernelGroup, KernelTerms
from gwi.core.kernels import DisagreementKernel, SparsePosteriorKernel
from gwi.core.linalg import solve_lower, triangular_factor
from gwi.core.means import ConvexMean, KernelMean, SumMean
from gwi.core.measures import GaussianMeasure, kernel_matrix, kernel_variance, residual_part
from gwi.core.products import KernelProducts, Root
from gwi.core.resting import at_rest

# Largest cosine between columns that are taken as orthogonal.
RIGHT_ANGLE = 1e-12


class AtRows(NamedTuple):
    """Rows, and what Q has of them: the mean, √w_k (m_k − m_Q) of each member, and c."""

    x: Tensor
    mean: Tensor
    spread: Tensor
    coordinates: Tensor


class CachedPosterior(nn.Module):
    """The marginals of Q at one kernel evaluation and one matrix product an output.

    With L Lᵀ = k(Z, Z) and S = U diag(s) Uᵀ, a basis b(x), k_Z(x) or L⁻¹k_Z(x), has coordinates c(x) = R b(x) with
    r(x, x) = k(x, x) − Σ c² [eq:r_SVGP], or (k(x, x) − Σ c²) + Σ s c² where S ⪯ I does not hold or digits are short: see
    `gwi.core.products`. The mean is taken apart into its terms, and kernel terms on the same Z share k_Z(x). Of a
    `DisagreementKernel`, a r + γ Σ_k w_k δ_k δ_k', the second part comes from the same members.

    Args:
        posterior: Q with a `SparsePosteriorKernel`, or one inside a `DisagreementKernel` of its means; its parameters must not
            change afterwards.
    """

    matrix: Tensor | None
    spectrum: Tensor | None
    lowest: Tensor
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
        roots = _roots(lower, kernel.whitened_factor)
        lowest, root = roots.lowest, roots.of_kernel()
        num_outputs = len(lowest)
        members, weights = _members(mean, lower.new_ones(num_outputs))
        own, others, self.terms = _taken_apart(members, kernel)
        self.basis, coefficients, left = own.prepared(len(members), num_outputs, lower, root)
        # For variances that are averaged over many rows nearly as many digits are enough, and the solve can be left out.
        self.nearly: KernelProducts | None = None
        if self.basis.factor is not None:
            self.nearly = own.nearly(lower, coefficients, root)
            root = roots.of_whitened()
        self.groups = nn.ModuleList(group for other in (*others, *left) for group in other.group(len(members), num_outputs))
        self.shares_basis = [bool((part != 0).any()) for part in coefficients]
        # Products are for what is at rest; they need the kernel's closed form.
        self.products: KernelProducts | None = None
        if self.basis.closed is not None:
            self.products = KernelProducts(self.basis.closed, coefficients.flatten(0, 1), root, self.basis.factor)
        self.handover = mean.handover if isinstance(mean, ConvexMean) else None
        self.register_buffer("matrix", root.matrix)
        self.register_buffer("spectrum", root.spectrum)
        # S ⪰ s I says r ≥ s k, whatever is rounded.
        self.register_buffer("lowest", lowest.clamp(0, 1).reshape(num_outputs, 1))
        self.register_buffer("weights", weights)
        self.has_weight = [bool(weight.any()) for weight in weights]
        self.register_buffer("coefficients", coefficients)
        has_parts = isinstance(whole, DisagreementKernel)
        self.register_buffer("gamma", whole.disagreement_weight if has_parts else lower.new_zeros(num_outputs))
        self.register_buffer("scale", whole.scale if has_parts else lower.new_ones(num_outputs))
        self.disagrees = bool((self.gamma > 0).any())
        self.posterior = posterior

    def mean_at(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "J N"]:
        """m_Q at the rows of x."""
        if self.handover is not None:
            own, variance, _ = self._evaluate(x)
            return self._mean(x, own, variance)[0]
        # Without a variance there is no product with R.
        if self.products is not None and not torch.is_grad_enabled():
            own = self.products.sums(x).reshape(*self.coefficients.shape[:2], len(x))
        else:
            own = self.coefficients @ self.basis(x)
        return self._mean(x, own, None)[0]

    def _evaluate(
        self, x: Float[Tensor, "N D"], coordinates: bool = False, nearly: bool = False
    ) -> tuple[Float[Tensor, "K J N"], Float[Tensor, "*J N"], Tensor | None]:
        """What each member has of kernel means on Z, r, and c where it is asked for, from one evaluation of the kernel."""
        products = self.nearly if nearly and self.nearly is not None else self.products
        if products is not None and not coordinates and not torch.is_grad_enabled():
            sums, squares, kept = products(x)
            prior: Tensor | float = products.closed.outputscale
            return sums.reshape(*self.coefficients.shape[:2], len(x)), self._variance(prior, squares, kept), None
        basis = self.basis(x)
        c = basis if self.matrix is None else self.matrix @ basis
        squares = c.square()
        kept = None if self.spectrum is None else (self.spectrum[:, None] @ squares)[:, 0]
        variance = self._variance(kernel_variance(self.basis.prior_kernel, x), squares.sum(-2), kept)
        return self.coefficients @ basis, variance, c

    def _variance(self, prior: Tensor | float, squares: Tensor, kept: Tensor | None) -> Float[Tensor, "J N"]:
        """r from k, Σ c² and Σ s c²."""
        if kept is not None:
            return (prior - squares).clamp_min(0) + kept
        return torch.maximum(prior - squares, self.lowest * prior)

    def _mean(self, x: Tensor, own: Tensor, variance: Tensor | None) -> tuple[Tensor, Tensor]:
        """m_Q, and √w_k (m_k − m_Q) of each member; no member where γ is zero. r is for weights that depend on it."""
        handover = self.handover
        values = self._members_at(x, own, self.has_weight)
        away = False
        if handover is not None and variance is not None:
            beyond = (variance > handover.known[:, None]).any(0).nonzero()[:, 0]
            away = len(beyond) > 0
            # At home those have no part who only receive, so they are asked away from it and nowhere else.
            receive = [not has for has in self.has_weight]
            if away and any(receive):
                found = self._members_at(x[beyond], own[..., beyond], receive)
                for i in (i for i, only in enumerate(receive) if only):
                    values[i] = values[i].index_copy(-1, beyond, found[i].expand_as(values[i][..., beyond]))
        if len(values) == 1:
            return values[0], own[:0]
        members = torch.stack(torch.broadcast_tensors(*values))
        weights = self.weights[..., None]
        if away and handover is not None and variance is not None:
            weights = handover(self.weights.mT, members, variance)
        mean = (weights * members).sum(0)
        if not self.disagrees:
            return mean, members[:0]
        return mean, weights.sqrt() * (members - mean)

    def _members_at(self, x: Tensor, own: Tensor, asked: Sequence[bool]) -> list[Tensor]:
        """What those members say that are asked, and zeros of others."""
        sums = list(own)
        for group in cast("Iterable[KernelGroup]", self.groups):
            wanted = [i for i, holds in enumerate(group.members) if holds and asked[i]]
            found = group(x) if wanted else own
            for i in wanted:
                sums[i] = sums[i] + found[i]
        return [
            reduce(torch.add, (term(x) for term in terms), part) if here else torch.zeros_like(part)
            for part, terms, here in zip(sums, cast("Iterable[nn.ModuleList]", self.terms), asked, strict=True)
        ]

    def parts(
        self, x: Float[Tensor, "N D"], nearly: bool = False
    ) -> tuple[Float[Tensor, "J N"], Float[Tensor, "J N"], Float[Tensor, "J N"]]:
        """Mean, r and γ d² at each row; the variance of F is a r + γ d². Nearly: see `KernelTerms.nearly`."""
        own, variance, _ = self._evaluate(x, nearly=nearly)
        mean, spread = self._mean(x, own, variance)
        mean, variance = torch.broadcast_tensors(mean, variance)
        if not len(spread):
            return mean, variance, torch.zeros_like(variance)
        return mean, variance, self.gamma[:, None] * spread.square().sum(0).expand_as(variance)

    def remaining(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "J N"]:
        """r at each row, without the means."""
        return self._evaluate(x)[1].expand(len(self.scale), -1)

    def variance(self, x: Float[Tensor, "N D"], nearly: bool = False) -> Float[Tensor, "J N"]:
        """That of F, and the means are asked only where they have a part in it. Nearly: see `KernelTerms.nearly`."""
        if not self.disagrees:
            return self.scale[:, None] * self._evaluate(x, nearly=nearly)[1].expand(len(self.scale), -1)
        _, variance, disagreement = self.parts(x, nearly)
        return self.scale[:, None] * variance + disagreement

    def at(self, x: Float[Tensor, "N D"]) -> AtRows:
        """What `cross` needs of rows."""
        own, variance, coordinates = self._evaluate(x, coordinates=True)
        assert coordinates is not None
        return AtRows(x, *self._mean(x, own, variance), coordinates)

    def _explained(self, first: Tensor, second: Tensor) -> Float[Tensor, "*J n N"]:
        """k − r between rows with these coordinates."""
        return first.mT @ (second if self.spectrum is None else (1 - self.spectrum)[..., None] * second)

    def cross(self, first: AtRows, second: AtRows) -> tuple[Float[Tensor, "J n N"], Float[Tensor, "J n N"]]:
        """r, and γ Σ_k w_k δ_k δ_k', between rows."""
        prior = kernel_matrix(self.basis.prior_kernel, first.x, second.x)
        r = (prior - self._explained(first.coordinates, second.coordinates)).expand(len(self.scale), -1, -1)
        return r, self.gamma[:, None, None] * torch.einsum("kjn,kjm->jnm", first.spread, second.spread).expand_as(r)

    def residual(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "*J N"]:
        """k(x, x) − φ(x)ᵀφ(x) at each row: the prior variance that Z leaves unexplained."""
        k_zx = kernel_matrix(self.basis.prior_kernel, self.basis.inducing_points, x)
        kernel = self.posterior.kernel
        kernel = kernel.kernel if isinstance(kernel, DisagreementKernel) else kernel
        assert isinstance(kernel, SparsePosteriorKernel)
        squares = solve_lower(kernel.inducing_factor(), k_zx).square()
        return residual_part(kernel_variance(self.basis.prior_kernel, x), squares.sum(-2)).expand(len(self.lowest), -1)

    def marginals(self, x: Float[Tensor, "N D"]) -> tuple[Float[Tensor, "J N"], Float[Tensor, "J N"]]:
        """Mean and variance of F(x) at each row."""
        mean, variance, disagreement = self.parts(x)
        return mean, self.scale[:, None] * variance + disagreement

    def joint(self, x: Float[Tensor, "*B Q D"]) -> tuple[Float[Tensor, "*B J Q"], Float[Tensor, "*B J Q Q"]]:
        """Mean and covariance of F at each batch of rows, differentiable in x where the mean is."""
        rows = x.reshape(-1, x.shape[-1])
        batch, size = x.shape[:-2], x.shape[-2]
        own, variance, c = self._evaluate(rows, coordinates=True)
        assert c is not None
        mean, spread = self._mean(rows, own, variance)
        c = c.expand(mean.shape[0], -1, -1)
        c = c.reshape(*c.shape[:2], -1, size).permute(2, 0, 1, 3)
        prior = kernel_matrix(self.basis.prior_kernel, x.reshape(-1, size, x.shape[-1]))[:, None]
        covariance = self.scale[:, None, None] * (prior - self._explained(c, c))
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


@dataclass(frozen=True)
class _Roots:
    """Coordinates in both bases, and a number s with S ⪰ s I of each output."""

    of_kernel: Callable[[], Root]
    of_whitened: Callable[[], Root]
    lowest: Float[Tensor, " J"]


def _roots(lower: Float[Tensor, "M M"], factor: Float[Tensor, "*J M M"]) -> _Roots:
    """From a triangular F and the triangular factor of I − S where there are both, else from eigenvalues of S."""
    is_triangular = bool(factor.tril(-1).any()) and torch.equal(factor, factor.tril())
    if is_triangular and bool((factor.diagonal(dim1=-2, dim2=-1) > 0).all()):
        eye = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
        rest = triangular_factor(eye - factor @ factor.mT)
        if rest is not None:
            rest = rest[0] if rest.ndim == 3 and len(rest) == 1 else rest
            # The largest eigenvalue of S⁻¹ is at most its trace.
            lowest = 1 / solve_lower(factor, eye.expand_as(factor)).square().sum((-2, -1)).reshape(-1)
            return _Roots(partial(Root.of_rest, lower, rest), partial(Root.of_rest, None, rest), lowest)
    vectors, spectrum = _spectrum(factor)
    spectrum = spectrum.reshape(-1, spectrum.shape[-1])
    vectors = vectors.reshape(vectors.shape[-2:]) if len(spectrum) == 1 else vectors
    of_kernel, of_whitened = partial(Root.of_kernel, lower, vectors, spectrum), partial(Root.of_whitened, vectors, spectrum)
    return _Roots(of_kernel, of_whitened, spectrum.amin(-1))


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


def _taken_apart(
    members: Sequence[nn.Module | None], kernel: SparsePosteriorKernel
) -> tuple[KernelTerms, list[KernelTerms], nn.ModuleList]:
    """Kernel means on the kernel and the points of r, those on others, and what else each member is the sum of."""
    own = KernelTerms(kernel.prior_kernel, kernel.inducing_points, kernel.jitter)
    found: list[KernelTerms] = [own]
    others: list[list[nn.Module]] = [[] for _ in members]
    for i, member in enumerate(members):
        for term in _terms(member):
            if isinstance(term, KernelMean) and term.prior_mean is None:
                if not any(terms.take(i, term) for terms in found):
                    found.append(KernelTerms(term.prior_kernel, term.inducing_points, term.jitter))
                    found[-1].take(i, term)
            else:
                others[i].append(at_rest(term))
    return own, found[1:], nn.ModuleList(nn.ModuleList(terms) for terms in others)


def _terms(mean: nn.Module | None) -> Iterator[nn.Module]:
    """The parts that add up to a member."""
    if isinstance(mean, SumMean):
        for part in mean.means:
            yield from _terms(part)
    elif mean is not None:
        yield mean
