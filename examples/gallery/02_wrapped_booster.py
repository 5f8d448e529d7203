# %% [markdown]
# # Error bars for LightGBM
#
# A LightGBM model that is fitted already, on a data frame with categories, gets
# intervals that follow the price, beside quantile regression with LightGBM itself.
#
# The table is the prices of diamonds. Three kinds of rows: 3,000 that the booster
# learns from, 1,000 that it has not seen and that say how wrong it is, and 2,000 new
# ones.

# %%
import os
from pathlib import Path

import lightgbm
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from gwi import GWIRegressor, evaluation

file = Path(os.environ.get("GWI_DATA", "."), "practice/mixed/diamonds.csv.gz")
if not file.exists():  # the same table, from the internet
    file = "https://vincentarelbundock.github.io/Rdatasets/csv/ggplot2/diamonds.csv"
gems = (
    pd.read_csv(file)
    .sample(6000, random_state=0)
    .astype(dict.fromkeys(("cut", "color", "clarity"), "category"))
)
X, y = (
    gems[["carat", "cut", "color", "clarity", "depth", "table"]],
    gems["price"].to_numpy(dtype=float),
)
(X, X_unseen, X_new), (y, y_unseen, y_new) = (
    (v[:3000], v[3000:4000], v[4000:]) for v in (X, y)
)
options = {"n_estimators": 200, "learning_rate": 0.05, "verbose": -1, "n_jobs": 1}
booster = lightgbm.LGBMRegressor(**options).fit(X, y)

# %% [markdown]
# ## Wrap it
#
# The booster stays as it is: the mean of the wrapped model is its prediction.

# %%
model = GWIRegressor(booster, random_state=0).fit(X, y, validation=(X_unseen, y_unseen))
lower, upper = model.predict_interval(X_new, coverage=0.9).T
print("its own predictions:", np.allclose(model.predict(X_new), booster.predict(X_new)))

# %% [markdown]
# ## Alternatives
#
# One width for all: the 90 % quantile of the errors at the unseen rows. And two more
# boosters, for the 5 % and the 95 % quantile, which are fitted to the unseen rows as
# well, since nothing else needs them.

# %%
half = np.quantile(np.abs(y_unseen - booster.predict(X_unseen)), 0.9)
everything, targets = pd.concat([X, X_unseen]), np.concatenate([y, y_unseen])


def quantile(level):
    """Predicted by a booster of its own."""
    own = lightgbm.LGBMRegressor(objective="quantile", alpha=level, **options)
    return own.fit(everything, targets).predict(X_new)


low, high = quantile(0.05), quantile(0.95)
centre = booster.predict(X_new)
intervals = {
    "gwi": (lower, upper),
    "one width": (centre - half, centre + half),
    "two quantiles": (low, high),
}
third = np.digitize(centre, np.quantile(centre, [1 / 3, 2 / 3]))
table = {}
for name, (start, end) in intervals.items():
    hit = (start <= y_new) & (y_new <= end)
    table[name] = {
        "90 % hold": f"{hit.mean():.0%}",
        "of cheap": f"{hit[third == 0].mean():.0%}",
        "middle": f"{hit[third == 1].mean():.0%}",
        "dear": f"{hit[third == 2].mean():.0%}",
        "interval score": round(
            evaluation.interval_score(y_new, start, end, coverage=0.9)
        ),
    }
print(pd.DataFrame(table).T.to_string())

# %%
order = np.argsort(centre)[::25]
figure, axes = plt.subplots(1, 3, figsize=(10, 3.4), sharey=True, layout="constrained")
for place, (name, (start, end)) in zip(axes, intervals.items(), strict=True):
    place.vlines(
        centre[order],
        start[order] - centre[order],
        end[order] - centre[order],
        color="#56B4E9",
        label="90 % interval",
    )
    place.scatter(
        centre[order],
        y_new[order] - centre[order],
        s=9,
        color="#0072B2",
        label="new diamonds",
        zorder=2,
    )
    place.set(title=name, xlabel="predicted price, dollars", ylim=(-5000, 5000))
axes[0].set_ylabel("less the prediction, dollars")
axes[0].legend(loc="lower left")

# %% [markdown]
# One width is far too wide for cheap diamonds and too narrow for dear ones. Two
# boosters for two quantiles follow the price, but hold less than they promise, since
# nothing has judged them on rows they have not seen.
#
# ## A diamond unlike all others
#
# The kernel around the booster knows where the rows were. The outlier score is 0 for
# rows like those of the fit and 1 far away.

# %%
strange = X_new[:2].assign(carat=[1.0, 5.0], depth=[61.0, 78.0])
_, std = model.predict(strange, return_std=True)
print("outlier scores", model.ood_score(strange).round(2))
print("standard deviations", std.round(-2))
