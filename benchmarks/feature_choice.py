"""Which features of a frozen network tell outliers: several choices, on validation images and outliers that are in no test.

    python -m benchmarks.feature_choice

For each image set, the network of seed 0 and the share r/k that 300 inducing points leave of the prior variance: validation
images against training images of the other set, crops of photographs, digits and smooth noise. Z are centres of k-means but where
rows say otherwise. None of the outliers of the image
table takes part. Records go to results/feature_choice.csv.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits, load_sample_images
from torch import Tensor, nn

from benchmarks import records
from benchmarks.imagery.data import DATASETS, Data, DatasetName, load
from benchmarks.imagery.networks import SmallCNN
from benchmarks.imagery.protocol import one_thread
from benchmarks.imagery.training import RECIPES, in_batches, trained
from gwi import NetworkFeatures, default_kernel
from gwi.classification_metrics import entropy, score_ood
from gwi.inducing import Method, choose_inducing_points
from gwi.kernels import residual_variance, whitened_features
from gwi.linalg import cholesky
from gwi.measures import kernel_matrix, kernel_variance

NUM_OUTLIERS, NUM_INDUCING, NUM_SAMPLE = 2000, 300, 5000
Features = Callable[[SmallCNN], NetworkFeatures]
DEFAULT = "every layer (default)"
CHOICES: dict[str, Features] = {
    DEFAULT: lambda network: NetworkFeatures(network),
    "every layer, centred": lambda network: NetworkFeatures(network, centre=True),
    "every layer, lengths kept": lambda network: NetworkFeatures(network, sphere=False),
    "last block": lambda network: NetworkFeatures(network, "pool"),
    "last block, centred": lambda network: NetworkFeatures(network, "pool", centre=True),
    "last block, lengths kept": lambda network: NetworkFeatures(network, "pool", sphere=False),
    "dense layer": lambda network: NetworkFeatures(network, "dense"),
    "dense layer, centred, 32 directions, lengths kept": lambda network: NetworkFeatures(
        network, "dense", centre=True, projection=32, sphere=False
    ),
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
    return {"the other set": data.outliers["proxy"], **scaled}


@torch.no_grad()
def remaining(features: NetworkFeatures, data: Data, method: Method = "kmeans") -> Callable[[Tensor], Any]:
    """From images to r/k with S = 0, for a squared exponential at the median distance of training features."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randperm(len(data.train_x), generator=generator)[:NUM_SAMPLE]
    sample = in_batches(features.fit(data.train_x[rows[:1000]]), data.train_x[rows])
    kernel = default_kernel(sample.shape[1], lengthscale=float(nn.functional.pdist(sample[:1000]).median()), ard=False)
    z = choose_inducing_points(sample, NUM_INDUCING, method, kernel=kernel.requires_grad_(False), generator=generator)
    factor = cholesky(kernel_matrix(kernel, z), name="k(Z, Z)").factor

    def share(part: Tensor) -> Tensor:
        rows = features(part)
        left = residual_variance(kernel, rows, whitened_features(kernel, z, factor, rows))
        return left / kernel_variance(kernel, rows)

    return lambda x: in_batches(share, x).numpy()


def measure(name: DatasetName) -> Iterator[dict[str, Any]]:
    """One record for each choice and kind of outliers."""
    data = load(name)
    network = trained(data, RECIPES[name], 0).network
    others = outliers(data)
    scores: dict[str, Callable[[Tensor], Any]] = {
        "entropy of the network": lambda x: entropy(torch.softmax(in_batches(network, x).double(), -1).numpy())
    }
    for choice, build in CHOICES.items():
        scores[choice] = remaining(build(network), data)
    methods: tuple[Method, ...] = ("random", "greedy")
    for method in methods:
        scores[f"every layer, Z {method}"] = remaining(CHOICES[DEFAULT](network), data, method)
    for choice, score in scores.items():
        inside = score(data.validation_x)
        for kind, x in others.items():
            auroc = score_ood(inside, score(x)).auroc
            yield {"dataset": name, "choice": choice, "outliers": kind, "auroc": float(auroc)}


def main() -> None:
    with one_thread():
        records.write("feature_choice", (row for name in DATASETS for row in measure(name)))


if __name__ == "__main__":
    main()
