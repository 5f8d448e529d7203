"""Fitting the prior: kernel hyper-parameters, noise and optionally Z, by L-BFGS in float64."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from scipy.optimize import minimize
from torch import Tensor

from gwi.linalg import JitterWarning, NotPositiveDefiniteError
from gwi.objectives import collapsed_bound, log_marginal_likelihood


@dataclass(frozen=True)
class PriorFit:
    """A fitted prior.

    Attributes:
        kernel: k with its fitted hyper-parameters; the kernel passed in is left as it was.
        noise_variance: σ².
        inducing_points: Z, moved if they were learned; None for the marginal likelihood.
        log_evidence: the objective reached: the log marginal likelihood, or its lower bound.
        num_iterations: of L-BFGS.
        converged: whether it stopped by itself.
        message: what L-BFGS said.
    """

    kernel: Kernel
    noise_variance: float
    inducing_points: Float[Tensor, "M D"] | None
    log_evidence: float
    num_iterations: int
    converged: bool
    message: str


def fit_prior(
    kernel: Kernel,
    x: Float[Tensor, "N D"],
    y: Float[Tensor, "*J N"],
    *,
    objective: Literal["collapsed", "marginal"] = "collapsed",
    inducing_points: Float[Tensor, "M D"] | None = None,
    learn_inducing_points: bool = False,
    noise_variance: float = 0.1,
    max_iterations: int = 200,
    chunk_size: int = 4096,
    jitter: float = 1e-8,
    on_step: Callable[[int, float], None] | None = None,
) -> PriorFit:
    """Maximise the evidence over kernel hyper-parameters, σ² and optionally Z.

    ``"collapsed"`` uses all rows through Titsias' bound. ``"marginal"`` is the exact marginal likelihood of the rows given: the
    paper's choice is to give it the M pairs (Z, y_Z), which is cheap and overfits; with all rows it is an exact GP's.

    Args:
        kernel: k to start from; float64.
        x: rows, standardised.
        y: targets, standardised, with the prior mean taken off.
        objective: what to maximise.
        inducing_points: Z, for the collapsed bound.
        learn_inducing_points: whether Z moves.
        noise_variance: σ² to start from.
        max_iterations: of L-BFGS.
        chunk_size: rows held at a time.
        jitter: relative to the mean diagonal; gradients through a factor need more of it than values do.
        on_step: called with the iteration and the objective.

    Raises:
        NotPositiveDefiniteError: when not even the starting point can be evaluated.
    """
    if objective == "collapsed" and inducing_points is None:
        raise ValueError('The collapsed bound needs inducing_points; choose them with choose_inducing_points, or use "marginal".')
    kernel = copy.deepcopy(kernel)
    z = None if inducing_points is None else inducing_points.detach().clone().requires_grad_(learn_inducing_points)
    log_noise = torch.tensor(math.log(noise_variance), dtype=x.dtype, device=x.device, requires_grad=True)
    parameters = [*(p for p in kernel.parameters() if p.requires_grad), log_noise]
    if z is not None and learn_inducing_points:
        parameters.append(z)

    def evidence() -> Tensor:
        if objective == "marginal":
            return log_marginal_likelihood(kernel, x, y, log_noise.exp(), jitter=jitter).sum()
        assert z is not None
        return collapsed_bound(kernel, z, x, y, log_noise.exp(), chunk_size=chunk_size, jitter=jitter).sum()

    # A floor on σ² relative to the targets: without one, duplicated or noiseless data send it, and the bound, to infinity.
    variance = max(float(y.square().mean()), torch.finfo(x.dtype).tiny)
    bounds: list[tuple[float | None, float | None]] = [
        bound
        for p in parameters
        for bound in [((math.log(1e-8 * variance), None) if p is log_noise else (None, None))] * p.numel()
    ]
    result = minimize_lbfgs(evidence, parameters, bounds=bounds, max_iterations=max_iterations, on_step=on_step)
    return PriorFit(
        kernel=kernel,
        noise_variance=float(log_noise.detach().exp()),
        inducing_points=None if z is None else z.detach(),
        log_evidence=result.value,
        num_iterations=result.num_iterations,
        converged=result.converged,
        message=result.message,
    )


@dataclass(frozen=True)
class LBFGSResult:
    """Where L-BFGS stopped; the parameters themselves hold the best point."""

    value: float
    num_iterations: int
    converged: bool
    message: str


def minimize_lbfgs(
    objective: Callable[[], Tensor],
    parameters: list[Tensor],
    *,
    maximise: bool = True,
    bounds: list[tuple[float | None, float | None]] | None = None,
    max_iterations: int = 200,
    tolerance: float = 1e-9,
    on_step: Callable[[int, float], None] | None = None,
) -> LBFGSResult:
    """SciPy's L-BFGS-B over the given tensors, left at the best point found.

    A step into a region where the objective cannot be evaluated (a matrix that is not positive definite, an overflow) is
    answered with a value worse than any seen, so that the line search comes back; only a bad start is an error.
    """
    sign = -1.0 if maximise else 1.0
    sizes = [p.numel() for p in parameters]
    best_value, best_point = math.inf, _flatten(parameters)
    worst_value = -math.inf

    def evaluate(point: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best_value, best_point, worst_value
        _unflatten(point, parameters, sizes)
        try:
            with warnings.catch_warnings():
                # A trial point of a line search may be ill-conditioned; only the end point speaks.
                warnings.simplefilter("ignore", JitterWarning)
                value = sign * objective()
                gradients = torch.autograd.grad(value, parameters, allow_unused=True)
        except NotPositiveDefiniteError:
            if math.isinf(best_value):
                raise
            return worst_value + abs(worst_value) + 1.0, np.zeros_like(point)
        gradient = np.concatenate(
            [
                (torch.zeros_like(p) if g is None else g).detach().cpu().double().reshape(-1).numpy()
                for p, g in zip(parameters, gradients, strict=True)
            ]
        )
        number = float(value.detach())
        if not (math.isfinite(number) and np.isfinite(gradient).all()):
            if math.isinf(best_value):
                raise NotPositiveDefiniteError(
                    "The objective or its gradient is not finite at the starting point. Check inputs and targets for NaN or "
                    "extreme values, and standardise them."
                )
            return worst_value + abs(worst_value) + 1.0, np.zeros_like(point)
        worst_value = max(worst_value, number)
        if number < best_value:
            best_value, best_point = number, point.copy()
        return number, gradient

    step = 0

    def report(_: np.ndarray) -> None:
        nonlocal step
        step += 1
        if on_step is not None:
            on_step(step, sign * best_value)

    outcome = minimize(
        evaluate,
        _flatten(parameters),
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        callback=report,
        options={"maxiter": max_iterations, "maxfun": 2 * max_iterations + 20, "ftol": tolerance, "gtol": 1e-6, "maxcor": 20},
    )
    _unflatten(best_point, parameters, sizes)
    return LBFGSResult(sign * best_value, int(outcome.nit), bool(outcome.success), str(outcome.message))


def _flatten(parameters: list[Tensor]) -> np.ndarray:
    return np.concatenate([p.detach().cpu().double().reshape(-1).numpy() for p in parameters])


@torch.no_grad()
def _unflatten(point: np.ndarray, parameters: list[Tensor], sizes: list[int]) -> None:
    values = torch.from_numpy(np.ascontiguousarray(point, dtype=np.float64))
    for parameter, part in zip(parameters, values.split(sizes), strict=True):
        parameter.copy_(part.reshape(parameter.shape))
