"""Every Python block of the documentation runs, page by page, as a reader would run it, and keeps its word."""

import contextlib
import io
import pkgutil
import re
import runpy
import subprocess
import sys
import warnings
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from tools.outputs import blocks

import gwi
from gwi.cli.commands import run as run_command
from gwi.exceptions import GWIWarning

pytestmark = pytest.mark.unchecked

mpl.use("Agg")
ROOT = Path(__file__).parent.parent
GALLERY = set((ROOT / "docs" / "gallery").iterdir())  # made of scripts that test_gallery runs
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *set((ROOT / "docs").rglob("*.md")) - GALLERY])


def run(page, folder, monkeypatch):
    """What the names of a page stand for after its blocks have run, in a folder of their own."""
    monkeypatch.chdir(folder)
    torch.manual_seed(0)
    names = {"__name__": "page"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GWIWarning)
        for block in blocks(page):
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(block.code, page.name, "exec"), names)
            assert block.shown is None or printed.getvalue() == block.shown, block.code
    return names


def check_quickstart(names):
    assert (Path("patients.csv").exists(), Path("new.csv").exists()) == (True, True)
    assert 0.85 <= names["inside"].mean() <= 1
    # The columns of its table are those that the commands write, here with a mean that is fitted quickly.
    quick = ["--mean", "linear", "--holdout", "0", "--quiet"]
    assert run_command(["fit", "patients.csv", "--target", "target", "-o", "fitted.gwi", *quick]) == 0
    assert run_command(["predict", "fitted.gwi", "new.csv", "-o", "predicted.csv", "--keep", "none", "--quiet"]) == 0
    told = re.findall(r"^\| (`[^|]+) \|", (ROOT / "docs" / "quickstart.md").read_text(), re.MULTILINE)
    assert Path("predicted.csv").read_text().splitlines()[0].split(",") == re.findall(r"`(\w+)`", " ".join(told))


def check_wrap_your_model(names):
    assert 0.85 <= ((names["lower"] < names["y_new"]) & (names["y_new"] < names["upper"])).mean() <= 1
    rows, whole = names["X_new"], names["InUnits"]()
    given = names["GWIRegressor"](whole, random_state=0)
    given.fit(names["X"], names["y"], validation=(names["X_unseen"], names["y_unseen"]))
    np.testing.assert_allclose(given.predict(rows), whole(torch.from_numpy(rows).float()).detach().numpy()[:, 0], rtol=1e-6)


def check_bayesian_optimisation(names):
    assert names["y"].max() > -0.01


def check_classification(names):
    inside = names["sets"][np.arange(len(names["sets"])), names["new_digit"]]
    assert inside.mean() >= 0.97


def check_neural_networks(names):
    assert names["probabilities"].shape == (897, 10)
    assert names["model"].score(names["images"][900:], names["labels"][900:]) > 0.85
    assert names["strange"].mean() > 5


def check_diagnostics(names):
    assert names["diagnosis"].severe[0].kind == "mean-and-kernel-disagree"
    assert names["mended"].severe == ()


def check_numerics(names):
    # The page says that such an error tells what to do.
    with pytest.raises(ValueError, match="validation"):
        names["GWIRegressor"](np.sin).fit(names["X"], names["y"])


def check_parameters(names):
    assert names["small"].get_params()["covariance__weight"] == 1.0


def check_plots(names):
    del names
    assert len(plt.get_fignums()) >= 5
    plt.close("all")


def check_transformers(names):
    assert names["texts"].score(names["rows"](slice(400, 600)), names["answers"][400:]) > 0.95


def check_groups(names):
    assert names["interval"].shape == (300, 2)
    assert names["inside"].mean() > 0.85


def check_encoding(names):
    assert [name for name, _ in names["encoder"].dropped_] == ["name"]


def check_choosing(names):
    assert len(names["model"].summary_.members) == 5
    for other in (names["summed"], names["embedded"]):
        assert other.score(names["X"], names["y"]) > 0.4


def check_regression(names):
    assert names["after"] < names["before"]


def check_survival(names):
    assert names["model"].score(names["X_new"], names["y_new"]) > 0.7
    plt.close("all")


def check_counts(names):
    assert 0.88 <= names["inside"].mean() <= 0.99
    plt.close("all")


def check_likelihoods(names):
    assert names["low"].min() >= 0
    assert np.isfinite(names["found"].mean).all()


def check_divergences(names):
    assert 0.88 <= names["held"] <= 1


def check_scaling(names):
    assert 0.92 <= names["scores"].coverage_95 <= 0.98
    assert Path("predicted.parquet").exists()


def check_data_frames(names):
    inside = (names["lower"] < names["rent"][120:]) & (names["rent"][120:] < names["upper"])
    assert inside.mean() >= 0.85


def check_onnx(names):
    rows = torch.randn(2, 10, dtype=torch.float64)
    for found, wanted in zip(names["program"].module()(rows), names["model"].posterior_.marginals(rows), strict=True):
        torch.testing.assert_close(found, wanted)


def check_core(names):
    assert 0.9 <= names["inside"] <= 0.99


def check_explain(names):
    found = names["found"]
    # The page says that s5 is the reason, and that the largest bar is on top.
    assert found.columns[found.parts[0].argmax()] == "s5"
    assert found.parts[0].max() > 0.5 * found.variance[0]
    assert names["ax"].get_yticklabels()[0].get_text().startswith("s5 = ")


