"""Counts, times to an event and levels in order from a table to predictions, scores, a report and what is said of them."""

import csv
import io
import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gwi
from gwi.cli import commands as cli

pytestmark = pytest.mark.unchecked

LEVELS = ["low", "middle", "high"]
QUICK = ["--mean", "linear", "-q", "--json"]


def rows(count, seed):
    rng = np.random.default_rng(seed)
    for i in range(count):
        x, town = rng.uniform(-2, 2), rng.choice(["Ulm", "Bonn"])
        f = x + (town == "Ulm") - 0.5
        days, left = math.exp(3 + f + 0.5 * rng.normal()), rng.uniform(5, 100)
        level = LEVELS[int(np.digitize(f + 0.5 * rng.normal(), [-0.6, 0.6]))]
        yield {
            "id": f"n{i}",
            "x": repr(float(x)),
            "town": town,
            "visits": str(rng.poisson(math.exp(1 + f))),
            "days": f"{min(days, left):.3f}",
            "failed": "yes" if days <= left else "No",
            "grade": level,
        }


def write(path, records):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(records[0]))
        writer.writeheader()
        writer.writerows(records)
    return path


OPTIONS = {
    "visits": ["--likelihood", "negative-binomial", "--drop", "days,failed,grade"],
    "days": ["--event", "failed", "--drop", "visits,grade"],
    "grade": ["--levels", ",".join(LEVELS), "--drop", "days,failed,visits"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("likelihoods")
    write(path / "train.csv", list(rows(90, 0)))
    write(path / "new.csv", list(rows(60, 1)))
    for target, options in OPTIONS.items():
        fit = ["fit", f"{path}/train.csv", "-t", target, "-o", f"{path}/{target}.gwi", "--holdout", "0"]
        assert cli.run([*fit, *options, *QUICK]) == 0
    return path


def answer(capsys, *arguments):
    capsys.readouterr()
    assert cli.run([str(a) for a in arguments]) == 0
    return capsys.readouterr().out


def predicted(capsys, folder, target, *more):
    out = answer(capsys, "predict", folder / f"{target}.gwi", folder / "new.csv", "-o", "-", "-q", "--keep", "none", *more)
    return list(csv.DictReader(io.StringIO(out)))


def mistake(capsys, *arguments):
    capsys.readouterr()
    assert cli.run([str(a) for a in arguments]) == 2
    said = capsys.readouterr().err
    assert said.startswith("gwi: ")
    assert said.count("\n") == 1
    return said


def numbers(found, name):
    return np.array([float(row[name]) for row in found])


def test_predictions_of_counts_stay_counts(folder, capsys):
    found = predicted(capsys, folder, "visits", "--coverage", "0.8")
    assert list(found[0]) == ["prediction", "std", "lower", "upper", "ood_score"]
    for name in ("lower", "upper"):
        ends = numbers(found, name)
        assert (ends == ends.round()).all()
        assert (ends >= 0).all()
    assert (numbers(found, "prediction") > 0).all()


def test_predictions_of_times_are_a_median_and_survival(folder, capsys):
    found = predicted(capsys, folder, "days", "--times", "10,30.5,10")
    assert list(found[0]) == ["median", "lower", "upper", "survival_10", "survival_30.5", "ood_score"]
    stored = gwi.load(folder / "days.gwi")
    frame = pq_frame(folder / "new.csv")
    law = stored.predict_dist(frame)
    np.testing.assert_allclose(numbers(found, "median"), law.median, rtol=1e-12)
    np.testing.assert_allclose(numbers(found, "survival_30.5"), law.survival(30.5), rtol=1e-9)
    assert list(predicted(capsys, folder, "days")[0]) == ["median", "lower", "upper", "ood_score"]


def pq_frame(path):
    with path.open(newline="") as file:
        records = list(csv.DictReader(file))
    return pa.table(
        {"x": [float(r["x"]) for r in records], "town": [r["town"] for r in records], "id": [r["id"] for r in records]}
    )


def test_predictions_of_levels_are_a_level_and_a_probability_for_each(folder, capsys):
    found = predicted(capsys, folder, "grade")
    assert list(found[0]) == ["prediction", *(f"probability_{level}" for level in LEVELS), "ood_score"]
    probabilities = np.column_stack([numbers(found, f"probability_{level}") for level in LEVELS])
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert [row["prediction"] for row in found] == [LEVELS[j] for j in probabilities.argmax(1)]


@pytest.mark.parametrize(
    ("target", "names", "better"),
    [
        ("visits", {"crps", "rmse", "coverage_95", "calibration_error"}, None),
        ("days", {"concordance", "integrated_brier", "d_calibration_p", "events", "nll"}, ("concordance", 0.7)),
        ("grade", {"accuracy", "rps", "levels_off", "ece", "nll"}, ("accuracy", 0.55)),
    ],
)
def test_evaluate_gives_the_scores_of_the_kind(folder, capsys, target, names, better):
    arguments = ["evaluate", folder / f"{target}.gwi", folder / "new.csv", "--json", "-q"]
    scores = json.loads(answer(capsys, *arguments))
    assert scores["rows"] == 60
    assert names <= set(scores)
    assert better is None or scores[better[0]] > better[1]
    parts = json.loads(answer(capsys, *arguments, "--chunk-size", 17))
    assert {k: parts[k] for k in names - {"calibration_error"}} == pytest.approx(
        {k: scores[k] for k in names - {"calibration_error"}}, rel=1e-6
    )


@pytest.mark.parametrize(
    ("target", "known"),
    [
        ("visits", {"likelihood": "negative-binomial"}),
        ("days", {"likelihood": "censored", "event": "failed"}),
        ("grade", {"likelihood": "ordinal", "levels": LEVELS}),
    ],
)
def test_info_names_likelihood_event_and_levels(folder, capsys, target, known):
    said = json.loads(answer(capsys, "info", folder / f"{target}.gwi", "--json"))
    assert said["likelihood"].startswith(known["likelihood"])
    assert {key: said.get(key) for key in known if key != "likelihood"} == {k: v for k, v in known.items() if k != "likelihood"}
    assert set(said["columns"]) == {"x", "town"}
    shown = answer(capsys, "info", folder / f"{target}.gwi")
    assert "likelihood" in shown


@pytest.mark.parametrize(
    ("target", "words", "others"),
    [
        ("visits", ["How often each count occurs", "negative-binomial", "dispersion"], ["Student’s", "C-index"]),
        (
            "days",
            ["C-index", "Kaplan–Meier", "D-calibration", "Integrated Brier score", "not so far"],
            ["RMSE", "of the variance"],
        ),
        (
            "grade",
            ["Ranked probability score", "Level by level", "are off by at most one level", "thresholds"],
            ["RMSE", "softmax"],
        ),
    ],
)
def test_the_report_follows_the_likelihood(folder, capsys, target, words, others):
    page = folder / f"{target}.html"
    answer(capsys, "report", folder / f"{target}.gwi", folder / "new.csv", "-o", page, "-q")
    text = page.read_text(encoding="utf-8")
    assert [word for word in words if word not in text] == []
    assert [word for word in others if word in text] == []


def test_an_event_may_be_said_in_three_ways(folder, capsys, tmp_path):
    scores = {}
    for yes, no in (("1", "0"), ("TRUE", "FALSE"), ("Yes", "no")):
        records = [r | {"failed": yes if r["failed"] == "yes" else no} for r in rows(60, 1)]
        said = answer(capsys, "evaluate", folder / "days.gwi", write(tmp_path / "e.csv", records), "--json", "-q")
        scores[yes] = json.loads(said)["concordance"]
    table = pa.table(
        {
            "x": [float(r["x"]) for r in records],
            "town": [r["town"] for r in records],
            "days": [float(r["days"]) for r in records],
            "failed": [r["failed"] == "Yes" for r in records],
        }
    )
    pq.write_table(table, tmp_path / "e.parquet")
    said = answer(capsys, "evaluate", folder / "days.gwi", tmp_path / "e.parquet", "--json", "-q")
    assert len({*scores.values(), json.loads(said)["concordance"]}) == 1


def test_rows_without_event_or_time_are_left_out_with_a_note(tmp_path, capsys):
    records = list(rows(40, 2))
    records[3]["failed"] = records[5]["days"] = ""
    path = write(tmp_path / "a.csv", records)
    arguments = ["fit", path, "-t", "days", "--event", "failed", "-o", tmp_path / "a.gwi", "--mean", "linear", "--holdout", 0]
    capsys.readouterr()
    assert cli.run([*map(str, arguments), "--drop", "visits,grade"]) == 0
    assert "2 rows without 'days' or 'failed' are left out." in capsys.readouterr().err


def test_an_ordered_column_of_parquet_brings_its_levels(tmp_path, capsys):
    records = list(rows(60, 3))
    codes = pa.array([LEVELS.index(r["grade"]) for r in records], pa.int8())
    grade = pa.DictionaryArray.from_arrays(codes, pa.array(LEVELS), ordered=True)
    table = pa.table({"x": [float(r["x"]) for r in records], "town": [r["town"] for r in records], "grade": grade})
    pq.write_table(table, tmp_path / "a.parquet")
    fit = ["fit", tmp_path / "a.parquet", "-t", "grade", "--likelihood", "ordinal", "-o", tmp_path / "a.gwi", "--holdout", 0]
    answer(capsys, *fit, *QUICK)
    assert json.loads(answer(capsys, "info", tmp_path / "a.gwi", "--json"))["levels"] == LEVELS


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        ({"failed": "maybe"}, [], "'maybe' does not say whether the event happened; write 1 or 0, true or false, or yes or no."),
        ({"failed": "2"}, [], "line 2, column 'failed': '2' does not say whether the event happened"),
        ({"days": "-3"}, [], "line 2, column 'days': a time to an event cannot be negative; got -3."),
        ({}, ["--event", "faild"], "no column 'faild', the event; did you mean 'failed'?"),
        ({}, ["--event", "days"], "--target is the time, and --event another column"),
        ({}, ["--likelihood", "poisson"], "--event is for times to an event: leave --levels out, and --likelihood"),
        ({}, ["--task", "classification"], "leave --task out"),
    ],
)
def test_mistakes_with_events_are_one_sentence(tmp_path, capsys, change, options, said):
    records = list(rows(30, 4))
    records[0] |= change
    path = write(tmp_path / "a.csv", records)
    fit = ["fit", path, "-t", "days", "--event", "failed", "-o", tmp_path / "a.gwi", *QUICK, *options]
    assert said in mistake(capsys, *fit)


