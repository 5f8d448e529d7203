"""The pictures of the pages on plots, explanations, counts and times, drawn by the examples of the pages themselves.

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
PAGES = ("plots.md", "plots-calibration.md", "explain.md", "counts.md", "survival.md")
# A block, the text that it prints, and the picture that stands under both.
BLOCK = re.compile(r"```python\n(.*?)```(?:\n\n```text\n[^`]*```)?(?:\n\n!\[[^]]*\]\((assets/\w+\.png)\))?", re.DOTALL)


def main() -> None:
    torch.set_num_threads(1)
    for page in PAGES:
        names: dict[str, Any] = {}
        for block, picture in BLOCK.findall((DOCS / page).read_text()):
            exec(block, names)
            if picture:
                plt.gcf().savefig(DOCS / picture, dpi=100)
            plt.close("all")


if __name__ == "__main__":
    main()
