"""Gaussian Wasserstein inference in function space: honest uncertainty for any predictor.

`core` is the paper, `fitting` how a fit is made (start at `fitting.pipeline`), `estimators` the front door;
`docs/architecture.md` shows the whole house.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gwi.estimators.bulk import predict_source as predict_source
    from gwi.estimators.bulk import score_source as score_source
    from gwi.estimators.classifier import GWIClassifier as GWIClassifier
    from gwi.estimators.persistence import load as load
    from gwi.estimators.predictor import Predictor as Predictor
    from gwi.estimators.regressor import GWIRegressor as GWIRegressor
    from gwi.evaluation.diagnostics import diagnose as diagnose
    from gwi.parts import Beta as Beta
    from gwi.parts import Censored as Censored
    from gwi.parts import Covariance as Covariance
    from gwi.parts import Features as Features
    from gwi.parts import FewValues as FewValues
    from gwi.parts import Frozen as Frozen
    from gwi.parts import Gamma as Gamma
    from gwi.parts import Gaussian as Gaussian
    from gwi.parts import Joint as Joint
    from gwi.parts import LogNormal as LogNormal
    from gwi.parts import MaxTime as MaxTime
    from gwi.parts import NegativeBinomial as NegativeBinomial
    from gwi.parts import Network as Network
    from gwi.parts import Ordinal as Ordinal
    from gwi.parts import Paper as Paper
    from gwi.parts import Poisson as Poisson
    from gwi.parts import Robust as Robust
    from gwi.parts import RobustMax as RobustMax
    from gwi.parts import StudentT as StudentT
    from gwi.parts import Trained as Trained
    from gwi.report.side_by_side import compare as compare

__version__ = "0.2.0"

_NAMES = {
    "estimators.regressor": ["GWIRegressor"],
    "estimators.classifier": ["GWIClassifier"],
    "estimators.persistence": ["load"],
    "estimators.predictor": ["Predictor"],
    "estimators.bulk": ["predict_source", "score_source"],
    "evaluation.diagnostics": ["diagnose"],
    "report.side_by_side": ["compare"],
    "parts": [
        *("Beta", "Censored", "FewValues", "Gamma", "Gaussian", "LogNormal", "NegativeBinomial", "Ordinal", "Poisson"),
        *("Robust", "RobustMax", "StudentT"),
        *("Covariance", "Features", "Frozen", "Joint", "MaxTime", "Network", "Paper", "Trained"),
    ],
}
_HOMES = {name: f"gwi.{module}" for module, names in _NAMES.items() for name in names}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """A public name or a package, on first use: torch takes seconds to import, and `gwi --help` does without it."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if not name.startswith("_") and find_spec(f"gwi.{name}") is not None:
        return import_module(f"gwi.{name}")
    raise AttributeError(f"module 'gwi' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
