"""Ours: the classifier on the shared network, with it from the start, and by the paper's protocol."""

from __future__ import annotations

import copy
import math
import time
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

import gwi.core.features
import gwi.core.kernels
import gwi.core.networks
from benchmarks.tables.images.interface import Fitted, Method, Prediction, Problem
from benchmarks.tables.images.networks import build
from benchmarks.tables.images.posthoc import other_members
from benchmarks.tables.images.training import augmented_loader, mirror, num_gradient_steps
from gwi._typing import Array

NUM_NAIVE = 32
# N_B and the epochs of the paper's protocol, and how often it may see as many images as the shared network: as the ensembles do.
PAPER_BATCH, PAPER_EPOCHS, PAPER_BUDGET = 1000, 100, 5


def post_hoc(
    kernel: Literal["features", "rbf"],
    *,
    layer: str = "auto",
    correct: bool = False,
    mirrored: bool = False,
    energy: bool = False,
) -> Method:
    """`GWIClassifier` around the shared network, which is frozen: a kernel on its features, or, for comparison, on pixels.

    Features are what goes into each convolution but the first and into the dense layer, each divided by its norm; *last features*
    has the latter alone. Logits are scaled, no more; with *corrected*, validation images may correct them. *mirrored* has as
    its mean the average of the network's logits for an image and its mirror image, `AveragedViews`. Its own score is `ood_score`;
    *with energy*, that and the energy of the logits together, `ood_score(X, energy=True)`.
    """

    def fit(problem: Problem) -> Fitted:
        network: nn.Module = copy.deepcopy(problem.shared.network)
        if mirrored:
            network = gwi.core.networks.AveragedViews(network, [mirror])
        part = gwi.Features(layer) if kernel == "features" else kernel
        model = classifier(problem, mean=gwi.Frozen(network, correct=correct), kernel=part)
        return fitted(model, {"kernel": kernel, "layer": layer, "mirrored": mirrored}, energy=energy)

    return fit


def naive(problem: Problem) -> Fitted:
    """As *gwi*, with the features that first come to mind: the last hidden layer, centred, its first 32 principal directions.

    Their lengths stay, and the length-scale is the median distance here too. It shows what the choice of features does.
    """
    network = copy.deepcopy(problem.shared.network)
    sample = problem.data.train_x[:1000]
    features = gwi.core.features.NetworkFeatures(network, "dense", centre=True, projection=NUM_NAIVE, sphere=False).fit(sample)
    with torch.no_grad():
        distance = float(torch.nn.functional.pdist(features(sample)).median())
    kernel = gwi.core.kernels.FeatureKernel(gwi.core.kernels.default_kernel(NUM_NAIVE, lengthscale=distance, ard=False), features)
    model = classifier(problem, mean=gwi.Frozen(network), kernel=kernel)
    return fitted(model, {"kernel": "dense, centred, 32 directions"})


def ensemble(problem: Problem) -> Fitted:
    """As *gwi*, with the deep ensemble's mean probabilities as its mean, `AveragedNetworks`; features are the shared network's.

    The fit's seconds are its own and those of the other four trainings.
    """
    others = other_members(problem)
    start = time.perf_counter()
    networks = [copy.deepcopy(problem.shared.network), *(other.network for other in others)]
    model = classifier(problem, mean=gwi.Frozen(gwi.core.networks.AveragedNetworks(networks)))
    seconds = time.perf_counter() - start + sum(other.seconds for other in others)
    return replace(fitted(model, {"networks": len(networks)}), seconds=seconds)


def joint(problem: Problem) -> Fitted:
    """`GWIClassifier` with the same network, untrained, as its mean: trained by the generalized loss with the softmax likelihood.

    By Adam, on shifted and mirrored images, in as many steps of as many images as the shared network. Its covariance is on pixels
    in training and then, in closed form, on the features that were learned, as that of *gwi*.
    """
    network, recipe = build(problem.recipe.architecture, seed=1000 * problem.seed), problem.recipe
    epochs = recipe.num_epochs
    model = classifier(problem, recipe.batch_size, mean=gwi.Joint(network, max_epochs=epochs), likelihood="softmax")
    return fitted(model, {"epochs": epochs}, uses_shared=False)


def paper(problem: Problem) -> Fitted:
    """GWI-net by the protocol of the paper's appendix with the same network, untrained: robust-max, M = √N, batches of 1,000.

    On shifted and mirrored images, in as many gradient steps as the shared network has, but at most the paper's 100 epochs and at
    most five times the shared network's: the cost of the ensembles.
    """
    network, num_images = build(problem.recipe.architecture, seed=1000 * problem.seed), len(problem.data.train_x)
    epochs, num_inducing = paper_epochs(problem), math.isqrt(num_images)
    mean, covariance = gwi.Paper(network, max_epochs=epochs), gwi.Covariance(num_inducing=num_inducing)
    model = classifier(problem, PAPER_BATCH, mean=mean, covariance=covariance)
    steps = epochs * math.ceil(num_images / PAPER_BATCH)
    return fitted(model, {"epochs": epochs, "steps": steps, "inducing": num_inducing}, uses_shared=False)


def paper_epochs(problem: Problem) -> int:
    """Epochs in which the paper's large batches make as many steps as the recipe, or the paper's, or those that may be spent."""
    num_images = len(problem.data.train_x)
    as_many = math.ceil(num_gradient_steps(problem.recipe, num_images) / math.ceil(num_images / PAPER_BATCH))
    return min(PAPER_EPOCHS, PAPER_BUDGET * problem.recipe.num_epochs, as_many)


def classifier(problem: Problem, augmented_batch: int | None = None, **options: Any) -> Any:
    """A fitted `GWIClassifier`; what trains a network gets batches of moved and mirrored images, as all networks do."""
    data = problem.data
    validation = (data.validation_x, data.validation_y.numpy())
    model = gwi.GWIClassifier(random_state=problem.seed, **options)
    if augmented_batch is None:
        return model.fit(data.train_x, data.train_y.numpy(), validation=validation)
    return model.fit(augmented_loader(data, problem.recipe, 1000 * problem.seed, augmented_batch), validation=validation)


def fitted(model: Any, settings: dict[str, Any], *, uses_shared: bool = True, energy: bool = False) -> Fitted:
    """With its probabilities and its own score in double precision, which arrays keep and single-precision tensors would not."""

    def predict(x: Tensor) -> Prediction:
        return Prediction(np.asarray(model.predict_proba(x.numpy()), np.float64))

    def score(x: Tensor) -> Array:
        return np.asarray(model.ood_score(x.numpy(), energy=energy), np.float64)

    return Fitted(
        predict, settings, score=score, score_name="ood_score with energy" if energy else "ood_score", uses_shared=uses_shared
    )
