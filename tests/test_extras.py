"""The core does without the packages of extras; work that needs one says which, and how to install it."""

import ast
import io
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from tools import house, lowest

import gwi
import processes
from gwi import GWIRegressor, _extras, _progress
from gwi._extras import EXTRAS, is_installed, require
from gwi.exceptions import MissingPackageError, UserError
from gwi.tables import TableEncoder
from waves import wave

PROJECT = tomllib.loads((house.ROOT / "pyproject.toml").read_text())["project"]
EXTRA_PACKAGES = {package for packages in EXTRAS.values() for package in packages} - {"jinja2", "fsspec", "pandas"}
# What may be imported at the top of these needs the packages of an extra anyway.
BEHIND_AN_EXTRA = ("plots", "report", "cli", "botorch", "onnx", "web", "mlflow")
# Imports of these packages fail in the process that begins with this, as if they were not installed.
WITHOUT = """
import sys
from importlib.abc import MetaPathFinder


class Without(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)


loaded = {packages!r} & {{name.partition(".")[0] for name in sys.modules}}
assert not loaded, loaded
sys.meta_path.insert(0, Without())
"""
# What the core does, as a program for an interpreter of its own.
CORE_ALONE = Path(__file__).with_name("core_alone.py").read_text()


@pytest.fixture
def without(monkeypatch):
    """Takes packages away from what `gwi` asks for; imports of other libraries go on."""

    def take(*packages):
        monkeypatch.setattr(_extras, "is_installed", lambda package: package not in packages)

    return take


