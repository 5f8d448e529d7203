"""Kernels of the variational measure: the sparse posterior kernel r [eq:r_SVGP], means that disagree, features, the shrunken
prior.

Prior kernels k are GPyTorch's own. Everything here is a GPyTorch kernel as well, so sums, products and scalings of them work.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence

import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, PeriodicKernel, RBFKernel, RQKernel, ScaleKernel
from gpytorch.priors import LogNormalPrior
from jaxtyping import Float
from torch import Tensor, nn

from gwi.core.handover import Handover
from gwi.core.linalg import cholesky, positive_semidefinite_factor, solve_lower, solve_lower_transposed, triangular_factor
from gwi.core.measures import kernel_factor, kernel_matrix, kernel_variance, residual_part

# Of length-scales and their inverses, among columns whose relevance is asked for.
SMALLEST_SCALE = 1e-6


def default_kernel(
    num_features: int,
    *,
    lengthscale: float | Float[Tensor, " D"] | None = None,
    outputscale: float = 1.0,
    hyper_priors: bool = True,
    ard: bool = True,
    shape: type[Kernel] = RBFKernel,
    **arguments: float,
) -> ScaleKernel:
    """The ARD squared-exponential kernel [eq:ARD_kernel], or one of another shape, in float64, for standardised rows and targets.

    Scales are positive through exp rather than GPyTorch's softplus: a fit then steps in relative terms, which matters for the
    length-scales of irrelevant inputs, that grow by orders of magnitude.

    Args:
        num_features: D.
        lengthscale: α_d, one for all or one each; √D unless given, the typical distance of standardised rows.
        outputscale: σ_f².
        hyper_priors: register weak log-normal priors on the scales, for `core.prior.fit_prior` to add. Without them few inducing
            points drive σ_f² to hundreds of target variances, and with it the standard deviation away from data.
        ard: whether each feature has a length-scale of its own, or all share one.
        shape: of the kernel, any with a length-scale.
        arguments: for `shape`, such as ``nu``.

    Examples:
        >>> import torch
        >>> from gwi.core.kernels import default_kernel
        >>> kernel = default_kernel(2, lengthscale=1.0, outputscale=4.0)
        >>> kernel(torch.zeros(1, 2, dtype=torch.float64)).to_dense().item()
        4.0
    """
    # Centred at √D like the distances themselves (Hvarfner et al. 2024), two orders of magnitude wide.
    wide = LogNormalPrior(2**0.5 + math.log(num_features) / 2, 3**0.5) if hyper_priors else None
    unit = LogNormalPrior(0.0, 1.0) if hyper_priors else None
    num_scales = num_features if ard else None
    base = shape(ard_num_dims=num_scales, lengthscale_prior=wide, lengthscale_constraint=_positive(), **arguments)
    kernel = ScaleKernel(base, outputscale_prior=unit, outputscale_constraint=_positive()).double()
    # As tensors: GPyTorch would round a Python number to float32 on the way in.
    lengthscale = num_features**0.5 if lengthscale is None else lengthscale
    base.lengthscale = torch.as_tensor(lengthscale, dtype=torch.float64).expand(num_scales or 1)
    kernel.outputscale = torch.tensor(outputscale, dtype=torch.float64)
    return kernel


def linear_kernel() -> LinearKernel:
    """v xᵀx' with a weak prior on v, in float64: what a squared exponential forgets beyond the rows it has seen."""
    kernel = LinearKernel(variance_prior=LogNormalPrior(0.0, 1.0), variance_constraint=_positive()).double()
    kernel.variance = torch.tensor(1.0, dtype=torch.float64)
    return kernel


@torch.no_grad()
def with_lengthscales_times(kernel: Kernel, factor: float) -> Kernel:
    """A copy of the kernel with all length-scales multiplied."""
    copied = copy.deepcopy(kernel)
    for part in copied.modules():
        if isinstance(part, Kernel) and part.has_lengthscale:
            part.lengthscale = factor * part.lengthscale
    return copied


def has_one_variance(kernel: Kernel) -> bool:
    """Whether k(x, x) is the same at every row, told by the type: what calls itself stationary may not be."""
    inner = kernel.base_kernel if type(kernel) is ScaleKernel else kernel
    return type(inner) in (RBFKernel, MaternKernel, RQKernel, PeriodicKernel)


