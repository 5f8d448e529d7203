"""Small pictures as SVG text, for a page: axes with round numbers, lines, bands, bars and dots.

A picture is 360 units wide, the width of a phone, so that its text is as large as the page's. Colours and fonts come from the
page's style by class; nothing is fetched.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

import numpy as np
from jaxtyping import Float

from gwi._typing import Array

WIDTH = 360
LEFT, RIGHT, TOP, BOTTOM = 44, 20, 28, 40


def shown(value: float | int, digits: int = 4) -> str:
    """A number for a reader: so many digits, a true minus, thousands parted by narrow blanks."""
    if not math.isfinite(value):
        return "–" if math.isnan(value) else "∞" if value > 0 else "−∞"
    if 1000 <= abs(value) < 1e7:
        text = f"{value:,.0f}".replace(",", "\u202f")
    else:
        text = f"{value:.{digits}g}"
        if "e" in text:
            factor, power = text.split("e")
            text = f"{factor} · 10{str(int(power)).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"
    return text.replace("-", "−")


def percent(share: float, digits: int = 0) -> str:
    """A share for a reader; 100 % and 0 % only where it is all or nothing."""
    if math.isnan(share):
        return "–"
    text = f"{100 * share:.{digits}f}"
    least = 10.0**-digits
    if share < 1 and float(text) >= 100:
        return f"> {100 - least:.{digits}f} %"
    if share > 0 and float(text) == 0:
        return f"< {least:.{digits}f} %"
    return f"{text.replace('-', '−')} %"


def round_numbers(low: float | int, high: float | int, count: int = 5) -> list[float]:
    """About so many round numbers within a range."""
    raw = (high - low) / max(count, 1)
    decade = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * decade for factor in (1, 2, 2.5, 5, 10) if factor * decade >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


@dataclass(frozen=True)
class Axis:
    """One axis.

    Attributes:
        low: its lower end.
        high: its upper end.
        label: what it shows.
        kind: numbers, shares, or numbers on a logarithmic scale.
    """

    low: float | int
    high: float | int
    label: str
    kind: Literal["number", "share", "log"] = "number"

    def place(self, values: Float[Array, " N"]) -> Float[Array, " N"]:
        """Where values stand between the ends, 0 to 1 and no farther."""
        low, high = self.low, self.high
        if self.kind == "log":
            values, low, high = np.log(np.maximum(values, low)), math.log(low), math.log(high)
        return np.clip((values - low) / (high - low), 0.0, 1.0)

    def ticks(self, count: int) -> list[tuple[float, str]]:
        """Round numbers and their text."""
        if self.kind == "share":
            return [(value, f"{100 * value:.3g} %") for value in round_numbers(self.low, self.high, count)]
        if self.kind == "log":
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            for digits in ((1, 2, 5), (1, 3), (1,)):
                found = [d * 10.0**k for k in decades for d in digits if self.low <= d * 10.0**k <= self.high]
                if len(found) <= count + 1:
                    return [(value, shown(value)) for value in found]
            step = -(-len(found) // count)
            return [(value, shown(value)) for value in found[::step]]
        return [(value, shown(round(value, 12))) for value in round_numbers(self.low, self.high, count)]


def around(values: Float[Array, " N"], label: str, margin: float = 0.04) -> Axis:
    """An axis that holds all values."""
    low, high = float(values.min()), float(values.max())
    wider = margin * (high - low) if high > low else max(abs(high), 1.0) / 2
    return Axis(low - wider, high + wider, label)


class Chart:
    """A picture that grows by what is drawn on it.

    Args:
        x: the horizontal axis.
        y: the vertical one.
        height: of the whole picture.
    """

    def __init__(self, x: Axis, y: Axis, height: int = 250):
        self.x, self.y, self.height = x, y, height
        self._marks: list[str] = []
        self._legend: list[tuple[str, str]] = []

    def _across(self, values: Float[Array, " N"]) -> Float[Array, " N"]:
        return LEFT + self.x.place(np.asarray(values, dtype=np.float64)) * (WIDTH - LEFT - RIGHT)

    def _down(self, values: Float[Array, " N"]) -> Float[Array, " N"]:
        return self.height - BOTTOM - self.y.place(np.asarray(values, dtype=np.float64)) * (self.height - TOP - BOTTOM)

    def _points(self, x: Float[Array, " N"], y: Float[Array, " N"]) -> str:
        return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(self._across(x), self._down(y), strict=True))

    def line(self, x: Float[Array, " N"], y: Float[Array, " N"], look: str, name: str = "") -> None:
        """A line through the points."""
        self._marks.append(f'<polyline class="{look}" points="{self._points(x, y)}"/>')
        self._named(look, name)

    def band(self, x: Float[Array, " N"], low: Float[Array, " N"], high: Float[Array, " N"], look: str, name: str = "") -> None:
        """What lies between two lines."""
        points = f"{self._points(x, high)} {self._points(x[::-1], low[::-1])}"
        self._marks.append(f'<polygon class="{look}" points="{points}"/>')
        self._named(look, name)

    def dots(self, x: Float[Array, " N"], y: Float[Array, " N"], look: str, name: str = "") -> None:
        """A dot at each point."""
        path = "".join(f"M{a:.1f} {b:.1f}h0" for a, b in zip(self._across(x), self._down(y), strict=True))
        if path:
            self._marks.append(f'<path class="{look}" d="{path}"/>')
            self._named(look, name)

    def posts(self, x: Float[Array, " N"], low: Float[Array, " N"], high: Float[Array, " N"], look: str, name: str = "") -> None:
        """A vertical stroke at each x."""
        ends = zip(self._across(x), self._down(low), self._down(high), strict=True)
        self._marks.append(f'<path class="{look}" d="{"".join(f"M{a:.1f} {b:.1f}V{c:.1f}" for a, b, c in ends)}"/>')
        self._named(look, name)

    def bars(
        self,
        edges: Float[Array, " K"],
        low: Float[Array, " N"],
        high: Float[Array, " N"],
        look: str,
        name: str = "",
        notes: Sequence[str] = (),
    ) -> None:
        """Columns between neighbouring edges; the notes are shown under a pointer."""
        left, right = self._across(edges[:-1]), self._across(edges[1:])
        for i, (a, b, c, d) in enumerate(zip(left, right, self._down(low), self._down(high), strict=True)):
            note = f"<title>{escape(notes[i])}</title>" if i < len(notes) else ""
            gap = min(1.5, (b - a) / 10)
            size = f'width="{b - a - 2 * gap:.1f}" height="{c - d:.1f}"'
            self._marks.append(f'<rect class="{look}" x="{a + gap:.1f}" y="{d:.1f}" {size}>{note}</rect>')
        self._named(look, name)

    def tops(self, edges: Float[Array, " K"], high: Float[Array, " N"], look: str) -> None:
        """A level stroke between neighbouring edges."""
        ends = zip(self._across(edges[:-1]), self._across(edges[1:]), self._down(high), strict=True)
        self._marks.append(f'<path class="{look}" d="{"".join(f"M{a + 1.5:.1f} {c:.1f}H{b - 1.5:.1f}" for a, b, c in ends)}"/>')

    def _named(self, look: str, name: str) -> None:
        if name:
            self._legend.append((look, name))

    def svg(self, description: str) -> str:
        """The whole picture; the description is for those who do not see it."""
        bottom, right = self.height - BOTTOM, WIDTH - RIGHT
        parts = [f'<svg viewBox="0 0 {WIDTH} {self.height}" role="img" aria-label="{escape(description)}">']
        for value, text in self.y.ticks(4):
            at = float(self._down(np.array([value]))[0])
            parts.append(f'<path class="grid" d="M{LEFT} {at:.1f}H{right}"/>')
            parts.append(f'<text class="tick" x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{escape(text)}</text>')
        for value, text in self.x.ticks(5):
            at = float(self._across(np.array([value]))[0])
            parts.append(f'<path class="grid" d="M{at:.1f} {bottom}v4"/>')
            parts.append(f'<text class="tick" x="{at:.1f}" y="{bottom + 17}" text-anchor="middle">{escape(text)}</text>')
        parts += self._marks
        parts.append(f'<path class="axis" d="M{LEFT} {bottom}H{right}"/>')
        parts.append(f'<text class="label" x="0" y="12">{escape(self.y.label)}</text>')
        parts.append(f'<text class="label" x="{right}" y="{self.height - 6}" text-anchor="end">{escape(self.x.label)}</text>')
        return "".join([*parts, "</svg>"])

    def legend(self) -> str:
        """What the marks mean, as a line of text with samples."""
        items = [
            f'<span><svg class="key" viewBox="0 0 18 10" aria-hidden="true"><path class="{look} sample" d="M1 5h16"/></svg>'
            f"{escape(name)}</span>"
            for look, name in self._legend
        ]
        return f'<p class="legend">{"".join(items)}</p>' if items else ""
