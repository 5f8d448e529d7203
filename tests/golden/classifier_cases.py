"""Small classifications of every kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from sklearn.datasets import load_iris, load_wine
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import gwi
from gwi import GWIClassifier
from gwi.parts import Covariance, Features, Frozen, Joint, Paper, RobustMax

from .answers import Case, Fitted
from .data import NUM_NEW, SmallCNN, images, new_classes, parquet, small_mlp, three_classes, trained, trained_cnn

CLASSIFIERS: dict[str, Case] = {}


def classifier(name: str) -> Callable[[Case], Case]:
    """Enter a case among the classifiers."""
    return lambda case: CLASSIFIERS.setdefault(name, case)


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
    path, new = parquet(folder / "rows.parquet", x[:70], y[:70]), parquet(folder / "new.parquet", x[70:], y[70:])
    model = GWIClassifier(["svgp", "linear"], random_state=0).fit(path, "y")
    written = pq.read_table(gwi.predict_source(model, new, folder / "predicted.parquet"))
    more: dict[str, Any] = {f"predict_source {name}": np.asarray(written[name]) for name in written.column_names}
    return Fitted(model, x[70:], y[70:], more=more | {"score_source": str(gwi.score_source(model, new, "y"))})


@classifier("frozen table network")
def _(folder: Path) -> Fitted:
    return _frozen_on_table(correct=False)


@classifier("frozen table network, corrected")
def _(folder: Path) -> Fitted:
    return _frozen_on_table(correct=True)


def _frozen_on_table(correct: bool) -> Fitted:
    x, y = three_classes(300)
    labels = torch.from_numpy(np.unique(y, return_inverse=True)[1])
    # Too few steps to be right, so that there is something to correct.
    network = trained(small_mlp(2, 3), x[:50], labels[:50], nn.functional.cross_entropy, num_steps=10)
    model = GWIClassifier(Frozen(network, correct=correct), random_state=0, covariance=Covariance(num_inducing=20))
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
    model = GWIClassifier(network, random_state=0, covariance=Covariance(num_inducing=12)).fit(rows, validation=judging)
    return Fitted(model, x[120 : 120 + NUM_NEW], y[120 : 120 + NUM_NEW], modules=[SmallCNN().eval()])