@pytest.mark.parametrize(
    ("target", "options", "said"),
    [
        ("days", ["--likelihood", "censored"], "--likelihood censored needs --event"),
        ("grade", ["--likelihood", "ordinal"], "give the order of its levels, the lowest first: --levels high,low,middle"),
        ("grade", ["--levels", "low,middle"], "'high' is not one of the levels low, middle."),
        ("grade", ["--levels", "low,middle,high,top"], "no row has the level top; leave it out of --levels."),
        ("grade", ["--levels", "low"], "--levels must be at least two different names"),
        ("visits", ["--likelihood", "poison"], "--likelihood is auto, gaussian"),
        ("grade", ["--likelihood", "poisson"], "is not a number"),
        ("visits", ["--likelihood", "poisson", "--preset", "paper"], "leave --likelihood out"),
    ],
)
def test_mistakes_with_likelihoods_are_one_sentence(tmp_path, capsys, target, options, said):
    path = write(tmp_path / "a.csv", list(rows(30, 5)))
    assert said in mistake(capsys, "fit", path, "-t", target, "-o", tmp_path / "a.gwi", *QUICK, *options)


def test_counts_that_are_none_are_one_sentence(tmp_path, capsys):
    records = list(rows(30, 6))
    records[0]["visits"] = "1.5"
    path = write(tmp_path / "a.csv", records)
    said = mistake(capsys, "fit", path, "-t", "visits", "--likelihood", "poisson", "-o", tmp_path / "a.gwi", *QUICK)
    assert "whole numbers of at least 0" in said


def test_times_are_for_models_of_times(folder, capsys):
    predict = ["predict", folder / "visits.gwi", folder / "new.csv", "-o", "-", "-q", "--times", "3"]
    assert "--times is for models of times to an event (gwi fit --event)" in mistake(capsys, *predict)
    predict = ["predict", folder / "days.gwi", folder / "new.csv", "-o", "-", "-q", "--times", "soon"]
    assert "--times must be numbers, 0 or larger, separated by commas, such as 30,365; got 'soon'." in mistake(capsys, *predict)


def test_a_model_of_times_answers_in_other_processes_too(folder):
    found = gwi.Predictor(folder / "days.gwi", times=[30.0]).columns(pq_frame(folder / "new.csv"))
    assert {"median", "survival_30", "epistemic"} <= set(found)
