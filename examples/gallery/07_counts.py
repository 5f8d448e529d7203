# %% [markdown]
# # Counts: visits to a doctor
#
# How often does somebody see a doctor? Counts vary more than Poisson's distribution
# allows; with a negative binomial likelihood the intervals hold.
#
# The table is 4,406 people above 65 in the United States ([Deb & Trivedi,
# 1997](https://doi.org/10.1002/(SICI)1099-1255(199705)12:3%3C313::AID-JAE440%3E3.0.CO;2-G)).
# We take 500 to learn from and 1,500 new ones.

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.stats import poisson
from sklearn.linear_model import PoissonRegressor
from sklearn.pipeline import make_pipeline

from gwi import GWIRegressor, evaluation, plots
from gwi.tables import TableEncoder

file = Path(os.environ.get("GWI_DATA", "."), "practice/counts/doctor_visits.csv.gz")
if not file.exists():  # the same table, from the internet
    file = "https://vincentarelbundock.github.io/Rdatasets/csv/AER/NMES1988.csv"
people = pd.read_csv(file).sample(2000, random_state=0)
X = people[
    [
        "hospital",
        "health",
        "chronic",
        "adl",
        "age",
        "gender",
        "school",
        "income",
        "insurance",
        "medicaid",
    ]
]
y = people["visits"].to_numpy()
X, X_new, y, y_new = X[:500], X[500:], y[:500], y[500:]
print(f"{y.mean():.1f} visits on average, variance {y.var():.0f}, at most {y.max()}")

# %% [markdown]
# ## Three models
#
# A Gaussian process through a logarithm with either likelihood, and scikit-learn's
# Poisson regression. `fit` itself warns that Poisson's distribution is too narrow.

# %%
laws = {}
for name in ("negative-binomial", "poisson"):
    model = GWIRegressor("svgp", likelihood=name, random_state=0).fit(X, y)
    laws["gwi, " + name] = model.predict_dist(X_new)
    if name == "negative-binomial":
        best = model
plain = make_pipeline(TableEncoder(), PoissonRegressor(alpha=1e-2, max_iter=1000)).fit(
    X, y
)
laws["Poisson regression"] = poisson(plain.predict(X_new))

# %% [markdown]
# ## Which of them is right?
#
# The CRPS is an error of the whole distribution, in visits; lower is better.

# %%
visits = np.arange(100.0)
shares = {}
table = {}
for name, law in laws.items():
    cdf = np.array([law.cdf(np.full(len(y_new), count)) for count in visits])
    shares[name] = np.diff(cdf.mean(1), prepend=0)
    low, high = law.ppf(0.05), law.ppf(0.95)
    table[name] = {
        "CRPS": ((cdf - (visits[:, None] >= y_new)) ** 2).sum(0).mean().round(2),
        "90 % hold": f"{evaluation.coverage(y_new, low, high):.0%}",
        "mean width": np.mean(high - low).round(),
        "expects no visit": f"{shares[name][0]:.0%}",
    }
print(pd.DataFrame(table).T.to_string())
print(f"found: {(y_new == 0).mean():.0%} without a visit")

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
plots.plot_rootogram(best, X_new, y_new, ax=axes[0])
few = slice(0, 13)
axes[1].bar(
    visits[few],
    [(y_new == count).mean() for count in visits[few]],
    color="#B3B3B3",
    label="found",
)
for (name, expected), colour in zip(
    shares.items(), ("#D55E00", "#0072B2", "#009E73"), strict=True
):
    axes[1].plot(visits[few], expected[few], "o-", color=colour, ms=4, label=name)
figure.get_layout_engine().set(wspace=0.08)
axes[1].set(xlabel="visits", ylabel="share of people")
axes[1].legend()

# %% [markdown]
# The bars of the rootogram hang from what was expected; they should end at the line.
# The negative binomial gets most of it right; its intervals hold more than they
# promise, as intervals of small whole numbers do.
