"""The table of models as ONNX graphs."""

from __future__ import annotations

from benchmarks.render.markdown import table
from benchmarks.tables.common.records import read

KINDS = {
    "svgp": '{name}, `mean="svgp"`',
    "default": "{name}, the default stack",
    "likelihood": "`{name}`",
    "class": "classes of {name}",
    "network": "a network of {name}, as it is",
}


def onnx_export() -> str:
    found = read("onnx_export")
    if not found:
        return "Not measured yet."
    rows = [
        [
            KINDS[r["kind"]].format(name=r["name"]),
            r["inducing"],
            *(_difference(r[name]) for name in ("mean", "std", "quantiles", "probabilities", "outlier_score")),
            f"{float(r['kilobytes']):,.0f}",
            f"{float(r['milliseconds_a_row']):.2f}",
            f"{float(r['predict_milliseconds_a_row']):.1f}",
            f"{float(r['milliseconds_1000_rows']):.0f}",
        ]
        for r in found
    ]
    differences = ["mean", "std", "quantiles", "probabilities", "outlier score"]
    header = ["model", "points", *differences, "kB", "ms a row", "`predict_columns`, ms a row", "ms for 1,000 rows"]
    return table(header, rows)


def _difference(value: str) -> str:
    return "–" if value == "nan" else f"{float(value):.0e}"
