"""Fitting the prior: kernel hyper-parameters, noise and optionally Z, by L-BFGS in float64."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from gpytorch.kernels import Kernel
from gpytorch.priors import LogNormalPrior
from jaxtyping import Float, Int
from torch import Tensor

from gwi.core.linalg import LOG_TWO_PI, LogGaussian, cholesky, log_determinant, solve_lower
from gwi.core.measures import kernel_matrix
from gwi.core.rbf_evidence import RBFEvidence, rbf_parts
from gwi.core.row_sums import row_sums
from gwi.core.training import minimize_lbfgs

# Of the raw parameters of a kernel, logarithms of scales or close to it: exp(±600) are still numbers.
RAW_BOUND = 600.0
# A length-scale shorter than this share of the usual distance between the values of a column changes nothing at known rows, so a
# search that steps there stays there, and a value between known ones becomes as strange as one from another world.
SHORTEST = 0.5


class Start(NamedTuple):
    """Where a search for hyper-parameters begins.

    Attributes:
        noise_variance: σ².
        lengthscale_factor: on the length-scales of the kernel.
    """

    noise_variance: float
    lengthscale_factor: float


@dataclass(frozen=True)
class PriorFit:
    """A fitted prior.

    Attributes:
        kernel: k with its fitted hyper-parameters; the kernel passed in is left as it was.
        noise_variance: σ²; the mean over targets where each has its own.
        inducing_points: Z, moved if they were learned; None for the marginal likelihood.
        log_evidence: the objective reached: the log marginal likelihood, or its lower bound.
        num_iterations: of L-BFGS.
        converged: whether it stopped by itself.
        message: what L-BFGS said.
        noise_variances: σ² of each target, where each has its own.
        without_folds: fits to all rows but those of each fold, by which that fold is judged; none where rows are so many that
            hyper-parameters do not remember a single one.
        start: where the search began, of the places that were tried; None where nobody said.

    Examples:
        >>> import torch
        >>> from gwi.core.kernels import default_kernel
        >>> from gwi.core.prior import PriorFit
        >>> PriorFit(default_kernel(1), 0.1, None, -12.5, 20, True, "converged").log_evidence
        -12.5
    """

    kernel: Kernel
    noise_variance: float
    inducing_points: Float[Tensor, "M D"] | None
    log_evidence: float
    num_iterations: int
    converged: bool
    message: str
    noise_variances: Float[Tensor, " J"] | None = None
    without_folds: tuple[PriorFit, ...] = ()
    start: Start | None = None


def log_marginal_likelihood(
    kernel: Kernel,
    x: Float[Tensor, "N D"],
    y: Float[Tensor, "*J N"],
    noise_variance: Float[Tensor, ...] | float,
    *,
    shared: Float[Tensor, "N N"] | float = 0.0,
    jitter: float = 0.0,
) -> Float[Tensor, "*J"]:
    """log N(y | 0, k(X, X) + σ² I), with the −N/2 log 2π that the paper leaves out.

    The paper maximises it over the M pairs (Z, y_Z). Take the prior mean off y first. `shared` is the covariance of errors that
    rows have in common.

    Examples:
        >>> import torch
        >>> from gwi.core.kernels import default_kernel
        >>> from gwi.core.prior import log_marginal_likelihood
        >>> x = torch.linspace(0, 1, 20, dtype=torch.float64)[:, None]
        >>> smooth, rough = (
        ...     log_marginal_likelihood(default_kernel(1, lengthscale=s), x, x.sin().mT, 0.01) for s in (1.0, 0.01)
        ... )
        >>> bool(smooth > rough)
        True
    """
    noise = torch.as_tensor(noise_variance, dtype=x.dtype, device=x.device)
    covariance = kernel_matrix(kernel, x) + shared + torch.diag_embed(noise.expand(*noise.shape[:-1], x.shape[0]))
    return LogGaussian.apply(covariance, y, jitter, "k(X, X) + σ²I")


def collapsed_bound(
    kernel: Kernel,
    inducing_points: Float[Tensor, "M D"],
    x: Float[Tensor, "N D"],
    y: Float[Tensor, "*J N"],
    noise_variance: Float[Tensor, ...] | float,
    *,
    chunk_size: int = 4096,
    jitter: float = 0.0,
) -> Float[Tensor, "*J"]:
    """log N(y | 0, ΦᵀΦ + σ² I) − ½ Σ (k − φᵀφ)/σ² (Titsias 2009): a lower bound on the evidence of all rows.

    Memory is O(chunk × M) with or without gradients. Take the prior mean off y first.

    Examples:
        >>> import torch
        >>> from gwi.core.kernels import default_kernel
        >>> from gwi.core.prior import collapsed_bound, log_marginal_likelihood
        >>> x = torch.linspace(0, 1, 20, dtype=torch.float64)[:, None]
        >>> y = x.sin().mT
        >>> kernel = default_kernel(1)
        >>> bool(collapsed_bound(kernel, x[::4], x, y, 0.1) <= log_marginal_likelihood(kernel, x, y, 0.1))
        True
    """
    sums = row_sums(kernel, inducing_points, x, y, noise_variance=noise_variance, chunk_size=chunk_size, jitter=jitter)
    eye = torch.eye(sums.gram.shape[-1], dtype=x.dtype, device=x.device)
    factor = cholesky(eye + sums.gram, name="I + ΦWΦᵀ").factor
    explained = _whitened_rows(factor, sums.projection).square().sum(-1)
    misfit = sums.target_energy - explained + sums.residual
    return -(misfit + log_determinant(factor) - sums.log_weight + sums.num_rows * LOG_TWO_PI) / 2


def _whitened_rows(factor: Float[Tensor, "*K n n"], rows: Float[Tensor, "*J n"]) -> Float[Tensor, "*L n"]:
    """L⁻¹ v of each row; those that share L together: apart, the gradient would hold a matrix for each."""
    if factor.ndim == 2 and rows.ndim == 2:
        return solve_lower(factor, rows.mT).mT
    return solve_lower(factor, rows[..., None])[..., 0]


def _lengthscales_with_least(kernel: Kernel, x: Float[Tensor, "N D"]) -> list[tuple[Tensor, Float[Tensor, " D"]]]:
    """The logarithms of length-scales of kernels of ours, and the least that the values of each column can tell.

    Those that are shorter already when the search begins are what somebody wants.
    """
    found = []
    for part in kernel.modules():
        raw = getattr(part, "raw_lengthscale", None)
        if raw is None or raw.numel() != x.shape[1] or part.active_dims is not None:
            continue
        if getattr(part.raw_lengthscale_constraint, "_transform", None) is torch.exp:
            found.append((raw, torch.minimum(x.new_tensor(_log_spacings(x)), raw.detach().flatten())))
    return found


@torch.no_grad()
def _settle_constant_columns(kernel: Kernel, x: Float[Tensor, "N D"]) -> None:
    """Set the length-scales of columns with one value to where their hyper-prior wants them: no row tells of them.

    A search that ends when nothing is gained would leave them anywhere on the way.
    """
    constant = (x == x[:1]).all(0)
    for part in kernel.modules():
        law = getattr(part, "lengthscale_prior", None)
        if isinstance(law, LogNormalPrior) and part.lengthscale.numel() == x.shape[1] and part.active_dims is None:
            mode = (law.loc - law.scale.square()).exp()
            part.lengthscale = torch.where(constant, mode.to(part.lengthscale), part.lengthscale)


def _log_spacings(x: Float[Tensor, "N D"]) -> list[float]:
    """The logarithm of the shortest length-scale that the values of each column can tell."""
    lows = []
    for column in x.detach().mT:
        gaps = column.unique().diff()
        gaps = gaps[gaps > torch.finfo(x.dtype).eps * column.abs().max()]
        lows.append(math.log(SHORTEST * float(gaps.median())) if len(gaps) else -RAW_BOUND)
    return lows


def _evidence(
    kernel: Kernel, x: Tensor, y: Tensor, noise_variance: Tensor, shared: Tensor | None, jitter: float
) -> Float[Tensor, ""]:
    """Σ_j of the log marginal likelihood, in closed form with its gradients where the kernel is the usual one."""
    parts = rbf_parts(kernel, x) if shared is None and noise_variance.ndim < 2 else None
    if parts is None:
        return log_marginal_likelihood(
            kernel, x, y, noise_variance, shared=0.0 if shared is None else shared, jitter=jitter
        ).sum()
    rows, lengthscale, outputscale = parts
    return RBFEvidence.apply(rows, y, lengthscale, outputscale, noise_variance, jitter)


def fit_prior(
    kernel: Kernel,
    x: Float[Tensor, "N D"],
    y: Float[Tensor, "*J N"],
    *,
    objective: Literal["collapsed", "marginal"] = "collapsed",
    inducing_points: Float[Tensor, "M D"] | None = None,
    learn_inducing_points: bool = False,
    noise_variance: float = 0.1,
    sample_weight: Float[Tensor, " N"] | None = None,
    unit: Int[Tensor, " N"] | None = None,
    noise_of_each: bool = False,
    max_iterations: int = 200,
    tolerance: float = 1e-9,
    chunk_size: int = 4096,
    jitter: float = 1e-8,
    on_step: Callable[[int, float], None] | None = None,
) -> PriorFit:
    """Maximise the evidence over kernel hyper-parameters, σ² and optionally Z.

    ``"collapsed"`` uses all rows through Titsias' bound. ``"marginal"`` is the exact marginal likelihood of the rows given: the
    paper's choice is to give it the M pairs (Z, y_Z), which is cheap and overfits; with all rows it is an exact GP's. Priors that
    are registered on the kernel, GPyTorch's way, are added.

    Args:
        kernel: k to start from; float64.
        x: rows, standardised.
        y: targets, standardised, with the prior mean taken off.
        objective: what to maximise.
        inducing_points: Z, for the collapsed bound.
        learn_inducing_points: whether Z moves.
        noise_variance: σ² to start from.
        sample_weight: a row with weight w counts as w equal rows.
        unit: of each row, such as its group: rows of one unit share an error of variance τ², else a kernel would take what groups
            are off by for a function of whatever column tells groups apart. For the marginal likelihood; σ² is then that of both.
        noise_of_each: whether every target has its own σ²; the kernel is one for all.
        max_iterations: of L-BFGS.
        tolerance: L-BFGS stops when a step gains less than this share of the objective.
        chunk_size: rows held at a time.
        jitter: relative to the mean diagonal; gradients through a factor need more of it than values do.
        on_step: called with the iteration and the objective.

    Raises:
        NotPositiveDefiniteError: when not even the starting point can be evaluated.

    Examples:
        >>> import torch
        >>> from gwi.core.kernels import default_kernel
        >>> from gwi.core.prior import fit_prior
        >>> x = torch.linspace(0, 1, 20, dtype=torch.float64)[:, None]
        >>> fit = fit_prior(default_kernel(1), x, (6 * x).sin().mT, inducing_points=x[::4], max_iterations=20)
        >>> fit.noise_variance < 0.1
        True
    """
    if objective == "collapsed" and inducing_points is None:
        raise ValueError('The collapsed bound needs inducing_points; choose them with choose_inducing_points, or use "marginal".')
    kernel = copy.deepcopy(kernel)
    z = None if inducing_points is None else inducing_points.detach().clone().requires_grad_(learn_inducing_points)
    num_targets = y.numel() // x.shape[0]
    log_noise = torch.full((num_targets, 1) if noise_of_each else (), math.log(noise_variance), dtype=x.dtype, device=x.device)
    log_noise.requires_grad_(True)
    parameters = [*(p for p in kernel.parameters() if p.requires_grad), log_noise]
    log_shared = torch.full((), math.log(noise_variance), dtype=x.dtype, device=x.device, requires_grad=True)
    same = None if unit is None else (unit[:, None] == unit).to(x)
    if same is not None:
        parameters.append(log_shared)
    if z is not None and learn_inducing_points:
        parameters.append(z)

    def noise() -> Tensor:
        if sample_weight is None:
            return log_noise.exp().expand(-1, len(x)) if noise_of_each else log_noise.exp()
        return log_noise.exp() / sample_weight

    def repeats() -> Tensor | float:
        # N(y | f, σ²)^w is N(y | f, σ²/w) times a factor that depends on σ².
        if sample_weight is None:
            return 0.0
        shared = 1 if noise_of_each else num_targets
        return -shared * ((sample_weight - 1) * (LOG_TWO_PI + log_noise) + sample_weight.log()).sum() / 2

    _settle_constant_columns(kernel, x)
    # A wall, not a bound: where nothing steps beyond it the search is what it was.
    walls = _lengthscales_with_least(kernel, x)

    def minus_evidence() -> Tensor:
        hyper_prior = sum((law.log_prob(value(module)).sum() for _, module, law, value, _ in kernel.named_priors()), 0.0)
        hyper_prior = hyper_prior - sum(len(x) * (least - raw.flatten()).clamp_min(0).square().sum() for raw, least in walls)
        if z is None or objective == "marginal":
            shared = None if same is None else log_shared.exp() * same
            return -(_evidence(kernel, x, y, noise(), shared, jitter) + repeats() + hyper_prior)
        bound = collapsed_bound(kernel, z, x, y, noise(), chunk_size=chunk_size, jitter=jitter)
        return -(bound.sum() + repeats() + hyper_prior)

    def report(step: int, value: float) -> None:
        if on_step is not None:
            on_step(step, -value)

    # A floor on σ² relative to the targets: without one, duplicated or noiseless data send it, and the bound, to infinity.
    variance = max(float(y.square().mean()), torch.finfo(x.dtype).tiny)
    kernel_parameters = {id(p) for p in kernel.parameters()}
    bounds: list[tuple[float | None, float | None]] = []
    for p in parameters:
        if p is log_noise or p is log_shared:
            bound: tuple[float | None, float | None] = (math.log(1e-8 * variance), None)
        else:
            # Line searches try far points. A scale that is zero or infinite in floating point is outside a hyper-prior's support.
            bound = (-RAW_BOUND, RAW_BOUND) if id(p) in kernel_parameters else (None, None)
        bounds += [bound] * p.numel()
    result = minimize_lbfgs(
        minus_evidence, parameters, bounds=bounds, max_iterations=max_iterations, tolerance=tolerance, on_step=report
    )
    level = log_noise.detach().exp() + (0.0 if same is None else log_shared.detach().exp())
    return PriorFit(
        kernel=kernel,
        noise_variance=float(level.mean()),
        noise_variances=level[:, 0] if noise_of_each else None,
        inducing_points=None if z is None else z.detach(),
        log_evidence=-result.value,
        num_iterations=result.num_iterations,
        converged=result.converged,
        message=result.message,
    )
