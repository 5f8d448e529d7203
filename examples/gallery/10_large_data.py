# %% [markdown]
# # Large data from Parquet files
#
# A folder of Parquet files goes in as it is; a large one is read some rows at a time.
# What do all rows give that a sample of them does not?
#
# The table is the prices of 53,940 diamonds, so that this page is quick. The same
# lines serve for a billion rows: above ten million numbers rows are read 32,768 at a
# time, and never more than a few such chunks are in memory.

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from gwi import Covariance, GWIRegressor, predict_source, score_source

file = Path(os.environ.get("GWI_DATA", "."), "practice/mixed/diamonds.csv.gz")
if not file.exists():  # the same table, from the internet
    file = "https://vincentarelbundock.github.io/Rdatasets/csv/ggplot2/diamonds.csv"
levels = {
    "cut": ["Fair", "Good", "Very Good", "Premium", "Ideal"],
    "color": list("JIHGFED"),
    "clarity": ["I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"],
}
gems = pd.read_csv(file).sample(frac=1, random_state=0)
for name, order in levels.items():
    gems[name] = gems[name].map(order.index)
gems["log_price"] = np.log(gems.pop("price"))
gems = gems[["carat", *levels, "depth", "table", "x", "y", "z", "log_price"]]

Path("rows").mkdir(exist_ok=True)
for i in range(4):
    gems[10_000 * i : 10_000 * (i + 1)].to_parquet(f"rows/{i}.parquet", index=False)
gems[40_000:].to_parquet("test.parquet", index=False)
count = sum(pq.read_metadata(path).num_rows for path in Path("rows").iterdir())
print(f"{count:,} rows in 4 files, {len(gems) - count:,} for the test")

# %% [markdown]
# ## Fit a folder
#
# The path in place of the rows, the name of the column in place of the targets. With
# 200 inducing points the cost grows as the rows do.

# %%
options = {
    "covariance": Covariance(num_inducing=200),
    "likelihood": "gaussian",
    "random_state": 0,
}
everything = GWIRegressor("svgp", **options).fit("rows/", "log_price")
sample = gems[:1000]
few = GWIRegressor("svgp", **options).fit(
    sample.drop(columns="log_price"), sample["log_price"]
)

# %% [markdown]
# ## Score a file, predict a file
#
# `score_source` and `predict_source` read and write files of any size in the same
# way.

# %%
scores = {"40,000 rows": score_source(everything, "test.parquet", "log_price")}
scores["1,000 of them"] = score_source(few, "test.parquet", "log_price")
predict_source(everything, "test.parquet", "predicted.parquet")
print("a prediction has", ", ".join(pq.read_schema("predicted.parquet").names))
chosen = ["crps", "rmse", "coverage_95", "width_95"]
table = {
    name: {one: getattr(found, one) for one in chosen} for name, found in scores.items()
}
print(pd.DataFrame(table).T.round(3).to_string())

# %% [markdown]
# Prices are logarithms here, so that an error of 0.1 is one of ten per cent. A sample
# of 1,000 rows goes a long way: forty times as many rows make the error a tenth
# lower. Intervals hold what they promise with either.

# %%
predicted = pd.read_parquet("predicted.parquet")
test = pd.read_parquet("test.parquet")
figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.6), layout="constrained")
shown = slice(0, 1500)
axes[0].plot([5.5, 10], [5.5, 10], color="#000000", lw=1)
axes[0].scatter(
    predicted["prediction"][shown], test["log_price"][shown], s=3, color="#0072B2"
)
axes[0].set(
    xlabel="predicted logarithm of the price",
    ylabel="logarithm of the price",
    title="1,500 diamonds of the test",
)
widths = {name: [found.rmse, found.width_95 / 4] for name, found in scores.items()}
for i, (name, values) in enumerate(widths.items()):
    bars = axes[1].bar(
        np.arange(2) + 0.4 * i,
        values,
        0.38,
        color=("#0072B2", "#E69F00")[i],
        label=name,
    )
    axes[1].bar_label(bars, fmt="%.3f")
axes[1].set(
    xticks=[0.2, 1.2],
    xticklabels=["root mean squared error", "a quarter of the\n95 % interval's width"],
    title="of the logarithm",
)
axes[1].margins(y=0.3)
axes[1].legend(loc="upper center", ncols=2)
