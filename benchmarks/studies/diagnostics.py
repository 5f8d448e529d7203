"""The numbers behind the diagnosis: seeded faults, one or more of each kind, and the default estimator on UCI tables.

    python -m benchmarks.studies.diagnostics [--sets boston concrete …]

writes results/diagnostics.csv; with --sets only the records of these tables are made again. Thresholds were chosen on the splits
within the training rows of standard split 0 of the five small tables; the split itself, of all nine, is the check.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import PeriodicKernel, RBFKernel, ScaleKernel
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor

from benchmarks.tables.common import records
from benchmarks.tables.common.splits import gap_splits, standard_splits
from benchmarks.tables.uci.data import UCIName, load_uci
from gwi import GWIRegressor, diagnose
from gwi._typing import Array
from gwi.core.kernels import default_kernel
from gwi.evaluation.checks import Severity
from gwi.exceptions import GWIWarning
from gwi.parts import Covariance, Gaussian

NAME = "diagnostics"
FAULT = "fault"
COLUMNS = ("group", "case", "split", "seeded", "kind", "value", "severity")
SMALL_SETS: tuple[UCIName, ...] = ("boston", "concrete", "energy", "wine_red", "yacht")
SETS: tuple[UCIName, ...] = (*SMALL_SETS, "kin8nm", "naval", "power", "protein")

Case = tuple[GWIRegressor, Array, Array]


@dataclass(frozen=True)
class Fault:
    """Something done wrong on purpose.

    Attributes:
        name: what.
        kind: of the finding that must come; empty where none may.
        severity: it must have.
        build: a fitted estimator, and rows and targets that it has not seen.
    """

    name: str
    kind: str
    severity: Severity | None
    build: Callable[[], Case]


def wave(num_rows: int, seed: int, frequency: float = 2.0, low: float = -3.0) -> tuple[Array, Array]:
    """A sine with Gaussian noise at rows from `low` to 3."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(low, 3, (num_rows, 1))
    return x, 5 + 10 * (np.sin(frequency * x[:, 0]) + 0.2 * rng.standard_normal(num_rows))


def gp(**arguments: Any) -> GWIRegressor:
    """A GP mean with constant noise, which takes a fraction of a second."""
    return GWIRegressor("svgp", random_state=0, **({"likelihood": Gaussian("constant")} | arguments))


def fixed_kernel(lengthscale: float) -> Any:
    """With hyper-parameters that the fit leaves as they are."""
    return default_kernel(1, lengthscale=lengthscale).requires_grad_(False)


def on_wave(**arguments: Any) -> Case:
    return gp(**arguments).fit(*wave(150, 0)), *wave(200, 1)


def on_fast_wave(**arguments: Any) -> Case:
    return gp(**arguments).fit(*wave(400, 0, 6.0)), *wave(200, 1, 6.0)


def periodic(mean: Any) -> Case:
    """[ap:model_misspecification]: three periods to learn from, three to predict, ten periods later."""
    rng = np.random.default_rng(0)
    x = np.linspace(0, 6, 150)[:, None]
    y, y_later = (np.sin(np.pi * x[:, 0]) + 0.1 * rng.standard_normal(150) for _ in range(2))
    base = PeriodicKernel()
    base.lengthscale, base.period_length = torch.tensor(1.0), torch.tensor(2 / x.std())
    # The period is known: a fitted one is off by little, and after ten periods by ten times that.
    base.raw_period_length.requires_grad_(False)
    return GWIRegressor(mean, kernel=ScaleKernel(base), random_state=0).fit(x, y), x + 20, y_later


def plain_network() -> MLPRegressor:
    return MLPRegressor(
        hidden_layer_sizes=(32, 32), activation="tanh", solver="lbfgs", alpha=1e-3, max_iter=300, tol=0.01, random_state=0
    )


def half_a_mean() -> Case:
    """A mean that is right for x < 0 only, and was judged only there."""
    x, y = wave(150, 0)
    model = gp().set_params(mean=lambda rows: 5 + 10 * np.sin(2 * np.minimum(rows[:, 0], 0)))
    x_left, y_left = wave(100, 2)
    left = x_left[:, 0] < 0
    return model.fit(x, y, validation=(x_left[left], y_left[left])), *wave(200, 1)


def far_rows() -> Case:
    model, x, y = on_wave()
    return model, x + 15, y


def training_rows() -> Case:
    return gp().fit(*wave(150, 0)), *wave(150, 0)


def bounded(low: float, high: float) -> ScaleKernel:
    return ScaleKernel(RBFKernel(lengthscale_constraint=Interval(low, high)))


