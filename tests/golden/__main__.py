"""Make the golden record, or compare two."""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from . import commands, stored
from .answers import outcome
from .classifier_cases import CLASSIFIERS
from .content import GROUPS, MODELS, RECORD, Outcome, differences, read, write, write_environment
from .regressor_cases import REGRESSORS


def regressors() -> dict[str, Outcome]:
    return {name: outcome(case) for name, case in REGRESSORS.items()}


def classifiers() -> dict[str, Outcome]:
    return {name: outcome(case) for name, case in CLASSIFIERS.items()}


def sessions() -> dict[str, Outcome]:
    return {name: commands.outcome(session) for name, session in commands.SESSIONS.items()}


def odd_files() -> dict[str, Outcome]:
    with commands.base_model() as model:
        return {name: commands.odd_outcome(name, model) for name in commands.CASES}


def record(folder: Path, groups: Sequence[str]) -> None:
    """Run every case of some groups and write what comes of it; the default folder has its models beside it."""
    models = MODELS if folder.resolve() == RECORD.resolve() else folder / "models"
    makers: dict[str, Callable[[], dict[str, Outcome]]] = {
        "regressors": regressors,
        "classifiers": classifiers,
        "models": lambda: stored.write(models),
        "commands": sessions,
        "odd_files": odd_files,
    }
    for group in groups:
        start = time.perf_counter()
        found = makers[group]()
        write(folder, group, found)
        print(f"{group}: {len(found)} cases, {time.perf_counter() - start:.1f} s", flush=True)
    write_environment(folder)


def compare(first: Path, second: Path, tolerance: float) -> int:
    """Print what differs, case by case; 1 if anything does."""
    num_cases, num_differing = 0, 0
    for name in ("environment.json", *(f"{group}.json" for group in GROUPS)):
        if not (first / name).exists() and not (second / name).exists():
            continue
        if not (first / name).exists() or not (second / name).exists():
            print(f"{name} is in one of the folders only")
            num_differing += 1
        elif name == "environment.json":
            if (first / name).read_text() != (second / name).read_text():
                print("the records were made on different machines or with different versions")
        else:
            a, b = read(first, name.removesuffix(".json")), read(second, name.removesuffix(".json"))
            for case in [*a, *(case for case in b if case not in a)]:
                num_cases += 1
                said = differences(b[case], a[case], tolerance) if case in a and case in b else ["is in one of the records only"]
                num_differing += bool(said)
                print(f"{name.removesuffix('.json')}, {case}: {'; '.join(said) or _equal(tolerance)}")
    print(f"{num_cases} cases, {num_differing} differ")
    return int(num_differing > 0)


def _equal(tolerance: float) -> str:
    return f"equal to {tolerance:g}" if tolerance else "bit-equal"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    choices = parser.add_subparsers(dest="command", required=True)
    recorder = choices.add_parser("record", help="run every case and write what comes of it")
    recorder.add_argument("--to", type=Path, default=RECORD, help="folder; the committed record unless given")
    recorder.add_argument("--only", nargs="+", choices=GROUPS, default=GROUPS, help="some groups of cases")
    comparer = choices.add_parser("compare", help="say what differs between two records")
    comparer.add_argument("first", type=Path)
    comparer.add_argument("second", type=Path)
    comparer.add_argument("--tolerance", type=float, default=0.0, help="for numbers, times 1 + their size; 0 compares bits")
    chosen = parser.parse_args()
    if chosen.command == "compare":
        return compare(chosen.first, chosen.second, chosen.tolerance)
    record(chosen.to, chosen.only)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
