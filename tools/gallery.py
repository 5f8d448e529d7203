"""The gallery: each script of examples/gallery is run and becomes a page, a notebook and a thumbnail in docs/gallery.

python -m tools.gallery [script ...]    # all of them unless some are named; what they print is then on the pages

A script is in the percent format that editors and Jupyter know: `# %%` begins a cell of code, `# %% [markdown]` one of text.
The first cell is text: its first line is the title, the paragraph after it the sentence under the thumbnail.
"""

from __future__ import annotations

import argparse
import ast
import base64
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).parent.parent
SCRIPTS, PAGES = ROOT / "examples" / "gallery", ROOT / "docs" / "gallery"
# Of a picture, and pixels of a thumbnail.
MOST_BYTES, THUMBNAIL = 60_000, (480, 300)
# Panels of a figure above which a thumbnail shows all of it; letters of printed text that a page shows without a scroll bar.
MOST_PANELS, WIDEST = 8, 88
INTRODUCTION = """# Gallery

Notebooks with real data, short enough to read in a few minutes. Each measures what it says against a simple alternative, and says
so where ours is not better. Every page has the notebook to download; the scripts they are made from are in `examples/gallery/`.
"""


@dataclass(frozen=True)
class Cell:
    """A cell of a script.

    Attributes:
        kind: text or code.
        source: its lines, without the comment signs of text.
        printed: what running it printed, with the value of its last line.
        pictures: the figures that it left open, as PNG in base 64.
        thumbnail: the first panel of the first of them.
    """

    kind: Literal["markdown", "code"]
    source: str
    printed: str = ""
    pictures: tuple[str, ...] = ()
    thumbnail: str = ""


def cells(script: Path) -> list[Cell]:
    """The cells of a script that is not run."""
    found: list[Cell] = []
    for part in re.split(r"^# %%", script.read_text(), flags=re.MULTILINE)[1:]:
        mark, _, body = part.partition("\n")
        if mark.strip() == "[markdown]":
            found.append(Cell("markdown", re.sub(r"^# ?", "", body.strip(), flags=re.MULTILINE)))
        else:
            found.append(Cell("code", body.strip()))
    return found


def slug(script: Path) -> str:
    """The name of a script on its page: 02_wrapped_booster is wrapped-booster."""
    return script.stem.partition("_")[2].replace("_", "-")


def title(cells: list[Cell]) -> str:
    """The first line of a script's text."""
    return cells[0].source.partition("\n")[0].removeprefix("# ")


def summary(cells: list[Cell]) -> str:
    """The first paragraph below the title, on one line."""
    return cells[0].source.split("\n\n")[1].replace("\n", " ")


def run(script: Path) -> list[Cell]:
    """The cells with what they print and draw, each script in a process and a folder of its own."""
    alone = {"OMP_NUM_THREADS": "1", "MPLBACKEND": "agg", "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile() as found:
        command = [sys.executable, "-m", "tools.gallery", str(script), "--to", found.name]
        done = subprocess.run(command, cwd=folder, env=os.environ | alone, capture_output=True)
        if done.returncode:
            raise RuntimeError(f"{script.name} failed:\n{done.stderr.decode()}")
        return [Cell(**{**cell, "pictures": tuple(cell["pictures"])}) for cell in json.load(found)]


def _run_here(script: Path) -> list[Cell]:
    """The cells one after the other in one namespace, as a notebook runs them."""
    from gwi.exceptions import GWIWarning

    names: dict[str, Any] = {"__name__": "__main__"}
    done = []
    for cell in cells(script):
        if cell.kind == "markdown":
            done.append(cell)
            continue
        with contextlib.redirect_stdout(io.StringIO()) as printed, warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", GWIWarning)
            value = _value(cell.source, names, script.name)
            pictures, thumbnail = _pictures()
            # Of a cell that draws, the value is a part of the picture; what names its address would differ from run to run.
            if value is not None and not pictures and " at 0x" not in repr(value):
                print(repr(value))
        said = [f"{type(w.message).__name__}: {w.message}" for w in warned if isinstance(w.message, GWIWarning)]
        # A method that calls another says the same twice.
        folded = [textwrap.fill(one, WIDEST, subsequent_indent="  ", break_on_hyphens=False) for one in dict.fromkeys(said)]
        text = "".join(one + "\n" for one in folded) + printed.getvalue()
        if wide := [line for line in text.splitlines() if len(line) > WIDEST]:
            raise ValueError(f"A line of {len(wide[0])} letters is printed, and a page shows {WIDEST}: {wide[0]}")
        done.append(Cell("code", cell.source, text, pictures, thumbnail))
    return done


def _value(source: str, names: dict[str, Any], name: str) -> Any:
    """Run a cell; the value of its last line, if that is an expression."""
    tree = ast.parse(source, name)
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.Expr):
        exec(compile(tree, name, "exec"), names)
        return None
    exec(compile(ast.Module(tree.body[:-1], []), name, "exec"), names)
    return eval(compile(ast.Expression(last.value), name, "eval"), names)


