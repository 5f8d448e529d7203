"""Image sets: Fashion-MNIST, MNIST, a CIFAR-10 subset of 20,000 training images, and 10,000 test images of SVHN."""

from __future__ import annotations

import gzip
import io
import math
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from numpy.typing import NDArray
from scipy.io import loadmat
from torch import Tensor

from benchmarks.tables.common.data import Item, check_sha256

ImageName = Literal["fashion-mnist", "mnist", "cifar10-20k", "svhn-10k"]
PartName = Literal["train", "test"]

# Pixels of shape (N, C, H, W) and labels of shape (N,).
_Arrays = tuple[NDArray[Any], NDArray[Any]]

# The two files of a part in the format of MNIST.
_FILES = ("images-idx3", "labels-idx1")
# A record of the CIFAR-10 binary files: one label, then the red, green and blue planes.
_CIFAR_SHAPE = (3, 32, 32)
_CIFAR_RECORD = 1 + math.prod(_CIFAR_SHAPE)
_CIFAR_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@dataclass(frozen=True)
class LabelledImages:
    """Images and their classes.

    Attributes:
        x: pixels, channels first.
        y: classes, as places in the set's ``class_names``.
    """

    x: UInt8[Tensor, "N C H W"]
    y: Int64[Tensor, " N"]


@dataclass(frozen=True)
class Images:
    """An image set, whose parts are read when first asked for.

    Attributes:
        name: of the set.
        class_names: what the labels stand for.
    """

    name: ImageName
    class_names: tuple[str, ...]

    @cached_property
    def train(self) -> LabelledImages | None:
        """The training images; None where the set has none."""
        return _load(self.name, "train") if "train" in _SETS[self.name].parts else None

    @cached_property
    def test(self) -> LabelledImages:
        """The test images."""
        return _load(self.name, "test")


def load_images(name: ImageName) -> Images:
    """An image set by name; ``cifar10-20k`` has the first 20,000 training images of 50,000, ``svhn-10k`` only 10,000 test images.

    A part is read from ``$GWI_DATA/images``. Where the variable is not set or a file is absent, it is downloaded once and kept
    in ``$GWI_CACHE``, else in the user's folder for caches. Every pixel and label is covered by a checksum.

    Raises:
        ValueError: when there is no set of this name; on reading a part, when file or download hold other values than the set.
        ConnectionError: on reading a part, when there is neither the file nor a kept download, and the download fails.
    """
    if name not in _SETS:
        raise ValueError(f"There is no image set {name!r}; the sets are {', '.join(_SETS)}.")
    return Images(name, _SETS[name].class_names)


def decode_idx(data: bytes) -> NDArray[np.uint8]:
    """The array in an uncompressed idx file of unsigned bytes, the format of MNIST.

    Raises:
        ValueError: when the bytes are no such file, or more or fewer than its header announces.
    """
    # Two zeros, the code of the type, the number of axes; then their lengths as big-endian 32-bit integers.
    if len(data) < 4 or data[:3] != b"\x00\x00\x08" or data[3] == 0:
        raise ValueError(
            f"An idx file of unsigned bytes starts with 00 00 08 and the number of axes; this one starts with "
            f"{data[:4].hex(' ') or 'nothing'}."
        )
    start = 4 + 4 * data[3]
    if len(data) < start:
        raise ValueError(f"The header of an idx file with {data[3]} axes takes {start} bytes; this file has {len(data)}.")
    shape = [int.from_bytes(data[i : i + 4], "big") for i in range(4, start, 4)]
    if len(data) - start != math.prod(shape):
        announced = " × ".join(map(str, shape))
        raise ValueError(f"The idx file announces {announced} bytes; {len(data) - start} follow its header.")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape).copy()


