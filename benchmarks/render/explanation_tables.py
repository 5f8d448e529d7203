"""Tables of how near and how fast explanations are."""

from __future__ import annotations

from statistics import mean

from benchmarks.render.markdown import table
from benchmarks.tables.common.records import read

MEANS = {"svgp": "Gaussian process alone", "auto": "the default stack"}


def explanation_background() -> str:
    """Mean over tables of the error with so many background rows."""
    records = read("explanation_background")
    counts = sorted({int(record["rows"]) for record in records})
    rows = []
    for name, said in MEANS.items():
        for rule in dict.fromkeys(record["rule"] for record in records):
            errors = [
                mean(float(r["error"]) for r in records if (r["mean"], r["rule"], int(r["rows"])) == (name, rule, count))
                for count in counts
            ]
            rows.append([said, rule, *(f"{100 * error:.0f} %" for error in errors)])
    return table(["mean", "background", *(f"{count} rows" for count in counts)], rows)


def explanation_cost() -> str:
    """Milliseconds of a row."""
    rows = [
        [
            f"{int(record['columns']):,}",
            MEANS[record["mean"]],
            f"{float(record['evaluations']):,.0f}",
            f"{float(record['milliseconds']):,.0f} ms",
            "exact" if float(record["error"]) == 0 else f"{100 * float(record['error']):.0f} %",
        ]
        for record in read("explanation_cost")
    ]
    return table(["columns", "mean", "evaluations", "one row", "error of the largest part"], rows)
