"""Numbers, lists and places in the words of the pages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from benchmarks.tables.common.statistics import Comparison, Estimate

NOTHING = "–"


def number(value: float, digits: int, *, signed: bool = False) -> str:
    """With a minus sign that is one."""
    text = f"{value:+.{digits}f}" if signed else f"{value:.{digits}f}"
    # Minus nothing is nothing.
    return text.lstrip("+-") if float(text) == 0 else text.replace("-", "−")


def shown(value: Estimate | None, digits: int, *, signed: bool = False, errors: bool = True, factor: float = 1.0) -> str:
    """Mean ± standard error."""
    if value is None:
        return NOTHING
    text = number(factor * value.mean, digits, signed=signed)
    return f"{text} ± {factor * value.error:.{digits}f}" if errors and not math.isnan(value.error) else text


def listed(names: Iterable[str]) -> str:
    """a, b and c."""
    found = list(names)
    return " and ".join([", ".join(found[:-1]), found[-1]]) if len(found) > 1 else "".join(found) or "none"


def minus(text: str) -> str:
    """With a minus sign that is one."""
    return text.replace("-", "−")


def starred(text: str) -> str:
    """Safe from being read as emphasis."""
    return text.replace("*", "\\*")


def ordinal(place: int) -> str:
    """First, second, third, fourth, 5th …"""
    words = ("first", "second", "third", "fourth")
    return words[place - 1] if place <= len(words) else f"{place}th"


def standing(
    found: Comparison,
    table: str,
    metric: str,
    names: Sequence[str],
    *,
    ours: str,
    heading: str,
    write: Callable[[Estimate], str],
    write_gap: Callable[[Estimate], str],
) -> str:
    """Who is first of the names, which come the best first, and by how much; plainly so where it is not us."""
    if len(names) < 2:
        return f"Too few methods to compare in {heading}."

    def value(method: str) -> str:
        score = found.score(table, method, metric)
        assert score is not None
        return write(score)

    best = value(names[0])
    if ours not in names:
        return f"First in {heading} is {names[0]}, {best}; {ours} is not among the compared here."
    other = names[1] if names[0] == ours else names[0]
    gap = found.difference(table, other, ours, metric)
    assert gap is not None
    if gap.mean == 0:
        return f"{ours} and {other} are first in {heading}, {best}."
    size = write_gap(replace(gap, mean=abs(gap.mean)))
    doubt = "" if math.isnan(gap.error) or gap.clear() else ", within two standard errors"
    if names[0] == ours:
        return f"{ours} is first in {heading}, {best}, ahead of {other} by {size}{doubt}."
    place = f"{ordinal(names.index(ours) + 1)} of {len(names)}"
    return f"{ours} is **not first** in {heading}: {other} is, {best}; {ours} is {place}, {value(ours)}, behind by {size}{doubt}."
