"""`gwi fit` on a large table is `gwi fit` on a small one, with the rows read some at a time."""

import gzip
import json
import os
import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gwi.cli import commands as cli
from gwi.cli.console import noted_warnings
from gwi.estimators import large, tables
from gwi.estimators.large import as_parquet, fit_large, sampled_table, table_source
from gwi.estimators.tables import Choices, is_large, load_for_tables, target_of
from gwi.exceptions import GWIWarning, UserError
from gwi.fitting import stream_data as stream_tasks
from gwi.streaming import checkpoints
from gwi.streaming.batches import priorities
from gwi.streaming.checkpoints import Checkpoints
from gwi.streaming.loaders import fingerprint_of
from gwi.tables.encoder import Encoder
from gwi.tables.source import open_table, read_table

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
    monkeypatch.setattr(tables, "FEW_NUMBERS", 0)


def test_a_sample_of_a_table_holds_its_rows_under_their_numbers(folder):
    found = sampled_table(open_table(folder / "parts"), 0, count=100)
    assert len(found) == 100
    assert (np.diff(found.number) > 0).all()
    np.testing.assert_array_equal(found.column("id").to_numpy(), found.number)


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
    assert "rows were streamed" in said["summary"]
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
    model = fit_large(open_table(folder / "one.parquet"), "kind", "auto", ["y"], Choices(mean="linear"), 0.1)
    assert model.task == "classification"
    assert model.classes_.tolist() == ["high", "low"]
    assert model.held_out_scores_["accuracy"] > 0.75


def test_a_checkpoint_is_of_one_target_one_encoding_and_one_share(folder):
    source = open_table(folder / "one.parquet")
    sample = sampled_table(source, 0, count=200)
    price, other = (Encoder.fit(sample, "y", drop) for drop in ([], ["town"]))
    rent = Encoder.fit(sample, "x", ["y"])
    choices = [(price, 0, 0.1), (other, 0, 0.1), (rent, 0, 0.1), (price, 1, 0.1), (price, 0, 0.2)]
    found = [fingerprint_of(table_source(source, c, "regression", seed, share)) for c, seed, share in choices]
    assert len(set(found)) == len(choices)
    assert fingerprint_of(table_source(source, price, "regression", 0, 0.1)) == found[0]


