"""What both pages say of their records: how many there are, by which versions they were made, why fits failed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Set

from benchmarks.tables.common.statistics import Row
from benchmarks.tables.common.store import Identity

# Of a reason why a fit failed.
MAX_CHARACTERS = 200


def how_much(planned: Set[Identity], finished: Set[Identity], failed: Set[Identity]) -> str:
    """Records there and planned."""
    tail = f", failed for good: {len(failed)} ([which](#failures))" if failed else ""
    start = "**This is a part of the run**" if planned - finished - failed else "The run is complete"
    return f"{start}: of {len(planned)} planned records {len(planned & finished)} are there{tail}."


def versions(rows: Iterable[Row]) -> str:
    """Of all libraries that took part."""
    known: dict[str, set[str]] = {}
    for row in rows:
        for name, version in json.loads(row["versions"] or "{}").items():
            known.setdefault(name, set()).add(version)
    return "Versions: " + ", ".join(f"{name} {' and '.join(sorted(v))}" for name, v in known.items()) + "." if known else ""


def reason(row: Row) -> str:
    """Why a fit failed, for a cell of a table."""
    text = " ".join(row["failure"].split()).replace("|", "\\|")
    return text if len(text) <= MAX_CHARACTERS else text[:MAX_CHARACTERS] + " …"
