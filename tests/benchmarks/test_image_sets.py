"""Image sets are the same pixels from files, from downloads and from the cache, and nothing else is taken for them."""

import dataclasses
import gzip
import io
import tarfile
import zipfile
from functools import partial
from typing import get_args

import numpy as np
import pytest
import torch
from benchmarks.tables.common.data import sha256
from benchmarks.tables.images import sets
from benchmarks.tables.images.sets import ImageName, decode_cifar, decode_idx, load_images
from scipy.io import savemat

from public_source import go_offline, go_online

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (5, 1, 4, 3), dtype=np.uint8)
LABELS = np.array([3, 0, 9, 1, 1])
COLOUR = RNG.integers(0, 256, (4, 3, 32, 32), dtype=np.uint8)
CLASSES = np.array([9, 0, 4, 7])


def idx(array):
    header = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    return header + array.astype(np.uint8).tobytes()


def cifar_batch(x, y):
    return b"".join(bytes([label]) + image.tobytes() for image, label in zip(x, y, strict=True))


def cifar_tar(batches):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in batches.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def npz(compression=zipfile.ZIP_LZMA, **arrays):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, array)
    return buffer.getvalue()


def channels_last(x):
    return np.moveaxis(x, 1, -1).copy()


def mat(x, y):
    buffer = io.BytesIO()
    savemat(buffer, {"X": x.transpose(2, 3, 1, 0), "y": np.where(y == 0, 10, y).astype(np.uint8)[:, None]})
    return buffer.getvalue()


IDX_FILES = {
    "t10k-images-idx3-ubyte.gz": gzip.compress(idx(GREY[:, 0])),
    "t10k-labels-idx1-ubyte.gz": gzip.compress(idx(LABELS)),
}
CIFAR_FILES = {
    "cifar-10-binary.tar.gz": cifar_tar(
        {
            "data_batch_1": cifar_batch(COLOUR[:1], CLASSES[:1]),
            "data_batch_2": cifar_batch(COLOUR[1:3], CLASSES[1:3]),
            "test_batch": cifar_batch(COLOUR[3:], CLASSES[3:]),
        }
    )
}
# One more image than is wanted.
SVHN_FILES = {"test_32x32.mat": mat(COLOUR, CLASSES)}


def expect(monkeypatch, name, part, x, y, **changes):
    """Let these few images be the part of a set."""
    parts = sets._SETS[name].parts
    monkeypatch.setitem(
        parts, part, dataclasses.replace(parts[part], shape=x.shape, sha256=sha256(x, y.astype("<i8")), **changes)
    )


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """The folder of the cache; a few images go by the names of the sets; no data folder, no network."""
    expect(monkeypatch, "mnist", "test", GREY, LABELS)
    expect(monkeypatch, "cifar10-20k", "train", COLOUR[:3], CLASSES[:3])
    expect(monkeypatch, "cifar10-20k", "test", COLOUR[3:], CLASSES[3:])
    expect(monkeypatch, "svhn-10k", "test", COLOUR[:3], CLASSES[:3], unpack=partial(sets._from_svhn_mat, num_images=3))
    monkeypatch.delenv("GWI_DATA", raising=False)
    monkeypatch.setenv("GWI_CACHE", str(tmp_path / "cache"))
    go_offline(monkeypatch)
    return tmp_path / "cache" / "images"


@pytest.fixture
def data_folder(monkeypatch, tmp_path, cache):
    for folder in ("mnist", "cifar10", "svhn"):
        (tmp_path / "data" / "images" / folder).mkdir(parents=True)
    monkeypatch.setenv("GWI_DATA", str(tmp_path / "data"))
    return tmp_path / "data" / "images"


def read(name, part="test"):
    return getattr(load_images(name), part)


def assert_holds(part, x, y):
    assert part.x.dtype == torch.uint8
    assert part.y.dtype == torch.int64
    assert part.x.is_contiguous()
    np.testing.assert_array_equal(part.x.numpy(), x)
    np.testing.assert_array_equal(part.y.numpy(), y)


