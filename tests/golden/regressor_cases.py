"""Small regressions of every kind."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import Ridge
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import gwi
from gwi import GWIRegressor, MaxTime
from gwi.parts import Covariance, Gaussian, Paper, Trained

from .answers import Case, Fitted
from .data import boosting, diabetes, extra_trees, new_numbers, numbers, parquet, small_mlp, trained

REGRESSORS: dict[str, Case] = {}


def regressor(name: str) -> Callable[[Case], Case]:
    """Enter a case among the regressors."""
    return lambda case: REGRESSORS.setdefault(name, case)


def on_numbers(name: str, num_rows: int = 36, **options: Any) -> None:
    """Enter a fit to `numbers`; means are made anew by functions, for a fit may change them."""

    def case(folder: Path) -> Fitted:
        made = {key: value() if callable(value) else value for key, value in options.items()}
        return Fitted(GWIRegressor(**made, random_state=0).fit(*numbers(num_rows)), *new_numbers())

    REGRESSORS[name] = case


on_numbers("auto", num_rows=60)
on_numbers("auto, few rows")
on_numbers("auto, little time", num_rows=52, max_time=MaxTime(0.4, speed=1.0))
on_numbers("svgp", mean="svgp")
on_numbers("svgp, covariance in full", mean="svgp", covariance=Covariance("wasserstein", weight=1.0))
on_numbers("svgp, input-dependent noise", mean="svgp", kernel="matern52", likelihood=Gaussian("input-dependent", tails="normal"))
on_numbers("svgp, untempered", mean="svgp", tempering=None, kernel="rq", dtype="float64", likelihood=Gaussian("constant"))
on_numbers("svgp-all", mean="svgp-all", covariance=Covariance(num_inducing=12))
on_numbers("stack without network", mean=lambda: ["svgp", boosting(), Ridge(), RandomForestRegressor(5, max_depth=4)])
on_numbers("boosting", mean=boosting)
on_numbers("conformal", mean="svgp", tempering=1.5, likelihood=Gaussian(conformal=True))
on_numbers("paper", mean=lambda: Paper(max_steps=20))
on_numbers("paper, svgp", mean=lambda: Paper("svgp", max_steps=20))
on_numbers("residuals", mean=lambda: ["svgp", Ridge()], covariance=Covariance(kernel_fit="residuals"))
on_numbers(
    "residuals, sparse", mean=lambda: [extra_trees(), Ridge()], covariance=Covariance(num_inducing=12, kernel_fit="residuals")
)
on_numbers("sparse, wasserstein", mean="svgp", covariance=Covariance("wasserstein", num_inducing=10))
on_numbers("sparse, titsias", mean="svgp", covariance=Covariance("titsias", num_inducing=10, inducing_points="random"))
on_numbers("sparse, trained", mean="svgp", covariance=Covariance("trained", num_inducing=10))
on_numbers("sparse, zero", mean="svgp", covariance=Covariance("zero", num_inducing=10))
on_numbers("points given", mean="svgp", covariance=Covariance(inducing_points=numbers(9, seed=4)[0]))


@regressor("diabetes, sample weights")
def _(folder: Path) -> Fitted:
    x, y = diabetes(58)
    weight = np.random.default_rng(2).uniform(0.2, 3, 50)
    weight[:3] = 0
    return Fitted(GWIRegressor("svgp", random_state=1).fit(x[:50], y[:50], sample_weight=weight), x[50:], y[50:])


@regressor("rows that come twice, and whole weights")
def _(folder: Path) -> Fitted:
    x, y = numbers(30)
    x, y = np.concatenate([x, x[:10]]), np.concatenate([y, y[:10] + 0.1])
    weight = np.arange(40) % 3 + 1
    return Fitted(GWIRegressor(["svgp", boosting()], random_state=0).fit(x, y, sample_weight=weight), *new_numbers())


@regressor("several targets")
def _(folder: Path) -> Fitted:
    x, y = numbers(36)
    x_new, y_new = new_numbers()
    both, both_new = np.stack([y, 3 * y + x[:, 3]], 1), np.stack([y_new, 3 * y_new + x_new[:, 3]], 1)
    return Fitted(GWIRegressor(["svgp", extra_trees()], random_state=0).fit(x, both), x_new, both_new)


@regressor("frozen network")
def _(folder: Path) -> Fitted:
    x, y = numbers(90)
    network = trained(small_mlp(4, 1), x[:50], torch.from_numpy(y[:50, None]).float(), nn.functional.mse_loss)
    model = GWIRegressor(network, random_state=0).fit(x[:50], y[:50], validation=(x[50:], y[50:]))
    return Fitted(model, *new_numbers())


@regressor("fitted members and a function")
def _(folder: Path) -> Fitted:
    x, y = numbers(90)
    known = [Ridge().fit(x[:50], y[:50]), extra_trees().set_params(random_state=0).fit(x[:50], y[:50])]
    means = [*known, lambda rows: np.sin(2 * rows[:, 0])]
    model = GWIRegressor(means, random_state=0).fit(x[:50], y[:50], validation=(x[50:], y[50:]))
    return Fitted(model, *new_numbers(), is_saved=False)


def judged_by_others(mean: Any) -> Fitted:
    """A fit that is judged by rows given, for which networks are trained once instead of once a fold."""
    x, y = numbers(60)
    model = GWIRegressor(mean, random_state=0, covariance=Covariance(num_inducing=15)).fit(
        x[:40], y[:40], validation=(x[40:], y[40:])
    )
    return Fitted(model, *new_numbers())


@regressor("network")
def _(folder: Path) -> Fitted:
    return judged_by_others("network")


@regressor("svgp+network")
def _(folder: Path) -> Fitted:
    return judged_by_others("svgp+network")


@regressor("stack of all kinds")
def _(folder: Path) -> Fitted:
    return judged_by_others(["svgp", "network", boosting(), extra_trees()])


@regressor("stack with a module")
def _(folder: Path) -> Fitted:
    x, y = numbers(50)
    means = ["svgp", Trained(small_mlp(4, 1))]
    return Fitted(GWIRegressor(means, random_state=0).fit(x[:30], y[:30], validation=(x[30:], y[30:])), *new_numbers())


@regressor("update")
def _(folder: Path) -> Fitted:
    x, y = numbers(50)
    model = GWIRegressor("svgp", random_state=0, covariance=Covariance(num_inducing=15)).fit(x[:36], y[:36])
    return Fitted(model.update(x[36:], y[36:]), *new_numbers())


@regressor("update of a stack")
def _(folder: Path) -> Fitted:
    x, y = numbers(50)
    model = GWIRegressor(["svgp", boosting(), Ridge()], random_state=0).fit(x[:36], y[:36])
    return Fitted(model.update(x[36:], y[36:]), *new_numbers())


@regressor("tensors")
def _(folder: Path) -> Fitted:
    x, y = (torch.from_numpy(values) for values in numbers(40))
    model = GWIRegressor("svgp", random_state=0).fit(x, y)
    return Fitted(model, *(torch.from_numpy(values) for values in new_numbers()))


@regressor("Parquet")
def _(folder: Path) -> Fitted:
    rows, target = parquet(folder / "rows.parquet", *numbers(36)), "y"
    model = GWIRegressor("svgp", random_state=0).fit(rows, target)
    x, y = new_numbers()
    new = parquet(folder / "new.parquet", x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        written = pq.read_table(gwi.predict_source(model, new, folder / "predicted.parquet"))
    more = {f"predict_source {name}": np.asarray(written[name]) for name in written.column_names}
    return Fitted(model, x, y, more=more | {"score_source": str(gwi.score_source(model, new, target))})


@regressor("loader")
def _(folder: Path) -> Fitted:
    x, y = (torch.from_numpy(values) for values in numbers(36))
    loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
    return Fitted(GWIRegressor(["svgp", Ridge()], random_state=0).fit(loader), *new_numbers())
