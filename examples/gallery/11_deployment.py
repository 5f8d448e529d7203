# %% [markdown]
# # Deployment: a file, a function, ONNX, the command line
#
# A fitted model is one file without code in it, and gives the same numbers from
# Python, from ONNX Runtime without torch, and from a shell.
#
# The table is scikit-learn's, of 442 patients and the progression of their diabetes.

# %%
import pickle
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import onnxruntime
import pandas as pd
from sklearn.datasets import load_diabetes

import gwi

patients = load_diabetes(as_frame=True).frame.sample(frac=1, random_state=0)
X, y = patients.drop(columns="target"), patients["target"]
X_new, y_new = X[300:], y[300:]
model = gwi.GWIRegressor("svgp", random_state=0).fit(X[:300], y[:300])

# %% [markdown]
# ## Save and load
#
# The simple alternative is pickle. A pickled file can run anything when it is opened,
# and breaks with other versions; a `.gwi` file is numbers and text with a checksum.

# %%
path = model.save("diabetes.gwi", overwrite=True)
loaded = gwi.load(path)
print("the same numbers:", np.array_equal(loaded.predict(X_new), model.predict(X_new)))
sizes = path.stat().st_size, len(pickle.dumps(model))
print(f"{sizes[0] / 1000:.0f} kB, pickled {sizes[1] / 1000:.0f} kB")

damaged = bytearray(path.read_bytes())
damaged[len(damaged) // 2] ^= 1
Path("damaged.gwi").write_bytes(damaged)
try:
    gwi.load("damaged.gwi")
except gwi.exceptions.ModelFileError as error:
    print(f"one bit changed: {type(error).__name__}")

# %% [markdown]
# ## Frame in, frame out
#
# `Predictor` is the file as a function. It reads the file at the first call, and can
# be sent to other processes.

# %%
predict = gwi.Predictor(path, coverage=0.9)
answers = predict(X_new)
print(
    answers[["prediction", "lower", "upper", "ood_score"]]
    .head(3)
    .round(2)
    .to_string(index=False)
)
inside = answers["lower"].lt(y_new).to_numpy() & answers["upper"].gt(y_new).to_numpy()
print(f"90 % intervals hold {inside.mean():.0%} of {len(y_new)} new patients")

# %% [markdown]
# ## ONNX
#
# One more file, for ONNX Runtime in C++, Java, C#, JavaScript or Python, with
# everything inside that the model does.

# %%
model.export_onnx("diabetes.onnx", levels=(0.05, 0.95))
session = onnxruntime.InferenceSession("diabetes.onnx")
names = [output.name for output in session.get_outputs()]
found = dict(zip(names, session.run(None, {"X": X_new.to_numpy()}), strict=True))
same = np.allclose(found["quantiles"], answers[["lower", "upper"]], rtol=1e-9)
print(", ".join(names))
print("the interval is the same to nine digits:", same)

# %% [markdown]
# ## The command line
#
# In a shell it is `gwi fit patients.csv --target target -o shell.gwi` and `gwi
# predict shell.gwi new.csv -o predicted.csv`. What it writes opens in Python, too.

# %%
patients[:300].to_csv("patients.csv", index=False)
X_new.to_csv("new.csv", index=False)
for words in (
    "fit patients.csv --target target --mean svgp --seed 0 -o shell.gwi",
    "predict shell.gwi new.csv --coverage 0.9 -o predicted.csv",
):
    done = subprocess.run(
        [sys.executable, "-m", "gwi", *words.split(), "--quiet", "--force"],
        capture_output=True,
        text=True,
    )
    print(f"gwi {words[:40]} …: exit code {done.returncode}")
written, opened = (
    pd.read_csv("predicted.csv"),
    gwi.Predictor("shell.gwi", coverage=0.9)(X_new),
)
print(
    "the same from Python:",
    np.allclose(written["prediction"], opened["prediction"], rtol=1e-9),
)

# %%
order = np.argsort(answers["prediction"].to_numpy())
place = np.arange(len(order))
figure, axes = plt.subplots(figsize=(8, 3.4), layout="constrained")
axes.vlines(
    place,
    found["quantiles"][order, 0],
    found["quantiles"][order, 1],
    color="#56B4E9",
    lw=3,
    label="90 % interval, ONNX",
)
axes.plot(
    place,
    answers["prediction"].to_numpy()[order],
    color="#000000",
    label="prediction, Python",
)
axes.scatter(
    place, y_new.to_numpy()[order], s=10, color="#0072B2", label="found", zorder=3
)
axes.set(
    xlabel="new patients, by their prediction", ylabel="progression of the disease"
)
axes.legend(ncols=3, loc="upper center", fontsize=9)
axes.set_ylim(-60, 460)
