"""Packages that the core does without: where one is missing, one sentence says what to install."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from gwi.exceptions import MissingPackageError

# What each extra of pyproject.toml brings that this package imports itself.
EXTRAS = {
    "files": ("pyarrow", "fsspec"),
    "plots": ("matplotlib",),
    "report": ("jinja2", "matplotlib"),
    "cli": ("typer", "rich", "pyarrow"),
    "botorch": ("botorch",),
    "onnx": ("onnx",),
    "dask": ("distributed",),
    "serve": ("fastapi", "uvicorn", "orjson", "typer", "rich", "pyarrow"),
    "play": ("fastapi", "uvicorn", "typer", "rich", "pyarrow", "jinja2", "matplotlib"),
    "mlflow": ("mlflow", "pandas", "pyarrow"),
}


def is_installed(package: str) -> bool:
    """Whether a package can be imported; it is not."""
    if sys.modules.get(package) is not None:
        return True
    try:
        return find_spec(package) is not None
    except ImportError:
        return False


def require(extra: str, what: str) -> None:
    """Refuse work for which packages of an extra are missing.

    Args:
        extra: a key of `EXTRAS`.
        what: the work, as the beginning of the sentence.

    Raises:
        MissingPackageError: naming them, and what to install.
    """
    missing = [package for package in EXTRAS[extra] if not is_installed(package)]
    if missing:
        few = f"{', '.join(missing[:-1])} and {missing[-1]}, which are" if len(missing) > 1 else f"{missing[0]}, which is"
        raise MissingPackageError(f"{what} needs {few} not installed: pip install 'gwi[{extra}]'", missing[0])
