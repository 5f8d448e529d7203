"""Fitted models in MLflow: saved, logged, registered and loaded as a pyfunc, around the model file and without pickle."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gwi import __version__
from gwi._extras import require
from gwi.estimators.bulk import names_in_frames
from gwi.estimators.classifier import GWIClassifier
from gwi.estimators.columns import takes_tables
from gwi.estimators.persistence import load
from gwi.estimators.predictor import Predictor
from gwi.estimators.regressor import GWIRegressor

require("mlflow", "gwi.mlflow")
import mlflow  # noqa: E402
from mlflow import pyfunc  # noqa: E402
from mlflow.models import Model, ModelSignature  # noqa: E402
from mlflow.tracking.artifact_utils import _download_artifact_from_uri  # noqa: E402
from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema, TensorSpec  # noqa: E402
from mlflow.types.schema import AnyType  # noqa: E402

FLAVOR, FILE = "gwi", "model.gwi"
# Written beside the file, as MLflow has them.
_REQUIREMENTS, _PYTHON = "requirements.txt", "python_env.yaml"

Estimator = GWIRegressor | GWIClassifier


def save_model(
    model: Estimator | str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    mlflow_model: Model | None = None,
    signature: ModelSignature | None = None,
    metadata: dict[str, Any] | None = None,
    pip_requirements: Sequence[str] | None = None,
) -> None:
    """Write a folder that MLflow takes for a model.

    Args:
        model: fitted, or the file of one.
        path: of the folder, which does not exist yet or is empty.
        mlflow_model: as MLflow's own `log_model` hands it on.
        signature: `signature_of(model)` unless given.
        metadata: of your own.
        pip_requirements: of the place where it will predict; this version of gwi unless given.
    """
    folder = Path(path)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{folder} exists and is not empty; give the name of a new folder.")
    fitted = load(model) if isinstance(model, str | os.PathLike) else model
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(model, str | os.PathLike):
        shutil.copyfile(model, folder / FILE)
    else:
        fitted.save(folder / FILE)
    found = Model() if mlflow_model is None else mlflow_model
    found.signature = signature_of(fitted) if signature is None else signature
    if metadata is not None:
        found.metadata = metadata
    # No conda environment: two small files say the same.
    pyfunc.add_to_model(found, loader_module="gwi.mlflow", data=FILE, python_env=_PYTHON)
    found.add_flavor(FLAVOR, gwi_version=__version__, data=FILE, task=_task(fitted))
    found.save(str(folder / "MLmodel"))
    usual = [f"gwi[mlflow]=={__version__}", f"mlflow-skinny=={mlflow.__version__}"]
    wanted = usual if pip_requirements is None else pip_requirements
    (folder / _REQUIREMENTS).write_text("".join(f"{line}\n" for line in wanted))
    python = f"python: {platform.python_version()}\nbuild_dependencies:\n- pip\ndependencies:\n- -r {_REQUIREMENTS}\n"
    (folder / _PYTHON).write_text(python)


def log_model(model: Estimator | str | os.PathLike[str], name: str = "model", **options: Any) -> Any:
    """Log a model to the active run, or to a new one.

    Args:
        model: fitted, or the file of one.
        name: of the model in the run.
        options: of `save_model`, and of `mlflow.models.Model.log`, such as ``registered_model_name``.
    """
    from gwi import mlflow as flavor

    return Model.log(artifact_path=None, flavor=flavor, name=name, model=model, **options)


def load_model(model_uri: str | os.PathLike[str], dst_path: str | None = None) -> Estimator:
    """The estimator that was saved or logged; it predicts what the saved one did, bit for bit on the same machine.

    Args:
        model_uri: a folder, ``runs:/…``, ``models:/…``.
        dst_path: where files from elsewhere go.
    """
    folder = Path(_download_artifact_from_uri(artifact_uri=str(model_uri), output_path=dst_path))
    flavors = Model.load(str(folder / "MLmodel")).flavors
    if FLAVOR not in flavors:
        raise ValueError(
            f"{model_uri} holds {', '.join(flavors) or 'no model'}; gwi.mlflow.load_model takes what save_model wrote."
        )
    return load(folder / FILE)


def signature_of(model: Estimator) -> ModelSignature:
    """Columns in, columns out, and the parameters coverage, quantiles and times.

    Columns of tables are of any type to MLflow, which would refuse whole numbers where it was told of decimals; the model itself
    refuses a cell that is not what its column holds, and says which. Of a model of an array it says nothing of the rows: told of
    an array, MLflow would take the columns of a frame by their places, where another order goes unnoticed.
    """
    inputs: Schema | None
    if hasattr(model, "encoder_") or model.frame_predictors_:
        inputs = Schema([ColSpec(AnyType(), name, required=True) for name in names_in_frames(model)])
    elif hasattr(model, "feature_names_in_"):
        inputs = Schema([ColSpec(AnyType(), name, required=True) for name in model.feature_names_in_.tolist()])
    elif takes_tables(model):
        inputs = None
    else:
        inputs = Schema([TensorSpec(np.dtype(np.float64), (-1, *model.model_.embedding.shape))])
    parameters = [
        ParamSpec("coverage", DataType.double, 0.95),
        ParamSpec("quantiles", DataType.double, [], (-1,)),
        ParamSpec("times", DataType.double, [], (-1,)),
    ]
    return ModelSignature(inputs=inputs, params=ParamSchema(parameters))


def _task(model: Estimator) -> str:
    return str(model._kind)


class _Predictions:
    """What MLflow asks of a loaded model."""

    def __init__(self, path: Path):
        self._path, self._model = path, load(path)

    def predict(self, data: Any, params: dict[str, Any] | None = None) -> Any:
        """Columns of predictions, as `Predictor` gives them, as a data frame of the library that the rows came in.

        Args:
            data: rows.
            params: coverage, quantiles, times.
        """
        asked = {name: value for name, value in (params or {}).items() if np.size(value)}
        predictor = Predictor(self._path, **asked)
        predictor._model = self._model
        return predictor(data)


def _load_pyfunc(path: str) -> _Predictions:
    """For MLflow, by its name."""
    return _Predictions(Path(path))
