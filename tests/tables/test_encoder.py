"""Encoder become numbers the same way at every later table; what is not clear is refused with its place."""

import datetime
import json
from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from gwi.exceptions import UserError
from gwi.tables.encoder import UNLIKE, Encoder
from gwi.tables.grams import Grams, grams_from_json
from gwi.tables.source import read_table
from gwi.tables.unlike import Unlike


def table_of(folder, text, name="data.csv"):
    path = folder / name
    path.write_text(text)
    return read_table(path)


def column_of(folder, cells, name="data.csv", delimiter=","):
    return table_of(folder, f"a{delimiter}y\n" + "".join(f"{cell}{delimiter}{i}\n" for i, cell in enumerate(cells)), name)


def test_numbers_stay_to_the_last_bit(tmp_path):
    values = np.random.default_rng(0).normal(size=20) * 10.0 ** np.arange(-10, 10)
    table = column_of(tmp_path, [repr(float(v)) for v in values])
    assert (Encoder.fit(table, "y").transform(table)[:, 0] == values).all()


def test_decimal_commas_are_numbers(tmp_path):
    table = column_of(tmp_path, ["1,5", "-2,25", "3"], delimiter=";")
    assert Encoder.fit(table, "y").transform(table)[:, 0].tolist() == [1.5, -2.25, 3.0]


def test_text_is_one_column_a_value_and_an_unknown_value_is_none_of_them(tmp_path):
    columns = Encoder.fit(column_of(tmp_path, ["red", "blue", "red", "blue"]), "y")
    assert columns.features == ("a = blue", "a = red", UNLIKE)
    new, unlike = column_of(tmp_path, ["red", "green"], "new.csv"), Unlike()
    assert columns.transform(new, unlike).tolist() == [[0.0, 1.0, 0.0], [0.0, 0.0, pytest.approx(3**0.5 / 3)]]
    assert unlike.sentences("so") == ["1 row has a value of 'a' that the training rows did not have ('green'); so."]


def test_text_with_many_values_is_its_letters(tmp_path):
    values = [
        f"{town} {street}"
        for town in ("Ulm", "Bonn", "Kiel", "Trier")
        for street in ("north", "south", "east", "west", "mid", "old")
    ]
    columns = Encoder.fit(column_of(tmp_path, values * 3), "y")
    assert columns.columns[0].kind == "frequency"
    assert columns.features[0] == "letters 1 of a"
    new, unlike = column_of(tmp_path, ["Bonn north", "Bonn North", "Trier west", "xyz"], "new.csv"), Unlike()
    found = columns.transform(new, unlike)
    near = [np.linalg.norm(found[0, :-1] - row[:-1]) for row in found[1:]]
    # Capitals do not count, other letters do; a text without a known run of letters has none. To the kernel two are new.
    assert near[0] == 0
    assert near[1] > 1
    assert not found[3, :-1].any()
    assert (found[:, -1] > 0).tolist() == [False, True, False, True]
    assert unlike.new["a"] == 2


def test_letters_are_those_of_tf_idf_and_its_principal_directions():
    rng = np.random.default_rng(0)
    values = sorted({"".join(rng.choice(list("abcde"), 5)) for _ in range(40)})
    counts = rng.integers(1, 5, len(values))
    grams = Grams.of(values, (counts / counts.sum()).tolist())
    vectors = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True, vocabulary=grams.grams)
    expected = vectors.fit_transform(values).toarray()
    _, s, vt = np.linalg.svd(np.sqrt(counts)[:, None] * expected, full_matrices=False)
    k = grams.num_directions
    assert k == 20
    # The same plane, whatever the signs.
    np.testing.assert_allclose(np.abs(grams.numbers(values)), np.abs(expected @ vt[:k].T), atol=1e-8)
    assert (np.diff(s) <= 0).all()
    assert grams_from_json(json.loads(json.dumps(asdict(grams)))) == grams


def test_text_with_many_values_in_an_older_file_is_its_share(tmp_path):
    columns = Encoder.fit(column_of(tmp_path, [f"v{i % 30}" for i in range(89)] + ["v0"] * 10), "y")
    document = json.loads(json.dumps(columns.to_json()))
    del document["columns"][0]["grams"]
    document["columns"][0] |= {"kept": [0], "fill": [1 / 30]}
    older = Encoder.from_json(document)
    new = column_of(tmp_path, ["v0", "v1", "other"], "new.csv")
    assert older.transform(new).tolist() == [[13 / 99, 0.0], [3 / 99, 0.0], [0.0, pytest.approx(2**0.5 / 3)]]


def test_missing_cells_are_the_median_and_are_marked(tmp_path):
    table = column_of(tmp_path, ["1", "NA", "3", "", "8", "?"])
    columns = Encoder.fit(table, "y")
    assert columns.features == ("a", "a is missing", UNLIKE)
    assert columns.transform(table)[:, :2].tolist() == [[1, 0], [3, 1], [3, 0], [3, 1], [8, 0], [3, 1]]


def test_a_cell_missing_only_later_is_the_median(tmp_path):
    columns = Encoder.fit(column_of(tmp_path, ["1", "4", "9"]), "y")
    unlike = Unlike()
    found = columns.transform(column_of(tmp_path, ["", "5"], "new.csv"), unlike)
    assert found.tolist() == [[4.0, pytest.approx(2**0.5 / 3)], [5.0, 0.0]]
    assert unlike.sentences("so") == ["1 row has no value of 'a', which every training row had; so."]


