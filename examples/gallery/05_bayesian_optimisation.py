# %% [markdown]
# # Tune a model with Bayesian optimisation
#
# Two settings of a support vector machine are chosen by cross-validation, each try
# where BoTorch expects most improvement; as many random tries are the alternative.
#
# The table is scikit-learn's, of 442 patients and the progression of their diabetes.
# What is minimised is the error in three-fold cross-validation, over the logarithms
# of `C` and `gamma`.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from botorch.acquisition.analytic import LogExpectedImprovement
from botorch.optim.optimize import optimize_acqf
from sklearn.datasets import load_diabetes
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

from gwi import Gaussian, GWIRegressor
from gwi.botorch import BoTorchModel

X, y = load_diabetes(return_X_y=True)
bounds = torch.tensor([[-1.0, -5.0], [4.0, 1.0]], dtype=torch.float64)


def error(settings):
    """Root mean squared error of a machine with these two settings."""
    C, gamma = (10.0 ** float(value) for value in settings)
    machine = make_pipeline(StandardScaler(), SVR(C=C, gamma=gamma))
    return -cross_val_score(
        machine, X, y, cv=3, scoring="neg_root_mean_squared_error"
    ).mean()


def errors(points):
    """Of several settings."""
    return torch.tensor([error(settings) for settings in points], dtype=torch.float64)


def random_points(count, seed):
    """Settings anywhere within the bounds."""
    generator = torch.Generator().manual_seed(seed)
    return bounds[0] + (bounds[1] - bounds[0]) * torch.rand(
        count, 2, dtype=torch.float64, generator=generator
    )


# %% [markdown]
# ## One try after the other
#
# A Gaussian process with its exact posterior (`covariance="titsias"`) believes
# something of all settings. Expected improvement says which to try next. BoTorch
# maximises, hence the minus.

# %%
TRIES, STARTS, SEEDS = 15, 5, 4


def believe(points, values):
    """What is known after some tries."""
    options = {"covariance": "titsias", "likelihood": Gaussian("constant")}
    return GWIRegressor("svgp-all", random_state=0, **options).fit(points, -values)


def optimise(seed):
    """The settings tried, and their errors."""
    torch.manual_seed(seed)  # for BoTorch's starting points
    points = random_points(STARTS, seed)
    values = errors(points)
    while len(points) < TRIES:
        model = BoTorchModel(believe(points, values))
        promise = LogExpectedImprovement(model, best_f=-values.min())
        new, _ = optimize_acqf(promise, bounds, q=1, num_restarts=3, raw_samples=64)
        points, values = torch.cat([points, new]), torch.cat([values, errors(new)])
    return points, values


tried = [optimise(seed) for seed in range(SEEDS)]
by_plan = np.array([np.minimum.accumulate(values) for _, values in tried])

# %% [markdown]
# ## Beside chance
#
# Random tries go on from the same five. What they find is averaged over 500 draws
# from a grid of settings, of which every one was tried for this.

# %%
sides = torch.linspace(-1, 4, 16), torch.linspace(-5, 1, 19)
grid = torch.cartesian_prod(*sides).double()
on_grid = errors(grid).numpy()
draws = np.random.default_rng(0).choice(on_grid, (SEEDS, 500, TRIES))
for seed, (_, values) in enumerate(tried):
    draws[seed, :, :STARTS] = values[:STARTS]
by_chance = np.minimum.accumulate(draws, axis=2)
print(f"least error on the grid {on_grid.min():.1f}", end="")
print(f"; of a machine as it comes {error([0.0, -1.0]):.1f}")
table = {}
for count in (STARTS, 10, TRIES):
    plan, chance = by_plan[:, count - 1], by_chance[:, :, count - 1]
    table[f"after {count} tries"] = {
        "by plan": plan.mean(),
        "by chance": chance.mean(),
        "worst by plan": plan.max(),
        "worst tenth by chance": np.quantile(chance, 0.9),
    }
print(pd.DataFrame(table).T.round(1).to_string())

# %% [markdown]
# The good settings fill a large part of the square, so that chance finds them, too,
# and is ahead after ten tries. After fifteen the plan has found them from every
# start.

# %%
figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.7), layout="constrained")
shades = axes[0].contourf(
    *grid.reshape(16, 19, 2).permute(2, 0, 1),
    on_grid.reshape(16, 19),
    15,
    cmap="viridis",
)
points = tried[0][0]
axes[0].scatter(
    *points[:STARTS].T,
    marker="s",
    color="white",
    edgecolor="black",
    label="five at random",
)
axes[0].scatter(
    *points[STARTS:].T, color="#D55E00", edgecolor="black", label="proposed"
)
axes[0].set(
    xlabel="log₁₀ C", ylabel="log₁₀ gamma", title="one of the runs, on the true error"
)
axes[0].legend(loc="lower left")
figure.colorbar(shades, ax=axes[0])
axes[1].plot(range(1, TRIES + 1), by_plan.T, color="#D55E00", alpha=0.25)
for name, found, colour in (
    ("by plan", by_plan, "#D55E00"),
    ("by chance", by_chance.mean(1), "#0072B2"),
):
    axes[1].plot(
        range(1, TRIES + 1), found.mean(0), "o-", color=colour, ms=4, label=name
    )
axes[1].set(
    xlabel="tries",
    ylabel="least error so far",
    title=f"mean of {SEEDS} starts",
    ylim=(None, on_grid.min() + 8),
)
axes[1].legend()
