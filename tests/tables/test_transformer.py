"""Data frames of any kind become the same numbers, and what cannot is named by its column."""

import datetime
import decimal
import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.compose import make_column_selector
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from gwi.exceptions import UserError
from gwi.tables import TableEncoder
from gwi.tables.encoder import UNLIKE, Encoder
from gwi.tables.source import read_table


def homes():
    """Columns of every kind, with missing cells."""
    return pd.DataFrame(
        {
            "rooms": [3, 4, 2, 5, 3, 4],
            "area": [70.5, np.nan, 51.0, 120.0, 66.0, 90.0],
            "town": ["Ulm", "Bonn", None, "Ulm", "Bonn", "Ulm"],
            "grade": pd.Categorical(["1", "2", "1", "3", "2", "1"]),
            "garden": [True, False, True, True, False, False],
            "built": pd.to_datetime(["1990-05-01", "2001-01-01", None, "1975-03-09", "1990-05-02", "2020-11-30"]),
            "empty since": pd.to_timedelta([0, 3, 5, 1, 2, 9], unit="D"),
        }
    )


def as_polars(frame):
    made = pl.from_pandas(frame)
    return made.with_columns(pl.col("grade").cast(pl.Categorical)) if "grade" in frame else made


KINDS = {"pandas": lambda frame: frame, "polars": as_polars, "arrow": pa.Table.from_pandas, "lazy": lambda f: as_polars(f).lazy()}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_frame_gives_the_same_numbers_in_any_order_of_columns(kind):
    frame, convert = homes(), KINDS[kind]
    encoder = TableEncoder().fit(frame)
    numbers = encoder.transform(frame)
    assert np.isfinite(numbers).all()
    np.testing.assert_array_equal(TableEncoder().fit(convert(frame)).transform(frame), numbers)
    np.testing.assert_array_equal(encoder.transform(convert(frame[frame.columns[::-1]].assign(other=1.0))), numbers)


def test_numbers_have_names_that_say_what_they_are():
    encoder = TableEncoder().fit(homes())
    names = list(encoder.get_feature_names_out())
    assert names[:5] == ["rooms", "area", "area is missing", "town = Bonn", "town = Ulm"]
    assert {"grade = 3", "garden = true", "year of built", "empty since", "built is missing"} < set(names)
    assert names[-1] == UNLIKE
    shown = encoder.set_output(transform="pandas").transform(homes())
    assert list(shown.columns) == names
    assert shown["empty since"].tolist() == [0.0, 259200.0, 432000.0, 86400.0, 172800.0, 777600.0]
    assert shown["area"].tolist() == [70.5, 70.5, 51.0, 120.0, 66.0, 90.0]
    assert shown["grade = 1"].tolist() == [1.0, 0.0, 1.0, 0.0, 0.0, 1.0]


def test_a_frame_and_a_file_of_it_give_the_same_numbers(tmp_path):
    frame = homes().drop(columns=["grade", "empty since"])
    frame.to_csv(tmp_path / "homes.csv", index=False)
    table = read_table(tmp_path / "homes.csv")
    from_file = Encoder.fit(table)
    encoder = TableEncoder().fit(frame)
    assert [name.lower() for name in from_file.features] == [name.lower() for name in encoder.get_feature_names_out()]
    np.testing.assert_array_equal(from_file.transform(table), encoder.transform(frame))


def test_what_was_learned_survives_json():
    encoder = TableEncoder().fit(homes())
    other = TableEncoder.from_json(json.loads(json.dumps(encoder.to_json())))
    np.testing.assert_array_equal(other.transform(homes()), encoder.transform(homes()))
    assert list(other.feature_names_in_) == list(homes().columns)
    with pytest.raises(ValueError, match="description of the columns"):
        TableEncoder.from_json({"columns": 3})


def test_values_that_training_rows_did_not_have_are_counted_and_marked():
    encoder, new = TableEncoder().fit(homes()), homes().assign(town="Oslo", rooms=[None, *range(5)])
    found = encoder.unlike(new)
    assert (found.new["town"], found.blank["rooms"], list(found.examples["town"])) == (6, 1, ["Oslo"])
    assert (encoder.transform(new)[:, -1] > 0).all()


