"""Wheel and sdist, built and installed alone, with no more than the core's packages."""

import json
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from tools import house

import gwi

pytestmark = [pytest.mark.slow, pytest.mark.unchecked]
CONSTRAINTS = house.ROOT / "constraints.txt"
# Of the core and of what its packages need themselves, the names that extras bring.
NOT_IN_THE_CORE = {"pyarrow", "matplotlib", "rich", "typer", "onnx", "botorch", "distributed", "pandas", "polars"}
MOST_PACKAGES = 26
REPOSITORY = "https://github.com/gwi-developers/gwi"
LONGEST = 1200  # seconds


def call(*command, **options):
    """What it prints; of a fault all it said."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=LONGEST, env=clean, **options)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    call(sys.executable, "-m", "build", "--outdir", folder, house.ROOT)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


@pytest.fixture(scope="module")
def alone(built, tmp_path_factory):
    """The interpreter of an environment with the wheel and what it needs."""
    folder = tmp_path_factory.mktemp("alone")
    venv.create(folder, with_pip=True)
    python = next(path for path in (folder / "bin" / "python", folder / "Scripts" / "python.exe") if path.exists())
    torch = re.search(r"^torch==.*$", CONSTRAINTS.read_text(), re.MULTILINE)[0]
    call(python, "-m", "pip", "install", "--quiet", torch)
    call(python, "-m", "pip", "install", "--quiet", "--constraint", CONSTRAINTS, built[0])
    return python


def test_the_wheel_holds_the_package_and_the_sdist_its_tests(built):
    wheel, sdist = built
    assert wheel.name == f"gwi-{gwi.__version__}-py3-none-any.whl"
    names = zipfile.ZipFile(wheel).namelist()
    own = {path.relative_to(house.SOURCE.parent).as_posix() for path in house.SOURCE.rglob("*") if path.is_file()}
    own = {name for name in own if "__pycache__" not in name}
    assert {name for name in names if name.startswith("gwi/")} == own
    assert {"gwi/py.typed", "gwi/report/templates/report.html.j2"} <= own
    assert all(name.startswith(("gwi/", f"gwi-{gwi.__version__}.dist-info/")) for name in names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert wheel.stat().st_size < 2e6
    page = zipfile.ZipFile(wheel).read(f"gwi-{gwi.__version__}.dist-info/METADATA").decode()
    links = re.findall(r"\]\(([^)]+)\)", page)
    assert f"{REPOSITORY}/blob/main/docs/installation.md" in links
    assert all(link.startswith("https://") for link in links), links
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "src/gwi/__init__.py", "tests/test_wheel.py", "tools/house.py", "LICENSE", "CHANGELOG.md"} <= packed


def test_the_core_alone_fits_predicts_saves_and_loads_arrays(alone, tmp_path):
    program = Path(__file__).with_name("core_alone.py")
    assert call(alone, "-W", "ignore", program, *NOT_IN_THE_CORE, cwd=tmp_path) == "done\n"
    place = call(alone, "-c", "import gwi; print(gwi.__file__)", cwd=tmp_path)
    assert Path(place.strip()).is_relative_to(alone.parents[1])


def test_the_core_alone_is_few_packages(alone):
    listed = {part["name"].lower() for part in json.loads(call(alone, "-m", "pip", "list", "--format=json"))}
    assert not listed & NOT_IN_THE_CORE
    assert len(listed) <= MOST_PACKAGES, sorted(listed)
    call(alone, "-m", "pip", "check")


def test_the_command_of_the_core_alone_says_what_to_install(alone, tmp_path):
    done = subprocess.run([alone.with_name("gwi"), "--version"], cwd=tmp_path, capture_output=True, text=True, timeout=LONGEST)
    assert done.returncode == 2
    assert done.stderr == "gwi: The command gwi needs typer, rich and pyarrow, which are not installed: pip install 'gwi[cli]'\n"


def test_all_extras_resolve_together(alone, built):
    wanted = call(alone, "-m", "pip", "install", "--dry-run", "--quiet", "--report", "-", f"{built[0]}[all]")
    brought = {part["metadata"]["name"].lower() for part in json.loads(wanted)["install"]}
    assert {"pyarrow", "matplotlib", "typer", "rich", "onnx", "botorch", "distributed"} <= brought
    assert "torch" not in brought
