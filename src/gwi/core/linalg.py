"""The only file that factorises: Cholesky with scale-relative jitter, triangular solves, Bures fidelity.

Jitter is always relative to the mean diagonal of the matrix (or to a scale the caller names), so a kernel measured in
micrometres and the same kernel measured in kilometres get the same treatment. Nothing here forms an inverse.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from gwi.exceptions import JitterWarning, NotPositiveDefiniteError


@dataclass(frozen=True)
class Cholesky:
    """A lower Cholesky factor and the jitter it needed.

    Attributes:
        factor: L with L Lᵀ = A + jitter · scale · I.
        jitter: the relative jitter of each matrix of the batch, 0 where none was needed.
    """

    factor: Float[Tensor, "*J n n"]
    jitter: Float[Tensor, "*J"]


# Whether torch.export is writing down what is computed: nothing may then depend on values.
is_exporting: Callable[[], bool] = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)

# First jitter tried after the requested one, and the largest one accepted, both in units of the matrix's scale.
_FIRST_JITTER = {torch.float64: 1e-14, torch.float32: 1e-6}
# Of a triangular factor that is taken as it comes.
SMALLEST_PIVOT = 1e-6
_LARGEST_JITTER = {torch.float64: 1e-5, torch.float32: 1e-2}
_NOTICEABLE_JITTER = {torch.float64: 1e-8, torch.float32: 1e-3}
# Times n · eps, what rounding moves an eigenvalue by: with so much jitter a matrix is sound if it can be factorised.
_FAR_ABOVE = 100


def cholesky(
    matrix: Float[Tensor, "*J n n"],
    *,
    jitter: float = 0.0,
    scale: Float[Tensor, "*J"] | None = None,
    name: str = "matrix",
) -> Cholesky:
    """Factorise a positive definite matrix, adding as little jitter as succeeds.

    The first attempt adds `jitter`; each failed attempt multiplies it by ten, for the failing matrices of a batch only. An
    attempt fails also when the lowest eigenvalue, in units of the scale, is below √eps without jitter or n · eps with it.

    Args:
        matrix: symmetric, positive semi-definite up to rounding.
        jitter: relative to `scale`; zero tries the matrix as it is.
        scale: what jitter is relative to; the mean diagonal unless given. Residuals of a subtraction pass the scale of
            the minuend, because that is what their rounding errors are proportional to.
        name: how an error message calls the matrix, for example ``k(Z, Z)``.

    Raises:
        NotPositiveDefiniteError: if the matrix has a NaN or an infinity, is zero, or fails with the largest jitter.

    Examples:
        >>> import torch
        >>> from gwi.core.linalg import cholesky
        >>> factor = cholesky(torch.tensor([[4.0, 2.0], [2.0, 3.0]], dtype=torch.float64))
        >>> factor.jitter.tolist()
        0.0
    """
    if matrix.dtype not in _FIRST_JITTER:
        raise TypeError(f"{name} has dtype {matrix.dtype}; use torch.float64 (recommended) or torch.float32.")
    if is_exporting():
        return _cholesky_without_branches(matrix, jitter, scale)
    if not torch.isfinite(matrix).all():
        raise NotPositiveDefiniteError(
            f"{_describe(matrix, name)} contains NaN or infinity. "
            "Check the inputs and length-scales for extreme values, or use float64."
        )
    scale = matrix.diagonal(dim1=-2, dim2=-1).mean(-1) if scale is None else scale.expand(matrix.shape[:-2])
    if not (scale > 0).all():
        raise NotPositiveDefiniteError(
            f"{_describe(matrix, name)} has mean diagonal {scale.min().item():.3g}, so all its variances are zero. "
            "Check that the kernel's outputscale is not zero."
        )
    used = torch.full(matrix.shape[:-2], float(jitter), dtype=matrix.dtype, device=matrix.device)
    while True:
        # A zero jitter must leave the matrix bit-equal, hence the product rather than a branch.
        factor, info = torch.linalg.cholesky_ex(_with_diagonal(matrix, used * scale))
        failed = info > 0
        # A jitter far above the rounding errors is the lowest eigenvalue itself; a fit that factorises hundreds of matrices with
        # one need not look for it.
        if bool((used < _FAR_ABOVE * matrix.shape[-1] * torch.finfo(matrix.dtype).eps).any()):
            failed = failed | ~_is_trustworthy(factor.detach(), scale.detach(), used)
        if not failed.any():
            break
        raised = torch.where(failed, (10 * used).clamp_min(_FIRST_JITTER[matrix.dtype]), used)
        if raised.max() > max(_LARGEST_JITTER[matrix.dtype], 1e3 * jitter):
            raise NotPositiveDefiniteError(_diagnosis(matrix, name, used.max().item(), failed))
        used = raised
    noticeable = _NOTICEABLE_JITTER[matrix.dtype]
    if used.numel() and used.max() > max(noticeable, jitter):
        warnings.warn(
            f"{_describe(matrix, name)} needed a jitter of {used.max().item():.0e} of its mean diagonal. "
            "Results may be off by as much; use float64, or fewer or more spread points.",
            JitterWarning,
            stacklevel=2,
        )
    return Cholesky(factor, used)


def _cholesky_without_branches(matrix: Tensor, jitter: float, scale: Tensor | None) -> Cholesky:
    """All attempts of `cholesky`, of which the first that succeeds is taken; the last where none does."""
    scale = matrix.diagonal(dim1=-2, dim2=-1).mean(-1) if scale is None else scale.expand(matrix.shape[:-2])
    used = torch.full(matrix.shape[:-2], float(jitter), dtype=matrix.dtype, device=matrix.device)
    factor, done, level = torch.zeros_like(matrix), torch.zeros(matrix.shape[:-2], dtype=torch.bool, device=matrix.device), jitter
    while level <= max(_LARGEST_JITTER[matrix.dtype], 1e3 * jitter):
        now = torch.full_like(used, level)
        found, info = torch.linalg.cholesky_ex(_with_diagonal(matrix, now * scale))
        factor, used = torch.where(done[..., None, None], factor, found), torch.where(done, used, now)
        done = done | ((info == 0) & _is_trustworthy(found.detach(), scale.detach(), now))
        level = max(10 * level, _FIRST_JITTER[matrix.dtype])
    return Cholesky(factor, used)


def _with_diagonal(matrix: Tensor, added: Tensor) -> Tensor:
    """A + a I of each matrix, without an identity."""
    shifted = matrix.clone()
    shifted.diagonal(dim1=-2, dim2=-1).add_(added[..., None])
    return shifted


def _is_trustworthy(factor: Tensor, scale: Tensor, jitter: Tensor) -> Tensor:
    # Solving with L multiplies the rounding errors of A, n · eps, by one over its lowest eigenvalue, so what Z leaves
    # unexplained, k(x, x) − ‖L⁻¹ k_Z(x)‖², may come out at −0.03 k although Cholesky succeeded. A jitter above the rounding
    # errors changes as much, but always upwards. Hence none only where √eps of accuracy is left without it, otherwise at least
    # n · eps. The pivots do not tell; three inverse iterations from a fixed vector find the eigenvalue well enough, in O(n²).
    size, eps = factor.shape[-1], torch.finfo(factor.dtype).eps
    vector = torch.arange(1, size + 1, dtype=factor.dtype, device=factor.device).cos()[:, None].expand(*factor.shape[:-1], 1)
    for _ in range(3):
        vector = vector * (scale[..., None, None] / torch.linalg.vector_norm(vector, dim=-2, keepdim=True))
        vector = torch.linalg.solve_triangular(factor, vector, upper=False)
        vector = torch.linalg.solve_triangular(factor.mT, vector, upper=True)
    lowest = torch.linalg.vector_norm(vector, dim=(-2, -1)).reciprocal()
    return lowest > torch.where(jitter > 0, size * eps, eps**0.5)


def _describe(matrix: Tensor, name: str) -> str:
    return f"{name} ({' × '.join(str(n) for n in matrix.shape)}, {str(matrix.dtype).removeprefix('torch.')})"


def _diagnosis(matrix: Tensor, name: str, jitter: float, failed: Tensor) -> str:
    worst = matrix[failed] if matrix.ndim > 2 else matrix[None]
    eigenvalues = torch.linalg.eigvalsh(worst.detach().double())
    return (
        f"{_describe(matrix, name)} is not positive definite: lowest eigenvalue {eigenvalues.min().item():.3g}, "
        f"largest {eigenvalues.max().item():.3g}, still failing with a jitter of {jitter:.0e} of its mean diagonal. "
        "Use float64, fewer or more spread points, or check that the kernel is positive semi-definite."
    )


def solve_lower(factor: Float[Tensor, "*J n n"], rhs: Float[Tensor, "*K n m"]) -> Float[Tensor, "*L n m"]:
    """L⁻¹ b for a lower-triangular L."""
    return torch.linalg.solve_triangular(factor, rhs, upper=False)


def solve_lower_transposed(factor: Float[Tensor, "*J n n"], rhs: Float[Tensor, "*K n m"]) -> Float[Tensor, "*L n m"]:
    """L⁻ᵀ b for a lower-triangular L."""
    return torch.linalg.solve_triangular(factor.mT, rhs, upper=True)


def cholesky_solve(factor: Float[Tensor, "*J n n"], rhs: Float[Tensor, "*K n m"]) -> Float[Tensor, "*L n m"]:
    """(L Lᵀ)⁻¹ b."""
    return solve_lower_transposed(factor, solve_lower(factor, rhs))


def newton_step(
    gradient: Float[Tensor, "B P"], hessian: Float[Tensor, "B P P"], expected: Callable[[], Float[Tensor, "B P P"]]
) -> Float[Tensor, "B P"]:
    """H⁻¹ g where H is positive definite; elsewhere by the expected second derivatives, with as much added as they need."""
    factor, info = torch.linalg.cholesky_ex(hessian)
    fails = info > 0
    if fails.any():
        likely = expected()
        scale = likely.diagonal(dim1=-2, dim2=-1).mean(-1).clamp_min(torch.finfo(likely.dtype).tiny)
        safe = cholesky(likely / scale[:, None, None], jitter=1e-10, name="expected second derivatives")
        factor = torch.where(fails[:, None, None], safe.factor * scale.sqrt()[:, None, None], factor)
    return cholesky_solve(factor, gradient[..., None])[..., 0]


def log_determinant(factor: Float[Tensor, "*J n n"]) -> Float[Tensor, "*J"]:
    """log det (L Lᵀ)."""
    return 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


class LogGaussian(torch.autograd.Function):
    """`LogGaussian.apply(A, rows, jitter, name)`: log N(v | 0, A) of each row v, all with one A or each with its own."""

    # The gradient in A is (A⁻¹ v vᵀ A⁻¹ − A⁻¹)/2. Differentiation takes three times as long to find it, by way of the factor.
    # This is the one place for an inverse: it is the gradient of log det A, and multiplies nothing.
    @staticmethod
    def forward(ctx, covariance: Tensor, rows: Tensor, jitter: float, name: str) -> Tensor:  # type: ignore[no-untyped-def]
        """The values, by one factor."""
        factor = cholesky(covariance, jitter=jitter, name=name).factor
        # Rows that share A stand side by side.
        shared = factor.ndim == 2 and rows.ndim == 2
        whitened = solve_lower(factor, rows.mT if shared else rows[..., None])
        ctx.shared, ctx.shapes = shared, (covariance.shape, rows.shape)
        ctx.save_for_backward(factor, whitened)
        energy = whitened.square().sum(-2)
        return -((energy if shared else energy[..., 0]) + log_determinant(factor) + factor.shape[-1] * LOG_TWO_PI) / 2

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:  # type: ignore[no-untyped-def]
        """In closed form."""
        factor, whitened = ctx.saved_tensors
        weight = grad if ctx.shared else grad[..., None, None]
        solved = solve_lower_transposed(factor, whitened)
        by_covariance = by_rows = None
        if ctx.needs_input_grad[0]:
            inverse = (grad.sum() if ctx.shared else weight) * torch.cholesky_inverse(factor)
            by_covariance = (((weight * solved) @ solved.mT - inverse) / 2).sum_to_size(ctx.shapes[0])
        if ctx.needs_input_grad[1]:
            pulled = -weight * solved
            by_rows = (pulled.mT if ctx.shared else pulled[..., 0]).sum_to_size(ctx.shapes[1])
        return by_covariance, by_rows, None, None


def triangular_factor(matrix: Float[Tensor, "*J n n"]) -> Float[Tensor, "*J n n"] | None:
    """A lower-triangular factor where the matrix, of size one or so, is far enough from singular; nothing where it is not.

    Where a pivot is small, rounding errors may be all that it holds.
    """
    if not torch.isfinite(matrix).all():
        return None
    factor, info = torch.linalg.cholesky_ex(matrix)
    return None if info.any() or factor.diagonal(dim1=-2, dim2=-1).min() < SMALLEST_PIVOT else factor


def positive_semidefinite_factor(
    matrix: Float[Tensor, "*J n n"], *, tolerance: float | None = None, slack: float | None = None, name: str = "matrix"
) -> Float[Tensor, "*J n n"]:
    """A factor B with B Bᵀ equal to a positive semi-definite matrix that may be singular, or zero.

    Eigenvalues within rounding of zero become zero, so the factor of a singular matrix is exactly rank-deficient.
    Not differentiable where eigenvalues coincide: for matrices that are results, not parameters.

    Args:
        matrix: symmetric; the zero matrix is allowed.
        tolerance: eigenvalues below it are zero; n · eps · largest unless given.
        slack: eigenvalues below minus this are an error; ten times the tolerance unless given.
        name: how an error message calls the matrix.
    """
    if not torch.isfinite(matrix).all():
        raise NotPositiveDefiniteError(f"{_describe(matrix, name)} contains NaN or infinity.")
    diagonal = matrix.diagonal(dim1=-2, dim2=-1)
    if torch.equal(matrix, torch.diag_embed(diagonal)):
        eigenvalues, eigenvectors = diagonal, torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    else:
        eigenvalues, eigenvectors = torch.linalg.eigh((matrix + matrix.mT) / 2)
    largest = eigenvalues.abs().amax(-1, keepdim=True)
    floor = matrix.shape[-1] * torch.finfo(matrix.dtype).eps * largest if tolerance is None else tolerance
    if (eigenvalues < -(10 * floor if slack is None else slack)).any():
        raise NotPositiveDefiniteError(
            f"{_describe(matrix, name)} has eigenvalue {eigenvalues.min().item():.3g} but must be positive "
            "semi-definite. Pass a covariance, for example B @ B.mT."
        )
    kept = torch.where(eigenvalues > floor, eigenvalues, torch.zeros_like(eigenvalues))
    return eigenvectors * kept.sqrt()[..., None, :]


def bures_fidelity(k_factor: Float[Tensor, "*J S A"], r_factor: Float[Tensor, "*K S B"]) -> Float[Tensor, "*L"]:
    """tr (C_P^½ C_Q C_P^½)^½ for the empirical measure of S points: the cross term of [eq:WD_Gaussians] and [eq:ap:WD_Gaussians].

    The factors may be rectangular. The derivative of a nuclear norm is the polar factor U Vᵀ, which has norm one
    whatever the singular values are, so the gradient is finite at zero singular values and at the zero matrix.
    """
    # Nuclear norm of the factors, not eigenvalues of r k: r is a cancellation residual and is never formed.
    return nuclear_norm(square_factor(k_factor).mT @ r_factor) / k_factor.shape[-2]


def two_sample_fidelity(product: Float[Tensor, "*J S S"], num_points: int) -> Float[Tensor, "*J"]:
    """The paper's estimate of the same from r(X_S, X) k(X, X_S) with N points X [eq:spec_CPQ]: Σ √λ / √(N N_S).

    The product of two kernel blocks is not symmetric; its spectrum is real and positive only in the limit.
    """
    eigenvalues = torch.linalg.eigvals(product).real
    floor = torch.finfo(eigenvalues.dtype).eps * eigenvalues.detach().abs().amax(-1, keepdim=True)
    roots = safe_sqrt(torch.where(eigenvalues > floor, eigenvalues, torch.zeros_like(eigenvalues)))
    return roots.sum(-1) / (num_points * product.shape[-1]) ** 0.5


def square_factor(factor: Float[Tensor, "*J S A"]) -> Float[Tensor, "*J S B"]:
    """A factor of the same A Aᵀ with no more columns than rows, of one that is at rest; one that is learned stays as it is.

    Singular values of a product with the factor are the same, and fewer of them are zeros that must be found first.
    """
    if factor.shape[-1] <= factor.shape[-2] or (factor.requires_grad and torch.is_grad_enabled()):
        return factor
    return torch.linalg.qr(factor.mT, mode="r").R.mT


def triangular_root(factor: Float[Tensor, "*J n n"]) -> Float[Tensor, "*J n n"]:
    """An upper-triangular R with Rᵀ R = Aᵀ A."""
    return torch.linalg.qr(factor, mode="r").R.contiguous()


def nuclear_norm(matrix: Float[Tensor, "*J a b"]) -> Float[Tensor, "*J"]:
    """The sum of singular values; its gradient is the least-norm subgradient, finite at zero singular values."""
    return _NuclearNorm.apply(matrix)


class _NuclearNorm(torch.autograd.Function):
    # torch differentiates svdvals with an arbitrary pairing of null vectors, so that its gradient at a zero singular
    # value is a random direction; leaving those pairs out gives the subgradient of least norm, and a reproducible one.
    @staticmethod
    def forward(ctx, matrix: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        if not ctx.needs_input_grad[0]:
            return torch.linalg.svdvals(matrix).sum(-1)
        left, values, right = torch.linalg.svd(matrix, full_matrices=False)
        floor = max(matrix.shape[-2:]) * torch.finfo(matrix.dtype).eps * values[..., :1]
        ctx.save_for_backward((left * (values > floor)[..., None, :]) @ right)
        return values.sum(-1)

    @staticmethod
    @once_differentiable  # The polar factor is a constant here, so a second derivative would be wrong without a word.
    def backward(ctx, grad: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        (polar,) = ctx.saved_tensors
        return grad[..., None, None] * polar


def safe_sqrt(value: Float[Tensor, "*J"]) -> Float[Tensor, "*J"]:
    """√max(value, 0) with gradient zero, not infinity, at zero."""
    positive = value > 0
    return torch.where(positive, torch.where(positive, value, torch.ones_like(value)).sqrt(), torch.zeros_like(value))


LOG_TWO_PI = math.log(2 * math.pi)


def singular_parts(matrix: Float[Tensor, "a b"], accurate: bool) -> tuple[Tensor, Tensor, Tensor]:
    """U, σ and Vᵀ of a wide matrix; if not `accurate` from its square, where σ below √eps of the largest are rounding errors."""
    if accurate:
        left, values, right = torch.linalg.svd(matrix, full_matrices=False)
        return left, values, right
    squares, left = torch.linalg.eigh(matrix @ matrix.mT)
    values, left = squares.flip(0), left.flip(1)
    # At the floor U Vᵀ still has norm at most one, which is all that a bound needs of it.
    values = values.clamp_min(torch.finfo(values.dtype).eps * values[0]).sqrt()
    return left, values, (left.mT @ matrix) / values[:, None]
