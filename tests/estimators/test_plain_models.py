"""Models of arrays and of frames of plain numbers, saved from Python, go wherever a table is predicted, with the same digits."""

import csv
import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from gwi import GWIClassifier, GWIRegressor, Predictor
from gwi.cli import run
from gwi.exceptions import UserError
from gwi.tables.frames import frame_table
from gwi.tables.plain import plain_rows

pytestmark = pytest.mark.unchecked

NAMES = ["x0", "x1", "x2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Rows, and models of an array, of a frame with truth values, of classes, times, levels and two targets."""
    path = tmp_path_factory.mktemp("plain")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = X[:, 0] + 0.1 * rng.normal(size=60)
    frame = pd.DataFrame({"size": X[:, 0], "rooms": rng.integers(1, 6, 60), "new": X[:, 1] > 0})
    times = np.empty(60, dtype=[("event", bool), ("time", float)])
    times["event"], times["time"] = rng.random(60) < 0.7, np.exp(y / 3)
    for name, model in {
        "array": GWIRegressor("svgp", random_state=0).fit(X, y),
        "frame": GWIRegressor("svgp", random_state=0).fit(frame, y),
        "classes": GWIClassifier("linear", random_state=0).fit(X, (y > 0).astype(int)),
        "truths": GWIClassifier("linear", random_state=0).fit(X, y > 0),
        "times": GWIRegressor("linear", likelihood="censored", random_state=0).fit(X, times),
        "levels": GWIRegressor("linear", likelihood="ordinal", random_state=0).fit(X, np.round(np.clip(y, -1, 1))),
        "two": GWIRegressor("linear", random_state=0).fit(X, np.column_stack([y, -y])),
    }.items():
        model.save(path / f"{name}.gwi")
    new = pd.DataFrame(rng.normal(size=(8, 3)), columns=NAMES).assign(id=range(8))
    new["y"], new["time"], new["event"] = new.x0, np.exp(new.x0 / 3), [1, 0] * 4
    new["class"], new["truth"] = (new.x0 > 0).astype(int), new.x0 > 0
    new[["x2", "id", "y", "x0", "class", "truth", "time", "event", "x1"]].to_csv(path / "new.csv", index=False)
    return path, new, frame


def said(capsys, *arguments):
    """Exit code, output and errors of a command."""
    code = run([str(part) for part in arguments])
    return code, *capsys.readouterr()


def predicted(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def loaded(path):
    return Predictor(path).model


def test_the_command_predicts_the_digits_of_the_model(folder, tmp_path, capsys):
    path, new, _ = folder
    assert said(capsys, "predict", path / "array.gwi", path / "new.csv", "-o", tmp_path / "p.csv", "-q")[0] == 0
    rows = predicted(tmp_path / "p.csv")
    mean, std = loaded(path / "array.gwi").predict(new[NAMES].to_numpy(), return_std=True)
    np.testing.assert_array_equal([float(row["prediction"]) for row in rows], mean)
    np.testing.assert_array_equal([float(row["std"]) for row in rows], std)
    assert [row["id"] for row in rows] == [str(i) for i in range(8)]


def test_a_frame_of_numbers_and_truths_keeps_its_names_and_digits(folder, tmp_path, capsys):
    path, _, frame = folder
    frame[["new", "rooms", "size"]].to_csv(tmp_path / "rows.csv", index=False)
    assert said(capsys, "predict", path / "frame.gwi", tmp_path / "rows.csv", "-o", tmp_path / "p.csv", "-q")[0] == 0
    expected = loaded(path / "frame.gwi").predict(frame.to_numpy(dtype=np.float64))
    np.testing.assert_array_equal([float(row["prediction"]) for row in predicted(tmp_path / "p.csv")], expected)
    np.testing.assert_array_equal(loaded(path / "frame.gwi").predict(frame[["new", "rooms", "size"]]), expected)
    np.testing.assert_array_equal(Predictor(path / "frame.gwi")(pl.from_pandas(frame))["prediction"].to_numpy(), expected)


def test_a_predictor_takes_arrays_by_place_and_frames_by_name(folder):
    path, new, _ = folder
    predict = Predictor(path / "array.gwi")
    expected = loaded(path / "array.gwi").predict(new[NAMES].to_numpy())
    for rows in (new[NAMES].to_numpy(), new, new[["x2", "x0", "x1"]], pl.from_pandas(new)):
        np.testing.assert_array_equal(np.asarray(predict(rows)["prediction"]), expected)
    with pytest.raises(UserError, match=r"X lacks 3 of the 3 columns of the model: 'x0', 'x1', 'x2'.*called x0 to x2 here"):
        predict(new[NAMES].rename(columns=dict(zip(NAMES, "abc", strict=True))))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"x1": [1.0, 2, np.nan, 4, 5, 6, 7, 8]}, r"row 2, column 'x1': the cell is missing \(NaN\)"),
        ({"x1": [1.0, 2, np.inf, 4, 5, 6, 7, 8]}, "row 2, column 'x1': the cell is infinite"),
        ({"x1": ["1"] * 3 + ["blue"] * 5}, "row 3, column 'x1': 'blue' is not a number"),
        ({"x1": ["true"] * 3 + ["2"] * 5}, "row 0, column 'x1': 'true' is not a number"),
        ({"x1": pd.Timestamp("2024-01-01")}, "column 'x1' holds dates"),
        ({"x1": pd.Timedelta(1, "s")}, "column 'x1' holds duration"),
    ],
)
def test_a_cell_that_is_no_number_is_named(folder, tmp_path, capsys, change, sentence):
    path, new, _ = folder
    bad = new.assign(**change)
    with pytest.raises(UserError, match=sentence):
        Predictor(path / "array.gwi")(bad)
    bad.to_parquet(tmp_path / "bad.parquet")
    code, _, errors = said(capsys, "predict", path / "array.gwi", tmp_path / "bad.parquet", "-o", tmp_path / "p.csv", "-q")
    assert (code, errors.count("\n")) == (2, 1)
    assert "column 'x1'" in errors
    assert not (tmp_path / "p.csv").exists()