def column_relevances(kernel: Kernel, num_features: int) -> Float[Tensor, " D"]:
    """1/α_d of each column, of all parts of a kernel together, with mean square one; ones where it has no length-scales."""
    total = torch.zeros(num_features, dtype=torch.float64)
    for part in kernel.modules():
        scales = part.lengthscale if isinstance(part, Kernel) and part.has_lengthscale else None
        if scales is not None and scales.numel() == num_features and part.active_dims is None:
            total += scales.detach().double().cpu().reshape(-1).clamp_min(SMALLEST_SCALE).square().reciprocal()
    return (total / total.mean()).sqrt().clamp_min(SMALLEST_SCALE) if total.sum() > 0 else torch.ones_like(total)


def _positive() -> Positive:
    return Positive(transform=torch.exp, inv_transform=torch.log)


class SparsePosteriorKernel(Kernel):
    """r(x, x') = k(x, x') − k_Z(x)ᵀ K_ZZ⁻¹ k_Z(x') + k_Z(x)ᵀ Σ k_Z(x')  [eq:r_SVGP].

    Computed in whitened form: K_ZZ = L Lᵀ, φ(x) = L⁻¹ k_Z(x), Σ = L⁻ᵀ S L⁻¹, so r = (k − φᵀφ') + φᵀ S φ'. The first part
    is what Z leaves unexplained and is at least zero; S = F Fᵀ makes the second part at least zero.

    Args:
        prior_kernel: k, any GPyTorch kernel.
        inducing_points: Z. A parameter that does not ask for gradients until `requires_grad_` is called on it.
        whitened_covariance: S, positive semi-definite, zero allowed; a batch of J for J outputs. Held as its factor F.
        jitter: relative jitter of the first Cholesky attempt on K_ZZ.

    Examples:
        >>> import torch
        >>> from gwi.core.kernels import SparsePosteriorKernel, default_kernel
        >>> z = torch.linspace(0, 1, 5, dtype=torch.float64)[:, None]
        >>> kernel = SparsePosteriorKernel(default_kernel(1), z, torch.zeros(5, 5, dtype=torch.float64))
        >>> variance = kernel(torch.tensor([[0.5], [30.0]], dtype=torch.float64), diag=True)
        >>> variance.detach().round(decimals=3).flatten().tolist()  # known at Z, the prior's variance far away
        [0.0, 1.0]
    """

    has_lengthscale = False

    def __init__(
        self,
        prior_kernel: Kernel,
        inducing_points: Float[Tensor, "M D"],
        whitened_covariance: Float[Tensor, "*J K K"],
        *,
        jitter: float = 0.0,
    ):
        super().__init__()
        num_inducing = inducing_points.shape[0]
        if whitened_covariance.shape[-2:] != (num_inducing, num_inducing):
            raise ValueError(
                f"{num_inducing} inducing points need a whitened covariance of {num_inducing} × {num_inducing}; "
                f"got {tuple(whitened_covariance.shape)}."
            )
        self.prior_kernel = prior_kernel
        self.jitter = jitter
        factor = _whitened_factor(whitened_covariance.detach())
        # In row order, whatever the order of what came: products round by it, and a loaded model has to round the same way.
        self.inducing_points = nn.Parameter(
            inducing_points.detach().clone(memory_format=torch.contiguous_format), requires_grad=False
        )
        self.whitened_factor = nn.Parameter(factor.contiguous(), requires_grad=False)

    @property
    def batch_shape(self) -> torch.Size:
        """One entry an output."""
        return torch.broadcast_shapes(self.prior_kernel.batch_shape, self.whitened_factor.shape[:-2])

    @property
    def whitened_covariance(self) -> Float[Tensor, "*J M M"]:
        """S = F Fᵀ."""
        return self.whitened_factor @ self.whitened_factor.mT

    @property
    def covariance(self) -> Float[Tensor, "*J M M"]:
        """Σ = L⁻ᵀ S L⁻¹, the paper's parameter; ill-conditioned, for comparison and display only."""
        root = solve_lower_transposed(self.inducing_factor(), self.whitened_factor)
        return root @ root.mT

    def inducing_factor(self) -> Float[Tensor, "*J M M"]:
        """L with L Lᵀ = k(Z, Z)."""
        return cholesky(kernel_matrix(self.prior_kernel, self.inducing_points), jitter=self.jitter, name="k(Z, Z)").factor

    def features(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "*J M N"]:
        """φ(x) = L⁻¹ k_Z(x), one column a row of x."""
        return whitened_features(self.prior_kernel, self.inducing_points, self.inducing_factor(), x)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **_: object) -> Tensor:
        """r(x₁, x₂), or its diagonal."""
        factor = self.inducing_factor()
        phi1 = whitened_features(self.prior_kernel, self.inducing_points, factor, x1)
        if diag:
            return residual_variance(self.prior_kernel, x1, phi1) + (self.whitened_factor.mT @ phi1).square().sum(-2)
        phi2 = phi1 if x1 is x2 else whitened_features(self.prior_kernel, self.inducing_points, factor, x2)
        in_span = (self.whitened_factor.mT @ phi1).mT @ (self.whitened_factor.mT @ phi2)
        return kernel_matrix(self.prior_kernel, x1, x2) - phi1.mT @ phi2 + in_span

    def factor(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "*J N R"]:
        """[L₀, Φᵀ F] with L₀ L₀ᵀ = k(X, X) − ΦᵀΦ, so that r(X, X) is never formed."""
        phi = self.features(x)
        prior = kernel_matrix(self.prior_kernel, x)
        scale = prior.diagonal(dim1=-2, dim2=-1).mean(-1)
        residual = cholesky(prior - phi.mT @ phi, scale=scale, name="k(X, X) − ΦᵀΦ").factor
        in_span = phi.mT @ self.whitened_factor
        batch = torch.broadcast_shapes(residual.shape[:-2], in_span.shape[:-2])
        return torch.cat([part.expand(*batch, *part.shape[-2:]) for part in (residual, in_span)], dim=-1)


