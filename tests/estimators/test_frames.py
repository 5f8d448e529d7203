"""Estimators take the data frame that people have: text, categories, dates and missing cells, by the names of columns."""

import warnings
from functools import cache

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from gwi import GWIClassifier, GWIRegressor, load, predict_source
from gwi.cli import commands as cli
from gwi.exceptions import GWIWarning, UserError

pytestmark = pytest.mark.unchecked

TOWNS = ("Ulm", "Bonn", "Kiel")


def homes(num_rows=60, seed=0):
    """Rents that depend on the area, the town and the year, with cells missing."""
    rng = np.random.default_rng(seed)
    town = rng.choice(TOWNS, num_rows)
    area = rng.uniform(30, 120, num_rows)
    built = pd.Timestamp("1960-01-01") + pd.to_timedelta(rng.integers(0, 20_000, num_rows), unit="D")
    rent = area / 10 + 3 * (town == "Ulm") + 0.3 * rng.standard_normal(num_rows)
    frame = pd.DataFrame({"area": area, "town": town, "built": built, "lift": rng.random(num_rows) < 0.5})
    frame.loc[rng.random(num_rows) < 0.1, "area"] = np.nan
    frame.loc[rng.random(num_rows) < 0.1, "town"] = None
    return frame, pd.Series(rent, name="rent")


@cache
def of_pandas():
    return GWIRegressor(["svgp", "linear"], likelihood="gaussian", random_state=0).fit(*homes())


KINDS = {"pandas": lambda frame: frame, "polars": pl.from_pandas, "arrow": pa.Table.from_pandas}