def test_missing_numbers_of_arrays_and_named_frames_are_named_too(folder):
    path, new, frame = folder
    X = new[NAMES].to_numpy().copy()
    X[5, 1] = np.nan
    with pytest.raises(UserError, match="row 5, column 'x1'"):
        Predictor(path / "array.gwi")(X)
    with pytest.raises(UserError, match="row 7, column 'rooms'"):
        loaded(path / "frame.gwi").predict(frame.assign(rooms=frame.rooms.where(frame.index != 7)))
    with pytest.raises(ValueError, match="2 features"):
        Predictor(path / "array.gwi")(X[:, ::2])


def test_evaluate_and_report_ask_for_the_target(folder, tmp_path, capsys):
    path, new, _ = folder
    files = (path / "array.gwi", path / "new.csv")
    for command in (["evaluate", *files], ["report", *files, "-o", tmp_path / "r.html"]):
        code, _, errors = said(capsys, *command)
        assert code == 2
        assert "names no target; say which column of the table it is: --target NAME" in errors
        assert "predicts from" in said(capsys, *command, "-t", "x1")[2]
    scores = json.loads(said(capsys, "evaluate", *files, "-t", "y", "-q", "--json")[1])
    model = loaded(path / "array.gwi")
    assert scores["rmse"] == pytest.approx(float(np.sqrt(np.mean((model.predict(new[NAMES].to_numpy()) - new.y) ** 2))))
    assert said(capsys, "report", *files, "-t", "y", "-o", tmp_path / "r.html", "-q")[0] == 0
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "How well is <em>y</em> predicted?" in page
    assert "x0" in page