def test_dates_are_their_parts_that_vary(tmp_path):
    table = column_of(tmp_path, ["2024-01-31", "2024-02-01", "2024-02-02"])
    columns = Encoder.fit(table, "y")
    assert columns.features[:-1] == tuple(f"{p} of a" for p in ("month", "day", "weekday", "seconds since 1970"))
    assert columns.transform(table)[0].tolist() == [1, 31, 2, datetime.datetime(2024, 1, 31, tzinfo=datetime.UTC).timestamp(), 0]


def test_moments_with_zones_are_compared_in_universal_time(tmp_path):
    table = column_of(tmp_path, ["2024-01-01T00:30:00+02:00", "2023-12-31T22:30:00Z", "2024-01-01T03:00:00Z"])
    seconds = Encoder.fit(table, "y").transform(table)[:, -2]
    assert seconds[0] == seconds[1] == seconds[2] - 4.5 * 3600


def test_useless_columns_are_dropped_with_a_reason(tmp_path):
    lines = [f"{i + 1},n{i},7,,{i * i % 5},{i}" for i in range(12)]
    columns = Encoder.fit(table_of(tmp_path, "\n".join(["row,name,one,none,x,y", *lines])), "y")
    assert [column.name for column in columns.columns] == ["x"]
    reasons = dict(columns.dropped)
    for name, word in (("row", "counts"), ("name", "differs"), ("one", "same value"), ("none", "no values")):
        assert word in reasons[name]


REFUSED = {
    "1e400": (["1", "1e400", "2", "3"], "line 3, column 'a': '1e400'"),
    "infinity": (["1", "2", "inf", "3"], "line 4, column 'a': 'inf'"),
    "a word among numbers": (["1", "2", "x", "4", "5"], "line 4, column 'a': 'x' is not a number"),
    "day first": (["12.03.2024", "13.03.2024", "14.03.2024"], "line 2, column 'a': '12.03.2024' is a date"),
    "slashes": (["1/2/2024", "1/3/2024", "2/4/2024"], "is a date whose order"),
    "no such day": (["2024-01-01", "2024-02-30", "2024-03-01"], "line 3, column 'a': '2024-02-30' is not a date"),
    "a word among dates": (["2024-01-01", "soon", "2024-03-01"], "line 3, column 'a': 'soon' is not a date"),
    "percent": (["5 %", "6 %", "7 %"], "number with a unit"),
    "currency": (["$5", "$6", "$7.50"], "number with a unit"),
    "thousands": (["1'234", "2'345", "3'456"], "marks between its digits"),
    "one value": (["1", "1", "1"], "no column to predict 'y' from: 'a' has the same value"),
    "names": (["ann", "bob", "cy"], "no column to predict"),
    "nothing": (["", "NA", ""], "'a' has no values"),
}


@pytest.mark.parametrize(("cells", "said"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_clear_is_refused_with_its_place(tmp_path, cells, said):
    table = column_of(tmp_path, cells)
    with pytest.raises(UserError) as caught:
        Encoder.fit(table, "y")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_later_tables_are_checked_by_name_and_cell(tmp_path):
    columns = Encoder.fit(column_of(tmp_path, ["1", "2", "4"]), "y")
    with pytest.raises(UserError, match=r"lacks 1 of the 1 columns of the model: 'a'"):
        columns.transform(table_of(tmp_path, "b,y\n1,2\n", "new.csv"))
    with pytest.raises(UserError, match=r"line 3, column 'a': 'x' is not a number"):
        columns.transform(column_of(tmp_path, ["1", "x"], "new.csv"))
    with pytest.raises(UserError, match=r"has no column 'z'; it has 'a', 'y'"):
        Encoder.fit(column_of(tmp_path, ["1", "2"]), "z")


def test_parquet_types_give_the_numbers_of_the_text(tmp_path):
    path = tmp_path / "data.parquet"
    day = [datetime.date(2024, 1, i) for i in (1, 2, 3, 4)]
    flag, number = [True, False, True, None], [1.5, None, float("nan"), 4.0]
    town = pa.array(["Ulm", "Bonn", "Ulm", "Bonn"]).dictionary_encode()
    pq.write_table(pa.table({"day": day, "flag": flag, "number": number, "town": town, "y": [1, 2, 3, 4]}), path)
    text = "day,flag,number,town,y\n2024-01-01,true,1.5,Ulm,1\n2024-01-02,false,,Bonn,2\n"
    text += "2024-01-03,true,NaN,Ulm,3\n2024-01-04,,4,Bonn,4\n"
    same, table = table_of(tmp_path, text), read_table(path)
    columns = Encoder.fit(table, "y")
    assert columns == Encoder.fit(same, "y")
    assert (columns.transform(table) == columns.transform(same)).all()


def test_lists_in_parquet_are_refused(tmp_path):
    path = tmp_path / "data.parquet"
    pq.write_table(pa.table({"a": [[1], [2]], "y": [1, 2]}), path)
    with pytest.raises(UserError, match="column 'a' holds list"):
        Encoder.fit(read_table(path), "y")


def test_columns_survive_json(tmp_path):
    lines = [f"{i % 5},{'ab'[i % 2]},2024-01-{i + 1:02},{i}" for i in range(12)]
    columns = Encoder.fit(table_of(tmp_path, "\n".join(["x,t,d,y", *lines])), "y")
    assert Encoder.from_json(json.loads(json.dumps(columns.to_json()))) == columns


EMPTY = {"target": "y", "columns": [], "dropped": []}


@pytest.mark.parametrize("node", [None, {}, EMPTY, EMPTY | {"columns": [{}]}])
def test_other_json_is_refused(node):
    with pytest.raises(ValueError, match="description of the columns"):
        Encoder.from_json(node)
