"""The tables of the server: what requests cost, and what it bore."""

from __future__ import annotations

from benchmarks.render.markdown import table
from benchmarks.tables.common.records import read

# Quantities of the parts, and what a reader calls them.
BORNE = {
    ("load", "seconds"): "seconds of eight clients at a time",
    ("load", "requests"): "their requests, one in ten wrong on purpose",
    ("load", "megabytes_after_a_fifth"): "MB after a fifth of that time",
    ("load", "megabytes_at_the_end"): "MB at the end",
    ("hostile", "requests"): "malformed, huge, slow and hostile requests",
    ("hostile", "wrong"): "of them with a wrong status, or without a sentence",
    ("hostile", "tracebacks_in_the_log"): "tracebacks in the log",
    ("token", "requests_without_it"): "requests off loopback without the right token",
    ("token", "refused_401"): "of them refused with 401",
    ("kills", "kills"): "SIGKILLs under load",
    ("kills", "answered_after"): "of them after which a new start answered",
    ("kills", "ends"): "SIGTERMs with 20,000 rows under way",
    ("kills", "requests_answered"): "of them with the request answered",
}
# What people call the formats.
WAYS = {"application/json": "JSON", "text/csv": "CSV", "application/vnd.apache.arrow.stream": "Arrow"}


def serving() -> str:
    """Milliseconds of requests beside those of a call."""
    found: dict[str, dict[str, float]] = {}
    for record in read("serving"):
        if record["part"] == "speed":
            found.setdefault(record["case"], {})[record["quantity"]] = float(record["value"])
    if not found:
        return "Not measured yet."
    rows = []
    for case, values in found.items():
        _, count, way = case.split(", ")
        shown = [f"{values[name]:.1f}" for name in ("processor_ms", "p50_ms", "p99_ms")]
        rows.append(
            [
                "1 row" if count == "1 rows" else f"{int(count.split()[0]):,} rows",
                WAYS.get(way, way),
                *shown,
                f"{values['rows_a_second']:,.0f}",
            ]
        )
    return table(["a request", "way", "processor, ms", "p50, ms", "p99, ms", "rows per second"], rows)


def serving_borne() -> str:
    """What else was done to it."""
    known = {(record["part"], record["quantity"]): float(record["value"]) for record in read("serving")}
    rows = [[what, f"{known[key]:,.0f}"] for key, what in BORNE.items() if key in known]
    return table(["", "count"], rows) if rows else "Not measured yet."
