"""Errors of the two quadratures of robust-max, the composite rule and the paper's Gauss–Hermite, as variances differ.

    python -m benchmarks.studies.robust_max

writes results/robust_max.csv. With two classes S has a closed form, Φ((m₀ − m₁)/√(r₀ + r₁)); with ten, S(x, j) must sum to one.
"""

from __future__ import annotations

import csv
import math
from dataclasses import asdict, dataclass, fields

import torch
from torch import Tensor

from benchmarks.tables.common.records import RESULTS
from gwi.core.likelihoods.robust_max import RobustMaxLikelihood, num_composite_nodes

RESULT = RESULTS / "robust_max.csv"
RATIOS = (1.0, 4.0, 10.0, 100.0, 1e4, 1e6, 1e12)
HERMITE_NODES = (10, 20, 50, 100)


@dataclass(frozen=True)
class Row:
    """One line of the record.

    Attributes:
        rule: quadrature.
        num_classes: J.
        variance_ratio: largest over smallest variance among the classes.
        nodes: of one integral; the composite rule's are shared by all classes, Gauss–Hermite's are each class's own.
        max_error: J = 2: largest |S − closed form| over mean gaps; J = 10: largest |Σ_j S − 1| over random means.
    """

    rule: str
    num_classes: int
    variance_ratio: float
    nodes: int
    max_error: float


def two_classes(ratio: float) -> tuple[Tensor, Tensor, Tensor]:
    """Means, variances and exact S for gaps within six standard deviations of F₀ − F₁."""
    total_std = (1 + ratio) ** 0.5
    z = torch.linspace(-6, 6, 481, dtype=torch.float64)
    mean = torch.stack([z * total_std, torch.zeros_like(z)])
    variance = torch.tensor([[ratio], [1.0]], dtype=torch.float64).expand_as(mean)
    exact = torch.stack([z, -z]).mul(-(0.5**0.5)).erfc() / 2
    return mean, variance, exact


def ten_classes(ratio: float, num_rows: int = 100) -> tuple[Tensor, Tensor]:
    """Variances spaced evenly in logarithm from 1 to the ratio, means drawn on the scale of the median one, or all equal."""
    variance = torch.logspace(0, math.log10(ratio), 10, dtype=torch.float64)[:, None]
    draws = torch.randn(10, num_rows, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    draws[:, 0] = 0  # The hardest row: coincident breakpoints leave the fewest nodes.
    return ratio**0.25 * draws, variance.expand(10, num_rows)


def measure() -> list[Row]:
    rows = []
    for num_classes in (2, 10):
        likelihoods = {num_composite_nodes(num_classes): RobustMaxLikelihood(num_classes)}
        for nodes in HERMITE_NODES:
            likelihoods[nodes] = RobustMaxLikelihood(num_classes, quadrature="gauss-hermite", num_nodes=nodes)
        for nodes, likelihood in likelihoods.items():
            for ratio in RATIOS:
                if num_classes == 2:
                    mean, variance, exact = two_classes(ratio)
                    errors = likelihood.argmax_probabilities(mean, variance) - exact
                else:
                    errors = likelihood.argmax_probabilities(*ten_classes(ratio)).sum(0) - 1
                rows.append(Row(likelihood.quadrature, num_classes, ratio, nodes, errors.abs().max().item()))
    return rows


def write(rows: list[Row]) -> None:
    RESULT.parent.mkdir(exist_ok=True)
    with RESULT.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)], lineterminator="\n")
        writer.writeheader()
        # Errors near the rounding error differ in their last digits between machines.
        for row in rows:
            writer.writerow(asdict(row) | {"variance_ratio": f"{row.variance_ratio:g}", "max_error": f"{row.max_error:.1e}"})


def show(rows: list[Row]) -> None:
    print("J   rule           nodes " + "".join(f"{ratio:>9g}" for ratio in RATIOS))
    for start in range(0, len(rows), len(RATIOS)):
        line = rows[start : start + len(RATIOS)]
        head = f"{line[0].num_classes:<3} {line[0].rule:<14} {line[0].nodes:>5} "
        print(head + "".join(f"{row.max_error:>9.0e}" for row in line))


def main() -> None:
    torch.set_num_threads(1)
    rows = measure()
    write(rows)
    show(rows)


if __name__ == "__main__":
    main()
