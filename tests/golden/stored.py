"""Model files that later versions must read: what each was fitted to, and what it predicts."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from torch import nn

import gwi
from gwi import GWIClassifier, GWIRegressor
from gwi.parts import Covariance

from . import commands
from .answers import Fitted, predictions
from .classifier_cases import frozen_images
from .content import Outcome, repeatable
from .data import SmallCNN, boosting, extra_trees, new_classes, new_numbers, numbers, three_classes
from .regressor_cases import judged_by_others

TABLE_MODEL = "table"


def _stack() -> GWIRegressor | GWIClassifier:
    # Judged by other rows there are two networks; by folds there would be ten, and a large file.
    return judged_by_others(["svgp", "network", boosting(), extra_trees()]).model


def _features() -> Fitted:
    # In float64: another processor evaluates a network in float32 to seven digits only.
    return frozen_images(torch.float64)


def _class_stack() -> GWIClassifier:
    means = [
        "svgp",
        "linear",
        HistGradientBoostingClassifier(max_iter=6, max_leaf_nodes=5, min_samples_leaf=5),
        ExtraTreesClassifier(4, max_leaf_nodes=12),
        LogisticRegression(),
    ]
    return GWIClassifier(means, random_state=0, covariance=Covariance(num_inducing=15)).fit(*three_classes(60))


MODELS: dict[str, tuple[Callable[[], GWIRegressor | GWIClassifier], Callable[[], Any], list[type[nn.Module]]]] = {
    "regressor-stack": (_stack, lambda: new_numbers()[0], []),
    "regressor-svgp": (
        lambda: GWIRegressor("svgp", random_state=0, covariance=Covariance(num_inducing=20)).fit(*numbers(60)),
        lambda: new_numbers()[0],
        [],
    ),
    "classifier-features": (lambda: _features().model, lambda: _features().x, [SmallCNN]),
    "classifier-stack": (_class_stack, lambda: new_classes()[0], []),
}
NAMES = (*MODELS, TABLE_MODEL)


def write(folder: Path) -> dict[str, Outcome]:
    """Fit all, write their files, and what they predict at which rows."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, (fit, rows, _) in MODELS.items():
        with repeatable(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model, x = fit(), rows()
            model.save(folder / f"{name}.gwi", overwrite=True)
            found[name] = _without_draws(predictions(model, x))
            found[name].add("input", np.asarray(x, dtype=np.float64))
    with repeatable(), tempfile.TemporaryDirectory() as place:
        shell = commands.Shell(Path(place))
        commands.write_csv(shell.folder / "rows.csv", commands.mixed())
        code, _, err = shell.say("fit", "rows.csv", "-t", "price", "-o", "m.gwi", "--holdout", "0", "-q")
        assert code == 0, err
        shutil.copy(shell.folder / "m.gwi", folder / f"{TABLE_MODEL}.gwi")
    found[TABLE_MODEL] = predicted(folder, TABLE_MODEL, Outcome())
    return found


def predicted(folder: Path, name: str, recorded: Outcome) -> Outcome:
    """What a stored model predicts now, at the rows of the record.

    Args:
        folder: of the files.
        name: of the model.
        recorded: holds the rows; the command's model has a table of its own.
    """
    with repeatable(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name == TABLE_MODEL:
            with tempfile.TemporaryDirectory() as place:
                shell = commands.Shell(Path(place))
                shutil.copy(folder / f"{name}.gwi", shell.folder / "m.gwi")
                commands.write_csv(shell.folder / "new.csv", commands.mixed(9, seed=1))
                shell("predict", "m.gwi", "new.csv", "-o", "p.csv", "-q")
                shell("evaluate", "m.gwi", "new.csv", "--json", "-q")
            return shell.found
        x = recorded.numbers["input"]
        modules = [module().double().eval() for module in MODELS[name][2]]
        model = gwi.load(folder / f"{name}.gwi", module=modules)
        found = _without_draws(predictions(model, x))
    found.add("input", x)
    return found


def _without_draws(found: Outcome) -> Outcome:
    found.numbers.pop("sample", None)
    return found
