"""Run the Python of pages and write what it prints under its blocks: `python -m tools.outputs [pages]`.

Only outputs that a page shows already are written; a block without one stays so. Each page runs in a folder of its own, in one
thread, as the tests run it.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import tempfile
import textwrap
import warnings
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Where the site's own pages are; those of the gallery have a tool of their own.
DOCS, GALLERY = ROOT / "docs", ROOT / "docs" / "gallery"
# What stands before a block that is not run, with the reason.
NOT_RUN = re.compile(r"<!-- not run: \S.*? -->\n\Z")
# Blocks in tabs are indented.
BLOCK = re.compile(r"^( *)```python\n(.*?)^\1```$(?:\n\n\1```text\n(.*?)^\1```$)?", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """Python of a page, and what it shows under it.

    Attributes:
        code: the lines.
        shown: the output; None where none is shown.
        span: where the output is in the text of the page, without the lines around it.
        indent: of the block.
    """

    code: str
    shown: str | None
    span: tuple[int, int]
    indent: str


def blocks(page: Path) -> list[Block]:
    """The Python blocks of a page that are to be run."""
    text = page.read_text()
    return [
        Block(
            textwrap.dedent(found[2]),
            None if found[3] is None else re.sub(rf"^{found[1]}", "", found[3], flags=re.MULTILINE),
            found.span(3),
            found[1],
        )
        for found in BLOCK.finditer(text)
        if not NOT_RUN.search(text[: found.start()])
    ]


def renewed(page: Path) -> str:
    """The text of the page with the outputs of today."""
    import matplotlib as mpl
    import matplotlib.pyplot as plt
    import torch

    from gwi.exceptions import GWIWarning

    mpl.use("Agg")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    names: dict[str, object] = {"__name__": "page"}
    found: list[tuple[Block, str]] = []
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore", GWIWarning)
        for block in blocks(page):
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(block.code, page.name, "exec"), names)
            if block.shown is not None:
                found.append((block, textwrap.indent(printed.getvalue(), block.indent)))
    plt.close("all")
    text = page.read_text()
    # From the end, so that places before stay where they are.
    for block, output in reversed(found):
        text = text[: block.span[0]] + output + text[block.span[1] :]
    return text


def main() -> None:
    """Renew the pages that are named, or all that show an output."""
    named = [Path(argument).resolve() for argument in sys.argv[1:]]
    every = sorted([ROOT / "README.md", *(page for page in DOCS.rglob("*.md") if GALLERY not in page.parents)])
    for page in named or every:
        if any(block.shown is not None for block in blocks(page)):
            before, after = page.read_text(), renewed(page)
            if after != before:
                page.write_text(after)
                print(f"{page.relative_to(ROOT)}: changed")


if __name__ == "__main__":
    main()
