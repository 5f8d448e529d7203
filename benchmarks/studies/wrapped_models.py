"""Ten fitted models on tables of text, numbers and missing cells, each wrapped as it is: is the mean its own, do intervals hold?

    pip install -e .[boosters]
    python -m benchmarks.studies.wrapped_models

writes results/wrapped_models.csv: for frames of pandas, polars and Arrow the largest relative difference of the mean from the
model's own prediction; the share of test rows in 95 % intervals, and whether a saved file predicts the same. Ames, 5,000 diamonds
and 5,000 rows of storms, whose rows are set apart by name: half to learn from, a quarter unseen, a quarter to test. A run that
was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import torch
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

import gwi
from benchmarks.studies.mixed_tables import as_categories, as_text, frame_of
from benchmarks.tables.common.records import append, read
from gwi import GWIRegressor
from gwi._typing import Array
from gwi.exceptions import UnsavableError

TABLES = ("ames", "diamonds", "storms")
MOST_ROWS, NUM_TREES = 5000, 200
LIBRARIES: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "Arrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
}


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    done = {(r["table"], r["model"]) for r in read("wrapped_models")}
    for table in TABLES:
        frame, y, groups = frame_of(table, MOST_ROWS)
        frame = frame.assign(**{name: frame[name].fillna("missing") for name in text_of(frame)})
        train, unseen, test = parts(len(frame), groups)
        for name, fit in MODELS.items():
            if (table, name) not in done:
                found = measure(fit, frame, y, (train, unseen, test))
                append("wrapped_models", [{"table": table, "model": name, **found}])
                print(table, name, found, flush=True)


def text_of(frame: pd.DataFrame) -> list[str]:
    """Columns that are no numbers."""
    return [name for name in frame if not pd.api.types.is_numeric_dtype(frame[name])]


def parts(num_rows: int, groups: Any) -> tuple[Any, Any, Any]:
    """Half, a quarter and a quarter of the rows, or of the groups."""
    units = np.arange(num_rows) if groups is None else np.unique(groups, return_inverse=True)[1]
    order = np.random.default_rng(0).permutation(units.max() + 1)
    place = np.argsort(order)[units] / len(order)
    return np.flatnonzero(place < 0.5), np.flatnonzero((place >= 0.5) & (place < 0.75)), np.flatnonzero(place >= 0.75)


def measure(fit: Any, frame: pd.DataFrame, y: Array, rows: tuple[Any, Any, Any]) -> dict[str, Any]:
    """What a wrapped model does on one table."""
    learned, unseen, test = (frame.iloc[part].reset_index(drop=True) for part in rows)
    y_learned, y_unseen, y_test = (y[part] for part in rows)
    model, own = fit(learned, y_learned)
    wanted, worst, held, same = own(test), 0.0, 0.0, ""
    for library, of in LIBRARIES.items():
        wrapped = GWIRegressor(model, random_state=0).fit(of(learned), y_learned, validation=(of(unseen), y_unseen))
        found = wrapped.predict(of(test))
        worst = max(worst, float(np.abs(found / wanted - 1).max()))
        if library == "pandas":
            low, high = wrapped.predict_interval(of(test)).T
            held = float(np.mean((low <= y_test) & (y_test <= high)))
            same = saved(wrapped, test, found)
    return {"num_test": len(test), "relative_difference": worst, "coverage_95": held, "saved": same}


def saved(model: GWIRegressor, test: pd.DataFrame, wanted: Array) -> str:
    """The largest relative difference of what a file predicts, or that there is none."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            loaded = gwi.load(model.save(Path(folder) / "model.gwi"))
        except UnsavableError:
            return "no"
        return f"{float(np.abs(loaded.predict(test) / wanted - 1).max()):.1g}"


def columns(codes: bool = False) -> Any:
    """Text as columns of zeros and ones, or as places; numbers filled and scaled."""
    ordinal = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    text = ordinal if codes else OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    numbers = SimpleImputer() if codes else make_pipeline(SimpleImputer(), StandardScaler())
    number = make_column_selector(dtype_include="number")
    return make_column_transformer((text, make_column_selector(dtype_exclude="number")), (numbers, number))


def of_pipeline(last: Any, codes: bool = False) -> Any:
    """A pipeline of scikit-learn's."""

    def fit(frame: pd.DataFrame, y: Array) -> tuple[Any, Any]:
        model: Pipeline = make_pipeline(columns(codes), last).fit(frame, y)
        return model, model.predict

    return fit


def of_categories(make: Callable[[], Any]) -> Any:
    """A booster that was fitted on categories, and is asked with text."""

    def fit(frame: pd.DataFrame, y: Array) -> tuple[Any, Any]:
        model = make().fit(as_categories(frame, frame), y)
        return model, lambda new: np.asarray(model.predict(as_categories(new, frame)), dtype=np.float64)

    return fit


