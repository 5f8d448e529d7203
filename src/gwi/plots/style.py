"""What the pictures of `gwi.plots.charts` share: colours, axes, legends, and the way from estimator and rows to numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator, PercentFormatter
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gwi._typing import Array
from gwi.estimators.regressor import GWIRegressor
from gwi.models.regression import RegressionModel

# Okabe and Ito's colours.
MEAN, DATA, INDUCING, ALARM = "#000000", "#0072B2", "#009E73", "#D55E00"
BAND, CHANCE = "#56B4E9", "#B3B3B3"
# Inches at 100 dots each.
WIDE, SQUARE = (6.0, 3.8), (4.8, 4.4)
# Of a normal law, 95 % are so many standard deviations around the mean.
HALF_WIDTH = 1.96
BY_CHANCE = "by chance, 95 %"
# A thousand dots fill a picture; of more rows a fixed sample is drawn. What is counted is counted over all.
MAX_DOTS = 1000


def regression(model: Any, X: Any, function: str) -> tuple[RegressionModel, Array]:
    """What predicts, and the rows as an array."""
    if hasattr(model, "predict_proba"):
        raise TypeError(
            f"{function} draws the law of a number, and {type(model).__name__} predicts classes: use plot_calibration."
        )
    if not isinstance(model, GWIRegressor):
        raise TypeError(f"{function} takes a fitted GWIRegressor; got {type(model).__name__}. Of a pipeline, pass its last step.")
    check_is_fitted(model, "model_")
    return model.model_, model._rows(X)


def std_of_f(model: RegressionModel, rows: Array) -> Float[Array, "J N"]:
    """The standard deviation of f in the targets' own units, tempered like that of y, so that it is a part of it."""
    _, variance, _ = model.marginals(rows)
    return np.sqrt(variance * model.tempering_factor[:, None]) * model.scales.y_scale[:, None]


def plain(values: Any) -> Any:
    """Arrays for tensors."""
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else values


def targets(model: RegressionModel, y: Any, num_rows: int) -> Float[Array, "J N"]:
    """One row a target."""
    values = np.asarray(plain(y), dtype=np.float64)
    if values.shape[:1] != (num_rows,) or values.size != num_rows * len(model.noises):
        raise ValueError(f"{num_rows} rows with {len(model.noises)} target(s) were expected; y has the shape {values.shape}.")
    return values.reshape(num_rows, -1).T


def target_number(model: RegressionModel, target: int) -> int:
    """The number, when there is such a target."""
    if not 0 <= target < len(model.noises):
        raise ValueError(f"target is 0 to {len(model.noises) - 1}; got {target}.")
    return target


def target_name(model: RegressionModel, target: int) -> str:
    """For labels."""
    return "y" if len(model.noises) == 1 else f"target {target}"


def column_number(model: Any, feature: int | str) -> int:
    """Of a feature by its number or name."""
    names = [str(name) for name in getattr(model, "feature_names_in_", [])]
    if isinstance(feature, str):
        if feature not in names:
            known = f"the columns are {', '.join(names)}" if names else "the model was fitted to columns without names"
            raise ValueError(f"There is no feature {feature!r}; {known}.")
        return names.index(feature)
    if not 0 <= feature < model.n_features_in_:
        raise ValueError(f"feature is 0 to {model.n_features_in_ - 1}; got {feature}.")
    return feature


def feature_name(model: Any, column: int) -> str:
    """For labels: the column's own where the model was fitted to a data frame."""
    names = getattr(model, "feature_names_in_", None)
    return str(names[column]) if names is not None else "x" if model.n_features_in_ == 1 else f"feature {column}"


def sample(num_rows: int, count: int = MAX_DOTS) -> Any:
    """An index of all rows, or of a fixed sample where they are more than `count`."""
    return slice(None) if num_rows <= count else np.random.default_rng(0).choice(num_rows, count, replace=False)


def line_over(values: Float[Array, " N"], margin: float, num_points: int) -> Float[Array, " P"]:
    """Equidistant points over the range of the values, wider by a share of it on each side; around one value, wider by one."""
    low, high = values.min(), values.max()
    wider = margin * (high - low) if high > low else 1.0
    return np.linspace(low - wider, high + wider, num_points)


def new_axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """The axes given, or those of a new figure, without a frame at the top and right."""
    if ax is None:
        # Not at the top: pyplot chooses a backend when it is imported.
        from matplotlib import pyplot as plt

        _, ax = plt.subplots(figsize=size, layout="constrained")
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=9)
    return ax


def legend(ax: Axes, columns: int, above: bool = True) -> None:
    """Above the picture, where it covers nothing, or inside."""
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (-0.02, 1.0), "borderaxespad": 0.2} if above else {}
    ax.legend(ncols=columns, fontsize=9, frameon=False, handlelength=1.6, columnspacing=1.2, **place)


def shares(ax: Axes, xlabel: str, ylabel: str) -> Axes:
    """Both axes from 0 to 100 %, with a legend."""
    ax.set(xlim=(0, 1), ylim=(0, 1.01), xlabel=xlabel, ylabel=ylabel)
    ax.xaxis.set_major_formatter(PercentFormatter(1))
    ax.yaxis.set_major_formatter(PercentFormatter(1))
    legend(ax, columns=1, above=False)
    return ax


def plain_decades(ax: Axes) -> None:
    """Ticks of logarithmic axes at 1, 2 and 5 in each decade, as plain numbers."""
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
