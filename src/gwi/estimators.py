"""GWIRegressor: calibrated regression for any mean, with scikit-learn's interface."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from linear_operator.operators import RootLinearOperator
from scipy.stats import norm
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor

from gwi.calibration import CovarianceName, NoiseName, calibrate, choose_prior, named_kernel, noise_features
from gwi.inducing import Method
from gwi.kernels import SparsePosteriorKernel
from gwi.learners import Task
from gwi.measures import GaussianMeasure, kernel_variance
from gwi.scaling import Array, Scales, merge_equal_rows
from gwi.selection import FEW_ROWS, convex_weights, learn, plan, stack
from gwi.tempering import conformal_quantile, tempering_factor

NUM_FOLDS = 5


@dataclass(frozen=True)
class Decomposition:
    """Predictive variance by its source, in the target's own units.

    Attributes:
        epistemic: r, of f: what more data near x would remove.
        aleatoric: σ², of y given f: what they would not.
        total: their sum, tempered as in `predict`.
    """

    epistemic: Array
    aleatoric: Array
    total: Array


@dataclass(frozen=True)
class Summary:
    """What was chosen, and why.

    Attributes:
        num_rows: N.
        members: name, weight in each target's mean, judged RMSE in units of the target's standard deviation, seconds.
        num_inducing: M of the covariance; equal to N when all rows are stored as inducing points.
        divergence_weight: β.
        noise: penalty of the noise model of each target; infinity is constant noise.
        tempering: α_T of each target.
        judged_nll: NLL on rows the mean had not seen, before and after tempering, standardised targets.
        seconds: of the whole fit.
    """

    num_rows: int
    members: tuple[tuple[str, tuple[float, ...], float, float], ...]
    num_inducing: int
    divergence_weight: tuple[float, ...]
    noise: tuple[float, ...]
    tempering: tuple[float, ...]
    judged_nll: tuple[float, float]
    seconds: float

    def __str__(self) -> str:
        lines = [f"{self.num_rows} rows, {self.num_inducing} inducing points, {self.seconds:.1f} s"]
        for name, weights, error, seconds in self.members:
            shown = ", ".join(f"{w:.2f}" for w in weights)
            lines.append(f"  mean {name:<16} weight {shown}  unseen RMSE {error:.3f}  {seconds:.1f} s")
        kinds = ", ".join("constant" if p == math.inf else "input-dependent" for p in self.noise)
        lines.append(f"  weight of W₂² {', '.join(f'{b:.3g}' for b in self.divergence_weight)}; noise {kinds}")
        factors = ", ".join(f"{a:.3f}" for a in self.tempering)
        lines.append(f"  unseen NLL {self.judged_nll[0]:.3f}, tempered by {factors}: {self.judged_nll[1]:.3f}")
        return "\n".join(lines)


class GWIRegressor(RegressorMixin, BaseEstimator):
    """Regression with honest error bars: any mean, a sparse-GP covariance, noise and tempering judged on unseen rows.

    Args:
        mean: ``"auto"`` stacks several; ``"svgp"``, ``"svgp-all"``, ``"network"``, ``"svgp+network"``, a module, a scikit-learn
            regressor, a callable, or a list of these.
        freeze_mean: take a module as it is; `fit` then needs ``validation``.
        kernel: ``"rbf"``, ``"matern32"``, ``"matern52"``, ``"rq"``, or a GPyTorch kernel for standardised rows.
        num_inducing: M; ``"auto"`` takes every row when they are few.
        inducing_points: how Z is chosen.
        covariance: ``"wasserstein"``, ``"titsias"`` or ``"trained"``.
        divergence_weight: β; ``"auto"`` is the matched weight, 1.0 the paper's. For standardised targets.
        noise: ``"constant"``, ``"input-dependent"``, or ``"auto"``, by cross-validated likelihood on unseen rows.
        tempering: ``"auto"``, a factor on the predictive variance, or None.
        conformal: take intervals from the quantiles of unseen residuals rather than from the normal distribution.
        max_time: seconds to aim for; chooses the plan before fitting and interrupts nothing.
        device: where tensors live.
        random_state: seed or generator.
        verbose: 1 prints the summary.

    Attributes:
        posterior_: Q on standardised rows and targets.
        summary_: what was chosen.
    """

    def __init__(
        self,
        mean: Any = "auto",
        *,
        freeze_mean: bool = False,
        kernel: str | Kernel = "rbf",
        num_inducing: int | Literal["auto"] = "auto",
        inducing_points: Method = "kmeans",
        covariance: CovarianceName = "wasserstein",
        divergence_weight: float | Literal["auto"] = "auto",
        noise: NoiseName = "auto",
        tempering: float | Literal["auto"] | None = "auto",
        conformal: bool = False,
        max_time: float | None = None,
        device: str | torch.device = "cpu",
        random_state: Any = None,
        verbose: int = 0,
    ):
        self.mean = mean
        self.freeze_mean = freeze_mean
        self.kernel = kernel
        self.num_inducing = num_inducing
        self.inducing_points = inducing_points
        self.covariance = covariance
        self.divergence_weight = divergence_weight
        self.noise = noise
        self.tempering = tempering
        self.conformal = conformal
        self.max_time = max_time
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None, validation: tuple[Any, Any] | None = None) -> GWIRegressor:
        """Learn mean, covariance and noise.

        Args:
            X: rows.
            y: one target, or one column a target.
            sample_weight: of each row.
            validation: rows and targets that frozen means have not seen; all means are then judged on them.
        """
        start = time.perf_counter()
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, ensure_min_samples=2)
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not weight.any():
            raise ValueError("All sample weights are zero; give at least one row a positive weight.")
        X, y, weight = X[weight > 0], y[weight > 0], weight[weight > 0]
        self._one_target = y.ndim == 1
        targets = y.reshape(len(y), -1).astype(np.float64)
        if len(X) < FEW_ROWS and validation is None:
            X, targets, weight = merge_equal_rows(X, targets, weight)
        self._scales = Scales.of(X, targets, weight)
        task, y_judge, judge_weight = self._task(X, targets, weight, validation)

        kernel = named_kernel(self.kernel, X.shape[1]).to(self.device)
        prior, z = choose_prior(task, kernel, self.num_inducing, self.inducing_points)
        members = [learn(item, task, prior, self._basis(task, z), self.freeze_mean) for item in self._means(X)]
        judged = torch.stack([member.judged for member in members])
        mixing = torch.stack([convex_weights(judged[:, j], y_judge[j], judge_weight) for j in range(len(y_judge))])
        residuals = y_judge - torch.einsum("jk,kjv->jv", mixing, judged)

        features = noise_features(task.x_judge, y_judge - residuals)
        results = [
            calibrate(
                task,
                prior,
                z,
                residuals[j],
                features,
                judge_weight,
                covariance=self.covariance,
                divergence_weight=self.divergence_weight,
                noise=self.noise,
            )
            for j in range(len(y_judge))
        ]
        self._noises = [fit.noise for _, fit in results]
        s = torch.stack([found.whitened_covariance for found, _ in results])
        mean = stack([member.mean for member in members], mixing)
        self.posterior_ = GaussianMeasure(mean, SparsePosteriorKernel(prior.kernel, z, s)).requires_grad_(False)
        variance = torch.stack([found.variance + fit.noise(features) for found, fit in results])
        self.tempering_factor_ = self._temper(residuals, variance, judge_weight)
        spread = (variance * variance.new_tensor(self.tempering_factor_)[:, None]).sqrt()
        self._scores = residuals.abs() / spread
        self.summary_ = Summary(
            num_rows=len(X),
            members=tuple(
                (m.name, tuple(mixing[:, i].tolist()), float((y_judge - m.judged).square().mean().sqrt()), m.seconds)
                for i, m in enumerate(members)
            ),
            num_inducing=len(z),
            divergence_weight=tuple(found.divergence_weight for found, _ in results),
            noise=tuple(fit.penalty for _, fit in results),
            tempering=tuple(self.tempering_factor_.tolist()),
            judged_nll=(
                _nll(residuals, variance, judge_weight),
                _nll(residuals, variance * variance.new_tensor(self.tempering_factor_)[:, None], judge_weight),
            ),
            seconds=time.perf_counter() - start,
        )
        if self.verbose:
            print(self.summary_)
        return self

    def _task(self, X: Array, targets: Array, weight: Array, validation: tuple[Any, Any] | None) -> tuple[Task, Tensor, Tensor]:
        generator = torch.Generator().manual_seed(int(check_random_state(self.random_state).randint(2**31 - 1)))
        x, y = self._scales.rows(X, self.device), self._scales.targets(targets, self.device)
        w = torch.as_tensor(weight / weight.mean(), device=self.device)
        if validation is None:
            fold = torch.empty(len(x), dtype=torch.long)
            fold[torch.randperm(len(x), generator=generator)] = torch.arange(len(x)) % min(NUM_FOLDS, len(x))
            return Task(x, y, w, fold.to(x.device), x, generator, self._scales), y, w
        x_new = check_array(validation[0], dtype=np.float64)
        y_new = np.asarray(validation[1], dtype=np.float64).reshape(len(x_new), -1)
        if x_new.shape[1] != x.shape[1] or y_new.shape[1] != len(y):
            raise ValueError(
                f"validation needs {x.shape[1]} columns and {len(y)} target(s), like the training rows; "
                f"got {x_new.shape[1]} and {y_new.shape[1]}."
            )
        x_judge, y_judge = self._scales.rows(x_new, self.device), self._scales.targets(y_new, self.device)
        return Task(x, y, w, None, x_judge, generator, self._scales), y_judge, torch.ones_like(y_judge[0])

    def _means(self, X: Array) -> list[Any]:
        if isinstance(self.mean, str) and self.mean == "auto":
            return plan(X.shape[0], X.shape[1], self.max_time)
        chosen = list(self.mean) if isinstance(self.mean, (list, tuple)) else [self.mean]
        if not chosen:
            raise ValueError("mean is an empty list; name at least one mean.")
        return chosen

    def _basis(self, task: Task, z: Tensor) -> Tensor:
        """Centres of a kernel mean: more than the covariance's Z, because a mean costs less an inducing point."""
        if self.num_inducing != "auto" or len(z) == len(task.x):
            return z
        return task.x[torch.randperm(len(task.x), generator=task.generator)[:1000].to(task.x.device)]

    def _temper(self, residuals: Tensor, variance: Tensor, weight: Tensor) -> Array:
        if self.tempering == "auto":
            return tempering_factor(residuals, variance, weight).clamp_min(1e-6).cpu().numpy()
        return np.full(len(residuals), 1.0 if self.tempering is None else float(self.tempering))

    @torch.no_grad()
    def _marginals(self, X: Any, chunk_size: int = 4096) -> tuple[Array, Array, Array]:
        """Mean, variance of f and noise variance, standardised, one row an output."""
        check_is_fitted(self, "posterior_")
        X = validate_data(self, X, dtype=np.float64, reset=False)
        parts = []
        for start in range(0, len(X), chunk_size):
            x = self._scales.rows(X[start : start + chunk_size], self.device)
            mean, variance = self.posterior_.marginals(x)
            features = noise_features(x, mean)
            noise = torch.stack([noise(features) for noise in self._noises])
            parts.append(torch.stack([mean, variance, noise]))
        return tuple(torch.cat(parts, dim=-1).cpu().numpy())

    def _law(self, X: Any) -> tuple[Array, Array]:
        """Mean and standard deviation of y in its own units, one row an output."""
        mean, variance, noise = self._marginals(X)
        std = np.sqrt((variance + noise) * self.tempering_factor_[:, None])
        return mean * self._scales.y_scale[:, None] + self._scales.y_centre[:, None], std * self._scales.y_scale[:, None]

    def _shaped(self, values: Array) -> Array:
        return values[0] if self._one_target else values.T

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """The mean; with `return_std` also the standard deviation of y, with `return_cov` the joint covariance of y.

        The covariance has one N × N matrix a target on its last axis when there are several.
        """
        if return_std and return_cov:
            raise ValueError("Ask for return_std or return_cov, not both.")
        mean, std = self._law(X)
        if return_std:
            return self._shaped(mean), self._shaped(std)
        if return_cov:
            covariance = self._covariance(X)
            return self._shaped(mean), covariance[0] if self._one_target else np.moveaxis(covariance, 0, -1)
        return self._shaped(mean)

    @torch.no_grad()
    def _covariance(self, X: Any) -> Array:
        _, variance, noise = self._marginals(X)
        x = self._scales.rows(validate_data(self, X, dtype=np.float64, reset=False), self.device)
        factor = self.posterior_.factor(x)
        joint = (factor @ factor.mT).cpu().numpy().copy()
        index = np.arange(len(x))
        joint[:, index, index] = variance + noise
        return joint * (self.tempering_factor_ * self._scales.y_scale**2)[:, None, None]

    def predict_quantiles(self, X: Any, quantiles: Sequence[float] = (0.05, 0.5, 0.95)) -> Array:
        """Quantiles of y; the last axis runs over `quantiles`."""
        levels = np.asarray(quantiles, dtype=np.float64)
        if levels.ndim != 1 or ((levels <= 0) | (levels >= 1)).any():
            raise ValueError(f"quantiles lie strictly between 0 and 1; got {quantiles}.")
        mean, std = self.predict(X, return_std=True)
        return mean[..., None] + std[..., None] * norm.ppf(levels)

    def predict_interval(self, X: Any, coverage: float = 0.95) -> Array:
        """The central interval that holds y with this probability; the last axis is (lower, upper)."""
        if not 0 < coverage < 1:
            raise ValueError(f"coverage lies strictly between 0 and 1; got {coverage}.")
        if not self.conformal:
            return self.predict_quantiles(X, ((1 - coverage) / 2, (1 + coverage) / 2))
        mean, std = self.predict(X, return_std=True)
        quantiles = np.array([conformal_quantile(scores, coverage) for scores in self._scores])
        half = std * (quantiles[0] if self._one_target else quantiles)
        return np.stack([mean - half, mean + half], axis=-1)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Array:
        """Joint draws of y at the rows: (N, n_samples), or (N, J, n_samples) for J targets."""
        mean, _ = self._law(X)
        covariance = self._covariance(X)
        rng = check_random_state(random_state)
        draws = []
        for m, c in zip(mean, covariance, strict=True):
            values, vectors = np.linalg.eigh(c)
            root = vectors * np.sqrt(np.maximum(values, 0))
            draws.append(m[:, None] + root @ rng.standard_normal((len(m), n_samples)))
        return draws[0] if self._one_target else np.stack(draws, axis=1)

    def nll(self, X: Any, y: Any) -> float:
        """Mean negative log density of y, in its own units, summed over targets."""
        mean, std = self._law(X)
        targets = np.asarray(y, dtype=np.float64).reshape(mean.shape[1], -1).T
        return float(-norm.logpdf(targets, mean, std).sum(0).mean())

    def decompose(self, X: Any) -> Decomposition:
        """Epistemic, aleatoric and total variance of y."""
        _, variance, noise = self._marginals(X)
        scale = (self._scales.y_scale**2)[:, None]
        total = (variance + noise) * self.tempering_factor_[:, None]
        return Decomposition(self._shaped(variance * scale), self._shaped(noise * scale), self._shaped(total * scale))

    @torch.no_grad()
    def posterior(self, X: Any) -> MultivariateNormal:
        """The joint law of f at the rows, untempered, in the target's own units; a batch entry a target if several."""
        check_is_fitted(self, "posterior_")
        x = self._scales.rows(validate_data(self, X, dtype=np.float64, reset=False), self.device)
        scale = torch.as_tensor(self._scales.y_scale, device=x.device)[:, None]
        mean = self.posterior_.mean_at(x) * scale + torch.as_tensor(self._scales.y_centre, device=x.device)[:, None]
        factor = self.posterior_.factor(x) * scale[..., None]
        if self._one_target:
            mean, factor = mean[0], factor[0]
        return MultivariateNormal(mean, RootLinearOperator(factor))

    def ood_score(self, X: Any) -> Array:
        """How far the variance of f is back to the prior's: 0 at well-known rows, 1 far from all data."""
        check_is_fitted(self, "posterior_")
        _, variance, _ = self._marginals(X)
        x = self._scales.rows(validate_data(self, X, dtype=np.float64, reset=False), self.device)
        with torch.no_grad():
            prior = kernel_variance(self.posterior_.kernel.prior_kernel, x).cpu().numpy()
        return np.clip(variance.mean(0) / prior, 0.0, 1.0)

    def __sklearn_tags__(self) -> Any:
        """More than one target is allowed."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _nll(residuals: Tensor, variance: Tensor, weight: Tensor) -> float:
    value = (math.log(2 * math.pi) + variance.log() + residuals.square() / variance) / 2
    return float((value * weight).mean())
