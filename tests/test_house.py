"""The house keeps its shape: few folders, short files, imports one way, one of everything."""

import ast
import re

import pytest
from tools import house

SOURCE = house.SOURCE


def test_the_package_is_seen_at_a_glance():
    shown = [path for path in SOURCE.iterdir() if path.name not in ("py.typed", "__pycache__")]
    assert sum(path.is_dir() for path in shown) <= 15
    assert sum(path.suffix == ".py" for path in shown) <= 9


def test_imports_point_one_way():
    level = {package: i for i, package in enumerate(house.PACKAGES)} | dict.fromkeys(
        ["botorch", "mlflow"], house.PACKAGES.index("plots")
    )
    known = {path.stem for path in SOURCE.iterdir()} - {"__pycache__", "py"}
    for start, end in house.imports():
        if start in level:
            assert end in known
            assert level.get(end, -1) < level[start], f"{start} imports {end}"


def test_what_is_opened_late_points_up_and_is_used():
    for start, end in house.OPENED_LATE:
        assert house.PACKAGES.index(start) < house.PACKAGES.index(end)
        assert any(f"from gwi.{end}." in path.read_text() for path in (SOURCE / start).glob("*.py"))


def test_packages_have_no_cycle_of_modules():
    edges: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        name = ".".join(("gwi", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
        top = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ImportFrom)]
        edges[name] = {node.module for node in top if (node.module or "").startswith("gwi.")}
    done: set[str] = set()

    def visit(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, " > ".join((*above, name))
        if name not in done:
            for used in edges.get(name, ()):
                visit(used, (*above, name))
            done.add(name)

    for name in edges:
        visit(name, ())


def test_files_stay_short():
    for path in SOURCE.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 400, path.name


def test_the_task_is_asked_for_in_two_places():
    assert len(house.questions()) <= 2, house.questions()


def test_there_is_one_loop_of_gradient_steps_and_one_cross_term():
    text = {path: path.read_text() for path in SOURCE.rglob("*.py")}
    assert [path.name for path, code in text.items() if re.search(r"optimi[sz]er\.step\(\)", code)] == ["training.py"]
    # The spectrum of r(X_S, X) k(X, X_S) and the nuclear norm of the factors, once each.
    assert [path.name for path, code in text.items() if "linalg.eigvals(" in code] == ["linalg.py"]
    assert sum(code.count("def bures_fidelity") + code.count("def two_sample_fidelity") for code in text.values()) == 2


@pytest.mark.unchecked
def test_a_fit_and_a_prediction_are_not_deep():
    deepest = {"GWIRegressor().fit": 12, "predict": 9, "frozen classifier's fit": 12, "gwi fit data.csv": 15}
    for name, modules, chain in house.measured():
        assert len(chain) <= deepest[name], f"{name}: {' > '.join(chain)}"
        if name == "predict":
            assert len(modules) <= 12, modules


def test_the_picture_is_that_of_the_code(tmp_path):
    house.picture(tmp_path / "architecture.svg")
    drawn = (house.ROOT / "docs" / "assets" / "architecture.svg").read_text()
    names = re.compile(r"<!-- (.*?) -->")
    assert names.findall((tmp_path / "architecture.svg").read_text()) == names.findall(drawn)