def lightgbm() -> Any:
    import lightgbm as lgb

    return lgb.LGBMRegressor(n_estimators=NUM_TREES, verbose=-1, n_jobs=1)


def xgboost() -> Any:
    import xgboost as xgb

    return xgb.XGBRegressor(n_estimators=NUM_TREES, learning_rate=0.1, max_depth=5, enable_categorical=True, n_jobs=1)


def histogram() -> Any:
    return HistGradientBoostingRegressor(categorical_features="from_dtype", max_iter=NUM_TREES)


def catboost(frame: pd.DataFrame, y: Array) -> tuple[Any, Any]:
    """With its own handling of text."""
    from catboost import CatBoostRegressor

    model = CatBoostRegressor(
        NUM_TREES, verbose=False, cat_features=text_of(frame), thread_count=1, allow_writing_files=False
    ).fit(as_text(frame), y)
    return model, lambda new: model.predict(as_text(new))


def native(frame: pd.DataFrame, y: Array) -> tuple[Any, Any]:
    """LightGBM's own booster."""
    import lightgbm as lgb

    model = lgb.train({"verbose": -1, "num_threads": 1}, lgb.Dataset(as_categories(frame, frame), y), NUM_TREES)
    return model, lambda new: model.predict(as_categories(new, frame))


class Embeddings(torch.nn.Module):
    """A network on frames: a vector for each text value, and standardised numbers."""

    def __init__(self, frame: pd.DataFrame, y: Array):
        super().__init__()
        self.text, self.numbers = text_of(frame), [name for name in frame if name not in text_of(frame)]
        self.values = {name: {value: i + 1 for i, value in enumerate(sorted(frame[name].unique()))} for name in self.text}
        self.centre, self.scale = frame[self.numbers].mean(), frame[self.numbers].std() + 1e-9
        self.y_centre, self.y_scale = float(y.mean()), float(y.std())
        self.vectors = torch.nn.ModuleList(torch.nn.Embedding(len(self.values[name]) + 1, 4) for name in self.text)
        size = 4 * len(self.text) + len(self.numbers)
        self.layers = torch.nn.Sequential(torch.nn.Linear(size, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))

    def forward(self, frame: pd.DataFrame) -> torch.Tensor:
        """Standardised values."""
        codes = [torch.tensor([self.values[name].get(value, 0) for value in frame[name]]) for name in self.text]
        numbers = ((frame[self.numbers] - self.centre) / self.scale).fillna(0.0).to_numpy(dtype=np.float32)
        parts = [layer(code) for layer, code in zip(self.vectors, codes, strict=True)]
        return self.layers(torch.cat([*parts, torch.from_numpy(numbers)], 1))[:, 0]


class OfFrames:
    """A trained network with nothing but ``predict``."""

    def __init__(self, network: Embeddings):
        self.network = network

    def predict(self, frame: pd.DataFrame) -> Array:
        """In the target's own units."""
        with torch.no_grad():
            return self.network(frame).double().numpy() * self.network.y_scale + self.network.y_centre


def embeddings(frame: pd.DataFrame, y: Array) -> tuple[Any, Any]:
    """Trained for a few hundred steps on all rows."""
    torch.manual_seed(0)
    network = Embeddings(frame, y)
    target = torch.from_numpy((y - network.y_centre) / network.y_scale).float()
    optimiser = torch.optim.Adam(network.parameters(), 1e-2, weight_decay=1e-4)
    for _ in range(150):
        optimiser.zero_grad()
        torch.nn.functional.mse_loss(network(frame), target).backward()
        optimiser.step()
    model = OfFrames(network)
    return model, model.predict


def function(frame: pd.DataFrame, y: Array) -> tuple[Any, Any]:
    """The average by the values of the first text column, or of thirds of the first number."""
    name = text_of(frame)[0] if text_of(frame) else frame.columns[0]
    averages, whole = pd.Series(y).groupby(frame[name].to_numpy()).mean().to_dict(), float(y.mean())

    def predict(new: Any) -> Array:
        return np.array([averages.get(value, whole) for value in np.asarray(new[name]).tolist()])

    return predict, predict


MODELS: dict[str, Any] = {
    "ridge pipeline": of_pipeline(Ridge()),
    "forest pipeline": of_pipeline(RandomForestRegressor(100, min_samples_leaf=3, random_state=0), codes=True),
    "boosting pipeline": of_pipeline(HistGradientBoostingRegressor(max_iter=NUM_TREES), codes=True),
    "HistGB with categories": of_categories(histogram),
    "LightGBM": of_categories(lightgbm),
    "XGBoost": of_categories(xgboost),
    "CatBoost": catboost,
    "native LightGBM": native,
    "module with embeddings": embeddings,
    "function of a frame": function,
}


if __name__ == "__main__":
    main()
