"""Numbers as text for a reader."""

from __future__ import annotations

import math


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


def tick(value: float, position: object = None) -> str:
    """A number beside an axis: all its digits, unless it is very large or very small."""
    value = round(value, 12)
    if value and not 1e-4 <= abs(value) < 1e7:
        return shown(value, 6)
    return f"{value:,.8g}".replace(",", "\u202f").replace("-", "−")
