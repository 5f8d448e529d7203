"""Odd files through fit, predict and evaluate: the right answer, or one sentence that names the place; never a traceback."""

import contextlib
import csv
import io
import json

import numpy as np
import pytest

from golden.commands import odd_words
from golden.content import RECORD, differences, read
from gwi.cli import commands as cli
from odd_files import BASE, CASES, SAME, text

pytestmark = pytest.mark.unchecked

RECORDED = read(RECORD, "odd_files")
QUICK = ["--mean", "linear", "-q", "--json", "--holdout", "0"]


class Command:
    """Runs commands in this process."""

    def __init__(self, folder, capsys):
        self.folder, self.capsys = folder, capsys

    def __call__(self, *arguments):
        """Exit code, output and the sentence on the error stream."""
        self.capsys.readouterr()
        code = cli.run([str(argument) for argument in arguments])
        out, err = self.capsys.readouterr()
        assert "Traceback" not in err, err
        assert code in (0, 2)
        assert err.count("\n") == (code == 2), err
        return code, out, err

    def predict(self, model, data):
        return self("predict", model, data, "-o", "-", "--keep", "none", "-q")

    def predicted(self, model, data):
        return rows_or_sentence(*self.predict(model, data))


def rows_or_sentence(code, out, err):
    return err if code else list(csv.DictReader(io.StringIO(out)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The base table and the model that later files meet."""
    path = tmp_path_factory.mktemp("odd")
    (path / "base.csv").write_text(text())
    assert cli.run(["fit", f"{path}/base.csv", "-t", "y", "--drop", "label", "-o", f"{path}/y.gwi", *QUICK]) == 0
    return path


@pytest.fixture(scope="module")
def known(folder):
    """Predictions and scores of the base table, once for all cases."""
    assert cli.run(["predict", f"{folder}/y.gwi", f"{folder}/base.csv", "-o", f"{folder}/p.csv", "--keep", "none", "-q"]) == 0
    with contextlib.redirect_stdout(io.StringIO()) as scores:
        assert cli.run(["evaluate", f"{folder}/y.gwi", f"{folder}/base.csv", "--json", "-q"]) == 0
    return list(csv.DictReader(io.StringIO((folder / "p.csv").read_text()))), scores.getvalue()


@pytest.fixture
def command(folder, capsys):
    return Command(folder, capsys)


def refuses(found, said, path):
    assert isinstance(found, str), found
    assert said in found
    assert str(path) in found or "No row has a value" in found


def check_recorded(name, predicted, fitted, folder, model):
    """The sentences are, word by word, those of the golden record."""
    said = differences(odd_words(predicted, fitted, folder, model), RECORDED[name])
    assert not said, "\n".join(said)


@pytest.mark.parametrize("name", CASES)
def test_an_odd_file_gives_the_right_answer_or_one_sentence(name, folder, known, command, tmp_path):
    case = CASES[name]
    path = case.path(tmp_path)
    model = folder / "y.gwi"
    expected, scores = known

    prediction = command.predict(model, path)
    found = rows_or_sentence(*prediction)
    if case.predict == SAME:
        assert found == expected
    elif isinstance(case.predict, int):
        assert len(found) == case.predict
        assert all(np.isfinite(float(cell)) for row in found for cell in row.values())
    else:
        refuses(found, case.predict, path)

    code, out, err = command("evaluate", model, path, "--json", "-q")
    if case.evaluate == SAME:
        assert out == scores
    elif isinstance(case.evaluate, int):
        assert json.loads(out)["rows"] == case.evaluate
    else:
        refuses(err if code else out, case.evaluate, path)

    if case.fit is None:
        check_recorded(name, prediction, None, tmp_path, model)
        return
    fitted = tmp_path / "m.gwi"
    other = "label" if case.target == "y" else "y"
    drop = ["--drop", other] if not isinstance(case.fit, str) or case.fit == SAME else []
    if name == "columns missing":
        drop = ["--drop", "label"]
    code, out, err = command("fit", path, "-t", case.target, "-o", fitted, *drop, *QUICK)
    check_recorded(name, prediction, (code, out, err), tmp_path, model)
    if isinstance(case.fit, set):
        assert code == 0, err
        assert set(json.loads(out)["columns"]) == case.fit
        assert len(command.predicted(fitted, path)) >= len(BASE)
    elif case.fit == SAME:
        assert code == 0, err
        assert set(json.loads(out)["columns"]) == {"x", "town"}
        assert json.loads(out)["rows"] == len(BASE)
        assert command.predicted(fitted, folder / "base.csv") == expected
    else:
        refuses(err if code else out, case.fit, path)
        assert not fitted.exists()


def test_a_model_of_dates_refuses_numbers_and_takes_dates_in_parquet(command, tmp_path):
    import datetime

    import pyarrow as pa
    import pyarrow.parquet as pq

    days = [datetime.date(2024, 1 + i % 12, 1 + i) for i in range(24)]
    y = [d.month + 0.1 * d.day for d in days]
    train = tmp_path / "train.csv"
    train.write_text("day,y\n" + "".join(f"{d},{v}\n" for d, v in zip(days, y, strict=True)))
    model = tmp_path / "m.gwi"
    assert command("fit", train, "-t", "y", "-o", model, *QUICK)[0] == 0
    pq.write_table(pa.table({"day": days}), tmp_path / "days.parquet")
    assert command.predicted(model, tmp_path / "days.parquet") == command.predicted(model, train)
    pq.write_table(pa.table({"day": list(range(24))}), tmp_path / "numbers.parquet")
    assert "column 'day' holds numbers; the model was fitted to dates" in command.predicted(model, tmp_path / "numbers.parquet")
    (tmp_path / "numbers.csv").write_text("day\n20240101\n20240102\n")
    assert "line 2, column 'day': '20240101' is not a date" in command.predicted(model, tmp_path / "numbers.csv")


def test_classes_of_the_file_come_back_as_they_are_written(command, tmp_path):
    path = CASES["emoji classes"].path(tmp_path)
    model = tmp_path / "m.gwi"
    assert command("fit", path, "-t", "label", "--drop", "y", "-o", model, *QUICK)[0] == 0
    found = command.predicted(model, path)
    assert {"probability_🍎", "probability_🥝 kiwi"} <= set(found[0])
    assert {row["prediction"] for row in found} == {"🍎", "🥝 kiwi"}


@pytest.mark.slow
def test_ten_thousand_columns_can_be_fitted(command, tmp_path):
    rng = np.random.default_rng(0)
    lines = [",".join(["y", *(f"c{i}" for i in range(10_000))])]
    lines += [",".join([row[2], *map(str, rng.integers(0, 99, 10_000))]) for row in BASE]
    (tmp_path / "wide.csv").write_text("\n".join(lines))
    model = tmp_path / "m.gwi"
    code, out, err = command("fit", tmp_path / "wide.csv", "-t", "y", "-o", model, *QUICK)
    assert code == 0, err
    assert len(json.loads(out)["columns"]) == 10_000
    assert len(command.predicted(model, tmp_path / "wide.csv")) == len(BASE)
