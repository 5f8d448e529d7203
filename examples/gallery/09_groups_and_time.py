# %% [markdown]
# # New groups and later days
#
# Rows of the same storm, patient or machine are alike, and so are days near each
# other. Scored on rows picked at random, intervals for new storms come out too
# narrow; `groups=` and `cv="time"` mend it.
#
# Two tables: the winds of Atlantic storms every six hours, from the [hurricane
# database](https://www.nhc.noaa.gov/data/#hurdat), and the coldest temperature of
# each day in Melbourne.

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from gwi import GWIRegressor, evaluation

folder = Path(os.environ.get("GWI_DATA", "."), "practice")
files = [folder / "mixed/storms.csv.gz", folder / "time/daily_min_temperature.csv.gz"]
if not folder.exists():  # the same tables, from the internet
    files[0] = "https://vincentarelbundock.github.io/Rdatasets/csv/dplyr/storms.csv"
    files[1] = (
        "https://raw.githubusercontent.com/jbrownlee/Datasets/master/daily-min-temperatures.csv"
    )

# %% [markdown]
# ## New storms
#
# The wind is to be told from the date and the place. Rows of 50 storms to learn from;
# 80 others are new. A model that has seen half of a storm guesses the other half
# easily, and would take that for skill.

# %%
storms = pd.read_csv(files[0]).query("year >= 2010")
storms["storm"] = storms["name"] + storms["year"].astype(str)
names = np.random.default_rng(0).permutation(storms["storm"].unique())
train = storms[storms["storm"].isin(names[:50])].sample(700, random_state=0)
new = storms[storms["storm"].isin(names[50:130])].sample(1500, random_state=0)
columns = ["month", "day", "hour", "lat", "long"]
wind, asked = new["wind"].to_numpy(float), np.arange(0.1, 1, 0.1)
held, table = {}, {}
for name, groups in (
    ("rows at random", None),
    ("whole storms", train["storm"].to_numpy()),
):
    model = GWIRegressor(likelihood="gaussian", random_state=0).fit(
        train[columns], train["wind"], groups=groups
    )
    law = model.predict_dist(new[columns])
    held[name] = [evaluation.coverage(wind, *law.interval(share).T) for share in asked]
    table[name] = {
        "90 % hold": held[name][-1],
        "CRPS, knots": evaluation.crps(wind, law),
        "typical error": np.sqrt(np.mean((wind - law.mean) ** 2)),
        "promised error": np.sqrt(np.mean(law.var)),
    }
print(pd.DataFrame(table).T.round(2).to_string())

# %% [markdown]
# Scored on whole storms the intervals are nearly right, and predictions are better,
# too: what had been learned by heart has lost its weight in the stack.
#
# ## Later days
#
# Two years of temperatures; the next year is to be predicted from the date alone.

# %%
weather = pd.read_csv(files[1])
temperature = weather["Temp"].astype(str).str.strip("?").astype(float).to_numpy()[:1095]
day = np.arange(1095.0)
X = np.column_stack(
    [day, np.sin(2 * np.pi * day / 365.25), np.cos(2 * np.pi * day / 365.25)]
)
later = day >= 730
seasons, table = {}, {}
for name, cv in (("rows at random", "auto"), ("later rows", "time")):
    model = GWIRegressor(likelihood="gaussian", cv=cv, random_state=0).fit(
        X[~later], temperature[~later]
    )
    law = model.predict_dist(X[later])
    seasons[name] = law.interval(0.9).T
    table[name] = {
        "90 % hold": evaluation.coverage(temperature[later], *seasons[name]),
        "CRPS, degrees": evaluation.crps(temperature[later], law),
    }
print(pd.DataFrame(table).T.round(2).to_string())

# %% [markdown]
# Here it matters little: days are only a little like their neighbours, and seasons
# come again. It costs nothing to say how rows hang together, and helps where they do.

# %%
colours = ("#D55E00", "#0072B2")
figure, axes = plt.subplots(
    1, 2, figsize=(10, 3.7), layout="constrained", width_ratios=(2, 3)
)
axes[0].plot([0, 1], [0, 1], color="#000000", lw=1, ls="--", label="as promised")
for (name, shares), colour in zip(held.items(), colours, strict=True):
    axes[0].plot(asked, shares, "o-", color=colour, label=f"judged by {name}")
axes[0].set(xlabel="promised coverage", ylabel="share of rows of new storms")
axes[0].legend(fontsize=9)
axes[1].scatter(day[later], temperature[later], s=4, color="#808080")
for (name, (low, high)), colour in zip(seasons.items(), colours, strict=True):
    axes[1].plot(day[later], low, color=colour, label=f"90 % interval, by {name}")
    axes[1].plot(day[later], high, color=colour)
axes[1].set(xlabel="day", ylabel="degrees Celsius", ylim=(-5, 31))
axes[1].legend(fontsize=9, loc="upper right")
