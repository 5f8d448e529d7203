"""Which features of a frozen network tell outliers: several choices, on validation images and outliers that are in no test.

    python -m benchmarks.studies.feature_choice

For each image set, its shared networks and the share r/k that the inducing points leave of the prior variance: validation images
against training images of the other set, crops of photographs, digits, smooth noise, and validation images in pieces that change
places. 300 centres of k-means and a squared exponential at the median distance of training features, but where rows say
otherwise. None of the outliers of the image table takes part. Records go to results/feature_choice.csv.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from sklearn.datasets import load_digits, load_sample_images
from torch import Tensor, nn

from benchmarks.tables.common import records
from benchmarks.tables.images.data import DATASETS, Data, DatasetName, load
from benchmarks.tables.images.networks import SmallCNN
from benchmarks.tables.images.protocol import one_thread
from benchmarks.tables.images.training import RECIPES, in_batches, trained
from gwi.core.features import NetworkFeatures
from gwi.core.inducing import Method, choose_inducing_points
from gwi.core.kernels import default_kernel, residual_variance, whitened_features
from gwi.core.linalg import cholesky
from gwi.core.measures import kernel_matrix, kernel_variance
from gwi.evaluation.classification import entropy, score_ood
from gwi.models.classification import UsualScores, energy

NUM_OUTLIERS, NUM_SAMPLE = 2000, 5000
# Networks of the image table: of its seeds.
SEEDS = (0, 1)
# Pieces to a side, of images whose pieces change places.
PIECES = 4


@dataclass(frozen=True)
class Choice:
    """Features, and what else the share depends on.

    Attributes:
        features: of a network.
        method: of choosing Z.
        num_inducing: M.
        scale: the length-scale in median distances.
        shape: of the kernel.
    """

    features: Callable[[SmallCNN], NetworkFeatures] = NetworkFeatures
    method: Method = "kmeans"
    num_inducing: int = 300
    scale: float = 1.0
    shape: type[Kernel] = RBFKernel


DEFAULT = "every layer (default)"
CHOICES: dict[str, Choice] = {
    DEFAULT: Choice(),
    "every layer, centred": Choice(lambda network: NetworkFeatures(network, centre=True)),
    "every layer, lengths kept": Choice(lambda network: NetworkFeatures(network, sphere=False)),
    "last block": Choice(lambda network: NetworkFeatures(network, "pool")),
    "last block, centred": Choice(lambda network: NetworkFeatures(network, "pool", centre=True)),
    "last block, lengths kept": Choice(lambda network: NetworkFeatures(network, "pool", sphere=False)),
    "dense layer": Choice(lambda network: NetworkFeatures(network, "dense")),
    "dense layer, centred, 32 directions, lengths kept": Choice(
        lambda network: NetworkFeatures(network, "dense", centre=True, projection=32, sphere=False)
    ),
    "every layer, Z random": Choice(method="random"),
    "every layer, Z greedy": Choice(method="greedy"),
    "every layer, 1,000 inducing points": Choice(num_inducing=1000),
    "every layer, half the length-scale": Choice(scale=0.5),
    "every layer, twice the length-scale": Choice(scale=2.0),
    "every layer, Matérn 5/2": Choice(shape=MaternKernel),
}


def photographs(size: int) -> Tensor:
    """Square crops of scikit-learn's two photographs, of one to eight times the size, shrunk to it; levels from 0 to 1."""
    rng, found = np.random.default_rng(0), []
    photos = load_sample_images().images
    for i in range(NUM_OUTLIERS):
        photo = photos[i % len(photos)]
        side = min(int(size * 2 ** rng.uniform(0, 3)), *photo.shape[:2])
        top, left = (rng.integers(0, photo.shape[axis] - side + 1) for axis in (0, 1))
        crop = torch.from_numpy(photo[top : top + side, left : left + side].copy()).permute(2, 0, 1)[None].float() / 255
        found.append(nn.functional.interpolate(crop, size=(size, size), mode="bilinear", antialias=True, align_corners=False))
    return torch.cat(found)


def white_digits(size: int) -> Tensor:
    """scikit-learn's digits, white on black."""
    shapes = torch.from_numpy(load_digits().images)[:, None].float() / 16
    return nn.functional.interpolate(shapes, size=(size, size), mode="bilinear", align_corners=False).expand(-1, 3, -1, -1)


def coloured_digits(size: int, generator: torch.Generator) -> Tensor:
    """The same, each in a colour on another."""
    shapes = white_digits(size)
    ink, paper = torch.rand(2, len(shapes), 3, 1, 1, generator=generator)
    return ink * shapes + paper * (1 - shapes)


