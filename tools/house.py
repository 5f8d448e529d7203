"""What the house looks like, measured: lines, packages and their imports, modules a call touches, questions for the task.

- `python -m tools.house lines`: lines of code of each package, without docstrings, comments and blanks
- `python -m tools.house touched`: modules of ours and deepest chain of our frames in a fit, a prediction, the command
- `python -m tools.house questions`: places that ask "regression or classification?"
- `python -m tools.house picture`: draws docs/assets/architecture.svg, packages and their imports
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
import sys
import tempfile
import tokenize
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "gwi"
# From what imports nothing of ours to what may import all.
_BELOW = "core predictors tables models storage onnx streaming evaluation fitting"
PACKAGES = f"{_BELOW} estimators plots report web cli".split()
# Where a task is what the module is about: the task objects, the encoding of targets, the models, and what is predicted of each.
OF_A_TASK = re.compile(
    r"(fitting|models|report|evaluation)/(regression|classification)\.py|estimators/(regressor|classifier|table_targets)\.py"
)
TASK_NAMES = r"GWIClassifier|GWIRegressor|ClassificationModel|RegressionModel|ClassificationTask|RegressionTask"
QUESTIONS = (
    re.compile(rf"isinstance\([^()]*,[^()]*\b({TASK_NAMES})\b"),
    re.compile(rf"\bis (not )?({TASK_NAMES})\b"),
    re.compile(r"hasattr\([^()]*\"(predict_proba|classes_?|noises)\"\)"),
    re.compile(r"classes(_)? is (not )?None|is_classifier\(|is_regressor\("),
    re.compile(r"[=!]= \"(regression|classification)\"|\"(regression|classification)\" [=!]="),
)


def code_lines(path: Path) -> int:
    """Lines that are neither docstring nor comment nor blank."""
    text = path.read_text()
    documented: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node):
            first = node.body[0]
            documented |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - documented)


def package_of(path: Path) -> str:
    """The folder of a module, or its own name."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


# What may be imported from above, and only inside a function: an estimator's `report` opens a page.
OPENED_LATE = {("estimators", "report")}


def imports() -> Counter[tuple[str, str]]:
    """How many imports go from one package to another, without those that are opened late."""
    edges: Counter[tuple[str, str]] = Counter()
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        inside = {node for function in ast.walk(tree) if isinstance(function, ast.FunctionDef) for node in ast.walk(function)}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gwi."):
                edge = package_of(path), str(node.module).split(".")[1]
                if edge[0] != edge[1] and not (edge in OPENED_LATE and node in inside):
                    edges[edge] += 1
    return edges


def questions() -> list[str]:
    """Lines outside the tasks' own modules that decide by task."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        place = path.relative_to(SOURCE).as_posix()
        # Predictors ask other people's classifiers whether they have probabilities or margins.
        if OF_A_TASK.search(place) or place.startswith("predictors/"):
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            code = line.split("#")[0]
            if any(pattern.search(code) for pattern in QUESTIONS):
                found.append(f"{place}:{number}: {line.strip()}")
    return found


def touched(call: Callable[[], Any]) -> tuple[list[str], list[str]]:
    """Modules of ours that a call enters, and the deepest chain of our frames."""
    root = f"{SOURCE}/"
    modules: set[str] = set()
    deepest: list[str] = []

    def is_ours(frame: FrameType) -> bool:
        return frame.f_code.co_filename.startswith(root) and frame.f_code.co_name != "<module>"

    def trace(frame: FrameType, event: str, argument: Any) -> None:
        """See a frame that begins, and nothing that happens in it: a profile would also be told of every call of C."""
        nonlocal deepest
        if not is_ours(frame):
            return
        modules.add(frame.f_code.co_filename.removeprefix(root))
        chain: list[str] = []
        above: FrameType | None = frame
        while above is not None:
            if is_ours(above):
                chain.append(f"{above.f_code.co_filename.rsplit('/', 1)[-1][:-3]}.{above.f_code.co_qualname}")
            above = above.f_back
        if len(chain) > len(deepest):
            deepest = chain[::-1]

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return sorted(modules), deepest


def small(members: list[Any]) -> list[Any]:
    """The same means with few trees, rounds and steps: a call enters the same modules, as deep."""
    from gwi.parts import Network

    sizes = {"HistGradientBoostingRegressor": {"max_iter": 5}, "ExtraTreesRegressor": {"n_estimators": 5}}
    for member in members:
        if type(member).__name__ in sizes:
            member.set_params(**sizes[type(member).__name__])
    return [Network(max_steps=20) if member == "network" else member for member in members]


def calls(folder: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Four calls on 70 rows."""
    import numpy as np
    import torch
    from torch import nn

    from gwi import GWIClassifier, GWIRegressor, cli

    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(70, 4))
    y = X[:, 0] + np.sin(X[:, 1]) + 0.1 * rng.normal(size=70)
    label, network = (y > 0).astype(int), nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    model, classifier = GWIRegressor(random_state=0), GWIClassifier(network, random_state=0)
    yield "GWIRegressor().fit", lambda: model.fit(X, y)
    yield "predict", lambda: model.predict(X, return_std=True)
    yield "frozen classifier's fit", lambda: classifier.fit(X[:40], label[:40], validation=(X[40:], label[40:]))
    table = folder / "data.csv"
    np.savetxt(table, np.column_stack([X, y]), delimiter=",", header="a,b,c,d,y", comments="", fmt="%.6f")
    yield "gwi fit data.csv", lambda: cli.run(["fit", str(table), "-t", "y", "-o", f"{folder}/model.gwi", "-q"])