@pytest.mark.parametrize("array", [LABELS, GREY[:, 0], GREY, np.empty((0, 28, 28))], ids=lambda array: str(array.shape))
def test_an_idx_file_holds_the_array_it_was_made_of(array):
    decoded = decode_idx(idx(array))
    assert decoded.dtype == np.uint8
    assert decoded.flags.writeable
    np.testing.assert_array_equal(decoded, array)


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"", "starts with nothing"),
        (b"\x00\x00\x08", "starts with 00 00 08"),
        (IDX_FILES["t10k-labels-idx1-ubyte.gz"], "starts with 1f 8b 08 00"),
        (b"\x00\x00\x0d\x01\x00\x00\x00\x01\x00\x00\x00\x00", "starts with 00 00 0d 01"),
        (b"\x00\x00\x08\x00\x07", "starts with 00 00 08 00"),
        (idx(GREY[:, 0])[:14], "with 3 axes takes 16 bytes; this file has 14"),
        (idx(GREY[:, 0])[:-1], "announces 5 × 4 × 3 bytes; 59 follow"),
        (idx(GREY[:, 0]) + b"\n", "announces 5 × 4 × 3 bytes; 61 follow"),
        (b"\x00\x00\x08\x02\xff\xff\xff\xff\xff\xff\xff\xff", "announces 4294967295 × 4294967295 bytes; 0 follow"),
    ],
    ids=["empty", "three bytes", "compressed", "floats", "no axes", "header cut off", "cut off", "one too many", "giant"],
)
def test_other_bytes_are_no_idx_file(data, match):
    with pytest.raises(ValueError, match=match) as caught:
        decode_idx(data)
    assert str(caught.value).endswith(".")


def test_a_cifar_batch_holds_labels_and_planes_of_colour():
    x, y = decode_cifar(cifar_batch(COLOUR, CLASSES))
    np.testing.assert_array_equal(x, COLOUR)
    np.testing.assert_array_equal(y, CLASSES)
    assert (x.dtype, y.dtype) == (np.uint8, np.int64)


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"", "0 bytes are no whole number"),
        (cifar_batch(COLOUR, CLASSES)[:-1], "12291 bytes are no whole number"),
        (cifar_batch(COLOUR, [1, 2, 10, 3]), "labels of a CIFAR-10 batch are 0 to 9; this one holds 10"),
    ],
    ids=["empty", "cut off", "no such class"],
)
def test_other_bytes_are_no_cifar_batch(data, match):
    with pytest.raises(ValueError, match=match):
        decode_cifar(data)


def test_mnist_is_downloaded_a_part_at_a_time(monkeypatch, cache):
    source = go_online(monkeypatch, IDX_FILES)
    assert_holds(load_images("mnist").test, GREY, LABELS)
    assert source.addresses == [f"https://ossci-datasets.s3.amazonaws.com/mnist/{name}" for name in IDX_FILES]
    assert {path.name: path.read_bytes() for path in (cache / "mnist").iterdir()} == IDX_FILES


def test_one_download_of_cifar_serves_both_parts(monkeypatch, cache):
    source = go_online(monkeypatch, CIFAR_FILES)
    subset = load_images("cifar10-20k")
    assert_holds(subset.train, COLOUR[:3], CLASSES[:3])
    assert_holds(subset.test, COLOUR[3:], CLASSES[3:])
    assert source.addresses == ["https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"]
    assert {path.name: path.read_bytes() for path in (cache / "cifar10-20k").iterdir()} == CIFAR_FILES


def test_svhn_is_its_first_test_images_with_zero_as_label_zero(monkeypatch, cache):
    go_online(monkeypatch, SVHN_FILES)
    svhn = load_images("svhn-10k")
    assert 0 in CLASSES[:3]
    assert_holds(svhn.test, COLOUR[:3], CLASSES[:3])
    assert svhn.train is None


def test_a_part_is_read_once_and_only_when_asked_for(monkeypatch, cache):
    source = go_online(monkeypatch, IDX_FILES)
    mnist = load_images("mnist")
    assert source.addresses == []
    assert mnist.test is mnist.test
    assert len(source.addresses) == 2


