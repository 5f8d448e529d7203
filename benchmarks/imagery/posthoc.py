"""Methods that need no training but the networks' own: MAP, temperature, ensemble, and two scores for outliers."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor, nn

from benchmarks.imagery.interface import Fitted, Prediction, Problem, mixed, softmax
from benchmarks.imagery.training import in_batches, trained
from gwi.scaling import Array

NUM_MEMBERS = 5
# Training images for each neighbour: Sun et al. (2022) take k = 50 of CIFAR-10's 50,000; here it is 50 of 55,000.
IMAGES_PER_NEIGHBOUR = 1100
# Distances are taken of so many queries at a time.
NUM_QUERIES = 500


def map_estimate(problem: Problem) -> Fitted:
    """The shared network's softmax."""
    network = problem.shared.network
    return Fitted(lambda x: Prediction(softmax(in_batches(network, x))), {})


def temperature_scaling(problem: Problem) -> Fitted:
    """The shared network's logits divided by one temperature, that of the least NLL on validation images (Guo et al., 2017)."""
    network, data = problem.shared.network, problem.data
    temperature = best_temperature(in_batches(network, data.validation_x), data.validation_y)
    return Fitted(lambda x: Prediction(softmax(in_batches(network, x) / temperature)), {"temperature": temperature})


def best_temperature(logits: Tensor, y: Tensor) -> float:
    """The divisor of logits, between e⁻³ and e³, with the least cross-entropy."""
    logits = logits.double()

    def nll(log_temperature: float) -> float:
        return nn.functional.cross_entropy(logits / np.exp(log_temperature), y).item()

    return float(np.exp(minimize_scalar(nll, bounds=(-3.0, 3.0), method="bounded", options={"xatol": 1e-6}).x))


def deep_ensemble(problem: Problem) -> Fitted:
    """Mean probabilities of five networks that differ in their seed (Lakshminarayanan et al., 2017); the first is the shared one.

    Its own score is the mutual information of label and network. The fit's seconds are those of the other four trainings.
    """
    others = [trained(problem.data, problem.recipe, problem.seed, member=i) for i in range(1, NUM_MEMBERS)]
    networks = [problem.shared.network, *(other.network for other in others)]

    def predict(x: Tensor) -> Prediction:
        return mixed(np.stack([softmax(in_batches(network, x)) for network in networks]))

    seconds = sum(other.seconds for other in others)
    return Fitted(predict, {"networks": NUM_MEMBERS}, score_name="mutual information", seconds=seconds)


def energy_score(problem: Problem) -> Fitted:
    """The shared network's softmax; outliers by the energy, −log Σ exp of its logits (Liu et al., 2020)."""
    network = problem.shared.network

    def predict(x: Tensor) -> Prediction:
        logits = in_batches(network, x)
        return Prediction(softmax(logits), energy(logits))

    return Fitted(predict, {"temperature": 1.0}, score_name="energy")


def energy(logits: Tensor) -> Array:
    """−log Σ_j e^{f_j} of each row: higher where no class has a large logit."""
    return -logits.double().logsumexp(-1).numpy()


def nearest_neighbours(problem: Problem) -> Fitted:
    """The shared network's softmax; outliers by the distance to the k-th nearest training image (Sun et al., 2022).

    Features are those before the last layer, divided by their norm; k is one of 1,100 training images, 50 for Fashion-MNIST.
    """
    network = problem.shared.network
    bank = normalised(in_batches(network.features, problem.data.train_x))
    k = max(1, round(len(bank) / IMAGES_PER_NEIGHBOUR))

    def score(x: Tensor) -> Array:
        return kth_distance(normalised(in_batches(network.features, x)), bank, k)

    predict = partial(_softmax_of, network)
    return Fitted(predict, {"k": k, "features": "dense"}, score=score, score_name="distance")


def _softmax_of(network: nn.Module, x: Tensor) -> Prediction:
    return Prediction(softmax(in_batches(network, x)))


def normalised(features: Tensor) -> Tensor:
    """Of norm one; nothing stays nothing."""
    return nn.functional.normalize(features, dim=1)


def kth_distance(queries: Tensor, bank: Tensor, k: int) -> Array:
    """The distance of each query to its k-th nearest row of the bank; all rows have norm one."""
    # Of unit vectors the nearest have the largest products.
    found = [(part @ bank.T).topk(k, dim=1).values[:, -1] for part in queries.split(NUM_QUERIES)]
    return (2 - 2 * torch.cat(found).double()).clamp_min(0.0).sqrt().numpy()