def measured() -> Iterator[tuple[str, list[str], list[str]]]:
    """Each call with its modules and its deepest chain."""
    from gwi.fitting import plan

    usual = plan.regression_members
    with (
        tempfile.TemporaryDirectory() as folder,
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        mock.patch.object(plan, "regression_members", lambda *given: small(usual(*given))),
    ):
        warnings.simplefilter("ignore")
        for name, call in calls(Path(folder)):
            yield name, *touched(call)


def picture(path: Path = ROOT / "docs" / "assets" / "architecture.svg") -> None:
    """Packages from the bottom up, an arrow from each to those it imports, as wide as there are imports."""
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

    edges = imports()
    figure = Figure(figsize=(9, 8.5))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set_axis_off()
    for level, package in enumerate(PACKAGES):
        box = FancyBboxPatch((0.36, level), 0.28, 0.55, boxstyle="round,pad=0.02", facecolor="#e8f0f8", edgecolor="#36648b")
        ax.add_patch(box)
        ax.text(0.5, level + 0.27, package, ha="center", va="center", fontsize=13, weight="bold")
    for (start, end), count in edges.items():
        if start in PACKAGES and end in PACKAGES:
            top, bottom = PACKAGES.index(start), PACKAGES.index(end)
            side = 1 if (top + bottom) % 2 else -1
            x = 0.5 + side * 0.16
            bend = side * -0.09 * (top - bottom) ** 0.75
            arrow = FancyArrowPatch(
                (x, top + 0.25),
                (x, bottom + 0.4),
                connectionstyle=f"arc3,rad={bend:.3f}",
                arrowstyle="-|>",
                mutation_scale=11,
                linewidth=0.5 + count**0.5 / 2,
                color="#36648b",
                alpha=0.55,
            )
            ax.add_patch(arrow)
    ax.set_xlim(-0.1, 1.1)
    ax.set_ylim(-0.3, len(PACKAGES))
    figure.savefig(path, metadata={"Date": None})


def main(command: str) -> None:
    """Print what was asked for."""
    if command == "lines":
        lines = Counter[str]()
        for path in SOURCE.rglob("*.py"):
            lines[package_of(path)] += code_lines(path)
        for package, count in lines.most_common():
            print(f"{count:6,}  {package}")
        print(f"{lines.total():6,}  in all")
    elif command == "touched":
        for name, modules, chain in list(measured()):
            print(f"{name}: {len(modules)} modules, {len(chain)} frames deep\n  {' '.join(modules)}\n  {' > '.join(chain)}")
    elif command == "questions":
        print("\n".join(questions()))
    elif command == "picture":
        picture()
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) == 2 else "")
