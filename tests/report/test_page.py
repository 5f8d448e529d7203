"""The report says what the scores say, shows the right rows, and lets no text of the table through unescaped."""

import csv
import inspect
import re

import matplotlib as mpl
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from jinja2 import UndefinedError
from matplotlib import style

from gwi import Covariance, Gaussian, GWIRegressor, diagnose
from gwi._progress import silent
from gwi.cli import commands as cli
from gwi.core.kernels import default_kernel
from gwi.estimators.columns import encoder_of
from gwi.estimators.tables import load_for_tables, predict_table
from gwi.evaluation.checks import Finding
from gwi.plots.calibration import LEVELS, promises
from gwi.plots.numbers import percent, shown
from gwi.plots.style import DATA
from gwi.report.classification import class_checks
from gwi.report.examination import examine, heard_columns, sampled
from gwi.report.page import input_cell
from gwi.report.regression import verdict
from gwi.report.rendering import Cell, picture, render
from gwi.tables.source import open_table, read_table

pytestmark = pytest.mark.unchecked

HOSTILE = '<script>alert("x")</script>&"\''


def write(path, count, seed, text="plain"):
    rng = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["name", HOSTILE, "town", "y", "class"])
        for i in range(count):
            x, town = rng.normal(), rng.choice(["Ulm", "<b>Bonn</b>"])
            y = 2 * x + (town == "Ulm") + 0.1 * rng.normal()
            writer.writerow([f"{text} {i}", repr(float(x)), town, repr(float(y)), "<i>high</i>" if y > 0 else "low"])
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("report")
    write(path / "train.csv", 60, 0)
    write(path / "test.csv", 80, 1, text='<img src="x" onerror="alert(1)">')
    common = ["--mean", "linear", "--quiet", "--json", "--holdout", "0"]
    assert cli.run(["fit", f"{path}/train.csv", "-t", "y", "-o", f"{path}/y.gwi", "--drop", "class", *common]) == 0
    assert cli.run(["fit", f"{path}/train.csv", "-t", "class", "-o", f"{path}/class.gwi", "--drop", "y", *common]) == 0
    return path


def page(folder, model, data="test.csv", *options):
    output = folder / "report.html"
    assert cli.run(["report", f"{folder}/{model}.gwi", f"{folder}/{data}", "-o", str(output), "--force", "-q", *options]) == 0
    return output.read_text()


@pytest.mark.parametrize("model", ["y", "class"])
def test_the_page_stands_alone_and_text_of_the_table_is_escaped(folder, model):
    found = page(folder, model)
    assert "<script" not in found
    assert "<img" not in found
    assert "<b>Bonn" not in found
    assert "<i>high" not in found
    assert "&lt;img src=&#34;x&#34;" in found
    # Pictures refer to parts of their own, and nothing else to anything.
    assert not re.search(r'(src|href)="(?!data:|#)', found)
    assert not re.search(r"url\((?!#)", found)
    names = re.findall(r' id="([^"]+)"', found)
    assert len(names) == len(set(names))
    assert set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', found)) <= {(n, "") for n in names} | {("", n) for n in names}
    assert "nan" not in re.sub(r"<style>.*</style>", "", found, flags=re.DOTALL).lower().replace("finance", "")
    assert found.count("<svg viewBox") == found.count("</svg>") == found.count('role="img"><title>') == (9 if model == "y" else 6)


