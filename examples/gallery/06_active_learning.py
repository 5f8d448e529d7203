# %% [markdown]
# # Active learning: which row to measure next
#
# Labels cost money, so measure where the model knows least: rows of the largest
# epistemic variance, beside rows at random, averaged over five starts.
#
# The table is 768 simulated buildings and the energy that heats them ([Tsanas &
# Xifara, 2012](https://doi.org/10.24432/C51307)). Every start has 20 measured
# buildings and buys six times ten more; a third of the table is kept for the test.

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import fetch_openml

from gwi import Gaussian, GWIRegressor

file = Path(os.environ.get("GWI_DATA", "."), "uci/energy.csv.gz")
# Without the file, the same table from the internet; it may come in another order.
table = (
    pd.read_csv(file)
    if file.exists()
    else fetch_openml(data_id=44960, as_frame=True).frame
)
table = table.to_numpy(dtype=float)
X, y = table[:, :-1], table[:, -1]
print(f"{len(X)} buildings with {X.shape[1]} numbers each")

# %% [markdown]
# ## Buy rows
#
# The epistemic variance is the part that more data would remove. It is asked of every
# row that has no label yet.

# %%
START, BATCH, ROUNDS, SEEDS = 20, 10, 6, 5


def errors(choose, seed):
    """Root mean squared error at the test rows after each round of buying."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(X))
    test, pool, owned = (
        order[:256],
        list(order[256 + START :]),
        list(order[256 : 256 + START]),
    )
    found = []
    for _ in range(ROUNDS + 1):
        model = GWIRegressor(
            "svgp-all", likelihood=Gaussian("constant"), random_state=0
        ).fit(X[owned], y[owned])
        found.append(np.sqrt(np.mean((y[test] - model.predict(X[test])) ** 2)))
        bought = [pool[i] for i in choose(model, X[pool], rng)]
        pool = [row for row in pool if row not in bought]
        owned += bought
    return found


def at_random(model, rows, rng):
    """Any rows."""
    return rng.choice(len(rows), BATCH, replace=False)


def least_known(model, rows, rng):
    """Those of the largest epistemic variance, given those that are chosen already."""
    law = model.posterior(rows)
    covariance, chosen = law.covariance_matrix.detach().numpy().copy(), []
    for _ in range(BATCH):
        best = int(np.argmax(np.diag(covariance)))
        chosen.append(best)
        column = covariance[:, best]
        covariance -= np.outer(column, column) / (
            column[best] + 1e-2 * np.trace(covariance) / len(rows)
        )
    return chosen


curves = {
    name: np.array([errors(choose, seed) for seed in range(SEEDS)])
    for name, choose in {"at random": at_random, "least known": least_known}.items()
}
means = {name: curve[:, ::2].mean(0) for name, curve in curves.items()}
print(
    pd.DataFrame(means, index=START + BATCH * np.arange(0, 7, 2)).round(2).to_string()
)

# %%
figure, axes = plt.subplots(figsize=(6.5, 3.6), layout="constrained")
rows = START + BATCH * np.arange(ROUNDS + 1)
for (name, curve), colour in zip(curves.items(), ("#0072B2", "#D55E00"), strict=True):
    axes.plot(rows, curve.T, color=colour, alpha=0.25)
    axes.plot(rows, curve.mean(0), "o-", color=colour, label=name)
axes.set(xlabel="measured buildings", ylabel="error at new buildings", yscale="log")
axes.set_yticks([0.6, 1, 2, 4], ["0.6", "1", "2", "4"], minor=False)
axes.set_yticks([], minor=True)
axes.legend()

# %% [markdown]
# It is no free lunch. With few rows the model is wrong about where it knows little,
# the rows it asks for lie at the edge of the table, and rows at random are better.
# Once the model has the shape of the function, the same rows pay: the last error is
# far lower.
