"""The pictures of docs/plots.md, drawn by the examples of the page itself.

python -m benchmarks.plot_examples
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import torch
from matplotlib import pyplot as plt

DOCS = Path(__file__).parent.parent / "docs"


def main() -> None:
    torch.set_num_threads(1)
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", (DOCS / "plots.md").read_text(), re.DOTALL):
        exec(block, names)
        drawn = re.search(r"plots\.(plot_\w+)\(", block)
        if drawn:
            plt.gcf().savefig(DOCS / "assets" / f"{drawn[1]}.png", dpi=100)


if __name__ == "__main__":
    main()