def decode_cifar(data: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Pixels (N, 3, 32, 32) and labels of a batch of the binary version of CIFAR-10.

    Raises:
        ValueError: when the bytes are no whole number of images, or a label is no class.
    """
    if not data or len(data) % _CIFAR_RECORD:
        raise ValueError(f"A CIFAR-10 batch has {_CIFAR_RECORD} bytes an image; {len(data)} bytes are no whole number of images.")
    records = np.frombuffer(data, np.uint8).reshape(-1, _CIFAR_RECORD)
    y = records[:, 0].astype(np.int64)
    if y.max() >= len(_CIFAR_CLASSES):
        raise ValueError(f"The labels of a CIFAR-10 batch are 0 to {len(_CIFAR_CLASSES) - 1}; this one holds {y.max()}.")
    return records[:, 1:].reshape(-1, *_CIFAR_SHAPE).copy(), y


def _from_idx(contents: Sequence[bytes]) -> _Arrays:
    """Grey images and labels in two compressed idx files."""
    x, y = (decode_idx(gzip.decompress(content)) for content in contents)
    return x[:, None], y


def _from_archive(contents: Sequence[bytes]) -> _Arrays:
    """The members ``x`` and ``y`` of a NumPy archive."""
    # Not by numpy.load, whose answer to a foreign file is the advice to unpickle it.
    with zipfile.ZipFile(io.BytesIO(contents[0])) as archive, archive.open("x.npy") as x, archive.open("y.npy") as y:
        return np.lib.format.read_array(x, allow_pickle=False), np.lib.format.read_array(y, allow_pickle=False)


def _from_archive_channels_last(contents: Sequence[bytes]) -> _Arrays:
    """The members ``x`` and ``y`` of a NumPy archive, where the channels of ``x`` are its last axis."""
    x, y = _from_archive(contents)
    return np.moveaxis(x, -1, 1), y


def _from_cifar_tar(contents: Sequence[bytes], batches: Sequence[str]) -> _Arrays:
    """Batches in the compressed tar file of CIFAR-10, one after the other."""
    decoded = []
    with tarfile.open(fileobj=io.BytesIO(contents[0]), mode="r:gz") as archive:
        for batch in batches:
            file = archive.extractfile(f"cifar-10-batches-bin/{batch}.bin")
            if file is None:
                raise ValueError(f"{batch}.bin in the archive is no file")
            decoded.append(decode_cifar(file.read()))
    return np.concatenate([x for x, _ in decoded]), np.concatenate([y for _, y in decoded])


def _from_svhn_mat(contents: Sequence[bytes], num_images: int) -> _Arrays:
    """The first images of a MATLAB file with pixels ``X`` (H, W, C, N) and labels ``y`` (N, 1), where 10 stands for zero."""
    arrays = loadmat(io.BytesIO(contents[0]), variable_names=["X", "y"])
    y = arrays["y"].ravel()[:num_images]
    return arrays["X"][..., :num_images].transpose(3, 2, 0, 1), np.where(y == 10, 0, y)


@dataclass(frozen=True)
class _Part:
    """One part of a set: its two sources and what it holds.

    Attributes:
        place: of its file in the data folder; a star stands for images and labels in two files.
        decode: reads the contents of these files.
        address: of the public source, with a star likewise; parts of a set may share one.
        unpack: reads the contents of the download.
        shape: of the pixels.
        sha256: digest of the pixels, channels first, and then of the labels as little-endian 64-bit integers.
    """

    place: str
    decode: Callable[[Sequence[bytes]], _Arrays]
    address: str
    unpack: Callable[[Sequence[bytes]], _Arrays]
    shape: tuple[int, int, int, int]
    sha256: str


@dataclass(frozen=True)
class _Set:
    class_names: tuple[str, ...]
    parts: dict[PartName, _Part]


def _idx_part(folder: str, address: str, prefix: str, num_images: int, sha256: str) -> _Part:
    files = f"{prefix}-*-ubyte.gz"
    return _Part(f"images/{folder}/{files}", _from_idx, f"{address}/{files}", _from_idx, (num_images, 1, 28, 28), sha256)


def _cifar_part(file: str, batches: tuple[str, ...], num_images: int, sha256: str) -> _Part:
    place, address = f"images/cifar10/{file}", "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
    unpack = partial(_from_cifar_tar, batches=batches)
    return _Part(place, _from_archive_channels_last, address, unpack, (num_images, *_CIFAR_SHAPE), sha256)


_FASHION = ("fashion-mnist", "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion")
_MNIST = ("mnist", "https://ossci-datasets.s3.amazonaws.com/mnist")
_SVHN = "http://ufldl.stanford.edu/housenumbers/test_32x32.mat"
_SETS: dict[ImageName, _Set] = {
    "fashion-mnist": _Set(
        ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
        {
            "train": _idx_part(*_FASHION, "train", 60000, "1f243a60b4b748a44c48b9a6f6907be2a08bee3e4e226f0e86fbde8e147b745a"),
            "test": _idx_part(*_FASHION, "t10k", 10000, "9a494dc49efeb996f4076c469b31cd058152067b1594ba6ab85dd739fce3775e"),
        },
    ),
    "mnist": _Set(
        tuple("0123456789"),
        {
            "train": _idx_part(*_MNIST, "train", 60000, "d18cfd466eb143ac1097fde604dba9eec4116885869d04cc648b510949f9e88c"),
            "test": _idx_part(*_MNIST, "t10k", 10000, "a0863a96c44e5666edbb30c4071ee79ca0514c621e6349c5967fc78e7305c891"),
        },
    ),
    "cifar10-20k": _Set(
        _CIFAR_CLASSES,
        {
            "train": _cifar_part(
                "train_20k.npz",
                ("data_batch_1", "data_batch_2"),
                20000,
                "74ee19f6fe06bb91909a9fe41bb2903396941f2263d57db3fc82fc60bb145a3c",
            ),
            "test": _cifar_part(
                "test_10k.npz", ("test_batch",), 10000, "2c33b053d1cd726af8d86e174a96dd89d7000ba1412add026d68142375b89d51"
            ),
        },
    ),
    "svhn-10k": _Set(
        tuple("0123456789"),
        {
            "test": _Part(
                "images/svhn/test_first10k.npz",
                _from_archive_channels_last,
                _SVHN,
                partial(_from_svhn_mat, num_images=10000),
                (10000, 3, 32, 32),
                "bfd35e04fb613aa7feaac6139be5507eaa71a89136519d7fbd8e7b802588f9de",
            )
        },
    ),
}


def _load(name: ImageName, part_name: PartName) -> LabelledImages:
    """A part from the data folder, else from its public source."""
    part = _SETS[name].parts[part_name]
    item = Item("image set", name, part.place, part.address, _FILES)
    x, y = item.load(partial(_read, part, part.decode), partial(_read, part, part.unpack))
    return LabelledImages(torch.from_numpy(x), torch.from_numpy(y))


def _read(part: _Part, decode: Callable[[Sequence[bytes]], _Arrays], contents: Sequence[bytes]) -> _Arrays:
    """The arrays in files when they are those of the part, in the form that the checksum is taken of.

    Raises:
        ValueError: when they are not.
    """
    x, y = decode(contents)
    if x.dtype != np.uint8 or x.shape != part.shape:
        raise ValueError(f"{x.dtype} pixels of shape {x.shape} instead of uint8 {part.shape}")
    if not np.issubdtype(y.dtype, np.integer) or y.shape != part.shape[:1]:
        raise ValueError(f"{y.dtype} labels of shape {y.shape} instead of integers {part.shape[:1]}")
    x, y = np.ascontiguousarray(x), y.astype(np.int64)
    check_sha256(part.sha256, x, y)
    return x, y
