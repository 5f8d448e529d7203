"""Processor seconds of each plan that `max_time` chooses from, beside those that it expects.

    python -m benchmarks.studies.plan_costs [--rows 100 300 1000 2000 4000 16000 64000]

writes results/plan_costs.csv. The machine's speed is measured once and kept beside: seconds times it are those of the machine
that the table in `gwi.fitting.effort` was measured on.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import torch

from benchmarks.tables.common.records import write
from gwi import GWIRegressor, MaxTime
from gwi.fitting import pipeline
from gwi.fitting.effort import PLANS, expected_seconds, machine_speed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100, 300, 1000, 2000, 4000, 16_000, 64_000])
    torch.set_num_threads(1)
    write("plan_costs", measure(parser.parse_args().rows))


def measure(sizes: list[int]) -> Iterator[dict[str, Any]]:
    """One record a table and a plan."""
    speed = machine_speed()
    for num_rows in sizes:
        for num_features in (5, 20):
            rng = np.random.default_rng(0)
            x = rng.standard_normal((num_rows, num_features))
            y = np.sin(x[:, 0]) + x[:, 1] * x[:, 2] + 0.3 * rng.standard_normal(num_rows) * (1 + 0.5 * np.abs(x[:, 3]))
            for plan in PLANS:
                with mock.patch.object(pipeline, "effort_for", return_value=(plan, 0.0)):
                    start = time.process_time()
                    GWIRegressor(max_time=MaxTime(60, speed), random_state=0).fit(x, y)
                yield {
                    "num_rows": num_rows,
                    "num_features": num_features,
                    "plan": plan.name,
                    "cpu_seconds": time.process_time() - start,
                    "expected_seconds": expected_seconds(plan, num_rows, num_features) / speed,
                    "machine_speed": speed,
                }


if __name__ == "__main__":
    main()