@pytest.mark.parametrize(("model", "target"), [("classes", "class"), ("truths", "truth")])
def test_labels_of_any_kind_are_read_as_the_model_has_them(folder, tmp_path, capsys, model, target):
    path, new, _ = folder
    new.to_parquet(tmp_path / "new.parquet")
    expected = loaded(path / f"{model}.gwi").score(new[NAMES].to_numpy(), new[target])
    for data in (path / "new.csv", tmp_path / "new.parquet"):
        code, out, _ = said(capsys, "evaluate", path / f"{model}.gwi", data, "-t", target, "-q", "--json")
        assert (code, json.loads(out)["accuracy"]) == (0, expected)
    assert said(capsys, "report", path / f"{model}.gwi", path / "new.csv", "-t", target, "-o", tmp_path / "r.html", "-q")[0] == 0
    code, _, errors = said(capsys, "evaluate", path / f"{model}.gwi", path / "new.csv", "-t", "id", "-q")
    assert code == 2
    assert "line 4, column 'id': the model has no class '2'" in errors or "has no class '0'; it has false, true" in errors


def test_times_ask_for_the_event_and_levels_for_known_ones(folder, capsys):
    path, *_ = folder
    files = (path / "times.gwi", path / "new.csv", "-t", "time")
    assert "--event NAME" in said(capsys, "evaluate", *files)[2]
    code, out, _ = said(capsys, "evaluate", *files, "--event", "event", "-q", "--json")
    assert (code, json.loads(out)["events"]) == (0, 0.5)
    assert "--event is for models of times" in said(capsys, "evaluate", path / "array.gwi", *files[1:], "--event", "event")[2]
    code, _, errors = said(capsys, "evaluate", path / "levels.gwi", path / "new.csv", "-t", "id", "-q")
    assert code == 2
    assert "column 'id': The model was fitted to the levels" in errors


def test_several_targets_are_predicted_and_not_scored(folder, tmp_path, capsys):
    path, new, _ = folder
    assert said(capsys, "predict", path / "two.gwi", path / "new.csv", "-o", tmp_path / "p.csv", "-q")[0] == 0
    expected = loaded(path / "two.gwi").predict(new[NAMES].to_numpy())
    found = [[float(row[f"prediction_{j}"]) for j in range(2)] for row in predicted(tmp_path / "p.csv")]
    np.testing.assert_array_equal(found, expected)
    assert "Scores need a model of one target" in said(capsys, "evaluate", path / "two.gwi", path / "new.csv", "-t", "y")[2]


def test_info_names_the_columns(folder, capsys):
    found = json.loads(said(capsys, "info", folder[0] / "array.gwi", "--json")[1])
    assert found["columns"] == dict.fromkeys(NAMES, "number")
    assert found["inputs"] == NAMES
    assert found["target"] == ""


def test_images_are_refused_with_one_sentence(folder, tmp_path, capsys):
    rows = torch.from_numpy(np.random.default_rng(0).normal(size=(60, 2, 2)).astype(np.float32))
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 1))
    model = GWIRegressor(module, random_state=0).fit(rows, rows[:, 0, 0], validation=(rows[:30], rows[:30, 0, 0] + 1))
    model.save(tmp_path / "images.gwi")
    for command in ("predict", "evaluate", "report"):
        output = [] if command == "evaluate" else ["-o", tmp_path / "out"]
        code, _, errors = said(capsys, command, tmp_path / "images.gwi", folder[0] / "new.csv", *output)
        assert (code, errors.count("\n")) == (2, 1)
        assert "was fitted to rows of shape (2, 2), which a table cannot give" in errors
    assert said(capsys, "info", tmp_path / "images.gwi")[0] == 2


def test_columns_that_share_a_name_cannot_be_told_apart():
    with pytest.raises(UserError, match="columns share a name"):
        plain_rows(frame_table(pd.DataFrame({"a": [1.0]})), ["a", "a"])


@pytest.mark.parametrize("kind", ["int64", "float32", "uint8", "float64", "bool"])
def test_numbers_of_every_width_are_those_of_numpy(kind):
    values = np.random.default_rng(0).normal(0, 50, 40).clip(0, 200).astype(kind)
    found = plain_rows(frame_table(pd.DataFrame({"a": values})), ["a"])
    np.testing.assert_array_equal(found[:, 0], values.astype(np.float64))