def run(code, folder, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(house.ROOT / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-c", code, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


def test_arrays_are_fitted_predicted_saved_and_loaded_by_the_core_alone(tmp_path):
    packages = EXTRA_PACKAGES | {"pandas", "polars"}
    done = run(WITHOUT.format(packages=packages) + CORE_ALONE, tmp_path, *packages)
    assert done.returncode == 0, done.stderr


def test_extras_are_those_of_the_project():
    named = {extra: set(map(name_of, brought)) for extra, brought in PROJECT["optional-dependencies"].items()}
    for extra, packages in EXTRAS.items():
        # Extras bring others, which bring others.
        brought = {requirement.name.removesuffix("-skinny") for requirement in lowest.requirements([extra])}
        assert set(packages) <= brought, extra
        assert f"gwi[{extra}]" in named["all"]
    assert not {package for packages in EXTRAS.values() for package in packages} & set(map(name_of, PROJECT["dependencies"]))


def name_of(requirement):
    return re.match(r"[\w-]+(\[\w+\])?", requirement)[0]


def test_modules_of_the_core_import_no_package_of_an_extra_at_their_top():
    for path in house.SOURCE.rglob("*.py"):
        if house.package_of(path) in BEHIND_AN_EXTRA:
            continue
        for node in ast.parse(path.read_text()).body:
            names = [name.name for name in node.names] if isinstance(node, ast.Import) else [getattr(node, "module", None) or ""]
            assert not {name.partition(".")[0] for name in names} & (EXTRA_PACKAGES | {"fsspec", "pandas", "polars"}), path


def test_every_requirement_has_a_lowest_version_and_torch_is_left_to_its_pin():
    lines = lowest.lowest(["all", "test"])
    assert {"numpy", "pyarrow", "matplotlib", "pytest"} <= {line.partition("==")[0] for line in lines}
    assert not [line for line in lines if line.startswith(("torch==", "gwi"))]
    declared = [line for extra in ("all", "test") for line in PROJECT["optional-dependencies"][extra]] + PROJECT["dependencies"]
    for line in declared:
        if not line.startswith(("gwi", "torch>")):
            assert line.replace(">=", "==") in lines


def test_a_requirement_without_a_lowest_version_is_named(monkeypatch, tmp_path):
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "gwi"\ndependencies = ["numpy"]\n')
    monkeypatch.setattr(lowest, "PROJECT", tmp_path / "pyproject.toml")
    with pytest.raises(ValueError, match=r"numpy needs one lower bound"):
        lowest.lowest([])


def test_the_version_is_the_same_everywhere():
    changes = (house.ROOT / "CHANGELOG.md").read_text()
    version, date = re.search(r"^## \[(.*?)\] – (\d{4}-\d\d-\d\d)$", changes, re.MULTILINE).groups()
    citation = (house.ROOT / "CITATION.cff").read_text()
    assert version == gwi.__version__
    assert f"\nversion: {version}\ndate-released: {date}\n" in citation
    assert f"\n[{version}]: {PROJECT['urls']['Repository']}/releases/tag/v{version}\n" in changes


def test_workflows_run_targets_that_there_are_on_the_versions_that_are_promised():
    makefile = (house.ROOT / "Makefile").read_text()
    targets = {target for line in re.findall(r"^([a-z -]+):", makefile, re.MULTILINE) for target in line.split()}
    folder = house.ROOT / ".github" / "workflows"
    called = [call for path in folder.glob("*.yml") for call in re.findall(r"run: make (.+)$", path.read_text(), re.MULTILINE)]
    assert {target for call in called for target in call.split()} <= targets
    assert {"lint", "types", "test", "wheel", "check"} <= {target for call in called for target in call.split()}
    versions = re.search(r"python: \[(.*)\]", (folder / "ci.yml").read_text())[1].replace('"', "").split(", ")
    assert versions == [text.rsplit(" ", 1)[1] for text in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", text)]


def test_a_package_that_is_blocked_is_not_installed(monkeypatch):
    assert is_installed("json")
    assert is_installed("numpy")
    assert not is_installed("no_such_package")
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert not is_installed("numpy")


def test_the_sentence_names_what_is_missing_and_its_remedy(monkeypatch):
    monkeypatch.setitem(EXTRAS, "plots", ("no_such_package",))
    with pytest.raises(MissingPackageError) as caught:
        require("plots", "Drawing")
    assert str(caught.value) == "Drawing needs no_such_package, which is not installed: pip install 'gwi[plots]'"
    assert caught.value.name == "no_such_package"
    assert isinstance(caught.value, UserError)
    assert isinstance(caught.value, ImportError)
    monkeypatch.setitem(EXTRAS, "plots", ("first", "second", "third"))
    with pytest.raises(MissingPackageError, match=r"needs first, second and third, which are not installed"):
        require("plots", "Drawing")


def frame_library(name):
    return pytest.importorskip(name)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_of_plain_numbers_need_no_extra_and_others_say_what_they_need(without, library):
    module = frame_library(library)
    X, y = wave(40)
    frame = module.DataFrame({"a": X[:, 0], "b": X[:, 0] ** 2, "c": X[:, 0] > 0})
    usual = GWIRegressor("linear", random_state=0).fit(frame, y)
    without("pyarrow")
    model = GWIRegressor("linear", random_state=0).fit(frame, y)
    turned = frame[["c", "b", "a"]]
    np.testing.assert_array_equal(model.predict(turned), usual.predict(frame))
    with pytest.raises(MissingPackageError, match=r"Reading X, a data frame, needs pyarrow.*pip install 'gwi\[files\]'"):
        GWIRegressor("linear").fit(module.DataFrame({"a": X[:, 0], "b": ["u", "v"] * 20}), y)
    with pytest.raises(MissingPackageError, match=r"gwi\[files\]"):
        TableEncoder().fit(frame)


def test_files_say_what_they_need(without, tmp_path):
    X, y = wave(40)
    model = GWIRegressor("linear", random_state=0).fit(X, y)
    model.save(tmp_path / "model.gwi")
    without("pyarrow")
    rows = str(tmp_path / "rows.parquet")
    for asked in (
        lambda: GWIRegressor("linear").fit(rows, "y"),
        lambda: gwi.predict_source(model, rows, tmp_path / "predicted.parquet"),
        lambda: gwi.score_source(model, rows, "y"),
        lambda: gwi.Predictor(tmp_path / "model.gwi")(X),
        lambda: TableEncoder().fit(np.array([["a"], ["b"]], dtype=object)),
    ):
        with pytest.raises(MissingPackageError, match=r"needs pyarrow, which is not installed: pip install 'gwi\[files\]'$"):
            asked()


def test_pages_pictures_and_graphs_say_what_they_need_before_they_begin(without):
    X, y = wave(40)
    model = GWIRegressor("linear", random_state=0).fit(X, y)
    without("matplotlib", "onnx")
    with pytest.raises(MissingPackageError, match=r"A report needs matplotlib.*pip install 'gwi\[report\]'"):
        model.report(X, y)
    with pytest.raises(MissingPackageError, match=r"compare needs matplotlib.*pip install 'gwi\[report\]'"):
        gwi.compare({"ours": model}, X, y)
    with pytest.raises(MissingPackageError, match=r"onnx.*pip install 'gwi\[onnx\]'"):
        model.export_onnx("model.onnx")


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow"])
def test_a_frame_of_a_library_that_is_not_there_is_named_with_its_remedy(monkeypatch, library):
    X, y = wave(40)
    predicted = GWIRegressor("linear", random_state=0).fit(X, y).predict_dist(X)
    package = "pyarrow" if library == "arrow" else library
    monkeypatch.setattr("gwi.tables.frames.is_installed", lambda name: name != package)
    with pytest.raises(MissingPackageError, match=f"pip install {package}$"):
        predicted.to_frame(library=library)


PLOTS = "import gwi\ntry:\n    gwi.plots\nexcept ImportError as error:\n    sys.exit(str(error))"
MLFLOW = PLOTS.replace("plots", "mlflow")
COMMAND = "from gwi.__main__ import process\nsys.argv[0] = 'gwi'\nprocess()"


@pytest.mark.parametrize(
    ("packages", "code", "arguments", "begins", "extra"),
    [
        (["matplotlib"], PLOTS, "", "gwi.plots needs matplotlib, which is", "plots"),
        (["rich", "typer"], COMMAND, "--version", "The command gwi needs typer and rich, which are", "cli"),
        (["matplotlib"], COMMAND, "demo", "gwi demo needs matplotlib, which is", "plots"),
        (["matplotlib"], COMMAND, "compare x.csv -t y", "gwi compare needs matplotlib, which is", "report"),
        (["matplotlib"], COMMAND, "report m.gwi x.csv", "gwi report needs matplotlib, which is", "report"),
        (["mlflow"], MLFLOW, "", "gwi.mlflow needs mlflow, which is", "mlflow"),
        (["fastapi", "uvicorn"], COMMAND, "serve m.gwi", "gwi serve needs fastapi and uvicorn, which are", "serve"),
        (["distributed"], COMMAND, "fit x.csv -t y -o m.gwi --cluster a:1", "--cluster needs distributed, which is", "dask"),
    ],
)
def test_the_command_and_its_parts_say_what_they_need(tmp_path, packages, code, arguments, begins, extra):
    (tmp_path / "x.csv").write_text("a,y\n" + "".join(f"{i},{i % 7}\n" for i in range(30)))
    code, arguments = WITHOUT.format(packages=set(packages)) + code, arguments.split()
    # What all forks have, rich, is not taken away from them.
    done = run(code, tmp_path, *arguments) if "rich" in packages else processes.run(["-c", code], *arguments, folder=tmp_path)
    assert done.stderr.strip().removeprefix("gwi: ") == f"{begins} not installed: pip install 'gwi[{extra}]'"
    assert done.returncode == (2 if code.endswith(COMMAND) else 1)


def test_progress_without_rich_is_one_line_a_stage_and_of_late_work_nothing(without, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream := io.StringIO())
    monkeypatch.setattr(_progress, "is_watched", lambda: True)
    without("rich")
    monkeypatch.setattr(_progress, "is_installed", _extras.is_installed)
    for shown in (True, "late"):
        with _progress.progress(shown) as report:
            for share in (0.0, 0.5, 1.0):
                report("prior", share)
            report("network", 0.1)
    assert stream.getvalue() == "prior ...\nnetwork ...\n"
