"""Pipelines as plain numbers and text predict what scikit-learn's do."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn import preprocessing as pre
from sklearn.compose import ColumnTransformer, make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline

from gwi import GWIRegressor, load
from gwi.exceptions import UserError
from gwi.tables.pipelines import PlainPipeline, checked_steps, plain_steps
from gwi.tables.transformer import TableEncoder


def frame(num_rows=80, seed=0):
    rng = np.random.default_rng(seed)
    found = pd.DataFrame(
        {
            "a": rng.normal(5.0, 2.0, num_rows),
            "b": rng.integers(0, 9, num_rows),
            "town": rng.choice(["Ulm", "Bonn", "Jena"], num_rows),
            "floor": pd.Categorical(rng.choice(["low", "high"], num_rows)),
            "lift": rng.random(num_rows) < 0.5,
        }
    )
    found.loc[::7, "a"] = np.nan
    found.loc[::11, "town"] = np.nan
    return found


def with_none(frame):
    """Missing text as pandas below 3 has it, which scikit-learn takes for a value."""
    return frame.assign(town=frame["town"].astype(object).where(frame["town"].notna(), None))


def with_both(frame):
    return with_none(frame).assign(town=lambda f: f["town"].where(np.arange(len(f)) % 22 > 0, np.nan))


filled = make_pipeline(SimpleImputer(strategy="median"), pre.RobustScaler())
text = make_pipeline(SimpleImputer(strategy="most_frequent"), pre.OneHotEncoder(drop="first", handle_unknown="ignore"))
STEPS = {
    "names": make_column_transformer((filled, ["a", "b"]), (text, ["town"]), (pre.OneHotEncoder(), ["floor"])),
    "numbers of columns": ColumnTransformer([("x", filled, [0, -1]), ("rest", "passthrough", [1])]),
    "selectors": make_column_transformer(
        (filled, make_column_selector(dtype_include="number")), (text, make_column_selector(pattern="town|floor"))
    ),
    "a slice": make_column_transformer((filled, slice("a", "b")), remainder="drop"),
    "the rest as it is": make_column_transformer((text, ["town", "floor"]), (filled, ["a"]), remainder="passthrough"),
    "places of values": make_column_transformer(
        (pre.OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-2), ["town", "floor"]),
        (make_pipeline(SimpleImputer(), pre.MinMaxScaler(clip=True)), ["a", "b"]),
    ),
    "scalers in turn": make_pipeline(
        make_column_transformer((SimpleImputer(strategy="constant", fill_value=3.0), ["a", "b"])),
        pre.StandardScaler(with_mean=False),
        pre.MaxAbsScaler(),
        pre.StandardScaler(),
    ),
    "a part without columns": make_column_transformer(
        (text, make_column_selector(pattern="none of them")), (filled, ["a", "b"]), (pre.OneHotEncoder(), [])
    ),
    "our encoder": TableEncoder(),
}


@pytest.mark.parametrize(
    ("name", "as_library"),
    [
        *((name, pd.DataFrame) for name in STEPS),
        *((name, kind) for name in ("names", "the rest as it is", "places of values") for kind in (with_none, pl.from_pandas)),
    ],
)
def test_steps_give_what_scikit_learn_gives_after_a_way_through_json(name, as_library):
    train, new, y = as_library(frame()), as_library(frame(30, seed=1)), np.arange(80.0)
    pipeline = make_pipeline(STEPS[name], LinearRegression()).fit(train, y)
    names = list(train.columns)
    steps = checked_steps(json.loads(json.dumps(plain_steps(pipeline, names), allow_nan=False)))
    plain = PlainPipeline(tuple(names), steps, pipeline.steps[-1][1])
    np.testing.assert_allclose(plain.predict(new), pipeline.predict(new), rtol=1e-10, atol=1e-10)


def test_encoders_of_none_and_nan_at_once_cannot_be_held():
    train = with_both(frame())
    pipeline = make_pipeline(make_column_transformer((pre.OneHotEncoder(), ["town"])), LinearRegression())
    assert plain_steps(pipeline.fit(train, np.arange(80.0)), list(train.columns)) is None


@pytest.mark.parametrize("encoder", [pre.OneHotEncoder(), pre.OrdinalEncoder(encoded_missing_value=-9)])
@pytest.mark.parametrize("fitted_as", [pd.DataFrame, with_none, pl.from_pandas])
def test_missing_cells_are_those_of_the_fit_in_frames_of_any_kind_and_after_load(encoder, fitted_as, tmp_path):
    columns = make_column_transformer((encoder, ["town"]), (SimpleImputer(), ["a"]))
    train = frame().assign(y=lambda f: f["a"].fillna(5) + 4.0 * f["town"].isna())
    rows, y = train.drop(columns="y"), train["y"].to_numpy()
    mean = make_pipeline(columns, HistGradientBoostingRegressor(max_iter=20, random_state=0))
    model = GWIRegressor(mean, random_state=0).fit(fitted_as(rows), y)
    loaded = load(model.save(tmp_path / "model.gwi"))
    wanted = np.asarray(model.predict(fitted_as(rows)))
    for as_library in (pd.DataFrame, with_none, with_both, pl.from_pandas, lambda f: pl.from_pandas(f).to_arrow()):
        for fitted in (model, loaded):
            np.testing.assert_allclose(np.asarray(fitted.predict(as_library(rows))), wanted, rtol=1e-12)


def test_missing_and_new_values_go_through_trees_as_they_do_in_scikit_learn():
    ordinal = pre.OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan)
    columns = make_column_transformer((ordinal, ["town", "floor"]), ("passthrough", ["a", "b", "lift"]))
    train, new = frame(), frame(30, seed=1).replace({"town": {"Ulm": "Oslo"}})
    pipeline = make_pipeline(columns, HistGradientBoostingRegressor(max_iter=20)).fit(train, np.arange(80.0))
    plain = PlainPipeline(tuple(train.columns), plain_steps(pipeline, list(train.columns)), pipeline.steps[-1][1])
    np.testing.assert_array_equal(plain.predict(new), pipeline.predict(new))


def test_a_strict_encoder_refuses_new_values():
    train = frame().fillna({"town": "Ulm"})
    pipeline = make_pipeline(make_column_transformer((pre.OneHotEncoder(), ["town"])), LinearRegression())
    pipeline.fit(train, np.arange(80.0))
    plain = PlainPipeline(tuple(train.columns), plain_steps(pipeline, list(train.columns)), pipeline.steps[-1][1])
    with pytest.raises(UserError, match="'Oslo'"):
        plain.predict(train.assign(town="Oslo"))


@pytest.mark.parametrize(
    "step",
    [
        SelectKBest(k=1),
        pre.FunctionTransformer(np.log1p),
        SimpleImputer(add_indicator=True),
        pre.OneHotEncoder(min_frequency=2),
        pre.PolynomialFeatures(),
    ],
    ids=lambda step: type(step).__name__,
)
def test_steps_that_cannot_be_held_are_none(step):
    train = frame()[["a", "b"]].fillna(1.0)
    pipeline = make_pipeline(step, LinearRegression()).fit(train, np.arange(80.0))
    assert plain_steps(pipeline, ["a", "b"]) is None


@pytest.mark.parametrize("steps", [None, "fill", [{"step": "run"}], [{"step": "in turn", "steps": [{"step": "eval"}]}], [3]])
def test_steps_of_a_file_are_of_known_kinds(steps):
    with pytest.raises(ValueError, match="unknown kind"):
        checked_steps(steps)
