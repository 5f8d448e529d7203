"""What both estimators share: options, the way from what a user brings to the pipeline, updates, files."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted
from torch import nn
from torch.utils.data import DataLoader, Dataset

from gwi import parts
from gwi._extras import require
from gwi._progress import Report, progress, silent
from gwi._validation import floating_dtype
from gwi.core.measures import GaussianMeasure
from gwi.core.scaling import Watch
from gwi.estimators import explaining, inputs
from gwi.estimators.makers import maker_of
from gwi.estimators.module_rows import parts_to_predict
from gwi.evaluation.checks import severe_warnings
from gwi.evaluation.explanation import Explanation
from gwi.exceptions import GWIWarning
from gwi.fitting.data import ArrayData, FitOptions
from gwi.fitting.frame_learners import frame_predictors
from gwi.fitting.task import Fit, Task
from gwi.fitting.update import updated
from gwi.models.seen import SeenRows
from gwi.models.summary import Summary
from gwi.storage.container import to_bytes
from gwi.storage.models import encode_estimator
from gwi.streaming.process_group import ProcessGroup
from gwi.tables.files import is_taken, write_atomically
from gwi.tables.frame_predictor import FramePredictor
from gwi.tables.transformer import TableEncoder
from gwi.tables.unlike import Unlike


class GWIEstimator(BaseEstimator):
    """Both estimators; what differs is `_task`, the encoding of targets, and what is predicted."""

    # Whether a module is trained together with its covariance where it is trained, as the part `Joint` says.
    _trains_jointly = False
    # Whether W₂ may be taken on rows beyond the data.
    _takes_context = False
    _tag: str
    # What the targets become: see `NumberTargets` and `LabelTargets`.
    _targets: Any
    _fit: Fit | None
    _seen: SeenRows | None
    model_: Any
    summary_: Summary
    encoder_: TableEncoder
    frame_predictors_: tuple[FramePredictor, ...] = ()
    held_out_scores_: dict[str, float]

    def __init__(
        self,
        mean: Any = "auto",
        *,
        kernel: Any = "auto",
        covariance: str | parts.Covariance = "auto",
        divergence: str = "wasserstein-squared",
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
        self.mean = mean
        self.kernel = kernel
        self.covariance = covariance
        self.divergence = divergence
        self.likelihood = likelihood
        self.tempering = tempering
        self.cv = cv
        self.max_time = max_time
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _new_targets(self) -> Any:
        raise NotImplementedError

    def _task(self, rows: Any = None, targets: Any = None, weight: Any = None, groups: Any = None) -> Task:
        """What is learned, now that targets have been seen; of rows in memory these are given."""
        raise NotImplementedError

    def _likelihood(self) -> Any:
        """The part that a string names, or the part itself."""
        raise NotImplementedError

    def _check(self) -> None:
        """Refuse options that mean nothing before anything is fitted."""
        covariance = parts.covariance_part(self.covariance)
        covariance.check()
        parts.covariance_under(self.divergence, covariance)
        likelihood = self._likelihood()
        if hasattr(likelihood, "check"):
            likelihood.check()
        parts.check_means(self.mean)
        parts.time_part(self.max_time)
        parts.require_cv(self.cv)

    def set_params(self, **params: Any) -> Self:
        """As scikit-learn's; a part that is named by a string is first made an object, so that options inside it can be set."""
        nested = {key: value for key, value in params.items() if "__" in key}
        super().set_params(**{key: value for key, value in params.items() if key not in nested})
        inside = {key.partition("__")[0] for key in nested}
        if "covariance" in inside:
            self.covariance = parts.covariance_part(self.covariance)
        if "likelihood" in inside:
            self.likelihood = self._likelihood()
        return super().set_params(**nested)

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        validation: Any = None,
        checkpoints: str | os.PathLike[str] | None = None,
        groups: Any = None,
        context: Any = None,
        strata: Any = None,
    ) -> Self:
        """Learn the mean, its covariance and its calibration; a `GWIWarning` says when the uncertainty came out worthless.

        Args:
            X: rows, of shape (N, D); or a path or an address such as s3://bucket/rows/, a dataset, a loader or a `RowSource` of
                rows and targets. With a torch module as mean rows may have any shape, such as images, hold tokens, or be a dict
                or a tuple of the module's inputs.
            y: one target or label a row, for numbers also one column a target; of a path or a dataset the name of the column, or
                several; of a loader or a source None.
            sample_weight: of each row; whole numbers count it as so many equal rows, others are relative.
            validation: rows and targets that frozen means have not seen, a path and a column, or a loader; all means are judged
                on them.
            checkpoints: a folder where a fit from a path, dataset or loader keeps its progress; the same fit goes on from there.
            groups: of each row, such as the patient or the machine it was measured on; a group judges fits that have not seen it.
            context: for numbers: rows without targets, such as those to be predicted, at which W₂ holds f near the prior too.
            strata: of each row that judges (of X, or of the validation rows), such as its region, or the name of a column of a
                data frame: intervals and sets then can keep their coverage in each. Groups choose folds, strata do not.

        Returns:
            The estimator, fitted.
        """
        start = time.perf_counter()
        self._check()
        self._targets, self._seen = self._new_targets(), None
        for name in ("encoder_", "frame_predictors_", "held_out_scores_"):
            self.__dict__.pop(name, None)
        shown: bool | Literal["late"] = False
        if ProcessGroup.current().is_first:
            shown = "late" if isinstance(self.verbose, str) else self.verbose > 0
        with progress(shown) as report:
            context = parts.covariance_part(self.covariance).context if context is None else context
            brought = inputs.Brought(X, y, sample_weight, validation, groups, checkpoints, context, strata)
            fit = maker_of(self, brought, self._options(report))()
        self.model_, self.summary_ = fit.model, replace(fit.summary, seconds=time.perf_counter() - start)
        self.frame_predictors_ = frame_predictors([member.mean for member in fit.stacked.members])
        updatable = isinstance(fit.data, ArrayData) and fit.data.stands_for is None and not self._by_paper
        self._fit = fit if updatable else None
        if shown is True:
            print(self.summary_)
        for warning in severe_warnings(self.model_, fit.data.x):
            warnings.warn(warning, stacklevel=2)
        return self

    def _options(self, report: Report = silent) -> FitOptions:
        bound = parts.time_part(self.max_time)
        return FitOptions(
            kernel=self.kernel,
            covariance=parts.covariance_under(self.divergence, parts.covariance_part(self.covariance)),
            divergence=cast("parts.DivergenceKind", self.divergence),
            prior_mean=getattr(self, "prior_mean", None),
            generator=torch.Generator().manual_seed(int(check_random_state(self.random_state).randint(2**31 - 1))),
            device=self.device,
            network_dtype=floating_dtype(self.dtype),
            cv=self.cv,
            max_time=None if bound is None else float(bound.seconds),
            speed=None if bound is None or bound.speed == "auto" else float(bound.speed),
            n_jobs=self.n_jobs,
            report=report,
        )

    @property
    def _by_paper(self) -> bool:
        return isinstance(self.mean, parts.Paper) or (isinstance(self.mean, str) and self.mean == "paper")

    @property
    def _is_frozen(self) -> bool:
        return isinstance(self.mean, nn.Module | parts.Frozen)

    def _network(self) -> nn.Module | None:
        """The one torch module that is the mean; None where the mean is anything else."""
        mean = self.mean.module if isinstance(self.mean, parts.Frozen | parts.Joint) else self.mean
        mean = mean.mean if isinstance(mean, parts.Paper) else mean
        return mean if isinstance(mean, nn.Module) else None

    def _row_parts(self, X: Any, warns: bool = False) -> Iterator[NDArray[Any]]:
        """Rows to predict, checked: in one part, or those of a loader; a warning counts those far outside of training rows."""
        if not hasattr(self, "model_"):
            check_is_fitted(self, "model_")
        encoder, unlike = getattr(self, "encoder_", None), Unlike()
        watch = Watch(self.model_.embedding if warns and encoder is None else None)
        layout = self.model_.embedding.layout
        for part in parts_to_predict(X, layout) if layout is not None or isinstance(X, DataLoader | Dataset) else (X,):
            rows = inputs.shaped_rows(self, part, unlike)
            if rows.shape[1:] != self.model_.embedding.shape:
                raise ValueError(f"The model was fitted to rows of shape {self.model_.embedding.shape}; got {rows.shape[1:]}.")
            watch.see(rows)
            if warns and encoder is not None:
                encoder.encoder_.note_outside(self.model_.embedding.outside(rows), unlike)
            yield rows
        watch.warn(list(self.feature_names_in_) if hasattr(self, "feature_names_in_") else None)
        if warns and (said := unlike.sentences("predictions are less certain there")):
            warnings.warn(" ".join(said), GWIWarning, stacklevel=5)

    def _rows(self, X: Any, warns: bool = False) -> NDArray[Any]:
        """Rows to predict, checked, in one part."""
        rows = list(self._row_parts(X, warns))
        return rows[0] if len(rows) == 1 else np.concatenate(rows)

    @property
    def posterior_(self) -> GaussianMeasure:
        """Q: on standardised rows and targets, untempered; or over unscaled logits, tempered."""
        return self.model_.posterior

    def update(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn new rows without a refit: the Gaussian measure Q, mean and covariance, is conditioned on them.

        Any mean gets the exact Gaussian-process correction of its errors at the new rows; with labels by Laplace's approximation.
        Noise, tails, tempering, conformal scores, scales of logits and hyper-parameters stay as fitted. Updating twice is
        updating once with all rows (with labels, nearly). Models of any mean, also from files and streams, can be updated, with
        up to 5,000 rows in all; after that, or when `diagnose` says that the noise has changed, fit again.

        Args:
            X: new rows.
            y: their targets.
            sample_weight: of each row; w counts as w rows with this target.

        Returns:
            The estimator.
        """
        rows = self._rows(X)
        targets = self._targets.encode(y)
        if len(targets) != len(rows):
            raise ValueError(f"update needs a target for each row; got {len(targets)} targets and {len(rows)} rows.")
        if targets.ndim == 2 and targets.shape[1] != self._targets.num_columns:
            raise ValueError(
                f"The model was fitted to {self._targets.num_columns} target(s); the new rows have {targets.shape[1]}."
            )
        weight = _check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)
        kept = weight > 0
        self.model_, self.summary_ = updated(self.model_, self.summary_, rows[kept], targets[kept], weight[kept])
        return self

    def explain(
        self,
        X: Any,
        *,
        background: Any = None,
        training_rows: Any = None,
        max_evaluations: int = explaining.MAX_EVALUATIONS,
        random_state: int = 0,
    ) -> Explanation:
        """Why the model is unsure at rows: what each column adds to the variance of f, and which known rows speak for them.

        Parts are Shapley values of the epistemic variance; absent columns are those of background rows. With Gaussian noise it is
        `decompose(X).epistemic`; of a logarithm, or behind a link, that of f on its own scale, of classes that of each logit.

        Args:
            X: rows, or one of them.
            background: rows that stand for what is usual, or how many inducing points to take for them; 16 when None.
            training_rows: rows of the fit, to look among for those that speak for a row; the model's inducing points when None.
            max_evaluations: of the variance for one row, about. Parts are exact where they are enough for all coalitions of
                columns, and then drawn by orders of columns with a standard error.
            random_state: seed of the orders.

        Returns:
            A record that prints as a table; ``gwi.plots.plot_explanation`` draws it.

        Raises:
            UserError: for rows that are no table, and where the model keeps no rows and no background is given.
        """
        check_is_fitted(self, "model_")
        return explaining.explain(
            self,
            X,
            background=background,
            training_rows=training_rows,
            max_evaluations=max_evaluations,
            random_state=random_state,
        )

    def report(self, X: Any, y: Any, path: str | os.PathLike[str] | None = None, *, overwrite: bool = False) -> str:
        """A page on how the model does on rows with known targets: the one that ``gwi report`` writes.

        Args:
            X: rows, which the model has not seen.
            y: their targets.
            path: where to write it; nowhere when None.
            overwrite: whether a file that is there already is replaced.

        Returns:
            The page, HTML that needs nothing else.

        Raises:
            FileExistsError: when there is such a file and `overwrite` is False.
            UserError: for rows that are no table, or without targets.
        """
        require("report", "A report")
        # The one import that points up: see decision 24.
        from gwi.report.from_python import report_on

        check_is_fitted(self, "model_")
        if path is not None and not overwrite and os.path.lexists(path):
            raise FileExistsError(f"{path} exists already; choose another name, or pass overwrite=True to replace it.")
        page = report_on(cast("Any", self), X, y)
        if path is not None:
            write_atomically(path, page.encode())
        return page

    def share_seen(self, X: Any, y: Any) -> float:
        """The share of these rows, with targets, that the model was fitted to; NaN for streams, and files without hashes."""
        rows = inputs.own_columns(self, self._rows(X))
        return float("nan") if self._seen is None else self._seen.share_of(rows, self._targets.encode(y))

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False, hashes: bool = True) -> Path:
        """Write the fitted model into one file, all of it or nothing; `gwi.load` reads it.

        The file holds numbers and names only: no targets, and of the rows only inducing and basis points (`summary_` says when
        those are all rows). Of rows that came by `update` it holds the rows and the errors of the mean there.

        Args:
            path: of the file.
            overwrite: whether a file that is there already is replaced.
            hashes: whether to keep salted hashes of at most 100,000 training rows, by which scores on training rows are noticed.
                Who has the file can tell by them whether a row that he has was a training row; nothing else.

        Returns:
            The path.

        Raises:
            FileExistsError: when there is such a file and `overwrite` is False.
            UnsavableError: naming a part that cannot be stored, such as a plain function, and what works instead.
        """
        check_is_fitted(self, "model_")
        if not overwrite and is_taken(path):
            raise FileExistsError(f"{path} exists already; choose another name, or pass overwrite=True to replace it.")
        return write_atomically(path, to_bytes(*encode_estimator(self, hashes)))

    def export_onnx(
        self,
        path: str | os.PathLike[str],
        levels: Sequence[float] = (0.025, 0.5, 0.975),
        *,
        overwrite: bool = False,
    ) -> Path:
        """Write the fitted model as an ONNX graph, which predicts without Python or torch: mean, spread, quantiles, scores.

        Args:
            path: of the file.
            levels: of the quantiles, which are fixed in the file; none for a file without them.
            overwrite: whether a file that is there already is replaced.

        Returns:
            The path.

        Raises:
            FileExistsError: when there is such a file and `overwrite` is False.
            UnexportableError: naming a part that has no form in ONNX, and what works instead.
        """
        from gwi.onnx.export import export

        check_is_fitted(self, "model_")
        return export(self, path, levels, overwrite=overwrite)
