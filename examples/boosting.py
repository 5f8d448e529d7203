"""Error bars for a boosted model that stays as it is: fitted elsewhere, judged on rows it has not seen.

python examples/boosting.py [--output boosting.png]
"""

# %%
from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl
import numpy as np
from rich.console import Console
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor

from gwi import GWIRegressor, diagnose, plots

mpl.use("Agg")
import matplotlib.pyplot as plt

# %% Three kinds of rows: those the model learns from, those that judge it, and new ones.
X, y = load_diabetes(return_X_y=True)
order = np.random.default_rng(0).permutation(len(X))
(X, X_unseen, X_new), (y, y_unseen, y_new) = (np.split(values[order], [250, 342]) for values in (X, y))

# %% The model you have.
boosting = HistGradientBoostingRegressor(max_depth=2, max_iter=80, learning_rate=0.06, random_state=0).fit(X, y)


def main() -> None:
    """Surround it, look at the promises, and whether they are kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="where to write a picture; none unless given")
    output = parser.parse_args().output
    console = Console(highlight=False, soft_wrap=True)

    # %% Five lines.
    model = GWIRegressor(boosting, random_state=0)
    model.fit(X, y, validation=(X_unseen, y_unseen))
    mean, std = model.predict(X_new, return_std=True)
    lower, upper = model.predict_interval(X_new, coverage=0.9).T
    parts = model.decompose(X_new)

    # %% What came of it.
    same = np.abs(mean - boosting.predict(X_new)).max()
    inside = ((lower <= y_new) & (y_new <= upper)).mean()
    share = parts.epistemic.mean() / parts.total.mean()
    console.print(f"Mean       as it was, to {same:.0e}; R² {model.score(X_new, y_new):.2f} at {len(X_new)} new patients")
    console.print(f"Spread     {std.min():.0f} to {std.max():.0f}; {share:.0%} of the variance is of f, the rest is noise")
    console.print(f"Intervals  of 90% hold {inside:.0%} of the new patients")
    console.print(f"Diagnosis  {diagnose(model, X_new, y_new)}")
    if output is not None:
        figure, places = plt.subplots(1, 2, figsize=(12, 4.5), layout="constrained", width_ratios=(3, 2))
        plots.plot_prediction(model, X_new, y_new, feature=2, ax=places[0])
        places[0].set(xlabel="body mass index, the others at their medians", ylabel="progression after a year")
        plots.plot_calibration(model, X_new, y_new, ax=places[1])
        figure.savefig(output, dpi=150)
        plt.close(figure)
        console.print(f"Picture    {output}")


if __name__ == "__main__":
    main()
