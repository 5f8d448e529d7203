"""The lowest versions that pyproject.toml declares, as constraints for pip: `python -m tools.lowest all > build/lowest.txt`.

torch is left out: `make lowest` takes the version that constraints.txt pins.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
LEFT_OUT = {"torch"}


def requirements(extras: Sequence[str]) -> Iterator[Requirement]:
    """Those of the package and of extras, also of extras inside extras."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    waiting = [*project["dependencies"], *(f"{project['name']}[{extra}]" for extra in extras)]
    seen: set[str] = set()
    while waiting:
        requirement = Requirement(waiting.pop(0))
        if requirement.name != project["name"]:
            yield requirement
            continue
        for extra in sorted(requirement.extras - seen):
            seen.add(extra)
            waiting += project["optional-dependencies"][extra]


def lowest(extras: Sequence[str]) -> list[str]:
    """One line for each package.

    Raises:
        ValueError: naming a requirement without a lower bound.
    """
    lines = {}
    for requirement in requirements(extras):
        bounds = [bound.version for bound in requirement.specifier if bound.operator == ">="]
        if len(bounds) != 1:
            raise ValueError(f"{requirement} needs one lower bound, such as >=1.0.")
        if requirement.name not in LEFT_OUT:
            lines[requirement.name] = f"{requirement.name}=={bounds[0]}"
    return sorted(lines.values(), key=str.lower)


if __name__ == "__main__":
    print("\n".join(lowest(sys.argv[1:])))
