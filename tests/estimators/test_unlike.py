"""Rows unlike those of the fit: counted, named, and less certain."""

import csv
import os
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from torch.utils.data import DataLoader

from gwi import GWIClassifier, GWIRegressor, load
from gwi.cli import commands as cli
from gwi.core.scaling import Scales, StandardisedRows
from gwi.estimators.tables import Choices, fit_table, load_for_tables, predict_table, target_of
from gwi.exceptions import GWIWarning
from gwi.tables.source import read_table
from gwi.tables.unlike import Unlike

pytestmark = pytest.mark.unchecked

EFFECT = {"Ulm": 0.0, "Bonn": 1.5, "Kiel": -1.0, "Jena": 2.0, "Trier": -2.5, "Oslo": 4.0}


def write(path, towns, num_rows=120, seed=0, blank=0, far=0):
    """The target has a level of its own in each town; the first rows lack a size, the last have one that is absurd."""
    rng = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["size", "age", "town", "price", "kind"])
        for i in range(num_rows):
            size, age, town = rng.normal(), rng.uniform(0, 9), str(rng.choice(towns))
            size = size + 1000 * (i >= num_rows - far)
            price = size + EFFECT[town] + 0.2 * rng.normal()
            cell = "" if i < blank else f"{size:.5f}"
            writer.writerow([cell, f"{age:.3f}", town, f"{price:.5f}", "high" if price > 0 else "low"])
    return path


