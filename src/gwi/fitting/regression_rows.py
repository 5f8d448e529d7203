"""From what a user of the regressor brings to the task of a fit."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from numbers import Real
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.validation import validate_data
from torch import Tensor

from gwi._progress import Report
from gwi._typing import Array
from gwi._validation import as_array, listed, require_choice
from gwi.core.inducing import Method
from gwi.core.scaling import Scales
from gwi.fitting.held_out_covariance import CovarianceChoice, NoiseName
from gwi.fitting.learners import Task
from gwi.fitting.regression import KernelFitName, TailsName
from gwi.fitting.stacking import plan

NUM_FOLDS = 5


def array_task(
    X: Float[Array, "N D"],
    targets: Float[Array, "N J"],
    weight: Float[Array, " N"],
    validation: tuple[Array, Array] | None,
    generator: torch.Generator,
    device: torch.device | str,
    network_dtype: torch.dtype,
    report: Report,
) -> tuple[Task, Float[Tensor, "J V"], Float[Tensor, " V"]]:
    """Rows in memory as a task, judged by folds or by validation rows, with targets and weights of the judging rows."""
    scales = Scales.of(X, targets, weight)
    x, y = scales.rows(X, device), scales.targets(targets, device)
    # Whole numbers say how often a row stands there, as merged rows do; others are relative.
    w = torch.as_tensor(weight if (weight == weight.round()).all() else weight / weight.mean(), device=device)
    task = Task(x, y, w, None, x, generator, scales, network_dtype, report=report)
    if validation is None:
        fold = torch.empty(len(x), dtype=torch.long)
        fold[torch.randperm(len(x), generator=generator)] = torch.arange(len(x)) % min(NUM_FOLDS, len(x))
        return replace(task, fold=fold.to(x.device)), y, w
    x_new, y_new = validation[0], validation[1].reshape(len(validation[0]), -1)
    if y_new.shape[1] != len(y):
        raise ValueError(f"validation needs {len(y)} target(s), like the training rows; got {y_new.shape[1]}.")
    x_judge, y_judge = scales.rows(x_new, device), scales.targets(y_new, device)
    return replace(task, x_judge=x_judge), y_judge, torch.ones_like(y_judge[0])


def require_options(estimator: Any) -> None:
    """Refuse, before anything is fitted, options of the regressor that mean nothing."""
    known = {"covariance": CovarianceChoice, "noise": NoiseName, "tails": TailsName, "kernel_fit": KernelFitName}
    for name, choices in known.items():
        require_choice(name, getattr(estimator, name), choices)
    for name, others in (("divergence_weight", ("auto",)), ("tempering", ("auto", None))):
        value = getattr(estimator, name)
        is_number = isinstance(value, Real) and 0 < float(value) < math.inf
        if not is_number and value not in others:
            words = ", ".join(f'"{other}"' if other else "None" for other in others)
            raise ValueError(f"{name} is {words} or a positive number; got {value!r}.")


def checked_validation(estimator: Any, validation: Any) -> tuple[Array, Array]:
    """Validation rows and targets as arrays.

    Raises:
        ValueError: when the columns are not those of the training rows, or a cell is no number.
    """
    if not isinstance(validation, tuple | list) or len(validation) != 2:
        raise ValueError(f"validation is a pair, (X, y), of rows that the means have not seen; got {type(validation).__name__}.")
    X, y = as_array(validation[0]), as_array(validation[1])
    try:
        with warnings.catch_warnings():
            # An array has no names to compare, which is no matter.
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            rows = validate_data(estimator, X, dtype=np.float64, reset=False)
        targets = check_array(y, dtype=np.float64, ensure_2d=False, input_name="y")
        check_consistent_length(rows, targets)
    except ValueError as error:
        raise ValueError(f"validation: {error}") from None
    return rows, targets


def chosen_means(mean: Any, task: Task, max_time: float | None) -> tuple[list[Any], str]:
    """The means that the user asks for, or the plan of ``"auto"`` and what to say of it."""
    if isinstance(mean, str) and mean == "auto":
        chosen = plan(task.num_rows, task.x.shape[1], max_time)
        note = "" if max_time is None else f"planned for {max_time:g} s: about {chosen.seconds:.0f} s on one core"
        return list(chosen.means), note
    return listed(mean), ""


def given_points(inducing_points: Any, task: Task) -> Method | Float[Tensor, "M D"]:
    """How Z is chosen, or Z itself on standardised rows."""
    if isinstance(inducing_points, str):
        return cast(Method, inducing_points)
    z = check_array(as_array(inducing_points), dtype=np.float64)
    if z.shape[1] != task.x.shape[1]:
        raise ValueError(f"inducing_points need {task.x.shape[1]} columns, like the rows; got {z.shape[1]}.")
    return task.scales.rows(np.unique(z, axis=0), task.x.device)