def _whitened_factor(s: Float[Tensor, "*J M M"]) -> Float[Tensor, "*J M M"]:
    """F with F Fᵀ = S: triangular where S is far enough from singular, because eigenvectors take ten times as long."""
    is_diagonal = torch.equal(s, torch.diag_embed(s.diagonal(dim1=-2, dim2=-1)))
    factor = None if is_diagonal else triangular_factor(s)
    return positive_semidefinite_factor(s, name="the whitened covariance S") if factor is None else factor


def whitened_features(
    prior_kernel: Kernel,
    inducing_points: Float[Tensor, "M D"],
    factor: Float[Tensor, "*J M M"],
    x: Float[Tensor, "N D"],
) -> Float[Tensor, "*J M N"]:
    """φ(x) = L⁻¹ k_Z(x) given L: the coordinates of k(·, x) in the orthonormal basis of span k(·, Z)."""
    return solve_lower(factor, kernel_matrix(prior_kernel, inducing_points, x))


def residual_variance(prior_kernel: Kernel, x: Float[Tensor, "N D"], features: Float[Tensor, "*J M N"]) -> Float[Tensor, "*J N"]:
    """k(x, x) − φ(x)ᵀφ(x): the prior variance that Z leaves unexplained, at least zero."""
    return residual_part(kernel_variance(prior_kernel, x), features.square().sum(-2))


class DisagreementKernel(Kernel):
    """q(x, x') = a r(x, x') + γ Σ_k w_k δ_k(x) δ_k(x') with δ_k = m_k − Σ_l w_l m_l: r, and how far stacked means disagree.

    The second part has rank K − 1: it is the covariance of a mean whose weights are uncertain.

    Args:
        kernel: r.
        means: the m_k, each from (N, D) rows to (J, N) values; none where there is nothing to disagree.
        weights: w, of each mean in each output.
        disagreement_weight: γ of each output.
        scale: a of each output.
        handover: how w changes with the row; not at all when None.
    """

    has_lengthscale = False
    weights: Tensor
    disagreement_weight: Tensor
    scale: Tensor

    def __init__(
        self,
        kernel: SparsePosteriorKernel,
        means: Sequence[nn.Module],
        weights: Float[Tensor, "J K"],
        disagreement_weight: Float[Tensor, " J"],
        scale: Float[Tensor, " J"],
        handover: Handover | None = None,
    ):
        super().__init__()
        self.handover = handover
        self.kernel, self.prior_kernel, self.inducing_points = kernel, kernel.prior_kernel, kernel.inducing_points
        self.means = nn.ModuleList(means)
        for name, value in (("weights", weights), ("disagreement_weight", disagreement_weight), ("scale", scale)):
            self.register_buffer(name, value.detach().to(kernel.inducing_points))

    @property
    def batch_shape(self) -> torch.Size:
        """One entry an output."""
        return self.scale.shape

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **_: object) -> Tensor:
        """q(x₁, x₂), or its diagonal."""
        first = self._spread(x1)
        if diag:
            return self.scale[:, None] * kernel_variance(self.kernel, x1) + first.square().sum(-1)
        second = first if x1 is x2 else self._spread(x2)
        return self.scale[:, None, None] * kernel_matrix(self.kernel, x1, x2) + first @ second.mT

    def factor(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "J N R"]:
        """[√a B, √(γ w) δ(X)ᵀ] with B Bᵀ = r(X, X)."""
        root = self.scale.sqrt()[:, None, None] * self.kernel.factor(x)
        return torch.cat([root, self._spread(x)], dim=-1)

    def _spread(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "J N K"]:
        """√(γ w_k) δ_k(x)."""
        if not self.means:
            return x.new_zeros(len(self.scale), len(x), 0)
        members = torch.stack([mean(x).expand(len(self.scale), -1) for mean in self.means])
        weights = self.weights.mT[..., None] if self.handover is None else self.handover.at(self.weights, members, x)
        centred = members - (weights * members).sum(0)
        return ((self.disagreement_weight[:, None] * weights).sqrt() * centred).movedim(0, -1)


