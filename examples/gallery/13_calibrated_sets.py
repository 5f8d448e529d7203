# %% [markdown]
# # Sets of labels with a promised coverage
#
# Where one label would be a guess, give a set of labels. How often it holds the true
# one, and how large it is, beside sets from the probabilities of a forest.
#
# The images are scikit-learn's digits, with noise on them and only 300 to learn from,
# so that some cannot be told.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

from gwi import GWIClassifier

images, labels = load_digits(return_X_y=True)
noise = 5 * np.random.default_rng(0).standard_normal(images.shape)
images = np.clip(images + noise, 0, 16)

# %% [markdown]
# ## Sets
#
# `predict_set` compares probabilities with those that held-out rows gave to their
# true label, which promises coverage for any model. The alternative takes the most
# probable labels until they add up to what was asked. Means over four draws of the
# 300 digits.


# %%
def summed(p, coverage):
    """The most probable labels that together reach the coverage."""
    order = np.argsort(-p, axis=1)
    sorted_p = np.take_along_axis(p, order, 1)
    sets = np.zeros(p.shape, bool)
    np.put_along_axis(sets, order, sorted_p.cumsum(1) - sorted_p < coverage, 1)
    return sets


asked, table = [0.8, 0.85, 0.9, 0.95, 0.98], []
for seed in range(4):
    X, X_new, y, y_new = train_test_split(
        images, labels, train_size=300, random_state=seed, stratify=labels
    )
    rows = np.arange(len(y_new))
    model = GWIClassifier("svgp", random_state=0).fit(X, y)
    forest = RandomForestClassifier(300, random_state=0).fit(X, y)
    p, p_forest = model.predict_proba(X_new), forest.predict_proba(X_new)
    for share in asked:
        made = {
            "gwi": model.predict_set(X_new, share),
            "gwi, sums": summed(p, share),
            "forest, sums": summed(p_forest, share),
        }
        for name, sets in made.items():
            covered, size = sets[rows, y_new].mean(), sets.sum(1).mean()
            table.append([name, share, covered, size, (p.argmax(1) == y_new).mean()])
table = pd.DataFrame(
    table, columns=["sets", "asked", "hold the digit", "labels", "right"]
)
print(f"the most probable digit is right in {table['right'].mean():.0%}")
found = table.groupby(["sets", "asked"])[["hold the digit", "labels"]].mean()
print(found.round(2).unstack("sets").to_string())

# %% [markdown]
# Sets of the forest hold nearly everything, since its probabilities are far too flat,
# and are of little use. Sums of gwi's probabilities hold more than was asked, since
# the last label counts in full. `predict_set` has the smallest sets and is nearest to
# what was asked, but two or three points **below** it with so few rows: its kernel
# was chosen with the 300 rows it is scored on, which flatters it. With 800 rows it
# is within a point.
#
# ## Every class for itself
#
# Coverage is an average over all rows. With `by="class"` it holds for each digit by
# itself; the price is larger sets.

# %%
plain, each = model.predict_set(X_new, 0.9), model.predict_set(X_new, 0.9, by="class")
for name, sets in (("on average", plain), ("each class", each)):
    shares = [sets[y_new == digit, digit].mean() for digit in range(10)]
    size = sets.sum(1).mean()
    print(f"{name}: worst digit held in {min(shares):.0%}, {size:.2f} labels in a set")

# %% [markdown]
# Thirty rows of each digit judge here, so that a single digit can still be held too
# seldom by chance.

# %%
figure, axes = plt.subplots(
    1, 3, figsize=(10, 3.4), layout="constrained", width_ratios=(3, 3, 2)
)
axes[0].plot(asked, asked, color="#000000", lw=1, ls="--", label="as asked")
for name, colour in zip(made, ("#0072B2", "#56B4E9", "#E69F00"), strict=True):
    means = found.loc[name]
    axes[0].plot(means.index, means["hold the digit"], "o-", color=colour, label=name)
    axes[1].plot(means.index, means["labels"], "o-", color=colour, label=name)
axes[0].set(xlabel="coverage asked for", ylabel="share of sets with the digit")
axes[1].set(xlabel="coverage asked for", ylabel="labels in a set", ylim=(0, None))
axes[0].legend(fontsize=9)
unsure = int(np.argmax(plain.sum(1) == 3))
axes[2].imshow(X_new[unsure].reshape(8, 8), cmap="gray_r")
named = ", ".join(str(label) for label in model.classes_[plain[unsure]])
axes[2].set(xticks=[], yticks=[], title=f"{named}?", xlabel=f"it is a {y_new[unsure]}")