def smooth_noise(size: int, generator: torch.Generator) -> Tensor:
    """Random colours on a grid of four by four, with smooth passages."""
    coarse = torch.rand(NUM_OUTLIERS, 3, 4, 4, generator=generator)
    return nn.functional.interpolate(coarse, size=(size, size), mode="bicubic", align_corners=False).clamp(0, 1)


def in_other_places(images: Tensor, generator: torch.Generator) -> Tensor:
    """Images cut into four by four pieces, which stand in another order, the same in all."""
    side = images.shape[-1] // PIECES
    pieces = images[..., : PIECES * side, : PIECES * side].unfold(2, side, side).unfold(3, side, side).flatten(2, 3)
    moved = pieces[:, :, torch.randperm(PIECES**2, generator=generator)].unflatten(2, (PIECES, PIECES))
    return moved.permute(0, 1, 2, 4, 3, 5).reshape(*images.shape[:2], PIECES * side, PIECES * side)


def outliers(data: Data) -> dict[str, Tensor]:
    """By name, scaled as the images of the set."""
    generator = torch.Generator().manual_seed(0)
    channels, size = data.train_x.shape[1], data.train_x.shape[2]
    made = {
        "photographs": photographs(size),
        "digits": white_digits(size),
        "coloured digits": coloured_digits(size, generator),
        "smooth noise": smooth_noise(size, generator),
    }
    # A level of 0 is `black`; that of 1 follows from the brightest pixel there is.
    white = data.train_x.amax(dim=(0, 2, 3))
    if channels == 1:
        grey = torch.tensor([0.299, 0.587, 0.114])[:, None, None]
        made = {name: (images * grey).sum(1, keepdim=True) for name, images in made.items()}
    scaled = {name: data.black[:, None, None] + images * (white - data.black)[:, None, None] for name, images in made.items()}
    shuffled = in_other_places(data.validation_x[:NUM_OUTLIERS], generator)
    return {"the other set": data.outliers["proxy"], **scaled, "pieces in other places": shuffled}


@torch.no_grad()
def remaining(choice: Choice, network: SmallCNN, data: Data) -> Callable[[Tensor], Any]:
    """From images to r/k with S = 0."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randperm(len(data.train_x), generator=generator)[:NUM_SAMPLE]
    features = choice.features(network).fit(data.train_x[rows[:1000]])
    sample = in_batches(features, data.train_x[rows])
    distance = choice.scale * float(nn.functional.pdist(sample[:1000]).median())
    kernel = default_kernel(sample.shape[1], lengthscale=distance, ard=False, shape=choice.shape)
    kernel.requires_grad_(False)
    z = choose_inducing_points(sample, choice.num_inducing, choice.method, kernel=kernel, generator=generator)
    factor = cholesky(kernel_matrix(kernel, z), name="k(Z, Z)").factor

    def share(part: Tensor) -> Tensor:
        rows = features(part)
        left = residual_variance(kernel, rows, whitened_features(kernel, z, factor, rows))
        return left / kernel_variance(kernel, rows)

    return lambda x: in_batches(share, x).numpy()


def measure(name: DatasetName, seed: int) -> Iterator[dict[str, Any]]:
    """One record for each choice and kind of outliers."""
    data = load(name)
    network = trained(data, RECIPES[name], seed).network
    others = outliers(data)
    scores: dict[str, Callable[[Tensor], Any]] = {
        "entropy of the network": lambda x: entropy(torch.softmax(in_batches(network, x).double(), -1).numpy()),
        "energy of the network": lambda x: energy(in_batches(network, x).double().mT).numpy(),
    }
    scores |= {named: remaining(choice, network, data) for named, choice in CHOICES.items()}
    both = [scores[DEFAULT], scores["energy of the network"]]
    share, energies = (torch.as_tensor(score(data.validation_x)) for score in both)
    usual = UsualScores.of(share, energies, torch.ones_like(share))
    scores["every layer, with energy"] = lambda x: usual.combined(*(torch.as_tensor(score(x)) for score in both)).numpy()
    for choice, score in scores.items():
        inside = score(data.validation_x)
        for kind, x in others.items():
            auroc = score_ood(inside, score(x)).auroc
            yield {"dataset": name, "seed": seed, "choice": choice, "outliers": kind, "auroc": float(auroc)}


def main() -> None:
    with one_thread():
        records.write("feature_choice", (row for name in DATASETS for seed in SEEDS for row in measure(name, seed)))


if __name__ == "__main__":
    main()
