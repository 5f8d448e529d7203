"""How parameters are found: the one loop of gradient steps, epochs around it, and L-BFGS for smooth sums over all rows."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from numpy.typing import NDArray
from scipy.optimize import minimize
from threadpoolctl import ThreadpoolController
from torch import Tensor, nn

from gwi.exceptions import JitterWarning, NotPositiveDefiniteError


@dataclass(frozen=True)
class TrainingRecord:
    """What happened in `train`.

    Attributes:
        losses: mean batch loss of each epoch.
        validation_losses: of each epoch, empty without validation.
        best_epoch: whose parameters were kept; the last one without validation.
    """

    losses: tuple[float, ...]
    validation_losses: tuple[float, ...]
    best_epoch: int


def gradient_steps(
    optimiser: torch.optim.Optimizer,
    losses: Iterable[Callable[[], Tensor]],
    rate: Callable[[int], float],
    *,
    first_step: int = 0,
    backward: Callable[[Tensor], None] = Tensor.backward,
) -> Iterator[tuple[int, Tensor]]:
    """One step for each loss: evaluate, differentiate, move. Yields the number of the step and its loss.

    Args:
        optimiser: with the parameters, and the learning rate at its peak.
        losses: each evaluates one batch.
        rate: the share of the peak that the learning rate has in a step.
        first_step: the number of the first.
        backward: leaves gradients; by default those of the loss, which is then one number.
    """
    # Noted in the groups, as torch's own schedules do, so that a second call goes on from the same peak.
    peaks = [group.setdefault("initial_lr", group["lr"]) for group in optimiser.param_groups]
    for step, loss in enumerate(losses, start=first_step):
        for group, peak in zip(optimiser.param_groups, peaks, strict=True):
            group["lr"] = peak * rate(step)
        optimiser.zero_grad(set_to_none=True)
        value = loss()
        backward(value)
        optimiser.step()
        yield step, value.detach()


class FlatAdam(torch.optim.Optimizer):
    """AdamW on one vector that all parameters are parts of: a fifth of the time where they are many and small.

    Parameters and gradients become views of it, so that all of them can be copied, averaged and put back as one.

    Args:
        groups: of parameters, with ``lr`` and ``weight_decay`` each.
        betas: of the averages of gradients and of their squares.
        epsilon: added to the root of the second.
    """

    def __init__(self, groups: Sequence[dict[str, Any]], betas: tuple[float, float] = (0.9, 0.999), epsilon: float = 1e-8):
        # Not torch's own constructor: it imports a compiler, which takes longer than a small fit.
        self.param_groups = [dict(group) for group in groups]
        parameters = [p for group in self.param_groups for p in group["params"]]
        with torch.no_grad():
            self.values = torch.cat([p.detach().reshape(-1) for p in parameters])
            self.gradients = torch.zeros_like(self.values)
            sizes = [p.numel() for p in parameters]
            for p, value, gradient in zip(parameters, self.values.split(sizes), self.gradients.split(sizes), strict=True):
                p.data, p.grad = value.view(p.shape), gradient.view(p.shape)
        self._group_sizes = [sum(p.numel() for p in group["params"]) for group in self.param_groups]
        self._first, self._second, self._steps = torch.zeros_like(self.values), torch.zeros_like(self.values), 0
        self._betas, self._epsilon = betas, epsilon

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Forget the gradients, which stay where they are."""
        self.gradients.zero_()

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Move all parameters."""
        self._steps += 1
        slow, slower = self._betas
        self._first.lerp_(self.gradients, 1 - slow)
        self._second.mul_(slower).addcmul_(self.gradients, self.gradients, value=1 - slower)
        size = (self._second / (1 - slower**self._steps)).sqrt_().add_(self._epsilon)
        parts = (part.split(self._group_sizes) for part in (self.values, self._first, size))
        for group, values, first, scale in zip(self.param_groups, *parts, strict=True):
            values.mul_(1 - group["lr"] * group["weight_decay"])
            values.addcdiv_(first, scale, value=-group["lr"] / (1 - slow**self._steps))


def warm_up_and_cosine(num_steps: int) -> Callable[[int], float]:
    """A rate that rises in a line for a twentieth of the steps and falls in half a cosine."""
    warm_up = max(1, num_steps // 20)
    return lambda step: min((step + 1) / warm_up, 0.5 * (1 + math.cos(math.pi * step / num_steps)) + 1e-3)


def train_epochs(
    module: nn.Module,
    optimiser: torch.optim.Optimizer,
    loss: Callable[..., Tensor],
    batches: Callable[[], Iterable[tuple[Tensor, ...]]],
    *,
    num_epochs: int,
    rate: Callable[[int], float],
    validation_loss: Callable[[], Tensor | float] | None = None,
    patience: int | None = None,
    on_epoch: Callable[[int, float], None] | None = None,
) -> TrainingRecord:
    """Gradient steps on batches, epoch after epoch; `module` is changed in place.

    Args:
        module: whose state is kept and given back.
        optimiser: with the parameters.
        loss: of a batch.
        batches: one epoch of them, rows first in the first tensor.
        num_epochs: passes over the rows.
        rate: the share of the peak that the learning rate has in a step.
        validation_loss: evaluated after each epoch; the parameters of the best epoch are kept.
        patience: stop after so many epochs without a better validation loss.
        on_epoch: called with the epoch and its mean loss.

    Raises:
        FloatingPointError: when the loss, the validation loss or a parameter becomes NaN or infinite; parameters are then those
            of the best epoch, without validation those of the last finite one.
    """
    trained = [p for group in optimiser.param_groups for p in group["params"]]
    losses: list[float] = []
    validation_losses: list[float] = []
    best_epoch, best_loss, num_steps = 0, math.inf, 0
    kept = _state(module, trained)
    try:
        for epoch in range(num_epochs):
            sizes: list[int] = []
            total = 0.0
            closures = _closures(loss, batches(), sizes, epoch)
            for _, value in gradient_steps(optimiser, closures, rate, first_step=num_steps):
                total += value.item() * sizes[-1]
            num_steps += len(sizes)
            if not all(p.isfinite().all() for p in trained):
                raise FloatingPointError(
                    f"A parameter became NaN or infinite in epoch {epoch} while the loss was still finite. Look for an infinite "
                    "slope in the loss, such as the square root of a zero."
                )
            losses.append(total / max(sum(sizes), 1))
            if on_epoch is not None:
                on_epoch(epoch, losses[-1])
            if validation_loss is not None:
                with torch.no_grad():
                    validation_losses.append(float(validation_loss()))
                if not math.isfinite(validation_losses[-1]):
                    raise FloatingPointError(f"The validation loss became {validation_losses[-1]} in epoch {epoch}.")
            if validation_loss is None or validation_losses[-1] < best_loss:
                best_loss = min(validation_losses, default=math.inf)
                best_epoch, kept = epoch, _state(module, trained)
            elif patience is not None and epoch - best_epoch >= patience:
                break
    except FloatingPointError:
        _restore(module, trained, kept)
        raise
    if validation_loss is not None:
        _restore(module, trained, kept)
    return TrainingRecord(tuple(losses), tuple(validation_losses), best_epoch)


def _closures(
    loss: Callable[..., Tensor], batches: Iterable[tuple[Tensor, ...]], sizes: list[int], epoch: int
) -> Iterator[Callable[[], Tensor]]:
    """What evaluates each batch, refusing a loss that is no number; the sizes of the batches are noted."""
    for batch in batches:

        def evaluate(batch: tuple[Tensor, ...] = batch) -> Tensor:
            value = loss(*batch)
            if not torch.isfinite(value):
                raise FloatingPointError(
                    f"The loss became {value.item()} in epoch {epoch}. Lower the learning rate, or standardise the data."
                )
            return value

        sizes.append(len(batch[0]))
        yield evaluate


def train(
    module: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    x: Float[Tensor, "N ..."],
    y: Shaped[Tensor, "*J N"],
    *,
    num_epochs: int,
    batch_size: int = 1000,
    learning_rate: float = 1e-2,
    parameters: Sequence[Tensor] | None = None,
    validation_loss: Callable[[], Tensor] | None = None,
    patience: int | None = None,
    generator: torch.Generator | None = None,
    on_epoch: Callable[[int, float], None] | None = None,
) -> TrainingRecord:
    """Adam with a cosine learning rate on shuffled batches; `module` is changed in place.

    Args:
        module: what holds the parameters; those that ask for gradients are trained.
        loss: of a batch (x, y).
        x: rows.
        y: targets, rows last.
        num_epochs: passes over the rows.
        batch_size: rows a step; all of them when there are fewer.
        learning_rate: at the start.
        parameters: train these instead of the module's.
        validation_loss: evaluated after each epoch; the parameters of the best epoch are kept.
        patience: stop after so many epochs without a better validation loss.
        generator: for the order of rows.
        on_epoch: called with the epoch and its mean loss.

    Raises:
        FloatingPointError: when the loss, the validation loss or a parameter becomes NaN or infinite; parameters are then those
            of the best epoch, without validation those of the last finite one.

    Examples:
        >>> import torch
        >>> from gwi.core.training import train
        >>> network = torch.nn.Linear(1, 1)
        >>> x = torch.linspace(0, 1, 20)[:, None]
        >>> loss = lambda x, y: (network(x).mT - y).square().mean()
        >>> record = train(network, loss, x, 2 * x.mT, num_epochs=300, learning_rate=0.1)
        >>> bool(abs(network.weight.item() - 2) < 0.2)
        True
    """
    trained = [p for p in (module.parameters() if parameters is None else parameters) if p.requires_grad]
    if not trained:
        raise ValueError(
            "Nothing to train: no parameter asks for gradients. Call requires_grad_(True) on the parameters to train."
        )
    num_steps = num_epochs * math.ceil(x.shape[0] / batch_size)

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        for rows in torch.randperm(x.shape[0], generator=generator).to(x.device).split(batch_size):
            yield x[rows], y[..., rows]

    return train_epochs(
        module,
        torch.optim.Adam(trained, lr=learning_rate),
        loss,
        batches,
        num_epochs=num_epochs,
        rate=lambda step: (1 + math.cos(math.pi * step / num_steps)) / 2,
        validation_loss=validation_loss,
        patience=patience,
        on_epoch=on_epoch,
    )


def _state(module: nn.Module, trained: Sequence[Tensor]) -> tuple[dict[str, Any], list[Tensor]]:
    # Buffers are in the module's state only; `parameters` may hold tensors, such as a likelihood's, that the module does not.
    return copy.deepcopy(module.state_dict()), [p.detach().clone() for p in trained]


def _restore(module: nn.Module, trained: Sequence[Tensor], kept: tuple[dict[str, Any], list[Tensor]]) -> None:
    state, values = kept
    module.load_state_dict(state)
    with torch.no_grad():
        for p, value in zip(trained, values, strict=True):
            p.copy_(value)


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