def test_a_label_has_one_name_in_all_chunks(tmp_path, streaming, capsys):
    codes = ["001"] * 200 + ["002"] * 200 + ["001", "V10"] * 100 + ["002", "V10"] * 100
    x = np.random.default_rng(0).normal(size=(2, len(codes)))
    path, model = tmp_path / "codes.parquet", tmp_path / "codes.gwi"
    pq.write_table(pa.table({"x": x[0], "z": x[1], "k": codes}), path, row_group_size=200)
    common = ["--mean", "linear", "--quiet", "--holdout", "0", "--task", "classification"]
    assert cli.run(["fit", f"{path}", "-t", "k", "-o", f"{model}", *common]) == 0
    assert load_for_tables(model).classes_.tolist() == ["001", "002", "V10"]
    capsys.readouterr()
    # The first chunks hold numbers alone.
    assert cli.run(["evaluate", f"{model}", f"{path}", "--chunk-size", "100", "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == len(codes)


def test_labels_are_numbers_or_text_as_was_decided(tmp_path):
    path = tmp_path / "k.csv"
    path.write_text("a,k\n5,01\n2,1.0\n9,\n4,V\n")
    some = read_table(path)
    assert target_of(some, "k", "classification")[1].tolist() == ["01", "1.0", "V"]
    assert target_of(some, "k", "classification", True)[1].tolist() == ["1", "1", "V"]
    first = some[np.array([0, 1])]
    assert target_of(first, "k", "classification")[1].tolist() == ["1", "1"]
    assert target_of(first, "k", "classification", False)[1].tolist() == ["01", "1.0"]
    columns = Encoder.fit(some, "k")
    assert Encoder.from_json(columns.to_json()) == columns
    decided = replace(columns, number_labels=False)
    assert Encoder.from_json(decided.to_json()) == decided
    assert "number_labels" not in columns.to_json()


def test_a_class_that_is_only_held_out_costs_its_rows_and_not_the_fit(tmp_path, streaming, capsys):
    count = 800
    x = np.random.default_rng(0).normal(size=count)
    held = np.flatnonzero(priorities(np.arange(count), 1) < np.uint64(int(0.2 * 2**64)))
    kinds = np.where(x > 0, "high", "low").astype(object)
    kinds[held[0]] = "rare"
    path, model = tmp_path / "rare.parquet", tmp_path / "rare.gwi"
    pq.write_table(pa.table({"x": x, "z": x**2, "k": kinds.astype(str)}), path, row_group_size=200)
    assert cli.run(["fit", f"{path}", "-t", "k", "-o", f"{model}", "--mean", "linear", "--json"]) == 0
    said = capsys.readouterr()
    assert "1 held-out rows have a label that no training row has" in said.err
    assert json.loads(said.out)["held_out_scores"]["rows"] == len(held) - 1


def test_a_fit_is_kept_before_it_is_scored(folder, streaming, monkeypatch):
    kept = []

    def fail(*given):
        raise UserError("no scores today")

    monkeypatch.setattr(large, "evaluate_tables", fail)
    source, choices = open_table(folder / "one.parquet"), Choices(mean="linear")
    with pytest.raises(UserError, match="no scores today"):
        fit_large(source, "y", "regression", ["kind"], choices, 0.1, on_fitted=kept.append)
    assert len(kept) == 1


def test_large_text_is_converted_once(tmp_path, monkeypatch):
    path = tmp_path / "t.csv"
    path.write_text("a;b\n1,5;x\n2,5;y\n")
    monkeypatch.setattr(tables, "FEW_BYTES", 0)
    source = open_table(path)
    assert is_large(source)
    converted, said = as_parquet(source)
    assert "was converted to" in said
    assert converted.decimal == ","
    assert read_table(converted.path).data.to_pydict() == {"a": ["1,5", "2,5"], "b": ["x", "y"]}
    assert "before, is read instead" in as_parquet(source)[1]


def test_one_process_decides_whether_to_convert(tmp_path, monkeypatch):
    path = tmp_path / "t.csv"
    path.write_text("a;b\n1,5;x\n2,5;y\n")
    asked = []

    def from_first(processes, function):
        asked.append(function)
        assert function()
        # What another process, which comes when the first has converted, would find for itself.
        assert not function()
        return True

    monkeypatch.setattr(large.ProcessGroup, "from_first", from_first)
    assert "was converted to" in as_parquet(open_table(path))[1]
    assert len(asked) == 1


def test_packed_text_is_as_large_as_what_it_unpacks_to(tmp_path, monkeypatch):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" + b"1.5,2.5\n" * 20_000))
    monkeypatch.setattr(tables, "FEW_BYTES", 100_000)
    assert path.stat().st_size < 1000
    assert is_large(open_table(path))
    monkeypatch.setattr(tables, "FEW_BYTES", 200_000)
    assert not is_large(open_table(path))


def test_files_of_a_folder_must_have_the_same_columns(tmp_path):
    with pytest.raises(UserError, match="folder without Parquet"):
        open_table(tmp_path)
    pq.write_table(pa.table({"a": [1.0]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"b": [1.0]}), tmp_path / "2.parquet")
    with pytest.raises(UserError, match=r"has other columns than .*'a', 'b'"):
        open_table(tmp_path)
    pq.write_table(pa.table({"a": ["text"]}), tmp_path / "2.parquet")
    with pytest.raises(UserError, match="different kinds of values"):
        open_table(tmp_path)


def test_columns_in_the_names_of_folders_are_refused(tmp_path):
    pq.write_to_dataset(pa.table({"year": [2020, 2021], "a": [1.0, 2.0]}), tmp_path, partition_cols=["year"])
    with pytest.raises(UserError, match="in the names of folders"):
        open_table(tmp_path)


def test_files_of_a_folder_may_differ_in_the_order_and_type_of_columns(tmp_path):
    pq.write_table(pa.table({"a": [1, 2], "k": ["u", "v"]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"k": ["w", "u"], "a": pa.array([None, 4.5])}), tmp_path / "1.parquet")
    wanted = {"a": [1.0, 2.0, None, 4.5], "k": ["u", "v", "w", "u"]}
    assert read_table(tmp_path).data.to_pydict() == wanted
    assert sampled_table(open_table(tmp_path), 0).data.to_pydict() == wanted


def test_a_file_that_is_damaged_in_its_middle_is_a_mistake_of_the_user(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": np.random.default_rng(0).normal(size=5000)}), path)
    content = bytearray(path.read_bytes())
    content[4:200] = b"x" * 196
    path.write_bytes(content)
    with pytest.raises(UserError, match="is a damaged Parquet file"):
        sampled_table(open_table(path), 0)


def test_a_checkpoint_that_cannot_be_written_is_said_at_once(tmp_path, monkeypatch, capsys):
    def full(*given, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "write_atomically", full)
    with noted_warnings(quiet=False):
        Checkpoints.of(tmp_path, "fit").write("rows", {}, {})
        assert "No space left on device" in capsys.readouterr().err
        warnings.warn("of ours", GWIWarning, stacklevel=1)
        warnings.warn("of ours", GWIWarning, stacklevel=1)
        warnings.warn("of a library", UserWarning, stacklevel=1)
        assert capsys.readouterr().err == ""
    assert capsys.readouterr().err == "note: of ours\n"


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
    assert load_for_tables(folder / "two.gwi").summary_.num_rows > 1000


@pytest.mark.slow
def test_a_cell_that_one_of_two_launched_processes_cannot_read_is_said_once(tmp_path):
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1"}
    cells = [str(i) for i in range(50_000)]
    # Not in the sample from which the first process learns the columns.
    cells[40_001] = "many"
    columns = {"a": np.random.default_rng(0).normal(size=len(cells)), "y": cells}
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet", row_group_size=25_000)
    command = [sys.executable, "-m", "gwi", "launch", "--nproc-per-node", "2", "fit", f"{tmp_path}/rows.parquet"]
    options = ["-t", "y", "--task", "regression", "--mean", "linear", "--holdout", "0", "-o", f"{tmp_path}/m.gwi"]
    done = subprocess.run([*command, *options], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("row 40002, column 'y': 'many' is not a number") == 1
    assert not (tmp_path / "m.gwi").exists()
