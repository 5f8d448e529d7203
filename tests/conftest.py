"""Shapes are checked at run time in every test: the hook must be in place before gwi is imported."""

import os
from pathlib import Path

from jaxtyping import install_import_hook

install_import_hook("gwi", "beartype.beartype")

import pytest  # noqa: E402
import torch  # noqa: E402

# Two test processes share two cores; more threads would only make them wait for each other.
torch.set_num_threads(1)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="session")
def uci_folder() -> Path:
    folder = Path(os.environ.get("GWI_DATA", "")) / "uci"
    if not (os.environ.get("GWI_DATA") and folder.is_dir()):
        pytest.skip("needs the UCI tables: set GWI_DATA to the folder that holds uci/")
    return folder
