"""The pictures of docs/plots.md and docs/explain.md, drawn by the examples of the pages themselves.

python -m benchmarks.studies.plot_examples
"""

from __future__ import annotations

import re
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import torch
from matplotlib import pyplot as plt

from benchmarks.tables.common.records import ROOT

DOCS = ROOT / "docs"


def main() -> None:
    torch.set_num_threads(1)
    for page, asset in (("plots.md", None), ("explain.md", "explain")):
        names: dict[str, Any] = {}
        for block in re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL):
            exec(block, names)
            drawn = re.search(r"\b(plot_\w+)\(", block)
            if drawn:
                plt.gcf().savefig(DOCS / "assets" / f"{asset or drawn[1]}.png", dpi=100)


if __name__ == "__main__":
    main()
