"""GWIClassifier: calibrated classification for any mean, with scikit-learn's interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import column_or_1d
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted
from torch.utils.data import DataLoader

from gwi import parts
from gwi._typing import Array
from gwi._validation import as_array, checked_weights, like, require_order
from gwi.estimators.base import GWIEstimator
from gwi.estimators.strata import places_of, warn_of_rare_classes
from gwi.evaluation.classification import class_totals, entropy
from gwi.evaluation.judged import Judged, TargetKind
from gwi.fitting.classification import ClassificationTask
from gwi.fitting.logit_scales import checked_tempering
from gwi.models.classification import ClassDecomposition, ClassificationModel
from gwi.streaming.batches import indices, labels_and_shape


class LabelTargets:
    """One label for each row; `classes` are the labels in order.

    Args:
        class_weight: as the estimator has it.
    """

    are_labels = True
    checks: dict[str, Any] = {}  # noqa: RUF012
    classes: NDArray[Any]
    # What weights of rows are multiplied by, of each class; None where they are not.
    factors: Array | None = None

    def __init__(self, class_weight: Any = None):
        self.class_weight = class_weight

    def learn(self, y: Any) -> NDArray[np.int64]:
        """The place of each label, noting the classes."""
        y = column_or_1d(as_array(y), warn=True)
        require_order("Labels", y)
        check_classification_targets(y)
        self.classes, places = np.unique(y, return_inverse=True)
        if len(self.classes) < 2:
            raise ValueError(f"A classifier needs rows of at least two classes; got one class, {self.classes.tolist()[0]!r}.")
        return places.astype(np.int64)

    def weighed(self, places: NDArray[np.int64], weight: Array) -> Array:
        """Weights of rows with these labels, multiplied by those of their classes.

        Raises:
            ValueError: when a class has no positive weight, or a label is of no class.
        """
        if self.class_weight is None:
            return weight
        if isinstance(self.class_weight, str):
            totals = np.bincount(places, weights=weight)
            self.factors = totals.sum() / (len(totals) * totals)
        else:
            labels = self.classes.tolist()
            self.factors = compute_class_weight(self.class_weight, classes=np.array(labels, dtype=object), y=labels)
        if not (np.isfinite(self.factors) & (self.factors > 0)).all():
            raise ValueError(
                f"class_weight must be positive for each class (to ignore a class, leave its rows out); got {self.factors}."
            )
        return checked_weights(weight * self.factors[places])

    def prepared(self, y: Any) -> Any:
        """As an array."""
        return as_array(y)

    def encode(self, y: Any) -> NDArray[np.int64]:
        """The place of each label among the classes."""
        return indices(y, self.classes)

    def require(self, targets: NDArray[np.int64], num_rows: int) -> None:
        """Refuse validation labels that are not one for each row."""
        if len(targets) != num_rows:
            raise ValueError(f"validation needs a label for each row; got {len(targets)} labels and {num_rows} rows.")

    def learn_source(self, values: NDArray[Any] | None, asked: Any, num_outputs: int) -> None:
        """Note the classes of a source."""
        assert values is not None
        self.classes = values

    def from_source(self, values: NDArray[Any], asked: Any) -> NDArray[Any]:
        """Labels of a source in memory as a user would pass them."""
        return np.array(values.tolist())

    def restore(self, model: Any, one: bool, levels: Any, name: str) -> None:
        """What a file says of the targets."""
        self.classes = model.classes

    def look_through(self, loader: DataLoader[Any]) -> tuple[int, ...]:
        """Note the classes of a loader; the shape of its rows."""
        labels, shape = labels_and_shape(loader)
        self.learn(labels)
        return shape


class GWIClassifier(ClassifierMixin, GWIEstimator):
    """Classification with honest probabilities: any mean, a sparse-GP covariance per class, scales judged on held-out rows.

    Rows may be arrays, data frames or tensors; tensors in, tensors out, but for labels, which are always an array. With a torch
    module as mean rows may have any shape, such as images. `fit` also takes a ``DataLoader`` of (rows, labels), and of tables a
    Parquet file, a folder of them or a ``pyarrow.dataset``, of any size, alone or under ``torchrun`` with other processes.

    Args:
        mean: what predicts. ``"auto"`` (default) stacks several models. One alone: ``"svgp"``, ``"network"`` or a `Network`,
            ``"linear"``. A model of yours: a torch module with one logit per class, a scikit-learn classifier, a function from
            rows to logits, or a list of any of these. A module, a function and a fitted classifier stay as they are, and `fit`
            then needs ``validation``, rows that they have not seen. `Trained` has a module trained by the cross-entropy, `Joint`
            together with its covariance by the generalized loss, `Paper` as in the paper.
        kernel: how alike two rows are: ``"auto"`` (default), ``"rbf"``, ``"matern32"``, ``"matern52"``, ``"rq"`` or a GPyTorch
            kernel for standardised, flattened rows; ``"features"`` or a `Features` for features of the module, once it is
            trained, or of a frozen one a `FeatureKernel` over `NetworkFeatures`; ``"auto"`` is the former for tables, the latter
            for images.
        covariance: how the uncertainty of the logits is found: ``"auto"`` (default), ``"wasserstein"``, ``"titsias"``,
            ``"trained"``, ``"zero"``, or a `Covariance` with its weight, number and choice of inducing points; joint training
            with a kernel on rows has its own.
        divergence: the distance from the prior in the loss: ``"wasserstein-squared"`` (default), ``"wasserstein"`` with a weight
            in `Covariance`, or ``"kl"``, which is finite for a kernel mean only.
        likelihood: how logits become probabilities: ``"auto"`` (default) is ``"softmax"``, integrated without sampling;
            ``"robust-max"``, or a `RobustMax` with its ε.
        tempering: ``"auto"`` (default) chooses a scale of the logits and one factor on their variance by the likelihood of
            held-out rows, ``"per-class"`` a factor for each class; a factor, or None for neither.
        cv: how rows are held out to judge: ``"auto"`` (default) in five folds at random, a number of folds, ``"time"`` where rows
            stand in order of time and later ones judge, a splitter of scikit-learn's, or a list of pairs of row numbers.
        max_time: about how many processor seconds a fit may take; None (default) for no bound. It is planned before the fit;
            `gwi.MaxTime(seconds, speed)` also says how fast the machine is, so that a fit can be repeated elsewhere.
        device: where tensors live, default ``"cpu"``.
        dtype: precision in which networks are trained, ``"float32"`` (default) or ``"float64"``; all else is in float64.
        class_weight: how much the rows of each class count: ``"balanced"`` gives all classes the same weight in total, a dict has
            a factor for each label, None (default) leaves weights as they are. Probabilities are then those of the weighted rows:
            shares of classes, NLL and scales follow it, and so do not say how often a class comes among rows as they are.
            Networks and fitted models that are taken as they are keep what they have learned.
        random_state: seed or generator, for the same result each time; default None.
        n_jobs: how many scikit-learn models are fitted side by side, as joblib takes it; ``joblib.parallel_config`` chooses
            where.
        verbose: 1 shows progress and prints the summary, 0 nothing; ``"auto"`` (default) shows progress after some seconds in a
            terminal or a notebook.

    Attributes:
        classes_: the labels, in the order of the columns of probabilities.
        model_: all that predicts.
        summary_: what was chosen.

    Examples:
        >>> from sklearn.datasets import load_iris
        >>> from gwi import GWIClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> model = GWIClassifier(["svgp", "linear"], random_state=0).fit(X[::3], y[::3])
        >>> model.predict(X[[1, 149]]).tolist()
        [0, 2]
        >>> model.predict_proba(X[1::2]).shape, bool(model.score(X[1::2], y[1::2]) > 0.9)
        ((75, 3), True)
        >>> known, strange = model.ood_score([X[0], X[0] + 50])
        >>> bool(known < strange)
        True
    """

    task: ClassVar[Literal["classification"]] = "classification"
    _tag = "classifier"
    _kind: TargetKind = "classes"
    _model = ClassificationModel
    _trains_jointly = True
    _targets: LabelTargets
    model_: ClassificationModel

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
        class_weight: Any = None,
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
        self.class_weight = class_weight

    def _likelihood(self) -> parts.Softmax | parts.RobustMax:
        if isinstance(self.likelihood, parts.Softmax | parts.RobustMax):
            return self.likelihood
        parts.require_choice("likelihood", self.likelihood, Literal["auto", "softmax", "robust-max"])
        return parts.RobustMax() if self.likelihood == "robust-max" else parts.Softmax()

    def _check(self) -> None:
        super()._check()
        checked_tempering(self.tempering)
        asked = self.class_weight
        if not (asked is None or isinstance(asked, dict) or (isinstance(asked, str) and asked == "balanced")):
            raise ValueError(f'class_weight must be "balanced", a dict with a factor for each label, or None; got {asked!r}.')
        if self._by_paper and self._network() is None:
            raise ValueError(f"The paper's protocol for classes takes a torch module, Paper(module); got {self.mean!r}.")

    def _new_targets(self) -> LabelTargets:
        return LabelTargets(self.class_weight)

    def _task(self, rows: Any = None, targets: Any = None, weight: Any = None, groups: Any = None) -> ClassificationTask:
        likelihood = parts.RobustMax() if self._by_paper and isinstance(self._likelihood(), parts.Softmax) else self._likelihood()
        correct = isinstance(self.mean, parts.Frozen) and self.mean.correct
        factors = self._targets.factors
        if self.class_weight is not None and factors is None:
            raise ValueError("class_weight is for tables in memory, whose rows have weights; leave it out.")
        return ClassificationTask(self.classes_, likelihood, checked_tempering(self.tempering), correct, factors)

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels, in the order of the columns of probabilities."""
        return self._targets.classes

    def _probabilities(self, X: Any) -> tuple[Array, Array]:
        values = [self.model_.probabilities(rows) for rows in self._row_parts(X, warns=True)]
        return np.concatenate([p for p, _ in values]), np.concatenate([e for _, e in values])

    def predict_proba(self, X: Any) -> Any:
        """The probability of each class, (N, J), in the order of `classes_`."""
        return like(self._probabilities(X)[0], X)

    def predict_log_proba(self, X: Any) -> Any:
        """log `predict_proba`, (N, J), always finite: below 1e-5, where that may round to 0, it is at least the mean of log p."""
        return like(np.concatenate([self.model_.log_probabilities(rows) for rows in self._row_parts(X, warns=True)]), X)

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row, (N,)."""
        check_is_fitted(self, "model_")
        return self.classes_[self._probabilities(X)[0].argmax(1)]

    def predict_set(self, X: Any, coverage: float = 0.95, *, by: Literal["class"] | None = None, strata: Any = None) -> Any:
        """Sets of labels that hold the true one with this probability: a bool for each class, (N, J), in the order of `classes_`.

        A class is in the set where its probability is at least as high as those of the true labels of this share of the held-out
        rows were (least ambiguous sets, Sadinle et al. 2019). The most probable class is in every set, so that none is empty:
        where the model is right more often than the coverage asks for, sets hold one class and cover more. Coverage is that of
        rows as they come, whatever `class_weight`. Where held-out rows are too few, sets hold all classes, with a warning.
        With few rows and many columns sets may cover a little less, since the kernel was chosen with the held-out labels: 88 %
        where 90 % were asked for, with 300 rows of 64 columns and a fifth of the labels at random.

        Args:
            X: rows.
            coverage: of the sets.
            by: ``"class"`` for this coverage among the rows of each class, not only on average over all; rare classes are then
                in more sets, and one with too few held-out rows is in all of them.
            strata: of each row, or the name of a column of a data frame, where the fit had strata: this coverage in each of
                them. With too few held-out rows for that, or none, a stratum gets the widest sets of all, and a warning names it.
        """
        if not 0 < coverage < 1:
            raise ValueError(f"coverage must be strictly between 0 and 1; got {coverage}.")
        if by is not None and by != "class":
            raise ValueError(f'by must be "class" or None; got {by!r}.')
        probabilities = self._probabilities(X)[0]
        scores, num_classes = self.model_.label_scores, len(self.classes_)
        if scores is None:
            raise ValueError("The model file is of an earlier version and has no scores of held-out rows; fit again.")
        places = None if strata is None else places_of(scores.strata, X, strata, len(probabilities))
        warn_of_rare_classes(scores, self.classes_, places, coverage, by == "class")
        limits = scores.limits(coverage, num_classes, by_class=by == "class", by_stratum=strata is not None)
        found = 1 - probabilities <= (limits[:1] if places is None else limits[places])
        found[np.arange(len(found)), probabilities.argmax(1)] = True
        return torch.as_tensor(found, device=X.device) if isinstance(X, torch.Tensor) else found

    def decompose(self, X: Any) -> ClassDecomposition:
        """The entropy of the label, and what of it is left if the logits were known; each (N,)."""
        probabilities, expected = self._probabilities(X)
        total = entropy(probabilities)
        # Both are integrals to five digits, so their difference may be below zero by as much.
        values = total, np.minimum(expected, total), (total - expected).clip(0.0)
        return ClassDecomposition(*(like(part, X) for part in values))

    def ood_score(self, X: Any, *, energy: bool = False) -> Any:
        """0 for inputs like the training data, 1 far away from all of it: the share of the prior's variance that is left.

        With `energy`, that plus −log Σ exp of the logits, each in standard deviations from its mean at rows the mean had not
        seen: about 0 at rows like these, without bounds. Log probabilities as logits have no energy to add.
        """
        check_is_fitted(self, "model_")
        score = self.model_.outlier_score if energy else self.model_.prior_share
        return like(np.concatenate([score(rows) for rows in self._row_parts(X)]), X)

    def nll(self, X: Any, y: Any) -> float:
        """Mean negative log probability of the labels."""
        chosen = np.take_along_axis(self._probabilities(X)[0], self._targets.encode(y)[:, None], axis=1)
        return float(-np.log(chosen.clip(np.finfo(float).tiny)).mean())

    def predict_columns(
        self, X: Any, coverage: float = 0.95, *, quantiles: Sequence[float] = (), parts: bool = False
    ) -> dict[str, Any]:
        """prediction, a probability for each class and ood_score by name.

        Args:
            X: rows.
            coverage: not used, for there is no interval.
            quantiles: not used.
            parts: whether the entropy of the label follows too, `epistemic` and `aleatoric`.
        """
        rows = self._rows(X)
        probabilities, expected, share = self.model_.described(rows)
        columns: dict[str, Any] = {"prediction": self.classes_[probabilities.argmax(1)]}
        columns |= {f"probability_{label}": probabilities[:, j] for j, label in enumerate(self.classes_)}
        if parts:
            total = entropy(probabilities)
            columns |= {"epistemic": (total - expected).clip(0.0), "aleatoric": np.minimum(expected, total)}
        return columns | {"ood_score": share}

    def judge(self, X: Array, y: Any) -> Judged:
        """Probabilities at rows with a label."""
        if not len(X):
            return Judged(np.empty((0, len(self.classes_))), None, np.empty(0, dtype=np.int64))
        return Judged(self.model_.probabilities(X)[0], None, self._targets.encode(np.array(np.asarray(y).tolist())))

    def score_totals(self, judged: Judged) -> Any:
        """Sums over rows from which scores are computed; those of several parts are added."""
        return class_totals(judged.first, judged.y)
