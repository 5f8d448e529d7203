"""Groups and time: what the command does with them, and what it notices."""

import json

import numpy as np
import pytest

from gwi import cli
from gwi.estimators.columns import encoder_of
from gwi.estimators.tables import Choices, fit_table, split, target_of
from gwi.exceptions import UserError
from gwi.tables.source import read_table
from gwi.tables.structure import groups_of, in_time, noticed


def table(path, rows, header):
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return read_table(path)


@pytest.fixture
def patients(tmp_path):
    rng = np.random.default_rng(0)
    rows = [(f"p{i // 6}", round(x, 3), round(x + i // 6, 3)) for i, x in enumerate(rng.normal(size=60))]
    return table(tmp_path / "patients.csv", rows, "patient,dose,y")


def test_whole_groups_are_held_out_and_their_column_is_no_input(patients):
    choices = Choices("linear", groups="patient")
    known, y = target_of(patients, "y", "regression")
    training, held = split(known, y, 0.2, "regression", choices)
    names = groups_of(known, "patient")
    assert len(held) == 12
    assert not set(names[training]) & set(names[held])
    model = fit_table(known[training], y[training], "y", "regression", choices=choices)
    assert encoder_of(model).inputs == ["dose"]
    assert model._fit.data.held_out.unit is not None


def test_rows_are_put_in_order_of_time_and_the_last_are_held_out(tmp_path):
    shuffled = np.random.default_rng(0).permutation(40)
    rows = [(f"{2000 + i // 12}-{i % 12 + 1:02d}", i) for i in shuffled]
    ordered = in_time(table(tmp_path / "months.csv", rows, "Month,y"), "Month")
    _, y = target_of(ordered, "y", "regression")
    np.testing.assert_array_equal(y, np.arange(40))
    training, held = split(ordered, y, 0.25, "regression", Choices(time="Month"))
    assert training.max() < held.min() == 30


def test_columns_that_look_like_ids_or_dates_in_order_are_noticed(tmp_path, patients):
    assert [("patient" in said, "--groups 'patient'" in said) for said in noticed(patients, "y")] == [(True, True)]
    rows = [(f"2024-01-{i + 1:02d}", f"city {i % 3}", i) for i in range(28)]
    (said,) = noticed(table(tmp_path / "days.csv", rows, "Date,city,y"), "y")
    assert "Pass --time 'Date'" in said
    backwards = [("a", i % 7, i) for i in range(30)]
    assert noticed(table(tmp_path / "plain.csv", backwards, "kind,number,y"), "y") == []


def test_wrong_groups_and_times_are_told_in_one_sentence(tmp_path, patients):
    with pytest.raises(UserError, match=r"has no column 'patiens', the groups; did you mean 'patient'\?"):
        groups_of(patients, "patiens")
    with pytest.raises(UserError, match="'p0' is not a number"):
        in_time(patients, "patient")
    gaps = table(tmp_path / "gaps.csv", [(1, "a", 2), ("", "", 3), (3, "b", 4)], "t,g,y")
    with pytest.raises(UserError, match=r"line 3, column 't': the row has no time"):
        in_time(gaps, "t")
    with pytest.raises(UserError, match=r"line 3, column 'g': the row has no group"):
        groups_of(gaps, "g")
    with pytest.raises(UserError, match="all rows are of one group"):
        groups_of(table(tmp_path / "one.csv", [("a", 1), ("a", 2)], "g,y"), "g")


@pytest.fixture
def visits(tmp_path):
    """Patients who come six times, each with a level of their own, day after day."""
    rng = np.random.default_rng(0)
    days = [f"2024-{i // 28 + 1:02d}-{i % 28 + 1:02d}" for i in range(120)]
    rows = [(f"p{i // 6}", days[i], round(x, 4), round(x + i // 6 % 5, 4)) for i, x in enumerate(rng.normal(size=120))]
    table(tmp_path / "visits.csv", rows, "patient,day,dose,y")
    return ["fit", f"{tmp_path}/visits.csv", "-t", "y", "--mean", "linear", "-o", f"{tmp_path}/m.gwi", "--force"]


def test_the_command_judges_by_new_groups(visits, capsys):
    found = []
    for options in ((), ("--groups", "patient")):
        assert cli.run([*visits, "-q", "--json", "--no-refit", *options]) == 0
        found.append(json.loads(capsys.readouterr().out))
    at_random, by_groups = found
    assert "patient" in at_random["columns"]
    assert list(by_groups["columns"]) == ["day", "dose"]
    # A level that only its own patient tells is noise to a new one.
    assert by_groups["held_out_scores"]["rmse"] > 1.5 * at_random["held_out_scores"]["rmse"]


def test_the_command_says_what_to_pass_for_ids_and_dates(visits, capsys):
    for options, wanted in (((), "--groups 'patient'"), (("--drop", "patient"), "--time 'day'")):
        assert cli.run([*visits, *options]) == 0
        assert wanted in capsys.readouterr().err
    assert cli.run([*visits, "--groups", "patient"]) == 0
    assert "--groups 'patient'" not in capsys.readouterr().err


def test_the_command_judges_by_later_rows(tmp_path, capsys):
    rng = np.random.default_rng(0)
    days = rng.permutation(90)
    rows = [
        (f"2024-{i // 28 + 1:02d}-{i % 28 + 1:02d}", round(x, 4), round(x + (i / 30) ** 3, 4))
        for i, x in zip(days, rng.normal(size=90), strict=True)
    ]
    table(tmp_path / "days.csv", rows, "day,x,y")
    fit = [
        "fit",
        f"{tmp_path}/days.csv",
        "-t",
        "y",
        "--mean",
        "linear",
        "-o",
        f"{tmp_path}/m.gwi",
        "--force",
        "-q",
        "--json",
        "--no-refit",
    ]
    found = []
    for options in ((), ("--time", "day")):
        assert cli.run([*fit, *options]) == 0
        found.append(json.loads(capsys.readouterr().out)["held_out_scores"])
    # What grows faster and faster is missed by a line that ends before the rows that judge it.
    assert found[1]["rmse"] > 1.5 * found[0]["rmse"]
