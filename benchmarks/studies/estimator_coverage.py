"""Coverage of the estimator's intervals on data from a GP prior, hyper-parameters fitted, one new point a set.

    python -m benchmarks.studies.estimator_coverage [--num-sets 300]

writes results/estimator_coverage.csv, with the band that 95 % of binomial draws at the nominal coverage would fall into.
"""

from __future__ import annotations

import argparse
import csv
import math
from typing import Any

import numpy as np
import torch
from scipy.stats import binom, norm

from benchmarks.tables.common.records import RESULTS
from gwi import GWIRegressor
from gwi.core.kernels import default_kernel
from gwi.core.linalg import cholesky
from gwi.core.measures import kernel_matrix

NUM_ROWS, NUM_FEATURES, LENGTHSCALE, NOISE_VARIANCE = 100, 2, 1.0, 0.1
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "titsias": {"covariance": "titsias"},
    "beta_1": {"divergence_weight": 1.0},
}


def draw(generator: torch.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, f and y of one set; the last row is the new one."""
    x = torch.randn(NUM_ROWS + 1, NUM_FEATURES, dtype=torch.float64, generator=generator)
    with torch.no_grad():
        root = cholesky(kernel_matrix(default_kernel(NUM_FEATURES, lengthscale=LENGTHSCALE), x), jitter=1e-12).factor
    f = root @ torch.randn(len(x), dtype=torch.float64, generator=generator)
    y = f + math.sqrt(NOISE_VARIANCE) * torch.randn(len(x), dtype=torch.float64, generator=generator)
    return x.numpy(), f.numpy(), y.numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-sets", type=int, default=300)
    num_sets = parser.parse_args().num_sets
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    scores: dict[str, list[tuple[float, float]]] = {name: [] for name in CONFIGURATIONS}
    for _ in range(num_sets):
        x, f, y = draw(generator)
        for name, arguments in CONFIGURATIONS.items():
            model = GWIRegressor(random_state=0, **arguments).fit(x[:-1], y[:-1])
            mean, std = model.predict(x[-1:], return_std=True)
            epistemic = math.sqrt(model.posterior(x[-1:]).variance.item())
            scores[name].append((abs(f[-1] - mean[0]) / epistemic, abs(y[-1] - mean[0]) / std[0]))
    with (RESULTS / "estimator_coverage.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["configuration", "of", "nominal", "coverage", "band_low", "band_high", "num_sets"])
        for name, pairs in scores.items():
            for column, of in enumerate(("f", "y")):
                for nominal in (0.90, 0.95):
                    inside = np.mean([pair[column] <= norm.ppf((1 + nominal) / 2) for pair in pairs])
                    low, high = binom.interval(0.95, num_sets, nominal)
                    row = [name, of, nominal, f"{inside:.4f}", f"{low / num_sets:.4f}", f"{high / num_sets:.4f}", num_sets]
                    writer.writerow(row)
                    print(*row)


if __name__ == "__main__":
    main()
