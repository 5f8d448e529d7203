"""Odd frames: a right answer, or one sentence that names the column."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gwi import GWIRegressor, load
from gwi.exceptions import GWIWarning

N = 24
RNG = np.random.default_rng(0)
AREA = RNG.uniform(30.0, 120.0, N)
Y = 10.0 * AREA + RNG.normal(0.0, 20.0, N)
DAYS = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(N) * 9, unit="D")
TOWNS = np.array(["Ulm", "Bonn", "Jena"] * (N // 3))

pytestmark = [pytest.mark.filterwarnings("ignore::gwi.exceptions.GWIWarning"), pytest.mark.unchecked]


def column(values, name="odd"):
    return pd.DataFrame({"area": AREA, name: values})


def some(value, other, every=5):
    return [other if i % every == 0 else value for i in range(N)]


# Each is a column beside the area, or a whole frame, of which a right answer is asked.
RIGHT = {
    "text": TOWNS,
    "text with missing cells": some("Ulm", None),
    "text with NaN": pd.Series(some("Ulm", np.nan), dtype=object),
    "pandas strings": pd.Series(some("Ulm", pd.NA), dtype="string"),
    "categories": pd.Categorical(TOWNS),
    "ordered categories": pd.Categorical(TOWNS, ordered=True),
    "categories that no row has": pd.Categorical(TOWNS, categories=["Ulm", "Bonn", "Jena", "Oslo"]),
    "categories of numbers": pd.Categorical([1, 2, 3] * (N // 3)),
    "categories with missing cells": pd.Categorical(some("Ulm", None)),
    "truth values": np.arange(N) % 2 == 0,
    "truth values with missing cells": pd.Series(some(True, pd.NA), dtype="boolean"),
    "truth values as objects": pd.Series(some(True, False), dtype=object),
    "whole numbers": np.arange(N) % 7,
    "small whole numbers": (np.arange(N) % 7).astype(np.int8),
    "large whole numbers": (np.arange(N) % 7).astype(np.uint64) + 2**60,
    "whole numbers with missing cells": pd.Series(some(3, pd.NA, 4), dtype="Int64"),
    "half precision": RNG.normal(size=N).astype(np.float16),
    "single precision": RNG.normal(size=N).astype(np.float32),
    "numbers with missing cells": np.where(np.arange(N) % 4 == 0, np.nan, RNG.normal(size=N)),
    "pandas numbers with missing cells": pd.Series(some(1.5, pd.NA), dtype="Float64"),
    "exact decimals": [Decimal(i) / 7 for i in range(N)],
    "numbers as text": [f"{v:.3f}" for v in RNG.normal(size=N)],
    "numbers as objects": pd.Series([float(i % 5) for i in range(N)], dtype=object),
    "dates": DAYS,
    "dates with missing cells": pd.Series(DAYS).where(np.arange(N) % 5 > 0),
    "dates of a zone": pd.Series(DAYS).dt.tz_localize("Europe/Berlin"),
    "dates of Python": [day.date() for day in DAYS],
    "moments of Python": [day.to_pydatetime() for day in DAYS],
    "dates as text": [day.strftime("%Y-%m-%d") for day in DAYS],
    "durations": pd.to_timedelta(np.arange(N) % 7, unit="h"),
    "durations with missing cells": pd.Series(pd.to_timedelta(np.arange(N) % 7, unit="h")).where(np.arange(N) % 5 > 0),
    "durations of Python": [dt.timedelta(hours=i % 7) for i in range(N)],
    "nothing but missing cells": [None] * N,
    "nothing but NaN": np.full(N, np.nan),
    "nothing but NaT": [pd.NaT] * N,
    "one value": ["same"] * N,
    "text that differs in every row": [f"home {i}" for i in range(N)],
    "row numbers": np.arange(N),
    "text with blanks": [f"  {town} " for town in TOWNS],
    "text with line breaks": [f"{town}\nnorth" for town in TOWNS],
    "text of other scripts": ["東京", "Αθήνα", "Київ"] * (N // 3),
    "empty text": some("Ulm", ""),
    "very long text": [town * 1000 for town in TOWNS],
    "Arrow strings of pandas": pd.Series(TOWNS, dtype=pd.ArrowDtype(pa.string())),
    "Arrow numbers of pandas": pd.Series(some(1.0, None), dtype=pd.ArrowDtype(pa.float64())),
}
# Each is refused, with a sentence that names the column.
REFUSED = {
    "lists": [[1, 2]] * N,
    "dictionaries": [{"a": 1}] * N,
    "arrays": [np.zeros(2)] * N,
    "text and numbers": some("Ulm", 3),
    "text and dates": some("Ulm", DAYS[0]),
    "objects": [object()] * N,
    "complex numbers": RNG.normal(size=N) + 1j,
    "infinite numbers": np.where(np.arange(N) == 3, np.inf, AREA),
    "bytes": [b"Ulm"] * N,
    "intervals": pd.cut(AREA, 3),
    "periods": pd.period_range("2020", periods=N, freq="D"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_odd_columns_leave_a_right_answer(name):
    frame = column(RIGHT[name])
    model = GWIRegressor("svgp", likelihood="gaussian", cv=2, random_state=0).fit(frame, Y)
    mean, std = model.predict(frame, return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()
    assert np.corrcoef(mean, Y)[0, 1] > 0.8
    # One row alone, and rows in another order, are what they are among others.
    np.testing.assert_allclose(model.predict(frame.iloc[[5]]), mean[[5]], rtol=1e-6)
    np.testing.assert_allclose(model.predict(frame.iloc[::-1]), mean[::-1], rtol=1e-6)


@pytest.mark.parametrize("name", REFUSED)
def test_columns_that_mean_nothing_are_named_in_one_sentence(name):
    with pytest.raises((ValueError, TypeError), match="odd") as refused:
        GWIRegressor("svgp", cv=2, random_state=0).fit(column(REFUSED[name]), Y)
    assert len(str(refused.value)) < 500


def twice(frame):
    return pd.concat([frame, frame[["area"]]], axis=1)


FRAMES = {
    "a name twice": (twice(column(TOWNS)), "area"),
    "names that are no text": (column(TOWNS, name=3), "3"),
    "no rows": (column(TOWNS)[:0], "0 rows"),
    "no columns": (pd.DataFrame(index=range(N)), "0 columns"),
    "one row": (column(TOWNS)[:1], "1 row "),
    "other targets than rows": (column(TOWNS)[:20], "20"),
}


@pytest.mark.parametrize("name", FRAMES)
def test_frames_that_cannot_be_learned_from_are_refused(name):
    frame, said = FRAMES[name]
    y = Y if name == "other targets than rows" else Y[: len(frame)]
    with pytest.raises(ValueError, match=said):
        GWIRegressor("svgp", cv=2, random_state=0).fit(frame, y)


NUMBERED = pd.DataFrame(np.random.default_rng(0).standard_normal((N, 3)))


@pytest.mark.parametrize(
    ("frame", "mean"),
    [
        (NUMBERED, "linear"),
        (NUMBERED, make_pipeline(StandardScaler(), Ridge())),
        (NUMBERED.assign(**{"3": TOWNS}).rename(columns=int), "linear"),
        (NUMBERED.where(NUMBERED < 1), "linear"),
    ],
    ids=["numbers", "a pipeline", "text, too", "missing cells"],
)
def test_names_that_are_whole_numbers_are_these_numbers_as_text(frame, mean, tmp_path):
    model = GWIRegressor(mean, random_state=0).fit(frame, Y)
    text = GWIRegressor(mean, random_state=0).fit(frame.rename(columns=str), Y)
    assert model.feature_names_in_.tolist() == [str(name) for name in frame.columns]
    wanted = text.predict(frame.rename(columns=str))
    loaded = load(model.save(tmp_path / "model.gwi"))
    for fitted in (model, text, loaded):
        for rows in (frame, frame.rename(columns=str), frame[frame.columns[::-1]]):
            np.testing.assert_allclose(fitted.predict(rows), wanted, rtol=1e-12)
    with pytest.raises(ValueError, match="lacks 1 of the"):
        loaded.predict(frame.drop(columns=1))
    assert list(frame.columns) == list(range(frame.shape[1]))


INDEXES = {
    "text": [f"home {i}" for i in range(N)],
    "repeated": [0] * N,
    "reversed": range(N, 0, -1),
    "of dates": DAYS,
    "of two levels": pd.MultiIndex.from_product([range(N // 3), list("abc")]),
    "with missing labels": [None, *range(1, N)],
}


@pytest.mark.parametrize("name", INDEXES)
def test_the_index_plays_no_part(name):
    frame = column(TOWNS)
    wanted = GWIRegressor("svgp", cv=2, random_state=0).fit(frame, Y).predict(frame)
    other = frame.set_axis(INDEXES[name], axis=0)
    np.testing.assert_array_equal(GWIRegressor("svgp", cv=2, random_state=0).fit(other, Y).predict(other), wanted)


def test_a_hundred_thousand_categories_are_one_number():
    count = 100_000
    frame = pd.DataFrame({"area": np.tile(AREA, -(-count // N))[:count], "odd": [f"c{i}" for i in range(count)]})
    from gwi.tables import TableEncoder

    encoder = TableEncoder().fit(frame.assign(odd=frame["odd"].where(np.arange(count) % 3 > 0, "often")))
    assert len(encoder.get_feature_names_out()) < 10
    assert TableEncoder().fit(frame).dropped_[0][0] == "odd"


@pytest.mark.parametrize("of", [pl.from_pandas, pa.Table.from_pandas], ids=["polars", "Arrow"])
def test_new_texts_missing_cells_and_other_kinds_at_prediction(of):
    model = GWIRegressor("svgp", cv=2, random_state=0).fit(of(column(TOWNS)), Y)
    _, usual = model.predict(of(column(TOWNS)), return_std=True)
    for odd in (["Oslo"] * N, [None] * N):
        with pytest.warns(GWIWarning, match="'odd'"):
            _, std = model.predict(of(column(pd.Series(odd, dtype="str"))), return_std=True)
        assert std.mean() > 1.2 * usual.mean()
    with pytest.raises(ValueError, match="area"):
        model.predict(of(column(TOWNS).assign(area="large")))
    with pytest.raises(ValueError, match="'odd'"):
        model.predict(of(column(TOWNS)[["area"]]))
