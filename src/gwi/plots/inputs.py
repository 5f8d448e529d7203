"""From an estimator, rows and targets to the numbers that a picture shows."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from gwi._typing import Array
from gwi._validation import as_array
from gwi.core.laws.protocol import PredictiveLaw
from gwi.core.outcomes import as_bounds
from gwi.estimators.base import GWIEstimator
from gwi.evaluation.checks import require_numbers
from gwi.models.numbers import NumberModel

# A thousand dots fill a picture; of more rows a fixed sample is drawn. What is counted is counted over all.
MAX_DOTS = 1000
# What a picture of numbers needs, where targets are something else.
NOT_DRAWN = {
    "times": "known targets, but for some times only a bound is known: use plot_survival, plot_calibration or plot_pit.",
    "levels": "numbers, but levels only have an order: use plot_calibration, plot_pit or plot_prediction.",
}


def regression(model: Any, X: Any, target: int, function: str) -> tuple[NumberModel, Array]:
    """What predicts, when it has such a target, and the rows as an array."""
    name = type(model).__name__
    require_numbers(model, f"{function} draws the distribution of a number, and {name} predicts classes: use plot_calibration.")
    if not isinstance(model, GWIEstimator):
        raise TypeError(f"{function} takes a fitted GWIRegressor; got {name}. Of a pipeline, pass its last step.")
    check_is_fitted(model, "model_")
    num_targets = len(model.model_.noises)
    if not 0 <= target < num_targets:
        raise ValueError(f"target must be between 0 and {num_targets - 1}; got {target}.")
    return model.model_, model._rows(X)


def law_and_targets(model: Any, X: Any, y: Any, target: int, function: str) -> tuple[PredictiveLaw, Float[Array, " N"]]:
    """The predictive distributions of one target at the rows, and its values."""
    fitted, rows = regression(model, X, target, function)
    if (reason := NOT_DRAWN.get(model._kind)) is not None:
        raise ValueError(f"{function} needs {reason}")
    return fitted.laws(rows)[target], targets(fitted, y, len(rows))[target]


def times_law(model: Any, X: Any, function: str) -> PredictiveLaw:
    """The predictive distributions of times to an event."""
    fitted, rows = regression(model, X, 0, function)
    if model._kind != "times":
        raise ValueError(f'{function} is for times to an event, likelihood="censored"; for other targets use plot_prediction.')
    return fitted.laws(rows)[0]


def law_and_bounds(model: Any, X: Any, y: Any, function: str) -> tuple[PredictiveLaw, Float[Array, "N 2"]]:
    """The predictive distributions of times to an event, and the bounds of each."""
    law = times_law(model, X, function)
    bounds = as_bounds(model._targets.encode(y))
    if len(bounds) != law.num_rows:
        raise ValueError(f"{law.num_rows} targets were expected, one per row; got {len(bounds)} targets.")
    return law, bounds


def probabilities_and_places(model: Any, X: Any, y: Any, function: str) -> tuple[Float[Array, "N K"], Any]:
    """Of levels in order, the probability of each and the place of the right one."""
    _, rows = regression(model, X, 0, function)
    judged = model.judge(rows, y)
    return judged.first, judged.y


def confidence_and_hits(model: Any, X: Any, y: Any) -> tuple[Float[Array, " N"], Bool[NDArray[Any], " N"]]:
    """Of a classifier at each row, the probability of the most probable class, and whether it is the right one."""
    predict = getattr(model, "predict_proba", None)
    if predict is None:
        raise TypeError(f"plot_confidence takes a classifier with predict_proba; got {type(model).__name__}.")
    probabilities = np.asarray(as_array(predict(X)), dtype=np.float64)
    labels, classes = np.asarray(as_array(y)), np.asarray(model.classes_)
    unknown = np.setdiff1d(labels, classes)
    if len(unknown):
        raise ValueError(f"y has classes that the model does not know: {', '.join(map(str, unknown[:5]))}.")
    return probabilities.max(1), classes[probabilities.argmax(1)] == labels


def std_of_f(model: NumberModel, rows: Array) -> Float[Array, "J N"]:
    """The standard deviation of f in the targets' own units, tempered like that of y; of E[Y | f] where y is not f and noise."""
    return np.sqrt(model.variances_of(model.parts(rows))[0])


def targets(model: NumberModel, y: Any, num_rows: int) -> Float[Array, "J N"]:
    """One row a target."""
    values = np.asarray(as_array(y), dtype=np.float64)
    if values.shape[:1] != (num_rows,) or values.size != num_rows * len(model.noises):
        raise ValueError(f"{num_rows} rows with {len(model.noises)} target(s) were expected; y has the shape {values.shape}.")
    return values.reshape(num_rows, -1).T


def target_name(model: NumberModel, target: int) -> str:
    """For labels."""
    return "y" if len(model.noises) == 1 else f"target {target}"


def feature_names(model: Any) -> list[str] | None:
    """Of the numbers of a row: those of a data frame's columns, or what its encoder makes of them; None of an array."""
    if hasattr(model, "encoder_"):
        return [str(name) for name in model.encoder_.get_feature_names_out()]
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def column_number(model: Any, feature: int | str) -> int:
    """Of a feature by its number or name."""
    names = feature_names(model) or []
    if isinstance(feature, str):
        if feature not in names:
            known = f"the columns are {', '.join(names)}" if names else "the model was fitted to columns without names"
            raise ValueError(f"There is no feature {feature!r}; {known}.")
        return names.index(feature)
    num_features = len(names) or model.n_features_in_
    if not 0 <= feature < num_features:
        raise ValueError(f"feature must be between 0 and {num_features - 1}; got {feature}.")
    return feature


def feature_name(model: Any, column: int) -> str:
    """For labels: the column's own where the model was fitted to a data frame."""
    names = feature_names(model)
    return names[column] if names is not None else "x" if model.n_features_in_ == 1 else f"feature {column}"


def sample(num_rows: int, count: int = MAX_DOTS) -> NDArray[np.int64]:
    """All rows, or a fixed sample where they are more than `count`."""
    return np.arange(num_rows) if num_rows <= count else np.random.default_rng(0).choice(num_rows, count, replace=False)


def line_over(values: Float[Array, " N"], margin: float, num_points: int) -> Float[Array, " P"]:
    """Equidistant points over the range of the values, wider by a share of it on each side; around one value, wider by one."""
    low, high = values.min(), values.max()
    wider = margin * (high - low) if high > low else 1.0
    return np.linspace(low - wider, high + wider, num_points)
