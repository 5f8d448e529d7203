"""Methods that need no training but the networks' own: MAP and its calibrations, ensembles, and scores for outliers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar
from torch import Tensor, nn

import gwi.core.features
import gwi.core.networks
from benchmarks.tables.images.interface import Fitted, Method, Prediction, Problem, mixed, softmax
from benchmarks.tables.images.networks import SmallCNN
from benchmarks.tables.images.training import Trained, in_batches, mirror, trained
from gwi._typing import Array

NUM_MEMBERS = 5
# Training images for each neighbour: Sun et al. (2022) take k = 50 of CIFAR-10's 50,000; here it is 50 of 55,000.
IMAGES_PER_NEIGHBOUR = 1100
# Distances are taken of so many queries at a time.
NUM_QUERIES = 500
# Of the last layer's ridge, an image; the strongest leaves temperature scaling. Judged on so many folds of the validation images.
PENALTIES = tuple(10 ** (i / 2) for i in range(2, -13, -1))
NUM_FOLDS = 5


def map_estimate(problem: Problem) -> Fitted:
    """The shared network's softmax."""
    network = problem.shared.network
    return Fitted(lambda x: Prediction(softmax(in_batches(network, x))), {})


def temperature_scaling(problem: Problem) -> Fitted:
    """The shared network's logits divided by one temperature, that of the least NLL on validation images (Guo et al., 2017)."""
    return at_best_temperature(problem.shared.network, problem)


def mirrored_temperature_scaling(problem: Problem) -> Fitted:
    """As *MAP, temperature*, with the average of the shared network's logits for an image and its mirror image."""
    return at_best_temperature(gwi.core.networks.AveragedViews(problem.shared.network, [mirror]), problem)


def at_best_temperature(network: nn.Module, problem: Problem) -> Fitted:
    """A network whose logits are divided by the temperature of the least NLL on validation images."""
    temperature = best_temperature(in_batches(network, problem.data.validation_x), problem.data.validation_y)
    return Fitted(lambda x: Prediction(softmax(in_batches(network, x) / temperature)), {"temperature": temperature})


def best_temperature(logits: Tensor, y: Tensor) -> float:
    """The divisor of logits, between e⁻³ and e³, with the least cross-entropy."""
    logits = logits.double()

    def nll(log_temperature: float) -> float:
        return nn.functional.cross_entropy(logits / np.exp(log_temperature), y).item()

    return float(np.exp(minimize_scalar(nll, bounds=(-3.0, 3.0), method="bounded", options={"xatol": 1e-6}).x))


def refitted_last_layer(problem: Problem) -> Fitted:
    """The last layer of the shared network, refitted to the validation images: multinomial logistic regression on its inputs.

    A ridge draws it to the network's own last layer at its best temperature, so that temperature scaling is where it starts; of
    15 penalties, from 10⁻⁶ to 10 an image, that with the least NLL in five folds of the validation images.
    """
    network, data = problem.shared.network, problem.data
    features, y = with_ones(in_batches(network.features, data.validation_x)), data.validation_y.numpy()
    bias = network.output.bias
    assert bias is not None
    start = torch.cat([network.output.weight, bias[:, None]], dim=1).detach().double().numpy()
    # Validation images come in random order.
    fold = np.arange(len(y)) % NUM_FOLDS
    nll = np.zeros(len(PENALTIES))
    for k in range(NUM_FOLDS):
        layers = refitted(features[fold != k], y[fold != k], start)
        nll += [cross_entropy(features[fold == k] @ layer.T, y[fold == k]) * (fold == k).mean() for layer in layers]
    best = int(nll.argmin())
    layer = refitted(features, y, start)[best]

    def predict(x: Tensor) -> Prediction:
        return Prediction(softmax(torch.from_numpy(with_ones(in_batches(network.features, x)) @ layer.T)))

    return Fitted(predict, {"penalty": PENALTIES[best], "nll_of_folds": float(nll[best])})


def with_ones(features: Tensor) -> Array:
    """Features in double precision, with a column of ones for the bias."""
    return nn.functional.pad(features.double(), (0, 1), value=1.0).numpy()


def cross_entropy(logits: Array, y: NDArray[np.int64]) -> float:
    """The mean over rows."""
    return nn.functional.cross_entropy(torch.from_numpy(logits), torch.from_numpy(y)).item()


def refitted(features: Array, y: NDArray[np.int64], start: Array) -> list[Array]:
    """The weights (J, D) with the least mean cross-entropy plus λ/2 of their squared distance to the start, for each penalty λ.

    The start is first brought to its best temperature on these rows.
    """
    x, labels = torch.from_numpy(features), torch.from_numpy(y)
    own = start / best_temperature(torch.from_numpy(features @ start.T), labels)

    def objective(flat: Array, penalty: float) -> tuple[float, Array]:
        layer = torch.from_numpy(flat.reshape(start.shape)).requires_grad_(True)
        away = (layer - torch.from_numpy(own)).square().sum()
        loss = nn.functional.cross_entropy(x @ layer.T, labels) + penalty / 2 * away
        (gradient,) = torch.autograd.grad(loss, layer)
        return loss.item(), gradient.numpy().ravel()

    found, last = [], own.ravel()
    for penalty in PENALTIES:
        # From the strongest on, each begins where the one before ended.
        last = minimize(objective, last, args=(penalty,), jac=True, method="L-BFGS-B", options={"maxiter": 300}).x
        found.append(last.reshape(start.shape))
    return found


