"""A model file that predicts: frame in, frame out, wherever a function of a frame is wanted."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from gwi._extras import require
from gwi.estimators.classifier import GWIClassifier
from gwi.estimators.columns import takes_tables
from gwi.estimators.persistence import load
from gwi.estimators.regressor import GWIRegressor
from gwi.tables.addresses import as_path
from gwi.tables.forms import library_of
from gwi.tables.frames import frame_table, is_frame, is_pandas


class Predictor:
    """Predictions of a saved model as a data frame of the library that the rows came in.

    Columns are found by name; those of a model that was fitted to an array are called x0, x1, and so on, and arrays are taken by
    place. The file is read at the first call. A pickled predictor holds its path and options only, so that it can be sent to
    other processes, such as those of Spark, Dask or Ray, which have the file too.

    | column | is |
    | --- | --- |
    | prediction | the mean, or the most probable class or level |
    | std, lower, upper | of numbers: standard deviation, and the interval |
    | median, survival_365 | of times to an event: the median, and the probability of none up to each of `times` |
    | quantile_0.9 | of numbers: one for each of `quantiles` |
    | probability_… | of classes, and of levels in order: one for each |
    | epistemic, aleatoric | what more data would cure, and what not: variances, or entropies of classes |
    | ood_score | 0 for rows like those of the fit, 1 far away from all of them |

    Args:
        path: of the model file, or an address such as s3://bucket/model.gwi.
        coverage: of the interval from lower to upper.
        quantiles: levels between 0 and 1.
        times: of times to an event.
        device: where tensors go.

    Examples:
        >>> import pathlib
        >>> import tempfile
        >>> import pandas as pd
        >>> import gwi
        >>> rents = pd.DataFrame({"rooms": [1, 2, 2, 3, 3, 4, 4, 5, 5, 6], "rent": [41, 56, 64, 75, 82, 98, 94, 121, 115, 142]})
        >>> model = gwi.GWIRegressor("linear", random_state=0).fit(rents[["rooms"]], rents["rent"])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = model.save(pathlib.Path(folder) / "rent.gwi")
        ...     predict = gwi.Predictor(pathlib.Path(folder) / "rent.gwi", quantiles=[0.1, 0.9])
        ...     table = predict(rents[["rooms"]])
        >>> list(table.columns)
        ['prediction', 'std', 'lower', 'upper', 'quantile_0.1', 'quantile_0.9', 'epistemic', 'aleatoric', 'ood_score']
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        coverage: float = 0.95,
        quantiles: Sequence[float] = (),
        times: Sequence[float] = (),
        device: str = "cpu",
    ):
        if not all(0 < level < 1 for level in (coverage, *quantiles)):
            raise ValueError(f"coverage and quantiles must be strictly between 0 and 1; got {coverage} and {tuple(quantiles)}.")
        self.path, self.coverage, self.quantiles, self.device = as_path(path), float(coverage), tuple(quantiles), device
        self.times = tuple(times)
        self._model: GWIRegressor | GWIClassifier | None = None

    @property
    def model(self) -> GWIRegressor | GWIClassifier:
        """The estimator in the file."""
        if self._model is None:
            self._model = load(self.path, device=self.device)
        return self._model

    def __call__(self, X: Any) -> Any:
        """A frame with one row for each row of X; of an array a table of Arrow."""
        columns = self.columns(X)
        if is_frame(X) and library_of(X) == "pandas" and is_pandas(X):
            return type(X)(columns, index=X.index)
        if is_frame(X) and library_of(X) == "polars":
            import polars

            return polars.DataFrame(columns)
        require("files", "The table that a Predictor makes of predictions for an array")
        import pyarrow as pa

        return pa.table({name: np.asarray(values) for name, values in columns.items()})

    def columns(self, X: Any) -> dict[str, Any]:
        """The columns by name."""
        asked: dict[str, Any] = {"times": self.times} if self.times else {}
        names_nothing = not hasattr(self.model, "feature_names_in_") and takes_tables(self.model)
        # By the names that the command asks for, not by place, where nobody would notice another order.
        rows = frame_table(X) if names_nothing and is_frame(X) else X
        return self.model.predict_columns(rows, self.coverage, quantiles=self.quantiles, parts=True, **asked)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_model": None}

    def __repr__(self) -> str:
        return f"Predictor({str(self.path)!r}, coverage={self.coverage:g}, quantiles={self.quantiles})"
