"""Shapes are checked at run time in every test that is not marked otherwise: the hook must be in place before gwi is imported."""

import ast
import gc
import os
from pathlib import Path

from jaxtyping import _import_hook, install_import_hook
from jaxtyping import config as shape_checks

# Until all modules are imported nothing becomes garbage.
gc.disable()

_decorate = _import_hook.JaxtypingTransformer.visit_FunctionDef


def _decorate_outermost(self: _import_hook.JaxtypingTransformer, node: ast.FunctionDef) -> ast.AST:
    # A function inside another would be compiled again at each call of that one: an objective of a fit, thousands of times.
    if any(isinstance(parent, ast.FunctionDef) for parent in self._parents):
        return node
    _decorate(self, node)
    # Ours in the place of jaxtyping's around ours.
    around = node.decorator_list.pop()
    (ours,) = (keyword.value for keyword in around.keywords)
    node.decorator_list.append(ours)
    for part in ast.walk(ours):
        ast.copy_location(part, around)
    return node


_import_hook.JaxtypingTransformer.visit_FunctionDef = _decorate_outermost

# But for the estimators and their parts: scikit-learn asks of their __init__ that it takes anything, and `fit` judges; and for
# the command, whose context typer makes of a class of its own, and whose help names paths by another.
SOURCE = Path(__file__).parents[1] / "src"
MODULES = {".".join(path.relative_to(SOURCE).with_suffix("").parts) for path in SOURCE.rglob("*.py") if path.stem[0] != "_"}
NOT_CHECKED = {"gwi.estimators.base", "gwi.estimators.regressor", "gwi.estimators.classifier"}
NOT_CHECKED |= {module for module in MODULES if module.startswith(("gwi.parts.", "gwi.cli."))}
install_import_hook(sorted(MODULES - NOT_CHECKED), "checking.checked")

import numpy as np  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

import reference  # noqa: E402
from gwi.core.kernels import default_kernel  # noqa: E402

# Two test processes share two cores; more threads would only make them wait for each other.
torch.set_num_threads(1)


def pytest_configure(config: pytest.Config) -> None:
    # Here and not in pyproject.toml: pytest would import the warning's module before the hook above is in place.
    config.addinivalue_line("filterwarnings", "error::gwi.exceptions.JitterWarning")


def pytest_collection_finish() -> None:
    # What is there before the first test stays until the last: a million objects that need not be looked through again and again.
    gc.collect()
    gc.freeze()
    # Nor what tests leave behind as often as by itself, which is a twentieth of the time.
    gc.set_threshold(2000, 10, 20)
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    # Checks are a third of a fit's time, and a fit calls the same functions thousands of times.
    without = item.get_closest_marker("unchecked") is not None and item.config.option.markexpr == "not slow"
    shape_checks.update("jaxtyping_disable", without)


@pytest.fixture(scope="session")
def thorough(pytestconfig: pytest.Config) -> bool:
    """Whether all cases of a large grid are run, as `make test-all` does, or some of each kind."""
    return pytestconfig.option.markexpr != "not slow"


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture
def kernel():
    """An ARD kernel whose scales are all different; `reference_kernel` is the same one in loops."""
    return default_kernel(2, lengthscale=torch.tensor([0.9, 1.4], dtype=torch.float64), outputscale=1.7)


@pytest.fixture
def reference_kernel():
    return reference.ard_kernel(np.array([0.9, 1.4]), 1.7)


@pytest.fixture(scope="session")
def uci_folder() -> Path:
    folder = Path(os.environ.get("GWI_DATA", "")) / "uci"
    if not (os.environ.get("GWI_DATA") and folder.is_dir()):
        pytest.skip("needs the UCI tables: set GWI_DATA to the folder that holds uci/")
    return folder


@pytest.fixture(scope="session")
def image_folder() -> Path:
    folder = Path(os.environ.get("GWI_DATA", "")) / "images"
    if not (os.environ.get("GWI_DATA") and folder.is_dir()):
        pytest.skip("needs the image sets: set GWI_DATA to the folder that holds images/")
    return folder
