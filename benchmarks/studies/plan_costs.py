"""Seconds of each part of a default fit against the estimate from which `max_time` chooses a plan.

    python -m benchmarks.studies.plan_costs [--rows 500 1500 4000 12000 40000]

writes results/plan_costs.csv: CPU seconds on one core, so that other work on the machine matters little.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from benchmarks.tables.common.records import write
from gwi import GWIRegressor
from gwi.fitting.plan import estimated_seconds, planned, regression_members


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[200, 500, 1500, 4000, 12_000, 40_000])
    torch.set_num_threads(1)
    write("plan_costs", measure(parser.parse_args().rows))


def measure(sizes: list[int]) -> Iterator[dict[str, Any]]:
    """One record a table and a plan."""
    for num_rows in sizes:
        for num_features in (4, 16):
            rng = np.random.default_rng(0)
            x = rng.standard_normal((num_rows, num_features))
            y = np.sin(x[:, 0]) + x[:, 1] * x[:, 2] + 0.3 * rng.standard_normal(num_rows) * (1 + 0.5 * np.abs(x[:, 3]))
            for max_time in (None, 10.0):
                members = regression_members(num_rows, num_features)
                means, _ = planned(members, num_rows, num_features, max_time)
                start = time.process_time()
                GWIRegressor(max_time=max_time, random_state=0).fit(x, y)
                yield {
                    "num_rows": num_rows,
                    "num_features": num_features,
                    "max_time": "none" if max_time is None else f"{max_time:g}",
                    "num_means": len(means),
                    "cpu_seconds": time.process_time() - start,
                    "estimated_seconds": estimated_seconds(means, num_rows, num_features),
                }


if __name__ == "__main__":
    main()
