"""`gwi fit` on a large table is `gwi fit` on a small one, with the rows read some at a time."""

import json
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gwi import cli, stream_tasks, stream_tool
from gwi.columns import Columns
from gwi.launching import torchrun_arguments
from gwi.sources import fingerprint_of
from gwi.stream_tool import as_parquet, fit_large, is_large, sampled_table, table_source
from gwi.tables import UserError, open_table, read_table
from gwi.tool import Choices, load_tool

pytestmark = pytest.mark.unchecked


def table(count=1500, seed=0):
    rng = np.random.default_rng(seed)
    x, town = rng.normal(size=count), rng.choice(["Ulm", "Bonn", "Kiel"], count)
    y = 2 * np.sin(x) + (town == "Ulm") + 0.1 * rng.normal(size=count)
    columns = {"id": np.arange(count), "x": x, "town": town, "y": y, "kind": np.where(y > 0.5, "high", "low")}
    result = pa.table(columns)
    gaps = pa.array([None if i % 50 == 0 else v for i, v in enumerate(y)], pa.float64())
    return result.set_column(3, "y", gaps)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("large")
    (path / "parts").mkdir()
    whole = table()
    pq.write_table(whole, path / "one.parquet", row_group_size=300)
    for i in range(2):
        pq.write_table(whole.slice(750 * i, 750), path / "parts" / f"{i}.parquet", row_group_size=300)
    return path


@pytest.fixture
def streaming(monkeypatch):
    monkeypatch.setattr(stream_tasks, "FEW_NUMBERS", 0)
    monkeypatch.setattr(stream_tool, "FEW_NUMBERS", 0)


def test_a_sample_of_a_table_holds_its_rows_under_their_numbers(folder):
    found = sampled_table(open_table(folder / "parts"), 0, count=100)
    assert len(found) == 100
    assert (np.diff(found.rows) > 0).all()
    np.testing.assert_array_equal(found.column("id").to_numpy(), found.rows)


def test_a_large_table_is_encoded_fitted_scored_and_predicted(folder, streaming, capsys):
    assert is_large(open_table(folder / "one.parquet"))
    model = folder / "m.gwi"
    arguments = ["fit", f"{folder}/parts", "-t", "y", "-o", f"{model}", "--drop", "kind", "--mean", "linear", "--holdout", "0.1"]
    assert cli.run([*arguments, "--json", "--quiet"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["columns"] == {"x": "number", "town": "categories"}
    assert said["not_used"]["id"] == "counts the rows"
    # 1,470 rows have a target, a tenth is for the scores, and of the others a fifth judges.
    assert 900 < said["rows"] < 1150
    assert 100 < said["held_out_scores"]["rows"] < 200
    assert said["held_out_scores"]["coverage_95"] > 0.85
    assert "rows were read from a stream" in said["summary"]
    assert cli.run(["predict", f"{model}", f"{folder}/parts", "-o", f"{folder}/out.parquet", "--force", "--quiet"]) == 0
    out = pq.read_table(folder / "out.parquet")
    np.testing.assert_array_equal(out.column("id").to_numpy(), np.arange(1500))
    assert cli.run(["evaluate", f"{model}", f"{folder}/parts", "--chunk-size", "333", "--json", "--quiet"]) == 0
    scores = json.loads(capsys.readouterr().out)
    y = table().column("y").to_numpy(zero_copy_only=False)
    errors = (out.column("prediction").to_numpy() - y)[~np.isnan(y)]
    assert scores["rows"] == 1470
    assert scores["rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)), rel=1e-12)
    assert cli.run(["evaluate", f"{model}", f"{folder}/one.parquet", "--json", "--quiet"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again == pytest.approx(scores, rel=1e-9)


def test_classes_of_a_large_table(folder, streaming):
    tool = fit_large(open_table(folder / "one.parquet"), "kind", "auto", ["y"], Choices(mean="linear"), 0.1)
    assert tool.task == "classification"
    assert tool.estimator.classes_.tolist() == ["high", "low"]
    assert tool.scores["accuracy"] > 0.75


def test_a_snapshot_is_of_one_target_one_encoding_and_one_share(folder):
    source = open_table(folder / "one.parquet")
    sample = sampled_table(source, 0, count=200)
    price, other = (Columns.fit(sample, "y", drop) for drop in ([], ["town"]))
    rent = Columns.fit(sample, "x", ["y"])
    choices = [(price, 0, 0.1), (other, 0, 0.1), (rent, 0, 0.1), (price, 1, 0.1), (price, 0, 0.2)]
    found = [fingerprint_of(table_source(source, c, "regression", seed, share, "fit")) for c, seed, share in choices]
    assert len(set(found)) == len(choices)
    assert fingerprint_of(table_source(source, price, "regression", 0, 0.1, "fit")) == found[0]


def test_large_text_is_converted_once(tmp_path, monkeypatch):
    path = tmp_path / "t.csv"
    path.write_text("a;b\n1,5;x\n2,5;y\n")
    monkeypatch.setattr(stream_tool, "FEW_BYTES", 0)
    source = open_table(path)
    assert is_large(source)
    converted, said = as_parquet(source)
    assert "was converted to" in said
    assert converted.decimal == ","
    assert read_table(converted.path).data.to_pydict() == {"a": ["1,5", "2,5"], "b": ["x", "y"]}
    assert "before, is read in its place" in as_parquet(source)[1]


def test_files_of_a_folder_must_have_the_same_columns(tmp_path):
    with pytest.raises(UserError, match="folder without Parquet"):
        open_table(tmp_path)
    pq.write_table(pa.table({"a": [1.0]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"b": [1.0]}), tmp_path / "2.parquet")
    with pytest.raises(UserError, match="has other columns than"):
        open_table(tmp_path)


def test_the_launcher_passes_options_on_and_says_what_it_needs():
    found = torchrun_arguments(["--nproc-per-node", "4", "fit", "a.parquet", "-t", "y"])
    assert found[:2] == ["--nproc-per-node", "4"]
    assert found[-6:] == ["-m", "gwi", "fit", "a.parquet", "-t", "y"]
    assert "--standalone" in found
    two = torchrun_arguments(["--nnodes=2", "--max-restarts=3", "fit"])
    assert two == ["--nnodes=2", "--max-restarts=3", "-m", "gwi", "fit"]
    with pytest.raises(UserError, match="gwi launch takes"):
        torchrun_arguments(["--nproc-per-node", "4"])


@pytest.mark.slow
def test_two_launched_processes_write_one_model(folder):
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "gwi", "launch", "--nproc-per-node", "2", "fit", f"{folder}/one.parquet", "--force"]
    options = ["-t", "y", "--drop", "kind,town", "--mean", "svgp", "--holdout", "0"]
    done = subprocess.run(
        [*command, *options, "-o", f"{folder}/two.gwi"], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Regression of 'y'") == 1
    assert load_tool(folder / "two.gwi").estimator.summary_.num_rows > 1000
