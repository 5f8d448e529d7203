"""The default against what one would else use, on a table of the user's own: same folds, same inputs, same scores.

| peer | uncertainty |
| --- | --- |
| scikit-learn's GP, RBF with a length-scale for each input, on a sample of the training rows | its own |
| histogram boosting | one standard deviation for all rows, from errors at rows unseen; classes: calibrated on rows unseen |
| ridge, for classes logistic regression | the same; its own |
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from gwi._typing import Array
from gwi.estimators.classifier import GWIClassifier
from gwi.estimators.regressor import GWIRegressor
from gwi.estimators.table_model import FEWEST_ROWS, TaskName
from gwi.evaluation.classification import score_classes
from gwi.evaluation.regression import Law, score
from gwi.exceptions import UserError
from gwi.tables.encoder import Columns
from gwi.tables.source import Table

OURS = "gwi"
METRICS: dict[TaskName, tuple[str, ...]] = {
    "regression": ("crps", "nll", "rmse", "coverage_95", "width_95", "seconds"),
    "classification": ("accuracy", "nll", "brier", "ece", "seconds"),
}
# Where a comparison of two methods makes sense; a narrow interval is no merit by itself.
JUDGED = ("crps", "nll", "rmse", "coverage_95", "accuracy", "brier", "ece")
NOMINAL = 0.95
INNER_FOLDS = 5
Report = Callable[[str, float], None]


@dataclass(frozen=True)
class Compared:
    """One method at all folds.

    Attributes:
        name: of the method.
        note: what a reader should know of it.
        scores: of each fold, by metric; NaN where it failed.
    """

    name: str
    note: str
    scores: dict[str, Float[Array, " K"]]

    def mean(self, metric: str) -> float:
        """Over folds."""
        return float(self.scores[metric].mean())

    def error(self, metric: str) -> float:
        """The standard error of the mean over folds."""
        values = self.scores[metric]
        return float(values.std(ddof=1) / math.sqrt(len(values)))


@dataclass(frozen=True)
class Comparison:
    """All methods on one table.

    Attributes:
        task: what is predicted.
        target: which column.
        num_rows: that have a target.
        num_folds: each row is predicted once.
        methods: ours first.
        notes: on the data.
    """

    task: TaskName
    target: str
    num_rows: int
    num_folds: int
    methods: tuple[Compared, ...]
    notes: tuple[str, ...] = ()

    @property
    def metrics(self) -> tuple[str, ...]:
        """In the order in which they are shown."""
        return METRICS[self.task]

    def difference(self, first: Compared, second: Compared, metric: str) -> tuple[float, float]:
        """How much better the first is, and the standard error of that over the same folds."""
        a, b = (_loss(method.scores[metric], metric) for method in (first, second))
        if metric == "coverage_95":
            # The distance of the mean from its nominal value: folds that miss it on both sides do not add up.
            gap = abs(second.mean(metric) - NOMINAL) - abs(first.mean(metric) - NOMINAL)
            return gap, float((a - b).std(ddof=1) / math.sqrt(len(a)))
        return float((b - a).mean()), float((b - a).std(ddof=1) / math.sqrt(len(a)))

    def best(self, metric: str) -> tuple[str, ...]:
        """The best method, and those that are behind it by no more than one standard error of the difference."""
        finite = [method for method in self.methods if math.isfinite(method.mean(metric))]
        if metric not in JUDGED or not finite:
            return ()
        leader = min(finite, key=lambda method: _rank(method, metric))
        names = []
        for method in finite:
            behind, error = self.difference(leader, method, metric)
            if method is leader or behind <= error:
                names.append(method.name)
        return tuple(names)

    def sentences(self) -> list[str]:
        """Wins and losses of ours against each other method."""
        ours, *others = self.methods
        found = []
        for other in others:
            kinds: dict[str, list[str]] = {"better": [], "worse": [], "even": []}
            for metric in self.metrics:
                if metric in JUDGED and math.isfinite(other.mean(metric)) and math.isfinite(ours.mean(metric)):
                    ahead, error = self.difference(ours, other, metric)
                    kinds["even" if abs(ahead) <= error else "better" if ahead > 0 else "worse"].append(label(metric))
            said = "; ".join(f"{kind} in {', '.join(names)}" for kind, names in kinds.items() if names)
            found.append(f"{ours.name} against {other.name}: {said or 'no finite score to compare'}.")
        return found

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        methods = {
            method.name: {
                metric: {"mean": method.mean(metric), "error": method.error(metric), "folds": method.scores[metric].tolist()}
                for metric in self.metrics
            }
            | {"note": method.note}
            for method in self.methods
        }
        head = {"task": self.task, "target": self.target, "rows": self.num_rows, "folds": self.num_folds}
        best = {metric: list(self.best(metric)) for metric in self.metrics if metric in JUDGED}
        return head | {"methods": methods, "best": best, "notes": list(self.notes), "verdict": self.sentences()}


def label(metric: str) -> str:
    """A metric for a reader."""
    names = {
        "coverage_95": "coverage 95 %",
        "width_95": "width 95 %",
        "accuracy": "accuracy",
        "brier": "Brier",
        "seconds": "fit s",
    }
    return names.get(metric, metric.upper())


def _loss(values: Float[Array, " K"], metric: str) -> Float[Array, " K"]:
    return -values if metric == "accuracy" else values


def _rank(method: Compared, metric: str) -> float:
    mean = method.mean(metric)
    return abs(mean - NOMINAL) if metric == "coverage_95" else -mean if metric == "accuracy" else mean


def compare(
    table: Table,
    y: NDArray[Any],
    target: str,
    task: TaskName,
    drop: Sequence[str],
    *,
    num_folds: int,
    seed: int,
    gp_rows: int,
    max_time: float | None,
    report: Report,
) -> Comparison:
    """Fit and score every method on every fold.

    Raises:
        UserError: when there are too few rows, or the target does not vary.
    """
    notes = []
    if task == "classification":
        labels, counts = np.unique(y, return_counts=True)
        rare = labels[counts < num_folds]
        if len(rare):
            keep = ~np.isin(y, rare)
            notes.append(f"{int((~keep).sum())} rows of {len(rare)} classes with fewer rows than folds are left out.")
            table, y = table[keep], y[keep]
    path = table.source.path
    if len(y) < max(FEWEST_ROWS + 1, 2 * num_folds):
        raise UserError(f"{path} has {len(y)} rows to compare on; {num_folds} folds need at least {max(6, 2 * num_folds)}.")
    if len(np.unique(y)) == 1:
        raise UserError(f"{path}, column {target!r}: the target is {y[0]} in every row; there is nothing to learn.")
    fold = _folds(y, task, num_folds, seed)
    methods = _regressors(seed, gp_rows, max_time) if task == "regression" else _classifiers(seed, gp_rows)
    scores: dict[str, list[dict[str, float]]] = {name: [] for name in methods}
    failures: dict[str, str] = {}
    for k in range(num_folds):
        training, test = table[fold != k], table[fold == k]
        columns = Columns.fit(training, target, drop)
        X, X_test = columns.transform(training), columns.transform(test)
        for i, (name, method) in enumerate(methods.items()):
            report("folds", (k + i / len(methods)) / num_folds)
            scores[name].append(_scored(method, X, y[fold != k], X_test, y[fold == k], task, failures, name))
    metrics = METRICS[task]
    found = []
    for name, method in methods.items():
        note = "; ".join(filter(None, (method.note(int((fold != 0).sum())), failures.get(name, ""))))
        found.append(Compared(name, note, {metric: np.array([s[metric] for s in scores[name]]) for metric in metrics}))
    return Comparison(task, target, len(y), num_folds, tuple(found), tuple(notes))


def _folds(y: NDArray[Any], task: TaskName, num_folds: int, seed: int) -> NDArray[np.int64]:
    """The fold of each row; of each class as many in each fold as can be."""
    order = np.random.default_rng(seed).permutation(len(y))
    if task == "classification":
        order = order[np.argsort(y[order], kind="stable")]
    fold = np.empty(len(y), dtype=np.int64)
    fold[order] = np.arange(len(y)) % num_folds
    return fold


@dataclass(frozen=True)
class _Method:
    """Fits to rows and predicts others; what a note says depends on the number of training rows."""

    run: Callable[[Array, NDArray[Any], Array], Any]
    note: Callable[[int], str]


def _scored(
    method: _Method,
    X: Array,
    y: NDArray[Any],
    X_test: Array,
    y_test: NDArray[Any],
    task: TaskName,
    failures: dict[str, str],
    name: str,
) -> dict[str, float]:
    start = time.perf_counter()
    try:
        found = method.run(X, y, X_test)
    except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
        failures[name] = f"failed: {str(error).splitlines()[0][:120]}"
        return dict.fromkeys(METRICS[task], math.nan)
    seconds = time.perf_counter() - start
    if task == "regression":
        return asdict(score(found, y_test)) | {"seconds": seconds}
    probabilities, classes = found
    everything = np.unique(np.concatenate([classes, y_test]))
    full = np.zeros((len(y_test), len(everything)))
    full[:, np.searchsorted(everything, classes)] = probabilities
    return asdict(score_classes(full, np.searchsorted(everything, y_test).astype(np.int64))) | {"seconds": seconds}


def _regressors(seed: int, gp_rows: int, max_time: float | None) -> dict[str, _Method]:
    from sklearn.base import clone
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.linear_model import RidgeCV
    from sklearn.model_selection import KFold, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    def ours(X: Array, y: NDArray[Any], X_test: Array) -> Law:
        model = GWIRegressor(max_time=max_time, random_state=seed).fit(X, y)
        mean, std = model.predict(X_test, return_std=True)
        return Law(mean[None], std[None], float(model.model_.degrees_of_freedom[0]))

    def gp(X: Array, y: NDArray[Any], X_test: Array) -> Law:
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

        rows = _sample(len(y), gp_rows, seed)
        kernel = ConstantKernel(1.0) * RBF(np.full(X.shape[1], math.sqrt(X.shape[1]))) + WhiteKernel(0.1)
        regressor = GaussianProcessRegressor(kernel, normalize_y=True, random_state=seed)
        model = make_pipeline(StandardScaler(), regressor).fit(X[rows], y[rows])
        mean, std = model.predict(X_test, return_std=True)
        return Law(mean[None], std[None])

    def constant(regressor: Any) -> Callable[[Array, NDArray[Any], Array], Law]:
        def run(X: Array, y: NDArray[Any], X_test: Array) -> Law:
            folds = KFold(min(INNER_FOLDS, len(y)), shuffle=True, random_state=seed)
            unseen = cross_val_predict(clone(regressor), X, y, cv=folds)
            std = max(math.sqrt(float(np.square(y - unseen).mean())), 1e-12 * float(y.std()))
            mean = clone(regressor).fit(X, y).predict(X_test)
            return Law(mean[None], np.full((1, len(mean)), std))

        return run

    spread = f"one standard deviation for all rows, from {INNER_FOLDS}-fold errors at unseen training rows"
    ridge = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 13)))
    return {
        OURS: _Method(
            ours, lambda n: "GWIRegressor with its defaults" + ("" if max_time is None else f", max_time={max_time:g}")
        ),
        "exact GP": _Method(gp, lambda n: f"scikit-learn, ARD RBF + white noise, {_of(n, gp_rows)}"),
        "boosting": _Method(
            constant(HistGradientBoostingRegressor(random_state=seed)), lambda n: f"histogram boosting, {spread}"
        ),
        "ridge": _Method(constant(ridge), lambda n: f"penalty by cross-validation, {spread}"),
    }


def _classifiers(seed: int, gp_rows: int) -> dict[str, _Method]:
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    def ours(X: Array, y: NDArray[Any], X_test: Array) -> Any:
        model = GWIClassifier(random_state=seed).fit(X, y)
        return model.predict_proba(X_test), model.classes_

    def gp(X: Array, y: NDArray[Any], X_test: Array) -> Any:
        from sklearn.gaussian_process import GaussianProcessClassifier
        from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

        rows = _sample(len(y), gp_rows, seed)
        kernel = ConstantKernel(1.0) * RBF(np.full(X.shape[1], math.sqrt(X.shape[1]))) + WhiteKernel(0.1)
        model = make_pipeline(StandardScaler(), GaussianProcessClassifier(kernel, random_state=seed)).fit(X[rows], y[rows])
        return model.predict_proba(X_test), model.classes_

    def boosting(X: Array, y: NDArray[Any], X_test: Array) -> Any:
        model: Any = HistGradientBoostingClassifier(random_state=seed)
        rarest = int(np.unique(y, return_counts=True)[1].min())
        if rarest >= 2:
            model = CalibratedClassifierCV(model, method="sigmoid", cv=min(INNER_FOLDS, rarest))
        model.fit(X, y)
        return model.predict_proba(X_test), model.classes_

    def logistic(X: Array, y: NDArray[Any], X_test: Array) -> Any:
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)).fit(X, y)
        return model.predict_proba(X_test), model.classes_

    return {
        OURS: _Method(ours, lambda n: "GWIClassifier with its defaults"),
        "exact GP": _Method(
            gp, lambda n: f"scikit-learn, Laplace, one against the rest, ARD RBF + white noise, {_of(n, gp_rows)}"
        ),
        "boosting": _Method(boosting, lambda n: "histogram boosting, calibrated by sigmoids on unseen training rows"),
        "logistic": _Method(logistic, lambda n: "logistic regression with scikit-learn's default penalty"),
    }


def _sample(num_rows: int, most: int, seed: int) -> NDArray[np.int64]:
    return np.sort(np.random.default_rng(seed).permutation(num_rows)[:most])


def _of(num_rows: int, most: int) -> str:
    return f"a random {most} of {num_rows} training rows" if num_rows > most else f"all {num_rows} training rows"
