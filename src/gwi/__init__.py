"""Gaussian Wasserstein inference in function space: honest uncertainty for any predictor.

The modules follow the paper: `measures`, `means`, `kernels`, `likelihoods`, `divergences`, `objectives`; then what fits
them: `inducing`, `prior`, `covariance`, `training`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gwi.public import *  # noqa: F403

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """A module or a public name, on first use: torch takes seconds to import, and `gwi --help` does without it."""
    from importlib import import_module
    from importlib.util import find_spec

    if not name.startswith("_") and find_spec(f"gwi.{name}") is not None:
        return import_module(f"gwi.{name}")
    if not name.startswith("_") or name == "__all__":
        public = import_module("gwi.public")
        if name == "__all__" or name in public.__all__:
            return getattr(public, name)
    raise AttributeError(f"module 'gwi' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__getattr__("__all__")])
