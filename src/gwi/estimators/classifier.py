"""GWIClassifier: calibrated classification for any mean, with scikit-learn's interface."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_array, check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import nn
from torch.utils.data import DataLoader

from gwi._files import write_atomically
from gwi._progress import Report, progress
from gwi._typing import Array
from gwi._validation import as_array, document_of, floating_dtype, is_source, like, listed, require_choice
from gwi.core.inducing import Method
from gwi.core.measures import GaussianMeasure
from gwi.core.scaling import MERGED_ROWS, merge_equal_rows
from gwi.evaluation.classification import entropy
from gwi.fitting.class_rows import (
    ClassOptions,
    Prepared,
    frozen_logits,
    split_batches,
    stacked_logits,
    streamed_logits,
    wants_features,
)
from gwi.fitting.classification import assemble_classes
from gwi.fitting.held_out_covariance import CovarianceName
from gwi.fitting.joint_training import joint_logits, joint_model, joint_options, paper_model
from gwi.fitting.logit_scales import TemperingName, checked_tempering
from gwi.fitting.stream_rows import in_memory, validation_arrays
from gwi.models.classification import ClassDecomposition, ClassSummary
from gwi.storage.classification import encode_class_summary, encode_classes
from gwi.storage.container import to_bytes
from gwi.streaming.batches import Batches, checked_shapes, indices, labels_and_shape, pair_of
from gwi.streaming.loaders import as_source
from gwi.streaming.process_group import ProcessGroup
from gwi.tables.rows import RowSource

LikelihoodName = Literal["softmax", "robust-max"]
# The share of the rows that joint training sets apart when no validation rows are given.
VALIDATION_SHARE = 0.1


class GWIClassifier(ClassifierMixin, BaseEstimator):
    """Classification with honest probabilities: any mean, one sparse-GP covariance a class, scales judged on unseen rows.

    Rows may be arrays, data frames or tensors; tensors in, tensors out, but for labels, which are always an array. With a torch
    module as mean rows may have any shape, such as images. `fit` also takes a ``DataLoader`` of (rows, labels), and of tables a
    Parquet file, a folder of them or a ``pyarrow.dataset``, of any size, alone or under ``torchrun`` with other processes.

    Args:
        mean: ``"auto"`` stacks several; ``"svgp"``, ``"network"``, ``"linear"``, a module with one logit a class, a scikit-learn
            classifier, a callable from rows to logits, or a list of these. A module is trained jointly with its covariance by the
            generalized loss, in a list by the cross-entropy.
        freeze_mean: take modules as they are; `fit` then needs ``validation``.
        correct_mean: let validation rows add a kernel mean to a frozen module's logits if they ask for it; False: a scale only.
        likelihood: ``"softmax"``, integrated without sampling, or ``"robust-max"``.
        epsilon: ε of robust-max, the share of labels taken to be wrong.
        kernel: ``"rbf"``, ``"matern32"``, ``"matern52"``, ``"rq"`` or a GPyTorch kernel for standardised, flattened rows;
            ``"features"`` for features of the module, once it is trained, or of a frozen one a `FeatureKernel` over
            `NetworkFeatures`; ``"auto"`` is the former for tables, the latter for rows with more axes, such as images.
        layer: the submodule of the network whose output are the features, by name, or several; ``"auto"`` takes what goes into
            each convolution but the first and into the linear layer after them.
        num_inducing: M; ``"auto"`` takes every row when they are few.
        inducing_points: how Z is chosen; ``"auto"`` is k-means, on pixels rows at random.
        covariance: ``"wasserstein"``, ``"titsias"``, or ``"zero"`` for S = 0; joint training with a kernel on rows has its own.
        divergence_weight: β; ``"auto"`` is the matched weight, 1.0 the paper's.
        tempering: ``"auto"`` chooses a scale of the logits and one factor on their variance by the likelihood of unseen rows,
            ``"per-class"`` a factor for each class; a factor, or None for neither.
        preset: ``"paper"``: the mean, a module, trained by the paper's protocol with robust-max.
        max_epochs: of joint training and of the preset.
        batch_size: of joint training and of the preset, 128 and 1,000 unless given; a loader has its own.
        learning_rate: of joint training and of the preset at its peak; ``"auto"`` is 4e-3 and 1e-3.
        device: where tensors live.
        dtype: ``"float32"`` or ``"float64"``, in which networks are trained; all else is in float64.
        random_state: seed or generator.
        n_jobs: fits of scikit-learn means side by side, as joblib takes it; ``joblib.parallel_config`` chooses where.
        verbose: 1 shows progress and prints the summary.

    Attributes:
        classes_: the labels, in the order of the columns of probabilities.
        model_: all that predicts.
        summary_: what was chosen.
    """

    classes_: NDArray[Any]
    summary_: ClassSummary

    def __init__(
        self,
        mean: Any = "auto",
        *,
        freeze_mean: bool = False,
        correct_mean: bool = False,
        likelihood: LikelihoodName = "softmax",
        epsilon: float = 0.01,
        kernel: str | Kernel = "auto",
        layer: str | Sequence[str] = "auto",
        num_inducing: int | Literal["auto"] = "auto",
        inducing_points: Method | Literal["auto"] = "auto",
        covariance: CovarianceName = "wasserstein",
        divergence_weight: float | Literal["auto"] = "auto",
        tempering: float | TemperingName | None = "auto",
        preset: Literal["paper"] | None = None,
        max_epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | Literal["auto"] = "auto",
        device: str | torch.device = "cpu",
        dtype: str | torch.dtype = "float32",
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ):
        self.mean = mean
        self.freeze_mean = freeze_mean
        self.correct_mean = correct_mean
        self.likelihood = likelihood
        self.epsilon = epsilon
        self.kernel = kernel
        self.layer = layer
        self.num_inducing = num_inducing
        self.inducing_points = inducing_points
        self.covariance = covariance
        self.divergence_weight = divergence_weight
        self.tempering = tempering
        self.preset = preset
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
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
    ) -> GWIClassifier:
        """Learn mean, covariances and scales.

        Args:
            X: rows; or a path, a dataset or a loader of rows and labels.
            y: labels; of a path or a dataset the name of their column; of a loader None.
            sample_weight: of each row; not with a module.
            validation: rows and labels that frozen means have not seen, a path and a column, or a loader; they judge all means.
            checkpoints: a folder where a fit from a path, dataset or loader keeps its progress; the same fit goes on from there.
        """
        start = time.perf_counter()
        self._check_options()
        is_module, is_shown = isinstance(self.mean, nn.Module), self.verbose > 0 and ProcessGroup.current().is_first
        with progress(is_shown) as report:
            options = self._options(report)
            if is_source(X) and not (is_module and isinstance(X, DataLoader)):
                self._fit_source(as_source(X, y, labels=True), sample_weight, validation, checkpoints, options)
            elif is_module:
                if sample_weight is not None:
                    raise ValueError("A module as mean takes no sample_weight; leave it out, or repeat rows.")
                self._fit_module(X, y, validation, options)
            else:
                self._fit_table(X, y, sample_weight, validation, options)
        self.summary_ = replace(self.summary_, seconds=time.perf_counter() - start)
        if is_shown:
            print(self.summary_)
        return self

    def _fit_source(
        self, source: RowSource, sample_weight: Any, validation: Any, checkpoints: Any, options: ClassOptions
    ) -> None:
        rows = in_memory(source)
        validation = validation if rows is None else validation_arrays(validation, source.features, labels=True)
        if rows is None:
            if sample_weight is not None or self.preset is not None:
                raise ValueError("A fit from a path, dataset or loader takes neither sample_weight nor a preset; pass arrays.")
            prepared = streamed_logits(source, validation, self._chosen(), options, self.freeze_mean, checkpoints, self)
            task = prepared.learned.task
            assert task.classes is not None
            self.classes_, self.n_features_in_ = task.classes, task.x.shape[1]
            self._assemble(prepared, options)
        elif isinstance(self.mean, nn.Module):
            self._fit_module(rows.x, np.array(rows.y.tolist()), validation, options)
        else:
            self._fit_table(rows.x, np.array(rows.y.tolist()), sample_weight, validation, options)
        if source.features is not None:
            self.feature_names_in_ = np.array(source.features, dtype=object)

    def _check_options(self) -> None:
        require_choice("likelihood", self.likelihood, LikelihoodName)
        require_choice("covariance", self.covariance, CovarianceName)
        checked_tempering(self.tempering)
        if self.preset not in (None, "paper") or (self.preset == "paper" and not isinstance(self.mean, nn.Module)):
            raise ValueError(f'preset is None, or "paper" with a torch module as mean; got {self.preset!r} with {self.mean!r}.')

    def _options(self, report: Report) -> ClassOptions:
        return ClassOptions(
            kernel=self.kernel,
            layer=self.layer,
            num_inducing=self.num_inducing,
            inducing_points=self.inducing_points,
            logit_scale="auto" if isinstance(self.tempering, str) else 1.0,
            correct_mean=self.correct_mean,
            device=self.device,
            network_dtype=floating_dtype(self.dtype),
            generator=torch.Generator().manual_seed(int(check_random_state(self.random_state).randint(2**31 - 1))),
            report=report,
            n_jobs=self.n_jobs,
        )

    @property
    def _epsilon(self) -> float | None:
        return self.epsilon if self.likelihood == "robust-max" else None

    def _fit_table(self, X: Any, y: Any, sample_weight: Any, validation: Any, options: ClassOptions) -> None:
        X, y = validate_data(self, as_array(X), as_array(y), dtype=np.float64, ensure_min_samples=2)
        labels = self._labels(y)
        weight = _check_sample_weight(as_array(sample_weight), X, dtype=np.float64, ensure_non_negative=True)
        if not weight.any():
            raise ValueError("All sample weights are zero; give at least one row a positive weight.")
        X, labels, weight = X[weight > 0], labels[weight > 0], weight[weight > 0]
        if len(np.unique(labels)) < len(self.classes_):
            self.classes_, labels = self.classes_[np.unique(labels)], np.unique(labels, return_inverse=True)[1]
            self._require_classes()
        judge = None
        if not isinstance(validation, DataLoader):
            validation = validation_arrays(validation, getattr(self, "feature_names_in_", None), labels=True)
        if validation is not None:
            x_new, y_new = pair_of(validation)
            x_new = check_array(x_new, dtype=np.float64)
            if x_new.shape[1] != X.shape[1]:
                raise ValueError(f"validation needs {X.shape[1]} columns, like the training rows; got {x_new.shape[1]}.")
            judge = x_new, indices(y_new, self.classes_)
        elif len(X) < MERGED_ROWS:
            X, column, weight = merge_equal_rows(X, labels[:, None].astype(np.float64), weight)
            labels = column[:, 0].astype(np.int64)
        prepared = stacked_logits(X, labels, weight, judge, self.classes_, self._chosen(), options, freeze=self.freeze_mean)
        self._assemble(prepared, options)

    def _chosen(self) -> Any:
        return self.mean if isinstance(self.mean, str) and self.mean == "auto" else listed(self.mean)

    def _assemble(self, prepared: Prepared, options: ClassOptions) -> None:
        options.report("covariances", 0.0)
        self.model_, self.summary_ = assemble_classes(
            prepared.learned,
            prepared.embedding,
            covariance=self.covariance,
            divergence_weight=self.divergence_weight,
            tempering=checked_tempering(self.tempering),
            epsilon=self._epsilon,
            note=prepared.note,
        )

    def _fit_module(self, X: Any, y: Any, validation: Any, options: ClassOptions) -> None:
        training, shape = self._batches(X, y)
        if validation is not None:
            rows, labels = (validation, None) if isinstance(validation, DataLoader) else validation
            judge = self._judging(rows, labels, shape)
        elif self.freeze_mean:
            raise ValueError(
                "A frozen network may have seen the training rows, so they cannot judge its errors. "
                "Pass rows it has not seen: fit(X, y, validation=(X_unseen, y_unseen))."
            )
        elif isinstance(training.rows, DataLoader):
            raise ValueError("Rows from a loader cannot be set apart: pass validation=(X_unseen, y_unseen) or another loader.")
        else:
            training, judge = split_batches(training, VALIDATION_SHARE, options.generator)
        if self.freeze_mean and self.preset is None:
            self._assemble(frozen_logits(self.mean, training, judge, shape, options), options)
            return
        paper = self.preset == "paper"
        joint = joint_options(
            training,
            paper=paper,
            epsilon=self.epsilon if paper else self._epsilon,
            divergence_weight=self.divergence_weight,
            tempering=checked_tempering(self.tempering),
            max_epochs=self.max_epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
        )
        if not paper and wants_features(self.kernel, shape):
            self._assemble(joint_logits(self.mean, training, judge, shape, options, joint), options)
            return
        self.model_, self.summary_ = (paper_model if paper else joint_model)(self.mean, training, judge, shape, options, joint)

    def _labels(self, y: Any) -> NDArray[np.int64]:
        """The index of each label, with `classes_` set."""
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        self._require_classes()
        return labels.astype(np.int64)

    def _require_classes(self) -> None:
        if len(self.classes_) < 2:
            raise ValueError(f"A classifier needs rows of at least two classes; got one class, {self.classes_[0]!r}.")

    def _batches(self, X: Any, y: Any) -> tuple[Batches, tuple[int, ...]]:
        if isinstance(X, DataLoader):
            found, shape = labels_and_shape(X)
            self._labels(found)
            self.n_features_in_ = int(np.prod(shape))
            return Batches(X, None, self.classes_), shape
        rows = self._shaped_rows(X, reset=True)
        if y is None:
            raise ValueError("A fit requires y to be passed, but the target y is None: pass a label for each row, or a loader.")
        labels = column_or_1d(as_array(y), warn=True)
        if len(labels) != len(rows):
            raise ValueError(f"There must be as many labels as rows; got {len(labels)} labels and {len(rows)} rows.")
        self.n_features_in_ = int(np.prod(rows.shape[1:]))
        return Batches(rows, self._labels(labels), self.classes_), rows.shape[1:]

    def _judging(self, X: Any, y: Any, shape: tuple[int, ...]) -> Batches:
        if isinstance(X, DataLoader):
            return Batches(X, None, self.classes_)
        rows = self._shaped_rows(X, reset=False)
        if rows.shape[1:] != shape:
            raise ValueError(f"validation rows must have the shape {shape} of the training rows; got {rows.shape[1:]}.")
        return Batches(rows, indices(y, self.classes_), self.classes_)

    def _shaped_rows(self, X: Any, *, reset: bool) -> NDArray[Any]:
        """Rows of any shape, finite: a table as float64, others as float32 unless they are float64."""
        if not (hasattr(X, "shape") and len(X.shape) > 2):
            return validate_data(self, as_array(X), dtype=np.float64, reset=reset)
        return checked_shapes(as_array(X))

    @property
    def posterior_(self) -> GaussianMeasure:
        """Q over unscaled logits."""
        return self.model_.posterior

    def _rows(self, X: Any) -> Iterator[NDArray[Any]]:
        """The rows asked for, in one part or a loader's parts."""
        check_is_fitted(self, "model_")
        if isinstance(X, DataLoader):
            for batch in X:
                yield self._checked(batch[0] if isinstance(batch, list | tuple) else batch)
        else:
            yield self._checked(X)

    def _checked(self, X: Any) -> NDArray[Any]:
        rows = self._shaped_rows(X, reset=False)
        if rows.shape[1:] != self.model_.embedding.shape:
            raise ValueError(f"The model was fitted to rows of shape {self.model_.embedding.shape}; got {rows.shape[1:]}.")
        return rows

    def _probabilities(self, X: Any) -> tuple[Array, Array]:
        parts = [self.model_.probabilities(rows) for rows in self._rows(X)]
        return np.concatenate([p for p, _ in parts]), np.concatenate([e for _, e in parts])

    def predict_proba(self, X: Any) -> Any:
        """The probability of each class, in the order of `classes_`."""
        return like(self._probabilities(X)[0], X)

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class."""
        check_is_fitted(self, "model_")
        return self.classes_[self._probabilities(X)[0].argmax(1)]

    def decompose(self, X: Any) -> ClassDecomposition:
        """The entropy of the label, and what of it is left if the logits were known."""
        probabilities, expected = self._probabilities(X)
        total = entropy(probabilities)
        # Both are integrals to five digits, so their difference may be below zero by as much.
        parts = total, np.minimum(expected, total), (total - expected).clip(0.0)
        return ClassDecomposition(*(like(part, X) for part in parts))

    def ood_score(self, X: Any, *, energy: bool = False) -> Any:
        """How far the variance of the logits is back to the prior's: 0 at well-known rows, 1 far from all data.

        With `energy`, that plus −log Σ exp of the logits, each in standard deviations from its mean at rows the mean had not
        seen: about 0 at rows like these, without bounds. Log probabilities as logits have no energy to add.
        """
        parts = [self.model_.strangeness(rows) if energy else self.model_.remaining_variance(rows) for rows in self._rows(X)]
        return like(np.concatenate(parts), X)

    def nll(self, X: Any, y: Any) -> float:
        """Mean negative log probability of the labels."""
        chosen = np.take_along_axis(self._probabilities(X)[0], indices(y, self.classes_)[:, None], axis=1)
        return float(-np.log(chosen.clip(np.finfo(float).tiny)).mean())

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the fitted model into one file, all of it or nothing; `gwi.load` reads it.

        The file holds numbers and names only: no labels of rows, and of the rows only inducing and basis points.

        Raises:
            UnsavableError: naming a part that cannot be stored, such as a plain function, and what works instead.
        """
        return write_atomically(path, to_bytes(*self._encoded()))

    def _encoded(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        check_is_fitted(self, "model_")
        model, tensors = encode_classes(self.model_)
        return document_of(self, "classifier", summary=encode_class_summary(self.summary_), model=model), tensors
