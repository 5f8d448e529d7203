"""Methods are compared on the same folds, and wins and losses are what the folds say."""

import json
import math

import numpy as np
import pytest

from gwi.cli import commands as cli
from gwi.report.comparison import Compared, Comparison
from gwi.report.comparison_page import cell, content
from gwi.report.peers import OURS

pytestmark = pytest.mark.unchecked


def method(name, **scores):
    everything = {metric: np.ones(4) for metric in ("crps", "nll", "rmse", "coverage_95", "width_95", "seconds")}
    return Compared(name, "", everything | {metric: np.array(values, dtype=float) for metric, values in scores.items()})


def test_best_are_those_within_one_standard_error_of_the_paired_difference():
    ours = method(OURS, crps=[1.0, 2.0, 3.0, 4.0], coverage_95=[0.9, 1.0, 0.9, 1.0])
    # Behind by a little in every fold: far more than chance, though the folds themselves differ by much.
    steady = method("steady", crps=[1.1, 2.1, 3.1, 4.1], coverage_95=[0.9, 0.9, 0.9, 0.9])
    shaky = method("shaky", crps=[1.5, 1.6, 3.4, 3.7], coverage_95=[0.95] * 4)
    failed = method("failed", crps=[math.nan] * 4, coverage_95=[math.nan] * 4)
    found = Comparison("regression", r"$y_{$ <b>", 40, 4, (ours, steady, shaky, failed))
    assert found.best("crps") == (OURS, "shaky")
    assert set(found.best("coverage_95")) == {OURS, "shaky"}
    assert found.best("seconds") == ()
    sentences = found.sentences()
    assert sentences[0].startswith("gwi against steady: better in CRPS")
    assert "even in CRPS" in sentences[1]
    assert found.difference(ours, steady, "crps")[0] == pytest.approx(0.1)
    assert cell(failed, "crps") == "–"
    assert cell(ours, "crps") == "2.5 ± 0.65"
    assert cell(ours, "coverage_95") == "95.0 ± 2.9 %"
    for kind, start in ((".png", b"\x89PNG"), (".svg", b"<?xml"), (".html", b"<!doctype html>")):
        first = content(found, "<b>a&b.csv", kind)
        assert first.startswith(start)
        assert b"<b>a" not in first
        assert content(found, "<b>a&b.csv", kind) == first


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("compare") / "data.csv"
    rng = np.random.default_rng(0)
    x = rng.normal(size=(36, 2))
    y = x[:, 0] + 0.3 * rng.normal(size=36)
    labels = np.where(y > 0, "up", "down").astype(object)
    labels[:2] = "rare"
    path.write_text("a,b,y,c\n" + "".join(f"{u},{v},{w},{k}\n" for (u, v), w, k in zip(x, y, labels, strict=True)))
    return path


def test_every_method_is_scored_on_every_fold(data, tmp_path, capsys):
    output = tmp_path / "c.html"
    arguments = ["compare", str(data), "-t", "y", "--drop", "c", "--folds", "3", "--gp-rows", "20", "-q"]
    assert cli.run([*arguments, "--json", "-o", str(output)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["methods"]) == ["gwi", "exact GP", "boosting", "ridge"]
    assert (found["rows"], found["folds"], found["task"]) == (36, 3, "regression")
    for scores in found["methods"].values():
        for metric in ("crps", "nll", "rmse", "coverage_95", "width_95", "seconds"):
            folds = scores[metric]["folds"]
            assert len(folds) == 3
            assert scores[metric]["mean"] == pytest.approx(np.mean(folds))
            assert scores[metric]["error"] == pytest.approx(np.std(folds, ddof=1) / math.sqrt(3))
    assert "a random 20 of 24 training rows" in found["methods"]["exact GP"]["note"]
    # Half of what there is to know is linear in one column.
    assert found["methods"]["ridge"]["rmse"]["mean"] < 0.5
    page = output.read_text()
    assert page.count("<svg viewBox") == 6
    assert "gwi against ridge" in page


def test_rare_classes_are_left_out_with_a_note(data, capsys):
    assert cli.run(["compare", str(data), "-t", "c", "--drop", "y", "--folds", "3", "-q"]) == 0
    shown = capsys.readouterr().out
    assert "2 rows of 1 classes with fewer rows than folds are left out." in shown
    for words in ("accuracy", "Brier", "ECE", "logistic", "exact GP", "gwi against boosting"):
        assert words in shown


def test_mistakes_are_one_sentence(data, tmp_path, capsys):
    few = tmp_path / "few.csv"
    few.write_text("a,y\n1,2\n3,4\n5,7\n")
    for arguments, said in (
        ([str(data), "-t", "y", "-o", f"{tmp_path}/c.txt"], "must end in .png, .svg or .html"),
        ([str(data), "-t", "z"], "has no column 'z'"),
        ([str(data), "-t", "y", "--folds", "1"], "--folds"),
        ([str(few), "-t", "y", "--task", "regression"], "5 folds need at least 10"),
        ([str(data), "-t", "y", "--task", "magic"], "--task is"),
    ):
        capsys.readouterr()
        assert cli.run(["compare", *arguments, "-q"]) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1