def deep_ensemble(problem: Problem) -> Fitted:
    """Mean probabilities of five networks that differ in their seed (Lakshminarayanan et al., 2017); the first is the shared one.

    Its own score is the mutual information of label and network. The fit's seconds are those of the other four trainings.
    """
    others = other_members(problem)
    networks = [problem.shared.network, *(other.network for other in others)]

    def predict(x: Tensor) -> Prediction:
        return mixed(np.stack([softmax(in_batches(network, x)) for network in networks]))

    seconds = sum(other.seconds for other in others)
    return Fitted(predict, {"networks": NUM_MEMBERS}, score_name="mutual information", seconds=seconds)


def other_members(problem: Problem) -> list[Trained]:
    """The networks of the ensembles but for the first, which is the shared one."""
    return [trained(problem.data, problem.recipe, problem.seed, member=i) for i in range(1, NUM_MEMBERS)]


def scaled_ensemble(problem: Problem) -> Fitted:
    """The deep ensemble at one temperature: the logarithms of its mean probabilities are divided by it.

    It is that of the least NLL on validation images. First the mean and then the temperature, which is the better order (Rahaman
    and Thiery, 2021). Its own score is the ensemble's.
    """
    plain, data = deep_ensemble(problem), problem.data
    start = time.perf_counter()
    temperature = best_temperature(log_mean(plain.predict(data.validation_x)), data.validation_y)
    assert plain.seconds is not None
    seconds = plain.seconds + time.perf_counter() - start

    def predict(x: Tensor) -> Prediction:
        found = plain.predict(x)
        return replace(found, probabilities=softmax(log_mean(found) / temperature))

    return replace(plain, predict=predict, settings={**plain.settings, "temperature": temperature}, seconds=seconds)


def log_mean(prediction: Prediction) -> Tensor:
    """Logarithms of the probabilities, as logits; where one is zero, of the least number there is."""
    return torch.from_numpy(np.log(np.maximum(prediction.probabilities, np.finfo(np.float64).tiny)))


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


def nearest_neighbours(layers: Literal["dense", "pool", "all"]) -> Method:
    """The shared network's softmax; outliers by the distance to the k-th nearest training image (Sun et al., 2022).

    Features are those before the last layer, divided by their norm; *pooled*, the averages of the last block before the dense
    layer; *all layers*, those of *gwi*. k is one of 1,100 training images, 50 for Fashion-MNIST.
    """

    def fit(problem: Problem) -> Fitted:
        network = problem.shared.network
        if layers == "all":
            watched = gwi.core.features.NetworkFeatures(network).fit(problem.data.train_x[:100])
            return by_neighbours(problem, lambda x: watched(x).float(), layers)
        features = partial(pooled_features, network) if layers == "pool" else network.features
        return by_neighbours(problem, features, layers)

    return fit


def with_energy(method: Method) -> Method:
    """As *kNN distance, all layers*; outliers by the sum of the distance and the energy of the shared network's logits.

    Each is in standard deviations from its mean at the validation images, as in *gwi, with energy*.
    """

    def fit(problem: Problem) -> Fitted:
        found = method(problem)
        assert found.score is not None
        both = (found.score, lambda x: energy(in_batches(problem.shared.network, x)))
        usual = [(part.mean(), part.std()) for part in (own(problem.data.validation_x) for own in both)]

        def score(x: Tensor) -> Array:
            distance, logits = ((own(x) - centre) / spread for own, (centre, spread) in zip(both, usual, strict=True))
            return np.asarray(distance + logits)

        return replace(found, score=score, score_name=f"{found.score_name} with energy")

    return fit


def pooled_features(network: SmallCNN, x: Tensor) -> Tensor:
    """What the dense layer sees, (N, averages)."""
    return network.pool(network.blocks(x))


def by_neighbours(problem: Problem, features: Callable[[Tensor], Tensor], name: str) -> Fitted:
    """The shared network, with the distance to a neighbour in the features as score."""
    bank = normalised(in_batches(features, problem.data.train_x))
    k = max(1, round(len(bank) / IMAGES_PER_NEIGHBOUR))

    def score(x: Tensor) -> Array:
        return kth_distance(normalised(in_batches(features, x)), bank, k)

    predict = partial(_softmax_of, problem.shared.network)
    return Fitted(predict, {"k": k, "features": name}, score=score, score_name="distance")


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
