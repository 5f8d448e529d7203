"""The Python that does the same as the page: the same estimator, the same points, the same digits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from gwi.web.play.asked import Asked
from gwi.web.play.one_dimension import COVERAGE, HALF_WIDTH, NUM_DRAWN, options

# Numbers in a line.
NUMBERS_A_LINE = 10

_PROGRAM = '''"""From gwi play: this fit draws the picture of the page."""

{imports}

x = np.array({x})
y = np.array({y})

{before}model = GWIRegressor(
{arguments}
).fit(x[:, None], y)

grid = np.linspace({low!r}, {high!r}, {count})
found = model.predict_columns(grid[:, None], {coverage}, parts=True)
mean, prior_share = found["prediction"], found["ood_score"]
half = {half} * np.sqrt(found["epistemic"])

figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
axes.fill_between(grid, found["lower"], found["upper"], alpha=0.2, lw=0, label="95 % of y")
axes.fill_between(grid, {f_low}, mean + half, alpha=0.35, lw=0, label="95 % of f")
axes.plot(grid, mean, label="mean")
axes.plot(x, y, "ok", ms=4, label="points")
axes.legend(frameon=False)
figure.savefig("play.png", dpi=150)
print(model.summary_)
'''


def source_of(asked: Asked) -> str:
    """A program that fits what the page shows once nothing moves."""
    asked = replace(asked, moving=False, held=None)
    chosen = options(asked)
    first, *others = chosen
    lines = [first.code, *(f"{option.name}={option.code}" for option in others)]
    before = "".join(f"{line}\n" for option in chosen for line in option.before)
    least = asked.likelihood in ("log-normal", "poisson")
    return _PROGRAM.format(
        imports=_imports(line for option in chosen for line in option.imports),
        x=_numbers(asked.x),
        y=_numbers(asked.y),
        before=f"{before}\n" if before else "",
        arguments="\n".join(f"    {line}," for line in lines),
        low=asked.window[0],
        high=asked.window[1],
        count=NUM_DRAWN,
        coverage=COVERAGE,
        half=HALF_WIDTH,
        f_low="np.maximum(mean - half, 0)" if least else "mean - half",
    )


def _imports(lines: Iterable[str]) -> str:
    """Sorted, one line a module."""
    names: defaultdict[str, set[str]] = defaultdict(set, {"gwi": {"GWIRegressor"}})
    for line in lines:
        _, module, _, name = line.split()
        names[module].add(name)
    shown = [f"from {module} import {', '.join(sorted(found))}" for module, found in sorted(names.items())]
    return "\n".join(["import matplotlib.pyplot as plt", "import numpy as np", *shown])


def _numbers(values: Sequence[float]) -> str:
    rows = [", ".join(map(repr, values[i : i + NUMBERS_A_LINE])) for i in range(0, len(values), NUMBERS_A_LINE)]
    return f"[{rows[0]}]" if len(rows) == 1 else "[\n" + "".join(f"    {row},\n" for row in rows) + "]"
