"""How pictures look and where they go: colours that all eyes tell apart, one font, PNG and SVG on white."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from benchmarks.tables.common.records import RESULTS, ROOT

Array = NDArray[np.float64]

RECORDS = RESULTS / "figures"
PICTURES = ROOT / "docs" / "assets" / "figures"

# Okabe and Ito's colours; shape, dash or place always says the same.
BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"
BLACK, GREY, PALE = "#000000", "#6E6E6E", "#D9D9D9"
# The paper's own: training data, unseen data, inducing points. Its red and green are told apart by their markers.
SEEN, UNSEEN, INDUCING = "#1f77b4", "#d62728", "#2ca02c"

LOOK: dict[Any, Any] = {
    "font.size": 9,
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "svg.hashsalt": "gwi",
}


def look() -> Any:
    """The house's settings, for the time of one picture."""
    return mpl.rc_context(LOOK)


def canvas(width: float, height: float) -> Figure:
    """An empty picture, in inches."""
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, name: str, folder: Path, dpi: int = 125) -> None:
    """Write name.png, in 256 colours, and name.svg: the same bytes at every run."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=dpi, facecolor="white")
    picture = Image.open(drawn).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    picture.save(folder / f"{name}.png", optimize=True)
    figure.set_layout_engine("none")
    # Where things lie is settled, and finding it out takes longer than drawing. The resolution is that of maps; lines and
    # letters have none.
    figure.savefig(folder / f"{name}.svg", dpi=36, facecolor="white", metadata={"Date": None, "Creator": None})


def band(axes: Axes, x: Array, mean: Array, half: Array, colour: str = BLACK, shade: float = 0.18, label: str = "") -> None:
    """mean ± half."""
    axes.fill_between(x, mean - half, mean + half, color=colour, alpha=shade, lw=0, label=label or None)
