"""What a case gives, numbers and texts; how it is written, read and compared; and on what machine it was found."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_info, threadpool_limits

HERE = Path(__file__).parent
RECORD = HERE / "record"
MODELS = HERE / "models"
GROUPS = ("regressors", "classifiers", "models", "commands", "odd_files")
Array = NDArray[np.float64]

_SECONDS = re.compile(r"\d+\.\d+ s\b")
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|inf|nan)(?![\w.]*\w)")


@dataclass
class Outcome:
    """What came of a case.

    Attributes:
        numbers: float64 arrays by name.
        texts: words by name; numbers in them are compared only where the machine is that of the record.
    """

    numbers: dict[str, Array] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, values: Any) -> None:
        """Keep numbers; flags and labels are kept as words."""
        found = values.detach().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)
        if found.dtype.kind == "f":
            self.numbers[name] = np.array(found, dtype=np.float64)
        else:
            self.texts[name] = " ".join(map(str, found.ravel().tolist()))

    def add_mixed(self, name: str, text: str) -> None:
        """Keep the numbers of a text in full, and the rest of it with a mark in the place of each."""
        self.numbers[name] = np.array([float(number) for number in _NUMBER.findall(text)])
        self.texts[name] = without_numbers(text)

    def to_json(self) -> dict[str, dict[str, str]]:
        """As words: an array is its shape and its numbers, each in as many digits as it takes to read the same bits back."""
        return {"numbers": {name: _written(values) for name, values in self.numbers.items()}, "texts": self.texts}

    @staticmethod
    def from_json(found: Mapping[str, Mapping[str, str]]) -> Outcome:
        """What `to_json` gave."""
        return Outcome({name: _read(text) for name, text in found["numbers"].items()}, dict(found["texts"]))


def _written(values: Array) -> str:
    return f"{'x'.join(map(str, values.shape))}: {' '.join(repr(float(value)) for value in values.ravel())}"


def _read(text: str) -> Array:
    shape, _, numbers = text.partition(":")
    return np.array([float(word) for word in numbers.split()]).reshape([int(size) for size in shape.split("x") if size])


def without_numbers(text: str) -> str:
    """A text with a mark in the place of every number."""
    return _NUMBER.sub("#", text)


def without_seconds(text: str) -> str:
    """A text with a mark in the place of every time such as 1.2 s."""
    return _SECONDS.sub("# s", text)


def environment() -> dict[str, str]:
    """What the last digits of a fit depend on: the kind of processor and the versions of what computes."""
    names = Path("/proc/cpuinfo")
    models = re.findall(r"^model name\s*:\s*(.*)$", names.read_text(), re.MULTILINE) if names.exists() else []
    packages = ("torch", "numpy", "scipy", "scikit-learn", "gpytorch", "linear_operator")
    capability = torch.backends.cpu.get_cpu_capability()
    # OpenBLAS chooses its loops by the processor, or by OPENBLAS_CORETYPE.
    blas = sorted({str(pool.get("architecture")) for pool in threadpool_info() if pool["user_api"] == "blas"})
    machine = {"processor": models[0] if models else "unknown", "instructions": capability, "blas": ", ".join(blas)}
    return machine | {p: version(p) for p in packages}


@contextmanager
def repeatable() -> Iterator[None]:
    """One thread, one seed for whatever draws from a global generator, and lines of one length."""
    threads, columns = torch.get_num_threads(), os.environ.get("COLUMNS")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    os.environ["COLUMNS"] = "160"
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(threads)
        os.environ.pop("COLUMNS")
        if columns is not None:
            os.environ["COLUMNS"] = columns


def write(folder: Path, group: str, found: Mapping[str, Outcome]) -> None:
    """Write the outcomes of a group, one array or text a line."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {name: outcome.to_json() for name, outcome in found.items()}
    (folder / f"{group}.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read(folder: Path, group: str) -> dict[str, Outcome]:
    """What `write` wrote."""
    found = json.loads((folder / f"{group}.json").read_text(encoding="utf-8"))
    return {name: Outcome.from_json(outcome) for name, outcome in found.items()}


def write_environment(folder: Path) -> None:
    """Say on what machine the record was made."""
    (folder / "environment.json").write_text(json.dumps(environment(), indent=1) + "\n")


def is_same_machine(folder: Path) -> bool:
    """Whether a record was made with this kind of processor and these versions."""
    return bool(json.loads((folder / "environment.json").read_text()) == environment())


def same_bits(a: Array, b: Array) -> bool:
    """Whether two arrays are equal to the last bit; NaN equals NaN."""
    return a.shape == b.shape and (a.tobytes() == b.tobytes() or bool(((a == b) | (np.isnan(a) & np.isnan(b))).all()))


def differences(found: Outcome, wanted: Outcome, tolerance: float = 0.0) -> list[str]:
    """What differs, in words: numbers by more than tolerance·(1 + |wanted|), texts at all.

    Args:
        found: now.
        wanted: in the record.
        tolerance: 0 for a difference in any bit.
    """
    said = _names_differ("numbers", found.numbers, wanted.numbers) + _names_differ("texts", found.texts, wanted.texts)
    for name in found.numbers.keys() & wanted.numbers.keys():
        a, b = found.numbers[name], wanted.numbers[name]
        if a.shape != b.shape:
            said.append(f"{name}: shape {a.shape} where {b.shape} is recorded")
        elif not same_bits(a, b):
            gap = np.where(np.isclose(a, b, rtol=0, atol=0, equal_nan=True), 0.0, np.abs(a - b))
            size = np.where(np.isnan(b), 1.0, np.abs(b))
            if not (gap <= tolerance * (1 + size)).all() or not tolerance:
                relative = (gap / np.maximum(size, np.finfo(float).tiny)).max()
                said.append(f"{name}: differs by up to {gap.max():.3g} absolute, {relative:.3g} relative")
    for name in found.texts.keys() & wanted.texts.keys():
        if found.texts[name] != wanted.texts[name]:
            said.append(f"{name}: {_first_difference(found.texts[name], wanted.texts[name])}")
    return sorted(said)


def loose_differences(found: Outcome, wanted: Outcome, share: float = 0.1, ignored: tuple[str, ...] = ()) -> list[str]:
    """What differs by more than another processor explains.

    Args:
        found: now.
        wanted: in the record.
        share: how far numbers may lie apart, in units of an array's spread or size, whichever is larger.
        ignored: beginnings of names of numbers that are not compared.
    """
    said = _names_differ("numbers", found.numbers, wanted.numbers) + _names_differ("texts", found.texts, wanted.texts)
    for name in found.numbers.keys() & wanted.numbers.keys():
        a, b = found.numbers[name], wanted.numbers[name]
        if name.startswith(ignored):
            continue
        if a.shape != b.shape:
            said.append(f"{name}: shape {a.shape} where {b.shape} is recorded")
            continue
        is_finite = np.isfinite(a) & np.isfinite(b)
        allowed = share * max(b[is_finite].std(), np.abs(b[is_finite]).mean()) if is_finite.any() else 0.0
        gap = np.abs(a[is_finite] - b[is_finite])
        if (np.isfinite(a) != np.isfinite(b)).any() or (gap > allowed).any():
            said.append(f"{name}: differs by up to {gap.max(initial=0):.3g} where {allowed:.3g} is allowed")
    for name in found.texts.keys() & wanted.texts.keys():
        a_text, b_text = without_numbers(found.texts[name]), without_numbers(wanted.texts[name])
        if a_text != b_text:
            said.append(f"{name}: {_first_difference(a_text, b_text)}")
    return sorted(said)


def _names_differ(what: str, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    said = [f"{what} {name!r} are not recorded" for name in found if name not in wanted]
    return said + [f"{what} {name!r} are recorded and no longer there" for name in wanted if name not in found]


def _first_difference(found: str, wanted: str) -> str:
    a, b = found.splitlines(), wanted.splitlines()
    for i in range(max(len(a), len(b))):
        here, there = (lines[i] if i < len(lines) else "(no line)" for lines in (a, b))
        if here != there:
            return f"line {i + 1} is {here!r} where {there!r} is recorded"
    return "the ends of lines differ"
