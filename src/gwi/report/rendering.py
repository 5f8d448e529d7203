"""From plain data to a page: Jinja2 templates, and pictures of `gwi.plots` as part of the page, in its colours and its font."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from gwi.plots.numbers import percent, shown
from gwi.plots.style import ALARM, CHANCE, DATA, FRAME, GRID, MEAN, legend, new_axes, thin_ticks

# Inches. A card of the page shows a picture about a quarter larger, so that its text is as large as the page's.
LONGEST_CELL = 60
SIZE = (3.8, 2.75)
# The page's own colours, which differ in light and dark.
VARIABLES = {MEAN: "ink", DATA: "blue", ALARM: "orange", CHANCE: "chance", FRAME: "soft", GRID: "line"}
# What is cut out of matplotlib's SVG, or replaced.
CUT = (
    # Parts are named alike in every picture, and a style would be that of the whole page.
    (re.compile(r'(?<=<g) id="[^"]*"|<style.*?</style>|<metadata>.*?</metadata>|<!--.*?-->', re.DOTALL), ""),
    (re.compile(r' transform="rotate\(-0 [^"]*"'), ""),
    # Digits of coordinates, not of text.
    (re.compile(r"(?<=\.\d\d)\d+(?=[^<>]*>)"), ""),
    (re.compile(r"(font-family: |font: [^;\"']*px )[^;\"]*"), r"\1var(--font)"),
)


def spaced(text: str) -> str:
    """Words of ours, where a number and its per cent sign stay together."""
    return text.replace(" %", "\u00a0%")


def short(value: object) -> str:
    """The beginning of a long text."""
    text = "" if value is None else str(value)
    return text if len(text) <= LONGEST_CELL else f"{text[: LONGEST_CELL - 1]}…"


ENVIRONMENT = Environment(
    loader=PackageLoader("gwi.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)
ENVIRONMENT.filters |= {"shown": shown, "percent": lambda *values: spaced(percent(*values)), "spaced": spaced, "short": short}
ENVIRONMENT.globals |= {"infinity": math.inf}


def render(template: str, **data: Any) -> str:
    """A page; everything is escaped but markup."""
    from gwi import __version__

    return ENVIRONMENT.get_template(template).render(version=__version__, **data)


def saved(figure: Figure, kind: str, name: str = "gwi") -> bytes:
    """A file of this kind without a date and random names: the same figure is the same file."""
    FigureCanvasAgg(figure)
    buffer = io.BytesIO()
    with style.context({"svg.hashsalt": name}), warnings.catch_warnings():
        # Letters that matplotlib's font lacks.
        warnings.filterwarnings("ignore", "Glyph")
        figure.savefig(buffer, format=kind, dpi=150, transparent=False, metadata={"Date": None} if kind == "svg" else {})
    return buffer.getvalue()


@dataclass(frozen=True)
class Picture:
    """A picture for a template, which names it.

    Attributes:
        width: in its own units.
        height: in the same.
        marks: what is inside of the svg element.
    """

    width: float
    height: float
    marks: Markup


def picture(name: str, draw: Callable[[Axes], object], size: tuple[float, float] = SIZE, with_legend: bool = True) -> Picture:
    """What a function draws on axes; the name, of which a page has each once, makes names of its parts."""
    # The reader's own settings of matplotlib do not reach the page.
    with style.context(["default", {"svg.fonttype": "none"}]):
        figure = Figure(size, layout="constrained")
        axes = new_axes(figure.subplots())
        draw(axes)
        thin_ticks(axes)
        if with_legend:
            legend(axes, "outside")
        for patch in (figure.patch, axes.patch):
            patch.set_visible(False)
        text = saved(figure, "svg", name).decode()
    text = text[text.index(">", text.index("<svg")) + 1 : text.rindex("</svg>")]
    for pattern, new in CUT:
        text = pattern.sub(new, text)
    for colour, variable in VARIABLES.items():
        text = text.replace(colour.lower(), f"var(--{variable})")
    return Picture(72 * size[0], 72 * size[1], Markup(re.sub(r"\s*\n\s*", "\n", text)))


@dataclass(frozen=True)
class Cell:
    """A cell of a table that is more than text.

    Attributes:
        text: what is shown.
        full: what a pointer shows that rests on it.
        mood: "good" or "bad" for a mark.
    """

    text: str
    full: str = ""
    mood: str = ""
