"""How often a Cholesky factorisation of a hostile kernel matrix fails: ours, in float64 and float32, and GPyTorch's.

    python -m benchmarks.studies.hostile

writes results/hostile.csv, one line a case and dtype. `outcome` and `jitter` are of `gwi.core.linalg.cholesky` on the matrix of
`gwi.core.measures.kernel_matrix`; `gpytorch_outcome` is of GPyTorch's `psd_safe_cholesky`, with its defaults, on the matrix that
GPyTorch itself evaluates.
"""

from __future__ import annotations

import csv
import warnings
from collections import Counter

import torch
from linear_operator.utils.cholesky import psd_safe_cholesky
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor

from benchmarks.studies.hostile_cases import HostileCase, hostile_cases
from benchmarks.tables.common.records import RESULTS
from gwi.core.linalg import cholesky
from gwi.core.measures import kernel_matrix
from gwi.exceptions import NotPositiveDefiniteError

DTYPES = {"float64": torch.float64, "float32": torch.float32}


def ours(matrix: Tensor) -> tuple[str, float | None]:
    """The outcome of our factorisation and the relative jitter that it needed."""
    try:
        result = cholesky(matrix)
    except NotPositiveDefiniteError:
        return "NotPositiveDefiniteError", None
    return ("ok" if torch.isfinite(result.factor).all() else "not finite"), result.jitter.item()


def gpytorchs(matrix: Tensor) -> str:
    """The outcome of GPyTorch's factorisation."""
    try:
        factor = psd_safe_cholesky(matrix)
    except (NotPSDError, NanError) as error:
        return type(error).__name__
    return "ok" if torch.isfinite(factor).all() else "not finite"


@torch.no_grad()
def record(case: HostileCase, dtype: str) -> dict[str, object]:
    """One line of the table."""
    x, kernel = case.points(DTYPES[dtype]), case.build_kernel(DTYPES[dtype])
    outcome, jitter = ours(kernel_matrix(kernel, x))
    return {
        "kernel": case.kernel,
        "points": case.num_points,
        "layout": case.layout,
        "input_scale": case.input_scale,
        "lengthscale": case.lengthscale,
        "outputscale": case.outputscale,
        "dtype": dtype,
        "outcome": outcome,
        "jitter": "" if jitter is None else f"{jitter:.0e}" if jitter else "0",
        "gpytorch_outcome": gpytorchs(kernel(x).to_dense()),
    }


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    lines = [record(case, dtype) for dtype in DTYPES for case in hostile_cases()]
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / "hostile.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    for dtype in DTYPES:
        chosen = [line for line in lines if line["dtype"] == dtype]
        print(f"{dtype}: {len(chosen)} matrices")
        for column in ("outcome", "jitter", "gpytorch_outcome"):
            counts = Counter(str(line[column]) for line in chosen)
            print(f"  {column}: " + ", ".join(f"{name or 'none'} {count}" for name, count in counts.most_common()))


if __name__ == "__main__":
    main()
