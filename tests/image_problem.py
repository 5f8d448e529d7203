"""A problem of the image table with random images, for the tests of its machinery and of its methods."""

import numpy as np
import pytest
import torch
from benchmarks.tables.images import data, interface, networks, training
from benchmarks.tables.images.protocol import Task
from benchmarks.tables.images.sets import Images, LabelledImages

TASK = Task("fashion-mnist", 0, "MAP", quick=True)
SHAPES = {"fashion-mnist": (1, 28, 28), "mnist": (1, 28, 28), "cifar10-20k": (3, 32, 32), "svhn-10k": (3, 32, 32)}


def bytes_of(shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8))


@pytest.fixture
def made_up(monkeypatch, tmp_path):
    """Random images in place of the real ones, and a cache of their own; returns the sets by name."""
    sets = {}
    for i, (name, shape) in enumerate(SHAPES.items()):
        images = Images(name, tuple("0123456789"))
        for j, part in enumerate(("train", "test")):
            y = torch.from_numpy(np.random.default_rng(i).integers(0, 10, 300))
            images.__dict__[part] = LabelledImages(bytes_of((300, *shape), 10 * i + j), y)
        sets[name] = images
    monkeypatch.setattr(data, "_images", sets.__getitem__)
    monkeypatch.setenv("GWI_CACHE", str(tmp_path / "cache"))
    data.load.cache_clear()
    yield sets
    data.load.cache_clear()


@pytest.fixture
def problem(made_up):
    found = data.load("fashion-mnist", quick=True)
    network = networks.build(networks.ARCHITECTURES["fashion-mnist"], seed=0).eval()
    return interface.Problem(found, TASK.recipe(), 0, training.Trained(network, 1.0))
