"""GWIRegressor: calibrated regression for any mean, with scikit-learn's interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from linear_operator import to_linear_operator
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gwi import parts
from gwi._typing import Array
from gwi._validation import as_array, like
from gwi.core.laws.protocol import log_likelihood_of_bounds, most_probable
from gwi.estimators.answers import JUDGED, TOTALS, columns_of, kind_of, score_of
from gwi.estimators.base import GWIEstimator
from gwi.estimators.number_targets import NumberTargets
from gwi.estimators.strata import places_of
from gwi.evaluation.judged import Judged, TargetKind
from gwi.evaluation.predictive import Predictive
from gwi.fitting.likelihoods import chosen_task, likelihood_part, takes_any_likelihood, task_of
from gwi.fitting.regression import RegressionTask
from gwi.fitting.task import Task
from gwi.models.numbers import NumberModel
from gwi.models.regression import Decomposition, differentiable


class GWIRegressor(RegressorMixin, GWIEstimator):
    """Regression with honest error bars: any mean, a sparse-GP covariance, noise and tempering judged on held-out rows.

    Rows may be arrays, data frames or tensors; tensors in, tensors out. `fit` also takes a Parquet file, a folder of them, a
    ``pyarrow.dataset`` or a ``DataLoader`` of any size, alone or under ``torchrun`` with other processes.

    Args:
        mean: what predicts. ``"auto"`` (default) stacks a Gaussian process, networks, trees and a linear model. One alone:
            ``"svgp"``, ``"svgp-all"``, ``"network"`` or a `Network`, ``"svgp+network"``, ``"linear"``, ``"lasso"``, ``"paper"``
            or a `Paper`. A model of yours: a torch module, a scikit-learn regressor or a function, or a list of any of these. A
            module, a function and a fitted regressor stay as they are, and `fit` then needs ``validation``, rows that they have
            not seen; `Trained` has a module trained.
        kernel: how alike two rows are: ``"auto"`` (default), ``"rbf"`` for smooth functions, ``"matern32"``, ``"matern52"`` and
            ``"rq"`` for rougher ones, or a GPyTorch kernel for standardised rows. Named ones have a length-scale for each column,
            above 500 columns one for all, and with many more columns than rows one for each of the few that predict the target.
            ``"features"`` or a `Features` looks at the features of a network that stays as it is, the default where rows are
            images.
        covariance: how the uncertainty of the function is found: ``"auto"`` (default), ``"wasserstein"``, ``"titsias"``,
            ``"trained"``, ``"zero"`` for no more than inducing points leave unexplained, or a `Covariance` with its weight,
            number and choice of inducing points.
        divergence: the distance from the prior that the loss adds to the misfit: ``"wasserstein-squared"`` (default);
            ``"wasserstein"``, not squared, with a weight in `Covariance`; or ``"kl"``, which is finite for a kernel mean only.
        prior_mean: what is expected before any data: a fitted predictor or a function from rows to the target in its own units,
            which must not have learned from these rows. Kernel means learn what it leaves over, and fall back to it far from the
            data. The average target when None (default).
        likelihood: which distribution targets have around the function. ``"auto"`` (default) chooses by the values they take and
            by held-out rows; ``"gaussian"``, ``"student-t"``, ``"log-normal"``, ``"gamma"``, ``"poisson"``,
            ``"negative-binomial"``, ``"beta"``, ``"ordinal"``, ``"few-valued"``, ``"censored"``, ``"robust"``, or one of these as
            an object with its options, such as `Gaussian` or `Beta`; an object with the functions of
            `gwi.core.likelihoods.families.Family`; or a likelihood of GPyTorch with one f.
        tempering: ``"auto"`` (default) widens or narrows predictive distributions by one factor that held-out rows choose; None
            leaves them.
        cv: how rows are held out to judge: ``"auto"`` (default) in five folds at random, a number of folds, ``"time"`` where rows
            stand in order of time and later ones judge, a splitter of scikit-learn's, or a list of pairs of row numbers.
        max_time: about how many processor seconds a fit may take; None (default) for no bound. The work is planned before the
            fit; `gwi.MaxTime(seconds, speed)` also says how fast the machine is, so that a fit can be repeated elsewhere.
        device: where tensors live, default ``"cpu"``.
        dtype: precision in which networks are trained, ``"float32"`` (default) or ``"float64"``; all else is in float64.
        random_state: seed or generator, for the same result each time; default None.
        n_jobs: how many scikit-learn models are fitted side by side, as joblib takes it; ``joblib.parallel_config`` chooses
            where.
        verbose: 1 shows progress and prints the summary, 0 nothing; ``"auto"`` (default) shows progress after some seconds in a
            terminal or a notebook.

    Attributes:
        posterior_: Q on standardised rows and targets: `posterior(X)` in other units, untempered like it. What is said of y
            (`predict`, `decompose`, `sample_y`, intervals, quantiles, `nll`) is tempered.
        model_: all that predicts.
        summary_: what was chosen.

    Examples:
        >>> import numpy as np
        >>> from gwi import GWIRegressor
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=40)
        >>> model = GWIRegressor("svgp", random_state=0).fit(X, y)
        >>> mean, std = model.predict([[1.5], [30.0]], return_std=True)
        >>> bool(abs(mean[0] - np.sin(1.5)) < 0.1), bool(std[1] > 3 * std[0])
        (True, True)
        >>> model.predict_interval([[1.5]], coverage=0.95).shape
        (1, 2)
        >>> model.ood_score([[1.5], [30.0]]).round(2).tolist()
        [0.0, 1.0]
        >>> parts = model.decompose([[30.0]])
        >>> bool(parts.epistemic[0] > parts.aleatoric[0])
        True
    """

    task: ClassVar[Literal["regression"]] = "regression"
    _tag = "regressor"
    _takes_context = True
    _model = NumberModel
    _targets: NumberTargets
    model_: NumberModel

    def __init__(
        self,
        mean: Any = "auto",
        *,
        kernel: Any = "auto",
        covariance: str | parts.Covariance = "auto",
        divergence: str = "wasserstein-squared",
        prior_mean: Any = None,
        likelihood: Any = "auto",
        tempering: Any = "auto",
        cv: Any = "auto",
        max_time: float | parts.MaxTime | None = None,
        device: str | torch.device = "cpu",
        dtype: str | torch.dtype = "float32",
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int | Literal["auto"] = "auto",
    ):
        super().__init__(
            mean,
            kernel=kernel,
            covariance=covariance,
            divergence=divergence,
            likelihood=likelihood,
            tempering=tempering,
            cv=cv,
            max_time=max_time,
            device=device,
            dtype=dtype,
            random_state=random_state,
            n_jobs=n_jobs,
            verbose=verbose,
        )
        self.prior_mean = prior_mean

    def _likelihood(self) -> Any:
        return likelihood_part(self.likelihood)

    def _check(self) -> None:
        super()._check()
        parts.require_positive("tempering", self.tempering, ("auto", None))

    def _new_targets(self) -> NumberTargets:
        part, is_open = self._likelihood(), isinstance(self.likelihood, str) and self.likelihood == "auto"
        are_bounds, are_levels = isinstance(part, parts.Censored), isinstance(part, parts.Ordinal | parts.FewValues)
        return NumberTargets(are_bounds, takes_levels=is_open or are_levels, takes_events=is_open or are_bounds)

    def _task(self, rows: Any = None, targets: Any = None, weight: Any = None, groups: Any = None) -> Task:
        part, is_open = self._likelihood(), isinstance(self.likelihood, str) and self.likelihood == "auto"
        looks = is_open and rows is not None and np.ndim(rows) == 2
        if isinstance(part, parts.Gaussian) and not looks:
            return RegressionTask(part, self.tempering)
        if targets is None:
            raise ValueError(f'likelihood={self.likelihood!r} needs rows in memory, as arrays or a frame; or use "gaussian".')
        y = np.asarray(as_array(targets), dtype=np.float64).reshape(len(targets), -1)
        weight = np.ones(len(y)) if weight is None else weight
        if looks:
            levels = self._targets.levels is not None
            return chosen_task(
                rows,
                y,
                weight,
                groups,
                self.tempering,
                are_bounds=self._targets.are_bounds,
                are_levels=levels,
                keeps_mean=not takes_any_likelihood(self.mean),
            )
        return task_of(part, y, weight, self.tempering)

    @property
    def conformal(self) -> bool:
        """Whether intervals come from the quantiles of held-out residuals."""
        return bool(getattr(self._likelihood(), "conformal", False))

    @property
    def tempering_factor_(self) -> Array:
        """α_T of each target."""
        return self.model_.tempering_factor

    def _shaped(self, values: Array, X: Any) -> Any:
        """From one row an output to what the user expects: a column each, or one axis; tensors for tensors."""
        shaped = values[0] if self._targets.one else np.moveaxis(values, 0, 1)
        return like(shaped, X) if isinstance(X, Tensor) else shaped

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """The mean of y; with `return_std` also its standard deviation, with `return_cov` its joint covariance.

        Of an ordered categorical it is the most probable level.

        Args:
            X: rows, (N, D).
            return_std: also give the standard deviation of y.
            return_cov: also give the joint covariance of y.

        Returns:
            The mean, (N,) or (N, J) for J targets; or the pair of it and the standard deviation of the same shape, or the
            covariance, (N, N) or (N, N, J).
        """
        if return_std and return_cov:
            raise ValueError("Ask for return_std or return_cov, not both.")
        rows = self._rows(X, warns=True)
        if self._targets.levels is not None:
            if return_std or return_cov:
                raise ValueError("Levels have no standard deviation; predict_dist gives their probabilities.")
            return self._targets.levels[most_probable(self.model_.laws(rows)[0])]
        if return_std:
            mean, std = self.model_.law(rows)
            return self._shaped(mean, X), self._shaped(std, X)
        mean = self._shaped(self.model_.mean(rows), X)
        if return_cov:
            covariance = self.model_.covariance(rows)
            return mean, like(covariance[0] if self._targets.one else np.moveaxis(covariance, 0, -1), X)
        return mean

    def predict_dist(self, X: Any) -> Predictive:
        """The whole predictive distribution of y at each row: density, probabilities, quantiles, draws, scores.

        With conformal intervals its quantiles are still those of the distribution; `predict_interval` has the others.
        """
        rows, fitted = self._rows(X, warns=True), self.model_
        parts_of_rows = fitted.parts(rows)
        variances = fitted.variances_of(parts_of_rows)
        epistemic, aleatoric = (part[0] if self._targets.one else part.T for part in variances)
        return Predictive(fitted.laws_of(parts_of_rows), epistemic, aleatoric, self._targets.one)

    def predict_quantiles(self, X: Any, quantiles: Sequence[float] = (0.05, 0.5, 0.95)) -> Any:
        """Quantiles of y; the last axis runs over `quantiles`."""
        levels = np.asarray(quantiles, dtype=np.float64)
        if levels.ndim != 1 or ((levels <= 0) | (levels >= 1)).any():
            raise ValueError(f"quantiles must be strictly between 0 and 1; got {quantiles}.")
        return self._shaped(self.model_.quantiles_of(self.model_.parts(self._rows(X, warns=True)), levels), X)

    def predict_interval(self, X: Any, coverage: float = 0.95, *, strata: Any = None) -> Any:
        """The central interval that holds y with this probability; the last axis is (lower, upper).

        Args:
            X: rows.
            coverage: of the interval.
            strata: of each row, or the name of a column of a data frame, where the fit had strata: each then has conformal
                intervals of its own, with this coverage inside it. With too few held-out rows for that, or none, a stratum gets
                the widest intervals of all, and a warning names it.
        """
        if not 0 < coverage < 1:
            raise ValueError(f"coverage must be strictly between 0 and 1; got {coverage}.")
        parts_of_rows = self.model_.parts(self._rows(X, warns=True))
        if strata is None:
            ends = self.model_.intervals_of(parts_of_rows, coverage, self.conformal)
        else:
            places = places_of(self.model_.strata, X, strata, parts_of_rows[0].shape[1], coverage)
            ends = self.model_.intervals_of_strata(parts_of_rows, coverage, places)
        return self._shaped(np.stack(ends, axis=-1), X)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Any:
        """Joint draws of y at the rows, with the covariance of `predict`: (N, n_samples), or (N, J, n_samples) for J targets."""
        rows = self._rows(X)
        return self._shaped(self.model_.sample(rows, n_samples, check_random_state(random_state)), X)

    def nll(self, X: Any, y: Any) -> float:
        """Mean negative log density of y, in its own units, summed over targets."""
        rows = self._rows(X)
        targets = self._targets.encode(y)
        if self._targets.are_bounds:
            return float(-log_likelihood_of_bounds(self.model_.laws(rows)[0], targets).mean())
        return float(-self.model_.log_density(rows, targets.reshape(len(rows), -1).T).sum(0).mean())

    def decompose(self, X: Any) -> Decomposition:
        """Epistemic and aleatoric variance of y, tempered, and their sum; each of the shape of y."""
        epistemic, aleatoric = self.model_.variances_of(self.model_.parts(self._rows(X)))
        return Decomposition(*(self._shaped(part, X) for part in (epistemic, aleatoric, epistemic + aleatoric)))

    def posterior(self, X: Any) -> MultivariateNormal:
        """The joint law of f at the rows, in the target's own units; a batch entry a target if several.

        Untempered: its variance times `tempering_factor_` is `decompose(X).epistemic`.
        Tensors may have batch axes before the rows, and gradients with respect to them pass through.
        """
        if not isinstance(X, Tensor):
            X = torch.from_numpy(np.require(self._rows(X), requirements=["W"]))
        check_is_fitted(self, "model_")
        if X.requires_grad and not differentiable(self.posterior_):
            raise ValueError(
                "A part of the mean, such as boosted trees or a plain function, has no gradient with respect to its input. Use "
                'mean="svgp-all", "svgp", "network" or a torch module, or pass rows that need no gradient.'
            )
        if X.shape[-len(self.model_.embedding.shape) :] != self.model_.embedding.shape:
            raise ValueError(f"The model was fitted to {self.n_features_in_} features; the rows have {X.shape[-1]}.")
        mean, covariance = self.model_.joint(X)
        if self._targets.one:
            mean, covariance = mean[..., 0, :], covariance[..., 0, :, :]
        # As an operator: a plain matrix would be factorised at once, and equal rows have no Cholesky factor.
        return MultivariateNormal(mean, to_linear_operator(covariance))

    def ood_score(self, X: Any) -> Any:
        """0 for inputs like the training data, 1 far away from all of it: the share of the prior's variance that is left."""
        rows = self._rows(X)
        return like(self.model_.prior_share(rows, self.model_.parts(rows)), X)

    def predict_columns(
        self,
        X: Any,
        coverage: float = 0.95,
        *,
        quantiles: Sequence[float] = (),
        parts: bool = False,
        times: Sequence[float] = (),
    ) -> dict[str, Any]:
        """prediction, std, lower, upper and ood_score by name, from one evaluation; with several targets, `prediction_0`, …

        Of levels in order the most probable one and a probability for each, as for classes. Of censored times the median in the
        place of prediction and std, and the probability of no event up to each of `times`, such as `survival_365`.

        Args:
            X: rows.
            coverage: of the interval from lower to upper.
            quantiles: levels of more columns, such as `quantile_0.9`; none of levels in order.
            parts: whether variances follow too, `epistemic` and `aleatoric`.
            times: of censored targets.
        """
        rows, fitted = self._rows(X), self.model_
        parts_of_rows = fitted.parts(rows)
        columns = columns_of(
            fitted, self._kind, parts_of_rows, coverage, self.conformal, self._targets.levels, quantiles, times, parts
        )
        return columns | {"ood_score": fitted.prior_share(rows, parts_of_rows)}

    @property
    def _kind(self) -> TargetKind:
        """What is predicted, as scores, checks and pictures take it."""
        return kind_of(self.model_, self.summary_.likelihood, self._targets.levels)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R²; of levels in order the share of rows whose most probable level is right, of censored times Harrell's C-index.

        Args:
            X: rows.
            y: their targets.
            sample_weight: of each row; not of censored times.
        """
        if self._kind in ("numbers", "counts"):
            return float(super().score(X, y, sample_weight))
        return score_of(self._kind, self.judge(self._rows(X), y), sample_weight)

    def judge(self, X: Array, y: Any) -> Judged:
        """The law at rows with a target, of one target."""
        if not len(X):
            return Judged(np.empty(0), np.empty(0), np.empty(0))
        targets = self._targets.encode(y)
        if len(targets) != len(X):
            raise ValueError(f"There must be a target for each row; got {len(targets)} targets and {len(X)} rows.")
        return JUDGED[self._kind](self.model_, self.model_.parts(X), targets)

    def score_totals(self, judged: Judged) -> Any:
        """Sums over rows from which scores are computed; those of several parts are added."""
        return TOTALS[self._kind](judged)

    def __sklearn_tags__(self) -> Any:
        """More than one target is allowed."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
