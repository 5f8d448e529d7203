"""What a record says of the machine: versions of the libraries, and the most memory that a fit held."""

from __future__ import annotations

import platform
import resource
from collections.abc import Iterable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

# Distributions whose module has another name.
MODULES = {"scikit-learn": "sklearn", "laplace-torch": "laplace"}


def versions(names: Iterable[str]) -> dict[str, str]:
    """Of Python and of those distributions that are installed."""
    return {"python": platform.python_version()} | {name: version(name) for name in names if find_spec(MODULES.get(name, name))}


def reset_peak() -> None:
    """Begin to measure peak memory anew, where the system can."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def peak_megabytes() -> float:
    """The most memory that this process held since `reset_peak`."""
    try:
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024
    except (OSError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