FAULTS = (
    Fault("none: a GP on a sine", "", None, on_wave),
    Fault("none: a periodic kernel with its own mean, ten periods away", "", None, lambda: periodic("svgp-all")),
    Fault(
        "a periodic kernel with a plain network, ten periods away",
        "mean-and-kernel-disagree",
        "severe",
        lambda: periodic(plain_network()),
    ),
    Fault("a mean that is wrong where it was not judged", "mean-and-kernel-disagree", "severe", half_a_mean),
    Fault(
        "8 inducing points at a short length-scale",
        "few-inducing-points",
        "severe",
        lambda: on_fast_wave(covariance=Covariance(num_inducing=8), kernel=fixed_kernel(0.1)),
    ),
    Fault(
        "30 inducing points at a short length-scale",
        "few-inducing-points",
        "note",
        lambda: on_fast_wave(covariance=Covariance(num_inducing=30), kernel=fixed_kernel(0.1)),
    ),
    Fault(
        "inducing points in one corner",
        "few-inducing-points",
        "severe",
        lambda: on_wave(covariance=Covariance(inducing_points=np.linspace(-3, -2, 10)[:, None]), kernel=fixed_kernel(0.4)),
    ),
    Fault("a length-scale of 1/1000", "length-scales-at-bounds", "severe", lambda: on_wave(kernel=fixed_kernel(1e-3))),
    Fault("a length-scale kept below 0.05", "length-scales-at-bounds", "warning", lambda: on_wave(kernel=bounded(0.01, 0.05))),
    Fault("a length-scale of 10,000", "length-scales-at-bounds", "warning", lambda: on_wave(kernel=fixed_kernel(1e4))),
    Fault("β = 1", "variance-collapsed", "severe", lambda: on_wave(covariance=Covariance(weight=1.0))),
    Fault("S = 0", "variance-collapsed", "severe", lambda: on_wave(covariance="zero")),
    Fault("α_T set to 0.05", "tempering-far-from-one", "severe", lambda: on_wave(tempering=0.05)),
    Fault("α_T set to 6", "miscalibrated", "severe", lambda: on_wave(tempering=6.0)),
    Fault("training rows taken for new ones", "duplicates", "severe", training_rows),
    Fault("rows nine standard deviations away", "far-from-training", "warning", far_rows),
)


def uci_cases(name: UCIName) -> Iterator[tuple[str, Callable[[], Case]]]:
    """Standard split 0; of a small table also two splits within its training rows: at random, and a gap in the first feature."""
    x, y = (values.numpy() for values in load_uci(name))
    split = standard_splits(len(x))[0]

    def case(train: Any, test: Any) -> Callable[[], Case]:
        return lambda: (GWIRegressor(random_state=0).fit(x[train], y[0, train]), x[test], y[0, test])

    outer = split.train.numpy()
    if name in SMALL_SETS:
        inner, gap = standard_splits(len(outer))[0], gap_splits(torch.from_numpy(x[outer]))[0]
        yield "within, at random", case(outer[inner.train.numpy()], outer[inner.test.numpy()])
        yield "within, a gap", case(outer[gap.train.numpy()], outer[gap.test.numpy()])
    yield "standard-0", case(outer, split.test.numpy())


def fault_records() -> Iterator[dict[str, Any]]:
    """Of what was done wrong on purpose."""
    return diagnosed((FAULT, fault.name, "", fault.kind, fault.build) for fault in FAULTS)


def uci_records(name: UCIName) -> Iterator[dict[str, Any]]:
    """Of the default estimator on a table."""
    return diagnosed(("uci", name, split, "", build) for split, build in uci_cases(name))


def diagnosed(cases: Iterable[tuple[str, str, str, str, Callable[[], Case]]]) -> Iterator[dict[str, Any]]:
    """One for each kind of finding in each case."""
    for group, case, split, seeded, build in cases:
        diagnosis = diagnose(*build())
        severities = {finding.kind: finding.severity for finding in diagnosis.findings}
        for kind, value in diagnosis.measures:
            severity = severities.get(kind, "")
            yield dict(zip(COLUMNS, (group, case, split, seeded, kind, f"{value:.4g}", severity), strict=True))
        print(
            f"{case} {split}: {', '.join(f'{kind} {severity}' for kind, severity in severities.items()) or 'nothing'}", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=SETS, help="all tables and all faults unless given")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", GWIWarning)
    warnings.simplefilter("ignore", ConvergenceWarning)
    found: dict[str, list[Any]] = {}
    for row in records.read(NAME):
        found.setdefault(FAULT if row["group"] == FAULT else row["case"], []).append(row)
    if arguments.sets is None:
        found[FAULT] = list(fault_records())
    for name in arguments.sets or SETS:
        found[name] = list(uci_records(name))
        # Table by table: the large ones take minutes.
        records.write(NAME, (row for group in (FAULT, *SETS) for row in found.get(group, [])), echo=False)


if __name__ == "__main__":
    main()
