"""The command gives what the Python interface gives, and a mistake is one sentence with exit code 2."""

import csv
import gzip
import io
import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gwi
import processes
from gwi.cli import commands as cli
from gwi.estimators.table_targets import TARGETS
from gwi.fitting.hyperparameters import MOST_LENGTHSCALES
from gwi.tables.encoder import WIDE, Encoder
from gwi.tables.source import Source, Table, read_table
from gwi.tables.writer import Writer, excel_safe, with_copied

pytestmark = pytest.mark.unchecked


def rows(count, seed):
    rng = np.random.default_rng(seed)
    for i in range(count):
        x, town = rng.normal(), rng.choice(["Ulm", "Bonn"])
        y = 2 * x + (town == "Ulm") + 0.1 * rng.normal()
        yield {"id": f"n{i}", "x": repr(float(x)), "town": town, "y": repr(float(y)), "class": "high" if y > 0 else "low"}


def write(path, records, delimiter=","):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(records[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(records)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Tables, a regression and a classification."""
    path = tmp_path_factory.mktemp("cli")
    write(path / "train.csv", list(rows(40, 0)))
    write(path / "new.csv", list(rows(12, 1)))
    common = ["--mean", "linear", "--quiet", "--json"]
    assert cli.run(["fit", f"{path}/train.csv", "-t", "y", "-o", f"{path}/y.gwi", "--drop", "class", *common]) == 0
    assert (
        cli.run(["fit", f"{path}/train.csv", "-t", "class", "-o", f"{path}/class.gwi", "--drop", "y", "--holdout", "0", *common])
        == 0
    )
    return path


def predicted(capsys, *arguments):
    capsys.readouterr()
    assert cli.run(["predict", *map(str, arguments), "-o", "-", "--quiet"]) == 0
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))


def mistake(capsys, *arguments):
    capsys.readouterr()
    assert cli.run([str(a) for a in arguments]) == 2
    said = capsys.readouterr().err
    assert said.startswith("gwi: ")
    assert said.count("\n") == 1
    return said


def test_a_round_trip_through_other_processes_is_the_python_interface_to_the_last_bit(folder):
    """A fit in one process and predictions in another give, from 17 digits of text, what the estimators give here."""
    fit = ["fit", f"{folder}/train.csv", "-t", "y", "-o", f"{folder}/other.gwi", "--drop", "class", "--mean", "linear"]
    processes.run(["-m", "gwi"], *fit, "--quiet", "--json", "--force", check=True)
    pairs = [("other", "out"), ("class", "classes")]
    runs = [["predict", f"{folder}/{m}.gwi", f"{folder}/new.csv", "-o", f"{folder}/{o}.csv", "--force"] for m, o in pairs]
    code = f"import sys; from gwi import cli; sys.exit(max(cli.run(arguments) for arguments in {runs!r}))"
    processes.run(["-c", code], check=True)

    train, new = read_table(folder / "train.csv"), read_table(folder / "new.csv")
    encoder = Encoder.fit(train, "y", ["class"])
    X = encoder.transform(new)
    model = gwi.GWIRegressor(TARGETS["regression"].means()["linear"], random_state=0)
    model.fit(encoder.transform(train), np.array([float(v) for v in train.column("y").to_pylist()]))
    mean, std = model.predict(X, return_std=True)
    expected = np.column_stack([mean, std, model.predict_interval(X), model.ood_score(X)])
    found = read_rows(folder / "out.csv")
    assert list(found[0]) == ["id", "y", "class", "prediction", "std", "lower", "upper", "ood_score"]
    assert [row["id"] for row in found] == [f"n{i}" for i in range(12)]
    assert [[float(row[c]) for c in list(row)[3:]] for row in found] == expected.tolist()
    digits = [len(row[c].lower().split("e")[0].lstrip("-0.").replace(".", "")) for row in found for c in list(row)[3:]]
    assert 15 <= max(digits) <= 17

    stored = gwi.load(folder / "class.gwi")
    found = read_rows(folder / "classes.csv")
    expected = np.column_stack([stored.predict_proba(new.data), stored.ood_score(new.data)])
    names = [f"probability_{label}" for label in stored.classes_]
    assert [[float(row[c]) for c in [*names, "ood_score"]] for row in found] == expected.tolist()
    assert [row["prediction"] for row in found] == stored.predict(new.data).tolist()


def read_rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_fast_and_slow_lines_are_the_same_table(tmp_path):
    """Cells that need quotation marks are written by Python, others by pyarrow."""
    numbers = np.array([0.1, -1e-300, 1 / 3, 1e22])
    odd = ["plain", 'a "b", c', "two\nlines", ""]
    found = {}
    for kind, text in (("fast", ["plain", "é", "x y", ""]), ("slow", odd)):
        data = pa.table({"text": text, "whole": [1, None, 3, 4], "single": pa.array([0.5, 0.25, 1, 2], pa.float32())})
        source = Source(tmp_path / "a.csv", ("text", "whole", "single"))
        for keep in (["text", "whole"], ["text", "whole", "single"]):
            path = tmp_path / f"{kind}{len(keep)}.csv"
            with path.open("wb") as file, Writer(file, [".csv"]) as writer:
                for rows in (np.array([0, 1]), np.array([2, 3])):
                    writer.write(with_copied(Table(source, data, np.arange(4))[rows], keep, {"prediction": numbers[rows]}))
            found[kind, len(keep)] = read_rows(path)
            assert [row["text"] for row in found[kind, len(keep)]] == text
    for rows in found.values():
        assert [float(row["prediction"]) for row in rows] == numbers.tolist()
        assert [row["whole"] for row in rows] == ["1", "", "3", "4"]


def test_the_chunk_and_the_kind_of_file_do_not_change_the_answer(folder, capsys):
    whole = predicted(capsys, folder / "y.gwi", folder / "new.csv", "--keep", "none")
    found = predicted(capsys, folder / "y.gwi", folder / "new.csv", "--keep", "none", "--chunk-size", 5)
    for row, other in zip(whole, found, strict=True):
        assert {k: float(v) for k, v in row.items()} == pytest.approx({k: float(v) for k, v in other.items()}, rel=1e-9)
    semicolons = [{k: v.replace(".", ",") for k, v in record.items()} for record in rows(12, 1)]
    assert predicted(capsys, folder / "y.gwi", write(folder / "s.csv", semicolons, ";"), "--keep", "none") == whole
    records = [{"town": r["town"], "x": float(r["x"])} for r in rows(12, 1)]
    pq.write_table(pa.Table.from_pylist(records), folder / "new.parquet")
    assert predicted(capsys, folder / "y.gwi", folder / "new.parquet") == whole
    for name in ("out.parquet", "out.csv.gz"):
        assert cli.run(["predict", f"{folder}/y.gwi", f"{folder}/new.csv", "-o", f"{folder}/{name}", "-q", "--keep", "none"]) == 0
    assert pq.read_table(folder / "out.parquet").to_pylist() == [{k: float(v) for k, v in row.items()} for row in whole]
    assert list(csv.DictReader(io.StringIO(gzip.decompress((folder / "out.csv.gz").read_bytes()).decode()))) == whole


def test_classes_have_probabilities_that_sum_to_one(folder, capsys):
    found = predicted(capsys, folder / "class.gwi", folder / "new.csv", "--keep", "id")
    assert list(found[0]) == ["id", "prediction", "probability_high", "probability_low", "ood_score"]
    for row in found:
        high, low = float(row["probability_high"]), float(row["probability_low"])
        assert high + low == pytest.approx(1)
        assert row["prediction"] == ("high" if high >= low else "low")


def test_scores_are_those_of_the_predictions(folder, capsys):
    capsys.readouterr()
    assert cli.run(["evaluate", f"{folder}/y.gwi", f"{folder}/new.csv", "--json", "-q", "--chunk-size", "5"]) == 0
    scores = json.loads(capsys.readouterr().out)
    found = predicted(capsys, folder / "y.gwi", folder / "new.csv")
    errors = np.array([float(row["y"]) - float(row["prediction"]) for row in found])
    assert scores["rows"] == 12
    assert scores["rmse"] == pytest.approx(np.sqrt((errors**2).mean()))
    assert scores["mae"] == pytest.approx(np.abs(errors).mean())
    inside = np.mean([float(row["lower"]) <= float(row["y"]) <= float(row["upper"]) for row in found])
    assert scores["coverage_95"] == inside
    assert {"nll", "crps", "coverage_90", "width_90", "width_95", "calibration_error"} <= set(scores)
    assert cli.run(["evaluate", f"{folder}/class.gwi", f"{folder}/new.csv", "-q"]) == 0
    shown = capsys.readouterr().out
    for name in ("accuracy", "nll", "brier", "ece"):
        assert name in shown


def test_info_says_what_was_fitted(folder, capsys):
    capsys.readouterr()
    assert cli.run(["info", f"{folder}/y.gwi", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["task"], found["target"], found["rows"]) == ("regression", "y", 40)
    assert found["columns"] == {"x": "number", "town": "categories"}
    assert set(found["not_used"]) == {"id", "class"}
    assert found["held_out_scores"]["rows"] == 8
    assert cli.run(["info", f"{folder}/class.gwi"]) == 0
    assert "high, low" in capsys.readouterr().out


def test_version_and_help_do_not_need_torch(capsys):
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out == f"gwi {gwi.__version__}\n"
    code = "import sys; from gwi import cli; cli.run(['--help']); assert not {'torch', 'pyarrow', 'sklearn'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300, stdout=subprocess.DEVNULL)


def test_nothing_is_overwritten_and_an_interrupt_leaves_nothing(folder, tmp_path, capsys, monkeypatch):
    output = tmp_path / "out.csv"
    output.write_text("mine")
    assert "exists; give --force" in mistake(capsys, "predict", folder / "y.gwi", folder / "new.csv", "-o", output)
    assert "exists; give --force" in mistake(capsys, "fit", folder / "new.csv", "-t", "y", "-o", output)

    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("gwi.estimators.tables.predict_table", interrupted)
    assert cli.run(["predict", f"{folder}/y.gwi", f"{folder}/new.csv", "-o", str(output), "--force", "-q"]) == 130
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]
    assert output.read_text() == "mine"


def test_a_bug_is_no_mistake_of_the_user(folder, capsys, monkeypatch):
    def broken(*arguments):
        raise ZeroDivisionError

    monkeypatch.setattr("gwi.storage.description.read_document", broken)
    assert cli.run(["info", f"{folder}/y.gwi"]) == 1
    assert "bug in gwi" in capsys.readouterr().err


FITS = {
    "a target that is not there": ("a,y\n1,2\n3,4\n", ["-t", "z"], "has no column 'z'"),
    "one row": ("a,y\n1,2\n", ["-t", "y"], "has 1 row with a target"),
    "a constant target": ("a,y\n" + "".join(f"{i * i},5\n" for i in range(9)), ["-t", "y"], "there is nothing to learn"),
    "a word in the target": (
        "a,y\n" + "".join(f"{i * i},{i}.5\n" for i in range(9)) + "4,x\n",
        ["-t", "y"],
        "line 11, column 'y': 'x'",
    ),
    "a target too large": ("a,y\n1,2\n2,1e400\n5,3\n7,8\n1,9\n", ["-t", "y"], "line 3, column 'y'"),
    "no other column": ("y\n1\n2\n3\n4\n5\n6\n", ["-t", "y"], "has no column to predict 'y' from"),
    "labels that never repeat": ("a,y\n" + "".join(f"{i * i},v{i}\n" for i in range(9)), ["-t", "y"], "different labels in"),
    "text for regression": (
        "a,y\n1,u\n4,v\n9,u\n2,v\n3,u\n",
        ["-t", "y", "--task", "regression"],
        "line 2, column 'y': 'u' is not a number",
    ),
    "an unknown mean": ("a,y\n" + "".join(f"{i * i},{i}.5\n" for i in range(9)), ["-t", "y", "--mean", "magic"], "--mean magic"),
    "an unknown task": ("a,y\n1,2\n", ["-t", "y", "--task", "magic"], "--task is"),
    "a holdout of all": ("a,y\n1,2\n", ["-t", "y", "--holdout", "1"], "--holdout must be"),
    "no target named": ("a,y\n1,2\n", [], "--target"),
    "an unknown option": ("a,y\n1,2\n", ["-t", "y", "--magic"], "--magic"),
}


@pytest.mark.parametrize(("text", "options", "said"), FITS.values(), ids=FITS)
def test_a_mistake_in_a_fit_is_one_sentence(tmp_path, capsys, text, options, said):
    (tmp_path / "data.csv").write_text(text)
    assert said in mistake(capsys, "fit", tmp_path / "data.csv", "-o", tmp_path / "m.gwi", *options)
    assert not (tmp_path / "m.gwi").exists()


def test_mistakes_in_later_files_are_one_sentence(folder, tmp_path, capsys):
    new = tmp_path / "new.csv"
    for text, said in (
        ("x\n1\n", "lacks 1 of the 2 columns of the model: 'town'"),
        ("x,town\n1,Ulm\nq,Ulm\n", "line 3, column 'x': 'q'"),
    ):
        new.write_text(text)
        assert said in mistake(capsys, "predict", folder / "y.gwi", new, "-o", tmp_path / "out.csv", "-q")
        assert not (tmp_path / "out.csv").exists()
    new.write_text("x,town,class\n1,Ulm,middle\n")
    assert "line 2, column 'class': the model has no class 'middle'" in mistake(
        capsys, "evaluate", folder / "class.gwi", new, "-q"
    )
    assert "has no column 'y', the target" in mistake(capsys, "evaluate", folder / "y.gwi", new, "-q")
    assert "not a gwi model file" in mistake(capsys, "info", new)
    assert "cannot be read" in mistake(capsys, "info", tmp_path / "none.gwi")
    damaged = tmp_path / "damaged.gwi"
    damaged.write_bytes((folder / "y.gwi").read_bytes()[:-8])
    assert "altered or cut off" in mistake(capsys, "predict", damaged, folder / "new.csv", "-o", "-")


def test_columns_with_our_names_step_aside_and_formulas_are_escaped(folder, tmp_path, capsys):
    new = tmp_path / "new.csv"
    new.write_text("x,town,prediction,note\n1,Ulm,mine,=1+1\n-2,Ulm,mine,-5\n")
    found = predicted(capsys, folder / "y.gwi", new, "--excel-safe", "--keep", "all")
    assert [row["prediction_input"] for row in found] == ["mine", "mine"]
    assert [row["note"] for row in found] == ["'=1+1", "-5"]
    assert [excel_safe(cell) for cell in ("@a", "+a", "a=", "-1e5", -1.5)] == ["'@a", "'+a", "a=", "-1e5", -1.5]


def test_a_thousand_columns_are_more_than_length_scales(tmp_path, capsys):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(12, 1_000)).round(2)
    lines = [",".join([f"c{i}" for i in range(1_000)] + ["y"])]
    lines += [",".join([*map(str, row), str(row[:3].sum())]) for row in values]
    (tmp_path / "wide.csv").write_text("\n".join(lines))
    arguments = ["-t", "y", "-o", f"{tmp_path}/m.gwi", "--mean", "svgp", "-q", "--json", "--holdout", "0"]
    assert cli.run(["fit", f"{tmp_path}/wide.csv", *arguments]) == 0
    assert "1001 columns" in json.loads(capsys.readouterr().out)["summary"]
    assert WIDE == MOST_LENGTHSCALES
    (tmp_path / "new.csv").write_text("\n".join([lines[0], lines[1], "," + lines[1].partition(",")[2]]))
    known, blank = predicted(capsys, tmp_path / "m.gwi", tmp_path / "new.csv", "--keep", "none")
    assert float(blank["ood_score"]) > float(known["ood_score"]) + 0.1