def check_compare(names):
    assert [method.name for method in names["found"].methods] == ["gwi", "Bayesian ridge", "forest"]
    shown, page = str(names["found"]), (ROOT / "docs" / "compare.md").read_text()
    # All that the page shows of it but the seconds.
    for line in shown.splitlines()[:1] + shown.splitlines()[5:]:
        assert line in page


def check_report(names):
    assert Path("report.html").read_text() == names["page"]


def check_serving(names):
    assert len(names["said"]["predictions"]) == 2


CHECKS = {
    "compare.md": check_compare,
    "explain.md": check_explain,
    "report.md": check_report,
    "serving.md": check_serving,
    "reference/core.md": check_core,
    "quickstart.md": check_quickstart,
    "wrap-your-model.md": check_wrap_your_model,
    "bayesian-optimisation.md": check_bayesian_optimisation,
    "classification.md": check_classification,
    "neural-networks.md": check_neural_networks,
    "data-frames.md": check_data_frames,
    "choosing.md": check_choosing,
    "diagnostics.md": check_diagnostics,
    "numerics.md": check_numerics,
    "parameters.md": check_parameters,
    "plots.md": check_plots,
    "plots-calibration.md": check_plots,
    "transformers.md": check_transformers,
    "groups.md": check_groups,
    "encoding.md": check_encoding,
    "regression.md": check_regression,
    "scaling.md": check_scaling,
    "likelihoods.md": check_likelihoods,
    "divergences.md": check_divergences,
    "survival.md": check_survival,
    "counts.md": check_counts,
    "onnx.md": check_onnx,
}


# Pages whose word is all in the outputs that they show.
OUTPUTS_ONLY = [f"coming-from/{page.name}" for page in (ROOT / "docs" / "coming-from").glob("*.md")]


# Pages that take more than three seconds, of work that other tests do on smaller tables.
LONG = (
    "choosing.md",
    "compare.md",
    "counts.md",
    "divergences.md",
    "likelihoods.md",
    "onnx.md",
    "scaling.md",
    "serving.md",
    "wrap-your-model.md",
)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in sorted(CHECKS)])
def test_the_python_of_a_page_runs_and_keeps_its_word(name, tmp_path, monkeypatch):
    CHECKS[name](run(ROOT / "docs" / name, tmp_path, monkeypatch))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(OUTPUTS_ONLY))
def test_a_page_for_users_of_another_tool_runs_its_code_and_ours(name, tmp_path, monkeypatch):
    page = ROOT / "docs" / name
    assert len([block for block in blocks(page) if block.shown]) >= 2
    assert all(block.shown for block in blocks(page) if "print(" in block.code)
    run(page, tmp_path, monkeypatch)


def test_the_landing_page_shows_the_first_example_of_the_readme():
    here, there = ([(block.code, block.shown) for block in blocks(ROOT / page)] for page in ("docs/index.md", "README.md"))
    assert here == there[:1]


# What each example prints, and between which numbers. `demo.py` and `bayesian_optimisation.py` have tests of their own.
EXAMPLES = {
    "boosting.py": {r"hold (\d+)%": (82, 97), r"R² ([\d.]+)": (0.3, 0.6)},
    "frozen_network.py": {r"([\d.]+)% right": (96, 100), r"([\d.]+) after": (0.0, 0.06), r"AUROC ([\d.]+) by ood": (0.85, 1.0)},
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_as_a_script_and_draws_a_picture(name, tmp_path, monkeypatch, capsys, thorough):
    picture = tmp_path / "picture.png"
    command = [str(ROOT / "examples" / name), "--output", str(picture)]
    if thorough:
        printed = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True, timeout=300).stdout
    else:
        # A process takes seconds to start. The demo and the README's example have one of their own; see test_docs.
        monkeypatch.setattr(sys, "argv", command)
        runpy.run_path(command[0], run_name="__main__")
        printed = capsys.readouterr().out
    assert picture.stat().st_size > 10_000
    for pattern, (low, high) in EXAMPLES[name].items():
        assert low <= float(re.search(pattern, printed)[1]) <= high, printed


def test_no_page_has_python_that_is_not_run():
    # The README's blocks run in a process of their own: see test_docs. The landing page has the first of them.
    run_elsewhere = {ROOT / "README.md", ROOT / "docs" / "index.md"}
    assert {page for page in PAGES if blocks(page)} == {
        *run_elsewhere,
        *(ROOT / "docs" / name for name in (*CHECKS, *OUTPUTS_ONLY)),
    }


def test_every_public_name_is_in_the_reference():
    text = "\n".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    assert [name for name in gwi.__all__ if f"::: gwi.{name}\n" not in text] == []


def test_the_reference_speaks_of_names_that_exist_and_are_documented():
    for page in (ROOT / "docs" / "reference").glob("*.md"):
        for dotted in re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE):
            found = pkgutil.resolve_name(dotted)
            assert (found.__doc__ or "").strip(), dotted
            members = vars(found) if isinstance(found, type) else {}
            public = [name for name, value in members.items() if callable(value) and not name.startswith("_")]
            assert [name for name in public if not (getattr(found, name).__doc__ or "").strip()] == [], dotted


def test_every_page_can_be_found_from_the_menu():
    menu = (ROOT / "mkdocs.yml").read_text()
    assert [page.name for page in (ROOT / "docs").rglob("*.md") if f" {page.relative_to(ROOT / 'docs')}\n" not in menu] == []
