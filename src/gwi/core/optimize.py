"""SciPy's L-BFGS-B over torch tensors, for objectives of kernel algebra."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from threadpoolctl import ThreadpoolController
from torch import Tensor

from gwi.exceptions import JitterWarning, NotPositiveDefiniteError

Point = NDArray[np.float64]


@dataclass(frozen=True)
class LBFGSResult:
    """Where L-BFGS stopped; the parameters themselves hold the best point."""

    value: float
    num_iterations: int
    converged: bool
    message: str


@cache
def _vector_threads() -> Any:
    # To look for libraries takes longer than a small fit. SciPy's is loaded with this module.
    return ThreadpoolController().select(internal_api="openblas")


def minimize_lbfgs(
    objective: Callable[[], Tensor | tuple[Tensor, Sequence[Tensor]]],
    parameters: Sequence[Tensor],
    *,
    bounds: list[tuple[float | None, float | None]] | None = None,
    max_iterations: int = 200,
    tolerance: float = 1e-9,
    on_step: Callable[[int, float], None] | None = None,
) -> LBFGSResult:
    """Minimise over the given tensors, which are left at the best point found.

    A step into a region where the objective cannot be evaluated (a matrix that is not positive definite, an overflow) is
    answered with a value worse than any seen, so that the line search comes back; only a bad start is an error. An objective
    that knows its gradients gives them beside its value; otherwise they are found by differentiation.
    """
    sizes = [p.numel() for p in parameters]
    best_value, best_point = math.inf, _flatten(parameters)
    worst_value = -math.inf

    def evaluate(point: Point) -> tuple[float, Point]:
        nonlocal best_value, best_point, worst_value
        _unflatten(point, parameters, sizes)
        try:
            with warnings.catch_warnings():
                # A trial point of a line search may be ill-conditioned; only the end point speaks.
                warnings.simplefilter("ignore", JitterWarning)
                value, gradients = _value_and_gradients(objective(), parameters)
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

    def report(_: Point) -> None:
        nonlocal step
        step += 1
        if on_step is not None:
            on_step(step, best_value)

    # SciPy's own algebra is on vectors: threads of its BLAS would only wait for each other. Torch's are left alone.
    with _vector_threads().limit(limits=1):
        outcome = minimize(
            evaluate,
            _flatten(parameters),
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            callback=report,
            options={
                "maxiter": max_iterations,
                "maxfun": 2 * max_iterations + 20,
                "ftol": tolerance,
                "gtol": 1e-6,
                "maxcor": 20,
            },
        )
    _unflatten(best_point, parameters, sizes)
    return LBFGSResult(best_value, int(outcome.nit), bool(outcome.success), str(outcome.message))


def _value_and_gradients(
    outcome: Tensor | tuple[Tensor, Sequence[Tensor]], parameters: Sequence[Tensor]
) -> tuple[Tensor, Sequence[Tensor | None]]:
    if isinstance(outcome, tuple):
        return outcome
    return outcome, torch.autograd.grad(outcome, parameters, allow_unused=True)


def _flatten(parameters: Sequence[Tensor]) -> Point:
    return np.concatenate([p.detach().cpu().double().reshape(-1).numpy() for p in parameters])


@torch.no_grad()
def _unflatten(point: Point, parameters: Sequence[Tensor], sizes: list[int]) -> None:
    values = torch.from_numpy(np.ascontiguousarray(point, dtype=np.float64))
    for parameter, part in zip(parameters, values.split(sizes), strict=True):
        parameter.copy_(part.reshape(parameter.shape))
