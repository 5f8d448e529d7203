"""Small fits of every kind, and all that is asked of each."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from sklearn.datasets import load_diabetes, load_digits, load_iris, load_wine
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import gwi
from gwi import GWIClassifier, GWIRegressor
from gwi.core import mlp
from gwi.exceptions import JitterWarning
from gwi.parts import Covariance, Features, Frozen, Gaussian, Joint, Paper, RobustMax

from .content import Array, Outcome, repeatable, without_seconds

NUM_NEW = 8


@dataclass
class Fitted:
    """A model and the rows it is asked about.

    Attributes:
        model: fitted.
        x: rows it has not seen, the last of them far away.
        y: their targets or labels.
        modules: what `gwi.load` needs to read the model back.
        is_saved: whether the model can be saved.
        more: what else is recorded.
    """

    model: GWIRegressor | GWIClassifier
    x: Any
    y: Any
    modules: list[nn.Module] = field(default_factory=list)
    is_saved: bool = True
    more: dict[str, Any] = field(default_factory=dict)


Case = Callable[[Path], Fitted]
REGRESSORS: dict[str, Case] = {}
CLASSIFIERS: dict[str, Case] = {}


def regressor(name: str) -> Callable[[Case], Case]:
    """Enter a case among the regressors."""
    return lambda case: REGRESSORS.setdefault(name, case)


def classifier(name: str) -> Callable[[Case], Case]:
    """Enter a case among the classifiers."""
    return lambda case: CLASSIFIERS.setdefault(name, case)


# Tables


def numbers(num_rows: int = 70, seed: int = 0) -> tuple[Array, Array]:
    """Four columns, and a target that is smooth in some and jumps in others, so that every member of a stack has its use."""
    rng = np.random.default_rng(seed)
    x = rng.normal([0, 5, -1, 0], [1, 2, 0.1, 1], (num_rows, 4))
    jump = np.where(x[:, 1] > 5.5, 1.2, 0.0) + np.where(x[:, 2] > -1, 0.6, -0.4) * (x[:, 0] > 0)
    return x, np.sin(2 * x[:, 0]) + jump + 0.3 * x[:, 3] + 0.15 * rng.normal(size=num_rows)


def new_numbers() -> tuple[Array, Array]:
    """Rows like `numbers`, and one far from them."""
    x, y = numbers(NUM_NEW, seed=1)
    x[-1] += [9, -15, 1, 6]
    return x, y


def diabetes(num_rows: int) -> tuple[Array, Array]:
    x, y = load_diabetes(return_X_y=True)
    return x[:num_rows, :5], y[:num_rows]


def three_classes(num_rows: int = 70, seed: int = 0) -> tuple[Array, Any]:
    """Two columns and three classes that overlap a little."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num_rows, 2))
    noisy = x + 0.2 * rng.normal(size=x.shape)
    return x, np.array(["ash", "birch", "cedar"])[(noisy.sum(1) > 0).astype(int) + (noisy[:, 0] > 1)]


def new_classes() -> tuple[Array, Any]:
    x, y = three_classes(NUM_NEW, seed=1)
    x[-1] += 9
    return x, y


def images() -> tuple[Any, Any]:
    """The first three digits, 8 × 8."""
    x, y = load_digits(return_X_y=True)
    keep = y < 3
    return (x[keep] / 16).reshape(-1, 1, 8, 8).astype(np.float32), y[keep]