def test_columns_of_no_use_are_left_out_with_the_reason():
    frame = homes().assign(same=1.0, nothing=None, number=range(6), name=list("abcdef"))
    reasons = dict(TableEncoder().fit(frame).dropped_)
    assert reasons["same"] == "has the same value in every row"
    assert reasons["nothing"] == "has no values"
    assert reasons["number"] == "counts the rows"
    assert reasons["name"] == "is text that differs in most rows, like a name or a number plate"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, "x", 2.5], r"column 'a' holds values of several kinds \(1 of int and 1 of str and 1 of float\)"),
        ([[1], [2], [3]], r"column 'a' holds list<item: int64>"),
        ([{"b": 1}] * 3, r"column 'a' holds struct"),
        ([1 + 2j, 0j, 1j], r"column 'a' holds values of several kinds|column 'a' holds"),
        ([1.0, np.inf, 2.0], r"X, row 1, column 'a': inf is infinite"),
        ([datetime.time(1), datetime.time(2), datetime.time(3)], r"column 'a' holds time"),
        (
            ["03/04/2024", "04/04/2024", "05/04/2024"],
            r"row 0, column 'a': '03/04/2024' is a date whose order .* leave the column out",
        ),
        ([b"\xff", b"a", b"b"], r"column 'a' holds binary"),
    ],
)
def test_columns_that_mean_nothing_are_named(values, message):
    with pytest.raises(UserError, match=message):
        TableEncoder().fit(pd.DataFrame({"a": pd.Series(values, dtype=object)}))


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "more than one column called 'a'"),
        (pd.DataFrame({0.5: [1, 2]}), "columns whose names are not text: '0.5'"),
        (pd.DataFrame({0: [1, 2], "a": [3, 4]}), "columns whose names are not text: '0'"),
        (pd.DataFrame({"a": []}), "X has 0 rows and 1 columns"),
        (pd.DataFrame(index=[1, 2]), "X has 2 rows and 0 columns"),
    ],
)
def test_frames_that_are_none_are_refused(frame, message):
    with pytest.raises(UserError, match=message):
        TableEncoder().fit(frame)


@pytest.mark.parametrize(
    "values",
    [
        [decimal.Decimal("1.50"), None, decimal.Decimal("2.25")],
        pd.array([1.5, None, 2.25], dtype="Float64"),
        ["1.5", None, "2.25"],
        np.array([1.5, np.nan, 2.25], dtype=np.float32),
    ],
)
def test_numbers_of_any_type_are_numbers(values):
    numbers = TableEncoder().fit_transform(pd.DataFrame({"a": values}))
    assert numbers[:, :2].tolist() == [[1.5, 0.0], [1.875, 1.0], [2.25, 0.0]]


def test_dates_of_any_zone_are_moments():
    here = pd.DataFrame({"a": pd.date_range("2024-01-01", periods=5, freq="h", tz="Europe/Berlin")})
    there = pd.DataFrame({"a": here["a"].dt.tz_convert("UTC")})
    encoder = TableEncoder().fit(here)
    np.testing.assert_array_equal(encoder.transform(here), encoder.transform(there))


def test_the_index_of_a_frame_plays_no_part():
    frame = homes()
    other = frame.set_index(pd.Index([7, 7, 7, 1, 0, 2]))
    np.testing.assert_array_equal(TableEncoder().fit(other).transform(other), TableEncoder().fit(frame).transform(frame))


def test_a_missing_column_is_guessed_at():
    with pytest.raises(UserError, match=r"X lacks 1 of the 7 columns of the model: 'area' \(is 'Area' meant as 'area'\?\)"):
        TableEncoder().fit(homes()).transform(homes().rename(columns={"area": "Area"}))


def test_it_is_the_first_step_of_a_pipeline():
    frame = homes()
    model = make_pipeline(TableEncoder(), Ridge()).fit(frame, frame["rooms"])
    assert model.predict(as_polars(frame)) == pytest.approx(model.predict(frame))
    assert make_column_selector(dtype_include="number")(frame) == ["rooms", "area", "empty since"]


@parametrize_with_checks([TableEncoder()])
def test_it_is_a_transformer_as_scikit_learn_knows_it(estimator, check):
    check(estimator)