def _pictures() -> tuple[tuple[str, ...], str]:
    """The open figures, and a thumbnail of the first."""
    from matplotlib import pyplot as plt

    figures = [plt.figure(number) for number in plt.get_fignums()]
    drawn = tuple(_png(figure) for figure in figures)
    thumbnail = ""
    if figures:
        panels = figures[0].axes
        around = panels[0].get_tightbbox() if len(panels) <= MOST_PANELS else None
        inches = around and around.transformed(figures[0].dpi_scale_trans.inverted()).padded(0.08)
        thumbnail = _png(figures[0], inches, THUMBNAIL)
    plt.close("all")
    return drawn, thumbnail


def _png(figure: Any, part: Any = None, size: tuple[int, int] | None = None) -> str:
    """A figure or a part of it in at most 256 colours on white, which is read well beside light and dark text."""
    from PIL import Image, ImageOps

    file, small = io.BytesIO(), io.BytesIO()
    figure.savefig(file, dpi=110, facecolor="white", bbox_inches=part or "tight", pad_inches=0.12)
    picture = Image.open(file).convert("RGB")
    picture = picture if size is None else ImageOps.pad(picture, size, color="white")
    picture.quantize(256 if size is None else 64, dither=Image.Dither.NONE).save(small, "png", optimize=True)
    return base64.b64encode(small.getvalue()).decode()


def page(script: Path, done: list[Cell]) -> str:
    """The page of a script that was run."""
    name = slug(script)
    download = f"[Download the notebook]({name}.ipynb){{ download={name}.ipynb }} · `examples/gallery/{script.name}`\n"
    text = []
    pictures = 0
    for cell in done:
        if cell.kind == "markdown":
            text.append(cell.source + "\n")
            continue
        text.append(f"```python\n{cell.source}\n```\n")
        if cell.printed:
            text.append(f"```text\n{cell.printed.rstrip()}\n```\n")
        for _ in cell.pictures:
            pictures += 1
            text.append(f"![Picture {pictures} of: {title(done)}](images/{name}-{pictures}.png)\n")
    return "\n".join([text[0], download, *text[1:]])


def notebook(script: Path, done: list[Cell]) -> str:
    """The notebook of a script that was run, in version 4.5 of Jupyter's format."""
    inside: list[dict[str, Any]] = []
    for i, cell in enumerate(done):
        entry: dict[str, Any] = {"cell_type": cell.kind, "id": f"{slug(script)}-{i}"[-64:], "metadata": {}}
        entry["source"] = cell.source.splitlines(keepends=True)
        if cell.kind == "code":
            outputs: list[dict[str, Any]] = []
            if cell.printed:
                printed = cell.printed.splitlines(keepends=True)
                outputs.append({"output_type": "stream", "name": "stdout", "text": printed})
            outputs += [{"output_type": "display_data", "data": {"image/png": one}, "metadata": {}} for one in cell.pictures]
            entry |= {"execution_count": None, "outputs": outputs}
        inside.append(entry)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    about = {"kernelspec": kernel, "language_info": {"name": "python"}}
    whole = {"cells": inside, "metadata": about, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, ensure_ascii=False, indent=1) + "\n"


def index(scripts: list[Path]) -> str:
    """The page with a thumbnail and a sentence for each script."""
    cards = []
    for script in scripts:
        found, name = cells(script), slug(script)
        head = title(found)
        parts = (f"[![{head}](images/{name}-small.png)]({name}.md)", f"**[{head}]({name}.md)**", summary(found))
        cards.append("-   " + "\n\n    ".join(parts) + "\n")
    return INTRODUCTION + '\n<div class="grid cards" markdown>\n\n' + "\n".join(cards) + "\n</div>\n"


def write(script: Path, done: list[Cell]) -> None:
    """Page, notebook, pictures and thumbnail."""
    name = slug(script)
    folder = PAGES / "images"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(f"{name}-*.png"):
        old.unlink()
    pictures = [base64.b64decode(picture) for cell in done for picture in cell.pictures]
    if not pictures:
        raise ValueError(f"{script.name} draws nothing; a thumbnail is made of its first picture.")
    for i, picture in enumerate(pictures, 1):
        if len(picture) > MOST_BYTES:
            raise ValueError(f"Picture {i} of {script.name} has {len(picture):,} bytes, above {MOST_BYTES:,}; draw less in it.")
        (folder / f"{name}-{i}.png").write_bytes(picture)
    (folder / f"{name}-small.png").write_bytes(base64.b64decode(next(cell.thumbnail for cell in done if cell.thumbnail)))
    (PAGES / f"{name}.md").write_text(page(script, done))
    (PAGES / f"{name}.ipynb").write_text(notebook(script, done))


def scripts() -> list[Path]:
    """All scripts of the gallery, in order."""
    return sorted(SCRIPTS.glob("[0-9]*.py"))


def main() -> None:
    """Run scripts and write what came of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scripts", nargs="*", type=Path, help="scripts to run; all unless some are named")
    parser.add_argument("--to", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.to:
        given.to.write_text(json.dumps([asdict(cell) for cell in _run_here(given.scripts[0])]))
        return
    for script in given.scripts or scripts():
        write(script, run(script.resolve()))
        print(script.name)
    (PAGES / "index.md").write_text(index(scripts()))


if __name__ == "__main__":
    main()