class SmallCNN(nn.Module):
    """Two convolutions and a dense layer, for three classes of 1 × 8 × 8 images."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3), nn.ReLU())
        self.dense = nn.Sequential(nn.Flatten(), nn.Linear(24, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dense(self.conv(x))


def trained_cnn(x: Any, y: Any) -> SmallCNN:
    """Trained in float64, for other processors to come to the same network."""
    torch.manual_seed(0)
    return trained(SmallCNN().double(), x, torch.from_numpy(y), nn.functional.cross_entropy)


def small_mlp(num_inputs: int, num_outputs: int, seed: int = 0, hidden: tuple[int, ...] = (8,)) -> nn.Module:
    return mlp(num_inputs, num_outputs, hidden=hidden, generator=torch.Generator().manual_seed(seed))


def trained(network: Any, x: Any, target: torch.Tensor, loss: Callable[..., torch.Tensor], num_steps: int = 40) -> Any:
    """A few steps of Adam."""
    rows = torch.as_tensor(x).to(next(network.parameters()).dtype)
    optimiser = torch.optim.Adam(network.parameters(), 1e-2)
    for _ in range(num_steps):
        optimiser.zero_grad()
        loss(network(rows), target).backward()
        optimiser.step()
    return network.eval()


def boosting() -> HistGradientBoostingRegressor:
    return HistGradientBoostingRegressor(max_iter=15, max_leaf_nodes=6, min_samples_leaf=5, learning_rate=0.2)


def extra_trees() -> ExtraTreesRegressor:
    return ExtraTreesRegressor(8, max_leaf_nodes=20)


# Regressors


def on_numbers(name: str, num_rows: int = 36, **options: Any) -> None:
    """Enter a fit to `numbers`; means are made anew by functions, for a fit may change them."""

    def case(folder: Path) -> Fitted:
        made = {key: value() if callable(value) else value for key, value in options.items()}
        return Fitted(GWIRegressor(**made, random_state=0).fit(*numbers(num_rows)), *new_numbers())

    REGRESSORS[name] = case


on_numbers("auto", num_rows=60)
on_numbers("auto, few rows")
on_numbers("auto, little time", num_rows=52, max_time=3.0)
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
    model = GWIRegressor(network, freeze_mean=True, random_state=0).fit(x[:50], y[:50], validation=(x[50:], y[50:]))
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
    means = ["svgp", small_mlp(4, 1)]
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
    rows, target = _parquet(folder / "rows.parquet", *numbers(36)), "y"
    model = GWIRegressor("svgp", random_state=0).fit(rows, target)
    x, y = new_numbers()
    new = _parquet(folder / "new.parquet", x, y)
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


def _parquet(path: Path, x: Array, y: Any) -> Path:
    pq.write_table(pa.table({**{f"x{i}": column for i, column in enumerate(x.T)}, "y": y}), path, row_group_size=20)
    return path


# Classifiers


def on_classes(name: str, num_rows: int = 40, **options: Any) -> None:
    """Enter a fit to `three_classes`."""

    def case(folder: Path) -> Fitted:
        made = {key: value() if callable(value) else value for key, value in options.items()}
        return Fitted(GWIClassifier(**made, random_state=0).fit(*three_classes(num_rows)), *new_classes())

    CLASSIFIERS[name] = case


on_classes("auto")
on_classes("robust-max", mean="svgp", likelihood=RobustMax(0.02))
on_classes("per class", tempering="per-class")
on_classes("untempered, titsias", tempering=None, mean="svgp", covariance=Covariance("titsias", num_inducing=12))
on_classes("zero", tempering=1.3, mean="linear", kernel="matern32", covariance=Covariance("zero", num_inducing=12))
on_classes("network", mean="network", covariance=Covariance(num_inducing=12))
on_classes("linear and svgp", mean=["linear", "svgp"], covariance=Covariance(num_inducing=12))
on_classes(
    "stack of all kinds",
    mean=lambda: [
        "svgp",
        "network",
        HistGradientBoostingClassifier(max_iter=6, max_leaf_nodes=5, min_samples_leaf=5),
        ExtraTreesClassifier(6, max_leaf_nodes=12),
        LogisticRegression(),
    ],
)


@classifier("iris, sample weights")
def _(folder: Path) -> Fitted:
    x, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))[:78]
    x, y = x[order], y[order]
    weight = np.random.default_rng(1).integers(0, 3, 70)
    return Fitted(GWIClassifier("svgp", random_state=0).fit(x[:70], y[:70], sample_weight=weight), x[70:], y[70:])


@classifier("wine, Parquet")
def _(folder: Path) -> Fitted:
    x, y = load_wine(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))[:78]
    x, y = x[order, :6], np.array(["red", "rose", "white"])[y[order]]
    path, new = _parquet(folder / "rows.parquet", x[:70], y[:70]), _parquet(folder / "new.parquet", x[70:], y[70:])
    model = GWIClassifier(["svgp", "linear"], random_state=0).fit(path, "y")
    written = pq.read_table(gwi.predict_source(model, new, folder / "predicted.parquet"))
    more: dict[str, Any] = {f"predict_source {name}": np.asarray(written[name]) for name in written.column_names}
    return Fitted(model, x[70:], y[70:], more=more | {"score_source": str(gwi.score_source(model, new, "y"))})


@classifier("frozen table network")
def _(folder: Path) -> Fitted:
    return _frozen_on_table(correct_mean=False)


@classifier("frozen table network, corrected")
def _(folder: Path) -> Fitted:
    return _frozen_on_table(correct_mean=True)


def _frozen_on_table(correct_mean: bool) -> Fitted:
    x, y = three_classes(300)
    labels = torch.from_numpy(np.unique(y, return_inverse=True)[1])
    # Too few steps to be right, so that there is something to correct.
    network = trained(small_mlp(2, 3), x[:50], labels[:50], nn.functional.cross_entropy, num_steps=10)
    model = GWIClassifier(Frozen(network, correct=correct_mean), random_state=0, covariance=Covariance(num_inducing=20))
    return Fitted(model.fit(x[:50], y[:50], validation=(x[50:], y[50:])), *new_classes())


@classifier("frozen image network")
def _(folder: Path) -> Fitted:
    return frozen_images()


@classifier("frozen image network, corrected, one layer")
def _(folder: Path) -> Fitted:
    return frozen_images(correct=True, kernel=Features("dense.1"), tempering="per-class", likelihood="robust-max")


def frozen_images(dtype: torch.dtype = torch.float32, correct: bool = False, kernel: Any = "features", **options: Any) -> Fitted:
    """A network that is taken as it is, with a kernel on its features, both evaluated in some precision."""
    x, y = images()
    network, x = trained_cnn(x[:60], y[:60]).to(dtype), x.astype(np.float64 if dtype == torch.float64 else np.float32)
    mean, covariance = Frozen(network, correct=correct), Covariance(num_inducing=12)
    model = GWIClassifier(mean, kernel=kernel, covariance=covariance, random_state=0, **options)
    model.fit(x[:60], y[:60], validation=(x[60:120], y[60:120]))
    x_new = x[120 : 120 + NUM_NEW].copy()
    x_new[-1] = 1 - x_new[-1]
    return Fitted(model, x_new, y[120 : 120 + NUM_NEW], modules=[SmallCNN().to(dtype).eval()])


@classifier("joint training on rows")
def _(folder: Path) -> Fitted:
    model = GWIClassifier(
        Joint(small_mlp(2, 3), max_epochs=3, batch_size=16), random_state=0, covariance=Covariance(num_inducing=12)
    )
    return Fitted(model.fit(*three_classes()), *new_classes())


@classifier("joint training on rows, robust-max")
def _(folder: Path) -> Fitted:
    x, y = three_classes(90)
    model = GWIClassifier(
        Joint(small_mlp(2, 3), max_epochs=3, batch_size=16),
        likelihood="robust-max",
        random_state=0,
        dtype="float64",
        covariance=Covariance(num_inducing=12),
    )
    model.fit(x[:60], y[:60], validation=(x[60:], y[60:]))
    return Fitted(model, *new_classes())


@classifier("joint training on images")
def _(folder: Path) -> Fitted:
    x, y = images()
    torch.manual_seed(0)
    model = GWIClassifier(
        Joint(SmallCNN(), max_epochs=2, batch_size=20), random_state=0, dtype="float64", covariance=Covariance(num_inducing=12)
    ).fit(x[:80], y[:80])
    return Fitted(model, x[120 : 120 + NUM_NEW], y[120 : 120 + NUM_NEW], modules=[SmallCNN().eval()])


@classifier("paper")
def _(folder: Path) -> Fitted:
    model = GWIClassifier(
        Paper(small_mlp(2, 3), max_epochs=1, batch_size=20), random_state=0, covariance=Covariance(num_inducing=12)
    )
    return Fitted(model.fit(*three_classes()), *new_classes())


@classifier("loader of images")
def _(folder: Path) -> Fitted:
    x, y = images()
    network = trained_cnn(x[:60], y[:60]).float()
    rows, judging = (
        DataLoader(TensorDataset(torch.from_numpy(x[part]), torch.from_numpy(y[part])), batch_size=32)
        for part in (slice(0, 60), slice(60, 120))
    )
    model = GWIClassifier(network, freeze_mean=True, random_state=0, covariance=Covariance(num_inducing=12)).fit(
        rows, validation=judging
    )
    return Fitted(model, x[120 : 120 + NUM_NEW], y[120 : 120 + NUM_NEW], modules=[SmallCNN().eval()])


# What is asked of a fit


def outcome(case: Case) -> Outcome:
    """Fit, and ask for everything."""
    with repeatable(), tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = case(Path(folder))
        given = [str(w.message) for w in caught if issubclass(w.category, gwi.exceptions.GWIWarning | JitterWarning)]
        warnings.simplefilter("ignore")
        found = answers(fitted)
        if fitted.is_saved:
            fitted.model.save(Path(folder) / "model.gwi")
            loaded = gwi.load(Path(folder) / "model.gwi", module=fitted.modules)
            again = predictions(loaded, fitted.x).numbers
            differing = sorted(name for name in again if found.numbers[name].tobytes() != again[name].tobytes())
            found.texts["loaded"] = f"differs in {differing}" if differing else "predicts the same bits"
            found.texts["loaded summary"] = str(str(loaded.summary_) == str(fitted.model.summary_))
        for name, value in fitted.more.items():
            found.add_mixed(name, value) if isinstance(value, str) else found.add(name, value)
    found.texts["summary"] = without_seconds(str(fitted.model.summary_))
    found.texts["warnings"] = "\n".join(given)
    return found


def answers(fitted: Fitted) -> Outcome:
    """Everything that a fitted model says of the rows and of their targets."""
    model, x, y = fitted.model, fitted.x, fitted.y
    found = predictions(model, x)
    found.add("nll", model.nll(x, y))
    found.add("score", np.float64(model.score(x, y)))
    if isinstance(model, GWIRegressor) and fitted.is_saved:
        diagnosis = gwi.diagnose(model, x, y)
        found.texts["diagnosis"] = " ".join(finding.kind for finding in diagnosis.findings)
        found.add("measures", np.array([value for _, value in diagnosis.measures]))
    return found


def predictions(model: GWIRegressor | GWIClassifier, x: Any) -> Outcome:
    """Everything that a fitted model says of the rows."""
    found = Outcome()
    if isinstance(model, GWIClassifier):
        found.add("labels", model.predict(x))
        found.add("probabilities", model.predict_proba(x))
        found.add("energy", model.ood_score(x, energy=True))
    else:
        mean, std = model.predict(x, return_std=True)
        found.add("mean", mean)
        found.add("std", std)
        found.add("covariance", model.predict(x[:4], return_cov=True)[1])
        found.add("interval", model.predict_interval(x, coverage=0.9))
        found.add("quantiles", model.predict_quantiles(x, (0.1, 0.5, 0.975)))
        found.add("sample", model.sample_y(x, n_samples=2, random_state=3))
        law = model.posterior(x[:4])
        found.add("posterior mean", law.mean)
        found.add("posterior covariance", law.covariance_matrix)
        found.add("tempering", model.tempering_factor_)
    parts = model.decompose(x)
    for name in sorted(vars(parts)):
        found.add(f"part {name}", getattr(parts, name))
    found.add("unknown", model.ood_score(x))
    return found
