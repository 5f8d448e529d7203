"""Calibrated classes and a score of outliers for a trained network that stays as it is: digits, with two of them never seen.

python examples/frozen_network.py [--output frozen_network.png]
"""

# %%
from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from rich.console import Console
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from torch import nn

from gwi import GWIClassifier

mpl.use("Agg")
import matplotlib.pyplot as plt

from gwi.parts import Covariance

# %% Digits 0 to 7 are known. Eights and nines come only when the model is in use.
images, labels = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(images))
images, labels = (images[order] / 16).reshape(-1, 1, 8, 8).astype(np.float32), labels[order]
known = labels < 8
strangers = images[~known]
(x, x_unseen, x_new), (y, y_unseen, y_new) = (np.split(values[known], [700, 1000]) for values in (images, labels))


# %% The network you have.
def trained() -> nn.Module:
    """A small convolutional network, trained in seconds."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(128, 8),
    )
    optimiser = torch.optim.Adam(network.parameters(), 3e-3)
    inputs, targets = torch.from_numpy(x), torch.from_numpy(y)
    for _ in range(120):
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(inputs), targets).backward()
        optimiser.step()
    return network


def draw(scores: np.ndarray, everything: np.ndarray, path: Path) -> None:
    """The digits that look most and least familiar."""
    order = scores.argsort()
    figure, places = plt.subplots(2, 12, figsize=(10, 2.4), layout="constrained")
    for row, chosen, title in zip(places, (order[:12], order[-12:]), ("most familiar", "least familiar"), strict=True):
        for place, i in zip(row, chosen, strict=True):
            place.imshow(everything[i, 0], cmap="gray_r")
            place.set(xticks=[], yticks=[], xlabel=f"{scores[i]:.2f}")
        row[0].set_title(title, loc="left")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    """Fit the covariance around the network, then meet strangers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="where to write a picture; none unless given")
    output = parser.parse_args().output
    console = Console(highlight=False, soft_wrap=True)
    torch.set_num_threads(1)  # Matrices this small are faster without.
    network = trained()

    # %% Two lines.
    model = GWIClassifier(network, random_state=0, covariance=Covariance(num_inducing=200))
    model.fit(x, y, validation=(x_unseen, y_unseen))

    # %% What came of it.
    with torch.no_grad():
        before = nn.functional.cross_entropy(network(torch.from_numpy(x_new)), torch.from_numpy(y_new)).item()
    console.print(
        f"Known      {model.score(x_new, y_new):.1%} right; NLL {before:.3f} before, {model.nll(x_new, y_new):.3f} after"
    )
    both = np.concatenate([x_new, strangers])
    is_strange = np.arange(len(both)) >= len(x_new)
    scores = model.ood_score(both)
    by_score, by_entropy = (roc_auc_score(is_strange, values) for values in (scores, model.decompose(both).total))
    console.print(f"Strangers  AUROC {by_score:.3f} by ood_score, {by_entropy:.3f} by entropy")
    if output is not None:
        draw(scores, both, output)
        console.print(f"Picture    {output}")


if __name__ == "__main__":
    main()
