"""Measure and draw the figures.

    python -m benchmarks.figures [--only NAME ...] [--redraw] [--redraw-nuts]

Without options everything is measured again but the draws from the network's posterior, which come from their record, and drawn;
about eight minutes on one core. With --redraw nothing is measured: pictures are drawn from the records.
"""

from __future__ import annotations

import argparse
import time
from types import ModuleType

import torch

from benchmarks.figures import (
    calibration,
    comparison,
    misspecification,
    nuts,
    one_dimension,
    shrinkage,
    spectrum,
    two_dimensions,
)

FIGURES: dict[str, ModuleType] = {
    module.NAME: module
    for module in (one_dimension, comparison, two_dimensions, spectrum, misspecification, calibration, shrinkage)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", nargs="+", choices=list(FIGURES), default=list(FIGURES), metavar="NAME", help=", ".join(FIGURES)
    )
    parser.add_argument("--redraw", action="store_true", help="draw from the records, measure nothing")
    parser.add_argument("--redraw-nuts", action="store_true", help='draw weights by NUTS again; needs pip install "gwi[figures]"')
    options = parser.parse_args()
    torch.set_num_threads(1)  # Matrices this small are faster without.
    if options.redraw_nuts:
        nuts.redraw()
    for name in options.only:
        start = time.perf_counter()
        if not options.redraw:
            FIGURES[name].compute()
        FIGURES[name].draw()
        print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
