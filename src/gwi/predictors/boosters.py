"""Native boosters of LightGBM, XGBoost and CatBoost: asked for frames, and kept as their own formats, which run no code."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from gwi.exceptions import ModelFileError

# The most bytes of one booster that a file is asked for.
MOST_BYTES = 1 << 31


@dataclass(frozen=True, eq=False)
class Booster:
    """A native booster with the methods of scikit-learn.

    Attributes:
        library: its own.
        native: the booster.
        classes_: labels; None where it predicts numbers.
    """

    library: str
    native: Any
    classes_: NDArray[Any] | None = None

    def predict(self, X: Any) -> NDArray[Any]:
        """What it gives at each row: numbers, or probabilities of classes."""
        return np.asarray(_ASK[self.library](self.native, X), dtype=np.float64)

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Of each class; of two classes boosters give that of the second."""
        values = self.predict(X)
        return np.column_stack([1 - values, values]) if values.ndim == 1 else values

    def content(self) -> bytes:
        """In its own format: LightGBM's text, XGBoost's UBJ, CatBoost's binary."""
        return _CONTENT[self.library](self.native)


def booster_of(model: Any) -> Booster | None:
    """A fitted model of one of the libraries as its booster; None for any other."""
    library = library_of(model)
    if library is None:
        return None
    if library == "catboost":
        return Booster(library, model, _labels(model))
    native = getattr(model, "booster_", None) if library == "lightgbm" else None
    native = model.get_booster() if hasattr(model, "get_booster") else model if native is None else native
    if hasattr(model, "fit"):
        return Booster(library, native, _labels(model))
    count = _NUM_CLASSES[library](native)
    return Booster(library, native, None if count is None else np.arange(count))


def library_of(model: Any) -> str | None:
    """Which of the libraries a model is of; None where of none."""
    first = type(model).__module__.partition(".")[0]
    return first if first in _ASK and hasattr(model, "predict") else None


def is_fitted(model: Any) -> bool:
    """Whether an object predicts already: what cannot be fitted does."""
    if not hasattr(model, "fit"):
        return True
    if callable(getattr(model, "is_fitted", None)):
        return bool(model.is_fitted())
    try:
        check_is_fitted(model)
    except NotFittedError:
        return False
    except TypeError:
        return True
    return True


def booster_from(library: str, content: bytes, classes: NDArray[Any] | None) -> Booster:
    """The booster that was kept.

    Raises:
        ModelFileError: when its library is not installed, or cannot read it.
    """
    try:
        native = _READ[library](content)
    except ImportError:
        raise ModelFileError(f"The model holds a booster of {library}, which is not installed here; install {library}.") from None
    except Exception as error:
        # Each library has errors of its own, and some raise none of Python's.
        first = str(error).strip().split("\n")[0][:100]
        raise ModelFileError(f"{library} cannot read the booster in the file ({first}); save the model again.") from error
    return Booster(library, native, classes)


def version_of(library: str) -> str:
    """The version that is installed."""
    return str(import_module(library).__version__)


def _labels(model: Any) -> NDArray[Any] | None:
    """Of a classifier; None of a regressor, also of CatBoost's, which has an empty list of them."""
    is_one = hasattr(model, "predict_proba") or getattr(model, "_estimator_type", "") == "classifier"
    labels = getattr(model, "classes_", None) if is_one else None
    return None if labels is None or len(labels) == 0 else np.asarray(labels)


def _ask_xgboost(native: Any, X: Any) -> Any:
    import xgboost

    best = native.attr("best_iteration")
    rounds = (0, 0) if best is None else (0, int(best) + 1)
    return native.predict(xgboost.DMatrix(X, enable_categorical=True), iteration_range=rounds)


def _ask_catboost(native: Any, X: Any) -> Any:
    return native.predict_proba(X) if _labels(native) is not None else native.predict(X)


def _read_lightgbm(content: bytes) -> Any:
    import lightgbm

    return lightgbm.Booster(model_str=content.decode())


def _read_xgboost(content: bytes) -> Any:
    import xgboost

    native = xgboost.Booster()
    native.load_model(bytearray(content))
    return native


def _read_catboost(content: bytes) -> Any:
    import catboost

    native = catboost.CatBoost()
    native.load_model(blob=content)
    kind = catboost.CatBoostRegressor if not len(native.classes_) else catboost.CatBoostClassifier
    model = kind()
    model.load_model(blob=content)
    return model


def _content_of_catboost(native: Any) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.cbm"
        native.save_model(str(path), format="cbm")
        return path.read_bytes()


def _classes_of_lightgbm(native: Any) -> int | None:
    objective = str(native.params.get("objective", "")) or str(native.dump_model(num_iteration=1).get("objective", ""))
    return 2 if objective.startswith("binary") else native.num_model_per_iteration() if "multiclass" in objective else None


def _classes_of_xgboost(native: Any) -> int | None:
    learner = json.loads(native.save_config())["learner"]
    objective = str(learner["objective"]["name"])
    if objective == "multi:softprob":
        return int(learner["learner_model_param"]["num_class"])
    return 2 if objective == "binary:logistic" else None


_ASK: dict[str, Callable[[Any, Any], Any]] = {
    "lightgbm": lambda native, X: native.predict(X),
    "xgboost": _ask_xgboost,
    "catboost": _ask_catboost,
}
_CONTENT: dict[str, Callable[[Any], bytes]] = {
    "lightgbm": lambda native: native.model_to_string().encode(),
    "xgboost": lambda native: bytes(native.save_raw("ubj")),
    "catboost": _content_of_catboost,
}
_READ: dict[str, Callable[[bytes], Any]] = {"lightgbm": _read_lightgbm, "xgboost": _read_xgboost, "catboost": _read_catboost}
_NUM_CLASSES: dict[str, Callable[[Any], int | None]] = {"lightgbm": _classes_of_lightgbm, "xgboost": _classes_of_xgboost}