def test_the_second_time_the_cache_is_read_without_network(monkeypatch, cache):
    go_online(monkeypatch, SVHN_FILES | IDX_FILES)
    for name in ("svhn-10k", "mnist"):
        read(name)
    go_offline(monkeypatch)
    assert_holds(load_images("svhn-10k").test, COLOUR[:3], CLASSES[:3])
    assert_holds(load_images("mnist").test, GREY, LABELS)


@pytest.mark.parametrize(
    "labels",
    [b"", gzip.compress(idx(LABELS))[:-9], idx(LABELS), gzip.compress(idx(LABELS[::-1]))],
    ids=["empty", "cut off", "not compressed", "order of labels"],
)
def test_a_damaged_cached_file_is_downloaded_again(monkeypatch, cache, labels):
    (cache / "mnist").mkdir(parents=True)
    for name, content in (IDX_FILES | {"t10k-labels-idx1-ubyte.gz": labels}).items():
        (cache / "mnist" / name).write_bytes(content)
    with pytest.raises(ConnectionError):
        read("mnist")
    source = go_online(monkeypatch, IDX_FILES)
    assert_holds(load_images("mnist").test, GREY, LABELS)
    assert_holds(load_images("mnist").test, GREY, LABELS)
    assert len(source.addresses) == 2


WRONG_DOWNLOADS = {
    "log-in page": ("mnist", dict.fromkeys(IDX_FILES, b"<html>Please log in</html>")),
    "not compressed": ("mnist", IDX_FILES | {"t10k-labels-idx1-ubyte.gz": idx(LABELS)}),
    "cut off": ("mnist", IDX_FILES | {"t10k-images-idx3-ubyte.gz": IDX_FILES["t10k-images-idx3-ubyte.gz"][:-9]}),
    "labels": ("mnist", IDX_FILES | {"t10k-labels-idx1-ubyte.gz": gzip.compress(idx(LABELS[::-1]))}),
    "swapped": ("mnist", dict(zip(IDX_FILES, reversed(IDX_FILES.values()), strict=True))),
    "no batch": ("cifar10-20k", {"cifar-10-binary.tar.gz": cifar_tar({"data_batch_1": cifar_batch(COLOUR[:1], CLASSES[:1])})}),
    "no tar": ("cifar10-20k", {"cifar-10-binary.tar.gz": gzip.compress(b"no tar")}),
    "tar cut off": ("cifar10-20k", {"cifar-10-binary.tar.gz": CIFAR_FILES["cifar-10-binary.tar.gz"][:5000]}),
    "no mat": ("svhn-10k", {"test_32x32.mat": b"MATLAB 7.3 MAT-file"}),
    "mat cut off": ("svhn-10k", {"test_32x32.mat": SVHN_FILES["test_32x32.mat"][:-400]}),
    "too few": ("svhn-10k", {"test_32x32.mat": mat(COLOUR[:2], CLASSES[:2])}),
}


@pytest.mark.parametrize("case", WRONG_DOWNLOADS)
def test_a_download_of_something_else_is_refused_and_not_kept(monkeypatch, cache, case):
    name, files = WRONG_DOWNLOADS[case]
    go_online(monkeypatch, files)
    with pytest.raises(
        ValueError, match=rf"not the image set '{name}' \(.+\); .*GWI_DATA to a folder that holds images/.*\.$"
    ) as caught:
        read(name)
    assert "\n" not in str(caught.value)
    assert [path for path in cache.rglob("*") if path.is_file()] == []


def test_without_network_one_sentence_says_what_was_tried_and_what_helps(cache):
    with pytest.raises(ConnectionError) as caught:
        read("mnist", "train")
    message = str(caught.value)
    for part in (
        "$GWI_DATA/images/mnist/train-*-ubyte.gz",
        "amazonaws.com/mnist/train-*-ubyte.gz",
        "(no connection)",
        "go online",
    ):
        assert part in message
    assert "\n" not in message
    assert ". " not in message


