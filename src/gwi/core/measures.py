"""Gaussian measures on L²(ρ): P = N(m_P, C_P) and Q = N(m_Q, C_Q) are the same type [thm:GP_as_GM].

Also the three ways in which a kernel is ever evaluated: its matrix, its diagonal, and a factor of its matrix. Kernels are
GPyTorch kernels; a kernel of ours is one too, with a `factor` method where it knows a better factor than Cholesky's.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial, reduce
from threading import Lock
from typing import Any, Protocol, runtime_checkable

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import AdditiveKernel, Kernel, ProductKernel
from jaxtyping import Float
from linear_operator import to_dense
from linear_operator.operators import RootLinearOperator
from torch import Tensor, nn

from gwi.core.linalg import cholesky, is_exporting

# Who evaluates which part of a kernel, and the lock to change it.
_USERS: Counter[tuple[int, str]] = Counter()
_PATCHING = Lock()


@runtime_checkable
class HasFactor(Protocol):
    """A kernel that knows a factor of its own matrix."""

    def factor(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "*J N R"]:
        """B with B Bᵀ = r(x, x)."""
        ...


def kernel_matrix(
    kernel: Kernel, x1: Float[Tensor, "*B N1 D"], x2: Float[Tensor, "*B N2 D"] | None = None
) -> Float[Tensor, "... N1 N2"]:
    """k(X₁, X₂), dense; k(X₁, X₁) when X₂ is left out."""
    with _accurately(kernel):
        evaluate, *rows = _at_once(kernel, x1, x1 if x2 is None else x2)
        return to_dense(evaluate(*rows, last_dim_is_batch=False))


def kernel_variance(kernel: Kernel, x: Float[Tensor, "N D"]) -> Float[Tensor, "*J N"]:
    """The diagonal k(x, x) at each row; its mean over ρ is finite for a trace-class kernel [eq:kernel_cond]."""
    if not is_exporting():
        return kernel(x, diag=True)
    # GPyTorch's own distances ask whether both sets of rows are one.
    with _accurately(kernel):
        return kernel(x, diag=True)


def residual_part(prior_variance: Float[Tensor, "*K N"], explained: Float[Tensor, "*J N"]) -> Float[Tensor, "*L N"]:
    """What is left of the prior variance; rounding may take it a little below zero, where it is zero."""
    return (prior_variance - explained).clamp_min(0)


def kernel_factor(kernel: Kernel, x: Float[Tensor, "N D"], jitter: float = 0.0) -> Float[Tensor, "*J N R"]:
    """B with B Bᵀ = k(X, X): the kernel's own factor where it has one, else Cholesky's."""
    if isinstance(kernel, HasFactor):
        return kernel.factor(x)
    return cholesky(kernel_matrix(kernel, x), jitter=jitter, name="k(X, X)").factor


class GaussianMeasure(nn.Module):
    """N(m, C) on L²(ρ), with C the integral operator of a trace-class kernel [eq:cov_op].

    Args:
        mean: a callable from (N, D) rows to (J, N) values, such as those of `gwi.core.means`; zero when None.
        kernel: any GPyTorch kernel, or one of `gwi.core.kernels`. A batch of J kernels describes J independent outputs.
        jitter: relative jitter of the first Cholesky attempt on k(X, X).

    Examples:
        >>> import torch
        >>> from gwi.core.kernels import default_kernel
        >>> from gwi.core.measures import GaussianMeasure
        >>> prior = GaussianMeasure(kernel=default_kernel(1))
        >>> mean, variance = prior.marginals(torch.zeros(3, 1, dtype=torch.float64))
        >>> mean.shape, variance.tolist()
        (torch.Size([1, 3]), [[1.0, 1.0, 1.0]])
    """

    def __init__(self, mean: Callable[[Tensor], Tensor] | None = None, kernel: Kernel | None = None, *, jitter: float = 0.0):
        super().__init__()
        if kernel is None:
            raise TypeError("A GaussianMeasure needs a kernel, for example gwi.core.kernels.default_kernel(num_features).")
        self.mean = mean
        self.kernel = kernel
        self.jitter = jitter

    def mean_at(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "J N"]:
        """m(x) for each output."""
        if self.mean is None:
            return x.new_zeros(self.kernel.batch_shape.numel(), x.shape[0])
        values = self.mean(x)
        if values.ndim != 2 or values.shape[-1] != x.shape[0]:
            raise ValueError(
                f"A mean must return one row per output and one column per input, (J, {x.shape[0]}) here; got "
                f"{tuple(values.shape)}. Wrap a network in gwi.core.means.ModuleMean, a predictor in gwi.core.means.FixedMean."
            )
        return values

    def marginals(self, x: Float[Tensor, "N D"]) -> tuple[Float[Tensor, "J N"], Float[Tensor, "J N"]]:
        """Mean and variance of F(x) at each row, without the joint covariance."""
        mean, variance = torch.broadcast_tensors(self.mean_at(x), kernel_variance(self.kernel, x))
        return mean, variance

    def factor(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "*J N R"]:
        """B with B Bᵀ the covariance of F at the rows of x."""
        return kernel_factor(self.kernel, x, self.jitter)

    def forward(self, x: Float[Tensor, "N D"]) -> MultivariateNormal:
        """The joint law of F at the rows of x, one batch entry an output.

        The covariance is held as a factor, so it is positive semi-definite by construction and samples need no jitter.
        """
        mean, factor = self.mean_at(x), self.factor(x)
        batch = torch.broadcast_shapes(mean.shape[:-1], factor.shape[:-2])
        return MultivariateNormal(mean.expand(*batch, -1), RootLinearOperator(factor.expand(*batch, *factor.shape[-2:])))


@contextmanager
def _accurately(kernel: Kernel) -> Iterator[None]:
    # Two habits of GPyTorch's would cost digits, so for the time of one evaluation parts of the kernel are given other ways.
    # It expands ‖x − x'‖² = ‖x‖² − 2xᵀx' + ‖x'‖², whose rounding error is eps · ‖x/ℓ‖²: at small length-scales equal rows get
    # unequal values and k(X, X) stops being positive. And it forms some sums and products from roots of their terms, found
    # by Cholesky with an absolute jitter of 1e-8 or, for many rows, by Lanczos: a linear kernel added to any other is one.
    patches: list[tuple[Kernel, str, Callable[..., Tensor]]] = []
    for part in kernel.modules():
        if isinstance(part, AdditiveKernel | ProductKernel):
            combine = operator.add if isinstance(part, AdditiveKernel) else operator.mul
            patches.append((part, "forward", partial(_combined, part.kernels, combine)))
        if isinstance(part, Kernel):
            patches.append((part, "covar_dist", _distances))
    # Counted: other threads may be inside, and the last to leave takes the patches off.
    with _PATCHING:
        for part, name, function in patches:
            _USERS[id(part), name] += 1
            part.__dict__.setdefault(name, function)
    try:
        yield
    finally:
        with _PATCHING:
            for part, name, _ in patches:
                _USERS[id(part), name] -= 1
                if not _USERS[id(part), name]:
                    del _USERS[id(part), name]
                    part.__dict__.pop(name, None)


def _combined(
    kernels: Iterable[Kernel], combine: Callable[[Tensor, Tensor], Tensor], x1: Tensor, x2: Tensor, **params: Any
) -> Tensor:
    parts = [(kernel, x1, x2) if params.get("diag") else _at_once(kernel, x1, x2) for kernel in kernels]
    return reduce(combine, (to_dense(evaluate(*rows, **params)) for evaluate, *rows in parts))


def _at_once(kernel: Kernel, x1: Tensor, x2: Tensor) -> tuple[Callable[..., Any], Tensor, Tensor]:
    """What gives the kernel's matrix, and the columns that it takes.

    GPyTorch's call puts the evaluation off, and then takes `active_dims` off the kernel until it is done: another thread that
    asks the same kernel meanwhile would get the matrix of other columns.
    """
    if type(kernel).__call__ is not Kernel.__call__:
        return kernel, x1, x2
    if kernel.active_dims is not None:
        x1, x2 = (x.index_select(-1, kernel.active_dims) for x in (x1, x2))
    return kernel.forward, x1, x2


def _distances(
    x1: Tensor, x2: Tensor, diag: bool = False, last_dim_is_batch: bool = False, square_dist: bool = False, **_: Any
) -> Tensor:
    if last_dim_is_batch:
        x1, x2 = x1.mT.unsqueeze(-1), x2.mT.unsqueeze(-1)
    if diag:
        squared = (x1 - x2).square().sum(-1)
        return squared if square_dist else torch.where(squared > 0, squared, 1.0).sqrt() * (squared > 0)
    if square_dist and _expansion_is_accurate(x1, x2):
        return _expanded_squares(x1, x2)
    distance = torch.cdist(x1, x2, compute_mode="donot_use_mm_for_euclid_dist")
    return distance.square() if square_dist else distance


def _expansion_is_accurate(x1: Tensor, x2: Tensor) -> bool:
    if is_exporting():
        # A graph that torch.export writes cannot look at its rows; differences are accurate for all of them.
        return False
    with torch.no_grad():
        centre, radius_squared = x1.mean(-2, keepdim=True), 0.0
        for x in (x1, x2):
            if x.numel():
                radius_squared = max(radius_squared, x.sub(centre).square().sum(-1).max().item())
    # The error of a square is eps · radius². Above a few eps it shows where k(Z, Z) is nearly singular, because k(Z, Z) and
    # k(Z, X) have different centres, hence different errors: at 1e-13 the variance left by Z can come out as −1e-6 of k.
    # Up to some twenty features differences cost the same; beyond, they are many times slower than a matrix product, and rows
    # are too far apart for a nearly singular k(Z, Z).
    return radius_squared < (5000 if x1.shape[-1] > 20 and x1.dtype == torch.float64 else 20)


def _expanded_squares(x1: Tensor, x2: Tensor) -> Tensor:
    centre = x1.detach().mean(-2, keepdim=True)
    a, b = x1 - centre, x2 - centre
    squared = a.square().sum(-1)[..., :, None] + b.square().sum(-1)[..., None, :] - 2 * a @ b.mT
    if x1.shape == x2.shape and torch.equal(x1, x2):
        squared = squared * (1 - torch.eye(x1.shape[-2], dtype=x1.dtype, device=x1.device))
    return squared.clamp_min(0)
