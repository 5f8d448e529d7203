# %% [markdown]
# # Outlier scores for an image network
#
# A convolutional network that knows the digits 0 to 7 meets eights, nines, turned
# digits and noise: its own confidence, and an outlier score on its features, side by
# side.
#
# The digits are scikit-learn's, 8 × 8 pixels. The network is trained first, and stays
# as it is afterwards.

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from torch import nn

from gwi import Covariance, GWIClassifier

images, labels = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(images))
images, labels = (
    (images[order] / 16).reshape(-1, 1, 8, 8).astype(np.float32),
    labels[order],
)
known = labels < 8
(x, x_unseen, x_new), (y, y_unseen, y_new) = (
    np.split(values[known], [700, 1000]) for values in (images, labels)
)

torch.manual_seed(0)
convolutions = [
    nn.Conv2d(1, 16, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3),
    nn.ReLU(),
]
network = nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(128, 8))
optimiser = torch.optim.Adam(network.parameters(), 3e-3)
for _ in range(120):
    optimiser.zero_grad()
    nn.functional.cross_entropy(
        network(torch.from_numpy(x)), torch.from_numpy(y)
    ).backward()
    optimiser.step()

# %% [markdown]
# ## Wrap it
#
# The images that the network has learned from say where the data are, 300 others how
# wrong it is.

# %%
model = GWIClassifier(network, covariance=Covariance(num_inducing=200), random_state=0)
model.fit(x, y, validation=(x_unseen, y_unseen))
with torch.no_grad():
    logits = network(torch.from_numpy(x_new))
    own = nn.functional.cross_entropy(logits, torch.from_numpy(y_new)).item()
same = (logits.argmax(1).numpy() == model.predict(x_new)).mean()
print(f"{model.score(x_new, y_new):.1%} of {len(x_new)} new digits right")
print(f"{same:.0%} of the labels are the network's own")
print(f"negative log-likelihood {own:.3f} of the network", end="")
print(f", {model.nll(x_new, y_new):.3f} of the wrapped one")

# %% [markdown]
# ## Which images are strange?
#
# AUROC is the chance that an unknown image has a higher score than a known one: 1 is
# perfect, 0.5 is guessing. The simple alternative is the entropy of the network's
# probabilities.

# %%
rng = np.random.default_rng(1)
strange = {
    "eights and nines": images[~known],
    "turned by 90°": np.rot90(x_new, axes=(2, 3)).copy(),
    "negatives": 1 - x_new,
    "noise": rng.uniform(0, 1, (300, 1, 8, 8)).astype(np.float32),
}


def entropy(rows):
    """Of the network's own probabilities."""
    with torch.no_grad():
        return (
            torch.distributions.Categorical(logits=network(torch.from_numpy(rows)))
            .entropy()
            .numpy()
        )


home, home_entropy = model.ood_score(x_new), entropy(x_new)
for name, rows in strange.items():
    is_strange = np.repeat([0, 1], [len(x_new), len(rows)])
    by_score = roc_auc_score(is_strange, np.concatenate([home, model.ood_score(rows)]))
    by_entropy = roc_auc_score(
        is_strange, np.concatenate([home_entropy, entropy(rows)])
    )
    print(
        f"{name:<17} AUROC {by_score:.3f} by outlier score, {by_entropy:.3f} by entropy"
    )

# %% [markdown]
# Confidence and strangeness are two things: the network is often sure of turned
# digits, and the score finds all of them. Eights and nines are made of the same
# strokes as known digits and are hardest. The size of the score depends on the
# network; to raise an alarm, take a quantile of the scores of known images:

# %%
limit = np.quantile(model.ood_score(x_unseen), 0.95)
print(f"new digits above the limit: {np.mean(home > limit):.0%}")
for name, rows in strange.items():
    print(f"{name}: {np.mean(model.ood_score(rows) > limit):.0%}")

# %%
figure, axes = plt.subplots(5, 10, figsize=(8, 5.6))
for row, (name, rows) in zip(axes, {"known": x_new, **strange}.items(), strict=True):
    scores = model.ood_score(rows[:10])
    for place, image, score in zip(row, rows, scores, strict=False):
        place.imshow(image[0], cmap="gray_r", vmin=0, vmax=1)
        place.set(xticks=[], yticks=[])
        place.set_xlabel(f"{score:.2f}", fontsize=9)
    row[0].set_title(f"{name}, with outlier scores", loc="left", fontsize=10)
figure.subplots_adjust(hspace=0.7, wspace=0.1)