@pytest.mark.parametrize("kind", KINDS)
def test_a_regressor_takes_frames_of_every_kind_in_any_order_of_columns(kind):
    X, y = homes()
    model = of_pandas()
    expected = model.predict(X, return_std=True)
    other = clone(model).fit(KINDS[kind](X), y.to_numpy())
    new = KINDS[kind](X[X.columns[::-1]].assign(address="unknown"))
    for fitted in (model, other):
        np.testing.assert_array_equal(fitted.predict(new, return_std=True), expected)
    assert list(model.feature_names_in_) == list(X.columns)
    assert model.n_features_in_ == 4
    known = X["area"].notna() & X["town"].notna()
    assert np.abs(expected[0] - y)[known].mean() < 0.5
    assert model.predict_interval(new).shape == (60, 2)
    assert model.ood_score(new).shape == (60,)
    assert model.decompose(new).total.shape == (60,)
    assert model.posterior(new).mean.shape == (60,)
    assert model.sample_y(new, 2).shape == (60, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_a_classifier_takes_frames_and_labels_of_text(kind):
    X, y = homes()
    label = np.where(y > y.median(), "dear", "cheap")
    model = GWIClassifier(["svgp", "linear"], random_state=0).fit(KINDS[kind](X), label)
    assert model.predict_proba(KINDS[kind](X)).shape == (60, 2)
    assert model.score(X, label) > 0.85


def test_a_frame_of_numbers_alone_is_what_its_array_is():
    X, y = homes()
    numbers = X[["area", "lift"]].fillna(60.0)
    by_frame, by_array = (
        GWIRegressor("svgp", likelihood="gaussian", random_state=0).fit(rows, y)
        for rows in (numbers, numbers.to_numpy(np.float64))
    )
    expected = by_array.predict(numbers.to_numpy(np.float64))
    np.testing.assert_array_equal(by_frame.predict(numbers), expected)
    np.testing.assert_array_equal(by_frame.predict(numbers[["lift", "area"]]), expected)
    np.testing.assert_array_equal(by_frame.predict(pl.from_pandas(numbers[["lift", "area"]])), expected)
    assert not hasattr(by_frame, "encoder_")
    with pytest.raises(UserError, match=r"X lacks 1 of the 2 columns of the model: 'area' \(is 'Area' meant"):
        by_frame.predict(numbers.rename(columns={"area": "Area"}))


@pytest.mark.parametrize("kind", ["arrow", "batch", "polars", "lazy"])
def test_frames_of_numbers_of_every_kind_are_fitted_by_their_names(kind):
    X, y = homes()
    numbers = X[["area", "lift"]].fillna(60.0)
    made = {"arrow": pa.Table.from_pandas(numbers), "polars": pl.from_pandas(numbers), "lazy": pl.from_pandas(numbers).lazy()}
    made["batch"] = made["arrow"].to_batches()[0]
    model = GWIRegressor("linear", random_state=0).fit(made[kind], y)
    assert list(model.feature_names_in_) == ["area", "lift"]
    expected = GWIRegressor("linear", random_state=0).fit(numbers, y).predict(numbers)
    np.testing.assert_array_equal(model.predict(made[kind]), expected)


def test_a_fit_from_a_file_forgets_the_columns_of_a_frame(tmp_path):
    X, y = homes()
    model = GWIRegressor("linear", random_state=0).fit(X, y)
    pq.write_table(pa.table({"a": np.arange(60.0), "y": y.to_numpy()}), tmp_path / "rows.parquet")
    model.fit(tmp_path / "rows.parquet", "y")
    assert not hasattr(model, "encoder_")
    assert model.predict([[5.0]]).shape == (1,)


def test_values_unlike_those_of_the_fit_are_named_in_a_warning_and_widen_the_spread():
    X, y = homes()
    model = GWIRegressor("svgp", likelihood="gaussian", random_state=0).fit(X, y)
    new = X.dropna().head(5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, usual = model.predict(new, return_std=True)
    with pytest.warns(GWIWarning, match=r"5 rows have a value of 'town' that the training rows did not have \('Oslo'\)"):
        _, strange = model.predict(new.assign(town="Oslo"), return_std=True)
    assert (strange > usual).all()
    with pytest.warns(GWIWarning, match="5 rows have a value of 'area' far outside"):
        model.predict(new.assign(area=1e4))


def test_validation_context_groups_and_updates_are_frames_too():
    X, y = homes(90)
    train, judge = slice(0, 60), slice(60, 90)
    known = GWIRegressor("linear", random_state=0).fit(X[train], y[train])
    wrapped = GWIRegressor("svgp", likelihood="gaussian", random_state=0).fit(X[train], y[train], validation=(X[judge], y[judge]))
    assert np.isfinite(wrapped.predict(X[judge])).all()
    with_context = GWIRegressor("svgp", likelihood="gaussian", random_state=0).fit(X[train], y[train], context=X[judge])
    assert "beyond the data" in str(with_context.summary_)
    grouped = GWIRegressor("linear", random_state=0).fit(X[train], y[train], groups=X["built"].dt.year[train])
    assert np.isfinite(grouped.predict(X[judge])).all()
    before = np.abs(known.predict(X[judge]) - y[judge]).mean()
    known.update(X[judge], y[judge])
    assert np.abs(known.predict(X[judge]) - y[judge]).mean() < before


def test_a_model_of_a_frame_is_saved_with_its_columns_and_serves_the_command(tmp_path, capsys):
    X, y = homes()
    model = GWIRegressor("svgp", likelihood="gaussian", random_state=0).fit(X, y)
    model.save(tmp_path / "rents.gwi")
    again = load(tmp_path / "rents.gwi")
    np.testing.assert_array_equal(again.predict(pl.from_pandas(X), return_std=True), model.predict(X, return_std=True))
    X.to_csv(tmp_path / "new.csv", index=False)
    assert cli.run(["predict", f"{tmp_path}/rents.gwi", f"{tmp_path}/new.csv", "-o", f"{tmp_path}/out.csv", "-q"]) == 0
    found = pd.read_csv(tmp_path / "out.csv")
    np.testing.assert_allclose(found["prediction"], model.predict(X), rtol=1e-12)
    pq.write_table(pa.Table.from_pandas(X), tmp_path / "new.parquet")
    bulk = pq.read_table(predict_source(model, tmp_path / "new.parquet", tmp_path / "out.parquet")).to_pandas()
    np.testing.assert_allclose(bulk["std"], model.predict(X, return_std=True)[1], rtol=1e-12)
    capsys.readouterr()


def test_a_model_of_the_command_takes_frames_in_python(tmp_path, capsys):
    X, y = homes()
    X.assign(rent=y).to_csv(tmp_path / "homes.csv", index=False)
    fit = ["fit", f"{tmp_path}/homes.csv", "-t", "rent", "--mean", "svgp", "-o", f"{tmp_path}/m.gwi", "-q", "--seed", "3"]
    assert cli.run(fit) == 0
    capsys.readouterr()
    by_command = load(tmp_path / "m.gwi")
    by_python = GWIRegressor("svgp", random_state=3).fit(X, y)
    for ours, theirs in zip(*(model.predict(X, return_std=True) for model in (by_python, by_command)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    assert list(by_command.feature_names_in_) == list(X.columns)


def test_a_second_fit_forgets_the_columns_of_the_first():
    X, y = homes()
    model = GWIRegressor("linear", random_state=0).fit(X, y)
    model.fit(X[["area"]].fillna(60.0).to_numpy(), y)
    assert not hasattr(model, "encoder_")
    assert model.predict([[50.0]]).shape == (1,)
    assert not hasattr(clone(model), "encoder_")


def test_frames_pass_through_cross_validation():
    X, y = homes()
    scores = cross_val_score(GWIRegressor("linear", random_state=0), X, y, cv=3)
    assert (scores > 0.5).all()


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({"area": [[1]] * 60}, "column 'area' holds list"),
        ({"area": [1, "x"] * 30}, "column 'area' holds values of several kinds"),
        ({"town": ["03/04/2024"] * 60}, "column 'town': '03/04/2024' is a date whose order"),
    ],
)
def test_columns_that_mean_nothing_are_named(column, message):
    X, y = homes()
    with pytest.raises(UserError, match=message):
        GWIRegressor("linear").fit(X.assign(**column), y)


def test_a_frame_without_a_column_to_learn_from_is_refused():
    with pytest.raises(UserError, match="X has no column to learn from: 'name' is text that differs in most rows"):
        GWIRegressor("linear").fit(pd.DataFrame({"name": [f"n{i}" for i in range(9)]}), np.arange(9.0))


@pytest.mark.parametrize("estimator", [GWIRegressor, GWIClassifier])
def test_sparse_matrices_are_what_their_arrays_are(estimator):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5)) * (rng.random((60, 5)) < 0.4)
    y = X[:, 0] + 0.1 * rng.normal(size=60)
    y = y if estimator is GWIRegressor else y > 0
    dense, sparse = (estimator("linear", random_state=0).fit(rows, y) for rows in (X, csr_matrix(X)))
    np.testing.assert_array_equal(sparse.predict(csr_matrix(X)), dense.predict(X))
    with pytest.raises(ValueError, match=r"1000000 × 1000 is too large to be made dense: at most .*TruncatedSVD"):
        dense.predict(csr_matrix((1_000_000, 1000)))
