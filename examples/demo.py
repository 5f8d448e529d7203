"""GWI-net on the paper's one-dimensional toy data: a network for the mean, a sparse GP kernel for the uncertainty.

python examples/demo.py [--output demo.png]

`gwi demo` does the same; the five steps are in `gwi.cli.demo`.
"""

# %%
from __future__ import annotations

import argparse
from pathlib import Path

from gwi.cli.demo import run

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("demo.png"), help="where to write the picture")
    run(parser.parse_args().output)