class FeatureKernel(Kernel):
    """k(h(x), h(x')): a kernel on the features of a network or of any other map.

    Args:
        base_kernel: k on feature space, any GPyTorch kernel.
        feature_map: h, from (N, D) rows to (N, D') features; a module's parameters take part in training.

    Examples:
        >>> import torch
        >>> from gwi.core.kernels import FeatureKernel, default_kernel
        >>> kernel = FeatureKernel(default_kernel(2), lambda x: torch.cat([x.sin(), x.cos()], -1))
        >>> x = torch.tensor([[0.0], [2 * torch.pi]], dtype=torch.float64)
        >>> kernel(x).to_dense().detach().round(decimals=3).tolist()  # periodic
        [[1.0, 1.0], [1.0, 1.0]]
    """

    has_lengthscale = False

    def __init__(self, base_kernel: Kernel, feature_map: Callable[[Tensor], Tensor]):
        super().__init__()
        self.base_kernel = base_kernel
        self.feature_map = feature_map

    @property
    def batch_shape(self) -> torch.Size:
        """That of the base kernel."""
        return self.base_kernel.batch_shape

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **_: object) -> Tensor:
        """k(h(x₁), h(x₂)), or its diagonal."""
        h1 = self._features(x1)
        if diag:
            return kernel_variance(self.base_kernel, h1)
        # The same rows must give the same features to the last bit, or k(X, X) loses its symmetry.
        return kernel_matrix(self.base_kernel, h1, h1 if x1 is x2 or torch.equal(x1, x2) else self._features(x2))

    def _features(self, x: Tensor) -> Tensor:
        parameter = next(self.feature_map.parameters(), x) if isinstance(self.feature_map, nn.Module) else x
        return self.feature_map(x.to(parameter.dtype)).to(x.dtype)


class ShrunkenKernel(Kernel):
    """k(x, x') / (a(x) a(x')): what W₂² with a Gaussian likelihood would choose among all kernels.

    It forgets nothing and learns nothing about where the data are: distance awareness comes from the sparse form, not from
    the distance of measures. Here to show just that.

    Args:
        prior_kernel: k.
        shrinkage: a(x) = 1 + N / (2 β σ²(x)) as a number or as a function from (N, D) rows to (N,) values.

    Examples:
        >>> import torch
        >>> from gwi.core.kernels import ShrunkenKernel, default_kernel
        >>> kernel = ShrunkenKernel(default_kernel(1), 10.0)
        >>> kernel(torch.zeros(1, 1, dtype=torch.float64)).to_dense().round(decimals=4).item()
        0.01
    """

    has_lengthscale = False

    def __init__(self, prior_kernel: Kernel, shrinkage: float | Callable[[Tensor], Tensor]):
        super().__init__()
        self.prior_kernel = prior_kernel
        self.shrinkage = shrinkage

    @property
    def batch_shape(self) -> torch.Size:
        """That of the prior kernel."""
        return self.prior_kernel.batch_shape

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **_: object) -> Tensor:
        """The shrunken prior, or its diagonal."""
        if diag:
            return kernel_variance(self.prior_kernel, x1) / self._shrinkage_at(x1).square()
        return kernel_matrix(self.prior_kernel, x1, x2) / (self._shrinkage_at(x1)[:, None] * self._shrinkage_at(x2))

    def factor(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "*J N R"]:
        """L_k / a, row by row."""
        return kernel_factor(self.prior_kernel, x) / self._shrinkage_at(x)[:, None]

    def _shrinkage_at(self, x: Tensor) -> Float[Tensor, " N"]:
        return self.shrinkage(x) if callable(self.shrinkage) else x.new_full(x.shape[:1], self.shrinkage)