def test_files_in_the_data_folder_are_read_and_not_kept_again(monkeypatch, cache, data_folder):
    for name, content in IDX_FILES.items():
        (data_folder / "mnist" / name).write_bytes(content)
    last = channels_last(COLOUR)
    (data_folder / "cifar10" / "train_20k.npz").write_bytes(npz(x=last[:3], y=CLASSES[:3].astype(np.uint8)))
    (data_folder / "svhn" / "test_first10k.npz").write_bytes(npz(x=last[:3], y=CLASSES[:3].astype(np.uint8)))
    assert_holds(load_images("mnist").test, GREY, LABELS)
    assert_holds(load_images("cifar10-20k").train, COLOUR[:3], CLASSES[:3])
    assert_holds(load_images("svhn-10k").test, COLOUR[:3], CLASSES[:3])
    assert not cache.exists()


def test_labels_alone_are_no_part_of_a_set(monkeypatch, data_folder):
    (data_folder / "mnist" / "t10k-labels-idx1-ubyte.gz").write_bytes(IDX_FILES["t10k-labels-idx1-ubyte.gz"])
    with pytest.raises(ConnectionError, match=str(data_folder)):
        read("mnist")
    go_online(monkeypatch, IDX_FILES)
    assert_holds(load_images("mnist").test, GREY, LABELS)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80\x04K\x01.",
        npz(x=channels_last(COLOUR[:3]), y=CLASSES[:3])[:-40],
        npz(x=channels_last(COLOUR[:3])),
        npz(x=COLOUR[:3], y=CLASSES[:3]),
        npz(x=channels_last(COLOUR[1:4]), y=CLASSES[:3]),
        npz(x=channels_last(COLOUR[:3]), y=CLASSES[:3].astype(object)),
        npz(x=channels_last(COLOUR[:3]), y=CLASSES[:3], compression=zipfile.ZIP_STORED).replace(
            b"(3, 32, 32, 3)", b"(3, 32, 9**9) "
        ),
    ],
    ids=["empty", "pickle", "cut off", "no labels", "channels first", "pixels", "objects", "header"],
)
def test_a_file_of_something_else_is_refused_with_one_sentence(data_folder, content):
    (data_folder / "svhn" / "test_first10k.npz").write_bytes(content)
    wanted = r"test_first10k\.npz is damaged or not the image set 'svhn-10k' \(.+\); .*to download the image set\.$"
    with pytest.raises(ValueError, match=wanted) as caught:
        read("svhn-10k")
    assert "\n" not in str(caught.value)


def test_an_unknown_name_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match=r"no image set 'cifar10'; the sets are fashion-mnist, mnist, cifar10-20k, svhn-10k\.$"):
        load_images("cifar10")
    assert tuple(sets._SETS) == get_args(ImageName)
    assert all(len(load_images(name).class_names) == 10 for name in get_args(ImageName))


def test_fashion_mnist_has_its_shape_and_classes(image_folder):
    test = load_images("fashion-mnist").test
    assert test.x.shape == (10000, 1, 28, 28)
    assert test.y.bincount().tolist() == [1000] * 10


def test_svhn_has_its_shape_classes_and_colours(image_folder):
    test = load_images("svhn-10k").test
    assert test.x.shape == (10000, 3, 32, 32)
    assert test.y.bincount().tolist() == [684, 1968, 1590, 1104, 964, 909, 773, 767, 621, 620]
    means = test.x.double().mean((0, 2, 3)) / 255
    np.testing.assert_allclose(means, [0.4537, 0.4538, 0.4702], atol=5e-5)


@pytest.mark.slow
def test_every_part_of_every_set_has_its_checksum(image_folder):
    counts = {(name, part): read(name, part).y.bincount().tolist() for name, rest in sets._SETS.items() for part in rest.parts}
    assert counts["cifar10-20k", "train"] == [1989, 1981, 2042, 2011, 2009, 1925, 2038, 2027, 2012, 1966]
    assert counts["cifar10-20k", "test"] == [1000] * 10
    assert counts["fashion-mnist", "train"] == [6000] * 10
    assert len(counts) == 7
