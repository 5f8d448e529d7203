"""Write the tables of the documentation from the committed records.

    python -m benchmarks.render [--check]

A page marks where a table goes with ``<!-- table: name -->`` and ``<!-- end -->``; what stands between is replaced.
With --check nothing is written and the exit code says whether a page is out of date.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks import cost_tables, record_tables
from benchmarks.markdown import ROOT, read


def figure(name: str) -> Callable[[], str]:
    """What a figure's own module says in numbers of its records."""
    return lambda: importlib.import_module(f"benchmarks.figures.{name}").words()


def uci() -> str:
    """Mean NLL of each method on each UCI table, from the fits that `benchmarks.table1_uci` exported."""
    # The module brings every method along.
    from benchmarks.uci.page import short

    if not (ROOT / "benchmarks" / "results" / "uci.csv").is_file():
        return short([])
    return short({**record, "split": int(record["split"]), "nll": float(record["nll"])} for record in read("uci"))


FIGURES = ("one_dimension", "comparison", "two_dimensions", "spectrum", "misspecification", "calibration", "shrinkage")

TABLES: dict[str, Callable[[], str]] = {
    f.__name__: f
    for f in (
        record_tables.coverage,
        record_tables.covariance,
        record_tables.covariance_summary,
        record_tables.robust_max,
        record_tables.hostile,
        record_tables.convergence,
        record_tables.hyper_priors,
        record_tables.estimator_coverage,
        record_tables.small_tables,
        record_tables.ablation,
        record_tables.ablation_within,
        cost_tables.speed,
        cost_tables.stream_speed,
        cost_tables.processes,
        cost_tables.scaling,
        cost_tables.deaths,
        record_tables.bayesian_optimisation,
        record_tables.classification,
        record_tables.feature_choice,
        record_tables.images,
        record_tables.optimism,
        uci,
        record_tables.diagnostics_faults,
        record_tables.diagnostics_uci,
    )
} | {f"figure_{name}": figure(name) for name in FIGURES}


def rendered(text: str) -> str:
    """The page with every marked table renewed."""

    def replace(match: re.Match[str]) -> str:
        return f"<!-- table: {match[1]} -->\n{TABLES[match[1]]()}\n<!-- end -->"

    return re.sub(r"<!-- table: (\w+) -->\n.*?<!-- end -->", replace, text, flags=re.DOTALL)


def pages() -> list[Path]:
    return [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if a page is out of date")
    check = parser.parse_args().check
    stale = [page for page in pages() if rendered(page.read_text()) != page.read_text()]
    for page in stale:
        print(f"{'out of date' if check else 'written'}: {page.relative_to(ROOT)}")
        if not check:
            page.write_text(rendered(page.read_text()))
    sys.exit(1 if check and stale else 0)


if __name__ == "__main__":
    main()
