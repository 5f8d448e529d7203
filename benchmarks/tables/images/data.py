"""The two problems of the image table: training, validation and test images, and three sets of outliers for each.

The outliers are

- ``main``: the pair of the literature, MNIST for Fashion-MNIST and SVHN for CIFAR-10;
- ``hard``: the test images themselves, turned by 90° and blurred: see `turned_and_blurred`;
- ``proxy``: the only outliers that a choice may look at, see `proxy_outliers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.tables.images.sets import ImageName, Images, LabelledImages, load_images

DatasetName = Literal["fashion-mnist", "cifar10-20k"]
OutlierName = Literal["main", "hard", "proxy"]
DATASETS: tuple[DatasetName, ...] = get_args(DatasetName)
OUTLIERS: tuple[OutlierName, ...] = get_args(OutlierName)
# Of the training images, set apart for whatever a method chooses after training.
NUM_VALIDATION = {"fashion-mnist": 5_000, "cifar10-20k": 2_000}
MAIN_OUTLIERS: dict[DatasetName, ImageName] = {"fashion-mnist": "mnist", "cifar10-20k": "svhn-10k"}
PROXY_SOURCE: dict[DatasetName, DatasetName] = {"fashion-mnist": "cifar10-20k", "cifar10-20k": "fashion-mnist"}
NUM_PROXY = 2_000
# A small version for tests: training, validation, and each other set.
QUICK_SIZES = (128, 64, 32)
# Red, green and blue in a grey level (ITU-R BT.601).
_GREY = torch.tensor([0.299, 0.587, 0.114])
# Binomial, with a standard deviation of one pixel. Sums of bytes by it are whole numbers below 2²⁴: exact in float32.
_BLUR = torch.tensor([1.0, 4.0, 6.0, 4.0, 1.0])


@dataclass(frozen=True)
class Data:
    """Images of one problem, every channel with mean zero and unit variance over the training images.

    Attributes:
        name: of the set.
        train_x: images (N, C, H, W) to learn from.
        train_y: their classes.
        validation_x: images to choose by.
        validation_y: their classes.
        test_x: images to be judged by.
        test_y: their classes.
        outliers: images of no class, or of a class but as no training image shows it.
        black: the value of a black pixel in each channel.
    """

    name: DatasetName
    train_x: Tensor
    train_y: Tensor
    validation_x: Tensor
    validation_y: Tensor
    test_x: Tensor
    test_y: Tensor
    outliers: Mapping[OutlierName, Tensor]
    black: Tensor


@lru_cache(maxsize=1)
def load(name: DatasetName, *, quick: bool = False) -> Data:
    """A problem; its validation images are the last of a fixed random permutation of the training images, for every seed."""
    images = _images(name)
    num_train, num_validation, num_others = QUICK_SIZES if quick else (None, NUM_VALIDATION[name], None)
    all_train, test = _train(name), images.test
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(all_train.x)))
    learn, judge = order[:-num_validation][:num_train], order[-num_validation:]
    mean, std = moments(all_train.x[learn])

    def scaled(x: Tensor) -> Tensor:
        return (x.float() / 255 - mean[:, None, None]) / std[:, None, None]

    test_x = test.x[:num_others]
    outliers: dict[OutlierName, Tensor] = {
        "main": scaled(_images(MAIN_OUTLIERS[name]).test.x[:num_others]),
        "hard": scaled(turned_and_blurred(test_x)),
        "proxy": scaled(proxy_outliers(name)[:num_others]),
    }
    return Data(
        name,
        scaled(all_train.x[learn]),
        all_train.y[learn],
        scaled(all_train.x[judge]),
        all_train.y[judge],
        scaled(test_x),
        test.y[:num_others],
        outliers,
        -mean / std,
    )


def moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel of byte images, on the scale from 0 to 1."""
    levels = torch.arange(256, dtype=torch.float64) / 255
    shares = torch.stack([torch.bincount(channel.flatten(), minlength=256) for channel in x.unbind(1)]).double()
    shares /= shares.sum(1, keepdim=True)
    mean = shares @ levels
    variance = (shares @ levels.square()) - mean.square()
    return mean.float(), variance.sqrt().float()


def turned_and_blurred(x: Tensor) -> Tensor:
    """The images by a quarter turn against the clock, and blurred by a binomial kernel of five pixels in each direction.

    Nothing but orientation and sharpness tells them from the test images: colours, objects and backgrounds are the same. The
    networks are trained with shifts and mirror images but no turns; how many of these images they still name rightly is
    ``hard_accuracy`` in the records, and of the others a user would want to be warned. A held-out class would need networks of
    its own. All is done in whole numbers, so the images are the same on every machine.
    """
    turned = torch.rot90(x, 1, (2, 3)).float()
    n, c, h, w = turned.shape
    padded = nn.functional.pad(turned.reshape(n * c, 1, h, w), (2, 2, 2, 2), mode="reflect")
    blurred = nn.functional.conv2d(nn.functional.conv2d(padded, _BLUR[None, None, :, None]), _BLUR[None, None, None, :])
    # To the nearest of 256ths, halves upwards.
    return ((blurred.round().int() + 128) // 256).to(torch.uint8).reshape(n, c, h, w)


def proxy_outliers(name: DatasetName) -> Tensor:
    """Outliers that choices may look at, so that they never look at the outliers of the test.

    They are training images of the other problem in the shape of this one: for Fashion-MNIST grey CIFAR-10 images, shrunk from
    32 to 28 pixels; for CIFAR-10 Fashion-MNIST images with a black border of two pixels and three equal channels. Neither MNIST
    nor SVHN, nor a test image of any set, is among them.
    """
    x = _train(PROXY_SOURCE[name]).x[:NUM_PROXY]
    if name == "cifar10-20k":
        return nn.functional.pad(x, (2, 2, 2, 2)).expand(-1, 3, -1, -1).contiguous()
    grey = (x.float() * _GREY[:, None, None]).sum(1, keepdim=True)
    shrunk = nn.functional.interpolate(grey, size=(28, 28), mode="bilinear", antialias=True, align_corners=False)
    return shrunk.round().clamp(0, 255).to(torch.uint8)


@lru_cache
def _images(name: ImageName) -> Images:
    # An image set reads its files once; both problems want the CIFAR-10 and the Fashion-MNIST files.
    return load_images(name)


def _train(name: DatasetName) -> LabelledImages:
    train = _images(name).train
    assert train is not None
    return train
