# %% [markdown]
# # Diagnosis of a bad fit
#
# Error bars can be wrong without a sign of it. Two bad fits and a good one on the
# same table: what `diagnose` says of them, and what the usual check, the coverage on
# rows like those of the fit, does not see.
#
# The table is 1,030 mixtures of concrete and their strength ([Yeh,
# 1998](https://doi.org/10.1016/S0008-8846(98)00165-3)).

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import fetch_openml

from gwi import Covariance, GWIRegressor, diagnose, evaluation, plots

file = Path(os.environ.get("GWI_DATA", "."), "uci/concrete.csv.gz")
# Without the file, the same table from the internet; it may come in another order.
table = (
    pd.read_csv(file)
    if file.exists()
    else fetch_openml(data_id=44959, as_frame=True).frame
)
table = table.to_numpy(dtype=float)
table = np.random.default_rng(0).permutation(np.unique(table, axis=0))
young = table[:, 7] <= 28  # days that it has hardened
X, y = table[young][:400, :-1], table[young][:400, -1]
alike, old = table[young][400:], table[~young]
print(f"{len(X)} young mixtures to learn from", end="")
print(f"; {len(alike)} young and {len(old)} old ones are new")

# %% [markdown]
# ## Three fits
#
# One that believes the data far too much (the weight 1 of the paper, where the
# default is matched to the noise), one with eight inducing points, and the default.

# %%
fits = {
    "far too sure": {
        "mean": "svgp",
        "covariance": Covariance("wasserstein", weight=1.0),
    },
    "8 inducing points": {"mean": "svgp", "covariance": Covariance(num_inducing=8)},
    "default": {},
}
models = {
    name: GWIRegressor(random_state=0, **options).fit(X, y)
    for name, options in fits.items()
}

# %% [markdown]
# ## The usual check
#
# Coverage on young mixtures looks well for all of them.

# %%
kinds, table = {"young": alike, "old": old}, {}
for name, model in models.items():
    table[name] = {}
    for kind, rows in kinds.items():
        law, strength = model.predict_dist(rows[:, :-1]), rows[:, -1]
        hold = evaluation.coverage(strength, *law.interval(0.95).T)
        table[name] |= {
            f"{kind}: 95 % hold": hold,
            "CRPS " + kind: law.crps(strength).mean(),
        }
print(pd.DataFrame(table).T.round(2).to_string())

# %% [markdown]
# ## What the diagnosis says
#
# Each finding with its number and how bad it is, on young and on old mixtures:

# %%
for kind, rows in kinds.items():
    for name, model in models.items():
        print(f"{name}, {kind}")
        for one in diagnose(model, rows[:, :-1], rows[:, -1]).findings:
            print(f"    {one.severity}: {one.kind} {one.value:.2g}")

# %% [markdown]
# The first fit claims to know f exactly, which no interval of young mixtures shows:
# the diagnosis does. What eight inducing points lose it does **not** see, since a
# prior fitted with so few makes itself smooth and calls the rest noise; the CRPS
# tells. On old mixtures the default says that it does not know, with intervals that
# are too wide, and the diagnosis says how far away they are.

# %%
figure, axes = plt.subplots(1, 2, figsize=(9.5, 4), layout="constrained")
for place, rows, name in zip(
    axes, (alike, old), ("young mixtures", "old mixtures"), strict=True
):
    plots.plot_calibration(models["default"], rows[:, :-1], rows[:, -1], ax=place)
    place.set_title(name, y=1.1)