KNOWN = list(EFFECT)[:-1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("unlike")
    write(path / "train.csv", KNOWN)
    for target, other in (("price", "kind"), ("kind", "price")):
        fit = ["fit", f"{path}/train.csv", "-t", target, "--drop", other, "-o", f"{path}/{target}.gwi"]
        assert cli.run([*fit, "--mean", "linear", "-q", "--json", "--holdout", "0"]) == 0
    return path


@pytest.mark.parametrize(("model", "effect"), [("price", "intervals are wider"), ("kind", "probabilities are less certain")])
def test_the_command_counts_and_names_what_training_rows_did_not_have(folder, capsys, model, effect):
    new = write(folder / "new.csv", ["Ulm", "Oslo"], 40, seed=1, blank=2, far=3)
    num_new = read_table(new).column("town").to_pylist().count("Oslo")
    for command in (["predict", "-o", f"{folder}/p.csv", "--force", "--chunk-size", "7"], ["evaluate"], ["report", "--force"]):
        if command[0] == "report":
            command += ["-o", f"{folder}/r.html"]
        capsys.readouterr()
        assert cli.run([command[0], f"{folder}/{model}.gwi", str(new), *command[1:]]) == 0
        said = capsys.readouterr().err
        assert f"{num_new} rows have a value of 'town' that the training rows did not have ('Oslo'); their {effect}." in said
        assert f"2 rows have no value of 'size', which every training row had; their {effect}." in said
        assert "3 rows have a value of 'size' far outside the range of the training rows" in said
    assert cli.run(["predict", f"{folder}/{model}.gwi", f"{folder}/train.csv", "-o", "-"]) == 0
    assert "training row" not in capsys.readouterr().err


def test_such_rows_have_wider_intervals_and_a_high_outlier_score(folder):
    tool = load_for_tables(folder / "price.gwi")
    usual = predict_table(tool, read_table(write(folder / "usual.csv", ["Ulm"], 30, seed=2)))
    town = predict_table(tool, read_table(write(folder / "town.csv", ["Oslo"], 30, seed=2)))
    blank = predict_table(tool, read_table(write(folder / "blank.csv", ["Ulm"], 30, seed=2, blank=30)))
    assert usual["ood_score"].max() < 0.5
    for unlike in (town, blank):
        assert unlike["ood_score"].min() > 0.9
        assert unlike["std"].min() > 1.5 * usual["std"].max()
    # The mean of a row with a new town is that of a usual one: the column that marks it says nothing to means.
    assert abs(np.mean(town["prediction"]) - np.mean(usual["prediction"])) < 2.5


def test_probabilities_of_rows_unlike_all_others_are_less_sure(folder):
    tool = load_for_tables(folder / "kind.gwi")
    usual, new = (predict_table(tool, read_table(write(folder / f"{name}.csv", [name], 60, seed=3))) for name in ("Ulm", "Oslo"))
    sure = [np.abs(found["probability_high"] - 0.5).mean() for found in (usual, new)]
    assert sure[1] < sure[0]
    assert new["ood_score"].min() > 0.9 > 2 * usual["ood_score"].mean()


CASES = [
    ("penguins", "body_mass_g", "sex", "MALE"),
    ("storms", "wind", "status", "tropical storm"),
    ("diamonds", "price", "color", "J"),
]


@pytest.mark.parametrize(("name", "target", "column", "hidden"), CASES)
def test_intervals_hold_rows_of_a_category_that_was_hidden_from_the_fit(name, target, column, hidden):
    path = Path(os.environ.get("GWI_DATA", "")) / "practice" / "mixed" / f"{name}.csv.gz"
    if not path.is_file():
        pytest.skip("needs the mixed tables: set GWI_DATA to the folder that holds practice/mixed/")
    table, y = target_of(read_table(path), target, "regression")
    is_hidden = np.array(table.column(column).to_pylist()) == hidden
    rng = np.random.default_rng(0)
    training, new = (np.sort(rng.permutation(np.flatnonzero(rows))[:300]) for rows in (~is_hidden, is_hidden))
    tool = fit_table(table[training], y[training], target, "regression", choices=Choices("linear"))
    unlike = Unlike()
    found = predict_table(tool, table[new], unlike=unlike)
    assert unlike.new[column] == len(new)
    assert ((found["lower"] <= y[new]) & (y[new] <= found["upper"])).mean() >= 0.95
    assert found["ood_score"].mean() > 0.9


def far_rows():
    x = np.random.default_rng(0).normal(size=(60, 2))
    return x, np.vstack([x[:5], x[5:8] + np.array([0, 50]), x[8:9] * 1e3])


def test_a_prediction_far_outside_of_the_training_rows_warns_once_with_columns_and_counts(tmp_path):
    x, new = far_rows()
    frame = pd.DataFrame(x, columns=["width", "height"])
    model = GWIRegressor("svgp", random_state=0).fit(frame, x[:, 0])
    named = pd.DataFrame(new, columns=["width", "height"])
    for fitted in (model, load(model.save(tmp_path / "m.gwi"))):
        for ask in (fitted.predict, fitted.predict_interval, fitted.predict_quantiles):
            with pytest.warns(GWIWarning, match=r"4 of 9 rows are far .* in 'width' \(1\), 'height' \(4\)") as caught:
                ask(named)
            assert len(caught) == 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fitted.predict(frame)
            fitted.ood_score(named)


@pytest.mark.parametrize("num_columns", [2, 200, 2000])
def test_new_rows_like_the_known_ones_are_hardly_ever_called_far(num_columns):
    rng = np.random.default_rng(0)
    known, new = rng.normal(size=(100, num_columns)), rng.normal(size=(400, num_columns))
    rows = StandardisedRows(Scales.of(known, known[:, :1], np.ones(100)), (num_columns,), (known.min(0), known.max(0)))
    assert rows.outside(new).any(1).mean() <= 0.02
    assert rows.outside(new + 20).all()


def test_a_classifier_warns_too_and_counts_all_batches_of_a_loader():
    x, new = far_rows()
    model = GWIClassifier("linear", random_state=0).fit(x, x[:, 0] > 0)
    with pytest.warns(GWIWarning, match=r"4 of 9 rows are far .* in column 0 \(1\), column 1 \(4\)") as caught:
        model.predict_proba(DataLoader([(row.astype(np.float32), 0) for row in new], batch_size=2))
    assert len(caught) == 1


def test_rows_that_an_update_brought_are_no_longer_far():
    x, new = far_rows()
    model = GWIRegressor("svgp", random_state=0).fit(x, x[:, 0]).update(new, new[:, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(new)


def test_looking_for_far_rows_costs_a_row_next_to_nothing():
    x, _ = far_rows()
    model = GWIRegressor("svgp", random_state=0).fit(x, x[:, 0])
    embedding, row = model.model_.embedding, x[:1]
    start = time.perf_counter()
    for _ in range(200):
        embedding.outside(row)
    assert (time.perf_counter() - start) / 200 < 5e-4
