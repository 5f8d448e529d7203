"""Minimise a function that is dear to evaluate: GWIRegressor says what it believes, BoTorch where to look next.

python examples/bayesian_optimisation.py [--output bayesian_optimisation.png]
"""

# %%
from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import matplotlib as mpl
import torch
from botorch.acquisition.logei import qLogExpectedImprovement
from botorch.optim.optimize import optimize_acqf
from botorch.test_functions.synthetic import Branin
from rich.console import Console
from torch import Tensor

from gwi import GWIRegressor
from gwi.botorch import BoTorchModel

mpl.use("Agg")
import matplotlib.pyplot as plt

from gwi.parts import Gaussian

NUM_INITIAL, NUM_EVALUATIONS, SEED = 6, 16, 0
branin = Branin(dtype=torch.float64)
BOUNDS = torch.as_tensor(branin.bounds)


# %% What we believe after some evaluations. BoTorch maximises, hence −y.
def believe(x: Tensor, y: Tensor) -> GWIRegressor:
    """A GP mean over all rows, with the exact posterior around it."""
    return GWIRegressor(mean="svgp-all", covariance="titsias", random_state=SEED, likelihood=Gaussian("constant")).fit(x, -y)


# %% Where to look next: the point that promises most improvement over the best so far.
def propose(regressor: GWIRegressor, y: Tensor) -> Tensor:
    """One new point inside the bounds."""
    acquisition = qLogExpectedImprovement(BoTorchModel(regressor), best_f=-y.min())
    point, _ = optimize_acqf(acquisition, BOUNDS, q=1, num_restarts=8, raw_samples=256)
    return point


# %%
def draw(regressor: GWIRegressor, x: Tensor, path: Path) -> None:
    """What is believed of the function, how sure it is, and where it was evaluated."""
    axis = [torch.linspace(float(low), float(high), 80, dtype=torch.float64) for low, high in BOUNDS.mT]
    grid = torch.cartesian_prod(*axis)
    std = regressor.decompose(grid).epistemic.sqrt()
    panels = {"Branin": branin(grid), "believed": -regressor.predict(grid), "standard deviation": std}
    figure, places = plt.subplots(1, 3, figsize=(11, 3.6), sharey=True, layout="constrained")
    for place, (title, values) in zip(places, panels.items(), strict=True):
        shades = place.contourf(*axis, values.reshape(80, 80).mT, levels=20, cmap="viridis")
        place.scatter(*x[:NUM_INITIAL].mT, marker="s", s=22, color="white", edgecolor="black", label="initial design")
        place.scatter(*x[NUM_INITIAL:].mT, s=22, color="#d62728", edgecolor="black", label="proposed")
        place.set(title=title, xlabel="x₁")
        figure.colorbar(shades, ax=place)
    places[0].set_ylabel("x₂")
    places[0].legend(fontsize=8)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    """Evaluate, believe, propose, until the budget is spent."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="where to write a picture of what was learned; none unless given")
    output = parser.parse_args().output
    console = Console(highlight=False, soft_wrap=True)
    torch.set_num_threads(1)  # Matrices this small are faster without.
    torch.manual_seed(SEED)  # BoTorch draws its starting points from the global generator.
    # L-BFGS reports a line search that ended early and starts again by itself.
    warnings.filterwarnings("ignore", message="Optimization failed", category=RuntimeWarning)
    start = time.perf_counter()

    x = BOUNDS[0] + (BOUNDS[1] - BOUNDS[0]) * torch.quasirandom.SobolEngine(2, seed=SEED, scramble=True).draw(NUM_INITIAL)
    y = branin(x)
    console.print(f"Start      {NUM_INITIAL} points spread over the square; the lowest value is {y.min():.3f}")
    while len(x) < NUM_EVALUATIONS:
        new = propose(believe(x, y), y)
        value = branin(new)
        better = "  the lowest so far" if value < y.min() else ""
        console.print(f"Look {len(x) + 1:>2}    at ({new[0, 0]:5.2f}, {new[0, 1]:5.2f}): {value.item():7.3f}{better}")
        x, y = torch.cat([x, new]), torch.cat([y, value])

    console.print(f"Found      {y.min():.3f} after {len(y)} evaluations; the true minimum is {float(branin.optimal_value):.3f}")
    if output is not None:
        draw(believe(x, y), x, output)
        console.print(f"Picture    {output}")
    console.print(f"Time       {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
