# %% [markdown]
# # Times to an event, with censored rows
#
# How long until a cancer comes back? Of most patients we only know that it has not,
# so far. What those rows say is used; leaving them out makes every prediction too
# short.
#
# The table is 686 patients of the German Breast Cancer Study Group ([Schumacher et
# al., 1994](https://doi.org/10.1200/JCO.1994.12.10.2086)).

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from gwi import GWIRegressor, evaluation, plots

file = Path(os.environ.get("GWI_DATA", "."), "practice/censored/gbsg.csv.gz")
if not file.exists():  # the same table, from the internet
    file = "https://vincentarelbundock.github.io/Rdatasets/csv/survival/gbsg.csv"
patients = pd.read_csv(file).sample(frac=1, random_state=0)
X = patients[["age", "meno", "size", "grade", "nodes", "pgr", "er", "hormon"]].to_numpy(
    dtype=float
)
X[:, 4:7] = np.log1p(X[:, 4:7])  # nodes and receptors, which run over decades
y = np.empty(len(X), dtype=[("event", bool), ("time", float)])
y["event"], y["time"] = patients["status"] == 1, patients["rfstime"]
X, X_new, y, y_new = X[:400], X[400:], y[:400], y[400:]
print(
    f"{len(y)} patients to learn from, {y['event'].mean():.0%} with a relapse", end=""
)
print(f"; {len(y_new)} new ones")

# %% [markdown]
# ## Fit with the censored rows, and without them

# %%
model = GWIRegressor(likelihood="censored", random_state=0).fit(X, y)
relapsed = y["event"]
naive = GWIRegressor(likelihood="log-normal", random_state=0).fit(
    X[relapsed], y["time"][relapsed]
)
print("noise of the logarithm of the time:", model.summary_.likelihood)

# %% [markdown]
# ## Who is right, and whose probabilities?
#
# The C-index is the share of pairs in the right order, 0.5 by chance. The Brier score
# is the squared error of the probability of no relapse up to a time, averaged over
# times; lower is better. One Kaplan–Meier curve for all patients is the simplest
# alternative.

# %%
laws = {
    "with censored rows": model.predict_dist(X_new),
    "relapses only": naive.predict_dist(X_new),
}
times = evaluation.survival.inner_times(y_new)
curve = evaluation.kaplan_meier(y)
table = {}
for name, law in laws.items():
    table[name] = {
        "C-index": evaluation.concordance(y_new, law),
        "Brier": evaluation.integrated_brier(y_new, law, times),
        "free after 3 years": law.survival([1095]).mean(),
    }
table["one curve for all"] = {
    "C-index": 0.5,
    "Brier": evaluation.integrated_brier(
        y_new, np.tile(curve.at(times), (len(y_new), 1)), times
    ),
    "free after 3 years": curve.at(1095),
}
table["found"] = {"free after 3 years": evaluation.kaplan_meier(y_new).at(1095)}
print(pd.DataFrame(table).T.round(3).to_string(na_rep=""))

# %% [markdown]
# Without the censored rows the order of patients is nearly as good, and the times are
# useless. One curve for all is far better than those; columns improve on it.

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
plots.plot_survival(model, X_new, y_new, ax=axes[0])
days = np.linspace(0, 2400, 200)
found = evaluation.kaplan_meier(y_new)
axes[1].plot(
    days, found.at(days), color="#000000", drawstyle="steps-post", label="found"
)
for (name, law), colour in zip(laws.items(), ("#D55E00", "#0072B2"), strict=True):
    axes[1].plot(days, law.survival(days).mean(0), color=colour, label=name)
axes[1].set(xlabel="days", ylabel="relapse-free", ylim=(0, 1))
axes[1].legend()
figure.get_layout_engine().set(wspace=0.08)
