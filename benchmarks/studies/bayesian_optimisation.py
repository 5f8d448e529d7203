"""Bayesian optimisation with a fitted GWIRegressor against BoTorch's own GP: the same start, acquisition and budget.

    python -m benchmarks.studies.bayesian_optimisation [--num-seeds 20] [--methods gwi ...]

writes results/bayesian_optimisation.csv: simple regret, the optimum minus the best value measured, at several budgets.
A run that is recorded already is not done again; delete the file to start over.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from botorch.acquisition.logei import qLogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.model import Model
from botorch.models.transforms import Normalize
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from botorch.optim.optimize import optimize_acqf
from botorch.sampling.normal import SobolQMCNormalSampler
from botorch.test_functions.base import BaseTestProblem
from botorch.test_functions.synthetic import Branin, Hartmann
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from benchmarks.tables.common.records import RESULTS, write
from gwi import GWIRegressor
from gwi.botorch import BoTorchModel
from gwi.parts import Gaussian

NAME = "bayesian_optimisation"
NUM_RESTARTS, NUM_RAW_SAMPLES, NUM_DRAWS = 8, 256, 128


@dataclass(frozen=True)
class Problem:
    """A function to maximise.

    Attributes:
        function: BoTorch's, negated.
        budgets: numbers of evaluations at which regret is recorded; the first is the initial design.
    """

    function: BaseTestProblem
    budgets: tuple[int, ...]


PROBLEMS = {
    "Branin": Problem(Branin(negate=True, dtype=torch.float64), (6, 11, 16, 21, 26)),
    "Hartmann-6": Problem(Hartmann(dim=6, negate=True, dtype=torch.float64), (10, 20, 30, 40, 50)),
}


def gwi_model(x: Tensor, y: Tensor, bounds: Tensor, seed: int, **arguments: Any) -> Model:
    """Ours; it standardises rows and targets itself."""
    return BoTorchModel(GWIRegressor(mean="svgp-all", random_state=seed, **arguments, likelihood=Gaussian("constant")).fit(x, y))


def botorch_model(x: Tensor, y: Tensor, bounds: Tensor, seed: int, *, matern: bool = False) -> Model:
    """BoTorch's exact GP with its defaults; it standardises outcomes by itself, and inputs are scaled to the unit cube."""
    kernel = get_covar_module_with_dim_scaled_prior(x.shape[1], use_rbf_kernel=False) if matern else None
    model = SingleTaskGP(x, y[:, None], covar_module=kernel, input_transform=Normalize(x.shape[1], bounds=bounds))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


Method = Callable[[Tensor, Tensor, Tensor, int], Model]
# Both with their default kernel, the squared exponential, and with a rougher one.
METHODS: dict[str, Method] = {
    "gwi": gwi_model,
    "gwi, Titsias": partial(gwi_model, covariance="titsias"),
    "gwi matern52": partial(gwi_model, kernel="matern52"),
    "gwi matern52, Titsias": partial(gwi_model, kernel="matern52", covariance="titsias"),
    "SingleTaskGP": botorch_model,
    "SingleTaskGP matern52": partial(botorch_model, matern=True),
}


def run(problem: Problem, method: Method, seed: int) -> Iterator[tuple[int, float, float]]:
    """Evaluations, regret and seconds spent on fitting and proposing, at each budget."""
    f = problem.function
    bounds = torch.as_tensor(f.bounds)
    sobol = torch.quasirandom.SobolEngine(f.dim, scramble=True, seed=seed)
    x = bounds[0] + (bounds[1] - bounds[0]) * sobol.draw(problem.budgets[0], dtype=torch.float64)
    y = f(x)
    seconds = 0.0
    torch.manual_seed(seed)
    while True:
        if len(x) in problem.budgets:
            yield len(x), float(f.optimal_value - y.max()), seconds
        if len(x) >= problem.budgets[-1]:
            return
        start = time.perf_counter()
        model = method(x, y, bounds, seed)
        sampler = SobolQMCNormalSampler(torch.Size([NUM_DRAWS]), seed=len(x))
        acquisition = qLogExpectedImprovement(model, best_f=y.max(), sampler=sampler)
        # The optimiser's starting points come from the global generator: all methods choose among the same.
        torch.manual_seed(1000 * seed + len(x))
        new, _ = optimize_acqf(acquisition, bounds, q=1, num_restarts=NUM_RESTARTS, raw_samples=NUM_RAW_SAMPLES)
        seconds += time.perf_counter() - start
        x, y = torch.cat([x, new]), torch.cat([y, f(new)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-seeds", type=int, default=20)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    # L-BFGS reports a line search that ended early, here at flat acquisition values, and starts again by itself.
    warnings.filterwarnings("ignore", message="Optimization failed", category=RuntimeWarning)
    path = RESULTS / f"{NAME}.csv"
    records: list[dict[str, Any]] = []
    if path.exists():
        with path.open(newline="") as file:
            records = list(csv.DictReader(file))
    done = {(r["function"], r["method"], int(r["seed"])) for r in records}
    for seed in range(arguments.num_seeds):
        for name, problem in PROBLEMS.items():
            for method in arguments.methods:
                if (name, method, seed) in done:
                    continue
                found = [
                    {
                        "function": name,
                        "method": method,
                        "seed": seed,
                        "evaluations": evaluations,
                        "regret": regret,
                        "seconds": round(seconds, 1),
                    }
                    for evaluations, regret, seconds in run(problem, METHODS[method], seed)
                ]
                records += found
                write(NAME, records, echo=False)
                shown = ", ".join(f"{r['regret']:.2g} at {r['evaluations']}" for r in found)
                print(f"{name}, {method}, seed {seed}: regret {shown}; {found[-1]['seconds']} s", flush=True)


if __name__ == "__main__":
    main()