def test_scores_and_rows_are_those_of_the_file(folder):
    tool = load_for_tables(folder / "y.gwi")
    found = examine(tool, open_table(folder / "test.csv"), 20_000, silent)
    text = page(folder, "y")
    assert shown(found.scores["rmse"]) in text
    assert percent(found.scores["coverage_95"], 1).replace(" %", "\u00a0%") in text
    widest = int(np.argmax(found.judged.std))
    assert found.checked.most_uncertain[0] == widest
    with (folder / "test.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert found.judged.y[widest] == float(rows[widest + 1][3])
    assert f'data-name="line"><span>{widest + 2}</span>' in text


def test_lines_are_those_of_the_file_though_cells_have_line_breaks(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('a,b\n1,"x\ny"\n\n2,z\n3,w\n')
    assert open_table(path).lines([2, 0, 1, 9]) == [6, 2, 5, 0]


def test_classes_have_confusion_counts_and_reliability(folder):
    text = page(folder, "class")
    cells = [int(n) for n in re.findall(r'<td class="(?:hit|miss)[^>]*>(\d+)</td>', text)]
    assert len(cells) == 4
    assert sum(cells) == 80
    for words in ("Class by class", "Reliability", "confidence", "outlier score", "Which columns matter to the kernel"):
        assert words in text


def test_rows_that_are_all_predicted_wrong_have_a_page(folder):
    with (folder / "test.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    clear = [[*row[:4], "low"] for row in rows if float(row[3]) > 2]
    with (folder / "wrong.csv").open("w", newline="") as file:
        csv.writer(file).writerows([header, *clear])
    assert "Mean confidence – for rows that were right" in page(folder, "class", "wrong.csv")


def test_a_sample_of_a_larger_file_is_uniform_and_said(folder):
    source = open_table(folder / "test.csv")
    counts = np.zeros(80)
    for chunk in (7, 20, 80):
        table, total = sampled(source, 20, chunk, silent)
        assert (len(table), total) == (20, 80)
        assert (np.diff(table.number) > 0).all()
        counts[table.number] += 1
    assert counts[40:].sum() > 10
    whole, _ = sampled(source, 80, 7, silent)
    assert whole.number.tolist() == list(range(80))
    assert "20 of them, drawn at random" in page(folder, "y", "test.csv", "--max-rows", "20")


def test_parquet_and_rows_without_a_target_and_one_row(folder, tmp_path):
    records = [{HOSTILE: 0.5, "town": "Ulm", "y": 2.0}, {HOSTILE: 0.5, "town": "Ulm", "y": None}]
    pq.write_table(pa.Table.from_pylist(records), folder / "two.parquet")
    text = page(folder, "y", "two.parquet")
    assert "1 rows have no value of" in text
    assert 'data-name="row"><span>1</span>' in text


def test_the_kernel_listens_to_the_column_that_matters(folder):
    model = load_for_tables(folder / "y.gwi")
    heard = heard_columns(model, encoder_of(model))
    assert {item.name for item in heard} == {HOSTILE, "town"}
    assert sum(item.share for item in heard) == pytest.approx(1)
    assert heard[0].share >= heard[1].share
    number = next(item for item in heard if item.name == HOSTILE)
    assert number.own_unit > 0


def test_findings_of_classes_need_more_than_chance():
    rng = np.random.default_rng(0)
    p = rng.uniform(0.55, 0.95, 4000)
    probabilities = np.column_stack([p, 1 - p])
    honest = (rng.random(4000) > p).astype(np.int64)
    assert all(check.severity is None for check in class_checks(probabilities, honest, np.array(["a", "b"])))
    lucky = (rng.random(4000) > 0.5).astype(np.int64)
    bold, shifted = class_checks(probabilities, lucky, np.array(["a", "b"]))
    assert bold.severity == "severe"
    assert "overconfident" in bold.what
    assert shifted.severity == "warning"


def test_mistakes_are_one_sentence(folder, tmp_path, capsys):
    (tmp_path / "bad.csv").write_text("a\n1\n")
    for arguments, said in (
        ((f"{folder}/y.gwi", f"{tmp_path}/bad.csv", "-o", f"{tmp_path}/r.html"), "has no column 'y'"),
        ((f"{folder}/y.gwi", f"{folder}/test.csv", "-o", f"{folder}/test.csv"), "is also read"),
        ((f"{folder}/y.gwi", f"{folder}/test.csv", "-o", f"{folder}/train.csv"), "give --force"),
    ):
        capsys.readouterr()
        assert cli.run(["report", *arguments, "-q"]) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1
    assert not (tmp_path / "r.html").exists()


def test_a_verdict_allows_for_chance_and_never_contradicts_a_finding():
    def said(shift, num_rows, finding=None):
        return verdict(finding, promises(num_rows, LEVELS, np.clip(LEVELS + shift, 0, 1)))

    assert said(0.0, 1000) == ("as promised", "good")
    assert said(0.02, 1000) == ("a little too wide", "")
    assert said(-0.09, 60) == ("perhaps too narrow", "")
    wrong = Finding("miscalibrated", "warning", 0.2, "", "", "")
    assert said(0.0, 100, wrong) == ("too wide", "bad")


def test_a_page_says_one_thing_of_its_intervals(folder, capsys):
    """Half of the intervals' levels are wrong and 95 % is not: the page finds fault, and nowhere says "as promised"."""
    tool, rng = load_for_tables(folder / "y.gwi"), np.random.default_rng(0)
    write(folder / "odd.csv", 200, 2)
    with (folder / "odd.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    columns = predict_table(tool, read_table(folder / "odd.csv"))
    sizes = rng.permutation(np.repeat([0.05, 1.4, 4.0], [160, 30, 10])) * rng.choice([-1, 1], 200)
    for row, y in zip(rows, columns["prediction"] + sizes * columns["std"], strict=True):
        row[3] = repr(float(y))
    with (folder / "odd.csv").open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    found = page(folder, "y", "odd.csv")
    assert "95.0\u00a0% of 200 rows" in found
    assert "Intervals are too wide" in found
    assert "as promised" not in found
    assert "Intervals or probabilities are off" in found
    assert "50% intervals contain 80% of 200 rows: they are too wide." in found


def test_advice_names_only_options_that_its_reader_has(capsys, monkeypatch):
    """Readers of the page and of the command have the options of `gwi fit`, users of Python those of the constructors."""
    assert cli.run(["fit", "--help"]) == 0
    known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    checks = list(class_checks(np.full((8, 2), 0.5), np.repeat([0, 1], 4), ["a", "b"]))
    monkeypatch.setattr("gwi.evaluation.diagnostics.found", lambda made: checks.extend(made) or ())
    x, y = np.random.default_rng(0).normal(size=(2, 60))
    for kernel in ("auto", default_kernel(1, lengthscale=1e-3), default_kernel(1, lengthscale=1e6)):
        model = GWIRegressor("svgp", random_state=0, covariance=Covariance(num_inducing=20)).fit(x[:, None], y)
        if kernel != "auto":
            model.posterior_.kernel.prior_kernel = kernel
        diagnose(model, x[:, None], y)
    told = {c.kind: (c.remedy, c.command_remedy or c.remedy) for c in checks if c.remedy}
    assert len(told) >= 8
    for remedy, command_remedy in told.values():
        assert set(re.findall(r"--[a-z-]+", command_remedy)) <= known, command_remedy
        assert not re.search(r"\w=|[a-z]\(|inducing|tempering", command_remedy), command_remedy
        assert "--" not in remedy
    parameters = {*inspect.signature(GWIRegressor).parameters, *inspect.signature(Covariance).parameters}
    parameters |= {*inspect.signature(Gaussian).parameters}
    assert set(re.findall(r"(\w+)=", " ".join(remedy for remedy, _ in told.values()))) <= parameters


def test_fractions_with_many_digits_are_cut_and_nothing_else_is():
    cells = ["0.06773705306493534", "-1.5", "20241231123456", "1234567.5", "v1.234567891", None, "-3.9990712345e-05"]
    assert [input_cell(cell) for cell in cells] == [
        Cell("0.067737", full="0.06773705306493534"),
        "-1.5",
        "20241231123456",
        Cell("1234567.5", full="1234567.5"),
        "v1.234567891",
        "",
        Cell("-3.9991e-05", full="-3.9990712345e-05"),
    ]


def test_pictures_have_the_colours_and_the_font_of_the_page_whatever_the_settings():
    def draw(axes):
        axes.plot([0, 1], [0, 1], color=DATA, label='<b>&"')
        axes.set_xlabel("$x_{$ 1.23456", parse_math=False)

    first = picture("name", draw)
    assert (first.width, first.height) == (pytest.approx(273.6), pytest.approx(198))
    text = str(first.marks)
    assert "stroke: var(--blue)" in text
    assert "var(--font)" in text
    assert "DejaVu" not in text
    assert not re.search(r"#[0-9a-f]{6}\b", re.sub(r'"#\w+"|url\(#\w+\)', "", text))
    assert "&lt;b&gt;&amp;" in text
    assert "$x_{$ 1.23456</text>" in text
    assert not re.search(r"\d\.\d{3}", text.replace("1.23456", ""))
    assert not re.search(r"<(style|metadata|script|\?xml|!)", text)
    with style.context("dark_background"):
        before = dict(mpl.rcParams)
        assert picture("name", draw) == first
        assert dict(mpl.rcParams) == before
    # Names of parts differ between pictures of one page.
    names = [set(re.findall(r' id="([^"]+)"', str(picture(name, draw).marks))) for name in ("name", "other")]
    assert names[0]
    assert not names[0] & names[1]


def test_long_numbers_below_a_picture_do_not_touch():
    text = str(picture("name", lambda axes: axes.plot([998_000_000.0, 1_001_500_000.0], [0, 1], label="a")).marks)
    numbers = re.findall(r'text-anchor: middle" x="([\d.]+)"[^>]*>([^<]* · 10[^<]*)<', text)
    assert 2 <= len(numbers) <= 4
    assert len({number for _, number in numbers}) == len(numbers)
    gaps = np.diff([float(x) for x, _ in numbers])
    assert gaps.min() > 4.7 * max(len(number) for _, number in numbers)


def test_a_template_that_lacks_something_fails():
    with pytest.raises(UndefinedError):
        render("comparison.html.j2")
