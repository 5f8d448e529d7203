"""Write the tables of the documentation from the committed records.

    python -m benchmarks.render [--check]

A page marks where a table goes with ``<!-- table: name -->`` and ``<!-- end -->``; what stands between is replaced.
With --check nothing is written and the exit code says whether a page is out of date.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.render.pages import pages, rendered
from benchmarks.render.speed_tables import draw
from benchmarks.tables.common.records import ROOT


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if a page is out of date")
    check = parser.parse_args().check
    if not check:
        draw().savefig(ROOT / "docs" / "results" / "speed.png", dpi=110)
    stale = [page for page in pages() if rendered(page.read_text()) != page.read_text()]
    for page in stale:
        print(f"{'out of date' if check else 'written'}: {page.relative_to(ROOT)}")
        if not check:
            page.write_text(rendered(page.read_text()))
    sys.exit(1 if check and stale else 0)


if __name__ == "__main__":
    main()
