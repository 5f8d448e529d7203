"""GWIRegressor: calibrated regression for any mean, with scikit-learn's interface."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from linear_operator import to_linear_operator
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor

from gwi._files import write_atomically
from gwi._progress import progress
from gwi._typing import Array
from gwi._validation import as_array, document_of, floating_dtype, is_source, like
from gwi.core.inducing import Method
from gwi.core.measures import GaussianMeasure
from gwi.core.scaling import MERGED_ROWS, merge_equal_rows
from gwi.core.tempering import conformal_quantile
from gwi.evaluation.checks import severe_messages
from gwi.exceptions import GWIWarning
from gwi.fitting.held_out_covariance import CovarianceChoice, NoiseName, row_kernel
from gwi.fitting.learners import Task
from gwi.fitting.paper import Kind
from gwi.fitting.paper_preset import paper_preset
from gwi.fitting.regression import KernelFitName, Learned, TailsName, assemble, extended, learn_means
from gwi.fitting.regression_rows import array_task, checked_validation, chosen_means, given_points, require_options
from gwi.fitting.stream_rows import in_memory, stream_task, validation_arrays
from gwi.models.regression import Decomposition, differentiable
from gwi.storage.container import to_bytes
from gwi.storage.regression import encode_model, encode_summary
from gwi.streaming.loaders import as_source
from gwi.streaming.process_group import ProcessGroup
from gwi.tables.rows import RowSource


class GWIRegressor(RegressorMixin, BaseEstimator):
    """Regression with honest error bars: any mean, a sparse-GP covariance, noise and tempering judged on unseen rows.

    Rows may be arrays, data frames or tensors; tensors in, tensors out. `fit` also takes a Parquet file, a folder of them, a
    ``pyarrow.dataset`` or a ``DataLoader`` of any size, alone or under ``torchrun`` with other processes.

    Args:
        mean: ``"auto"`` stacks several; ``"svgp"``, ``"svgp-all"``, ``"network"``, ``"svgp+network"``, a module, a scikit-learn
            regressor, a callable, or a list of these.
        freeze_mean: take a module as it is; `fit` then needs ``validation``.
        kernel: ``"rbf"``, ``"matern32"``, ``"matern52"``, ``"rq"``, or a GPyTorch kernel for standardised rows. Named ones have a
            length-scale for each column, above 500 columns one for all.
        kernel_fit: the kernel of the covariance is fitted to the ``"targets"``, or to the mean's ``"residuals"`` on unseen rows.
        num_inducing: M; ``"auto"`` takes every row when they are few.
        inducing_points: how Z is chosen, or Z itself in the units of the rows.
        covariance: ``"wasserstein"``, ``"titsias"``, ``"trained"``, ``"zero"`` for S = 0, or ``"auto"``: the second where one
            mean has every row as an inducing point, or rows weigh differently, else the first.
        divergence_weight: β; ``"auto"`` is the matched weight, 1.0 the paper's. For standardised targets.
        noise: ``"constant"``, ``"input-dependent"``, or ``"auto"``, by cross-validated likelihood on unseen rows.
        tempering: ``"auto"``, a factor on the predictive variance, or None.
        tails: ``"normal"``, or ``"auto"`` for Student's t where unseen rows ask for it.
        conformal: take intervals from the quantiles of unseen residuals rather than from the normal distribution.
        preset: ``"paper"`` follows the paper's protocol, GWI-net or with ``mean="svgp"`` GWI: SVGP; other choices are not used.
        max_steps: bound on the gradient steps of the preset for each number of inducing points.
        max_time: seconds to aim for; chooses the plan before fitting and interrupts nothing.
        device: where tensors live.
        dtype: ``"float32"`` or ``"float64"``, in which networks are trained; all else is in float64.
        random_state: seed or generator.
        n_jobs: fits of scikit-learn means side by side, as joblib takes it; ``joblib.parallel_config`` chooses where.
        verbose: 1 shows progress and prints the summary.

    Attributes:
        posterior_: Q on standardised rows and targets.
        model_: all that predicts.
        summary_: what was chosen.
    """

    _note: str

    def __init__(
        self,
        mean: Any = "auto",
        *,
        freeze_mean: bool = False,
        kernel: str | Kernel = "rbf",
        kernel_fit: KernelFitName = "targets",
        num_inducing: int | Literal["auto"] = "auto",
        inducing_points: Method | ArrayLike = "kmeans",
        covariance: CovarianceChoice = "auto",
        divergence_weight: float | Literal["auto"] = "auto",
        noise: NoiseName = "auto",
        tempering: float | Literal["auto"] | None = "auto",
        tails: TailsName = "auto",
        conformal: bool = False,
        preset: Literal["paper"] | None = None,
        max_steps: int | None = None,
        max_time: float | None = None,
        device: str | torch.device = "cpu",
        dtype: str | torch.dtype = "float32",
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ):
        self.mean = mean
        self.freeze_mean = freeze_mean
        self.kernel = kernel
        self.kernel_fit = kernel_fit
        self.num_inducing = num_inducing
        self.inducing_points = inducing_points
        self.covariance = covariance
        self.divergence_weight = divergence_weight
        self.noise = noise
        self.tempering = tempering
        self.tails = tails
        self.conformal = conformal
        self.preset = preset
        self.max_steps = max_steps
        self.max_time = max_time
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        validation: Any = None,
        checkpoints: str | os.PathLike[str] | None = None,
    ) -> GWIRegressor:
        """Learn mean, covariance and noise; a `GWIWarning` says when the uncertainty came out worthless.

        Args:
            X: rows; or a path, a dataset or a loader of rows and targets.
            y: one target, or one column a target; of a path or a dataset the name of the column, or several; of a loader None.
            sample_weight: of each row; whole numbers count it as so many equal rows, others are relative.
            validation: rows and targets that frozen means have not seen, or a path and a column; all means are judged on them.
            checkpoints: a folder where a fit from a path, dataset or loader keeps its progress; the same fit goes on from there.
        """
        start, names = time.perf_counter(), None
        require_options(self)
        if is_source(X):
            source = as_source(X, y)
            rows = in_memory(source)
            if rows is None:
                return self._fit_stream(source, y, sample_weight, validation, checkpoints, start)
            names, is_one = source.features, rows.y.shape[1] == 1 and not isinstance(y, list | tuple)
            X, y = rows.x, rows.y[:, 0] if is_one else rows.y
        X, y = as_array(X), as_array(y)
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, ensure_min_samples=2)
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        weight = _check_sample_weight(as_array(sample_weight), X, dtype=np.float64, ensure_non_negative=True)
        if not weight.any():
            raise ValueError("All sample weights are zero; give at least one row a positive weight.")
        X, y, weight = X[weight > 0], y[weight > 0], weight[weight > 0]
        self._one_target = y.ndim == 1
        targets = y.reshape(len(y), -1).astype(np.float64)
        if len(X) < MERGED_ROWS and validation is None and self.preset is None:
            X, targets, weight = merge_equal_rows(X, targets, weight)
        if len(X) < 2:
            raise ValueError("fit needs at least two rows that differ and have a positive weight; got one.")
        if validation is not None:
            validation = checked_validation(self, validation_arrays(validation, getattr(self, "feature_names_in_", None)))
        with progress(self.verbose > 0) as report:
            task, y_judge, judge_weight = array_task(
                X, targets, weight, validation, self._generator(), self.device, floating_dtype(self.dtype), report
            )
            self._learned: Learned | None = None
            if self.preset is not None:
                self._fit_preset(task, validation, start)
            else:
                self._learn(task, y_judge, judge_weight, start)
        if self.verbose:
            print(self.summary_)
        self._warn_if_severe(task.x, stacklevel=3)
        return self

    def _fit_stream(
        self, source: RowSource, y: Any, sample_weight: Any, validation: Any, checkpoints: Any, start: float
    ) -> GWIRegressor:
        if sample_weight is not None or self.preset is not None:
            raise ValueError("A fit from a path, dataset or loader takes neither sample_weight nor a preset; pass arrays.")
        with progress(self.verbose > 0 and ProcessGroup.current().is_first) as report:
            prepared = stream_task(
                source,
                self._generator(),
                validation=validation,
                device=self.device,
                network_dtype=floating_dtype(self.dtype),
                checkpoints=checkpoints,
                estimator=self,
                report=report,
            )
            self._one_target = len(prepared.y_judge) == 1 and not isinstance(y, list | tuple)
            self.n_features_in_ = prepared.task.x.shape[1]
            if source.features is not None:
                self.feature_names_in_ = np.array(source.features, dtype=object)
            self._learn(prepared.task, prepared.y_judge, torch.ones_like(prepared.y_judge[0]), start, prepared.note)
        # What the means were judged on is known; the rows are not at hand for more.
        self._learned = None
        if self.verbose and ProcessGroup.current().is_first:
            print(self.summary_)
        self._warn_if_severe(prepared.task.x, stacklevel=4)
        return self

    def _warn_if_severe(self, x: Tensor, stacklevel: int) -> None:
        for message in severe_messages(self.model_, x):
            warnings.warn(message, GWIWarning, stacklevel=stacklevel)

    def _learn(self, task: Task, y_judge: Tensor, judge_weight: Tensor, start: float, source_note: str = "") -> None:
        means, plan_note = chosen_means(self.mean, task, None if self.max_time is None else float(self.max_time))
        kernel, note = row_kernel(self.kernel, task.x.shape[1])
        self._note = "; ".join(filter(None, (plan_note, note, source_note)))
        self._learned = learn_means(
            replace(task, n_jobs=self.n_jobs),
            y_judge,
            judge_weight,
            means,
            kernel.to(self.device),
            num_inducing=self.num_inducing,
            inducing_points=given_points(self.inducing_points, task),
            freeze=self.freeze_mean,
        )
        task.report("covariance and noise", 0.0)
        self._assemble(start)

    def _fit_preset(self, task: Task, validation: Any, start: float) -> None:
        kinds: dict[Any, Kind] = {"auto": "network", "network": "network", "svgp": "svgp"}
        if self.preset != "paper" or not isinstance(self.mean, str) or self.mean not in kinds:
            raise ValueError(f'preset is "paper" with mean="network" or "svgp"; got {self.preset!r} with mean={self.mean!r}.')
        if validation is not None:
            raise ValueError('preset="paper" sets its own validation rows apart; leave validation out.')
        self.model_, summary = paper_preset(task, kinds[self.mean], self.max_steps)
        self.summary_ = replace(summary, seconds=time.perf_counter() - start)

    def update(self, X: Any, y: Any) -> GWIRegressor:
        """Take new rows into covariance, noise and tempering without a refit.

        The mean stays, unless it is a single kernel expansion, whose coefficients are in closed form. Networks, boosting, weights
        of a stack and, but for ``kernel_fit="residuals"``, hyper-parameters stay too.
        """
        start = time.perf_counter()
        check_is_fitted(self, "model_")
        if self._learned is None:
            raise ValueError(
                "A model from a file, stream or preset holds no training rows to add new ones to; refit, or update before saving."
            )
        X, y = as_array(X), as_array(y)
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, reset=False)
        scales = self.model_.scales
        targets = np.asarray(y, dtype=np.float64).reshape(len(X), -1)
        if targets.shape[1] != len(scales.y_scale):
            raise ValueError(f"The model was fitted to {len(scales.y_scale)} target(s); the new rows have {targets.shape[1]}.")
        self._learned = extended(self._learned, self.model_, scales.rows(X, self.device), scales.targets(targets, self.device))
        self._assemble(start)
        return self

    def _assemble(self, start: float) -> None:
        assert self._learned is not None
        self.model_, summary = assemble(
            self._learned,
            covariance=self.covariance,
            divergence_weight=self.divergence_weight,
            noise=self.noise,
            tempering=self.tempering,
            tails=self.tails,
            kernel_fit=self.kernel_fit,
        )
        self.summary_ = replace(summary, seconds=time.perf_counter() - start, note=self._note)

    @property
    def posterior_(self) -> GaussianMeasure:
        """Q on standardised rows and targets."""
        return self.model_.posterior

    @property
    def tempering_factor_(self) -> Array:
        """α_T of each target."""
        return self.model_.tempering_factor

    def _generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(int(check_random_state(self.random_state).randint(2**31 - 1)))

    def _rows(self, X: Any) -> Array:
        check_is_fitted(self, "model_")
        return validate_data(self, as_array(X), dtype=np.float64, reset=False)

    def _shaped(self, values: Array, X: Any) -> Any:
        """From one row an output to what the user expects: a column each, or one axis; tensors for tensors."""
        return like(values[0] if self._one_target else np.moveaxis(values, 0, 1), X)

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """The mean; with `return_std` also the standard deviation of y, with `return_cov` the joint covariance of y.

        The covariance has one N × N matrix a target on its last axis when there are several.
        """
        if return_std and return_cov:
            raise ValueError("Ask for return_std or return_cov, not both.")
        rows = self._rows(X)
        if return_std:
            mean, std = self.model_.law(rows)
            return self._shaped(mean, X), self._shaped(std, X)
        mean = self._shaped(self.model_.mean(rows), X)
        if return_cov:
            covariance = self.model_.covariance(rows)
            return mean, like(covariance[0] if self._one_target else np.moveaxis(covariance, 0, -1), X)
        return mean

    def predict_quantiles(self, X: Any, quantiles: Sequence[float] = (0.05, 0.5, 0.95)) -> Any:
        """Quantiles of y; the last axis runs over `quantiles`."""
        levels = np.asarray(quantiles, dtype=np.float64)
        if levels.ndim != 1 or ((levels <= 0) | (levels >= 1)).any():
            raise ValueError(f"quantiles lie strictly between 0 and 1; got {quantiles}.")
        return self._shaped(self.model_.quantiles(self._rows(X), levels), X)

    def predict_interval(self, X: Any, coverage: float = 0.95) -> Any:
        """The central interval that holds y with this probability; the last axis is (lower, upper)."""
        if not 0 < coverage < 1:
            raise ValueError(f"coverage lies strictly between 0 and 1; got {coverage}.")
        if not self.conformal:
            return self.predict_quantiles(X, ((1 - coverage) / 2, (1 + coverage) / 2))
        mean, std = self.model_.law(self._rows(X))
        half = std * np.array([conformal_quantile(scores, coverage) for scores in self.model_.scores])[:, None]
        return self._shaped(np.stack([mean - half, mean + half], axis=-1), X)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Any:
        """Joint draws of y at the rows: (N, n_samples), or (N, J, n_samples) for J targets."""
        rows = self._rows(X)
        return self._shaped(self.model_.sample(rows, n_samples, check_random_state(random_state)), X)

    def nll(self, X: Any, y: Any) -> float:
        """Mean negative log density of y, in its own units, summed over targets."""
        rows = self._rows(X)
        targets = np.asarray(as_array(y), dtype=np.float64).reshape(len(rows), -1).T
        return float(-self.model_.log_density(rows, targets).sum(0).mean())

    def decompose(self, X: Any) -> Decomposition:
        """Epistemic, aleatoric and total variance of y."""
        _, variance, noise = self.model_.marginals(self._rows(X))
        scale = (self.model_.scales.y_scale**2)[:, None]
        total = (variance + noise) * self.model_.tempering_factor[:, None]
        return Decomposition(*(self._shaped(part * scale, X) for part in (variance, noise, total)))

    def posterior(self, X: Any) -> MultivariateNormal:
        """The joint law of f at the rows, untempered, in the target's own units; a batch entry a target if several.

        Tensors may have batch axes before the rows, and gradients with respect to them pass through.
        """
        if not isinstance(X, Tensor):
            X = torch.from_numpy(self._rows(X))
        check_is_fitted(self, "model_")
        if X.requires_grad and not differentiable(self.posterior_):
            raise ValueError(
                "A part of the mean, such as boosted trees or a plain function, has no gradient with respect to its input. Use "
                'mean="svgp-all", "svgp", "network" or a torch module, or pass rows that need no gradient.'
            )
        if X.shape[-1] != self.n_features_in_:
            raise ValueError(f"The model was fitted to {self.n_features_in_} features; the rows have {X.shape[-1]}.")
        mean, covariance = self.model_.joint(X)
        if self._one_target:
            mean, covariance = mean[..., 0, :], covariance[..., 0, :, :]
        # As an operator: a plain matrix would be factorised at once, and equal rows have no Cholesky factor.
        return MultivariateNormal(mean, to_linear_operator(covariance))

    def ood_score(self, X: Any) -> Any:
        """How far the variance of f is back to the prior's: 0 at well-known rows, 1 far from all data."""
        rows = self._rows(X)
        return like(self.model_.unknown_share(rows, self.model_.parts(rows)), X)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the fitted model into one file, all of it or nothing; `gwi.load` reads it.

        The file holds numbers and names only: no targets, and of the rows only inducing and basis points (`summary_` says when
        those are all rows).

        Raises:
            UnsavableError: naming a part that cannot be stored, such as a plain function, and what works instead.
        """
        return write_atomically(path, to_bytes(*self._encoded()))

    def _encoded(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        check_is_fitted(self, "model_")
        model, tensors = encode_model(self.model_)
        summary = encode_summary(self.summary_)
        return document_of(self, "regressor", one_target=self._one_target, summary=summary, model=model), tensors

    def __sklearn_tags__(self) -> Any:
        """More than one target is allowed."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
