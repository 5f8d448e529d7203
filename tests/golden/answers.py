"""All that is asked of a fit."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

import gwi
from gwi import GWIClassifier, GWIRegressor
from gwi.exceptions import GWIWarning, JitterWarning

from .content import Outcome, repeatable, without_seconds


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


def outcome(case: Case) -> Outcome:
    """Fit, and ask for everything."""
    with repeatable(), tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = case(Path(folder))
        given = [str(w.message) for w in caught if issubclass(w.category, GWIWarning | JitterWarning)]
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
