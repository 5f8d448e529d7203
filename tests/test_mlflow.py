"""A model that goes through MLflow predicts the same bits, and nothing of it is pickled."""

from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest

from gwi import GWIClassifier, GWIRegressor, Predictor

pytestmark = pytest.mark.unchecked


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=40), "rooms": rng.integers(1, 6, 40), "town": rng.choice(["Ulm", "Bonn"], 40)})
    frame.loc[3, "x"] = np.nan
    frame["day"] = pd.date_range("2024-01-01", periods=40)
    return frame, 2 * frame.x.fillna(0) + (frame.town == "Ulm") + 0.1 * rng.normal(size=40)


@pytest.fixture(scope="module")
def regressor(rows):
    return GWIRegressor("linear", random_state=0).fit(*rows)


def test_a_saved_model_predicts_the_same_bits(rows, regressor, tmp_path):
    from gwi.mlflow import load_model, save_model

    X = rows[0]
    save_model(regressor, tmp_path / "saved")
    expected = regressor.predict_columns(X, 0.9, quantiles=[0.1], parts=True)
    again = load_model(tmp_path / "saved").predict_columns(X, 0.9, quantiles=[0.1], parts=True)
    given = mlflow.pyfunc.load_model(str(tmp_path / "saved")).predict(X, params={"coverage": 0.9, "quantiles": [0.1]})
    assert list(given.columns) == list(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(again[name], values)
        np.testing.assert_array_equal(given[name].to_numpy(), values)
    regressor.save(tmp_path / "model.gwi")
    pd.testing.assert_frame_equal(
        mlflow.pyfunc.load_model(str(tmp_path / "saved")).predict(X), Predictor(tmp_path / "model.gwi")(X)
    )


def test_a_folder_holds_the_file_and_text_only(regressor, tmp_path):
    from gwi.mlflow import save_model

    regressor.save(tmp_path / "model.gwi")
    save_model(tmp_path / "model.gwi", tmp_path / "saved", metadata={"of": "homes"})
    names = sorted(path.name for path in (tmp_path / "saved").rglob("*"))
    assert names == ["MLmodel", "model.gwi", "python_env.yaml", "requirements.txt"]
    assert (tmp_path / "saved" / "model.gwi").read_bytes() == (tmp_path / "model.gwi").read_bytes()
    known = mlflow.models.Model.load(str(tmp_path / "saved"))
    assert known.metadata == {"of": "homes"}
    assert [column.name for column in known.signature.inputs] == ["x", "rooms", "town", "day"]
    assert known.flavors["python_function"]["loader_module"] == "gwi.mlflow"
    with pytest.raises(FileExistsError, match="not empty"):
        save_model(regressor, tmp_path / "saved")


def test_a_logged_classifier_comes_back(rows, tmp_path, monkeypatch):
    from gwi.mlflow import load_model, log_model

    monkeypatch.chdir(tmp_path)
    # A database would take more than mlflow-skinny has.
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    X, y = rows
    model = GWIClassifier("linear", random_state=0).fit(X, np.where(y > 0.5, "high", "low"))
    with mlflow.start_run():
        logged = log_model(model, name="homes")
    np.testing.assert_array_equal(load_model(logged.model_uri).predict_proba(X), model.predict_proba(X))
    found = mlflow.pyfunc.load_model(logged.model_uri).predict(X)
    np.testing.assert_array_equal(found["probability_high"].to_numpy(), model.predict_columns(X)["probability_high"])


def test_a_model_of_an_array_takes_arrays(tmp_path):
    from gwi.mlflow import save_model

    X = np.random.default_rng(0).normal(size=(30, 2))
    model = GWIRegressor("linear", random_state=0).fit(X, X[:, 0])
    save_model(model, tmp_path / "saved")
    predict, expected = mlflow.pyfunc.load_model(str(tmp_path / "saved")).predict, model.predict_columns(X)["prediction"]
    np.testing.assert_array_equal(np.asarray(predict(X)["prediction"]), expected)
    # Frames go by name, in any order.
    np.testing.assert_array_equal(predict(pd.DataFrame(X, columns=["x0", "x1"])[["x1", "x0"]])["prediction"], expected)
    for wrong, sentence in (
        (pd.DataFrame(X, columns=["x0", "b"]), "lacks 1 of the 2 columns of the model: 'x1'"),
        (pd.DataFrame(X, columns=["x0", "x1"]).where(X.min() < X), "the cell is missing"),
        (X[:, :1], "1 features"),
    ):
        with pytest.raises(ValueError, match=sentence):
            predict(wrong)


def test_a_missing_column_is_said(rows, regressor, tmp_path):
    from gwi.mlflow import save_model

    save_model(regressor, tmp_path / "saved")
    with pytest.raises(mlflow.exceptions.MlflowException, match="town"):
        mlflow.pyfunc.load_model(str(tmp_path / "saved")).predict(rows[0].drop(columns="town"))


def test_what_others_saved_is_refused(tmp_path):
    from gwi.mlflow import load_model

    other = mlflow.models.Model()
    other.add_flavor("sklearn", data="x")
    Path(tmp_path / "other").mkdir()
    other.save(str(tmp_path / "other" / "MLmodel"))
    with pytest.raises(ValueError, match="holds sklearn"):
        load_model(tmp_path / "other")
