# %% [markdown]
# # Classify texts, and notice those that belong to no class
#
# Documentation of functions is sorted by the part of SciPy it comes from; texts from
# elsewhere are told by an outlier score on their embeddings, beside logistic
# regression.
#
# The texts are the first 400 letters of docstrings, which are there wherever gwi is.
# Embeddings are TF-IDF with a truncated SVD; those of a language model would go in
# just the same. Other versions of SciPy give other numbers.

# %%
import inspect

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import scipy.linalg
import scipy.ndimage
import scipy.optimize
import scipy.signal
import scipy.stats
import torch
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from gwi import GWIClassifier


def texts(module):
    """The documentation of what a module has, without repetitions."""
    found = (
        inspect.getdoc(value) or ""
        for name, value in sorted(vars(module).items())
        if callable(value) and name[0] != "_"
    )
    return sorted({text[:400] for text in found if len(text) > 100})


sources = {
    "images": scipy.ndimage,
    "linear algebra": scipy.linalg,
    "signals": scipy.signal,
    "statistics": scipy.stats,
}
documents = np.array(
    [text for module in sources.values() for text in texts(module)], dtype=object
)
labels = np.repeat(list(sources), [len(texts(module)) for module in sources.values()])
order = np.random.default_rng(0).permutation(len(labels))
train, new = order[:250], order[250:]

embed = make_pipeline(
    TfidfVectorizer(stop_words="english", sublinear_tf=True),
    TruncatedSVD(30, random_state=0),
    Normalizer(),
)
x, x_new, y, y_new = (
    embed.fit_transform(documents[train]),
    embed.transform(documents[new]),
    labels[train],
    labels[new],
)
print(
    f"{len(train)} texts to learn from, {len(new)} new ones, {x.shape[1]} numbers each"
)

# %% [markdown]
# ## Fit, beside logistic regression

# %%
model = GWIClassifier("svgp", random_state=0).fit(x, y)
strengths = {"C": np.logspace(-1, 3, 9)}
logistic = (
    GridSearchCV(LogisticRegression(max_iter=1000), strengths, scoring="neg_log_loss")
    .fit(x, y)
    .best_estimator_
)
for name, fitted in (("gwi", model), ("logistic regression", logistic)):
    loss = log_loss(y_new, fitted.predict_proba(x_new))
    right = fitted.score(x_new, y_new)
    print(f"{name:<19} {right:.0%} right, negative log-likelihood {loss:.2f}")

# %% [markdown]
# ## Texts of another kind
#
# Optimisation, a part of SciPy that had no label, and layers of torch. AUROC is the
# chance that such a text scores higher than one of a known class: 1 is perfect, 0.5
# is guessing. `energy=True` adds to the outlier score whether any class speaks for
# the text.

# %%
others = {
    "scipy.optimize": np.array(texts(scipy.optimize)),
    "torch.nn": np.array(texts(torch.nn)),
}


def entropy(fitted, rows):
    """Of the predicted probabilities."""
    p = fitted.predict_proba(rows)
    return -(p * np.log(np.maximum(p, 1e-12))).sum(1)


def auroc(score, strange):
    """Of a score of embeddings, for strange texts beside new ones of known classes."""
    rows = np.concatenate([x_new, embed.transform(strange)])
    return roc_auc_score(np.arange(len(rows)) >= len(x_new), score(rows))


scores = {
    "outlier score": model.ood_score,
    "outlier score with energy": lambda rows: model.ood_score(rows, energy=True),
    "entropy": lambda rows: entropy(model, rows),
    "entropy of logistic regression": lambda rows: entropy(logistic, rows),
}
found = {
    name: [auroc(score, strange) for strange in others.values()]
    for name, score in scores.items()
}
print(pd.DataFrame(found, index=list(others)).T.round(2).to_string())

# %% [markdown]
# The outlier score alone is **not** the better one here: entropy is, with either
# model, and with the energy it is about as good. TF-IDF drops words it has not seen,
# so a strange text keeps only words that it shares with known ones, and lies among
# them. Where embeddings are not divided by their length (leave out `Normalizer`),
# strange texts even lie in the middle, and the score is inverted. Scores of distance
# are only as good as the embedding.

# %%
figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.4), layout="constrained")
groups = {"known classes": x_new} | {
    name: embed.transform(strange) for name, strange in others.items()
}
for (name, rows), colour in zip(
    groups.items(), ("#0072B2", "#E69F00", "#D55E00"), strict=True
):
    axes[0].plot(
        np.sort(entropy(model, rows)),
        np.linspace(0, 1, len(rows)),
        color=colour,
        label=name,
    )
    axes[1].plot(
        np.sort(model.ood_score(rows)),
        np.linspace(0, 1, len(rows)),
        color=colour,
        label=name,
    )
axes[0].set(xlabel="entropy of the predicted classes", ylabel="share of texts below")
axes[1].set(xlabel="outlier score")
axes[0].legend()
