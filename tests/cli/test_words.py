"""What the command says: help, guesses at what was meant, what was written where, and tables that fit a window."""

import csv
import re

import numpy as np
import pytest

from gwi.cli import commands as cli

pytestmark = pytest.mark.unchecked

LONG = "mean_annual_precipitation_of_the_measuring_station_in_millimetres_" * 2


def write(path, num_rows, seed, names=("weight", "town", LONG, "price"), town=None):
    rng = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        for _ in range(num_rows):
            x, z = rng.normal(size=2)
            place = str(rng.choice(["Ulm", "Bonn"]))
            writer.writerow([f"{x:.6f}", town or place, f"{z:.6f}", f"{2 * x + (place == 'Ulm') + 0.1 * z:.6f}"])
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("words")
    write(path / "train.csv", 60, 0)
    fit = ["fit", f"{path}/train.csv", "-t", "price", "-o", f"{path}/m.gwi", "--mean", "linear", "-q", "--json", "--holdout", "0"]
    assert cli.run(fit) == 0
    return path


def said(capsys, *arguments, code=0):
    capsys.readouterr()
    assert cli.run([str(a) for a in arguments]) == code
    return capsys.readouterr()


def test_the_bare_command_prints_its_help_and_is_no_mistake(capsys):
    found = said(capsys)
    assert found.err == ""
    assert found.out.count("\n") > 10
    assert found.out == said(capsys, "--help").out


def test_a_column_that_is_not_there_is_guessed_at(folder, capsys):
    train, model = folder / "train.csv", folder / "m.gwi"
    renamed = write(folder / "renamed.csv", 6, 1, ("weigth", "town", LONG, "Price"))
    for arguments, meant in (
        (("fit", train, "-t", "prise", "-o", folder / "n.gwi"), "no column 'prise'; did you mean 'price'?"),
        (("fit", train, "-t", "prise", "-o", folder / "n.gwi", "--task", "regression"), "did you mean 'price'?"),
        (("fit", train, "-t", "price", "-o", folder / "n.gwi", "--drop", "twon"), "did you mean 'town'?"),
        (("compare", train, "-t", "PRICE"), "did you mean 'price'?"),
        (("predict", model, train, "-o", "-", "--keep", "twon"), "did you mean 'town'?"),
        (("predict", model, renamed, "-o", "-"), "'weight' (is 'weigth' meant as 'weight'?)"),
        (("evaluate", model, renamed), "the target; did you mean 'Price'?"),
        (("report", model, renamed, "-o", folder / "r.html"), "the target; did you mean 'Price'?"),
    ):
        error = said(capsys, *arguments, "-q", code=2).err
        assert meant in error
        assert error.count("\n") == 1
    assert "did you mean" not in said(capsys, "compare", train, "-t", "something else", "-q", code=2).err


def test_what_was_written_is_named_with_its_size(folder, capsys):
    train, model = folder / "train.csv", folder / "m.gwi"
    fit = said(capsys, "fit", train, "-t", "price", "-o", folder / "b.gwi", "--mean", "linear", "--holdout", "0")
    predicted = said(capsys, "predict", model, train, "-o", folder / "p.csv")
    report = said(capsys, "report", model, train, "-o", folder / "r.html")
    for text, path in ((fit.out, "b.gwi"), (predicted.err, "p.csv"), (report.out, "r.html")):
        size = (folder / path).stat().st_size
        number, unit = re.search(rf"{path} \(([\d.e+]+) ([kM]?B)\)", text).groups()
        assert float(number) * {"B": 1, "kB": 1e3, "MB": 1e6}[unit] == pytest.approx(size, rel=0.01)
    assert "predictions of 60 rows" in predicted.err


def test_tables_fit_a_window_of_eighty_columns(folder, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    deep = folder / LONG
    deep.mkdir()
    (deep / "m.gwi").write_bytes((folder / "m.gwi").read_bytes())
    shown = said(capsys, "evaluate", deep / "m.gwi", folder / "train.csv", "-q").out + said(capsys, "info", deep / "m.gwi").out
    compared = said(capsys, "compare", folder / "train.csv", "-t", "price", "--folds", "2", "-q").out
    shown += "\n".join(line for line in compared.splitlines() if line[:1] in "┏┃┡│└")
    assert max(map(len, shown.splitlines())) <= 80
    assert "mean_annual_precipi…" in shown
    # Means and errors are not torn apart.
    assert not re.search(r"±\s*│", compared)
